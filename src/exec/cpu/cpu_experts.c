/* cpu_experts.c: the matmuls of a mixture of experts, over the pairs of tokens and experts that
 * cpu_route.c has sorted. The rows of all active experts form one range, which the threads share in
 * chunks, so no thread waits for the last expert and no barrier separates experts. An expert of
 * many tokens uses the tiled kernels, like matmuls in prefill; an expert of a single token reads
 * the vector that the norm has quantized.
 *
 * Where activations have exact zeros, an expert of few tokens reads rows of up only for neurons
 * that are active for any of its tokens, and likewise rows of down if down has a row per neuron.
 * Sums do not change: the other neurons add zero. */
#include <math.h>
#include <string.h>

#include "cpu_exec.h"

/* ---- quantized inputs ------------------------------------------------------------------------ */

static int pairs_of(const ubatch_experts *x, int expert) {
    return x->first[expert + 1] - x->first[expert];
}

/* Experts of a ubatch have different numbers of tokens, so each has a layout that suits its
 * number. */
cpu_act_layout cpu_exec_expert_layout(const cpu_exec *c, cpu_act_kind kind, int64_t n_pairs) {
    return n_pairs >= c->kernels.tiled[kind].from ? CPU_ACT_PANELS : CPU_ACT_COLUMNS;
}

/* Whether the expert has a single token and reads the column that the norm has quantized. */
static bool reads_norm(const cpu_exec *c, int expert) {
    return c->experts.from_norm && pairs_of(&c->experts, expert) == 1;
}

static cpu_act pairs_act(const cpu_exec *c, cpu_act_kind kind, int64_t n, int expert, uint8_t *base,
                         size_t at) {
    int n_cols = pairs_of(&c->experts, expert);
    return (cpu_act){.kind = kind,
                     .layout = cpu_exec_expert_layout(c, kind, n_cols),
                     .n = n,
                     .n_cols = n_cols,
                     .data = base + at};
}

static cpu_act input_of(const cpu_exec *c, cpu_act_kind kind, int expert) {
    const ubatch_experts *x = &c->experts;
    int64_t n = c->model->hp.n_embd;
    if (!reads_norm(c, expert))
        return pairs_act(c, kind, n, expert, x->in[kind], x->in_at[kind][expert]);
    cpu_act act = cpu_exec_slot_act(c, PLAN_SLOT_MAIN, kind, CPU_ACT_COLUMNS, n, 1);
    size_t column = cpu_act_bytes(kind, CPU_ACT_COLUMNS, n, 1);
    act.data = (uint8_t *)act.data + (size_t)x->token[x->first[expert]] * column;
    return act;
}

static cpu_act hidden_of(const cpu_exec *c, const plan_experts *e, cpu_act_kind kind, int expert) {
    const ubatch_experts *x = &c->experts;
    return pairs_act(c, kind, e->n_ff, expert, x->hidden[kind], x->hidden_at[kind][expert]);
}

/* At most a panel of an expert's pairs. */
typedef struct pair_range {
    int expert, begin, end; /* among the expert's pairs */
} pair_range;

static bool take_pairs(cpu_exec *c, pair_range *r) {
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

static float *pair_row(const cpu_exec *c, plan_buffer b, int pair) {
    return c->buf[b] + (int64_t)pair * c->plan->width[b];
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
    int64_t n = c->model->hp.n_embd;
    const float *y = c->buf[BUF_Y] + c->experts.token[pair] * c->plan->width[BUF_Y];
    float *to = pair_row(c, BUF_EXPERT_IN, pair),
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
            cpu_act act = input_of(c, (cpu_act_kind)k, r.expert);
            c->kernels.act_encode(pair_row(c, BUF_EXPERT_IN, first), c->plan->width[BUF_EXPERT_IN],
                                  r.begin, r.end, &act);
        }
    }
}

void cpu_exec_experts_quantize(cpu_exec *c, const plan_step *s, const plan_experts *e) {
    pair_range r;
    while (take_pairs(c, &r)) {
        for (int k = 0; k < CPU_ACT_KIND_COUNT; k++) {
            if (!(e->down_kinds & (1u << k))) continue;
            cpu_act act = hidden_of(c, e, (cpu_act_kind)k, r.expert);
            if (e->down_rows && act.layout == CPU_ACT_COLUMNS) continue; /* floats */
            c->kernels.act_encode(pair_row(c, s->in, c->experts.first[r.expert]),
                                  c->plan->width[s->in], r.begin, r.end, &act);
        }
    }
}

/* ---- products -------------------------------------------------------------------------------- */

static int64_t padded(int64_t rows) {
    return (rows + CPU_ROW_TILE - 1) / CPU_ROW_TILE * CPU_ROW_TILE;
}

/* The rows of the active experts form one range; threads take chunks of it. take_rows finds rows
 * [r0, r1) of the next expert in the chunk. */
typedef struct expert_rows {
    row_chunks chunks;
    int64_t n;          /* rows of an expert; each expert begins at a whole tile of the range */
    int64_t begin, end; /* the chunk */
    int i;              /* the next expert in it */
    int expert;
    int64_t r0, r1;
} expert_rows;

static expert_rows rows_of(const cpu_exec *c, int64_t n, size_t row_bytes, cpu_act_kind kind) {
    const ubatch_experts *x = &c->experts;
    int64_t mean = x->n_active ? x->first[c->plan->n_expert] / x->n_active : 0;
    cpu_act_layout layout = cpu_exec_expert_layout(c, kind, mean);
    return (expert_rows){
        .chunks = row_chunks_make(padded(n) * x->n_active, row_bytes, c->ubatch.nth, layout),
        .n = n};
}

static bool take_rows(cpu_exec *c, expert_rows *w) {
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

/* Applies scale and bias to elements [r0, r1) of an expert's result of n elements, for all its
 * pairs. */
static void finish(cpu_exec *c, const plan_matrix *m, int64_t n, const float *scales, int expert,
                   int64_t r0, int64_t r1) {
    if (!m->bias && !scales) return;
    float scale = scales ? scales[expert] : 1;
    const float *bias = m->bias ? m->bias + expert * n : NULL;
    for (int pair = c->experts.first[expert]; pair < c->experts.first[expert + 1]; pair++) {
        float *y = pair_row(c, m->out, pair);
        for (int64_t r = r0; r < r1; r++) y[r] = y[r] * scale + (bias ? bias[r] : 0);
    }
}

/* The expert's rows of a matrix; waits until they are in memory. */
static cpu_mat rows_of_expert(cpu_exec *c, const plan_step *s, const plan_matrix *m, int expert) {
    cpu_mat w = m->w;
    w.data = c->paging && paging_has_experts(c->paging, s->layer)
                 ? paging_expert(c->paging, s->layer, m, expert)
                 : (const uint8_t *)w.data + (size_t)expert * m->expert_bytes;
    return w;
}

/* Tells the pager that n of these rows (columns, if down has a row per neuron) are not needed any
 * more. */
static void used_rows(cpu_exec *c, const plan_step *s, const plan_matrix *m, int expert,
                      int64_t n) {
    if (c->paging && paging_has_experts(c->paging, s->layer))
        paging_expert_used(c->paging, s->layer, m, expert, n);
}

/* Computes rows [r0, r1) of an expert's product for all its pairs, with scale and bias. */
static void product(cpu_exec *c, const plan_step *s, const plan_matrix *m, const float *scales,
                    int expert, const cpu_act *x, int64_t r0, int64_t r1, int ith) {
    const cpu_mat_kernels *mk = &c->kernels.mat[m->w.type];
    const cpu_mat w = rows_of_expert(c, s, m, expert);
    int64_t ldy = c->plan->width[m->out];
    float *y = pair_row(c, m->out, c->experts.first[expert]);
    const cpu_exec_product *by = x->layout == CPU_ACT_PANELS ? &cpu_exec_by_tile
                                                             : &cpu_exec_by_vector;
    by->run(mk, &w, r0, r1, x, y, ldy, c->scratch[ith].kernel);
    used_rows(c, s, m, expert, r1 - r0);
    c->scratch[ith].counts.ffn += (uint64_t)(r1 - r0) * m->row_size;
    finish(c, m, m->w.n_out, scales, expert, r0, r1);
}

/* with_up: also multiplies by up, if there is a gate. */
static void activate(cpu_exec *c, const plan_experts *e, bool with_up, int expert, int64_t r0,
                     int64_t r1) {
    const ubatch_experts *x = &c->experts;
    for (int pair = x->first[expert]; pair < x->first[expert + 1]; pair++) {
        float *gate = pair_row(c, BUF_EXPERT_GATE, pair) + r0;
        float *up = with_up && e->gate.w.data ? pair_row(c, BUF_EXPERT_UP, pair) + r0 : NULL;
        cpu_exec_activate(c, gate, up, r1 - r0);
    }
}

/* Lists the neurons in [r0, r1) that are active for any pair of the expert (NaN is active), or
 * all. */
static int64_t list_active(const cpu_exec *c, bool all, int expert, int64_t r0, int64_t r1,
                           int32_t *rows) {
    const ubatch_experts *x = &c->experts;
    int64_t n = 0;
    for (int64_t r = r0; r < r1; r++) {
        bool any = all;
        for (int pair = x->first[expert]; pair < x->first[expert + 1] && !any; pair++)
            any = pair_row(c, BUF_EXPERT_GATE, pair)[r] != 0;
        if (any) rows[n++] = (int32_t)r;
    }
    return n;
}

/* Computes the hidden values of neurons [r0, r0 + n_rows): multiplies the activations of the n
 * listed neurons, which are active, by their products with up. */
static void multiply_listed(cpu_exec *c, const plan_experts *e, const cpu_mat *w, const cpu_act *x,
                            int expert, int64_t r0, int64_t n_rows, int64_t n, int ith) {
    thread_scratch *t = &c->scratch[ith];
    const cpu_mat_kernels *mk = &c->kernels.mat[e->up.w.type];
    const float scale = e->up_scales ? e->up_scales[expert] : 1;
    const float *bias = e->up.bias ? e->up.bias + expert * e->n_ff : NULL;
    bool rectified = c->model->hp.activation == ACTIVATION_DRELU;
    if (n == n_rows) {
        cpu_mat part = *w;
        part.data = (const uint8_t *)w->data + (size_t)r0 * w->row_bytes;
        mk->matvec(&part, 0, n, x, t->up, PLAN_FFN_PART_ROWS);
    } else {
        mk->matvec_rows(w, t->rows, n, x, t->up, PLAN_FFN_PART_ROWS);
    }
    t->counts.ffn += (uint64_t)n * e->up.row_size;
    if (n < n_rows) t->counts.gathered += (uint64_t)n * e->up.row_size;
    for (int64_t col = 0; col < x->n_cols; col++) {
        float *h = pair_row(c, BUF_EXPERT_GATE, c->experts.first[expert] + (int)col);
        const float *up = t->up + col * PLAN_FFN_PART_ROWS;
        for (int64_t i = 0; i < n; i++) {
            int32_t r = t->rows[i];
            float u = up[i] * scale + (bias ? bias[r] : 0);
            if (rectified) u = fmaxf(0, u);
            h[r] = h[r] == 0 ? 0 : h[r] * u;
        }
    }
}

static void multiply_active(cpu_exec *c, const plan_step *s, const plan_experts *e,
                            const cpu_act *x, const expert_rows *w, int ith) {
    const cpu_mat up = rows_of_expert(c, s, &e->up, w->expert);
    for (int64_t r0 = w->r0; r0 < w->r1; r0 += PLAN_FFN_PART_ROWS) {
        int64_t end = r0 + PLAN_FFN_PART_ROWS < w->r1 ? r0 + PLAN_FFN_PART_ROWS : w->r1;
        int64_t n = list_active(c, e->mode == PI_MODE_DENSE, w->expert, r0, end,
                                c->scratch[ith].rows);
        if (n > 0) multiply_listed(c, e, &up, x, w->expert, r0, end - r0, n, ith);
    }
    used_rows(c, s, &e->up, w->expert, w->r1 - w->r0);
}

void cpu_exec_experts_in(cpu_exec *c, const plan_step *s, const plan_experts *e, int ith) {
    cpu_act_kind gate_kind = e->gate.w.data ? c->kernels.mat[e->gate.w.type].act : CPU_ACT_F32;
    cpu_act_kind up_kind = c->kernels.mat[e->up.w.type].act;
    expert_rows w = rows_of(c, e->n_ff, 2 * e->up.w.row_bytes, up_kind);
    while (take_rows(c, &w)) {
        if (e->gate.w.data) {
            cpu_act x = input_of(c, gate_kind, w.expert);
            product(c, s, &e->gate, e->gate_scales, w.expert, &x, w.r0, w.r1, ith);
        }
        cpu_act x = input_of(c, up_kind, w.expert);
        if (e->mode == PI_MODE_EXACT && e->gate.w.data && x.layout == CPU_ACT_COLUMNS) {
            activate(c, e, false, w.expert, w.r0, w.r1);
            multiply_active(c, s, e, &x, &w, ith);
            continue;
        }
        product(c, s, &e->up, e->up_scales, w.expert, &x, w.r0, w.r1, ith);
        activate(c, e, true, w.expert, w.r0, w.r1);
    }
}

/* ---- a row of down per neuron ---------------------------------------------------------------- */

/* Elements [j0, j1) of one expert's result. */
typedef struct down_piece {
    int expert;
    int64_t j0, j1;
} down_piece;

/* Elements per piece. An expert of few tokens takes whole rows if there are enough experts for all
 * threads: the start of a row costs more than the rest. */
static int64_t piece_width(const cpu_exec *c, const cpu_act *h, int64_t n) {
    if (h->layout == CPU_ACT_PANELS) return CPU_COL_TILE;
    int64_t n_pieces = 1 + (2 * c->ubatch.nth - 1) / c->experts.n_active;
    int64_t width = (n + n_pieces - 1) / n_pieces;
    return (width + CPU_COL_TILE - 1) / CPU_COL_TILE * CPU_COL_TILE;
}

static bool take_piece(cpu_exec *c, const plan_experts *e, cpu_act_kind kind, down_piece *p) {
    int64_t index = pool_take(c->pool, 1), n = e->down.w.n_in;
    for (int i = 0; i < c->experts.n_active; i++) {
        const cpu_act h = hidden_of(c, e, kind, c->experts.active[i]);
        int64_t width = piece_width(c, &h, n), n_pieces = (n + width - 1) / width;
        if (index < n_pieces) {
            int64_t j0 = index * width;
            *p = (down_piece){c->experts.active[i], j0, j0 + width < n ? j0 + width : n};
            return true;
        }
        index -= n_pieces;
    }
    return false;
}

/* Sums the rows of down of active neurons. */
static void sum_active(cpu_exec *c, const plan_step *s, const plan_experts *e, const down_piece *p,
                       int ith) {
    thread_scratch *t = &c->scratch[ith];
    const plan_matrix part = plan_take_columns(&e->down, p->j0, p->j1 - p->j0);
    const cpu_mat w = rows_of_expert(c, s, &part, p->expert);
    int first = c->experts.first[p->expert], n_cols = pairs_of(&c->experts, p->expert);
    int64_t ldy = c->plan->width[BUF_EXPERT_OUT];
    float *y = pair_row(c, BUF_EXPERT_OUT, first) + p->j0;
    for (int col = 0; col < n_cols; col++)
        memset(y + col * ldy, 0, (size_t)(p->j1 - p->j0) * sizeof *y);
    for (int64_t r0 = 0; r0 < e->n_ff; r0 += PLAN_FFN_PART_ROWS) {
        int64_t end = r0 + PLAN_FFN_PART_ROWS < e->n_ff ? r0 + PLAN_FFN_PART_ROWS : e->n_ff;
        int64_t n = list_active(c, false, p->expert, r0, end, t->rows);
        for (int col = 0; col < n_cols; col++) {
            const float *h = pair_row(c, BUF_EXPERT_GATE, first + col);
            float *to = t->gate + col * PLAN_FFN_PART_ROWS;
            for (int64_t i = 0; i < n; i++) to[i] = h[t->rows[i]];
        }
        c->kernels.mat_t[w.type].axpy_rows(&w, t->rows, n, t->gate, PLAN_FFN_PART_ROWS, n_cols, y,
                                           ldy);
        t->counts.ffn += (uint64_t)n * part.row_size;
        if (n < end - r0) t->counts.gathered += (uint64_t)n * part.row_size;
    }
}

static void sum_rows(cpu_exec *c, const plan_step *s, const plan_experts *e, int ith) {
    const cpu_mat_t_kernels *mk = &c->kernels.mat_t[e->down.w.type];
    int64_t n = e->down.w.n_in, ldy = c->plan->width[BUF_EXPERT_OUT];
    down_piece p;
    while (take_piece(c, e, mk->act, &p)) {
        const cpu_act h = hidden_of(c, e, mk->act, p.expert);
        if (h.layout == CPU_ACT_COLUMNS) {
            sum_active(c, s, e, &p, ith);
        } else {
            const cpu_mat w = rows_of_expert(c, s, &e->down, p.expert);
            mk->matmul_t(&w, p.j0, p.j1, &h,
                         pair_row(c, BUF_EXPERT_OUT, c->experts.first[p.expert]), ldy,
                         c->scratch[ith].kernel);
            c->scratch[ith].counts.ffn += e->down.row_size * (uint64_t)e->n_ff *
                                          (uint64_t)(p.j1 - p.j0) / (uint64_t)n;
        }
        used_rows(c, s, &e->down, p.expert, p.j1 - p.j0);
        finish(c, &e->down, n, e->down_scales, p.expert, p.j0, p.j1);
    }
}

/* ---- down ------------------------------------------------------------------------------------ */

void cpu_exec_experts_down(cpu_exec *c, const plan_step *s, const plan_experts *e, int ith) {
    if (e->down_rows) {
        sum_rows(c, s, e, ith);
        return;
    }
    cpu_act_kind kind = c->kernels.mat[e->down.w.type].act;
    int64_t n = e->down.w.n_out;
    expert_rows w = rows_of(c, n, e->down.w.row_bytes, kind);
    while (take_rows(c, &w)) {
        cpu_act x = hidden_of(c, e, kind, w.expert);
        product(c, s, &e->down, e->down_scales, w.expert, &x, w.r0, w.r1, ith);
    }
}

/* ---- the sum --------------------------------------------------------------------------------- */

/* Adds terms in the order in which the experts were chosen. */
static void sum_token(cpu_exec *c, const plan_step *s, const plan_experts *e, int64_t row) {
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
    if (e->shared && e->primary == SIDE_CPU) {
        const float *out = cpu_exec_row(c, BUF_SHARED, row);
        for (int64_t i = 0; i < n; i++) y[i] += x->shared[row] * out[i];
    }
    for (int64_t i = 0; e->sum_scale != 1 && i < n; i++) y[i] *= e->sum_scale;
    float *residual = cpu_exec_row(c, BUF_X, row);
    if (s->add_to_x) c->kernels.add(residual, y, residual, n);
}

void cpu_exec_experts_sum(cpu_exec *c, const plan_step *s, const plan_experts *e) {
    for (int64_t row; (row = pool_take(c->pool, 1)) < c->ubatch.n_tokens;) sum_token(c, s, e, row);
}
