/* quant_k.c: the formats with blocks of 256 elements, whose sub-blocks have small integer scales.
 *
 * There are two families: scale and minimum per sub-block (Q2_K, Q4_K, Q5_K), and a signed scale
 * with centred integers (Q3_K, Q6_K). Each type adds its bit layout.
 *
 * Quantizing has two rounds. The first fits every sub-block independently (quant_fit.h). The second
 * rounds the scales of the sub-blocks to multiples of the block's scale (minima also try the
 * neighbours), and chooses the integers again for the scales as a reader will decode them.
 *
 * Input is tamed first (quant_tame), so that scales are finite for any input: NaN becomes 0, and an
 * infinity becomes the largest value that the format can hold; its finite neighbours lose
 * precision. */
#include <math.h>
#include <string.h>

#include "quant.h"
#include "quant_blocks.h"
#include "quant_fit.h"
#include "quant_types.h"

enum {
    SUBS_MAX = 16,       /* sub-blocks per block: 16 of 16 elements or 8 of 32 */
    SCALE6_TOP = 63,     /* largest 6-bit sub-block scale and minimum (Q4_K, Q5_K) */
    SCALE4_TOP = 15,     /* largest 4-bit sub-block scale and minimum (Q2_K) */
    Q3K_ZERO = 4,        /* stored value of q = 0; q is in -4..3 */
    Q3K_SCALE_ZERO = 32, /* stored value of an integer scale of 0 */
    Q6K_ZERO = 32,
    Q6K_SCALE_ZERO = 128
};

/* ---- bits ------------------------------------------------------------------------------------ */

/* Where the formats keep `bits` bits of element e: the first `run` elements go to the lowest bits
 * of `run` bytes, the next `run` elements to the bits above, and so on until the bytes are full. */
typedef struct plane {
    int bits, run;
} plane;

static const plane nibbles = {4, 32}, pairs = {2, 32}, singles = {1, 32}, nibbles_64 = {4, 64};

static int plane_byte(plane p, int e) {
    return e / (p.run * 8 / p.bits) * p.run + e % p.run;
}

static int plane_shift(plane p, int e) {
    return e / p.run % (8 / p.bits) * p.bits;
}

/* q[e] |= bits of the element << to */
static void plane_get(plane p, const uint8_t *src, int to, uint8_t q[QUANT_K]) {
    int mask = (1 << p.bits) - 1;
    for (int e = 0; e < QUANT_K; e += p.run) {
        const uint8_t *byte = src + plane_byte(p, e);
        int shift = plane_shift(p, e);
        for (int i = 0; i < p.run; i++)
            q[e + i] = (uint8_t)(q[e + i] | (byte[i] >> shift & mask) << to);
    }
}

/* Puts the bits of each q, from bit `from`, into dst, which must start as zeros. */
static void plane_put(plane p, uint8_t *dst, int from, const uint8_t q[QUANT_K]) {
    int mask = (1 << p.bits) - 1;
    for (int e = 0; e < QUANT_K; e += p.run) {
        uint8_t *byte = dst + plane_byte(p, e);
        int shift = plane_shift(p, e);
        for (int i = 0; i < p.run; i++)
            byte[i] = (uint8_t)(byte[i] | (q[e + i] >> from & mask) << shift);
    }
}

/* ---- scale and minimum ----------------------------------------------------------------------- */

typedef struct affine_shape {
    int sub;       /* elements per sub-block */
    int top;       /* largest q */
    int scale_top; /* largest integer scale and minimum */
} affine_shape;

static const affine_shape q2_k_shape = {16, 3, SCALE4_TOP}, q4_k_shape = {32, 15, SCALE6_TOP},
                          q5_k_shape = {32, 31, SCALE6_TOP};

/* A block before packing. */
typedef struct affine_block {
    uint16_t d, dmin;
    uint8_t sc[SUBS_MAX], m[SUBS_MAX];
    uint8_t q[QUANT_K];
} affine_block;

static void affine_expand(const affine_block *b, const affine_shape *s, float *dst) {
    float d = quant_f16_to_f32(b->d), dmin = quant_f16_to_f32(b->dmin);
    for (int j = 0, e = 0; e < QUANT_K; j++) {
        float scale = d * (float)b->sc[j], min = dmin * (float)b->m[j];
        for (int end = e + s->sub; e < end; e++) dst[e] = scale * (float)b->q[e] - min;
    }
}

/* Returns the half nearest to the largest value / steps, and the integers nearest to value /
 * half. */
static uint16_t quantize_scales(const float *value, int n, int steps, uint8_t *q, float *d) {
    float top = 0.0f;
    for (int j = 0; j < n; j++) top = fmaxf(top, value[j]);
    uint16_t h = quant_f32_to_f16(fminf(top / (float)steps, QUANT_F16_MAX));
    *d = quant_f16_to_f32(h);
    for (int j = 0; j < n; j++)
        q[j] = *d > 0.0f ? (uint8_t)quant_nearest(quant_clamp(value[j] / *d, 0.0f, (float)steps))
                         : 0;
    return h;
}

/* Chooses the integers of a sub-block for x ~ step * q - offset; returns the weighted squared
 * error. */
static float affine_choose(const float *x, const float *w, const affine_shape *s, float step,
                           float offset, float *q) {
    float inverse = step > 0.0f ? 1.0f / step : 0.0f;
    if (!isfinite(inverse)) inverse = 0.0f;
    quant_lanes error = lanes_all(0.0f);
    for (int i = 0; i < s->sub; i += QUANT_LANES) {
        const quant_lanes at = lanes_add(lanes_load(x + i), lanes_all(offset));
        const quant_lanes value = lanes_nearest(lanes_mul(at, lanes_all(inverse)), 0.0f,
                                                (float)s->top);
        const quant_lanes off = lanes_sub(at, lanes_mul(lanes_all(step), value));
        error = lanes_add(error, lanes_mul(lanes_mul(lanes_load(w + i), off), off));
        lanes_store(q + i, value);
    }
    return lanes_sum(error);
}

/* The integer scale and minimum of a sub-block were rounded independently; neighbouring values may
 * fit better together. */
static void affine_refine(const float *x, const float *w, const affine_shape *s, float d,
                          float dmin, uint8_t *sc, uint8_t *m, uint8_t *q) {
    const int sc0 = *sc, m0 = *m;
    float chosen[QUANT_FIT_MAX], other[QUANT_FIT_MAX];
    float best = affine_choose(x, w, s, d * (float)sc0, dmin * (float)m0, chosen);
    for (int i = 0; i < 9; i++) {
        int sc1 = sc0 + i / 3 - 1, m1 = m0 + i % 3 - 1;
        if (sc1 < 0 || sc1 > s->scale_top || m1 < 0 || m1 > s->scale_top) continue;
        float error = affine_choose(x, w, s, d * (float)sc1, dmin * (float)m1, other);
        if (!(error < best)) continue;
        best = error;
        *sc = (uint8_t)sc1;
        *m = (uint8_t)m1;
        memcpy(chosen, other, sizeof chosen);
    }
    for (int i = 0; i < s->sub; i++) q[i] = (uint8_t)chosen[i];
}

static void affine_quantize(const float *src, const float *importance, const affine_shape *s,
                            affine_block *b) {
    float x[QUANT_K], w[QUANT_K], scale[SUBS_MAX], min[SUBS_MAX], d, dmin;
    const float limit = QUANT_F16_MAX * (float)s->scale_top;
    const int n_subs = QUANT_K / s->sub;
    for (int i = 0; i < QUANT_K; i++) x[i] = quant_tame(src[i], limit);
    for (int j = 0, e = 0; j < n_subs; j++, e += s->sub) {
        quant_fit_weights(importance != NULL ? importance + e : NULL, w + e, s->sub);
        quant_fit_affine(x + e, w + e, s->sub, s->top, false, &scale[j], &min[j]);
    }
    b->d = quantize_scales(scale, n_subs, s->scale_top, b->sc, &d);
    b->dmin = quantize_scales(min, n_subs, s->scale_top, b->m, &dmin);
    for (int j = 0, e = 0; j < n_subs; j++, e += s->sub)
        affine_refine(x + e, w + e, s, d, dmin, &b->sc[j], &b->m[j], b->q + e);
}

/* Eight 6-bit scales and eight 6-bit minima in 12 bytes (Q4_K, Q5_K). The first four scales are in
 * the low six bits of bytes 0-3, the first four minima in those of bytes 4-7. The last four scales
 * and minima share bytes 8-11 with their low nibbles; their high two bits are in the top bits of
 * bytes 0-7. */
static void unpack_6bit(const uint8_t packed[12], affine_block *b) {
    for (int j = 0; j < 4; j++) {
        b->sc[j] = packed[j] & 63;
        b->m[j] = packed[j + 4] & 63;
        b->sc[j + 4] = (uint8_t)((packed[j + 8] & 0xf) | packed[j] >> 6 << 4);
        b->m[j + 4] = (uint8_t)(packed[j + 8] >> 4 | packed[j + 4] >> 6 << 4);
    }
}

static void pack_6bit(const affine_block *b, uint8_t packed[12]) {
    for (int j = 0; j < 4; j++) {
        packed[j] = (uint8_t)(b->sc[j] | b->sc[j + 4] >> 4 << 6);
        packed[j + 4] = (uint8_t)(b->m[j] | b->m[j + 4] >> 4 << 6);
        packed[j + 8] = (uint8_t)((b->sc[j + 4] & 0xf) | (b->m[j + 4] & 0xf) << 4);
    }
}

static void unpack_q2_k(const block_q2_k *block, affine_block *b) {
    b->d = block->d;
    b->dmin = block->dmin;
    memset(b->q, 0, sizeof b->q);
    plane_get(pairs, block->qs, 0, b->q);
    for (int j = 0; j < QUANT_K / 16; j++) {
        b->sc[j] = block->scales[j] & 0xf;
        b->m[j] = block->scales[j] >> 4;
    }
}

static void pack_q2_k(const affine_block *b, block_q2_k *block) {
    memset(block, 0, sizeof *block);
    block->d = b->d;
    block->dmin = b->dmin;
    plane_put(pairs, block->qs, 0, b->q);
    for (int j = 0; j < QUANT_K / 16; j++) block->scales[j] = (uint8_t)(b->sc[j] | b->m[j] << 4);
}

static void unpack_q4_k(const block_q4_k *block, affine_block *b) {
    b->d = block->d;
    b->dmin = block->dmin;
    memset(b->q, 0, sizeof b->q);
    plane_get(nibbles, block->qs, 0, b->q);
    unpack_6bit(block->scales, b);
}

static void pack_q4_k(const affine_block *b, block_q4_k *block) {
    memset(block, 0, sizeof *block);
    block->d = b->d;
    block->dmin = b->dmin;
    plane_put(nibbles, block->qs, 0, b->q);
    pack_6bit(b, block->scales);
}

static void unpack_q5_k(const block_q5_k *block, affine_block *b) {
    b->d = block->d;
    b->dmin = block->dmin;
    memset(b->q, 0, sizeof b->q);
    plane_get(nibbles, block->qs, 0, b->q);
    plane_get(singles, block->qh, 4, b->q);
    unpack_6bit(block->scales, b);
}

static void pack_q5_k(const affine_block *b, block_q5_k *block) {
    memset(block, 0, sizeof *block);
    block->d = b->d;
    block->dmin = b->dmin;
    plane_put(nibbles, block->qs, 0, b->q);
    plane_put(singles, block->qh, 4, b->q);
    pack_6bit(b, block->scales);
}

/* ---- signed scale ---------------------------------------------------------------------------- */

typedef struct centred_shape {
    int zero;       /* stored value of q = 0: q is in -zero..zero-1 */
    int scale_zero; /* stored value of an integer scale of 0, for the 16 scales */
} centred_shape;

static const centred_shape q3_k_shape = {Q3K_ZERO, Q3K_SCALE_ZERO},
                           q6_k_shape = {Q6K_ZERO, Q6K_SCALE_ZERO};

enum { CENTRED_SUB = 16, CENTRED_SUBS = QUANT_K / CENTRED_SUB };

typedef struct centred_block {
    uint16_t d;
    int8_t sc[CENTRED_SUBS];
    uint8_t q[QUANT_K]; /* as stored: starting at 0 */
} centred_block;

static void centred_expand(const centred_block *b, const centred_shape *s, float *dst) {
    float d = quant_f16_to_f32(b->d);
    for (int j = 0, e = 0; e < QUANT_K; j++) {
        float scale = d * (float)b->sc[j];
        for (int end = e + CENTRED_SUB; e < end; e++) dst[e] = scale * (float)(b->q[e] - s->zero);
    }
}

static void centred_quantize(const float *src, const float *importance, const centred_shape *s,
                             centred_block *b) {
    float x[QUANT_K], w[CENTRED_SUB], scale[CENTRED_SUBS];
    const float limit = QUANT_F16_MAX * (float)(s->scale_zero - 1) * (float)(s->zero - 1);
    for (int i = 0; i < QUANT_K; i++) x[i] = quant_tame(src[i], limit);
    for (int j = 0; j < CENTRED_SUBS; j++) {
        quant_fit_weights(importance != NULL ? importance + j * CENTRED_SUB : NULL, w, CENTRED_SUB);
        scale[j] = quant_fit_scale(x + j * CENTRED_SUB, w, CENTRED_SUB, s->zero);
    }
    b->d = quant_round_scales(scale, CENTRED_SUBS, s->scale_zero, b->sc);
    float d = quant_f16_to_f32(b->d);
    for (int e = 0; e < QUANT_K; e += QUANT_LANES) {
        const float step = d * (float)b->sc[e / CENTRED_SUB];
        quant_lanes at = lanes_all(0.0f);
        float q[QUANT_LANES];
        if (step != 0.0f) at = lanes_div(lanes_load(x + e), lanes_all(step));
        lanes_store(q, lanes_nearest(at, (float)-s->zero, (float)(s->zero - 1)));
        for (int l = 0; l < QUANT_LANES; l++) b->q[e + l] = (uint8_t)((int)q[l] + s->zero);
    }
}

/* Q3_K's 6-bit scales: the low nibbles of scales 0-7 and 8-15 share bytes 0-7; the high two bits of
 * scale j are at bit 2 * (j / 4) of byte 8 + j % 4. Stored values start at 0. */
static void unpack_q3_k(const block_q3_k *block, centred_block *b) {
    b->d = block->d;
    memset(b->q, 0, sizeof b->q);
    plane_get(pairs, block->qs, 0, b->q);
    plane_get(singles, block->hmask, 2, b->q);
    for (int j = 0; j < CENTRED_SUBS; j++) {
        int low = block->scales[j % 8] >> j / 8 * 4 & 0xf;
        int high = block->scales[8 + j % 4] >> j / 4 * 2 & 3;
        b->sc[j] = (int8_t)((low | high << 4) - Q3K_SCALE_ZERO);
    }
}

static void pack_q3_k(const centred_block *b, block_q3_k *block) {
    memset(block, 0, sizeof *block);
    block->d = b->d;
    plane_put(pairs, block->qs, 0, b->q);
    plane_put(singles, block->hmask, 2, b->q);
    for (int j = 0; j < CENTRED_SUBS; j++) {
        int sc = b->sc[j] + Q3K_SCALE_ZERO;
        uint8_t *low = block->scales + j % 8, *high = block->scales + 8 + j % 4;
        *low = (uint8_t)(*low | (sc & 0xf) << j / 8 * 4);
        *high = (uint8_t)(*high | sc >> 4 << j / 4 * 2);
    }
}

static void unpack_q6_k(const block_q6_k *block, centred_block *b) {
    b->d = block->d;
    memset(b->q, 0, sizeof b->q);
    plane_get(nibbles_64, block->ql, 0, b->q);
    plane_get(pairs, block->qh, 4, b->q);
    memcpy(b->sc, block->scales, sizeof b->sc);
}

static void pack_q6_k(const centred_block *b, block_q6_k *block) {
    memset(block, 0, sizeof *block);
    block->d = b->d;
    plane_put(nibbles_64, block->ql, 0, b->q);
    plane_put(pairs, block->qh, 4, b->q);
    memcpy(block->scales, b->sc, sizeof b->sc);
}

/* ---- conversions ----------------------------------------------------------------------------- */

#define DEFINE(name, layout, family)                                                               \
    void QUANT_FOR(quant_dequantize_##name)(const void *src, float *dst, int64_t n) {              \
        const layout *block = src;                                                                 \
        for (int64_t b = 0; b < n / QUANT_K; b++) {                                                \
            family##_block open;                                                                   \
            unpack_##name(block + b, &open);                                                       \
            family##_expand(&open, &name##_shape, dst + b * QUANT_K);                              \
        }                                                                                          \
    }                                                                                              \
    void QUANT_FOR(quant_quantize_##name)(const float *src, void *dst, int64_t n,                  \
                                          const float *importance) {                               \
        layout *block = dst;                                                                       \
        for (int64_t b = 0; b < n / QUANT_K; b++) {                                                \
            family##_block open;                                                                   \
            family##_quantize(src + b * QUANT_K, importance ? importance + b * QUANT_K : NULL,     \
                              &name##_shape, &open);                                               \
            pack_##name(&open, block + b);                                                         \
        }                                                                                          \
    }

DEFINE(q2_k, block_q2_k, affine)
DEFINE(q3_k, block_q3_k, centred)
DEFINE(q4_k, block_q4_k, affine)
DEFINE(q5_k, block_q5_k, affine)
DEFINE(q6_k, block_q6_k, centred)
