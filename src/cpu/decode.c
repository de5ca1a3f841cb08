/* decode.c: block formats to integers with scales, one small function per format (see decode.h).
 * Pure functions of the row's bytes; rows may start at any even address. */
#include "decode.h"

#include <string.h>

#include "quant_blocks.h"

enum { GROUPS_K = QUANT_K / DECODE_GROUP }; /* groups in a block of the K types */

static void set_scales(decode_group *out, float scale, float min) {
    out->scale[0] = out->scale[1] = scale;
    out->min[0] = out->min[1] = min;
}

static void decode_q8_0(const void *row, int64_t group, decode_group *out) {
    const block_q8_0 *b = (const block_q8_0 *)row + group;
    memcpy(out->q, b->qs, sizeof out->q);
    set_scales(out, quant_f16_to_f32(b->d), 0.0f);
}

static void decode_q4_0(const void *row, int64_t group, decode_group *out) {
    const block_q4_0 *b = (const block_q4_0 *)row + group;
    for (int i = 0; i < DECODE_HALF; i++) {
        out->q[i] = (int8_t)((b->qs[i] & 0xf) - 8);
        out->q[i + DECODE_HALF] = (int8_t)((b->qs[i] >> 4) - 8);
    }
    set_scales(out, quant_f16_to_f32(b->d), 0.0f);
}

/* Nibbles of elements i and i + 16 share byte i. */
static void unpack_nibbles(const uint8_t *qs, decode_group *out) {
    for (int i = 0; i < DECODE_HALF; i++) {
        out->q[i] = (int8_t)(qs[i] & 0xf);
        out->q[i + DECODE_HALF] = (int8_t)(qs[i] >> 4);
    }
}

/* Adds 16 times the bit that element i has in a string of 32 bits, and `offset`. */
static void add_fifth(const uint8_t *qh, int offset, decode_group *out) {
    for (int i = 0; i < DECODE_GROUP; i++)
        out->q[i] = (int8_t)(out->q[i] + 16 * (qh[i / 8] >> i % 8 & 1) + offset);
}

static void decode_q4_1(const void *row, int64_t group, decode_group *out) {
    const block_q4_1 *b = (const block_q4_1 *)row + group;
    unpack_nibbles(b->qs, out);
    set_scales(out, quant_f16_to_f32(b->d), -quant_f16_to_f32(b->m));
}

static void decode_q5_0(const void *row, int64_t group, decode_group *out) {
    const block_q5_0 *b = (const block_q5_0 *)row + group;
    unpack_nibbles(b->qs, out);
    add_fifth(b->qh, -16, out);
    set_scales(out, quant_f16_to_f32(b->d), 0.0f);
}

static void decode_q5_1(const void *row, int64_t group, decode_group *out) {
    const block_q5_1 *b = (const block_q5_1 *)row + group;
    unpack_nibbles(b->qs, out);
    add_fifth(b->qh, 0, out);
    set_scales(out, quant_f16_to_f32(b->d), -quant_f16_to_f32(b->m));
}

/* The 6-bit scale and minimum of sub-block j: the first four lie in the low six bits of bytes j and
 * j + 4; of the last four, the low nibbles share byte j + 4 and the high two bits sit above the
 * first four's. */
static void unpack_6bit(const uint8_t packed[12], int64_t j, int *scale, int *min) {
    if (j < 4) {
        *scale = packed[j] & 63;
        *min = packed[j + 4] & 63;
    } else {
        *scale = (packed[j + 4] & 0xf) | packed[j - 4] >> 6 << 4;
        *min = packed[j + 4] >> 4 | packed[j] >> 6 << 4;
    }
}

static void decode_q4_k(const void *row, int64_t group, decode_group *out) {
    const block_q4_K *b = (const block_q4_K *)row + group / GROUPS_K;
    int64_t j = group % GROUPS_K;
    int scale, min;
    unpack_6bit(b->scales, j, &scale, &min);
    const uint8_t *qs = b->qs + j / 2 * DECODE_GROUP;
    int shift = j % 2 ? 4 : 0;
    for (int i = 0; i < DECODE_GROUP; i++) out->q[i] = (int8_t)(qs[i] >> shift & 0xf);
    set_scales(out, quant_f16_to_f32(b->d) * (float)scale, quant_f16_to_f32(b->dmin) * (float)min);
}

static void decode_q6_k(const void *row, int64_t group, decode_group *out) {
    const block_q6_K *b = (const block_q6_K *)row + group / GROUPS_K;
    int64_t j = group % GROUPS_K;
    /* A half of the block is four groups: two in the low nibbles of 64 bytes, two in the high ones;
     * the upper bits of all four share 32 bytes. */
    int64_t half = j / 4, run = j % 4;
    const uint8_t *low = b->ql + half * 64 + run % 2 * DECODE_GROUP;
    const uint8_t *high = b->qh + half * 32;
    int low_shift = run / 2 ? 4 : 0, high_shift = (int)run * 2;
    for (int i = 0; i < DECODE_GROUP; i++) {
        int q = (low[i] >> low_shift & 0xf) | (high[i] >> high_shift & 3) << 4;
        out->q[i] = (int8_t)(q - 32);
    }
    float d = quant_f16_to_f32(b->d);
    for (int h = 0; h < 2; h++) {
        out->scale[h] = d * (float)b->scales[2 * j + h];
        out->min[h] = 0.0f;
    }
}

static const decode_fn table[QUANT_TYPE_COUNT] = {
    [QUANT_Q8_0] = decode_q8_0, [QUANT_Q4_0] = decode_q4_0, [QUANT_Q4_1] = decode_q4_1,
    [QUANT_Q5_0] = decode_q5_0, [QUANT_Q5_1] = decode_q5_1, [QUANT_Q4_K] = decode_q4_k,
    [QUANT_Q6_K] = decode_q6_k,
};

decode_fn decode_find(quant_type type) {
    return (unsigned)type < QUANT_TYPE_COUNT ? table[type] : NULL;
}
