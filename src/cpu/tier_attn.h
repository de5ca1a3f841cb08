/* tier_attn.h: vectorized attention and writing of the KV cache. A template: included once by
 * tier_all.h.
 *
 * Positions are processed in blocks (attn.h). For each block and each tile of up to ATTN_TILE
 * queries the kernel computes scores, softmax weights, then sums of weighted values, and updates
 * the state once per block.
 *
 * With few queries (decode), K and V are read in place. Memory is the limit, so every row is
 * converted once for all queries, and loads are always in flight: the values of a block are
 * prefetched while its keys are multiplied, the next block's keys while its values are multiplied.
 * With many queries (prefill), a block of K and V is first decoded to float in scratch, and
 * arithmetic is the limit.
 *
 * Scores come from QT queries times KT = VF_N / QT keys at once: VF_N independent sums, which one
 * transposition (vf_hsum_each) turns into one vector of scores. Weighted sums keep QT * VC vectors
 * of the output in registers over the positions of the block.
 *
 * Masked rows are never multiplied, not even by a weight of 0, because their values may be
 * infinite. */
#ifndef CPU_TIER_ATTN_H
#define CPU_TIER_ATTN_H

#include <math.h>
#include <string.h>

#include "attn.h"
#include "kv_low.h"
#include "quant_blocks.h"
#include "simd_bytes.h"

/* A pass: one tile of queries over the keys, or over the values, of a block. */
typedef struct tier_tile {
    const char *rows; /* position 0 of the block, keys or values */
    size_t stride;
    int dim, n_q;      /* elements of a row; number of queries, 1..QT */
    int lo, hi;        /* range of positions within the block */
    const float *q;    /* [n_q][dim], for keys */
    float *s;          /* [ATTN_TILE][ATTN_SCORES]: scores, then weights */
    float *acc;        /* [n_q][dim], for values */
    const float *keep; /* [n_q]: factor of the old acc */
    /* rows to prefetch: row j of `ahead` together with row j of the block, for j < n_ahead */
    const char *ahead;
    size_t ahead_stride;
    int n_ahead, line_shift; /* log2 of elements of `ahead` per cache line */
} tier_tile;

enum { TIER_Q8_ELEMS = 32 }; /* elements in a block of Q8_0 */

/* Loads elements [d, d + n) of a row; n is VF_N except at the end of a row. */
SIMD_INLINE vf tier_row(const char *row, quant_type type, int d, int n) {
    if (type == QUANT_F32) {
        const float *x = (const float *)row + d;
        return n == VF_N ? vf_load(x) : vf_load_part(x, n);
    }
    if (type == QUANT_F16) {
        const uint16_t *x = (const uint16_t *)row + d;
        return n == VF_N ? vf_load_f16(x) : vf_load_f16_part(x, n);
    }
    if (type == QUANT_BF16) {
        const uint16_t *x = (const uint16_t *)row + d;
        uint16_t part[VF_N] = {0};
        if (n == VF_N) return vf_load_bf16(x);
        memcpy(part, x, (size_t)n * sizeof *part);
        return vf_load_bf16(part);
    }
    const block_q8_0 *b = (const block_q8_0 *)row + d / TIER_Q8_ELEMS;
    return vf_mul(vf_load_i8(b->qs + d % TIER_Q8_ELEMS), vf_set1_f16(b->d));
}

/* log2 of the elements in a cache line. Q8_0's 68 bytes per 64 elements are close enough, because
 * rows are adjacent; so are 72 or 80 bytes per 128. */
static int tier_line_shift(quant_type type) {
    switch ((int)type) {
    case QUANT_F32:
        return 4;
    case QUANT_F16:
    case QUANT_BF16:
        return 5;
    case QUANT_Q4_0:
    case QUANT_Q4_1:
    case QUANT_IQ4_NL:
        return 7;
    default:
        return 6;
    }
}

/* Prefetches the line of row j that belongs to elements d.. of the rows being read. */
SIMD_INLINE void tier_prefetch(const tier_tile *t, int j, size_t offset) {
    if (j < t->n_ahead) SIMD_PREFETCH(t->ahead + (size_t)j * t->ahead_stride + offset);
}

SIMD_INLINE void tier_score_step(quant_type type, int qt, const char *const *row,
                                 const float *const *q, int d, int n, vf *acc) {
    int kt = VF_N / qt;
    vf x[VF_N];
    SIMD_UNROLL
    for (int k = 0; k < kt; k++) x[k] = tier_row(row[k], type, d, n);
    SIMD_UNROLL
    for (int i = 0; i < qt; i++) {
        vf y = n == VF_N ? vf_load(q[i] + d) : vf_load_part(q[i] + d, n);
        SIMD_UNROLL
        for (int k = 0; k < kt; k++) acc[i * kt + k] = vf_fma(x[k], y, acc[i * kt + k]);
    }
}

/* Like tier_score_step for one block of Q8_0, whose scale is read once. With one query the scale
 * multiplies the sum, which costs one product per row; several queries share scaled rows. */
SIMD_INLINE void tier_score_step_q8(int qt, const char *const *row, const float *const *q, int d,
                                    vf *acc) {
    int kt = VF_N / qt;
    const block_q8_0 *b[VF_N];
    vf scale[VF_N];
    SIMD_UNROLL
    for (int k = 0; k < kt; k++) {
        b[k] = (const block_q8_0 *)row[k] + d / TIER_Q8_ELEMS;
        if (qt > 1) scale[k] = vf_set1_f16(b[k]->d);
    }
    if (qt == 1) {
        SIMD_UNROLL
        for (int k = 0; k < kt; k++) {
            vf sum = vf_mul(vf_load_i8(b[k]->qs), vf_load(q[0] + d));
            SIMD_UNROLL
            for (int e = VF_N; e < TIER_Q8_ELEMS; e += VF_N)
                sum = vf_fma(vf_load_i8(b[k]->qs + e), vf_load(q[0] + d + e), sum);
            acc[k] = vf_fma(sum, vf_set1_f16(b[k]->d), acc[k]);
        }
        return;
    }
    SIMD_UNROLL
    for (int e = 0; e < TIER_Q8_ELEMS; e += VF_N) {
        vf x[VF_N];
        SIMD_UNROLL
        for (int k = 0; k < kt; k++) x[k] = vf_mul(vf_load_i8(b[k]->qs + e), scale[k]);
        SIMD_UNROLL
        for (int i = 0; i < qt; i++) {
            vf y = vf_load(q[i] + d + e);
            SIMD_UNROLL
            for (int k = 0; k < kt; k++) acc[i * kt + k] = vf_fma(x[k], y, acc[i * kt + k]);
        }
    }
}

/* ---- types of four and five bits, see kv_low.h ----------------------------------------------- */

/* q of a block's elements. */
SIMD_INLINE vb tier_low_bytes(const kv_low *f, const uint8_t *block) {
    static const int8_t codes[KV_LOW_CODES] = {QUANT_IQ4_VALUES};
    vb q = vb_nibbles(block + f->qs);
    if (f->codes) return vb_look_up(q, codes);
    if (f->qh) q = vb_add_bits(q, block + f->qh);
    return f->least ? vb_minus(q, -f->least) : q;
}

SIMD_INLINE vf tier_low_m(const kv_low *f, const uint8_t *block) {
    return f->m ? vf_set1_f16(kv_low_half(block + f->m)) : vf_zero();
}

/* Sums over one block. As with Q8_0, with one query the scale multiplies the sum, and m multiplies
 * the sum of the query's elements. */
SIMD_INLINE void tier_score_step_low(const kv_low *f, int qt, const char *const *row,
                                     const float *const *q, int d, vf *acc) {
    int kt = VF_N / qt;
    vf total = vf_zero();
    SIMD_UNROLL
    for (int e = 0; e < KV_LOW_ELEMS; e += VF_N)
        if (f->m && qt == 1) total = vf_add(total, vf_load(q[0] + d + e));
    SIMD_UNROLL
    for (int k = 0; k < kt; k++) {
        const uint8_t *b = (const uint8_t *)row[k] + d / KV_LOW_ELEMS * f->bytes;
        const vb bytes = tier_low_bytes(f, b);
        const vf scale = vf_set1_f16(kv_low_half(b)), m = tier_low_m(f, b);
        vf sum = vf_zero();
        SIMD_UNROLL
        for (int e = 0; e < KV_LOW_ELEMS; e += VF_N) {
            vf x = vb_floats(bytes, e);
            if (qt == 1) {
                sum = vf_fma(x, vf_load(q[0] + d + e), sum);
                continue;
            }
            x = f->m ? vf_fma(x, scale, m) : vf_mul(x, scale);
            SIMD_UNROLL
            for (int i = 0; i < qt; i++)
                acc[i * kt + k] = vf_fma(x, vf_load(q[i] + d + e), acc[i * kt + k]);
        }
        if (qt > 1) continue;
        acc[k] = vf_fma(sum, scale, acc[k]);
        if (f->m) acc[k] = vf_fma(total, m, acc[k]);
    }
}

/* Adds a row's weighted values, `vc` vectors from element d on: whole blocks, or part of one
 * block. */
SIMD_INLINE void tier_values_row_low(const tier_tile *t, const kv_low *f, int qt, int vc,
                                     const char *row, int d, int j, vf *acc) {
    const int per_block = KV_LOW_ELEMS / VF_N, n = vc < per_block ? vc : per_block;
    const uint8_t *b = (const uint8_t *)row + d / KV_LOW_ELEMS * f->bytes;
    const vf first = vf_set1(t->s[j]);
    SIMD_UNROLL
    for (int c = 0; c < vc; c += n, b += f->bytes) {
        const vb bytes = tier_low_bytes(f, b);
        const vf scale = vf_set1_f16(kv_low_half(b)), m = tier_low_m(f, b);
        int8_t part[KV_LOW_ELEMS];
        if (n < per_block) vb_store(part, bytes);
        SIMD_UNROLL
        for (int e = 0; e < n; e++) {
            vf v = n < per_block ? vf_load_i8(part + d % KV_LOW_ELEMS + e * VF_N)
                                 : vb_floats(bytes, e * VF_N);
            if (qt == 1) {
                acc[c + e] = vf_fma(vf_mul(scale, first), v, acc[c + e]);
                if (f->m) acc[c + e] = vf_fma(m, first, acc[c + e]);
                continue;
            }
            v = f->m ? vf_fma(v, scale, m) : vf_mul(v, scale);
            SIMD_UNROLL
            for (int i = 0; i < qt; i++)
                acc[i * vc + c + e] = vf_fma(vf_set1(t->s[i * ATTN_SCORES + j]), v,
                                             acc[i * vc + c + e]);
        }
    }
}

static void tier_low_floats(const kv_low *f, const char *row, int dim, float *out) {
    const uint8_t *b = (const uint8_t *)row;
    for (int d = 0; d < dim; d += KV_LOW_ELEMS, b += f->bytes) {
        const vb bytes = tier_low_bytes(f, b);
        const vf scale = vf_set1_f16(kv_low_half(b)), m = tier_low_m(f, b);
        SIMD_UNROLL
        for (int e = 0; e < KV_LOW_ELEMS; e += VF_N)
            vf_store(out + d + e, vf_fma(vb_floats(bytes, e), scale, m));
    }
}

/* ---- passes ---------------------------------------------------------------------------------- */

SIMD_INLINE void tier_store_scores(const tier_tile *t, int qt, int j, vf *acc) {
    int kt = VF_N / qt;
    float flat[VF_N];
    vf_store(flat, vf_hsum_each(acc));
    SIMD_UNROLL
    for (int i = 0; i < qt; i++)
        memcpy(t->s + i * ATTN_SCORES + j, flat + i * kt, (size_t)kt * sizeof(float));
}

/* Sums for KT rows from `row` on, of F32, F16 or BF16, over whole vectors. Addresses are relative
 * to every fourth row, so that they fit into registers; the following rows, contiguous in the
 * cache, are prefetched in one sweep. */
SIMD_INLINE void tier_score_rows(const tier_tile *t, quant_type type, int qt, const char *row,
                                 const char *ahead, const float *const *q, vf *acc) {
    int kt = VF_N / qt;
    const size_t elem = type == QUANT_F32 ? sizeof(float) : sizeof(uint16_t);
    /* bytes per step, of all rows */
    const size_t stride = t->stride, bytes = (size_t)kt * VF_N * elem;
    const char *base[VF_N / 4 + 1];
    SIMD_UNROLL
    for (int k = 0; k < kt; k += 4) base[k / 4] = row + (size_t)k * stride;
    for (int d = 0; d + VF_N <= t->dim; d += VF_N) {
        vf x[VF_N];
        if (ahead) {
            SIMD_UNROLL
            for (size_t line = 0; line < bytes; line += 64) SIMD_PREFETCH(ahead + line);
            ahead += bytes;
        }
        SIMD_UNROLL
        for (int k = 0; k < kt; k++)
            x[k] = tier_row(base[k / 4] + (size_t)(k % 4) * stride, type, 0, VF_N);
        SIMD_UNROLL
        for (int k = 0; k < kt; k += 4) base[k / 4] += VF_N * elem;
        SIMD_UNROLL
        for (int i = 0; i < qt; i++) {
            vf y = vf_load(q[i] + d);
            SIMD_UNROLL
            for (int k = 0; k < kt; k++) acc[i * kt + k] = vf_fma(x[k], y, acc[i * kt + k]);
        }
    }
}

/* Scores of positions [lo, hi). May write up to KT - 1 further scores per query, but reads no
 * further rows. */
SIMD_INLINE void tier_scores(const tier_tile *t, quant_type type, int qt) {
    const bool low = kv_is_low(type), blocks = low || type == QUANT_Q8_0;
    const kv_low f = kv_low_of(type);
    int kt = VF_N / qt, dim = t->dim, step = blocks ? TIER_Q8_ELEMS : VF_N;
    const int line_mask = (1 << t->line_shift) - 1;
    const float *q[VF_N];
    for (int i = 0; i < qt; i++) q[i] = t->q + (size_t)(i < t->n_q ? i : t->n_q - 1) * (size_t)dim;
    for (int j = t->lo; j < t->hi; j += kt) {
        const char *row[VF_N];
        vf acc[VF_N];
        if (!blocks && j + kt <= t->hi && dim % VF_N == 0) {
            SIMD_UNROLL
            for (int k = 0; k < VF_N; k++) acc[k] = vf_zero();
            const char *ahead = j < t->n_ahead ? t->ahead + (size_t)j * t->ahead_stride : NULL;
            tier_score_rows(t, type, qt, t->rows + (size_t)j * t->stride, ahead, q, acc);
            tier_store_scores(t, qt, j, acc);
            continue;
        }
        SIMD_UNROLL
        for (int k = 0; k < kt; k++)
            row[k] = t->rows + (size_t)(j + k < t->hi ? j + k : t->hi - 1) * t->stride;
        SIMD_UNROLL
        for (int k = 0; k < VF_N; k++) acc[k] = vf_zero();
        int d = 0;
        size_t offset = 0;
        for (; d + step <= dim; d += step) {
            if (t->n_ahead && (d & line_mask) == 0) {
                for (int k = 0; k < kt; k++) tier_prefetch(t, j + k, offset);
                offset += 64;
            }
            if (low)
                tier_score_step_low(&f, qt, row, q, d, acc);
            else if (type == QUANT_Q8_0)
                tier_score_step_q8(qt, row, q, d, acc);
            else
                tier_score_step(type, qt, row, q, d, VF_N, acc);
        }
        if (d < dim) tier_score_step(type, qt, row, q, d, dim - d, acc);
        tier_store_scores(t, qt, j, acc);
    }
}

/* Adds whole blocks of a Q8_0 row. With one query the scale multiplies the weight, once per block;
 * several queries share scaled values. */
SIMD_INLINE void tier_values_row_q8(const tier_tile *t, int qt, int vc, const block_q8_0 *b, int j,
                                    vf *acc) {
    const int per_block = TIER_Q8_ELEMS / VF_N;
    vf v[16], scale = vf_zero();
    SIMD_UNROLL
    for (int c = 0; c < vc; c++) {
        if (c % per_block == 0) {
            scale = vf_set1_f16(b[c / per_block].d);
            if (qt == 1) scale = vf_mul(scale, vf_set1(t->s[j]));
        }
        v[c] = vf_load_i8(b[c / per_block].qs + c % per_block * VF_N);
        if (qt == 1)
            acc[c] = vf_fma(scale, v[c], acc[c]);
        else
            v[c] = vf_mul(v[c], scale);
    }
    if (qt == 1) return;
    SIMD_UNROLL
    for (int i = 0; i < qt; i++) {
        vf p = vf_set1(t->s[i * ATTN_SCORES + j]);
        SIMD_UNROLL
        for (int c = 0; c < vc; c++) acc[i * vc + c] = vf_fma(p, v[c], acc[i * vc + c]);
    }
}

/* Columns [d, d + vc vectors) of the values' weighted sums; `n` elements in the last vector. */
SIMD_INLINE void tier_values_chunk(const tier_tile *t, quant_type type, int qt, int vc, int d,
                                   int n) {
    vf acc[16];
    SIMD_UNROLL
    for (int k = 0; k < qt * vc; k++) acc[k] = vf_zero();
    const kv_low f = kv_low_of(type);
    const int line_mask = (1 << t->line_shift) - 1;
    bool ahead = t->n_ahead && (d & line_mask) == 0;
    size_t offset = (size_t)(d >> t->line_shift) * 64;
    int lines = (vc * VF_N + line_mask) >> t->line_shift;
    for (int j = t->lo; j < t->hi; j++) {
        const char *row = t->rows + (size_t)j * t->stride;
        if (ahead)
            for (int k = 0; k < lines; k++) tier_prefetch(t, j, offset + (size_t)k * 64);
        if (kv_is_low(type)) {
            tier_values_row_low(t, &f, qt, vc, row, d, j, acc);
            continue;
        }
        if (type == QUANT_Q8_0 && vc * VF_N % TIER_Q8_ELEMS == 0) {
            tier_values_row_q8(t, qt, vc, (const block_q8_0 *)row + d / TIER_Q8_ELEMS, j, acc);
            continue;
        }
        vf v[16];
        SIMD_UNROLL
        for (int c = 0; c < vc; c++) v[c] = tier_row(row, type, d + c * VF_N, n);
        SIMD_UNROLL
        for (int i = 0; i < qt; i++) {
            vf p = vf_set1(t->s[i * ATTN_SCORES + j]);
            SIMD_UNROLL
            for (int c = 0; c < vc; c++) acc[i * vc + c] = vf_fma(p, v[c], acc[i * vc + c]);
        }
    }
    SIMD_UNROLL
    for (int i = 0; i < qt; i++) {
        if (i >= t->n_q) break;
        float *to = t->acc + (size_t)i * (size_t)t->dim + d;
        vf keep = vf_set1(t->keep[i]);
        SIMD_UNROLL
        for (int c = 0; c < vc; c++) {
            if (n == VF_N)
                vf_store(to + c * VF_N, vf_fma(vf_load(to + c * VF_N), keep, acc[i * vc + c]));
            else
                vf_store_part(to, vf_fma(vf_load_part(to, n), keep, acc[i * vc + c]), n);
        }
    }
}

/* acc = acc * keep + sum over [lo, hi) of weight * value. */
SIMD_INLINE void tier_values(const tier_tile *t, quant_type type, int qt) {
    int vc = VF_N / qt < 8 ? VF_N / qt : 8, d = 0, dim = t->dim;
    for (; d + vc * VF_N <= dim; d += vc * VF_N) tier_values_chunk(t, type, qt, vc, d, VF_N);
    for (; vc > 4 && d + 4 * VF_N <= dim; d += 4 * VF_N) tier_values_chunk(t, type, qt, 4, d, VF_N);
    for (; vc > 2 && d + 2 * VF_N <= dim; d += 2 * VF_N) tier_values_chunk(t, type, qt, 2, d, VF_N);
    for (; d + VF_N <= dim; d += VF_N) tier_values_chunk(t, type, qt, 1, d, VF_N);
    if (d < dim) tier_values_chunk(t, type, qt, 1, d, dim - d);
}

/* One function per type and number of queries in the tile: 1, 2, 4, 8. */
typedef void tier_pass(const tier_tile *t);
#define TIER_PASSES(name, type)                                                                    \
    static void tier_scores_##name##_1(const tier_tile *t) {                                       \
        tier_scores(t, type, 1);                                                                   \
    }                                                                                              \
    static void tier_scores_##name##_2(const tier_tile *t) {                                       \
        tier_scores(t, type, 2);                                                                   \
    }                                                                                              \
    static void tier_scores_##name##_4(const tier_tile *t) {                                       \
        tier_scores(t, type, 4);                                                                   \
    }                                                                                              \
    static void tier_scores_##name##_8(const tier_tile *t) {                                       \
        tier_scores(t, type, 8);                                                                   \
    }                                                                                              \
    static void tier_values_##name##_1(const tier_tile *t) {                                       \
        tier_values(t, type, 1);                                                                   \
    }                                                                                              \
    static void tier_values_##name##_2(const tier_tile *t) {                                       \
        tier_values(t, type, 2);                                                                   \
    }                                                                                              \
    static void tier_values_##name##_4(const tier_tile *t) {                                       \
        tier_values(t, type, 4);                                                                   \
    }                                                                                              \
    static void tier_values_##name##_8(const tier_tile *t) {                                       \
        tier_values(t, type, 8);                                                                   \
    }
TIER_PASSES(f32, QUANT_F32)
TIER_PASSES(f16, QUANT_F16)
TIER_PASSES(q8, QUANT_Q8_0)
TIER_PASSES(bf16, QUANT_BF16)
TIER_PASSES(q4_0, QUANT_Q4_0)
TIER_PASSES(q4_1, QUANT_Q4_1)
TIER_PASSES(q5_0, QUANT_Q5_0)
TIER_PASSES(q5_1, QUANT_Q5_1)
TIER_PASSES(iq4_nl, QUANT_IQ4_NL)
#undef TIER_PASSES

#define TIER_ROW(what, name)                                                                       \
    {                                                                                              \
        tier_##what##_##name##_1, tier_##what##_##name##_2, tier_##what##_##name##_4,              \
            tier_##what##_##name##_8                                                               \
    }
#define TIER_TABLE(what)                                                                           \
    {                                                                                              \
        [QUANT_F32] = TIER_ROW(what, f32), [QUANT_F16] = TIER_ROW(what, f16),                      \
        [QUANT_Q8_0] = TIER_ROW(what, q8), [QUANT_BF16] = TIER_ROW(what, bf16),                    \
        [QUANT_Q4_0] = TIER_ROW(what, q4_0), [QUANT_Q4_1] = TIER_ROW(what, q4_1),                  \
        [QUANT_Q5_0] = TIER_ROW(what, q5_0), [QUANT_Q5_1] = TIER_ROW(what, q5_1),                  \
        [QUANT_IQ4_NL] = TIER_ROW(what, iq4_nl),                                                   \
    }
static tier_pass *const tier_score_passes[QUANT_TYPE_COUNT][4] = TIER_TABLE(scores);
static tier_pass *const tier_value_passes[QUANT_TYPE_COUNT][4] = TIER_TABLE(values);
#undef TIER_TABLE
#undef TIER_ROW

static int tier_size_column(int n_q) {
    return n_q == 1 ? 0 : n_q == 2 ? 1 : n_q <= 4 ? 2 : 3;
}

/* Converts scores [lo, hi) of query i in a block that begins at `block` to weights; updates m and
 * l; *keep is the factor of acc. False: the block adds nothing. */
static bool tier_softmax(const cpu_attn *a, int i, int64_t block, float *s, int lo, int hi,
                         float *keep) {
    int from = lo / VF_N * VF_N, to = (hi + VF_N - 1) / VF_N * VF_N;
    for (int j = from; j < lo; j++) s[j] = -INFINITY;
    for (int j = hi; j < to; j++) s[j] = -INFINITY;
    vf tops = vf_set1(-INFINITY), sum = vf_zero();
    if (a->softcap > 0) {
        vf cap = vf_set1(a->softcap), inverse = vf_set1(1.0f / a->softcap);
        for (int j = from; j < to; j += VF_N)
            vf_store(s + j, vf_mul(cap, vf_tanh(vf_mul(vf_load(s + j), inverse))));
        /* softcap has changed -inf to -cap */
        for (int j = from; j < lo; j++) s[j] = -INFINITY;
        for (int j = hi; j < to; j++) s[j] = -INFINITY;
    }
    if (a->slopes) {
        float slope = attn_slope(a, i);
        int offset = (int)(block + 1 - a->limit[i]);
        for (int j = lo; j < hi; j++) s[j] += slope * (float)(offset + j);
    }
    for (int j = from; j < to; j += VF_N) tops = vf_max(tops, vf_load(s + j));
    float top = vf_hmax(tops), old = a->m[i];
    for (int j = lo; j < hi && top == -INFINITY; j++) /* the largest of NaN and -inf may be -inf */
        if (isnan(s[j])) top = s[j];
    if (top == -INFINITY) return false;
    float m = top <= old ? old : top; /* a NaN is kept */
    for (int j = from; j < to; j += VF_N) {
        vf p = vf_exp(vf_sub(vf_load(s + j), vf_set1(m)));
        vf_store(s + j, p);
        sum = vf_add(sum, p);
    }
    *keep = m == old ? 1.0f : expf(old - m);
    a->m[i] = m;
    a->l[i] = a->l[i] * *keep + vf_hsum(sum);
    return true;
}

/* A block of positions [j, j + n): addresses and types of its rows. */
typedef struct tier_block {
    const char *k, *v;
    size_t k_stride, v_stride;
    quant_type type_k, type_v;
    int64_t j;
    int n;
} tier_block;

/* Adds the weighted values for the queries of a tile: together for positions to which all queries
 * attend, query by query for the others (at the edges of a mask). */
static void tier_tile_values(tier_tile *t, quant_type type, const int *lo, const int *hi) {
    tier_pass *const *pass = tier_value_passes[type];
    const int n_q = t->n_q, dim = t->dim;
    const float *keep = t->keep, one = 1.0f;
    float *s = t->s, *acc = t->acc;
    int from = lo[0], to = hi[0];
    for (int i = 1; i < n_q; i++) {
        from = lo[i] > from ? lo[i] : from;
        to = hi[i] < to ? hi[i] : to;
    }
    bool together = from < to;
    if (together) {
        t->lo = from, t->hi = to;
        pass[tier_size_column(n_q)](t);
    }
    t->n_q = 1;
    t->n_ahead = 0;
    for (int i = 0; i < n_q; i++) {
        t->s = s + i * ATTN_SCORES;
        t->acc = acc + (size_t)i * (size_t)dim;
        t->keep = together ? &one : keep + i;
        t->lo = lo[i], t->hi = together ? from : hi[i];
        if (t->lo < t->hi) pass[0](t);
        t->lo = to, t->hi = hi[i];
        if (together && t->lo < t->hi) pass[0](t);
    }
}

/* The highest of scores [lo, hi); a NaN is kept. */
static void tier_highest(const float *s, int lo, int hi, float *m) {
    float top = *m;
    for (int j = lo; j < hi; j++) top = s[j] <= top ? top : s[j];
    *m = top;
}

/* Queries [i, i + n_q) against one block. `next` is the following block, for prefetching; NULL when
 * memory is not the limit. */
static void tier_tile_block(const cpu_attn *a, int i, int n_q, const tier_block *b,
                            const tier_block *next) {
    int lo[ATTN_TILE], hi[ATTN_TILE], from = ATTN_BLOCK, to = 0;
    float keep[ATTN_TILE];
    for (int k = 0; k < n_q; k++) {
        if (!attn_visible(a, i + k, b->j, b->n, &lo[k], &hi[k])) {
            lo[k] = hi[k] = 0;
            continue;
        }
        from = lo[k] < from ? lo[k] : from;
        to = hi[k] > to ? hi[k] : to;
    }
    if (from >= to) return;
    size_t v_dim = (size_t)attn_value_dim(a);
    const bool keys = !a->v; /* no values: the next block's keys follow */
    tier_tile t = {.rows = b->k,
                   .stride = b->k_stride,
                   .dim = a->head_dim,
                   .n_q = n_q,
                   .lo = from,
                   .hi = to,
                   .q = a->q + (size_t)i * (size_t)a->head_dim,
                   .s = a->scratch,
                   .acc = keys ? NULL : a->acc + (size_t)i * v_dim,
                   .keep = keep,
                   .ahead = keys && next ? next->k : b->v,
                   .ahead_stride = keys ? b->k_stride : b->v_stride,
                   .n_ahead = !next  ? 0
                              : keys ? next->n
                                     : b->n,
                   .line_shift = tier_line_shift(keys ? b->type_k : b->type_v)};
    tier_score_passes[b->type_k][tier_size_column(n_q)](&t);
    for (int k = 0; k < n_q && keys; k++)
        tier_highest(t.s + k * ATTN_SCORES, lo[k], hi[k], &a->m[i + k]);
    if (keys) return;
    for (int k = 0; k < n_q; k++)
        if (lo[k] < hi[k] &&
            !tier_softmax(a, i + k, b->j, t.s + k * ATTN_SCORES, lo[k], hi[k], keep + k))
            lo[k] = hi[k] = 0;
    t.dim = (int)v_dim;
    t.rows = b->v;
    t.stride = b->v_stride;
    t.ahead = next ? next->k : NULL;
    t.ahead_stride = b->k_stride;
    t.n_ahead = next ? next->n : 0;
    t.line_shift = tier_line_shift(b->type_k);
    tier_tile_values(&t, b->type_v, lo, hi);
}

static tier_block tier_block_at(const cpu_attn *a, int64_t j) {
    int64_t n = a->k1 - j;
    n = n < 0 ? 0 : n > ATTN_BLOCK ? ATTN_BLOCK : n;
    size_t row = n > 0 ? (size_t)j : 0; /* no pointer beyond the end */
    return (tier_block){.k = (const char *)a->k + row * a->k_stride,
                        .v = a->v ? (const char *)a->v + row * a->v_stride : NULL,
                        .k_stride = a->k_stride,
                        .v_stride = a->v_stride,
                        .type_k = a->type_k,
                        .type_v = a->type_v,
                        .j = j,
                        .n = (int)n};
}

/* Converts n rows to float [n][padded dim]; *rows, *stride and *type then describe the copy. Float
 * rows are used in place. */
static void tier_decode(const char **rows, size_t *stride, quant_type *type, int n, int dim,
                        float *out) {
    if (*type == QUANT_F32) return;
    const bool low = kv_is_low(*type);
    const kv_low f = kv_low_of(*type);
    size_t ld = attn_padded_dim(dim);
    for (int j = 0; j < n; j++) {
        const char *row = *rows + (size_t)j * *stride;
        float *to = out + (size_t)j * ld;
        int d = 0;
        if (low) {
            tier_low_floats(&f, row, dim, to);
        } else if (*type == QUANT_BF16) {
            for (; d + VF_N <= dim; d += VF_N) vf_store(to + d, tier_row(row, QUANT_BF16, d, VF_N));
            if (d < dim) vf_store_part(to + d, tier_row(row, QUANT_BF16, d, dim - d), dim - d);
        } else if (*type == QUANT_F16) {
            for (; d + VF_N <= dim; d += VF_N) vf_store(to + d, tier_row(row, QUANT_F16, d, VF_N));
            if (d < dim) vf_store_part(to + d, tier_row(row, QUANT_F16, d, dim - d), dim - d);
        } else {
            for (; d < dim; d += VF_N) vf_store(to + d, tier_row(row, QUANT_Q8_0, d, VF_N));
        }
    }
    *rows = (const char *)out;
    *stride = ld * sizeof(float);
    *type = QUANT_F32;
}

static void tier_attention_many(const cpu_attn *a) {
    enum { TILE = 4 }; /* with 4 (2) keys and 4 (2) output vectors: half a load per product */
    float *k = (float *)a->scratch + ATTN_TILE * ATTN_SCORES;
    float *v = k + ATTN_BLOCK * attn_padded_dim(a->head_dim);
    for (int64_t j = a->k0; j < a->k1; j += ATTN_BLOCK) {
        tier_block b = tier_block_at(a, j);
        int lo, hi, i = 0;
        while (i < a->n_q && !attn_visible(a, i, j, b.n, &lo, &hi)) i++;
        if (i == a->n_q) continue;
        tier_decode(&b.k, &b.k_stride, &b.type_k, b.n, a->head_dim, k);
        if (b.v) tier_decode(&b.v, &b.v_stride, &b.type_v, b.n, attn_value_dim(a), v);
        for (; i < a->n_q; i += TILE)
            tier_tile_block(a, i, a->n_q - i < TILE ? a->n_q - i : TILE, &b, NULL);
    }
}

static void tier_attention(const cpu_attn *a) {
    if (a->n_q > ATTN_TILE) {
        tier_attention_many(a);
        return;
    }
    tier_block b = tier_block_at(a, a->k0);
    while (b.n > 0) {
        tier_block next = tier_block_at(a, b.j + ATTN_BLOCK);
        if (a->n_q > 0) tier_tile_block(a, 0, a->n_q, &b, &next);
        b = next;
    }
}

/* ---- writing the cache ----------------------------------------------------------------------- */

/* The same bytes as scalar_store_q8_0. */
static void tier_store_q8_0(const float *x, block_q8_0 *dst) {
    const float largest_half = 65504.0f, infinity = INFINITY;
    vf top = vf_zero();
    for (int i = 0; i < TIER_Q8_ELEMS; i += VF_N) {
        vf v = vf_abs(vf_load(x + i));
        /* values that are not below infinity, including NaN, become infinity */
        top = vf_max(top, vf_select(vf_gt(vf_set1(infinity), v), v, vf_set1(infinity)));
    }
    float amax = vf_hmax(top), scale = amax / 127.0f;
    if (scale > largest_half) scale = amax < infinity ? largest_half : NAN;
    dst->d = quant_f32_to_f16(scale);
    float d = quant_f16_to_f32(dst->d);
    if (!(d > 0)) {
        memset(dst->qs, 0, sizeof dst->qs);
        return;
    }
    for (int i = 0; i < TIER_Q8_ELEMS; i += VF_N) {
        vf q = vf_div(vf_load(x + i), vf_set1(d));
        vf_store_i8(dst->qs + i, vf_max(vf_set1(-127.0f), vf_min(vf_set1(127.0f), q)));
    }
}

/* The same bytes as scalar_store_low. */
static void tier_store_low(const float *x, const kv_low *f, uint8_t *dst) {
    int8_t q[KV_LOW_ELEMS];
    const float infinity = INFINITY;
    float d, m;
    vf top = vf_zero(), hi = vf_set1(-INFINITY), least = hi; /* least: maximum of -x */
    for (int i = 0; i < KV_LOW_ELEMS; i += VF_N) {
        vf v = vf_load(x + i), size = vf_abs(v);
        top = vf_max(top, vf_select(vf_gt(vf_set1(infinity), size), size, vf_set1(infinity)));
        hi = vf_max(hi, v);
        least = vf_max(least, vf_sub(vf_zero(), v));
    }
    kv_low_scale(f, -vf_hmax(least), vf_hmax(hi), vf_hmax(top) < infinity, dst, &d, &m);
    const vf bottom = vf_set1((float)f->least), most = vf_set1((float)f->most);
    for (int i = 0; i < KV_LOW_ELEMS; i += VF_N) {
        vf y = vf_zero();
        if (d < 0 || d > 0) y = vf_div(vf_sub(vf_load(x + i), vf_set1(m)), vf_set1(d));
        if (f->codes) {
            vf below = vf_zero();
            for (int c = 0; c < KV_LOW_CODES - 1; c++)
                below = vf_add(
                    below, vf_select(vf_gt(y, vf_set1(kv_low_middles[c])), vf_set1(1), vf_zero()));
            vf_store_i8(q + i, below);
        } else {
            vf_store_i8(q + i, vf_sub(vf_round(vf_max(bottom, vf_min(most, y))), bottom));
        }
    }
    kv_low_pack(f, q, dst);
}

static void tier_store_bf16(const float *x, uint16_t *dst, int64_t n) {
    for (int64_t i = 0; i < n; i += 2 * VF_N) {
        uint16_t part[2 * VF_N];
        const int count = n - i < 2 * VF_N ? (int)(n - i) : 2 * VF_N;
        float last[2 * VF_N] = {0};
        memcpy(last, x + i, (size_t)count * sizeof *x);
        vi_store(part, vi_pack_bf16(vf_load(last), vf_load(last + VF_N)));
        memcpy(dst + i, part, (size_t)count * sizeof *dst);
    }
}

static void tier_kv_store(const float *x, void *dst, quant_type type, int64_t n) {
    if (type == QUANT_F32) {
        memcpy(dst, x, (size_t)n * sizeof *x);
    } else if (type == QUANT_F16) {
        uint16_t *half = dst;
        int64_t i = 0;
        for (; i + VF_N <= n; i += VF_N) vf_store_f16(half + i, vf_load(x + i));
        if (i < n) vf_store_f16_part(half + i, vf_load_part(x + i, (int)(n - i)), (int)(n - i));
    } else if (type == QUANT_BF16) {
        tier_store_bf16(x, dst, n);
    } else if (kv_is_low(type)) {
        const kv_low f = kv_low_of(type);
        for (int64_t i = 0; i < n / KV_LOW_ELEMS; i++)
            tier_store_low(x + i * KV_LOW_ELEMS, &f, (uint8_t *)dst + i * f.bytes);
    } else {
        for (int64_t i = 0; i < n / TIER_Q8_ELEMS; i++)
            tier_store_q8_0(x + i * TIER_Q8_ELEMS, (block_q8_0 *)dst + i);
    }
}

#endif
