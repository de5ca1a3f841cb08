/* context_memory.c: the working memory of a context. The plan gives all sizes. One mapping contains
 * the arrays in order; pages that a small batch never touches cost nothing.
 *
 * With a memory budget, and experts or selected neurons that are read when they are needed, this
 * memory has rows for ubatches of FORM_FEW only. Prefill puts the rows of its tokens into memory of
 * the pager (paging_lent), which otherwise is part of the cache of experts or neurons. */
#include "context.h"
#include "mem.h"

/* Allocates aligned pieces of the mapping. The layout runs twice, first with base NULL to compute
 * the size. */
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

/* Quantized activations of n_cols vectors of n elements, in either layout. */
static size_t act_bytes(cpu_act_kind kind, int64_t n, int64_t n_cols) {
    return max_size(cpu_act_bytes(kind, CPU_ACT_COLUMNS, n, n_cols),
                    cpu_act_bytes(kind, CPU_ACT_PANELS, n, n_cols));
}

/* Prefill with compressed attention, and rows that sparse attention gathers. */
static void layout_latent(const engine_context *c, scratch_layout *cv, latent_scratch *t) {
    const model_hparams *hp = &c->cpu.model->hp;
    if (hp->joint_kv)
        t->rows = scratch_take(cv, LATENT_BLOCK * (size_t)hp->head_dim, sizeof(float));
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

/* The scratch memory of every thread (thread_scratch). Each size is the maximum over the steps that
 * use it. */
static void layout_scratch(engine_context *c, scratch_layout *cv) {
    const plan *p = c->cpu.plan;
    const model_hparams *hp = &c->cpu.model->hp;
    const cpu_kernels *kernels = &c->cpu.kernels;
    const int64_t n_queries = c->cpu.attn_queries;
    const size_t queries = (size_t)n_queries, part_rows = (size_t)p->max_part_rows;
    const size_t head_dim = max_size((size_t)hp->head_dim, (size_t)hp->index_dim);
    size_t head = 0; /* quantized input of a head */
    for (int i = 0; i < p->n_steps; i++) {
        const plan_step *s = &p->steps[i];
        if (s->op != OP_HEADS) continue;
        const cpu_mat *w = &s->matrix[0].w;
        head = max_size(head, act_bytes(kernels->mat[w->type].act, w->n_in, c->n_batch));
    }
    size_t kernel = max_size(cpu_attn_scratch_bytes(c->cpu.attn_queries, (int)head_dim),
                             CPU_SCRATCH_BYTES);
    if (c->options.plan.attn_blocks > 0) /* the query heads of a KV head, as [q+, q-] */
        kernel = max_size(kernel, cpu_act_bytes(kernels->mat[QUANT_Q8_0].act, CPU_ACT_COLUMNS,
                                                2 * (int64_t)head_dim, n_queries));
    const size_t value = hp->n_ssm_head > 0 ? (size_t)(hp->n_inner / hp->n_ssm_head) : 0;
    const size_t recur = CPU_RECUR_TOKENS * (3 * (size_t)hp->n_state + value) +
                         cpu_recur_floats(hp->n_state);
    for (int i = 0; i < pool_size(c->cpu.pool); i++) {
        thread_scratch *t = &c->cpu.scratch[i];
        t->head = scratch_take(cv, 1, head);
        layout_latent(c, cv, &t->latent);
        if (hp->index_sums) {
            t->index_act = scratch_take(
                cv, 1, act_bytes(kernels->mat[c->cpu.type_k].act, hp->index_dim, n_queries));
            t->index = scratch_take(cv, queries * INDEX_PART, sizeof(float));
        }
        t->kernel = scratch_take(cv, 1, kernel);
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
        t->best = scratch_take(cv, p->predicts_head ? (size_t)c->n_batch : 0, sizeof(float));
        t->recur = scratch_take(cv, recur, sizeof(float));
    }
}

static void layout_experts(engine_context *c, scratch_layout *cv) {
    ubatch_experts *e = &c->cpu.experts;
    size_t n_experts = (size_t)c->cpu.plan->n_expert;
    size_t n_pairs = (size_t)c->n_batch * (size_t)c->cpu.plan->n_expert_used;
    if (!n_experts) return;
    e->chosen = scratch_take(cv, n_pairs, sizeof(int32_t));
    e->weight = scratch_take(cv, n_pairs, sizeof(float));
    e->shared = scratch_take(cv, (size_t)c->n_batch, sizeof(float));
    e->pair = scratch_take(cv, n_pairs, sizeof(int32_t));
    e->token = scratch_take(cv, n_pairs, sizeof(int32_t));
    e->first = scratch_take(cv, n_experts + 1, sizeof(int32_t));
    e->active = scratch_take(cv, n_experts, sizeof(int32_t));
    e->uses = scratch_take(cv, (size_t)c->cpu.model->hp.n_layer * n_experts, sizeof(uint64_t));
    e->seen = scratch_take(cv, (size_t)c->cpu.model->hp.n_layer * n_experts, sizeof(int32_t));
    for (int k = 0; k < CPU_ACT_KIND_COUNT; k++) {
        e->in_at[k] = scratch_take(cv, n_experts, sizeof(size_t));
        e->hidden_at[k] = scratch_take(cv, n_experts, sizeof(size_t));
        e->pred_at[k] = scratch_take(cv, n_experts, sizeof(size_t));
    }
}

/* The quantized activations of all pairs of n_rows tokens. Those of each expert are aligned, and
 * padded to whole panels if they fill more than half a panel. */
static void *take_pairs(const engine_context *c, scratch_layout *cv, cpu_act_kind kind,
                        plan_buffer b, int n_rows) {
    enum { ALIGN = 64 };
    const int64_t n = c->cpu.plan->width[b], n_expert = c->cpu.plan->n_expert;
    int64_t n_pairs = (int64_t)n_rows * c->cpu.plan->n_expert_used;
    int64_t n_padded = n_pairs + n_expert * CPU_PANEL;
    if (n_padded > n_pairs * CPU_PANEL) n_padded = n_pairs * CPU_PANEL;
    size_t columns = cpu_act_bytes(kind, CPU_ACT_COLUMNS, n, n_pairs);
    size_t panels = cpu_act_bytes(kind, CPU_ACT_PANELS, n, n_padded);
    return scratch_take(cv, 1, max_size(columns, panels) + (size_t)n_expert * ALIGN);
}

static void layout_pairs(engine_context *c, scratch_layout *cv, int n_rows) {
    ubatch_experts *e = &c->cpu.experts;
    unsigned in_kinds = 0, down_kinds = 0, pred_kinds = 0;
    if (c->cpu.plan->n_expert == 0) return;
    for (int i = 0; i < 2 * c->cpu.model->hp.n_layer; i++) { /* then adjugate experts */
        in_kinds |= c->cpu.plan->experts[i].in_kinds;
        down_kinds |= c->cpu.plan->experts[i].down_kinds;
        pred_kinds |= c->cpu.plan->experts[i].pred_kinds;
    }
    for (int k = 0; k < CPU_ACT_KIND_COUNT; k++) {
        cpu_act_kind kind = (cpu_act_kind)k;
        if (in_kinds & (1u << k)) e->in[k] = take_pairs(c, cv, kind, BUF_EXPERT_IN, n_rows);
        if (down_kinds & (1u << k)) e->hidden[k] = take_pairs(c, cv, kind, BUF_EXPERT_GATE, n_rows);
        if (pred_kinds & (1u << k)) e->pred[k] = take_pairs(c, cv, kind, BUF_EXPERT_PRED, n_rows);
    }
}

/* Maximum tokens of a ubatch whose attention may be split: of FORM_FEW. */
static int few_rows(const engine_context *c) {
    int few = c->cpu.plan->many_from[SIDE_CPU] - 1;
    return few < c->n_batch ? few : c->n_batch;
}

/* Arrays with a row per token of a ubatch that no later ubatch reads. */
static void layout_rows(engine_context *c, scratch_layout *cv, int n_rows) {
    size_t rows = (size_t)n_rows;
    for (int b = 0; b < BUF_COUNT; b++) {
        bool of_pairs = b >= BUF_EXPERT_IN && b <= BUF_EXPERT_OUT;
        size_t n = of_pairs ? rows * (size_t)c->cpu.plan->n_expert_used : rows;
        if (b == BUF_LOGITS) continue;
        c->cpu.buf[b] = scratch_take(cv, n * (size_t)c->cpu.plan->width[b], sizeof(float));
    }
    for (int slot = 0; slot < PLAN_SLOTS; slot++) {
        for (int kind = 0; kind < CPU_ACT_KIND_COUNT; kind++) {
            if (!(c->cpu.plan->slots[SIDE_CPU][slot].kinds & (1u << kind))) continue;
            int64_t n = c->cpu.plan->slots[SIDE_CPU][slot].width;
            c->cpu.act[slot][kind] = scratch_take(cv, 1, act_bytes((cpu_act_kind)kind, n, n_rows));
        }
    }
    layout_pairs(c, cv, n_rows);
    c->cpu.angles = scratch_take(cv, rows * ROPE_SETS * (size_t)c->cpu.model->hp.n_rot,
                                 sizeof(float));
}

static void layout_logits(engine_context *c, scratch_layout *cv, int n_rows) {
    c->cpu.buf[BUF_LOGITS] = scratch_take(
        cv, (size_t)n_rows * (size_t)c->cpu.plan->width[BUF_LOGITS], sizeof(float));
    c->cpu.ubatch.logits = c->cpu.buf[BUF_LOGITS];
}

static void layout_all(engine_context *c, scratch_layout *cv) {
    const model_hparams *hp = &c->cpu.model->hp;
    size_t n_batch = (size_t)c->n_batch;
    layout_rows(c, cv, c->own_rows);
    layout_logits(c, cv, c->own_logits);
    c->cpu.rope.inv_freq = scratch_take(cv, rope_n_frequencies(hp), sizeof(float));
    c->cpu.ubatch.hidden = scratch_take(cv, n_batch * (size_t)hp->n_embd, sizeof(float));
    c->cpu.ubatch.tokens = scratch_take(cv, n_batch, sizeof(int32_t));
    c->cpu.ubatch.out_rows = scratch_take(cv, n_batch, sizeof(int32_t));
    c->cpu.ubatch.hidden_rows = scratch_take(cv, n_batch, sizeof(int32_t));
    c->cpu.ubatch.ngrams = scratch_take(cv, n_batch * (size_t)c->cpu.model->hp.ngrams.n_rows,
                                        sizeof(int32_t));
    c->cpu.ubatch.positions = scratch_take(cv, n_batch, sizeof(int64_t));
    c->cpu.ubatch.items = scratch_take(cv, n_batch, sizeof(ubatch_item));
    c->cpu.ubatch.item_of_row = scratch_take(cv, n_batch, sizeof(ubatch_item *));
    c->cpu.split_state = scratch_take(
        cv, (size_t)few_rows(c) * (size_t)hp->n_head * ATTN_MAX_SPLITS * ((size_t)hp->head_dim + 2),
        sizeof(float));
    if (c->cpu.plan->max_part_rows)
        c->cpu.partial = scratch_take(
            cv, (size_t)PLAN_FFN_MAX_PARTS * PLAN_FFN_MAX_COLS * (size_t)hp->n_embd, sizeof(float));
    layout_experts(c, cv);
    layout_scratch(c, cv);
}

/* Rows of a ubatch in lent memory, after logits of the whole call. Returns their bytes. */
static size_t layout_lent(engine_context *c, scratch_layout *cv, int n_rows, int n_logits) {
    if (n_logits > c->own_logits) layout_logits(c, cv, n_logits);
    if (n_rows > c->own_rows) layout_rows(c, cv, n_rows);
    return cv->used;
}

size_t context_place_rows(engine_context *c) {
    if (c->n_lent == 0) return 0;
    scratch_layout own = {.base = c->memory};
    scratch_layout lent = {.base = paging_lent(c->cpu.paging)};
    layout_rows(c, &own, c->own_rows);
    layout_logits(c, &own, c->own_logits);
    return layout_lent(c, &lent, c->cpu.ubatch.n_tokens, c->n_call_logits);
}

pi_status context_allocate(engine_context *c, pi_error *err) {
    c->cpu.scratch = mem_calloc((size_t)pool_size(c->cpu.pool), sizeof *c->cpu.scratch);
    if (!c->cpu.scratch) return error_nomem(err, sizeof *c->cpu.scratch, "thread scratch");
    scratch_layout measure = {0}, lent = {0};
    bool lends = c->cpu.paging && !c->options.stages && paging_lends(c->cpu.paging, c->cpu.plan);
    c->own_rows = lends ? few_rows(c) : c->n_batch;
    c->own_logits = lends && c->own_rows < c->n_logits ? c->own_rows : c->n_logits;
    c->n_lent = lends ? layout_lent(c, &lent, c->n_batch, c->n_logits) : 0;
    layout_all(c, &measure);
    c->n_memory = measure.used;
    measure.overflow = measure.overflow || lent.overflow;
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
