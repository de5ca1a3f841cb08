/* cpu_ffn_sparse.c: feed-forward layers whose neurons are computed by need.
 *
 * Ubatches of few tokens go neuron by neuron. A layer's neurons are cut into parts; a thread takes
 * a part and does everything for it without a barrier: scores, selected neurons, gate rows,
 * activations, up rows of what fired, and the sum of its rows of down into a vector of the part's
 * own. FFN_DOWN adds these vectors in order. Several tokens share the rows that any of them needs.
 *
 * Ubatches of many tokens need nearly every neuron for one of them: tiled products compute all,
 * then what a token did not choose is set to zero, so that both ways give the same answer.
 *
 * Activations are zero outside of the chosen neurons by definition, not approximately: a neuron
 * that a token did not choose adds nothing to it even when another token's choice computed it. */
#include <math.h>
#include <string.h>

#include "context.h"

enum { DOWN_SLICE = 512 }; /* floats of the output that a thread adds up at a time */

bool cpu_exec_ffn_is_tiled(const engine_context *c, const plan_ffn *ffn) {
    const plan_step *neurons = ffn->neurons;
    if (c->ubatch.n_tokens > PLAN_FFN_MAX_COLS) return true;
    for (int k = 0; k < neurons->n_matrices; k++) {
        const cpu_mat *w = &neurons->matrix[k].w;
        cpu_act x = context_act(c, PLAN_SLOT_MAIN, c->kernels.mat[w->type].act, w->n_in,
                                c->ubatch.n_tokens);
        if (x.layout == CPU_ACT_PANELS) return true;
    }
    return false;
}

/* ---- scores ---------------------------------------------------------------------------------- */

/* Rows [r0, r0 + n) of a matrix as a matrix. */
static cpu_mat row_range(const cpu_mat *w, int64_t r0, int64_t n) {
    cpu_mat part = *w;
    part.data = (const uint8_t *)w->data + (size_t)r0 * w->row_bytes;
    part.n_out = n;
    return part;
}

void cpu_exec_scores(engine_context *c, const plan_ffn *f, int64_t r0, int64_t r1, float *y,
                     int64_t ldy, int ith) {
    int64_t n = r1 - r0, n_cols = c->ubatch.n_tokens;
    thread_scratch *t = &c->scratch[ith];
    if (f->predictor == PREDICTOR_SIGN) {
        int64_t n_in = c->model->hp.n_embd;
        cpu_act x = context_act(c, PLAN_SLOT_PREDICTOR, CPU_ACT_Q8, n_in, n_cols);
        x.layout = CPU_ACT_COLUMNS;
        c->kernels.sign_dot(f->sign + r0 * (n_in / 8), 0, n, &x, y, ldy);
        t->counts.predictor += (uint64_t)(n * (n_in / 8));
        return;
    }
    const cpu_mat_kernels *mk = &c->kernels.mat[f->fc2.w.type];
    cpu_act x = context_act(c, PLAN_SLOT_PREDICTOR, mk->act, f->fc2.w.n_in, n_cols);
    cpu_mat part = row_range(&f->fc2.w, r0, n);
    if (x.layout == CPU_ACT_PANELS)
        mk->matmul(&part, 0, n, &x, y, ldy, t->kernel);
    else
        mk->matvec(&part, 0, n, &x, y, ldy);
    for (int64_t col = 0; col < n_cols && f->fc2.scale != 1; col++)
        cpu_exec_finish_column(c, &f->fc2, y + col * ldy, r0, r1);
    t->counts.predictor += (uint64_t)n * f->fc2.row_size;
}

/* Candidates that came with the message: whether token `col` chose this side's neuron r. */
static bool is_selected(const uint32_t *bits, int64_t r) {
    return bits[r / 32] >> (r % 32) & 1;
}

/* ---- one part of the neurons ----------------------------------------------------------------- */

/* A part in work. Columns are tokens; column k of gate starts at gate + k * ld. */
typedef struct part_work {
    engine_context *c;
    const plan_step *s;
    const plan_ffn *ffn;
    thread_scratch *t;
    int64_t r0, n_rows, ld;
    int n_cols, ith;
    int64_t n; /* neurons left, t->rows[0 .. n) */
} part_work;

static cpu_act layer_input(const part_work *w, const plan_matrix *pm) {
    return context_act(w->c, PLAN_SLOT_MAIN, w->c->kernels.mat[pm->w.type].act, pm->w.n_in,
                       w->n_cols);
}

/* Scale and bias of rows that lie apart. */
static void finish_rows(const plan_matrix *pm, const int32_t *rows, int64_t n, float *y) {
    float before = pm->scale_last ? 1 : pm->scale, after = pm->scale_last ? pm->scale : 1;
    if (!pm->bias && pm->scale == 1) return;
    for (int64_t i = 0; i < n; i++)
        y[i] = (y[i] * before + (pm->bias ? pm->bias[rows[i]] : 0)) * after;
}

/* The product of the neurons that are left, into columns at `y`. */
static void neuron_product(const part_work *w, const plan_matrix *pm, float *y) {
    const cpu_mat_kernels *mk = &w->c->kernels.mat[pm->w.type];
    cpu_act x = layer_input(w, pm);
    if (w->n == w->n_rows) { /* all of the part */
        cpu_mat part = row_range(&pm->w, w->r0, w->n_rows);
        mk->matvec(&part, 0, w->n_rows, &x, y, w->ld);
    } else {
        mk->matvec_rows(&pm->w, w->t->rows, w->n, &x, y, w->ld);
        w->t->counts.gathered += (uint64_t)w->n * pm->row_size;
    }
    w->t->counts.ffn += (uint64_t)w->n * pm->row_size;
    for (int c = 0; c < w->n_cols; c++) finish_rows(pm, w->t->rows, w->n, y + c * w->ld);
}

static void all_rows(part_work *w) {
    w->n = w->n_rows;
    for (int64_t i = 0; i < w->n; i++) w->t->rows[i] = (int32_t)(w->r0 + i);
}

/* Candidates of several tokens: rows that any of them chose, with a bit per token in t->mark. */
static void select_union(part_work *w, const float *bias) {
    thread_scratch *t = w->t;
    memset(t->mark, 0, (size_t)w->n_rows);
    for (int c = 0; c < w->n_cols; c++) {
        int64_t n = w->c->kernels.select(t->gate + c * w->ld, bias, w->ffn->threshold, 0, w->n_rows,
                                         t->rows);
        for (int64_t i = 0; i < n; i++) t->mark[t->rows[i]] |= (uint8_t)(1u << c);
    }
    w->n = 0;
    for (int64_t i = 0; i < w->n_rows; i++) {
        if (!t->mark[i]) continue;
        t->mark[w->n] = t->mark[i];
        t->rows[w->n++] = (int32_t)(w->r0 + i);
    }
}

/* The same from the message's bits. */
static void selected_by_message(part_work *w) {
    thread_scratch *t = w->t;
    const uint32_t *bits[PLAN_FFN_MAX_COLS];
    for (int c = 0; c < w->n_cols; c++) bits[c] = gpu_exec_received_bits(w->c->gpu, w->s->layer, c);
    w->n = 0;
    for (int64_t i = 0; i < w->n_rows; i++) {
        unsigned mark = 0;
        for (int c = 0; c < w->n_cols; c++)
            mark |= (unsigned)is_selected(bits[c], w->ffn->first + w->r0 + i) << c;
        if (!mark) continue;
        t->mark[w->n] = (uint8_t)mark;
        t->rows[w->n++] = (int32_t)(w->r0 + i);
    }
}

static void select_neurons(part_work *w) {
    const plan_ffn *f = w->ffn;
    if (f->mode != FFN_PREDICT) {
        all_rows(w);
        if (w->n_cols > 1) memset(w->t->mark, UINT8_MAX, (size_t)w->n);
        return;
    }
    if (f->from_bits) {
        selected_by_message(w);
        return;
    }
    const float *bias = f->score_bias ? f->score_bias + w->r0 : NULL;
    cpu_exec_scores(w->c, f, w->r0, w->r0 + w->n_rows, w->t->gate, w->ld, w->ith);
    if (w->n_cols == 1)
        w->n = w->c->kernels.select(w->t->gate, bias, f->threshold, (int32_t)w->r0, w->n_rows,
                                    w->t->rows);
    else
        select_union(w, bias);
}

/* Keeps neurons that fired for any token; for the others' columns they are zero. */
static void keep_union(part_work *w) {
    thread_scratch *t = w->t;
    int64_t kept = 0;
    for (int64_t i = 0; i < w->n; i++) {
        bool any = false;
        for (int c = 0; c < w->n_cols; c++) {
            float a = t->gate[c * w->ld + i];
            if (!(t->mark[i] >> c & 1) || fabsf(a) <= w->ffn->cut) a = 0;
            t->gate[c * w->ld + kept] = a;
            any = any || a != 0;
        }
        t->rows[kept] = t->rows[i];
        if (any || w->ffn->cut < 0) kept++;
    }
    w->n = kept;
}

/* t->gate = f(gate) of the neurons that are left after what does not fire is dropped. */
static void activate_gate(part_work *w) {
    const model_hparams *hp = &w->c->model->hp;
    for (int c = 0; c < w->n_cols; c++) {
        float *a = w->t->gate + c * w->ld;
        w->c->kernels.activate(hp->activation, hp->activation_threshold, a, NULL, a, w->n);
    }
    if (w->n_cols > 1)
        keep_union(w);
    else if (w->ffn->cut >= 0)
        w->n = w->c->kernels.keep(w->t->gate, w->t->rows, w->ffn->cut, w->n);
}

/* t->gate = hidden values. An activation of zero stays zero whatever its neuron's up is. */
static void multiply_up(part_work *w) {
    const model_hparams *hp = &w->c->model->hp;
    bool rectify = hp->activation == ACTIVATION_DRELU;
    neuron_product(w, &w->s->matrix[1], w->t->up);
    for (int c = 0; c < w->n_cols; c++) {
        float *h = w->t->gate + c * w->ld, *up = w->t->up + c * w->ld;
        if (rectify) w->c->kernels.activate(ACTIVATION_RELU, 0, up, NULL, up, w->n);
        for (int64_t i = 0; i < w->n; i++) h[i] = h[i] == 0 ? 0 : h[i] * up[i];
    }
    if (w->n_cols == 1 && rectify && w->ffn->cut >= 0)
        w->n = w->c->kernels.keep(w->t->gate, w->t->rows, 0, w->n);
}

/* Adds up the part's rows of down. */
static void sum_down(const part_work *w, int part) {
    engine_context *c = w->c;
    const plan_matrix *down = &w->ffn->down;
    int64_t n_embd = down->w.n_in;
    float *acc = c->partial + (int64_t)part * PLAN_FFN_MAX_COLS * n_embd;
    c->partial_used[part] = w->n > 0;
    if (w->n == 0) return;
    memset(acc, 0, (size_t)(w->n_cols * n_embd) * sizeof *acc);
    c->kernels.mat_t[down->w.type].axpy_rows(&down->w, w->t->rows, w->n, w->t->gate, w->ld,
                                             w->n_cols, acc, n_embd);
    w->t->counts.ffn += (uint64_t)w->n * down->row_size;
    if (w->n < w->n_rows) w->t->counts.gathered += (uint64_t)w->n * down->row_size;
}

/* Writes the hidden vector, zeros included, for a down matrix that reads all of it. */
static void scatter_hidden(const part_work *w) {
    for (int c = 0; c < w->n_cols; c++) {
        float *h = w->c->buf[BUF_GATE] + c * w->c->plan->width[BUF_GATE];
        memset(h + w->r0, 0, (size_t)w->n_rows * sizeof *h);
        for (int64_t i = 0; i < w->n; i++) h[w->t->rows[i]] = w->t->gate[c * w->ld + i];
    }
}

static void run_part(engine_context *c, const plan_step *s, int part, int ith) {
    const plan_ffn *f = s->ffn;
    part_work w = {.c = c,
                   .s = s,
                   .ffn = f,
                   .t = &c->scratch[ith],
                   .r0 = part * f->part_rows,
                   .ld = c->plan->max_part_rows,
                   .n_cols = c->ubatch.n_tokens,
                   .ith = ith};
    w.n_rows = f->n_ff - w.r0 < f->part_rows ? f->n_ff - w.r0 : f->part_rows;
    select_neurons(&w);
    neuron_product(&w, &s->matrix[0], w.t->gate);
    activate_gate(&w);
    if (s->n_matrices > 1) multiply_up(&w);
    if (f->down.w.data)
        sum_down(&w, part);
    else
        scatter_hidden(&w);
}

/* ---- tiles ----------------------------------------------------------------------------------- */

/* Sets to zero what token `col` did not choose or what is too small. */
static void drop_unselected(const engine_context *c, const plan_step *s, int64_t col, int64_t r0,
                            int64_t r1, float *a) {
    const plan_ffn *f = s->ffn;
    for (int64_t r = r0; r < r1; r++)
        if (fabsf(a[r]) <= f->cut) a[r] = 0;
    if (f->mode != FFN_PREDICT) return;
    if (f->from_bits) {
        const uint32_t *bits = gpu_exec_received_bits(c->gpu, s->layer, col);
        for (int64_t r = r0; r < r1; r++)
            if (!is_selected(bits, f->first + r)) a[r] = 0;
        return;
    }
    const float *score = c->buf[BUF_SCORE] + col * c->plan->width[BUF_SCORE];
    for (int64_t r = r0; r < r1; r++) {
        float value = f->score_bias ? score[r] + f->score_bias[r] : score[r];
        if (value < f->threshold) a[r] = 0;
    }
}

/* Hidden values of rows [r0, r1) from gate and up, in the buffer of gate. */
static void tile_hidden(engine_context *c, const plan_step *s, int64_t r0, int64_t r1) {
    const model_hparams *hp = &c->model->hp;
    int64_t n = r1 - r0;
    for (int64_t col = 0; col < c->ubatch.n_tokens; col++) {
        float *a = c->buf[BUF_GATE] + col * c->plan->width[BUF_GATE];
        c->kernels.activate(hp->activation, hp->activation_threshold, a + r0, NULL, a + r0, n);
        drop_unselected(c, s, col, r0, r1, a);
        if (s->n_matrices == 1) continue;
        float *up = c->buf[BUF_UP] + col * c->plan->width[BUF_UP];
        if (hp->activation == ACTIVATION_DRELU)
            c->kernels.activate(ACTIVATION_RELU, 0, up + r0, NULL, up + r0, n);
        for (int64_t r = r0; r < r1; r++) a[r] = a[r] == 0 ? 0 : a[r] * up[r];
    }
}

static void run_tiles(engine_context *c, const plan_step *s, int ith) {
    size_t row_bytes = 0;
    cpu_act x[PLAN_MAX_GROUP];
    for (int k = 0; k < s->n_matrices; k++) {
        const cpu_mat *w = &s->matrix[k].w;
        row_bytes += s->matrix[k].row_size;
        x[k] = context_act(c, PLAN_SLOT_MAIN, c->kernels.mat[w->type].act, w->n_in,
                           c->ubatch.n_tokens);
    }
    row_chunks chunks = row_chunks_make(s->ffn->n_ff, row_bytes, c->ubatch.nth, true);
    int64_t r0, r1;
    while (row_chunks_take(c->pool, &chunks, &r0, &r1)) {
        if (s->ffn->predictor != PREDICTOR_NONE)
            cpu_exec_scores(c, s->ffn, r0, r1, c->buf[BUF_SCORE] + r0, c->plan->width[BUF_SCORE],
                            ith);
        for (int k = 0; k < s->n_matrices; k++)
            cpu_exec_product(c, &s->matrix[k], &x[k], r0, r1, ith);
        tile_hidden(c, s, r0, r1);
        c->scratch[ith].counts.ffn += (uint64_t)(r1 - r0) * row_bytes;
    }
}

void cpu_exec_ffn_sparse(engine_context *c, const plan_step *s, int ith) {
    if (cpu_exec_ffn_is_tiled(c, s->ffn)) {
        run_tiles(c, s, ith);
        return;
    }
    for (;;) {
        int64_t part = pool_take(c->pool, 1);
        if (part >= s->ffn->n_parts) break;
        run_part(c, s, (int)part, ith);
    }
}

/* ---- the down product ------------------------------------------------------------------------ */

/* Y = the sum of the parts, for one slice of one token. */
static void add_parts(engine_context *c, const plan_step *s, int64_t col, int64_t j0, int64_t j1) {
    int64_t n_embd = s->ffn->down.w.n_in;
    float *y = c->buf[BUF_Y] + col * c->plan->width[BUF_Y];
    memset(y + j0, 0, (size_t)(j1 - j0) * sizeof *y);
    for (int part = 0; part < s->ffn->n_parts; part++) {
        if (!c->partial_used[part]) continue;
        const float *acc = c->partial + ((int64_t)part * PLAN_FFN_MAX_COLS + col) * n_embd;
        c->kernels.add(y + j0, acc + j0, y + j0, j1 - j0);
    }
}

static void finish_down(engine_context *c, const plan_step *s, int64_t col, int64_t j0,
                        int64_t j1) {
    float *y = c->buf[BUF_Y] + col * c->plan->width[BUF_Y] + j0;
    float *x = c->buf[BUF_X] + col * c->plan->width[BUF_X] + j0;
    cpu_exec_finish_column(c, &s->ffn->down, y, j0, j1);
    if (s->add_to_x) c->kernels.add(x, y, x, j1 - j0);
}

static void down_by_parts(engine_context *c, const plan_step *s) {
    int64_t n_embd = s->ffn->down.w.n_in, slices = (n_embd + DOWN_SLICE - 1) / DOWN_SLICE;
    for (;;) {
        int64_t i = pool_take(c->pool, 1);
        if (i >= slices * c->ubatch.n_tokens) break;
        int64_t col = i / slices, j0 = i % slices * DOWN_SLICE;
        int64_t j1 = j0 + DOWN_SLICE < n_embd ? j0 + DOWN_SLICE : n_embd;
        add_parts(c, s, col, j0, j1);
        finish_down(c, s, col, j0, j1);
    }
}

void cpu_exec_ffn_down(engine_context *c, const plan_step *s, int ith) {
    if (!cpu_exec_ffn_is_tiled(c, s->ffn)) {
        down_by_parts(c, s);
        return;
    }
    const plan_matrix *down = &s->ffn->down;
    const cpu_mat_t_kernels *mk = &c->kernels.mat_t[down->w.type];
    cpu_act h = context_act(c, PLAN_SLOT_MAIN, mk->act, down->w.n_out, c->ubatch.n_tokens);
    h.layout = CPU_ACT_PANELS;
    for (;;) {
        int64_t j0 = pool_take(c->pool, CPU_COL_TILE);
        if (j0 >= down->w.n_in) break;
        int64_t j1 = j0 + CPU_COL_TILE < down->w.n_in ? j0 + CPU_COL_TILE : down->w.n_in;
        mk->matmul_t(&down->w, j0, j1, &h, c->buf[BUF_Y], c->plan->width[BUF_Y],
                     c->scratch[ith].kernel);
        for (int64_t col = 0; col < c->ubatch.n_tokens; col++) finish_down(c, s, col, j0, j1);
        c->scratch[ith].counts.ffn += (uint64_t)down->row_size * (uint64_t)down->w.n_out *
                                      (uint64_t)(j1 - j0) / (uint64_t)down->w.n_in;
    }
}
