/* quant_blocks.h: the byte layout of the block formats (GGUF's). Scales `d`, `dmin` are IEEE halfs.
 * All structs are free of padding (asserted in quant.c), little-endian. */
#ifndef QUANT_QUANT_BLOCKS_H
#define QUANT_QUANT_BLOCKS_H

#include <stdint.h>

#include "quant_formats.h"

/* value = d * q */
typedef struct block_q8_0 {
    uint16_t d;
    int8_t qs[32];
} block_q8_0;

/* value = d * (q - 8); element i < 16 is in the low nibble of qs[i], element i + 16 in the high
 * one */
typedef struct block_q4_0 {
    uint16_t d;
    uint8_t qs[16];
} block_q4_0;

/* value = d * q + m, nibbles as in q4_0 */
typedef struct block_q4_1 {
    uint16_t d, m;
    uint8_t qs[16];
} block_q4_1;

/* value = d * (q - 16); low nibbles as in q4_0, the fifth bit of element i is bit i of qh */
typedef struct block_q5_0 {
    uint16_t d;
    uint8_t qh[4];
    uint8_t qs[16];
} block_q5_0;

/* value = d * q + m, bits as in q5_0 */
typedef struct block_q5_1 {
    uint16_t d, m;
    uint8_t qh[4];
    uint8_t qs[16];
} block_q5_1;

/* value = d * QUANT_IQ4_VALUES[q], nibbles as in q4_0 */
typedef struct block_iq4_nl {
    uint16_t d;
    uint8_t qs[16];
} block_iq4_nl;

/* value = 2^(e - 128) * QUANT_E2M1_VALUES[q], nibbles as in q4_0 */
typedef struct block_mxfp4 {
    uint8_t e;
    uint8_t qs[16];
} block_mxfp4;

/* "Planes" of the K formats: 32 (or 64) bytes hold the first 32 (64) elements in their lowest bits,
 * the next 32 (64) elements in the bits above, and so on. */

/* 16 sub-blocks of 16; value = d * sc * q - dmin * m, sc in the low and m in the high nibbles of
 * `scales`; planes of 2 bits. */
typedef struct block_q2_k {
    uint8_t scales[16];
    uint8_t qs[64];
    uint16_t d, dmin;
} block_q2_k;

/* 16 sub-blocks of 16; value = d * (sc - 32) * (q - 4), with 6-bit sc packed in `scales`; planes of
 * 2 bits, and the third bit in hmask, a plane of one bit. */
typedef struct block_q3_k {
    uint8_t hmask[32];
    uint8_t qs[64];
    uint8_t scales[12];
    uint16_t d;
} block_q3_k;

/* 8 sub-blocks of 32; value = d * sc * q - dmin * m, with 6-bit sc and m packed in `scales`.
 * Sub-blocks 2j and 2j+1 share qs[32j .. 32j+31]: low nibbles, then high nibbles. */
typedef struct block_q4_k {
    uint16_t d, dmin;
    uint8_t scales[12];
    uint8_t qs[128];
} block_q4_k;

/* Like q4_K; the fifth bit is in qh, a plane of one bit. */
typedef struct block_q5_k {
    uint16_t d, dmin;
    uint8_t scales[12];
    uint8_t qh[32];
    uint8_t qs[128];
} block_q5_k;

/* 8 sub-blocks of 32; value = d * (sc - 32) * QUANT_IQ4_VALUES[q], with 6-bit sc: the four low bits
 * in nibbles of scales_l, the two high bits in scales_h. Nibbles of a sub-block as in q4_0. */
typedef struct block_iq4_xs {
    uint16_t d;
    uint16_t scales_h;
    uint8_t scales_l[4];
    uint8_t qs[128];
} block_iq4_xs;

/* 16 sub-blocks of 16; value = d * sc * (q - 32), 6-bit q: low 4 bits in ql, high 2 bits in qh. */
typedef struct block_q6_k {
    uint8_t ql[128];
    uint8_t qh[64];
    int8_t scales[16];
    uint16_t d;
} block_q6_k;

/* ---- three bits and less ---------------------------------------------------------------------
 *
 * Eight (IQ3: four) elements are one point of a code book (quant_grids.h), given by its index; one
 * bit per element marks negative elements. Where only seven bits are stored for eight elements, the
 * number of negative elements is even. quant_low.h defines the values. */

/* 8 sub-blocks of 32, 8 bytes each: 4 indices of 8 bits; 4 times 7 signs, then a scale of 4 bits;
 * value = d * (2 scale + 1) / 8 * point. */
typedef struct block_iq2_xxs {
    uint16_t d;
    uint16_t qs[32];
} block_iq2_xxs;

/* 32 runs of 8: index of 9 bits, 7 signs; scales of 4 bits per 16 elements, as in iq2_xxs. */
typedef struct block_iq2_xs {
    uint16_t d;
    uint16_t qs[32];
    uint8_t scales[8];
} block_iq2_xs;

/* 32 runs of 8: low bytes of the indices, two more bits of each in qh; 8 signs. */
typedef struct block_iq2_s {
    uint16_t d;
    uint8_t qs[32], signs[32];
    uint8_t qh[8];
    uint8_t scales[8];
} block_iq2_s;

/* 64 runs of 4: index of 8 bits. Per 32 elements 4 times 7 signs and a scale of 4 bits;
 * value = d * (2 scale + 1) / 4 * point. */
typedef struct block_iq3_xxs {
    uint16_t d;
    uint8_t qs[64];
    uint8_t signs[32]; /* followed by scales */
} block_iq3_xxs;

/* 64 runs of 4: low bytes of the indices, one more bit of each in qh; 8 signs per 8 elements;
 * scales of 4 bits per 32; value = d * (2 scale + 1) * point. */
typedef struct block_iq3_s {
    uint16_t d;
    uint8_t qs[64];
    uint8_t qh[8];
    uint8_t signs[32];
    uint8_t scales[4];
} block_iq3_s;

/* 8 sub-blocks of 32: low bytes of 4 indices in qs; qh holds 4 times 3 high bits, a scale of 3
 * bits, and one bit that shifts the points by -1/8 instead of 1/8. The value is
 * d * (2 scale + 1) * (point + shift). */
typedef struct block_iq1_s {
    uint16_t d;
    uint8_t qs[32];
    uint16_t qh[8];
} block_iq1_s;

/* 32 runs of 8: low bytes of the indices; nibbles of qh hold three high bits and the shift. 16
 * scales of 3 bits fill 12 bits of each of four words; the top nibbles of the words form the half
 * d. */
typedef struct block_iq1_m {
    uint8_t qs[32];
    uint8_t qh[16];
    uint8_t scales[8];
} block_iq1_m;

/* value = d * (q - 1), ternary. A byte holds five elements (32 apart in the first 32 bytes of qs,
 * 16 apart in the rest) as the base-3 digits of a fraction of 256; a byte of qh holds four, 4
 * apart. */
typedef struct block_tq1_0 {
    uint8_t qs[48];
    uint8_t qh[4];
    uint16_t d;
} block_tq1_0;

/* value = d * (q - 1), planes of 2 bits */
typedef struct block_tq2_0 {
    uint8_t qs[64];
    uint16_t d;
} block_tq2_0;

/* 4 sub-blocks of 16; value = d * QUANT_E2M1_VALUES[q] / 2, d an 8-bit float, UE4M3; elements i and
 * i + 8 of a sub-block share a byte */
typedef struct block_nvfp4 {
    uint8_t d[4];
    uint8_t qs[32];
} block_nvfp4;

/* value = d where the element's bit is set, otherwise -d */
typedef struct block_q1_0 {
    uint16_t d;
    uint8_t qs[16];
} block_q1_0;

/* value = d * (q - 1), q = 0..3; element i is in bits 2 i and 2 i + 1 of the bit string */
typedef struct block_q2_0 {
    uint16_t d;
    uint8_t qs[16];
} block_q2_0;

enum { QUANT_QUANTIZED(QUANT_SHAPE) };
enum { QUANT_K = 256 }; /* elements in a block of the K types */

/* Values of the nibbles of the table formats; initializers of int8_t[16]. E2M1 is doubled so that
 * all values are integers; the scale compensates. */
#define QUANT_IQ4_VALUES  -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113
#define QUANT_E2M1_VALUES 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12

/* 2^(e - 128): half the value of an E8M0 byte; 255 is NaN. */
static inline float quant_e8m0_half(uint8_t e) {
    union {
        uint32_t u;
        float f;
    } v;
    if (e < 2)
        v.u = 0x00200000u << e; /* denormal */
    else
        v.u = e == 255 ? 0x7fc00000u : (uint32_t)(e - 1) << 23;
    return v.f;
}

#endif
