/* quant.c: the table of tensor types, and what can be told from it alone.
 *
 * Everything here is constant and therefore free of threads' concerns. A type is a row: its name,
 * its block, its two conversions and where the scales lie in a block. Types with NULL conversions
 * are known by size only: their files open, can be listed and copied, but not computed with. */
#include "quant.h"

#include <float.h>
#include <math.h>
#include <string.h>
#include <strings.h>

#include "mem.h"
#include "quant_blocks.h"
#include "quant_types.h"

_Static_assert(sizeof(block_q8_0) == 34, "block_q8_0 has padding");
_Static_assert(sizeof(block_q4_0) == 18, "block_q4_0 has padding");
_Static_assert(sizeof(block_q4_1) == 20, "block_q4_1 has padding");
_Static_assert(sizeof(block_q5_0) == 22, "block_q5_0 has padding");
_Static_assert(sizeof(block_q5_1) == 24, "block_q5_1 has padding");
_Static_assert(sizeof(block_iq4_nl) == 18, "block_iq4_nl has padding");
_Static_assert(sizeof(block_mxfp4) == 17, "block_mxfp4 has padding");
_Static_assert(sizeof(block_q2_K) == 84, "block_q2_K has padding");
_Static_assert(sizeof(block_q3_K) == 110, "block_q3_K has padding");
_Static_assert(sizeof(block_q4_K) == 144, "block_q4_K has padding");
_Static_assert(sizeof(block_q5_K) == 176, "block_q5_K has padding");
_Static_assert(sizeof(block_iq4_xs) == 136, "block_iq4_xs has padding");
_Static_assert(sizeof(block_q6_K) == 210, "block_q6_K has padding");

enum { QUANT_32 = 32 }; /* elements in a block of the older formats */

/* type, name, elements, bytes, quantized, conversions */
#define ROW(type, name, elems, bytes, quantized, conversions)                                      \
    [QUANT_##type] = {QUANT_##type, name, elems, bytes, quantized, conversions}
#define BOTH(type) quant_dequantize_##type, quant_quantize_##type
#define NEITHER    NULL, NULL

static const quant_traits table[QUANT_TYPE_COUNT] = {
    ROW(F32, "f32", 1, 4, false, BOTH(f32)),
    ROW(F16, "f16", 1, 2, false, BOTH(f16)),
    ROW(BF16, "bf16", 1, 2, false, BOTH(bf16)),
    ROW(F64, "f64", 1, 8, false, NEITHER),
    ROW(I8, "i8", 1, 1, false, NEITHER),
    ROW(I16, "i16", 1, 2, false, NEITHER),
    ROW(I32, "i32", 1, 4, false, NEITHER),
    ROW(I64, "i64", 1, 8, false, NEITHER),
    ROW(Q4_0, "q4_0", QUANT_32, 18, true, BOTH(q4_0)),
    ROW(Q4_1, "q4_1", QUANT_32, 20, true, BOTH(q4_1)),
    ROW(Q5_0, "q5_0", QUANT_32, 22, true, BOTH(q5_0)),
    ROW(Q5_1, "q5_1", QUANT_32, 24, true, BOTH(q5_1)),
    ROW(Q8_0, "q8_0", QUANT_32, 34, true, BOTH(q8_0)),
    ROW(Q2_K, "q2_k", QUANT_K, 84, true, BOTH(q2_k)),
    ROW(Q3_K, "q3_k", QUANT_K, 110, true, BOTH(q3_k)),
    ROW(Q4_K, "q4_k", QUANT_K, 144, true, BOTH(q4_k)),
    ROW(Q5_K, "q5_k", QUANT_K, 176, true, BOTH(q5_k)),
    ROW(Q6_K, "q6_k", QUANT_K, 210, true, BOTH(q6_k)),
    ROW(IQ4_NL, "iq4_nl", QUANT_32, 18, true, BOTH(iq4_nl)),
    ROW(IQ4_XS, "iq4_xs", QUANT_K, 136, true, BOTH(iq4_xs)),
    ROW(MXFP4, "mxfp4", QUANT_32, 17, true, BOTH(mxfp4)),
};

/* Where the half-precision scales of a block lie: `count` of them, one after the other, from byte
 * `offset`. The other bytes of a block are integers, which are finite whatever they are. */
typedef struct scale_place {
    int offset, count;
} scale_place;

static const scale_place scale_places[QUANT_TYPE_COUNT] = {
    [QUANT_F16] = {0, 1},    [QUANT_Q4_0] = {0, 1},   [QUANT_Q4_1] = {0, 2},
    [QUANT_Q5_0] = {0, 1},   [QUANT_Q5_1] = {0, 2},   [QUANT_Q8_0] = {0, 1},
    [QUANT_Q2_K] = {80, 2},  [QUANT_Q3_K] = {108, 1}, [QUANT_Q4_K] = {0, 2},
    [QUANT_Q5_K] = {0, 2},   [QUANT_Q6_K] = {208, 1}, [QUANT_IQ4_NL] = {0, 1},
    [QUANT_IQ4_XS] = {0, 1},
};

const quant_traits *quant_find(uint32_t type) {
    if (type >= QUANT_TYPE_COUNT || table[type].name == NULL) return NULL;
    return &table[type];
}

const quant_traits *quant_find_name(const char *name) {
    if (name == NULL) return NULL;
    for (uint32_t type = 0; type < QUANT_TYPE_COUNT; type++) {
        if (table[type].name != NULL && strcasecmp(table[type].name, name) == 0)
            return &table[type];
    }
    return NULL;
}

bool quant_row_bytes(quant_type type, uint64_t n, size_t *out) {
    const quant_traits *t = quant_find((uint32_t)type);
    if (t == NULL || n > SIZE_MAX || n % (uint64_t)t->block_elems != 0) return false;
    return size_mul((size_t)n / (size_t)t->block_elems, (size_t)t->block_bytes, out);
}

/* All exponent bits set: NaN or infinity. */
static bool f16_is_nonfinite(const uint8_t *p) {
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return (h & 0x7c00u) == 0x7c00u;
}

static bool f32_is_nonfinite(uint32_t bits) {
    return (bits & 0x7f800000u) == 0x7f800000u;
}

/* An element of `n_bytes` bytes at p, of a plain float type wider than half. */
static bool plain_is_nonfinite(quant_type type, const uint8_t *p) {
    uint16_t h;
    uint32_t u;
    uint64_t w;
    switch (type) {
    case QUANT_BF16:
        memcpy(&h, p, sizeof h);
        return f32_is_nonfinite((uint32_t)h << 16);
    case QUANT_F32:
        memcpy(&u, p, sizeof u);
        return f32_is_nonfinite(u);
    case QUANT_F64:
        memcpy(&w, p, sizeof w);
        return (w & 0x7ff0000000000000u) == 0x7ff0000000000000u;
    default:
        return false;
    }
}

/* MXFP4's scale byte e means 2^(e - 127), 255 means NaN. Its largest code is 6, so that from 2^126
 * on a product can exceed the range of float. */
enum { MXFP4_LARGEST_SAFE = 125 + 127 };

bool quant_has_nonfinite(quant_type type, const void *src, int64_t n) {
    const quant_traits *t = quant_find((uint32_t)type);
    if (t == NULL) return false;
    const uint8_t *p = src;
    const scale_place place = scale_places[type];
    for (int64_t i = 0; i < n; i += t->block_elems, p += t->block_bytes) {
        if (type == QUANT_MXFP4 && p[0] > MXFP4_LARGEST_SAFE) return true;
        for (int s = 0; s < place.count; s++) {
            if (f16_is_nonfinite(p + place.offset + 2 * s)) return true;
        }
        if (place.count == 0 && plain_is_nonfinite(type, p)) return true;
    }
    return false;
}

static float largest_magnitude(const float *x, int64_t n) { /* infinity when one is not finite */
    float largest = 0;
    bool finite = true;
    for (int64_t i = 0; i < n; i++) {
        float a = fabsf(x[i]);
        finite &= a <= FLT_MAX; /* false for NaN too */
        if (a > largest) largest = a;
    }
    return finite ? largest : INFINITY;
}

quant_fault quant_quantize_checked(const quant_traits *traits, const float *src, void *dst,
                                   int64_t n, const float *importance) {
    float largest = largest_magnitude(src, n);
    if (isinf(largest)) return QUANT_BAD_SOURCE;
    traits->quantize(src, dst, n, importance);
    /* Beyond this a half, or the scale of a block in halves, overflows; the exact test is on the
     * result. */
    bool risky = largest > QUANT_F16_MAX;
    return risky && quant_has_nonfinite(traits->type, dst, n) ? QUANT_BAD_RESULT : QUANT_SOUND;
}
