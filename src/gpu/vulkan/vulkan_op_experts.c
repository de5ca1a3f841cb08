/* vulkan_op_experts.c: mixtures of experts. */
#include <assert.h>

#include "vulkan_ops.h"

static_assert((int)GATING_SOFTMAX == (int)GPU_GATING_SOFTMAX &&
                  (int)GATING_SIGMOID == (int)GPU_GATING_SIGMOID &&
                  (int)GATING_SOFTMAX_CHOSEN == (int)GPU_GATING_SOFTMAX_CHOSEN &&
                  (int)GATING_SQRT_SOFTPLUS == (int)GPU_GATING_SQRT_SOFTPLUS,
              "gatings as in the shader");
static_assert((int)RESULT_PRODUCT == (int)GPU_EXPERT_PRODUCT &&
                  (int)RESULT_ACTIVATED == (int)GPU_EXPERT_ACTIVATED &&
                  (int)RESULT_GATED == (int)GPU_EXPERT_GATED,
              "results as in the shader");
static_assert(sizeof(gpu_expert_tile) == 16, "a tile as in the shaders");

enum {
    GROUP = 32,
    ROWS_PER_GROUP = 8,
    SUMS_PER_GROUP = 256,
    TILE = 64,
    MOST_GROUPS_OF_EXPERTS = 64
};

static int32_t clamp_how(const gpu_clamp *c) {
    return (c->shifted ? 1 : 0) | (c->late ? 2 : 0);
}

void vulkan_op_route(gpu_stream *s, const gpu_route *a) {
    assert(a->n_cols >= 1 && a->n_used >= 1 && a->n_used <= a->n_expert);
    assert(a->n_expert <= GPU_MAX_EXPERTS && a->n_group <= MOST_GROUPS_OF_EXPERTS);
    vulkan_route_args args = {.scores = vulkan_address(a->scores),
                              .select_bias = vulkan_address(a->select_bias),
                              .perm = vulkan_address(a->perm),
                              .slots = vulkan_address(a->slots),
                              .uses = vulkan_address(a->uses),
                              .choices = vulkan_address(a->choices),
                              .by_token = vulkan_address(a->by_token),
                              .cols = vulkan_address(a->cols),
                              .lds = (int32_t)a->lds,
                              .n_expert = a->n_expert,
                              .n_used = a->n_used,
                              .n_group = a->n_group,
                              .n_group_used = a->n_group_used,
                              .gating = (int32_t)a->gating,
                              .norm = a->norm,
                              .share = a->share,
                              .scale = a->scale};
    if (a->send && a->send->host_bits) {
        args.host_bits = vulkan_address(a->send->host_bits);
        args.epoch = vulkan_address(a->send->epoch);
    }
    vulkan_dispatch(s, VULKAN_ROUTE, (vulkan_variant){0}, &args, sizeof args, a->n_cols, 1, 1);
    if (a->send) vulkan_raise(s, a->send, a->n_cols);
}

static void launch_in(gpu_stream *s, const gpu_expert_in *a, const gpu_mat *gate, const gpu_mat *up,
                      bool given, void *q8) {
    const gpu_mat *w = up->data ? up : gate;
    const vulkan_expert_in_args args = {.gate = vulkan_address(gate->data),
                                        .up = vulkan_address(up->data),
                                        .gate_bias = vulkan_address(a->gate_bias),
                                        .up_bias = vulkan_address(a->up_bias),
                                        .gate_scales = vulkan_address(a->gate_scales),
                                        .up_scales = vulkan_address(a->up_scales),
                                        .choices = vulkan_address(a->choices),
                                        .x = vulkan_address(a->in.x),
                                        .q8 = vulkan_address(a->in.q8),
                                        .fired = vulkan_address(a->fired),
                                        .h = vulkan_address(a->h),
                                        .h_q8 = vulkan_address(q8),
                                        .row_bytes = w->row_bytes,
                                        .n = (int32_t)a->n,
                                        .step = (int32_t)a->step,
                                        .n_in = (int32_t)w->n_in,
                                        .ldx = (int32_t)a->in.ldx,
                                        .n_used = a->n_used,
                                        .n_own = a->n_own,
                                        .n_pairs = a->n_cols * a->n_used,
                                        .ldh = (int32_t)a->ldh,
                                        .f = (int32_t)a->f,
                                        .clamp_how = clamp_how(&a->clamp),
                                        .clamp = a->clamp.most,
                                        .clamp_soft = a->clamp.soft,
                                        .threshold = a->threshold,
                                        .flags = (a->weigh ? EXPERT_WEIGH : 0u) |
                                                 (a->skip ? EXPERT_SKIP : 0u)};
    const vulkan_variant v = {.weights = vulkan_weights(w),
                              .cols = 1,
                              .way = (gate->data ? FFN_GATE : 0u) | (up->data ? FFN_UP : 0u) |
                                     (given ? FFN_GIVEN : 0u)};
    vulkan_dispatch(s, VULKAN_EXPERT_IN, v, &args, sizeof args, a->n / GROUP,
                    vulkan_groups(args.n_pairs, 1), 1);
}

/* Gate and up of different types or layouts take two launches: the first stores the activations of
 * the gate in h. */
void vulkan_op_expert_in(gpu_stream *s, const gpu_expert_in *a) {
    const gpu_mat none = {0};
    assert(a->n_cols >= 1 && a->n_used >= 1 && a->n % GROUP == 0);
    if (a->gate.data && vulkan_weights(&a->gate) != vulkan_weights(&a->up)) {
        launch_in(s, a, &a->gate, &none, false, NULL);
        launch_in(s, a, &none, &a->up, true, a->q8);
    } else {
        launch_in(s, a, &a->gate, &a->up, false, a->q8);
    }
}

void vulkan_op_expert_matvec(gpu_stream *s, const gpu_expert_matvec *a) {
    assert(a->n_pairs >= 1 && a->in.n_cols == a->n_pairs);
    const vulkan_expert_matvec_args args = {.w = vulkan_address(a->w.data),
                                            .bias = vulkan_address(a->bias),
                                            .scales = vulkan_address(a->scales),
                                            .choices = vulkan_address(a->choices),
                                            .x = vulkan_address(a->in.x),
                                            .q8 = vulkan_address(a->in.q8),
                                            .y = vulkan_address(a->y),
                                            .row_bytes = a->w.row_bytes,
                                            .n_in = (int32_t)a->w.n_in,
                                            .n_out = (int32_t)a->w.n_out,
                                            .ldx = (int32_t)a->in.ldx,
                                            .ldy = (int32_t)a->ldy,
                                            .n_pairs = a->n_pairs,
                                            .n_own = a->n_own};
    vulkan_dispatch(s, VULKAN_EXPERT_MATVEC,
                    (vulkan_variant){.weights = vulkan_weights(&a->w), .cols = 1}, &args,
                    sizeof args, vulkan_groups(a->w.n_out, ROWS_PER_GROUP),
                    vulkan_groups(a->n_pairs, 1), 1);
}

void vulkan_op_expert_down(gpu_stream *s, const gpu_expert_down *a) {
    assert(a->n_cols >= 1 && a->n_used >= 1 && a->n >= 1);
    const vulkan_expert_down_args args = {.w = vulkan_address(a->w.data),
                                          .bias = vulkan_address(a->bias),
                                          .scales = vulkan_address(a->scales),
                                          .choices = vulkan_address(a->choices),
                                          .h = vulkan_address(a->h),
                                          .fired = vulkan_address(a->fired),
                                          .y = vulkan_address(a->y),
                                          .row_bytes = a->w.row_bytes,
                                          .n_in = (int32_t)a->w.n_in,
                                          .n = (int32_t)a->n,
                                          .ldh = (int32_t)a->ldh,
                                          .ldy = (int32_t)a->ldy,
                                          .n_pairs = a->n_cols * a->n_used,
                                          .n_own = a->n_own};
    vulkan_dispatch(s, VULKAN_EXPERT_DOWN,
                    (vulkan_variant){.weights = vulkan_weights(&a->w), .cols = 1}, &args,
                    sizeof args, vulkan_stretches(&a->w), vulkan_groups(args.n_pairs, 1), 1);
}

void vulkan_op_expert_sum(gpu_stream *s, const gpu_expert_sum *a) {
    assert(a->n_cols >= 1 && a->n >= 1 && a->n_used >= 1);
    const vulkan_expert_sum_args args = {.x = vulkan_address(a->x),
                                         .choices = vulkan_address(a->choices),
                                         .shared_x = vulkan_address(a->shared),
                                         .shared_score = vulkan_address(a->shared_score),
                                         .used = vulkan_address(a->used),
                                         .y = vulkan_address(a->y),
                                         .ldx = (int32_t)a->ldx,
                                         .ldy = (int32_t)a->ldy,
                                         .n = (int32_t)a->n,
                                         .n_used = a->n_used,
                                         .n_own = a->n_own,
                                         .n_cols = a->n_cols,
                                         .lds = (int32_t)a->lds,
                                         .ld_score = (int32_t)a->ld_score,
                                         .scale = a->scale,
                                         .flags = (a->set ? SUM_SET : 0u) |
                                                  (a->weighed ? SUM_WEIGHED : 0u)};
    vulkan_dispatch(s, VULKAN_EXPERT_SUM, (vulkan_variant){0}, &args, sizeof args,
                    vulkan_groups(a->n, SUMS_PER_GROUP), a->n_cols, 1);
}

void vulkan_op_expert_group(gpu_stream *s, const gpu_expert_group *a) {
    assert(a->n_cols >= 1 && a->n_used >= 1);
    assert(a->n_own >= 1 && a->n_own <= GPU_MAX_EXPERTS);
    const int32_t n_pairs = a->n_cols * a->n_used;
    const vulkan_expert_group_args args = {.choices = vulkan_address(a->choices),
                                           .tile = vulkan_address(a->lists.tile),
                                           .n_listed = vulkan_address(a->lists.n_listed),
                                           .pair = vulkan_address(a->lists.pair),
                                           .column = vulkan_address(a->lists.column),
                                           .n_pairs = n_pairs,
                                           .n_used = a->n_used,
                                           .n_own = a->n_own,
                                           .n_tiles = gpu_expert_tiles(n_pairs, a->n_own)};
    vulkan_dispatch(s, VULKAN_EXPERT_GROUP, (vulkan_variant){0}, &args, sizeof args, 1, 1, 1);
}

/* With by_rows, multiplies floats, as matmul_t does. */
void vulkan_op_expert_matmul(gpu_stream *s, const gpu_expert_matmul *a) {
    const bool quantized = gpu_type_wants_q8(a->w.type) && !a->by_rows;
    const int64_t n_out = a->by_rows ? a->w.n_in : a->w.n_out;
    assert(a->n_cols >= 1 && a->n_used >= 1 && a->in.x && a->scratch);
    assert(!a->by_rows || a->result == GPU_EXPERT_PRODUCT);
    const gpu_quantize q = {.x = a->in.x,
                            .ldx = a->in.ldx,
                            .n = a->w.n_in,
                            .n_cols = a->in.n_cols,
                            .q8 = a->scratch,
                            .list = a->of_pairs ? a->lists.pair : NULL,
                            .n_listed = a->of_pairs ? a->lists.n_listed : NULL};
    if (quantized && !a->rounded) vulkan_op_quantize(s, &q);
    const vulkan_expert_matmul_args args = {.w = vulkan_address(a->w.data),
                                            .bias = vulkan_address(a->bias),
                                            .scales = vulkan_address(a->scales),
                                            .choices = vulkan_address(a->choices),
                                            .tile = vulkan_address(a->lists.tile),
                                            .pair = vulkan_address(a->lists.pair),
                                            .column = vulkan_address(a->lists.column),
                                            .x = vulkan_address(a->in.x),
                                            .q8 = vulkan_address(a->scratch),
                                            .y = vulkan_address(a->y),
                                            .row_bytes = a->w.row_bytes,
                                            .n_in = (int32_t)a->w.n_in,
                                            .n_out = (int32_t)a->w.n_out,
                                            .step = (int32_t)a->step,
                                            .ldx = (int32_t)a->in.ldx,
                                            .ldy = (int32_t)a->ldy,
                                            .result = (int32_t)a->result,
                                            .f = (int32_t)a->f,
                                            .clamp_how = clamp_how(&a->clamp),
                                            .clamp = a->clamp.most,
                                            .clamp_soft = a->clamp.soft,
                                            .threshold = a->threshold,
                                            .flags = (a->weigh ? EXPERT_WEIGH : 0u) |
                                                     (a->of_pairs ? MATMUL_OF_PAIRS : 0u)};
    vulkan_dispatch(s, a->by_rows ? VULKAN_EXPERT_MATMUL_T : VULKAN_EXPERT_MATMUL,
                    (vulkan_variant){.weights = vulkan_weights(&a->w)}, &args, sizeof args,
                    (n_out + TILE - 1) / TILE, gpu_expert_tiles(a->n_cols * a->n_used, a->n_own),
                    1);
}
