/* cpu_head.c: the output head with a predictor (docs/sparse.md): scores of all tokens of the
 * vocabulary, then the logits of the candidates, the tokens with high scores. At the end: the steps
 * of heads that draft.
 *
 * Every row of logits has its own candidates. Rows of a ubatch share the reads of the output
 * matrix, but not the results: a row of logits does not depend on the others, nor on the number of
 * threads. All products are matrix-vector products, so logits of candidates equal those of the
 * dense head in ubatches of few rows, bit for bit. */
#include <math.h>
#include <string.h>

#include "cpu_exec.h"

/* Added to the scores of a HEAD_PROFILER, which are no logits, where a token is not a candidate:
 * its probability is then 0 in float at any temperature up to 500, and sums remain finite, unlike
 * those of -INFINITY. If a grammar or a bias rejects all candidates, the best of the other tokens
 * follow. */
static const float left_out = -1e5f;

void cpu_exec_head_scores(cpu_exec *c, const plan_step *s, int ith) {
    const plan_matrix *pm = &s->matrix[0];
    int64_t n_cols = cpu_exec_n_rows(c, s), ldy = c->plan->width[BUF_LOGITS], r0, r1;
    const float *logits = cpu_exec_row(c, BUF_LOGITS, c->ubatch.first_logits_row);
    float *best = c->scratch[ith].best;
    cpu_act x = cpu_exec_slot_act(c, s->slot, c->kernels.mat[pm->w.type].act, CPU_ACT_COLUMNS,
                                  pm->w.n_in, n_cols);
    row_chunks chunks = row_chunks_make(pm->w.n_out, pm->w.row_bytes, c->ubatch.nth, x.layout);
    for (int64_t col = 0; col < n_cols; col++) best[col] = -INFINITY;
    while (row_chunks_take(c->pool, &chunks, &r0, &r1)) {
        cpu_exec_multiply(c, &cpu_exec_by_vector, pm, &x, r0, r1, ith);
        for (int64_t col = 0; col < n_cols; col++) {
            const float *y = logits + col * ldy;
            float most = best[col];
            for (int64_t r = r0; r < r1; r++) most = y[r] > most ? y[r] : most;
            best[col] = most;
        }
    }
}

enum {
    PIECE = 256,             /* tokens whose candidates a thread computes at a time */
    COLS = PLAN_FFN_MAX_COLS /* rows of logits that share the reads of the output matrix */
};

/* A piece of the vocabulary, for some rows of logits. */
typedef struct head_piece {
    int64_t r0, n_rows;   /* tokens */
    int64_t col0, n_cols; /* rows of logits */
    int64_t n;            /* tokens that are candidates in any row: rows[0 .. n) */
    int32_t rows[PIECE];
    uint8_t mark[PIECE]; /* of every token of the piece: bit k: candidate in row k */
} head_piece;

/* The best token always is a candidate, also where no score is positive. A score of NaN selects. */
static void select_candidates(const cpu_exec *c, const args_head *a, head_piece *p) {
    float best[COLS];
    for (int64_t k = 0; k < p->n_cols; k++) {
        best[k] = -INFINITY;
        for (int t = 0; t < c->ubatch.nth; t++)
            best[k] = fmaxf(best[k], c->scratch[t].best[p->col0 + k]);
    }
    p->n = 0;
    for (int64_t i = 0; i < p->n_rows; i++) {
        p->mark[i] = 0;
        for (int64_t k = 0; k < p->n_cols; k++) {
            int64_t row = c->ubatch.first_logits_row + p->col0 + k;
            float *score = cpu_exec_row(c, BUF_LOGITS, row) + p->r0 + i;
            bool is_candidate = a->kind == HEAD_PROFILER ? !(*score <= 0) || *score >= best[k]
                                                         : !(*score < best[k] - a->distance);
            if (is_candidate)
                p->mark[i] |= (uint8_t)(1u << k);
            else if (a->kind == HEAD_PROFILER)
                *score += left_out;
        }
        if (p->mark[i]) p->rows[p->n++] = (int32_t)(p->r0 + i);
    }
}

/* Replaces the scores of candidates by their logits; scale and bias as cpu_exec_finish_column. */
static void put_logits(const cpu_exec *c, const plan_matrix *pm, const head_piece *p,
                       const float *y) {
    float before = pm->scale_last ? 1 : pm->scale, after = pm->scale_last ? pm->scale : 1;
    for (int64_t k = 0; k < p->n_cols; k++) {
        float *logits = cpu_exec_row(c, BUF_LOGITS, c->ubatch.first_logits_row + p->col0 + k);
        for (int64_t i = 0; i < p->n; i++) {
            int32_t r = p->rows[i];
            if (!(p->mark[r - p->r0] >> k & 1)) continue;
            float value = y[k * PIECE + i] * before;
            if (pm->bias) value += pm->bias[r];
            logits[r] = value * after;
        }
    }
}

void cpu_exec_head_rows(cpu_exec *c, const plan_step *s, const args_head *a, int ith) {
    const plan_matrix *pm = &s->matrix[0];
    const cpu_mat_kernels *mk = &c->kernels.mat[pm->w.type];
    int64_t n_out = cpu_exec_n_rows(c, s), n_pieces = (pm->w.n_out + PIECE - 1) / PIECE;
    size_t column = cpu_act_bytes(mk->act, CPU_ACT_COLUMNS, pm->w.n_in, 1);
    float y[COLS * PIECE];
    head_piece p;
    for (int64_t i; (i = pool_take(c->pool, 1)) < n_pieces * ((n_out + COLS - 1) / COLS);) {
        p.r0 = i % n_pieces * PIECE;
        p.n_rows = pm->w.n_out - p.r0 < PIECE ? pm->w.n_out - p.r0 : PIECE;
        p.col0 = i / n_pieces * COLS;
        p.n_cols = n_out - p.col0 < COLS ? n_out - p.col0 : COLS;
        select_candidates(c, a, &p);
        if (p.n == 0) continue;
        cpu_act x = cpu_exec_slot_act(c, s->slot, mk->act, CPU_ACT_COLUMNS, pm->w.n_in, p.n_cols);
        x.data = (uint8_t *)x.data + (size_t)p.col0 * column;
        mk->matvec_rows(&pm->w, p.rows, p.n, &x, y, PIECE);
        put_logits(c, pm, &p, y);
        c->scratch[ith].counts.head += (uint64_t)p.n * pm->row_size;
    }
}

/* ---- heads that draft (plan_draft.c) --------------------------------------------------------- */

void cpu_exec_draft_read(cpu_exec *c, const args_draft_read *a) {
    size_t n_bytes = (size_t)c->model->hp.n_embd * sizeof(float);
    for (int64_t row; (row = pool_take(c->pool, 1)) < c->ubatch.n_tokens;)
        memcpy(cpu_exec_row(c, BUF_DRAFT_READS, row) + a->at, cpu_exec_row(c, BUF_X, row), n_bytes);
}

void cpu_exec_draft_keep(cpu_exec *c) {
    for (int64_t row; (row = pool_take(c->pool, 1)) < c->ubatch.n_tokens;) {
        const pi_session *s = c->ubatch.item_of_row[row]->session;
        memcpy(session_features_row(s, c->ubatch.positions[row]),
               cpu_exec_row(c, BUF_FEATURES, row), (size_t)s->features.width * sizeof(float));
    }
}

void cpu_exec_draft_in(cpu_exec *c, const plan_step *s, const args_draft_in *a) {
    const int64_t n = c->model->hp.n_embd, width = plan_residual_width(c->model);
    for (int64_t row; (row = pool_take(c->pool, 1)) < c->ubatch.n_tokens;) {
        const ubatch_item *item = c->ubatch.item_of_row[row];
        const float *features = item->features + (row - item->row) * width;
        float *x = cpu_exec_row(c, BUF_X, row), *out = cpu_exec_row(c, BUF_DRAFT_IN, row);
        for (int64_t k = 0; k < width; k += n) {
            cpu_exec_norm_row(c, s, &a->embd, x, out + 2 * k);
            cpu_exec_norm_row(c, s, &a->features, features + k, out + 2 * k + n);
        }
        if (a->residual) memcpy(x, a->normed ? out + n : features, (size_t)n * sizeof *x);
    }
}

/* In place, from the last one on: a token's id is at least its index. */
void cpu_exec_draft_logits(cpu_exec *c) {
    const model_draft *d = &c->model->draft;
    for (int64_t row; (row = pool_take(c->pool, 1)) < c->ubatch.n_out;) {
        float *x = cpu_exec_row(c, BUF_LOGITS, c->ubatch.first_logits_row + row);
        for (int32_t i = d->n_ids - 1; i >= 0; i--) x[d->ids[i]] = x[i];
        int32_t next = 0;
        for (int32_t i = 0; i < d->n_ids; i++, next++)
            for (; next < d->ids[i]; next++) x[next] = -INFINITY;
        for (; next < c->model->hp.n_vocab; next++) x[next] = -INFINITY;
    }
}
