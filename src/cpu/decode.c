/* decode.c: decodes block formats to integers with scales, one function per format (see decode.h).
 * Rows may start at any even address (MXFP4: at any address). */
#include "decode.h"

#include <string.h>

#include "quant_blocks.h"
#include "quant_low.h"

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

/* Nibbles of elements i and i + 16 share byte i. */
static void unpack_nibbles(const uint8_t *qs, decode_group *out) {
    for (int i = 0; i < DECODE_HALF; i++) {
        out->q[i] = (int8_t)(qs[i] & 0xf);
        out->q[i + DECODE_HALF] = (int8_t)(qs[i] >> 4);
    }
}

/* q[i] |= `bits` bits of byte i, from bit `from` on, shifted left by `to`. */
static void add_bits(const uint8_t *p, int from, int bits, int to, decode_group *out) {
    int mask = (1 << bits) - 1;
    for (int i = 0; i < DECODE_GROUP; i++)
        out->q[i] = (int8_t)(out->q[i] | (p[i] >> from & mask) << to);
}

static void add_offset(int offset, decode_group *out) {
    for (int i = 0; i < DECODE_GROUP; i++) out->q[i] = (int8_t)(out->q[i] + offset);
}

static void decode_q4_0(const void *row, int64_t group, decode_group *out) {
    const block_q4_0 *b = (const block_q4_0 *)row + group;
    unpack_nibbles(b->qs, out);
    add_offset(-8, out);
    set_scales(out, quant_f16_to_f32(b->d), 0.0f);
}

/* Adds 16 to element i where bit i of a 32-bit string is set. */
static void add_fifth(const uint8_t *qh, decode_group *out) {
    for (int i = 0; i < DECODE_GROUP; i++)
        out->q[i] = (int8_t)(out->q[i] | (qh[i / 8] >> i % 8 & 1) << 4);
}

static void decode_q4_1(const void *row, int64_t group, decode_group *out) {
    const block_q4_1 *b = (const block_q4_1 *)row + group;
    unpack_nibbles(b->qs, out);
    set_scales(out, quant_f16_to_f32(b->d), -quant_f16_to_f32(b->m));
}

static void decode_q5_0(const void *row, int64_t group, decode_group *out) {
    const block_q5_0 *b = (const block_q5_0 *)row + group;
    unpack_nibbles(b->qs, out);
    add_fifth(b->qh, out);
    add_offset(-16, out);
    set_scales(out, quant_f16_to_f32(b->d), 0.0f);
}

static void decode_q5_1(const void *row, int64_t group, decode_group *out) {
    const block_q5_1 *b = (const block_q5_1 *)row + group;
    unpack_nibbles(b->qs, out);
    add_fifth(b->qh, out);
    set_scales(out, quant_f16_to_f32(b->d), -quant_f16_to_f32(b->m));
}

/* The 6-bit scale and minimum of sub-block j. j < 4: the low six bits of bytes j and j + 4. Others:
 * their low four bits are the nibbles of byte j + 4, and their high two bits are the top bits of
 * bytes j - 4 and j. */
static void unpack_6bit(const uint8_t packed[12], int64_t j, int *scale, int *min) {
    if (j < 4) {
        *scale = packed[j] & 63;
        *min = packed[j + 4] & 63;
    } else {
        *scale = (packed[j + 4] & 0xf) | packed[j - 4] >> 6 << 4;
        *min = packed[j + 4] >> 4 | packed[j] >> 6 << 4;
    }
}

/* Looks up nibbles in a table of 16 values. */
static void look_up(const uint8_t *qs, const int8_t values[16], decode_group *out) {
    for (int i = 0; i < DECODE_HALF; i++) {
        out->q[i] = values[qs[i] & 0xf];
        out->q[i + DECODE_HALF] = values[qs[i] >> 4];
    }
}

static void decode_iq4_nl(const void *row, int64_t group, decode_group *out) {
    static const int8_t values[16] = {QUANT_IQ4_VALUES};
    const block_iq4_nl *b = (const block_iq4_nl *)row + group;
    look_up(b->qs, values, out);
    set_scales(out, quant_f16_to_f32(b->d), 0.0f);
}

static void decode_iq4_xs(const void *row, int64_t group, decode_group *out) {
    static const int8_t values[16] = {QUANT_IQ4_VALUES};
    const block_iq4_xs *b = (const block_iq4_xs *)row + group / GROUPS_K;
    int64_t j = group % GROUPS_K;
    look_up(b->qs + j * DECODE_HALF, values, out);
    int scale = (b->scales_l[j / 2] >> j % 2 * 4 & 0xf) | (b->scales_h >> 2 * j & 3) << 4;
    set_scales(out, quant_f16_to_f32(b->d) * (float)(scale - 32), 0.0f);
}

static void decode_mxfp4(const void *row, int64_t group, decode_group *out) {
    static const int8_t values[16] = {QUANT_E2M1_VALUES};
    const block_mxfp4 *b = (const block_mxfp4 *)row + group;
    look_up(b->qs, values, out);
    set_scales(out, quant_e8m0_half(b->e), 0.0f);
}

/* In the K types a byte holds bits of several elements that are 32 apart: all groups of a block (or
 * of 128 of its elements) read the same bytes, each group different bits. */

static void decode_q2_k(const void *row, int64_t group, decode_group *out) {
    const block_q2_k *b = (const block_q2_k *)row + group / GROUPS_K;
    int64_t j = group % GROUPS_K;
    memset(out->q, 0, sizeof out->q);
    add_bits(b->qs + j / 4 * 32, (int)(j % 4) * 2, 2, 0, out);
    for (int h = 0; h < 2; h++) {
        out->scale[h] = quant_f16_to_f32(b->d) * (float)(b->scales[2 * j + h] & 0xf);
        out->min[h] = quant_f16_to_f32(b->dmin) * (float)(b->scales[2 * j + h] >> 4);
    }
}

static void decode_q3_k(const void *row, int64_t group, decode_group *out) {
    const block_q3_k *b = (const block_q3_k *)row + group / GROUPS_K;
    int64_t j = group % GROUPS_K;
    memset(out->q, 0, sizeof out->q);
    add_bits(b->qs + j / 4 * 32, (int)(j % 4) * 2, 2, 0, out);
    add_bits(b->hmask, (int)j, 1, 2, out);
    add_offset(-4, out);
    for (int h = 0; h < 2; h++) {
        /* scale i: low nibbles of 0-7 and of 8-15 share bytes 0-7; the upper two bits are at bit 2
         * (i / 4) of byte 8 + i % 4 */
        int64_t i = 2 * j + h;
        int scale = (b->scales[i % 8] >> i / 8 * 4 & 0xf) | (b->scales[8 + i % 4] >> i / 4 * 2 & 3)
                                                                << 4;
        out->scale[h] = quant_f16_to_f32(b->d) * (float)(scale - 32);
        out->min[h] = 0.0f;
    }
}

static void decode_q4_k(const void *row, int64_t group, decode_group *out) {
    const block_q4_k *b = (const block_q4_k *)row + group / GROUPS_K;
    int64_t j = group % GROUPS_K;
    int scale, min;
    unpack_6bit(b->scales, j, &scale, &min);
    memset(out->q, 0, sizeof out->q);
    add_bits(b->qs + j / 2 * 32, (int)(j % 2) * 4, 4, 0, out);
    set_scales(out, quant_f16_to_f32(b->d) * (float)scale, quant_f16_to_f32(b->dmin) * (float)min);
}

static void decode_q5_k(const void *row, int64_t group, decode_group *out) {
    const block_q5_k *b = (const block_q5_k *)row + group / GROUPS_K;
    int64_t j = group % GROUPS_K;
    int scale, min;
    unpack_6bit(b->scales, j, &scale, &min);
    memset(out->q, 0, sizeof out->q);
    add_bits(b->qs + j / 2 * 32, (int)(j % 2) * 4, 4, 0, out);
    add_bits(b->qh, (int)j, 1, 4, out);
    set_scales(out, quant_f16_to_f32(b->d) * (float)scale, quant_f16_to_f32(b->dmin) * (float)min);
}

static void decode_q6_k(const void *row, int64_t group, decode_group *out) {
    const block_q6_k *b = (const block_q6_k *)row + group / GROUPS_K;
    int64_t j = group % GROUPS_K;
    /* 128 elements of the block are four groups: two in the low nibbles of 64 bytes, two in the
     * high nibbles; the upper bits of all four share 32 bytes. */
    int64_t half = j / 4, run = j % 4;
    memset(out->q, 0, sizeof out->q);
    add_bits(b->ql + half * 64 + run % 2 * 32, run / 2 ? 4 : 0, 4, 0, out);
    add_bits(b->qh + half * 32, (int)run * 2, 2, 4, out);
    add_offset(-32, out);
    float d = quant_f16_to_f32(b->d);
    for (int h = 0; h < 2; h++) {
        out->scale[h] = d * (float)b->scales[2 * j + h];
        out->min[h] = 0.0f;
    }
}

#define DECODE_LOW(type, name, ...)                                                                \
    static void decode_##name(const void *row, int64_t group, decode_group *out) {                 \
        enum { GROUPS = name##_elems / DECODE_GROUP };                                             \
        const block_##name *b = (const block_##name *)row + group / GROUPS;                        \
        quant_group low;                                                                           \
        name##_group(b, (int)(group % GROUPS), name##_unit(b), &low);                              \
        memcpy(out->q, low.q, sizeof out->q);                                                      \
        memcpy(out->scale, low.scale, sizeof out->scale);                                          \
        out->min[0] = out->min[1] = 0.0f;                                                          \
    }
QUANT_LOW(DECODE_LOW)

#define ENTRY(type, name, ...) [QUANT_##type] = decode_##name,
static const decode_fn table[QUANT_TYPE_COUNT] = {QUANT_QUANTIZED(ENTRY)};

decode_fn decode_find(quant_type type) {
    return (unsigned)type < QUANT_TYPE_COUNT ? table[type] : NULL;
}
