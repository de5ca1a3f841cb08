/* neon_matvec.c: products of quantized rows with one or a few vectors. Four rows are computed at a
 * time, from the four quarters of the range, so that a thread reads four sequential streams that
 * are far apart; cache lines are prefetched MV_AHEAD bytes ahead.
 *
 * A chunk is eight groups, two quads of four. The integer sums of a quad become one vector, one
 * group per lane, so that one conversion and one scaling serve four groups. For one column, the
 * sums of each group are added across lanes. For several columns, most instructions are executed
 * per column: so a chunk of a row is unpacked once into vectors that have four elements of every
 * group of a quad, columns are arranged in this layout once for all rows, and each lane has the sum
 * of a group. Both methods give equal integer sums, and add floats in one order: results do not
 * depend on the blocking. */
#include "neon_quants.h"
#include "rows.h"

enum {
    MV_ROWS = 4, /* rows at once: separate streams */
    MV_TILE = 4, /* columns that share loads of weights */
    /* maximum columns at once, or a power of two below: a chunk of them is 11 KiB */
    MV_COLS = 32,
    MV_READY = 512, /* chunks of columns arranged in advance: eight columns of 16384 */
    /* rows per block when not all columns fit `ready` */
    MV_BLOCK = 128,
    MV_AHEAD = 2048, /* bytes of prefetch */
    MV_QUADS = Q_GROUPS_MAX / 4,
    MV_VECTORS = Q_CHUNK / 16,
    MV_CHUNK_BYTES_MAX = 9 * CPU_ACT_GROUP * Q_GROUPS_MAX / 8 + Q_GROUPS_MAX
};

/* A chunk of a column. Vector 8 q + 4 h + i: elements 16 h .. + 15 of group 4 q + i, or arranged
 * elements 16 h + 4 i .. + 3 of groups 4 q .. + 3. */
typedef struct mv_part {
    uint32x4_t x[MV_VECTORS];
    float32x4_t dx[MV_QUADS];
    /* dx times sums of elements, for minima: in the layout of mv_weights' m */
    float32x4_t lift[MV_QUADS][2];
} mv_part;

/* A chunk of a row: vectors as in mv_part. Scales and minima per 16 elements, or in the first half
 * per 32. */
typedef struct mv_weights {
    uint32x4_t w[MV_VECTORS];
    float32x4_t d[MV_QUADS][2], m[MV_QUADS][2];
} mv_weights;

/* Rows and columns have the same arrangement. */
NEON_INLINE void mv_arrange(uint32x4_t v[MV_VECTORS]) {
#pragma GCC unroll 4
    for (int i = 0; i < MV_VECTORS; i += 4) vi_transpose4(v + i);
}

/* Loads the chunk at x with `groups` groups; zeros follow them. */
NEON_INLINE void mv_load(const q_format *f, act_q8_column x, const int64_t groups, mv_part *part) {
#pragma GCC unroll 16
    for (int i = 0; i < MV_VECTORS; i++) {
        const int g = i / 8 * 4 + i % 4, half = i / 4 % 2;
        part->x[i] = g < groups
                         ? vreinterpretq_u32_s8(vld1q_s8(x.q + g * CPU_ACT_GROUP + 16 * half))
                         : vdupq_n_u32(0);
    }
#pragma GCC unroll 2
    for (int q = 0; q < MV_QUADS; q++) {
        part->dx[q] = vld1q_f32(x.d + 4 * q);
        if (!f->has_min) continue;
        int32x4x2_t sum = vld2q_s32(x.sum + 8 * q);
        if (f->sub == 32) sum.val[0] = vaddq_s32(sum.val[0], sum.val[1]);
        for (int h = 0; h < 32 / f->sub; h++)
            part->lift[q][h] = vmulq_f32(part->dx[q], vcvtq_f32_s32(sum.val[h]));
    }
}

/* The scales or minima of two quads: in the layout of q_scales, or two per group. */
NEON_INLINE void mv_halves(const q_format *f, const vf v[2], const float *pairs,
                           float32x4_t out[MV_QUADS][2]) {
    for (int q = 0; q < MV_QUADS; q++)
        if (f->groups == 1) {
            out[q][0] = q == 0 ? v[0].lo : v[0].hi;
        } else {
            const float32x4x2_t two = vld2q_f32(pairs + 8 * q);
            out[q][0] = two.val[0];
            out[q][1] = two.val[1];
        }
}

NEON_INLINE void mv_scales(const q_format *f, const uint8_t *p, mv_weights *w) {
    q_scales s;
    q_block_scales pairs;
    if (f->groups == 1)
        q_chunk_scales(f, p, &s);
    else
        f->scales(p, &pairs);
    mv_halves(f, s.d, pairs.d, w->d);
    if (f->has_min) mv_halves(f, s.m, pairs.m, w->m);
}

NEON_INLINE q_group mv_quants(const q_format *f, const uint8_t *p, int g) {
    return f->groups == 1 ? f->quants(p + g * f->block_bytes, 0) : f->quants(p, g);
}

NEON_INLINE int32x4_t mv_dot(int32x4_t sum, uint32x4_t w, uint32x4_t x) {
    return vdotq_s32(sum, vreinterpretq_s8_u32(w), vreinterpretq_s8_u32(x));
}

/* Adds the sums of quad q and, where scales are per 16 elements, of half h. */
NEON_INLINE float32x4_t mv_add(const q_format *f, const mv_weights *w, const mv_part *x, int q,
                               int h, int32x4_t dot, float32x4_t acc) {
    if (f->has_min) acc = vfmsq_f32(acc, w->m[q][h], x->lift[q][h]);
    return vfmaq_f32(acc, vcvtq_f32_s32(dot), vmulq_f32(w->d[q][h], x->dx[q]));
}

/* ---- one column ------------------------------------------------------------------------------ */

/* The sums of four groups. */
NEON_INLINE int32x4_t mv_across(const int32x4_t v[4]) {
    return vpaddq_s32(vpaddq_s32(v[0], v[1]), vpaddq_s32(v[2], v[3]));
}

/* The chunk of a row at p. */
NEON_INLINE float32x4_t mv_chunk(const q_format *f, const uint8_t *p, const mv_part *x,
                                 float32x4_t acc) {
    mv_weights w;
    mv_scales(f, p, &w);
#pragma GCC unroll 2
    for (int q = 0; q < MV_QUADS; q++) {
        int32x4_t low[4], high[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            const q_group v = mv_quants(f, p, 4 * q + i);
            low[i] = mv_dot(vdupq_n_s32(0), vreinterpretq_u32_s8(v.lo), x->x[8 * q + i]);
            high[i] = mv_dot(f->sub == 32 ? low[i] : vdupq_n_s32(0), vreinterpretq_u32_s8(v.hi),
                             x->x[8 * q + 4 + i]);
        }
        if (f->sub == 16) acc = mv_add(f, &w, x, q, 0, mv_across(low), acc);
        acc = mv_add(f, &w, x, q, f->sub == 16, mv_across(high), acc);
    }
    return acc;
}

NEON_INLINE int mv_chunk_bytes(const q_format *f) {
    return f->block_bytes * Q_GROUPS_MAX / f->groups;
}

/* The remaining elements of a row after its whole chunks, padded with zeros. */
NEON_INLINE void mv_tail(const q_format *f, const cpu_mat *w, const uint8_t *p,
                         uint8_t tail[MV_CHUNK_BYTES_MAX]) {
    memset(tail, 0, MV_CHUNK_BYTES_MAX);
    memcpy(tail, p, q_bytes(f, w->n_in % Q_CHUNK));
}

/* Prefetches a later chunk of the row, or near its end a chunk of the next row. */
NEON_INLINE void mv_ahead(const q_format *f, const uint8_t *ahead) {
    for (int line = 0; line < mv_chunk_bytes(f); line += 64) SIMD_PREFETCH(ahead + line);
}

/* Rows i, i + stride, ... (n_rows of them) of s times column `col`. */
NEON_INLINE void mv_rows(const q_format *f, const int n_rows, const cpu_rows *s, int64_t i,
                         int64_t stride, const cpu_act *act, int64_t col, float *y) {
    const uint8_t *p[MV_ROWS], *ahead[MV_ROWS];
    float32x4_t acc[MV_ROWS];
    act_q8_column column = act_q8_at(act, col);
    mv_part x;
    const int64_t whole = s->w->n_in / Q_CHUNK, left = s->w->n_in % Q_CHUNK / CPU_ACT_GROUP;
    const int64_t near = MV_AHEAD / mv_chunk_bytes(f), lead = near < whole ? near : whole;
    for (int r = 0; r < n_rows; r++) {
        p[r] = rows_at(s, i + r * stride);
        ahead[r] = p[r] + lead * mv_chunk_bytes(f);
        acc[r] = vdupq_n_f32(0.0f);
    }
    for (int64_t k = 0; k < whole; k++) {
        if (k == whole - lead)
            for (int r = 0; r < n_rows; r++) ahead[r] = rows_next(s, i + r * stride, n_rows);
        mv_load(f, column, Q_GROUPS_MAX, &x);
        column = act_q8_skip(column, Q_GROUPS_MAX);
#pragma GCC unroll 4
        for (int r = 0; r < n_rows; r++) {
            mv_ahead(f, ahead[r]);
            acc[r] = mv_chunk(f, p[r], &x, acc[r]);
            p[r] += mv_chunk_bytes(f);
            ahead[r] += mv_chunk_bytes(f);
        }
    }
    if (left > 0) mv_load(f, column, left, &x);
    for (int r = 0; r < n_rows; r++) {
        uint8_t tail[MV_CHUNK_BYTES_MAX];
        if (left > 0) {
            mv_tail(f, s->w, p[r], tail);
            acc[r] = mv_chunk(f, tail, &x, acc[r]);
        }
        y[i + r * stride] = vaddvq_f32(acc[r]);
    }
}

NEON_INLINE void mv_one(const q_format *f, const cpu_rows *s, const cpu_act *x, int64_t col,
                        float *y) {
    const int64_t n_groups = s->n / MV_ROWS, stride = rows_stride(s, n_groups);
    for (int64_t g = 0; g < n_groups; g++)
        mv_rows(f, MV_ROWS, s, rows_first(s, g, MV_ROWS), stride, x, col, y);
    for (int64_t i = n_groups * MV_ROWS; i < s->n; i++) mv_rows(f, 1, s, i, 0, x, col, y);
}

/* ---- several columns ------------------------------------------------------------------------- */

NEON_INLINE void mc_unpack(const q_format *f, const uint8_t *p, mv_weights *w) {
#pragma GCC unroll 8
    for (int g = 0; g < Q_GROUPS_MAX; g++) {
        const q_group v = mv_quants(f, p, g);
        w->w[g / 4 * 8 + g % 4] = vreinterpretq_u32_s8(v.lo);
        w->w[g / 4 * 8 + 4 + g % 4] = vreinterpretq_u32_s8(v.hi);
    }
    mv_arrange(w->w);
    mv_scales(f, p, w);
}

/* A chunk of four rows times n columns; acc[column][MV_ROWS]. */
NEON_INLINE void mc_tile(const q_format *f, const mv_weights *w, const mv_part *x, const int n,
                         float32x4_t *acc) {
    const int run = f->sub / 16;
#pragma GCC unroll 1
    for (int i = 0; i < 2 * MV_QUADS; i += run) {
        int32x4_t dot[MV_ROWS][MV_TILE];
        __asm__("" : "+r"(w), "+r"(x)); /* both stay in memory */
#pragma GCC unroll 8
        for (int j = 0; j < 4 * run; j++)
#pragma GCC unroll 4
            for (int r = 0; r < MV_ROWS; r++)
#pragma GCC unroll 4
                for (int c = 0; c < n; c++) {
                    dot[r][c] = mv_dot(j == 0 ? vdupq_n_s32(0) : dot[r][c], w[r].w[4 * i + j],
                                       x[c].x[4 * i + j]);
                    __asm__ volatile("" : "+w"(dot[r][c])); /* keeps the order of loads */
                }
#pragma GCC unroll 4
        for (int c = 0; c < n; c++)
#pragma GCC unroll 4
            for (int r = 0; r < MV_ROWS; r++) {
                float32x4_t *to = acc + c * MV_ROWS + r;
                *to = mv_add(f, &w[r], &x[c], i / 2, i % 2, dot[r][c], *to);
            }
    }
}

NEON_INLINE void mc_chunk(const q_format *f, const mv_weights *w, const mv_part *x, int64_t n_cols,
                          float32x4_t *acc) {
    int64_t c = 0;
    for (; c + MV_TILE <= n_cols; c += MV_TILE) mc_tile(f, w, x + c, MV_TILE, acc + c * MV_ROWS);
    if (c + 2 <= n_cols) {
        mc_tile(f, w, x + c, 2, acc + c * MV_ROWS);
        c += 2;
    }
    if (c < n_cols) mc_tile(f, w, x + c, 1, acc + c * MV_ROWS);
}

/* Row r of a group; the last row replaces missing rows. */
NEON_INLINE int64_t mc_row(int n_rows, int r, int64_t i, int64_t stride) {
    return i + (r < n_rows ? r : n_rows - 1) * stride;
}

/* Rows i, i + stride, ... (n_rows of them) of s times n columns, arranged as x[chunk][n]. */
NEON_INLINE void mc_rows(const q_format *f, int n_rows, const cpu_rows *s, int64_t i,
                         int64_t stride, const mv_part *x, int64_t n, float *y, int64_t ldy) {
    const uint8_t *p[MV_ROWS], *ahead[MV_ROWS];
    float32x4_t acc[MV_COLS][MV_ROWS];
    mv_weights w[MV_ROWS];
    const int64_t whole = s->w->n_in / Q_CHUNK;
    const int64_t near = MV_AHEAD / mv_chunk_bytes(f), lead = near < whole ? near : whole;
    for (int r = 0; r < MV_ROWS; r++) {
        p[r] = rows_at(s, mc_row(n_rows, r, i, stride));
        ahead[r] = p[r] + lead * mv_chunk_bytes(f);
    }
    for (int64_t c = 0; c < n; c++)
        for (int r = 0; r < MV_ROWS; r++) acc[c][r] = vdupq_n_f32(0.0f);
    for (int64_t k = 0; k * Q_CHUNK < s->w->n_in; k++, x += n) {
        for (int r = 0; r < MV_ROWS; r++) {
            uint8_t tail[MV_CHUNK_BYTES_MAX];
            const uint8_t *from = p[r];
            if (k == whole - lead) ahead[r] = rows_next(s, mc_row(n_rows, r, i, stride), MV_ROWS);
            if (k == whole) {
                mv_tail(f, s->w, p[r], tail);
                from = tail;
            } else {
                mv_ahead(f, ahead[r]);
            }
            mc_unpack(f, from, &w[r]);
            p[r] += mv_chunk_bytes(f);
            ahead[r] += mv_chunk_bytes(f);
        }
        mc_chunk(f, w, x, n, acc[0]);
    }
    for (int64_t c = 0; c < n; c++)
        for (int r = 0; r < n_rows; r++) y[c * ldy + i + r * stride] = vaddvq_f32(acc[c][r]);
}

/* Rows of s times n columns from `col` on, which are first arranged in `ready` [MV_READY]. */
NEON_INLINE void mc_sweep(const q_format *f, const cpu_rows *s, const cpu_act *act, int64_t col,
                          int64_t n, float *y, int64_t ldy, mv_part *ready) {
    const int64_t n_groups = (s->n + MV_ROWS - 1) / MV_ROWS, stride = rows_stride(s, n_groups);
    const int64_t groups = act->n / CPU_ACT_GROUP;
    mv_part *x = ready;
    for (int64_t g = 0; g < groups; g += Q_GROUPS_MAX)
        for (int64_t c = col; c < col + n; c++, x++) {
            mv_load(f, act_q8_skip(act_q8_at(act, c), (int)g), groups - g, x);
            mv_arrange(x->x);
        }
    for (int64_t g = 0; g < n_groups; g++) {
        const int64_t i = rows_first(s, g, MV_ROWS), left = (s->n - i + stride - 1) / stride;
        mc_rows(f, left < MV_ROWS ? (int)left : MV_ROWS, s, i, stride, ready, n, y, ldy);
    }
}

NEON_INLINE void mv_run(const q_format *f, const cpu_rows *s, const cpu_act *x, float *y,
                        int64_t ldy) {
    const int64_t chunks = (x->n + Q_CHUNK - 1) / Q_CHUNK;
    if (x->n_cols == 1 || chunks > MV_READY) {
        for (int64_t c = 0; c < x->n_cols; c++) mv_one(f, s, x, c, y + c * ldy);
        return;
    }
    mv_part ready[MV_READY];
    int64_t at_once = MV_COLS;
    while (at_once * chunks > MV_READY) at_once /= 2;
    const int64_t n_rows = x->n_cols > at_once ? MV_BLOCK : s->n;
    for (int64_t row = 0; row < s->n; row += n_rows) {
        const int64_t n = s->n - row < n_rows ? s->n - row : n_rows;
        const cpu_rows block = {s->w, s->list != NULL ? s->list + row : NULL, s->first + row, n,
                                s->near};
        for (int64_t col = 0; col < x->n_cols; col += at_once) {
            const int64_t left = x->n_cols - col;
            mc_sweep(f, &block, x, col, left < at_once ? left : at_once, y + col * ldy + row, ldy,
                     ready);
        }
    }
}

#define DEFINE(type, name, ...) ROWS_DEFINE(extern, neon, name, mv_run)
QUANT_BLOCKS(DEFINE)
