/* cpu_attention.c: softmax(Q K^T) V over each session's cache. A task is one KV head, a block of
 * tokens with all query heads that share it, and a range of positions. Only small ubatches split
 * the range, so that one token over a long context keeps all threads busy; a second phase merges
 * their softmax states. Splits depend on lengths only, so results do not depend on the number of
 * threads. */
#include <math.h>
#include <string.h>

#include "cpu_attention.h"

typedef struct attn_task {
    const ubatch_item *item;
    int kv_head, token0, n_tokens; /* within the item */
    int split, n_splits;
    int64_t k0, k1; /* positions; in a sparse item they count the attended positions only */
} attn_task;

static attn_layer attn_describe(const cpu_exec *c, const plan_step *s, const args_attention *args,
                                bool may_split) {
    const model_layer_hparams *lhp = &c->model->layers[s->layer].hp;
    attn_layer a = {.layer = s->layer,
                    .args = args,
                    .queries = s->in,
                    .n_head = lhp->n_head,
                    .n_head_kv = lhp->n_head_kv,
                    .group = lhp->n_head / lhp->n_head_kv,
                    .head_dim = lhp->head_dim,
                    .v_dim = lhp->v_dim,
                    .may_split = may_split,
                    .keys = c->type_k,
                    .values = args->latent ? c->type_k : c->type_v};
    a.block = c->attn_queries / a.group;
    return a;
}

/* Sparse: some tokens of the item do not attend to all positions before them. */
static bool is_sparse(const attn_layer *a, const ubatch_item *item) {
    return !ubatch_reads_all(item, &a->args->blocks);
}

/* The end of the positions that a token at `pos` attends to. */
static int64_t seen_end(const attn_layer *a, const ubatch_item *item, int64_t pos) {
    if (!a->args->both_ways) return pos + 1;
    int64_t end = item->pos + item->n_tokens, last = pos + a->args->window / 2;
    return a->args->window && last + 1 < end ? last + 1 : end;
}

/* The number of compressed keys that a token attends to. */
static int64_t compressed(const attn_layer *a, const ubatch_item *item, int64_t pos) {
    const plan_blocks *b = &a->args->blocks;
    if (a->args->ratio == 0) return 0;
    return plan_blocks_all(b, item->n_tokens, pos) ? (pos + 1) / a->args->ratio : b->top;
}

/* The number of positions that tokens of the item up to position `pos` attend to, at most. Attended
 * blocks count as if they were contiguous; compressed keys count as positions before those of a
 * task. */
static int64_t attended(const attn_layer *a, const ubatch_item *item, int64_t pos) {
    const plan_blocks *b = &a->args->blocks;
    if (a->args->ratio > 0) {
        int64_t most = (int64_t)a->args->window + a->block - 1;
        return compressed(a, item, pos) + (pos + 1 < most ? pos + 1 : most);
    }
    if (a->args->both_ways) return seen_end(a, item, pos);
    return plan_blocks_all(b, item->n_tokens, pos) ? pos + 1 : (int64_t)b->top * b->size;
}

/* Tokens per task: one in a sparse item, whose tokens attend to different blocks. */
static int tokens_per_task(const attn_layer *a, const ubatch_item *item) {
    return is_sparse(a, item) ? 1 : a->block;
}

/* Positions per split of an item. */
static int64_t split_length(const attn_layer *a, const ubatch_item *item) {
    int64_t length = attended(a, item, item->pos + item->n_tokens - 1);
    if (!a->may_split) return length;
    int64_t share = (length + ATTN_MAX_SPLITS - 1) / ATTN_MAX_SPLITS;
    return share > ATTN_SPLIT_LENGTH ? share : ATTN_SPLIT_LENGTH;
}

static int split_count(const attn_layer *a, const ubatch_item *item) {
    int64_t length = attended(a, item, item->pos + item->n_tokens - 1),
            part = split_length(a, item);
    return (int)((length + part - 1) / part);
}

static int64_t item_tasks(const attn_layer *a, const ubatch_item *item) {
    int block = tokens_per_task(a, item);
    return (int64_t)((item->n_tokens + block - 1) / block) * a->n_head_kv * split_count(a, item);
}

int64_t attn_first_seen(const attn_layer *a, int64_t pos) {
    if (a->args->window == 0) return 0;
    if (a->args->both_ways) return pos > a->args->window / 2 ? pos - a->args->window / 2 : 0;
    if (a->args->chunks) return pos / a->args->window * a->args->window;
    return pos >= a->args->window ? pos + 1 - a->args->window : 0;
}

/* The index-th task of an item. Later blocks of a prompt attend to more positions, so they go
 * first. */
static attn_task make_task(const attn_layer *a, const ubatch_item *item, int64_t index) {
    int n_splits = split_count(a, item), tokens = tokens_per_task(a, item);
    int n_blocks = (item->n_tokens + tokens - 1) / tokens;
    attn_task t = {.item = item, .n_splits = n_splits};
    t.split = (int)(index % n_splits);
    index /= n_splits;
    t.kv_head = (int)(index % a->n_head_kv);
    int block = n_blocks - 1 - (int)(index / a->n_head_kv);
    t.token0 = block * tokens;
    t.n_tokens = item->n_tokens - t.token0 < tokens ? item->n_tokens - t.token0 : tokens;
    int64_t end = attended(a, item, item->pos + t.token0 + t.n_tokens - 1);
    t.k0 = t.split * split_length(a, item);
    t.k1 = t.k0 + split_length(a, item);
    if (t.k1 > end) t.k1 = end;
    int64_t first = attn_first_seen(a, item->pos + t.token0);
    if (a->args->ratio > 0) { /* k0 and k1 count compressed keys, then positions from `first` on */
        int64_t last = item->pos + t.token0 + t.n_tokens - 1;
        end = compressed(a, item, last) + last + 1 - first;
        if (t.k1 > end) t.k1 = end;
    } else if (t.k0 < first) {
        t.k0 = first;
    }
    return t;
}

/* State of one head of one token in one split: m, l, acc[v_dim]. */
static float *split_state(const cpu_exec *c, const attn_layer *a, int64_t row, int head,
                          int split) {
    size_t index = ((size_t)row * (size_t)a->n_head + (size_t)head) * ATTN_MAX_SPLITS;
    return c->split_state + (index + (size_t)split) * ((size_t)a->v_dim + 2);
}

/* l is 0 where nothing was attended to; NaN stays NaN. A sink is one more position with this score
 * and a value of zero. */
void attn_finish_query(const cpu_exec *c, const attn_layer *a, int head, float *out,
                       const float *acc, float m, float l) {
    float scale = l != 0 ? 1 / l : 0;
    if (a->args->sinks && l != 0) {
        float top = fmaxf(m, a->args->sinks[head]), keep = expf(m - top);
        scale = keep / (l * keep + expf(a->args->sinks[head] - top));
    }
    for (int i = 0; i < a->v_dim; i++) out[i] = acc[i] * scale;
    kv_rotate(&c->kernels, a->values, out, a->v_dim);
}

static float *attn_out(const cpu_exec *c, const attn_layer *a, int64_t row, int head) {
    return cpu_exec_row(c, BUF_ATTN, row) + (int64_t)head * a->v_dim;
}

/* The factor may grow with the position (Llama 4, Ministral). */
float attn_score_scale(const cpu_exec *c, const attn_layer *a, int64_t pos) {
    const model_hparams *hp = &c->model->hp;
    if (!a->args->temperature) return a->args->scale;
    double turns = floor((double)(pos + hp->attn_temperature_offset) / hp->attn_temperature_length);
    return a->args->scale * (float)(1 + (double)hp->attn_temperature * log(1 + turns));
}

void attn_load_keys(const cpu_exec *c, const kv_cache *kv, int layer, int head, int64_t pos, int n,
                    float *out, int64_t stride) {
    const int64_t width = c->model->layers[layer].hp.head_dim;
    const cpu_mat keys = {.data = kv_cache_k(kv, layer, head, pos),
                          .row_bytes = kv->layers[layer].row[KV_KEYS],
                          .n_in = width,
                          .n_out = n,
                          .type = kv->type_k};
    const float one = 1;
    for (int32_t i = 0; i < n; i++) { /* a sum of one row with the factor 1 is the row as floats */
        memset(out + i * stride, 0, (size_t)width * sizeof *out);
        c->kernels.mat_t[kv->type_k].axpy_rows(&keys, &i, 1, &one, 1, 1, out + i * stride, stride);
    }
}

/* Gathers the task's queries, scaled, and resets their softmax states. */
static int load_queries(const cpu_exec *c, const attn_layer *a, const attn_task *t,
                        thread_scratch *ts) {
    int n = 0;
    for (int i = 0; i < t->n_tokens; i++) {
        int64_t row = t->item->row + t->token0 + i;
        const float *q = c->buf[a->queries] + row * c->plan->width[a->queries];
        int64_t pos = t->item->pos + t->token0 + i;
        float scale = attn_score_scale(c, a, pos);
        for (int g = 0; g < a->group; g++, n++) {
            const float *src = q + (t->kv_head * a->group + g) * a->args->q_stride;
            float *dst = ts->q + (int64_t)n * a->head_dim;
            for (int d = 0; d < a->head_dim; d++) dst[d] = src[d] * scale;
            kv_rotate(&c->kernels, a->keys, dst, a->head_dim);
            ts->first[n] = (int32_t)attn_first_seen(a, pos);
            ts->limit[n] = (int32_t)seen_end(a, t->item, pos);
            ts->m[n] = -INFINITY;
            ts->l[n] = 0;
        }
    }
    memset(ts->acc, 0, (size_t)n * (size_t)a->v_dim * sizeof(float));
    return n;
}

static void store_results(const cpu_exec *c, const attn_layer *a, const attn_task *t,
                          const thread_scratch *ts) {
    int n = 0;
    for (int i = 0; i < t->n_tokens; i++) {
        int64_t row = t->item->row + t->token0 + i;
        for (int g = 0; g < a->group; g++, n++) {
            int head = t->kv_head * a->group + g;
            const float *acc = ts->acc + (int64_t)n * a->v_dim;
            if (t->n_splits == 1) {
                attn_finish_query(c, a, head, attn_out(c, a, row, head), acc, ts->m[n], ts->l[n]);
                continue;
            }
            float *state = split_state(c, a, row, head, t->split);
            state[0] = ts->m[n];
            state[1] = ts->l[n];
            memcpy(state + 2, acc, (size_t)a->v_dim * sizeof(float));
        }
    }
}

/* Attends to the n rows that the thread's scratch memory holds. */
static void attend_together(const cpu_exec *c, thread_scratch *ts, cpu_attn *args, int n) {
    for (int i = 0; i < args->n_q; i++) {
        ts->first[i] = 0;
        ts->limit[i] = n;
    }
    args->k1 = n;
    if (n > 0) c->kernels.attention(args);
}

/* Attends to entries [k0, k1) of a list of rows; without a list, to rows [k0, k1). Copies
 * LATENT_BLOCK rows into one block, because a kernel call per row would cost more than the copies.
 */
static void attend_listed(const cpu_exec *c, thread_scratch *ts, cpu_attn *args,
                          const int32_t *list, int64_t k0, int64_t k1) {
    const uint8_t *rows = args->k;
    const size_t row = args->k_stride;
    uint8_t *together = (uint8_t *)ts->latent.rows;
    int n = 0;
    args->k = args->v = together;
    args->k0 = 0;
    for (int64_t i = k0; i < k1; i++) {
        memcpy(together + (size_t)n * row, rows + (size_t)(list ? list[i] : i) * row, row);
        if (++n < LATENT_BLOCK) continue;
        attend_together(c, ts, args, n);
        n = 0;
    }
    attend_together(c, ts, args, n);
}

/* The list of what a token attends to; NULL: everything before it. */
static const int32_t *list_of(const attn_layer *a, const attn_task *t) {
    const int64_t pos = t->item->pos + t->token0;
    const bool all = plan_blocks_all(&a->args->blocks, t->item->n_tokens, pos);
    return all ? NULL : cpu_exec_block_list(t->item, t->token0);
}

/* Attends to compressed keys, then to positions of the window. */
static void attend_compressed(const cpu_exec *c, const attn_layer *a, const attn_task *t,
                              thread_scratch *ts, cpu_attn *args) {
    const kv_cache *kv = &t->item->session->kv;
    const uint8_t *positions = args->k;
    const int64_t pos = t->item->pos + t->token0, first = attn_first_seen(a, pos);
    const int64_t n = compressed(a, t->item, pos + t->n_tokens - 1);
    const int64_t end = t->k1 < n ? t->k1 : n;
    const int32_t *list = list_of(a, t);
    args->k = args->v = kv_cache_row(kv, a->layer, KV_COMPRESSED, 0, 0);
    if (list && t->k0 < end) attend_listed(c, ts, args, list, t->k0, end);
    for (int i = 0; i < args->n_q; i++) {
        ts->first[i] = 0;
        ts->limit[i] = (int32_t)((pos + i / a->group + 1) / a->args->ratio);
    }
    args->k0 = t->k0;
    args->k1 = end;
    if (!list && t->k0 < end) c->kernels.attention(args);
    for (int i = 0; i < args->n_q; i++) {
        ts->first[i] = (int32_t)attn_first_seen(a, pos + i / a->group);
        ts->limit[i] = (int32_t)(pos + i / a->group + 1);
    }
    args->k = args->v = positions;
    args->k0 = first + (t->k0 > n ? t->k0 - n : 0);
    args->k1 = first + t->k1 - n;
    if (args->k0 < args->k1) c->kernels.attention(args);
}

/* One token attends to runs of adjacent blocks. The task has positions [k0, k1), which count
 * attended positions only. */
static void attend_blocks(const cpu_exec *c, const attn_layer *a, const attn_task *t,
                          cpu_attn *args) {
    int64_t pos = t->item->pos + t->token0, size = a->args->blocks.size, n = pos / size + 1,
            before = 0;
    int head = a->args->blocks.bounds    ? t->kv_head * a->group /* block_scores_of */
               : c->model->hp.index_sums ? 0
                                         : t->kv_head;
    const float *score = plan_blocks_all(&a->args->blocks, t->item->n_tokens, pos)
                             ? NULL
                             : block_scores_of(t->item, t->token0, head);
    for (int64_t b = 0; b < n && before < t->k1; b++) {
        int64_t first = b;
        while (b < n && (!score || score[b] != BLOCK_LEFT_OUT)) b++;
        int64_t length = (b < n ? b * size : pos + 1) - first * size;
        int64_t from = t->k0 > before ? t->k0 - before : 0;
        int64_t to = t->k1 - before < length ? t->k1 - before : length;
        args->k0 = first * size + from;
        args->k1 = first * size + to;
        if (from < to) c->kernels.attention(args);
        before += length;
    }
}

/* ALiBi in both directions: the kernel measures distances from the last position of a query. A
 * first call attends to the positions up to the query's, and a second one, with negative slopes, to
 * those after it. The second call's scores are too large by the slope times the number of positions
 * after the query. To match, the same amount is added to the maximum in the first call's softmax
 * state. */
static void attend_by_distance(const cpu_exec *c, const attn_layer *a, const attn_task *t,
                               thread_scratch *ts, cpu_attn *args) {
    float rising[MODEL_MAX_HEADS];
    const float *falling = args->slopes;
    for (int i = 0; i < args->n_q; i++) {
        ts->limit[i] = (int32_t)(t->item->pos + t->token0 + i / a->group + 1);
        rising[i % a->group] = -falling[i % a->group];
    }
    c->kernels.attention(args);
    for (int i = 0; i < args->n_q; i++) {
        int64_t pos = ts->limit[i] - 1, end = seen_end(a, t->item, pos);
        ts->m[i] += falling[i % a->group] * (float)(end - 1 - pos);
        if (ts->first[i] <= pos) ts->first[i] = (int32_t)(pos + 1);
        ts->limit[i] = (int32_t)end;
    }
    args->slopes = rising;
    c->kernels.attention(args);
}

static void run_task(cpu_exec *c, const attn_layer *a, const attn_task *t, int ith) {
    thread_scratch *ts = &c->scratch[ith];
    const kv_cache *kv = &t->item->session->kv;
    int n_q = load_queries(c, a, t, ts);
    const kv_layer *l = &kv->layers[a->layer];
    const uint8_t *k = kv_cache_k(kv, a->layer, t->kv_head, 0);
    const float *slopes = a->args->slopes;
    cpu_attn args = {.q = ts->q,
                     .n_q = n_q,
                     .head_dim = a->head_dim,
                     .v_dim = a->v_dim,
                     .k = k,
                     .v = a->args->latent ? k : kv_cache_v(kv, a->layer, t->kv_head, 0),
                     .k_stride = l->row[KV_KEYS],
                     .v_stride = a->args->latent ? l->row[KV_KEYS] : l->row[KV_VALUES],
                     .type_k = kv->type_k,
                     .type_v = a->args->latent ? kv->type_k : kv->type_v,
                     .k0 = t->k0,
                     .k1 = t->k1,
                     .first = ts->first,
                     .limit = ts->limit,
                     .softcap = a->args->softcap,
                     .slopes = slopes ? slopes + t->kv_head * a->group : NULL,
                     .n_slopes = a->group,
                     .m = ts->m,
                     .l = ts->l,
                     .acc = ts->acc,
                     .scratch = ts->kernel};
    if (a->args->ratio > 0)
        attend_compressed(c, a, t, ts, &args);
    else if (is_sparse(a, t->item) && a->args->latent)
        attend_listed(c, ts, &args, list_of(a, t), t->k0, t->k1);
    else if (is_sparse(a, t->item))
        attend_blocks(c, a, t, &args);
    else if (slopes && a->args->both_ways)
        attend_by_distance(c, a, t, ts, &args);
    else
        c->kernels.attention(&args);
    store_results(c, a, t, ts);
}

/* Merges the states of all splits of one head of one token. */
static void merge_head(const cpu_exec *c, const attn_layer *a, int64_t row, int head) {
    int n_splits = split_count(a, c->ubatch.item_of_row[row]);
    if (n_splits == 1) return;
    float m = -INFINITY, l = 0;
    for (int s = 0; s < n_splits; s++) m = fmaxf(m, split_state(c, a, row, head, s)[0]);
    float *out = attn_out(c, a, row, head);
    memset(out, 0, (size_t)a->v_dim * sizeof(float));
    for (int s = 0; s < n_splits; s++) {
        const float *state = split_state(c, a, row, head, s);
        float weight = state[1] != 0 ? expf(state[0] - m) : 0;
        l += weight * state[1];
        for (int d = 0; d < a->v_dim; d++) out[d] += weight * state[2 + d];
    }
    attn_finish_query(c, a, head, out, out, m, l);
}

static void run_tasks(cpu_exec *c, const attn_layer *a, int ith) {
    int64_t total = 0;
    for (int i = 0; i < c->ubatch.n_items; i++) total += item_tasks(a, &c->ubatch.items[i]);
    for (int64_t index; (index = pool_take(c->pool, 1)) < total;) {
        const ubatch_item *item = c->ubatch.items;
        while (index >= item_tasks(a, item)) index -= item_tasks(a, item++);
        attn_task t = make_task(a, item, index);
        if (t.k0 < t.k1) {
            run_task(c, a, &t, ith);
        } else { /* the tokens of the block end before this split */
            load_queries(c, a, &t, &c->scratch[ith]);
            store_results(c, a, &t, &c->scratch[ith]);
        }
    }
}

void cpu_exec_attention_whole(cpu_exec *c, const plan_step *s, const args_attention *args,
                              int ith) {
    attn_layer a = attn_describe(c, s, args, false);
    if (args->latent && attn_expands(c, s->layer))
        attn_run_expanded(c, s, &a, ith);
    else
        run_tasks(c, &a, ith);
}

void cpu_exec_attention_split(cpu_exec *c, const plan_step *s, const args_attention *args,
                              int ith) {
    attn_layer a = attn_describe(c, s, args, true);
    bool any_split = false;
    for (int i = 0; i < c->ubatch.n_items; i++)
        any_split = any_split || split_count(&a, &c->ubatch.items[i]) > 1;
    run_tasks(c, &a, ith);
    if (!any_split) return;
    pool_barrier(c->pool);
    int64_t total = (int64_t)c->ubatch.n_tokens * a.n_head;
    for (int64_t i; (i = pool_take(c->pool, 1)) < total;)
        merge_head(c, &a, i / a.n_head, (int)(i % a.n_head));
}
