/* vulkan_op_ffn.c: the first half of an FFN. */
#include <assert.h>

#include "vulkan_ops.h"

enum { GROUP = 32, NEURONS_PER_GROUP = 4, LIST_GROUPS = 1024 };

static void launch(gpu_stream *s, const gpu_ffn_in *a, const gpu_mat *gate, const gpu_mat *up,
                   bool given, bool quantizes) {
    const gpu_mat *w = up->data ? up : gate;
    const vulkan_ffn_args args = {.gate = vulkan_address(gate->data),
                                  .up = vulkan_address(up->data),
                                  .gate_bias = vulkan_address(a->gate_bias),
                                  .up_bias = vulkan_address(a->up_bias),
                                  .cut_weight = vulkan_address(a->cut_weight),
                                  .x = vulkan_address(a->in.x),
                                  .q8 = vulkan_address(a->in.q8),
                                  .list = vulkan_address(a->list),
                                  .count = vulkan_address(a->count),
                                  .bitmap = vulkan_address(a->bitmap),
                                  .fired = vulkan_address(a->fired),
                                  .values = given ? vulkan_address(a->h) : 0,
                                  .h = vulkan_address(a->h),
                                  .h_q8 = quantizes ? vulkan_address(a->q8) : 0,
                                  .row_bytes = w->row_bytes,
                                  .n_in = (int32_t)w->n_in,
                                  .n_cols = a->in.n_cols,
                                  .ldx = (int32_t)a->in.ldx,
                                  .n = (int32_t)a->n,
                                  .n_words = (int32_t)a->n_words,
                                  .ldh = (int32_t)a->ldh,
                                  .ldv = (int32_t)a->ldh,
                                  .f = (int32_t)a->f,
                                  .threshold = a->threshold,
                                  .cut = a->cut,
                                  .cut_down = a->cut_down,
                                  .flags = a->skip || a->list ? FFN_SKIP : 0};
    const vulkan_variant v = {.weights = vulkan_weights(w),
                              .cols = vulkan_cols(a->in.n_cols),
                              .way = (quantizes ? FFN_QUANTIZES : 0u) |
                                     (gate->data ? FFN_GATE : 0u) | (up->data ? FFN_UP : 0u) |
                                     (given ? FFN_GIVEN : 0u)};
    int64_t groups = vulkan_groups(a->n, quantizes ? GROUP : NEURONS_PER_GROUP);
    if (a->list && groups > LIST_GROUPS) groups = LIST_GROUPS;
    vulkan_dispatch(s, VULKAN_FFN_IN, v, &args, sizeof args, groups, 1, 1);
}

/* Gate and up of different types or layouts take two launches: the first stores the activations of
 * the gate in h. */
void vulkan_op_ffn_in(gpu_stream *s, const gpu_ffn_in *a) {
    const gpu_mat none = {0};
    assert(a->in.n_cols >= 1 && a->in.n_cols <= GPU_MAX_COLS);
    assert(!a->q8 || (!a->list && a->n % GROUP == 0));
    assert(!a->given || (!a->gate.data && !a->list));
    if (a->n == 0) return;
    if (a->gate.data && a->up.data && vulkan_weights(&a->gate) != vulkan_weights(&a->up)) {
        launch(s, a, &a->gate, &none, false, false);
        launch(s, a, &none, &a->up, true, a->q8 != NULL);
    } else {
        launch(s, a, &a->gate, &a->up, a->given, a->q8 != NULL);
    }
}
