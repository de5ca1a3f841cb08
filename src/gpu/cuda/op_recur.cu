/* op_recur.cu: recurrent layers: the causal convolution, the recurrence over a session's state, and
 * the gated norm after it (Dao and Gu 2024, Mamba-2; Yang et al. 2024, gated delta rule; Liquid AI
 * 2025, LFM2).
 *
 * Channels, and rows of a head's state, are independent: a thread (convolution) or a warp
 * (recurrence) holds its part of the state in registers, processes the session's columns in order,
 * and writes the state once at the end. So one kernel is for decode and prefill, and state_from may
 * equal state_to. Only the blocks of a session's first column compute: a recorded program does not
 * know where sessions begin. */
#include <assert.h>

#include "gpu_block.h"
#include "op_table.h"

enum { THREADS = 128, WARPS = THREADS / GPU_WARP, TAPS = GPU_MAX_TAPS };

static __device__ __forceinline__ float sigmoid(float x) {
    return 1.0f / (1.0f + expf(-x));
}

/* ln(1 + e^x); x where e^x dominates. */
static __device__ __forceinline__ float softplus(float x) {
    return x > 20.0f ? x : log1pf(expf(x));
}

/* ---- convolution ----------------------------------------------------------------------------- */

/* Stores the last n_taps - 1 inputs of a channel, which are the last ones in `x`. */
static __device__ __forceinline__ void store_inputs(const gpu_conv &a, const float (&x)[TAPS],
                                                    int64_t i, float *state) {
    GPU_UNROLL
    for (int j = 1; j < TAPS; j++) {
        const int k = j - (TAPS - a.n_taps + 1);
        if (k >= 0) state[a.at + k * a.n + i] = x[j];
    }
}

static __global__ void __launch_bounds__(THREADS) conv_kernel(gpu_conv a) {
    gpu_begin();
    const int64_t c0 = blockIdx.y, i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    const gpu_column col = a.cols[c0];
    if (col.at != 0 || i >= a.n) return;
    const float *taps = i < a.part ? a.taps[0] : i < 2 * a.part ? a.taps[1] : a.taps[2];
    const int skip = TAPS - a.n_taps;
    const int64_t tap = i % a.part * a.n_taps;
    float w[TAPS], x[TAPS];
    GPU_UNROLL
    for (int j = 0; j < TAPS; j++) {
        const int64_t old = a.at + (j - skip - 1) * a.n + i;
        w[j] = j >= skip ? taps[tap + j - skip] : 0.0f;
        x[j] = j > skip && col.state_from ? col.state_from[old] : 0.0f;
    }
    const float bias = a.bias ? a.bias[i] : 0.0f;
    for (int t = 0; t < col.run; t++) {
        const int64_t c = c0 + t;
        if (t == col.n_before && col.state_before) store_inputs(a, x, i, col.state_before);
        GPU_UNROLL
        for (int j = 0; j < TAPS - 1; j++) x[j] = j >= skip ? x[j + 1] : 0.0f;
        x[TAPS - 1] = a.x[c * a.ldx + i] * (a.by ? a.by[c * a.ldb + i] : 1.0f);
        float y = bias;
        GPU_UNROLL
        for (int j = 0; j < TAPS; j++) y += w[j] * x[j];
        y *= a.gate ? a.gate[c * a.ldg + i] : sigmoid(y);
        a.y[c * a.ldy + i] = y;
    }
    store_inputs(a, x, i, col.state_to);
}

void gpu_op_conv(gpu_stream *s, const gpu_conv *a) {
    assert(a->n_cols >= 1 && a->n_taps >= 1 && a->n_taps <= TAPS && a->part >= 1);
    const gpu_grid grid = {gpu_blocks(a->n, THREADS), (unsigned)a->n_cols, 1, THREADS};
    gpu_launch<conv_kernel>(s, grid, *a);
}

/* ---- recurrence ------------------------------------------------------------------------------ */

/* Inputs of a head for one column; a lane has elements lane + 32 e of vectors, padded with 0. */
template <int E> struct recur_inputs {
    float decay[E], key[E], query[E];
    const float *values; /* [head_dim] */
    float by;            /* factor of values */
    float beta;
};

template <int E> static __device__ __forceinline__ void load(const float *x, int n, float (&v)[E]) {
    GPU_UNROLL
    for (int e = 0; e < E; e++) {
        const int at = gpu_lane() + e * GPU_WARP;
        v[e] = at < n ? x[at] : 0.0f;
    }
}

template <int E>
static __device__ __forceinline__ float dot(const float (&x)[E], const float (&y)[E]) {
    float sum = 0.0f;
    GPU_UNROLL
    for (int e = 0; e < E; e++) sum += x[e] * y[e];
    return gpu_warp_sum(sum);
}

/* x = x / max(|x|, eps) * scale. */
template <int E>
static __device__ __forceinline__ void normalize(float (&x)[E], float eps, float scale) {
    scale /= fmaxf(sqrtf(dot(x, x)), eps);
    GPU_UNROLL
    for (int e = 0; e < E; e++) x[e] *= scale;
}

/* apart: keys and queries are not in x. SCAN: decays and steps differ between rows (step_rows). */
template <bool apart, int E>
static __device__ __forceinline__ void load_ssm(const gpu_recur &a, int64_t c, int head, int group,
                                                recur_inputs<E> &in) {
    const float *x = a.x + c * a.ldx;
    const float *keys = x + (int64_t)a.n_head * a.head_dim + (int64_t)group * a.n_state;
    const float *queries = keys + (int64_t)a.n_group * a.n_state;
    if (apart) keys = a.keys + c * a.ldk, queries = a.queries + c * a.ldk;
    float step = 1.0f, decay = 1.0f;
    if (a.kind == GPU_RECUR_SSM) {
        if (a.step) step = softplus(a.step[c * a.lds + head] + a.dt_bias[head]);
        decay = expf(step * a.a[head]);
    }
    load(keys, a.n_state, in.key);
    load(queries, a.n_state, in.query);
    GPU_UNROLL
    for (int e = 0; e < E; e++) in.decay[e] = decay;
    in.values = x + (int64_t)head * a.head_dim;
    in.by = step;
    in.beta = 1.0f;
}

template <int E>
static __device__ __forceinline__ void load_delta(const gpu_recur &a, int64_t c, int head,
                                                  int group, recur_inputs<E> &in) {
    const float *queries = a.x + c * a.ldx, *keys = queries + (int64_t)a.n_group * a.n_state;
    const int heads = a.n_head / a.n_group;
    const float *beta = a.beta + c * a.ldb + (a.paired ? 2 * heads * group + head % heads : head);
    const float *alpha = a.paired ? beta + heads : a.step + c * a.lds + head;
    load(queries + (int64_t)group * a.n_state, a.n_state, in.query);
    load(keys + (int64_t)group * a.n_state, a.n_state, in.key);
    if (a.kind == GPU_RECUR_KDA) {
        const int64_t first = (int64_t)head * a.n_state;
        float bias[E];
        load(a.step + c * a.lds + first, a.n_state, in.decay);
        load(a.dt_bias + first, a.n_state, bias);
        GPU_UNROLL
        for (int e = 0; e < E; e++) {
            const float v = in.decay[e] + bias[e];
            in.decay[e] = expf(a.least_decay < 0 ? a.least_decay * sigmoid(-a.a[head] * v)
                                                 : softplus(v) * a.a[head]);
        }
    } else {
        const float decay = expf(softplus(*alpha + a.dt_bias[head]) * a.a[head]);
        GPU_UNROLL
        for (int e = 0; e < E; e++) in.decay[e] = decay;
    }
    normalize(in.query, a.eps, 1.0f / sqrtf((float)a.n_state));
    normalize(in.key, a.eps, 1.0f);
    in.values = keys + (int64_t)a.n_group * a.n_state + (int64_t)head * a.head_dim;
    in.by = 1.0f;
    in.beta = sigmoid(*beta);
}

/* Stores a warp's R rows of a head's state. */
template <int E, int R>
static __device__ __forceinline__ void store_rows(const gpu_recur &a, const float (&s)[R][E],
                                                  int head, int row, float *state) {
    GPU_UNROLL
    for (int r = 0; r < R; r++) {
        float *to = state + a.at + ((int64_t)head * a.head_dim + row + r) * a.n_state;
        GPU_UNROLL
        for (int e = 0; e < E; e++) {
            const int at = gpu_lane() + e * GPU_WARP;
            if (row + r < a.head_dim && at < a.n_state) to[at] = s[r][e];
        }
    }
}

template <int E, int R>
static __device__ __forceinline__ void load_rows(const gpu_recur &a, float (&s)[R][E], int head,
                                                 int row, const float *state) {
    GPU_UNROLL
    for (int r = 0; r < R; r++) {
        const bool there = state && row + r < a.head_dim;
        const int64_t at = a.at + ((int64_t)head * a.head_dim + row + r) * a.n_state;
        load(there ? state + at : a.x, there ? a.n_state : 0, s[r]);
    }
}

/* Processes one column. The new S . query is (decayed S) . query + d * both, with both = key .
 * query, so that it does not wait for the new S. */
template <bool apart, int E, int R>
static __device__ __forceinline__ void step_rows(const gpu_recur &a, int64_t c,
                                                 const recur_inputs<E> &in, float both, float skip,
                                                 int row, float *y, float (&s)[R][E]) {
    GPU_UNROLL
    for (int r = 0; r < R; r++) {
        const bool there = row + r < a.head_dim;
        const float x = there ? in.values[row + r] : 0.0f;
        float d = x * in.by;
        if (apart && a.kind == GPU_RECUR_SCAN) {
            const int64_t at = there ? row + r : 0;
            const float step = softplus(a.step[c * a.lds + at] + a.dt_bias[at]);
            GPU_UNROLL
            for (int e = 0; e < E; e++) {
                const int i = gpu_lane() + e * GPU_WARP;
                if (i < a.n_state) s[r][e] *= expf(step * a.a[at * a.n_state + i]);
            }
            d *= step;
            skip = a.skip[at];
        } else {
            GPU_UNROLL
            for (int e = 0; e < E; e++) s[r][e] *= in.decay[e];
        }
        if (!apart && a.kind != GPU_RECUR_SSM) d = in.beta * (d - dot(s[r], in.key));
        const float out = dot(s[r], in.query) + d * both + skip * x;
        GPU_UNROLL
        for (int e = 0; e < E; e++) s[r][e] += d * in.key[e];
        if (there && gpu_lane() == r) y[row + r] = out;
    }
}

/* apart: SCAN, and SSM with separate keys; with the other kinds it would take too many registers.
 */
template <bool apart, int E, int R>
static __global__ void __launch_bounds__(THREADS) recur_kernel(gpu_recur a) {
    gpu_begin();
    const int chunks = (a.head_dim + WARPS * R - 1) / (WARPS * R);
    const int head = (int)blockIdx.x / chunks;
    const int row = ((int)blockIdx.x % chunks * WARPS + gpu_warp()) * R;
    const int64_t c0 = blockIdx.y;
    const gpu_column col = a.cols[c0];
    if (col.at != 0 || row >= a.head_dim) return;
    const int group = a.groups_alternate ? head % a.n_group : head / (a.n_head / a.n_group);
    float s[R][E];
    load_rows(a, s, head, row, col.state_from);
    for (int t = 0; t < col.run; t++) {
        if (t == col.n_before && col.state_before) store_rows(a, s, head, row, col.state_before);
        recur_inputs<E> in;
        if (apart || a.kind == GPU_RECUR_SSM)
            load_ssm<apart>(a, c0 + t, head, group, in);
        else
            load_delta(a, c0 + t, head, group, in);
        step_rows<apart>(a, c0 + t, in, dot(in.key, in.query), a.skip ? a.skip[head] : 0.0f, row,
                         a.y + (c0 + t) * a.ldy + (int64_t)head * a.head_dim, s);
    }
    store_rows(a, s, head, row, col.state_to);
}

template <bool apart, int E, int R> static void launch(gpu_stream *s, const gpu_recur *a) {
    const gpu_grid grid = {gpu_blocks(a->head_dim, WARPS * R) * (unsigned)a->n_head,
                           (unsigned)a->n_cols, 1, THREADS};
    gpu_launch<recur_kernel<apart, E, R>>(s, grid, *a);
}

void gpu_op_recur(gpu_stream *s, const gpu_recur *a) {
    assert(a->n_cols >= 1 && a->n_state <= GPU_MAX_STATE && a->n_head % a->n_group == 0);
    assert(!a->keys || a->n_group == 1);
    assert(a->kind != GPU_RECUR_SCAN || (a->n_head == 1 && a->keys && a->step && a->skip));
    const bool few = a->n_state <= 4 * GPU_WARP, apart = a->keys;
    if (few && apart)
        launch<true, 4, 4>(s, a);
    else if (few)
        launch<false, 4, 4>(s, a);
    else if (apart)
        launch<true, GPU_MAX_STATE / GPU_WARP, 2>(s, a);
    else
        launch<false, GPU_MAX_STATE / GPU_WARP, 2>(s, a);
}

/* ---- gates ----------------------------------------------------------------------------------- */

static __device__ __forceinline__ float gate_at(const gpu_gate &a, float gate) {
    return a.sigmoid ? sigmoid(gate) : gate * sigmoid(gate);
}

static __global__ void __launch_bounds__(THREADS) gate_kernel(gpu_gate a) {
    gpu_begin();
    struct shared_type {
        float part[WARPS];
    };
    GPU_SHARED(shared_type, shared);
    const int64_t c = blockIdx.y, first = (int64_t)blockIdx.x * a.width;
    const float *gate = a.gate + c * a.ldg;
    const float *weights = a.norm && a.first ? a.norm + first : a.norm;
    float *x = a.x + c * a.ldx + first, squares = 0.0f;
    for (int64_t i = threadIdx.x; i < a.width; i += THREADS) {
        const float v = a.first ? x[i] * gate_at(a, gate[(first + i) / a.share]) : x[i];
        squares += v * v;
    }
    squares = gpu_block_sum(squares, shared.part, WARPS);
    const float scale = a.norm ? 1.0f / sqrtf(squares / (float)a.width + a.eps) : 1.0f;
    for (int64_t i = threadIdx.x; i < a.width; i += THREADS)
        x[i] *= scale * (weights ? weights[i] : 1.0f) * gate_at(a, gate[(first + i) / a.share]);
}

void gpu_op_gate(gpu_stream *s, const gpu_gate *a) {
    assert(a->n_cols >= 1 && a->width >= 1 && a->n % a->width == 0 && a->share >= 1);
    const gpu_grid grid = {gpu_blocks(a->n, a->width), (unsigned)a->n_cols, 1, THREADS};
    gpu_launch<gate_kernel>(s, grid, *a);
}
