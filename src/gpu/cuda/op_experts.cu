/* op_experts.cu: mixtures of experts: the router's choice, and matrices of which every column takes
 * those of its own experts. A block makes rows for one pair of a column and an expert, so that the
 * experts of a token are read side by side; what several columns share comes from the cache. */
#include <assert.h>

#include "gpu_dot.h"
#include "op_table.h"

/* ---- router ---------------------------------------------------------------------------------- */

/* Experts in the order of the source. */
struct route_shared {
    float probability[GPU_MAX_EXPERTS], score[GPU_MAX_EXPERTS];
    int32_t place[GPU_MAX_EXPERTS], chosen[GPU_MAX_EXPERTS];
};

static __device__ __forceinline__ void load_scores(const gpu_route &a, int64_t c, route_shared &s) {
    for (int i = gpu_lane(); i < a.n_expert; i += GPU_WARP) {
        const int source = a.perm ? a.perm[i] : i;
        s.probability[source] = a.scores[c * a.lds + i];
        s.score[source] = a.select_bias ? a.select_bias[i] : 0.0f;
        s.place[source] = i;
    }
    gpu_sync();
}

static __device__ __forceinline__ void make_probabilities(const gpu_route &a, route_shared &s) {
    float top = -INFINITY, sum = 0.0f;
    for (int i = gpu_lane(); i < a.n_expert; i += GPU_WARP) top = fmaxf(top, s.probability[i]);
    top = gpu_warp_max(top);
    for (int i = gpu_lane(); i < a.n_expert; i += GPU_WARP) {
        const float x = s.probability[i];
        if (a.gating == GPU_GATING_SOFTMAX) sum += s.probability[i] = expf(x - top);
        if (a.gating == GPU_GATING_SIGMOID) s.probability[i] = 1.0f / (1.0f + expf(-x));
    }
    sum = gpu_warp_sum(sum);
    for (int i = gpu_lane(); i < a.n_expert; i += GPU_WARP) {
        if (a.gating == GPU_GATING_SOFTMAX) s.probability[i] /= sum;
        s.score[i] += s.probability[i];
    }
    gpu_sync();
}

/* Only experts of the best groups stay; a group is as good as its two best. By one thread. */
static __device__ void keep_groups(const gpu_route &a, route_shared &s) {
    const int n = a.n_expert / a.n_group;
    float *value = (float *)s.chosen; /* not needed yet */
    for (int g = 0; g < a.n_group; g++) {
        float first = -INFINITY, second = -INFINITY;
        for (int i = g * n; i < (g + 1) * n; i++) {
            const float x = s.score[i];
            second = x > first ? first : fmaxf(second, x);
            first = fmaxf(first, x);
        }
        value[g] = n > 1 ? first + second : first;
    }
    for (int k = a.n_group_used; k < a.n_group; k++) { /* the worst goes, of equal ones the last */
        int worst = -1;
        for (int g = 0; g < a.n_group; g++)
            if (!isnan(value[g]) && (worst < 0 || value[g] <= value[worst])) worst = g;
        if (worst < 0) break;
        for (int i = worst * n; i < (worst + 1) * n; i++) s.score[i] = -INFINITY;
        value[worst] = NAN;
    }
}

/* The best that is left, of equal ones the first. */
static __device__ __forceinline__ int take_best(const gpu_route &a, route_shared &s) {
    float best = -INFINITY, at = (float)a.n_expert; /* exact: far below 2^24 */
    for (int i = gpu_lane(); i < a.n_expert; i += GPU_WARP) {
        const float x = s.score[i]; /* NaN: taken */
        if (x > best || (x == best && (float)i < at)) best = x, at = (float)i;
    }
    const float top = gpu_warp_max(best);
    at = -gpu_warp_max(best == top ? -at : -(float)a.n_expert);
    const int found = at < (float)a.n_expert ? (int)at : 0;
    gpu_sync();
    if (gpu_lane() == 0) s.score[found] = NAN;
    gpu_sync();
    return found;
}

/* By one thread. */
static __device__ void write_choices(const gpu_route &a, int64_t c, const route_shared &s) {
    uint32_t *out = a.choices + c * a.n_used * GPU_CHOICE_WORDS;
    /* llama.cpp's least sum of weights, the smallest normal half: keeps a division finite */
    const float least_sum = 6.103515625e-5f;
    float top = -INFINITY, sum = 0.0f, all = 0.0f;
    for (int k = 0; k < a.n_used; k++) top = fmaxf(top, s.probability[s.chosen[k]]);
    const bool soft = a.gating == GPU_GATING_SOFTMAX_CHOSEN;
    for (int k = 0; k < a.n_used && soft; k++) all += expf(s.probability[s.chosen[k]] - top);
    for (int k = 0; k < a.n_used; k++) {
        const float p = s.probability[s.chosen[k]];
        sum += soft ? expf(p - top) / all : p;
    }
    for (int k = 0; k < a.n_used; k++) {
        const float p = s.probability[s.chosen[k]];
        float weight = soft ? expf(p - top) / all : p;
        if (a.norm) weight /= fmaxf(sum, least_sum);
        const int32_t expert = s.place[s.chosen[k]];
        if (a.uses) gpu_count(&a.uses[expert], 1);
        out[GPU_CHOICE_WORDS * k] = (uint32_t)(a.slots ? a.slots[expert] : expert);
        out[GPU_CHOICE_WORDS * k + 1] = gpu_float_bits(weight * a.scale);
    }
}

static __global__ void __launch_bounds__(GPU_WARP) route_kernel(gpu_route a) {
    gpu_begin();
    GPU_SHARED(route_shared, s);
    const int64_t c = blockIdx.x;
    load_scores(a, c, s);
    make_probabilities(a, s);
    if (a.n_group > 1 && gpu_lane() == 0) keep_groups(a, s);
    gpu_sync();
    for (int k = 0; k < a.n_used; k++) {
        const int found = take_best(a, s);
        if (gpu_lane() == 0) s.chosen[k] = found;
    }
    gpu_sync();
    if (gpu_lane() == 0) write_choices(a, c, s);
}

void gpu_op_route(gpu_stream *s, const gpu_route *a) {
    assert(a->n_cols >= 1 && a->n_used >= 1 && a->n_used <= a->n_expert);
    assert(a->n_expert <= GPU_MAX_EXPERTS);
    const gpu_grid grid = {(unsigned)a->n_cols, 1, 1, GPU_WARP};
    gpu_launch<route_kernel>(s, grid, *a);
}

/* ---- products -------------------------------------------------------------------------------- */

enum { WARPS = 4, ROWS = 2, THREADS = 256 };

static __device__ __forceinline__ int64_t expert_of(const uint32_t *choices, int64_t pair) {
    return choices[GPU_CHOICE_WORDS * pair];
}

static __device__ __forceinline__ float weight_of(const uint32_t *choices, int64_t pair) {
    return gpu_bits_float(choices[GPU_CHOICE_WORDS * pair + 1]);
}

/* Rows first and the next that are wanted: bit r for row first + r. */
static __device__ __forceinline__ unsigned wanted_rows(const gpu_expert_matvec &a, int64_t pair,
                                                       int64_t first) {
    unsigned wanted = 0;
    GPU_UNROLL
    for (int r = 0; r < ROWS; r++) {
        if (first + r >= a.w.n_out) continue;
        const float *gate = a.gate ? a.gate + pair * a.ldg + first + r : NULL;
        if (!gate || gpu_activation(a.f, a.threshold, *gate) != 0.0f) wanted |= 1u << r;
    }
    return wanted;
}

template <class F>
static __global__ void __launch_bounds__(WARPS *GPU_WARP) expert_kernel(gpu_expert_matvec a) {
    gpu_begin();
    const unsigned per_pair = gridDim.x / (unsigned)(a.n_cols * a.n_used);
    const int64_t pair = blockIdx.x / per_pair;
    const int64_t first = ((int64_t)(blockIdx.x % per_pair) * WARPS + gpu_warp()) * ROWS;
    const int64_t expert = expert_of(a.choices, pair);
    if (first >= a.w.n_out) return;
    float sum[ROWS][1] = {};
    const unsigned wanted = expert < a.n_own ? wanted_rows(a, pair, first) : 0;
    const bool own = wanted != 0;
    if (own) {
        const uint8_t *row[ROWS];
        GPU_UNROLL
        for (int r = 0; r < ROWS; r++) /* a last odd row is computed twice and stored once */
            row[r] = gpu_row<F>(a.w, expert * a.step + (first + r < a.w.n_out ? first + r : first));
        const int column = (int)(a.by_pair ? pair : pair / a.n_used);
        gpu_dot_rows<F, ROWS, 1>(row, a.w.n_in, gpu_input_from(a.in, column, a.w.n_in), sum);
    }
    if (gpu_lane() != 0) return;
    float scale = own && a.scales ? a.scales[expert] : 1.0f;
    if (a.weigh) scale *= weight_of(a.choices, pair);
    int32_t fired = 0;
    GPU_UNROLL
    for (int r = 0; r < ROWS; r++) {
        if (first + r >= a.w.n_out) break;
        const bool is_wanted = wanted >> r & 1u;
        const float bias = own && a.bias ? a.bias[expert * a.w.n_out + first + r] : 0.0f;
        a.y[pair * a.ldy + first + r] = is_wanted ? sum[r][0] * scale + bias : 0.0f;
        fired += is_wanted;
    }
    if (a.fired && fired > 0) gpu_count(a.fired, fired);
}

void gpu_op_expert_matvec(gpu_stream *s, const gpu_expert_matvec *a) {
    assert(a->n_cols >= 1 && a->n_used >= 1);
    assert(a->in.n_cols == (a->by_pair ? a->n_cols * a->n_used : a->n_cols));
    assert(!gpu_type_wants_q8(a->w.type) || a->in.q8);
    assert(gpu_type_wants_q8(a->w.type) || (a->in.x && a->in.ldx % 4 == 0));
    const unsigned blocks = gpu_blocks(a->w.n_out, WARPS * ROWS);
    const gpu_grid grid = {blocks * (unsigned)(a->n_cols * a->n_used), 1, 1, WARPS * GPU_WARP};
#define FORMAT(F) gpu_launch<expert_kernel<F>>(s, grid, *a)
    GPU_FORMAT_SWITCH(a->w.type);
#undef FORMAT
}

/* ---- sums ------------------------------------------------------------------------------------ */

static __global__ void __launch_bounds__(THREADS) expert_sum_kernel(gpu_expert_sum a) {
    gpu_begin();
    const int64_t c = blockIdx.y, i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    float sum = 0.0f;
    int own = 0;
    for (int k = 0; k < a.n_used; k++) {
        const int64_t pair = c * a.n_used + k;
        if (expert_of(a.choices, pair) >= a.n_own) continue;
        const float weight = a.weighed ? 1.0f : weight_of(a.choices, pair);
        if (i < a.n) sum += weight * a.x[pair * a.ldx + i];
        own++;
    }
    if (i < a.n && a.shared) {
        const float score = a.shared_score ? a.shared_score[c * a.ld_score] : INFINITY;
        sum += a.shared[c * a.lds + i] / (1.0f + expf(-score));
    }
    if (i < a.n) {
        float *y = a.y + c * a.ldy + i;
        *y = a.set ? a.scale * sum : *y + a.scale * sum;
    }
    if (i == 0 && a.used && own > 0) gpu_count(a.used, own);
}

void gpu_op_expert_sum(gpu_stream *s, const gpu_expert_sum *a) {
    assert(a->n_cols >= 1 && a->n >= 1 && a->n_used >= 1);
    const gpu_grid grid = {gpu_blocks(a->n, THREADS), (unsigned)a->n_cols, 1, THREADS};
    gpu_launch<expert_sum_kernel>(s, grid, *a);
}
