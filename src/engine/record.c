/* record.c: what a context records about its ubatches: the bytes that they read (pi_counters), the
 * experts and neurons that were active, and the timeline of a trace. */
#include "clock.h"
#include "context.h"

/* ---- bytes ----------------------------------------------------------------------------------- */

/* The plan counts the bytes of steps that always read all of their weights; the threads and GPUs
 * count what they read in other steps. */
void context_count(engine_context *c) {
    const plan *p = c->cpu.plan;
    const model *m = c->cpu.model;
    const engine_ubatch *u = &c->cpu.ubatch;
    pi_counters *n = &c->counters;
    const bool few = context_gpus_have_few(c);
    n->ubatches++;
    n->tokens += (uint64_t)u->n_tokens;
    n->weight_bytes += p->fixed_bytes;
    if (u->n_out == 0) n->weight_bytes -= p->head_bytes;
    n->weight_bytes += (uint64_t)u->n_tokens *
                       (m->t[ROLE_TOKEN_EMBD].row_bytes + m->t[ROLE_LAYER_EMBD].row_bytes +
                        (uint64_t)m->hp.ngrams.n_rows * m->t[ROLE_NGRAM_EMBD].row_bytes);
    n->ffn_bytes += p->fixed_ffn_bytes;
    n->ffn_total_bytes += p->ffn_bytes;
    for (int i = 0; i < u->nth; i++) {
        ubatch_bytes *b = &c->cpu.scratch[i].counts;
        n->weight_bytes += b->ffn + b->predictor + b->head;
        n->ffn_bytes += b->ffn;
        n->gathered_bytes += b->gathered;
        if (few) n->active_neurons += b->active;
        *b = (ubatch_bytes){0};
    }
    for (int k = 0; k < c->gpu.n_gpus; k++) {
        gpu_exec *g = c->gpu.gpus[k];
        if (!g) continue;
        const uint64_t bytes = gpu_exec_sparse_bytes(g);
        n->weight_bytes += bytes;
        n->ffn_bytes += bytes;
        for (int i = 0; i < m->hp.n_layer && few; i++) {
            if (plan_gpu_ffn(p, k, i)->mode == PI_MODE_DENSE) continue;
            const uint64_t n_active = gpu_exec_active(g, i);
            n->active_neurons += n_active;
            n->active_gpu_neurons += n_active;
        }
    }
    for (int i = 0; i < u->n_items; i++) {
        const ubatch_item *item = &u->items[i];
        uint64_t positions = (uint64_t)(item->pos + item->n_tokens);
        for (int l = 0; l < m->hp.n_layer; l++) {
            if (!plan_owns(p, l)) continue;
            const model_layer_hparams *lhp = &m->layers[l].hp;
            uint64_t seen = (uint64_t)lhp->window + (uint64_t)item->n_tokens;
            if (lhp->window == 0 || seen > positions) seen = positions;
            plan_blocks blocks = plan_attention_blocks(p, l);
            if (ubatch_reads_all(item, &blocks)) blocks.size = 0;
            n->kv_bytes += kv_layer_read(m, l, &item->session->kv.layers[l], &blocks, seen,
                                         (uint64_t)item->n_tokens);
        }
        n->kv_bytes += (uint64_t)item->session->state.n_floats * sizeof(float);
    }
}

pi_counters engine_get_counters(const engine_context *c) {
    return c->counters;
}

/* ---- experts --------------------------------------------------------------------------------- */

/* A GPU's router counts the uses of its experts and never clears the counts: the uses since the
 * last ubatch are a difference. The first ubatch after a pause only stores the counts. */
void context_count_routed(engine_context *c) {
    const plan *p = c->cpu.plan;
    ubatch_experts *x = &c->cpu.experts;
    const bool looks = c->gpu.n_gpus > 0 && c->gpu.wants_uses;
    for (int layer = 0; layer < c->cpu.model->hp.n_layer && looks; layer++) {
        const plan_experts *e = &p->experts[layer];
        if (e->n_expert == 0 || e->primary != SIDE_GPU) continue;
        const size_t at = (size_t)layer * (size_t)p->n_expert;
        const int32_t *now = gpu_exec_uses(context_gpu(c, layer), layer);
        int n_active = 0;
        for (int i = 0; i < e->n_expert; i++) {
            const int32_t n = now[i] - x->seen[at + (size_t)i];
            x->seen[at + (size_t)i] = now[i];
            if (n == 0 || !x->looked) continue;
            x->uses[at + (size_t)i] += (uint64_t)n;
            if (c->cpu.adapter) adapt_count(c->cpu.adapter, layer, i, n);
            x->active[n_active++] = i;
        }
        cpu_exec_watch_experts(&c->cpu, layer, x->active, n_active);
    }
    x->looked = looks;
}

const uint64_t *engine_expert_uses(const engine_context *c, int layer) {
    if (c->cpu.plan->experts[layer].n_expert == 0) return NULL;
    return c->cpu.experts.uses + (size_t)layer * (size_t)c->cpu.plan->n_expert;
}

engine_pairs engine_expert_pairs(const engine_context *c) {
    return (engine_pairs){.n_tokens = c->cpu.ubatch.n_tokens,
                          .first = c->cpu.experts.first,
                          .token = c->cpu.experts.token};
}

/* ---- activity -------------------------------------------------------------------------------- */

pi_status engine_watch(engine_context *c, int n_bins, pi_error *err) {
    if (n_bins < 0 || n_bins > PI_ACTIVITY_MAX_BINS)
        return error_set(err, PI_ERR_ARG, "bad number of bins: watch: %d: use 0 to %d", n_bins,
                         PI_ACTIVITY_MAX_BINS);
    if (n_bins > 0 && c->cpu.activity && c->cpu.activity->n_bins == n_bins) {
        activity_reset(c->cpu.activity);
        return PI_OK;
    }
    activity_free(c->cpu.activity);
    c->cpu.activity = NULL;
    return n_bins > 0 ? activity_create(c->source, n_bins, &c->cpu.activity, err) : PI_OK;
}

uint64_t engine_watched(const engine_context *c) {
    return c->cpu.activity ? c->cpu.activity->n_ubatches : 0;
}

void engine_get_activity(const engine_context *c, int layer, pi_layer_activity *out) {
    const plan *p = c->cpu.plan;
    *out = (pi_layer_activity){.kind = PI_ACTIVITY_DENSE};
    if (!p) return;
    int n_expert = p->experts[layer].n_expert;
    bool sparse = p->ffn[layer].sparse;
    for (int i = 0; i < p->n_devices; i++) sparse = sparse || plan_gpu_ffn(p, i, layer)->sparse;
    if (n_expert)
        out->kind = PI_ACTIVITY_EXPERTS;
    else if (sparse && p->ffn[layer].mode != PI_MODE_DENSE)
        out->kind = PI_ACTIVITY_NEURONS;
    out->n_units = n_expert ? n_expert : (int32_t)c->cpu.model->layers[layer].hp.n_ff;
    out->n_hot = (int32_t)plan_split_end(&p->splits[layer]);
    if (c->cpu.activity) activity_read(c->cpu.activity, layer, out);
}

void context_count_activity(engine_context *c) {
    activity_counts *a = c->cpu.activity;
    if (c->cpu.ubatch.form == FORM_MANY) return;
    a->n_ubatches++;
    for (int i = 0; i < c->cpu.model->hp.n_layer; i++)
        for (int k = 0; k < c->gpu.n_gpus; k++)
            if (c->gpu.gpus[k]) a->hot[i] += gpu_exec_active(c->gpu.gpus[k], i);
}

/* ---- the timeline ---------------------------------------------------------------------------- */

enum { MAX_UBATCHES = 1024 };

pi_status engine_trace_start(engine_context *c, int n_ubatches, pi_error *err) {
    engine_trace_stop(c);
    if (!c->cpu.plan) return context_unusable(c, err);
    if (n_ubatches < 1 || n_ubatches > MAX_UBATCHES)
        return error_set(err, PI_ERR_ARG, "bad number of ubatches: trace: %d: use 1 to %d",
                         n_ubatches, MAX_UBATCHES);
    const engine_trace shape = {.plan = c->cpu.plan,
                                .n_threads = pool_size(c->cpu.pool),
                                .n_gpus = c->gpu.n_gpus,
                                .max_ubatches = n_ubatches};
    /* A thread of the CPU has an event per step, and one per wait for a GPU; the stream of a GPU
     * has one per step, those of the head for every batch of logits. */
    int n_events = c->cpu.plan->n_steps + c->cpu.plan->n_exchanges[SIDE_GPU];
    for (int i = 0; i < c->gpu.n_gpus; i++) {
        int n = c->gpu.gpus[i] ? gpu_exec_marks_capacity(c->gpu.gpus[i]) : 0;
        if (n > n_events) n_events = n;
    }
    pi_status status = trace_create(&shape, n_events, &c->cpu.trace, err);
    for (int i = 0; i < c->gpu.n_gpus && status == PI_OK; i++)
        if (c->gpu.gpus[i]) status = gpu_exec_marks_create(c->gpu.gpus[i], err);
    if (status != PI_OK) engine_trace_stop(c);
    return status;
}

void engine_trace_stop(engine_context *c) {
    for (int i = 0; i < c->gpu.n_gpus && c->cpu.trace; i++)
        if (c->gpu.gpus[i]) gpu_exec_marks_destroy(c->gpu.gpus[i]);
    trace_free(c->cpu.trace);
    c->cpu.trace = NULL;
}

const engine_trace *engine_get_trace(const engine_context *c) {
    return c->cpu.trace;
}

void context_trace_begin(engine_context *c) {
    engine_trace *t = c->cpu.trace;
    t->on = t->n_ubatches < t->max_ubatches;
    if (!t->on) return;
    for (int i = 0; i < c->gpu.n_gpus; i++) {
        if (!c->gpu.gpus[i]) continue;
        gpu_exec_marks_begin(c->gpu.gpus[i], t);
        gpu_exec_record(c->gpu.gpus[i]); /* before the ubatch, not part of the trace */
    }
    trace_begin(t, c->cpu.ubatch.n_tokens);
}

void context_trace_end(engine_context *c, bool done) {
    engine_trace *t = c->cpu.trace;
    if (!t->on) return;
    t->on = false;
    t->ubatches[t->n_ubatches].end = clock_seconds();
    for (int i = 0; i < c->gpu.n_gpus; i++)
        if (c->gpu.gpus[i]) gpu_exec_marks_end(c->gpu.gpus[i], done ? t : NULL);
    trace_end(t, done);
}
