/* synth_weights.c: the rows of a synthetic model. The arithmetic is explained in synth.h.
 *
 * A row depends on the seed, its tensor and its number only, so that any thread may make any row.
 * Normally distributed weights come from a table of quantiles: 12 random bits choose an entry,
 * which is several times faster than computing logarithms, and indistinguishable after
 * quantization.
 *
 * Callers name a neuron's row by its place in the file; its random stream depends on its place in
 * the plain file, so that plain and prepared files are one network. Weights of `down` come from a
 * hash of their place in the matrix instead of a stream, so that rows (plain) and columns
 * (prepared) have equal numbers. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "hash.h"
#include "mem.h"
#include "rng.h"
#include "synth.h"

/* Variances in units of the token's own part of the stream at the first layer, which has 1, like
 * the planted direction. Over all layers the FFN blocks add one half. The attention blocks add
 * between 0 (long contexts average values out) and one fifth; half of that is assumed. */
static const double FFN_GROWTH = 0.5, ATTENTION_GROWTH = 0.2, ATTENTION_ASSUMED = 0.1;
/* Variance, in the same units, of learned positions, which are added to the embeddings. */
static const double POSITION_VARIANCE = 0.1;
/* Variance of the part of the next token's embedding that a head that drafts adds. */
static const double DRAFT_VARIANCE = 0.1;
/* Residual streams (DeepSeek-V4) are mixed almost evenly, so that their sum is like one stream. */
static const float HYPER_SCALE = 0.1f;
/* Variance of the embeddings of n-grams that are added to the streams, and of their convolution. */
static const double NGRAM_VARIANCE = 0.1;
/* Keys of the random streams that do not belong to a tensor. */
enum {
    STREAM_SIGN = 1000,
    STREAM_BASIS,
    STREAM_ORDER,
    STREAM_COEFFICIENTS,
    STREAM_DOWN,
    STREAM_EXPERTS,
    STREAM_CHOICES,
    STREAM_TABLE
};

/* A number that is unique for each row. */
static uint64_t row_seed(const synth_recipe *r, int stream, int32_t layer, uint64_t row) {
    const uint64_t odd = UINT64_C(0xd1342543de82ef95); /* spreads numbers over 64 bits */
    uint64_t place = ((uint64_t)stream << 48) ^ ((uint64_t)(layer + 1) << 32) ^ row;
    return (r->seed + place * odd) ^ (place >> 7);
}

/* The generator of one row: seeds of different rows differ in all bits after splitmix. */
static rng row_rng(const synth_recipe *r, int stream, int32_t layer, uint64_t row) {
    rng g;
    rng_seed(&g, row_seed(r, stream, layer, row));
    return g;
}

/* The generator of a tensor's row. The stream depends on the tensor's name, so that other tensors
 * do not change it. */
static rng tensor_rng(const synth_recipe *r, tensor_role role, int32_t layer, uint64_t row) {
    const char *name = tensor_role_name(role);
    uint64_t hash = hash_bytes((hash_key){{0, 0}}, name, strlen(name));
    return row_rng(r, (int)(0x8000 | (hash & 0x7fff)), layer, row);
}

enum { NORMAL_BITS = 12 };
_Static_assert(SYNTH_NORMALS == 1 << NORMAL_BITS, "a sample takes NORMAL_BITS bits");

static void fill_normals(const synth_recipe *r, rng *g, float *out, uint64_t n) {
    enum { PER_DRAW = 64 / NORMAL_BITS };
    uint64_t i = 0;
    for (; n - i >= PER_DRAW; i += PER_DRAW) {
        uint64_t bits = rng_u64(g);
        for (int k = 0; k < PER_DRAW; k++) {
            out[i + (uint64_t)k] = r->normals[bits >> (NORMAL_BITS * k) & (SYNTH_NORMALS - 1)];
        }
    }
    for (; i < n; i++) out[i] = r->normals[rng_u64(g) & (SYNTH_NORMALS - 1)];
}

/* E[f(n)^2] for standard normal n, minus its mean where down is made orthogonal to it. gpt-oss adds
 * 1 to up, which has variance 1. */
static double mean_square_of_hidden(const synth_recipe *r) {
    const double alpha = 1.702;
    bool clamped = r->arch->has & ARCH_FFN_CLAMP;
    double slope = clamped ? alpha : 1, square = 0;
    if (r->hidden_mean) return r->profile.mean_variance;
    if (r->shape->activation == ACTIVATION_RELU) return r->profile.mean_square;
    for (int i = 0; i < SYNTH_NORMALS; i++) {
        double x = (double)r->normals[i], y = x / (1 + exp(-slope * x));
        square += y * y / SYNTH_NORMALS;
    }
    return clamped ? 2 * square : square;
}

static int descending(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

/* Counts how often each expert is chosen, over tokens with planted scores. Probabilities of a fixed
 * threshold would not be exact. */
static void count_choices(synth_recipe *r) {
    enum { TOKENS = 4096, MAX_USED = 64 };
    int n = r->shape->n_expert, n_used = r->shape->n_expert_used;
    rng g = row_rng(r, STREAM_CHOICES, 0, 0);
    for (int t = 0; t < TOKENS; t++) {
        float best[MAX_USED + 1];
        int expert[MAX_USED + 1], filled = 0;
        for (int e = 0; e < n; e++) {
            float score = r->router_mean[e] + r->normals[rng_u64(&g) & (SYNTH_NORMALS - 1)];
            int at = filled;
            for (; at > 0 && best[at - 1] < score; at--) {
                best[at] = best[at - 1];
                expert[at] = expert[at - 1];
            }
            best[at] = score;
            expert[at] = e;
            if (filled < n_used) filled++;
        }
        for (int k = 0; k < n_used; k++) r->expert_freq[expert[k]] += 1.0f / TOKENS;
    }
    qsort(r->expert_freq, (size_t)n, sizeof *r->expert_freq, descending);
}

static pi_status create_experts(synth_recipe *r, pi_error *err) {
    size_t n = (size_t)r->shape->n_expert;
    if (n == 0) return PI_OK;
    r->router_mean = mem_calloc(n, sizeof *r->router_mean);
    r->expert_rank = mem_calloc(n, sizeof *r->expert_rank);
    r->expert_order = mem_calloc(n, sizeof *r->expert_order);
    r->expert_freq = mem_calloc(n, sizeof *r->expert_freq);
    if (!r->router_mean || !r->expert_rank || !r->expert_order || !r->expert_freq)
        return error_nomem(err, n * sizeof(float), "experts of a synthetic model");
    for (size_t i = 0; i < n; i++) {
        double quantile = synth_probit(((double)i + 0.5) / (double)n);
        double t = r->router_profile.mu + r->router_profile.tau * quantile;
        r->router_mean[i] = (float)synth_clamp_mean(t);
    }
    count_choices(r);
    return PI_OK;
}

pi_status synth_recipe_create(synth_recipe *r, pi_error *err) {
    size_t n_embd = (size_t)r->shape->n_embd, n_ff = (size_t)r->shape->n_ff, n_basis;
    r->sign = mem_calloc(n_embd, sizeof *r->sign);
    r->pre_mean = mem_calloc(n_ff, sizeof *r->pre_mean);
    r->neuron_rank = mem_calloc(n_ff, sizeof *r->neuron_rank);
    r->order = mem_calloc(n_ff, sizeof *r->order);
    r->basis = size_mul(n_embd, (size_t)r->rank, &n_basis) ? mem_calloc(n_basis, sizeof *r->basis)
                                                           : NULL;
    r->gate = r->shape->n_expert > 0                   ? ROLE_EXPERT_GATE
              : arch_tensor_of(r->arch, ROLE_FFN_GATE) ? ROLE_FFN_GATE
                                                       : ROLE_FFN_UP;
    bool gated = r->gate != ROLE_FFN_UP;
    r->hidden_mean = gated ? NULL : mem_calloc(n_ff, sizeof *r->hidden_mean);
    r->down_lost = gated ? NULL : mem_calloc(n_embd, sizeof *r->down_lost);
    if ((!gated && (!r->hidden_mean || !r->down_lost)) || !r->sign || !r->pre_mean ||
        !r->neuron_rank || !r->order || !r->basis) {
        return error_nomem(err, n_embd * (size_t)r->rank * sizeof(float), "a synthetic model");
    }
    for (int i = 0; i < SYNTH_NORMALS; i++) {
        r->normals[i] = (float)synth_probit((i + 0.5) / SYNTH_NORMALS);
    }
    rng g = row_rng(r, STREAM_SIGN, 0, 0);
    for (size_t i = 0; i < n_embd; i++) r->sign[i] = rng_u64(&g) >> 63 ? 1.0f : -1.0f;
    for (size_t i = 0; i < n_ff; i++) {
        double t = r->profile.mu + r->profile.tau * synth_probit(((double)i + 0.5) / (double)n_ff);
        r->pre_mean[i] = r->shape->activation == ACTIVATION_RELU ? (float)synth_clamp_mean(t) : 0;
    }
    r->hidden_square = mean_square_of_hidden(r);
    return create_experts(r, err);
}

void synth_recipe_free(synth_recipe *r) {
    mem_free(r->sign);
    mem_free(r->pre_mean);
    mem_free(r->basis);
    mem_free(r->neuron_rank);
    mem_free(r->order);
    mem_free(r->hidden_mean);
    mem_free(r->down_lost);
    mem_free(r->router_mean);
    mem_free(r->expert_rank);
    mem_free(r->expert_order);
    mem_free(r->expert_freq);
    *r = (synth_recipe){0};
}

/* Variance of the token's own part of the stream after `attentions` and `ffns` blocks. */
static double token_variance(const synth_recipe *r, int32_t attentions, int32_t ffns) {
    double start = arch_tensor_of(r->arch, ROLE_POS_EMBD) ? 1 + POSITION_VARIANCE : 1;
    return start + (attentions * ATTENTION_ASSUMED + ffns * FFN_GROWTH) / r->n_layer;
}

/* token_variance at the input of a layer's FFN block. */
static double ffn_variance(const synth_recipe *r, int32_t layer) {
    return token_variance(r, r->arch->parallel ? layer : layer + 1, layer);
}

/* Removes the part along v from a row and scales the row to a length. */
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

/* Length of a row that reads the normed stream and gives values of variance 1. The norm scales a
 * stream of variance b^2, plus 1 of v, by 1 / sqrt(1 + b^2); the row compensates for it. */
static double reading_length(double b2) {
    return sqrt((1 + b2) / b2);
}

/* Coefficients of a gate row's low-rank part (a vector of length 1), and their rows of the basis:
 * one from each of its n equal parts. Each row has few coefficients and different basis rows, so
 * that all rows together span the rank. Returns n. */
static int draw_coefficients(const synth_recipe *r, int32_t layer, uint64_t neuron,
                             float coefficients[SYNTH_COEFFICIENTS],
                             int32_t rows[SYNTH_COEFFICIENTS]) {
    int32_t n = r->rank < SYNTH_COEFFICIENTS ? r->rank : SYNTH_COEFFICIENTS;
    rng g = row_rng(r, STREAM_COEFFICIENTS, layer, neuron);
    fill_normals(r, &g, coefficients, (uint64_t)n);
    float square = 0;
    for (int k = 0; k < n; k++) square += coefficients[k] * coefficients[k];
    for (int k = 0; k < n; k++) {
        int64_t first = (int64_t)r->rank * k / n, end = (int64_t)r->rank * (k + 1) / n;
        rows[k] = (int32_t)(first + (int64_t)(rng_u64(&g) % (uint64_t)(end - first)));
        coefficients[k] /= sqrtf(square); /* quantiles are never 0 */
    }
    return n;
}

/* v.norm(x) = n_embd / sqrt(1 + b^2) for every token; this much of v gives a mean of t. */
static void add_mean(const synth_recipe *r, double t, double b2, float *row) {
    float share = (float)(t * sqrt(1 + b2) / r->shape->n_embd);
    for (int32_t i = 0; i < r->shape->n_embd; i++) row[i] += share * r->sign[i];
}

/* `neuron`: index over all experts. */
static void make_gate_row(const synth_recipe *r, int32_t layer, uint64_t neuron, float *row) {
    rng g = tensor_rng(r, r->gate, layer, neuron);
    fill_normals(r, &g, row, (uint64_t)r->shape->n_embd);
    int32_t n = r->shape->n_embd, rows[SYNTH_COEFFICIENTS];
    float coefficients[SYNTH_COEFFICIENTS];
    int n_used = draw_coefficients(r, layer, neuron, coefficients, rows);
    float noise = (float)sqrt(1 - SYNTH_LOW_RANK_SHARE),
          low_rank = (float)sqrt(SYNTH_LOW_RANK_SHARE);
    for (int32_t i = 0; i < n; i++) row[i] *= noise;
    for (int k = 0; k < n_used; k++) {
        const float *b = r->basis + (int64_t)rows[k] * n;
        float c = coefficients[k] * low_rank;
        for (int32_t i = 0; i < n; i++) row[i] += c * b[i];
    }
    double b2 = ffn_variance(r, layer);
    make_orthogonal(r, row, reading_length(b2));
    uint64_t own = neuron % (uint64_t)r->shape->n_ff;
    add_mean(r, (double)r->pre_mean[r->neuron_rank[own]], b2, row);
}

/* ---- experts --------------------------------------------------------------------------------- */

/* A router that reads the stream before its norm sees v and z without scaling. */
static void make_router_row(const synth_recipe *r, int32_t layer, uint64_t expert, float *row) {
    bool early = r->arch->has & ARCH_ROUTER_EARLY;
    double b2 = early ? token_variance(r, layer, layer) : ffn_variance(r, layer);
    double t = (double)r->router_mean[r->expert_rank[expert]];
    rng g = tensor_rng(r, ROLE_ROUTER, layer, expert);
    fill_normals(r, &g, row, (uint64_t)r->shape->n_embd);
    make_orthogonal(r, row, early ? 1 / sqrt(b2) : reading_length(b2));
    add_mean(r, t, early ? 0 : b2, row);
}

static void scale_row(float *row, uint64_t n, double scale) {
    for (uint64_t i = 0; i < n; i++) row[i] *= (float)scale;
}

/* Maps a row of a file to the row of the source; each expert has `rows`. */
static uint64_t source_row(const synth_recipe *r, uint64_t row, int32_t rows) {
    uint64_t n = (uint64_t)rows;
    return (uint64_t)r->expert_order[row / n] * n + row % n;
}

/* ---- predictor ------------------------------------------------------------------------------- */

/* Scaled so that its product with the normed stream has variance 1. */
static void make_fc1_row(const synth_recipe *r, int32_t layer, uint64_t row, float *out) {
    int32_t n = r->shape->n_embd;
    double scale = reading_length(ffn_variance(r, layer)) / sqrt((double)n);
    for (int32_t i = 0; i < n; i++) out[i] = (float)scale * r->basis[(int64_t)row * n + i];
}

static void make_fc2_row(const synth_recipe *r, int32_t layer, uint64_t neuron, float *out) {
    int32_t rows[SYNTH_COEFFICIENTS];
    float coefficients[SYNTH_COEFFICIENTS];
    int n_used = draw_coefficients(r, layer, neuron, coefficients, rows);
    float scale = (float)(r->predictor.slope * sqrt(SYNTH_LOW_RANK_SHARE));
    memset(out, 0, (size_t)r->rank * sizeof *out);
    for (int k = 0; k < n_used; k++) out[rows[k]] = scale * coefficients[k];
}

/* ---- down ------------------------------------------------------------------------------------ */

/* Weights of `down` in tiles of two by two: one hash (the end of splitmix64) gives all four. */
static uint64_t down_tile(uint64_t seed, uint64_t row, uint64_t column) {
    uint64_t z = seed + ((row >> 1 << 32) + (column >> 1)) * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static float down_weight(const synth_recipe *r, uint64_t tile, uint64_t row, uint64_t column) {
    unsigned place = (unsigned)(row & 1) * 2 + (unsigned)(column & 1);
    return r->normals[tile >> (NORMAL_BITS * place) & (SYNTH_NORMALS - 1)];
}

/* Without a gate: the part of the input means in each row of down. */
static void center_down(synth_recipe *r, int32_t layer) {
    int32_t n_ff = r->shape->n_ff, n_embd = r->shape->n_embd;
    uint64_t seed = row_seed(r, STREAM_DOWN, layer, 0);
    double square = 0;
    for (int32_t j = 0; j < n_ff; j++) {
        r->hidden_mean[j] = (float)synth_relu_mean((double)r->pre_mean[r->neuron_rank[j]], 1);
        square += (double)(r->hidden_mean[j] * r->hidden_mean[j]);
    }
    for (int32_t i = 0; i < n_embd; i++) {
        double along = 0;
        for (int32_t j = 0; j < n_ff; j += 2) {
            uint64_t row = (uint64_t)i, column = (uint64_t)j, tile = down_tile(seed, row, column);
            along += (double)(r->hidden_mean[j] * down_weight(r, tile, row, column));
            if (j + 1 < n_ff)
                along += (double)(r->hidden_mean[j + 1] * down_weight(r, tile, row, column + 1));
        }
        r->down_lost[i] = (float)(along / square);
    }
}

/* Row `at` of down, n = n_ff, or column `at`, n = n_embd. */
static void make_down(const synth_recipe *r, int32_t layer, uint64_t at, bool column, uint64_t n,
                      float *out) {
    uint64_t seed = row_seed(r, STREAM_DOWN, layer, 0);
    float scale = (float)sqrt(FFN_GROWTH / r->n_layer / r->shape->n_ff / r->hidden_square);
    for (uint64_t i = 0; i < n; i += 2) {
        uint64_t tile = column ? down_tile(seed, i, at) : down_tile(seed, at, i);
        for (uint64_t k = i; k < i + 2 && k < n; k++) {
            uint64_t row = column ? k : at, neuron = column ? at : k;
            float w = down_weight(r, tile, row, neuron);
            if (r->hidden_mean) w -= r->down_lost[row] * r->hidden_mean[neuron];
            out[k] = scale * w;
        }
    }
}

/* make_down for an expert with exact zeros. */
static void make_down_of_expert(const synth_recipe *r, int32_t layer, uint64_t expert, uint64_t at,
                                bool column, uint64_t n, float scale, float *out) {
    uint64_t seed = row_seed(r, STREAM_DOWN, layer, expert + 1);
    for (uint64_t i = 0; i < n; i += 2) {
        uint64_t tile = column ? down_tile(seed, i, at) : down_tile(seed, at, i);
        for (uint64_t k = i; k < i + 2 && k < n; k++)
            out[k] = scale * down_weight(r, tile, column ? k : at, column ? at : k);
    }
}

/* `at`: among the rows of all experts' down, or (column) among all experts' neurons. */
static void make_expert_down(const synth_recipe *r, int32_t layer, uint64_t at, bool column,
                             uint64_t n, float *out) {
    uint64_t n_ff = (uint64_t)r->shape->n_ff, n_embd = (uint64_t)synth_shape_expert_embd(r->shape);
    /* The sum of n_used experts of equal weights has this part of one expert's variance. */
    double share = 1.0 / r->shape->n_expert_used;
    float scale = (float)sqrt(FFN_GROWTH / r->n_layer / (double)n_ff / r->hidden_square / share);
    if (synth_experts_have_zeros(r->shape)) {
        uint64_t each = column ? n_ff : n_embd;
        make_down_of_expert(r, layer, at / each, at % each, column, n, scale, out);
        return;
    }
    rng g = tensor_rng(r, ROLE_EXPERT_DOWN, layer, at);
    fill_normals(r, &g, out, n);
    for (uint64_t i = 0; i < n; i++) out[i] *= scale;
}

/* ---- layers ---------------------------------------------------------------------------------- */

/* A random order (inside-out shuffle). */
static void shuffle(rng *g, int32_t *order, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) {
        uint64_t j = rng_u64(g) % (i + 1);
        order[i] = order[j];
        order[j] = (int32_t)i;
    }
}

void synth_recipe_set_layer(synth_recipe *r, int32_t layer) {
    uint64_t n_embd = (uint64_t)r->shape->n_embd, n_ff = (uint64_t)r->shape->n_ff;
    bool sorted = r->prepared && layer < r->n_layer;
    for (uint64_t i = 0; i < (uint64_t)r->rank; i++) {
        rng g = row_rng(r, STREAM_BASIS, layer, i);
        fill_normals(r, &g, r->basis + i * n_embd, n_embd);
        make_orthogonal(r, r->basis + i * n_embd, sqrt((double)n_embd));
    }
    rng g = row_rng(r, STREAM_ORDER, layer, 0);
    shuffle(&g, r->neuron_rank, n_ff);
    for (uint64_t j = 0; j < n_ff; j++) {
        uint64_t place = sorted ? n_ff - 1 - (uint64_t)r->neuron_rank[j] : j;
        r->order[place] = (int32_t)j;
    }
    const int32_t n_expert = r->shape->n_expert;
    rng expert_rng = row_rng(r, STREAM_EXPERTS, layer, 0);
    shuffle(&expert_rng, r->expert_rank, (uint64_t)n_expert);
    for (int32_t e = 0; e < n_expert; e++)
        r->expert_order[sorted ? n_expert - 1 - r->expert_rank[e] : e] = e;
    if (r->hidden_mean) center_down(r, layer);
}

/* ---- rows ------------------------------------------------------------------------------------ */

static void make_up_row(const synth_recipe *r, tensor_role role, int32_t layer, uint64_t neuron,
                        float *out) {
    rng g = tensor_rng(r, role, layer, neuron);
    fill_normals(r, &g, out, (uint64_t)r->shape->n_embd);
    make_orthogonal(r, out, reading_length(ffn_variance(r, layer)));
}

/* Makes vectors with one element per neuron. */
static void make_neuron_vector(const synth_recipe *r, tensor_role role, float *out) {
    if (r->shape->n_expert > 0) {
        memcpy(out, r->expert_freq, (size_t)r->shape->n_expert * sizeof *out);
        return;
    }
    for (int32_t i = 0; i < r->shape->n_ff; i++) {
        double t = (double)r->pre_mean[r->neuron_rank[r->order[i]]];
        out[i] = (float)(role == ROLE_FFN_FREQ ? synth_phi(t) : t - r->predictor.threshold);
    }
}

void synth_make_choices(const synth_recipe *r, int32_t layer, uint64_t token, int32_t *out) {
    rng g = row_rng(r, STREAM_TABLE, layer, token);
    int32_t n = r->shape->n_expert_used;
    for (int32_t k = 0; k < n;) {
        bool again = false;
        out[k] = (int32_t)(rng_u64(&g) % (uint64_t)r->shape->n_expert);
        for (int32_t i = 0; i < k; i++) again = again || out[i] == out[k];
        k += !again;
    }
}

/* Makes rows of dense layers and shared experts in a model with experts; false: another row. */
static bool make_unplanted(const synth_recipe *r, tensor_role role, int32_t layer, uint64_t row,
                           uint64_t n_in, float *out) {
    rng g = tensor_rng(r, role, layer, row);
    if (r->shape->n_expert == 0) return false;
    switch (role) {
    case ROLE_FFN_GATE:
    case ROLE_FFN_UP:
    case ROLE_SHARED_GATE:
    case ROLE_SHARED_UP:
        make_up_row(r, role, layer, row, out);
        return true;
    case ROLE_FFN_DOWN:
    case ROLE_SHARED_DOWN:
        fill_normals(r, &g, out, n_in);
        scale_row(out, n_in, sqrt(FFN_GROWTH / r->n_layer / (double)n_in / r->hidden_square));
        return true;
    default:
        return false;
    }
}

/* Experts that read a latent vector, whose elements have variance 1. */
static void make_latent_row(const synth_recipe *r, tensor_role role, int32_t layer, uint64_t neuron,
                            uint64_t n_in, float *out) {
    rng g = tensor_rng(r, role, layer, neuron);
    fill_normals(r, &g, out, n_in);
    scale_row(out, n_in, 1 / sqrt((double)n_in));
}

/* Makes a row that reads the stream before a layer. */
static void make_reader(const synth_recipe *r, rng *g, int32_t layer, uint64_t n_in, float *out) {
    fill_normals(r, g, out, n_in);
    make_orthogonal(r, out, reading_length(token_variance(r, layer, layer)));
}

/* The head that drafts continues with the stream at the end of the model, plus a part of the next
 * token's embedding. It reads both after norms, the embedding first. */
static void make_draft_row(const synth_recipe *r, rng *g, uint64_t row, float *out) {
    uint64_t n = (uint64_t)r->shape->n_embd;
    fill_normals(r, g, out, n);
    make_orthogonal(r, out, sqrt(DRAFT_VARIANCE) * reading_length(token_variance(r, 0, 0)));
    memset(out + n, 0, n * sizeof *out);
    out[n + row] = (float)sqrt(1 + token_variance(r, r->n_layer, r->n_layer));
}

/* Deviation of the elements of matrices that do not read the stream. */
static double deviation_of(const synth_recipe *r, tensor_role role, uint64_t n_in) {
    if (role == ROLE_POS_EMBD) return sqrt(POSITION_VARIANCE);
    if (role == ROLE_ATTN_OUT || role == ROLE_SSM_OUT)
        return sqrt(ATTENTION_GROWTH / r->n_layer / (double)n_in);
    if (role == ROLE_EXPERT_LATENT_OUT) return sqrt(FFN_GROWTH / r->n_layer / (double)n_in);
    if (role == ROLE_HYPER_ATTN_UP || role == ROLE_HYPER_FFN_UP || role == ROLE_HYPER_HEAD_UP)
        return (double)HYPER_SCALE / sqrt((double)n_in);
    if (role == ROLE_NGRAM_EMBD) return 1;
    if (role == ROLE_NGRAM_VALUE || role == ROLE_NGRAM_CONV)
        return sqrt(NGRAM_VARIANCE / (double)n_in);
    bool from_latent = role == ROLE_ATTN_K_B || role == ROLE_ATTN_V_B || role == ROLE_ATTN_Q_B;
    if (r->shape->n_stream > 0 || (r->shape->period > 0 && !from_latent))
        return 1 / sqrt((double)n_in);
    return 1 / sqrt((double)r->shape->n_latent); /* from a latent vector, whose variance is 1 */
}

/* The elements of vectors that are not random. */
static float constant_of(tensor_role role) {
    switch (role) {
    case ROLE_ATTN_NORM:
    case ROLE_ATTN_NORM_2:
    case ROLE_ATTN_Q_NORM:
    case ROLE_ATTN_K_NORM:
    case ROLE_ATTN_Q_A_NORM:
    case ROLE_ATTN_KV_A_NORM:
    case ROLE_INDEX_K_NORM:
    case ROLE_COMPRESS_NORM:
    case ROLE_INDEX_COMPRESS_NORM:
    case ROLE_FFN_NORM:
    case ROLE_OUTPUT_NORM:
    case ROLE_DRAFT_EMBD_NORM:
    case ROLE_DRAFT_NORM:
    case ROLE_INDEX_Q_NORM:
    case ROLE_NGRAM_KEY_NORM:
    case ROLE_NGRAM_QUERY_NORM:
    case ROLE_NGRAM_CONV_NORM:
    case ROLE_SSM_NORM:
    case ROLE_EXPERT_LATENT_NORM:
        return 1;
    case ROLE_HYPER_ATTN_SCALE:
    case ROLE_HYPER_FFN_SCALE:
    case ROLE_HYPER_HEAD_SCALE:
        return HYPER_SCALE;
    case ROLE_HYPER_ATTN_NORM:
    case ROLE_HYPER_FFN_NORM:
    case ROLE_HYPER_HEAD_NORM:
        return 2; /* gates are near 1/2 */
    case ROLE_SSM_A:
        return -1;
    default: /* biases */
        return 0;
    }
}

void synth_make_row(const synth_recipe *r, tensor_role role, int32_t layer, uint64_t row,
                    uint64_t n_in, float *out) {
    if (make_unplanted(r, role, layer, row, n_in, out)) return;
    rng g = tensor_rng(r, role, layer, row);
    if (role == r->gate && role != ROLE_EXPERT_GATE) {
        make_gate_row(r, layer, (uint64_t)r->order[row], out);
        return;
    }
    switch (role) {
    case ROLE_TOKEN_EMBD:
        fill_normals(r, &g, out, n_in);
        for (uint64_t i = 0; i < n_in; i++) out[i] += r->sign[i];
        break;
    case ROLE_POS_EMBD:
    case ROLE_ATTN_K_B:
    case ROLE_ATTN_V_B:
    case ROLE_ATTN_Q_B:
    case ROLE_ATTN_OUT_A:
    case ROLE_ATTN_OUT:
    case ROLE_HYPER_ATTN:
    case ROLE_HYPER_FFN:
    case ROLE_HYPER_HEAD:
    case ROLE_INDEX_Q:
    case ROLE_SSM_ALPHA_B:
    case ROLE_SSM_OUT:
    case ROLE_EXPERT_LATENT_OUT:
    case ROLE_SSM_CONV:
    case ROLE_SSM_CONV_K:
    case ROLE_SSM_CONV_V:
    case ROLE_HYPER_ATTN_DOWN:
    case ROLE_HYPER_FFN_DOWN:
    case ROLE_HYPER_HEAD_DOWN:
    case ROLE_HYPER_ATTN_UP:
    case ROLE_HYPER_FFN_UP:
    case ROLE_HYPER_HEAD_UP:
    case ROLE_HYPER_ATTN_INJECT:
    case ROLE_HYPER_FFN_INJECT:
    case ROLE_NGRAM_EMBD:
    case ROLE_NGRAM_KEY:
    case ROLE_NGRAM_VALUE:
    case ROLE_NGRAM_CONV:
        fill_normals(r, &g, out, n_in);
        scale_row(out, n_in, deviation_of(r, role, n_in));
        break;
    case ROLE_ATTN_QKV:
    case ROLE_ATTN_Q:
    case ROLE_ATTN_Q_A:
    case ROLE_ATTN_KV_A:
    case ROLE_ATTN_K:
    case ROLE_ATTN_V:
    case ROLE_INDEX_K:
    case ROLE_INDEX_WEIGHTS:
    case ROLE_COMPRESS_KV:
    case ROLE_COMPRESS_GATE:
    case ROLE_INDEX_COMPRESS_KV:
    case ROLE_INDEX_COMPRESS_GATE:
    case ROLE_ATTN_GATE:
    case ROLE_SSM_IN:
    case ROLE_SSM_IN_K:
    case ROLE_SSM_IN_V:
    case ROLE_SSM_GATE:
    case ROLE_SSM_ALPHA:
    case ROLE_SSM_ALPHA_A:
    case ROLE_SSM_BETA:
    case ROLE_SHARED_ROUTER:
        make_reader(r, &g, layer, n_in, out);
        break;
    case ROLE_DRAFT_PROJ:
        make_draft_row(r, &g, row, out);
        break;
    case ROLE_FC1:
        make_fc1_row(r, layer, row, out);
        break;
    case ROLE_FC2:
        make_fc2_row(r, layer, (uint64_t)r->order[row], out);
        break;
    case ROLE_FFN_UP:
        make_up_row(r, role, layer, (uint64_t)r->order[row], out);
        break;
    case ROLE_FFN_DOWN:
        make_down(r, layer, row, false, n_in, out);
        break;
    case ROLE_FFN_DOWN_T:
        make_down(r, layer, (uint64_t)r->order[row], true, n_in, out);
        break;
    case ROLE_ROUTER:
        make_router_row(r, layer, (uint64_t)r->expert_order[row], out);
        break;
    case ROLE_EXPERT_LATENT_IN:
        make_up_row(r, role, layer, row, out);
        break;
    case ROLE_EXPERT_GATE:
    case ROLE_EXPERT_UP: {
        const uint64_t neuron = source_row(r, row, r->shape->n_ff);
        if (r->shape->n_expert_embd > 0)
            make_latent_row(r, role, layer, neuron, n_in, out);
        else if (role == ROLE_EXPERT_GATE)
            make_gate_row(r, layer, neuron, out);
        else
            make_up_row(r, role, layer, neuron, out);
        break;
    }
    case ROLE_EXPERT_DOWN:
        make_expert_down(r, layer, source_row(r, row, synth_shape_expert_embd(r->shape)), false,
                         n_in, out);
        break;
    case ROLE_EXPERT_DOWN_T:
        make_expert_down(r, layer, source_row(r, row, r->shape->n_ff), true, n_in, out);
        break;
    case ROLE_FC2_BIAS:
    case ROLE_FFN_FREQ:
        make_neuron_vector(r, role, out);
        break;
    case ROLE_OUTPUT:
        make_reader(r, &g, r->n_layer, n_in, out);
        break;
    default:
        for (uint64_t i = 0; i < n_in; i++) out[i] = constant_of(role);
        break;
    }
}
