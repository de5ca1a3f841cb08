/* scalar_mat_t.c: the definition of the kernels for matrices with one row per neuron, in plain C.
 *
 * axpy_rows adds rows in order to float sums, so that splitting a list of rows does not change the
 * result; matmul_t adds in double and rounds once. Weights are the floats that the format defines
 * (src/quant). The tier "reference" also uses these kernels, and so does every tier for types
 * without a faster kernel. */
#include <assert.h>

#include "act.h"
#include "scalar_parts.h"
#include "tiers.h"

static void axpy_rows(const cpu_mat *w, const int32_t *rows, int64_t n_rows, const float *h,
                      int64_t ldh, int64_t n_cols, float *acc, int64_t ldacc) {
    float weights[SCALAR_CHUNK];
    for (int64_t i = 0; i < n_rows; i++) {
        for (int64_t j0 = 0; j0 < w->n_in; j0 += SCALAR_CHUNK) {
            int64_t n = scalar_chunk(j0, w->n_in);
            scalar_weights(w, rows[i], j0, n, weights);
            for (int64_t c = 0; c < n_cols; c++) {
                float factor = h[c * ldh + i], *to = acc + c * ldacc + j0;
                if (factor == 0.0f) continue;
                for (int64_t j = 0; j < n; j++) to[j] += factor * weights[j];
            }
        }
    }
}

static void matmul_t(const cpu_mat *w, int64_t col0, int64_t col1, const cpu_act *h, float *y,
                     int64_t ldy, void *scratch) {
    assert(h->kind == CPU_ACT_F32 && h->layout == CPU_ACT_PANELS && h->n == w->n_out);
    (void)scratch;
    float weights[SCALAR_CHUNK];
    for (int64_t j0 = col0; j0 < col1; j0 += SCALAR_CHUNK) {
        int64_t n = scalar_chunk(j0, col1);
        for (int64_t c0 = 0; c0 < h->n_cols; c0 += CPU_PANEL) {
            const float(*panel)[CPU_PANEL] = act_panel(h, c0 / CPU_PANEL);
            double sum[CPU_PANEL][SCALAR_CHUNK] = {{0}};
            for (int64_t r = 0; r < w->n_out; r++) {
                scalar_weights(w, r, j0, n, weights);
                for (int c = 0; c < CPU_PANEL; c++) {
                    for (int64_t j = 0; j < n; j++)
                        sum[c][j] += (double)panel[r][c] * (double)weights[j];
                }
            }
            for (int64_t c = c0; c < h->n_cols && c < c0 + CPU_PANEL; c++) {
                for (int64_t j = 0; j < n; j++) y[c * ldy + j0 + j] = (float)sum[c - c0][j];
            }
        }
    }
}

void cpu_init_scalar_mat_t(cpu_kernels *k) {
    for (uint32_t type = 0; type < QUANT_TYPE_COUNT; type++) {
        const quant_traits *t = quant_find(type);
        if (t == NULL || t->dequantize == NULL) continue;
        k->mat_t[type] = (cpu_mat_t_kernels){axpy_rows, CPU_ACT_F32, matmul_t};
    }
}
