/* api_context.c: public contexts: an engine's context, its model and options. */
#include <assert.h>
#include <math.h>

#include "api_cluster.h"
#include "engine.h"
#include "mem.h"
#include "option_types.h"

pi_context_options pi_context_default_options(void) {
    return (pi_context_options){.n_batch = 512,
                                .max_loss = 0.01f,
                                .attn_blocks = PI_ATTN_BLOCKS_AUTO,
                                .threshold = NAN,
                                .vram_budget = PI_VRAM_FREE,
                                .ram_budget = PI_RAM_FREE,
                                .gpu_layers = -1};
}

pi_status pi_context_create(const pi_model *m, const pi_context_options *options, pi_context **out,
                            pi_error *err) {
    pi_context_options o = options ? *options : pi_context_default_options();
    engine_options engine;
    *out = NULL;
    if (!m->weights)
        return error_set(err, PI_ERR_ARG,
                         "no weights: context: the model was opened for its vocabulary only");
    if (m->weights->draft.target) { /* its weights are mapped, or the model's */
        o.device = PI_DEVICE_CPU;
        o.ram_budget = PI_RAM_MAPPED;
    }
    if (o.drafter && o.drafter->weights->draft.target != m->weights)
        return error_set(err, PI_ERR_ARG, "bad drafter: context: it is no head of this model");
    if (o.drafter && o.cluster && pi_cluster_size(o.cluster) > 1)
        return error_set(err, PI_ERR_UNSUPPORTED,
                         "heads that draft need all layers of their model on one machine");
    pi_status status = option_engine(m->weights, &o, &engine, err);
    if (status != PI_OK) return status;
    engine.plan.drafter = o.drafter ? o.drafter->weights : NULL;
    option_apply_tuning(m->weights, &o, &engine);
    /* An encoder's cache holds one text during one call: its size does not matter. */
    if (m->weights->arch->encoder) {
        if (engine.type_k == QUANT_F16) engine.type_k = QUANT_F32;
        if (engine.type_v == QUANT_F16) engine.type_v = QUANT_F32;
    }
    pi_context *c = mem_calloc(1, sizeof *c);
    if (!c) return error_nomem(err, sizeof *c, "context");
    c->model = m;
    c->options = engine;
    if (o.cluster && pi_cluster_size(o.cluster) > 1) {
        o.max_batch = 0; /* all ranks have the same ubatches */
        status = api_cluster_begin(c, &o, err);
    }
    if (status == PI_OK) status = api_place(c, &o, err);
    if (status == PI_OK && c->cluster) status = api_cluster_end(c, err);
    if (status != PI_OK) {
        pi_context_destroy(c);
        return status;
    }
    *out = c;
    return PI_OK;
}

void pi_context_destroy(pi_context *c) {
    if (!c) return;
    api_close(c);
    api_close_weights(c);
    mem_free(c);
}

/* ---- forward -------------------------------------------------------------------------------- */

pi_status pi_forward(pi_context *c, const pi_input *inputs, int32_t n_inputs, pi_error *err) {
    return engine_forward(c->engine, inputs, n_inputs, err);
}

pi_status pi_forward_begin(pi_context *c, const pi_input *inputs, int32_t n_inputs, pi_error *err) {
    return engine_forward_begin(c->engine, inputs, n_inputs, err);
}
pi_status pi_forward_end(pi_context *c, pi_error *err) {
    return engine_forward_end(c->engine, err);
}
int32_t pi_context_passes(const pi_context *c) {
    return engine_passes(c->engine);
}

const float *pi_logits(const pi_context *c, int32_t row) {
    assert(row >= 0 && row < engine_logits_rows(c->engine));
    return engine_logits(c->engine, row);
}
int32_t pi_logits_rows(const pi_context *c) {
    return engine_logits_rows(c->engine);
}
const float *pi_hidden(const pi_context *c, int32_t row) {
    assert(row >= 0 && row < engine_hidden_rows(c->engine));
    return engine_hidden(c->engine, row);
}
int32_t pi_hidden_rows(const pi_context *c) {
    return engine_hidden_rows(c->engine);
}
void pi_context_cancel(pi_context *c) {
    engine_cancel(c->engine);
}
const char *pi_context_mode(const pi_context *c) {
    return ffn_mode_name(engine_plan(c->engine)->mode);
}

double pi_context_loss(const pi_context *c) {
    const plan *p = engine_plan(c->engine);
    const model_sparse *s = &c->weights->sparse;
    const model_tuning *t = &c->weights->tuning;
    const plan_options *o = &c->options.plan;
    double loss = 0;
    if (o->attn_blocks > 0)
        return t->here && o->attn_blocks == t->attn_blocks ? (double)t->loss : (double)NAN;
    for (int i = 0; i < p->model->hp.n_layer; i++) {
        pi_mode mode = plan_mode_of_layer(p, i);
        if (mode == PI_MODE_THRESHOLD) loss = (double)s->threshold_loss;
        if (mode != PI_MODE_PREDICT) continue;
        return o->set_threshold ? (double)NAN : (double)s->predict_loss;
    }
    return loss;
}

bool pi_context_predicts_head(const pi_context *c, double *loss) {
    const plan *p = engine_plan(c->engine);
    bool predicts = p->predicts_head;
    *loss = predicts ? (double)c->weights->sparse.head.loss : 0;
    return predicts;
}

const char *pi_context_kernels(const pi_context *c) {
    return engine_kernels(c->engine)->name;
}
int32_t pi_context_attn_blocks(const pi_context *c) {
    return c->options.plan.attn_blocks;
}
int32_t pi_context_threads(const pi_context *c) {
    return engine_threads(c->engine);
}
int32_t pi_context_batch(const pi_context *c) {
    return engine_batch(c->engine);
}
const pi_model *pi_context_model(const pi_context *c) {
    return c->model;
}

void pi_context_get_counters(const pi_context *c, pi_counters *out) {
    *out = engine_get_counters(c->engine);
}

/* ---- memory ---------------------------------------------------------------------------------- */

void pi_context_get_memory(const pi_context *c, pi_memory *out) {
    const paging *g = engine_paging(c->engine);
    *out = (pi_memory){.budget = 0};
    if (!g) return;
    paging_sizes s = paging_get_sizes(g);
    paging_counts n = paging_get_counts(g);
    *out = (pi_memory){.budget = c->ram_used,
                       .needed = s.needed + s.beside,
                       .buffers = s.beside + s.lent,
                       .always = s.always,
                       .pinned = s.pinned + s.hot,
                       .ring = s.ring,
                       .cache = s.cache,
                       .streamed = s.streamed,
                       .cached = s.cached,
                       .reads = n.reads,
                       .read_bytes = n.bytes,
                       .read_seconds = n.busy,
                       .hits = n.hits,
                       .misses = n.misses,
                       .ahead = n.ahead,
                       .in_vain = n.in_vain,
                       .backend = paging_backend(g)};
}

pi_status pi_context_measure_drive(const pi_context *c, uint64_t n_bytes, double seconds,
                                   double *rate, pi_error *err) {
    paging *g = engine_paging(c->engine);
    *rate = 0;
    if (!g) return error_set(err, PI_ERR_ARG, "nothing to measure: drive: no memory budget");
    return paging_measure(g, (size_t)n_bytes, seconds, rate, err);
}

/* ---- activity -------------------------------------------------------------------------------- */

pi_status pi_context_watch(pi_context *c, int32_t n_bins, pi_error *err) {
    return engine_watch(c->engine, n_bins, err);
}
uint64_t pi_context_watched(const pi_context *c) {
    return engine_watched(c->engine);
}
void pi_context_get_activity(const pi_context *c, int32_t layer, pi_layer_activity *out) {
    assert(layer >= 0 && layer < c->weights->hp.n_layer);
    engine_get_activity(c->engine, layer, out);
}
