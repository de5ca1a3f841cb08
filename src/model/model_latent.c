/* model_latent.c: the matrices of compressed attention (MLA). In newer files the matrix that
 * expands a latent vector to keys is transposed (attn_k_b) and separate from the one that expands
 * it to values (attn_v_b), as the engine multiplies them. Older files have both in one matrix,
 * attn_kv_b: per head the rows of keys, then the rows of values. */
#include "model_latent.h"

#include <string.h>

#include "mem.h"

static pi_status fail_missing(const model *m, tensor_role role, int layer, pi_error *err) {
    char name[64];
    arch_tensor_name(arch_tensor_of(m->arch, role), layer, name);
    return error_set(err, PI_ERR_FORMAT,
                     "missing tensor: %s: %s is not in the file; is it complete?",
                     gguf_path(m->file), name);
}

/* Allocates a matrix of `rows` rows in the arena. */
static pi_status allocate(model *m, quant_type type, int64_t n_in, int64_t rows, model_tensor *out,
                          pi_error *err) {
    *out = (model_tensor){.n_in = n_in, .n_out = rows, .scale = 1, .type = type};
    bool fits = quant_row_bytes(type, (uint64_t)n_in, &out->row_bytes) &&
                size_mul(out->row_bytes, (size_t)rows, &out->n_bytes);
    out->data = fits ? arena_alloc(&m->arena, out->n_bytes) : NULL;
    return out->data ? PI_OK : error_nomem(err, out->n_bytes, "matrices of attention heads");
}

/* Quantized rows cannot be transposed; 16-bit floats are precise enough for their values. */
static quant_type transposed_type(quant_type type) {
    return type == QUANT_F32 || type == QUANT_BF16 ? type : QUANT_F16;
}

/* k_b[head][j][i] = kv_b[head][i][j] for keys i < n_nope. row: [n_latent], column: [n_nope]. */
static void transpose_keys(const model_tensor *kv_b, int64_t n_head, int64_t n_nope,
                           const model_tensor *k_b, float *row) {
    int64_t per_head = kv_b->n_out / n_head, n_latent = kv_b->n_in;
    const quant_traits *from = quant_find(kv_b->type), *to = quant_find(k_b->type);
    size_t size = (size_t)to->block_bytes; /* of one element: types without blocks */
    for (int64_t i = 0; i < n_head * n_nope; i++) {
        int64_t head = i / n_nope, key = i % n_nope;
        const uint8_t *src = kv_b->data;
        from->dequantize(src + (size_t)(head * per_head + key) * kv_b->row_bytes, row, n_latent);
        uint8_t *dst = (uint8_t *)(uintptr_t)k_b->data +
                       (size_t)(head * n_latent) * k_b->row_bytes + (size_t)key * size;
        for (int64_t j = 0; j < n_latent; j++, dst += k_b->row_bytes)
            to->quantize(&row[j], dst, 1, NULL);
    }
}

static void copy_values(const model_tensor *kv_b, int64_t n_head, int64_t n_nope,
                        const model_tensor *v_b) {
    size_t values = v_b->n_bytes / (size_t)n_head, row = kv_b->row_bytes;
    size_t per_head = (size_t)(kv_b->n_out / n_head) * row;
    const uint8_t *src = (const uint8_t *)kv_b->data + (size_t)n_nope * row;
    uint8_t *dst = (uint8_t *)(uintptr_t)v_b->data;
    for (size_t h = 0; h < (size_t)n_head; h++)
        memcpy(dst + h * values, src + h * per_head, values);
}

static pi_status split(model *m, int layer, pi_error *err) {
    model_tensor *t = m->layers[layer].t, *kv_b = &t[ROLE_ATTN_KV_B];
    int64_t n_head = m->layers[layer].hp.n_head;
    int64_t n_nope = m->hp.q_dim - m->hp.n_rots[ROPE_SET_GLOBAL];
    pi_status status = allocate(m, transposed_type(kv_b->type), n_nope, n_head * m->hp.n_latent,
                                &t[ROLE_ATTN_K_B], err);
    if (status == PI_OK)
        status = allocate(m, kv_b->type, m->hp.n_latent, n_head * m->hp.v_dim, &t[ROLE_ATTN_V_B],
                          err);
    if (status != PI_OK) return status;
    float *row = mem_alloc((size_t)m->hp.n_latent * sizeof *row);
    if (!row) return error_nomem(err, (size_t)m->hp.n_latent * sizeof *row, "a row of a matrix");
    transpose_keys(kv_b, n_head, n_nope, &t[ROLE_ATTN_K_B], row);
    mem_free(row);
    copy_values(kv_b, n_head, n_nope, &t[ROLE_ATTN_V_B]);
    t[ROLE_ATTN_K_B].scale = t[ROLE_ATTN_V_B].scale = kv_b->scale;
    *kv_b = (model_tensor){0};
    return PI_OK;
}

pi_status model_bind_latent(model *m, int layer, pi_error *err) {
    static const tensor_role queries[] = {ROLE_ATTN_Q_A, ROLE_ATTN_Q_A_NORM, ROLE_ATTN_Q_B};
    model_tensor *t = m->layers[layer].t;
    for (int role = ROLE_INDEX_Q; role <= ROLE_INDEX_WEIGHTS && m->hp.index_sums; role++)
        if (!m->layers[layer].hp.index_own) t[role] = (model_tensor){0}; /* unused */
    if (m->hp.n_latent == 0 || !(m->layers[layer].hp.mixers & MIXER_ATTENTION)) return PI_OK;
    for (int i = 0; i < 3 && !t[ROLE_ATTN_Q].data; i++)
        if (!t[queries[i]].data) return fail_missing(m, queries[i], layer, err);
    if (t[ROLE_INDEX_Q].data && !t[ROLE_ATTN_Q_B].data)
        return fail_missing(m, ROLE_ATTN_Q_B, layer, err);
    return t[ROLE_ATTN_KV_B].data ? split(m, layer, err) : PI_OK;
}
