/* neon_act.c: encoding of activations, and the streaming read that measures bandwidth.
 *
 * A vector is encoded 16 bytes at a time (4 floats, 8 bfloat16 or 16 int8). For panels the same 16
 * bytes of 4 vectors are transposed as 4 x 4 words of 4 bytes, which gives the interleaving of
 * act.h for all three kinds. */
#include <math.h>
#include <string.h>

#include "neon_mat.h"

enum { QUARTER = CPU_PANEL / 4 }; /* vectors of a panel that are transposed together */

/* Up to 4 floats at x + i of a vector of n; zeros behind its end. */
NEON_INLINE float32x4_t load4(const float *x, int64_t i, int64_t n) {
    if (i + 4 <= n) return vld1q_f32(x + i);
    float part[4] = {0};
    if (i < n) memcpy(part, x + i, (size_t)(n - i) * sizeof *part);
    return vld1q_f32(part);
}

/* Round to nearest even; a NaN stays one (its quiet bit is set). */
NEON_INLINE uint16x4_t to_bf16(float32x4_t x) {
    uint32x4_t u = vreinterpretq_u32_f32(x);
    uint32x4_t odd = vandq_u32(vshrq_n_u32(u, 16), vdupq_n_u32(1));
    uint32x4_t r = vaddq_u32(u, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
    r = vbslq_u32(vceqq_f32(x, x), r, vorrq_u32(u, vdupq_n_u32(0x00400000)));
    return vshrn_n_u32(r, 16);
}

/* 16 bytes from element i on: 4 floats, or 8 as bfloat16. */
NEON_INLINE uint32x4_t float_step(const float *x, int64_t i, int64_t n, bool bf16) {
    if (!bf16) return vreinterpretq_u32_f32(load4(x, i, n));
    return vreinterpretq_u32_u16(
        vcombine_u16(to_bf16(load4(x, i, n)), to_bf16(load4(x, i + 4, n))));
}

/* 16 floats divided by the scale, as int8. The clamp only matters when the scale is denormal and so
 * inexact. */
NEON_INLINE int8x16_t q8_half(const float32x4_t v[4], float scale) {
    const float32x4_t d = vdupq_n_f32(scale), limit = vdupq_n_f32(127.0f);
    int16x4_t q[4];
    for (int i = 0; i < 4; i++) {
        float32x4_t r = vminq_f32(vdivq_f32(v[i], d), limit);
        q[i] = vmovn_s32(vcvtnq_s32_f32(vmaxq_f32(r, vnegq_f32(limit))));
    }
    return vcombine_s8(vmovn_s16(vcombine_s16(q[0], q[1])), vmovn_s16(vcombine_s16(q[2], q[3])));
}

/* One group of 32: q[0], q[1] as 16 bytes each, the scale to *d, sums of the halves to sum. */
static inline void q8_group(const float *x, int8x16_t q[2], float *d, int32_t sum[2]) {
    const float32x4_t zero = vdupq_n_f32(0.0f);
    float32x4_t v[8], top = zero, check = zero;
    for (int i = 0; i < 8; i++) {
        v[i] = vld1q_f32(x + 4 * i);
        top = vmaxq_f32(top, vabsq_f32(v[i]));
        check = vfmaq_f32(check, v[i], zero); /* NaN if anything is not finite */
    }
    bool bad = vminvq_u32(vceqq_f32(check, check)) == 0;
    float scale = vmaxvq_f32(top) / 127.0f;
    sum[0] = sum[1] = 0;
    q[0] = q[1] = vdupq_n_s8(0);
    *d = bad ? NAN : scale;
    if (bad || scale == 0.0f) return;
    for (int h = 0; h < 2; h++) {
        q[h] = q8_half(v + 4 * h, scale);
        sum[h] = vaddlvq_s8(q[h]);
    }
}

static void encode_column(const float *x, int64_t n, cpu_act_kind kind, char *out) {
    size_t n_bytes = act_column_bytes(kind, n);
    if (kind != CPU_ACT_Q8) {
        bool bf16 = kind == CPU_ACT_BF16;
        int64_t i = 0;
        for (size_t at = 0; at < n_bytes; at += 16, i += bf16 ? 8 : 4)
            vst1q_u8((uint8_t *)out + at, vreinterpretq_u8_u32(float_step(x, i, n, bf16)));
        return;
    }
    size_t groups = (size_t)n / CPU_ACT_GROUP, q_len = (size_t)n, d_len = groups * sizeof(float);
    float *d = (float *)(void *)(out + act_pad64(q_len));
    int32_t *sum = (int32_t *)(void *)((char *)d + act_pad64(d_len));
    for (size_t g = 0; g < groups; g++) {
        int8x16_t q[2];
        int8_t *to = (int8_t *)out + g * CPU_ACT_GROUP;
        q8_group(x + g * CPU_ACT_GROUP, q, &d[g], &sum[2 * g]);
        vst1q_s8(to, q[0]);
        vst1q_s8(to + 16, q[1]);
    }
    memset(out + q_len, 0, act_pad64(q_len) - q_len);
    memset((char *)d + d_len, 0, act_pad64(d_len) - d_len);
    memset((char *)sum + 2 * d_len, 0, act_pad64(2 * d_len) - 2 * d_len);
}

/* One group of 4 vectors of a panel, of which `cols` are there, from vector `lane` on. */
static void encode_panel_q8(const float *x, int64_t ldx, int cols, int lane,
                            act_q8_panel_group *out) {
    uint32x4_t v[2][QUARTER];
    for (int c = 0; c < QUARTER; c++) {
        float d = 0.0f;
        int32_t sum[2] = {0, 0};
        int8x16_t q[2] = {vdupq_n_s8(0), vdupq_n_s8(0)};
        if (c < cols) q8_group(x + c * ldx, q, &d, sum);
        out->d[lane + c] = d;
        for (int h = 0; h < 2; h++) {
            out->sum[h][lane + c] = sum[h];
            v[h][c] = vreinterpretq_u32_s8(q[h]);
        }
    }
    for (int h = 0; h < 2; h++) {
        neon_transpose4(v[h]);
        for (int k = 0; k < 4; k++)
            vst1q_s8(out->q[4 * h + k][lane], vreinterpretq_s8_u32(v[h][k]));
    }
}

static void encode_panel_float(const float *x, int64_t ldx, int cols, int64_t n, bool bf16,
                               char *out) {
    int64_t step = bf16 ? 8 : 4;
    for (int64_t i = 0; i < n; i += step) {
        uint32x4_t v[QUARTER];
        for (int c = 0; c < QUARTER; c++)
            v[c] = c < cols ? float_step(x + c * ldx, i, n, bf16) : vdupq_n_u32(0);
        neon_transpose4(v);
        int64_t left = bf16 ? (n - i + 1) / 2 : n - i;
        for (int k = 0; k < 4 && k < left; k++, out += 4 * CPU_PANEL)
            vst1q_u8((uint8_t *)out, vreinterpretq_u8_u32(v[k]));
    }
}

void neon_act_encode(const float *x, int64_t ldx, int64_t col0, int64_t col1, cpu_act *out) {
    if (out->layout == CPU_ACT_COLUMNS) {
        size_t stride = act_column_bytes(out->kind, out->n);
        for (int64_t c = col0; c < col1; c++)
            encode_column(x + c * ldx, out->n, out->kind, (char *)out->data + (size_t)c * stride);
        return;
    }
    size_t stride = act_panel_bytes(out->kind, out->n);
    int64_t last = (col1 + CPU_PANEL - 1) / CPU_PANEL * CPU_PANEL;
    for (int64_t c = col0; c < last; c += QUARTER) {
        char *panel = (char *)out->data + (size_t)(c / CPU_PANEL) * stride;
        int lane = (int)(c % CPU_PANEL);
        int cols = col1 - c >= QUARTER ? QUARTER : col1 > c ? (int)(col1 - c) : 0;
        const float *from = cols > 0 ? x + c * ldx : x;
        if (out->kind == CPU_ACT_Q8) {
            act_q8_panel_group *groups = (act_q8_panel_group *)(void *)panel;
            for (int64_t g = 0; g < out->n / CPU_ACT_GROUP; g++)
                encode_panel_q8(from + g * CPU_ACT_GROUP, ldx, cols, lane, &groups[g]);
        } else {
            encode_panel_float(from, ldx, cols, out->n, out->kind == CPU_ACT_BF16,
                               panel + 4 * lane);
        }
    }
}

uint64_t neon_stream_read(const void *p, size_t n_bytes) {
    /* Four streams, far apart, so that several of the processor's prefetchers work at once; each
     * also asks for lines some way ahead, across page borders, where those stop. */
    enum { STREAMS = 4, LINE = 64, AHEAD = 4096 };
    const uint8_t *base = p;
    size_t part = n_bytes / LINE / STREAMS * LINE;
    uint8x16_t sum[STREAMS];
    for (int s = 0; s < STREAMS; s++) sum[s] = vdupq_n_u8(0);
    for (size_t i = 0; i < part; i += LINE)
        for (int s = 0; s < STREAMS; s++) {
            const uint8_t *line = base + (size_t)s * part + i;
            NEON_PREFETCH(line + AHEAD);
            uint8x16_t low = veorq_u8(vld1q_u8(line), vld1q_u8(line + 16));
            uint8x16_t high = veorq_u8(vld1q_u8(line + 32), vld1q_u8(line + 48));
            sum[s] = veorq_u8(sum[s], veorq_u8(low, high));
        }
    for (size_t i = part * STREAMS; i + 16 <= n_bytes; i += 16)
        sum[0] = veorq_u8(sum[0], vld1q_u8(base + i));
    uint8x16_t all = veorq_u8(veorq_u8(sum[0], sum[1]), veorq_u8(sum[2], sum[3]));
    return vaddvq_u64(vreinterpretq_u64_u8(all));
}
