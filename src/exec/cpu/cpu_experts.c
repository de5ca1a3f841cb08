/* cpu_experts.c: the experts that a ubatch uses. cpu_route.c has sorted the pairs of a token and
 * one of its experts by expert. The rows of all active experts form one range, which the threads
 * share in chunks, so no thread waits for the last expert and no barrier separates experts. An
 * expert of many tokens uses the tiled kernels, like matmuls in prefill; an expert of a single
 * token reads the vector that the norm has quantized.
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

#include "cpu_exec.h"

/* ---- pairs of a token and an expert ---------------------------------------------------------- */

static inline int expert_pairs(const ubatch_experts *x, int expert) {
    return x->first[expert + 1] - x->first[expert];
}

/* A pair's row of a buffer. */
static inline float *expert_pair_row(const cpu_exec *c, plan_buffer b, int pair) {
    return c->buf[b] + (int64_t)pair * c->plan->width[b];
}

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

/* Quantized vectors of an expert's pairs: inputs, hidden vectors, those of its predictor. */
static cpu_act expert_input(const cpu_exec *c, const plan_experts *e, cpu_act_kind kind,
                            int expert) {
    const ubatch_experts *x = &c->experts;
    int64_t n = e->n_embd;
    if (!reads_norm(c, expert))
        return pairs_act(c, kind, n, expert, x->in[kind], x->in_at[kind][expert]);
    cpu_act act = cpu_exec_slot_act(c, PLAN_SLOT_MAIN, kind, CPU_ACT_COLUMNS, n, 1);
    size_t column = cpu_act_bytes(kind, CPU_ACT_COLUMNS, n, 1);
    act.data = (uint8_t *)act.data + (size_t)x->token[x->first[expert]] * column;
    return act;
}

static cpu_act expert_hidden(const cpu_exec *c, const plan_experts *e, cpu_act_kind kind,
                             int expert) {
    const ubatch_experts *x = &c->experts;
    return pairs_act(c, kind, e->n_ff, expert, x->hidden[kind], x->hidden_at[kind][expert]);
}

static cpu_act expert_pred(const cpu_exec *c, const plan_experts *e, cpu_act_kind kind,
                           int expert) {
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

/* The rows of the active experts form one range; threads take chunks of it. */
typedef struct expert_rows {
    row_chunks chunks;
    int64_t n;          /* rows of an expert; each expert begins at a whole tile of the range */
    int64_t begin, end; /* the chunk */
    int i;              /* the next expert in it */
    int expert;
    int64_t r0, r1;
} expert_rows;

static int64_t padded(int64_t rows) {
    return (rows + CPU_ROW_TILE - 1) / CPU_ROW_TILE * CPU_ROW_TILE;
}

static expert_rows expert_rows_make(const cpu_exec *c, int64_t n, size_t row_bytes,
                                    cpu_act_kind kind) {
    const ubatch_experts *x = &c->experts;
    int64_t mean = x->n_active ? x->first[c->plan->n_expert] / x->n_active : 0;
    cpu_act_layout layout = cpu_exec_expert_layout(c, kind, mean);
    return (expert_rows){
        .chunks = row_chunks_make(padded(n) * x->n_active, row_bytes, c->ubatch.nth, layout),
        .n = n};
}

/* Finds rows [r0, r1) of the next expert; false: all rows were taken. */
static bool expert_rows_take(cpu_exec *c, expert_rows *w) {
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
static void expert_finish(cpu_exec *c, const plan_matrix *m, int64_t n, const float *scales,
                          int expert, int64_t r0, int64_t r1) {
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

/* The expert's rows of a matrix; waits until they are in memory. */
static cpu_mat expert_matrix(cpu_exec *c, const plan_step *s, const plan_matrix *m, int expert) {
    cpu_mat w = m->w;
    w.data = is_paged(c, s, m) ? paging_expert(c->paging, s->layer, m, expert)
                               : (const uint8_t *)w.data + (size_t)expert * m->expert_bytes;
    return w;
}

/* Tells the pager that n of these rows (columns, if down has a row per neuron) are not needed any
 * more. */
static void expert_used_rows(cpu_exec *c, const plan_step *s, const plan_matrix *m, int expert,
                             int64_t n) {
    if (is_paged(c, s, m)) paging_expert_used(c->paging, s->layer, m, expert, n);
}

/* Computes rows [r0, r1) of an expert's product for all its pairs, with scale and bias. */
static void expert_product(cpu_exec *c, const plan_step *s, const plan_matrix *m,
                           const float *scales, int expert, const cpu_act *x, int64_t r0,
                           int64_t r1, int ith) {
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
