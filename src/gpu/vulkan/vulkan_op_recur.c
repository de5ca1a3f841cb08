/* vulkan_op_recur.c: recurrent layers: the convolution, the recurrence, the gated norm. */
#include <assert.h>
#include <stddef.h>

#include "vulkan_ops.h"

static_assert((int)RECUR_SSM == (int)GPU_RECUR_SSM && (int)RECUR_SCAN == (int)GPU_RECUR_SCAN &&
                  (int)RECUR_DELTA == (int)GPU_RECUR_DELTA && (int)RECUR_KDA == (int)GPU_RECUR_KDA,
              "kinds as in the shader");
static_assert(offsetof(gpu_column, at) == 24 && offsetof(gpu_column, run) == 28 &&
                  offsetof(gpu_column, n_before) == 32 && offsetof(gpu_column, state_from) == 40 &&
                  offsetof(gpu_column, state_to) == 48 && offsetof(gpu_column, state_before) == 56,
              "a column as in column.glsl");

void vulkan_op_conv(gpu_stream *s, const gpu_conv *a) {
    enum { CHANNELS = 128 };
    assert(a->n_cols >= 1 && a->n_taps >= 1 && a->n_taps <= GPU_MAX_TAPS && a->part >= 1);
    const vulkan_conv_args args = {.x = vulkan_address(a->x),
                                   .by = vulkan_address(a->by),
                                   .gate = vulkan_address(a->gate),
                                   .taps = {vulkan_address(a->taps[0]), vulkan_address(a->taps[1]),
                                            vulkan_address(a->taps[2])},
                                   .bias = vulkan_address(a->bias),
                                   .cols = vulkan_address(a->cols),
                                   .y = vulkan_address(a->y),
                                   .at = a->at,
                                   .ldx = (int32_t)a->ldx,
                                   .ldb = (int32_t)a->ldb,
                                   .ldg = (int32_t)a->ldg,
                                   .ldy = (int32_t)a->ldy,
                                   .n = (int32_t)a->n,
                                   .part = (int32_t)a->part,
                                   .n_taps = a->n_taps};
    vulkan_dispatch(s, VULKAN_CONV, (vulkan_variant){0}, &args, sizeof args,
                    vulkan_groups(a->n, CHANNELS), a->n_cols, 1);
}

void vulkan_op_recur(gpu_stream *s, const gpu_recur *a) {
    enum { ROWS = 16, LANES = 8 /* of a row */ };
    assert(a->n_cols >= 1 && a->n_state <= GPU_MAX_STATE && a->n_head % a->n_group == 0);
    assert(!a->keys || a->n_group == 1);
    assert(a->kind != GPU_RECUR_SCAN || (a->n_head == 1 && a->keys && a->step && a->skip));
    const vulkan_recur_args args = {.x = vulkan_address(a->x),
                                    .steps = vulkan_address(a->step),
                                    .beta = vulkan_address(a->beta),
                                    .keys = vulkan_address(a->keys),
                                    .queries = vulkan_address(a->queries),
                                    .dt_bias = vulkan_address(a->dt_bias),
                                    .rates = vulkan_address(a->a),
                                    .skip = vulkan_address(a->skip),
                                    .cols = vulkan_address(a->cols),
                                    .y = vulkan_address(a->y),
                                    .at = a->at,
                                    .ldx = (int32_t)a->ldx,
                                    .lds = (int32_t)a->lds,
                                    .ldb = (int32_t)a->ldb,
                                    .ldk = (int32_t)a->ldk,
                                    .ldy = (int32_t)a->ldy,
                                    .n_head = a->n_head,
                                    .n_group = a->n_group,
                                    .head_dim = a->head_dim,
                                    .n_state = a->n_state,
                                    .eps = a->eps,
                                    .least_decay = a->least_decay,
                                    .flags = (a->groups_alternate ? RECUR_ALTERNATE : 0u) |
                                             (a->paired ? RECUR_PAIRED : 0u)};
    const uint32_t elems = (uint32_t)((a->n_state + LANES - 1) / LANES);
    const int64_t groups = (int64_t)a->n_head * ((a->head_dim + ROWS - 1) / ROWS);
    vulkan_dispatch(s, VULKAN_RECUR,
                    (vulkan_variant){.way = (uint32_t)a->kind + RECUR_KINDS * elems}, &args,
                    sizeof args, groups, a->n_cols, 1);
}

void vulkan_op_gate(gpu_stream *s, const gpu_gate *a) {
    assert(a->n_cols >= 1 && a->width >= 1 && a->n % a->width == 0 && a->share >= 1);
    const vulkan_gate_args args = {.x = vulkan_address(a->x),
                                   .gate = vulkan_address(a->gate),
                                   .norm = vulkan_address(a->norm),
                                   .ldg = (int32_t)a->ldg,
                                   .ldx = (int32_t)a->ldx,
                                   .width = (int32_t)a->width,
                                   .share = (int32_t)a->share,
                                   .eps = a->eps,
                                   .flags = (a->first ? GATE_FIRST : 0u) |
                                            (a->sigmoid ? GATE_SIGMOID : 0u)};
    vulkan_dispatch(s, VULKAN_GATE, (vulkan_variant){0}, &args, sizeof args, a->n / a->width,
                    a->n_cols, 1);
}
