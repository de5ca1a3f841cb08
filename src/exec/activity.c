/* activity.c: counting active neurons and experts in bins. */
#include "activity.h"

#include "mem.h"

pi_status activity_create(const model *m, int n_bins, activity_counts **out, pi_error *err) {
    size_t n_layer = (size_t)m->hp.n_layer, n = n_layer * (size_t)n_bins;
    *out = NULL;
    activity_counts *a = mem_calloc(1, sizeof *a);
    if (!a) return error_nomem(err, sizeof *a, "activity");
    a->model = m;
    a->n_bins = n_bins;
    a->hot = mem_calloc(n_layer, sizeof *a->hot);
    a->bins = mem_calloc(n, sizeof *a->bins);
    a->shown = mem_calloc(n, sizeof *a->shown);
    if (!a->hot || !a->bins || !a->shown) {
        activity_free(a);
        return error_nomem(err, n * sizeof *a->bins, "activity");
    }
    *out = a;
    return PI_OK;
}

void activity_free(activity_counts *a) {
    if (!a) return;
    mem_free(a->hot);
    mem_free((void *)a->bins);
    mem_free(a->shown);
    mem_free(a);
}

void activity_reset(activity_counts *a) {
    size_t n_layer = (size_t)a->model->hp.n_layer, n = n_layer * (size_t)a->n_bins;
    a->n_ubatches = 0;
    for (size_t i = 0; i < n_layer; i++) a->hot[i] = 0;
    for (size_t i = 0; i < n; i++) atomic_store_explicit(&a->bins[i], 0, memory_order_relaxed);
}

void activity_read(const activity_counts *a, int layer, pi_layer_activity *out) {
    size_t first = (size_t)layer * (size_t)a->n_bins;
    out->hot = a->hot[layer];
    for (size_t i = first; i < first + (size_t)a->n_bins; i++)
        a->shown[i] = atomic_load_explicit(&a->bins[i], memory_order_relaxed);
    out->bins = a->shown + first;
}

static void add(activity_counts *a, int layer, int64_t bin, uint32_t n) {
    atomic_fetch_add_explicit(&a->bins[(int64_t)layer * a->n_bins + bin], n, memory_order_relaxed);
}

/* Ascending units fall into ascending bins: one addition for each bin. */
void activity_add_neurons(activity_counts *a, int layer, int64_t first, const int32_t *rows,
                          int64_t n) {
    int64_t n_ff = a->model->layers[layer].hp.n_ff, bin = -1;
    uint32_t count = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t next = (first + rows[i]) * a->n_bins / n_ff;
        if (next != bin && count) add(a, layer, bin, count);
        if (next != bin) count = 0;
        bin = next;
        count++;
    }
    if (count) add(a, layer, bin, count);
}

void activity_add_experts(activity_counts *a, int layer, const plan_experts *e,
                          const expert_adapter *adapter, const int32_t *chosen, int n) {
    for (int i = 0; i < n; i++) {
        bool counted = false; /* for an earlier token */
        for (int k = 0; k < i && !counted; k++) counted = chosen[k] == chosen[i];
        if (counted) continue;
        add(a, layer, (int64_t)chosen[i] * a->n_bins / e->n_expert, 1);
        if (adapt_slot(adapter, layer, chosen[i]) < e->hot) a->hot[layer]++;
    }
}
