/* context_create.c: creates a context: options, plan, pager, working memory, GPUs. */
#include "cpu_topology.h"
#include "mem.h"
#include "stage.h"

static pi_status apply_options(engine_context *c, const engine_options *o, pi_error *err) {
    c->n_threads = o->n_threads > 0 ? o->n_threads : cpu_count_physical();
    c->n_threads_batch = o->n_threads_batch > 0 ? o->n_threads_batch : c->n_threads;
    if (o->n_batch < 1 || o->n_batch > PI_MAX_BATCH)
        return error_set(err, PI_ERR_ARG, "bad batch size: %d: use 1 to %d", o->n_batch,
                         PI_MAX_BATCH);
    c->n_batch = o->n_batch;
    /* A whole text is one ubatch; with `alone` it shares the ubatch with no other text. */
    c->alone = c->cpu.model->hp.bidirectional && o->plan.few_only;
    if (o->stages && c->cpu.model->hp.bidirectional)
        return error_set(err, PI_ERR_UNSUPPORTED,
                         "not on several machines: %s attends in both directions",
                         c->cpu.model->arch->name);
    if (c->cpu.model->hp.bidirectional) c->options.plan.few_only = false;
    size_t row = (size_t)c->cpu.model->hp.n_vocab * sizeof(float);
    size_t fit = ENGINE_LOGITS_BYTES / row;
    if (fit < 1) fit = 1;
    if (fit > (size_t)o->n_batch) fit = (size_t)o->n_batch;
    c->n_logits = o->n_logits > 0 ? o->n_logits : (int)fit;
    /* Copying cold rows to the GPU requires them in memory. */
    if (o->ram_budget) c->options.prompts = GPU_PROMPTS_SPLIT;
    c->options.plan.prefetch = o->ram_budget > 0;
    c->cpu.expert_slack = o->expert_slack;
    c->cpu.type_k = o->type_k;
    c->cpu.type_v = o->type_v;
    if (!cpu_kernels_get(o->tier, &c->cpu.kernels))
        return error_set(err, PI_ERR_UNSUPPORTED,
                         "not supported by this CPU: %s kernels: choose auto",
                         cpu_tier_name(o->tier));
    /* Each expert's kernel depends on its number of tokens. */
    for (int i = 0; i < CPU_ACT_KIND_COUNT && c->options.plan.few_only; i++)
        c->cpu.kernels.tiled[i].from = PLAN_FFN_MAX_COLS + 1;
    return PI_OK;
}

static void drop_built(engine_context *c) {
    mem_unmap(c->memory, c->n_memory);
    mem_free(c->cpu.scratch);
    plan_free(c->cpu.plan);
    paging_destroy(c->cpu.paging);
    model_places_free(c->places);
    c->cpu.paging = NULL;
    c->places = NULL;
    c->memory = NULL;
    c->cpu.scratch = NULL;
    c->cpu.plan = NULL;
}

/* Bytes of KV caches, scores of positions, bounds of keys and recurrent states for
 * options.n_positions. */
static uint64_t session_bytes(const engine_context *c) {
    uint64_t n = 0, n_bounds = 0;
    key_bounds bounds;
    block_scores scores;
    if (!key_bounds_layout(c->cpu.model, c->options.plan.attn_blocks, c->options.n_positions,
                           &bounds))
        bounds.n_bytes = 0; /* creating the session fails */
    if (!block_scores_layout(&c->cpu.model->hp, 0, c->n_batch, c->options.n_positions, &scores))
        scores.n_bytes = 0;
    for (int i = 0; i < c->cpu.model->hp.n_layer; i++) {
        kv_layer l;
        const plan *p = c->cpu.plan;
        n_bounds += plan_attention_blocks(p, i).bounds; /* others touch no memory */
        if (context_kv_on_gpu(c, i) ||
            !plan_holds_cache(p->model, p->first_layer, p->end_layer, i) ||
            !kv_layer_rows(c->cpu.model, i, c->cpu.type_k, c->cpu.type_v, &l))
            continue;
        n += kv_layer_bytes(&l, c->options.n_positions);
    }
    int64_t n_rows;
    size_t n_features = session_features_bytes(c->cpu.plan, c->options.n_positions, c->n_batch,
                                               &n_rows);
    return n + scores.n_bytes + n_features +
           n_bounds * (bounds.n_bytes / (uint64_t)c->cpu.model->hp.n_layer) +
           (uint64_t)c->cpu.plan->n_state * sizeof(float);
}

enum { PROGRAM_BYTES = 32 << 20 }; /* part of a budget: vocabulary, tables, stacks */

bool context_moves_neurons(const engine_options *o) {
    return o->adapt.on && !o->ram_budget;
}

bool engine_has_threads(const engine_context *c) {
    return c->cpu.pool && pool_has_threads(c->cpu.pool);
}

pi_status context_check_process(const engine_context *c, const char *call, pi_error *err) {
    if (engine_has_threads(c)) return PI_OK;
    return error_set(err, PI_ERR_ARG,
                     "context of another process: %s: fork() leaves its threads behind; create a "
                     "context after the fork",
                     call);
}

static pi_status check_sessions(const engine_context *c, const char *call, pi_error *err) {
    pi_status status = context_check_process(c, call, err);
    return status == PI_OK && !c->cpu.plan ? context_unusable(c, err) : status;
}

static void share_with_sessions(engine_context *c) {
    c->host = (session_host){.model = c->cpu.model,
                             .plan = c->cpu.plan,
                             .options = &c->options.plan,
                             .type_k = c->cpu.type_k,
                             .type_v = c->cpu.type_v,
                             .rope = &c->cpu.rope,
                             .kernels = &c->cpu.kernels,
                             .pool = c->cpu.pool,
                             .n_threads = c->n_threads_batch,
                             .gpus = &context_session_gpus,
                             .ranks = c->stage && c->stage->rank == 0 ? &stage_sessions : NULL,
                             .check = check_sessions};
}

/* A context with a memory budget reads the model through a pager, which learns from a first plan
 * which weights steps read. */
static pi_status make_pager(engine_context *c, pi_error *err) {
    plan *first = NULL;
    paging_options options = {.n_batch = c->n_batch, .sizes_only = c->options.sizes_only};
    pi_status status = plan_create(c->source, &c->cpu.kernels, &c->options.plan, &first, err);
    if (status == PI_OK) options.adapts = c->options.adapt.on && adapt_applies(first);
    if (status == PI_OK) status = paging_create(c->source, first, &options, &c->cpu.paging, err);
    plan_free(first);
    if (status == PI_OK) c->cpu.model = paging_model(c->cpu.paging);
    return status;
}

/* Neurons that move between the CPU and one GPU change places in a private mapping of their
 * matrices. */
static pi_status make_places(engine_context *c, pi_error *err) {
    const model *m = c->source;
    const plan_split *splits = c->options.plan.splits;
    bool any = false;
    if (!splits || !context_moves_neurons(&c->options)) return PI_OK;
    int64_t *hot = mem_calloc((size_t)m->hp.n_layer, sizeof *hot);
    if (!hot) return error_nomem(err, (size_t)m->hp.n_layer * sizeof *hot, "places of neurons");
    for (int i = 0; i < m->hp.n_layer; i++) {
        bool split = splits[i].hot < m->layers[i].hp.n_ff && m->layers[i].t[ROLE_FFN_DOWN_T].data;
        if (split && plan_split_end(&splits[i]) == splits[i].hot) hot[i] = splits[i].hot;
        any = any || hot[i] > 0;
    }
    pi_status status = any ? model_places_create(m, hot, &c->places, err) : PI_OK;
    if (c->places) c->cpu.model = model_places_view(c->places);
    mem_free(hot);
    return status;
}

pi_status context_build(engine_context *c, pi_error *err) {
    drop_built(c);
    c->cpu.model = c->cpu.rope.model = c->source;
    share_with_sessions(c); /* if a later step fails, the sessions have no plan */
    pi_status status = c->options.ram_budget ? make_pager(c, err) : make_places(c, err);
    if (status == PI_OK)
        status = plan_create(c->cpu.model, &c->cpu.kernels, &c->options.plan, &c->cpu.plan, err);
    if (status == PI_OK) status = context_allocate(c, err);
    if (status == PI_OK && c->cpu.paging)
        status = paging_fit(c->cpu.paging, c->cpu.plan, c->options.ram_budget,
                            PROGRAM_BYTES + c->n_memory + session_bytes(c), c->n_lent, err);
    if (status != PI_OK) return status;
    rope_init(&c->cpu.rope, c->cpu.model, c->cpu.rope.inv_freq);
    share_with_sessions(c);
    return PI_OK;
}

pi_status engine_context_create(const model *m, const engine_options *options, engine_context **out,
                                pi_error *err) {
    *out = NULL;
    engine_context *c = mem_calloc(1, sizeof *c);
    if (!c) return error_nomem(err, sizeof *c, "context");
    c->source = c->cpu.model = m;
    c->options = *options;
    if (options->gpu) c->options.plan.supports = options->gpu->supports;
    c->cpu.gpus = c->gpu.gpus;
    pi_status status = apply_options(c, options, err);
    if (status == PI_OK) {
        int nth = c->n_threads > c->n_threads_batch ? c->n_threads : c->n_threads_batch;
        status = pool_create(nth, &c->cpu.pool, err);
        if (status == PI_OK && options->pin_threads) pool_pin(c->cpu.pool);
    }
    /* A task of attention holds at least the queries of a token that share a KV head. */
    c->cpu.attn_queries = m->hp.n_index_head > ATTN_QUERIES ? m->hp.n_index_head : ATTN_QUERIES;
    for (int i = 0; i < m->hp.n_layer; i++) {
        const model_layer_hparams *l = &m->layers[i].hp;
        const int group = l->n_head_kv > 0 ? l->n_head / l->n_head_kv : 1;
        if (group > c->cpu.attn_queries) c->cpu.attn_queries = group;
    }
    if (status == PI_OK) status = context_build(c, err);
    if (status == PI_OK && !options->sizes_only) status = context_gpus_create(c, err);
    if (status == PI_OK && options->stages) status = stage_create(c, err);
    if (status != PI_OK) {
        engine_context_destroy(c);
        return status;
    }
    *out = c;
    return PI_OK;
}

pi_status engine_gpu_size(const model *m, const engine_options *options, int device,
                          gpu_exec_bytes *out, pi_error *err) {
    engine_context c = {.cpu.model = m, .options = *options};
    *out = (gpu_exec_bytes){0};
    pi_status status = apply_options(&c, options, err);
    if (status == PI_OK) status = plan_create(m, &c.cpu.kernels, &options->plan, &c.cpu.plan, err);
    plan part = {0};
    if (status == PI_OK) plan_of_device(c.cpu.plan, device, &part);
    if (part.n_gpu_steps > 0) {
        const gpu_sides sides = context_gpu_sides(&c);
        status = gpu_exec_size(&sides, device, out, err);
    }
    plan_free(c.cpu.plan);
    return status;
}

void engine_context_destroy(engine_context *c) {
    if (!c) return;
    stage_destroy(c);
    if (engine_has_threads(c)) { /* a GPU belongs to the process that opened it */
        engine_trace_stop(c);
        context_gpus_destroy(c);
    }
    adapt_free(c->cpu.adapter);
    neuron_adapter_free(c->moves);
    activity_free(c->cpu.activity);
    pool_destroy(c->cpu.pool);
    drop_built(c);
    mem_free(c);
}

/* ---- small answers -------------------------------------------------------------------------- */

const float *engine_logits(const engine_context *c, int row) {
    return c->cpu.ubatch.logits + (size_t)row * (size_t)c->cpu.model->hp.n_vocab;
}
int engine_logits_rows(const engine_context *c) {
    return c->n_logits_rows;
}
const float *engine_hidden(const engine_context *c, int row) {
    return c->cpu.ubatch.hidden + (size_t)row * (size_t)c->cpu.model->hp.n_embd;
}
int engine_hidden_rows(const engine_context *c) {
    return c->n_hidden_rows;
}
int engine_batch(const engine_context *c) {
    return c->n_batch;
}
void engine_cancel(engine_context *c) {
    atomic_store(&c->cancelled, true);
}
const plan *engine_plan(const engine_context *c) {
    return c->cpu.plan;
}
const cpu_kernels *engine_kernels(const engine_context *c) {
    return &c->cpu.kernels;
}
paging *engine_paging(const engine_context *c) {
    return c->cpu.paging;
}
int engine_threads(const engine_context *c) {
    return c->n_threads;
}
