/* cpu_blocks.c: sparse attention by index: which blocks of positions a token attends to.
 *
 * A block's score is the highest product of a head's index query and the index keys of the block's
 * positions (MiniMax-M3). In compressed attention blocks are single positions, and a position's
 * score is the sum over the heads of a weight times the positive part of the product (DSA;
 * DeepSeek-V3.2). Compressed keys are scored in the same way, by their index keys (DeepSeek-V4). In
 * Qwen4 an index key belongs to several positions, and weights are 1.
 * Sessions keep the scores of a ubatch (block_scores); layers that share a selection find them
 * there. A first phase computes all scores: a task is a few tokens and a range of blocks. A second
 * phase chooses the best blocks: a task is a token and a choice (n_index_choice). Tokens that
 * attend to all blocks have no scores. */
#include <math.h>
#include <string.h>

#include "cpu_attention.h"
#include "mem.h"

bool block_scores_layout(const model_hparams *hp, int32_t attn_blocks, int n_batch, int64_t n_ctx,
                         block_scores *out) {
    const bool index = hp->n_index_head > 0;
    const int64_t size = index ? hp->block_size : PLAN_BOUNDS_SIZE;
    const int64_t top = index ? hp->block_top : attn_blocks;
    *out = (block_scores){.n_heads = index ? hp->n_index_choice : hp->n_head,
                          .n_blocks = (n_ctx + size - 1) / size};
    if (top == 0 || out->n_blocks <= top || (!index && hp->n_latent > 0)) return true;
    if (!index && n_batch > PLAN_DECODE_TOKENS) n_batch = PLAN_DECODE_TOKENS;
    if (index && hp->index_sums) out->n_list = top;
    size_t n = (size_t)n_batch * (size_t)out->n_heads;
    return size_mul(n, (size_t)(out->n_blocks + out->n_list), &n) &&
           size_mul(n, sizeof(float), &out->n_bytes);
}

pi_status block_scores_create(block_scores *b, const model_hparams *hp, int32_t attn_blocks,
                              int n_batch, int64_t n_ctx, pi_error *err) {
    bool fits = block_scores_layout(hp, attn_blocks, n_batch, n_ctx, b);
    if (fits && b->n_bytes == 0) return PI_OK;
    if (fits) b->data = mem_map(b->n_bytes);
    if (b->data) return PI_OK;
    return error_set(err, PI_ERR_NOMEM,
                     "out of memory: scores of %lld blocks of positions could not be allocated; "
                     "use a smaller context or batch",
                     (long long)b->n_blocks);
}

void block_scores_free(block_scores *b) {
    mem_unmap(b->data, b->n_bytes);
    *b = (block_scores){0};
}

float *block_scores_of(const ubatch_item *item, int token, int head) {
    const block_scores *b = &item->session->blocks;
    return b->data + ((int64_t)token * b->n_heads + head) * (b->n_blocks + b->n_list);
}

int32_t *cpu_exec_block_list(const ubatch_item *item, int token) {
    return (int32_t *)(block_scores_of(item, token, 0) + item->session->blocks.n_blocks);
}

/* ---- queries and keys ------------------------------------------------------------------------ */

/* Norms, where it has weights, and rotates head h of a token's index queries. The head behind the
 * last one is the index key, which goes to the cache. */
static void store_head(cpu_exec *c, const plan_step *s, const args_rope *a, int64_t row, int h) {
    const model_hparams *hp = &c->model->hp;
    const float *cs = c->angles + (row * ROPE_SETS + (int64_t)a->set) * hp->n_rot;
    bool is_key = h == hp->n_index_head;
    float *x = is_key ? cpu_exec_row(c, BUF_INDEX_K, row)
                      : cpu_exec_row(c, BUF_INDEX_Q, row) + (int64_t)h * hp->index_dim;
    const float *norm = is_key ? a->k_norm : a->q_norm;
    if (norm) c->kernels.rms_norm(x, norm, x, hp->index_dim, hp->norm_eps);
    if (a->set != ROPE_SET_NONE)
        c->kernels.rope(x + hp->index_rot_at, hp->n_rots[a->set], cs, a->neox);
    const kv_cache *kv = &c->ubatch.item_of_row[row]->session->kv;
    kv_rotate(&c->kernels, kv->type_k, x, hp->index_dim);
    if (!is_key) return;
    c->kernels.kv_store(x, kv_cache_row(kv, s->layer, KV_INDEX, 0, c->ubatch.positions[row]),
                        kv->type_k, hp->index_dim);
}

void cpu_exec_index_store(cpu_exec *c, const plan_step *s, const args_rope *a) {
    int64_t heads = c->model->hp.n_index_head + (a->no_values ? 0 : 1);
    int64_t total = heads * c->ubatch.n_tokens;
    for (int64_t i; (i = pool_take(c->pool, 1)) < total;)
        store_head(c, s, a, i / heads, (int)(i % heads));
}

/* ---- scores ---------------------------------------------------------------------------------- */

enum { SCORE_POSITIONS = 4096 }; /* per task: whole blocks, at least one */

/* Tokens [first, n_tokens) of an item do not attend to all blocks. A task scores `part` blocks for
 * `tile` of these tokens. */
typedef struct score_split {
    int first, tile, n_tiles;
    int64_t part, n_parts;
} score_split;

static score_split split_item(const cpu_exec *c, const plan_blocks *b, const ubatch_item *item) {
    score_split s = {.tile = c->attn_queries / c->model->hp.n_index_head};
    int64_t before = (int64_t)b->top * b->size - item->pos; /* tokens that attend to all */
    if (b->whole) before += b->size - 1;
    if (before >= item->n_tokens) return s;
    s.first = before > 0 ? (int)before : 0;
    s.n_tiles = (item->n_tokens - s.first + s.tile - 1) / s.tile;
    s.part = b->size < SCORE_POSITIONS ? SCORE_POSITIONS / b->size : 1;
    s.n_parts = (plan_blocks_seen(b, item->pos + item->n_tokens - 1) - 1 + s.part) / s.part;
    return s;
}

/* Gathers the queries of tokens [first, end) of an item. */
static int load_queries(const cpu_exec *c, const ubatch_item *item, int first, int end,
                        thread_scratch *ts) {
    int heads = c->model->hp.n_index_head;
    size_t width = (size_t)heads * (size_t)c->model->hp.index_dim;
    for (int i = first; i < end; i++) {
        memcpy(ts->q + (size_t)(i - first) * width, cpu_exec_row(c, BUF_INDEX_Q, item->row + i),
               width * sizeof(float));
        for (int h = 0; h < heads; h++) {
            ts->first[(i - first) * heads + h] = 0;
            ts->limit[(i - first) * heads + h] = (int32_t)(item->pos + i + 1);
        }
    }
    return (end - first) * heads;
}

/* The scores of positions, or compressed keys, [p0, p1) for tokens [first, end). Index keys are the
 * rows of a matrix; its input are the queries in the thread's scratch memory. A common factor would
 * not change the order of the scores and is left out. */
static void score_positions(const cpu_exec *c, const plan_step *s, const plan_blocks *b,
                            const ubatch_item *item, int first, int end, int64_t p0, int64_t p1,
                            thread_scratch *ts) {
    const model_hparams *hp = &c->model->hp;
    const kv_cache *kv = &item->session->kv;
    const cpu_mat_kernels *mk = &c->kernels.mat[kv->type_k];
    const int n_heads = hp->n_index_head;
    const int64_t ratio = hp->index_ratio, per = ratio > 0 ? ratio : 1; /* positions of a key */
    int64_t k1 = (p1 + per - 1) / per;
    if (ratio > 0 && (item->pos + end) / per < k1) k1 = (item->pos + end) / per;
    cpu_act q = {.kind = mk->act,
                 .n = hp->index_dim,
                 .n_cols = (int64_t)(end - first) * n_heads,
                 .data = ts->index_act};
    const bool tiled = q.n_cols >= c->kernels.tiled[q.kind].from;
    const cpu_exec_product *by = tiled ? &cpu_exec_by_tile : &cpu_exec_by_vector;
    q.layout = by->layout;
    c->kernels.act_encode(ts->q, hp->index_dim, 0, q.n_cols, &q);
    for (int64_t at = p0 / per; at < k1; at += INDEX_PART) {
        const int n = k1 - at < INDEX_PART ? (int)(k1 - at) : INDEX_PART;
        const cpu_mat keys = {.data = kv_cache_row(kv, s->layer, KV_INDEX, 0, at),
                              .row_bytes = kv->layers[s->layer].row[KV_INDEX],
                              .n_in = hp->index_dim,
                              .n_out = n,
                              .type = kv->type_k};
        by->run(mk, &keys, 0, n, &q, ts->index, INDEX_PART, ts->kernel);
        for (int i = first; i < end; i++) {
            const float *weight = ratio > 0 ? NULL : cpu_exec_row(c, BUF_INDEX_W, item->row + i);
            const float *product = ts->index + (int64_t)(i - first) * n_heads * INDEX_PART;
            float *score = block_scores_of(item, i, 0);
            const int64_t seen = plan_blocks_seen(b, item->pos + i) / per - at;
            for (int p = 0; p < n && p < seen; p++) {
                float sum = 0;
                for (int h = 0; h < n_heads; h++)
                    sum += (weight ? weight[h] : 1) *
                           fmaxf(product[(int64_t)h * INDEX_PART + p], 0);
                const int64_t key0 = (at + p) * per, key1 = key0 + per;
                for (int64_t x = key0 > p0 ? key0 : p0; x < key1 && x < p1; x++) score[x] = sum;
            }
        }
    }
    for (int i = first; i < end && ratio > 0; i++) { /* after the last complete key */
        const int64_t seen = item->pos + i + 1, rest = seen / per * per;
        for (int64_t x = rest > p0 ? rest : p0; x < seen && x < p1; x++)
            block_scores_of(item, i, 0)[x] = INFINITY;
    }
}

static void score_blocks(cpu_exec *c, const plan_step *s, const plan_blocks *blocks,
                         const ubatch_item *item, const score_split *split, int64_t index,
                         int ith) {
    const model_hparams *hp = &c->model->hp;
    const kv_cache *kv = &item->session->kv;
    thread_scratch *ts = &c->scratch[ith];
    int first = split->first + (int)(index / split->n_parts) * split->tile;
    int end = first + split->tile < item->n_tokens ? first + split->tile : item->n_tokens;
    int64_t length = item->pos + end, b0 = index % split->n_parts * split->part;
    int64_t size = blocks->size, n_blocks = plan_blocks_seen(blocks, length - 1);
    int64_t b1 = b0 + split->part < n_blocks ? b0 + split->part : n_blocks;
    if (hp->index_sums) {
        load_queries(c, item, first, end, ts);
        score_positions(c, s, blocks, item, first, end, b0, b1, ts);
        return;
    }
    cpu_attn args = {.q = ts->q,
                     .n_q = load_queries(c, item, first, end, ts),
                     .head_dim = hp->index_dim,
                     .k = kv_cache_row(kv, s->layer, KV_INDEX, 0, 0),
                     .k_stride = kv->layers[s->layer].row[KV_INDEX],
                     .type_k = kv->type_k,
                     .first = ts->first,
                     .limit = ts->limit,
                     .m = ts->m,
                     .scratch = ts->kernel};
    for (int64_t b = b0; b < b1; b++) {
        args.k0 = b * size;
        args.k1 = args.k0 + size < length ? args.k0 + size : length;
        for (int i = 0; i < args.n_q; i++) args.m[i] = -INFINITY;
        c->kernels.attention(&args);
        for (int i = 0; i < args.n_q; i++)
            block_scores_of(item, first + i / hp->n_index_head,
                            i % hp->n_index_head)[b] = args.m[i];
    }
}

/* ---- the best -------------------------------------------------------------------------------- */

/* Maps floats to integers in the same order. */
static uint32_t ordered(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

void block_scores_keep_best(float *score, int64_t n, const plan_blocks *b) {
    for (int64_t i = 0; i < b->first; i++) score[i] = INFINITY;
    for (int64_t i = 0; i < b->local; i++) score[n - 1 - i] = INFINITY;
    /* The largest number that at least `top` scores reach, found byte by byte. `left`: of the
     * scores that begin with the bytes found, how many are among the best. */
    uint32_t cut = 0;
    int64_t left = b->top;
    for (int shift = 24; shift >= 0; shift -= 8) {
        int64_t count[256] = {0};
        for (int64_t i = 0; i < n; i++) {
            uint32_t x = ordered(score[i]);
            if ((uint64_t)x >> (shift + 8) == (uint64_t)cut >> (shift + 8))
                count[x >> shift & 255]++;
        }
        uint32_t byte = 255;
        while (count[byte] < left) left -= count[byte--];
        cut |= byte << shift;
    }
    for (int64_t i = 0; i < n; i++) {
        uint32_t x = ordered(score[i]);
        if (x < cut || (x == cut && left-- <= 0)) score[i] = BLOCK_LEFT_OUT;
    }
}

/* Puts `value` where entry `at` of the heap was. The gap first sinks to a leaf, always to the child
 * with the lower score, then the value rises. */
static void heap_put(int32_t *heap, int64_t n, const float *score, int64_t at, int32_t value) {
    const int64_t from = at;
    for (int64_t child; (child = 2 * at + 2) <= n; at = child) {
        if (child == n || score[heap[child]] > score[heap[child - 1]]) child--;
        heap[at] = heap[child];
    }
    for (; at > from && score[heap[(at - 1) / 2]] > score[value]; at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = value;
}

/* Lists the `top` best of n > top positions, ascending. They are found with a heap of the best so
 * far, the lowest first, which a position enters only with a higher score than the lowest. So the
 * same of several equal scores stay as in llama.cpp; scores of 0 are frequent with few heads. */
static void list_best(float *score, int64_t n, int32_t *list, int64_t top) {
    int64_t n_listed = 0;
    for (int64_t i = 0; i < top; i++) list[i] = (int32_t)i;
    for (int64_t i = top / 2 - 1; i >= 0; i--) heap_put(list, top, score, i, list[i]);
    for (int64_t i = top; i < n; i++)
        if (score[i] > score[list[0]]) heap_put(list, top, score, 0, (int32_t)i);
    /* scores are not needed any more: marks the best */
    for (int64_t i = 0; i < top; i++) score[list[i]] = NAN;
    for (int64_t i = 0; i < n && n_listed < top; i++)
        if (isnan(score[i])) list[n_listed++] = (int32_t)i;
}

/* Leaves out all positions but the listed ones. */
static void mark_listed(float *score, int64_t n, const int32_t *list, int64_t n_listed) {
    for (int64_t i = 0; i < n; i++) score[i] = BLOCK_LEFT_OUT;
    for (int64_t i = 0; i < n_listed; i++) score[list[i]] = INFINITY;
}

void cpu_exec_find_blocks(cpu_exec *c, const plan_step *s, const plan_blocks *blocks, int ith) {
    int64_t n_tasks = 0, n_choices = c->model->hp.n_index_choice;
    for (int i = 0; i < c->ubatch.n_items; i++) {
        const score_split split = split_item(c, blocks, &c->ubatch.items[i]);
        n_tasks += split.n_tiles * split.n_parts;
    }
    if (n_tasks == 0) return;
    for (int64_t index; (index = pool_take(c->pool, 1)) < n_tasks;) {
        const ubatch_item *item = c->ubatch.items;
        score_split split = split_item(c, blocks, item);
        while (index >= split.n_tiles * split.n_parts) {
            index -= split.n_tiles * split.n_parts;
            split = split_item(c, blocks, ++item);
        }
        score_blocks(c, s, blocks, item, &split, index, ith);
    }
    pool_barrier(c->pool);
    for (;;) {
        int64_t i = pool_take(c->pool, 1), row = i / n_choices;
        if (row >= c->ubatch.n_tokens) break;
        const ubatch_item *item = c->ubatch.item_of_row[row];
        if (plan_blocks_all(blocks, item->n_tokens, c->ubatch.positions[row])) continue;
        float *score = block_scores_of(item, (int)row - item->row, (int)(i % n_choices));
        const int64_t n = plan_blocks_seen(blocks, c->ubatch.positions[row]);
        int32_t *list = cpu_exec_block_list(item, (int)row - item->row);
        if (item->session->blocks.n_list > 0) list_best(score, n, list, blocks->top);
        if (c->model->hp.index_ratio > 0)
            mark_listed(score, n, list, blocks->top);
        else if (item->session->blocks.n_list == 0)
            block_scores_keep_best(score, n, blocks);
    }
}
