/* scalar_ops.c: the reference of all kernels between matrix products: norms, RoPE, activations and
 * sums. Plain C in double, to compare the other tiers with, and for CPUs without a faster tier.
 *
 * Pure functions without state; any thread. NaN and infinity pass through the formulas. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "act.h"
#include "hadamard.h"
#include "scalar_parts.h"
#include "tiers.h"

/* The sum as float; infinite when it overflows or is NaN. */
static float sum_of(double sum) {
    return sum <= (double)FLT_MAX ? (float)sum : INFINITY;
}

static float scalar_rms_norm(const float *x, const float *w, float *y, int64_t n, float eps) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)x[i] * x[i];
    double scale = 1.0 / sqrt(sum / (double)n + (double)eps);
    for (int64_t i = 0; i < n; i++) {
        double v = x[i] * scale;
        y[i] = (float)(w ? v * w[i] : v);
    }
    return sum_of(sum);
}

/* The variance is computed from centred values: no cancellation, at the cost of a second pass. */
static float scalar_layer_norm(const float *x, const float *w, const float *b, float *y, int64_t n,
                               float eps) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i];
    double mean = sum / (double)n;
    for (int64_t i = 0; i < n; i++) squares += (x[i] - mean) * (x[i] - mean);
    double scale = 1.0 / sqrt(squares / (double)n + (double)eps);
    for (int64_t i = 0; i < n; i++) {
        double v = (x[i] - mean) * scale;
        if (w) v *= w[i];
        if (b) v += b[i];
        y[i] = (float)v;
    }
    return sum_of(squares);
}

static void scalar_rope(float *x, int n_rot, const float *cs, bool neox) {
    int half = n_rot / 2;
    for (int i = 0; i < half; i++) {
        int even = neox ? i : 2 * i, odd = neox ? i + half : 2 * i + 1;
        double c = cs[2 * i], s = cs[2 * i + 1], a = x[even], b = x[odd];
        x[even] = (float)(a * c - b * s);
        x[odd] = (float)(a * s + b * c);
    }
}

static void scalar_hadamard(float *x, int64_t n, int block) {
    hadamard_run(x, n, block);
}

/* NaN stays NaN, because a false comparison keeps x. */
static double scalar_relu(double x) {
    return x < 0 ? 0 : x;
}

static double scalar_activation(activation f, double threshold, double x) {
    const double sqrt_2_over_pi = 0.79788456080286536;
    switch (f) {
    case ACTIVATION_SILU:
        return x / (1 + exp(-x));
    case ACTIVATION_GELU:
        return 0.5 * x * (1 + tanh(sqrt_2_over_pi * (x + 0.044715 * x * x * x)));
    case ACTIVATION_RELU_SQUARED:
        return scalar_relu(x) * scalar_relu(x);
    case ACTIVATION_FATRELU:
        return x > threshold ? x : 0;
    default: /* relu, drelu */
        return scalar_relu(x);
    }
}

static void scalar_activate(activation f, float threshold, const float *gate, const float *up,
                            float *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        double v = scalar_activation(f, (double)threshold, (double)gate[i]);
        if (up) v *= f == ACTIVATION_DRELU ? scalar_relu((double)up[i]) : (double)up[i];
        y[i] = (float)v;
    }
}

static void scalar_add(const float *a, const float *b, float *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] = a[i] + b[i];
}

static void scalar_gemm_tile(const float *a, const float *b, int64_t n_k, float *c, int64_t ldc,
                             bool add) {
    double sums[CPU_GEMM_ROWS][CPU_GEMM_COLS] = {{0}};
    for (int64_t k = 0; k < n_k; k++)
        for (int i = 0; i < CPU_GEMM_ROWS; i++)
            for (int j = 0; j < CPU_GEMM_COLS; j++)
                sums[i][j] += (double)a[k * CPU_GEMM_ROWS + i] * (double)b[k * CPU_GEMM_COLS + j];
    for (int i = 0; i < CPU_GEMM_ROWS; i++)
        for (int j = 0; j < CPU_GEMM_COLS; j++) {
            float *y = c + i * ldc + j;
            *y = (float)(add ? (double)*y + sums[i][j] : sums[i][j]);
        }
}

static void scalar_softcap(float *x, float cap, int64_t n) {
    for (int64_t i = 0; i < n; i++) x[i] = (float)((double)cap * tanh((double)x[i] / (double)cap));
}

static void scalar_decay(const float *x, const float *bias, float a, float least, float *y,
                         int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        double v = (double)x[i] + (double)bias[i];
        double bounded = (double)least / (1 + exp((double)a * v));
        double free = (double)a * (fmax(v, 0) + log1p(exp(-fabs(v))));
        y[i] = (float)exp(least < 0 ? bounded : free);
    }
}

static void scalar_gate(const float *gate, float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) x[i] = (float)((double)x[i] / (1 + exp(-(double)gate[i])));
}

static void scalar_recur_row(const cpu_recurrence *a, int64_t t, int64_t r) {
    float *s = a->state + r * a->n;
    const float *decay = a->decay + t * a->n, *key = a->key + t * a->n;
    double d = (double)a->value[t * a->n_rows + r], known = 0, sum = 0;
    for (int64_t i = 0; i < a->n; i++) known += (double)s[i] * (double)decay[i] * (double)key[i];
    if (a->beta) d = (double)a->beta[t] * (d - known);
    for (int64_t i = 0; i < a->n; i++) {
        double v = (double)s[i] * (double)decay[i] + d * (double)key[i];
        s[i] = (float)v;
        sum += v * (double)a->query[t * a->n + i];
    }
    a->out[t * a->ld_out + r] = (float)sum;
}

static void scalar_recur(const cpu_recurrence *a) {
    for (int64_t t = 0; t < a->n_tokens; t++)
        for (int64_t r = 0; r < a->n_rows; r++) scalar_recur_row(a, t, r);
}

static int64_t scalar_select(const float *score, const float *bias, float threshold, int32_t first,
                             int64_t n, int32_t *out) {
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) {
        float v = bias ? score[i] + bias[i] : score[i]; /* rounded, as in the other tiers */
        if (!(v < threshold)) out[count++] = first + (int32_t)i;
    }
    return count;
}

static int64_t scalar_keep(float *v, const float *weight, int32_t *rows, float cut, int64_t n) {
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) {
        if (fabsf(v[i]) * (weight ? weight[i] : 1) <= cut) continue;
        rows[count] = rows[i];
        v[count++] = v[i];
    }
    return count;
}

static void scalar_sign_dot(const uint8_t *bits, int64_t row0, int64_t row1, const cpu_act *x,
                            float *y, int64_t ldy) {
    for (int64_t c = 0; c < x->n_cols; c++) {
        const void *column = act_column(x, c);
        const int8_t *q = act_q8_q(column);
        const float *d = act_q8_d(column, x->n);
        for (int64_t r = row0; r < row1; r++) {
            const uint8_t *row = bits + r * (x->n / 8);
            double sum = 0;
            for (int64_t k = 0; k < x->n; k++) {
                double v = (double)d[k / CPU_ACT_GROUP] * q[k];
                sum += row[k / 8] >> k % 8 & 1 ? v : -v;
            }
            y[c * ldy + r] = (float)sum;
        }
    }
}

void cpu_init_scalar_ops(cpu_kernels *k) {
    k->rms_norm = scalar_rms_norm;
    k->layer_norm = scalar_layer_norm;
    k->rope = scalar_rope;
    k->hadamard = scalar_hadamard;
    k->activate = scalar_activate;
    k->add = scalar_add;
    k->softcap = scalar_softcap;
    k->decay = scalar_decay;
    k->gate = scalar_gate;
    k->recur = scalar_recur;
    k->gemm_tile = scalar_gemm_tile;
    k->kv_store = scalar_kv_store;
    k->select = scalar_select;
    k->keep = scalar_keep;
    k->sign_dot = scalar_sign_dot;
    k->attention = scalar_attention;
}
