/* op_experts.cu: mixtures of experts: the router's choice, and products of every column with the
 * matrices of its experts. A block computes rows for one pair of a column and an expert, so that
 * the experts of a token are read in parallel; rows that several columns share come from the
 * cache. */
#include <assert.h>

#include "gpu_block.h"
#include "gpu_dot.h"
#include "op_table.h"

/* ---- router ---------------------------------------------------------------------------------- */

/* Scores and experts, in the order of `perm`. */
struct route_shared {
    float probability[GPU_MAX_EXPERTS], score[GPU_MAX_EXPERTS];
    int32_t place[GPU_MAX_EXPERTS], chosen[GPU_MAX_EXPERTS];
    bool last;
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
        if (a.gating == GPU_GATING_SQRT_SOFTPLUS)
            s.probability[i] = sqrtf(x > 20.0f ? x : log1pf(expf(x)));
    }
    sum = gpu_warp_sum(sum);
    for (int i = gpu_lane(); i < a.n_expert; i += GPU_WARP) {
        if (a.gating == GPU_GATING_SOFTMAX) s.probability[i] /= sum;
        s.score[i] += s.probability[i];
    }
    gpu_sync();
}

/* Keeps only experts of the best groups; a group's value is the sum of its two highest scores. One
 * thread. */
static __device__ void keep_groups(const gpu_route &a, route_shared &s) {
    const int n = a.n_expert / a.n_group;
    float *value = (float *)s.chosen; /* reuses memory that is not needed yet */
    for (int g = 0; g < a.n_group; g++) {
        float first = -INFINITY, second = -INFINITY;
        for (int i = g * n; i < (g + 1) * n; i++) {
            const float x = s.score[i];
            second = x > first ? first : fmaxf(second, x);
            first = fmaxf(first, x);
        }
        value[g] = n > 1 ? first + second : first;
    }
    for (int k = a.n_group_used; k < a.n_group;
         k++) { /* drops the worst group, of equal ones the last */
        int worst = -1;
        for (int g = 0; g < a.n_group; g++)
            if (!isnan(value[g]) && (worst < 0 || value[g] <= value[worst])) worst = g;
        if (worst < 0) break;
        for (int i = worst * n; i < (worst + 1) * n; i++) s.score[i] = -INFINITY;
        value[worst] = NAN;
    }
}

/* Takes the best remaining expert, of equal ones the first. */
static __device__ __forceinline__ int take_best(const gpu_route &a, route_shared &s) {
    float best = -INFINITY, at = (float)a.n_expert; /* exact: far below 2^24 */
    for (int i = gpu_lane(); i < a.n_expert; i += GPU_WARP) {
        const float x = s.score[i]; /* NaN: already taken */
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

/* Writes the choices of column c. One thread. */
static __device__ void write_choices(const gpu_route &a, int64_t c, const route_shared &s) {
    uint32_t *out = a.choices + c * a.n_used * GPU_CHOICE_WORDS;
    /* minimum sum of weights, as in llama.cpp: the smallest normal half; keeps the quotient
     * finite */
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
        const int32_t expert = a.share > 0 ? s.chosen[k] : s.place[s.chosen[k]];
        if (a.uses) gpu_count(&a.uses[expert], 1);
        out[GPU_CHOICE_WORDS * k] = (uint32_t)(a.slots ? a.slots[expert] : expert);
        out[GPU_CHOICE_WORDS * k + 1] = gpu_float_bits(weight * a.scale);
    }
}

struct route_args {
    gpu_route route;
    gpu_send send; /* epoch NULL: no message */
};

static __global__ void __launch_bounds__(GPU_WARP) route_kernel(route_args args) {
    gpu_begin();
    GPU_SHARED(route_shared, s);
    const gpu_route &a = args.route;
    const uint64_t epoch = gpu_send_epoch(args.send);
    const int64_t c = blockIdx.x;
    load_scores(a, c, s);
    make_probabilities(a, s);
    if (a.n_group > 1 && gpu_lane() == 0) keep_groups(a, s);
    gpu_sync();
    for (int k = 0; k < a.n_used; k++) {
        const int found = a.by_token ? a.by_token[(int64_t)a.cols[c].token * a.n_used + k]
                                     : take_best(a, s);
        if (gpu_lane() == 0) s.chosen[k] = found;
    }
    /* also exact: the factor and the rounding are llama.cpp's */
    if (a.share > 0 && gpu_lane() == 0)
        for (int k = 0; k < a.n_used; k++)
            s.chosen[k] = (int32_t)((float)s.chosen[k] * (1.0f / (float)a.share));
    gpu_sync();
    if (gpu_lane() == 0) write_choices(a, c, s);
    gpu_sync();
    for (int i = gpu_lane(); epoch && i < GPU_CHOICE_WORDS * a.n_used; i += GPU_WARP) {
        const int64_t at = c * GPU_CHOICE_WORDS * a.n_used + i;
        args.send.host_bits[at] = a.choices[at];
    }
    gpu_send_end(args.send, epoch, a.n_cols, &s.last);
}

void gpu_op_route(gpu_stream *s, const gpu_route *a) {
    assert(a->n_cols >= 1 && a->n_used >= 1 && a->n_used <= a->n_expert);
    assert(a->n_expert <= GPU_MAX_EXPERTS);
    assert(!a->send || a->n_cols <= GPU_MAX_COLS);
    const gpu_grid grid = {(unsigned)a->n_cols, 1, 1, GPU_WARP};
    route_args args = {*a, {}};
    if (a->send) args.send = *a->send;
    gpu_launch<route_kernel>(s, grid, args);
}

/* ---- products -------------------------------------------------------------------------------- */

enum { WARPS = 4, ROWS = 2, THREADS = 256 };

static __device__ __forceinline__ int64_t expert_of(const uint32_t *choices, int64_t pair) {
    return choices[GPU_CHOICE_WORDS * pair];
}

static __device__ __forceinline__ float weight_of(const uint32_t *choices, int64_t pair) {
    return gpu_bits_float(choices[GPU_CHOICE_WORDS * pair + 1]);
}

/* Applies scale and bias of an expert to a row's product. */
static __device__ __forceinline__ float scaled(float sum, const float *scales, const float *bias,
                                               float weight, int64_t expert, int64_t at) {
    return sum * ((scales ? scales[expert] : 1.0f) * weight) + (bias ? bias[at] : 0.0f);
}

enum { GROUP = 32 /* elements of a group of the int8 form */, GROUP_WARPS = 8 };

struct expert_in_shared {
    float h[GROUP];
};

struct expert_in_args : gpu_expert_in {
    bool values; /* h holds the activations of the gate */
};

/* Product of a row of gate or up. */
template <class F>
static __device__ __forceinline__ float row_of(const gpu_mat &w, int64_t row, const gpu_input &in) {
    const uint8_t *rows[1] = {gpu_row<F>(w, row)};
    float sum[1][1];
    gpu_dot_rows<F, 1, 1>(rows, w.n_in, in, sum);
    return sum[0][0];
}

/* Computes neuron i of a pair's expert; up NULL: only the activation of the gate. */
template <class F>
static __device__ __forceinline__ float neuron_of(const expert_in_args &a, int64_t pair,
                                                  int64_t expert, int64_t i, int32_t &n_read) {
    const int64_t n_in = a.up.data ? a.up.n_in : a.gate.n_in;
    const gpu_input in = gpu_input_from(a.in, (int)(pair / a.n_used), n_in);
    const int64_t row = expert * a.step + i, at = expert * a.n + i;
    const float weight = a.weigh ? weight_of(a.choices, pair) : 1.0f;
    float gate = 0.0f, up = 0.0f;
    if (a.values) gate = a.h[pair * a.ldh + i];
    gpu_sync_warp(); /* all lanes have read before the first lane writes */
    if (a.gate.data) {
        const bool both = a.up.data && !a.skip;
        if (both) {
            const uint8_t *rows[2] = {gpu_row<F>(a.gate, row), gpu_row<F>(a.up, row)};
            float sum[2][1];
            gpu_dot_rows<F, 2, 1>(rows, n_in, in, sum);
            gate = sum[0][0];
            up = sum[1][0];
        } else {
            gate = row_of<F>(a.gate, row, in);
        }
        gate = scaled(gate, a.gate_scales, a.gate_bias, weight, expert, at);
        gate = gpu_clamp_activation(a.clamp, a.f, a.threshold, gate);
        if (!a.up.data || (a.skip && gate == 0.0f)) return gate;
        if (!both) up = row_of<F>(a.up, row, in);
    } else {
        if (a.values && a.skip && gate == 0.0f) return gate;
        up = row_of<F>(a.up, row, in);
    }
    n_read++;
    up = scaled(up, a.up_scales, a.up_bias, weight, expert, at);
    if (!a.gate.data && !a.values) return gpu_activation(a.f, a.threshold, up);
    return gpu_gated(a.f, gate, gpu_clamp_up(a.clamp, up));
}

/* A block computes a group of 32 neurons of a pair, and its int8 form. */
template <class F>
static __global__ void GPU_BOUNDS(GROUP_WARPS *GPU_WARP, 1) expert_in_kernel(expert_in_args a) {
    gpu_begin();
    GPU_SHARED(expert_in_shared, shared);
    const unsigned per_pair = (unsigned)(a.n / GROUP);
    const int64_t pair = blockIdx.x / per_pair, group = blockIdx.x % per_pair;
    const int64_t expert = expert_of(a.choices, pair);
    int32_t n_read = 0; /* rows of up read */
    for (int i = gpu_warp(); i < GROUP; i += GROUP_WARPS) {
        const int64_t neuron = group * GROUP + i;
        const float v = expert < a.n_own ? neuron_of<F>(a, pair, expert, neuron, n_read) : 0.0f;
        if (gpu_lane() != 0) continue;
        a.h[pair * a.ldh + neuron] = v;
        shared.h[i] = v;
    }
    if (a.fired && n_read > 0 && gpu_lane() == 0) gpu_count(a.fired, n_read);
    if (!a.q8) return;
    gpu_sync();
    if (gpu_warp() > 0) return;
    const bool valid = gpu_lane() < GROUP / 4;
    float v[4];
    GPU_UNROLL
    for (int i = 0; i < 4; i++) v[i] = valid ? shared.h[4 * gpu_lane() + i] : 0.0f;
    gpu_quantize_group(v, group, valid, a.n, (uint8_t *)a.q8 + (size_t)pair * gpu_q8_bytes(a.n));
}

static void launch_in(gpu_stream *s, quant_type type, const expert_in_args &a) {
    assert(!gpu_type_wants_q8(type) || a.in.q8);
    assert(gpu_type_wants_q8(type) || (a.in.x && a.in.ldx % 4 == 0));
    const gpu_grid grid = {(unsigned)(a.n / GROUP * a.n_cols * a.n_used), 1, 1,
                           GROUP_WARPS * GPU_WARP};
#define FORMAT(F) gpu_launch<expert_in_kernel<F>>(s, grid, a)
    GPU_FORMAT_SWITCH(type);
#undef FORMAT
}

/* Gate and up of different types take two kernels: the first stores the activations of the gate in
 * h. */
void gpu_op_expert_in(gpu_stream *s, const gpu_expert_in *in) {
    assert(in->n_cols >= 1 && in->n_used >= 1 && in->in.n_cols == in->n_cols);
    assert(in->n % GROUP == 0 && (in->clamp.most == 0 || in->f == ACTIVATION_SILU));
    expert_in_args a = expert_in_args();
    static_cast<gpu_expert_in &>(a) = *in;
    if (a.gate.data && a.gate.type != a.up.type) {
        a.up = gpu_mat();
        a.q8 = nullptr;
        launch_in(s, a.gate.type, a);
        a.q8 = in->q8;
        a.up = in->up;
        a.gate = gpu_mat();
        a.values = true;
    }
    launch_in(s, a.up.type, a);
}

template <class F>
static __global__ void __launch_bounds__(WARPS *GPU_WARP) expert_kernel(gpu_expert_matvec a) {
    gpu_begin();
    const unsigned per_pair = gridDim.x / (unsigned)a.n_pairs;
    const int64_t pair = blockIdx.x / per_pair;
    const int64_t first = ((int64_t)(blockIdx.x % per_pair) * WARPS + gpu_warp()) * ROWS;
    const int64_t expert = expert_of(a.choices, pair);
    if (first >= a.w.n_out) return;
    float sum[ROWS][1] = {};
    const bool own = expert < a.n_own;
    if (own) {
        const uint8_t *row[ROWS];
        GPU_UNROLL
        for (int r = 0; r < ROWS; r++) /* a last odd row is computed twice and stored once */
            row[r] = gpu_row<F>(a.w,
                                expert * a.w.n_out + (first + r < a.w.n_out ? first + r : first));
        gpu_dot_rows<F, ROWS, 1>(row, a.w.n_in, gpu_input_from(a.in, (int)pair, a.w.n_in), sum);
    }
    if (gpu_lane() != 0) return;
    GPU_UNROLL
    for (int r = 0; r < ROWS; r++) {
        if (first + r >= a.w.n_out) break;
        const int64_t at = expert * a.w.n_out + first + r;
        a.y[pair * a.ldy + first + r] = own ? scaled(sum[r][0], a.scales, a.bias, 1.0f, expert, at)
                                            : 0.0f;
    }
}

void gpu_op_expert_matvec(gpu_stream *s, const gpu_expert_matvec *a) {
    assert(a->n_pairs >= 1 && a->in.n_cols == a->n_pairs);
    assert(!gpu_type_wants_q8(a->w.type) || a->in.q8);
    assert(gpu_type_wants_q8(a->w.type) || (a->in.x && a->in.ldx % 4 == 0));
    const unsigned blocks = gpu_blocks(a->w.n_out, WARPS * ROWS);
    const gpu_grid grid = {blocks * (unsigned)a->n_pairs, 1, 1, WARPS * GPU_WARP};
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
