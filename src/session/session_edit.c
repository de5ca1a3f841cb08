/* session_edit.c: copying a session, and removing tokens from it (context shift).
 *
 * A key in the cache is rotated by its position. When a token moves to a position lower by `gap`,
 * its keys are rotated back by gap times the frequencies: rotations add up, and a factor that YaRN
 * put on the key stays on it. Values do not depend on the position. Later tokens are deliberately
 * not computed again: they keep the influence of the removed tokens. */
#include <math.h>
#include <string.h>

#include "mem.h"
#include "session.h"

/* ---- copying --------------------------------------------------------------------------------- */

static void copy_layer(pi_session *to, const pi_session *from, int layer, size_t n) {
    const kv_layer *l = &to->kv.layers[layer];
    for (int32_t i = 0; i < kv_layer_pieces(l); i++) {
        const kv_piece p = kv_layer_piece(l, i);
        memcpy(kv_cache_row(&to->kv, layer, p.part, p.head, 0),
               kv_cache_row(&from->kv, layer, p.part, p.head, 0),
               n / (size_t)l->per[p.part] * l->row[p.part]);
    }
}

static pi_status check_copy(const pi_session *to, const pi_session *from, int64_t length,
                            pi_error *err) {
    if (to->host != from->host)
        return error_set(err, PI_ERR_ARG,
                         "cannot copy: sessions of two contexts: save the session and load it");
    if (length < 0 || length > from->length)
        return error_set(err, PI_ERR_RANGE, "cannot copy: %lld tokens: the session has %lld",
                         (long long)length, (long long)from->length);
    if (length > to->kv.n_ctx)
        return error_set(err, PI_ERR_LIMIT,
                         "cannot copy: %lld tokens: the other session has room for %lld",
                         (long long)length, (long long)to->kv.n_ctx);
    const rope_frequencies *rope = to->host->rope;
    bool differ = rope_frequencies_of(rope, to->kv.n_ctx, ROPE_SET_GLOBAL) !=
                  rope_frequencies_of(rope, from->kv.n_ctx, ROPE_SET_GLOBAL);
    if (differ && to->host->model->t[ROLE_ROPE_LONG].data)
        return error_set(err, PI_ERR_UNSUPPORTED,
                         "cannot copy: LongRoPE: one session is longer than the model's original "
                         "context and the other is not");
    if (recurrent_point(&from->state, length) != length)
        return error_set(err, PI_ERR_UNSUPPORTED,
                         "cannot copy: %lld tokens: recurrent layers have no snapshot there; the "
                         "nearest one before is at %lld",
                         (long long)length, (long long)recurrent_point(&from->state, length));
    return to->host->check(to->context, "copy", err);
}

static pi_status copy_state(pi_session *to, const pi_session *from, int64_t length, pi_error *err) {
    const float *old = recurrent_at(&from->state, length);
    float *state = recurrent_replace(&to->state, length);
    if (!state) return PI_OK;
    pi_status status = from->host->gpus->read_state(from, old, err);
    memcpy(state, old, (size_t)to->state.n_floats * sizeof *state);
    if (status == PI_OK) status = to->host->gpus->write_state(to, state, err);
    return status;
}

pi_status session_copy(pi_session *to, const pi_session *from, int64_t length, pi_error *err) {
    const session_ranks *ranks = to->host->ranks;
    pi_status status = check_copy(to, from, length, err);
    if (status == PI_OK && ranks) status = ranks->copy(to, from, length, err);
    if (status != PI_OK) return status;
    for (int i = 0; i < to->host->model->hp.n_layer && to != from; i++)
        if (!session_on_gpu(to, i) && to->kv.layers[i].held)
            copy_layer(to, from, i, (size_t)length);
    if (to == from)
        recurrent_rewind(&to->state, length);
    else
        status = copy_state(to, from, length, err);
    if (to != from && status == PI_OK) status = to->host->gpus->copy(to, from, length, err);
    if (to != from) session_keys_changed(to, 0);
    if (status != PI_OK) recurrent_rewind(&to->state, 0);
    to->length = status == PI_OK ? length : 0;
    if (to->tokens && to != from)
        memcpy(to->tokens, from->tokens, (size_t)to->length * sizeof *to->tokens);
    return status;
}

/* ---- removing -------------------------------------------------------------------------------- */

/* Positions [end, end + n) move to first = end - gap. */
typedef struct removal {
    pi_session *session;
    int64_t first, end, n;
    float *turn;   /* [ROPE_SETS][n_rot / 2][2]: cos, sin of the rotation by -gap */
    uint8_t *rows; /* copy of a GPU layer: [n][n_head_kv] keys or values; NULL: none */
    int64_t key_dim;
    float *key; /* [n_threads][key_dim] */
} removal;

/* Rotates contiguous keys of a layer. */
static void turn_keys(const removal *r, int layer, kv_part part, uint8_t *keys, int64_t n,
                      float *key) {
    const session_host *h = r->session->host;
    const kv_cache *kv = &r->session->kv;
    const model_hparams *hp = &h->model->hp;
    rope_set set = h->model->layers[layer].hp.rope;
    int64_t head_dim = part == KV_INDEX ? hp->index_dim : h->model->layers[layer].hp.head_dim;
    int64_t at = part == KV_INDEX ? hp->index_rot_at : hp->rot_at;
    bool neox = (part == KV_INDEX ? hp->index_rope : hp->rope) == ROPE_NEOX;
    if (set == ROPE_SET_NONE || part == KV_VALUES) return;
    for (int64_t i = 0; i < n; i++, keys += kv->layers[layer].row[part]) {
        quant_find(kv->type_k)->dequantize(keys, key, head_dim);
        kv_rotate(h->kernels, kv->type_k, key, head_dim);
        h->kernels->rope(key + at, hp->n_rots[set], r->turn + (int64_t)set * hp->n_rot, neox);
        kv_rotate(h->kernels, kv->type_k, key, head_dim);
        h->kernels->kv_store(key, keys, kv->type_k, head_dim);
    }
}

/* Threads take pieces of layers that are in host memory. */
static void move_heads(void *arg, int ith, int nth) {
    const removal *r = arg;
    const session_host *h = r->session->host;
    const kv_cache *kv = &r->session->kv;
    (void)nth;
    int64_t before = 0; /* pieces of earlier layers */
    int64_t mine = pool_take(h->pool, 1);
    for (int layer = 0; layer < h->model->hp.n_layer; layer++) {
        const kv_layer *l = &kv->layers[layer];
        bool here = l->held && !session_on_gpu(r->session, layer);
        int64_t n_pieces = here ? kv_layer_pieces(l) : 0;
        for (; mine < before + n_pieces; mine = pool_take(h->pool, 1)) {
            const kv_piece p = kv_layer_piece(l, (int32_t)(mine - before));
            uint8_t *rows = kv_cache_row(kv, layer, p.part, p.head, r->first);
            memmove(rows, kv_cache_row(kv, layer, p.part, p.head, r->end),
                    (size_t)r->n * l->row[p.part]);
            turn_keys(r, layer, p.part, rows, r->n, r->key + ith * r->key_dim);
        }
        before += n_pieces;
    }
}

static pi_status move_device_layer(const removal *r, int layer, pi_error *err) {
    pi_session *s = r->session;
    const session_gpus *gpus = s->host->gpus;
    pi_status status = PI_OK;
    for (int i = 0; i < KV_PARTS && status == PI_OK; i++) {
        kv_range range = {.layer = layer, .part = (kv_part)i, .first = r->end, .n = r->n};
        int64_t rows = r->n * kv_layer_heads(&s->kv.layers[layer], range.part);
        if (rows == 0) continue;
        status = gpus->read(s, &range, r->rows, err);
        if (status != PI_OK) break;
        turn_keys(r, layer, range.part, r->rows, rows, r->key);
        range.first = r->first;
        status = gpus->write(s, &range, r->rows, err);
    }
    return status;
}

static pi_status allocate(removal *r, pi_error *err) {
    const session_host *h = r->session->host;
    const model_hparams *hp = &h->model->hp;
    r->key_dim = hp->index_dim > hp->head_dim ? hp->index_dim : hp->head_dim;
    const kv_cache *kv = &r->session->kv;
    int64_t heads = 0;
    for (int i = 0; i < hp->n_layer; i++)
        if (session_on_gpu(r->session, i) && h->model->layers[i].hp.n_head_kv > heads)
            heads = h->model->layers[i].hp.n_head_kv;
    size_t row = 0;
    for (int i = 0; i < hp->n_layer; i++)
        for (int part = 0; part < KV_PARTS; part++)
            if (kv->layers[i].row[part] > row) row = kv->layers[i].row[part];
    size_t n_floats = ROPE_SETS * (size_t)hp->n_rot +
                      (size_t)pool_size(h->pool) * (size_t)r->key_dim;
    size_t n_bytes = n_floats * sizeof(float) + (size_t)(heads * r->n) * row;
    r->turn = mem_alloc(n_bytes);
    if (!r->turn) return error_nomem(err, n_bytes, "moving tokens of a session");
    r->key = r->turn + ROPE_SETS * hp->n_rot;
    r->rows = (uint8_t *)(r->turn + n_floats);
    for (int set = 0; set < ROPE_SETS; set++) {
        const float *inv_freq = rope_frequencies_of(h->rope, kv->n_ctx, (rope_set)set);
        float *turn = r->turn + set * hp->n_rot;
        for (int i = 0; i < hp->n_rots[set] / 2; i++) {
            double angle = -(double)(r->end - r->first) * (double)inv_freq[i];
            turn[2 * i] = (float)cos(angle);
            turn[2 * i + 1] = (float)sin(angle);
        }
    }
    return PI_OK;
}

/* Keys that were normed with weights after RoPE cannot be rotated back. With windows that are fixed
 * ranges, a token's position decides which tokens it attends to. */
static bool cannot_move(const model *m) {
    bool late = m->arch->has & ARCH_QK_NORM_LATE && m->layers[0].t[ROLE_ATTN_K_NORM].data;
    return late || m->arch->has & ARCH_CHUNKS;
}

static pi_status check_remove(const pi_session *s, int64_t first, int64_t end, pi_error *err) {
    if (first < 0 || first > end || end > s->length)
        return error_set(err, PI_ERR_RANGE,
                         "cannot remove: tokens %lld to %lld: the session has %lld",
                         (long long)first, (long long)end, (long long)s->length);
    if (s->host->model->hp.n_pos && first < end && end < s->length)
        return error_set(err, PI_ERR_UNSUPPORTED,
                         "cannot remove: tokens %lld to %lld of %lld: a model with learned "
                         "positions cannot move the later ones; rewind and evaluate them again",
                         (long long)first, (long long)end, (long long)s->length);
    if (cannot_move(s->host->model) && first < end && end < s->length)
        return error_set(
            err, PI_ERR_UNSUPPORTED,
            "cannot remove: tokens %lld to %lld of %lld: keys of this architecture "
            "cannot move to other positions; rewind and evaluate the later tokens again",
            (long long)first, (long long)end, (long long)s->length);
    if (first < end && s->state.n_floats &&
        (end < s->length || session_rewind_point(s, first) != first))
        return error_set(err, PI_ERR_UNSUPPORTED,
                         "cannot remove: tokens %lld to %lld of %lld: recurrent layers cannot "
                         "remove tokens; rewind to %lld and evaluate the later tokens again",
                         (long long)first, (long long)end, (long long)s->length,
                         (long long)session_rewind_point(s, first));
    return s->host->check(s->context, "remove", err);
}

pi_status session_remove(pi_session *s, int64_t first, int64_t end, pi_error *err) {
    const session_host *h = s->host;
    pi_status status = check_remove(s, first, end < 0 ? s->length : end, err);
    if (end < 0) end = s->length;
    if (status == PI_OK && h->ranks) status = h->ranks->remove(s, first, end, err);
    if (status != PI_OK) return status;
    removal r = {.session = s, .first = first, .end = end, .n = s->length - end};
    if (r.n > 0 && first < end) {
        status = allocate(&r, err);
        if (status != PI_OK) return status;
        pool_run(h->pool, h->n_threads, move_heads, &r);
        for (int i = 0; i < h->model->hp.n_layer && status == PI_OK; i++)
            if (session_on_gpu(s, i)) status = move_device_layer(&r, i, err);
        mem_free(r.turn);
    }
    session_keys_changed(s, first);
    s->length = status == PI_OK ? first + r.n : 0; /* a partly moved cache is invalid */
    recurrent_rewind(&s->state, s->length);
    if (s->tokens && status == PI_OK)
        memmove(s->tokens + first, s->tokens + end, (size_t)r.n * sizeof *s->tokens);
    return status;
}
