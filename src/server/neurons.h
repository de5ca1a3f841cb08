/* neurons.h: counts the active neurons or experts of a sequence's decode steps, for clients that
 * display them. The scheduler's thread adds counts, the connection's thread takes them; both hold
 * the scheduler's lock. */
#ifndef SERVER_NEURONS_H
#define SERVER_NEURONS_H

#include "json_writer.h"
#include "powerinfer.h"

enum { NEURON_BINS = 128 }; /* bins per layer: columns of the picture */

/* Seconds between two events of a stream: the refresh rate of the picture. */
#define NEURON_SECONDS 0.08

typedef struct neuron_layer {
    pi_layer_activity of; /* its bins are NULL, its hot is a sum */
    bool attention_on_gpu;
    uint64_t bins[NEURON_BINS];
} neuron_layer;

typedef struct neuron_counts {
    uint64_t n_ubatches, n_tokens;             /* totals of all sequences in the steps */
    uint64_t weight_bytes, ffn_bytes, ffn_all; /* FFN weights that were read; all FFN weights */
    int32_t n_layer;
    neuron_layer layers[]; /* [n_layer] */
} neuron_counts;

/* Returns zeroed counts; free them with mem_free. NULL: out of memory. */
neuron_counts *neurons_create(int32_t n_layer);
/* Adds the context's counts of its last step; `step`: growth of its counters in that step. */
void neurons_add(neuron_counts *n, const pi_context *c, const pi_counters *step);
/* Moves the counts from `from` to `to`. */
void neurons_take(neuron_counts *to, neuron_counts *from);
/* Writes the members of an event. weight_bytes: size of the whole model. */
void neurons_write(const neuron_counts *n, uint64_t weight_bytes, json_writer *w);

#endif
