/* model_delta.c: matrices of recurrent layers whose rows come head by head. Older files of
 * Qwen3-Next have queries, keys, values and gates of the delta rule in one matrix, ordered by key
 * head, which is split into the two matrices of newer files; other architectures have all their
 * files like that. Rows of one kind are not equally spaced, so they are copied. */
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

/* Parts of a head's rows: their number, and the row that those of head 0 move to. */
typedef struct head_part {
    int64_t n, to;
} head_part;

/* A copy of the rows, which come head by head, in another order; NULL: no memory. */
static uint8_t *reorder(model *m, const model_tensor *whole, int64_t n_head, const head_part *parts,
                        int n_parts) {
    uint8_t *memory = arena_alloc(&m->arena, whole->n_bytes + MATRIX_ALIGN);
    if (!memory) return NULL;
    memory += (MATRIX_ALIGN - (uintptr_t)memory % MATRIX_ALIGN) % MATRIX_ALIGN;
    const uint8_t *from = whole->data;
    for (int64_t head = 0; head < n_head; head++)
        for (int i = 0; i < n_parts; i++) {
            const size_t n_bytes = (size_t)parts[i].n * whole->row_bytes;
            memcpy(memory + (size_t)(parts[i].to + head * parts[i].n) * whole->row_bytes, from,
                   n_bytes);
            from += n_bytes;
        }
    return memory;
}

/* Queries, keys, values and gates in one matrix. */
static pi_status split_qkvz(model *m, int layer, pi_error *err) {
    const model_hparams *hp = &m->hp;
    model_tensor *t = m->layers[layer].t, *whole = &t[ROLE_SSM_QKVZ];
    const int64_t keys = hp->n_state, values = hp->n_inner / hp->n_ssm_group;
    const head_part parts[] = {{keys, 0},
                               {keys, keys * hp->n_ssm_group},
                               {values, 2 * keys * hp->n_ssm_group},
                               {values, hp->n_conv}};
    uint8_t *memory = reorder(m, whole, hp->n_ssm_group, parts, 4);
    if (!memory) return error_nomem(err, whole->n_bytes, "queries, keys and values in one");
    t[ROLE_SSM_IN] = part_of(whole, hp->n_conv, memory);
    t[ROLE_SSM_GATE] = part_of(whole, hp->n_inner, memory + t[ROLE_SSM_IN].n_bytes);
    *whole = (model_tensor){0};
    return PI_OK;
}

pi_status model_bind_delta(model *m, int layer, pi_error *err) {
    const model_hparams *hp = &m->hp;
    model_tensor *t = m->layers[layer].t, *in = &t[ROLE_SSM_IN];
    if (t[ROLE_SSM_QKVZ].data) return split_qkvz(m, layer, err);
    if (!in->data || !m->arch->in_by_head) return PI_OK;
    const int64_t n = hp->n_inner / hp->n_ssm_head;
    const head_part gate_first[] = {{n, hp->n_inner}, {n, 0}};
    const head_part query_first[] = {{n, 2 * hp->n_inner}, {n, hp->n_inner}, {n, 0}};
    bool scan = m->layers[layer].hp.mixers & MIXER_SCAN;
    uint8_t *memory = reorder(m, in, hp->n_ssm_head, scan ? gate_first : query_first, scan ? 2 : 3);
    if (!memory) return error_nomem(err, in->n_bytes, "rows of a recurrent layer");
    in->data = memory;
    return PI_OK;
}
