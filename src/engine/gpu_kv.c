/* gpu_kv.c: the part of a session's KV cache that is on the GPU. */
#include "gpu_exec_impl.h"
#include "mem.h"

uint64_t gpu_exec_kv_bytes(const gpu_exec *g, int64_t n_ctx) {
    size_t n_bytes;
    return size_mul(g->kv_per_position, (size_t)n_ctx, &n_bytes) ? n_bytes : UINT64_MAX / 2;
}

pi_status gpu_exec_kv_create(gpu_exec *g, int64_t n_ctx, void **out, pi_error *err) {
    size_t n_bytes;
    *out = NULL;
    if (g->kv_per_position == 0) return PI_OK;
    if (!size_mul(g->kv_per_position, (size_t)n_ctx, &n_bytes))
        return error_set(err, PI_ERR_NOMEM, "out of GPU memory: KV cache: use a smaller context");
    return g->b->alloc(g->d, n_bytes, "the KV cache", out, err);
}

void gpu_exec_kv_destroy(gpu_exec *g, void *kv) {
    if (kv) g->b->free(g->d, kv);
}

static uint8_t *kv_rows(const gpu_exec *g, const engine_session *s, int layer, bool values,
                        size_t *row) {
    for (int i = 0; i < g->plan->n_gpu_steps; i++) {
        if (g->plan->gpu_steps[i].op != OP_ROPE_STORE || g->plan->gpu_steps[i].layer != layer)
            continue;
        const gpu_kv_layout *kv = &g->steps[i].kv;
        *row = values ? kv->v_row : kv->k_row;
        return (uint8_t *)s->device_kv +
               (size_t)s->kv.n_ctx * (values ? kv->v_offset : kv->k_offset);
    }
    *row = 0;
    return NULL;
}

pi_status gpu_exec_kv_read(gpu_exec *g, const engine_session *s, int layer, bool values,
                           int64_t first, int64_t n, void *out, pi_error *err) {
    size_t row;
    const uint8_t *from = kv_rows(g, s, layer, values, &row);
    g->b->download(g->stream, out, from + (size_t)first * row, (size_t)n * row);
    return g->b->stream_sync(g->stream, err);
}

pi_status gpu_exec_kv_write(gpu_exec *g, engine_session *s, int layer, bool values, int64_t first,
                            int64_t n, const void *from, pi_error *err) {
    size_t row;
    uint8_t *to = kv_rows(g, s, layer, values, &row);
    g->b->upload(g->stream, to + (size_t)first * row, from, (size_t)n * row);
    return g->b->stream_sync(g->stream, err);
}

pi_status gpu_exec_kv_copy(gpu_exec *g, engine_session *to, const engine_session *from, int64_t n,
                           pi_error *err) {
    for (int layer = 0; layer < g->model->hp.n_layer; layer++) {
        for (int values = 0; values < 2; values++) {
            size_t row;
            uint8_t *there = kv_rows(g, to, layer, values, &row);
            const uint8_t *here = kv_rows(g, from, layer, values, &row);
            if (row) g->b->copy(g->stream, there, here, (size_t)n * row);
        }
    }
    return g->b->stream_sync(g->stream, err);
}
