/* op_vector.cu: element by element: embedding rows, activations, sums. */
#include <assert.h>

#include "gpu_formats.h"
#include "op_table.h"

enum { THREADS = 256 };

/* ---- embedding --------------------------------------------------------------------------------
 */

struct embed_part {
    gpu_mat table;
    const gpu_column *cols;
    bool by_pos, add;
    int64_t offset;
    float scale;
    float *x;
    int64_t ldx;
};

template <class F> static __global__ void __launch_bounds__(THREADS) embed_kernel(embed_part a) {
    const int64_t c = blockIdx.y, i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= a.table.n_in) return;
    const int64_t r = (a.by_pos ? a.cols[c].pos : a.cols[c].token) + a.offset;
    const uint8_t *row = (const uint8_t *)a.table.data + (size_t)r * a.table.row_bytes;
    float *x = a.x + c * a.ldx + i;
    const float v = a.scale * F::value(row, a.table.n_in, i);
    *x = a.add ? *x + v : v;
}

static void embed_part_of(gpu_stream *s, const embed_part &p, int32_t n_cols) {
    const gpu_grid grid = {gpu_blocks(p.table.n_in, THREADS), (unsigned)n_cols, 1, THREADS};
#define FORMAT(F) gpu_launch(s, grid, embed_kernel<F>, p)
    GPU_FORMAT_SWITCH(p.table.type);
#undef FORMAT
}

void gpu_op_embed(gpu_stream *s, const gpu_embed *a) {
    assert(a->n_cols >= 1);
    const embed_part tokens = {a->table, a->cols, false, false, 0, a->scale, a->x, a->ldx};
    embed_part_of(s, tokens, a->n_cols);
    if (!a->pos_table.data) return;
    const embed_part places = {a->pos_table,  a->cols, true, true,
                               a->pos_offset, 1.0f,    a->x, a->ldx};
    embed_part_of(s, places, a->n_cols);
}

/* ---- activations and sums ---------------------------------------------------------------------
 */

static __global__ void __launch_bounds__(THREADS) activate_kernel(gpu_activate a) {
    const int64_t c = blockIdx.y, i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= a.n) return;
    float v = gpu_activation(a.f, a.threshold, a.gate[c * a.ldg + i]);
    if (fabsf(v) <= a.cut || !gpu_chosen(a.bitmap, a.n_words, c, a.first_bit + i)) v = 0.0f;
    a.y[c * a.ldy + i] = a.up ? gpu_gated(a.f, v, a.up[c * a.ldu + i]) : v;
}

void gpu_op_activate(gpu_stream *s, const gpu_activate *a) {
    assert(a->n_cols >= 1 && a->n >= 1);
    const gpu_grid grid = {gpu_blocks(a->n, THREADS), (unsigned)a->n_cols, 1, THREADS};
    gpu_launch(s, grid, activate_kernel, *a);
}

static __global__ void __launch_bounds__(THREADS) add_kernel(gpu_add a) {
    const int64_t c = blockIdx.y, i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= a.n) return;
    float v = a.y[c * a.ldy + i];
    if (a.x) v += a.x[c * a.ldx + i];
    if (a.bias) v += a.bias[i];
    a.y[c * a.ldy + i] = v;
}

void gpu_op_add(gpu_stream *s, const gpu_add *a) {
    assert(a->n_cols >= 1 && a->n >= 1);
    const gpu_grid grid = {gpu_blocks(a->n, THREADS), (unsigned)a->n_cols, 1, THREADS};
    gpu_launch(s, grid, add_kernel, *a);
}
