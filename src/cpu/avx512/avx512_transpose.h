/* avx512_transpose.h: a 16 x 16 transpose of 32-bit elements in registers. It interleaves rows for
 * matmul's tiles and vectors for panels. */
#ifndef CPU_AVX512_TRANSPOSE_H
#define CPU_AVX512_TRANSPOSE_H

#include <immintrin.h>

/* v[i][j] becomes v[j][i]. Pairs, then fours within 128-bit lanes, then the lanes themselves. */
static inline __attribute__((always_inline)) void avx512_transpose16(__m512i v[16]) {
    __m512i t[16];
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        v[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        v[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        v[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        v[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    /* v[4 a + b], lane l: rows 4a..4a+3 of column 4 l + b */
    for (int b = 0; b < 4; b++) {
        __m512i even0 = _mm512_shuffle_i32x4(v[b], v[4 + b], 0x88);
        __m512i odd0 = _mm512_shuffle_i32x4(v[b], v[4 + b], 0xdd);
        __m512i even1 = _mm512_shuffle_i32x4(v[8 + b], v[12 + b], 0x88);
        __m512i odd1 = _mm512_shuffle_i32x4(v[8 + b], v[12 + b], 0xdd);
        t[b] = _mm512_shuffle_i32x4(even0, even1, 0x88);
        t[8 + b] = _mm512_shuffle_i32x4(even0, even1, 0xdd);
        t[4 + b] = _mm512_shuffle_i32x4(odd0, odd1, 0x88);
        t[12 + b] = _mm512_shuffle_i32x4(odd0, odd1, 0xdd);
    }
    for (int i = 0; i < 16; i++) v[i] = t[i];
}

#endif
