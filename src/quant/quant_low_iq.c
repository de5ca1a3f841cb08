/* quant_low_iq.c: quantizes floats to the formats with code books.
 *
 * Quantizing a block has two rounds. The first fits every run of elements that share a scale
 * independently: it tries scales around the one that the largest element suggests, chooses points
 * for each, and keeps the scale with the most weighted energy. The second rounds the scales to
 * small odd integers times the scale of the block, and chooses the points again for these
 * scales. */
#include <math.h>
#include <string.h>

#include "quant.h"
#include "quant_blocks.h"
#include "quant_codebook.h"
#include "quant_fit.h"
#include "quant_types.h"

enum {
    RUN = 8, /* elements whose signs are stored together */
    RUNS = QUANT_K / RUN,
    SUBS_MAX = 16,
    TRIALS = 16
};

/* Inverse scales to try, relative to the one that the largest element suggests: with two bits,
 * clipping the largest element lowers the error. */
static const float FIRST_TRIAL = 0.8f, TRIAL_STEP = 0.06f;

/* value = d * (2 scale + 1) * unit * (point + shift) */
typedef struct iq_shape {
    codebook_id book;
    int sub;       /* elements that share a scale */
    int scale_top; /* largest scale */
    float unit;
    bool even_signs; /* the last of eight signs follows from the others */
    int shifted;     /* elements that share a shift of 1 or -1; 0: signs instead of shifts */
} iq_shape;

static const iq_shape iq2_xxs = {CODEBOOK_IQ2_XXS, 32, 15, 0.125f, true, 0},
                      iq2_xs = {CODEBOOK_IQ2_XS, 16, 15, 0.125f, true, 0},
                      iq2_s = {CODEBOOK_IQ2_S, 16, 15, 0.125f, false, 0},
                      iq3_xxs = {CODEBOOK_IQ3_XXS, 32, 15, 0.25f, true, 0},
                      iq3_s = {CODEBOOK_IQ3_S, 32, 15, 1.0f, false, 0},
                      iq1_s = {CODEBOOK_IQ1, 32, 7, 0.125f, false, 32},
                      iq1_m = {CODEBOOK_IQ1, 16, 7, 0.125f, false, 8};

/* A block before packing. */
typedef struct iq_block {
    uint16_t d;              /* half */
    uint8_t scale[SUBS_MAX]; /* per sub-block */
    uint16_t at[2 * RUNS];   /* indices of points */
    uint8_t signs[RUNS];     /* bits; set: negative */
    bool down[RUNS];         /* shifted by -1 */
} iq_block;

/* Removes the signs of the elements and writes them to `signs`. Where an even number of negative
 * elements is required and their number is odd, the element that matters least flips its sign and
 * becomes negative in x. */
static void take_signs(const iq_shape *s, float x[RUN], const float w[RUN], uint8_t *signs) {
    int bits = 0, odd = 0, least = 0;
    if (s->shifted) return;
    for (int i = 0; i < RUN; i++) {
        if (w[i] * x[i] * x[i] < w[least] * x[least] * x[least]) least = i;
        bits |= (x[i] < 0.0f) << i;
        odd ^= x[i] < 0.0f;
        x[i] = fabsf(x[i]);
    }
    if (s->even_signs && odd) {
        bits ^= 1 << least;
        x[least] = -x[least];
    }
    *signs = (uint8_t)bits;
}

/* Squared error without the terms that do not depend on the choice. */
static double loss(codebook_sums sums, double inverse) {
    return sums.qq / (inverse * inverse) - 2.0 * sums.xq / inverse;
}

/* Chooses the points of n elements (which share a scale) for an inverse scale. */
static codebook_sums choose_points(const iq_shape *s, const float *x, const float *w, int n,
                                   float inverse, uint16_t *at, bool *down) {
    const codebook *book = codebook_get(s->book);
    const int dims = codebook_dims(book), per_shift = s->shifted < n ? s->shifted : n;
    codebook_sums all = {0.0, 0.0};
    if (!s->shifted) {
        for (int i = 0; i < n; i += dims)
            at[i / dims] = codebook_choose(book, x + i, w + i, inverse, 0.0f, &all);
        return all;
    }
    for (int i = 0; i < n; i += per_shift) {
        codebook_sums sums[2] = {{0.0, 0.0}, {0.0, 0.0}};
        uint16_t points[2][32 / RUN];
        for (int d = 0; d < 2; d++)
            for (int j = 0; j < per_shift; j += RUN)
                points[d][j / RUN] = codebook_choose(book, x + i + j, w + i + j, inverse,
                                                     d ? -1.0f : 1.0f, &sums[d]);
        const int d = loss(sums[1], (double)inverse) < loss(sums[0], (double)inverse);
        for (int j = 0; j < per_shift; j += RUN) {
            at[(i + j) / RUN] = points[d][j / RUN];
            down[(i + j) / RUN] = d;
        }
        all.xq += sums[d].xq;
        all.qq += sums[d].qq;
    }
    return all;
}

/* Fits the scale of a sub-block alone. */
static float fit_scale(const iq_shape *s, const float *x, const float *w) {
    float amax = 0.0f, scale = 0.0f;
    double best = 0.0;
    uint16_t at[32 / 4];
    bool down[32 / RUN];
    for (int i = 0; i < s->sub; i++) amax = fmaxf(amax, fabsf(x[i]));
    if (amax < 0x1p-40f) return 0.0f; /* rounds to a half of 0, and 1 / amax could overflow */
    const float inverse = codebook_top(codebook_get(s->book)) / amax;
    for (int t = 0; t < TRIALS; t++) {
        const float trial = inverse * (FIRST_TRIAL + TRIAL_STEP * (float)t);
        const codebook_sums sums = choose_points(s, x, w, s->sub, trial, at, down);
        if (!(sums.qq > 0.0) || !(sums.xq > 0.0)) continue;
        const double kept = sums.xq * sums.xq / sums.qq;
        if (kept <= best) continue;
        best = kept;
        scale = (float)(sums.xq / sums.qq);
    }
    return scale;
}

/* Rounds scales to odd integers times d. */
static void round_scales(const iq_shape *s, const float *scale, float d, uint8_t *out) {
    for (int j = 0; j < QUANT_K / s->sub; j++) {
        const float odd = d > 0.0f ? scale[j] / (d * s->unit) : 0.0f;
        out[j] = (uint8_t)quant_nearest(
            quant_clamp(0.5f * (odd - 1.0f), 0.0f, (float)s->scale_top));
    }
}

/* Chooses points for the scales as a reader will decode them; returns the d that fits best. */
static float choose_all(const iq_shape *s, const float *x, const float *w, float d, iq_block *b) {
    const int dims = codebook_dims(codebook_get(s->book));
    codebook_sums all = {0.0, 0.0};
    for (int j = 0; j < QUANT_K / s->sub; j++) {
        const int i = j * s->sub;
        const float odd = (float)(2 * b->scale[j] + 1) * s->unit;
        const codebook_sums sums = choose_points(s, x + i, w + i, s->sub, 1.0f / (d * odd),
                                                 b->at + i / dims, b->down + i / RUN);
        all.xq += sums.xq * (double)odd;
        all.qq += sums.qq * (double)odd * (double)odd;
    }
    return all.qq > 0.0 && all.xq > 0.0 ? (float)(all.xq / all.qq) : d;
}

static void quantize_block(const iq_shape *s, const float *src, const float *importance,
                           iq_block *b) {
    float x[QUANT_K], w[QUANT_K], scale[SUBS_MAX], top = 0.0f;
    memset(b, 0, sizeof *b);
    for (int i = 0; i < QUANT_K; i++) x[i] = quant_tame(src[i], QUANT_F16_MAX);
    quant_fit_weights(importance, w, QUANT_K);
    for (int i = 0; i < QUANT_K; i += RUN) take_signs(s, x + i, w + i, &b->signs[i / RUN]);
    for (int j = 0; j < QUANT_K / s->sub; j++) {
        scale[j] = fit_scale(s, x + j * s->sub, w + j * s->sub);
        top = fmaxf(top, scale[j]);
    }
    const float d = quant_f16_to_f32(quant_f32_to_f16(
        quant_tame(top / ((float)(2 * s->scale_top + 1) * s->unit), QUANT_F16_MAX)));
    if (!(d > 0.0f)) return;
    round_scales(s, scale, d, b->scale);
    b->d = quant_f32_to_f16(quant_tame(choose_all(s, x, w, d, b), QUANT_F16_MAX));
}

static const float *importance_at(const float *importance, int64_t block) {
    return importance != NULL ? importance + block * QUANT_K : NULL;
}

/* ---- bits ------------------------------------------------------------------------------------ */

static uint32_t seven_signs(const iq_block *b, int group) {
    uint32_t bits = 0;
    for (int i = 0; i < 4; i++) bits |= (uint32_t)(b->signs[4 * group + i] & 0x7f) << 7 * i;
    return bits;
}

static void pack_iq2_xxs(const iq_block *b, block_iq2_xxs *out) {
    out->d = b->d;
    for (int g = 0; g < 8; g++) {
        const uint32_t signs = seven_signs(b, g) | (uint32_t)b->scale[g] << 28;
        out->qs[4 * g] = (uint16_t)(b->at[4 * g] | b->at[4 * g + 1] << 8);
        out->qs[4 * g + 1] = (uint16_t)(b->at[4 * g + 2] | b->at[4 * g + 3] << 8);
        out->qs[4 * g + 2] = (uint16_t)signs;
        out->qs[4 * g + 3] = (uint16_t)(signs >> 16);
    }
}

static void pack_iq2_xs(const iq_block *b, block_iq2_xs *out) {
    out->d = b->d;
    for (int i = 0; i < RUNS; i++) out->qs[i] = (uint16_t)(b->at[i] | (b->signs[i] & 0x7f) << 9);
    for (int g = 0; g < 8; g++)
        out->scales[g] = (uint8_t)(b->scale[2 * g] | b->scale[2 * g + 1] << 4);
}

static void pack_iq2_s(const iq_block *b, block_iq2_s *out) {
    memset(out, 0, sizeof *out);
    out->d = b->d;
    for (int i = 0; i < RUNS; i++) {
        out->qs[i] = (uint8_t)b->at[i];
        out->qh[i / 4] = (uint8_t)(out->qh[i / 4] | b->at[i] >> 8 << 2 * (i % 4));
        out->signs[i] = b->signs[i];
    }
    for (int g = 0; g < 8; g++)
        out->scales[g] = (uint8_t)(b->scale[2 * g] | b->scale[2 * g + 1] << 4);
}

static void pack_iq3_xxs(const iq_block *b, block_iq3_xxs *out) {
    out->d = b->d;
    for (int i = 0; i < 2 * RUNS; i++) out->qs[i] = (uint8_t)b->at[i];
    for (int g = 0; g < 8; g++) {
        const uint32_t signs = seven_signs(b, g) | (uint32_t)b->scale[g] << 28;
        memcpy(out->signs + 4 * g, &signs, sizeof signs);
    }
}

static void pack_iq3_s(const iq_block *b, block_iq3_s *out) {
    memset(out, 0, sizeof *out);
    out->d = b->d;
    for (int i = 0; i < 2 * RUNS; i++) {
        out->qs[i] = (uint8_t)b->at[i];
        out->qh[i / 8] = (uint8_t)(out->qh[i / 8] | b->at[i] >> 8 << i % 8);
    }
    memcpy(out->signs, b->signs, sizeof out->signs);
    for (int g = 0; g < 8; g++)
        out->scales[g / 2] = (uint8_t)(out->scales[g / 2] | b->scale[g] << 4 * (g % 2));
}

static void pack_iq1_s(const iq_block *b, block_iq1_s *out) {
    out->d = b->d;
    for (int g = 0; g < 8; g++) {
        int qh = b->scale[g] << 12 | (b->down[4 * g] ? 0x8000 : 0);
        for (int i = 0; i < 4; i++) {
            out->qs[4 * g + i] = (uint8_t)b->at[4 * g + i];
            qh |= b->at[4 * g + i] >> 8 << 3 * i;
        }
        out->qh[g] = (uint16_t)qh;
    }
}

static void pack_iq1_m(const iq_block *b, block_iq1_m *out) {
    memset(out, 0, sizeof *out);
    for (int i = 0; i < RUNS; i++) {
        const int high = b->at[i] >> 8 | (b->down[i] ? 8 : 0);
        out->qs[i] = (uint8_t)b->at[i];
        out->qh[i / 2] = (uint8_t)(out->qh[i / 2] | high << 4 * (i % 2));
    }
    for (int i = 0; i < 4; i++) {
        int word = (b->d >> 4 * i & 15) << 12;
        for (int j = 0; j < 4; j++) word |= b->scale[4 * i + j] << 3 * j;
        out->scales[2 * i] = (uint8_t)word;
        out->scales[2 * i + 1] = (uint8_t)(word >> 8);
    }
}

#define QUANTIZE(name)                                                                             \
    void quant_quantize_##name(const float *src, void *dst, int64_t n, const float *importance) {  \
        block_##name *out = dst;                                                                   \
        for (int64_t k = 0; k < n / QUANT_K; k++) {                                                \
            iq_block block;                                                                        \
            quantize_block(&name, src + k * QUANT_K, importance_at(importance, k), &block);        \
            pack_##name(&block, out + k);                                                          \
        }                                                                                          \
    }
QUANTIZE(iq2_xxs)
QUANTIZE(iq2_xs)
QUANTIZE(iq2_s)
QUANTIZE(iq3_xxs)
QUANTIZE(iq3_s)
QUANTIZE(iq1_s)
QUANTIZE(iq1_m)
