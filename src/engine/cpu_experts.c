/* cpu_experts.c: the matmuls of a mixture of experts, over the pairs of tokens and experts that
 * cpu_route.c has sorted. The rows of all active experts form one range, which the threads share in
 * chunks, so that none waits for the last expert and there is no barrier between experts. An expert
 * that many tokens use takes the tiled kernels, as a prompt's products do; one that a single token
 * uses reads the vector that the norm has quantized. */
#include <math.h>
#include <string.h>

#include "cpu_exec.h"

/* ---- quantized inputs ------------------------------------------------------------------------ */

static int pairs_of(const ubatch_experts *x, int expert) {
    return x->first[expert + 1] - x->first[expert];
}

/* An expert's own choice, by its number of tokens: it differs from expert to expert of a ubatch. */
cpu_act_layout cpu_exec_expert_layout(const engine_context *c, cpu_act_kind kind, int64_t n_pairs) {
    return n_pairs >= c->kernels.tiled[kind].from ? CPU_ACT_PANELS : CPU_ACT_COLUMNS;
}

/* The input of an expert of a single token is where the norm put it, in a column of its own. */
static bool reads_norm(const engine_context *c, int expert) {
    return c->experts.from_norm && pairs_of(&c->experts, expert) == 1;
}

static cpu_act pairs_act(const engine_context *c, cpu_act_kind kind, int64_t n, int expert,
                         uint8_t *base, size_t at) {
    int n_cols = pairs_of(&c->experts, expert);
    return (cpu_act){.kind = kind,
                     .layout = cpu_exec_expert_layout(c, kind, n_cols),
                     .n = n,
                     .n_cols = n_cols,
                     .data = base + at};
}

static cpu_act input_of(const engine_context *c, cpu_act_kind kind, int expert) {
    const ubatch_experts *x = &c->experts;
    int64_t n = c->model->hp.n_embd;
    if (!reads_norm(c, expert))
        return pairs_act(c, kind, n, expert, x->in[kind], x->in_at[kind][expert]);
    cpu_act act = cpu_exec_slot_act(c, PLAN_SLOT_MAIN, kind, CPU_ACT_COLUMNS, n, 1);
    size_t column = cpu_act_bytes(kind, CPU_ACT_COLUMNS, n, 1);
    act.data = (uint8_t *)act.data + (size_t)x->token[x->first[expert]] * column;
    return act;
}

static cpu_act hidden_of(const engine_context *c, const plan_experts *e, cpu_act_kind kind,
                         int expert) {
    const ubatch_experts *x = &c->experts;
    return pairs_act(c, kind, e->n_ff, expert, x->hidden[kind], x->hidden_at[kind][expert]);
}

/* A panel's worth of an expert's pairs. */
typedef struct pair_range {
    int expert, begin, end; /* among the expert's pairs */
} pair_range;

static bool take_pairs(engine_context *c, pair_range *r) {
    const ubatch_experts *x = &c->experts;
    int64_t index = pool_take(c->pool, 1);
    for (int i = 0; i < x->n_active; i++) {
        int n = pairs_of(x, x->active[i]), pieces = (n + CPU_PANEL - 1) / CPU_PANEL;
        if (index < pieces) {
            int begin = (int)index * CPU_PANEL;
            *r = (pair_range){x->active[i], begin, begin + CPU_PANEL < n ? begin + CPU_PANEL : n};
            return true;
        }
        index -= pieces;
    }
    return false;
}

static float *pair_row(const engine_context *c, plan_buffer b, int pair) {
    return c->buf[b] + (int64_t)pair * c->plan->width[b];
}

/* The weight of a pair, found among the token's few. */
static float weight_of(const engine_context *c, const plan_experts *e, int pair) {
    const ubatch_experts *x = &c->experts;
    const int32_t *pairs = x->pair + (int64_t)x->token[pair] * e->n_used;
    int k = 0;
    while (pairs[k] != pair) k++;
    return x->weight[(int64_t)x->token[pair] * e->n_used + k];
}

static void gather(engine_context *c, const plan_experts *e, int pair) {
    int64_t n = c->model->hp.n_embd;
    const float *y = c->buf[BUF_Y] + c->experts.token[pair] * c->plan->width[BUF_Y];
    float *to = pair_row(c, BUF_EXPERT_IN, pair),
          weight = e->weigh_input ? weight_of(c, e, pair) : 1;
    for (int64_t i = 0; i < n; i++) to[i] = y[i] * weight;
}

void cpu_exec_experts_gather(engine_context *c, const plan_step *s, int ith) {
    const plan_experts *e = s->experts;
    pair_range r;
    (void)ith;
    while (take_pairs(c, &r)) {
        int first = c->experts.first[r.expert];
        if (reads_norm(c, r.expert)) continue;
        for (int i = r.begin; i < r.end; i++) gather(c, e, first + i);
        for (int k = 0; k < CPU_ACT_KIND_COUNT; k++) {
            if (!(e->in_kinds & (1u << k))) continue;
            cpu_act act = input_of(c, (cpu_act_kind)k, r.expert);
            c->kernels.act_encode(pair_row(c, BUF_EXPERT_IN, first), c->plan->width[BUF_EXPERT_IN],
                                  r.begin, r.end, &act);
        }
    }
}

void cpu_exec_experts_quantize(engine_context *c, const plan_step *s, int ith) {
    const plan_experts *e = s->experts;
    pair_range r;
    (void)ith;
    while (take_pairs(c, &r)) {
        for (int k = 0; k < CPU_ACT_KIND_COUNT; k++) {
            if (!(e->down_kinds & (1u << k))) continue;
            cpu_act act = hidden_of(c, e, (cpu_act_kind)k, r.expert);
            c->kernels.act_encode(pair_row(c, s->in, c->experts.first[r.expert]),
                                  c->plan->width[s->in], r.begin, r.end, &act);
        }
    }
}

/* ---- products -------------------------------------------------------------------------------- */

static int64_t padded(int64_t rows) {
    return (rows + CPU_ROW_TILE - 1) / CPU_ROW_TILE * CPU_ROW_TILE;
}

/* The active experts' rows as one range, of which a thread takes chunks: the part of a chunk that
 * is the i-th expert's is rows [r0, r1) of it. */
typedef struct expert_rows {
    row_chunks chunks;
    int64_t n;          /* rows of an expert; each begins at a whole tile of the range */
    int64_t begin, end; /* the chunk */
    int i;              /* the next expert in it */
    int expert;
    int64_t r0, r1;
} expert_rows;

static expert_rows rows_of(const engine_context *c, int64_t n, size_t row_bytes,
                           cpu_act_kind kind) {
    const ubatch_experts *x = &c->experts;
    int64_t mean = x->n_active ? x->first[c->plan->n_expert] / x->n_active : 0;
    cpu_act_layout layout = cpu_exec_expert_layout(c, kind, mean);
    return (expert_rows){
        .chunks = row_chunks_make(padded(n) * x->n_active, row_bytes, c->ubatch.nth, layout),
        .n = n};
}

static bool take_rows(engine_context *c, expert_rows *w) {
    for (;;) {
        for (; w->i < c->experts.n_active && w->i * padded(w->n) < w->end; w->i++) {
            int64_t base = w->i * padded(w->n);
            w->r0 = w->begin > base ? w->begin - base : 0;
            w->r1 = w->end - base < w->n ? w->end - base : w->n;
            if (w->r0 >= w->r1) continue; /* only what fills up a tile */
            w->expert = c->experts.active[w->i++];
            return true;
        }
        if (!row_chunks_take(c->pool, &w->chunks, &w->begin, &w->end)) return false;
        w->i = (int)(w->begin / padded(w->n));
    }
}

/* Rows [r0, r1) of one expert for all its pairs, with scale and bias. `step`: from an expert's rows
 * to the next one's. */
static void product(engine_context *c, const plan_matrix *m, int64_t step, const float *scales,
                    int expert, const cpu_act *x, int64_t r0, int64_t r1, int ith) {
    const cpu_mat_kernels *mk = &c->kernels.mat[m->w.type];
    cpu_mat w = m->w;
    int64_t ldy = c->plan->width[m->out];
    float *y = pair_row(c, m->out, c->experts.first[expert]);
    w.data = (const uint8_t *)w.data + (size_t)(expert * step) * w.row_bytes;
    const cpu_exec_product *by = x->layout == CPU_ACT_PANELS ? &cpu_exec_by_tile
                                                             : &cpu_exec_by_vector;
    by->run(mk, &w, r0, r1, x, y, ldy, c->scratch[ith].kernel);
    c->scratch[ith].counts.ffn += (uint64_t)(r1 - r0) * m->row_size;
    if (!m->bias && !scales) return;
    float scale = scales ? scales[expert] : 1;
    const float *bias = m->bias ? m->bias + expert * m->w.n_out : NULL;
    for (int64_t col = 0; col < x->n_cols; col++)
        for (int64_t r = r0; r < r1; r++)
            y[col * ldy + r] = y[col * ldy + r] * scale + (bias ? bias[r] : 0);
}

/* Gate and up of gpt-oss, so that silu(gate) * up is what is wanted: x / (1 + e^-ax) is silu(ax) /
 * a.
 */
static void clamp_pair(float *gate, float *up, int64_t n) {
    const float limit = 7, alpha = 1.702f;
    for (int64_t i = 0; i < n; i++) {
        gate[i] = alpha * fminf(gate[i], limit);
        up[i] = (fmaxf(-limit, fminf(up[i], limit)) + 1) / alpha;
    }
}

static void activate(engine_context *c, const plan_experts *e, int expert, int64_t r0, int64_t r1) {
    const model_hparams *hp = &c->model->hp;
    const ubatch_experts *x = &c->experts;
    for (int pair = x->first[expert]; pair < x->first[expert + 1]; pair++) {
        float *gate = pair_row(c, BUF_EXPERT_GATE, pair) + r0;
        float *up = e->gate.w.data ? pair_row(c, BUF_EXPERT_UP, pair) + r0 : NULL;
        if (e->clamped) clamp_pair(gate, up, r1 - r0);
        c->kernels.activate(hp->activation, hp->activation_threshold, gate, up, gate, r1 - r0);
    }
}

void cpu_exec_experts_in(engine_context *c, const plan_step *s, int ith) {
    const plan_experts *e = s->experts;
    cpu_act_kind gate_kind = e->gate.w.data ? c->kernels.mat[e->gate.w.type].act : CPU_ACT_F32;
    cpu_act_kind up_kind = c->kernels.mat[e->up.w.type].act;
    expert_rows w = rows_of(c, e->n_ff, 2 * e->up.w.row_bytes, up_kind);
    while (take_rows(c, &w)) {
        if (e->gate.w.data) {
            cpu_act x = input_of(c, gate_kind, w.expert);
            product(c, &e->gate, e->up_rows, e->gate_scales, w.expert, &x, w.r0, w.r1, ith);
        }
        cpu_act x = input_of(c, up_kind, w.expert);
        product(c, &e->up, e->up_rows, e->up_scales, w.expert, &x, w.r0, w.r1, ith);
        activate(c, e, w.expert, w.r0, w.r1);
    }
}

void cpu_exec_experts_down(engine_context *c, const plan_step *s, int ith) {
    const plan_experts *e = s->experts;
    cpu_act_kind kind = c->kernels.mat[e->down.w.type].act;
    int64_t n = e->down.w.n_out;
    expert_rows w = rows_of(c, n, e->down.w.row_bytes, kind);
    while (take_rows(c, &w)) {
        cpu_act x = hidden_of(c, e, kind, w.expert);
        product(c, &e->down, n, e->down_scales, w.expert, &x, w.r0, w.r1, ith);
    }
}

/* ---- the sum --------------------------------------------------------------------------------- */

/* Terms are added in the order in which the experts were chosen. */
static void sum_token(engine_context *c, const plan_step *s, int64_t row) {
    const plan_experts *e = s->experts;
    const ubatch_experts *x = &c->experts;
    int64_t n = c->model->hp.n_embd;
    float *y = cpu_exec_row(c, BUF_Y, row);
    memset(y, 0, (size_t)n * sizeof *y);
    for (int k = 0; k < e->n_used; k++) {
        if (x->pair[row * e->n_used + k] < 0) continue;
        const float *out = pair_row(c, BUF_EXPERT_OUT, x->pair[row * e->n_used + k]);
        float weight = e->weigh_input ? 1 : x->weight[row * e->n_used + k];
        for (int64_t i = 0; i < n; i++) y[i] += weight * out[i];
    }
    if (e->sum_norm) c->kernels.rms_norm(y, e->sum_norm, y, n, c->model->hp.norm_eps);
    if (e->shared && e->home == SIDE_CPU) {
        const float *out = cpu_exec_row(c, BUF_SHARED, row);
        for (int64_t i = 0; i < n; i++) y[i] += x->shared[row] * out[i];
    }
    for (int64_t i = 0; e->half && i < n; i++) y[i] *= 0.5f;
    float *residual = cpu_exec_row(c, BUF_X, row);
    if (s->add_to_x) c->kernels.add(residual, y, residual, n);
}

void cpu_exec_experts_sum(engine_context *c, const plan_step *s, int ith) {
    (void)ith;
    for (;;) {
        int64_t row = pool_take(c->pool, 1);
        if (row >= c->ubatch.n_tokens) break;
        sum_token(c, s, row);
    }
}
