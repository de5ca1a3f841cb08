/* context.c: making contexts and sessions. All working memory is sized here from the plan and lies
 * in one mapping, laid out in order; pages that a small batch never touches cost nothing. */
#include "context.h"

#include <stdio.h>

#include "activity.h"
#include "cpu_attention.h"
#include "mem.h"

/* Hands out aligned pieces of the mapping. Run twice: first with base NULL to learn the size. */
typedef struct scratch_layout {
    uint8_t *base;
    size_t used;
    bool overflow;
} scratch_layout;

static void *scratch_take(scratch_layout *cv, size_t count, size_t n_bytes) {
    size_t size;
    if (!size_mul(count, n_bytes, &size) || !size_align(size, MEM_CACHE_LINE, &size)) {
        cv->overflow = true;
        return NULL;
    }
    void *p = cv->base ? cv->base + cv->used : NULL;
    if (!size_add(cv->used, size, &cv->used)) cv->overflow = true;
    return p;
}

static size_t max_size(size_t a, size_t b) {
    return a > b ? a : b;
}

/* A head's quantized input: the longest of all steps that multiply heads. */
static size_t head_bytes(const engine_context *c) {
    size_t most = 0;
    for (int i = 0; i < c->plan->n_steps; i++) {
        const plan_step *s = &c->plan->steps[i];
        if (s->op != OP_HEADS) continue;
        cpu_act_kind kind = c->kernels.mat[s->matrix[0].w.type].act;
        int64_t n = s->matrix[0].w.n_in;
        most = max_size(most, cpu_act_bytes(kind, CPU_ACT_COLUMNS, n, c->n_batch));
        most = max_size(most, cpu_act_bytes(kind, CPU_ACT_PANELS, n, c->n_batch));
    }
    return most;
}

static void layout_latent(const engine_context *c, scratch_layout *cv, latent_scratch *t) {
    const model_hparams *hp = &c->model->hp;
    if (hp->n_latent == 0) return;
    size_t n_batch = (size_t)c->n_batch, act = 0;
    size_t line = MEM_CACHE_LINE / sizeof(float), row = (size_t)(hp->n_latent + hp->n_rot);
    size_t dim = max_size((size_t)hp->q_dim, (size_t)hp->v_dim);
    for (int kind = 0; kind < CPU_ACT_KIND_COUNT; kind++)
        act = max_size(
            act, cpu_act_bytes((cpu_act_kind)kind, CPU_ACT_PANELS, hp->n_latent, LATENT_BLOCK));
    row = (row + line - 1) / line * line;
    t->row_stride = (int64_t)row;
    t->head_dim = (int64_t)dim;
    t->rows = scratch_take(cv, LATENT_BLOCK * row, sizeof(float));
    t->k = scratch_take(cv, LATENT_BLOCK * dim, sizeof(float));
    t->v = scratch_take(cv, LATENT_BLOCK * dim, sizeof(float));
    t->act = scratch_take(cv, 1, act);
    t->q = scratch_take(cv, n_batch * dim, sizeof(float));
    t->acc = scratch_take(cv, n_batch * dim, sizeof(float));
    t->m = scratch_take(cv, n_batch, sizeof(float));
    t->l = scratch_take(cv, n_batch, sizeof(float));
    t->first = scratch_take(cv, n_batch, sizeof(int32_t));
    t->limit = scratch_take(cv, n_batch, sizeof(int32_t));
}

static void layout_scratch(engine_context *c, scratch_layout *cv) {
    size_t queries = (size_t)c->attn_queries;
    size_t head_dim = (size_t)c->model->hp.head_dim;
    if ((size_t)c->model->hp.index_dim > head_dim) head_dim = (size_t)c->model->hp.index_dim;
    size_t part_rows = (size_t)c->plan->max_part_rows;
    const model_hparams *hp = &c->model->hp;
    size_t value = hp->n_ssm_head > 0 ? (size_t)(hp->n_inner / hp->n_ssm_head) : 0;
    size_t recur_floats = CPU_RECUR_TOKENS * (3 * (size_t)hp->n_state + value) +
                          cpu_recur_floats(hp->n_state);
    /* of any kernel */
    size_t kernel_bytes = max_size(cpu_attn_scratch_bytes(c->attn_queries, (int)head_dim),
                                   CPU_SCRATCH_BYTES);
    size_t head = head_bytes(c);
    for (int i = 0; i < pool_size(c->pool); i++) {
        thread_scratch *t = &c->scratch[i];
        t->head = scratch_take(cv, 1, head);
        layout_latent(c, cv, &t->latent);
        t->kernel = scratch_take(cv, 1, kernel_bytes);
        t->q = scratch_take(cv, queries * head_dim, sizeof(float));
        t->acc = scratch_take(cv, queries * head_dim, sizeof(float));
        t->m = scratch_take(cv, queries, sizeof(float));
        t->l = scratch_take(cv, queries, sizeof(float));
        t->first = scratch_take(cv, queries, sizeof(int32_t));
        t->limit = scratch_take(cv, queries, sizeof(int32_t));
        t->gate = scratch_take(cv, part_rows * PLAN_EXPERT_MAX_COLS, sizeof(float));
        t->up = scratch_take(cv, part_rows * PLAN_EXPERT_MAX_COLS, sizeof(float));
        t->rows = scratch_take(cv, part_rows, sizeof(int32_t));
        t->mark = scratch_take(cv, part_rows, sizeof(uint8_t));
        t->recur = scratch_take(cv, recur_floats, sizeof(float));
    }
}

/* Quantized activations of n elements for all pairs: every expert's are padded to whole panels, but
 * only where it has more than half a panel of them, and aligned. */
static size_t pair_bytes(const engine_context *c, cpu_act_kind kind, int64_t n) {
    enum { ALIGN = 64 };
    int64_t n_pairs = (int64_t)c->n_batch * c->plan->n_expert_used;
    int64_t n_padded = n_pairs + (int64_t)c->plan->n_expert * CPU_PANEL;
    if (n_padded > n_pairs * CPU_PANEL) n_padded = n_pairs * CPU_PANEL;
    return max_size(cpu_act_bytes(kind, CPU_ACT_COLUMNS, n, n_pairs),
                    cpu_act_bytes(kind, CPU_ACT_PANELS, n, n_padded)) +
           (size_t)c->plan->n_expert * ALIGN;
}

static void layout_experts(engine_context *c, scratch_layout *cv) {
    ubatch_experts *e = &c->experts;
    size_t n_experts = (size_t)c->plan->n_expert;
    size_t n_pairs = (size_t)c->n_batch * (size_t)c->plan->n_expert_used;
    if (!n_experts) return;
    e->chosen = scratch_take(cv, n_pairs, sizeof(int32_t));
    e->weight = scratch_take(cv, n_pairs, sizeof(float));
    e->shared = scratch_take(cv, (size_t)c->n_batch, sizeof(float));
    e->pair = scratch_take(cv, n_pairs, sizeof(int32_t));
    e->token = scratch_take(cv, n_pairs, sizeof(int32_t));
    e->first = scratch_take(cv, n_experts + 1, sizeof(int32_t));
    e->active = scratch_take(cv, n_experts, sizeof(int32_t));
    e->uses = scratch_take(cv, (size_t)c->model->hp.n_layer * n_experts, sizeof(uint64_t));
    e->seen = scratch_take(cv, (size_t)c->model->hp.n_layer * n_experts, sizeof(int32_t));
    unsigned in_kinds = 0, down_kinds = 0;
    for (int i = 0; i < c->model->hp.n_layer; i++) {
        in_kinds |= c->plan->experts[i].in_kinds;
        down_kinds |= c->plan->experts[i].down_kinds;
    }
    for (int k = 0; k < CPU_ACT_KIND_COUNT; k++) {
        cpu_act_kind kind = (cpu_act_kind)k;
        e->in_at[k] = scratch_take(cv, n_experts, sizeof(size_t));
        e->hidden_at[k] = scratch_take(cv, n_experts, sizeof(size_t));
        if (in_kinds & (1u << k))
            e->in[k] = scratch_take(cv, 1, pair_bytes(c, kind, c->model->hp.n_embd));
        if (down_kinds & (1u << k))
            e->hidden[k] = scratch_take(cv, 1,
                                        pair_bytes(c, kind, c->plan->width[BUF_EXPERT_GATE]));
    }
}

static size_t buffer_rows(const engine_context *c, int b) {
    bool of_pairs = b >= BUF_EXPERT_IN && b <= BUF_EXPERT_OUT;
    if (of_pairs) return (size_t)c->n_batch * (size_t)c->plan->n_expert_used;
    return b == BUF_LOGITS ? (size_t)c->n_logits : (size_t)c->n_batch;
}

/* Tokens of a ubatch whose attention may be split: of FORM_FEW at most. */
static size_t split_rows(const engine_context *c) {
    int few = c->plan->many_from[SIDE_CPU] - 1;
    return (size_t)(few < c->n_batch ? few : c->n_batch);
}

static void layout_all(engine_context *c, scratch_layout *cv) {
    const model_hparams *hp = &c->model->hp;
    size_t n_batch = (size_t)c->n_batch;
    for (int b = 0; b < BUF_COUNT; b++) {
        size_t rows = buffer_rows(c, b);
        c->buf[b] = scratch_take(cv, rows * (size_t)c->plan->width[b], sizeof(float));
    }
    for (int slot = 0; slot < PLAN_SLOTS; slot++) {
        for (int kind = 0; kind < CPU_ACT_KIND_COUNT; kind++) {
            if (!(c->plan->slots[SIDE_CPU][slot].kinds & (1u << kind))) continue;
            int64_t n = c->plan->slots[SIDE_CPU][slot].width;
            size_t columns = cpu_act_bytes((cpu_act_kind)kind, CPU_ACT_COLUMNS, n, c->n_batch);
            size_t panels = cpu_act_bytes((cpu_act_kind)kind, CPU_ACT_PANELS, n, c->n_batch);
            c->act[slot][kind] = scratch_take(cv, 1, max_size(columns, panels));
        }
    }
    c->angles = scratch_take(cv, n_batch * ROPE_SETS * (size_t)hp->n_rot, sizeof(float));
    c->inv_freq = scratch_take(cv, (ROPE_SETS + 1) * (size_t)hp->n_rot / 2, sizeof(float));
    c->hidden = scratch_take(cv, n_batch * (size_t)hp->n_embd, sizeof(float));
    c->tokens = scratch_take(cv, n_batch, sizeof(int32_t));
    c->out_rows = scratch_take(cv, n_batch, sizeof(int32_t));
    c->hidden_rows = scratch_take(cv, n_batch, sizeof(int32_t));
    c->positions = scratch_take(cv, n_batch, sizeof(int64_t));
    c->items = scratch_take(cv, n_batch, sizeof(ubatch_item));
    c->item_of_row = scratch_take(cv, n_batch, sizeof(ubatch_item *));
    c->split_state = scratch_take(
        cv, split_rows(c) * (size_t)hp->n_head * ATTN_MAX_SPLITS * ((size_t)hp->head_dim + 2),
        sizeof(float));
    if (c->plan->max_part_rows)
        c->partial = scratch_take(
            cv, (size_t)PLAN_FFN_MAX_PARTS * PLAN_FFN_MAX_COLS * (size_t)hp->n_embd, sizeof(float));
    layout_experts(c, cv);
    layout_scratch(c, cv);
}

static pi_status allocate(engine_context *c, pi_error *err) {
    c->scratch = mem_calloc((size_t)pool_size(c->pool), sizeof *c->scratch);
    if (!c->scratch) return error_nomem(err, sizeof *c->scratch, "thread scratch");
    scratch_layout measure = {0};
    layout_all(c, &measure);
    c->n_memory = measure.used;
    if (!measure.overflow) c->memory = mem_map(c->n_memory);
    if (!c->memory)
        return error_set(err, PI_ERR_NOMEM,
                         "out of memory: working buffers for batches of %d tokens: %zu bytes could "
                         "not be allocated; use a smaller batch",
                         c->n_batch, c->n_memory);
    scratch_layout real = {.base = c->memory};
    layout_all(c, &real);
    return PI_OK;
}

/* Heads that share a KV head, the most over layers. */
static int max_group(const model *m) {
    int group = 1;
    for (int i = 0; i < m->hp.n_layer; i++) {
        const model_layer_hparams *l = &m->layers[i].hp;
        int g = l->n_head_kv > 0 ? l->n_head / l->n_head_kv : 1;
        if (g > group) group = g;
    }
    return group;
}

static pi_status apply_options(engine_context *c, const engine_options *o, pi_error *err) {
    c->n_threads = o->n_threads > 0 ? o->n_threads : cpu_count_physical();
    c->n_threads_batch = o->n_threads_batch > 0 ? o->n_threads_batch : c->n_threads;
    if (o->n_batch < 1 || o->n_batch > ENGINE_MAX_BATCH)
        return error_set(err, PI_ERR_ARG, "bad batch size: %d: use 1 to %d", o->n_batch,
                         ENGINE_MAX_BATCH);
    c->n_batch = o->n_batch;
    size_t row = (size_t)c->model->hp.n_vocab * sizeof(float);
    size_t fit = max_size(ENGINE_LOGITS_BYTES / row, 1);
    c->n_logits = o->n_logits > 0 ? o->n_logits
                                  : (int)(fit < (size_t)o->n_batch ? fit : (size_t)o->n_batch);
    /* Cold rows that are copied to the GPU would have to be in memory. */
    if (o->ram_budget) c->options.prompts = ENGINE_PROMPTS_SPLIT;
    c->options.plan.prefetch = o->ram_budget > 0;
    c->type_k = o->type_k;
    c->type_v = o->type_v;
    if (!cpu_kernels_get(o->tier, &c->kernels))
        return error_set(err, PI_ERR_UNSUPPORTED,
                         "not supported by this CPU: %s kernels: choose auto",
                         cpu_tier_name(o->tier));
    /* Experts choose their kernels by their own numbers of tokens. */
    for (int i = 0; i < CPU_ACT_KIND_COUNT && o->plan.few_only; i++)
        c->kernels.tiled[i].from = PLAN_FFN_MAX_COLS + 1;
    return PI_OK;
}

static void drop_built(engine_context *c) {
    mem_unmap(c->memory, c->n_memory);
    mem_free(c->scratch);
    plan_free(c->plan);
    paging_destroy(c->paging);
    c->paging = NULL;
    c->memory = NULL;
    c->scratch = NULL;
    c->plan = NULL;
}

/* Bytes of KV caches and recurrent states for the sessions that are expected. */
static uint64_t session_bytes(const engine_context *c) {
    uint64_t n = 0;
    for (int i = 0; i < c->model->hp.n_layer; i++) {
        kv_layer l;
        if (context_kv_on_gpu(c, i) || !kv_layer_rows(c->model, i, c->type_k, c->type_v, &l))
            continue;
        n += kv_layer_bytes(&l);
    }
    return n * (uint64_t)c->options.n_positions + (uint64_t)c->plan->n_state * sizeof(float);
}

enum { PROGRAM_BYTES = 32 << 20 }; /* of a budget: vocabulary, tables, stacks */

/* The pager learns from a first plan which weights steps read. */
static pi_status make_pager(engine_context *c, pi_error *err) {
    plan *first = NULL;
    paging_options options = {.n_batch = c->n_batch, .sizes_only = c->options.sizes_only};
    pi_status status = plan_create(c->source, &c->kernels, &c->options.plan, &first, err);
    if (status == PI_OK) options.adapts = c->options.adapt.on && adapt_applies(first);
    if (status == PI_OK) status = paging_create(c->source, first, &options, &c->paging, err);
    plan_free(first);
    if (status == PI_OK) c->model = paging_model(c->paging);
    return status;
}

pi_status context_build(engine_context *c, pi_error *err) {
    drop_built(c);
    c->model = c->source;
    pi_status status = c->options.ram_budget ? make_pager(c, err) : PI_OK;
    if (status == PI_OK)
        status = plan_create(c->model, &c->kernels, &c->options.plan, &c->plan, err);
    if (status == PI_OK) status = allocate(c, err);
    if (status == PI_OK && c->paging)
        status = paging_fit(c->paging, c->plan, c->options.ram_budget,
                            PROGRAM_BYTES + c->n_memory + session_bytes(c), err);
    if (status != PI_OK) return status;
    rope_init(c);
    return PI_OK;
}

pi_status engine_context_create(const model *m, const engine_options *options, engine_context **out,
                                pi_error *err) {
    *out = NULL;
    engine_context *c = mem_calloc(1, sizeof *c);
    if (!c) return error_nomem(err, sizeof *c, "context");
    c->source = c->model = m;
    c->options = *options;
    if (options->gpu) c->options.plan.supports = options->gpu->supports;
    pi_status status = apply_options(c, options, err);
    if (status == PI_OK) {
        int nth = c->n_threads > c->n_threads_batch ? c->n_threads : c->n_threads_batch;
        status = pool_create(nth, &c->pool, err);
        if (status == PI_OK && options->pin_threads) pool_pin(c->pool);
    }
    int group = max_group(m);
    if (m->hp.n_index_head > group) group = m->hp.n_index_head; /* queries of a token */
    c->attn_queries = group > ATTN_QUERIES ? group : ATTN_QUERIES;
    if (status == PI_OK) status = context_build(c, err);
    if (status == PI_OK && !options->sizes_only) status = context_gpus_create(c, err);
    if (status == PI_OK && c->n_gpus > 0 && options->adapt.on)
        status = adapt_create(c->plan, &options->adapt, &c->adapter, err);
    if (status == PI_OK && c->adapter) adapt_restart(c);
    if (status != PI_OK) {
        engine_context_destroy(c);
        return status;
    }
    *out = c;
    return PI_OK;
}

pi_status engine_gpu_size(const model *m, const engine_options *options, int device,
                          engine_gpu_bytes *out, pi_error *err) {
    engine_context c = {.model = m, .options = *options};
    *out = (engine_gpu_bytes){0};
    pi_status status = apply_options(&c, options, err);
    if (status == PI_OK) status = plan_create(m, &c.kernels, &options->plan, &c.plan, err);
    plan part = {0};
    if (status == PI_OK) plan_of_device(c.plan, device, &part);
    if (part.n_gpu_steps > 0) status = gpu_exec_size(&c, device, out, err);
    plan_free(c.plan);
    return status;
}

void engine_context_destroy(engine_context *c) {
    if (!c) return;
    if (engine_has_threads(c)) { /* a GPU belongs to the process that opened it */
        engine_trace_stop(c);
        context_gpus_destroy(c);
    }
    adapt_free(c->adapter);
    engine_watch(c, 0, NULL);
    pool_destroy(c->pool);
    drop_built(c);
    mem_free(c);
}

bool engine_has_threads(const engine_context *c) {
    return c->pool && pool_has_threads(c->pool);
}

pi_status context_check_process(const engine_context *c, const char *call, pi_error *err) {
    if (engine_has_threads(c)) return PI_OK;
    return error_set(err, PI_ERR_ARG,
                     "context of another process: %s: fork() leaves its threads behind; create a "
                     "context after the fork",
                     call);
}

/* ---- sessions ------------------------------------------------------------------------------- */

pi_status engine_session_create(engine_context *c, int64_t n_ctx, engine_session **out,
                                pi_error *err) {
    *out = NULL;
    if (n_ctx < 1 || n_ctx > INT32_MAX)
        return error_set(err, PI_ERR_ARG, "bad context size: %lld tokens: use 1 or more",
                         (long long)n_ctx);
    if (c->model->hp.n_pos && n_ctx > c->model->hp.n_pos)
        return error_set(
            err, PI_ERR_LIMIT,
            "context too long: %lld tokens: %s has %d learned positions; use a smaller context",
            (long long)n_ctx, gguf_path(c->model->file), c->model->hp.n_pos);
    if (!c->plan) return context_unusable(c, err);
    pi_status status = context_check_process(c, "session", err);
    if (status != PI_OK) return status;
    engine_session *s = mem_calloc(1, sizeof *s);
    if (!s) return error_nomem(err, sizeof *s, "session");
    s->context = c;
    status = kv_cache_create(&s->kv, c->plan, c->type_k, c->type_v, n_ctx, err);
    if (status == PI_OK) status = recurrent_create(&s->state, c->plan->n_state, err);
    if (status == PI_OK)
        status = block_scores_create(&s->blocks, &c->model->hp, c->n_batch, n_ctx, err);
    if (status == PI_OK && c->n_gpus > 0) {
        s->tokens = mem_alloc((size_t)n_ctx * sizeof *s->tokens);
        if (!s->tokens) status = error_nomem(err, (size_t)n_ctx * sizeof *s->tokens, "session");
        if (status == PI_OK) status = context_gpus_add_session(c, s, err);
        pi_error why = {.status = PI_OK};
        if (s->tokens && status != PI_OK) { /* no room on the GPU */
            if (err) why = *err;
            context_gpus_drop_session(c, s);
            status = context_leave_gpu(c, &why, err);
            kv_cache_free(&s->kv);
            if (status == PI_OK)
                status = kv_cache_create(&s->kv, c->plan, c->type_k, c->type_v, n_ctx, err);
        }
    }
    if (status != PI_OK) {
        kv_cache_free(&s->kv);
        recurrent_free(&s->state);
        block_scores_free(&s->blocks);
        mem_free(s->tokens);
        mem_free(s);
        return status;
    }
    s->next = c->sessions;
    c->sessions = s;
    *out = s;
    return PI_OK;
}

void engine_session_destroy(engine_session *s) {
    if (!s) return;
    engine_session **link = &s->context->sessions;
    while (*link != s) link = &(*link)->next;
    *link = s->next;
    if (engine_has_threads(s->context)) context_gpus_drop_session(s->context, s);
    kv_cache_free(&s->kv);
    recurrent_free(&s->state);
    block_scores_free(&s->blocks);
    mem_free(s->tokens);
    mem_free(s);
}

int64_t engine_session_length(const engine_session *s) {
    return s->length;
}
int64_t engine_session_capacity(const engine_session *s) {
    return s->kv.n_ctx;
}

pi_status engine_session_rewind(engine_session *s, int64_t length, pi_error *err) {
    if (length < 0 || length > s->length)
        return error_set(err, PI_ERR_RANGE, "cannot rewind: to %lld tokens: the session has %lld",
                         (long long)length, (long long)s->length);
    int64_t point = recurrent_point(&s->state, length);
    if (point != length)
        return error_set(err, PI_ERR_UNSUPPORTED,
                         "cannot rewind: to %lld tokens: recurrent layers have no snapshot there; "
                         "the nearest one before is at %lld",
                         (long long)length, (long long)point);
    recurrent_rewind(&s->state, length);
    s->length = length;
    return PI_OK;
}

int64_t engine_session_rewind_point(const engine_session *s, int64_t length) {
    if (length < 0) length = 0;
    if (length > s->length) length = s->length;
    return recurrent_point(&s->state, length);
}

/* ---- small answers -------------------------------------------------------------------------- */

const float *engine_logits(const engine_context *c, int row) {
    return c->buf[BUF_LOGITS] + (size_t)row * (size_t)c->model->hp.n_vocab;
}
int engine_logits_rows(const engine_context *c) {
    return c->n_logits_rows;
}
const float *engine_hidden(const engine_context *c, int row) {
    return c->hidden + (size_t)row * (size_t)c->model->hp.n_embd;
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
    return c->plan;
}
const cpu_kernels *engine_kernels(const engine_context *c) {
    return &c->kernels;
}
int engine_threads(const engine_context *c) {
    return c->n_threads;
}
