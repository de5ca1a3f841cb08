/* kv_low.h: KV cache types of four and five bits: Q4_0, Q4_1, Q5_0, Q5_1, IQ4_NL (quant_blocks.h).
 * All have blocks of 32 elements, value = d * q + m. Private to src/cpu.
 *
 * All tiers write the same bytes for a block. Q4_1 and Q5_1: m = minimum, d = (maximum - minimum) /
 * largest q. The others have no m; their d maps the value of the largest magnitude to the lowest q.
 * q = round((x - m) / d), with d and m as stored. d and m saturate at the largest half; d is NaN
 * when a value is not finite, so that the error is not hidden. */
#ifndef CPU_KV_LOW_H
#define CPU_KV_LOW_H

#include <math.h>
#include <string.h>

#include "quant.h"
#include "quant_blocks.h"

enum { KV_LOW_ELEMS = 32, KV_LOW_CODES = 16 };

typedef struct kv_low {
    int bytes;
    int m, qh, qs; /* offsets in a block; 0: absent */
    /* range of q; the stored code is q - least, for IQ4_NL the index of the value */
    int least, most;
    bool codes; /* q is one of QUANT_IQ4_VALUES */
} kv_low;

/* Folded by the compiler when the type is a constant. */
static inline kv_low kv_low_of(quant_type type) {
    switch ((int)type) {
    case QUANT_Q4_0:
        return (kv_low){18, 0, 0, 2, -8, 7, false};
    case QUANT_Q4_1:
        return (kv_low){20, 2, 0, 4, 0, 15, false};
    case QUANT_Q5_0:
        return (kv_low){22, 0, 2, 6, -16, 15, false};
    case QUANT_Q5_1:
        return (kv_low){24, 2, 4, 8, 0, 31, false};
    default:
        return (kv_low){18, 0, 0, 2, -127, 113, true};
    }
}

static inline bool kv_is_low(quant_type type) {
    return type == QUANT_Q4_0 || type == QUANT_Q4_1 || type == QUANT_Q5_0 || type == QUANT_Q5_1 ||
           type == QUANT_IQ4_NL;
}

static inline uint16_t kv_low_half(const uint8_t *p) {
    uint16_t half;
    memcpy(&half, p, sizeof half);
    return half;
}

/* Borders between codes: y's code is the number of borders below y. */
static const float kv_low_middles[KV_LOW_CODES - 1] = {-115.5f, -93.5f, -74.0f, -57.0f, -42.0f,
                                                       -28.5f,  -16.0f, -4.5f,  7.0f,   19.0f,
                                                       31.5f,   45.5f,  61.0f,  79.0f,  101.0f};

/* Writes d and m of a block whose values are lo to hi, and returns them as floats. Adding 0 turns
 * -0 to 0: which zero is the minimum depends on the tier. */
static inline void kv_low_scale(const kv_low *f, float lo, float hi, bool finite, uint8_t *to,
                                float *d, float *m) {
    const float largest_half = 65504.0f;
    uint16_t half;
    float extreme = hi > -lo ? hi : lo, scale = extreme / (float)f->least + 0.0f;
    *m = 0;
    if (f->m) {
        half = quant_f32_to_f16(fmaxf(-largest_half, fminf(largest_half, lo)) + 0.0f);
        if (!finite) half = 0;
        memcpy(to + f->m, &half, sizeof half);
        *m = quant_f16_to_f32(half);
        scale = (hi - *m) / (float)f->most;
    }
    scale = fmaxf(-largest_half, fminf(largest_half, scale));
    half = quant_f32_to_f16(finite ? scale : NAN);
    memcpy(to, &half, sizeof half);
    *d = quant_f16_to_f32(half);
}

/* Stores the codes of the elements, each 0 to 15 or 31. */
static inline void kv_low_pack(const kv_low *f, const int8_t q[KV_LOW_ELEMS], uint8_t *to) {
    uint8_t *qs = to + f->qs;
    for (int i = 0; i < KV_LOW_ELEMS / 2; i++)
        qs[i] = (uint8_t)((q[i] & 0xf) | (q[i + KV_LOW_ELEMS / 2] & 0xf) << 4);
    if (!f->qh) return;
    uint32_t fifth = 0;
    for (int i = 0; i < KV_LOW_ELEMS; i++) fifth |= (uint32_t)(q[i] >> 4 & 1) << i;
    memcpy(to + f->qh, &fifth, sizeof fifth);
}

#endif
