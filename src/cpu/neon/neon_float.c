/* neon_float.c: products of rows that are not quantized (F32, F16, BF16), one template for all.
 *
 * Rows and encoded columns are read eight elements at a time as floats; bfloat16 is the upper half
 * of one, so all products are exact to a float rounding. matmul turns a block of rows into float
 * tiles [elements][16 rows] first. The ends of rows are copied into a buffer of zeros. */
#include <string.h>

#include "neon_mat.h"
#include "rows.h"
#include "tiers.h"

typedef struct plain_format {
    int w_bytes; /* per element of a row */
    int x_bytes; /* per element of an encoded vector */
    void (*load_w)(const char *row, float32x4_t out[2]);
    void (*load_x)(const char *column, float32x4_t out[2]);
} plain_format;

enum {
    PLAIN_COLS = 4, /* columns that share loads */
    PLAIN_LOAD = 8, /* elements of a load */
    PLAIN_LOADS = 2,
    PLAIN_STEP = PLAIN_LOAD * PLAIN_LOADS, /* columns are padded to multiples of it */
    PLAIN_AHEAD = 1024,                    /* bytes of prefetch */
    PLAIN_TILES = 8,                       /* rows of a block of matmul: 8 x 16 */
    PLAIN_K = 512,                         /* elements of a row in a block */
    PLAIN_TILE = PLAIN_K * CPU_ROW_TILE    /* floats */
};
_Static_assert(PLAIN_TILES *PLAIN_TILE * sizeof(float) <= CPU_SCRATCH_BYTES,
               "a block fits into scratch");

NEON_INLINE void f32_load(const char *p, float32x4_t out[2]) {
    out[0] = vreinterpretq_f32_u8(vld1q_u8((const uint8_t *)p));
    out[1] = vreinterpretq_f32_u8(vld1q_u8((const uint8_t *)p + 16));
}

NEON_INLINE void f16_load(const char *p, float32x4_t out[2]) {
    float16x8_t h = vreinterpretq_f16_u8(vld1q_u8((const uint8_t *)p));
    out[0] = vcvt_f32_f16(vget_low_f16(h));
    out[1] = vcvt_high_f32_f16(h);
}

NEON_INLINE void bf16_load(const char *p, float32x4_t out[2]) {
    uint16x8_t h = vreinterpretq_u16_u8(vld1q_u8((const uint8_t *)p));
    out[0] = vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(h), 16));
    out[1] = vreinterpretq_f32_u32(vshll_high_n_u16(h, 16));
}

static const plain_format f32_format = {4, 4, f32_load, f32_load};
static const plain_format f16_format = {2, 4, f16_load, f32_load};
static const plain_format bf16_format = {2, 2, bf16_load, bf16_load};

/* The eight elements at p, of which only `left` belong to the row. */
NEON_INLINE void plain_load(const plain_format *f, const char *p, int64_t left,
                            float32x4_t out[2]) {
    char buffer[PLAIN_LOAD * sizeof(float)] = {0};
    if (left < PLAIN_LOAD) {
        if (left > 0) memcpy(buffer, p, (size_t)left * (size_t)f->w_bytes);
        p = buffer;
    }
    f->load_w(p, out);
}

/* Row i of s times columns [col, col + n_cols). The prefetch is PLAIN_AHEAD bytes early and goes on
 * in the next row. */
NEON_INLINE void plain_row(const plain_format *f, const int n_cols, const cpu_rows *s, int64_t i,
                           const cpu_act *act, int64_t col, float *y, int64_t ldy) {
    const int64_t n_in = s->w->n_in, all = (n_in + PLAIN_STEP - 1) / PLAIN_STEP;
    const int step_bytes = PLAIN_STEP * f->w_bytes, near = PLAIN_AHEAD / step_bytes;
    const int64_t lead = near < all ? near : all;
    const char *p = (const char *)rows_at(s, i), *ahead = p + lead * step_bytes;
    const char *x[PLAIN_COLS];
    float32x4_t acc[PLAIN_COLS][2 * PLAIN_LOADS];
    for (int c = 0; c < n_cols; c++) {
        x[c] = act_column(act, col + c);
        for (int v = 0; v < 2 * PLAIN_LOADS; v++) acc[c][v] = vdupq_n_f32(0.0f);
    }
    for (int64_t k = 0; k < n_in; k += PLAIN_STEP) {
        if (k == (all - lead) * PLAIN_STEP) ahead = (const char *)rows_next(s, i, 1);
        NEON_PREFETCH(ahead);
        ahead += step_bytes;
        for (int v = 0; v < PLAIN_LOADS; v++) {
            int64_t at = k + (int64_t)v * PLAIN_LOAD;
            if (at >= n_in) break;
            float32x4_t w[2], u[2];
            plain_load(f, p, n_in - at, w);
            p += PLAIN_LOAD * f->w_bytes;
            for (int c = 0; c < n_cols; c++) {
                f->load_x(x[c] + at * f->x_bytes, u);
                acc[c][2 * v] = vfmaq_f32(acc[c][2 * v], w[0], u[0]);
                acc[c][2 * v + 1] = vfmaq_f32(acc[c][2 * v + 1], w[1], u[1]);
            }
        }
    }
    for (int c = 0; c < n_cols; c++) {
        float32x4_t low = vaddq_f32(acc[c][0], acc[c][1]), high = vaddq_f32(acc[c][2], acc[c][3]);
        y[(col + c) * ldy + i] = vaddvq_f32(vaddq_f32(low, high));
    }
}

NEON_INLINE void plain_matvec(const plain_format *f, const cpu_rows *s, const cpu_act *x, float *y,
                              int64_t ldy) {
    for (int64_t i = 0; i < s->n; i++) {
        int64_t col = 0;
        for (; col + PLAIN_COLS <= x->n_cols; col += PLAIN_COLS)
            plain_row(f, PLAIN_COLS, s, i, x, col, y, ldy);
        for (; col < x->n_cols; col++) plain_row(f, 1, s, i, x, col, y, ldy);
    }
}

/* Elements [k0, k1) of 16 rows -> [elements][16 rows], zeros up to a multiple of 8 elements; rows
 * from row1 on repeat the last one. */
NEON_INLINE void plain_tile(const plain_format *f, const cpu_mat *w, int64_t row, int64_t row1,
                            int64_t k0, int64_t k1, float *tile) {
    for (int64_t k = k0; k < k1; k += PLAIN_LOAD, tile += PLAIN_LOAD * CPU_ROW_TILE)
        for (int quarter = 0; quarter < CPU_ROW_TILE; quarter += 4) {
            uint32x4_t v[2][4];
            for (int r = 0; r < 4; r++) {
                float32x4_t loaded[2];
                int64_t from = row + quarter + r < row1 ? row + quarter + r : row1 - 1;
                plain_load(f, (const char *)w->data + (size_t)from * w->row_bytes + k * f->w_bytes,
                           k1 - k, loaded);
                v[0][r] = vreinterpretq_u32_f32(loaded[0]);
                v[1][r] = vreinterpretq_u32_f32(loaded[1]);
            }
            for (int half = 0; half < 2; half++) {
                neon_transpose4(v[half]);
                for (int i = 0; i < 4; i++)
                    vst1q_f32(tile + (4 * half + i) * CPU_ROW_TILE + quarter,
                              vreinterpretq_f32_u32(v[half][i]));
            }
        }
}

/* acc[c] += one element of 16 rows times that of 4 columns. */
NEON_INLINE void plain_outer(const float *tile, float32x4_t x, float32x4_t acc[PLAIN_COLS][4]) {
    for (int i = 0; i < 4; i++) {
        float32x4_t v = vld1q_f32(tile + 4 * i);
        /* spelt out: lane numbers are part of the instruction */
        acc[0][i] = vfmaq_laneq_f32(acc[0][i], v, x, 0);
        acc[1][i] = vfmaq_laneq_f32(acc[1][i], v, x, 1);
        acc[2][i] = vfmaq_laneq_f32(acc[2][i], v, x, 2);
        acc[3][i] = vfmaq_laneq_f32(acc[3][i], v, x, 3);
    }
}

/* y += tile x panel over n words of 4 bytes: elements, or pairs of them (y = when `first`). */
NEON_INLINE void plain_product(const plain_format *f, const float *tile, const char *panel,
                               int64_t n, float *y, int64_t ldy, int n_rows, int n_cols,
                               bool first) {
    for (int col = 0; col < n_cols; col += PLAIN_COLS) {
        const uint8_t *x = (const uint8_t *)panel + 4 * col;
        const float *t = tile;
        float32x4_t acc[PLAIN_COLS][4];
        for (int c = 0; c < PLAIN_COLS; c++) {
            float from[CPU_ROW_TILE] = {0};
            if (!first && col + c < n_cols)
                memcpy(from, y + (col + c) * ldy, (size_t)n_rows * sizeof *y);
            for (int i = 0; i < 4; i++) acc[c][i] = vld1q_f32(from + 4 * i);
        }
        for (int64_t k = 0; k < n; k++, x += 4 * CPU_PANEL) {
            uint32x4_t words = vreinterpretq_u32_u8(vld1q_u8(x));
            if (f->x_bytes == 4) {
                plain_outer(t, vreinterpretq_f32_u32(words), acc);
                t += CPU_ROW_TILE;
                continue;
            }
            uint32x4_t upper = vandq_u32(words, vdupq_n_u32(0xffff0000));
            plain_outer(t, vreinterpretq_f32_u32(vshlq_n_u32(words, 16)), acc);
            plain_outer(t + CPU_ROW_TILE, vreinterpretq_f32_u32(upper), acc);
            t += 2 * CPU_ROW_TILE;
        }
        for (int c = 0; c < PLAIN_COLS && col + c < n_cols; c++) {
            float to[CPU_ROW_TILE];
            for (int i = 0; i < 4; i++) vst1q_f32(to + 4 * i, acc[c][i]);
            memcpy(y + (col + c) * ldy, to, (size_t)n_rows * sizeof *y);
        }
    }
}

NEON_INLINE void plain_matmul(const plain_format *f, const cpu_mat *w, int64_t row0, int64_t row1,
                              const cpu_act *x, float *y, int64_t ldy, float *scratch) {
    const int per_word = 4 / f->x_bytes;
    const int64_t block_rows = PLAIN_TILES * CPU_ROW_TILE;
    for (int64_t block = row0; block < row1; block += block_rows)
        for (int64_t k0 = 0; k0 < w->n_in; k0 += PLAIN_K) {
            int64_t k1 = k0 + PLAIN_K < w->n_in ? k0 + PLAIN_K : w->n_in;
            int64_t end = block + block_rows < row1 ? block + block_rows : row1;
            float *tile = scratch;
            for (int64_t row = block; row < end; row += CPU_ROW_TILE, tile += PLAIN_TILE)
                plain_tile(f, w, row, row1, k0, k1, tile);
            for (int64_t col = 0; col < x->n_cols; col += CPU_PANEL) {
                const char *panel = act_panel(x, col / CPU_PANEL);
                panel += k0 / per_word * 4 * CPU_PANEL;
                int n_cols = x->n_cols - col < CPU_PANEL ? (int)(x->n_cols - col) : CPU_PANEL;
                tile = scratch;
                for (int64_t row = block; row < end; row += CPU_ROW_TILE, tile += PLAIN_TILE)
                    plain_product(f, tile, panel, (k1 - k0 + per_word - 1) / per_word,
                                  y + col * ldy + row, ldy,
                                  end - row < CPU_ROW_TILE ? (int)(end - row) : CPU_ROW_TILE,
                                  n_cols, k0 == 0);
            }
        }
}

#define PLAIN_DEFINE(name)                                                                         \
    ROWS_DEFINE(extern, neon, name, plain_matvec)                                                  \
    TIER_MATMUL_DEFINE(extern, neon, name, plain_matmul)
PLAIN_DEFINE(f32)
PLAIN_DEFINE(f16)
PLAIN_DEFINE(bf16)
