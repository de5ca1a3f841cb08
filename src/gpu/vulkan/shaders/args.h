/* args.h: arguments of the shaders, included by C and by GLSL. Members of 8 bytes come first, so
 * that both lay them out alike (std430); an address is a uint64_t, 0 where gpu_ops.h has NULL. A
 * struct of more than PUSHED_BYTES does not fit push constants: the shader says STORED instead of
 * PUSHED. */
#ifndef GPU_VULKAN_ARGS_H
#define GPU_VULKAN_ARGS_H

#ifdef VULKAN /* glslc */
#define ARGS(name) struct name
#define u64        uint64_t
#define u32        uint
#define i32        int
#define i64        int64_t
#else
#include <stdint.h>
#define ARGS(name)                                                                                 \
    typedef struct name name;                                                                      \
    struct name
#define u64 uint64_t
#define u32 uint32_t
#define i32 int32_t
#define i64 int64_t
#endif

/* The push constants of a pipeline, 128 bytes: at most PUSHED_BYTES of arguments, then the address
 * of the code books. */
#define PUSHED_BYTES 120

/* Code books of the IQ formats (quant_grids.h), 16 bits per point: bytes before each. */
#define BOOK_IQ1     0
#define BOOK_IQ2_XXS 4096
#define BOOK_IQ2_XS  4608
#define BOOK_IQ2_S   5632
#define BOOK_IQ3_XXS 7680
#define BOOK_IQ3_S   8192
#define BOOKS_BYTES  9216

/* A bit of the specialization constant WEIGHTS, above the type: rows are as in the file
 * (gpu_mat.in_file), not packed. */
#define WEIGHTS_IN_FILE 256

/* Bits of `flags`. */
#define PRODUCT_ADD        1
#define PRODUCT_RELU       2
#define PRODUCT_SCALE_LAST 4

ARGS(vulkan_product_args) { /* of gpu_matmul */
    u64 w, x, q8, bias, y;
    u64 row_bytes;
    i32 n_in, n_out, n_cols, ldx, ldy;
    float scale;
    u32 flags;
};

ARGS(vulkan_fill_args) {
    u64 at[2];
    u32 n[2]; /* at most 3 bytes */
    u32 value, unused;
};

ARGS(vulkan_pack_args) {
    u64 src, dst, src_row_bytes, row_bytes;
    i32 n_rows, n_blocks; /* of a row */
    u32 block_bytes;
    u32 part_from[4], part_bytes[4]; /* of a block, in the order of the packed row */
    u32 unused;
};

ARGS(vulkan_quantize_args) {
    u64 x, q8, list, n_listed;
    i32 ldx, n, n_cols;
    i32 step; /* elements between a column's inputs; the results are stored input by input */
};

#define NORM_RMS   0
#define NORM_LAYER 1
#define NORM_NONE  2
ARGS(vulkan_norm_args) {
    u64 x, w, b, y, q8, bad, host_x, host_q8, epoch;
    i32 ldx, ldy, n, kind, add, mark;
    float eps, scale, y_scale;
    u32 unused;
};

ARGS(vulkan_angles_args) {
    u64 cols, inv_freq, inv_freq_long, cs;
    i32 long_from, n_half;
    float scale;
    u32 unused;
};

#define ROPE_NEOX       1
#define ROPE_NORM_BARE  2
#define ROPE_NORM_LATE  4
#define ROPE_VALUE_NORM 8
#define ROPE_BACK       16
ARGS(vulkan_rope_args) {
    u64 q, k, v, q_norm, k_norm, cs, cols;
    u64 k_offset, v_offset, k_row, v_row;
    i32 ldq, ldk, ldv, q_stride, norm_stride, norm;
    i32 n_rot, rot_at, n_head, n_head_kv, head_dim, v_dim;
    i32 type_k, type_v, k_hadamard, v_hadamard;
    float clamp, eps;
    u32 flags, unused;
};

ARGS(vulkan_latent_args) {
    u64 q, k, norm, k_norm, cs, cols, result;
    u64 k_offset, k_row;
    i32 ldq, ldk, ldo, n_rot, q_dim, n_head, head_dim, type_k, k_hadamard;
    float eps;
    u32 flags, unused; /* flags: ROPE_NEOX */
};

ARGS(vulkan_heads_args) {
    u64 w, x, y, row_bytes;
    i32 n_in, n_rows, n_cols, ldx, ldy, x_stride, y_stride; /* n_rows: of a head */
    float scale;
};

#define ATTENTION_CHUNKS        1
#define ATTENTION_HEAD_GATES    2
#define ATTENTION_GATE_SOFTPLUS 4
/* bits of WAY: attends to listed positions; to blocks that are not left out; to compressed keys
 * (with ATTENTION_LISTED only to the listed ones) and to the window */
#define ATTENTION_LISTED     1
#define ATTENTION_BLOCKS     2
#define ATTENTION_COMPRESSED 4
ARGS(vulkan_attention_args) {
    u64 q, cols, sinks, slopes, gate, partial, result;
    u64 k_offset, v_offset, k_row, v_row, sparse_offset, compressed;
    i32 ldq, ldo, ldg, q_stride, gate_stride;
    i32 n_head, n_head_kv, head_dim, v_dim, type_k, type_v;
    i32 n_cols, n_splits, window, v_hadamard;
    float scale, softcap, temperature;
    i32 temperature_length, temperature_offset;
    i32 q_hadamard; /* MLA: kv.k_hadamard; the shader multiplies the queries. 0: none */
    i32 ratio;
    i32 sparse_size, sparse_top, sparse_heads, sparse_list, sparse_whole; /* of gpu_sparse */
    u32 flags;
};

#define BLOCKS_SUMS 1      /* a bit of WAY */
ARGS(vulkan_blocks_args) { /* of gpu_find_blocks */
    u64 q, weights, cols, k_offset, k_row, sparse_offset;
    i32 ldq, ldw, head_dim, type_k, ratio, n_queries, local;
    i32 sparse_size, sparse_top, sparse_heads, sparse_list, sparse_whole; /* of gpu_sparse */
};

ARGS(vulkan_compress_args) { /* of gpu_compress */
    u64 x, positions, norm, inv_freq, inv_freq_long, cols, k_offset, k_row;
    i64 at;
    i32 ldx, long_from, ratio, n_parts, dim, n_rot, rot_at, type_k, k_hadamard;
    float scale, eps;
    u32 flags; /* ROPE_NEOX */
};

#define FFN_SKIP 1
/* bits of WAY */
#define FFN_QUANTIZES 1
#define FFN_GATE      2
#define FFN_UP        4
#define FFN_GIVEN     8 /* `values` has the activations */
ARGS(vulkan_ffn_args) {
    u64 gate, up, gate_bias, up_bias, cut_weight, x, q8, list, count, bitmap, fired, values, h,
        h_q8;
    u64 row_bytes;
    i32 n_in, n_cols, ldx, n, n_words, ldh, ldv, f;
    float threshold, cut, cut_down;
    u32 flags;
};

ARGS(vulkan_activate_args) {
    u64 gate, up, cut_weight, divisors, bitmap, y, q8;
    i32 ldg, ldu, ldy, n, n_cols, f, clamp_how, given, n_words, first_bit;
    float clamp, clamp_soft, threshold, cut, cut_down;
    u32 unused;
};

#define PREDICT_SIGNS 1 /* a bit of WAY */
ARGS(vulkan_predict_args) {
    u64 w, x, q8, bias, bitmap, host_bits, epoch; /* w: rows or signs */
    u64 row_bytes;
    i32 n_in, n_out, n_cols, ldx;
    float scale, cut;
};

ARGS(vulkan_conv_args) { /* of gpu_conv */
    u64 x, by, gate, taps[3], bias, cols, y;
    i64 at;
    i32 ldx, ldb, ldg, ldy, n, part, n_taps, unused;
};

/* WAY: kind + RECUR_KINDS * elements of a lane. */
#define RECUR_SSM       0
#define RECUR_SCAN      1
#define RECUR_DELTA     2
#define RECUR_KDA       3
#define RECUR_KINDS     4
#define RECUR_ALTERNATE 1
#define RECUR_PAIRED    2
ARGS(vulkan_recur_args) {                                             /* of gpu_recur */
    u64 x, steps, beta, keys, queries, dt_bias, rates, skip, cols, y; /* steps, rates: step, a */
    i64 at;
    i32 ldx, lds, ldb, ldk, ldy, n_head, n_group, head_dim, n_state;
    float eps, least_decay;
    u32 flags;
};

#define GATE_FIRST   1
#define GATE_SIGMOID 2
ARGS(vulkan_gate_args) { /* of gpu_gate */
    u64 x, gate, norm;
    i32 ldg, ldx, width, share;
    float eps;
    u32 flags;
};

ARGS(vulkan_select_args) {
    u64 v, bias, bitmap;
    i32 ldv, n, n_cols;
    float cut;
};

ARGS(vulkan_list_args) {
    u64 bits, list, count;
    i32 n_words, n_list, n_cols, unused; /* n_words: of a column's bitmap */
};

ARGS(vulkan_down_args) {
    u64 w, list, count, h, bias, fired, partial, y;
    u64 row_bytes;
    i32 n_in, n_max, n_cols, ldh, ldy, add;
};

ARGS(vulkan_top_k_args) {
    u64 x;
    i32 ldx, n, f;
    float deviations, threshold;
    u32 unused;
};

ARGS(vulkan_add_args) {
    u64 x, y;
    i32 ldx, ldy, n, n_cols, n_more, step;
};

#define MIX_CORRECTS 1  /* WAY */
ARGS(vulkan_mix_args) { /* of gpu_mix */
    u64 router, coefficients, scale, streams, x, y;
    i32 lds, ldr, ldx, ldy, n, n_stream;
};

ARGS(vulkan_merge_args) { /* of gpu_merge */
    u64 streams, others, x;
    i32 lds, ldo, ldx, n, n_stream, unused;
};

/* WAY: adds x to the streams; mixes the streams, then adds x; 0: x = the weighted sum of the
 * streams */
#define HYPER_ADDS  1
#define HYPER_MIXES 2
ARGS(vulkan_hyper_args) { /* of gpu_hyper */
    u64 weights, base, scale, streams, x;
    float factor, eps, mix_eps;
    i32 lds, ldw, ldx, n, n_stream, rounds, unused;
};

ARGS(vulkan_hyper_mean_args) { /* of gpu_hyper_mean */
    u64 y, gate, x;
    i32 ldy, ldg, ldx, n, n_stream, unused;
};

ARGS(vulkan_past_args) { /* of gpu_past */
    u64 score, streams, x;
    float eps;
    i32 lds, ldx, n, n_past, begins;
};

ARGS(vulkan_softcap_args) {
    u64 y;
    i32 ldy, n, n_cols;
    float cap;
};

#define IDLE_OTHERS 1
ARGS(vulkan_stamp_args) {
    u64 ticks, ns;
    u64 period; /* ns of a tick, in 1/4096; 0: there is no clock */
};

ARGS(vulkan_publish_args) {
    u64 x, bits, host_x, host_bits, flag, epoch, choices;
    i32 ldx, n, n_cols, n_words, n_used, n_own;
    u32 flags, unused;
};

#define RECEIVE_SET 2
ARGS(vulkan_receive_args) {
    u64 host_x, host_bits, bits, flag, epoch, choices, fault, y, q8, clear;
    i32 n, ldy, n_cols, n_words, n_used, n_own, ld_clear;
    u32 flags;
};

#define GATING_SOFTMAX        1
#define GATING_SIGMOID        2
#define GATING_SOFTMAX_CHOSEN 3
#define GATING_SQRT_SOFTPLUS  4
ARGS(vulkan_route_args) {
    u64 scores, select_bias, perm, slots, uses, choices, host_bits, epoch, by_token, cols;
    i32 lds, n_expert, n_used, n_group, n_group_used, gating, norm, share;
    float scale;
    u32 unused;
};

#define EXPERT_WEIGH 1
#define EXPERT_SKIP  2
ARGS(vulkan_expert_in_args) {
    u64 gate, up, gate_bias, up_bias, gate_scales, up_scales, choices, x, q8, fired, h, h_q8;
    u64 row_bytes;
    i32 n, step, n_in, ldx, n_used, n_own, n_pairs, ldh, f, clamp_how;
    float clamp, clamp_soft, threshold;
    u32 flags;
};

ARGS(vulkan_expert_matvec_args) {
    u64 w, bias, scales, choices, x, q8, y, row_bytes;
    i32 n_in, n_out, ldx, ldy, n_pairs, n_own;
};

ARGS(vulkan_expert_down_args) {
    u64 w, bias, scales, choices, h, fired, y, row_bytes;
    i32 n_in, n, ldh, ldy, n_pairs, n_own;
};

#define SUM_SET     1
#define SUM_WEIGHED 2
ARGS(vulkan_expert_sum_args) {
    u64 x, choices, shared_x, shared_score, used, y;
    i32 ldx, ldy, n, n_used, n_own, n_cols, lds, ld_score;
    float scale;
    u32 flags;
};

ARGS(vulkan_expert_group_args) {
    u64 choices, tile, n_listed, pair, column;
    i32 n_pairs, n_used, n_own, n_tiles;
};

#define MATMUL_OF_PAIRS  4
#define RESULT_PRODUCT   0
#define RESULT_ACTIVATED 1
#define RESULT_GATED     2
ARGS(vulkan_expert_matmul_args) {
    u64 w, bias, scales, choices, tile, pair, column, x, q8, y, row_bytes;
    i32 n_in, n_out, step, ldx, ldy, result, f, clamp_how;
    float clamp, clamp_soft, threshold;
    u32 flags;
};

#ifndef VULKAN
#undef u64
#undef u32
#undef i32
#undef i64
#endif
#endif
