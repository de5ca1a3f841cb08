/* avx512_amx.h: the tile unit (AMX-BF16). Tile registers have 16 rows of 64 bytes; a product
 * multiplies 16 rows of 32 bfloat16 by 16 columns of 32 bfloat16 and adds the result to 16 by 16
 * floats, in 16 cycles.
 *
 * Registers: 0 and 1 hold a step (32 elements) of two first factors, [16 rows][32]; 2 and 3 of two
 * second factors, [16 pairs of elements][16 columns][2]; 4 + 2 i + j holds sums of first factor i
 * and second factor j. Register numbers are part of the instructions. */
#ifndef CPU_AVX512_AMX_H
#define CPU_AVX512_AMX_H

#include <immintrin.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "act.h"
#include "simd.h"

#if defined(_WIN32) && !defined(__clang__)
/* In GCC's macros the stride is a long, which is half as long as an index register there. */
#undef _tile_loadd
#define _tile_loadd(tile, base, stride)                                                            \
    __asm__ volatile("tileloadd\t(%0,%1,1), %%tmm" #tile ::"r"((const void *)(base)),              \
                     "r"((int64_t)(stride)))
#undef _tile_stored
#define _tile_stored(tile, base, stride)                                                           \
    __asm__ volatile("tilestored\t%%tmm" #tile ", (%0,%1,1)" ::"r"((void *)(base)),                \
                     "r"((int64_t)(stride))                                                        \
                     : "memory")
#endif

enum { AMX_ROWS = 16, AMX_DEPTH = 32, AMX_STEP_BYTES = AMX_ROWS * 64 };
_Static_assert(ACT_SPLIT == (int)AMX_DEPTH && ACT_SPLIT_BYTES == (int)AMX_STEP_BYTES,
               "a part is a step");

typedef struct amx_config { /* layout of LDTILECFG's operand: Intel SDM volume 1, 18.3 */
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} amx_config;
_Static_assert(sizeof(amx_config) == 64, "LDTILECFG");

static void amx_open(void) {
    amx_config c = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        c.rows[i] = 16;
        c.row_bytes[i] = 64;
    }
    _tile_loadconfig(&c);
}

/* Adds n steps of a0 and a1 times x0, and with `two` also times x1: sums 4 and 6, also 5 and 7. */
SIMD_INLINE void amx_multiply(const void *a0, const void *a1, const void *x0, const void *x1,
                              const bool two, int64_t n) {
    for (; n > 0; n--) {
        _tile_loadd(0, a0, 64);
        _tile_loadd(2, x0, 64);
        _tile_dpbf16ps(4, 0, 2);
        _tile_loadd(1, a1, 64);
        _tile_dpbf16ps(6, 1, 2);
        a0 = (const char *)a0 + AMX_STEP_BYTES;
        a1 = (const char *)a1 + AMX_STEP_BYTES;
        x0 = (const char *)x0 + AMX_STEP_BYTES;
        if (!two) continue;
        _tile_loadd(3, x1, 64);
        _tile_dpbf16ps(5, 0, 3);
        _tile_dpbf16ps(7, 1, 3);
        x1 = (const char *)x1 + AMX_STEP_BYTES;
    }
}

/* Like amx_multiply for factors split in two parts, with the steps of the high part first: computes
 * all products of parts except low times low. */
SIMD_INLINE void amx_multiply_split(const void *a0, const void *a1, const void *x0, const void *x1,
                                    const bool two, int64_t n) {
#define AMX_ADVANCE(p, step) (p) = (const char *)(p) + (step)*AMX_STEP_BYTES
    for (; n > 0; n--) {
        _tile_loadd(0, (const char *)a0 + AMX_STEP_BYTES, 64);
        _tile_loadd(2, x0, 64);
        _tile_dpbf16ps(4, 0, 2);
        _tile_loadd(1, (const char *)a1 + AMX_STEP_BYTES, 64);
        _tile_dpbf16ps(6, 1, 2);
        if (two) {
            _tile_loadd(3, x1, 64);
            _tile_dpbf16ps(5, 0, 3);
            _tile_dpbf16ps(7, 1, 3);
        }
        _tile_loadd(0, a0, 64);
        _tile_dpbf16ps(4, 0, 2);
        _tile_loadd(1, a1, 64);
        _tile_dpbf16ps(6, 1, 2);
        if (two) {
            _tile_dpbf16ps(5, 0, 3);
            _tile_dpbf16ps(7, 1, 3);
            _tile_loadd(3, (const char *)x1 + AMX_STEP_BYTES, 64);
        }
        _tile_loadd(2, (const char *)x0 + AMX_STEP_BYTES, 64);
        _tile_dpbf16ps(4, 0, 2);
        _tile_dpbf16ps(6, 1, 2);
        if (two) {
            _tile_dpbf16ps(5, 0, 3);
            _tile_dpbf16ps(7, 1, 3);
            AMX_ADVANCE(x1, 2);
        }
        AMX_ADVANCE(a0, 2);
        AMX_ADVANCE(a1, 2);
        AMX_ADVANCE(x0, 2);
    }
#undef AMX_ADVANCE
}

/* instruction(4) to instruction(7). */
#define AMX_SUMS(sums, instruction)                                                                \
    if ((sums) == 4)                                                                               \
        instruction(4);                                                                            \
    else if ((sums) == 5)                                                                          \
        instruction(5);                                                                            \
    else if ((sums) == 6)                                                                          \
        instruction(6);                                                                            \
    else                                                                                           \
        instruction(7)

SIMD_INLINE void amx_zero(const int sums) {
    AMX_SUMS(sums, _tile_zero);
}

SIMD_INLINE void amx_load(const int sums, const float *from, int64_t stride) {
#define AMX_LOAD(n) _tile_loadd(n, from, (size_t)stride * sizeof *from)
    AMX_SUMS(sums, AMX_LOAD);
#undef AMX_LOAD
}

SIMD_INLINE void amx_store(const int sums, float *to, int64_t stride) {
#define AMX_STORE(n) _tile_stored(n, to, (size_t)stride * sizeof *to)
    AMX_SUMS(sums, AMX_STORE);
#undef AMX_STORE
}

/* Destination of 16 outputs of 16 columns: y[column][output]; some may not exist. `first`, `last`:
 * the products are the first, or the last, to be added there. */
typedef struct amx_place {
    float *y;
    int64_t ldy;
    int n_outputs, n_cols;
    bool first, last;
} amx_place;

/* The place from output j and column c on, of n_outputs and n_cols. */
SIMD_INLINE amx_place amx_place_at(float *y, int64_t ldy, int64_t j, int64_t n_outputs, int64_t c,
                                   int64_t n_cols, bool first, bool last) {
    const int64_t outputs = n_outputs - j, cols = n_cols - c;
    return (amx_place){.y = y + c * ldy + j,
                       .ldy = ldy,
                       .n_outputs = outputs < AMX_ROWS ? (int)outputs : AMX_ROWS,
                       .n_cols = cols < AMX_ROWS ? (int)cols : AMX_ROWS,
                       .first = first,
                       .last = last};
}

SIMD_INLINE bool amx_is_there(const amx_place *p) {
    return p->n_outputs > 0 && p->n_cols > 0;
}

/* Whether y has room for all sums. */
SIMD_INLINE bool amx_is_whole(const amx_place *p) {
    return p->n_outputs == AMX_ROWS && p->n_cols == AMX_ROWS;
}

SIMD_INLINE void amx_begin(const int sums, const amx_place *p) {
    if (p->first || !amx_is_whole(p))
        amx_zero(sums);
    else
        amx_load(sums, p->y, p->ldy);
}

/* Mask of the outputs that exist; below, stores a column's sums there, with `add` added to y. */
SIMD_INLINE __mmask16 amx_mask(const amx_place *p) {
    return (__mmask16)((1u << p->n_outputs) - 1);
}
SIMD_INLINE void amx_put(float *y, __mmask16 there, __m512 sum, bool add) {
    if (add) sum = _mm512_add_ps(_mm512_maskz_loadu_ps(there, y), sum);
    _mm512_mask_storeu_ps(y, there, sum);
}

/* Called with sums that are complete, or that do not fit into y; counterpart of amx_begin. */
typedef void amx_end(const int sums, const amx_place *p);

/* Adds n steps of a[i] times x[k] to p[i][k], for i = 0 and 1, and k = 0, with `two` also k = 1;
 * with `split` in two parts. */
SIMD_INLINE void amx_product_of(const void *const a[2], const void *const x[2], const bool two,
                                const bool split, int64_t n, const amx_place p[2][2],
                                amx_end *end) {
    const bool both = amx_is_there(&p[1][0]); /* otherwise the first place is used twice */
    amx_begin(4, &p[0][0]);
    if (both) amx_begin(6, &p[1][0]);
    if (two) amx_begin(5, &p[0][1]);
    if (two && both) amx_begin(7, &p[1][1]);
    (split ? amx_multiply_split : amx_multiply)(a[0], both ? a[1] : a[0], x[0], x[1], two, n);
    end(4, &p[0][0]);
    if (both) end(6, &p[1][0]);
    if (two) end(5, &p[0][1]);
    if (two && both) end(7, &p[1][1]);
}

/* Like amx_product_of; the second factor of either pair may be absent. */
SIMD_INLINE void amx_products(const void *const a[2], const void *const x[2], const bool split,
                              int64_t n, const amx_place p[2][2], amx_end *end) {
    if (amx_is_there(&p[0][1]))
        amx_product_of(a, x, true, split, n, p, end);
    else
        amx_product_of(a, x, false, split, n, p, end);
}

#endif
