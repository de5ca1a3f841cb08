/* scalar_mat.c: the definition of the matrix kernels in plain C.
 *
 * Every weight is converted to the float that the format defines (src/quant) and multiplied with
 * float activations; sums are in double and rounded once. Errors of other tiers are measured
 * relative to these results. */
#include <assert.h>

#include "act.h"
#include "scalar_parts.h"
#include "tiers.h"

/* y[c * ldy] of row r for every column. */
static void matvec_row(const cpu_mat *w, int64_t r, const cpu_act *x, float *y, int64_t ldy) {
    assert(x->kind == CPU_ACT_F32 && x->layout == CPU_ACT_COLUMNS && x->n == w->n_in);
    float weights[SCALAR_CHUNK];
    for (int64_t c = 0; c < x->n_cols; c++) {
        const float *column = act_column(x, c);
        double sum = 0.0;
        for (int64_t k0 = 0; k0 < w->n_in; k0 += SCALAR_CHUNK) {
            int64_t n = scalar_chunk(k0, w->n_in);
            scalar_weights(w, r, k0, n, weights);
            for (int64_t k = 0; k < n; k++) sum += (double)weights[k] * (double)column[k0 + k];
        }
        y[c * ldy] = (float)sum;
    }
}

static void matvec(const cpu_mat *w, int64_t row0, int64_t row1, const cpu_act *x, float *y,
                   int64_t ldy) {
    for (int64_t r = row0; r < row1; r++) matvec_row(w, r, x, y + r, ldy);
}

static void matvec_rows(const cpu_mat *w, const int32_t *rows, int64_t n_rows, const cpu_act *x,
                        float *y, int64_t ldy) {
    for (int64_t i = 0; i < n_rows; i++) matvec_row(w, rows[i], x, y + i, ldy);
}

static void matmul(const cpu_mat *w, int64_t row0, int64_t row1, const cpu_act *x, float *y,
                   int64_t ldy, void *scratch) {
    assert(x->kind == CPU_ACT_F32 && x->layout == CPU_ACT_PANELS && x->n == w->n_in);
    (void)scratch;
    float weights[SCALAR_CHUNK];
    for (int64_t r = row0; r < row1; r++) {
        for (int64_t c0 = 0; c0 < x->n_cols; c0 += CPU_PANEL) {
            const float(*panel)[CPU_PANEL] = act_panel(x, c0 / CPU_PANEL);
            double sum[CPU_PANEL] = {0};
            for (int64_t k0 = 0; k0 < w->n_in; k0 += SCALAR_CHUNK) {
                int64_t n = scalar_chunk(k0, w->n_in);
                scalar_weights(w, r, k0, n, weights);
                for (int64_t k = 0; k < n; k++) {
                    for (int c = 0; c < CPU_PANEL; c++)
                        sum[c] += (double)weights[k] * (double)panel[k0 + k][c];
                }
            }
            for (int64_t c = c0; c < x->n_cols && c < c0 + CPU_PANEL; c++)
                y[c * ldy + r] = (float)sum[c - c0];
        }
    }
}

void cpu_init_scalar_mat(cpu_kernels *k) {
    for (uint32_t type = 0; type < QUANT_TYPE_COUNT; type++) {
        const quant_traits *t = quant_find(type);
        if (t == NULL || t->dequantize == NULL) continue;
        k->mat[type] = (cpu_mat_kernels){CPU_ACT_F32, matvec, matmul, matvec_rows};
    }
    /* matvec decodes each row again for every column */
    for (int kind = 0; kind < CPU_ACT_KIND_COUNT; kind++)
        k->tiled[kind] = (cpu_tiled){.from = 5, .products_per_ns = 4};
    k->act_encode = scalar_act_encode;
}
