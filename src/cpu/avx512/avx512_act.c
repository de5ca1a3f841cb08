/* avx512_act.c: encoding of activations, and the streaming read that measures bandwidth.
 *
 * A vector is encoded 64 bytes at a time (16 floats, 32 bfloat16 or 64 int8). For panels the same
 * 64 bytes of 16 vectors are transposed as 16 x 16 words of 4 bytes, which gives the interleaving
 * of act.h for all three kinds. */
#include <float.h>
#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "act.h"
#include "avx512_mat.h"
#include "avx512_transpose.h"

/* Classes of VFPCLASSPS: quiet and signalling NaN, both infinities. */
enum { NOT_FINITE = 0x01 | 0x80 | 0x08 | 0x10 };

/* Up to 16 floats at x + i of a vector of n; zeros behind its end. */
static inline __m512 load16(const float *x, int64_t i, int64_t n) {
    if (i + 16 <= n) return _mm512_loadu_ps(x + i);
    if (i >= n) return _mm512_setzero_ps();
    return _mm512_maskz_loadu_ps((__mmask16)((1u << (n - i)) - 1), x + i);
}

/* Round to nearest even; a NaN stays one (its quiet bit is set). In integers, because the unit's
 * own conversion flushes denormals. */
static inline __m256i to_bf16(__m512 x) {
    __m512i u = _mm512_castps_si512(x);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    __m512i r = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    r = _mm512_mask_or_epi32(r, nan, u, _mm512_set1_epi32(0x00400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(r, 16));
}

static inline __m512i bf16_step(const float *x, int64_t i, int64_t n) {
    __m512i low = _mm512_castsi256_si512(to_bf16(load16(x, i, n)));
    return _mm512_inserti64x4(low, to_bf16(load16(x, i + 16, n)), 1);
}

/* One group of 32: q as 32 bytes, the scale to *d, sums of the halves to sum[0], sum[1]. */
static inline __m256i q8_group(const float *x, float *d, int32_t sum[2]) {
    __m512 a = _mm512_loadu_ps(x), b = _mm512_loadu_ps(x + 16);
    __mmask16 bad = (__mmask16)(_mm512_fpclass_ps_mask(a, NOT_FINITE) |
                                _mm512_fpclass_ps_mask(b, NOT_FINITE));
    float scale = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(a), _mm512_abs_ps(b))) / 127.0f;
    sum[0] = sum[1] = 0;
    *d = bad ? NAN : scale;
    if (bad || scale == 0.0f) return _mm256_setzero_si256();
    /* The clamp only matters when the scale is denormal and so inexact. */
    const __m512 dv = _mm512_set1_ps(scale);
    const __m512 high = _mm512_set1_ps(127.0f), low = _mm512_set1_ps(-127.0f);
    a = _mm512_max_ps(_mm512_min_ps(_mm512_div_ps(a, dv), high), low);
    b = _mm512_max_ps(_mm512_min_ps(_mm512_div_ps(b, dv), high), low);
    __m512i qa = _mm512_cvtps_epi32(a), qb = _mm512_cvtps_epi32(b);
    sum[0] = _mm512_reduce_add_epi32(qa);
    sum[1] = _mm512_reduce_add_epi32(qb);
    return _mm256_set_m128i(_mm512_cvtepi32_epi8(qb), _mm512_cvtepi32_epi8(qa));
}

static void encode_column(const float *x, int64_t n, cpu_act_kind kind, void *out) {
    char *bytes = out;
    if (kind == CPU_ACT_F32) {
        for (int64_t i = 0; i < n; i += 16, bytes += 64) _mm512_storeu_ps(bytes, load16(x, i, n));
        return;
    }
    if (kind == CPU_ACT_BF16) {
        for (int64_t i = 0; i < n; i += 32, bytes += 64)
            _mm512_storeu_si512(bytes, bf16_step(x, i, n));
        return;
    }
    int64_t groups = n / CPU_ACT_GROUP;
    size_t q_len = (size_t)n, d_len = (size_t)groups * sizeof(float), s_len = d_len * 2;
    float *d = (float *)(bytes + act_pad64(q_len));
    int32_t *sum = (int32_t *)((char *)d + act_pad64(d_len));
    for (int64_t g = 0; g < groups; g++) {
        __m256i q = q8_group(x + g * CPU_ACT_GROUP, &d[g], &sum[2 * g]);
        _mm256_storeu_si256((void *)(bytes + g * CPU_ACT_GROUP), q);
    }
    memset(bytes + q_len, 0, act_pad64(q_len) - q_len);
    memset((char *)d + d_len, 0, act_pad64(d_len) - d_len);
    memset((char *)sum + s_len, 0, act_pad64(s_len) - s_len);
}

/* Two groups of up to 16 vectors; `pair` may be half outside of the vector. */
static void encode_panel_q8(const float *x, int64_t ldx, int cols, int groups,
                            act_q8_panel_group *out) {
    __m512i v[CPU_PANEL];
    float d[2][CPU_PANEL] = {{0}};
    int32_t sum[2][2][CPU_PANEL] = {{{0}}};
    for (int c = 0; c < CPU_PANEL; c++) {
        __m256i q[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
        for (int g = 0; g < groups && c < cols; g++) {
            int32_t halves[2];
            q[g] = q8_group(x + c * ldx + g * CPU_ACT_GROUP, &d[g][c], halves);
            sum[g][0][c] = halves[0];
            sum[g][1][c] = halves[1];
        }
        v[c] = _mm512_inserti64x4(_mm512_castsi256_si512(q[0]), q[1], 1);
    }
    avx512_transpose16(v);
    for (int g = 0; g < groups; g++) {
        for (int k = 0; k < 8; k++) _mm512_storeu_si512(out[g].q[k], v[8 * g + k]);
        memcpy(out[g].d, d[g], sizeof out[g].d);
        memcpy(out[g].sum, sum[g], sizeof out[g].sum);
    }
}

/* F32: 16 elements a step; BF16: 16 pairs. */
static void encode_panel_float(const float *x, int64_t ldx, int cols, int64_t n, bool bf16,
                               char *out) {
    int64_t step = bf16 ? 32 : 16;
    for (int64_t i = 0; i < n; i += step) {
        __m512i v[CPU_PANEL];
        for (int c = 0; c < CPU_PANEL; c++) {
            if (c >= cols)
                v[c] = _mm512_setzero_si512();
            else if (bf16)
                v[c] = bf16_step(x + c * ldx, i, n);
            else
                v[c] = _mm512_castps_si512(load16(x + c * ldx, i, n));
        }
        avx512_transpose16(v);
        int64_t left = bf16 ? (n - i + 1) / 2 : n - i;
        for (int k = 0; k < 16 && k < left; k++, out += 64) _mm512_storeu_si512(out, v[k]);
    }
}

void avx512_act_encode(const float *x, int64_t ldx, int64_t col0, int64_t col1, cpu_act *out) {
    if (out->layout == CPU_ACT_COLUMNS) {
        size_t stride = act_column_bytes(out->kind, out->n);
        for (int64_t c = col0; c < col1; c++)
            encode_column(x + c * ldx, out->n, out->kind, (char *)out->data + (size_t)c * stride);
        return;
    }
    size_t stride = act_panel_bytes(out->kind, out->n);
    for (int64_t c = col0; c < col1; c += CPU_PANEL) {
        char *panel = (char *)out->data + (size_t)(c / CPU_PANEL) * stride;
        const float *from = x + c * ldx;
        int cols = col1 - c < CPU_PANEL ? (int)(col1 - c) : CPU_PANEL;
        if (out->kind != CPU_ACT_Q8) {
            encode_panel_float(from, ldx, cols, out->n, out->kind == CPU_ACT_BF16, panel);
            continue;
        }
        int64_t groups = out->n / CPU_ACT_GROUP;
        for (int64_t g = 0; g < groups; g += 2)
            encode_panel_q8(from + g * CPU_ACT_GROUP, ldx, cols, g + 2 <= groups ? 2 : 1,
                            (act_q8_panel_group *)panel + g);
    }
}

uint64_t avx512_stream_read(const void *p, size_t n_bytes) {
    /* Four streams, far apart, so that several of the processor's prefetchers work at once; each
     * also asks for lines some way ahead, across page borders, where those stop. */
    enum { STREAMS = 4, LINE = 64, AHEAD = 4096 };
    const char *base = p;
    size_t part = n_bytes / LINE / STREAMS * LINE;
    __m512i sum[STREAMS];
    for (int s = 0; s < STREAMS; s++) sum[s] = _mm512_setzero_si512();
    for (size_t i = 0; i < part; i += LINE)
        for (int s = 0; s < STREAMS; s++) {
            const char *line = base + (size_t)s * part + i;
            _mm_prefetch(line + AHEAD, _MM_HINT_T0);
            sum[s] = _mm512_xor_si512(sum[s], _mm512_loadu_si512(line));
        }
    for (size_t i = part * STREAMS; i + LINE <= n_bytes; i += LINE)
        sum[0] = _mm512_xor_si512(sum[0], _mm512_loadu_si512(base + i));
    uint64_t out[8], total = 0;
    _mm512_storeu_si512(
        out, _mm512_xor_si512(_mm512_xor_si512(sum[0], sum[1]), _mm512_xor_si512(sum[2], sum[3])));
    for (int i = 0; i < 8; i++) total += out[i];
    return total;
}
