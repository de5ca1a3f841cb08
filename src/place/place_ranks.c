/* place_ranks.c: the time of the slowest rank, by bisection. */
#include "place_ranks.h"

#include <assert.h>
#include <math.h>

enum { SEARCH_ROUNDS = 40 };

static uint64_t tensor_bytes(const model *m, const model_tensor *t, bool read) {
    if (!t->data) return 0;
    if (!read || t->expert_bytes == 0 || m->hp.n_expert == 0) return t->n_bytes;
    return t->n_bytes / (uint64_t)m->hp.n_expert * (uint64_t)m->hp.n_expert_used;
}

uint64_t place_layer_bytes(const model *m, int first, int end, bool read) {
    uint64_t n = 0;
    for (int i = first; i < end; i++)
        for (int role = 0; role < ROLE_COUNT; role++)
            n += tensor_bytes(m, &m->layers[i].t[role], read);
    return n;
}

uint64_t place_global_bytes(const model *m, bool read) {
    uint64_t n = 0;
    for (int role = 0; role < ROLE_COUNT; role++) {
        bool table = role == ROLE_TOKEN_EMBD || role == ROLE_LAYER_EMBD || role == ROLE_NGRAM_EMBD;
        bool tied = role == ROLE_OUTPUT && m->t[role].data == m->t[ROLE_TOKEN_EMBD].data;
        if ((read && table) || (!read && tied)) continue;
        n += tensor_bytes(m, &m->t[role], read);
    }
    return n;
}

static uint64_t bytes_on_gpu(const place_rank *r, uint64_t bytes) {
    return bytes < r->gpu_memory ? bytes : r->gpu_memory;
}

static double layer_seconds(const model *m, const place_rank *r, int first, int end) {
    const uint64_t held = place_layer_bytes(m, first, end, false);
    const double share = held > 0 ? (double)bytes_on_gpu(r, held) / (double)held : 0;
    return (double)place_layer_bytes(m, first, end, true) *
           (share * r->gpu_seconds_per_byte + (1 - share) * r->seconds_per_byte);
}

double place_rank_seconds(const model *m, const place_rank *r, int first, int end) {
    uint64_t held = place_layer_bytes(m, first, end, false);
    double seconds = layer_seconds(m, r, first, end);
    held -= bytes_on_gpu(r, held);
    if (first == 0) {
        const double by_bytes = (double)place_global_bytes(m, true) * r->seconds_per_byte;
        held += place_global_bytes(m, false);
        seconds += r->head_seconds > 0 ? r->head_seconds : by_bytes;
    }
    double beyond = held > r->memory ? (double)(held - r->memory) / (double)held : 0;
    return seconds * (1 + beyond * (PLACE_RANKS_DRIVE - 1));
}

double place_rank_prefill(const model *m, const place_rank *r, int first, int end) {
    if (r->prefill_per_byte <= 0) return 0;
    /* As for a token, except the time of the layers: both read the weights once. */
    return place_rank_seconds(m, r, first, end) - layer_seconds(m, r, first, end) +
           r->prefill_per_byte * (double)place_layer_bytes(m, first, end, true);
}

void place_ranks_split(int n_layer, const float *split, int n_ranks, int *end) {
    double total = 0, sum = 0;
    for (int i = 0; i < n_ranks; i++) total += (double)split[i];
    for (int i = 0; i < n_ranks; i++) {
        sum += (double)split[i];
        int at = (int)lround(sum / total * n_layer), least = i > 0 ? end[i - 1] + 1 : 1;
        int most = n_layer - (n_ranks - 1 - i);
        end[i] = at < least ? least : at > most ? most : at;
    }
}

void place_ranks_solve(const model *m, const place_rank *ranks, int n_ranks, int *end) {
    /* The slowest rank's time is searched: below `time` each rank takes as many layers as fit. */
    const int n = m->hp.n_layer;
    double low = 0, high = 0;
    assert(n_ranks <= n && n_ranks <= CLUSTER_MAX_RANKS);
    for (int k = 0; k < n_ranks; k++) high += place_rank_seconds(m, &ranks[k], 0, n);
    for (int round = 0; round <= SEARCH_ROUNDS; round++) {
        double time = round < SEARCH_ROUNDS ? (low + high) / 2 : high;
        int at = 0;
        for (int k = 0; k < n_ranks; k++) {
            int first = at, most = n - (n_ranks - 1 - k);
            at++; /* each has a layer, whatever it costs */
            while (at < most && place_rank_seconds(m, &ranks[k], first, at + 1) <= time) at++;
            end[k] = at;
        }
        bool fits = at == n;
        for (int k = 0; k < n_ranks && fits; k++)
            fits = place_rank_seconds(m, &ranks[k], k > 0 ? end[k - 1] : 0, end[k]) <= time;
        if (fits)
            high = time;
        else
            low = time;
    }
    end[n_ranks - 1] = n;
}
