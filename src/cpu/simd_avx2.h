/* simd_avx2.h: the float vector of the template kernels, 8 lanes (AVX2, FMA, F16C). simd.h defines
 * each function; simd_avx512.h differs only in width and instructions. */
#ifndef CPU_SIMD_AVX2_H
#define CPU_SIMD_AVX2_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

typedef __m256 vf;
typedef __m256i vi;
typedef __m256 vmask; /* per lane all bits set, or none */
enum { VF_N = 8 };

static inline vi vi_of(vf v) {
    return _mm256_castps_si256(v);
}
static inline vf vf_of(vi v) {
    return _mm256_castsi256_ps(v);
}
static inline vf vf_zero(void) {
    return _mm256_setzero_ps();
}
static inline vf vf_set1(float x) {
    return _mm256_set1_ps(x);
}
static inline vf vf_load(const float *p) {
    return _mm256_loadu_ps(p);
}
static inline void vf_store(float *p, vf v) {
    _mm256_storeu_ps(p, v);
}
static inline __m256i vf_first(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
static inline vf vf_load_part(const float *p, int n) {
    return _mm256_maskload_ps(p, vf_first(n));
}
static inline void vf_store_part(float *p, vf v, int n) {
    _mm256_maskstore_ps(p, vf_first(n), v);
}
static inline vf vf_add(vf a, vf b) {
    return _mm256_add_ps(a, b);
}
static inline vf vf_sub(vf a, vf b) {
    return _mm256_sub_ps(a, b);
}
static inline vf vf_mul(vf a, vf b) {
    return _mm256_mul_ps(a, b);
}
static inline vf vf_div(vf a, vf b) {
    return _mm256_div_ps(a, b);
}
static inline vf vf_fma(vf a, vf b, vf c) {
    return _mm256_fmadd_ps(a, b, c);
}
static inline vf vf_fnma(vf a, vf b, vf c) {
    return _mm256_fnmadd_ps(a, b, c);
}
static inline vf vf_fms(vf a, vf b, vf c) {
    return _mm256_fmsub_ps(a, b, c);
}
static inline vf vf_max(vf a, vf b) {
    return _mm256_max_ps(a, b);
}
static inline vf vf_min(vf a, vf b) {
    return _mm256_min_ps(a, b);
}
static inline vf vf_abs(vf a) {
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a);
}
static inline vf vf_round(vf a) {
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
static inline vmask vf_gt(vf a, vf b) {
    return _mm256_cmp_ps(a, b, _CMP_GT_OQ);
}
static inline vf vf_select(vmask m, vf yes, vf no) {
    return _mm256_blendv_ps(no, yes, m);
}
static inline vf vf_keep(vmask m, vf yes) {
    return _mm256_and_ps(m, yes);
}
/* Multiplies in two steps, so that the exponents of both factors stay in range when that of the
 * product does not. A NaN n gives some power of two; a is NaN then. */
static inline vf vf_scale2(vf a, vf n) {
    const __m256i bias = _mm256_set1_epi32(127);
    __m256i e = _mm256_cvtps_epi32(n), h = _mm256_srai_epi32(e, 1);
    __m256i f = _mm256_slli_epi32(_mm256_add_epi32(h, bias), 23);
    __m256i g = _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(e, h), bias), 23);
    return _mm256_mul_ps(_mm256_mul_ps(a, _mm256_castsi256_ps(f)), _mm256_castsi256_ps(g));
}

static inline float vf_hsum(vf a) {
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}
static inline float vf_hmax(vf a) {
    __m128 x = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    x = _mm_max_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
}

/* Sums within 128-bit lanes of four vectors: lane k of the result = (a, b, c, d) of lane k. */
static inline vf vf_lane_sums(vf a, vf b, vf c, vf d) {
    vf ab = _mm256_add_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
    vf cd = _mm256_add_ps(_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
    __m256d x = _mm256_castps_pd(ab), y = _mm256_castps_pd(cd);
    return _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(x, y)),
                         _mm256_castpd_ps(_mm256_unpackhi_pd(x, y)));
}
static inline vf vf_hsum_each(const vf a[VF_N]) {
    vf s0 = vf_lane_sums(a[0], a[1], a[2], a[3]), s1 = vf_lane_sums(a[4], a[5], a[6], a[7]);
    return _mm256_add_ps(_mm256_permute2f128_ps(s0, s1, 0x20),
                         _mm256_permute2f128_ps(s0, s1, 0x31));
}

static inline vf vf_load_f16(const void *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}
static inline vf vf_load_f16_part(const void *p, int n) {
    uint16_t part[VF_N] = {0};
    memcpy(part, p, (size_t)n * sizeof *part);
    return vf_load_f16(part);
}
static inline void vf_store_f16(void *p, vf v) {
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
static inline void vf_store_f16_part(void *p, vf v, int n) {
    uint16_t part[VF_N];
    vf_store_f16(part, v);
    memcpy(p, part, (size_t)n * sizeof *part);
}
static inline vf vf_set1_f16(uint16_t h) {
    return _mm256_cvtph_ps(_mm_set1_epi16((short)h));
}
static inline vf vf_load_bf16(const void *p) {
    return vf_of(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(p)), 16));
}
static inline vf vf_load_i8(const int8_t *p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}
static inline void vf_store_i8(int8_t *p, vf v) {
    __m256i x = _mm256_cvtps_epi32(v);
    __m128i w = _mm_packs_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    _mm_storel_epi64((__m128i *)p, _mm_packs_epi16(w, w));
}

static inline vmask vf_le(vf a, vf b) {
    return _mm256_cmp_ps(a, b, _CMP_LE_OQ);
}
/* Bit i: lane i. */
static inline unsigned vmask_bits(vmask m) {
    return (unsigned)_mm256_movemask_ps(m);
}

static inline vf vf_bit_sums(const uint8_t *bits, const int8_t *planes) {
    const __m256i one = _mm256_set1_epi8(1);
    __m256i v = _mm256_loadu_si256((const __m256i *)bits), sum = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (int b = 0; b < 8; b++) {
        __m256i set = _mm256_and_si256(_mm256_srli_epi16(v, b), one);
        __m256i x = _mm256_loadu_si256((const __m256i *)(planes + 32 * b));
        sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(set, x));
    }
    return _mm256_cvtepi32_ps(_mm256_madd_epi16(sum, _mm256_set1_epi16(1)));
}

/* Interleaved pairs: (x0, y0, x1, y1, ...). */
static inline vf vf_rotate_pairs(vf x, vf cs) {
    vf swapped = _mm256_permute_ps(x, 0xb1);
    return _mm256_fmaddsub_ps(x, _mm256_moveldup_ps(cs),
                              _mm256_mul_ps(swapped, _mm256_movehdup_ps(cs)));
}
static inline void vf_split_pairs(const float *p, vf *even, vf *odd) {
    vf a = vf_load(p), b = vf_load(p + VF_N);
    /* the shuffle works within 128-bit lanes: (a0 b0 a1 b1) is reordered afterwards */
    __m256d e = _mm256_castps_pd(_mm256_shuffle_ps(a, b, 0x88));
    __m256d o = _mm256_castps_pd(_mm256_shuffle_ps(a, b, 0xdd));
    *even = _mm256_castpd_ps(_mm256_permute4x64_pd(e, 0xd8));
    *odd = _mm256_castpd_ps(_mm256_permute4x64_pd(o, 0xd8));
}

/* ---- words ---------------------------------------------------------------------------------- */

static inline vi vi_zero(void) {
    return _mm256_setzero_si256();
}
static inline vi vi_load(const void *p) {
    return _mm256_loadu_si256(p);
}
static inline void vi_store(void *p, vi v) {
    _mm256_storeu_si256(p, v);
}
static inline vi vi_add(vi a, vi b) {
    return _mm256_add_epi32(a, b);
}
static inline int32_t vi_sum(vi v) {
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}
static inline vi vi_round(vf v) {
    return _mm256_cvtps_epi32(v);
}
static inline vi vi_pack_i8(const vi q[4]) {
    vi b = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
    /* packing works per 128-bit lane: the words are in the order 0 2 4 6 | 1 3 5 7 */
    return _mm256_permutevar8x32_epi32(b, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}
static inline vi vi_bf16_half(vf x) { /* in the low halves */
    vi u = _mm256_castps_si256(x);
    vi odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    vi r = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    vi nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    r = _mm256_blendv_epi8(r, _mm256_or_si256(u, _mm256_set1_epi32(0x00400000)), nan);
    return _mm256_srli_epi32(r, 16);
}
static inline vi vi_pack_bf16(vf a, vf b) {
    vi packed = _mm256_packus_epi32(vi_bf16_half(a), vi_bf16_half(b));
    return _mm256_permute4x64_epi64(packed, 0xd8);
}
static inline vi vi_set1(int32_t x) {
    return _mm256_set1_epi32(x);
}
static inline vf vf_low_bf16(vi v) {
    return vf_of(_mm256_slli_epi32(v, 16));
}
static inline vf vf_high_bf16(vi v) {
    return vf_of(_mm256_and_si256(v, _mm256_set1_epi32((int32_t)0xffff0000)));
}
static inline bool vf_any_nan(vf v) {
    return _mm256_movemask_ps(_mm256_cmp_ps(v, v, _CMP_UNORD_Q)) != 0;
}
static inline __attribute__((always_inline)) void vi_transpose(vi v[VF_N]) {
    vi t[VF_N];
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_epi32(v[i], v[i + 1]);
        t[i + 1] = _mm256_unpackhi_epi32(v[i], v[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        v[i] = _mm256_unpacklo_epi64(t[i], t[i + 2]);
        v[i + 1] = _mm256_unpackhi_epi64(t[i], t[i + 2]);
        v[i + 2] = _mm256_unpacklo_epi64(t[i + 1], t[i + 3]);
        v[i + 3] = _mm256_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm256_permute2x128_si256(v[i], v[i + 4], 0x20);
        t[i + 4] = _mm256_permute2x128_si256(v[i], v[i + 4], 0x31);
    }
    for (int i = 0; i < 8; i++) v[i] = t[i];
}

#endif
