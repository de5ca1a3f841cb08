/* gpu_ops.h: the operations of a device: one function and one struct of arguments each.
 *
 * Pointers are device addresses unless marked `host` (pinned memory as kernels see it). Matrices
 * are as on the host (row r holds the n_in weights of output r), but packed: see gpu_mat. Vectors
 * are float32, column c of a batch at x + c * ld with ld a multiple of 4, aligned to 16 bytes.
 * "Few columns" means 1..GPU_MAX_COLS; other operations take up to GPU_MAX_BATCH columns.
 *
 * Selected neurons are bitmaps, uint32 [n_cols][n_words] with n_words = (n + 31) / 32:
 * bit i % 32 of word i / 32 of column c. A neuron that a column did not select is zero in that
 * column, also where another column selected it.
 *
 * Kernels read values that change from token to token (token, position, cache, epoch, list lengths)
 * from device memory, so that a recorded program can be replayed; the rest is fixed when an
 * operation is enqueued. Wrong arguments are programmer errors (asserted). Sums have a fixed order:
 * the same program on the same data gives the same bits. */
#ifndef GPU_GPU_OPS_H
#define GPU_GPU_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "activation.h"
#include "quant.h"

#ifdef __cplusplus
extern "C" {
#endif

/* For the few functions here that kernels also call. */
#if defined(__CUDACC__) || defined(__HIPCC__)
#define GPU_BOTH static inline __host__ __device__
#else
#define GPU_BOTH static inline
#endif

typedef struct gpu_stream gpu_stream;

enum {
    GPU_MAX_COLS = 8,     /* of the matrix-vector operations */
    GPU_MAX_BATCH = 8192, /* columns of the others */
    GPU_MAX_PRODUCTS = 4, /* of one matvec: Q, K, V and the gate */
    GPU_ROW_ALIGN = 16,   /* bytes: rows are read by 16-byte loads */
    GPU_MAX_HEAD = 256,   /* largest head_dim; a multiple of 8 and of the cache's blocks */
    GPU_MAX_LATENT = 576, /* largest head_dim of compressed attention (MLA) */
    GPU_MAX_TAPS = 8,     /* of a recurrent layer's convolution */
    GPU_MAX_STATE = 256,  /* elements of a row of its state */
    GPU_MAX_STREAMS = 8,  /* residual streams of a token */
    GPU_ATTN_TILE = 64,   /* positions that attention takes at a time */
    GPU_ATTN_SPLITS = 32  /* parts of a long context that run side by side, at most */
};

/* ---- matrices and quantized vectors ---------------------------------------------------------- */

/* A row is its blocks' quants, then their scales, then zeros up to row_bytes: as many bytes as on
 * the host, but quants aligned to 16 bytes. `pack` makes it from GGUF rows.
 * GPU_PARTS_name, next to the type's reader in cuda/gpu_formats_32.h and cuda/gpu_formats_k.h, says
 * which fields of a block become which part, each for all blocks of the row. */
typedef struct gpu_mat {
    const void *data;
    size_t row_bytes; /* gpu_mat_row_bytes */
    int64_t n_in, n_out;
    quant_type type;
} gpu_mat;

/* All types that the CPU multiplies. */
static inline bool gpu_type_supported(quant_type type) {
    switch (type) {
#define GPU_CASE(type, ...) case QUANT_##type:
        QUANT_COMPUTED(GPU_CASE)
#undef GPU_CASE
        return true;
    default:
        return false;
    }
}
/* Quantized weights are multiplied with int8 activations (as on the CPU: groups of 32 with a float
 * scale amax / 127); float weights with floats. */
static inline bool gpu_type_wants_q8(quant_type type) {
    return type != QUANT_F32 && type != QUANT_F16 && type != QUANT_BF16;
}
/* host_row_bytes: of the GGUF row (quant_row_bytes). */
static inline size_t gpu_mat_row_bytes(size_t host_row_bytes) {
    return (host_row_bytes + GPU_ROW_ALIGN - 1) / GPU_ROW_ALIGN * GPU_ROW_ALIGN;
}

/* A quantized column, n a multiple of 32: int8 q[n] | float d[n/32] | int32 sum[n/16], each part
 * padded to 16 bytes. The next column follows gpu_q8_bytes(n) further on. */
GPU_BOTH size_t gpu_q8_d_offset(int64_t n) {
    return (size_t)n;
}
GPU_BOTH size_t gpu_q8_sum_offset(int64_t n) {
    return (size_t)n + ((size_t)n / 32 * 4 + 15) / 16 * 16;
}
GPU_BOTH size_t gpu_q8_bytes(int64_t n) {
    return gpu_q8_sum_offset(n) + ((size_t)n / 16 * 4 + 15) / 16 * 16;
}

/* The input of a product. q8 may be NULL when no quantized weights read it. */
typedef struct gpu_input {
    const float *x; /* [n_cols][ldx] */
    int64_t ldx;
    const void *q8; /* [n_cols], by `quantize` or a norm */
    int32_t n_cols;
} gpu_input;

/* ---- what a ubatch reads of its tokens ------------------------------------------------------- */

/* One per column, in device memory, uploaded by the host before a launch. A session's cache holds,
 * for every layer, keys and then values: position p of a layer's keys at
 * kv + n_ctx * k_offset + p * k_row, heads side by side; k_offset is the bytes per position of
 * everything before. So a program does not depend on which session it runs for. */
typedef struct gpu_column {
    uint8_t *kv;   /* device */
    int64_t n_ctx; /* positions the cache has room for */
    int32_t token;
    int32_t pos; /* of this token: it sees positions [0, pos] */
    /* Of recurrent layers. A session's columns are neighbours. */
    int32_t at, run;         /* the column's number among them, and how many they are */
    int32_t n_before;        /* of them, after which the state is kept, < run */
    const float *state_from; /* device: the session's state before them; NULL: zeros */
    float *state_to;         /* after them; may be the same */
    float *state_before;     /* after n_before; NULL: not wanted */
} gpu_column;

/* Where a layer's keys and values lie in any session's cache. */
typedef struct gpu_kv_layout {
    size_t k_offset, v_offset; /* bytes per position before them; before F16 and F32 a multiple of
                                  GPU_ROW_ALIGN */
    size_t k_row, v_row;       /* bytes of all heads at one position */
    quant_type type_k, type_v; /* those of cuda/gpu_cache.h */
    int32_t k_hadamard, v_hadamard; /* elements of the matrix that rows are multiplied by, see
                                       kv_hadamard in src/session; 0: none. MLA: the same */
    int32_t n_head_kv,
        head_dim;  /* MLA: one head of up to GPU_MAX_LATENT, v_row 0: values are keys */
    int32_t v_dim; /* of a value, at most head_dim */
} gpu_kv_layout;

/* ---- arguments, one struct per operation ----------------------------------------------------- */

/* GGUF rows -> packed rows, on the device. */
typedef struct gpu_pack {
    const void *src; /* [n_rows] rows, src_row_bytes apart */
    size_t src_row_bytes;
    gpu_mat dst;          /* its data is written */
    int64_t row0, n_rows; /* rows of dst */
} gpu_pack;

/* int8 form of columns, n a multiple of 32. */
typedef struct gpu_quantize {
    const float *x;
    int64_t ldx, n;
    int32_t n_cols;
    void *q8;
} gpu_quantize;

typedef enum gpu_norm_kind {
    GPU_NORM_RMS,
    GPU_NORM_LAYER,
    GPU_NORM_NONE /* values as they are */
} gpu_norm_kind;

/* y = norm of x, or with `add` y_scale * (y + scale * norm of x), and its int8 form; y, q8,
 * w and b may be NULL. Where the sum of a column's squares is not finite, *bad becomes at least
 * `mark`. */
typedef struct gpu_norm {
    const float *x, *w, *b;
    int64_t ldx, ldy, n;
    float eps;
    gpu_norm_kind kind;
    bool add;
    float scale, y_scale; /* with `add` */
    int32_t n_cols;
    int32_t mark;
    int32_t *bad; /* NULL: not looked at */
    float *y;
    void *q8;
} gpu_norm;

/* y = scale * W x + bias (with scale_last the bias is also scaled), or added to y; with relu
 * negative results become 0. */
typedef struct gpu_matmul {
    gpu_mat w;
    gpu_input in; /* x is needed for float weights and by matmul, q8 for quantized ones by matvec */
    const float *bias; /* [w.n_out] or NULL */
    float scale;
    bool scale_last, add, relu;
    bool precise; /* matmul, matmul_t of F16 weights: x stays float, where a rounding error may
                     decide what is computed; by float units */
    bool rounded; /* matmul, matmul_t: the product enqueued just before had these columns and this
                     gpu_matmul_rounding, and left them in scratch */
    float *y;
    int64_t ldy;
    void *scratch; /* of matmul and matmul_t: gpu_matmul_scratch bytes */
} gpu_matmul;

typedef enum gpu_rounding { GPU_ROUND_NOT, GPU_ROUND_HALF, GPU_ROUND_BF16 } gpu_rounding;
/* What columns are rounded to for tensor cores, by the type of the weights. */
static inline gpu_rounding gpu_matmul_rounding(quant_type type, bool precise) {
    if (type == QUANT_F32 || (type == QUANT_F16 && precise)) return GPU_ROUND_NOT;
    return type == QUANT_BF16 ? GPU_ROUND_BF16 : GPU_ROUND_HALF;
}

/* A block of matmul and matmul_t makes GPU_TILE_OUT outputs for GPU_TILE_COLS columns. Products of
 * too few blocks to fill a GPU are split along their sums: up to GPU_SPLIT_BLOCKS, two for each of
 * 128 multiprocessors, parts of at least GPU_SPLIT_TERMS terms. So a 4096 x 4096 product of 9 to 64
 * columns is 256 blocks in place of 32, and reads its weights at the speed of all of them. */
enum {
    GPU_SUM_ALIGN = 64,
    GPU_TILE_OUT = 128,
    GPU_TILE_COLS = 64,
    GPU_SPLIT_BLOCKS = 256,
    GPU_SPLIT_TERMS = 256,
    GPU_SPLIT_MOST = 8
};
static inline int32_t gpu_matmul_splits(int64_t n_sum, int64_t n_out, int32_t n_cols) {
    int64_t blocks = (n_out + GPU_TILE_OUT - 1) / GPU_TILE_OUT *
                     ((n_cols + GPU_TILE_COLS - 1) / GPU_TILE_COLS);
    int32_t n = 1;
    while (n < GPU_SPLIT_MOST && 2 * n * blocks <= GPU_SPLIT_BLOCKS &&
           n_sum >= 2 * (int64_t)n * GPU_SPLIT_TERMS)
        n *= 2;
    return n;
}
/* Columns of x as 16-bit floats, for tensor cores, and the scale of each, n_sum: their length; then
 * the sums of parts. */
static inline size_t gpu_matmul_columns(int64_t n_sum, int32_t n_cols) {
    size_t padded = ((size_t)n_sum + GPU_SUM_ALIGN - 1) / GPU_SUM_ALIGN * GPU_SUM_ALIGN;
    return ((size_t)n_cols * (2 * padded + sizeof(float)) + GPU_ROW_ALIGN - 1) / GPU_ROW_ALIGN *
           GPU_ROW_ALIGN;
}
static inline size_t gpu_matmul_scratch(int64_t n_sum, int32_t n_cols) {
    return gpu_matmul_columns(n_sum, n_cols) +
           (size_t)GPU_SPLIT_BLOCKS * GPU_TILE_OUT * GPU_TILE_COLS * sizeof(float);
}

/* cs[c][i] = scale * (cos, sin)(pos[c] * inv_freq[i]) for i < n_half. Once per ubatch. */
typedef struct gpu_rope_angles {
    const gpu_column *cols;
    const float *inv_freq;      /* [n_half] radians per position */
    const float *inv_freq_long; /* the same in caches of more than long_from positions; NULL: no
                                   others */
    int64_t long_from;
    float scale;
    int32_t n_cols, n_half;
    float *cs; /* [n_cols][n_half][2] */
} gpu_rope_angles;

/* Norms of heads (weights NULL and not `norm_bare`: none), rotation of Q and K (cs NULL: none), K
 * and V into the cache at pos; no V where kv.v_row is 0. */
typedef struct gpu_rope_store {
    float *q; /* [n_cols][ldq], in place */
    const float *k, *v;
    int64_t ldq, ldk, ldv;
    int64_t q_stride;             /* floats from a head of q to the next one; 0: head_dim */
    const float *q_norm, *k_norm; /* [head_dim] at head * norm_stride */
    int64_t norm_stride;          /* 0: all heads have the same weights */
    gpu_norm_kind norm;
    bool norm_bare;  /* without weights */
    bool norm_late;  /* after the rotation */
    bool value_norm; /* RMS norm of values, without weights */
    float eps;
    const float *cs;
    int32_t n_rot, n_head, n_cols;
    bool neox;
    const gpu_column *cols;
    gpu_kv_layout kv;
} gpu_rope_store;

/* MLA: a matrix per head. y[c][h * y_stride + r] = scale * row h * n_out / n_heads + r of w times
 * x[c][h * x_stride ..]. Few columns. */
typedef struct gpu_heads {
    gpu_mat w;      /* rows of all heads, one head's after the other's; n_in <= GPU_MAX_LATENT */
    const float *x; /* [n_cols][ldx] */
    int64_t ldx, x_stride;
    float scale;
    int32_t n_heads, n_cols;
    float *y; /* [n_cols][ldy] */
    int64_t ldy, y_stride;
} gpu_heads;

/* MLA: rotated elements of queries to where attention reads them; the cached row at pos: the
 * rotated key, then the latent vector's RMS norm. cs NULL: they are not rotated. */
typedef struct gpu_latent_store {
    const float *q; /* [n_cols][ldq]: heads of q_dim, the n_rot rotated elements last */
    const float *k; /* [n_cols][ldk]: the latent vector, then the key's rotated elements */
    int64_t ldq, ldk, ld_out;
    const float *norm; /* [kv.head_dim - n_rot] */
    float eps;
    const float *cs; /* of gpu_rope_angles */
    int32_t n_rot, q_dim, n_head, n_cols;
    bool neox;
    const gpu_column *cols;
    gpu_kv_layout kv;
    float *out; /* [n_cols][ld_out]: heads of kv.head_dim, whose first n_rot elements are written */
} gpu_latent_store;

/* Sparse attention: a column at position p attends to `top` of its p / size + 1 blocks of
 * positions, or all. Which, say scores float [n_heads][n_blocks] of each column of a session at kv
 * + n_ctx * offset, n_blocks being those of n_ctx: GPU_LEFT_OUT, or the block is attended to. */
typedef struct gpu_sparse {
    int32_t size, top, n_heads; /* size 0: all positions are attended to */
    size_t offset;              /* a multiple of 4 */
} gpu_sparse;
#define GPU_LEFT_OUT (-INFINITY)

/* Those in which a head's highest product of q and a cached key is highest; the last `local` ones
 * always are. Layout of the keys: kv.k_offset, k_row, type_k, head_dim; one head. */
typedef struct gpu_find_blocks {
    const float *q; /* [n_cols][ldq] heads of head_dim */
    int64_t ldq;
    const gpu_column *cols;
    gpu_kv_layout kv;
    gpu_sparse blocks;
    int32_t local, n_cols;
    int32_t n_parts; /* that score a column's blocks side by side, as many as one likes */
} gpu_find_blocks;

/* out = softmax(scale q K^T) V over positions [max(0, pos + 1 - window), pos], or (chunks) [pos /
 * window * window, pos]. */
typedef struct gpu_attention {
    const float *q; /* [n_cols][ldq] */
    int64_t ldq, ldo;
    int64_t q_stride, gate_stride; /* floats from a head to the next one; 0: head_dim, v_dim */
    const gpu_column *cols;
    gpu_kv_layout kv;
    int32_t n_head, n_cols;
    int32_t n_splits; /* gpu_attention_splits_of the longest context of the ubatch */
    bool precise;     /* queries and weights stay float, as in gpu_matmul */
    int32_t window;   /* 0: all */
    bool chunks;
    float scale, softcap; /* softcap 0: off */
    float temperature;    /* the scale times 1 + this * ln(1 + (pos + offset) / length) */
    int32_t temperature_length, temperature_offset; /* of it, the quotient rounded down */
    const float *sinks; /* [n_head] scores of one position more, whose value is 0; NULL: none */
    const float *gate;  /* [n_cols][ldg] out is multiplied by its sigmoid; NULL: by nothing */
    int64_t ldg;
    float *partial;      /* gpu_attention_partial floats; NULL when n_splits is 1 */
    int32_t *arrived;    /* [n_cols * n_head] zeros, and zeros afterwards; MLA reads none */
    float *out;          /* [n_cols][ldo]: heads of v_dim */
    void *q8;            /* [n_cols] int8 form of out, as `quantize` makes it; NULL: none */
    bool turns;          /* of one column, not MLA: queries come as rope_store gets them, and so do
                            the column's key and value, which are stored; of rope.kv.n_head_kv 0
                            there are none */
    gpu_rope_store rope; /* with `turns`; q is not read, and stays as it is */
    gpu_sparse sparse;   /* blocks that find_blocks has chosen; no window, splits, or turns then */
} gpu_attention;

/* ---- recurrent layers. A session's columns are gone through in order; `at`: floats from the
 * beginning of its state to the layer's part of it. */

/* Causal convolution of n channels over a session's columns; the state has the n_taps - 1 inputs
 * before them, [n_taps - 1][n] at `at`: y = silu(bias + sum of taps times inputs). The last tap is
 * for the column itself. With `by` the inputs are x * by, and y = gate * that sum. */
typedef struct gpu_conv {
    const float *x, *by, *gate; /* [n_cols][ldx, ldb, ldg]; by and gate NULL: none */
    int64_t ldx, ldb, ldg, ldy;
    const float *taps[3]; /* [part][n_taps] of channels [0, part), [part, 2 part), the rest */
    const float *bias;    /* [n] or NULL */
    int64_t n, part, at;
    int32_t n_taps, n_cols;
    const gpu_column *cols;
    float *y;
} gpu_conv;

typedef enum gpu_recur_kind {
    GPU_RECUR_SSM,   /* Mamba-2 */
    GPU_RECUR_DELTA, /* gated delta rule */
    GPU_RECUR_KDA    /* the same with a decay per element of a key */
} gpu_recur_kind;

/* The recurrence of every head over its state S [head_dim][n_state], at `at` of the state that of
 * head 0. With decay, key, query, value v of a column and, except for SSM, beta:
 *     S = S decay + d key, d = v or beta (v - S decay key);  y = S query (+ skip * x)
 * SSM: x has values of all heads, then keys, then queries of all groups; step the steps of heads.
 * DELTA: x has queries and keys of all groups, both normed, then values; step the alphas of heads,
 * or (paired) beta per group the betas of its heads and then their alphas. KDA: step the alphas
 * [n_head][n_state]. */
typedef struct gpu_recur {
    gpu_recur_kind kind;
    const float *x, *step, *beta;
    int64_t ldx, lds, ldb, ldy, at;
    const float *dt_bias; /* [n_head]; KDA: [n_head][n_state] */
    const float *a;       /* [n_head]: decay = e^(a softplus(step + dt_bias)) */
    const float *skip;    /* [n_head] or NULL */
    int32_t n_head, n_group, head_dim, n_state, n_cols;
    bool groups_alternate, paired; /* head h is of group h % n_group, else h / (n_head / n_group) */
    float eps;
    float least_decay; /* KDA: below 0 decay = e^(least_decay sigmoid(-a (step + dt_bias))) */
    const gpu_column *cols;
    float *y; /* [n_cols][ldy] */
} gpu_recur;

/* x = RMS norm of groups of `width` times the gate's SiLU or (sigmoid) sigmoid; `first`: the gate
 * comes first, and every group has separate weights. norm NULL: no norm. */
typedef struct gpu_gate {
    const float *gate, *norm;
    int64_t ldg, ldx, n, width;
    bool first, sigmoid;
    float eps;
    int32_t n_cols;
    float *x; /* [n_cols][ldx] */
} gpu_gate;

/* How many parts to split contexts of at most `length` positions into: a function of the power of
 * two above it, so that a program can be kept until a context outgrows it. Parts run side by side,
 * and of two tiles a part loads the second while it works on the first: shorter ones would save
 * little. */
static inline int32_t gpu_attention_splits(int64_t length) {
    int32_t n = 1;
    while (n < GPU_ATTN_SPLITS && (int64_t)n * 2 * GPU_ATTN_TILE < length) n *= 2;
    return n;
}
/* For ubatches of any size: as many parts as there is room for. */
static inline int32_t gpu_attention_splits_of(int64_t length, int32_t n_cols) {
    int32_t n = gpu_attention_splits(length);
    while (n > 1 && n * n_cols > GPU_ATTN_SPLITS * GPU_MAX_COLS) n /= 2;
    return n;
}
static inline size_t gpu_attention_partial(int32_t n_cols, int32_t n_head, int32_t n_splits,
                                           int32_t v_dim) {
    return (size_t)n_cols * (size_t)n_head * (size_t)n_splits * ((size_t)v_dim + 2);
}

/* h = f(gate x + gate_bias) * (up x + up_bias) for rows [0, n); gate.data NULL: f(up x + up_bias).
 * up.data NULL: f(gate x + gate_bias) alone. With a list h[c][i] is of row list[i], i < *count <=
 * n, and 0 where column c did not select it. Activations f(..) of at most `cut` in magnitude count
 * as zero (cut < 0: none do), and what is zero stays zero whatever up is. With `skip` or a list a
 * row of up is not read where the activations of all columns are zero (cut < 0: all are read):
 * exact and threshold mode need nothing else here. *fired grows by the rows of up that were read.
 * Few columns. */
typedef struct gpu_ffn_in {
    gpu_mat gate, up;
    const float *gate_bias, *up_bias;
    activation f;
    float threshold; /* FATReLU's */
    float cut;       /* 0: exact */
    bool skip;
    gpu_input in;
    bool given;                  /* h holds the activations of a gate already; gate.data is NULL */
    const int32_t *list, *count; /* NULL: all rows */
    const uint32_t *bitmap;      /* with a list; NULL: all columns selected all of it */
    int64_t n_words;
    int64_t n;      /* rows: the neurons of this device */
    int32_t *fired; /* [1] or NULL */
    float *h;
    int64_t ldh;
    void *q8; /* [in.n_cols] int8 form of h, without a list; NULL: none */
} gpu_ffn_in;

/* y = f(gate) * up for n elements; up NULL: f(gate). Activations f(gate) of at most `cut` in
 * magnitude (cut < 0: none) and those that their column did not select are zero, and stay zero
 * whatever up is. In place is fine. */
typedef struct gpu_activate {
    const float *gate, *up;
    int64_t ldg, ldu, ldy, n;
    int32_t n_cols;
    activation f;
    bool clamp; /* SiLU, times `up`: gpt-oss's form (ARCH_FFN_CLAMP) */
    bool given; /* gate holds activations already */
    float threshold, cut;
    const uint32_t *bitmap;     /* NULL: all are selected */
    int64_t n_words, first_bit; /* bit first_bit + i is element i's */
    float *y;
    void *q8; /* [n_cols] its int8 form; NULL: none */
} gpu_activate;

/* Scores by signs: y[c][r] = sum_k x[c][k] * s, s = 1 where bit k % 8 of byte k / 8 of row r is
 * set, else -1. Few columns. */
typedef struct gpu_sign_dot {
    const uint8_t *bits; /* [n_out][n_in / 8] */
    int64_t n_in, n_out; /* n_in a multiple of 32 */
    gpu_input in;        /* q8 */
    float *y;
    int64_t ldy;
} gpu_sign_dot;

/* Selected neurons. Column c selects i when v[c][i] + bias[i] >= cut; NaN counts as yes. With v
 * NULL the bits are there already, in bits_in. bitmap (NULL: none) gets those from v; list
 * (NULL: none) ascending the neurons below n_list that any column selected, *count of them. */
typedef struct gpu_select {
    const float *v, *bias;
    const uint32_t *bits_in; /* [n_cols][n_words], n_words of n */
    int64_t ldv, n, n_list;
    int32_t n_cols;
    float cut;
    int32_t *list;    /* room for n_list */
    int32_t *count;   /* [1] */
    uint32_t *bitmap; /* [n_cols][n_words] */
} gpu_select;

/* y[c] = sum over i < *count of h[c][i] * row list[i] of w (a row per neuron: down_t), plus bias
 * and, with `add`, what is in y. list and count NULL: rows [0, n_max). Rows whose h is zero in
 * every column are not read; *fired grows by those that were. Few columns. */
typedef struct gpu_down_rows {
    gpu_mat w;
    const int32_t *list, *count;
    int64_t n_max;
    const float *h;
    int64_t ldh;
    int32_t n_cols;
    const float *bias; /* [w.n_in] or NULL */
    bool add;
    int32_t *fired; /* [1] or NULL */
    float *partial; /* gpu_down_partial floats */
    float *y;
    int64_t ldy;
} gpu_down_rows;

/* Rows are summed in this many parts, then the parts: enough blocks for any GPU, at 4096 outputs.
 */
enum { GPU_DOWN_PARTS = 64 };
static inline size_t gpu_down_partial(int64_t n_in, int32_t n_cols) {
    return (size_t)GPU_DOWN_PARTS * (size_t)n_cols * (size_t)n_in;
}

/* Gaussian top-k, in place: x = f(x - cutoff), what is below it f(0), where a column's cutoff is
 * the mean of its n values plus `deviations` times their standard deviation. */
typedef struct gpu_top_k {
    float *x;
    int64_t ldx, n;
    int32_t n_cols;
    float deviations;
    activation f;
    float threshold;
} gpu_top_k;

/* y[c][i] += x[c][i], likewise to n_more vectors behind y, `step` floats apart. */
typedef struct gpu_add {
    const float *x;
    int64_t ldx, ldy, n;
    int32_t n_cols, n_more;
    int64_t step;
    float *y;
} gpu_add;

/* Several residual streams: n_stream vectors of n of each column, one behind the other; x is the
 * one that a layer computes. With w = coefficients * tanh(router), before a layer (x is made)
 *     stream_a += sum_b w_ab stream_b for all a at once;  x = stream_0
 * and (corrects) after it, with d = x - stream_0,
 *     stream_k += (1 + w_k) d;  x = stream_0;  y = x * scale */
typedef struct gpu_mix {
    bool corrects;
    const float *router;       /* [n_cols][ldr] n_stream numbers */
    const float *coefficients; /* [n_stream][n_stream], before [n_stream][n_stream][n_stream] */
    const float *scale;        /* [n] */
    int64_t lds, ldr, ldx, ldy, n;
    int32_t n_stream, n_cols;
    float *streams, *x, *y; /* y: corrects */
} gpu_mix;

/* x = the mean of stream_0 and of n_stream - 1 vectors, one behind the other, each rescaled to the
 * norm of stream_0. */
typedef struct gpu_merge {
    const float *streams, *others;
    int64_t lds, ldo, ldx, n;
    int32_t n_stream, n_cols;
    float *x;
} gpu_merge;

/* y = cap * tanh(y / cap). */
typedef struct gpu_softcap {
    int64_t ldy, n;
    int32_t n_cols;
    float cap;
    float *y;
} gpu_softcap;

/* ---- mixtures of experts. A choice is an expert's index and the bits of its weight, a float;
 * choices: [n_cols][n_used] of them. Experts [0, n_own) are this device's. */
enum { GPU_CHOICE_WORDS = 2, GPU_MAX_EXPERTS = 1024 };
typedef enum gpu_gating { /* as expert_gating_func has it */
                          GPU_GATING_SOFTMAX = 1,
                          GPU_GATING_SIGMOID,
                          GPU_GATING_SOFTMAX_CHOSEN /* of the scores of those that are chosen */
} gpu_gating;

/* The n_used best experts by probability plus select_bias, of the n_group_used best groups, and
 * their weights, as the CPU chooses them. */
typedef struct gpu_route {
    const float *scores;      /* [n_cols][lds] */
    const float *select_bias; /* [n_expert] or NULL */
    const int32_t *perm;      /* [n_expert] where groups and ties have expert i; NULL: at i */
    int64_t lds;
    int32_t n_expert, n_used, n_group, n_group_used, n_cols;
    gpu_gating gating;
    bool norm;            /* weights are divided by their sum */
    float scale;          /* then multiplied by this */
    const int32_t *slots; /* [n_expert] what choices say in place of an expert; NULL: its index */
    int32_t *uses;        /* [n_expert] grows by how often each was chosen; or NULL */
    uint32_t *choices;
} gpu_route;

/* For every choice of an own expert e, pair p = c * n_used + k: h[p] = f(g) * u, without a gate
 * f(u), where g and u are scales[e] * W_e x + bias[e], W_e the n rows of `gate` or `up` from row
 * e * step on, and x is column c (weigh: times the choice's weight). Zeros for other experts. With
 * `skip` up's rows are not read where f(g) = 0; *fired grows by those that were. */
typedef struct gpu_expert_in {
    gpu_mat gate, up; /* gate.data NULL: none */
    int64_t n, step;  /* n: neurons of an expert, a multiple of 32 */
    const float *gate_bias, *up_bias, *gate_scales,
        *up_scales; /* [n_own][n], [n_own]; NULL: 0, 1 */
    const uint32_t *choices;
    gpu_input in;
    bool weigh, skip, clamp; /* clamp: as gpu_activate's */
    int32_t n_used, n_own, n_cols;
    activation f;
    float threshold;
    int32_t *fired; /* [1] or NULL */
    float *h;       /* [n_cols * n_used][ldh] */
    int64_t ldh;
    void *q8; /* [n_cols * n_used] int8 form of h; NULL: none */
} gpu_expert_in;

/* For every choice of an own expert e, pair p: y[p] = scales[e] * W_e x + bias[e], where W_e are
 * n_out rows from row e * n_out on, and x is column p of the input. Zeros for other experts. */
typedef struct gpu_expert_matvec {
    gpu_mat w;                  /* n_out: rows of one expert */
    const float *bias, *scales; /* [n_own][n_out], [n_own]; NULL: 0, 1 */
    const uint32_t *choices;
    gpu_input in;
    int32_t n_pairs, n_own;
    float *y; /* [n_pairs][ldy] */
    int64_t ldy;
} gpu_expert_matvec;

/* For every choice of an own expert e, pair p: y[p] = scales[e] * sum over i < n of h[p][i] * row
 * e * n + i of w (a row per neuron) + bias[e]. Zeros for other experts. Rows whose h is zero are
 * not read; *fired grows by the others. */
typedef struct gpu_expert_down {
    gpu_mat w;
    int64_t n;                  /* neurons of an expert */
    const float *bias, *scales; /* [n_own][w.n_in], [n_own]; NULL: 0, 1 */
    const uint32_t *choices;
    const float *h; /* [n_cols * n_used][ldh] */
    int64_t ldh;
    int32_t n_used, n_own, n_cols;
    int32_t *fired; /* [1] or NULL */
    float *y;       /* [n_cols * n_used][ldy] */
    int64_t ldy;
} gpu_expert_down;

/* y[c] += (or with `set` =) scale * (sum over the choices of own experts of weight * x[p], plus the
 * shared expert's result, times the sigmoid of its score). *used grows by the number of choices. */
typedef struct gpu_expert_sum {
    const float *x; /* [n_cols * n_used][ldx]; with n_own 0 not read */
    const uint32_t *choices;
    int64_t ldx, ldy, n;
    int32_t n_used, n_own, n_cols;
    bool set, weighed; /* weighed: x has the weights already */
    float scale;
    const float *shared;       /* [n_cols][lds] or NULL */
    const float *shared_score; /* of column c at c * ld_score; NULL: the factor is 1 */
    int64_t lds, ld_score;
    int32_t *used; /* [1] or NULL */
    float *y;
} gpu_expert_sum;

/* An exchange of a layer with experts that has nothing to do: few columns, whose choices are all of
 * experts [0, n_own), or (others) all of other experts. */
typedef struct gpu_idle {
    const uint32_t *choices; /* [n_cols][n_used] choices; NULL: there is always something */
    int32_t n_used, n_own;
    bool others;
} gpu_idle;

/* The exchange, towards the host: writes x (and bits) to pinned memory, then raises the flag to
 * *epoch, an even number; nothing when that is 0. With nothing to do it raises the flag to *epoch +
 * 1 and writes nothing else. n may be 0. Towards another device "host" means pinned memory, or
 * memory of peer_alloc (gpu.h). */
typedef struct gpu_publish {
    const float *x;
    int64_t ldx, n;
    int32_t n_cols;
    const uint32_t *bits; /* [n_cols][n_words]; NULL: none */
    int64_t n_words;
    float *host_x; /* host: [n_cols][n] */
    uint32_t *host_bits;
    uint64_t *flag; /* host */
    const uint64_t *epoch;
    gpu_idle idle;
} gpu_publish;

/* The exchange, from the host, or likewise from another device: clears `clear`, then waits until
 * the flag is at *epoch, then y += host_x, or y = host_x with `set`, and bits = host_bits. When the
 * time is over the device has a fault (gpu.h), y and bits stay as they are, and *epoch becomes 0:
 * the ubatch is over, nothing waits again, and what the host may still be reading is not written
 * again. Where the flag is at *epoch + 1, y stays as it is, and all bits are set: choices of no
 * expert. With nothing to do it does not wait. n may be 0. */
typedef struct gpu_receive {
    const float *host_x; /* host: [n_cols][n] */
    int64_t n, ldy;
    int32_t n_cols;
    bool set;
    const uint32_t *host_bits; /* host: [n_cols][n_words]; NULL: none */
    uint32_t *bits;
    int64_t n_words;
    const uint64_t *flag; /* host */
    uint64_t *epoch;
    gpu_idle idle;
    float *y;
    void *q8;     /* [n_cols] int8 form of y, where it has changed; NULL: none */
    float *clear; /* [n_cols][ld_clear], n elements of each column; NULL: none */
    int64_t ld_clear;
} gpu_receive;

/* The device's clock, once all that was enqueued before is done: the host may read it, as a flag,
 * before the stream is idle. */
typedef struct gpu_stamp {
    uint64_t *ns; /* host: nanoseconds since some moment, never 0 */
} gpu_stamp;

/* ---- the table --------------------------------------------------------------------------------*/

/* All operations: OP(member, MEMBER of gpu_op, struct of arguments). OP_N takes n of the structs:
 * matvec has up to GPU_MAX_PRODUCTS products of one input of few columns, which run side by side.
 * matmul takes any number of columns: prefill. matmul_t is the product over rows:
 * y[c][j] = sum_r x[c][r] W[r][j]; bias and y have n_in elements. */
#define GPU_OPS(OP, OP_N)                                                                          \
    OP(pack, PACK, gpu_pack)                                                                       \
    OP(quantize, QUANTIZE, gpu_quantize)                                                           \
    OP(norm, NORM, gpu_norm)                                                                       \
    OP_N(matvec, MATVEC, gpu_matmul)                                                               \
    OP(matmul, MATMUL, gpu_matmul)                                                                 \
    OP(matmul_t, MATMUL_T, gpu_matmul)                                                             \
    OP(rope_angles, ROPE_ANGLES, gpu_rope_angles)                                                  \
    OP(rope_store, ROPE_STORE, gpu_rope_store)                                                     \
    OP(heads, HEADS, gpu_heads)                                                                    \
    OP(latent_store, LATENT_STORE, gpu_latent_store)                                               \
    OP(find_blocks, FIND_BLOCKS, gpu_find_blocks)                                                  \
    OP(attention, ATTENTION, gpu_attention)                                                        \
    OP(conv, CONV, gpu_conv)                                                                       \
    OP(recur, RECUR, gpu_recur)                                                                    \
    OP(gate, GATE, gpu_gate)                                                                       \
    OP(ffn_in, FFN_IN, gpu_ffn_in)                                                                 \
    OP(activate, ACTIVATE, gpu_activate)                                                           \
    OP(sign_dot, SIGN_DOT, gpu_sign_dot)                                                           \
    OP(select, SELECT, gpu_select)                                                                 \
    OP(down_rows, DOWN_ROWS, gpu_down_rows)                                                        \
    OP(top_k, TOP_K, gpu_top_k)                                                                    \
    OP(add, ADD, gpu_add)                                                                          \
    OP(mix, MIX, gpu_mix)                                                                          \
    OP(merge, MERGE, gpu_merge)                                                                    \
    OP(softcap, SOFTCAP, gpu_softcap)                                                              \
    OP(route, ROUTE, gpu_route)                                                                    \
    OP(expert_in, EXPERT_IN, gpu_expert_in)                                                        \
    OP(expert_matvec, EXPERT_MATVEC, gpu_expert_matvec)                                            \
    OP(expert_down, EXPERT_DOWN, gpu_expert_down)                                                  \
    OP(expert_sum, EXPERT_SUM, gpu_expert_sum)                                                     \
    OP(publish, PUBLISH, gpu_publish)                                                              \
    OP(receive, RECEIVE, gpu_receive)                                                              \
    OP(stamp, STAMP, gpu_stamp)

typedef enum gpu_op {
#define GPU_OP_ENUM(name, NAME, args) GPU_OP_##NAME,
    GPU_OPS(GPU_OP_ENUM, GPU_OP_ENUM)
#undef GPU_OP_ENUM
        GPU_OP_COUNT
} gpu_op;

typedef struct gpu_ops {
#define GPU_OP_MEMBER(name, NAME, args)   void (*name)(gpu_stream * s, const args *a);
#define GPU_OP_MEMBER_N(name, NAME, args) void (*name)(gpu_stream * s, const args *a, int32_t n);
    GPU_OPS(GPU_OP_MEMBER, GPU_OP_MEMBER_N)
#undef GPU_OP_MEMBER
#undef GPU_OP_MEMBER_N
} gpu_ops;

/* ---- what is supported ------------------------------------------------------------------------
 */

/* Sizes of a model's layer that limit kernels. 0: the layer does not have it. */
typedef struct gpu_shape {
    int32_t head_dim, v_dim; /* of a cached key and value; MLA: of the cached row */
    bool latent;             /* MLA */
    int32_t index_dim;       /* sparse attention: of an index query */
    int32_t n_taps, n_state; /* recurrent layers */
    int32_t n_embd, n_stream;
    int32_t n_expert, n_ff_expert;
} gpu_shape;

/* For operations without weights. */
#define GPU_NO_TYPE QUANT_TYPE_COUNT

/* Whether an operation computes with weights of this type in layers of this shape. shape NULL: in
 * layers of at least some shapes. */
typedef bool gpu_supports(gpu_op op, quant_type type, const gpu_shape *shape);

/* What the kernels of src/gpu/cuda support: the answer of cuda, hip and sim. */
bool gpu_kernels_support(gpu_op op, quant_type type, const gpu_shape *shape);
/* "rope_store" */
const char *gpu_op_name(gpu_op op);

#ifdef __cplusplus
}
#endif
#endif
