/* vulkan_op_sparse.c: sparse FFNs: predictors, bitmaps and lists of selected neurons, sums of rows,
 * top-k. */
#include <assert.h>

#include "vulkan_ops.h"

/* The list of the neurons in these bitmaps. */
static void write_list(gpu_stream *s, const gpu_select *a, const uint32_t *bits) {
    const vulkan_list_args args = {.bits = vulkan_address(bits),
                                   .list = vulkan_address(a->list),
                                   .count = vulkan_address(a->count),
                                   .n_words = (int32_t)((a->n + 31) / 32),
                                   .n_list = (int32_t)a->n_list,
                                   .n_cols = a->n_cols};
    vulkan_dispatch(s, VULKAN_LIST, (vulkan_variant){0}, &args, sizeof args, 1, 1, 1);
}

void vulkan_op_select(gpu_stream *s, const gpu_select *a) {
    enum { PER_GROUP = 256 };
    assert(a->n_cols >= 1 && a->n_cols <= GPU_MAX_BATCH && a->n_list <= a->n);
    assert(a->v ? a->bitmap && !a->bits_in && !a->list : a->bits_in && a->list && a->count);
    if (!a->v) {
        write_list(s, a, a->bits_in);
        return;
    }
    const vulkan_select_args args = {.v = vulkan_address(a->v),
                                     .bias = vulkan_address(a->bias),
                                     .bitmap = vulkan_address(a->bitmap),
                                     .ldv = (int32_t)a->ldv,
                                     .n = (int32_t)a->n,
                                     .n_cols = a->n_cols,
                                     .cut = a->cut};
    vulkan_dispatch(s, VULKAN_SELECT, (vulkan_variant){0}, &args, sizeof args,
                    vulkan_groups(a->n, PER_GROUP), a->n_cols, 1);
}

/* Columns at a time: quantized columns are in shared memory, which has room for one long column. */
static uint32_t predicted_cols(const gpu_predict *a) {
    const uint32_t cols = vulkan_cols(a->in.n_cols);
    const bool quantized = !a->signs && gpu_type_wants_q8(a->w.type);
    return quantized && cols * gpu_q8_bytes(a->w.n_in) > gpu_q8_bytes(GPU_MAX_RANK) ? 1 : cols;
}

void vulkan_op_predict(gpu_stream *s, const gpu_predict *a) {
    enum { PER_GROUP = 32 };
    const int64_t groups = (a->w.n_out + PER_GROUP - 1) / PER_GROUP;
    assert(a->in.n_cols >= 1 && a->in.n_cols <= GPU_MAX_COLS && a->select.n == a->w.n_out);
    assert(a->select.n_cols == a->in.n_cols && groups <= VULKAN_MOST_GROUPS);
    assert(a->signs ? a->in.q8 && a->w.n_in % 32 == 0 : a->in.x && a->in.ldx % 4 == 0);
    assert(a->signs || !gpu_type_wants_q8(a->w.type) ||
           (a->w.n_in % 32 == 0 && a->w.n_in <= GPU_MAX_RANK));
    vulkan_predict_args args = {.w = vulkan_address(a->signs ? a->signs : a->w.data),
                                .x = vulkan_address(a->in.x),
                                .q8 = vulkan_address(a->in.q8),
                                .bias = vulkan_address(a->select.bias),
                                .bitmap = vulkan_address(a->select.bitmap),
                                .row_bytes = a->signs ? (uint64_t)a->w.n_in / 8 : a->w.row_bytes,
                                .n_in = (int32_t)a->w.n_in,
                                .n_out = (int32_t)a->w.n_out,
                                .n_cols = a->in.n_cols,
                                .ldx = (int32_t)a->in.ldx,
                                .scale = a->signs ? 1 : a->scale,
                                .cut = a->select.cut};
    if (a->send) {
        args.host_bits = vulkan_address(a->send->host_bits);
        args.epoch = vulkan_address(a->send->epoch);
    }
    const vulkan_variant v = {.weights = a->signs ? QUANT_F32 : vulkan_weights(&a->w),
                              .cols = predicted_cols(a),
                              .way = a->signs ? PREDICT_SIGNS : 0};
    vulkan_dispatch(s, VULKAN_PREDICT, v, &args, sizeof args, groups, 1, 1);
    if (a->send) vulkan_raise(s, a->send, a->in.n_cols);
    if (a->select.list) write_list(s, &a->select, a->select.bitmap);
}

void vulkan_op_down_rows(gpu_stream *s, const gpu_down_rows *a) {
    enum { OUTPUTS = 64 /* of a workgroup that adds parts */ };
    const uint32_t cols = a->n_cols == 1 ? 1 : 2;
    assert(a->n_cols >= 1 && a->n_cols <= GPU_MAX_COLS && a->partial);
    assert(!a->norm || (a->n_cols == 1 && a->norm->x == a->y));
    const vulkan_down_args args = {.w = vulkan_address(a->w.data),
                                   .list = vulkan_address(a->list),
                                   .count = vulkan_address(a->count),
                                   .h = vulkan_address(a->h),
                                   .bias = vulkan_address(a->bias),
                                   .fired = vulkan_address(a->fired),
                                   .partial = vulkan_address(a->partial),
                                   .y = vulkan_address(a->y),
                                   .row_bytes = a->w.row_bytes,
                                   .n_in = (int32_t)a->w.n_in,
                                   .n_max = (int32_t)a->n_max,
                                   .n_cols = a->n_cols,
                                   .ldh = (int32_t)a->ldh,
                                   .ldy = (int32_t)a->ldy,
                                   .add = a->add};
    vulkan_dispatch(s, VULKAN_DOWN,
                    (vulkan_variant){.weights = vulkan_weights(&a->w), .cols = cols}, &args,
                    sizeof args, vulkan_stretches(&a->w), GPU_DOWN_PARTS,
                    (a->n_cols + (int32_t)cols - 1) / (int32_t)cols);
    vulkan_dispatch(s, VULKAN_DOWN_ADD, (vulkan_variant){0}, &args, sizeof args,
                    (a->w.n_in + OUTPUTS - 1) / OUTPUTS, a->n_cols, 1);
    if (a->norm) vulkan_op_norm(s, a->norm);
}

void vulkan_op_top_k(gpu_stream *s, const gpu_top_k *a) {
    assert(a->n_cols >= 1 && a->n >= 1);
    const vulkan_top_k_args args = {.x = vulkan_address(a->x),
                                    .ldx = (int32_t)a->ldx,
                                    .n = (int32_t)a->n,
                                    .f = (int32_t)a->f,
                                    .deviations = a->deviations,
                                    .threshold = a->threshold};
    vulkan_dispatch(s, VULKAN_TOP_K, (vulkan_variant){0}, &args, sizeof args, a->n_cols, 1, 1);
}
