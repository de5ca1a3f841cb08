/* vulkan_op_mat.c: packing of rows, and products. */
#include <assert.h>
#include <stddef.h>

#include "quant_blocks.h"
#include "vulkan_ops.h"

/* ---- packing --------------------------------------------------------------------------------- */

enum { MOST_PARTS = 4 };

/* Bytes of a block that stay contiguous, in the order of the packed row. */
typedef struct pack_layout {
    uint32_t elems, n_bytes; /* of a block */
    uint32_t from[MOST_PARTS], bytes[MOST_PARTS];
} pack_layout;

#define FROM(block, name)  offsetof(struct block, name)
#define BYTES(block, name) sizeof(((struct block *)0)->name)
/* Of the fields from `first` to the end of `last`. */
#define SPAN(block, first, last) (FROM(block, last) + BYTES(block, last) - FROM(block, first))

static pack_layout layout_of(quant_type type) {
    switch (type) {
#define HALVES(TYPE, block, elems, values, first, last)                                            \
    case QUANT_##TYPE:                                                                             \
        return (pack_layout){elems,                                                                \
                             sizeof(struct block),                                                 \
                             {FROM(block, values), FROM(block, first)},                            \
                             {BYTES(block, values), SPAN(block, first, last)}};
        HALVES(Q4_0, block_q4_0, 32, qs, d, d)
        HALVES(Q4_1, block_q4_1, 32, qs, d, m)
        HALVES(Q8_0, block_q8_0, 32, qs, d, d)
        HALVES(IQ4_NL, block_iq4_nl, 32, qs, d, d)
        HALVES(NVFP4, block_nvfp4, 64, qs, d, d)
        HALVES(Q4_K, block_q4_k, 256, qs, d, scales)
        HALVES(IQ4_XS, block_iq4_xs, 256, qs, d, scales_l)
        HALVES(MXFP4, block_mxfp4, 32, qs, e, e)
#undef HALVES
#define THIRDS(TYPE, block, elems, values, bits, first, last)                                      \
    case QUANT_##TYPE:                                                                             \
        return (pack_layout){                                                                      \
            elems,                                                                                 \
            sizeof(struct block),                                                                  \
            {FROM(block, values), FROM(block, bits), FROM(block, first)},                          \
            {BYTES(block, values), BYTES(block, bits), SPAN(block, first, last)}};
        THIRDS(Q5_0, block_q5_0, 32, qs, qh, d, d)
        THIRDS(Q5_1, block_q5_1, 32, qs, qh, d, m)
        THIRDS(Q2_K, block_q2_k, 256, qs, scales, d, dmin)
        THIRDS(Q3_K, block_q3_k, 256, qs, hmask, scales, d)
        THIRDS(Q5_K, block_q5_k, 256, qs, qh, d, scales)
#undef THIRDS
    case QUANT_Q6_K:
        return (pack_layout){256,
                             sizeof(block_q6_k),
                             {FROM(block_q6_k, ql), FROM(block_q6_k, qh), FROM(block_q6_k, scales),
                              FROM(block_q6_k, d)},
                             {BYTES(block_q6_k, ql), BYTES(block_q6_k, qh),
                              BYTES(block_q6_k, scales), BYTES(block_q6_k, d)}};
    default: { /* floats, and three bits and less: blocks stay whole */
        const quant_traits *t = quant_find((uint32_t)type);
        return (pack_layout){
            (uint32_t)t->block_elems, (uint32_t)t->block_bytes, {0}, {(uint32_t)t->block_bytes}};
    }
    }
}

void vulkan_op_pack(gpu_stream *s, const gpu_pack *a) {
    enum { PER_GROUP = 128 };
    const pack_layout layout = layout_of(a->dst.type);
    assert(a->dst.n_in >= 1 && a->dst.n_in % layout.elems == 0);
    assert(a->row0 >= 0 && a->row0 + a->n_rows <= a->dst.n_out && !a->dst.in_file);
    vulkan_pack_args args = {.src = vulkan_address(a->src),
                             .dst = vulkan_address(a->dst.data) +
                                    (uint64_t)a->row0 * a->dst.row_bytes,
                             .src_row_bytes = a->src_row_bytes,
                             .row_bytes = a->dst.row_bytes,
                             .n_rows = (int32_t)a->n_rows,
                             .n_blocks = (int32_t)(a->dst.n_in / layout.elems),
                             .block_bytes = layout.n_bytes};
    for (int i = 0; i < MOST_PARTS; i++) {
        args.part_from[i] = layout.from[i];
        args.part_bytes[i] = layout.bytes[i];
    }
    vulkan_dispatch(s, VULKAN_PACK, (vulkan_variant){0}, &args, sizeof args,
                    vulkan_groups(args.n_blocks, PER_GROUP), vulkan_groups(a->n_rows, 1), 1);
}

/* ---- products -------------------------------------------------------------------------------- */

enum {
    ROWS_PER_GROUP = 8, /* with subgroups of 32 lanes; smaller ones do more, larger ones loop */
    TILE = 64           /* outputs and columns of a workgroup of matmul.comp and matmul_t.comp */
};

static vulkan_product_args product_args(const gpu_matmul *a, const void *q8) {
    return (vulkan_product_args){.w = vulkan_address(a->w.data),
                                 .x = vulkan_address(a->in.x),
                                 .q8 = vulkan_address(q8),
                                 .bias = vulkan_address(a->bias),
                                 .y = vulkan_address(a->y),
                                 .row_bytes = a->w.row_bytes,
                                 .n_in = (int32_t)a->w.n_in,
                                 .n_out = (int32_t)a->w.n_out,
                                 .n_cols = a->in.n_cols,
                                 .ldx = (int32_t)a->in.ldx,
                                 .ldy = (int32_t)a->ldy,
                                 .scale = a->scale,
                                 .flags = (a->add ? PRODUCT_ADD : 0u) |
                                          (a->relu ? PRODUCT_RELU : 0u) |
                                          (a->scale_last ? PRODUCT_SCALE_LAST : 0u)};
}

static void few_columns(gpu_stream *s, const gpu_matmul *a, const void *q8, bool beside) {
    const vulkan_product_args args = product_args(a, q8);
    const vulkan_variant v = {.weights = vulkan_weights(&a->w), .cols = vulkan_cols(a->in.n_cols)};
    const int64_t groups = vulkan_groups(a->w.n_out, ROWS_PER_GROUP);
    if (beside)
        vulkan_dispatch_beside(s, VULKAN_MATVEC, v, &args, sizeof args, groups, 1, 1);
    else
        vulkan_dispatch(s, VULKAN_MATVEC, v, &args, sizeof args, groups, 1, 1);
}

/* The products read one input and write apart, so they may run together. */
void vulkan_op_matvec(gpu_stream *s, const gpu_matmul *a, int32_t n) {
    assert(n >= 1 && n <= GPU_MAX_PRODUCTS);
    for (int32_t i = 0; i < n; i++) {
        assert(a[i].in.n_cols >= 1 && a[i].in.n_cols <= GPU_MAX_COLS);
        assert(!gpu_type_wants_q8(a[i].w.type) || a[i].in.q8);
        assert(!a[i].norm || (n == 1 && a->in.n_cols == 1 && a->norm->x == a->y));
        few_columns(s, &a[i], a[i].in.q8, i > 0);
    }
    if (a->norm) vulkan_op_norm(s, a->norm);
}

/* Quantized weights are multiplied with the int8 form of the columns, made in `scratch`. */
void vulkan_op_matmul(gpu_stream *s, const gpu_matmul *a) {
    const bool quantized = gpu_type_wants_q8(a->w.type);
    assert(a->in.n_cols >= 1 && a->in.n_cols <= GPU_MAX_BATCH && a->in.ldx % 4 == 0);
    assert(!quantized || a->scratch);
    const gpu_quantize q = {
        .x = a->in.x, .ldx = a->in.ldx, .n = a->w.n_in, .n_cols = a->in.n_cols, .q8 = a->scratch};
    if (quantized && !a->rounded) vulkan_op_quantize(s, &q);
    if (a->in.n_cols <= GPU_MAX_COLS) {
        few_columns(s, a, a->scratch, false);
        return;
    }
    const vulkan_product_args args = product_args(a, a->scratch);
    vulkan_dispatch(s, VULKAN_MATMUL, (vulkan_variant){.weights = vulkan_weights(&a->w)}, &args,
                    sizeof args, (a->w.n_out + TILE - 1) / TILE, (a->in.n_cols + TILE - 1) / TILE,
                    1);
}

/* Multiplies floats, because the terms of a sum have different scales. */
void vulkan_op_matmul_t(gpu_stream *s, const gpu_matmul *a) {
    assert(a->in.n_cols >= 1 && a->in.n_cols <= GPU_MAX_BATCH && a->in.ldx % 4 == 0);
    const vulkan_product_args args = product_args(a, NULL);
    vulkan_dispatch(s, VULKAN_MATMUL_T, (vulkan_variant){.weights = vulkan_weights(&a->w)}, &args,
                    sizeof args, (a->w.n_in + TILE - 1) / TILE, (a->in.n_cols + TILE - 1) / TILE,
                    1);
}
