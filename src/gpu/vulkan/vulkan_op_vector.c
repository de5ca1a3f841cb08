/* vulkan_op_vector.c: norms, quantization, activations, sums, soft caps. */
#include <assert.h>

#include "vulkan_ops.h"

static_assert((int)NORM_RMS == (int)GPU_NORM_RMS && (int)NORM_LAYER == (int)GPU_NORM_LAYER &&
                  (int)NORM_NONE == (int)GPU_NORM_NONE,
              "kinds of norms as in the shader");
static_assert(ACTIVATION_SILU == 1 && ACTIVATION_GELU == 2 && ACTIVATION_RELU_SQUARED == 3 &&
                  ACTIVATION_DRELU == 4 && ACTIVATION_FATRELU == 5,
              "activations as in math.glsl");

void vulkan_op_norm(gpu_stream *s, const gpu_norm *a) {
    assert(a->n_cols >= 1 && a->ldx % 4 == 0 && (!a->q8 || a->n % 32 == 0));
    assert(!a->add || a->y);
    vulkan_norm_args args = {.x = vulkan_address(a->x),
                             .w = vulkan_address(a->w),
                             .b = vulkan_address(a->b),
                             .y = vulkan_address(a->y),
                             .q8 = vulkan_address(a->q8),
                             .bad = vulkan_address(a->bad),
                             .ldx = (int32_t)a->ldx,
                             .ldy = (int32_t)a->ldy,
                             .n = (int32_t)a->n,
                             .kind = a->kind,
                             .add = a->add,
                             .mark = a->mark,
                             .eps = a->eps,
                             .scale = a->scale,
                             .y_scale = a->y_scale};
    if (a->send) {
        args.host_x = vulkan_address(a->send->host_x);
        args.host_q8 = vulkan_address(a->send->host_q8);
        args.epoch = vulkan_address(a->send->epoch);
    }
    vulkan_dispatch(s, VULKAN_NORM, (vulkan_variant){0}, &args, sizeof args, a->n_cols, 1, 1);
    if (a->send) vulkan_raise(s, a->send, a->n_cols);
}

void vulkan_op_quantize(gpu_stream *s, const gpu_quantize *a) {
    enum { PER_GROUP = 512 };
    assert(a->n_cols >= 1 && a->ldx % 4 == 0 && a->n % 32 == 0);
    const vulkan_quantize_args args = {.x = vulkan_address(a->x),
                                       .q8 = vulkan_address(a->q8),
                                       .list = vulkan_address(a->list),
                                       .n_listed = vulkan_address(a->n_listed),
                                       .ldx = (int32_t)a->ldx,
                                       .n = (int32_t)a->n,
                                       .n_cols = a->n_cols};
    vulkan_dispatch(s, VULKAN_QUANTIZE, (vulkan_variant){0}, &args, sizeof args,
                    vulkan_groups(a->n, PER_GROUP), a->n_cols, 1);
}

void vulkan_op_activate(gpu_stream *s, const gpu_activate *a) {
    enum { PER_GROUP = 512 };
    assert(a->n_cols >= 1 && a->n >= 1 && (!a->q8 || a->n % 32 == 0));
    const vulkan_activate_args args = {.gate = vulkan_address(a->gate),
                                       .up = vulkan_address(a->up),
                                       .cut_weight = vulkan_address(a->cut_weight),
                                       .divisors = vulkan_address(a->divisors),
                                       .bitmap = vulkan_address(a->bitmap),
                                       .y = vulkan_address(a->y),
                                       .q8 = vulkan_address(a->q8),
                                       .ldg = (int32_t)a->ldg,
                                       .ldu = (int32_t)a->ldu,
                                       .ldy = (int32_t)a->ldy,
                                       .n = (int32_t)a->n,
                                       .n_cols = a->n_cols,
                                       .f = (int32_t)a->f,
                                       .clamp_how = (a->clamp.shifted ? 1 : 0) |
                                                    (a->clamp.late ? 2 : 0),
                                       .given = a->given,
                                       .n_words = (int32_t)a->n_words,
                                       .first_bit = (int32_t)a->first_bit,
                                       .clamp = a->clamp.most,
                                       .clamp_soft = a->clamp.soft,
                                       .threshold = a->threshold,
                                       .cut = a->cut,
                                       .cut_down = a->cut_down};
    vulkan_dispatch(s, VULKAN_ACTIVATE, (vulkan_variant){0}, &args, sizeof args,
                    vulkan_groups(a->n, PER_GROUP), a->n_cols, 1);
}

void vulkan_op_add(gpu_stream *s, const gpu_add *a) {
    enum { PER_GROUP = 256 };
    assert(a->n_cols >= 1 && a->n >= 1);
    const vulkan_add_args args = {.x = vulkan_address(a->x),
                                  .y = vulkan_address(a->y),
                                  .ldx = (int32_t)a->ldx,
                                  .ldy = (int32_t)a->ldy,
                                  .n = (int32_t)a->n,
                                  .n_cols = a->n_cols,
                                  .n_more = a->n_more,
                                  .step = (int32_t)a->step};
    vulkan_dispatch(s, VULKAN_ADD, (vulkan_variant){0}, &args, sizeof args,
                    vulkan_groups(a->n, PER_GROUP), a->n_cols, 1);
}

void vulkan_op_softcap(gpu_stream *s, const gpu_softcap *a) {
    enum { PER_GROUP = 256 };
    assert(a->n_cols >= 1 && a->n >= 1 && a->cap > 0);
    const vulkan_softcap_args args = {.y = vulkan_address(a->y),
                                      .ldy = (int32_t)a->ldy,
                                      .n = (int32_t)a->n,
                                      .n_cols = a->n_cols,
                                      .cap = a->cap};
    vulkan_dispatch(s, VULKAN_SOFTCAP, (vulkan_variant){0}, &args, sizeof args,
                    vulkan_groups(a->n, PER_GROUP), a->n_cols, 1);
}
