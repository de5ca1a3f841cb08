/* avx2_matmul.h: products of quantized rows with many vectors (prompts). A template: a file
 * includes it once, compiled with AVX-VNNI's dot products or without.
 *
 * The vectors of a tile hold the same four elements of 8 rows, to be multiplied with four broadcast
 * elements of a column; the innermost product is 8 rows x 4 columns. Tiles hold weights with their
 * offsets taken off; those for AVX-VNNI, which takes unsigned weights, hold them as they are, and
 * sums start from what the offsets come to. How blocks and panels are multiplied: tier_matmul.h. */
#ifndef CPU_AVX2_MATMUL_H
#define CPU_AVX2_MATMUL_H

#include "avx2_quants_k.h"

enum {
    MM_ROWS = 8,   /* of a tile */
    MM_TILES = 16, /* of a block: 128 rows */
    MM_K = 1024,
    MM_K_GROUPS = MM_K / CPU_ACT_GROUP,
    MM_COLS = 4 /* columns at once */
};

/* 32 elements of 8 rows, with scales and minima (if any) per 32 or per 16. */
typedef struct mm_group {
    __m256i q[8]; /* [8 rows][4 elements] */
    __m256 d[2], m[2];
} mm_group;

#include "tier_matmul.h"

#if defined(__AVXVNNI__)
enum { MM_DOTS_FOUR = 1 };
AVX2_INLINE __m256i mm_add(const q_format *f, __m256i sum, __m256i w, __m256i x) {
    (void)f;
    return _mm256_dpbusd_avx_epi32(sum, w, x);
}
#else
enum { MM_DOTS_FOUR = 0 };
AVX2_INLINE __m256i mm_add(const q_format *f, __m256i sum, __m256i w, __m256i x) {
    __m256i dot = q_dot16(w, x);
    return f->narrow ? _mm256_add_epi16(sum, dot) : _mm256_add_epi32(sum, q_widen(dot));
}
#endif

/* One chunk of 8 rows into 8 tile groups. */
AVX2_INLINE void mm_decode_chunk(const q_format *f, const uint8_t *const p[MM_ROWS],
                                 mm_group *tile) {
    const int n_sub = 32 / f->sub;
    for (int r = 0; r < MM_ROWS; r++) {
        q_scales s;
        f->scales(p[r], &s);
        for (int i = 0; i < n_sub; i++) {
            float d[Q_GROUPS], m[Q_GROUPS];
            _mm256_storeu_ps(d, s.d[i]);
            if (f->has_min) _mm256_storeu_ps(m, s.m[i]);
            for (int k = 0; k < Q_GROUPS; k++) {
                mm_group *to = tile + (n_sub == 1 ? k : 4 * i + k / 2);
                int half = n_sub == 1 ? 0 : k % 2;
                ((float *)&to->d[half])[r] = d[k];
                if (f->has_min) ((float *)&to->m[half])[r] = m[k];
            }
        }
    }
#pragma GCC unroll 8
    for (int g = 0; g < Q_GROUPS; g++) {
        for (int r = 0; r < MM_ROWS; r++)
            tile[g].q[r] = MM_DOTS_FOUR ? f->quants(p[r], g)
                                        : _mm256_sub_epi8(f->quants(p[r], g),
                                                          _mm256_set1_epi8((char)f->offset));
        vi_transpose(tile[g].q);
    }
}

SIMD_INLINE void mm_decode_tile(const q_format *f, const cpu_mat *w, int64_t row, int64_t row1,
                                int64_t k0, int64_t k1, mm_group *tile) {
    const uint8_t *p[MM_ROWS];
    for (int r = 0; r < MM_ROWS; r++) {
        int64_t from = row + r < row1 ? row + r : row1 - 1;
        p[r] = (const uint8_t *)w->data + (size_t)from * w->row_bytes + q_bytes(f, k0);
    }
    int64_t k = k0;
    for (; k + Q_CHUNK <= k1; k += Q_CHUNK, tile += Q_GROUPS) {
        mm_decode_chunk(f, p, tile);
        for (int r = 0; r < MM_ROWS; r++) p[r] += f->chunk_bytes;
    }
    if (k < k1) {
        uint8_t tail[MM_ROWS][Q_CHUNK_BYTES_MAX] = {{0}};
        for (int r = 0; r < MM_ROWS; r++) {
            memcpy(tail[r], p[r], q_bytes(f, k1 - k));
            p[r] = tail[r];
        }
        mm_decode_chunk(f, p, tile);
    }
}

AVX2_INLINE int32_t mm_sum(const act_q8_panel_group *x, int col, int s, int n_sub) {
    return x->sum[s][col] + (n_sub == 1 ? x->sum[1][col] : 0);
}

/* Integer dots of a group's elements with scale s, of which it has n_sub, with four columns. */
AVX2_INLINE void mm_dot(const q_format *f, const mm_group *w, const act_q8_panel_group *x, int col,
                        int s, int n_sub, __m256i t[MM_COLS]) {
    const int n = 8 / n_sub;
    for (int c = 0; c < MM_COLS; c++)
        t[c] = MM_DOTS_FOUR && f->offset != 0
                   ? _mm256_set1_epi32(-f->offset * mm_sum(x, col + c, s, n_sub))
                   : _mm256_setzero_si256();
    for (int i = s * n; i < (s + 1) * n; i++) {
        __m256i q = w->q[i];
        for (int c = 0; c < MM_COLS; c++) {
            int32_t four;
            memcpy(&four, x->q[i][col + c], sizeof four);
            t[c] = mm_add(f, t[c], q, _mm256_set1_epi32(four));
        }
    }
    for (int c = 0; c < MM_COLS && f->narrow && !MM_DOTS_FOUR; c++) t[c] = q_widen(t[c]);
}

AVX2_INLINE void mm_product(const q_format *f, const mm_group *w, const act_q8_panel_group *x,
                            int64_t n_groups, int col, __m256 acc[MM_COLS]) {
    const int n_sub = 32 / f->sub;
    for (int64_t g = 0; g < n_groups; g++, w++, x++)
        for (int s = 0; s < n_sub; s++) {
            __m256i t[MM_COLS];
            mm_dot(f, w, x, col, s, n_sub, t);
            for (int c = 0; c < MM_COLS; c++) {
                float dx = x->d[col + c];
                acc[c] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(t[c]),
                                         _mm256_mul_ps(w->d[s], _mm256_set1_ps(dx)), acc[c]);
                if (!f->has_min) continue;
                float lift = dx * (float)mm_sum(x, col + c, s, n_sub);
                acc[c] = _mm256_fnmadd_ps(w->m[s], _mm256_set1_ps(lift), acc[c]);
            }
        }
}

SIMD_INLINE void mm_tile(const q_format *f, const mm_group *tile, const act_q8_panel_group *x,
                         int64_t n_groups, float *y, int64_t ldy, int n_rows, int n_cols,
                         bool first) {
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(n_rows), lanes);
    for (int col = 0; col < n_cols; col += MM_COLS) {
        __m256 acc[MM_COLS];
        for (int c = 0; c < MM_COLS; c++)
            acc[c] = first || col + c >= n_cols ? _mm256_setzero_ps()
                                                : _mm256_maskload_ps(y + (col + c) * ldy, mask);
        mm_product(f, tile, x, n_groups, col, acc);
        for (int c = 0; c < MM_COLS && col + c < n_cols; c++)
            _mm256_maskstore_ps(y + (col + c) * ldy, mask, acc[c]);
    }
}

#endif
