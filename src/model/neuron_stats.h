/* neuron_stats.h: neuron statistics of a prepared file: how unevenly they are active, and what its
 * predictors select. Taken from keys and tensors by name; nothing is trusted: frequencies need not
 * be sorted, per-layer arrays may be short or of other types. */
#ifndef MODEL_NEURON_STATS_H
#define MODEL_NEURON_STATS_H

#include "gguf.h"

enum {
    NEURONS_CURVE = 100,      /* steps of the hot/cold curve */
    NEURONS_MAX_LAYERS = 1024 /* more are left out: no model has as many */
};

typedef struct neuron_stats_layer {
    uint64_t n_neurons; /* 0: the layer has no frequencies */
    double density;     /* fraction of active neurons per token: the mean frequency */
    /* The most active share of the neurons that has 50%, 80%, 95% of all activations. */
    double share_50, share_80, share_95;
    /* curve[k]: what the most active k / NEURONS_CURVE of the neurons has of all activations. */
    double curve[NEURONS_CURVE + 1];
    char predictor[16];      /* "lowrank"; "" when not given */
    uint64_t rank;           /* 0: none */
    double recall, selected; /* contribution recall, share selected; NAN: not given */
} neuron_stats_layer;

typedef struct neuron_stats {
    int n_layers;               /* 0: the file has no frequencies */
    const char *units;          /* "neurons"; "experts" where a layer has these */
    neuron_stats_layer *layers; /* [n_layers] */
    int64_t tokens;             /* of calibration; 0: none, -1: not given */
    double loss;                /* relative increase of perplexity; NAN: not known */
    neuron_stats_layer mean;    /* over the layers that have something to say; predictor: of most */
    int n_same_predictor;       /* layers that have that predictor, of that rank */
} neuron_stats;

/* n_layer: as the header says; below 1: there are none. PI_ERR_NOMEM. */
pi_status neuron_stats_gather(const gguf_file *f, int64_t n_layer, neuron_stats *out,
                              pi_error *err);
void neuron_stats_free(neuron_stats *n);

#endif
