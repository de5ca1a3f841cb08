/* counters.c: counts bytes that ubatches read, experts, and active neurons. The plan counts the
 * bytes of steps that always read all of their weights; the threads and GPUs count what they read
 * in other steps. */
#include "context.h"

/* ---- bytes ----------------------------------------------------------------------------------- */

/* The GPUs' active neurons. */
static void count_active(engine_context *c) {
    for (int k = 0; k < c->gpu.n_gpus; k++)
        for (int i = 0; i < c->cpu.model->hp.n_layer && c->gpu.gpus[k]; i++) {
            if (plan_gpu_ffn(c->cpu.plan, k, i)->mode == PI_MODE_DENSE) continue;
            uint64_t n = gpu_exec_active(c->gpu.gpus[k], i);
            c->counters.active_neurons += n;
            c->counters.active_gpu_neurons += n;
        }
}

void context_count(engine_context *c) {
    const plan *p = c->cpu.plan;
    pi_counters *n = &c->counters;
    const bool few = context_gpus_have_few(c);
    n->ubatches++;
    n->tokens += (uint64_t)c->cpu.ubatch.n_tokens;
    n->weight_bytes += p->fixed_bytes;
    if (c->cpu.ubatch.n_out == 0) n->weight_bytes -= p->head_bytes;
    const model_tensor *t = c->cpu.model->t;
    n->weight_bytes += (uint64_t)c->cpu.ubatch.n_tokens *
                       (t[ROLE_TOKEN_EMBD].row_bytes + t[ROLE_LAYER_EMBD].row_bytes +
                        (uint64_t)c->cpu.model->hp.ngrams.n_rows * t[ROLE_NGRAM_EMBD].row_bytes);
    n->ffn_bytes += p->fixed_ffn_bytes;
    n->ffn_total_bytes += p->ffn_bytes;
    for (int i = 0; i < c->cpu.ubatch.nth; i++) {
        ubatch_bytes *b = &c->cpu.scratch[i].counts;
        n->weight_bytes += b->ffn + b->predictor + b->head;
        n->ffn_bytes += b->ffn;
        n->gathered_bytes += b->gathered;
        if (few) n->active_neurons += b->active;
        *b = (ubatch_bytes){0};
    }
    for (int i = 0; i < c->gpu.n_gpus; i++) {
        uint64_t bytes = c->gpu.gpus[i] ? gpu_exec_sparse_bytes(c->gpu.gpus[i]) : 0;
        n->weight_bytes += bytes;
        n->ffn_bytes += bytes;
    }
    if (few) count_active(c);
    for (int i = 0; i < c->cpu.ubatch.n_items; i++) {
        const ubatch_item *item = &c->cpu.ubatch.items[i];
        uint64_t positions = (uint64_t)(item->pos + item->n_tokens);
        for (int l = 0; l < c->cpu.model->hp.n_layer; l++) {
            const model_layer_hparams *lhp = &c->cpu.model->layers[l].hp;
            uint64_t seen = (uint64_t)lhp->window + (uint64_t)item->n_tokens;
            if (lhp->window == 0 || seen > positions) seen = positions;
            const kv_layer *kv = &item->session->kv.layers[l];
            if (!plan_owns(c->cpu.plan, l)) continue;
            plan_blocks blocks = plan_attention_blocks(c->cpu.plan, l);
            if (ubatch_reads_all(item, &blocks)) blocks.size = 0;
            n->kv_bytes += kv_layer_read(c->cpu.model, l, kv, &blocks, seen,
                                         (uint64_t)item->n_tokens);
        }
        n->kv_bytes += (uint64_t)item->session->state.n_floats * sizeof(float);
    }
}

/* ---- experts --------------------------------------------------------------------------------- */

/* Adds the choices of the GPU's router since the last call; the first call only stores the
 * counts. */
static void count_routed(engine_context *c, int layer) {
    size_t at = (size_t)layer * (size_t)c->cpu.plan->n_expert;
    const int32_t *now = gpu_exec_uses(context_gpu(c, layer), layer);
    int32_t *seen = c->cpu.experts.seen + at, n_active = 0;
    for (int i = 0; i < c->cpu.plan->experts[layer].n_expert; i++) {
        int32_t n = now[i] - seen[i];
        seen[i] = now[i];
        if (n == 0 || !c->cpu.experts.looked) continue;
        c->cpu.experts.uses[at + (size_t)i] += (uint64_t)n;
        if (c->cpu.adapter) adapt_count(c->cpu.adapter, layer, i, n);
        c->cpu.experts.active[n_active++] = i;
    }
    cpu_exec_watch_experts(&c->cpu, layer, c->cpu.experts.active, n_active);
}

void context_count_routed(engine_context *c) {
    bool looks = c->gpu.n_gpus > 0 && c->gpu.wants_uses;
    for (int i = 0; i < c->cpu.model->hp.n_layer && looks; i++) {
        const plan_experts *e = &c->cpu.plan->experts[i];
        if (e->n_expert > 0 && e->primary == SIDE_GPU) count_routed(c, i);
    }
    c->cpu.experts.looked = looks;
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

static bool is_sparse(const plan *p, int layer) {
    const plan_ffn *f = &p->ffn[layer];
    bool any = f->sparse;
    for (int i = 0; i < p->n_devices; i++) any = any || plan_gpu_ffn(p, i, layer)->sparse;
    return any && f->mode != PI_MODE_DENSE;
}

void engine_get_activity(const engine_context *c, int layer, pi_layer_activity *out) {
    const plan *p = c->cpu.plan;
    *out = (pi_layer_activity){.kind = PI_ACTIVITY_DENSE};
    if (!p) return;
    int n_expert = p->experts[layer].n_expert;
    if (n_expert)
        out->kind = PI_ACTIVITY_EXPERTS;
    else if (is_sparse(p, layer))
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

pi_counters engine_get_counters(const engine_context *c) {
    return c->counters;
}

paging *engine_paging(const engine_context *c) {
    return c->cpu.paging;
}
