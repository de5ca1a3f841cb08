/* quant_low.h: decodes the formats of three bits and less (QUANT_LOW). Each format is described
 * once; the conversion to float, the reference, the CPU tiers and the GPU all use this description.
 * C and CUDA: CUDA sources define LOW_FN, LOW_HALF and LOW_GRID before including it.
 *
 * A format NAME is two functions:
 *   float NAME_unit(block)                    the block's scale
 *   void NAME_group(block, g, unit, out)      elements 32 g .. 32 g + 31 as integers with scales
 *
 * Eight signed bytes are processed at a time as a 64-bit word whose lowest byte is the first
 * element. */
#ifndef QUANT_QUANT_LOW_H
#define QUANT_QUANT_LOW_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "quant_blocks.h"

#ifndef LOW_FN
#include "quant_float.h"

#define LOW_FN            static inline __attribute__((always_inline))
#define LOW_HALF(h)       quant_f16_to_f32(h)
#define LOW_GRID(name, i) quant_grid_##name[i]

/* Points as bytes (quant_grids.c); IQ1 points times 8. */
extern const uint64_t quant_grid_iq2_xxs[256], quant_grid_iq2_xs[512], quant_grid_iq2_s[1024],
    quant_grid_iq1[2048];
extern const uint32_t quant_grid_iq3_xxs[256], quant_grid_iq3_s[512];
#endif

/* The value of element i of 32 is scale[i / 16] * q[i]. */
typedef struct quant_group {
    uint64_t q[4];
    float scale[2];
} quant_group;

/* ---- eight bytes ----------------------------------------------------------------------------- */

#define LOW_BYTES(b) ((uint64_t)(b)*UINT64_C(0x0101010101010101))

LOW_FN uint64_t low_load(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* Adds bytes, each modulo 256. */
LOW_FN uint64_t low_add(uint64_t a, uint64_t b) {
    return ((a & LOW_BYTES(0x7f)) + (b & LOW_BYTES(0x7f))) ^ ((a ^ b) & LOW_BYTES(0x80));
}

/* Bit i -> byte i, 0 or 1. */
LOW_FN uint64_t low_spread_1(uint32_t bits) {
    uint64_t v = LOW_BYTES(bits & 0xff) & UINT64_C(0x8040201008040201);
    return (v + LOW_BYTES(0x7f)) >> 7 & LOW_BYTES(1);
}

/* Bits 2 i and 2 i + 1 -> byte i. */
LOW_FN uint64_t low_spread_2(uint32_t bits) {
    uint64_t v = bits & 0xffff;
    v = (v | v << 24) & UINT64_C(0x000000ff000000ff);
    v = (v | v << 12) & UINT64_C(0x000f000f000f000f);
    return (v | v << 6) & LOW_BYTES(3);
}

/* Bits 4 i .. 4 i + 3 -> byte i, for four bytes. */
LOW_FN uint32_t low_spread_4(uint32_t bits) {
    uint32_t v = bits & 0xffff;
    v = (v | v << 8) & 0x00ff00ffu;
    return (v | v << 4) & 0x0f0f0f0fu;
}

/* Convert points from the form of quant_grids.h to bytes. */
LOW_FN uint64_t low_point_iq2(uint32_t listed) { /* 0 1 2 -> 8 25 43 */
    const uint64_t v = low_spread_2(listed);
    return LOW_BYTES(8) + v * 17 + (v >> 1 & LOW_BYTES(1));
}
LOW_FN uint64_t low_point_iq1(uint32_t listed) { /* 0 1 2 -> -8 0 8 */
    return (low_spread_2(listed) * 8 + LOW_BYTES(0x78)) ^ LOW_BYTES(0x80);
}
LOW_FN uint32_t low_point_iq3_xxs(uint32_t listed) { /* 0 .. 6 -> 4 .. 52, 7 -> 62 */
    const uint32_t v = low_spread_4(listed);
    return v * 8 + 0x04040404u + (v & v >> 1 & v >> 2 & 0x01010101u) * 2;
}
LOW_FN uint32_t low_point_iq3_s(uint32_t listed) { /* 0 1 .. 7 -> 1 3 .. 15 */
    return low_spread_4(listed) * 2 + 0x01010101u;
}

/* Negates the positive bytes of v whose bit is set in `signs`. */
LOW_FN uint64_t low_negate(uint64_t v, uint32_t signs) {
    const uint64_t one = low_spread_1(signs);
    return (v ^ ((one << 8) - one)) + one; /* no carry: no byte of v is 0 */
}

/* Completes eight signs from the seven stored ones. */
LOW_FN uint32_t low_even_signs(uint32_t seven) {
    uint32_t odd = seven ^ seven >> 4;
    odd ^= odd >> 2;
    odd ^= odd >> 1;
    return seven | (odd & 1) << 7;
}

/* Base-3 digit number `places` of bytes that are fractions; power = 3^places. */
LOW_FN uint64_t low_digit_3(uint64_t v, uint32_t power) {
    const uint64_t lanes = UINT64_C(0x00ff00ff00ff00ff);
    const uint64_t even = (((v & lanes) * power & lanes) * 3) >> 8 & lanes;
    const uint64_t odd = ((v >> 8 & lanes) * power & lanes) * 3 & (lanes << 8);
    return even | odd;
}

LOW_FN void low_scales(quant_group *out, float first, float last) {
    out->scale[0] = first;
    out->scale[1] = last;
}

/* ---- IQ2 and IQ3 ----------------------------------------------------------------------------- */

#define LOW_UNIT(name)                                                                             \
    LOW_FN float name##_unit(const block_##name *b) {                                              \
        return LOW_HALF(b->d);                                                                     \
    }

LOW_UNIT(iq2_xxs)
LOW_FN void iq2_xxs_group(const block_iq2_xxs *b, int g, float unit, quant_group *out) {
    const uint16_t *p = b->qs + 4 * g;
    const uint32_t at = p[0] | (uint32_t)p[1] << 16, signs = p[2] | (uint32_t)p[3] << 16;
    for (int i = 0; i < 4; i++)
        out->q[i] = low_negate(LOW_GRID(iq2_xxs, at >> 8 * i & 0xff),
                               low_even_signs(signs >> 7 * i & 0x7f));
    const float scale = unit * (float)(2 * (signs >> 28) + 1) * 0.125f;
    low_scales(out, scale, scale);
}

/* Scales of 4 bits, two to a byte, per 16 elements. */
LOW_FN void low_scales_iq2(uint32_t scales, float unit, quant_group *out) {
    low_scales(out, unit * (float)(2 * (scales & 15) + 1) * 0.125f,
               unit * (float)(2 * (scales >> 4) + 1) * 0.125f);
}

LOW_UNIT(iq2_xs)
LOW_FN void iq2_xs_group(const block_iq2_xs *b, int g, float unit, quant_group *out) {
    for (int i = 0; i < 4; i++) {
        const uint32_t v = b->qs[4 * g + i];
        out->q[i] = low_negate(LOW_GRID(iq2_xs, v & 511), low_even_signs(v >> 9));
    }
    low_scales_iq2(b->scales[g], unit, out);
}

LOW_UNIT(iq2_s)
LOW_FN void iq2_s_group(const block_iq2_s *b, int g, float unit, quant_group *out) {
    for (int i = 0; i < 4; i++) {
        const uint32_t at = b->qs[4 * g + i] | ((uint32_t)b->qh[g] >> 2 * i & 3) << 8;
        out->q[i] = low_negate(LOW_GRID(iq2_s, at), b->signs[4 * g + i]);
    }
    low_scales_iq2(b->scales[g], unit, out);
}

LOW_UNIT(iq3_xxs)
LOW_FN void iq3_xxs_group(const block_iq3_xxs *b, int g, float unit, quant_group *out) {
    uint32_t signs;
    memcpy(&signs, b->signs + 4 * g, sizeof signs);
    for (int i = 0; i < 4; i++) {
        const uint8_t *at = b->qs + 8 * g + 2 * i;
        const uint64_t v = LOW_GRID(iq3_xxs, at[0]) | (uint64_t)LOW_GRID(iq3_xxs, at[1]) << 32;
        out->q[i] = low_negate(v, low_even_signs(signs >> 7 * i & 0x7f));
    }
    const float scale = unit * (float)(2 * (signs >> 28) + 1) * 0.25f;
    low_scales(out, scale, scale);
}

LOW_UNIT(iq3_s)
LOW_FN void iq3_s_group(const block_iq3_s *b, int g, float unit, quant_group *out) {
    for (int i = 0; i < 4; i++) {
        const uint8_t *at = b->qs + 8 * g + 2 * i;
        const uint32_t high = (uint32_t)b->qh[g] >> 2 * i;
        const uint64_t v = LOW_GRID(iq3_s, at[0] | (high & 1) << 8) |
                           (uint64_t)LOW_GRID(iq3_s, at[1] | (high & 2) << 7) << 32;
        out->q[i] = low_negate(v, b->signs[4 * g + i]);
    }
    const float scale = unit * (float)(2 * (b->scales[g / 2] >> 4 * (g % 2) & 15) + 1);
    low_scales(out, scale, scale);
}

/* ---- IQ1: multiples of 1/8 ------------------------------------------------------------------- */

/* A point plus its shift, both times 8. */
LOW_FN uint64_t low_shifted_iq1(uint32_t at, bool down) {
    return low_add(LOW_GRID(iq1, at), down ? LOW_BYTES(0xff) : LOW_BYTES(1));
}

LOW_UNIT(iq1_s)
LOW_FN void iq1_s_group(const block_iq1_s *b, int g, float unit, quant_group *out) {
    const uint32_t qh = b->qh[g];
    for (int i = 0; i < 4; i++)
        out->q[i] = low_shifted_iq1(b->qs[4 * g + i] | (qh >> 3 * i & 7) << 8, qh >> 15);
    const float scale = unit * (float)(2 * (qh >> 12 & 7) + 1) * 0.125f;
    low_scales(out, scale, scale);
}

/* Word i of the scales. */
LOW_FN uint32_t low_scales_iq1_m(const block_iq1_m *b, int i) {
    return b->scales[2 * i] | (uint32_t)b->scales[2 * i + 1] << 8;
}
LOW_FN uint16_t low_half_iq1_m(const block_iq1_m *b) {
    uint32_t half = 0;
    for (int i = 0; i < 4; i++) half |= low_scales_iq1_m(b, i) >> 12 << 4 * i;
    return (uint16_t)half;
}
LOW_FN float iq1_m_unit(const block_iq1_m *b) {
    return LOW_HALF(low_half_iq1_m(b));
}
LOW_FN void iq1_m_group(const block_iq1_m *b, int g, float unit, quant_group *out) {
    for (int i = 0; i < 4; i++) {
        const uint32_t qh = (uint32_t)b->qh[2 * g + i / 2] >> 4 * (i % 2);
        out->q[i] = low_shifted_iq1(b->qs[4 * g + i] | (qh & 7) << 8, qh & 8);
    }
    const uint32_t scales = low_scales_iq1_m(b, g / 2) >> 6 * (g % 2);
    low_scales(out, unit * (float)(2 * (scales & 7) + 1) * 0.125f,
               unit * (float)(2 * (scales >> 3 & 7) + 1) * 0.125f);
}

/* ---- values that start at -1 ----------------------------------------------------------------- */

LOW_FN uint64_t low_less_1(uint64_t v) {
    return low_add(v, LOW_BYTES(0xff));
}

LOW_UNIT(tq1_0)
LOW_FN void tq1_0_group(const block_tq1_0 *b, int g, float unit, quant_group *out) {
    uint32_t power = 1;
    for (int i = g < 5 ? g : 2 * (g - 5); i > 0; i--) power *= 3;
    for (int i = 0; i < 4; i++) {
        uint64_t v;
        if (g < 5) {
            v = low_digit_3(low_load(b->qs + 8 * i), power);
        } else if (g < 7 || i < 2) {
            v = low_digit_3(low_load(b->qs + 32 + 8 * (i % 2)), i < 2 ? power : 3 * power);
        } else {
            uint32_t four;
            memcpy(&four, b->qh, sizeof four);
            v = low_digit_3(four, i == 2 ? 1 : 9);
            v |= low_digit_3(four, i == 2 ? 3 : 27) << 32;
        }
        out->q[i] = low_less_1(v);
    }
    low_scales(out, unit, unit);
}

LOW_UNIT(tq2_0)
LOW_FN void tq2_0_group(const block_tq2_0 *b, int g, float unit, quant_group *out) {
    for (int i = 0; i < 4; i++) {
        const uint64_t v = low_load(b->qs + 32 * (g / 4) + 8 * i);
        out->q[i] = low_less_1(v >> 2 * (g % 4) & LOW_BYTES(3));
    }
    low_scales(out, unit, unit);
}

LOW_UNIT(q1_0)
LOW_FN void q1_0_group(const block_q1_0 *b, int g, float unit, quant_group *out) {
    for (int i = 0; i < 4; i++) out->q[i] = low_negate(LOW_BYTES(1), ~(uint32_t)b->qs[4 * g + i]);
    low_scales(out, unit, unit);
}

LOW_UNIT(q2_0)
LOW_FN void q2_0_group(const block_q2_0 *b, int g, float unit, quant_group *out) {
    for (int i = 0; i < 4; i++) {
        const uint8_t *p = b->qs + 8 * g + 2 * i;
        out->q[i] = low_less_1(low_spread_2(p[0] | (uint32_t)p[1] << 8));
    }
    low_scales(out, unit, unit);
}

/* ---- NVFP4 ----------------------------------------------------------------------------------- */

/* Half the value of a UE4M3 byte, because E2M1 values are doubled. 127 is NaN and decodes to 0. */
LOW_FN float low_ue4m3_half(uint32_t byte) {
    const int fraction = (int)(byte & 7), exponent = (int)(byte >> 3 & 15);
    if (byte == 0x7f) return 0.0f;
    if (exponent == 0) return (float)fraction * (1.0f / 1024.0f);
    return (float)(8 + fraction) * (float)(1 << exponent) * (1.0f / 2048.0f);
}

/* Eight E2M1 values, doubled, from nibbles. */
LOW_FN uint64_t low_e2m1(uint64_t nibbles) {
    const uint64_t values = UINT64_C(0x0c08060403020100); /* for codes 7 .. 0 */
    uint64_t v = 0;
    for (int i = 0; i < 8; i++) {
        const uint64_t value = values >> 8 * (nibbles >> 8 * i & 7) & 0xff;
        v |= (nibbles >> 8 * i & 8 ? (0 - value) & 0xff : value) << 8 * i;
    }
    return v;
}

LOW_FN float nvfp4_unit(const block_nvfp4 *b) {
    (void)b;
    return 1.0f;
}
LOW_FN void nvfp4_group(const block_nvfp4 *b, int g, float unit, quant_group *out) {
    for (int h = 0; h < 2; h++) {
        const uint64_t v = low_load(b->qs + 16 * g + 8 * h);
        out->q[2 * h] = low_e2m1(v & LOW_BYTES(15));
        out->q[2 * h + 1] = low_e2m1(v >> 4 & LOW_BYTES(15));
        out->scale[h] = unit * low_ue4m3_half(b->d[2 * g + h]);
    }
}

#endif
