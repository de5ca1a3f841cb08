/* cpu_latent.c: steps of compressed attention (plan_latent.c): a matrix per head, and the row that
 * is cached. Every thread that multiplies by a head's matrix quantizes the head's input. That costs
 * less than a barrier: the input has a few hundred elements, the matrix as many rows. */
#include <string.h>

#include "cpu_attention.h"

/* ---- a matrix per head ----------------------------------------------------------------------- */

/* Rows of a head's matrix per piece of work: all of them if there are enough heads for all
 * threads. */
static int64_t rows_per_piece(const cpu_exec *c, int n_heads, int64_t rows) {
    enum { PIECES_PER_THREAD = 4 };
    int64_t pieces = ((int64_t)c->ubatch.nth * PIECES_PER_THREAD + n_heads - 1) / n_heads;
    int64_t n = (rows + pieces - 1) / pieces;
    return (n + CPU_ROW_TILE - 1) / CPU_ROW_TILE * CPU_ROW_TILE;
}

void cpu_exec_heads(cpu_exec *c, const plan_step *s, const args_heads *a, int ith) {
    const cpu_exec_product *by = cpu_exec_product_of(c, s);
    if (by->layout == CPU_ACT_PANELS && attn_expands(c, s->layer)) return; /* attention does this */
    const plan_matrix *pm = &s->matrix[0];
    const cpu_mat_kernels *mk = &c->kernels.mat[pm->w.type];
    int64_t rows = pm->w.n_out / a->n, piece = rows_per_piece(c, a->n, rows);
    int64_t per_head = (rows + piece - 1) / piece, ldx = c->plan->width[s->in];
    int64_t ldy = c->plan->width[pm->out];
    cpu_act x = {.kind = mk->act,
                 .layout = by->layout,
                 .n = pm->w.n_in,
                 .n_cols = c->ubatch.n_tokens,
                 .data = c->scratch[ith].head};
    for (int64_t i; (i = pool_take(c->pool, 1)) < per_head * a->n;) {
        int64_t head = i / per_head, r0 = i % per_head * piece;
        int64_t r1 = r0 + piece < rows ? r0 + piece : rows;
        const float *in = c->buf[s->in] + a->in.first + head * a->in.stride;
        float *y = c->buf[pm->out] + a->out.first + head * a->out.stride;
        cpu_mat w = pm->w;
        w.data = (const uint8_t *)w.data + (size_t)(head * rows) * w.row_bytes;
        w.n_out = rows;
        c->kernels.act_encode(in, ldx, 0, x.n_cols, &x);
        by->run(mk, &w, r0, r1, &x, y, ldy, c->scratch[ith].kernel);
        for (int64_t col = 0; pm->scale != 1 && col < x.n_cols; col++)
            cpu_exec_finish_column(c, pm, y + col * ldy + r0, r0, r1);
    }
}

/* ---- rotation and cache ---------------------------------------------------------------------- */

static void rotate(const cpu_exec *c, rope_set set, int64_t row, float *x) {
    const model_hparams *hp = &c->model->hp;
    const float *cs = c->angles + (row * ROPE_SETS + (int64_t)set) * hp->n_rot;
    if (set != ROPE_SET_NONE) c->kernels.rope(x, hp->n_rot, cs, hp->rope == ROPE_NEOX);
}

/* Copies the rotated part of a head's query to where attention reads it, and rotates it. */
static void store_query(cpu_exec *c, const args_latent_store *a, int64_t row, int64_t head) {
    const model_hparams *hp = &c->model->hp;
    const float *q = cpu_exec_row(c, BUF_Q, row) + head * hp->q_dim;
    float *to = cpu_exec_row(c, BUF_LATENT_Q, row) + head * hp->head_dim;
    memcpy(to, q + hp->q_dim - hp->n_rot, (size_t)hp->n_rot * sizeof *to);
    rotate(c, a->set, row, to);
}

/* Stores a position's row. The thread's scratch memory holds the row, because the rotated key comes
 * first there and last in BUF_K. */
static void store_position(cpu_exec *c, const plan_step *s, const args_latent_store *a, int64_t row,
                           int ith) {
    const model_hparams *hp = &c->model->hp;
    const kv_cache *kv = &c->ubatch.item_of_row[row]->session->kv;
    const float *k = cpu_exec_row(c, BUF_K, row);
    float *x = c->scratch[ith].acc;
    memcpy(x, k + hp->n_latent, (size_t)hp->n_rot * sizeof *x);
    if (a->k_norm) c->kernels.rms_norm(x, a->k_norm, x, hp->n_rot, hp->norm_eps);
    rotate(c, a->set, row, x);
    c->kernels.rms_norm(k, a->norm, x + hp->n_rot, hp->n_latent, hp->norm_eps);
    kv_rotate(&c->kernels, kv->type_k, x, hp->head_dim);
    c->kernels.kv_store(x, kv_cache_k(kv, s->layer, 0, c->ubatch.positions[row]), kv->type_k,
                        hp->head_dim);
}

void cpu_exec_latent_store(cpu_exec *c, const plan_step *s, const args_latent_store *a, int ith) {
    enum { HEADS_PER_TAKE = 8 };
    int64_t pieces = c->model->layers[s->layer].hp.n_head + 1; /* of a token */
    int64_t total = pieces * c->ubatch.n_tokens;
    for (int64_t begin; (begin = pool_take(c->pool, HEADS_PER_TAKE)) < total;) {
        int64_t end = begin + HEADS_PER_TAKE < total ? begin + HEADS_PER_TAKE : total;
        for (int64_t i = begin; i < end; i++) {
            if (i % pieces < pieces - 1)
                store_query(c, a, i / pieces, i % pieces);
            else
                store_position(c, s, a, i / pieces, ith);
        }
    }
}
