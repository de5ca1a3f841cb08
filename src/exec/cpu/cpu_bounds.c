/* cpu_bounds.c: sparse attention by bounds of keys: which blocks of positions a token attends to.
 *
 * The score of a block is an upper bound of the product of the query with any key of the block: the
 * sum over the elements of max(q * minimum, q * maximum) (Quest, arXiv 2406.10774). With q split
 * into its positive part and its negative part this is the product of [q+, q-] with the row
 * [maxima, minima], so the bounds of a KV head are a matrix of QUANT_Q8_0. The query heads of a KV
 * head attend to the same blocks: a block's score is the maximum over these heads of its score
 * minus the head's best score.
 *
 * Rows are computed from the cache when they are first needed: decode adds a row every
 * PLAN_BOUNDS_SIZE tokens, and prefill, which attends to all positions, needs none. */
#include <math.h>
#include <string.h>

#include "cpu_attention.h"
#include "mem.h"

bool key_bounds_layout(const model *m, int32_t attn_blocks, int64_t n_ctx, key_bounds *out) {
    *out = (key_bounds){.n_blocks = n_ctx / PLAN_BOUNDS_SIZE};
    if (attn_blocks == 0 || n_ctx <= (int64_t)attn_blocks * PLAN_BOUNDS_SIZE) return true;
    if (m->hp.n_latent > 0 || m->hp.n_index_head > 0) return true;
    int64_t dim = 0;
    for (int i = 0; i < m->hp.n_layer; i++) {
        const model_layer_hparams *l = &m->layers[i].hp;
        if (l->n_head_kv > out->heads) out->heads = l->n_head_kv;
        if (l->head_dim > dim) dim = l->head_dim;
    }
    dim = (dim + CPU_ACT_GROUP - 1) / CPU_ACT_GROUP * CPU_ACT_GROUP;
    size_t n = (size_t)m->hp.n_layer * (size_t)out->heads;
    return quant_row_bytes(QUANT_Q8_0, 2 * (uint64_t)dim, &out->row) &&
           size_mul(n, (size_t)out->n_blocks, &n) && size_mul(n, out->row, &out->n_bytes);
}

pi_status key_bounds_create(key_bounds *b, const model *m, int32_t attn_blocks, int64_t n_ctx,
                            pi_error *err) {
    bool fits = key_bounds_layout(m, attn_blocks, n_ctx, b);
    if (fits && b->n_bytes == 0) return PI_OK;
    if (fits) b->data = mem_map(b->n_bytes);
    if (b->data) return PI_OK;
    return error_set(err, PI_ERR_NOMEM,
                     "out of memory: bounds of the keys of %lld blocks of positions could not be "
                     "allocated; use a smaller context",
                     (long long)b->n_blocks);
}

void key_bounds_free(key_bounds *b) {
    mem_unmap(b->data, b->n_bytes);
    *b = (key_bounds){0};
}

static uint8_t *row_of(const key_bounds *b, int layer, int head, int64_t block) {
    int64_t index = ((int64_t)layer * b->heads + head) * b->n_blocks + block;
    return b->data + (size_t)index * b->row;
}

/* ---- the ubatch ------------------------------------------------------------------------------ */

void key_bounds_begin(cpu_exec *c) {
    for (int i = 0; i < c->ubatch.n_items; i++)
        session_keys_changed(c->ubatch.items[i].session, c->ubatch.items[i].pos);
}

/* Complete blocks once the item's tokens are in the cache. */
static int64_t complete_blocks(const ubatch_item *item) {
    return (item->pos + item->n_tokens) / PLAN_BOUNDS_SIZE;
}

void key_bounds_end(cpu_exec *c) {
    const plan_blocks blocks = plan_bounds(c->plan->attn_blocks);
    for (int i = 0; i < c->ubatch.n_items; i++) {
        const ubatch_item *item = &c->ubatch.items[i];
        if (item->session->bounds.data && !ubatch_reads_all(item, &blocks))
            item->session->bounds.positions = complete_blocks(item) * PLAN_BOUNDS_SIZE;
    }
}

/* ---- a head ---------------------------------------------------------------------------------- */

/* Computes the missing rows of an item's complete blocks. */
static void make_rows(const cpu_exec *c, const ubatch_item *item, int layer, int head,
                      thread_scratch *ts) {
    const key_bounds *b = &item->session->bounds;
    const int n = c->model->layers[layer].hp.head_dim;
    float *most = ts->kernel, *least = most + n, *keys = least + n;
    for (int64_t block = b->positions / PLAN_BOUNDS_SIZE; block < complete_blocks(item); block++) {
        attn_load_keys(c, &item->session->kv, layer, head, block * PLAN_BOUNDS_SIZE,
                       PLAN_BOUNDS_SIZE, keys, n);
        memcpy(most, keys, (size_t)n * sizeof *most);
        memcpy(least, keys, (size_t)n * sizeof *least);
        for (int i = 1; i < PLAN_BOUNDS_SIZE; i++) {
            const float *key = keys + i * n;
            for (int k = 0; k < n; k++) {
                most[k] = key[k] > most[k] ? key[k] : most[k];
                least[k] = key[k] < least[k] ? key[k] : least[k];
            }
        }
        c->kernels.kv_store(most, row_of(b, layer, head, block), QUANT_Q8_0, 2 * n);
    }
}

/* Quantizes a token's queries of one KV head, split into positive and negative parts. */
static cpu_act split_queries(const cpu_exec *c, const plan_step *s, int64_t q_stride, int64_t row,
                             int head, int group, thread_scratch *ts) {
    const int n = c->model->layers[s->layer].hp.head_dim;
    const quant_type type_k = c->ubatch.item_of_row[row]->session->kv.type_k;
    float *x = ts->q, *q = ts->acc;
    cpu_act act = {.kind = c->kernels.mat[QUANT_Q8_0].act,
                   .layout = CPU_ACT_COLUMNS,
                   .n = 2 * n,
                   .n_cols = group,
                   .data = ts->kernel};
    for (int g = 0; g < group; g++) {
        memcpy(q, cpu_exec_row(c, BUF_Q, row) + (head * group + g) * q_stride,
               (size_t)n * sizeof *q);
        kv_rotate(&c->kernels, type_k, q, n);
        for (int k = 0; k < n; k++) {
            x[k] = q[k] > 0 ? q[k] : 0;
            x[n + k] = q[k] > 0 ? 0 : q[k];
        }
        c->kernels.act_encode(x, 0, g, g + 1, &act);
    }
    return act;
}

/* Combines the scores of a group's heads into those of its first head. */
static void join_heads(float *score, int group, int64_t stride, int64_t n) {
    for (int g = 0; g < group; g++) {
        float *own = score + g * stride, best = -INFINITY;
        for (int64_t b = 0; b < n; b++) best = own[b] > best ? own[b] : best;
        for (int64_t b = 0; b < n; b++) {
            float below = own[b] - best;
            score[b] = g == 0 || below > score[b] ? below : score[b];
        }
    }
}

/* Selects the blocks of all tokens of an item for one KV head. */
static void select_blocks(cpu_exec *c, const plan_step *s, const args_find_blocks *a,
                          const ubatch_item *item, int head, int ith) {
    const model_layer_hparams *l = &c->model->layers[s->layer].hp;
    const key_bounds *b = &item->session->bounds;
    const int group = l->n_head / l->n_head_kv, layer = l->kv_layer;
    thread_scratch *ts = &c->scratch[ith];
    make_rows(c, item, layer, head, ts);
    const cpu_mat rows = {.data = row_of(b, layer, head, 0),
                          .row_bytes = b->row,
                          .n_in = 2 * l->head_dim,
                          .n_out = b->n_blocks,
                          .type = QUANT_Q8_0};
    for (int i = 0; i < item->n_tokens; i++) {
        int64_t own = (item->pos + i) / PLAN_BOUNDS_SIZE, stride = item->session->blocks.n_blocks;
        if (plan_blocks_all(&a->blocks, item->n_tokens, item->pos + i)) continue;
        float *score = block_scores_of(item, i, head * group);
        const cpu_act q = split_queries(c, s, a->q_stride, item->row + i, head, group, ts);
        c->kernels.mat[QUANT_Q8_0].matvec(&rows, 0, own, &q, score, stride);
        join_heads(score, group, stride, own);
        block_scores_keep_best(score, own + 1, &a->blocks);
    }
}

void cpu_exec_find_by_bounds(cpu_exec *c, const plan_step *s, const args_find_blocks *a, int ith) {
    const int n_heads = c->model->layers[s->layer].hp.n_head_kv;
    for (int64_t i; (i = pool_take(c->pool, 1)) < (int64_t)c->ubatch.n_items * n_heads;) {
        const ubatch_item *item = &c->ubatch.items[i / n_heads];
        if (ubatch_reads_all(item, &a->blocks)) continue; /* no rows are computed */
        select_blocks(c, s, a, item, (int)(i % n_heads), ith);
    }
}
