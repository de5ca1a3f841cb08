/* op_streams.cu: several residual streams (AltUp): the coefficients of a router mix them before a
 * layer and correct them after it; after the last layer they are merged. Hyper-connections.
 * Attention over earlier residuals. */
#include <assert.h>

#include "gpu_block.h"
#include "op_table.h"

enum { MIX_THREADS = 128, MERGE_THREADS = 512, MERGE_WARPS = MERGE_THREADS / GPU_WARP };

/* ---- around a layer -------------------------------------------------------------------------- */

struct mix_shared {
    float w[GPU_MAX_STREAMS * GPU_MAX_STREAMS];
};

/* Computes the coefficients; every block repeats it, because they are few. Unused elements are
 * zero: the compiler may read them and discard the result. */
static __device__ __forceinline__ void weigh(const gpu_mix &a, int64_t c, int n_out,
                                             mix_shared &shared) {
    const float *router = a.router + c * a.ldr;
    for (int i = (int)threadIdx.x; i < GPU_MAX_STREAMS * GPU_MAX_STREAMS; i += MIX_THREADS) {
        float sum = 0.0f;
        for (int k = 0; k < a.n_stream && i < n_out; k++)
            sum += a.coefficients[i * a.n_stream + k] * tanhf(router[k]);
        shared.w[i] = sum;
    }
    gpu_sync();
}

/* One thread per element, for all streams. */
static __global__ void __launch_bounds__(MIX_THREADS) predict_kernel(gpu_mix a) {
    gpu_begin();
    GPU_SHARED(mix_shared, shared);
    const int64_t c = blockIdx.y, i = (int64_t)blockIdx.x * MIX_THREADS + threadIdx.x;
    weigh(a, c, a.n_stream * a.n_stream, shared);
    if (i >= a.n) return;
    float *to = a.streams + c * a.lds + i, v[GPU_MAX_STREAMS];
    GPU_UNROLL
    for (int k = 0; k < GPU_MAX_STREAMS; k++) v[k] = k < a.n_stream ? to[k * a.n] : 0.0f;
    GPU_UNROLL
    for (int k = 0; k < GPU_MAX_STREAMS; k++) {
        if (k >= a.n_stream) break;
        float sum = v[k];
        GPU_UNROLL
        for (int b = 0; b < GPU_MAX_STREAMS; b++)
            if (b < a.n_stream) sum += shared.w[k * a.n_stream + b] * v[b];
        to[k * a.n] = sum;
        if (k == 0) a.x[c * a.ldx + i] = sum;
    }
}

static __global__ void __launch_bounds__(MIX_THREADS) correct_kernel(gpu_mix a) {
    gpu_begin();
    GPU_SHARED(mix_shared, shared);
    const int64_t c = blockIdx.y, i = (int64_t)blockIdx.x * MIX_THREADS + threadIdx.x;
    weigh(a, c, a.n_stream, shared);
    if (i >= a.n) return;
    float *to = a.streams + c * a.lds + i;
    const float d = a.x[c * a.ldx + i] - to[0];
    for (int k = 0; k < a.n_stream; k++) {
        const float v = to[k * a.n] + (1.0f + shared.w[k]) * d;
        to[k * a.n] = v;
        if (k > 0) continue;
        a.x[c * a.ldx + i] = v;
        a.y[c * a.ldy + i] = v * a.scale[i];
    }
}

void gpu_op_mix(gpu_stream *s, const gpu_mix *a) {
    assert(a->n_cols >= 1 && a->n >= 1 && (!a->corrects || (a->y && a->scale)));
    assert(a->n_stream >= 2 && a->n_stream <= GPU_MAX_STREAMS);
    const gpu_grid grid = {gpu_blocks(a->n, MIX_THREADS), (unsigned)a->n_cols, 1, MIX_THREADS};
    if (a->corrects)
        gpu_launch<correct_kernel>(s, grid, *a);
    else
        gpu_launch<predict_kernel>(s, grid, *a);
}

/* ---- after the last layer -------------------------------------------------------------------- */

struct merge_shared {
    float squares[GPU_MAX_STREAMS][MERGE_WARPS];
};

static __device__ __forceinline__ float magnitude(const float *x, int64_t n, float *shared) {
    float sum = 0.0f;
    for (int64_t i = threadIdx.x; i < n; i += MERGE_THREADS) sum += x[i] * x[i];
    return sqrtf(gpu_block_sum(sum, shared, MERGE_WARPS) / (float)n);
}

/* One block per column. `least` bounds the norm, so that a vector near zero stays near zero. */
static __global__ void __launch_bounds__(MERGE_THREADS) merge_kernel(gpu_merge a) {
    gpu_begin();
    GPU_SHARED(merge_shared, shared);
    const float least = 3.1622777e-3f; /* sqrt(1e-5) */
    const float *first = a.streams + blockIdx.x * a.lds, *others = a.others + blockIdx.x * a.ldo;
    float *x = a.x + blockIdx.x * a.ldx, factor[GPU_MAX_STREAMS];
    const float want = magnitude(first, a.n, shared.squares[0]);
    GPU_UNROLL
    for (int k = 1; k < GPU_MAX_STREAMS; k++) {
        if (k >= a.n_stream) break; /* uniform in the block */
        factor[k] = want / fmaxf(magnitude(others + (k - 1) * a.n, a.n, shared.squares[k]), least);
    }
    for (int64_t i = threadIdx.x; i < a.n; i += MERGE_THREADS) {
        float sum = first[i];
        GPU_UNROLL
        for (int k = 1; k < GPU_MAX_STREAMS; k++)
            if (k < a.n_stream) sum += factor[k] * others[(k - 1) * a.n + i];
        x[i] = sum / (float)a.n_stream;
    }
}

void gpu_op_merge(gpu_stream *s, const gpu_merge *a) {
    assert(a->n_cols >= 1 && a->n >= 1);
    assert(a->n_stream >= 2 && a->n_stream <= GPU_MAX_STREAMS);
    const gpu_grid grid = {(unsigned)a->n_cols, 1, 1, MERGE_THREADS};
    gpu_launch<merge_kernel>(s, grid, *a);
}

/* ---- hyper-connections ----------------------------------------------------------------------- */

/* One thread per element, for all streams. */
static __global__ void __launch_bounds__(MIX_THREADS) hyper_kernel(gpu_hyper a) {
    gpu_begin();
    const int64_t c = blockIdx.y, i = (int64_t)blockIdx.x * MIX_THREADS + threadIdx.x;
    if (i >= a.n) return;
    const float *weights = a.weights + c * a.ldw;
    const float scale = a.scale[0];
    float *stream = a.streams + c * a.lds + i, *x = a.x + c * a.ldx + i;
    const float y = a.adds ? *x : 0.0f;
    float sum = 0.0f;
    for (int k = 0; k < a.n_stream; k++) {
        const float w = a.factor / (1.0f + expf(-(weights[k] * scale + a.base[k]))) + a.eps;
        if (a.adds)
            stream[k * a.n] += w * y;
        else
            sum += w * stream[k * a.n];
    }
    if (!a.adds) *x = sum;
}

enum { MOST_WEIGHTS = GPU_MAX_STREAMS * GPU_MAX_STREAMS };
static_assert((int)MOST_WEIGHTS <= (int)MIX_THREADS, "a thread for every weight");

struct hyper_shared {
    float w[GPU_MAX_STREAMS], m[2][MOST_WEIGHTS]; /* m: they alternate */
};

/* The thread's weight of the matrix that mixes streams (Sinkhorn and Knopp 1967), in the order of
 * the CPU's sums. Every block computes the matrix. */
static __device__ __forceinline__ float mixing_weight(const gpu_hyper &a, const float *numbers,
                                                      hyper_shared &shared) {
    const int n = a.n_stream, i = (int)threadIdx.x < n * n ? (int)threadIdx.x : 0;
    const int from = i / n, to = i % n;
    const float *base = a.base + n;
    const float scale = a.scale[1];
    float top = -INFINITY, sum = 0.0f;
    for (int k = from * n; k < (from + 1) * n; k++) top = fmaxf(top, numbers[k] * scale + base[k]);
    for (int k = from * n; k < (from + 1) * n; k++) sum += expf(numbers[k] * scale + base[k] - top);
    float w = expf(numbers[i] * scale + base[i] - top) / sum + a.mix_eps;
    for (int half = 1; half < 2 * a.rounds; half++) { /* columns, then rows and columns in turn */
        float *m = shared.m[half % 2];
        if (i == (int)threadIdx.x) m[i] = w;
        gpu_sync();
        sum = a.mix_eps;
        for (int k = 0; k < n; k++) sum += half % 2 ? m[k * n + to] : m[from * n + k];
        w /= sum;
    }
    return w;
}

static __global__ void __launch_bounds__(MIX_THREADS) hyper_mixing_kernel(gpu_hyper a) {
    gpu_begin();
    GPU_SHARED(hyper_shared, shared);
    const int n = a.n_stream, t = (int)threadIdx.x;
    const int64_t c = blockIdx.y, i = (int64_t)blockIdx.x * MIX_THREADS + t;
    const float *weights = a.weights + c * a.ldw;
    const float weight = mixing_weight(a, weights + n, shared);
    gpu_sync();
    if (t < n * n) shared.m[0][t] = weight;
    if (t < n)
        shared.w[t] = a.factor / (1.0f + expf(-(weights[t] * a.scale[0] + a.base[t]))) + a.eps;
    gpu_sync();
    if (i >= a.n) return;
    float *stream = a.streams + c * a.lds + i, was[GPU_MAX_STREAMS];
    const float y = a.x[c * a.ldx + i];
    GPU_UNROLL
    for (int k = 0; k < GPU_MAX_STREAMS; k++) was[k] = k < n ? stream[k * a.n] : 0.0f;
    for (int k = 0; k < n; k++) {
        float sum = 0.0f;
        GPU_UNROLL
        for (int j = 0; j < GPU_MAX_STREAMS; j++)
            if (j < n) sum += shared.m[0][j * n + k] * was[j];
        stream[k * a.n] = sum + shared.w[k] * y;
    }
}

void gpu_op_hyper(gpu_stream *s, const gpu_hyper *a) {
    assert(a->n_cols >= 1 && a->n >= 1 && a->n_stream >= 2);
    assert(a->rounds == 0 || (a->adds && a->n_stream <= GPU_MAX_STREAMS));
    const gpu_grid grid = {gpu_blocks(a->n, MIX_THREADS), (unsigned)a->n_cols, 1, MIX_THREADS};
    if (a->rounds > 0)
        gpu_launch<hyper_mixing_kernel>(s, grid, *a);
    else
        gpu_launch<hyper_kernel>(s, grid, *a);
}

static __global__ void __launch_bounds__(MIX_THREADS) hyper_mean_kernel(gpu_hyper_mean a) {
    gpu_begin();
    const int64_t c = blockIdx.y, i = (int64_t)blockIdx.x * MIX_THREADS + threadIdx.x;
    if (i >= a.n) return;
    const float *y = a.y + c * a.ldy + i, *gate = a.gate + c * a.ldg + i;
    float sum = 0.0f;
    for (int k = 0; k < a.n_stream; k++) sum += y[k * a.n] / (1.0f + expf(-gate[k * a.n]));
    a.x[c * a.ldx + i] = sum / (float)a.n_stream;
}

void gpu_op_hyper_mean(gpu_stream *s, const gpu_hyper_mean *a) {
    assert(a->n_cols >= 1 && a->n >= 1 && a->n_stream >= 2);
    const gpu_grid grid = {gpu_blocks(a->n, MIX_THREADS), (unsigned)a->n_cols, 1, MIX_THREADS};
    gpu_launch<hyper_mean_kernel>(s, grid, *a);
}

/* ---- attention over earlier residuals -------------------------------------------------------- */

struct past_shared {
    float part[2 * GPU_MAX_PASTS][MERGE_WARPS];
    float weight[GPU_MAX_PASTS];
};

/* One block per column. */
static __global__ void __launch_bounds__(MERGE_THREADS) past_kernel(gpu_past a) {
    gpu_begin();
    GPU_SHARED(past_shared, shared);
    float *streams = a.streams + blockIdx.x * a.lds, *x = a.x + blockIdx.x * a.ldx;
    for (int k = 0; k <= a.n_past; k++) {
        const float *s = streams + k * a.n;
        float squares = 0.0f, sum = 0.0f;
        for (int64_t i = threadIdx.x; i < a.n; i += MERGE_THREADS) {
            squares += s[i] * s[i];
            sum += s[i] * a.score[i];
        }
        squares = gpu_block_sum(squares, shared.part[2 * k], MERGE_WARPS);
        sum = gpu_block_sum(sum, shared.part[2 * k + 1], MERGE_WARPS);
        if (threadIdx.x == 0) shared.weight[k] = sum / sqrtf(squares / (float)a.n + a.eps);
    }
    gpu_sync();
    float most = -INFINITY, sum = 0.0f;
    for (int k = 0; k <= a.n_past; k++) most = fmaxf(most, shared.weight[k]);
    for (int k = 0; k <= a.n_past; k++) sum += expf(shared.weight[k] - most);
    for (int64_t i = threadIdx.x; i < a.n; i += MERGE_THREADS) {
        float y = 0.0f;
        for (int k = 0; k <= a.n_past; k++)
            y += expf(shared.weight[k] - most) / sum * streams[k * a.n + i];
        x[i] = y;
        if (a.begins) streams[(a.n_past + 1) * a.n + i] = streams[i];
    }
}

static __global__ void __launch_bounds__(MIX_THREADS) past_add_kernel(gpu_past a) {
    gpu_begin();
    const int64_t c = blockIdx.y, i = (int64_t)blockIdx.x * MIX_THREADS + threadIdx.x;
    if (i >= a.n) return;
    float *stream = a.streams + c * a.lds + i;
    const float x = a.x[c * a.ldx + i];
    *stream = a.begins ? x : *stream + x;
}

void gpu_op_past(gpu_stream *s, const gpu_past *a) {
    assert(a->n_cols >= 1 && a->n >= 1 && a->n_past >= 0 && a->n_past < GPU_MAX_PASTS);
    if (a->adds) {
        const gpu_grid grid = {gpu_blocks(a->n, MIX_THREADS), (unsigned)a->n_cols, 1, MIX_THREADS};
        gpu_launch<past_add_kernel>(s, grid, *a);
    } else {
        const gpu_grid grid = {(unsigned)a->n_cols, 1, 1, MERGE_THREADS};
        gpu_launch<past_kernel>(s, grid, *a);
    }
}
