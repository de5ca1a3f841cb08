/* cpu_experts.c: mixtures of experts: activations, and which neurons of an expert are computed; the
 * down product and the sum. cpu_expert_rows.c has the pairs of tokens and experts, their quantized
 * vectors, and products.
 *
 * Where activations have exact zeros, an expert of few tokens reads rows of up only for neurons
 * that are active for any of its tokens, and likewise rows of down if down has a row per neuron.
 * Sums do not change: the other neurons add zero.
 *
 * In mode predict the expert's predictor scores its neurons first, in the buffer of up. An expert
 * of few tokens then reads rows of gate only for neurons that any of its tokens selected; an expert
 * of many tokens computes all. In both cases a neuron that a token did not select is exactly zero
 * for this token. */
#include <math.h>
#include <string.h>

#include "cpu_experts.h"

/* ---- neurons --------------------------------------------------------------------------------- */

/* with_up: also multiplies by up, if there is a gate. */
static void activate(cpu_exec *c, const plan_step *s, const plan_experts *e, bool with_up,
                     int expert, int64_t r0, int64_t r1) {
    const ubatch_experts *x = &c->experts;
    const float limit = c->model->layers[s->layer].hp.expert_clamp;
    for (int pair = x->first[expert]; pair < x->first[expert + 1]; pair++) {
        float *gate = expert_pair_row(c, BUF_EXPERT_GATE, pair) + r0;
        float *up = with_up && e->gate.w.data ? expert_pair_row(c, BUF_EXPERT_UP, pair) + r0 : NULL;
        cpu_exec_activate(c, limit, gate, up, r1 - r0);
    }
}

/* Lists the neurons in [r0, r1) that are active for any pair of the expert (NaN is active). */
static int64_t list_active(const cpu_exec *c, int expert, int64_t r0, int64_t r1, int32_t *rows) {
    const ubatch_experts *x = &c->experts;
    int64_t n = 0;
    for (int64_t r = r0; r < r1; r++) {
        bool any = false;
        for (int pair = x->first[expert]; pair < x->first[expert + 1] && !any; pair++)
            any = expert_pair_row(c, BUF_EXPERT_GATE, pair)[r] != 0;
        if (any) rows[n++] = (int32_t)r;
    }
    return n;
}

/* Multiplies the expert's n listed rows, of [r0, r0 + n_rows), with scale and bias, into columns
 * of t->up. */
static void multiply_rows(cpu_exec *c, const plan_matrix *m, const float *scales, const cpu_mat *w,
                          const cpu_act *x, const expert_rows *at, int64_t n, int ith) {
    thread_scratch *t = &c->scratch[ith];
    const cpu_mat_kernels *mk = &c->kernels.mat[m->w.type];
    const int64_t n_rows = at->r1 - at->r0;
    if (n == n_rows) {
        cpu_mat part = *w;
        part.data = (const uint8_t *)w->data + (size_t)at->r0 * w->row_bytes;
        mk->matvec(&part, 0, n, x, t->up, PLAN_FFN_PART_ROWS);
    } else {
        mk->matvec_rows(w, t->rows, n, x, t->up, PLAN_FFN_PART_ROWS);
    }
    t->counts.ffn += (uint64_t)n * m->row_size;
    if (n < n_rows) t->counts.gathered += (uint64_t)n * m->row_size;
    if (!m->bias && !scales) return;
    const float scale = scales ? scales[at->expert] : 1;
    const float *bias = m->bias ? m->bias + at->expert * m->w.n_out : NULL;
    for (int64_t col = 0; col < x->n_cols; col++) {
        float *y = t->up + col * PLAN_FFN_PART_ROWS;
        for (int64_t i = 0; i < n; i++) y[i] = y[i] * scale + (bias ? bias[t->rows[i]] : 0);
    }
}

/* Multiplies the activations of the n listed neurons, which are active, by their products with
 * up. */
static void multiply_by_up(cpu_exec *c, int expert, int64_t n_cols, int64_t n, int ith) {
    const thread_scratch *t = &c->scratch[ith];
    bool rectified = c->model->hp.activation == ACTIVATION_DRELU;
    for (int64_t col = 0; col < n_cols; col++) {
        float *h = expert_pair_row(c, BUF_EXPERT_GATE, c->experts.first[expert] + (int)col);
        const float *up = t->up + col * PLAN_FFN_PART_ROWS;
        for (int64_t i = 0; i < n; i++) {
            int32_t r = t->rows[i];
            float u = rectified ? fmaxf(0, up[i]) : up[i];
            h[r] = h[r] == 0 ? 0 : h[r] * u;
        }
    }
}

/* The next part of a range of an expert's rows, from r0 on. */
static expert_rows part_of(const expert_rows *w, int64_t r0) {
    expert_rows part = *w;
    part.r0 = r0;
    part.r1 = r0 + PLAN_FFN_PART_ROWS < w->r1 ? r0 + PLAN_FFN_PART_ROWS : w->r1;
    return part;
}

static void multiply_active(cpu_exec *c, const plan_step *s, const plan_experts *e,
                            const cpu_act *x, const expert_rows *w, int ith) {
    const cpu_mat up = expert_matrix(c, s, &e->up, w->expert);
    for (int64_t r0 = w->r0; r0 < w->r1; r0 += PLAN_FFN_PART_ROWS) {
        const expert_rows part = part_of(w, r0);
        int64_t n = list_active(c, w->expert, r0, part.r1, c->scratch[ith].rows);
        if (n == 0) continue;
        multiply_rows(c, &e->up, e->up_scales, &up, x, &part, n, ith);
        multiply_by_up(c, w->expert, x->n_cols, n, ith);
    }
    expert_used_rows(c, s, &e->up, w->expert, w->r1 - w->r0);
}

/* ---- predictors ------------------------------------------------------------------------------ */

void cpu_exec_experts_fc1(cpu_exec *c, const plan_step *s, const plan_experts *e, int ith) {
    cpu_act_kind kind = c->kernels.mat[e->fc1.w.type].act;
    expert_rows w = expert_rows_make(c, e->fc1.w.n_out, e->fc1.w.row_bytes, kind);
    while (expert_rows_take(c, &w)) {
        cpu_act x = expert_input(c, e, kind, w.expert);
        expert_product(c, s, &e->fc1, NULL, w.expert, &x, w.r0, w.r1, ith);
    }
}

/* Computes the scores of an expert's neurons in the range, for all its pairs. */
static void score(cpu_exec *c, const plan_step *s, const plan_experts *e, const expert_rows *w,
                  int ith) {
    if (e->predictor != PREDICTOR_SIGN) {
        cpu_act x = expert_pred(c, e, c->kernels.mat[e->fc2.w.type].act, w->expert);
        expert_product(c, s, &e->fc2, NULL, w->expert, &x, w->r0, w->r1, ith);
        return;
    }
    int64_t n_embd = c->model->hp.n_embd;
    size_t row = (size_t)n_embd / 8, column = cpu_act_bytes(CPU_ACT_Q8, CPU_ACT_COLUMNS, n_embd, 1);
    const uint8_t *bits = e->sign + (size_t)(w->expert * e->n_ff) * row;
    for (int p = c->experts.first[w->expert]; p < c->experts.first[w->expert + 1]; p++) {
        cpu_act x = cpu_exec_slot_act(c, PLAN_SLOT_PREDICTOR, CPU_ACT_Q8, CPU_ACT_COLUMNS, n_embd,
                                      1);
        x.data = (uint8_t *)x.data + (size_t)c->experts.token[p] * column;
        c->kernels.sign_dot(bits + (size_t)w->r0 * row, 0, w->r1 - w->r0, &x,
                            expert_pair_row(c, BUF_EXPERT_UP, p) + w->r0, w->r1 - w->r0);
    }
    c->scratch[ith].counts.predictor += (uint64_t)(w->r1 - w->r0) * row;
}

/* Whether a pair selects neuron r of its expert; a score of NaN selects it. */
static bool selects(const plan_experts *e, int expert, const float *scores, int64_t r) {
    return cpu_exec_passes(scores[r], e->score_bias, expert * e->n_ff + r, e->threshold);
}

/* Lists the neurons of the part that any pair of the expert selects. */
static int64_t list_selected(const cpu_exec *c, const plan_experts *e, const expert_rows *part,
                             int32_t *rows) {
    const ubatch_experts *x = &c->experts;
    int64_t n = 0;
    for (int64_t r = part->r0; r < part->r1; r++) {
        bool any = false;
        for (int p = x->first[part->expert]; p < x->first[part->expert + 1] && !any; p++)
            any = selects(e, part->expert, expert_pair_row(c, BUF_EXPERT_UP, p), r);
        if (any) rows[n++] = (int32_t)r;
    }
    return n;
}

/* The activations of the neurons that a pair selects; the others are zero. `first`: the matrix that
 * determines whether a neuron is active. */
static void activate_selected(cpu_exec *c, const plan_step *s, const plan_experts *e,
                              const plan_matrix *first, const float *scales, const cpu_act *x,
                              const expert_rows *w, int ith) {
    const cpu_mat m = expert_matrix(c, s, first, w->expert);
    thread_scratch *t = &c->scratch[ith];
    for (int64_t r0 = w->r0; r0 < w->r1; r0 += PLAN_FFN_PART_ROWS) {
        const expert_rows part = part_of(w, r0);
        int64_t n = list_selected(c, e, &part, t->rows);
        if (n > 0) multiply_rows(c, first, scales, &m, x, &part, n, ith);
        for (int col = 0; col < x->n_cols; col++) {
            int pair = c->experts.first[w->expert] + col;
            float *a = t->up + col * PLAN_FFN_PART_ROWS,
                  *h = expert_pair_row(c, BUF_EXPERT_GATE, pair);
            const float *scores = expert_pair_row(c, BUF_EXPERT_UP, pair);
            cpu_exec_activate(c, 0, a, NULL, n);
            memset(h + part.r0, 0, (size_t)(part.r1 - part.r0) * sizeof *h);
            for (int64_t i = 0; i < n; i++)
                if (selects(e, w->expert, scores, t->rows[i])) h[t->rows[i]] = a[i];
        }
    }
    expert_used_rows(c, s, first, w->expert, w->r1 - w->r0);
}

/* Sets the neurons that a pair does not select to zero. */
static void drop_unselected(cpu_exec *c, const plan_experts *e, const expert_rows *w) {
    for (int p = c->experts.first[w->expert]; p < c->experts.first[w->expert + 1]; p++) {
        float *h = expert_pair_row(c, BUF_EXPERT_GATE, p);
        const float *scores = expert_pair_row(c, BUF_EXPERT_UP, p);
        for (int64_t r = w->r0; r < w->r1; r++)
            if (!selects(e, w->expert, scores, r)) h[r] = 0;
    }
}

void cpu_exec_experts_in(cpu_exec *c, const plan_step *s, const plan_experts *e, int ith) {
    const bool gated = e->gate.w.data, predicts = e->mode == PI_MODE_PREDICT;
    const plan_matrix *first = gated ? &e->gate : &e->up;
    const float *scales = gated ? e->gate_scales : e->up_scales;
    cpu_act_kind first_kind = c->kernels.mat[first->w.type].act;
    cpu_act_kind up_kind = c->kernels.mat[e->up.w.type].act;
    expert_rows w = expert_rows_make(c, e->n_ff, 2 * e->up.w.row_bytes, up_kind);
    while (expert_rows_take(c, &w)) {
        cpu_act x = expert_input(c, e, first_kind, w.expert),
                up_x = expert_input(c, e, up_kind, w.expert);
        bool few = x.layout == CPU_ACT_COLUMNS && up_x.layout == CPU_ACT_COLUMNS;
        if (few && predicts) {
            score(c, s, e, &w, ith);
            activate_selected(c, s, e, first, scales, &x, &w, ith);
            if (gated) multiply_active(c, s, e, &up_x, &w, ith);
            continue;
        }
        expert_product(c, s, first, scales, w.expert, &x, w.r0, w.r1, ith);
        if (few && gated && e->mode == PI_MODE_EXACT) {
            activate(c, s, e, false, w.expert, w.r0, w.r1);
            multiply_active(c, s, e, &up_x, &w, ith);
            continue;
        }
        if (gated) expert_product(c, s, &e->up, e->up_scales, w.expert, &up_x, w.r0, w.r1, ith);
        activate(c, s, e, true, w.expert, w.r0, w.r1);
        if (!predicts) continue;
        score(c, s, e, &w, ith);
        drop_unselected(c, e, &w);
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
        const cpu_act h = expert_hidden(c, e, kind, c->experts.active[i]);
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
    const cpu_mat w = expert_matrix(c, s, &part, p->expert);
    int first = c->experts.first[p->expert], n_cols = expert_pairs(&c->experts, p->expert);
    int64_t ldy = c->plan->width[BUF_EXPERT_OUT];
    float *y = expert_pair_row(c, BUF_EXPERT_OUT, first) + p->j0;
    for (int col = 0; col < n_cols; col++)
        memset(y + col * ldy, 0, (size_t)(p->j1 - p->j0) * sizeof *y);
    for (int64_t r0 = 0; r0 < e->n_ff; r0 += PLAN_FFN_PART_ROWS) {
        int64_t end = r0 + PLAN_FFN_PART_ROWS < e->n_ff ? r0 + PLAN_FFN_PART_ROWS : e->n_ff;
        int64_t n = list_active(c, p->expert, r0, end, t->rows);
        for (int col = 0; col < n_cols; col++) {
            const float *h = expert_pair_row(c, BUF_EXPERT_GATE, first + col);
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
        const cpu_act h = expert_hidden(c, e, mk->act, p.expert);
        if (h.layout == CPU_ACT_COLUMNS) {
            sum_active(c, s, e, &p, ith);
        } else {
            const cpu_mat w = expert_matrix(c, s, &e->down, p.expert);
            mk->matmul_t(&w, p.j0, p.j1, &h,
                         expert_pair_row(c, BUF_EXPERT_OUT, c->experts.first[p.expert]), ldy,
                         c->scratch[ith].kernel);
            c->scratch[ith].counts.ffn += e->down.row_size * (uint64_t)e->n_ff *
                                          (uint64_t)(p.j1 - p.j0) / (uint64_t)n;
        }
        expert_used_rows(c, s, &e->down, p.expert, p.j1 - p.j0);
        expert_finish(c, &e->down, n, e->down_scales, p.expert, p.j0, p.j1);
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
    expert_rows w = expert_rows_make(c, n, e->down.w.row_bytes, kind);
    while (expert_rows_take(c, &w)) {
        cpu_act x = expert_hidden(c, e, kind, w.expert);
        expert_product(c, s, &e->down, e->down_scales, w.expert, &x, w.r0, w.r1, ith);
    }
}

/* ---- the sum --------------------------------------------------------------------------------- */

/* Adds terms in the order in which the experts were chosen. */
static void sum_token(cpu_exec *c, const plan_step *s, const plan_experts *e, int64_t row) {
    const ubatch_experts *x = &c->experts;
    int64_t n = e->n_embd;
    float *y = cpu_exec_row(c, s->add_to_x ? BUF_Y : s->out, row);
    memset(y, 0, (size_t)n * sizeof *y);
    for (int k = 0; k < e->n_used; k++) {
        if (x->pair[row * e->n_used + k] < 0) continue;
        const float *out = expert_pair_row(c, BUF_EXPERT_OUT, x->pair[row * e->n_used + k]);
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
