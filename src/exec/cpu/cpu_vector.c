/* cpu_vector.c: the steps between matmuls: embedding, norms, quantization of activations, RoPE and
 * appending to the KV cache. Threads take rows of the batch, or whole panels if inputs are
 * quantized into panels. */
#include <math.h>
#include <string.h>

#include "cpu_exec.h"

/* ---- embedding ------------------------------------------------------------------------------ */

/* src: a row of the token embeddings. */
static void decode_embedding(const cpu_exec *c, const uint8_t *src, float *out) {
    const model_tensor *t = &c->model->t[ROLE_TOKEN_EMBD];
    const float scale = c->model->hp.embd_scale;
    quant_find(t->type)->dequantize(src, out, t->n_in);
    for (int64_t i = 0; scale != 1 && i < c->model->hp.n_embd; i++) out[i] *= scale;
}

void cpu_exec_token_embedding(const cpu_exec *c, int32_t token, float *out) {
    const model_tensor *t = &c->model->t[ROLE_TOKEN_EMBD];
    const int64_t n = c->model->hp.n_embd;
    if (t->data && t->n_in == n)
        decode_embedding(c, (const uint8_t *)t->data + (size_t)token * t->row_bytes, out);
    else
        memset(out, 0, (size_t)n * sizeof *out);
}

/* The row of the ubatch's k-th token in a table of embeddings. */
static const uint8_t *token_row(const cpu_exec *c, tensor_role role, int64_t k) {
    const model_tensor *t = &c->model->t[role];
    if (c->paging) return paging_row(c->paging, role, c->ubatch.tokens[k], k);
    return (const uint8_t *)t->data + (size_t)c->ubatch.tokens[k] * t->row_bytes;
}

/* Adds a row of a table to X through Y, which is not used yet. */
static void add_table_row(cpu_exec *c, tensor_role role, int64_t table_row, int64_t row) {
    float *x = cpu_exec_row(c, BUF_X, row), *y = cpu_exec_row(c, BUF_Y, row);
    const model_tensor *t = &c->model->t[role];
    const uint8_t *src = (const uint8_t *)t->data + (size_t)table_row * t->row_bytes;
    quant_find(t->type)->dequantize(src, y, t->n_in);
    c->kernels.add(x, y, x, c->model->hp.n_embd);
}

void cpu_exec_embed(cpu_exec *c) {
    for (int64_t row; (row = pool_take(c->pool, 1)) < c->ubatch.n_tokens;) {
        decode_embedding(c, token_row(c, ROLE_TOKEN_EMBD, row), cpu_exec_row(c, BUF_X, row));
        if (c->model->t[ROLE_TOKEN_TYPES].data) add_table_row(c, ROLE_TOKEN_TYPES, 0, row);
        if (c->model->hp.n_pos)
            add_table_row(c, ROLE_POS_EMBD, c->ubatch.positions[row] + c->model->arch->pos_offset,
                          row);
        cpu_exec_fill_angles(c, row);
    }
}

void cpu_exec_angles(cpu_exec *c) {
    for (int64_t row; (row = pool_take(c->pool, 1)) < c->ubatch.n_tokens;)
        cpu_exec_fill_angles(c, row);
}

/* A token's vectors for all layers: the norm of their projection, plus its row of the table, which
 * is decoded in pieces of whole blocks of any type. */
void cpu_exec_embed_layers(cpu_exec *c, const plan_step *s, const args_norm *a) {
    enum { PIECE = 256 };
    const model_tensor *t = &c->model->t[ROLE_LAYER_EMBD];
    const quant_traits *traits = quant_find(t->type);
    const float root = sqrtf((float)c->model->hp.n_embd_layer), half = sqrtf(0.5f);
    float piece[PIECE];
    for (int64_t row; (row = pool_take(c->pool, 1)) < c->ubatch.n_tokens;) {
        float *e = cpu_exec_row(c, s->in, row);
        for (int layer = 0; layer < c->model->hp.n_layer; layer++) {
            float *part = e + layer * a->width;
            c->kernels.rms_norm(part, a->weight, part, a->width, a->eps);
        }
        const uint8_t *table = token_row(c, ROLE_LAYER_EMBD, row);
        for (int64_t i = 0; i < t->n_in; i += PIECE) {
            const int64_t n = t->n_in - i < PIECE ? t->n_in - i : PIECE;
            const size_t block = (size_t)(i / traits->block_elems);
            traits->dequantize(table + block * (size_t)traits->block_bytes, piece, n);
            for (int64_t j = 0; j < n; j++) e[i + j] = (e[i + j] + root * piece[j]) * half;
        }
    }
}

/* ---- norms and quantization ------------------------------------------------------------------ */

/* Rows per piece of work: a panel is quantized as a whole. Few tokens are one piece. */
enum { ROWS_PER_TAKE = CPU_PANEL };

static bool take_rows(cpu_exec *c, int64_t n, int64_t *c0, int64_t *c1) {
    *c0 = pool_take(c->pool, ROWS_PER_TAKE);
    *c1 = *c0 + ROWS_PER_TAKE < n ? *c0 + ROWS_PER_TAKE : n;
    return *c0 < n;
}

/* Quantizes columns [c0, c1) of `from` to every kind that later steps read. */
static void quantize(cpu_exec *c, const plan_step *s, cpu_act_layout layout, plan_buffer from,
                     int64_t c0, int64_t c1, int64_t n_cols) {
    for (int kind = 0; kind < CPU_ACT_KIND_COUNT; kind++) {
        if (!(s->act_kinds & (1u << kind))) continue;
        cpu_act x = cpu_exec_slot_act(c, s->slot, (cpu_act_kind)kind, layout, s->act_width, n_cols);
        c->kernels.act_encode(c->buf[from] + s->in_at, c->plan->width[from], c0, c1, &x);
    }
}

/* A value that is not finite stays in the residual stream to its end, so the sums of squares, which
 * its norms need anyway, tell where the first one came from (finite.c). */
void cpu_exec_norm_row(cpu_exec *c, const plan_step *s, const args_norm *a, const float *x,
                       float *y) {
    float eps = a->eps, squares = 0;
    if (a->kind == NORM_RMS) {
        squares = c->kernels.rms_norm(x, a->weight, y, a->width, eps);
        if (a->bias) c->kernels.add(y, a->bias, y, a->width);
    } else if (a->kind == NORM_LAYER) {
        squares = c->kernels.layer_norm(x, a->weight, a->bias, y, a->width, eps);
    } else if (x != y) {
        for (int64_t i = 0; i < a->width; i++) squares += x[i] * x[i];
        memcpy(y, x, (size_t)a->width * sizeof *y);
    }
    if (squares < INFINITY || !plan_is_residual(s->in)) return;
    int step = (int)(s - c->plan->steps), first = atomic_load(&c->bad_step);
    while (step < first && !atomic_compare_exchange_weak(&c->bad_step, &first, step)) {}
}

void cpu_exec_norm(cpu_exec *c, const plan_step *s, const args_norm *a) {
    const cpu_act_layout layout = cpu_exec_layout(c, s);
    int64_t n = c->ubatch.n_tokens, c0, c1;
    while (take_rows(c, n, &c0, &c1)) {
        for (int64_t i = c0; i < c1; i++) {
            const float *x = cpu_exec_row(c, s->in, i);
            float *y = cpu_exec_row(c, s->out, i);
            args_norm one = *a;
            cpu_exec_norm_row(c, s, &one, x, y);
            for (int k = 1; k < a->n; k++) {
                if (one.weight) one.weight += a->width;
                cpu_exec_norm_row(c, s, &one, x + k * a->width, y + k * a->width);
            }
        }
        quantize(c, s, layout, s->out, c0, c1, n);
    }
}

void cpu_exec_head_norm(cpu_exec *c, const plan_step *s, const args_norm *a) {
    const cpu_act_layout layout = cpu_exec_layout(c, s);
    int64_t n = c->ubatch.n_out, c0, c1;
    while (take_rows(c, n, &c0, &c1)) {
        for (int64_t i = c0; i < c1; i++)
            cpu_exec_norm_row(c, s, a, cpu_exec_row(c, BUF_X, c->ubatch.out_rows[i]),
                              cpu_exec_row(c, BUF_Y, i));
        quantize(c, s, layout, BUF_Y, c0, c1, n);
    }
}

void cpu_exec_hidden(cpu_exec *c) {
    const plan_step *s = &c->plan->steps[c->plan->n_layer_steps]; /* the head's norm */
    float *to = c->ubatch.hidden + c->ubatch.first_hidden_row * c->model->hp.n_embd;
    for (int i = 0; i < c->ubatch.n_hidden; i++)
        cpu_exec_norm_row(c, s, STEP_ARGS(s, norm),
                          cpu_exec_row(c, BUF_X, c->ubatch.hidden_rows[i]),
                          to + i * c->model->hp.n_embd);
}

/* Multiplies attention's result by its gates. */
static void apply_gates(const cpu_exec *c, const plan_step *s, const args_quantize *a,
                        const float *gate, float *x) {
    if (!a->head_gates && !a->gate_softplus) {
        c->kernels.gate(gate, x, s->act_width);
        return;
    }
    int64_t n = a->head_gates ? s->act_width / c->model->layers[s->layer].hp.n_head : 1;
    for (int64_t i = 0; i < s->act_width; i++) {
        float g = gate[i / n];
        x[i] *= a->gate_softplus ? cpu_exec_softplus(g) : cpu_exec_sigmoid(g);
    }
}

void cpu_exec_quantize(cpu_exec *c, const plan_step *s, const args_quantize *a) {
    const cpu_act_layout layout = cpu_exec_layout(c, s);
    const model_hparams *hp = &c->model->hp;
    int64_t n = cpu_exec_n_rows(c, s), c0, c1;
    if (a->received && plan_message_is_q8(c->plan, STEP_ARGS(s - 1, message), (int)n)) return;
    while (take_rows(c, n, &c0, &c1)) {
        for (int64_t i = c0; i < c1 && (a->relu || a->silu); i++) {
            float *v = cpu_exec_row(c, s->in, i);
            const activation f = a->relu ? ACTIVATION_RELU : ACTIVATION_SILU;
            c->kernels.activate(f, 0, v, NULL, v, s->act_width);
        }
        for (int64_t i = c0; i < c1 && (a->tanh || a->sigmoid); i++) {
            float *v = cpu_exec_row(c, s->in, i);
            for (int64_t k = 0; k < s->act_width; k++)
                v[k] = a->tanh ? tanhf(v[k]) : cpu_exec_sigmoid(v[k]);
        }
        for (int64_t i = c0; i < c1 && a->divisors; i++) {
            float *v = cpu_exec_row(c, s->in, i);
            for (int64_t k = 0; k < s->act_width; k++) v[k] /= a->divisors[k];
        }
        for (int64_t i = c0; i < c1 && a->layer_embd; i++) {
            float *v = cpu_exec_row(c, s->in, i);
            const float *e = cpu_exec_row(c, BUF_LAYER_EMBD, i) + s->layer * s->act_width;
            c->kernels.activate(hp->activation, hp->activation_threshold, v, e, v, s->act_width);
        }
        for (int64_t i = c0; i < c1 && a->gated; i++)
            apply_gates(c, s, a, cpu_exec_row(c, BUF_ATTN_GATE, i), cpu_exec_row(c, s->in, i));
        quantize(c, s, layout, s->in, c0, c1, n);
    }
}

void cpu_exec_add(cpu_exec *c, const plan_step *s, const args_add *a) {
    int64_t c0, c1, n = a->norm.width;
    while (take_rows(c, c->ubatch.n_tokens, &c0, &c1)) {
        for (int64_t i = c0; i < c1; i++) {
            float *y = cpu_exec_row(c, s->in, i), *x = cpu_exec_row(c, s->out, i);
            if (a->gated) c->kernels.gate(cpu_exec_row(c, BUF_ATTN_GATE, i), y, n);
            if (a->norm.kind == NORM_NONE && s->out != BUF_STREAMS) { /* y stays unchanged */
                for (int64_t k = 0; k < n; k++) x[k] = (x[k] + a->scale * y[k]) * a->x_scale;
                continue;
            }
            cpu_exec_norm_row(c, s, &a->norm, y, y);
            for (int64_t k = 0; a->scale != 1 && k < n; k++) y[k] *= a->scale;
            if (s->out == BUF_STREAMS) {
                for (int k = 1; k < c->model->hp.n_stream; k++) { /* all but the first */
                    float *stream = cpu_exec_row(c, BUF_STREAMS, i) + k * c->model->hp.n_embd;
                    c->kernels.add(stream, y, stream, c->model->hp.n_embd);
                }
                continue;
            }
            c->kernels.add(x, y, x, n);
            for (int64_t k = 0; a->x_scale != 1 && k < n; k++) x[k] *= a->x_scale;
        }
    }
}

void cpu_exec_softcap(cpu_exec *c, const plan_step *s, const args_softcap *a) {
    enum { PART = 4096 };
    int64_t width = c->plan->width[s->in], parts = (width + PART - 1) / PART;
    for (int64_t i; (i = pool_take(c->pool, 1)) < parts * c->ubatch.n_out;) {
        int64_t first = i % parts * PART, n = width - first < PART ? width - first : PART;
        float *row = cpu_exec_row(c, s->in, c->ubatch.first_logits_row + i / parts);
        c->kernels.softcap(row + first, a->cap, n);
    }
}

/* ---- rotation and cache --------------------------------------------------------------------- */

/* Norms a head of Q or K. weight: of all heads, or NULL. */
static void norm_head(const cpu_exec *c, const args_rope *a, const float *weight, int h, float *x,
                      int64_t n) {
    const model_hparams *hp = &c->model->hp;
    if (!weight && !a->norm_bare) return;
    if (weight) weight += h * a->norm_stride;
    if (a->norm == NORM_RMS)
        c->kernels.rms_norm(x, weight, x, n, hp->norm_eps);
    else
        c->kernels.layer_norm(x, weight, NULL, x, n, hp->norm_eps);
}

/* NaN stays NaN. */
static void clamp(float *x, int64_t n, float most) {
    for (int64_t i = 0; i < n; i++) x[i] = x[i] > most ? most : x[i] < -most ? -most : x[i];
}

static void rotate_head(const cpu_exec *c, const plan_step *s, const args_rope *a, int64_t row,
                        const float *weight, int h, float *x) {
    const model_hparams *hp = &c->model->hp;
    const int64_t n = c->model->layers[s->layer].hp.head_dim;
    const float *cs = c->angles + (row * ROPE_SETS + (int64_t)a->set) * hp->n_rot;
    if (a->clamp > 0) clamp(x, n, a->clamp);
    if (!a->norm_late) norm_head(c, a, weight, h, x, n);
    if (a->set != ROPE_SET_NONE) c->kernels.rope(x + a->rot_at, hp->n_rots[a->set], cs, a->neox);
    if (a->norm_late) norm_head(c, a, weight, h, x, n);
}

/* One head of one token; h counts the heads of queries, then keys, then values. */
static void rope_store_head(cpu_exec *c, const plan_step *s, const args_rope *a, int64_t row,
                            int h) {
    const model_layer_hparams *lhp = &c->model->layers[s->layer].hp;
    if (h < lhp->n_head) {
        rotate_head(c, s, a, row, a->q_norm, h, cpu_exec_row(c, BUF_Q, row) + h * a->q_stride);
        return;
    }
    kv_cache *kv = &c->ubatch.item_of_row[row]->session->kv;
    h -= lhp->n_head;
    if (h < lhp->n_head_kv) {
        float *k = cpu_exec_row(c, BUF_K, row) + (int64_t)h * lhp->head_dim;
        rotate_head(c, s, a, row, a->k_norm, h, k);
        kv_rotate(&c->kernels, kv->type_k, k, lhp->head_dim);
        c->kernels.kv_store(k, kv_cache_k(kv, s->layer, h, c->ubatch.positions[row]), kv->type_k,
                            lhp->head_dim);
        return;
    }
    h -= lhp->n_head_kv;
    float *v = cpu_exec_row(c, BUF_V, row) + (int64_t)h * lhp->v_dim;
    if (a->clamp > 0) clamp(v, lhp->v_dim, a->clamp);
    if (a->value_norm) c->kernels.rms_norm(v, NULL, v, lhp->v_dim, c->model->hp.norm_eps);
    kv_rotate(&c->kernels, kv->type_v, v, lhp->v_dim);
    c->kernels.kv_store(v, kv_cache_v(kv, s->layer, h, c->ubatch.positions[row]), kv->type_v,
                        lhp->v_dim);
}

void cpu_exec_rope_store(cpu_exec *c, const plan_step *s, const args_rope *a) {
    enum { HEADS_PER_TAKE = 8 }; /* a head takes tens of nanoseconds, a take about twenty */
    const model_layer_hparams *lhp = &c->model->layers[s->layer].hp;
    int64_t heads = lhp->n_head + (a->no_values ? 1 : 2) * model_kv_heads(lhp, s->layer);
    int64_t total = heads * c->ubatch.n_tokens;
    for (int64_t begin; (begin = pool_take(c->pool, HEADS_PER_TAKE)) < total;) {
        int64_t end = begin + HEADS_PER_TAKE < total ? begin + HEADS_PER_TAKE : total;
        for (int64_t i = begin; i < end; i++) rope_store_head(c, s, a, i / heads, (int)(i % heads));
    }
}
