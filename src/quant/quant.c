/* quant.c: the table of tensor types (quant_formats.h) and the functions that need only this table.
 *
 * All data is constant and therefore thread-safe. Types with NULL conversions are known by size
 * only: files that contain them can be opened, listed and copied, but not computed with. */
#include "quant.h"

#include <float.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "ascii_case.h"
#include "cpu_features.h"
#include "mem.h"
#include "quant_blocks.h"
#include "quant_low.h"
#include "quant_types.h"

#define SIZE(type, name, number, elems, bytes, ...)                                                \
    _Static_assert(sizeof(block_##name) == bytes, "block_" #name " has padding");
QUANT_QUANTIZED(SIZE)

#define ROW(type, name, text, elems, bytes, quantized, file_type)                                  \
    [QUANT_##type] = {                                                                             \
        QUANT_##type,         text, elems, bytes, quantized, file_type, quant_dequantize_##name,   \
        quant_quantize_##name},
#define PLAIN(type, name, number, elems, bytes, file_type)                                         \
    ROW(type, name, #name, elems, bytes, false, file_type)
#define BLOCK(type, name, number, elems, bytes, file_type, ...)                                    \
    ROW(type, name, #name, elems, bytes, true, file_type)
#define OPAQUE(type, name, number, elems, bytes, file_type)                                        \
    [QUANT_##type] = {QUANT_##type, #name, elems, bytes, false, file_type, NULL, NULL},

static const quant_traits plain_table[QUANT_TYPE_COUNT] = {QUANT_PLAIN(PLAIN) QUANT_QUANTIZED(BLOCK)
                                                               QUANT_OPAQUE(OPAQUE)};

#ifdef QUANT_HAS_AVX2
#define PLAIN_AVX2(type, name, number, elems, bytes, file_type)                                    \
    ROW(type, name##_avx2, #name, elems, bytes, false, file_type)
#define BLOCK_AVX2(type, name, number, elems, bytes, file_type, ...)                               \
    ROW(type, name##_avx2, #name, elems, bytes, true, file_type)

static const quant_traits avx2_table[QUANT_TYPE_COUNT] = {
    QUANT_PLAIN(PLAIN_AVX2) QUANT_BLOCKS(BLOCK_AVX2) QUANT_LOW(BLOCK) QUANT_OPAQUE(OPAQUE)};
#endif

/* A block has `count` consecutive half-precision scales, from byte `offset` on. */
typedef struct scale_place {
    int offset, count;
} scale_place;

#define PLACE(type, name, number, elems, bytes, file_type, sub, has_min, at, halfs)                \
    [QUANT_##type] = {offsetof(block_##name, at), halfs},

static const scale_place scale_places[QUANT_TYPE_COUNT] = {[QUANT_F16] = {0, 1},
                                                           QUANT_QUANTIZED(PLACE)};

const quant_traits *quant_find(uint32_t type) {
    if (type >= QUANT_TYPE_COUNT || plain_table[type].name == NULL) return NULL;
#ifdef QUANT_HAS_AVX2
    if (cpu_features_get()->avx2 && cpu_features_get()->f16c) return &avx2_table[type];
#endif
    return &plain_table[type];
}

const quant_traits *quant_find_name(const char *name) {
    if (name == NULL) return NULL;
    for (uint32_t type = 0; type < QUANT_TYPE_COUNT; type++) {
        const quant_traits *t = quant_find(type);
        if (t != NULL && ascii_same(t->name, name)) return t;
    }
    return NULL;
}

bool quant_row_bytes(quant_type type, uint64_t n, size_t *out) {
    const quant_traits *t = quant_find((uint32_t)type);
    if (t == NULL || n > SIZE_MAX || n % (uint64_t)t->block_elems != 0) return false;
    return size_mul((size_t)n / (size_t)t->block_elems, (size_t)t->block_bytes, out);
}

/* All exponent bits set: NaN or infinity. */
static bool half_is_nonfinite(uint16_t h) {
    return (h & 0x7c00u) == 0x7c00u;
}

static bool f16_is_nonfinite(const uint8_t *p) {
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return half_is_nonfinite(h);
}

static bool f32_is_nonfinite(uint32_t bits) {
    return (bits & 0x7f800000u) == 0x7f800000u;
}

/* An element of `n_bytes` bytes at p, of a plain float type wider than half precision. */
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

/* The MXFP4 scale byte e means 2^(e - 127), and 255 means NaN. The largest code is 6, so from 2^126
 * on a product can exceed the range of float. */
enum { MXFP4_LARGEST_SAFE = 125 + 127 };

bool quant_has_nonfinite(quant_type type, const void *src, int64_t n) {
    const quant_traits *t = quant_find((uint32_t)type);
    if (t == NULL) return false;
    const uint8_t *p = src;
    const scale_place place = scale_places[type];
    for (int64_t i = 0; i < n; i += t->block_elems, p += t->block_bytes) {
        if (type == QUANT_MXFP4 && p[0] > MXFP4_LARGEST_SAFE) return true;
        if (type == QUANT_IQ1_M && half_is_nonfinite(low_half_iq1_m((const void *)p))) return true;
        for (int s = 0; s < place.count; s++) {
            if (f16_is_nonfinite(p + place.offset + 2 * s)) return true;
        }
        if (place.count == 0 && plain_is_nonfinite(type, p)) return true;
    }
    return false;
}

static float largest_magnitude(const float *x, int64_t n) { /* infinity if one is not finite */
    float largest = 0;
    bool finite = true;
    for (int64_t i = 0; i < n; i++) {
        float a = fabsf(x[i]);
        finite &= a <= FLT_MAX; /* also false for NaN */
        if (a > largest) largest = a;
    }
    return finite ? largest : INFINITY;
}

quant_fault quant_quantize_checked(const quant_traits *traits, const float *src, void *dst,
                                   int64_t n, const float *importance) {
    float largest = largest_magnitude(src, n);
    if (isinf(largest)) return QUANT_BAD_SOURCE;
    traits->quantize(src, dst, n, importance);
    /* Beyond this a half, or the half-precision scale of a block, can overflow; quant_has_nonfinite
     * on the result decides. */
    bool risky = largest > QUANT_F16_MAX;
    return risky && quant_has_nonfinite(traits->type, dst, n) ? QUANT_BAD_RESULT : QUANT_SOUND;
}
