/* gpu_kv.c: the part of a session's KV cache that is on the GPU, followed by its part of the
 * recurrent state, with as many slots as on the host, which manages them (recurrent_state.h). */
#include "gpu_exec_impl.h"
#include "mem.h"

enum { STATE_ALIGN = 256 };

/* The bytes of the cache, and in *n_all of cache and state; false if they overflow. */
static bool sizes(const gpu_exec *g, int64_t n_ctx, size_t *n_cache, size_t *n_all) {
    size_t state = RECURRENT_SLOTS * (size_t)g->n_state * sizeof(float);
    if (!size_mul(g->kv_per_position, (size_t)n_ctx, n_cache)) return false;
    if (!size_add(*n_cache, g->scores_bytes, n_cache)) return false; /* for a partial last block */
    if (!size_add(*n_cache, g->lists_bytes, n_cache)) return false;
    if (state > 0 && !size_align(*n_cache, STATE_ALIGN, n_cache)) return false;
    return size_add(*n_cache, state, n_all);
}

uint64_t gpu_exec_kv_bytes(const gpu_exec *g, int64_t n_ctx) {
    size_t n_cache, n_all;
    return sizes(g, n_ctx, &n_cache, &n_all) ? n_all : UINT64_MAX / 2;
}

pi_status gpu_exec_kv_create(gpu_exec *g, int64_t n_ctx, void **out, pi_error *err) {
    size_t n_cache, n_all;
    *out = NULL;
    if (g->kv_per_position == 0 && g->n_state == 0) return PI_OK;
    if (!sizes(g, n_ctx, &n_cache, &n_all))
        return error_set(err, PI_ERR_NOMEM, "out of GPU memory: KV cache: use a smaller context");
    return g->b->alloc(g->d, n_all, "the KV cache", out, err);
}

static uint8_t *kv_rows(const gpu_exec *g, const pi_session *s, int layer, kv_part part,
                        size_t *row) {
    const bool values = part == KV_VALUES;
    for (int i = 0; i < g->plan->n_gpu_steps; i++) {
        const plan_step *t = &g->plan->gpu_steps[i];
        bool stores = part == KV_INDEX        ? t->op == OP_INDEX_STORE
                      : part == KV_COMPRESSED ? t->op == OP_COMPRESS
                                              : t->op == OP_ROPE_STORE || t->op == OP_LATENT_STORE;
        if (!stores || t->layer != layer) continue;
        const gpu_kv_layout *kv = part == KV_COMPRESSED ? &g->steps[i].compressed : &g->steps[i].kv;
        *row = values ? kv->v_row : kv->k_row;
        return (uint8_t *)s->device_kv[gpu_exec_device(g)] +
               (size_t)s->kv.n_ctx * (values ? kv->v_offset : kv->k_offset);
    }
    *row = 0;
    return NULL;
}

pi_status gpu_exec_kv_read(gpu_exec *g, const pi_session *s, int layer, kv_part part, int64_t first,
                           int64_t n, void *out, pi_error *err) {
    size_t row;
    const uint8_t *from = kv_rows(g, s, layer, part, &row);
    if (row == 0) return PI_OK;
    g->b->download(g->stream, out, from + (size_t)first * row, (size_t)n * row);
    return g->b->stream_sync(g->stream, err);
}

pi_status gpu_exec_kv_write(gpu_exec *g, pi_session *s, int layer, kv_part part, int64_t first,
                            int64_t n, const void *from, pi_error *err) {
    size_t row;
    uint8_t *to = kv_rows(g, s, layer, part, &row);
    if (row == 0) return PI_OK;
    g->b->upload(g->stream, to + (size_t)first * row, from, (size_t)n * row);
    return g->b->stream_sync(g->stream, err);
}

pi_status gpu_exec_kv_copy(gpu_exec *g, pi_session *to, const pi_session *from, int64_t n,
                           pi_error *err) {
    for (int layer = 0; layer < g->model->hp.n_layer; layer++) {
        for (int part = 0; part < KV_PARTS; part++) {
            const size_t rows = (size_t)(n / from->kv.layers[layer].per[part]);
            size_t row;
            uint8_t *there = kv_rows(g, to, layer, (kv_part)part, &row);
            const uint8_t *here = kv_rows(g, from, layer, (kv_part)part, &row);
            if (row) g->b->copy(g->stream, there, here, rows * row);
        }
    }
    return g->b->stream_sync(g->stream, err);
}

/* ---- recurrent state ------------------------------------------------------------------------- */

float *gpu_exec_state_at(const gpu_exec *g, const pi_session *s, const float *floats) {
    size_t n_cache, n_all;
    if (g->n_state == 0 || !floats || !sizes(g, s->kv.n_ctx, &n_cache, &n_all)) return NULL;
    int64_t slot = (floats - s->state.data) / s->state.n_floats;
    return (float *)(void *)((uint8_t *)s->device_kv[gpu_exec_device(g)] + n_cache) +
           slot * g->n_state;
}

/* Copies the state of all layers whose primary is the GPU, to the GPU or to the host. */
static pi_status copy_state(gpu_exec *g, const pi_session *s, const float *floats, bool to_gpu,
                            pi_error *err) {
    float *there = gpu_exec_state_at(g, s, floats);
    if (!there) return PI_OK;
    float *here = s->state.data + (floats - s->state.data);
    for (int i = 0; i < g->plan->n_gpu_steps; i++) {
        const plan_step *t = &g->plan->gpu_steps[i];
        if (t->op != OP_CONV && t->op != OP_COMPRESS) continue;
        const int64_t n = model_state(&g->model->hp, &g->model->layers[t->layer].hp);
        const int64_t at = t->op == OP_CONV ? STEP_ARGS(t, recurrent)->mixer->conv_at
                                            : STEP_ARGS(t, compress)->of[0].state;
        const size_t n_bytes = (size_t)n * sizeof *here;
        if (to_gpu)
            g->b->upload(g->stream, there + g->steps[i].state_at, here + at, n_bytes);
        else
            g->b->download(g->stream, here + at, there + g->steps[i].state_at, n_bytes);
    }
    return g->b->stream_sync(g->stream, err);
}

pi_status gpu_exec_state_read(gpu_exec *g, const pi_session *s, const float *floats,
                              pi_error *err) {
    return copy_state(g, s, floats, false, err);
}

pi_status gpu_exec_state_write(gpu_exec *g, const pi_session *s, const float *floats,
                               pi_error *err) {
    return copy_state(g, s, floats, true, err);
}
