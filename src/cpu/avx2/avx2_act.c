/* avx2_act.c: encoding of activations, and the streaming read that measures bandwidth.
 *
 * A vector is encoded 32 bytes at a time (8 floats, 16 bfloat16 or 32 int8). For panels the same 32
 * bytes of 8 vectors are transposed as 8 x 8 words of 4 bytes, which gives the interleaving of
 * act.h for all three kinds. */
#include <math.h>
#include <string.h>

#include "avx2_mat.h"

enum { HALF_PANEL = CPU_PANEL / 2 };

/* Up to 8 floats at x + i of a vector of n; zeros behind its end. */
static inline __m256 load8(const float *x, int64_t i, int64_t n) {
    if (i + 8 <= n) return _mm256_loadu_ps(x + i);
    if (i >= n) return _mm256_setzero_ps();
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_maskload_ps(x + i, _mm256_cmpgt_epi32(_mm256_set1_epi32((int)(n - i)), lanes));
}

/* Round to nearest even; a NaN stays one (its quiet bit is set). The result in the low halves. */
static inline __m256i to_bf16(__m256 x) {
    __m256i u = _mm256_castps_si256(x);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    __m256i r = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    r = _mm256_blendv_epi8(r, _mm256_or_si256(u, _mm256_set1_epi32(0x00400000)), nan);
    return _mm256_srli_epi32(r, 16);
}

static inline __m256i bf16_step(const float *x, int64_t i, int64_t n) {
    __m256i packed = _mm256_packus_epi32(to_bf16(load8(x, i, n)), to_bf16(load8(x, i + 8, n)));
    return _mm256_permute4x64_epi64(packed, 0xd8); /* packing works per 128-bit lane */
}

static inline float max8(__m256 v) {
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

static inline int32_t sum8(__m256i v) {
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}

/* One group of 32: q as 32 bytes, the scale to *d, sums of the halves to sum[0], sum[1]. */
static inline __m256i q8_group(const float *x, float *d, int32_t sum[2]) {
    const __m256 sign = _mm256_set1_ps(-0.0f), limit = _mm256_set1_ps(127.0f);
    const __m256 zero = _mm256_setzero_ps();
    __m256 v[4], top = zero, check = zero;
    for (int i = 0; i < 4; i++) {
        v[i] = _mm256_loadu_ps(x + 8 * i);
        top = _mm256_max_ps(top, _mm256_andnot_ps(sign, v[i]));
        check = _mm256_add_ps(check, _mm256_mul_ps(v[i], zero)); /* NaN if anything is not finite */
    }
    bool bad = _mm256_movemask_ps(_mm256_cmp_ps(check, check, _CMP_UNORD_Q)) != 0;
    float scale = max8(top) / 127.0f;
    sum[0] = sum[1] = 0;
    *d = bad ? NAN : scale;
    if (bad || scale == 0.0f) return _mm256_setzero_si256();
    __m256i q[4];
    for (int i = 0; i < 4; i++) {
        /* The clamp only matters when the scale is denormal and so inexact. */
        __m256 r = _mm256_div_ps(v[i], _mm256_set1_ps(scale));
        r = _mm256_max_ps(_mm256_min_ps(r, limit), _mm256_sub_ps(zero, limit));
        q[i] = _mm256_cvtps_epi32(r);
    }
    sum[0] = sum8(_mm256_add_epi32(q[0], q[1]));
    sum[1] = sum8(_mm256_add_epi32(q[2], q[3]));
    __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]),
                                       _mm256_packs_epi32(q[2], q[3]));
    /* packing works per 128-bit lane: dwords lie as 0 2 4 6 | 1 3 5 7 */
    return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

static void encode_column(const float *x, int64_t n, cpu_act_kind kind, char *out) {
    size_t n_bytes = act_column_bytes(kind, n);
    if (kind != CPU_ACT_Q8) {
        int64_t i = 0;
        for (size_t at = 0; at < n_bytes; at += 32, i += kind == CPU_ACT_BF16 ? 16 : 8) {
            __m256i v = kind == CPU_ACT_BF16 ? bf16_step(x, i, n)
                                             : _mm256_castps_si256(load8(x, i, n));
            _mm256_storeu_si256((void *)(out + at), v);
        }
        return;
    }
    size_t groups = (size_t)n / CPU_ACT_GROUP, q_len = (size_t)n, d_len = groups * sizeof(float);
    float *d = (float *)(void *)(out + act_pad64(q_len));
    int32_t *sum = (int32_t *)(void *)((char *)d + act_pad64(d_len));
    for (size_t g = 0; g < groups; g++) {
        __m256i q = q8_group(x + g * CPU_ACT_GROUP, &d[g], &sum[2 * g]);
        _mm256_storeu_si256((void *)(out + g * CPU_ACT_GROUP), q);
    }
    memset(out + q_len, 0, act_pad64(q_len) - q_len);
    memset((char *)d + d_len, 0, act_pad64(d_len) - d_len);
    memset((char *)sum + 2 * d_len, 0, act_pad64(2 * d_len) - 2 * d_len);
}

/* One group of 8 vectors of a panel, of which `cols` are there; `half` is 0 or 8. */
static void encode_panel_q8(const float *x, int64_t ldx, int cols, int half,
                            act_q8_panel_group *out) {
    __m256i v[HALF_PANEL];
    for (int c = 0; c < HALF_PANEL; c++) {
        float d = 0.0f;
        int32_t sum[2] = {0, 0};
        v[c] = c < cols ? q8_group(x + c * ldx, &d, sum) : _mm256_setzero_si256();
        out->d[half + c] = d;
        out->sum[0][half + c] = sum[0];
        out->sum[1][half + c] = sum[1];
    }
    avx2_transpose8(v);
    for (int k = 0; k < 8; k++) _mm256_storeu_si256((void *)out->q[k][half], v[k]);
}

static void encode_panel_float(const float *x, int64_t ldx, int cols, int64_t n, bool bf16,
                               char *out) {
    int64_t step = bf16 ? 16 : 8;
    for (int64_t i = 0; i < n; i += step) {
        __m256i v[HALF_PANEL];
        for (int c = 0; c < HALF_PANEL; c++) {
            if (c >= cols)
                v[c] = _mm256_setzero_si256();
            else if (bf16)
                v[c] = bf16_step(x + c * ldx, i, n);
            else
                v[c] = _mm256_castps_si256(load8(x + c * ldx, i, n));
        }
        avx2_transpose8(v);
        int64_t left = bf16 ? (n - i + 1) / 2 : n - i;
        for (int k = 0; k < 8 && k < left; k++, out += 64) _mm256_storeu_si256((void *)out, v[k]);
    }
}

void avx2_act_encode(const float *x, int64_t ldx, int64_t col0, int64_t col1, cpu_act *out) {
    if (out->layout == CPU_ACT_COLUMNS) {
        size_t stride = act_column_bytes(out->kind, out->n);
        for (int64_t c = col0; c < col1; c++)
            encode_column(x + c * ldx, out->n, out->kind, (char *)out->data + (size_t)c * stride);
        return;
    }
    size_t stride = act_panel_bytes(out->kind, out->n);
    int64_t last = (col1 + CPU_PANEL - 1) / CPU_PANEL * CPU_PANEL;
    for (int64_t c = col0; c < last; c += HALF_PANEL) {
        char *panel = (char *)out->data + (size_t)(c / CPU_PANEL) * stride;
        int half = (int)(c % CPU_PANEL);
        int cols = col1 - c >= HALF_PANEL ? HALF_PANEL : col1 > c ? (int)(col1 - c) : 0;
        const float *from = cols > 0 ? x + c * ldx : x;
        if (out->kind == CPU_ACT_Q8) {
            act_q8_panel_group *groups = (act_q8_panel_group *)(void *)panel;
            for (int64_t g = 0; g < out->n / CPU_ACT_GROUP; g++)
                encode_panel_q8(from + g * CPU_ACT_GROUP, ldx, cols, half, &groups[g]);
        } else {
            encode_panel_float(from, ldx, cols, out->n, out->kind == CPU_ACT_BF16,
                               panel + 4 * half);
        }
    }
}

uint64_t avx2_stream_read(const void *p, size_t n_bytes) {
    /* Four streams, far apart, so that several of the processor's prefetchers work at once; each
     * also asks for lines some way ahead, across page borders, where those stop. */
    enum { STREAMS = 4, LINE = 64, AHEAD = 4096 };
    const char *base = p;
    size_t part = n_bytes / LINE / STREAMS * LINE;
    __m256i sum[STREAMS];
    for (int s = 0; s < STREAMS; s++) sum[s] = _mm256_setzero_si256();
    for (size_t i = 0; i < part; i += LINE)
        for (int s = 0; s < STREAMS; s++) {
            const char *line = base + (size_t)s * part + i;
            _mm_prefetch(line + AHEAD, _MM_HINT_T0);
            __m256i both = _mm256_xor_si256(_mm256_loadu_si256((const void *)line),
                                            _mm256_loadu_si256((const void *)(line + 32)));
            sum[s] = _mm256_xor_si256(sum[s], both);
        }
    for (size_t i = part * STREAMS; i + 32 <= n_bytes; i += 32)
        sum[0] = _mm256_xor_si256(sum[0], _mm256_loadu_si256((const void *)(base + i)));
    uint64_t out[4];
    _mm256_storeu_si256((void *)out, _mm256_xor_si256(_mm256_xor_si256(sum[0], sum[1]),
                                                      _mm256_xor_si256(sum[2], sum[3])));
    return out[0] + out[1] + out[2] + out[3];
}
