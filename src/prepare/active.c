/* active.c: active sets: collecting, counting, renumbering. See active.h. */
#include "active.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "mem.h"

enum { TOKENS_AT_FIRST = 256, PAIRS_AT_FIRST = 4096 };

void active_init(active_set *a, int64_t n_neurons) {
    assert(n_neurons >= 0 && n_neurons <= INT32_MAX); /* 0: the layer has no FFN */
    *a = (active_set){.n_neurons = n_neurons};
}

void active_free(active_set *a) {
    mem_free(a->start);
    mem_free(a->neuron);
    mem_free(a->contribution);
    *a = (active_set){.n_neurons = a->n_neurons};
}

/* Grows an array to `capacity` items; on failure the array is unchanged. */
static bool grow(void **items, int64_t capacity, size_t item_bytes) {
    size_t bytes;
    if (!size_mul((size_t)capacity, item_bytes, &bytes)) return false;
    void *p = mem_realloc(*items, bytes);
    if (p) *items = p;
    return p != NULL;
}

static int64_t grown(int64_t capacity, int64_t at_first, int64_t need) {
    int64_t n = capacity > 0 ? capacity : at_first;
    while (n < need) n *= 2;
    return n;
}

static bool make_room(active_set *a, int64_t tokens, int64_t pairs) {
    if (tokens > a->token_capacity) {
        int64_t n = grown(a->token_capacity, TOKENS_AT_FIRST, tokens);
        if (!grow((void **)&a->start, n + 1, sizeof *a->start)) return false;
        a->token_capacity = n;
    }
    if (pairs > a->capacity) {
        int64_t n = grown(a->capacity, PAIRS_AT_FIRST, pairs);
        if (!grow((void **)&a->neuron, n, sizeof *a->neuron)) return false;
        if (!grow((void **)&a->contribution, n, sizeof *a->contribution)) return false;
        a->capacity = n;
    }
    return true;
}

static float contribution_of(float hidden, float down_norm) {
    return fabsf(hidden) * fabsf(down_norm);
}

pi_status active_add(active_set *a, const float *hidden, const float *down_norm, pi_error *err) {
    int64_t n = 0, first = a->n_tokens > 0 ? a->start[a->n_tokens] : 0;
    for (int64_t i = 0; i < a->n_neurons; i++) {
        if (!isfinite(contribution_of(hidden[i], down_norm[i])))
            return error_set(err, PI_ERR_RANGE,
                             "not a finite number: contribution of neuron %lld: the model does not "
                             "work on this text",
                             (long long)i);
        n += hidden[i] != 0;
    }
    if (!make_room(a, a->n_tokens + 1, first + n))
        return error_nomem(err, (size_t)(first + n) * (sizeof(int32_t) + sizeof(float)),
                           "the active neurons of calibration tokens");
    int64_t at = first;
    for (int64_t i = 0; i < a->n_neurons; i++) {
        if (hidden[i] == 0) continue;
        a->neuron[at] = (int32_t)i;
        a->contribution[at++] = contribution_of(hidden[i], down_norm[i]);
    }
    a->start[a->n_tokens] = first;
    a->start[++a->n_tokens] = at;
    return PI_OK;
}

void active_frequencies(const active_set *a, float *freq) {
    memset(freq, 0, (size_t)a->n_neurons * sizeof *freq);
    if (a->n_tokens == 0) return;
    /* float counts are exact up to 2^24 tokens, far more than any calibration has. */
    for (int64_t i = 0; i < a->start[a->n_tokens]; i++) freq[a->neuron[i]] += 1.0f;
    for (int64_t i = 0; i < a->n_neurons; i++) freq[i] /= (float)a->n_tokens;
}

typedef struct neuron_rank {
    float freq;
    int32_t index;
} neuron_rank;

static int hottest_first(const void *pa, const void *pb) {
    const neuron_rank *a = pa, *b = pb;
    if (a->freq != b->freq) return a->freq > b->freq ? -1 : 1;
    return (a->index > b->index) - (a->index < b->index);
}

pi_status neuron_order(const float *freq, int64_t n, int32_t *order, pi_error *err) {
    size_t bytes = (size_t)n * sizeof(neuron_rank);
    neuron_rank *ranks = mem_alloc(bytes);
    if (!ranks) return error_nomem(err, bytes, "the order of neurons");
    for (int64_t i = 0; i < n; i++)
        ranks[i] = (neuron_rank){isnan(freq[i]) ? 0.0f : freq[i], (int32_t)i};
    qsort(ranks, (size_t)n, sizeof *ranks, hottest_first);
    for (int64_t i = 0; i < n; i++) order[i] = ranks[i].index;
    mem_free(ranks);
    return PI_OK;
}

/* ---- neighbours that fire together ----------------------------------------------------------- */

/* Classes are ranges of frequencies. A hot prefix keeps whole classes, so they are small parts of a
 * layer. */
enum { CLASSES_LEAST = 16, CHAIN_TOKENS = 4096, WORD_BITS = 64 };
static const float class_spread = 0.8f; /* lowest frequency of a class / highest */

static int64_t class_end(const float *freq, int64_t n, int64_t begin) {
    int64_t end = begin + 1;
    while (end < n && end - begin < n / CLASSES_LEAST && freq[end] >= class_spread * freq[begin])
        end++;
    return end;
}

static int count_bits(uint64_t x) {
    x -= x >> 1 & 0x5555555555555555u;
    x = (x & 0x3333333333333333u) + (x >> 2 & 0x3333333333333333u);
    x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0fu;
    return (int)(x * 0x0101010101010101u >> 56);
}

/* A greedy path: the next neuron is the one that most often fires together with the last one (if
 * several do, the hottest). bits: tokens for which a neuron fired [n_neurons][n_words]. */
static void chain_class(const uint64_t *bits, size_t n_words, int32_t *order, int64_t n) {
    for (int64_t i = 0; i + 2 < n; i++) {
        const uint64_t *last = bits + (size_t)order[i] * n_words;
        int64_t best = i + 1;
        int most = -1;
        for (int64_t k = i + 1; k < n; k++) {
            const uint64_t *other = bits + (size_t)order[k] * n_words;
            int together = 0;
            for (size_t w = 0; w < n_words; w++) together += count_bits(last[w] & other[w]);
            if (together <= most) continue;
            most = together;
            best = k;
        }
        int32_t next = order[best];
        memmove(order + i + 2, order + i + 1, (size_t)(best - i - 1) * sizeof *order);
        order[i + 1] = next;
    }
}

pi_status active_chain(const active_set *a, int32_t *order, float *freq, pi_error *err) {
    int64_t n = a->n_neurons, step = a->n_tokens / CHAIN_TOKENS + 1;
    size_t n_words = (size_t)(a->n_tokens / step) / WORD_BITS + 1, bytes;
    uint64_t *bits = NULL;
    if (size_mul((size_t)n * sizeof *bits, n_words, &bytes))
        bits = mem_calloc((size_t)n * n_words, sizeof *bits);
    if (!bits) return error_nomem(err, (size_t)n * n_words, "the order of neurons");
    for (int64_t t = 0; t < a->n_tokens; t += step) {
        size_t at = (size_t)(t / step);
        for (int64_t i = a->start[t]; i < a->start[t + 1]; i++)
            bits[(size_t)a->neuron[i] * n_words + at / WORD_BITS] |= (uint64_t)1 << at % WORD_BITS;
    }
    for (int64_t begin = 0, end; begin < n; begin = end) {
        double sum = 0;
        end = class_end(freq, n, begin);
        for (int64_t i = begin; i < end; i++) sum += freq[i];
        chain_class(bits, n_words, order + begin, end - begin);
        float mean = (float)(sum / (double)(end - begin));
        if (begin > 0 && mean > freq[begin - 1]) mean = freq[begin - 1];
        for (int64_t i = begin; i < end; i++) freq[i] = mean;
    }
    mem_free(bits);
    return PI_OK;
}

/* Scatters each token's list over a row of all neurons in the new order and reads it back: faster
 * than sorting the list if at least 1% of the neurons fire. */
pi_status active_permute(active_set *a, const int32_t *order, pi_error *err) {
    size_t n = (size_t)a->n_neurons, bytes = n * (sizeof(int32_t) + sizeof(float));
    int32_t *new_index = mem_alloc(n * sizeof *new_index);
    float *row = mem_alloc(n * sizeof *row);
    if (!new_index || !row) {
        mem_free(new_index);
        mem_free(row);
        return error_nomem(err, bytes, "the order of neurons");
    }
    for (size_t i = 0; i < n; i++) {
        new_index[order[i]] = (int32_t)i;
        row[i] = -1; /* no contribution is negative */
    }
    for (int64_t t = 0; t < a->n_tokens; t++) {
        int64_t begin = a->start[t], end = a->start[t + 1], at = begin;
        for (int64_t i = begin; i < end; i++) row[new_index[a->neuron[i]]] = a->contribution[i];
        for (size_t i = 0; i < n && at < end; i++) {
            if (row[i] < 0) continue;
            a->neuron[at] = (int32_t)i;
            a->contribution[at++] = row[i];
            row[i] = -1;
        }
    }
    mem_free(new_index);
    mem_free(row);
    return PI_OK;
}
