/* avx2_float.c: products of rows that are not quantized (F32, F16, BF16), one template for all.
 *
 * Both kernels work on vectors of 8 words of 4 bytes: a float, or a pair of bfloat16 (the upper
 * halves of floats, taken apart when they are multiplied). Encoded activations have the same words,
 * in columns and in panels. The ends of rows are copied into a vector of zeros first. */
#include <string.h>

#include "avx2_mat.h"
#include "rows.h"
#include "tiers.h"

typedef struct plain_format {
    int elems;   /* of a vector: 8 or 16 */
    int w_bytes; /* per element of a row */
    __m256i (*words)(const char *row);
    __m256 (*dot)(__m256 acc, __m256i w, __m256i x);
} plain_format;

enum {
    PLAIN_ROWS = 4,     /* streams for one column */
    PLAIN_COLS = 4,     /* columns that share loads */
    PLAIN_ACC = 2,      /* vectors in flight per column */
    PLAIN_AHEAD = 2048, /* bytes of prefetch */
    PLAIN_TILES = 8,    /* rows of a block of matmul: 8 x 16 */
    PLAIN_STEPS = 512,  /* words of a row in a block */
    PLAIN_TILE_BYTES = PLAIN_STEPS * CPU_ROW_TILE * 4
};
_Static_assert(PLAIN_TILES *PLAIN_TILE_BYTES <= CPU_SCRATCH_BYTES, "a block fits into scratch");

AVX2_INLINE __m256i f32_words(const char *row) {
    return _mm256_loadu_si256((const void *)row);
}

AVX2_INLINE __m256i f16_words(const char *row) {
    return _mm256_castps_si256(_mm256_cvtph_ps(_mm_loadu_si128((const void *)row)));
}

AVX2_INLINE __m256 f32_dot(__m256 acc, __m256i w, __m256i x) {
    return _mm256_fmadd_ps(_mm256_castsi256_ps(w), _mm256_castsi256_ps(x), acc);
}

AVX2_INLINE __m256 bf16_dot(__m256 acc, __m256i w, __m256i x) {
    const __m256i upper = _mm256_set1_epi32((int32_t)0xffff0000);
    acc = f32_dot(acc, _mm256_slli_epi32(w, 16), _mm256_slli_epi32(x, 16));
    return f32_dot(acc, _mm256_and_si256(w, upper), _mm256_and_si256(x, upper));
}

static const plain_format f32_format = {8, 4, f32_words, f32_dot};
static const plain_format f16_format = {8, 2, f16_words, f32_dot};
static const plain_format bf16_format = {16, 2, f32_words, bf16_dot};

/* The vector at p, of which only `left` elements belong to the row. */
AVX2_INLINE __m256i plain_words(const plain_format *f, const char *p, int64_t left) {
    if (left >= f->elems) return f->words(p);
    char buffer[32] = {0};
    if (left > 0) memcpy(buffer, p, (size_t)left * (size_t)f->w_bytes);
    return f->words(buffer);
}

/* Rows i, i + stride, ... (n_rows of them) of s times columns [col, col + n_cols). The prefetch is
 * PLAIN_AHEAD bytes early and goes on in the stream's next row. */
AVX2_INLINE void plain_rows(const plain_format *f, const int n_rows, const int n_cols,
                            const cpu_rows *s, int64_t i, int64_t stride, const cpu_act *act,
                            int64_t col, float *y, int64_t ldy) {
    const int64_t n_in = s->w->n_in;
    const char *p[PLAIN_ROWS], *ahead[PLAIN_ROWS], *x[PLAIN_COLS];
    __m256 acc[PLAIN_ROWS][PLAIN_COLS][PLAIN_ACC];
    const int vector_bytes = f->elems * f->w_bytes, step_bytes = vector_bytes * PLAIN_ACC;
    const int64_t step = (int64_t)f->elems * PLAIN_ACC, all = (n_in + step - 1) / step;
    const int64_t near = PLAIN_AHEAD / step_bytes, lead = near < all ? near : all;
    for (int c = 0; c < n_cols; c++) x[c] = act_column(act, col + c);
    for (int r = 0; r < n_rows; r++) {
        p[r] = (const char *)rows_at(s, i + r * stride);
        ahead[r] = p[r] + lead * step_bytes;
        for (int c = 0; c < n_cols; c++)
            for (int v = 0; v < PLAIN_ACC; v++) acc[r][c][v] = _mm256_setzero_ps();
    }
    int64_t k = 0;
    for (; k + step <= n_in; k += step) {
        if (k == (all - lead) * step)
            for (int r = 0; r < n_rows; r++)
                ahead[r] = (const char *)rows_next(s, i + r * stride, n_rows);
        for (int r = 0; r < n_rows; r++) {
            for (int line = 0; line < step_bytes; line += 64)
                _mm_prefetch(ahead[r] + line, _MM_HINT_T0);
            for (int v = 0; v < PLAIN_ACC; v++) {
                __m256i words = f->words(p[r] + v * vector_bytes);
                for (int c = 0; c < n_cols; c++)
                    acc[r][c][v] = f->dot(acc[r][c][v], words,
                                          _mm256_loadu_si256((const void *)(x[c] + 32 * v)));
            }
            p[r] += step_bytes;
            ahead[r] += step_bytes;
        }
        for (int c = 0; c < n_cols; c++) x[c] += 32 * PLAIN_ACC;
    }
    for (int v = 0; k < n_in; k += f->elems, v++)
        for (int r = 0; r < n_rows; r++) {
            __m256i words = plain_words(f, p[r] + v * vector_bytes, n_in - k);
            for (int c = 0; c < n_cols; c++)
                acc[r][c][v] = f->dot(acc[r][c][v], words,
                                      _mm256_loadu_si256((const void *)(x[c] + 32 * v)));
        }
    for (int r = 0; r < n_rows; r++)
        for (int c = 0; c < n_cols; c++)
            y[(col + c) * ldy + i + r * stride] = avx2_sum(
                _mm256_add_ps(acc[r][c][0], acc[r][c][1]));
}

AVX2_INLINE void plain_matvec(const plain_format *f, const cpu_rows *s, const cpu_act *x, float *y,
                              int64_t ldy) {
    int64_t n_groups = x->n_cols == 1 ? s->n / PLAIN_ROWS : 0, stride = rows_stride(s, n_groups);
    for (int64_t g = 0; g < n_groups; g++)
        plain_rows(f, PLAIN_ROWS, 1, s, rows_first(s, g, PLAIN_ROWS), stride, x, 0, y, ldy);
    for (int64_t i = n_groups * PLAIN_ROWS; i < s->n; i++) {
        int64_t col = 0;
        for (; col + PLAIN_COLS <= x->n_cols; col += PLAIN_COLS)
            plain_rows(f, 1, PLAIN_COLS, s, i, 0, x, col, y, ldy);
        for (; col < x->n_cols; col++) plain_rows(f, 1, 1, s, i, 0, x, col, y, ldy);
    }
}

/* Elements [k0, k1) of 16 rows -> [words][16 rows]; rows from row1 on repeat the last one. */
AVX2_INLINE void plain_tile(const plain_format *f, const cpu_mat *w, int64_t row, int64_t row1,
                            int64_t k0, int64_t k1, char *tile) {
    for (int64_t k = k0; k < k1; k += f->elems, tile += 8 * 64)
        for (int half = 0; half < 2; half++) {
            __m256i v[8];
            for (int r = 0; r < 8; r++) {
                int64_t from = row + 8 * half + r < row1 ? row + 8 * half + r : row1 - 1;
                v[r] = plain_words(
                    f, (const char *)w->data + (size_t)from * w->row_bytes + k * f->w_bytes,
                    k1 - k);
            }
            avx2_transpose8(v);
            for (int i = 0; i < 8; i++)
                _mm256_store_si256((void *)(tile + 64 * i + 32 * half), v[i]);
        }
}

/* y += tile x panel over n words (y = when `first`): 16 rows by four columns at a time. */
AVX2_INLINE void plain_product(const plain_format *f, const char *tile, const char *panel,
                               int64_t n, float *y, int64_t ldy, const __m256i mask[2], int n_cols,
                               bool first) {
    for (int col = 0; col < n_cols; col += PLAIN_COLS) {
        const int32_t *x = (const int32_t *)(const void *)panel + col;
        __m256 acc[PLAIN_COLS][2];
        for (int c = 0; c < PLAIN_COLS; c++)
            for (int h = 0; h < 2; h++)
                acc[c][h] = first || col + c >= n_cols
                                ? _mm256_setzero_ps()
                                : _mm256_maskload_ps(y + (col + c) * ldy + 8 * h, mask[h]);
        for (int64_t i = 0; i < n; i++, x += CPU_PANEL) {
            __m256i low = _mm256_load_si256((const void *)(tile + 64 * i));
            __m256i high = _mm256_load_si256((const void *)(tile + 64 * i + 32));
            for (int c = 0; c < PLAIN_COLS; c++) {
                acc[c][0] = f->dot(acc[c][0], low, _mm256_set1_epi32(x[c]));
                acc[c][1] = f->dot(acc[c][1], high, _mm256_set1_epi32(x[c]));
            }
        }
        for (int c = 0; c < PLAIN_COLS && col + c < n_cols; c++)
            for (int h = 0; h < 2; h++)
                _mm256_maskstore_ps(y + (col + c) * ldy + 8 * h, mask[h], acc[c][h]);
    }
}

AVX2_INLINE void plain_matmul(const plain_format *f, const cpu_mat *w, int64_t row0, int64_t row1,
                              const cpu_act *x, float *y, int64_t ldy, char *scratch) {
    const int per_word = f->elems / 8;
    const int64_t block_k = (int64_t)PLAIN_STEPS * per_word,
                  block_rows = PLAIN_TILES * CPU_ROW_TILE;
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    for (int64_t block = row0; block < row1; block += block_rows)
        for (int64_t k0 = 0; k0 < w->n_in; k0 += block_k) {
            int64_t k1 = k0 + block_k < w->n_in ? k0 + block_k : w->n_in;
            int64_t end = block + block_rows < row1 ? block + block_rows : row1;
            char *tile = scratch;
            for (int64_t row = block; row < end; row += CPU_ROW_TILE, tile += PLAIN_TILE_BYTES)
                plain_tile(f, w, row, row1, k0, k1, tile);
            for (int64_t col = 0; col < x->n_cols; col += CPU_PANEL) {
                const char *panel = act_panel(x, col / CPU_PANEL);
                panel += k0 / per_word * 64;
                int n_cols = x->n_cols - col < CPU_PANEL ? (int)(x->n_cols - col) : CPU_PANEL;
                tile = scratch;
                for (int64_t row = block; row < end;
                     row += CPU_ROW_TILE, tile += PLAIN_TILE_BYTES) {
                    int rows = end - row < CPU_ROW_TILE ? (int)(end - row) : CPU_ROW_TILE;
                    __m256i mask[2] = {_mm256_cmpgt_epi32(_mm256_set1_epi32(rows), lanes),
                                       _mm256_cmpgt_epi32(_mm256_set1_epi32(rows - 8), lanes)};
                    plain_product(f, tile, panel, (k1 - k0 + per_word - 1) / per_word,
                                  y + col * ldy + row, ldy, mask, n_cols, k0 == 0);
                }
            }
        }
}

#define PLAIN_DEFINE(name)                                                                         \
    ROWS_DEFINE(extern, avx2, name, plain_matvec)                                                  \
    TIER_MATMUL_DEFINE(extern, avx2, name, plain_matmul)
PLAIN_DEFINE(f32)
PLAIN_DEFINE(f16)
PLAIN_DEFINE(bf16)
