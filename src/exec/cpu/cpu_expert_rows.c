/* cpu_expert_rows.c: the pairs of tokens and experts that cpu_route.c has sorted by expert, their
 * quantized vectors, and products. The rows of all active experts form one range, which the threads
 * share in chunks, so no thread waits for the last expert and no barrier separates experts. An
 * expert of many tokens uses the tiled kernels, like matmuls in prefill; an expert of a single
 * token reads the vector that the norm has quantized. */
#include "cpu_experts.h"

/* ---- quantized inputs ------------------------------------------------------------------------ */

/* Experts of a ubatch have different numbers of tokens, so each has a layout that suits its
 * number. */
cpu_act_layout cpu_exec_expert_layout(const cpu_exec *c, cpu_act_kind kind, int64_t n_pairs) {
    return n_pairs >= c->kernels.tiled[kind].from ? CPU_ACT_PANELS : CPU_ACT_COLUMNS;
}

/* Whether the expert has a single token and reads the column that the norm has quantized. */
static bool reads_norm(const cpu_exec *c, int expert) {
    return c->experts.from_norm && expert_pairs(&c->experts, expert) == 1;
}

static cpu_act pairs_act(const cpu_exec *c, cpu_act_kind kind, int64_t n, int expert, uint8_t *base,
                         size_t at) {
    int n_cols = expert_pairs(&c->experts, expert);
    return (cpu_act){.kind = kind,
                     .layout = cpu_exec_expert_layout(c, kind, n_cols),
                     .n = n,
                     .n_cols = n_cols,
                     .data = base + at};
}

cpu_act expert_input(const cpu_exec *c, const plan_experts *e, cpu_act_kind kind, int expert) {
    const ubatch_experts *x = &c->experts;
    int64_t n = e->n_embd;
    if (!reads_norm(c, expert))
        return pairs_act(c, kind, n, expert, x->in[kind], x->in_at[kind][expert]);
    cpu_act act = cpu_exec_slot_act(c, PLAN_SLOT_MAIN, kind, CPU_ACT_COLUMNS, n, 1);
    size_t column = cpu_act_bytes(kind, CPU_ACT_COLUMNS, n, 1);
    act.data = (uint8_t *)act.data + (size_t)x->token[x->first[expert]] * column;
    return act;
}

cpu_act expert_hidden(const cpu_exec *c, const plan_experts *e, cpu_act_kind kind, int expert) {
    const ubatch_experts *x = &c->experts;
    return pairs_act(c, kind, e->n_ff, expert, x->hidden[kind], x->hidden_at[kind][expert]);
}

cpu_act expert_pred(const cpu_exec *c, const plan_experts *e, cpu_act_kind kind, int expert) {
    const ubatch_experts *x = &c->experts;
    return pairs_act(c, kind, e->fc2.w.n_in, expert, x->pred[kind], x->pred_at[kind][expert]);
}

/* At most a panel of an expert's pairs. */
typedef struct pair_range {
    int expert, begin, end; /* among the expert's pairs */
} pair_range;

static bool take_pairs(cpu_exec *c, pair_range *r) {
    const ubatch_experts *x = &c->experts;
    int64_t index = pool_take(c->pool, 1);
    for (int i = 0; i < x->n_active; i++) {
        int n = expert_pairs(x, x->active[i]), pieces = (n + CPU_PANEL - 1) / CPU_PANEL;
        if (index < pieces) {
            int begin = (int)index * CPU_PANEL;
            *r = (pair_range){x->active[i], begin, begin + CPU_PANEL < n ? begin + CPU_PANEL : n};
            return true;
        }
        index -= pieces;
    }
    return false;
}

/* The weight of a pair, found among the few pairs of its token. */
static float weight_of(const cpu_exec *c, const plan_experts *e, int pair) {
    const ubatch_experts *x = &c->experts;
    const int32_t *pairs = x->pair + (int64_t)x->token[pair] * e->n_used;
    int k = 0;
    while (pairs[k] != pair) k++;
    return x->weight[(int64_t)x->token[pair] * e->n_used + k];
}

static void gather(cpu_exec *c, const plan_experts *e, int pair) {
    int64_t n = e->n_embd;
    const float *y = c->buf[e->in] + c->experts.token[pair] * c->plan->width[e->in];
    float *to = expert_pair_row(c, BUF_EXPERT_IN, pair),
          weight = e->weigh_input ? weight_of(c, e, pair) : 1;
    for (int64_t i = 0; i < n; i++) to[i] = y[i] * weight;
}

void cpu_exec_experts_gather(cpu_exec *c, const plan_experts *e) {
    pair_range r;
    while (take_pairs(c, &r)) {
        int first = c->experts.first[r.expert];
        if (reads_norm(c, r.expert)) continue;
        for (int i = r.begin; i < r.end; i++) gather(c, e, first + i);
        for (int k = 0; k < CPU_ACT_KIND_COUNT; k++) {
            if (!(e->in_kinds & (1u << k))) continue;
            cpu_act act = expert_input(c, e, (cpu_act_kind)k, r.expert);
            c->kernels.act_encode(expert_pair_row(c, BUF_EXPERT_IN, first),
                                  c->plan->width[BUF_EXPERT_IN], r.begin, r.end, &act);
        }
    }
}

void cpu_exec_experts_quantize(cpu_exec *c, const plan_step *s, const plan_experts *e) {
    bool pred = s->in == BUF_EXPERT_PRED;
    unsigned kinds = pred ? e->pred_kinds : e->down_kinds;
    pair_range r;
    while (take_pairs(c, &r)) {
        float *rows = expert_pair_row(c, s->in, c->experts.first[r.expert]);
        int64_t ld = c->plan->width[s->in], n = e->fc1.w.n_out;
        for (int i = r.begin; i < r.end && pred && e->predictor == PREDICTOR_RELU_MLP; i++)
            c->kernels.activate(ACTIVATION_RELU, 0, rows + i * ld, NULL, rows + i * ld, n);
        for (int k = 0; k < CPU_ACT_KIND_COUNT; k++) {
            if (!(kinds & (1u << k))) continue;
            cpu_act act = pred ? expert_pred(c, e, (cpu_act_kind)k, r.expert)
                               : expert_hidden(c, e, (cpu_act_kind)k, r.expert);
            if (!pred && e->down_rows && act.layout == CPU_ACT_COLUMNS) continue; /* floats */
            c->kernels.act_encode(rows, ld, r.begin, r.end, &act);
        }
    }
}

/* ---- products -------------------------------------------------------------------------------- */

static int64_t padded(int64_t rows) {
    return (rows + CPU_ROW_TILE - 1) / CPU_ROW_TILE * CPU_ROW_TILE;
}

expert_rows expert_rows_make(const cpu_exec *c, int64_t n, size_t row_bytes, cpu_act_kind kind) {
    const ubatch_experts *x = &c->experts;
    int64_t mean = x->n_active ? x->first[c->plan->n_expert] / x->n_active : 0;
    cpu_act_layout layout = cpu_exec_expert_layout(c, kind, mean);
    return (expert_rows){
        .chunks = row_chunks_make(padded(n) * x->n_active, row_bytes, c->ubatch.nth, layout),
        .n = n};
}

bool expert_rows_take(cpu_exec *c, expert_rows *w) {
    for (;;) {
        for (; w->i < c->experts.n_active && w->i * padded(w->n) < w->end; w->i++) {
            int64_t base = w->i * padded(w->n);
            w->r0 = w->begin > base ? w->begin - base : 0;
            w->r1 = w->end - base < w->n ? w->end - base : w->n;
            if (w->r0 >= w->r1) continue; /* only the padding of a tile */
            w->expert = c->experts.active[w->i++];
            return true;
        }
        if (!row_chunks_take(c->pool, &w->chunks, &w->begin, &w->end)) return false;
        w->i = (int)(w->begin / padded(w->n));
    }
}

void expert_finish(cpu_exec *c, const plan_matrix *m, int64_t n, const float *scales, int expert,
                   int64_t r0, int64_t r1) {
    if (!m->bias && !scales) return;
    float scale = scales ? scales[expert] : 1;
    const float *bias = m->bias ? m->bias + expert * n : NULL;
    for (int pair = c->experts.first[expert]; pair < c->experts.first[expert + 1]; pair++) {
        float *y = expert_pair_row(c, m->out, pair);
        for (int64_t r = r0; r < r1; r++) y[r] = y[r] * scale + (bias ? bias[r] : 0);
    }
}

static bool is_predictor(const plan_matrix *m) {
    return m->role == ROLE_EXPERT_FC1 || m->role == ROLE_EXPERT_FC2;
}

/* Whether the pager has the experts' rows of this matrix. Predictors and adjugate experts stay in
 * memory. */
static bool is_paged(const cpu_exec *c, const plan_step *s, const plan_matrix *m) {
    bool stays = is_predictor(m) || STEP_ARGS(s, experts)->experts->share > 0;
    return c->paging && paging_has_experts(c->paging, s->layer) && !stays;
}

cpu_mat expert_matrix(cpu_exec *c, const plan_step *s, const plan_matrix *m, int expert) {
    cpu_mat w = m->w;
    w.data = is_paged(c, s, m) ? paging_expert(c->paging, s->layer, m, expert)
                               : (const uint8_t *)w.data + (size_t)expert * m->expert_bytes;
    return w;
}

void expert_used_rows(cpu_exec *c, const plan_step *s, const plan_matrix *m, int expert,
                      int64_t n) {
    if (is_paged(c, s, m)) paging_expert_used(c->paging, s->layer, m, expert, n);
}

void expert_product(cpu_exec *c, const plan_step *s, const plan_matrix *m, const float *scales,
                    int expert, const cpu_act *x, int64_t r0, int64_t r1, int ith) {
    const cpu_mat_kernels *mk = &c->kernels.mat[m->w.type];
    const cpu_mat w = expert_matrix(c, s, m, expert);
    int64_t ldy = c->plan->width[m->out];
    float *y = expert_pair_row(c, m->out, c->experts.first[expert]);
    const cpu_exec_product *by = x->layout == CPU_ACT_PANELS ? &cpu_exec_by_tile
                                                             : &cpu_exec_by_vector;
    by->run(mk, &w, r0, r1, x, y, ldy, c->scratch[ith].kernel);
    expert_used_rows(c, s, m, expert, r1 - r0);
    ubatch_bytes *n = &c->scratch[ith].counts;
    *(is_predictor(m) ? &n->predictor : &n->ffn) += (uint64_t)(r1 - r0) * m->row_size;
    expert_finish(c, m, m->w.n_out, scales, expert, r0, r1);
}
