/* vulkan_op_attention.c: RoPE and attention, also compressed (MLA). */
#include <assert.h>
#include <stddef.h>

#include "vulkan_ops.h"

static_assert(sizeof(gpu_column) == 64 && offsetof(gpu_column, n_ctx) == 8 &&
                  offsetof(gpu_column, pos) == 20,
              "a column as in column.glsl");

void vulkan_op_rope_angles(gpu_stream *s, const gpu_rope_angles *a) {
    enum { PER_GROUP = 64 };
    assert(a->n_cols >= 1 && a->n_half >= 1);
    const vulkan_angles_args args = {.cols = vulkan_address(a->cols),
                                     .inv_freq = vulkan_address(a->inv_freq),
                                     .inv_freq_long = vulkan_address(a->inv_freq_long),
                                     .cs = vulkan_address(a->cs),
                                     .long_from = (int32_t)a->long_from,
                                     .n_half = a->n_half,
                                     .scale = a->scale};
    vulkan_dispatch(s, VULKAN_ROPE_ANGLES, (vulkan_variant){0}, &args, sizeof args,
                    vulkan_groups(a->n_half, PER_GROUP), a->n_cols, 1);
}

void vulkan_op_rope_store(gpu_stream *s, const gpu_rope_store *a) {
    assert(a->n_cols >= 1 && a->kv.head_dim <= GPU_MAX_HEAD && a->kv.head_dim % 8 == 0);
    const vulkan_rope_args args = {
        .q = vulkan_address(a->q),
        .k = vulkan_address(a->k),
        .v = vulkan_address(a->v),
        .q_norm = vulkan_address(a->q_norm),
        .k_norm = vulkan_address(a->k_norm),
        .cs = vulkan_address(a->cs),
        .cols = vulkan_address(a->cols),
        .k_offset = a->kv.k_offset,
        .v_offset = a->kv.v_offset,
        .k_row = a->kv.k_row,
        .v_row = a->kv.v_row,
        .ldq = (int32_t)a->ldq,
        .ldk = (int32_t)a->ldk,
        .ldv = (int32_t)a->ldv,
        .q_stride = (int32_t)a->q_stride,
        .norm_stride = (int32_t)a->norm_stride,
        .norm = a->norm,
        .n_rot = a->n_rot,
        .rot_at = a->rot_at,
        .n_head = a->n_head,
        .n_head_kv = a->kv.n_head_kv,
        .head_dim = a->kv.head_dim,
        .v_dim = a->kv.v_dim,
        .type_k = a->kv.type_k,
        .type_v = a->kv.type_v,
        .k_hadamard = a->kv.k_hadamard,
        .v_hadamard = a->kv.v_hadamard,
        .clamp = a->clamp,
        .eps = a->eps,
        .flags = (a->neox ? ROPE_NEOX : 0u) | (a->norm_bare ? ROPE_NORM_BARE : 0u) |
                 (a->norm_late ? ROPE_NORM_LATE : 0u) | (a->value_norm ? ROPE_VALUE_NORM : 0u) |
                 (a->back ? ROPE_BACK : 0u)};
    const int heads = a->n_head + (a->kv.v_row > 0 ? 2 : 1) * a->kv.n_head_kv;
    vulkan_dispatch(s, VULKAN_ROPE_STORE, (vulkan_variant){0}, &args, sizeof args, heads, a->n_cols,
                    1);
}

/* For inputs that do not fit shared memory: quantizes them to `scratch` before the products. */
static void multiply_groups(gpu_stream *s, const gpu_heads *a) {
    enum { PER_GROUP = 512 };
    const int64_t rows = a->w.n_out / a->n_heads;
    const size_t form = (size_t)a->n_cols * gpu_q8_bytes(a->w.n_in); /* bytes for a head */
    const bool q8 = gpu_type_wants_q8(a->w.type);
    assert(a->x_stride % 4 == 0 && (!q8 || a->scratch));
    if (q8) {
        const vulkan_quantize_args args = {.x = vulkan_address(a->x),
                                           .q8 = vulkan_address(a->scratch),
                                           .ldx = (int32_t)a->ldx,
                                           .n = (int32_t)a->w.n_in,
                                           .n_cols = a->n_cols,
                                           .step = (int32_t)a->x_stride};
        vulkan_dispatch(s, VULKAN_QUANTIZE, (vulkan_variant){0}, &args, sizeof args,
                        vulkan_groups(a->w.n_in, PER_GROUP), a->n_cols, a->n_heads);
    }
    for (int32_t h = 0; h < a->n_heads;) {
        gpu_matmul products[GPU_MAX_PRODUCTS] = {0};
        int32_t n = 0;
        for (; n < GPU_MAX_PRODUCTS && h < a->n_heads; n++, h++) {
            gpu_matmul *p = &products[n];
            p->w = a->w;
            p->w.n_out = rows;
            p->w.data = (const uint8_t *)a->w.data + (size_t)(h * rows) * a->w.row_bytes;
            p->in = (gpu_input){.x = a->x + h * a->x_stride,
                                .ldx = a->ldx,
                                .q8 = q8 ? (uint8_t *)a->scratch + (size_t)h * form : NULL,
                                .n_cols = a->n_cols};
            p->scale = a->scale;
            p->y = a->y + h * a->y_stride;
            p->ldy = a->ldy;
        }
        vulkan_op_matvec(s, products, n);
    }
}

void vulkan_op_heads(gpu_stream *s, const gpu_heads *a) {
    enum { ROWS_PER_GROUP = 8 };
    assert(a->n_cols >= 1 && a->n_cols <= GPU_MAX_COLS);
    assert(a->w.n_out % a->n_heads == 0);
    if (a->w.n_in > GPU_MAX_LATENT) {
        multiply_groups(s, a);
        return;
    }
    const vulkan_heads_args args = {.w = vulkan_address(a->w.data),
                                    .x = vulkan_address(a->x),
                                    .y = vulkan_address(a->y),
                                    .row_bytes = a->w.row_bytes,
                                    .n_in = (int32_t)a->w.n_in,
                                    .n_rows = (int32_t)(a->w.n_out / a->n_heads),
                                    .n_cols = a->n_cols,
                                    .ldx = (int32_t)a->ldx,
                                    .ldy = (int32_t)a->ldy,
                                    .x_stride = (int32_t)a->x_stride,
                                    .y_stride = (int32_t)a->y_stride,
                                    .scale = a->scale};
    const vulkan_variant v = {.weights = vulkan_weights(&a->w), .cols = vulkan_cols(a->n_cols)};
    vulkan_dispatch(s, VULKAN_HEADS, v, &args, sizeof args,
                    vulkan_groups(args.n_rows, ROWS_PER_GROUP), a->n_heads, 1);
}

void vulkan_op_latent_store(gpu_stream *s, const gpu_latent_store *a) {
    assert(a->n_cols >= 1 && a->kv.head_dim <= GPU_MAX_LATENT && a->kv.head_dim % 8 == 0);
    const vulkan_latent_args args = {.q = vulkan_address(a->q),
                                     .k = vulkan_address(a->k),
                                     .norm = vulkan_address(a->norm),
                                     .k_norm = vulkan_address(a->k_norm),
                                     .cs = vulkan_address(a->cs),
                                     .cols = vulkan_address(a->cols),
                                     .result = vulkan_address(a->out),
                                     .k_offset = a->kv.k_offset,
                                     .k_row = a->kv.k_row,
                                     .ldq = (int32_t)a->ldq,
                                     .ldk = (int32_t)a->ldk,
                                     .ldo = (int32_t)a->ld_out,
                                     .n_rot = a->n_rot,
                                     .q_dim = a->q_dim,
                                     .n_head = a->n_head,
                                     .head_dim = a->kv.head_dim,
                                     .type_k = a->kv.type_k,
                                     .k_hadamard = a->kv.k_hadamard,
                                     .eps = a->eps,
                                     .flags = a->neox ? ROPE_NEOX : 0u};
    vulkan_dispatch(s, VULKAN_LATENT_STORE, (vulkan_variant){0}, &args, sizeof args, a->n_head + 1,
                    a->n_cols, 1);
}

/* Queries that a workgroup computes together. */
static uint32_t queries_of(const gpu_attention *a) {
    return vulkan_cols(a->n_head / a->kv.n_head_kv);
}

/* With `turns` the query is rotated in place: nothing else reads it. In MLA the rows are both keys
 * and values. Sparse attention to blocks has no parts. */
void vulkan_op_attention(gpu_stream *s, const gpu_attention *a) {
    const bool latent = a->kv.v_row == 0;
    assert(a->n_cols >= 1 && a->n_head % a->kv.n_head_kv == 0);
    assert(a->kv.head_dim % 8 == 0 &&
           a->kv.head_dim <= (latent ? (int)GPU_MAX_LATENT : (int)GPU_MAX_HEAD));
    assert(a->kv.v_dim % 8 == 0 && a->kv.v_dim > 0);
    assert(a->sparse.size == 0 || (!a->turns && (a->window == 0 || a->ratio > 0)));
    assert(a->sparse.size == 0 || a->sparse.n_list > 0 || a->n_splits == 1);
    assert(a->ratio == 0 || latent);
    assert(a->n_splits == 1 || (a->partial && a->n_splits <= GPU_ATTN_SPLITS));
    if (a->turns) {
        gpu_rope_store rope = a->rope;
        rope.q = (float *)(uintptr_t)a->q;
        rope.ldq = a->ldq;
        rope.q_stride = a->q_stride;
        vulkan_op_rope_store(s, &rope);
    }
    const vulkan_attention_args args = {.q = vulkan_address(a->q),
                                        .cols = vulkan_address(a->cols),
                                        .sinks = vulkan_address(a->sinks),
                                        .slopes = vulkan_address(a->slopes),
                                        .gate = vulkan_address(a->gate),
                                        .partial = vulkan_address(a->partial),
                                        .result = vulkan_address(a->out),
                                        .k_offset = a->kv.k_offset,
                                        .v_offset = latent ? a->kv.k_offset : a->kv.v_offset,
                                        .k_row = a->kv.k_row,
                                        .v_row = latent ? a->kv.k_row : a->kv.v_row,
                                        .sparse_offset = a->sparse.offset,
                                        .compressed = a->compressed,
                                        .ldq = (int32_t)a->ldq,
                                        .ldo = (int32_t)a->ldo,
                                        .ldg = (int32_t)a->ldg,
                                        .q_stride = (int32_t)a->q_stride,
                                        .gate_stride = (int32_t)a->gate_stride,
                                        .n_head = a->n_head,
                                        .n_head_kv = a->kv.n_head_kv,
                                        .head_dim = a->kv.head_dim,
                                        .v_dim = a->kv.v_dim,
                                        .type_k = a->kv.type_k,
                                        .type_v = (int32_t)(latent ? a->kv.type_k : a->kv.type_v),
                                        .n_cols = a->n_cols,
                                        .n_splits = a->n_splits,
                                        .window = a->window,
                                        .v_hadamard = a->kv.v_hadamard,
                                        .scale = a->scale,
                                        .softcap = a->softcap,
                                        .temperature = a->temperature,
                                        .temperature_length = a->temperature_length,
                                        .temperature_offset = a->temperature_offset,
                                        .q_hadamard = latent ? a->kv.k_hadamard : 0,
                                        .ratio = a->ratio,
                                        .sparse_size = a->sparse.size,
                                        .sparse_top = a->sparse.top,
                                        .sparse_heads = a->sparse.n_heads,
                                        .sparse_list = a->sparse.n_list,
                                        .sparse_whole = a->sparse.whole,
                                        .flags = (a->chunks ? ATTENTION_CHUNKS : 0u) |
                                                 (a->head_gates ? ATTENTION_HEAD_GATES : 0u) |
                                                 (a->gate_softplus ? ATTENTION_GATE_SOFTPLUS : 0u)};
    const int queries = (int)queries_of(a),
              chunks = (a->n_head / a->kv.n_head_kv + queries - 1) / queries;
    const vulkan_variant v = {.cols = (uint32_t)queries,
                              .way = (a->sparse.size == 0    ? 0u
                                      : a->sparse.n_list > 0 ? ATTENTION_LISTED
                                                             : ATTENTION_BLOCKS) |
                                     (a->ratio > 0 ? ATTENTION_COMPRESSED : 0u)};
    vulkan_dispatch(s, VULKAN_ATTENTION, v, &args, sizeof args, (int64_t)a->kv.n_head_kv * chunks,
                    a->n_splits, a->n_cols);
    const bool splits = a->n_splits > 1;
    if (splits || a->kv.v_hadamard > 0)
        vulkan_dispatch(s, VULKAN_ATTENTION_END, (vulkan_variant){.way = splits}, &args,
                        sizeof args, a->n_head, a->n_cols, 1);
    if (!a->q8) return;
    const gpu_quantize q = {.x = a->out,
                            .ldx = a->ldo,
                            .n = (int64_t)a->n_head * a->kv.v_dim,
                            .n_cols = a->n_cols,
                            .q8 = a->q8};
    vulkan_op_quantize(s, &q);
}
