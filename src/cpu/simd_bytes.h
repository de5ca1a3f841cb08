/* simd_bytes.h: a vector `vb` of 32 signed bytes, for integers packed in bits; the counterpart of
 * simd.h's float vector. Private to src/cpu.
 *
 *   vb_nibbles   16 bytes at p: their low nibbles, then their high ones
 *   vb_add_bits  adds 16 to byte i where bit i of the 32 at p is set
 *   vb_minus     subtracts n from all bytes
 *   vb_look_up   table[v[i]], for bytes 0 to 15
 *   vb_store     stores the 32 bytes at p
 *   vb_floats    VF_N bytes from byte `first` on, a constant, as floats */
#ifndef CPU_SIMD_BYTES_H
#define CPU_SIMD_BYTES_H

#include "simd.h"

#if defined(__aarch64__)

typedef int8x16x2_t vb;

SIMD_INLINE vb vb_nibbles(const uint8_t *p) {
    const uint8x16_t b = vld1q_u8(p);
    return (vb){
        {vreinterpretq_s8_u8(vandq_u8(b, vdupq_n_u8(15))), vreinterpretq_s8_u8(vshrq_n_u8(b, 4))}};
}
SIMD_INLINE int8x16_t vb_sixteens(const uint8_t *p) {
    static const uint8_t bit[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    const uint8x16_t bytes = vcombine_u8(vdup_n_u8(p[0]), vdup_n_u8(p[1]));
    return vreinterpretq_s8_u8(vandq_u8(vtstq_u8(bytes, vld1q_u8(bit)), vdupq_n_u8(16)));
}
SIMD_INLINE vb vb_add_bits(vb v, const uint8_t *p) {
    return (vb){{vaddq_s8(v.val[0], vb_sixteens(p)), vaddq_s8(v.val[1], vb_sixteens(p + 2))}};
}
SIMD_INLINE vb vb_minus(vb v, int n) {
    const int8x16_t all = vdupq_n_s8((int8_t)n);
    return (vb){{vsubq_s8(v.val[0], all), vsubq_s8(v.val[1], all)}};
}
SIMD_INLINE vb vb_look_up(vb v, const int8_t table[16]) {
    const int8x16_t t = vld1q_s8(table);
    return (vb){{vqtbl1q_s8(t, vreinterpretq_u8_s8(v.val[0])),
                 vqtbl1q_s8(t, vreinterpretq_u8_s8(v.val[1]))}};
}
SIMD_INLINE void vb_store(int8_t *p, vb v) {
    vst1q_s8(p, v.val[0]);
    vst1q_s8(p + 16, v.val[1]);
}
SIMD_INLINE vf vb_floats(vb v, int first) {
    const int8x16_t half = v.val[first / 16];
    const int16x8_t w = first % 16 ? vmovl_high_s8(half) : vmovl_s8(vget_low_s8(half));
    return (vf){vcvtq_f32_s32(vmovl_s16(vget_low_s16(w))), vcvtq_f32_s32(vmovl_high_s16(w))};
}

#else

typedef __m256i vb;

SIMD_INLINE vb vb_nibbles(const uint8_t *p) {
    const __m128i b = _mm_loadu_si128((const void *)p);
    return _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(b, 4), b), _mm256_set1_epi8(15));
}
SIMD_INLINE vb vb_add_bits(vb v, const uint8_t *p) {
    const __m256i byte = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202,
                                            0x0303030303030303);
    const __m256i bit = _mm256_set1_epi64x(INT64_C(-0x7fbfdfeff7fbfdff)); /* 0x8040201008040201 */
    int32_t bits;
    memcpy(&bits, p, sizeof bits);
    const __m256i x = _mm256_shuffle_epi8(_mm256_set1_epi32(bits), byte);
    const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(x, bit), bit);
    return _mm256_add_epi8(v, _mm256_and_si256(set, _mm256_set1_epi8(16)));
}
SIMD_INLINE vb vb_minus(vb v, int n) {
    return _mm256_sub_epi8(v, _mm256_set1_epi8((char)n));
}
SIMD_INLINE vb vb_look_up(vb v, const int8_t table[16]) {
    const __m128i t = _mm_loadu_si128((const void *)table);
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(t), v);
}
SIMD_INLINE void vb_store(int8_t *p, vb v) {
    _mm256_storeu_si256((void *)p, v);
}
SIMD_INLINE vf vb_floats(vb v, int first) {
    __m128i b = first < 16 ? _mm256_castsi256_si128(v) : _mm256_extracti128_si256(v, 1);
#if defined(__AVX512F__)
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(b));
#else
    if (first % 16) b = _mm_unpackhi_epi64(b, b);
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(b));
#endif
}

#endif

#endif
