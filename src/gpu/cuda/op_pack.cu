/* op_pack.cu: converts GGUF rows to packed rows (gpu_mat): quants first, then scales. Runs once,
 * when weights are loaded; a thread moves one block, part by part. */
#include <assert.h>

#include "gpu_formats.h"
#include "gpu_kernel.h"
#include "op_table.h"
#include "quant_blocks.h"

enum { THREADS = 128, MAX_PARTS = 4 };

/* Bytes of a block that stay contiguous; parts are in the order of the packed row. */
struct pack_part {
    int from, n_bytes;
};

struct pack_layout {
    int elems; /* per block */
    size_t n_bytes;
    pack_part part[MAX_PARTS];
};

/* Contiguous fields of a block, from `first` to the end of `last`. */
#define FIELDS(block, first, last)                                                                 \
    {                                                                                              \
        (int)offsetof(block, first),                                                               \
            (int)(offsetof(block, last) + sizeof(block::last) - offsetof(block, first))            \
    }
#define FIELD(block, name) FIELDS(block, name, name)
static pack_layout layout_of(quant_type type) {
    switch (type) {
#define PLAIN(type, name, number, elems, bytes, ...)                                               \
    case QUANT_##type:                                                                             \
        return {elems, bytes, {{0, bytes}}};
#define LOW(type, name, number, elems, bytes, ...) PLAIN(type, name, number, elems, bytes)
#define BLOCK(type, name, number, elems, bytes, ...)                                               \
    case QUANT_##type:                                                                             \
        return {elems, bytes, {GPU_PARTS_##name}};
        QUANT_PLAIN(PLAIN)
        QUANT_BLOCKS(BLOCK)
        QUANT_LOW(LOW)
    default:
        assert(!"a type without kernels");
        return {};
    }
}

struct pack_args {
    gpu_pack p;
    pack_layout layout;
    int64_t n_blocks; /* per row */
    size_t n_used;    /* bytes of a row; zeros follow */
};

/* Moves single bytes: GGUF rows are aligned to at most 2 bytes. */
static __global__ void __launch_bounds__(THREADS) pack_kernel(pack_args a) {
    gpu_begin();
    const int64_t r = blockIdx.y + (int64_t)blockIdx.z * gridDim.y;
    const int64_t b = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (r >= a.p.n_rows || b >= a.n_blocks) return;
    const uint8_t *block = (const uint8_t *)a.p.src + (size_t)r * a.p.src_row_bytes +
                           (size_t)b * a.layout.n_bytes;
    uint8_t *row = (uint8_t *)a.p.dst.data + (size_t)(a.p.row0 + r) * a.p.dst.row_bytes;
    uint8_t *part = row; /* start of the part, for all blocks */
    GPU_UNROLL
    for (int i = 0; i < MAX_PARTS; i++) {
        const int n = a.layout.part[i].n_bytes;
        const uint8_t *from = block + a.layout.part[i].from;
        for (int k = 0; k < n; k++) part[b * n + k] = from[k];
        part += a.n_blocks * n;
    }
    if (b != 0) return;
    for (size_t i = a.n_used; i < a.p.dst.row_bytes; i++) row[i] = 0;
}

void gpu_op_pack(gpu_stream *s, const gpu_pack *a) {
    enum { MAX_Y = 32768 }; /* a grid's second dimension ends at 65535 */
    const pack_layout layout = layout_of(a->dst.type);
    assert(a->dst.n_in >= 1 && a->dst.n_in % layout.elems == 0);
    assert(a->row0 >= 0 && a->row0 + a->n_rows <= a->dst.n_out);
    if (a->n_rows == 0) return;
    pack_args p = {*a, layout, a->dst.n_in / layout.elems, 0};
    p.n_used = (size_t)p.n_blocks * layout.n_bytes;
    const unsigned y = a->n_rows < MAX_Y ? (unsigned)a->n_rows : (unsigned)MAX_Y;
    const gpu_grid grid = {gpu_blocks(p.n_blocks, THREADS), y, gpu_blocks(a->n_rows, y), THREADS};
    gpu_launch<pack_kernel>(s, grid, p);
}
