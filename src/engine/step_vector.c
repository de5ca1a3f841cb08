/* step_vector.c: the steps between products: embedding, norms, encoding of inputs, rotation and
 * appending to the cache. Work is handed out by rows of the batch; when inputs are encoded into
 * panels, by whole panels. */
#include <math.h>

#include "context.h"

static float *row_of(const engine_context *c, plan_buffer b, int64_t row) {
    return c->buf[b] + row * c->plan->width[b];
}

/* ---- embedding ------------------------------------------------------------------------------ */

static void decode_row(const model_tensor *t, int64_t row, float *out) {
    const uint8_t *src = (const uint8_t *)t->data + (size_t)row * t->row_bytes;
    quant_find(t->type)->dequantize(src, out, t->n_in);
}

/* Learned positions are added to X by way of Y, which no one uses yet. */
static void add_position(engine_context *c, int64_t row) {
    const model *m = c->model;
    float *x = row_of(c, BUF_X, row), *y = row_of(c, BUF_Y, row);
    decode_row(&m->t[ROLE_POS_EMBD], c->positions[row] + m->arch->pos_offset, y);
    c->kernels.add(x, y, x, m->hp.n_embd);
}

void step_embed(engine_context *c) {
    for (;;) {
        int64_t row = pool_take(c->pool, 1);
        if (row >= c->pass.n_tokens) break;
        decode_row(&c->model->t[ROLE_TOKEN_EMBD], c->tokens[row], row_of(c, BUF_X, row));
        if (c->model->hp.n_pos) add_position(c, row);
        rope_fill_angles(c, row);
    }
}

/* ---- norms and encoding --------------------------------------------------------------------- */

/* Encodes columns [c0, c1) of `from` in every form that is asked for. */
static void encode(engine_context *c, const plan_step *s, plan_buffer from, int64_t c0, int64_t c1,
                   int64_t n_cols) {
    for (int kind = 0; kind < CPU_ACT_KIND_COUNT; kind++) {
        if (!(s->encode_kinds & (1u << kind))) continue;
        cpu_act x = context_act(c, s->slot, (cpu_act_kind)kind, s->encode_width, n_cols);
        if (s->layout == LAYOUT_COLUMNS) x.layout = CPU_ACT_COLUMNS;
        if (s->layout == LAYOUT_TILED) x.layout = CPU_ACT_PANELS;
        c->kernels.act_encode(c->buf[from], c->plan->width[from], c0, c1, &x);
    }
}

/* Rows per piece of work: panels must be encoded whole. A single vector is one piece. */
static int64_t encode_chunk(int64_t n_cols) {
    return n_cols >= CPU_PANEL ? CPU_PANEL : n_cols;
}

/* Every value that is not finite stays in the residual stream to its end, so the sums that norms
 * need anyhow tell where the first one came from (finite.c). */
static void norm_row(engine_context *c, const plan_step *s, const float *x, float *y) {
    const model_hparams *hp = &c->model->hp;
    float squares = c->model->arch->norm == NORM_RMS
                        ? c->kernels.rms_norm(x, s->norm_weight, y, hp->n_embd, hp->norm_eps)
                        : c->kernels.layer_norm(x, s->norm_weight, s->norm_bias, y, hp->n_embd,
                                                hp->norm_eps);
    if (squares < INFINITY) return;
    int step = (int)(s - c->plan->steps), first = atomic_load(&c->bad_step);
    while (step < first && !atomic_compare_exchange_weak(&c->bad_step, &first, step)) {}
}

void step_norm(engine_context *c, const plan_step *s) {
    int64_t n = c->pass.n_tokens, chunk = encode_chunk(n);
    for (;;) {
        int64_t c0 = pool_take(c->pool, chunk);
        if (c0 >= n) break;
        int64_t c1 = c0 + chunk < n ? c0 + chunk : n;
        for (int64_t i = c0; i < c1; i++) norm_row(c, s, row_of(c, s->in, i), row_of(c, BUF_Y, i));
        encode(c, s, BUF_Y, c0, c1, n);
    }
}

void step_select_norm(engine_context *c, const plan_step *s) {
    int64_t n = c->pass.n_out, chunk = encode_chunk(n);
    if (n == 0) return;
    for (;;) {
        int64_t c0 = pool_take(c->pool, chunk);
        if (c0 >= n) break;
        int64_t c1 = c0 + chunk < n ? c0 + chunk : n;
        for (int64_t i = c0; i < c1; i++)
            norm_row(c, s, row_of(c, BUF_X, c->out_rows[i]), row_of(c, BUF_Y, i));
        encode(c, s, BUF_Y, c0, c1, n);
    }
}

void step_encode(engine_context *c, const plan_step *s) {
    int64_t n = c->pass.n_tokens, chunk = encode_chunk(n);
    if (s->layout == LAYOUT_TILED && !step_ffn_is_tiled(c, s->ffn)) return;
    for (;;) {
        int64_t c0 = pool_take(c->pool, chunk);
        if (c0 >= n) break;
        int64_t c1 = c0 + chunk < n ? c0 + chunk : n;
        for (int64_t i = c0; i < c1 && s->relu; i++) {
            float *v = row_of(c, s->in, i);
            c->kernels.activate(ACTIVATION_RELU, 0, v, NULL, v, s->encode_width);
        }
        encode(c, s, s->in, c0, c1, n);
    }
}

void step_add(engine_context *c, const plan_step *s) {
    int64_t n = c->pass.n_tokens, chunk = encode_chunk(n);
    for (;;) {
        int64_t c0 = pool_take(c->pool, chunk);
        if (c0 >= n) break;
        int64_t c1 = c0 + chunk < n ? c0 + chunk : n;
        for (int64_t i = c0; i < c1; i++) {
            float *x = row_of(c, BUF_X, i);
            c->kernels.add(x, row_of(c, s->in, i), x, c->model->hp.n_embd);
        }
    }
}

/* ---- rotation and cache --------------------------------------------------------------------- */

/* One head of one token: index h counts queries, then keys, then values. */
static void rope_store_head(engine_context *c, const plan_step *s, int64_t row, int h) {
    const model_hparams *hp = &c->model->hp;
    const model_layer_hparams *lhp = &c->model->layers[s->layer].hp;
    const float *cs = c->angles + row * hp->n_rot;
    bool rotate = c->model->arch->rope != ROPE_NONE;
    bool neox = c->model->arch->rope == ROPE_NEOX;
    if (h < lhp->n_head) {
        float *q = row_of(c, BUF_Q, row) + (int64_t)h * hp->head_dim;
        if (s->q_norm) c->kernels.rms_norm(q, s->q_norm, q, hp->head_dim, hp->norm_eps);
        if (rotate) c->kernels.rope(q, hp->n_rot, cs, neox);
        return;
    }
    kv_cache *kv = &c->item_of_row[row]->session->kv;
    h -= lhp->n_head;
    if (h < lhp->n_head_kv) {
        float *k = row_of(c, BUF_K, row) + (int64_t)h * hp->head_dim;
        if (s->k_norm) c->kernels.rms_norm(k, s->k_norm, k, hp->head_dim, hp->norm_eps);
        if (rotate) c->kernels.rope(k, hp->n_rot, cs, neox);
        c->kernels.kv_store(k, kv_cache_k(kv, s->layer, h, c->positions[row]), kv->type_k,
                            hp->head_dim);
        return;
    }
    h -= lhp->n_head_kv;
    const float *v = row_of(c, BUF_V, row) + (int64_t)h * hp->head_dim;
    c->kernels.kv_store(v, kv_cache_v(kv, s->layer, h, c->positions[row]), kv->type_v,
                        hp->head_dim);
}

void step_rope_store(engine_context *c, const plan_step *s) {
    enum { HEADS_PER_TAKE = 8 }; /* a head takes tens of nanoseconds, a take about twenty */
    const model_layer_hparams *lhp = &c->model->layers[s->layer].hp;
    int64_t heads = lhp->n_head + 2 * lhp->n_head_kv;
    int64_t total = heads * c->pass.n_tokens;
    for (;;) {
        int64_t begin = pool_take(c->pool, HEADS_PER_TAKE);
        if (begin >= total) break;
        int64_t end = begin + HEADS_PER_TAKE < total ? begin + HEADS_PER_TAKE : total;
        for (int64_t i = begin; i < end; i++) rope_store_head(c, s, i / heads, (int)(i % heads));
    }
}
