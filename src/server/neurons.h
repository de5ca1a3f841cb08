/* neurons.h: which neurons or experts fired while a sequence generated, for those who watch. The
 * scheduler's thread adds, the connection's thread takes; both under the scheduler's lock. */
#ifndef SERVER_NEURONS_H
#define SERVER_NEURONS_H

#include "json_writer.h"
#include "powerinfer.h"

enum { NEURON_BINS = 128 }; /* per layer: columns of a picture */

/* Seconds between two events of a stream: as fast as a picture needs to be. */
#define NEURON_SECONDS 0.08

typedef struct neuron_layer {
    pi_layer_activity of; /* its bins are NULL, its hot a sum */
    bool attention_on_gpu;
    uint64_t bins[NEURON_BINS];
} neuron_layer;

typedef struct neuron_counts {
    uint64_t n_ubatches, n_tokens; /* of all sequences in the steps */
    uint64_t weight_bytes, ffn_bytes,
        ffn_all; /* read in them; of FFN weights; of which there are */
    int32_t n_layer;
    neuron_layer layers[]; /* [n_layer] */
} neuron_counts;

/* Zero. NULL: no memory. Freed with mem_free. */
neuron_counts *neurons_create(int32_t n_layer);
/* Adds what the context counted in its last step, in which its counters grew by `step`. */
void neurons_add(neuron_counts *n, const pi_context *c, const pi_counters *step);
/* Moves what is in `from` to `to`. */
void neurons_take(neuron_counts *to, neuron_counts *from);
/* Members of an event. weight_bytes: of the whole model. */
void neurons_write(const neuron_counts *n, uint64_t weight_bytes, json_writer *w);

#endif
