/* simd_avx512.h: the float vector of the template kernels, 16 lanes. simd.h defines each function;
 * simd_avx2.h differs only in width and instructions. */
#ifndef CPU_SIMD_AVX512_H
#define CPU_SIMD_AVX512_H

#include <immintrin.h>
#include <stdint.h>

typedef __m512 vf;
typedef __m512i vi;
typedef __mmask16 vmask;
enum { VF_N = 16 };

static inline vi vi_of(vf v) {
    return _mm512_castps_si512(v);
}
static inline vf vf_of(vi v) {
    return _mm512_castsi512_ps(v);
}
static inline vf vf_zero(void) {
    return _mm512_setzero_ps();
}
static inline vf vf_set1(float x) {
    return _mm512_set1_ps(x);
}
static inline vf vf_load(const float *p) {
    return _mm512_loadu_ps(p);
}
static inline void vf_store(float *p, vf v) {
    _mm512_storeu_ps(p, v);
}
static inline vmask vf_first(int n) {
    return (vmask)((1u << n) - 1u);
}
static inline vf vf_load_part(const float *p, int n) {
    return _mm512_maskz_loadu_ps(vf_first(n), p);
}
static inline void vf_store_part(float *p, vf v, int n) {
    _mm512_mask_storeu_ps(p, vf_first(n), v);
}
static inline vf vf_add(vf a, vf b) {
    return _mm512_add_ps(a, b);
}
static inline vf vf_sub(vf a, vf b) {
    return _mm512_sub_ps(a, b);
}
static inline vf vf_mul(vf a, vf b) {
    return _mm512_mul_ps(a, b);
}
static inline vf vf_div(vf a, vf b) {
    return _mm512_div_ps(a, b);
}
static inline vf vf_fma(vf a, vf b, vf c) {
    return _mm512_fmadd_ps(a, b, c);
}
static inline vf vf_fnma(vf a, vf b, vf c) {
    return _mm512_fnmadd_ps(a, b, c);
}
static inline vf vf_fms(vf a, vf b, vf c) {
    return _mm512_fmsub_ps(a, b, c);
}
static inline vf vf_max(vf a, vf b) {
    return _mm512_max_ps(a, b);
}
static inline vf vf_min(vf a, vf b) {
    return _mm512_min_ps(a, b);
}
static inline vf vf_abs(vf a) {
    return _mm512_abs_ps(a);
}
static inline vf vf_round(vf a) {
    return _mm512_cvtepi32_ps(_mm512_cvtps_epi32(a));
}
static inline vmask vf_gt(vf a, vf b) {
    return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ);
}
static inline vf vf_select(vmask m, vf yes, vf no) {
    return _mm512_mask_blend_ps(m, no, yes);
}
static inline vf vf_keep(vmask m, vf yes) {
    return _mm512_maskz_mov_ps(m, yes);
}
static inline vf vf_scale2(vf a, vf n) {
    return _mm512_scalef_ps(a, n);
}

static inline float vf_hsum(vf a) {
    return _mm512_reduce_add_ps(a);
}
static inline float vf_hmax(vf a) {
    return _mm512_reduce_max_ps(a);
}

/* Sums within 128-bit lanes of four vectors: lane k of the result = (a, b, c, d) of lane k. */
static inline vf vf_lane_sums(vf a, vf b, vf c, vf d) {
    vf ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    vf cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
    __m512d x = _mm512_castps_pd(ab), y = _mm512_castps_pd(cd);
    return _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)),
                         _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
}
/* Adds neighbouring lanes: (a0+a1, a2+a3, b0+b1, b2+b3). */
static inline vf vf_lane_pairs(vf a, vf b) {
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
}
static inline vf vf_hsum_each(const vf a[VF_N]) {
    vf s0 = vf_lane_sums(a[0], a[1], a[2], a[3]), s1 = vf_lane_sums(a[4], a[5], a[6], a[7]);
    vf s2 = vf_lane_sums(a[8], a[9], a[10], a[11]), s3 = vf_lane_sums(a[12], a[13], a[14], a[15]);
    return vf_lane_pairs(vf_lane_pairs(s0, s1), vf_lane_pairs(s2, s3));
}

static inline vf vf_load_f16(const void *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
static inline vf vf_load_f16_part(const void *p, int n) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(vf_first(n), p));
}
static inline __m256i vf_to_f16(vf v) {
    return _mm512_maskz_cvtps_ph(vf_first(VF_N), v, _MM_FROUND_TO_NEAREST_INT);
}
static inline void vf_store_f16(void *p, vf v) {
    _mm256_storeu_si256((__m256i *)p, vf_to_f16(v));
}
static inline void vf_store_f16_part(void *p, vf v, int n) {
    _mm256_mask_storeu_epi16(p, vf_first(n), vf_to_f16(v));
}
static inline vf vf_set1_f16(uint16_t h) {
    return _mm512_cvtph_ps(_mm256_set1_epi16((short)h));
}
static inline vf vf_load_bf16(const void *p) {
    return vf_of(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(p)), 16));
}
static inline vf vf_load_i8(const int8_t *p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}
static inline void vf_store_i8(int8_t *p, vf v) {
    _mm_storeu_si128((__m128i *)p, _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(v)));
}

static inline vmask vf_le(vf a, vf b) {
    return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ);
}
#define VF_PACK
/* Compresses in a register, because compressing stores are slow on some CPUs. */
static inline int vf_pack(float *p, vmask gone, vf v) {
    vmask kept = (vmask)~gone;
    _mm512_storeu_ps(p, _mm512_maskz_compress_ps(kept, v));
    return __builtin_popcount(kept);
}
static inline int vf_pack_index(int32_t *p, vmask gone, int32_t first) {
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    vmask kept = (vmask)~gone;
    __m512i index = _mm512_add_epi32(lane, _mm512_set1_epi32(first));
    _mm512_storeu_si512(p, _mm512_maskz_compress_epi32(kept, index));
    return __builtin_popcount(kept);
}
static inline int vf_pack_i32(int32_t *p, vmask gone, const int32_t *from) {
    vmask kept = (vmask)~gone;
    _mm512_storeu_si512(p, _mm512_maskz_compress_epi32(kept, _mm512_loadu_si512(from)));
    return __builtin_popcount(kept);
}

static inline vf vf_bit_sums(const uint8_t *bits, const int8_t *planes) {
    const __m512i one = _mm512_set1_epi8(1);
    __m512i v = _mm512_loadu_si512(bits), sum[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
#pragma GCC unroll 8
    for (int b = 0; b < 8; b++)
        sum[b % 2] = _mm512_dpbusd_epi32(
            sum[b % 2], _mm512_and_si512(_mm512_srli_epi16(v, (unsigned)b & 7), one),
            _mm512_loadu_si512(planes + 64 * b));
    return _mm512_cvtepi32_ps(_mm512_add_epi32(sum[0], sum[1]));
}

/* Interleaved pairs: (x0, y0, x1, y1, ...). */
static inline vf vf_rotate_pairs(vf x, vf cs) {
    vf swapped = _mm512_permute_ps(x, 0xb1);
    return _mm512_fmaddsub_ps(x, _mm512_moveldup_ps(cs),
                              _mm512_mul_ps(swapped, _mm512_movehdup_ps(cs)));
}
static inline void vf_split_pairs(const float *p, vf *even, vf *odd) {
    const __m512i e = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i o = _mm512_add_epi32(e, _mm512_set1_epi32(1));
    vf a = vf_load(p), b = vf_load(p + VF_N);
    *even = _mm512_permutex2var_ps(a, e, b);
    *odd = _mm512_permutex2var_ps(a, o, b);
}

/* ---- words ---------------------------------------------------------------------------------- */

static inline vi vi_zero(void) {
    return _mm512_setzero_si512();
}
static inline vi vi_load(const void *p) {
    return _mm512_loadu_si512(p);
}
static inline void vi_store(void *p, vi v) {
    _mm512_storeu_si512(p, v);
}
static inline vi vi_add(vi a, vi b) {
    return _mm512_add_epi32(a, b);
}
static inline int32_t vi_sum(vi v) {
    return _mm512_reduce_add_epi32(v);
}
static inline vi vi_round(vf v) {
    return _mm512_cvtps_epi32(v);
}
static inline vi vi_pack_i8(const vi q[4]) {
    const vi order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    vi b = _mm512_packs_epi16(_mm512_packs_epi32(q[0], q[1]), _mm512_packs_epi32(q[2], q[3]));
    /* packing works per 128-bit lane */
    return _mm512_permutexvar_epi32(order, b);
}
/* With integers, because the BF16 unit's conversion flushes denormals. */
static inline __m256i vi_bf16_half(vf x) {
    vi u = _mm512_castps_si512(x);
    vi odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    vi r = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    vmask nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    r = _mm512_mask_or_epi32(r, nan, u, _mm512_set1_epi32(0x00400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(r, 16));
}
static inline vi vi_pack_bf16(vf a, vf b) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(vi_bf16_half(a)), vi_bf16_half(b), 1);
}
static inline vi vi_set1(int32_t x) {
    return _mm512_set1_epi32(x);
}
static inline vf vf_low_bf16(vi v) {
    return vf_of(_mm512_slli_epi32(v, 16));
}
static inline vf vf_high_bf16(vi v) {
    return vf_of(_mm512_and_si512(v, _mm512_set1_epi32((int32_t)0xffff0000)));
}
static inline bool vf_any_nan(vf v) {
    return _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q) != 0;
}
/* Pairs, then fours within 128-bit lanes, then the lanes themselves. */
static inline __attribute__((always_inline)) void vi_transpose(vi v[VF_N]) {
    vi t[VF_N];
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        v[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        v[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        v[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        v[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    /* v[4 a + b], lane l: rows 4a..4a+3 of column 4 l + b */
    for (int b = 0; b < 4; b++) {
        __m512i even0 = _mm512_shuffle_i32x4(v[b], v[4 + b], 0x88);
        __m512i odd0 = _mm512_shuffle_i32x4(v[b], v[4 + b], 0xdd);
        __m512i even1 = _mm512_shuffle_i32x4(v[8 + b], v[12 + b], 0x88);
        __m512i odd1 = _mm512_shuffle_i32x4(v[8 + b], v[12 + b], 0xdd);
        t[b] = _mm512_shuffle_i32x4(even0, even1, 0x88);
        t[8 + b] = _mm512_shuffle_i32x4(even0, even1, 0xdd);
        t[4 + b] = _mm512_shuffle_i32x4(odd0, odd1, 0x88);
        t[12 + b] = _mm512_shuffle_i32x4(odd0, odd1, 0xdd);
    }
    for (int i = 0; i < 16; i++) v[i] = t[i];
}

#endif
