/* model_delta.c: older files of Qwen3-Next have queries, keys, values and gates of the delta rule
 * in one matrix, ordered by key head. This file splits it into the two matrices of newer files.
 * Rows of one kind are not equally spaced in the fused matrix, so they are copied. */
#include "model_delta.h"

#include <string.h>

#include "arena.h"

enum { MATRIX_ALIGN = 64 };

static model_tensor part_of(const model_tensor *whole, int64_t n_out, uint8_t *data) {
    model_tensor part = *whole;
    part.data = data;
    part.n_out = n_out;
    part.n_bytes = (size_t)n_out * whole->row_bytes;
    return part;
}

pi_status model_bind_delta(model *m, int layer, pi_error *err) {
    const model_hparams *hp = &m->hp;
    model_tensor *t = m->layers[layer].t, *whole = &t[ROLE_SSM_QKVZ];
    if (!whole->data) return PI_OK;
    uint8_t *memory = arena_alloc(&m->arena, whole->n_bytes + MATRIX_ALIGN);
    if (!memory) return error_nomem(err, whole->n_bytes, "queries, keys and values in one");
    memory += (MATRIX_ALIGN - (uintptr_t)memory % MATRIX_ALIGN) % MATRIX_ALIGN;
    const int64_t keys = hp->n_state, values = hp->n_inner / hp->n_ssm_group;
    /* rows of a key head: query, key, values, gates; destinations of the first head's rows */
    const int64_t n[] = {keys, keys, values, values};
    const int64_t to[] = {0, keys * hp->n_ssm_group, 2 * keys * hp->n_ssm_group, hp->n_conv};
    const uint8_t *from = whole->data;
    for (int64_t head = 0; head < hp->n_ssm_group; head++)
        for (int i = 0; i < 4; i++) {
            const size_t n_bytes = (size_t)n[i] * whole->row_bytes;
            memcpy(memory + (size_t)(to[i] + head * n[i]) * whole->row_bytes, from, n_bytes);
            from += n_bytes;
        }
    t[ROLE_SSM_IN] = part_of(whole, hp->n_conv, memory);
    t[ROLE_SSM_GATE] = part_of(whole, hp->n_inner, memory + t[ROLE_SSM_IN].n_bytes);
    *whole = (model_tensor){0};
    return PI_OK;
}
