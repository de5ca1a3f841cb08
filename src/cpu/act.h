/* act.h: memory layout of activations, one for all tiers, so that tiers can be mixed in one table
 * and compared bit by bit. Private to src/cpu.
 *
 * COLUMNS: vector c starts at data + c * act_column_bytes.
 *   F32   float x[n], zero-padded to a multiple of 16
 *   BF16  uint16_t x[n], zero-padded to a multiple of 32
 *   Q8    int8_t q[n] | float d[n/32] | int32_t sum[n/16], each part padded to 64 bytes
 *
 * Q8_BF16 is Q8 in columns and in one panel, BF16 in several panels. F32_SPLIT is F32 in columns
 * and in one panel, SPLIT in several panels.
 *
 * PANELS: panel p (vectors 16p .. 16p+15; absent vectors are zero) starts at data + p *
 * act_panel_bytes.
 *   F32    float x[n][16]
 *   BF16   uint16_t x[(n+1)/2][16][2]: pairs of elements, the operand of the bf16 dot unit
 *   Q8     act_q8_panel_group g[n/32]
 *   SPLIT  uint16_t x[n/32][2][16][16][2]: per 32 elements (zero-padded at the end) the pairs of
 *          their high parts, then of their low parts
 *
 * Q8: d = amax / 127 over a group of 32, q = round-to-nearest-even(x / d) in -127..127, 0 when amax
 * is 0; sum[i] is the sum of q over 16 elements (for formats with offsets or minima). A group with
 * a NaN or infinity gets d = NaN.
 *
 * SPLIT: the high part is x rounded to bfloat16, ties away from 0; the low part is x minus the high
 * part, also rounded. Where x is not finite, the low part is NaN. */
#ifndef CPU_ACT_H
#define CPU_ACT_H

#include "cpu.h"

/* Forced: in large kernels compilers would call even these functions. */
#define ACT_INLINE static inline __attribute__((always_inline))

typedef struct act_q8_panel_group { /* 32 elements of 16 vectors, 704 bytes */
    int8_t q[CPU_ACT_GROUP / 4][CPU_PANEL][4];
    float d[CPU_PANEL];
    int32_t sum[CPU_ACT_GROUP / 16][CPU_PANEL];
} act_q8_panel_group;

static inline size_t act_pad64(size_t n) {
    return (n + 63) & ~(size_t)63;
}

/* The stored form of n_cols vectors of a kind: F32, BF16, Q8, or CPU_ACT_F32_SPLIT for SPLIT. */
static inline cpu_act_kind act_form(cpu_act_kind kind, cpu_act_layout layout, int64_t n_cols) {
    const bool many = layout == CPU_ACT_PANELS && n_cols > CPU_PANEL;
    if (kind == CPU_ACT_F32_SPLIT) return many ? kind : CPU_ACT_F32;
    if (kind != CPU_ACT_Q8_BF16) return kind;
    return many ? CPU_ACT_BF16 : CPU_ACT_Q8;
}

/* ACT_SPLIT: elements of a block of a SPLIT panel; below, the offset of the high part of an
 * element's pair. */
enum { ACT_SPLIT = 32, ACT_SPLIT_BYTES = ACT_SPLIT * CPU_PANEL * (int)sizeof(uint16_t) };

static inline size_t act_split_at(int64_t i) {
    return (size_t)(i / ACT_SPLIT * 2 * ACT_SPLIT_BYTES + i % ACT_SPLIT / 2 * 4 * CPU_PANEL);
}

static inline size_t act_column_bytes(cpu_act_kind kind, int64_t n) {
    size_t size = (size_t)n;
    switch (kind) {
    case CPU_ACT_F32:
    case CPU_ACT_F32_SPLIT:
        return act_pad64(size * sizeof(float));
    case CPU_ACT_BF16:
        return act_pad64(size * sizeof(uint16_t));
    default:
        return act_pad64(size) + act_pad64(size / CPU_ACT_GROUP * sizeof(float)) +
               act_pad64(size / 16 * sizeof(int32_t));
    }
}

static inline size_t act_panel_bytes(cpu_act_kind kind, int64_t n) {
    size_t size = (size_t)n;
    switch (kind) {
    case CPU_ACT_F32:
        return size * CPU_PANEL * sizeof(float);
    case CPU_ACT_BF16:
        return (size + 1) / 2 * CPU_PANEL * 2 * sizeof(uint16_t);
    case CPU_ACT_F32_SPLIT:
        return act_split_at((n + ACT_SPLIT - 1) / ACT_SPLIT * ACT_SPLIT);
    default:
        return size / CPU_ACT_GROUP * sizeof(act_q8_panel_group);
    }
}

/* Parts of a Q8 column: q, d and sum. */
static inline const int8_t *act_q8_q(const void *column) {
    return column;
}
static inline const float *act_q8_d(const void *column, int64_t n) {
    return (const float *)((const char *)column + act_pad64((size_t)n));
}
static inline const int32_t *act_q8_sum(const void *column, int64_t n) {
    return (const int32_t *)((const char *)column + act_pad64((size_t)n) +
                             act_pad64((size_t)n / CPU_ACT_GROUP * sizeof(float)));
}

static inline const void *act_column(const cpu_act *a, int64_t c) {
    return (const char *)a->data + (size_t)c * act_column_bytes(a->kind, a->n);
}
static inline const void *act_panel(const cpu_act *a, int64_t p) {
    const cpu_act_kind form = act_form(a->kind, CPU_ACT_PANELS, a->n_cols);
    return (const char *)a->data + (size_t)p * act_panel_bytes(form, a->n);
}

/* Parts of a Q8 column, starting at a group. */
typedef struct act_q8_column {
    const int8_t *q;
    const float *d;
    const int32_t *sum;
} act_q8_column;

ACT_INLINE act_q8_column act_q8_at(const cpu_act *a, int64_t c) {
    const void *column = act_column(a, c);
    return (act_q8_column){act_q8_q(column), act_q8_d(column, a->n), act_q8_sum(column, a->n)};
}
ACT_INLINE act_q8_column act_q8_skip(act_q8_column x, int n_groups) {
    return (act_q8_column){x.q + n_groups * CPU_ACT_GROUP, x.d + n_groups, x.sum + 2 * n_groups};
}

#endif
