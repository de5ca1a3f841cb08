/* synth_weights.c: the rows of a synthetic model. The arithmetic is explained in synth.h.
 *
 * A row depends on the seed, its tensor and its number only, so that any thread may make any row.
 * Weights are normally distributed by way of a table of quantiles: 12 random bits choose an entry,
 * several times faster than computing logarithms, and indistinguishable after quantization. */
#include <math.h>

#include "mem.h"
#include "synth.h"

/* Variances in units of the token's own part of the stream at the first layer, which has 1, like
 * the planted direction. Over all layers the feed-forward halves add one half, the attention halves
 * between nothing (long contexts average values away) and one fifth; half of that is assumed. */
static const double FFN_GROWTH = 0.5, ATTENTION_GROWTH = 0.2, ATTENTION_ASSUMED = 0.1;
/* Share of a gate row's variance that lies in the low-rank part; the rest is noise that no
 * predictor of that rank can see. */
static const double LOW_RANK_SHARE = 0.9;
/* Means beyond this (Phi is within 3e-7 of 0 or 1) would only widen the range of the weights. */
static const double PRE_MEAN_MAX = 5;

/* Keys of the random streams that do not belong to a tensor. */
enum { STREAM_SIGN = 1000, STREAM_BASIS, STREAM_ORDER };

/* The generator of one row: seeds of different rows differ in all bits after splitmix. */
static rng row_rng(const synth_recipe *r, int stream, int32_t layer, uint64_t row) {
    const uint64_t odd = UINT64_C(0xd1342543de82ef95); /* spreads numbers over 64 bits */
    uint64_t place = ((uint64_t)stream << 48) ^ ((uint64_t)(layer + 1) << 32) ^ row;
    rng g;
    rng_seed(&g, (r->seed + place * odd) ^ (place >> 7));
    return g;
}

static void fill_normals(const synth_recipe *r, rng *g, float *out, uint64_t n) {
    enum { BITS = 12, PER_DRAW = 64 / BITS };
    _Static_assert(SYNTH_NORMALS == 1 << BITS, "a sample takes BITS bits");
    uint64_t i = 0;
    for (; n - i >= PER_DRAW; i += PER_DRAW) {
        uint64_t bits = rng_u64(g);
        for (int k = 0; k < PER_DRAW; k++) {
            out[i + (uint64_t)k] = r->normals[bits >> (BITS * k) & (SYNTH_NORMALS - 1)];
        }
    }
    for (; i < n; i++) out[i] = r->normals[rng_u64(g) & (SYNTH_NORMALS - 1)];
}

pi_status synth_recipe_create(synth_recipe *r, pi_error *err) {
    size_t n_embd = (size_t)r->shape->n_embd, n_ff = (size_t)r->shape->n_ff, n_basis;
    r->sign = mem_calloc(n_embd, sizeof *r->sign);
    r->pre_mean = mem_calloc(n_ff, sizeof *r->pre_mean);
    r->neuron_rank = mem_calloc(n_ff, sizeof *r->neuron_rank);
    r->basis = size_mul(n_embd, (size_t)r->rank, &n_basis) ? mem_calloc(n_basis, sizeof *r->basis)
                                                           : NULL;
    if (!r->sign || !r->pre_mean || !r->neuron_rank || !r->basis) {
        return error_nomem(err, n_embd * (size_t)r->rank * sizeof(float), "a synthetic model");
    }
    for (int i = 0; i < SYNTH_NORMALS; i++) {
        r->normals[i] = (float)synth_probit((i + 0.5) / SYNTH_NORMALS);
    }
    rng g = row_rng(r, STREAM_SIGN, 0, 0);
    for (size_t i = 0; i < n_embd; i++) r->sign[i] = rng_u64(&g) >> 63 ? 1.0f : -1.0f;
    for (size_t i = 0; i < n_ff; i++) {
        double t = r->profile.mu + r->profile.tau * synth_probit(((double)i + 0.5) / (double)n_ff);
        r->pre_mean[i] = (float)fmin(fmax(t, -PRE_MEAN_MAX), PRE_MEAN_MAX);
    }
    return PI_OK;
}

void synth_recipe_free(synth_recipe *r) {
    mem_free(r->sign);
    mem_free(r->pre_mean);
    mem_free(r->basis);
    mem_free(r->neuron_rank);
    *r = (synth_recipe){0};
}

void synth_recipe_set_layer(synth_recipe *r, int32_t layer) {
    uint64_t n_embd = (uint64_t)r->shape->n_embd, n_ff = (uint64_t)r->shape->n_ff;
    for (uint64_t i = 0; i < (uint64_t)r->rank; i++) {
        rng g = row_rng(r, STREAM_BASIS, layer, i);
        fill_normals(r, &g, r->basis + i * n_embd, n_embd);
    }
    rng g = row_rng(r, STREAM_ORDER, layer, 0);
    for (uint64_t i = 0; i < n_ff; i++) { /* a random order, built from the inside out */
        uint64_t j = rng_u64(&g) % (i + 1);
        r->neuron_rank[i] = r->neuron_rank[j];
        r->neuron_rank[j] = (int32_t)i;
    }
}

/* Variance of the token's own part of the stream when `attentions` and `ffns` halves have run. */
static double token_variance(const synth_recipe *r, int32_t attentions, int32_t ffns) {
    return 1 + (attentions * ATTENTION_ASSUMED + ffns * FFN_GROWTH) / r->n_layer;
}

/* Takes the part along v out of a row and scales it to a length. */
static void make_orthogonal(const synth_recipe *r, float *row, double length) {
    int32_t n = r->shape->n_embd;
    double along = 0, square = 0;
    for (int32_t i = 0; i < n; i++) along += (double)(row[i] * r->sign[i]);
    float share = (float)(along / n);
    for (int32_t i = 0; i < n; i++) row[i] -= share * r->sign[i];
    for (int32_t i = 0; i < n; i++) square += (double)(row[i] * row[i]);
    float scale = square > 0 ? (float)(length / sqrt(square)) : 0;
    for (int32_t i = 0; i < n; i++) row[i] *= scale;
}

/* A row that reads the normed stream and gives values of variance 1. With own variance b^2 beside
 * v's 1, a stream of length sqrt(1 + b^2) is scaled to 1: the row makes up for it. */
static double reading_length(double b2) {
    return sqrt((1 + b2) / b2);
}

static void add_low_rank(const synth_recipe *r, rng *g, float *row) {
    int32_t n = r->shape->n_embd;
    int n_used = r->rank < SYNTH_COEFFICIENTS ? r->rank : SYNTH_COEFFICIENTS;
    float coefficients[SYNTH_COEFFICIENTS];
    fill_normals(r, g, coefficients, (uint64_t)n_used);
    float noise = (float)sqrt(1 - LOW_RANK_SHARE), low_rank = (float)sqrt(LOW_RANK_SHARE / n_used);
    for (int32_t i = 0; i < n; i++) row[i] *= noise;
    /* Few coefficients per row, other ones in every row: together they still span the rank. */
    for (int k = 0; k < n_used; k++) {
        const float *b = r->basis + rng_u64(g) % (uint64_t)r->rank * (uint64_t)n;
        float c = coefficients[k] * low_rank;
        for (int32_t i = 0; i < n; i++) row[i] += c * b[i];
    }
}

static void make_gate_row(const synth_recipe *r, rng *g, int32_t layer, uint64_t neuron,
                          float *row) {
    double b2 = token_variance(r, layer + 1, layer);
    add_low_rank(r, g, row);
    make_orthogonal(r, row, reading_length(b2));
    /* v.norm(x) = n_embd / sqrt(1 + b^2) for every token; this much of v gives a mean of t. */
    double t = (double)r->pre_mean[r->neuron_rank[neuron]];
    float share = (float)(t * sqrt(1 + b2) / r->shape->n_embd);
    for (int32_t i = 0; i < r->shape->n_embd; i++) row[i] += share * r->sign[i];
}

static void scale_row(float *row, uint64_t n, double scale) {
    for (uint64_t i = 0; i < n; i++) row[i] *= (float)scale;
}

void synth_make_row(const synth_recipe *r, tensor_role role, int32_t layer, uint64_t row,
                    uint64_t n_in, float *out) {
    rng g = row_rng(r, (int)role, layer, row);
    fill_normals(r, &g, out, n_in);
    switch (role) {
    case ROLE_TOKEN_EMBD:
        for (uint64_t i = 0; i < n_in; i++) out[i] += r->sign[i];
        break;
    case ROLE_ATTN_Q:
    case ROLE_ATTN_K:
    case ROLE_ATTN_V:
        make_orthogonal(r, out, reading_length(token_variance(r, layer, layer)));
        break;
    case ROLE_ATTN_OUT:
        scale_row(out, n_in, sqrt(ATTENTION_GROWTH / r->n_layer / (double)n_in));
        break;
    case ROLE_FFN_GATE:
        make_gate_row(r, &g, layer, row, out);
        break;
    case ROLE_FFN_UP:
        make_orthogonal(r, out, reading_length(token_variance(r, layer + 1, layer)));
        break;
    case ROLE_FFN_DOWN: /* reads relu(gate) * up, whose mean square is the profile's */
        scale_row(out, n_in, sqrt(FFN_GROWTH / r->n_layer / (double)n_in / r->profile.mean_square));
        break;
    case ROLE_OUTPUT:
        make_orthogonal(r, out, reading_length(token_variance(r, r->n_layer, r->n_layer)));
        break;
    default: /* norms */
        for (uint64_t i = 0; i < n_in; i++) out[i] = 1;
        break;
    }
}
