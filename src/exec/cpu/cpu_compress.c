/* cpu_compress.c: steps of attention with compressed keys (plan_attention.c). Each element of a key
 * is a softmax-weighted sum over positions. Its state (maximum, sum of weights, weighted sum) is
 * updated token by token. A session keeps the states of the incomplete key and, if keys overlap,
 * those of the next key, to which the same tokens contribute. Index keys of Qwen4 are means. */
#include <math.h>
#include <string.h>

#include "cpu_exec.h"

enum { ELEMENTS = 64 }; /* of a key, per piece of work */

/* Softmax states of some elements of one key. */
typedef struct partial {
    float m[ELEMENTS], l[ELEMENTS], sum[ELEMENTS];
} partial;

static void clear(partial *p) {
    for (int i = 0; i < ELEMENTS; i++) {
        p->m[i] = -INFINITY;
        p->l[i] = p->sum[i] = 0;
    }
}

/* Adds a value with weight 1: the key is a mean. */
static void add_evenly(partial *p, const float *value, int n) {
    for (int i = 0; i < n; i++) {
        p->l[i] += 1;
        p->sum[i] += value[i];
    }
}

static void add_token(partial *p, const float *value, const float *score, const float *position,
                      int n) {
    for (int i = 0; i < n; i++) {
        const float s = score[i] + position[i], m = fmaxf(p->m[i], s);
        const float old = expf(p->m[i] - m), now = expf(s - m);
        p->m[i] = m;
        p->l[i] = p->l[i] * old + now;
        p->sum[i] = p->sum[i] * old + now * value[i];
    }
}

/* Elements [first, first + n) of the keys, or index keys, of an item. */
typedef struct piece {
    const args_compress *a;
    const struct plan_compressed *of;
    const ubatch_item *item;
    int64_t first;
    int n;
} piece;

/* [n_parts][3][dim]: the key that is not complete, then the next one. */
static void move_state(const piece *k, partial *parts, const float *from, float *to) {
    for (int part = 0; part < k->a->n_parts; part++) {
        float *const here[3] = {parts[part].m, parts[part].l, parts[part].sum};
        for (int i = 0; i < 3; i++) {
            const int64_t at = k->of->state + (3 * part + i) * k->of->dim + k->first;
            if (from) memcpy(here[i], from + at, (size_t)k->n * sizeof(float));
            if (to) memcpy(to + at, here[i], (size_t)k->n * sizeof(float));
        }
    }
}

/* Adds the item's tokens. The elements of a key that a token completes replace the token's first
 * part. */
static void run_piece(cpu_exec *c, const piece *k) {
    const args_compress *a = k->a;
    const int64_t width = a->n_parts * k->of->dim; /* of a token's parts, and of their scores */
    partial parts[2];
    for (int i = 0; i < a->n_parts; i++) clear(&parts[i]);
    if (k->item->state_from) move_state(k, parts, k->item->state_from, NULL);
    for (int t = 0; t < k->item->n_tokens; t++) {
        if (k->item->state_before && t == k->item->n_before)
            move_state(k, parts, NULL, k->item->state_before);
        const int64_t at = (k->item->pos + t) % a->ratio;
        float *x = cpu_exec_row(c, BUF_COMPRESS, k->item->row + t) + k->of->at + k->first;
        if (!k->of->positions) add_evenly(&parts[0], x, k->n);
        /* with two parts the first belongs to the next key */
        for (int i = 0; i < a->n_parts && k->of->positions; i++) {
            const float *position = k->of->positions + at * width + k->first;
            const int64_t part = i * k->of->dim;
            add_token(&parts[a->n_parts - 1 - i], x + part, x + width + part, position + part,
                      k->n);
        }
        if (at < a->ratio - 1) continue;
        for (int i = 0; i < k->n; i++) x[i] = parts[0].sum[i] / parts[0].l[i];
        parts[0] = parts[a->n_parts - 1];
        clear(&parts[a->n_parts - 1]);
    }
    move_state(k, parts, NULL, k->item->state_to);
}

/* Stores a completed key, rotated by the position of its first token. */
static void store_key(cpu_exec *c, const plan_step *s, const args_compress *a, int kind,
                      int64_t row, float *cs) {
    const model_hparams *hp = &c->model->hp;
    const struct plan_compressed *of = &a->of[kind];
    const kv_cache *kv = &c->ubatch.item_of_row[row]->session->kv;
    const int64_t pos = c->ubatch.positions[row];
    const float *frequencies = rope_frequencies_of(&c->rope, kv->n_ctx, a->set);
    const float scale = model_scales_rope(c->model, a->set) ? c->rope.angle_scale : 1;
    float *x = cpu_exec_row(c, BUF_COMPRESS, row) + of->at;
    for (int k = 0; k < hp->n_rot / 2; k++) {
        const double angle = (double)(pos + 1 - a->ratio) * (double)frequencies[k];
        cs[2 * k] = (float)cos(angle) * scale;
        cs[2 * k + 1] = (float)sin(angle) * scale;
    }
    c->kernels.rms_norm(x, of->norm, x, of->dim, hp->norm_eps);
    c->kernels.rope(x + of->rot_at, hp->n_rot, cs, a->neox);
    kv_rotate(&c->kernels, kv->type_k, x, of->dim);
    uint8_t *to = kv_cache_row(kv, s->layer, kind == 0 ? KV_COMPRESSED : KV_INDEX, 0,
                               pos / a->ratio);
    c->kernels.kv_store(x, to, kv->type_k, of->dim);
}

void cpu_exec_compress(cpu_exec *c, const plan_step *s, const args_compress *a, int ith) {
    const int n_kinds = a->of[1].dim > 0 ? 2 : 1;
    int64_t pieces[2] = {(a->of[0].dim + ELEMENTS - 1) / ELEMENTS,
                         (a->of[1].dim + ELEMENTS - 1) / ELEMENTS};
    const int64_t per_item = pieces[0] + pieces[1];
    for (int64_t i; (i = pool_take(c->pool, 1)) < per_item * c->ubatch.n_items;) {
        int64_t index = i % per_item, kind = index >= pieces[0];
        piece k = {.a = a, .of = &a->of[kind], .item = &c->ubatch.items[i / per_item]};
        k.first = (index - kind * pieces[0]) * ELEMENTS;
        k.n = (int)(k.of->dim - k.first < ELEMENTS ? k.of->dim - k.first : ELEMENTS);
        run_piece(c, &k);
    }
    pool_barrier(c->pool);
    for (int64_t i; (i = pool_take(c->pool, 1)) < (int64_t)n_kinds * c->ubatch.n_tokens;) {
        const int64_t row = i / n_kinds;
        const int kind = (int)(i % n_kinds);
        if (a->of[kind].dim > 0 && (c->ubatch.positions[row] + 1) % a->ratio == 0)
            store_key(c, s, a, kind, row, c->scratch[ith].acc /* [n_rot] */);
    }
}

void cpu_exec_rope_back(cpu_exec *c, const plan_step *s, const args_rope *a) {
    const model_hparams *hp = &c->model->hp;
    const int n_head = c->model->layers[s->layer].hp.n_head;
    for (int64_t i; (i = pool_take(c->pool, 1)) < (int64_t)c->ubatch.n_tokens * n_head;) {
        const int64_t row = i / n_head;
        const float *cs = c->angles + (row * ROPE_SETS + (int64_t)a->set) * hp->n_rot;
        float back[MODEL_MAX_HEAD_DIM];
        for (int k = 0; k < hp->n_rot / 2; k++) {
            back[2 * k] = cs[2 * k];
            back[2 * k + 1] = -cs[2 * k + 1];
        }
        float *x = cpu_exec_row(c, s->in, row) + i % n_head * a->q_stride;
        c->kernels.rope(x + a->rot_at, hp->n_rot, back, a->neox);
    }
}
