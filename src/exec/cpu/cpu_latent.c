/* cpu_latent.c: compressed attention (MLA): a matrix per head, the row that is cached, and
 * attention in prefill. With the matrices k_b and v_b absorbed into queries and results,
 * cpu_attention.c computes the scores and sums of latent vectors; that is how decode works.
 *
 * In prefill the score of such a query is a product over a whole cached row, some 500 elements. In
 * a ubatch of many tokens it is cheaper to compute keys and values of every head, as in training:
 * heads are a few times shorter, and all tokens that attend to a position share its keys and
 * values. */
#include <math.h>
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

/* ---- prefill --------------------------------------------------------------------------------- */

/* A task is one head of a session with some of its tokens. It goes through the cache in blocks of
 * LATENT_BLOCK positions: it converts their rows to floats, computes keys with the transposed
 * matrix k_b and values with v_b, and updates the softmax states of the tokens. It keeps no keys
 * and values. */
typedef struct prompt_task {
    cpu_exec *c;
    const attn_layer *a;
    const ubatch_item *item;
    const plan_matrix *k_b, *v_b;
    int head, token0, n_tokens; /* within the item */
    latent_scratch *t;
    void *kernel; /* scratch of kernels */
} prompt_task;

/* Compares the multiplications that shorter scores save with those that compute keys and values of
 * the positions before the ubatch. Keys and values of the ubatch's positions cost nothing extra:
 * absorbed matrices also multiply each token once into the latent space and once out of it. The
 * choice depends on lengths only, so results depend neither on measurements nor on where weights
 * are. */
bool attn_expands(const cpu_exec *c, int layer) {
    const model_hparams *hp = &c->model->hp;
    const model_layer *l = &c->model->layers[layer];
    const plan_blocks blocks = plan_attention_blocks(c->plan, layer);
    if (hp->n_latent == 0) return false;
    if (!c->kernels.mat_t[l->t[ROLE_ATTN_K_B].type].matmul_t) return false;
    for (int i = 0; i < c->ubatch.n_items; i++) /* tokens that attend to few positions */
        if (!ubatch_reads_all(&c->ubatch.items[i], &blocks)) return false;
    double saved = 0, made = 0, row = hp->n_latent + hp->n_rot;
    double head = (double)c->scratch[0].latent.head_dim;
    for (int i = 0; i < c->ubatch.n_items; i++) {
        double pos = (double)c->ubatch.items[i].pos, n = c->ubatch.items[i].n_tokens;
        saved += n * (pos + n / 2) * 2 * (row - head);
        made += pos * hp->n_latent * (hp->q_dim - hp->n_rot + hp->v_dim);
    }
    return saved > made;
}

/* ---- queries and results --------------------------------------------------------------------- */

/* Queries have the layout of keys: first the rotated part, which is in LATENT_Q, then the rest. */
static void load_queries(const prompt_task *k) {
    const model_hparams *hp = &k->c->model->hp;
    latent_scratch *t = k->t;
    size_t n = (size_t)k->n_tokens;
    int64_t n_rot = hp->n_rot, n_rest = hp->q_dim - n_rot;
    memset(t->q, 0, n * (size_t)t->head_dim * sizeof(float));
    memset(t->acc, 0, n * (size_t)t->head_dim * sizeof(float));
    for (int i = 0; i < k->n_tokens; i++) {
        int64_t row = k->item->row + k->token0 + i, pos = k->item->pos + k->token0 + i;
        const float *rotated = cpu_exec_row(k->c, BUF_LATENT_Q, row) + k->head * hp->head_dim;
        const float *rest = cpu_exec_row(k->c, BUF_Q, row) + k->head * hp->q_dim;
        float *q = t->q + i * t->head_dim, scale = attn_score_scale(k->c, k->a, pos);
        for (int64_t j = 0; j < n_rot; j++) q[j] = rotated[j] * scale;
        for (int64_t j = 0; j < n_rest; j++) q[n_rot + j] = rest[j] * scale;
        t->m[i] = -INFINITY;
        t->l[i] = 0;
    }
}

static void store_results(const prompt_task *k) {
    const model_hparams *hp = &k->c->model->hp;
    attn_layer a = *k->a;
    a.v_dim = hp->v_dim;
    a.values = QUANT_F32; /* they come from rows that were rotated back */
    for (int i = 0; i < k->n_tokens; i++) {
        float *out = cpu_exec_row(k->c, BUF_V, k->item->row + k->token0 + i) + k->head * hp->v_dim;
        attn_finish_query(k->c, &a, k->head, out, k->t->acc + i * k->t->head_dim, k->t->m[i],
                          k->t->l[i]);
    }
}

/* ---- keys and values ------------------------------------------------------------------------- */

/* One head's rows of a matrix. */
static cpu_mat head_matrix(const plan_matrix *pm, int head, int64_t n_head) {
    cpu_mat w = pm->w;
    w.n_out /= n_head;
    w.data = (const uint8_t *)w.data + (size_t)(head * w.n_out) * w.row_bytes;
    return w;
}

/* Converts the cached rows of n positions to floats and rotates them back. */
static void load_rows(const prompt_task *k, int64_t pos, int n) {
    const kv_cache *kv = &k->item->session->kv;
    attn_load_keys(k->c, kv, k->a->layer, 0, pos, n, k->t->rows, k->t->row_stride);
    for (int i = 0; i < n; i++)
        kv_rotate(&k->c->kernels, kv->type_k, k->t->rows + i * k->t->row_stride,
                  k->c->model->hp.head_dim);
}

static void scale_rows(const latent_scratch *t, float *x, int n, int64_t width, float by) {
    for (int i = 0; by != 1 && i < n; i++)
        for (int64_t j = 0; j < width; j++) x[i * t->head_dim + j] *= by;
}

static void make_keys_values(const prompt_task *k, int n) {
    const model_hparams *hp = &k->c->model->hp;
    const cpu_kernels *kernels = &k->c->kernels;
    const latent_scratch *t = k->t;
    const cpu_mat k_b = head_matrix(k->k_b, k->head, k->a->n_head);
    const cpu_mat v_b = head_matrix(k->v_b, k->head, k->a->n_head);
    const cpu_mat_kernels *mk = &kernels->mat[v_b.type];
    float *rest = t->k + hp->n_rot;
    cpu_act x = {.kind = kernels->mat_t[k_b.type].act,
                 .layout = CPU_ACT_PANELS,
                 .n = hp->n_latent,
                 .n_cols = n,
                 .data = t->act};
    kernels->act_encode(t->rows + hp->n_rot, t->row_stride, 0, n, &x);
    kernels->mat_t[k_b.type].matmul_t(&k_b, 0, k_b.n_in, &x, rest, t->head_dim, k->kernel);
    scale_rows(t, rest, n, k_b.n_in, k->k_b->scale);
    for (int i = 0; i < n; i++)
        memcpy(t->k + i * t->head_dim, t->rows + i * t->row_stride,
               (size_t)hp->n_rot * sizeof(float));
    if (x.kind != mk->act) {
        x.kind = mk->act;
        kernels->act_encode(t->rows + hp->n_rot, t->row_stride, 0, n, &x);
    }
    mk->matmul(&v_b, 0, v_b.n_out, &x, t->v, t->head_dim, k->kernel);
    scale_rows(t, t->v, n, v_b.n_out, k->v_b->scale);
}

/* Updates the states of all tokens that attend to some of positions [pos, pos + n). */
static void attend(const prompt_task *k, int64_t pos, int n) {
    const latent_scratch *t = k->t;
    int64_t before = pos - k->item->pos - k->token0;
    size_t row_bytes = (size_t)t->head_dim * sizeof(float);
    int first = before > 0 ? (int)before : 0;
    for (int i = first; i < k->n_tokens; i++) { /* the positions that a token sees, from pos on */
        int64_t at = k->item->pos + k->token0 + i;
        int64_t seen = attn_first_seen(k->a, at) - pos, limit = at + 1 - pos;
        t->first[i] = (int32_t)(seen < 0 ? 0 : seen < n ? seen : n);
        t->limit[i] = (int32_t)(limit < n ? limit : n);
    }
    for (int i = first; i < k->n_tokens; i += k->c->attn_queries) {
        int left = k->n_tokens - i;
        cpu_attn args = {.q = t->q + i * t->head_dim,
                         .n_q = left < k->c->attn_queries ? left : k->c->attn_queries,
                         .head_dim = (int)t->head_dim,
                         .k = t->k,
                         .v = t->v,
                         .k_stride = row_bytes,
                         .v_stride = row_bytes,
                         .type_k = QUANT_F32,
                         .type_v = QUANT_F32,
                         .k1 = n,
                         .first = t->first + i,
                         .limit = t->limit + i,
                         .softcap = k->a->args->softcap,
                         .m = t->m + i,
                         .l = t->l + i,
                         .acc = t->acc + i * t->head_dim,
                         .scratch = k->kernel};
        k->c->kernels.attention(&args);
    }
}

static void run_task(const prompt_task *k) {
    int64_t end = k->item->pos + k->token0 + k->n_tokens;
    size_t n_floats = (size_t)LATENT_BLOCK * (size_t)k->t->head_dim;
    load_queries(k);
    memset(k->t->k, 0, n_floats * sizeof(float)); /* elements beyond the end of a key or a value */
    memset(k->t->v, 0, n_floats * sizeof(float));
    for (int64_t pos = 0; pos < end; pos += LATENT_BLOCK) {
        int n = end - pos < LATENT_BLOCK ? (int)(end - pos) : LATENT_BLOCK;
        load_rows(k, pos, n);
        make_keys_values(k, n);
        attend(k, pos, n);
    }
    store_results(k);
}

/* With fewer heads than threads, tasks also share the tokens of a head, and each makes the keys
 * again. */
void attn_run_expanded(cpu_exec *c, const plan_step *s, const attn_layer *a, int ith) {
    prompt_task k = {.c = c,
                     .a = a,
                     .k_b = s[plan_latent_offset(s, ROLE_ATTN_K_B)].matrix,
                     .v_b = s[plan_latent_offset(s, ROLE_ATTN_V_B)].matrix,
                     .t = &c->scratch[ith].latent,
                     .kernel = c->scratch[ith].kernel};
    int64_t heads = (int64_t)a->n_head * c->ubatch.n_items;
    int64_t parts = (c->ubatch.nth + heads - 1) / heads;
    for (int64_t index; (index = pool_take(c->pool, 1)) < heads * parts;) {
        k.item = &c->ubatch.items[index / parts / a->n_head];
        k.head = (int)(index / parts % a->n_head);
        int part = (int)((k.item->n_tokens + parts - 1) / parts);
        k.token0 = (int)(parts - 1 - index % parts) * part; /* tokens that see most go first */
        k.n_tokens = k.item->n_tokens - k.token0 < part ? k.item->n_tokens - k.token0 : part;
        if (k.n_tokens > 0) run_task(&k);
    }
}
