/* cpu_ffn_sparse.c: the sparse FFN layer, which reads only the weights of active neurons. The
 * engine exists for it.
 *
 * A layer's neurons are divided into parts. A thread takes a part and does everything for it
 * without a barrier:
 *
 *   select  the part's neurons: all, or those with a predictor score above the threshold, or those
 *           whose bit came from the other device
 *   gate    rows of gate of the selected neurons, and the activation; inactive neurons are dropped
 *   up      rows of up of the active neurons; hidden values up to a second threshold become zero
 *   down    the rows of down of the others, summed into the part's vector
 *
 * Then cpu_exec_ffn_down_rows adds up the parts' vectors in order. plan_ffn.c makes the steps. For
 * one token a part keeps a list of neurons. Several tokens share the rows that any of them
 * selected, and a mask says which tokens selected a row: a neuron that a token did not select is
 * exactly zero for that token, even if it is computed for another one. Ubatches of many tokens need
 * nearly all neurons: cpu_ffn_dense.c. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "cpu_exec.h"

enum { DOWN_SLICE = 512 }; /* floats of the output that a thread adds up at a time */

/* ---- scores ---------------------------------------------------------------------------------- */

/* Rows [r0, r0 + n) of a matrix, as a matrix. */
static cpu_mat row_range(const cpu_mat *w, int64_t r0, int64_t n) {
    cpu_mat part = *w;
    part.data = (const uint8_t *)w->data + (size_t)r0 * w->row_bytes;
    part.n_out = n;
    return part;
}

void cpu_exec_scores(cpu_exec *c, const cpu_exec_product *by, const plan_ffn *f, int64_t r0,
                     int64_t r1, float *y, int64_t ldy, int ith) {
    int64_t n = r1 - r0, n_cols = c->ubatch.n_tokens;
    thread_scratch *t = &c->scratch[ith];
    if (f->predictor == PREDICTOR_SIGN) {
        int64_t n_in = c->model->hp.n_embd;
        cpu_act x = cpu_exec_slot_act(c, PLAN_SLOT_PREDICTOR, CPU_ACT_Q8, CPU_ACT_COLUMNS, n_in,
                                      n_cols);
        c->kernels.sign_dot(f->sign + r0 * (n_in / 8), 0, n, &x, y, ldy);
        t->counts.predictor += (uint64_t)(n * (n_in / 8));
        return;
    }
    const cpu_mat_kernels *mk = &c->kernels.mat[f->fc2.w.type];
    cpu_act x = cpu_exec_slot_act(c, PLAN_SLOT_PREDICTOR, mk->act, by->layout, f->fc2.w.n_in,
                                  n_cols);
    cpu_mat part = row_range(&f->fc2.w, r0, n);
    by->run(mk, &part, 0, n, &x, y, ldy, t->kernel);
    for (int64_t col = 0; col < n_cols && f->fc2.scale != 1; col++)
        cpu_exec_finish_column(c, &f->fc2, y + col * ldy, r0, r1);
    t->counts.predictor += (uint64_t)n * f->fc2.row_size;
}

/* ---- a part ---------------------------------------------------------------------------------- */

/* A part that a thread computes. Columns are tokens; column k of gate starts at gate + k * ld. */
typedef struct part_work {
    cpu_exec *c;
    const plan_step *s;
    const plan_ffn *ffn;
    thread_scratch *t;
    int64_t r0, n_rows, ld;
    int part, n_cols, ith;
    int64_t n;   /* neurons left, t->rows[0 .. n) */
    bool picked; /* the rows are those of a cache; paging_neuron has their neurons */
} part_work;

static void begin_part(cpu_exec *c, const plan_step *s, const plan_ffn *f, int ith, int64_t part,
                       part_work *w) {
    *w = (part_work){.c = c,
                     .s = s,
                     .ffn = f,
                     .t = &c->scratch[ith],
                     .r0 = part * f->part_rows,
                     .ld = c->plan->max_part_rows,
                     .part = (int)part,
                     .n_cols = c->ubatch.n_tokens,
                     .ith = ith};
    w->n_rows = f->n_ff - w->r0 < f->part_rows ? f->n_ff - w->r0 : f->part_rows;
}

/* Counts the neurons that are left as used, where neurons move between the devices. */
static void count_uses(const part_work *w) {
    neuron_adapter_count(w->c->neurons, w->s->layer, w->ffn->first, w->t->rows, w->n);
}

/* Selects neurons of the part: t->rows[0 .. n). For several tokens these are the neurons that any
 * token selected, and bit k of t->mark[i] says whether token k selected t->rows[i]. */
static void select_neurons(part_work *w) {
    const plan_ffn *f = w->ffn;
    const cpu_kernels *kernels = &w->c->kernels;
    thread_scratch *t = w->t;
    const int32_t r0 = (int32_t)w->r0;
    if (f->selection == SELECT_ALL) {
        w->n = w->n_rows;
        for (int64_t i = 0; i < w->n; i++) t->rows[i] = r0 + (int32_t)i;
        if (w->n_cols > 1) memset(t->mark, UINT8_MAX, (size_t)w->n);
        return;
    }
    const bool by_scores = f->selection == SELECT_SCORES; /* of a predictor; else by message */
    const float *bias = f->score_bias ? f->score_bias + w->r0 : NULL;
    if (by_scores)
        cpu_exec_scores(w->c, &cpu_exec_by_vector, f, w->r0, w->r0 + w->n_rows, t->gate, w->ld,
                        w->ith);
    if (by_scores && w->n_cols == 1) {
        w->n = kernels->select(t->gate, bias, f->threshold, r0, w->n_rows, t->rows);
        return;
    }
    w->n = 0;
    memset(t->mark, 0, (size_t)w->n_rows); /* here of all neurons of the part */
    for (int col = 0; col < w->n_cols; col++) {
        const uint8_t bit = (uint8_t)(1u << col);
        if (by_scores) {
            const float *scores = t->gate + col * w->ld;
            int64_t n = kernels->select(scores, bias, f->threshold, 0, w->n_rows, t->rows);
            for (int64_t i = 0; i < n; i++) t->mark[t->rows[i]] |= bit;
            continue;
        }
        const int layer = w->s->layer;
        const uint32_t *bits = gpu_exec_received_bits(cpu_exec_gpu(w->c, layer), layer, col);
        for (int64_t i = 0; i < w->n_rows; i++) {
            if (!cpu_exec_is_selected(bits, f->first + w->r0 + i)) continue;
            if (w->n_cols == 1) t->rows[w->n++] = r0 + (int32_t)i;
            t->mark[i] |= bit;
        }
    }
    for (int64_t i = 0; i < w->n_rows && w->n_cols > 1; i++) {
        if (!t->mark[i]) continue;
        t->mark[w->n] = t->mark[i];
        t->rows[w->n++] = r0 + (int32_t)i;
    }
}

/* Takes the next part of the step with its selected neurons; false when all parts are taken. If
 * neurons come from the drive, a first round selects the neurons of all parts and requests those
 * that are missing; a second round takes each part when its neurons have arrived. */
static bool take_part(cpu_exec *c, const plan_step *s, const plan_ffn *f, int ith, part_work *w) {
    bool picked = c->paging && paging_picks(c->paging, s->layer);
    uint8_t *mark = c->ubatch.n_tokens > 1 ? c->scratch[ith].mark : NULL;
    int64_t n_parts = f->n_parts, item;
    while ((item = pool_take(c->pool, 1)) < (picked ? 2 : 1) * n_parts) {
        begin_part(c, s, f, ith, item % n_parts, w);
        if (item < n_parts) select_neurons(w);
        if (f->selection != SELECT_ALL) count_uses(w);
        if (!picked) return true;
        if (item >= n_parts) {
            w->picked = true;
            w->n = paging_picked(c->paging, s->layer, w->part, w->t->rows, mark);
            return true;
        }
        paging_pick(c->paging, s->layer, w->part, w->t->rows, mark, w->n);
    }
    return false;
}

/* The neuron of t->rows[i]. */
static int32_t neuron_at(const part_work *w, int64_t i) {
    int32_t row = w->t->rows[i];
    return w->picked ? paging_neuron(w->c->paging, w->s->layer, row) : row;
}

/* Multiplies the rows of the neurons that are left, with scale and bias, into columns at `y`. */
static void multiply_rows(const part_work *w, const plan_matrix *pm, float *y) {
    const cpu_mat_kernels *mk = &w->c->kernels.mat[pm->w.type];
    cpu_act x = cpu_exec_slot_act(w->c, PLAN_SLOT_MAIN, mk->act, CPU_ACT_COLUMNS, pm->w.n_in,
                                  w->n_cols);
    if (w->n == w->n_rows && !w->picked) { /* all of the part */
        cpu_mat part = row_range(&pm->w, w->r0, w->n_rows);
        mk->matvec(&part, 0, w->n_rows, &x, y, w->ld);
    } else {
        mk->matvec_rows(&pm->w, w->t->rows, w->n, &x, y, w->ld);
        w->t->counts.gathered += (uint64_t)w->n * pm->row_size;
    }
    w->t->counts.ffn += (uint64_t)w->n * pm->row_size;
    if (!pm->bias && pm->scale == 1) return;
    const float before = pm->scale_last ? 1 : pm->scale, after = pm->scale_last ? pm->scale : 1;
    for (int col = 0; col < w->n_cols; col++, y += w->ld)
        for (int64_t i = 0; i < w->n; i++)
            y[i] = (y[i] * before + (pm->bias ? pm->bias[neuron_at(w, i)] : 0)) * after;
}

/* Whether activations are multiplied by the product of up. */
static bool has_up(const part_work *w) {
    return w->s->n_matrices > 1 || w->ffn->given;
}

/* t->gate = f(gate) of the selected neurons. */
static void activate_gate(part_work *w) {
    const model_hparams *hp = &w->c->model->hp;
    for (int c = 0; c < w->n_cols && w->ffn->given; c++) /* no neuron has been left out yet */
        memcpy(w->t->gate + c * w->ld, cpu_exec_row(w->c, BUF_GATE, c) + w->r0,
               (size_t)w->n_rows * sizeof(float));
    if (w->ffn->given) return;
    multiply_rows(w, &w->s->matrix[0], w->t->gate);
    for (int c = 0; c < w->n_cols; c++) {
        float *a = w->t->gate + c * w->ld;
        w->c->kernels.activate(hp->activation, hp->activation_threshold, a, NULL, a, w->n);
    }
}

static bool rectifies_up(const part_work *w) {
    return w->c->model->hp.activation == ACTIVATION_DRELU;
}

/* t->gate = hidden values. */
static void multiply_up(part_work *w) {
    multiply_rows(w, &w->s->matrix[w->s->n_matrices - 1], w->t->up);
    for (int c = 0; c < w->n_cols; c++) {
        float *h = w->t->gate + c * w->ld, *up = w->t->up + c * w->ld;
        if (rectifies_up(w)) w->c->kernels.activate(ACTIVATION_RELU, 0, up, NULL, up, w->n);
        for (int64_t i = 0; i < w->n; i++)
            h[i] = cpu_exec_hidden_value(h[i], up[i], w->ffn->cut_down);
    }
}

/* The down product of the part: the sum of the rows of down, or if down does not have a row per
 * neuron, the hidden vector for a matrix that reads all of it, zeros included. */
static void finish_part(part_work *w) {
    cpu_exec *c = w->c;
    thread_scratch *t = w->t;
    const plan_matrix *down = &w->ffn->down;
    if (!down->w.data) {
        for (int col = 0; col < w->n_cols; col++) {
            float *h = cpu_exec_row(c, BUF_GATE, col);
            memset(h + w->r0, 0, (size_t)w->n_rows * sizeof *h);
            for (int64_t i = 0; i < w->n; i++) h[t->rows[i]] = t->gate[col * w->ld + i];
        }
    } else {
        const int64_t n_embd = down->w.n_in;
        float *acc = c->partial + (int64_t)w->part * PLAN_FFN_MAX_COLS * n_embd;
        c->partial_used[w->part] = w->n > 0;
        uint64_t n_read = 0; /* rows; those with a factor of 0 are left out, also in mode dense */
        for (int64_t i = 0; i < w->n; i++) {
            bool any = false;
            for (int col = 0; col < w->n_cols && !any; col++) any = t->gate[col * w->ld + i] != 0;
            n_read += any;
        }
        if (w->n > 0) {
            memset(acc, 0, (size_t)(w->n_cols * n_embd) * sizeof *acc);
            c->kernels.mat_t[down->w.type].axpy_rows(&down->w, t->rows, w->n, t->gate, w->ld,
                                                     w->n_cols, acc, n_embd);
        }
        t->counts.ffn += n_read * down->row_size;
        if ((int64_t)n_read < w->n_rows) t->counts.gathered += n_read * down->row_size;
    }
    if (w->ffn->selection == SELECT_ALL) count_uses(w);
    if (w->ffn->mode != PI_MODE_DENSE) t->counts.active += (uint64_t)w->n;
    if (!c->activity) return;
    for (int64_t i = 0; i < w->n; i++) t->rows[i] = neuron_at(w, i);
    activity_add_neurons(c->activity, w->s->layer, w->ffn->first, t->rows, w->n);
}

/* ---- one token ------------------------------------------------------------------------------- */

/* Factors of the part's neurons; NULL: 1. Mode threshold selects all of them. */
static const float *cut_weights(const part_work *w) {
    assert(!w->ffn->cut_weight || w->ffn->selection == SELECT_ALL);
    return w->ffn->cut_weight ? w->ffn->cut_weight + w->r0 : NULL;
}

/* Drops neurons whose value in t->gate counts as zero. */
static void keep_active(part_work *w, const float *weight, float cut) {
    if (w->ffn->cut >= 0) w->n = w->c->kernels.keep(w->t->gate, weight, w->t->rows, cut, w->n);
}

void cpu_exec_ffn_sparse_one(cpu_exec *c, const plan_step *s, const plan_ffn *f, int ith) {
    part_work w;
    while (take_part(c, s, f, ith, &w)) {
        activate_gate(&w);
        keep_active(&w, cut_weights(&w), w.ffn->cut);
        if (has_up(&w)) multiply_up(&w);
        if (has_up(&w) && (rectifies_up(&w) || w.ffn->cut_down > 0)) keep_active(&w, NULL, 0);
        finish_part(&w);
    }
}

/* ---- several tokens -------------------------------------------------------------------------- */

/* Keeps the neurons that are active for any token; in the columns of other tokens they are zero. */
static void keep_active_union(part_work *w) {
    thread_scratch *t = w->t;
    const float *weights = cut_weights(w);
    int64_t kept = 0;
    for (int64_t i = 0; i < w->n; i++) {
        const float weight = weights ? weights[i] : 1;
        bool any = false;
        for (int c = 0; c < w->n_cols; c++) {
            float a = t->gate[c * w->ld + i];
            if (!(t->mark[i] >> c & 1) || fabsf(a) * weight <= w->ffn->cut) a = 0;
            t->gate[c * w->ld + kept] = a;
            any = any || a != 0;
        }
        t->rows[kept] = t->rows[i];
        if (any || w->ffn->cut < 0) kept++;
    }
    w->n = kept;
}

void cpu_exec_ffn_sparse_union(cpu_exec *c, const plan_step *s, const plan_ffn *f, int ith) {
    part_work w;
    while (take_part(c, s, f, ith, &w)) {
        activate_gate(&w);
        keep_active_union(&w);
        if (has_up(&w)) multiply_up(&w);
        finish_part(&w);
    }
}

/* ---- neurons from the drive ------------------------------------------------------------------ */

void cpu_exec_prefetch(cpu_exec *c, const plan_step *s, const plan_ffn *f, int ith) {
    int64_t part;
    part_work w;
    while ((part = pool_take(c->pool, 1)) < f->n_parts) {
        begin_part(c, s, f, ith, part, &w);
        select_neurons(&w);
        paging_prefetch(c->paging, s->layer, w.part, w.t->rows, w.n);
    }
}

/* ---- the down product ------------------------------------------------------------------------ */

void cpu_exec_finish_down(cpu_exec *c, const plan_step *s, const plan_ffn *f, int64_t col,
                          int64_t j0, int64_t j1) {
    float *y = cpu_exec_row(c, BUF_Y, col) + j0;
    float *x = cpu_exec_row(c, BUF_X, col) + j0;
    cpu_exec_finish_column(c, &f->down, y, j0, j1);
    if (s->add_to_x) c->kernels.add(x, y, x, j1 - j0);
}

void cpu_exec_ffn_down_rows(cpu_exec *c, const plan_step *s, const plan_ffn *f) {
    int64_t n_embd = f->down.w.n_in, slices = (n_embd + DOWN_SLICE - 1) / DOWN_SLICE;
    for (int64_t i; (i = pool_take(c->pool, 1)) < slices * c->ubatch.n_tokens;) {
        int64_t col = i / slices, j0 = i % slices * DOWN_SLICE;
        int64_t j1 = j0 + DOWN_SLICE < n_embd ? j0 + DOWN_SLICE : n_embd;
        float *y = cpu_exec_row(c, BUF_Y, col);
        memset(y + j0, 0, (size_t)(j1 - j0) * sizeof *y);
        for (int part = 0; part < f->n_parts;
             part++) { /* in this order for any number of threads */
            if (!c->partial_used[part]) continue;
            const float *acc = c->partial + ((int64_t)part * PLAN_FFN_MAX_COLS + col) * n_embd;
            c->kernels.add(y + j0, acc + j0, y + j0, j1 - j0);
        }
        cpu_exec_finish_down(c, s, f, col, j0, j1);
    }
}
