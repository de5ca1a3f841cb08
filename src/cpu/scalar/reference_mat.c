/* reference_mat.c: the arithmetic of the fast tiers in plain C, for comparisons with tight
 * tolerances.
 *
 * Quantized weights are multiplied with int8 activations: per 16 elements an exact integer dot,
 * times both scales, minus the minimum times the sum of the activations; sums are in double. bf16
 * weights are multiplied with bf16 activations; their products are exact in float. A fast tier then
 * differs only in the order and width of its additions. F32 and F16 weights use float activations
 * as in the scalar tier, which computes them. */
#include <assert.h>
#include <stddef.h>

#include "act.h"
#include "decode.h"
#include "tiers.h"

_Static_assert((int)DECODE_GROUP == (int)CPU_ACT_GROUP, "weights and activations share groups");

static const void *row_at(const cpu_mat *w, int64_t r) {
    return (const char *)w->data + (size_t)r * w->row_bytes;
}

/* The contribution of a group, from the integer dots of its halves. */
static double group_value(const decode_group *g, const int32_t dot[2], const int32_t sum[2],
                          float d) {
    double value = 0.0;
    for (int h = 0; h < 2; h++) {
        value += (double)g->scale[h] * (double)dot[h];
        value -= (double)g->min[h] * (double)sum[h];
    }
    return value * (double)d;
}

/* y[c * ldy] of one row for every column. */
static void q8_row(const cpu_mat *w, int64_t r, const cpu_act *x, float *y, int64_t ldy) {
    assert(x->kind == CPU_ACT_Q8 && x->layout == CPU_ACT_COLUMNS && x->n == w->n_in);
    decode_fn decode = decode_find(w->type);
    for (int64_t c = 0; c < x->n_cols; c++) {
        const void *column = act_column(x, c);
        const int8_t *q = act_q8_q(column);
        const float *d = act_q8_d(column, x->n);
        const int32_t *sum = act_q8_sum(column, x->n);
        double total = 0.0;
        for (int64_t i = 0; i < w->n_in / DECODE_GROUP; i++, q += DECODE_GROUP) {
            decode_group g;
            decode(row_at(w, r), i, &g);
            int32_t dot[2] = {0, 0};
            for (int k = 0; k < DECODE_GROUP; k++) dot[k / DECODE_HALF] += g.q[k] * q[k];
            total += group_value(&g, dot, sum + 2 * i, d[i]);
        }
        y[c * ldy] = (float)total;
    }
}

static void q8_matvec(const cpu_mat *w, int64_t row0, int64_t row1, const cpu_act *x, float *y,
                      int64_t ldy) {
    for (int64_t r = row0; r < row1; r++) q8_row(w, r, x, y + r, ldy);
}

static void q8_matvec_rows(const cpu_mat *w, const int32_t *rows, int64_t n_rows, const cpu_act *x,
                           float *y, int64_t ldy) {
    for (int64_t i = 0; i < n_rows; i++) q8_row(w, rows[i], x, y + i, ldy);
}

/* One row times one panel: total[c] for its 16 vectors. */
static void q8_row_panel(const void *row, decode_fn decode, const act_q8_panel_group *panel,
                         int64_t n_groups, double total[CPU_PANEL]) {
    for (int c = 0; c < CPU_PANEL; c++) total[c] = 0.0;
    for (int64_t i = 0; i < n_groups; i++, panel++) {
        decode_group g;
        decode(row, i, &g);
        for (int c = 0; c < CPU_PANEL; c++) {
            int32_t dot[2] = {0, 0};
            for (int k = 0; k < DECODE_GROUP; k++)
                dot[k / DECODE_HALF] += g.q[k] * panel->q[k / 4][c][k % 4];
            int32_t sum[2] = {panel->sum[0][c], panel->sum[1][c]};
            total[c] += group_value(&g, dot, sum, panel->d[c]);
        }
    }
}

static void q8_matmul(const cpu_mat *w, int64_t row0, int64_t row1, const cpu_act *x, float *y,
                      int64_t ldy, void *scratch) {
    assert(x->kind == CPU_ACT_Q8 && x->layout == CPU_ACT_PANELS && x->n == w->n_in);
    (void)scratch;
    decode_fn decode = decode_find(w->type);
    for (int64_t r = row0; r < row1; r++) {
        for (int64_t c0 = 0; c0 < x->n_cols; c0 += CPU_PANEL) {
            double total[CPU_PANEL];
            q8_row_panel(row_at(w, r), decode, act_panel(x, c0 / CPU_PANEL), w->n_in / DECODE_GROUP,
                         total);
            for (int64_t c = c0; c < x->n_cols && c < c0 + CPU_PANEL; c++)
                y[c * ldy + r] = (float)total[c - c0];
        }
    }
}

/* Rows of bf16 may be used unchanged: they only need 2-byte alignment. */
static double bf16_product(uint16_t a, uint16_t b) {
    return (double)quant_bf16_to_f32(a) * (double)quant_bf16_to_f32(b);
}

static void bf16_row(const cpu_mat *w, int64_t r, const cpu_act *x, float *y, int64_t ldy) {
    assert(x->kind == CPU_ACT_BF16 && x->layout == CPU_ACT_COLUMNS && x->n == w->n_in);
    const uint16_t *row = row_at(w, r);
    for (int64_t c = 0; c < x->n_cols; c++) {
        const uint16_t *column = act_column(x, c);
        double total = 0.0;
        for (int64_t k = 0; k < w->n_in; k++) total += bf16_product(row[k], column[k]);
        y[c * ldy] = (float)total;
    }
}

static void bf16_matvec(const cpu_mat *w, int64_t row0, int64_t row1, const cpu_act *x, float *y,
                        int64_t ldy) {
    for (int64_t r = row0; r < row1; r++) bf16_row(w, r, x, y + r, ldy);
}

static void bf16_matvec_rows(const cpu_mat *w, const int32_t *rows, int64_t n_rows,
                             const cpu_act *x, float *y, int64_t ldy) {
    for (int64_t i = 0; i < n_rows; i++) bf16_row(w, rows[i], x, y + i, ldy);
}

static void bf16_matmul(const cpu_mat *w, int64_t row0, int64_t row1, const cpu_act *x, float *y,
                        int64_t ldy, void *scratch) {
    assert(x->kind == CPU_ACT_BF16 && x->layout == CPU_ACT_PANELS && x->n == w->n_in);
    (void)scratch;
    for (int64_t r = row0; r < row1; r++) {
        const uint16_t *row = row_at(w, r);
        for (int64_t c = 0; c < x->n_cols; c++) {
            const uint16_t(*panel)[CPU_PANEL][2] = act_panel(x, c / CPU_PANEL);
            double total = 0.0;
            for (int64_t k = 0; k < w->n_in; k++)
                total += bf16_product(row[k], panel[k / 2][c % CPU_PANEL][k % 2]);
            y[c * ldy + r] = (float)total;
        }
    }
}

void cpu_init_reference_mat(cpu_kernels *k) {
    for (uint32_t type = 0; type < QUANT_TYPE_COUNT; type++) {
        if (decode_find((quant_type)type) == NULL) continue;
        k->mat[type] = (cpu_mat_kernels){CPU_ACT_Q8, q8_matvec, q8_matmul, q8_matvec_rows};
    }
    /* both compute column by column; a whole panel as the threshold lets tests cover both */
    k->tiled[CPU_ACT_Q8] = (cpu_tiled){.from = CPU_PANEL, .products_per_ns = 0.5};
    k->tiled[CPU_ACT_BF16] = (cpu_tiled){.from = CPU_PANEL, .products_per_ns = 0.5};
    k->mat[QUANT_BF16] = (cpu_mat_kernels){CPU_ACT_BF16, bf16_matvec, bf16_matmul,
                                           bf16_matvec_rows};
}
