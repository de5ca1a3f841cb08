/* neurons.c: see neurons.h. */
#include "neurons.h"

#include <string.h>

#include "mem.h"

static size_t size_of(int32_t n_layer) {
    return sizeof(neuron_counts) + (size_t)n_layer * sizeof(neuron_layer);
}

neuron_counts *neurons_create(int32_t n_layer) {
    neuron_counts *n = mem_calloc(1, size_of(n_layer));
    if (n) n->n_layer = n_layer;
    return n;
}

void neurons_add(neuron_counts *n, const pi_context *c, const pi_counters *step) {
    uint64_t n_ubatches = pi_context_watched(c);
    if (n_ubatches == 0) return;
    n->n_ubatches += n_ubatches;
    n->n_tokens += step->tokens;
    n->weight_bytes += step->weight_bytes;
    n->ffn_bytes += step->ffn_bytes;
    n->ffn_all += step->ffn_total_bytes;
    for (int32_t i = 0; i < n->n_layer; i++) {
        neuron_layer *to = &n->layers[i];
        pi_layer_activity now;
        pi_layer_placement placed;
        pi_context_get_activity(c, i, &now);
        pi_context_get_layer(c, i, &placed);
        to->attention_on_gpu = placed.attention_on_gpu;
        for (int k = 0; k < NEURON_BINS && now.bins; k++) to->bins[k] += now.bins[k];
        now.hot += to->of.hot;
        now.bins = NULL;
        to->of = now;
    }
}

void neurons_take(neuron_counts *to, neuron_counts *from) {
    int32_t n_layer = from->n_layer;
    memcpy(to, from, size_of(n_layer));
    memset(from, 0, size_of(n_layer));
    from->n_layer = n_layer;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static double share(uint64_t part, uint64_t whole) {
    return whole ? (double)part / (double)whole : 0;
}

/* First unit of a bin: the least u with u * NEURON_BINS / n_units >= bin. */
static int64_t first_of(int64_t bin, int64_t n_units) {
    return (bin * n_units + NEURON_BINS - 1) / NEURON_BINS;
}

/* Activity of a bin's units, 0 to 255; -1: the units are on the GPU, or the bin is empty. */
static int64_t level_of(const neuron_layer *l, uint64_t n_ubatches, int bin) {
    int64_t first = first_of(bin, l->of.n_units), end = first_of(bin + 1, l->of.n_units);
    if (first < l->of.n_hot) first = l->of.n_hot;
    if (first >= end) return -1;
    return (int64_t)(255 * share(l->bins[bin], n_ubatches * (uint64_t)(end - first)) + 0.5);
}

static void put_layer(const neuron_layer *l, uint64_t n_ubatches, json_writer *w) {
    static const char *const kinds[] = {[PI_ACTIVITY_DENSE] = "dense",
                                        [PI_ACTIVITY_NEURONS] = "neurons",
                                        [PI_ACTIVITY_EXPERTS] = "experts"};
    uint64_t active = l->of.hot;
    for (int k = 0; k < NEURON_BINS; k++) active += l->bins[k];
    json_put_object(w, NULL);
    json_put_text(w, "kind", kinds[l->of.kind]);
    json_put_int(w, "units", l->of.n_units);
    json_put_int(w, "hot", l->of.n_hot);
    json_put_text(w, "attention", l->attention_on_gpu ? "gpu" : "cpu");
    if (l->of.kind != PI_ACTIVITY_DENSE) {
        json_put_number(w, "active", share(active, n_ubatches));
        json_put_number(w, "hot_active", share(l->of.hot, n_ubatches));
        json_put_array(w, "levels");
        for (int k = 0; k < NEURON_BINS; k++) json_put_int(w, NULL, level_of(l, n_ubatches, k));
        json_end_array(w);
    }
    json_end_object(w);
}

void neurons_write(const neuron_counts *n, uint64_t weight_bytes, json_writer *w) {
    json_put_int(w, "steps", (int64_t)n->n_ubatches);
    json_put_int(w, "tokens", (int64_t)n->n_tokens);
    json_put_number(w, "weight_share", share(n->weight_bytes, n->n_ubatches * weight_bytes));
    json_put_number(w, "ffn_share", share(n->ffn_bytes, n->ffn_all));
    json_put_array(w, "layers");
    for (int32_t i = 0; i < n->n_layer; i++) put_layer(&n->layers[i], n->n_ubatches, w);
    json_end_array(w);
}
