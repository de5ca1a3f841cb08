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
