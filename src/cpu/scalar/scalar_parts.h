/* scalar_parts.h: declarations shared by the files of the scalar tier. */
#ifndef CPU_SCALAR_PARTS_H
#define CPU_SCALAR_PARTS_H

#include "cpu.h"

/* Weights decoded at a time; a multiple of every format's block. */
enum { SCALAR_CHUNK = CPU_COL_TILE };

/* Elements k0 .. k0 + n - 1 of row r as floats. k0 is a multiple of SCALAR_CHUNK. */
static inline void scalar_weights(const cpu_mat *w, int64_t r, int64_t k0, int64_t n, float *out) {
    const quant_traits *t = quant_find((uint32_t)w->type);
    const char *row = (const char *)w->data + (size_t)r * w->row_bytes;
    t->dequantize(row + k0 / t->block_elems * t->block_bytes, out, n);
}

/* Number of elements in the chunk at k0 of a range that ends at n. */
static inline int64_t scalar_chunk(int64_t k0, int64_t n) {
    return n - k0 < SCALAR_CHUNK ? n - k0 : SCALAR_CHUNK;
}

/* In scalar_act.c. */
void scalar_act_encode(const float *x, int64_t ldx, int64_t col0, int64_t col1, cpu_act *out);
/* In scalar_attn.c. */
void scalar_attention(const cpu_attn *a);
void scalar_kv_store(const float *x, void *dst, quant_type type, int64_t n);

#endif
