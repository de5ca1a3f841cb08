/* activity.c: counting active neurons and experts. */
#include "activity.h"

#include "context.h"
#include "mem.h"

static void forget(engine_context *c) {
    engine_activity *a = c->activity;
    if (!a) return;
    mem_free(a->hot);
    mem_free((void *)a->bins);
    mem_free(a->shown);
    mem_free(a);
    c->activity = NULL;
}

pi_status engine_watch(engine_context *c, int n_bins, pi_error *err) {
    size_t n_layer = (size_t)c->model->hp.n_layer, n = n_layer * (size_t)n_bins;
    if (n_bins < 0 || n_bins > PI_ACTIVITY_MAX_BINS)
        return error_set(err, PI_ERR_ARG, "bad number of bins: watch: %d: use 0 to %d", n_bins,
                         PI_ACTIVITY_MAX_BINS);
    if (n_bins > 0 && c->activity && c->activity->n_bins == n_bins) {
        engine_activity *a = c->activity;
        a->n_ubatches = 0;
        for (size_t i = 0; i < n_layer; i++) a->hot[i] = 0;
        for (size_t i = 0; i < n; i++) atomic_store_explicit(&a->bins[i], 0, memory_order_relaxed);
        return PI_OK;
    }
    forget(c);
    if (n_bins == 0) return PI_OK;
    engine_activity *a = c->activity = mem_calloc(1, sizeof *a);
    if (!a) return error_nomem(err, sizeof *a, "activity");
    a->n_bins = n_bins;
    a->hot = mem_calloc(n_layer, sizeof *a->hot);
    a->bins = mem_calloc(n, sizeof *a->bins);
    a->shown = mem_calloc(n, sizeof *a->shown);
    if (a->hot && a->bins && a->shown) return PI_OK;
    forget(c);
    return error_nomem(err, n * sizeof *a->bins, "activity");
}

uint64_t engine_watched(const engine_context *c) {
    return c->activity ? c->activity->n_ubatches : 0;
}

static bool is_sparse(const plan *p, int layer) {
    const plan_ffn *f = &p->ffn[layer];
    bool any = f->sparse;
    for (int i = 0; i < p->n_devices; i++) any = any || plan_gpu_ffn(p, i, layer)->sparse;
    return any && f->mode != PI_MODE_DENSE;
}

void engine_get_activity(const engine_context *c, int layer, pi_layer_activity *out) {
    const engine_activity *a = c->activity;
    const plan *p = c->plan;
    *out = (pi_layer_activity){.kind = PI_ACTIVITY_DENSE};
    if (!p) return;
    int n_expert = p->experts[layer].n_expert;
    if (n_expert)
        out->kind = PI_ACTIVITY_EXPERTS;
    else if (is_sparse(p, layer))
        out->kind = PI_ACTIVITY_NEURONS;
    out->n_units = n_expert ? n_expert : (int32_t)c->model->layers[layer].hp.n_ff;
    out->n_hot = (int32_t)plan_split_end(&p->splits[layer]);
    if (!a) return;
    out->hot = a->hot[layer];
    size_t first = (size_t)layer * (size_t)a->n_bins;
    for (int i = 0; i < a->n_bins; i++)
        a->shown[first + (size_t)i] = atomic_load_explicit(&a->bins[first + (size_t)i],
                                                           memory_order_relaxed);
    out->bins = a->shown + first;
}

static void add(engine_activity *a, int layer, int64_t bin, uint32_t n) {
    atomic_fetch_add_explicit(&a->bins[(int64_t)layer * a->n_bins + bin], n, memory_order_relaxed);
}

/* Ascending units fall into ascending bins: one addition for each of them. */
void activity_add_neurons(engine_context *c, int layer, int64_t first, const int32_t *rows,
                          int64_t n) {
    engine_activity *a = c->activity;
    int64_t n_ff = c->model->layers[layer].hp.n_ff, bin = -1;
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

static bool is_among(const int32_t *experts, int n, int32_t expert) {
    for (int i = 0; i < n; i++)
        if (experts[i] == expert) return true;
    return false;
}

void activity_add_experts(engine_context *c, int layer, const int32_t *chosen, int n) {
    const plan_experts *e = &c->plan->experts[layer];
    engine_activity *a = c->activity;
    for (int i = 0; i < n && c->ubatch.form != FORM_MANY; i++) {
        if (is_among(chosen, i, chosen[i])) continue; /* by several tokens */
        add(a, layer, (int64_t)chosen[i] * a->n_bins / e->n_expert, 1);
        if (adapt_slot(c->adapter, layer, chosen[i]) < e->hot) a->hot[layer]++;
    }
}

void activity_end_ubatch(engine_context *c) {
    engine_activity *a = c->activity;
    if (c->ubatch.form == FORM_MANY) return;
    a->n_ubatches++;
    for (int i = 0; i < c->model->hp.n_layer; i++)
        for (int k = 0; k < c->n_gpus; k++)
            if (c->gpus[k]) a->hot[i] += gpu_exec_active(c->gpus[k], i);
}
