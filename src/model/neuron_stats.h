/* neuron_stats.h: neuron statistics of a prepared file: how unevenly neurons are active, and which
 * fraction its predictors select. Reads keys and tensors by name and trusts nothing: frequencies
 * need not be sorted, per-layer arrays may be short or have other types. */
#ifndef MODEL_NEURON_STATS_H
#define MODEL_NEURON_STATS_H

#include "gguf.h"

enum {
    NEURONS_CURVE = 100,      /* steps of the hot/cold curve */
    NEURONS_MAX_LAYERS = 1024 /* files with more layers get no statistics; no model has so many */
};

typedef struct neuron_stats_layer {
    uint64_t n_neurons; /* 0: the layer has no frequencies */
    double density;     /* fraction of active neurons per token: the mean frequency */
    /* The smallest fraction of the neurons that has 50%, 80%, 95% of all activations. */
    double share_50, share_80, share_95;
    /* curve[k]: the fraction of all activations in the most active k / NEURONS_CURVE of the
     * neurons. */
    double curve[NEURONS_CURVE + 1];
    char predictor[16];      /* "lowrank"; "" when not given */
    uint64_t rank;           /* 0: none */
    double recall, selected; /* contribution recall, fraction selected; NAN: not given */
} neuron_stats_layer;

typedef struct neuron_stats {
    int n_layers;               /* 0: the file has no frequencies */
    const char *units;          /* "neurons"; "experts" if any layer has experts */
    neuron_stats_layer *layers; /* [n_layers] */
    int64_t tokens;             /* calibration tokens; 0: none, -1: not given */
    double loss;                /* relative increase of perplexity; NAN: unknown */
    neuron_stats_layer mean;    /* over layers with the value; predictor: the most common */
    int n_same_predictor;       /* layers with that predictor and rank */
} neuron_stats;

/* n_layer: from the header; below 1: no layers. PI_ERR_NOMEM. */
pi_status neuron_stats_gather(const gguf_file *f, int64_t n_layer, neuron_stats *out,
                              pi_error *err);
void neuron_stats_free(neuron_stats *n);

#endif
