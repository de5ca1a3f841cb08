/* avx512_amx.h: the tile unit (AMX-BF16). Tile registers have 16 rows of 64 bytes; a product adds
 * 16 rows of 32 bfloat16 times 16 columns of them to 16 by 16 floats, in 16 cycles.
 *
 * Registers: 0 and 1 a step (32 elements) of two first factors, [16 rows][32]; 2 and 3 of two
 * second factors, [16 pairs of elements][16 columns][2]; 4 + 2 i + j sums of first factor i and
 * second factor j. Their numbers are part of the instructions. */
#ifndef CPU_AVX512_AMX_H
#define CPU_AVX512_AMX_H

#include <immintrin.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "simd.h"

enum { AMX_ROWS = 16, AMX_DEPTH = 32, AMX_STEP_BYTES = AMX_ROWS * 64 };

typedef struct amx_config { /* as LDTILECFG wants it: Intel SDM volume 1, 18.3 */
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

/* Adds n steps of a0 and a1 times x0, with `two` also times x1: sums 4 and 6, also 5 and 7. */
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

SIMD_INLINE void amx_zero(const int sums) {
    if (sums == 4)
        _tile_zero(4);
    else if (sums == 5)
        _tile_zero(5);
    else if (sums == 6)
        _tile_zero(6);
    else
        _tile_zero(7);
}

SIMD_INLINE void amx_load(const int sums, const float *from, int64_t stride) {
    const size_t bytes = (size_t)stride * sizeof *from;
    if (sums == 4)
        _tile_loadd(4, from, bytes);
    else if (sums == 5)
        _tile_loadd(5, from, bytes);
    else if (sums == 6)
        _tile_loadd(6, from, bytes);
    else
        _tile_loadd(7, from, bytes);
}

SIMD_INLINE void amx_store(const int sums, float *to, int64_t stride) {
    const size_t bytes = (size_t)stride * sizeof *to;
    if (sums == 4)
        _tile_stored(4, to, bytes);
    else if (sums == 5)
        _tile_stored(5, to, bytes);
    else if (sums == 6)
        _tile_stored(6, to, bytes);
    else
        _tile_stored(7, to, bytes);
}

#endif
