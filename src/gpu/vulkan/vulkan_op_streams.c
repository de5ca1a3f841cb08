/* vulkan_op_streams.c: several residual streams. */
#include <assert.h>

#include "vulkan_ops.h"

enum { ELEMENTS = 128 /* of a workgroup with a thread for each */ };
static_assert(GPU_MAX_STREAMS * GPU_MAX_STREAMS <= (int)ELEMENTS, "a thread for each weight");

void vulkan_op_mix(gpu_stream *s, const gpu_mix *a) {
    assert(a->n_cols >= 1 && a->n >= 1 && (!a->corrects || (a->y && a->scale)));
    assert(a->n_stream >= 2 && a->n_stream <= GPU_MAX_STREAMS);
    const vulkan_mix_args args = {.router = vulkan_address(a->router),
                                  .coefficients = vulkan_address(a->coefficients),
                                  .scale = vulkan_address(a->scale),
                                  .streams = vulkan_address(a->streams),
                                  .x = vulkan_address(a->x),
                                  .y = vulkan_address(a->y),
                                  .lds = (int32_t)a->lds,
                                  .ldr = (int32_t)a->ldr,
                                  .ldx = (int32_t)a->ldx,
                                  .ldy = (int32_t)a->ldy,
                                  .n = (int32_t)a->n,
                                  .n_stream = a->n_stream};
    vulkan_dispatch(s, VULKAN_MIX, (vulkan_variant){.way = a->corrects ? MIX_CORRECTS : 0}, &args,
                    sizeof args, (a->n + ELEMENTS - 1) / ELEMENTS, a->n_cols, 1);
}

void vulkan_op_merge(gpu_stream *s, const gpu_merge *a) {
    assert(a->n_cols >= 1 && a->n >= 1);
    assert(a->n_stream >= 2 && a->n_stream <= GPU_MAX_STREAMS);
    const vulkan_merge_args args = {.streams = vulkan_address(a->streams),
                                    .others = vulkan_address(a->others),
                                    .x = vulkan_address(a->x),
                                    .lds = (int32_t)a->lds,
                                    .ldo = (int32_t)a->ldo,
                                    .ldx = (int32_t)a->ldx,
                                    .n = (int32_t)a->n,
                                    .n_stream = a->n_stream};
    vulkan_dispatch(s, VULKAN_MERGE, (vulkan_variant){0}, &args, sizeof args, a->n_cols, 1, 1);
}

void vulkan_op_hyper(gpu_stream *s, const gpu_hyper *a) {
    assert(a->n_cols >= 1 && a->n >= 1 && a->n_stream >= 2);
    assert(a->rounds == 0 || (a->adds && a->n_stream <= GPU_MAX_STREAMS));
    const vulkan_hyper_args args = {.weights = vulkan_address(a->weights),
                                    .base = vulkan_address(a->base),
                                    .scale = vulkan_address(a->scale),
                                    .streams = vulkan_address(a->streams),
                                    .x = vulkan_address(a->x),
                                    .factor = a->factor,
                                    .eps = a->eps,
                                    .mix_eps = a->mix_eps,
                                    .lds = (int32_t)a->lds,
                                    .ldw = (int32_t)a->ldw,
                                    .ldx = (int32_t)a->ldx,
                                    .n = (int32_t)a->n,
                                    .n_stream = a->n_stream,
                                    .rounds = a->rounds};
    const uint32_t way = a->rounds > 0 ? HYPER_MIXES : a->adds ? HYPER_ADDS : 0;
    vulkan_dispatch(s, VULKAN_HYPER, (vulkan_variant){.way = way}, &args, sizeof args,
                    (a->n + ELEMENTS - 1) / ELEMENTS, a->n_cols, 1);
}

void vulkan_op_hyper_mean(gpu_stream *s, const gpu_hyper_mean *a) {
    assert(a->n_cols >= 1 && a->n >= 1 && a->n_stream >= 2);
    const vulkan_hyper_mean_args args = {.y = vulkan_address(a->y),
                                         .gate = vulkan_address(a->gate),
                                         .x = vulkan_address(a->x),
                                         .ldy = (int32_t)a->ldy,
                                         .ldg = (int32_t)a->ldg,
                                         .ldx = (int32_t)a->ldx,
                                         .n = (int32_t)a->n,
                                         .n_stream = a->n_stream};
    vulkan_dispatch(s, VULKAN_HYPER_MEAN, (vulkan_variant){0}, &args, sizeof args,
                    (a->n + ELEMENTS - 1) / ELEMENTS, a->n_cols, 1);
}

void vulkan_op_past(gpu_stream *s, const gpu_past *a) {
    assert(a->n_cols >= 1 && a->n >= 1 && a->n_past >= 0 && a->n_past < GPU_MAX_PASTS);
    const vulkan_past_args args = {.score = vulkan_address(a->score),
                                   .streams = vulkan_address(a->streams),
                                   .x = vulkan_address(a->x),
                                   .eps = a->eps,
                                   .lds = (int32_t)a->lds,
                                   .ldx = (int32_t)a->ldx,
                                   .n = (int32_t)a->n,
                                   .n_past = a->n_past,
                                   .begins = a->begins};
    if (a->adds)
        vulkan_dispatch(s, VULKAN_PAST_ADD, (vulkan_variant){0}, &args, sizeof args,
                        (a->n + ELEMENTS - 1) / ELEMENTS, a->n_cols, 1);
    else
        vulkan_dispatch(s, VULKAN_PAST, (vulkan_variant){0}, &args, sizeof args, a->n_cols, 1, 1);
}
