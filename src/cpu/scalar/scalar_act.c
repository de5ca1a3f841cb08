/* scalar_act.c: the definition of act_encode in plain C, for all kinds and layouts (act.h): every
 * tier's act_encode must produce the same bits. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "act.h"
#include "scalar_parts.h"

typedef struct q8_group {
    int8_t q[CPU_ACT_GROUP];
    float d;
    int32_t sum[2];
} q8_group;

/* Quantizes 32 floats to int8. Division is correctly rounded on every machine, so q is
 * reproducible. A scale that underflows to 0 represents values that are negligible for every
 * weight. q is clamped because a denormal scale is inexact. */
static void q8_encode(const float *x, q8_group *g) {
    const float q_max = 127.0f;
    float amax = 0.0f;
    bool finite = true;
    memset(g, 0, sizeof *g);
    for (int i = 0; i < CPU_ACT_GROUP; i++) {
        finite = finite && isfinite(x[i]);
        amax = fmaxf(amax, fabsf(x[i]));
    }
    if (!finite) {
        g->d = NAN;
        return;
    }
    g->d = amax / q_max;
    if (g->d == 0.0f) return;
    for (int i = 0; i < CPU_ACT_GROUP; i++) {
        float q = fminf(fmaxf(rintf(x[i] / g->d), -q_max), q_max);
        g->q[i] = (int8_t)q;
        g->sum[i / 16] += g->q[i];
    }
}

static void encode_column(const float *x, int64_t c, cpu_act *out) {
    size_t n = (size_t)out->n;
    size_t n_bytes = act_column_bytes(out->kind, out->n);
    char *column = (char *)out->data + (size_t)c * n_bytes;
    if (act_form(out->kind, out->layout, out->n_cols) == CPU_ACT_F32) {
        memcpy(column, x, n * sizeof *x);
        memset(column + n * sizeof *x, 0, n_bytes - n * sizeof *x);
        return;
    }
    memset(column, 0, n_bytes);
    if (act_form(out->kind, out->layout, out->n_cols) == CPU_ACT_BF16) {
        uint16_t *h = (uint16_t *)(void *)column;
        for (size_t i = 0; i < n; i++) h[i] = quant_f32_to_bf16(x[i]);
        return;
    }
    float *d = (float *)(void *)(column + act_pad64(n));
    int32_t *sum = (int32_t *)(void *)((char *)d + act_pad64(n / CPU_ACT_GROUP * sizeof *d));
    for (size_t g = 0; g < n / CPU_ACT_GROUP; g++) {
        q8_group group;
        q8_encode(x + g * CPU_ACT_GROUP, &group);
        memcpy(column + g * CPU_ACT_GROUP, group.q, sizeof group.q);
        d[g] = group.d;
        memcpy(sum + 2 * g, group.sum, sizeof group.sum);
    }
}

/* Stores element i of vector `lane` as two numbers. */
static void split_encode(float x, char *panel, int64_t i, int lane) {
    uint32_t bits;
    float high;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x8000) & 0xffff0000;
    memcpy(&high, &bits, sizeof high);
    uint16_t *part = (uint16_t *)(void *)(panel + act_split_at(i)) + 2 * lane + i % 2;
    part[0] = quant_f32_to_bf16(high);
    part[ACT_SPLIT_BYTES / (int)sizeof *part] = quant_f32_to_bf16(x - high);
}

/* Stores vector `lane` of a panel; x NULL: an absent vector, zeros. */
static void encode_lane(const float *x, char *panel, int lane, const cpu_act *out) {
    int64_t n = out->n;
    if (act_form(out->kind, out->layout, out->n_cols) == CPU_ACT_F32_SPLIT) {
        for (int64_t i = 0; i < (n + ACT_SPLIT - 1) / ACT_SPLIT * ACT_SPLIT; i++)
            split_encode(x != NULL && i < n ? x[i] : 0.0f, panel, i, lane);
        return;
    }
    if (act_form(out->kind, out->layout, out->n_cols) == CPU_ACT_F32) {
        float(*f)[CPU_PANEL] = (void *)panel;
        for (int64_t k = 0; k < n; k++) f[k][lane] = x != NULL ? x[k] : 0.0f;
        return;
    }
    if (act_form(out->kind, out->layout, out->n_cols) == CPU_ACT_BF16) {
        uint16_t(*h)[CPU_PANEL][2] = (void *)panel;
        for (int64_t k = 0; k < (n + 1) / 2 * 2; k++)
            h[k / 2][lane][k % 2] = x != NULL && k < n ? quant_f32_to_bf16(x[k]) : 0;
        return;
    }
    act_q8_panel_group *groups = (void *)panel;
    for (int64_t g = 0; g < n / CPU_ACT_GROUP; g++) {
        q8_group group = {0};
        if (x != NULL) q8_encode(x + g * CPU_ACT_GROUP, &group);
        for (int i = 0; i < CPU_ACT_GROUP; i++) groups[g].q[i / 4][lane][i % 4] = group.q[i];
        groups[g].d[lane] = group.d;
        for (int h = 0; h < 2; h++) groups[g].sum[h][lane] = group.sum[h];
    }
}

void scalar_act_encode(const float *x, int64_t ldx, int64_t col0, int64_t col1, cpu_act *out) {
    if (out->layout == CPU_ACT_COLUMNS) {
        for (int64_t c = col0; c < col1; c++) encode_column(x + c * ldx, c, out);
        return;
    }
    assert(col0 % CPU_PANEL == 0);
    for (int64_t c0 = col0; c0 < col1; c0 += CPU_PANEL) {
        char *panel = (char *)out->data +
                      (size_t)(c0 / CPU_PANEL) *
                          act_panel_bytes(act_form(out->kind, out->layout, out->n_cols), out->n);
        for (int lane = 0; lane < CPU_PANEL; lane++)
            encode_lane(c0 + lane < col1 ? x + (c0 + lane) * ldx : NULL, panel, lane, out);
    }
}
