/* tier_low.h: all products with the formats of three bits and less. A template: each tier's _low.c
 * includes it once, after its two dot products.
 *
 * These types are rare and their decoders long, so there is one kernel per operation for all of
 * them: a function of the type (quant_low.h, compiled for the tier) unpacks 256 elements of a row
 * to bytes and scales; the other code is independent of the type. */
#ifndef CPU_TIER_LOW_H
#define CPU_TIER_LOW_H

#include <string.h>

#include "act.h"
#include "quant_low.h"
#include "rows.h"
#include "simd.h"
#include "tiers.h"

enum {
    LOW_CHUNK = 256,
    LOW_GROUPS = LOW_CHUNK / CPU_ACT_GROUP,
    LOW_VECTORS = CPU_PANEL / VF_N, /* vectors of a panel's columns */
    LOW_COLS = 8                    /* columns that share a row's unpacked weights in matvec */
};

typedef struct low_chunk {
    _Alignas(64) int8_t q[LOW_CHUNK];
    float scale[LOW_CHUNK / 16];
} low_chunk;

/* The first n_groups groups of a chunk; p is its first block. */
typedef void (*low_unpack)(const uint8_t *p, int n_groups, low_chunk *out);

#define LOW_UNPACK(type, name, ...)                                                                \
    static void low_unpack_##name(const uint8_t *p, int n_groups, low_chunk *out) {                \
        enum { PER_BLOCK = name##_elems / CPU_ACT_GROUP };                                         \
        const block_##name *b = (const void *)p;                                                   \
        for (int g0 = 0; g0 < n_groups; g0 += PER_BLOCK, b++) {                                    \
            const float unit = name##_unit(b);                                                     \
            for (int g = 0; g < PER_BLOCK; g++) {                                                  \
                quant_group group;                                                                 \
                name##_group(b, g, unit, &group);                                                  \
                memcpy(out->q + CPU_ACT_GROUP * (g0 + g), group.q, sizeof group.q);                \
                memcpy(out->scale + 2 * (g0 + g), group.scale, sizeof group.scale);                \
            }                                                                                      \
        }                                                                                          \
    }
QUANT_LOW(LOW_UNPACK)

/* Functions that read a type's rows. */
typedef struct low_reader {
    low_unpack unpack;
    int64_t chunk_bytes;
} low_reader;

static low_reader low_reader_of(const cpu_mat *w) {
    static const low_reader readers[QUANT_TYPE_COUNT] = {
#define LOW_READER(type, name, ...)                                                                \
    [QUANT_##type] = {low_unpack_##name, LOW_CHUNK / name##_elems * name##_bytes},
        QUANT_LOW(LOW_READER)
#undef LOW_READER
    };
    return readers[w->type];
}

/* Number of groups that a row has in chunk k. */
SIMD_INLINE int low_groups(const cpu_mat *w, int64_t k) {
    const int64_t left = (w->n_in - k * LOW_CHUNK) / CPU_ACT_GROUP;
    return left < LOW_GROUPS ? (int)left : LOW_GROUPS;
}

SIMD_INLINE int64_t low_chunks(const cpu_mat *w) {
    return (w->n_in + LOW_CHUNK - 1) / LOW_CHUNK;
}

/* ---- few columns ----------------------------------------------------------------------------- */

/* Row `row` times columns [col, col + n_cols), n_cols <= LOW_COLS. */
static void low_row(const cpu_mat *w, const low_reader *reader, const uint8_t *row,
                    const cpu_act *act, int64_t col, int n_cols, float *y, int64_t ldy) {
    act_q8_column x[LOW_COLS];
    low_sums acc[LOW_COLS];
    for (int c = 0; c < n_cols; c++) {
        x[c] = act_q8_at(act, col + c);
        acc[c] = low_zero();
    }
    for (int64_t k = 0; k < low_chunks(w); k++, row += reader->chunk_bytes) {
        low_chunk chunk;
        const int n_groups = low_groups(w, k);
        reader->unpack(row, n_groups, &chunk);
        for (int c = 0; c < n_cols; c++) {
            for (int g = 0; g < n_groups; g++)
                acc[c] = low_dot(acc[c], chunk.q + CPU_ACT_GROUP * g, x[c].q + CPU_ACT_GROUP * g,
                                 chunk.scale + 2 * g, x[c].d[g]);
            x[c] = act_q8_skip(x[c], n_groups);
        }
    }
    for (int c = 0; c < n_cols; c++) y[c * ldy] = low_sum(acc[c]);
}

static void low_run(const cpu_rows *s, const cpu_act *x, float *y, int64_t ldy) {
    const low_reader reader = low_reader_of(s->w);
    for (int64_t i = 0; i < s->n; i++)
        for (int64_t col = 0; col < x->n_cols; col += LOW_COLS) {
            const int64_t left = x->n_cols - col;
            low_row(s->w, &reader, rows_at(s, i), x, col, left < LOW_COLS ? (int)left : LOW_COLS,
                    y + col * ldy + i, ldy);
        }
}

static void low_matvec(const cpu_mat *w, int64_t row0, int64_t row1, const cpu_act *x, float *y,
                       int64_t ldy) {
    const cpu_rows s = {w, NULL, row0, row1 - row0, false};
    low_run(&s, x, y + row0, ldy);
}

static void low_matvec_rows(const cpu_mat *w, const int32_t *rows, int64_t n_rows, const cpu_act *x,
                            float *y, int64_t ldy) {
    const cpu_rows s = {w, rows, 0, n_rows, false};
    low_run(&s, x, y, ldy);
}

/* ---- many columns -----------------------------------------------------------------------------
 *
 * scratch: low_chunk block[LOW_ROWS][LOW_K], which stays in L2 while panels of 16 columns
 * sweep over it. */

enum { LOW_ROWS = 128, LOW_K = 4 /* chunks */ };
_Static_assert(LOW_ROWS *LOW_K * sizeof(low_chunk) <= CPU_SCRATCH_BYTES, "scratch");

/* Adds n_groups groups of a row times a panel to the 16 sums. */
SIMD_INLINE void low_panel(const low_chunk *row, int64_t n_groups, const act_q8_panel_group *x,
                           vf acc[LOW_VECTORS]) {
    for (int64_t g = 0; g < n_groups; g++, x++) {
        const low_chunk *chunk = row + g / LOW_GROUPS;
        const int at = (int)(g % LOW_GROUPS);
        for (int h = 0; h < 2; h++) {
            vf dot[LOW_VECTORS];
            low_panel_dot(chunk->q + CPU_ACT_GROUP * at + 16 * h, x->q + 4 * h, x->sum[h], dot);
            const vf scale = vf_set1(chunk->scale[2 * at + h]);
            for (int v = 0; v < LOW_VECTORS; v++)
                acc[v] = vf_fma(dot[v], vf_mul(scale, vf_load(x->d + VF_N * v)), acc[v]);
        }
    }
}

static void low_sweep(const low_chunk *block, int64_t n_rows, int64_t n_groups, int64_t group0,
                      const cpu_act *x, float *y, int64_t ldy) {
    for (int64_t col = 0; col < x->n_cols; col += CPU_PANEL) {
        const act_q8_panel_group *panel = act_panel(x, col / CPU_PANEL);
        const int64_t n_cols = x->n_cols - col < CPU_PANEL ? x->n_cols - col : CPU_PANEL;
        for (int64_t r = 0; r < n_rows; r++) {
            vf acc[LOW_VECTORS];
            float sums[CPU_PANEL], *to = y + col * ldy + r;
            for (int v = 0; v < LOW_VECTORS; v++) acc[v] = vf_zero();
            low_panel(block + r * LOW_K, n_groups, panel + group0, acc);
            for (int v = 0; v < LOW_VECTORS; v++) vf_store(sums + VF_N * v, acc[v]);
            for (int64_t c = 0; c < n_cols; c++)
                to[c * ldy] = group0 == 0 ? sums[c] : to[c * ldy] + sums[c];
        }
    }
}

static void low_matmul(const cpu_mat *w, int64_t row0, int64_t row1, const cpu_act *x, float *y,
                       int64_t ldy, void *scratch) {
    const low_reader reader = low_reader_of(w);
    low_chunk *block = scratch;
    for (int64_t first = row0; first < row1; first += LOW_ROWS)
        for (int64_t k0 = 0; k0 < low_chunks(w); k0 += LOW_K) {
            const int64_t n_rows = row1 - first < LOW_ROWS ? row1 - first : LOW_ROWS;
            int64_t n_groups = 0;
            for (int64_t r = 0; r < n_rows; r++) {
                const uint8_t *row = (const uint8_t *)w->data + (size_t)(first + r) * w->row_bytes;
                n_groups = 0;
                for (int64_t k = k0; k < k0 + LOW_K && k < low_chunks(w); k++) {
                    const int n = low_groups(w, k);
                    reader.unpack(row + k * reader.chunk_bytes, n, block + r * LOW_K + k - k0);
                    n_groups += n;
                }
            }
            low_sweep(block, n_rows, n_groups, k0 * LOW_GROUPS, x, y + first, ldy);
        }
}

/* ---- rows as outputs ------------------------------------------------------------------------- */

/* The floats of n_groups groups, times h. */
SIMD_INLINE void low_floats(const low_chunk *chunk, int n_groups, float h, float *out) {
    for (int i = 0; i < 2 * n_groups; i++) {
        const float scale = h * chunk->scale[i];
        for (int e = 0; e < 16; e++) out[16 * i + e] = scale * (float)chunk->q[16 * i + e];
    }
}

static void low_axpy(const cpu_mat *w, const int32_t *rows, int64_t n_rows, const float *h,
                     int64_t ldh, int64_t n_cols, float *acc, int64_t ldacc) {
    const low_reader reader = low_reader_of(w);
    for (int64_t i = 0; i < n_rows; i++) {
        const uint8_t *row = (const uint8_t *)w->data + (size_t)rows[i] * w->row_bytes;
        for (int64_t k = 0; k < low_chunks(w); k++) {
            low_chunk chunk;
            const int n_groups = low_groups(w, k);
            reader.unpack(row + k * reader.chunk_bytes, n_groups, &chunk);
            for (int64_t c = 0; c < n_cols; c++) {
                float add[LOW_CHUNK], *to = acc + c * ldacc + k * LOW_CHUNK;
                if (h[c * ldh + i] == 0.0f) continue;
                low_floats(&chunk, n_groups, h[c * ldh + i], add);
                for (int j = 0; j < n_groups * CPU_ACT_GROUP; j++) to[j] += add[j];
            }
        }
    }
}

/* scratch: float block[LOW_T_ROWS][LOW_CHUNK]. */
enum { LOW_T_ROWS = 64, LOW_T_COLS = 4 };
_Static_assert(LOW_T_ROWS *LOW_CHUNK * sizeof(float) <= CPU_SCRATCH_BYTES, "scratch");

/* y += block x panel (y = when `first`), for n_cols <= LOW_T_COLS columns and n outputs. */
SIMD_INLINE void low_t_tile(const float *block, int64_t n_rows, const float (*panel)[CPU_PANEL],
                            int col, int n_cols, int64_t n, float *y, int64_t ldy, bool first) {
    for (int64_t j = 0; j < n; j += VF_N) {
        vf acc[LOW_T_COLS];
        for (int c = 0; c < LOW_T_COLS; c++)
            acc[c] = first || c >= n_cols ? vf_zero() : vf_load(y + c * ldy + j);
        for (int64_t r = 0; r < n_rows; r++) {
            const vf v = vf_load(block + r * LOW_CHUNK + j);
            for (int c = 0; c < LOW_T_COLS; c++)
                acc[c] = vf_fma(v, vf_set1(panel[r][col + c]), acc[c]);
        }
        for (int c = 0; c < LOW_T_COLS && c < n_cols; c++) vf_store(y + c * ldy + j, acc[c]);
    }
}

static void low_t_sweep(const float *block, int64_t row0, int64_t n_rows, const cpu_act *h,
                        int64_t n, float *y, int64_t ldy) {
    for (int64_t col = 0; col < h->n_cols; col += LOW_T_COLS) {
        const float(*panel)[CPU_PANEL] = act_panel(h, col / CPU_PANEL);
        const int64_t left = h->n_cols - col;
        low_t_tile(block, n_rows, panel + row0, (int)(col % CPU_PANEL),
                   left < LOW_T_COLS ? (int)left : LOW_T_COLS, n, y + col * ldy, ldy, row0 == 0);
    }
}

static void low_matmul_t(const cpu_mat *w, int64_t col0, int64_t col1, const cpu_act *h, float *y,
                         int64_t ldy, void *scratch) {
    const low_reader reader = low_reader_of(w);
    float *block = scratch;
    for (int64_t j0 = col0; j0 < col1; j0 += LOW_CHUNK) {
        const int n_groups = low_groups(w, j0 / LOW_CHUNK);
        for (int64_t r0 = 0; r0 < w->n_out; r0 += LOW_T_ROWS) {
            const int64_t n = w->n_out - r0 < LOW_T_ROWS ? w->n_out - r0 : LOW_T_ROWS;
            for (int64_t r = 0; r < n; r++) {
                low_chunk chunk;
                const uint8_t *row = (const uint8_t *)w->data + (size_t)(r0 + r) * w->row_bytes;
                reader.unpack(row + j0 / LOW_CHUNK * reader.chunk_bytes, n_groups, &chunk);
                low_floats(&chunk, n_groups, 1.0f, block + r * LOW_CHUNK);
            }
            low_t_sweep(block, r0, n, h, n_groups * CPU_ACT_GROUP, y + j0, ldy);
        }
    }
}

static void low_enter(cpu_kernels *k) {
#define LOW_ENTRY(type, ...)                                                                       \
    k->mat[QUANT_##type] = (cpu_mat_kernels){CPU_ACT_Q8, low_matvec, low_matmul, low_matvec_rows}; \
    k->mat_t[QUANT_##type] = (cpu_mat_t_kernels){low_axpy, CPU_ACT_F32, low_matmul_t};
    QUANT_LOW(LOW_ENTRY)
#undef LOW_ENTRY
}

#endif
