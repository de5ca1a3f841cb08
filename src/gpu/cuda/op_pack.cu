/* op_pack.cu: GGUF rows become packed rows (gpu_mat): quants first, then scales. Done once, when
 * weights are loaded: a thread moves one block. */
#include <assert.h>

#include "gpu_kernel.h"
#include "op_table.h"
#include "quant_blocks.h"

enum { THREADS = 128 };

static __device__ __forceinline__ void move(uint8_t *to, const void *from, int n) {
    for (int i = 0; i < n; i++) to[i] = ((const uint8_t *)from)[i];
}

/* Block `b` of a row of n elements. GGUF rows are aligned to 2 bytes at best: bytes are moved. */
static __device__ __forceinline__ void pack_block(quant_type type, const uint8_t *src, uint8_t *row,
                                                  int64_t n, int64_t b) {
    switch (type) {
    case QUANT_Q8_0: {
        const block_q8_0 *q = (const block_q8_0 *)src + b;
        move(row + 32 * b, q->qs, 32);
        move(row + n + 2 * b, &q->d, 2);
        break;
    }
    case QUANT_Q4_0: {
        const block_q4_0 *q = (const block_q4_0 *)src + b;
        move(row + 16 * b, q->qs, 16);
        move(row + n / 2 + 2 * b, &q->d, 2);
        break;
    }
    case QUANT_MXFP4: {
        const block_mxfp4 *q = (const block_mxfp4 *)src + b;
        move(row + 16 * b, q->qs, 16);
        row[n / 2 + b] = q->e;
        break;
    }
    case QUANT_Q4_K: {
        const block_q4_K *q = (const block_q4_K *)src + b;
        move(row + 128 * b, q->qs, 128);
        move(row + n / 2 + 16 * b, q, 16); /* d, dmin, scales: the block's first 16 bytes */
        break;
    }
    case QUANT_Q6_K: {
        const block_q6_K *q = (const block_q6_K *)src + b;
        move(row + 128 * b, q->ql, 128);
        move(row + n / 2 + 64 * b, q->qh, 64);
        move(row + n / 2 + n / 4 + 16 * b, q->scales, 16);
        move(row + n / 2 + n / 4 + n / 16 + 2 * b, &q->d, 2);
        break;
    }
    default: /* plain types: an element is a block */
        if (type == QUANT_F32)
            move(row + 4 * b, src + 4 * b, 4);
        else
            move(row + 2 * b, src + 2 * b, 2);
    }
}

struct pack_args {
    gpu_pack p;
    int64_t n_blocks; /* per row */
    size_t n_used;    /* bytes of a row; zeros follow */
};

static __global__ void __launch_bounds__(THREADS) pack_kernel(pack_args a) {
    const int64_t r = blockIdx.y + (int64_t)blockIdx.z * gridDim.y;
    const int64_t b = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (r >= a.p.n_rows) return;
    const uint8_t *src = (const uint8_t *)a.p.src + (size_t)r * a.p.src_row_bytes;
    uint8_t *row = (uint8_t *)a.p.dst.data + (size_t)(a.p.row0 + r) * a.p.dst.row_bytes;
    if (b < a.n_blocks) pack_block(a.p.dst.type, src, row, a.p.dst.n_in, b);
    if (b != 0) return;
    for (size_t i = a.n_used; i < a.p.dst.row_bytes; i++) row[i] = 0;
}

static int block_elems(quant_type type) {
    switch (type) {
    case QUANT_F32:
    case QUANT_F16:
    case QUANT_BF16:
        return 1;
    case QUANT_Q4_K:
    case QUANT_Q6_K:
        return QUANT_K;
    default:
        return 32;
    }
}

static size_t block_bytes(quant_type type) {
    switch (type) {
    case QUANT_F32:
        return 4;
    case QUANT_F16:
    case QUANT_BF16:
        return 2;
    case QUANT_Q8_0:
        return sizeof(block_q8_0);
    case QUANT_Q4_0:
        return sizeof(block_q4_0);
    case QUANT_MXFP4:
        return sizeof(block_mxfp4);
    case QUANT_Q4_K:
        return sizeof(block_q4_K);
    default:
        return sizeof(block_q6_K);
    }
}

void gpu_op_pack(gpu_stream *s, const gpu_pack *a) {
    enum { MAX_Y = 32768 }; /* a grid's second dimension ends at 65535 */
    assert(gpu_type_supported(a->dst.type) && a->dst.n_in % block_elems(a->dst.type) == 0);
    assert(a->row0 >= 0 && a->row0 + a->n_rows <= a->dst.n_out);
    if (a->n_rows == 0) return;
    pack_args p = {*a, a->dst.n_in / block_elems(a->dst.type), 0};
    p.n_used = (size_t)p.n_blocks * block_bytes(a->dst.type);
    const unsigned y = a->n_rows < MAX_Y ? (unsigned)a->n_rows : (unsigned)MAX_Y;
    const gpu_grid grid = {gpu_blocks(p.n_blocks, THREADS), y, gpu_blocks(a->n_rows, y), THREADS};
    gpu_launch(s, grid, pack_kernel, p);
}
