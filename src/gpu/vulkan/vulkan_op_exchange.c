/* vulkan_op_exchange.c: messages, and the device's clock. */
#include <assert.h>
#include <stddef.h>

#include "gpu_fault.h"
#include "vulkan.h"
#include "vulkan_ops.h"

static void idle_args(const gpu_idle *idle, uint64_t *choices, int32_t *n_used, int32_t *n_own,
                      uint32_t *flags) {
    *choices = vulkan_address(idle->choices);
    *n_used = idle->n_used;
    *n_own = idle->n_own;
    if (idle->others) *flags |= IDLE_OTHERS;
}

static void raise_flag(gpu_stream *s, vulkan_publish_args *args) {
    vulkan_dispatch(s, VULKAN_PUBLISH, (vulkan_variant){.way = 1}, args, sizeof *args, 1, 1, 1);
}

void vulkan_op_publish(gpu_stream *s, const gpu_publish *a) {
    assert(a->n_cols >= 1 && a->n_cols <= GPU_MAX_BATCH && a->flag && a->epoch);
    assert(!a->idle.choices || a->n_cols <= GPU_MAX_COLS);
    vulkan_publish_args args = {.x = vulkan_address(a->x),
                                .bits = vulkan_address(a->bits),
                                .host_x = vulkan_address(a->host_x),
                                .host_bits = vulkan_address(a->host_bits),
                                .flag = vulkan_address(a->flag),
                                .epoch = vulkan_address(a->epoch),
                                .ldx = (int32_t)a->ldx,
                                .n = (int32_t)a->n,
                                .n_cols = a->n_cols,
                                .n_words = (int32_t)a->n_words};
    idle_args(&a->idle, &args.choices, &args.n_used, &args.n_own, &args.flags);
    vulkan_dispatch(s, VULKAN_PUBLISH, (vulkan_variant){.way = 0}, &args, sizeof args, a->n_cols, 1,
                    1);
    raise_flag(s, &args);
}

void vulkan_raise(gpu_stream *s, const gpu_send *a, int32_t n_cols) {
    vulkan_publish_args args = {
        .flag = vulkan_address(a->flag), .epoch = vulkan_address(a->epoch), .n_cols = n_cols};
    if (!a->flag || !a->epoch) return;
    idle_args(&a->idle, &args.choices, &args.n_used, &args.n_own, &args.flags);
    raise_flag(s, &args);
}

void vulkan_op_receive(gpu_stream *s, const gpu_receive *a) {
    assert(a->n_cols >= 1 && a->n_cols <= GPU_MAX_BATCH && a->flag && a->epoch);
    assert((!a->host_bits || a->bits) && (!a->q8 || a->n % 32 == 0));
    vulkan_receive_args args = {.host_x = vulkan_address(a->host_x),
                                .host_bits = vulkan_address(a->host_bits),
                                .bits = vulkan_address(a->bits),
                                .flag = vulkan_address(a->flag),
                                .epoch = vulkan_address(a->epoch),
                                .fault = vulkan_address(vulkan_stream_fault(s)) +
                                         offsetof(struct gpu_fault, timed_out),
                                .y = vulkan_address(a->y),
                                .q8 = vulkan_address(a->q8),
                                .clear = vulkan_address(a->clear),
                                .n = (int32_t)a->n,
                                .ldy = (int32_t)a->ldy,
                                .n_cols = a->n_cols,
                                .n_words = (int32_t)a->n_words,
                                .ld_clear = (int32_t)a->ld_clear,
                                .flags = a->set ? RECEIVE_SET : 0};
    idle_args(&a->idle, &args.choices, &args.n_used, &args.n_own, &args.flags);
    vulkan_dispatch(s, VULKAN_RECEIVE, (vulkan_variant){0}, &args, sizeof args, a->n_cols, 1, 1);
    if (a->norm) vulkan_op_norm(s, a->norm);
}

void vulkan_op_stamp(gpu_stream *s, const gpu_stamp *a) {
    const double period = (double)vulkan_stream_abilities(s)->properties.limits.timestampPeriod;
    vulkan_stamp_args args = {.ns = vulkan_address(a->ns),
                              .ticks = vulkan_address(a->ns),
                              .period = (uint64_t)(period * 4096 + 0.5)};
    assert(a->ns);
    if (!vulkan_stream_ticks(s, a->ns)) args.period = 0;
    vulkan_dispatch(s, VULKAN_STAMP, (vulkan_variant){0}, &args, sizeof args, 1, 1, 1);
}
