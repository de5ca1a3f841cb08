/* counters.c: what ubatches read and used. The plan counts the bytes of steps that always read all
 * of their weights; the threads and GPUs count what they read in other steps. */
#include "counters.h"

#include "context_gpus.h"

/* ---- bytes ----------------------------------------------------------------------------------- */

void context_count(engine_context *c) {
    const plan *p = c->plan;
    pi_counters *n = &c->counters;
    n->ubatches++;
    n->tokens += (uint64_t)c->ubatch.n_tokens;
    n->weight_bytes += p->fixed_bytes;
    if (c->ubatch.n_out == 0) n->weight_bytes -= p->head_bytes;
    const model_tensor *t = c->model->t;
    n->weight_bytes += (uint64_t)c->ubatch.n_tokens *
                       (t[ROLE_TOKEN_EMBD].row_bytes + t[ROLE_LAYER_EMBD].row_bytes);
    n->ffn_bytes += p->fixed_ffn_bytes;
    n->ffn_total_bytes += p->ffn_bytes;
    for (int i = 0; i < c->ubatch.nth; i++) {
        ubatch_bytes *b = &c->scratch[i].counts;
        n->weight_bytes += b->ffn + b->predictor;
        n->ffn_bytes += b->ffn;
        n->gathered_bytes += b->gathered;
        *b = (ubatch_bytes){0};
    }
    for (int i = 0; i < c->n_gpus; i++) {
        uint64_t bytes = c->gpus[i] ? gpu_exec_sparse_bytes(c->gpus[i]) : 0;
        n->weight_bytes += bytes;
        n->ffn_bytes += bytes;
    }
    for (int i = 0; i < c->ubatch.n_items; i++) {
        const ubatch_item *item = &c->items[i];
        uint64_t positions = (uint64_t)(item->pos + item->n_tokens);
        for (int l = 0; l < c->model->hp.n_layer; l++) {
            const model_layer_hparams *lhp = &c->model->layers[l].hp;
            uint64_t seen = (uint64_t)lhp->window + (uint64_t)item->n_tokens;
            if (lhp->window == 0 || seen > positions) seen = positions;
            const kv_layer *kv = &item->session->kv.layers[l];
            n->kv_bytes += kv_layer_read(c->model, l, kv, seen, (uint64_t)item->n_tokens);
        }
        n->kv_bytes += (uint64_t)item->session->state.n_floats * sizeof(float);
    }
}

/* ---- experts --------------------------------------------------------------------------------- */

static void add_activity(engine_context *c, int layer, const int32_t *experts, int n) {
    if (!c->activity || c->ubatch.form == FORM_MANY) return;
    activity_add_experts(c->activity, layer, &c->plan->experts[layer], c->adapter, experts, n);
}

void context_count_chosen(engine_context *c, int layer, const int32_t *chosen, int n) {
    uint64_t *uses = c->experts.uses + (size_t)layer * (size_t)c->plan->n_expert;
    for (int i = 0; i < n; i++) uses[chosen[i]]++;
    for (int i = 0; i < n && c->adapter; i++) adapt_count(c->adapter, layer, chosen[i], 1);
    add_activity(c, layer, chosen, n);
}

/* What the GPU's router has chosen since the last look; the first look only remembers. */
static void count_routed(engine_context *c, int layer) {
    size_t at = (size_t)layer * (size_t)c->plan->n_expert;
    const int32_t *now = gpu_exec_uses(context_gpu(c, layer), layer);
    int32_t *seen = c->experts.seen + at, n_active = 0;
    for (int i = 0; i < c->plan->experts[layer].n_expert; i++) {
        int32_t n = now[i] - seen[i];
        seen[i] = now[i];
        if (n == 0 || !c->experts.looked) continue;
        c->experts.uses[at + (size_t)i] += (uint64_t)n;
        if (c->adapter) adapt_count(c->adapter, layer, i, n);
        c->experts.active[n_active++] = i;
    }
    add_activity(c, layer, c->experts.active, n_active);
}

void context_count_routed(engine_context *c) {
    bool looks = c->n_gpus > 0 && context_wants_uses(c);
    for (int i = 0; i < c->model->hp.n_layer && looks; i++) {
        const plan_experts *e = &c->plan->experts[i];
        if (e->n_expert > 0 && e->primary == SIDE_GPU) count_routed(c, i);
    }
    c->experts.looked = looks;
}

const uint64_t *engine_expert_uses(const engine_context *c, int layer) {
    if (c->plan->experts[layer].n_expert == 0) return NULL;
    return c->experts.uses + (size_t)layer * (size_t)c->plan->n_expert;
}

/* ---- activity -------------------------------------------------------------------------------- */

pi_status engine_watch(engine_context *c, int n_bins, pi_error *err) {
    if (n_bins < 0 || n_bins > PI_ACTIVITY_MAX_BINS)
        return error_set(err, PI_ERR_ARG, "bad number of bins: watch: %d: use 0 to %d", n_bins,
                         PI_ACTIVITY_MAX_BINS);
    if (n_bins > 0 && c->activity && c->activity->n_bins == n_bins) {
        activity_reset(c->activity);
        return PI_OK;
    }
    activity_free(c->activity);
    c->activity = NULL;
    return n_bins > 0 ? activity_create(c->source, n_bins, &c->activity, err) : PI_OK;
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
    if (c->activity) activity_read(c->activity, layer, out);
}

void context_count_activity(engine_context *c) {
    activity_counts *a = c->activity;
    if (c->ubatch.form == FORM_MANY) return;
    a->n_ubatches++;
    for (int i = 0; i < c->model->hp.n_layer; i++)
        for (int k = 0; k < c->n_gpus; k++)
            if (c->gpus[k]) a->hot[i] += gpu_exec_active(c->gpus[k], i);
}

pi_counters engine_get_counters(const engine_context *c) {
    return c->counters;
}

paging *engine_paging(const engine_context *c) {
    return c->paging;
}
