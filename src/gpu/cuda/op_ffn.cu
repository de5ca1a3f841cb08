/* op_ffn.cu: the first half of an FFN: h = f(gate x) * (up x), for all neurons of the device or for
 * a list.
 *
 * A warp computes one neuron at a time. Without `skip` and list (dense) it reads both rows at once.
 * Otherwise it reads the row of gate first, and the row of up only when the activation is not zero
 * for every column; all lanes take the same branch.
 *
 * When the int8 form is wanted, a block computes one group of 32 neurons, with twice as many warps.
 * Example: 11,008 neurons are 344 blocks of 8 warps; on 128 multiprocessors registers allow 256
 * blocks at once, and the last 88 blocks still have 2.9 MB of weights in flight (gpu_dot.h). */
#include <assert.h>

#include "gpu_block.h"
#include "gpu_dot.h"
#include "op_table.h"

enum {
    WARPS = 4,
    GROUP = 32, /* elements of a group of the int8 form */
    GROUP_WARPS = 8,
    MIN_BLOCKS = 1 /* per multiprocessor: allows the maximum registers per thread */
};

struct ffn_shared {
    float h[GPU_MAX_COLS][GROUP];
};

struct ffn_args : gpu_ffn_in {
    const float *values; /* activations stored by the kernel of the gate, by item; or NULL */
    int64_t ldv;
};

static __device__ __forceinline__ float activated(const ffn_args &a, int64_t neuron, float v) {
    const float y = gpu_activation(a.f, a.threshold, v);
    return fabsf(y) * (a.cut_weight ? a.cut_weight[neuron] : 1.0f) <= a.cut ? 0.0f : y;
}

/* Activations of the gate for the columns that selected the neuron; true when `up` is needed. */
template <class F, int C>
static __device__ __forceinline__ bool gate_first(const ffn_args &a, int64_t item, int64_t neuron,
                                                  float (&v)[C]) {
    if (a.values) {
        GPU_UNROLL
        for (int c = 0; c < C; c++) v[c] = c < a.in.n_cols ? a.values[c * a.ldv + item] : 0.0f;
    } else {
        const uint8_t *row[1] = {gpu_row<F>(a.gate, neuron)};
        const float bias = a.gate_bias ? a.gate_bias[neuron] : 0.0f;
        float sum[1][C];
        gpu_dot_rows<F, 1, C>(row, a.gate.n_in, a.in, sum);
        GPU_UNROLL
        for (int c = 0; c < C; c++) v[c] = activated(a, neuron, sum[0][c] + bias);
    }
    bool any = a.cut < 0.0f;
    GPU_UNROLL
    for (int c = 0; c < C; c++) {
        if (c >= a.in.n_cols) break;
        if (!gpu_selected(a.bitmap, a.n_words, c, neuron)) v[c] = 0.0f;
        any = any || v[c] != 0.0f;
    }
    return any;
}

/* False: h must not be written, because it already holds the zeros of these activations. Sets
 * `reads` when it reads the row of up. */
template <class F, int C>
static __device__ __forceinline__ bool neuron_of(const ffn_args &a, int64_t item, float (&v)[C],
                                                 bool &reads) {
    const int64_t neuron = a.list ? a.list[item] : item;
    const float up_bias = a.up_bias ? a.up_bias[neuron] : 0.0f;
    const bool gated = a.gate.data || a.values;
    GPU_UNROLL
    for (int c = 0; c < C; c++) v[c] = 0.0f;
    if (gated && a.gate.data && a.up.data && !a.skip) {
        const uint8_t *rows[2] = {gpu_row<F>(a.gate, neuron), gpu_row<F>(a.up, neuron)};
        const float gate_bias = a.gate_bias ? a.gate_bias[neuron] : 0.0f;
        float sum[2][C];
        gpu_dot_rows<F, 2, C>(rows, a.up.n_in, a.in, sum);
        GPU_UNROLL
        for (int c = 0; c < C; c++)
            v[c] = gpu_hidden(a.f, activated(a, neuron, sum[0][c] + gate_bias), sum[1][c] + up_bias,
                              a.cut_down);
        reads = true;
        return true;
    }
    if (gated && !gate_first<F, C>(a, item, neuron, v)) return !a.values;
    if (!a.up.data) return true;
    const uint8_t *row[1] = {gpu_row<F>(a.up, neuron)};
    float sum[1][C];
    gpu_dot_rows<F, 1, C>(row, a.up.n_in, a.in, sum);
    reads = true;
    GPU_UNROLL
    for (int c = 0; c < C; c++) {
        const float up = sum[0][c] + up_bias;
        if (gated)
            v[c] = gpu_hidden(a.f, v[c], up, a.cut_down);
        else if (c < a.in.n_cols && gpu_selected(a.bitmap, a.n_words, c, neuron))
            v[c] = activated(a, neuron, up);
    }
    return true;
}

/* One warp per column, after all neurons of the block are in shared memory. */
static __device__ __forceinline__ void quantize_group(const ffn_args &a, const ffn_shared &shared) {
    for (int c = gpu_warp(); c < a.in.n_cols; c += GROUP_WARPS) {
        const bool valid = gpu_lane() < GROUP / 4;
        float v[4];
        GPU_UNROLL
        for (int i = 0; i < 4; i++) v[i] = valid ? shared.h[c][4 * gpu_lane() + i] : 0.0f;
        gpu_quantize_group(v, blockIdx.x, valid, a.n,
                           (uint8_t *)a.q8 + (size_t)c * gpu_q8_bytes(a.n));
    }
}

template <class F, int C>
static __global__ void GPU_BOUNDS(GROUP_WARPS *GPU_WARP, MIN_BLOCKS) ffn_kernel(ffn_args a) {
    gpu_begin();
    GPU_SHARED(ffn_shared, shared);
    const int64_t count = a.count ? *a.count : a.n, before = (int64_t)blockIdx.x * GROUP;
    const int64_t first = (a.q8 ? before : (int64_t)blockIdx.x * WARPS) + gpu_warp();
    const int64_t n = a.q8 ? before + GROUP : count;
    const int64_t step = a.q8 ? (int64_t)GROUP_WARPS : (int64_t)gridDim.x * WARPS;
    const int64_t n_in = a.up.data ? a.up.n_in : a.gate.n_in;
    int32_t n_read = 0; /* rows of up read */
    for (int64_t i = first; i < n; i += step) {
        bool reads = false;
        for (int c0 = 0; c0 < a.in.n_cols; c0 += C) {
            ffn_args part = a;
            float v[C];
            part.in = gpu_input_from(a.in, c0, n_in);
            if (a.values) part.values = a.values + c0 * a.ldv;
            if (a.bitmap) part.bitmap = a.bitmap + c0 * a.n_words;
            const bool changes = neuron_of<F, C>(part, i, v, reads);
            GPU_UNROLL
            for (int c = 0; c < C; c++) {
                if (c >= part.in.n_cols || gpu_lane() != 0) break;
                if (changes) a.h[(c0 + c) * a.ldh + i] = v[c];
                if (a.q8) shared.h[c0 + c][i - before] = v[c];
            }
        }
        n_read += reads;
    }
    if (a.fired && n_read > 0 && gpu_lane() == 0) gpu_count(a.fired, n_read);
    if (!a.q8) return;
    gpu_sync();
    quantize_group(a, shared);
}

static void launch(gpu_stream *s, quant_type type, const ffn_args &a) {
    /* A list usually fills a tenth of its capacity: a smaller grid loops over it. */
    enum { LIST_BLOCKS = 1024 };
    unsigned blocks = gpu_blocks(a.n, WARPS);
    if (a.list && blocks > LIST_BLOCKS) blocks = LIST_BLOCKS;
    if (a.q8) blocks = gpu_blocks(a.n, GROUP);
    assert(a.in.n_cols >= 1 && a.in.n_cols <= GPU_MAX_COLS);
    assert(!gpu_type_wants_q8(type) || a.in.q8);
    assert(!a.q8 || (!a.list && a.n % GROUP == 0));
    if (a.n == 0) return;
    const gpu_grid grid = {blocks, 1, 1,
                           (unsigned)(a.q8 ? int{GROUP_WARPS} : int{WARPS}) * GPU_WARP};
#define LAUNCH(F, C) gpu_launch<ffn_kernel<F, C>>(s, grid, a)
#define FORMAT(F)    GPU_COLUMNS_SWITCH(F, a.in.n_cols, LAUNCH)
    GPU_FORMAT_SWITCH(type);
#undef FORMAT
#undef LAUNCH
}

/* Gate and up of different types take two kernels: the first stores the activations of the gate in
 * h. */
void gpu_op_ffn_in(gpu_stream *s, const gpu_ffn_in *in) {
    ffn_args a = ffn_args();
    static_cast<gpu_ffn_in &>(a) = *in;
    a.skip = in->skip || in->list;
    if (in->given) {
        assert(!a.gate.data && !a.list);
        a.values = a.h;
        a.ldv = a.ldh;
    } else if (a.gate.data && a.up.data && a.gate.type != a.up.type) {
        a.up = gpu_mat();
        a.q8 = nullptr;
        launch(s, a.gate.type, a);
        a.q8 = in->q8;
        a.up = in->up;
        a.gate = gpu_mat();
        a.values = a.h;
        a.ldv = a.ldh;
    }
    launch(s, a.up.data ? a.up.type : a.gate.type, a);
}
