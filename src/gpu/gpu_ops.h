/* gpu_ops.h: the operations of a device: one function and one struct of arguments each.
 *
 * Pointers are device addresses unless marked `host` (pinned memory, at its device address).
 * Matrices are as on the host (row r holds the n_in weights of output r), but packed: see gpu_mat.
 * A column is the vector of one token of a ubatch, float32: column c is at x + c * ld, ld a
 * multiple of 4, aligned to 16 bytes. Operations marked "few columns" take 1..GPU_MAX_COLS columns,
 * the others up to GPU_MAX_BATCH.
 *
 * Selected neurons are bitmaps, uint32 [n_cols][n_words] with n_words = (n + 31) / 32: bit i % 32
 * of word i / 32 of column c. A neuron is zero in every column that did not select it.
 *
 * Kernels read values that change from token to token (token, position, cache, epoch, list lengths)
 * from device memory, so that a recorded program can be replayed; the rest is fixed when an
 * operation is enqueued. Wrong arguments are programmer errors (asserted). Sums have a fixed order:
 * the same program on the same data gives the same bits. */
#ifndef GPU_GPU_OPS_H
#define GPU_GPU_OPS_H

#include "activation.h"
#include "gpu_data.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gpu_stream gpu_stream;

/* ---- arguments, one struct per operation ----------------------------------------------------- */

typedef struct gpu_send gpu_send; /* below, with the exchange */

/* GGUF rows -> packed rows, on the device. */
typedef struct gpu_pack {
    const void *src; /* [n_rows] rows, src_row_bytes apart */
    size_t src_row_bytes;
    gpu_mat dst;          /* its data is written */
    int64_t row0, n_rows; /* rows of dst */
} gpu_pack;

/* q8 = int8 form of x; n is a multiple of 32. */
typedef struct gpu_quantize {
    const float *x;
    int64_t ldx, n;
    int32_t n_cols;
    void *q8;
    const int32_t *list, *n_listed; /* the columns to quantize, their number; NULL: all */
} gpu_quantize;

typedef enum gpu_norm_kind {
    GPU_NORM_RMS,
    GPU_NORM_LAYER,
    GPU_NORM_NONE /* y = x */
} gpu_norm_kind;

/* y = norm(x), with `add` y = y_scale * (y + scale * norm(x)); q8 = int8 form of y. y, q8, w and b
 * may be NULL. When a column's sum of squares is not finite, *bad = max(*bad, mark). With `send`
 * (few columns) y also goes into a message. */
typedef struct gpu_norm {
    const float *x, *w, *b;
    int64_t ldx, ldy, n;
    float eps;
    gpu_norm_kind kind;
    bool add;
    float scale, y_scale; /* with `add` */
    int32_t n_cols;
    int32_t mark;
    int32_t *bad; /* NULL: no check */
    float *y;
    void *q8;
    const gpu_send *send; /* read when the operation is enqueued; NULL: no message */
} gpu_norm;

/* v = scale * W x + bias, with scale_last scale * (W x + bias); y = v, with `add` y + v; with
 * `relu` negative results become 0. */
typedef struct gpu_matmul {
    gpu_mat w;
    gpu_input in;      /* matmul and float weights read x; matvec of quantized weights reads q8 */
    const float *bias; /* [w.n_out] or NULL */
    float scale;
    bool scale_last, add, relu;
    bool precise; /* matmul, matmul_t of F16 weights: float units, with x unrounded, where a
                     rounding error can decide which neurons are active */
    bool rounded; /* matmul, matmul_t: the product enqueued just before left these columns in
                     `scratch`, with an equal gpu_matmul_rounding */
    float *y;
    int64_t ldy;
    void *scratch; /* matmul, matmul_t: gpu_matmul_scratch bytes */
    /* matvec of one product and one column: then norms y, in the same kernel; its x is y. Read when
     * the operation is enqueued; NULL: none */
    const gpu_norm *norm;
    int32_t *arrived; /* with `norm`: [1] zero before and after */
} gpu_matmul;

typedef enum gpu_rounding {
    GPU_ROUND_NOT,
    GPU_ROUND_HALF,
    GPU_ROUND_BF16,
    GPU_ROUND_INT8 /* the form of gpu_input.q8 */
} gpu_rounding;
/* Type to which columns are rounded for tensor cores, by the type of the weights. Products over
 * rows (matmul_t) of quantized weights round to half: the scales of their terms differ. */
static inline gpu_rounding gpu_matmul_rounding(quant_type type, bool precise, bool transposed) {
    if (type == QUANT_F32 || (type == QUANT_F16 && precise)) return GPU_ROUND_NOT;
    if (gpu_type_wants_q8(type) && !transposed) return GPU_ROUND_INT8;
    return type == QUANT_BF16 ? GPU_ROUND_BF16 : GPU_ROUND_HALF;
}

/* A thread block of matmul and matmul_t computes GPU_TILE_OUT outputs of GPU_TILE_COLS columns. A
 * product with too few blocks to fill a GPU is split along its sums (split K), up to
 * GPU_SPLIT_BLOCKS blocks (two for each of 128 multiprocessors), in parts of at least
 * GPU_SPLIT_TERMS terms. So a 4096 x 4096 product of 9 to 64 columns has 256 blocks instead of 32,
 * and all blocks load weights in parallel. */
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
/* Layout of scratch: columns of n_sum elements as 16-bit floats, for tensor cores, and the scale of
 * each column, or their int8 form, which is smaller; then the partial sums. */
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
    const float *inv_freq_long; /* inv_freq for caches of more than long_from positions; NULL:
                                   inv_freq for all */
    int64_t long_from;
    float scale;
    int32_t n_cols, n_half;
    float *cs; /* [n_cols][n_half][2] */
} gpu_rope_angles;

/* QK norm per head (none when weights are NULL and not `norm_bare`), RoPE of Q and K (none when cs
 * is NULL), then stores K and V in the cache at pos; no V when kv.v_row is 0. */
typedef struct gpu_rope_store {
    float *q; /* [n_cols][ldq], in place */
    const float *k, *v;
    int64_t ldq, ldk, ldv;
    int64_t q_stride;             /* floats from head to head of q; 0: head_dim */
    const float *q_norm, *k_norm; /* [head_dim] at head * norm_stride */
    int64_t norm_stride;          /* 0: all heads have the same weights */
    gpu_norm_kind norm;
    bool norm_bare;  /* norm without weights */
    bool norm_late;  /* norm after RoPE */
    bool value_norm; /* RMS norm of values, without weights */
    float clamp;     /* Q, K and V are first clamped to +-clamp; 0: not */
    float eps;
    const float *cs;
    int32_t n_rot, n_head, n_cols;
    int32_t rot_at; /* first rotated element */
    bool neox;
    bool back; /* rotates by the negative angles */
    const gpu_column *cols;
    gpu_kv_layout kv;
} gpu_rope_store;

/* One matrix per head (MLA), or per group of heads. y[c][h * y_stride + r] = scale * W[h * n_out /
 * n_heads + r] . x[c][h * x_stride ..]. Few columns. */
typedef struct gpu_heads {
    gpu_mat w;      /* rows of all heads, head by head */
    const float *x; /* [n_cols][ldx] */
    int64_t ldx, x_stride;
    float scale;
    int32_t n_heads, n_cols;
    float *y; /* [n_cols][ldy] */
    int64_t ldy, y_stride;
    void *scratch; /* gpu_heads_scratch bytes */
} gpu_heads;

/* Inputs of up to GPU_MAX_LATENT elements fit the shared memory of a thread block; the int8 form of
 * longer ones is in memory. */
static inline size_t gpu_heads_scratch(quant_type type, int64_t n_in, int32_t n_heads,
                                       int32_t n_cols) {
    const bool stored = gpu_type_wants_q8(type) && n_in > GPU_MAX_LATENT;
    return stored ? (size_t)n_heads * (size_t)n_cols * gpu_q8_bytes(n_in) : 0;
}

/* MLA: applies RoPE to the n_rot elements of each query and writes them to `out`, where attention
 * reads them; stores the cache row at pos: the rotated key, then the RMS norm of the latent vector.
 * cs NULL: no RoPE. */
typedef struct gpu_latent_store {
    const float *q; /* [n_cols][ldq]: heads of q_dim, the n_rot RoPE elements last */
    const float *k; /* [n_cols][ldk]: the latent vector, then the key's RoPE elements */
    int64_t ldq, ldk, ld_out;
    const float *norm;   /* [kv.head_dim - n_rot] */
    const float *k_norm; /* [n_rot] of the key's RoPE elements, before RoPE; NULL: none */
    float eps;
    const float *cs; /* angles, see gpu_rope_angles */
    int32_t n_rot, q_dim, n_head, n_cols;
    bool neox;
    const gpu_column *cols;
    gpu_kv_layout kv;
    float *out; /* [n_cols][ld_out]: heads of kv.head_dim; writes their first n_rot elements */
} gpu_latent_store;

/* Compressed keys. An element of a key is the sum of its positions' parts, weighted by the softmax
 * of score + positions[p % ratio], or without `positions` the mean. A key has `ratio` positions,
 * with n_parts 2 also those of the key before it. A column's x is its parts [n_parts][dim] and then
 * their scores [n_parts][dim]; with n_parts 2 part 0 belongs to the next key. When a key is
 * complete it replaces the column's last part, is normed, rotated by its own first position, and
 * goes to row p / ratio of the cache. */
typedef struct gpu_compress {
    float *x; /* [n_cols][ldx] */
    int64_t ldx;
    const float *positions;                /* [ratio][n_parts * dim] or NULL */
    const float *norm;                     /* [dim] */
    const float *inv_freq, *inv_freq_long; /* as in gpu_rope_angles */
    int64_t long_from;
    float scale, eps;
    int32_t ratio, n_parts, dim, n_rot, rot_at, n_cols;
    bool neox;
    int64_t at; /* in a state: [n_parts][3][dim] of the incomplete key and the next one: the largest
                   score, the sum of weights, the weighted sum; in a mean weights are 1 */
    const gpu_column *cols; /* those of a session in order */
    gpu_kv_layout kv;       /* the rows: k_offset, k_row, type_k, k_hadamard */
} gpu_compress;

/* Sparse attention: a column at position p attends to `top` of its p / size + 1 blocks of
 * positions, or to all when there are fewer. kv + n_ctx * offset holds scores, float
 * [n_heads][n_blocks] per column of a session, n_blocks for n_ctx positions. A score of
 * GPU_LEFT_OUT excludes its block. With MLA n_heads is 1, size is 1 or a block is one compressed
 * key, and after the scores of a column come the attended blocks, ascending, int32 [n_list]. */
typedef struct gpu_sparse {
    int32_t size, top, n_heads; /* size: positions per block; 0: attend to all positions */
    int32_t n_list;             /* find_blocks with `sums`: top; 0: there are no lists */
    size_t offset;              /* a multiple of 4 */
    bool whole; /* a block is a compressed key: a column has (p + 1) / size of them */
} gpu_sparse;
#define GPU_LEFT_OUT (-INFINITY)

/* Selects the blocks of each head with the highest maximum of q . key over their positions; the
 * last `local` blocks are always selected. With `sums` (DSA) it selects positions, or compressed
 * keys, for all heads: a score is the sum over n_queries queries of weight * max(0, q . key). With
 * `ratio` > 0 a key and its score belong to `ratio` positions; those after the last complete key
 * are always selected.
 * Layout of the index keys: kv.k_offset, k_row, type_k, head_dim; one head. */
typedef struct gpu_find_blocks {
    const float *q; /* [n_cols][ldq] heads of head_dim */
    int64_t ldq;
    bool sums;
    int32_t ratio;        /* with `sums`; 0: a key for each position */
    const float *weights; /* with `sums`: [n_cols][ldw] of n_queries; NULL: 1 */
    int64_t ldw;
    const gpu_column *cols;
    gpu_kv_layout kv;
    gpu_sparse blocks;
    int32_t local, n_cols;
    int32_t n_queries; /* with `sums`; otherwise blocks.n_heads */
    int32_t n_parts;   /* thread blocks that score a column's blocks in parallel, any number */
} gpu_find_blocks;

/* out = softmax(scale q K^T) V over positions [max(0, pos + 1 - window), pos], or (chunks) [pos /
 * window * window, pos]; with `ratio` also over compressed keys. */
typedef struct gpu_attention {
    const float *q; /* [n_cols][ldq] */
    int64_t ldq, ldo;
    int64_t q_stride, gate_stride; /* floats from head to head; 0: head_dim, v_dim */
    const gpu_column *cols;
    gpu_kv_layout kv;
    int32_t n_head, n_cols;
    int32_t n_splits; /* gpu_attention_splits_of the longest context of the ubatch */
    bool precise;     /* queries and weights stay float, see gpu_matmul */
    int32_t window;   /* 0: all */
    bool chunks;
    float scale, softcap; /* softcap 0: off */
    float temperature;    /* scale *= 1 + temperature * ln(1 + (pos + offset) / length) */
    int32_t temperature_length, temperature_offset; /* the quotient is rounded down */
    const float *sinks;  /* [n_head] attention sinks: score of an additional position with value 0;
                            NULL: none */
    const float *slopes; /* [n_head] ALiBi: the score of a position falls by this per position of
                            distance; NULL: none; for heads of up to GPU_MAX_ALIBI elements, without
                            MLA and sparse attention */
    const float *gate;   /* [n_cols][ldg] out *= sigmoid(gate); NULL: none */
    int64_t ldg;
    bool head_gates;    /* one gate per head, gate_stride floats from head to head */
    bool gate_softplus; /* out *= softplus(gate) */
    float *partial;     /* gpu_attention_partial floats; NULL when n_splits is 1 */
    int32_t *arrived;   /* [n_cols * n_head] zeros before and after; not read by MLA */
    float *out;         /* [n_cols][ldo]: heads of v_dim */
    void *q8;           /* [n_cols] int8 form of out, as `quantize` makes it; NULL: none */
    bool turns; /* one column, not MLA: fuses rope_store: `rope` has the query, key and value before
                   norm and RoPE; key and value are stored, unless rope.kv.n_head_kv is 0 */
    gpu_rope_store rope; /* with `turns`; q is not read and not changed */
    gpu_sparse sparse;   /* blocks selected by find_blocks, with `ratio` the compressed keys;
                            excludes turns, otherwise also window, and without MLA splits */
    int32_t ratio;       /* MLA: also attends to (pos + 1) / ratio compressed keys, which are rows
                            at kv + n_ctx * compressed; 0: there are none */
    size_t compressed;
} gpu_attention;

/* ---- recurrent layers: they process a session's columns in order. `at`: offset of the layer's
 * part in a session's state, in floats. */

/* Causal convolution of n channels over a session's columns: y = silu(bias + sum of tap * input),
 * with `gate` y = gate * (bias + sum of tap * input). The input is x, with `by` x * by. The last
 * tap multiplies the current column. The state at `at` is the last n_taps - 1 inputs, [n_taps -
 * 1][n]; one tap has no state. */
typedef struct gpu_conv {
    const float *x, *by, *gate; /* [n_cols][ldx, ldb, ldg]; `by` and `gate` may be NULL */
    int64_t ldx, ldb, ldg, ldy;
    const float *taps[3]; /* [part][n_taps] for channels [0, part), [part, 2 part), the rest */
    const float *bias;    /* [n] or NULL */
    int64_t n, part, at;
    int32_t n_taps, n_cols;
    const gpu_column *cols;
    float *y;
} gpu_conv;

typedef enum gpu_recur_kind {
    GPU_RECUR_SSM,   /* Mamba-2 */
    GPU_RECUR_SCAN,  /* Mamba-1 */
    GPU_RECUR_DELTA, /* gated delta rule */
    GPU_RECUR_KDA    /* gated delta rule with a decay per element of a key */
} gpu_recur_kind;

/* The recurrence of every head over its state S [head_dim][n_state]; S of head 0 is at `at`. A
 * column has decay, key, query, value v and, except for SSM, beta:
 *     S = S decay + d key, d = v or beta (v - S decay key);  y = S query (+ skip * x)
 * SSM: x = values of all heads, keys of all groups, queries of all groups, unless `keys` and
 * `queries` are separate, for one group; step = time steps of heads, or NULL: decay = e^a, d = v.
 * SCAN: one head with separate keys, whose rows each have a step, dt_bias, skip, and an `a` for
 * each element of a key. DELTA: x = queries of all groups, keys of all groups (the kernel
 * normalizes both), values of all heads; step = alphas of heads, or (paired) `beta` holds, per
 * group, the betas of its heads and then their alphas. KDA: step = alphas [n_head][n_state]. */
typedef struct gpu_recur {
    gpu_recur_kind kind;
    const float *x, *step, *beta;
    const float *keys, *queries; /* SSM: NULL or, as SCAN, [n_cols][ldk] */
    int64_t ldx, lds, ldb, ldk, ldy, at;
    const float *dt_bias; /* [n_head]; KDA: [n_head][n_state]; SCAN: [head_dim] */
    const float
        *a; /* [n_head]: decay = e^(a softplus(step + dt_bias)); SCAN: [head_dim][n_state] */
    const float *skip; /* [n_head], SCAN: [head_dim]; or NULL */
    int32_t n_head, n_group, head_dim, n_state, n_cols;
    bool groups_alternate, paired; /* groups_alternate: head h is in group h % n_group, else in h /
                                      (n_head / n_group) */
    float eps;
    float least_decay; /* KDA, if < 0: decay = e^(least_decay sigmoid(-a (step + dt_bias))) */
    const gpu_column *cols;
    float *y; /* [n_cols][ldy] */
} gpu_recur;

/* x = RMS norm of x in groups of `width`, times f(gate), f = SiLU or with `sigmoid` the sigmoid.
 * `first`: norm of x * f(gate), with separate weights per group. norm NULL: no norm. */
typedef struct gpu_gate {
    const float *gate, *norm;
    int64_t ldg, ldx, n, width;
    int64_t share; /* elements of x that share a gate */
    bool first, sigmoid;
    float eps;
    int32_t n_cols;
    float *x; /* [n_cols][ldx] */
} gpu_gate;

/* Number of parts into which attention splits contexts of at most `length` positions. It depends on
 * the next power of two only, so a program stays valid until a context outgrows that. Parts run in
 * parallel. They have at least two tiles, because a part loads its second tile while it computes
 * the first. */
static inline int32_t gpu_attention_splits(int64_t length) {
    int32_t n = 1;
    while (n < GPU_ATTN_SPLITS && (int64_t)n * 2 * GPU_ATTN_TILE < length) n *= 2;
    return n;
}
/* For ubatches of any size: limits the parts to the size of the partial sums. */
static inline int32_t gpu_attention_splits_of(int64_t length, int32_t n_cols) {
    int32_t n = gpu_attention_splits(length);
    while (n > 1 && n * n_cols > GPU_ATTN_SPLITS * GPU_MAX_COLS) n /= 2;
    return n;
}
static inline size_t gpu_attention_partial(int32_t n_cols, int32_t n_head, int32_t n_splits,
                                           int32_t v_dim) {
    return (size_t)n_cols * (size_t)n_head * (size_t)n_splits * ((size_t)v_dim + 2);
}

/* h = f(gate x + gate_bias) * (up x + up_bias) for rows [0, n); gate.data NULL: h = f(up x +
 * up_bias); up.data NULL: h = f(gate x + gate_bias). With a list h[c][i] is row list[i], i < *count
 * <= n, and 0 when column c did not select it. Activations f(..) with |f| cut_weight <= cut become
 * zero (cut < 0: none); a zero activation gives h = 0 for every value of up, also NaN. With up,
 * |h| <= cut_down also becomes zero, and `down_rows` does not read the neuron's row. With `skip`
 * or a list, a row of up is read only when the activation of some column is not zero (cut < 0: all
 * rows are read); modes exact and threshold need no more. *fired += number of rows of up read. Few
 * columns. */
typedef struct gpu_ffn_in {
    gpu_mat gate, up;
    const float *gate_bias, *up_bias;
    activation f;
    float threshold;         /* threshold of FATReLU */
    float cut;               /* 0: exact */
    const float *cut_weight; /* of every row; NULL: 1 */
    float cut_down;          /* 0: none */
    bool skip;
    gpu_input in;
    bool given;                  /* h already holds the activations f(gate); gate.data is NULL */
    const int32_t *list, *count; /* NULL: all rows */
    const uint32_t *bitmap;      /* with a list; NULL: every column selected the whole list */
    int64_t n_words;
    int64_t n;      /* rows: neurons of this device */
    int32_t *fired; /* [1] or NULL */
    float *h;
    int64_t ldh;
    void *q8; /* [in.n_cols] int8 form of h, without a list; NULL: none */
} gpu_ffn_in;

/* Limits of SiLU(gate) * up: gate is at most `most`, up within +-most. `late`: SiLU(gate), not
 * gate, is at most `most`. `shifted` (gpt-oss): the result is gate / (1 + e^-1.702 gate) * (up +
 * 1). `soft` (SiTU): the result is soft tanh(gate / soft) sigmoid(gate) * most tanh(up / most), or
 * * up where most is infinite. */
typedef struct gpu_clamp {
    float most; /* 0: no limits */
    bool shifted, late;
    float soft; /* 0: not */
} gpu_clamp;

/* y = f(gate) * up / divisors for n elements; up NULL: y = f(gate) / divisors. Activations with
 * |f(gate)| cut_weight <= cut (cut < 0: none) and neurons that the column did not select become
 * zero; a zero gives y = 0 for every value of up, also NaN. With up, |f(gate) * up| <= cut_down
 * becomes zero. May run in place. */
typedef struct gpu_activate {
    const float *gate, *up;
    int64_t ldg, ldu, ldy, n;
    int32_t n_cols;
    activation f;
    gpu_clamp clamp; /* SiLU with `up` */
    bool given;      /* `gate` already holds the activations f(gate) */
    float threshold, cut;
    const float *cut_weight;    /* [n]; NULL: 1 */
    float cut_down;             /* 0: none */
    const float *divisors;      /* [n] of y; NULL: 1 */
    const uint32_t *bitmap;     /* NULL: all neurons are selected */
    int64_t n_words, first_bit; /* element i is bit first_bit + i */
    float *y;
    void *q8; /* [n_cols] int8 form of y; NULL: none */
} gpu_activate;

/* Selected neurons. Column c selects i when v[c][i] + bias[i] >= cut, or NaN; `select` writes this
 * to bitmap. With v NULL the selection is given in bits_in; `select` writes to list, ascending, the
 * *count neurons below n_list that any column selected. */
typedef struct gpu_select {
    const float *v, *bias;
    const uint32_t *bits_in; /* [n_cols][n_words], n_words = (n + 31) / 32 */
    int64_t ldv, n, n_list;
    int32_t n_cols;
    float cut;
    int32_t *list;    /* capacity n_list */
    int32_t *count;   /* [1] */
    uint32_t *bitmap; /* [n_cols][n_words] */
} gpu_select;

/* A predictor: computes v[c][i] = scale * row i of w . column c of x, or from signs sum_k x[c][k] *
 * s, s = 1 when bit k % 8 of byte k / 8 of row i of `signs` is set, else -1; and selects neurons by
 * it. Few columns. */
typedef struct gpu_predict {
    gpu_mat w; /* n_in <= GPU_MAX_RANK; with signs only n_in, a multiple of 32, and n_out */
    const uint8_t *signs; /* [n_out][n_in / 8] or NULL */
    gpu_input in;         /* w reads x, and quantizes it if its type wants int8; signs read q8 */
    float scale;
    gpu_select select; /* n is w.n_out; writes bitmap, and if not NULL list; v, bits_in: unused */
    int32_t *arrived;  /* [1] zero before and after; with a list or a message */
    const gpu_send *send; /* sends the bitmaps; NULL: no message */
} gpu_predict;

/* y[c] = sum over i < *count of h[c][i] * row list[i] of w (one row per neuron: down_t), plus bias;
 * with `add`, plus y[c]. list and count NULL: rows [0, n_max). Rows whose h is zero in every column
 * are not read; *fired += number of rows read. Few columns. */
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
    const gpu_norm *norm; /* of one column: see gpu_matmul */
    int32_t *arrived;
} gpu_down_rows;

/* Number of partial sums: enough thread blocks for any GPU, with 4096 outputs. */
enum { GPU_DOWN_PARTS = 64 };
static inline size_t gpu_down_partial(int64_t n_in, int32_t n_cols) {
    return (size_t)GPU_DOWN_PARTS * (size_t)n_cols * (size_t)n_in;
}

/* Gaussian top-k, in place: x = f(max(x - cutoff, 0)). A column's cutoff is the mean of its n
 * values plus `deviations` times their standard deviation. */
typedef struct gpu_top_k {
    float *x;
    int64_t ldx, n;
    int32_t n_cols;
    float deviations;
    activation f;
    float threshold;
} gpu_top_k;

/* y[c][i] += x[c][i]; also adds x to the n_more vectors after y, `step` floats apart. */
typedef struct gpu_add {
    const float *x;
    int64_t ldx, ldy, n;
    int32_t n_cols, n_more;
    int64_t step;
    float *y;
} gpu_add;

/* Several residual streams (AltUp): a column has n_stream contiguous vectors of n elements; x is
 * the stream that a layer updates. With w = coefficients * tanh(router), before a layer (predict):
 *     stream_a += sum_b w_ab stream_b for all a at once;  x = stream_0
 * and after it (`corrects`), with d = x - stream_0:
 *     stream_k += (1 + w_k) d;  x = stream_0;  y = x * scale */
typedef struct gpu_mix {
    bool corrects;
    const float *router; /* [n_cols][ldr], n_stream elements each */
    /* `corrects`: [n_stream][n_stream], else [n_stream][n_stream][n_stream] */
    const float *coefficients;
    const float *scale; /* [n] */
    int64_t lds, ldr, ldx, ldy, n;
    int32_t n_stream, n_cols;
    float *streams, *x, *y; /* y: only with `corrects` */
} gpu_mix;

/* x = mean of stream_0 and of n_stream - 1 contiguous vectors, each rescaled to the norm of
 * stream_0. */
typedef struct gpu_merge {
    const float *streams, *others;
    int64_t lds, ldo, ldx, n;
    int32_t n_stream, n_cols;
    float *x;
} gpu_merge;

/* Hyper-connections: with w_k = factor * sigmoid(scale_0 * weights_k + base_k) + eps, for n_stream
 * contiguous vectors of n elements per column:
 *     x = sum of w_k stream_k, or with `adds` stream_k += w_k x
 * With `adds` and rounds > 0 the streams are first mixed: stream_k = sum of m_jk stream_j. The
 * matrix m is the softmax over k of scale_1 * weights + base, of the n_stream^2 numbers that
 * follow, plus mix_eps. Then its columns are divided by their sums plus mix_eps, and `rounds` - 1
 * times its rows and its columns. */
typedef struct gpu_hyper {
    bool adds;
    const float *weights;      /* [n_cols][ldw], n_stream elements each; mixing: n_stream^2 more */
    const float *base, *scale; /* [n_stream], [1]; mixing: [n_stream + n_stream^2], [2] */
    float factor, eps, mix_eps;
    int32_t rounds;
    int64_t lds, ldw, ldx, n;
    int32_t n_stream, n_cols;
    float *streams, *x;
} gpu_hyper;

/* Gated hyper-connections: x = mean over k of y_k * sigmoid(gate_k), vectors as in gpu_hyper. */
typedef struct gpu_hyper_mean {
    const float *y, *gate;
    int64_t ldy, ldg, ldx, n;
    int32_t n_stream, n_cols;
    float *x;
} gpu_hyper_mean;

/* Attention over earlier residuals. Streams are contiguous vectors of n elements per column; with
 * s_k for k = 0 .. n_past and p = softmax of (score . s_k / rms(s_k)):
 *     x = sum of p_k s_k, and with `begins` then s_(n_past + 1) = s_0,
 * or with `adds` s_0 += x, and with `begins` s_0 = x. */
typedef struct gpu_past {
    bool adds, begins;
    const float *score; /* [n] */
    float eps;          /* added to the mean square */
    int64_t lds, ldx, n;
    int32_t n_past, n_cols;
    float *streams, *x;
} gpu_past;

/* y = cap * tanh(y / cap). */
typedef struct gpu_softcap {
    int64_t ldy, n;
    int32_t n_cols;
    float cap;
    float *y;
} gpu_softcap;

/* ---- mixtures of experts. A choice is an expert's index and the bits of its weight, a float;
 * `choices` is [n_cols][n_used] of them. Experts [0, n_own) are on this device: own experts. */
enum { GPU_CHOICE_WORDS = 2, GPU_MAX_EXPERTS = 1024 };
/* Values of expert_gating_func. SOFTMAX_CHOSEN: softmax over the scores of the chosen experts. */
typedef enum gpu_gating {
    GPU_GATING_SOFTMAX = 1,
    GPU_GATING_SIGMOID,
    GPU_GATING_SOFTMAX_CHOSEN,
    GPU_GATING_SQRT_SOFTPLUS
} gpu_gating;

/* Chooses the n_used experts with the highest probability + select_bias within the n_group_used
 * best groups, and computes their weights. The CPU gives equal choices. */
typedef struct gpu_route {
    const float *scores;      /* [n_cols][lds] */
    const float *select_bias; /* [n_expert] or NULL */
    const int32_t *perm;      /* [n_expert] position of expert i for groups and ties; NULL: i */
    int64_t lds;
    int32_t n_expert, n_used, n_group, n_group_used, n_cols;
    gpu_gating gating;
    bool norm;     /* divide weights by their sum */
    float scale;   /* then multiply them by this */
    int32_t share; /* > 0: experts come in groups of so many; the choices are the groups of the
                      best experts, weighted by the probability of the expert with the
                      group's index; slots does not apply */
    const int32_t *by_token; /* [n_vocab][n_used] the experts of each token; NULL: the best */
    const gpu_column *cols;  /* with by_token */
    const int32_t *slots;    /* [n_expert] index to write in `choices`; NULL: the expert's index */
    int32_t *uses;           /* [n_expert] += number of times each was chosen; or NULL */
    uint32_t *choices;
    const gpu_send *send; /* few columns: sends the choices; NULL: no message */
} gpu_route;

/* For choice k of column c, an own expert e, pair p = c * n_used + k: h[p] = f(g) * u, without a
 * gate h[p] = f(u). g and u are scales[e] * W_e x + bias[e]; W_e is the n rows of `gate` or `up`
 * from row e * step on; x is column c (with `weigh` times the weight of the choice). Other experts
 * give zeros. With `skip` a row of up is not read when f(g) = 0; *fired += number of rows of up
 * read. */
typedef struct gpu_expert_in {
    gpu_mat gate, up; /* gate.data NULL: none */
    int64_t n, step;  /* n: neurons of an expert, a multiple of 32 */
    const float *gate_bias, *up_bias, *gate_scales,
        *up_scales; /* [n_own][n], [n_own]; NULL: 0, 1 */
    const uint32_t *choices;
    gpu_input in;
    bool weigh, skip;
    gpu_clamp clamp;
    int32_t n_used, n_own, n_cols;
    activation f;
    float threshold;
    int32_t *fired; /* [1] or NULL */
    float *h;       /* [n_cols * n_used][ldh] */
    int64_t ldh;
    void *q8; /* [n_cols * n_used] int8 form of h; NULL: none */
} gpu_expert_in;

/* For every pair p with an own expert e: y[p] = scales[e] * W_e x + bias[e]. W_e is the n_out rows
 * from row e * n_out on; x is column p of the input. Other experts give zeros. */
typedef struct gpu_expert_matvec {
    gpu_mat w;                  /* n_out: rows of one expert */
    const float *bias, *scales; /* [n_own][n_out], [n_own]; NULL: 0, 1 */
    const uint32_t *choices;
    gpu_input in;
    int32_t n_pairs, n_own;
    float *y; /* [n_pairs][ldy] */
    int64_t ldy;
} gpu_expert_matvec;

/* For every pair p with an own expert e: y[p] = scales[e] * sum over i < n of h[p][i] * row e * n +
 * i of w (one row per neuron) + bias[e]. Other experts give zeros. Rows whose h is zero are not
 * read; *fired += number of rows read. */
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

/* y[c] += (with `set`: =) scale * (sum over pairs p of column c with own experts of weight * x[p] +
 * shared * sigmoid(shared_score)). *used += number of choices of own experts. */
typedef struct gpu_expert_sum {
    const float *x; /* [n_cols * n_used][ldx]; not read when n_own is 0 */
    const uint32_t *choices;
    int64_t ldx, ldy, n;
    int32_t n_used, n_own, n_cols;
    bool set, weighed; /* weighed: x already includes the weights */
    float scale;
    const float *shared;       /* [n_cols][lds] or NULL */
    const float *shared_score; /* [n_cols], ld_score apart; NULL: the factor is 1 */
    int64_t lds, ld_score;
    int32_t *used; /* [1] or NULL */
    float *y;
} gpu_expert_sum;

/* Prompts: tiles of pairs that have one expert. expert_group sorts the pairs with own experts by
 * expert (pairs of an expert stay in order), and divides each expert's pairs into tiles. How many
 * tiles there are is only known on the device: there is memory for the largest number, and tiles
 * that are not needed have n = 0. */
typedef struct gpu_expert_tile {
    int32_t expert, first, n; /* pairs [first, first + n) of the list, n <= GPU_TILE_COLS */
    int32_t unused;           /* a tile is 16 bytes */
} gpu_expert_tile;

/* Device memory, gpu_expert_lists_at. */
typedef struct gpu_expert_lists {
    gpu_expert_tile *tile;  /* [gpu_expert_tiles] */
    int32_t *n_listed;      /* [1] pairs with own experts */
    int32_t *pair, *column; /* [n_pairs] the first *n_listed: the sorted pairs, their columns */
} gpu_expert_lists;

/* Maximum number of tiles: only the last tile of an expert has fewer than GPU_TILE_COLS pairs, so
 * c pairs take at most (c + GPU_TILE_COLS - 1) / GPU_TILE_COLS tiles, and experts without pairs
 * none. */
static inline int32_t gpu_expert_tiles(int32_t n_pairs, int32_t n_own) {
    int64_t experts = n_own < n_pairs ? n_own : n_pairs;
    return (int32_t)((n_pairs + experts * (GPU_TILE_COLS - 1)) / GPU_TILE_COLS);
}
static inline size_t gpu_expert_lists_bytes(int32_t n_pairs, int32_t n_own) {
    return GPU_ROW_ALIGN + (size_t)gpu_expert_tiles(n_pairs, n_own) * sizeof(gpu_expert_tile) +
           2 * (size_t)n_pairs * sizeof(int32_t);
}
/* The lists in memory of this many bytes, also for fewer pairs and experts. */
static inline gpu_expert_lists gpu_expert_lists_at(void *memory, int32_t n_pairs, int32_t n_own) {
    gpu_expert_lists l;
    l.n_listed = (int32_t *)memory;
    l.tile = (gpu_expert_tile *)((uint8_t *)memory + GPU_ROW_ALIGN);
    l.pair = (int32_t *)(l.tile + gpu_expert_tiles(n_pairs, n_own));
    l.column = l.pair + n_pairs;
    return l;
}

typedef struct gpu_expert_group {
    const uint32_t *choices;
    int32_t n_used, n_own, n_cols;
    gpu_expert_lists lists; /* written */
} gpu_expert_group;

typedef enum gpu_expert_result {
    GPU_EXPERT_PRODUCT,   /* y = v */
    GPU_EXPERT_ACTIVATED, /* y = f(v) */
    GPU_EXPERT_GATED      /* y = y v, where y holds the activations of the gate */
} gpu_expert_result;

/* For every listed pair p, with expert e: v = scales[e] * W_e x + bias[e], W_e the w.n_out rows
 * from row e * step on; with `by_rows` v = scales[e] * sum over r < w.n_out of x[r] * row r +
 * bias[e] (one row per neuron). x is the pair's column of the input, or with `of_pairs` column p;
 * with `weigh` times the weight of the choice. y[p] is as `result` says; rows of other pairs are
 * not written. A pair's result does not depend on the other pairs. */
typedef struct gpu_expert_matmul {
    gpu_mat w; /* n_out: rows of one expert */
    int64_t step;
    const float *bias, *scales; /* [n_own][n_out or, by_rows, n_in], [n_own]; NULL: 0, 1 */
    const uint32_t *choices;
    gpu_expert_lists lists;
    gpu_input in;                  /* n_cols: of all columns, or pairs; reads x */
    bool by_rows, of_pairs, weigh; /* by_rows: result is PRODUCT */
    bool precise, rounded;         /* as in gpu_matmul */
    int32_t n_used, n_own, n_cols;
    gpu_expert_result result;
    gpu_clamp clamp;
    activation f;
    float threshold;
    float *y; /* [n_cols * n_used][ldy] */
    int64_t ldy;
    void *scratch; /* gpu_matmul_columns(elements of x, in.n_cols) bytes */
} gpu_expert_matmul;

/* Tells whether an exchange of a layer with experts is empty: few columns, whose choices are all in
 * [0, n_own), or with `others` all outside. */
typedef struct gpu_idle {
    const uint32_t *choices; /* [n_cols][n_used]; NULL: the exchange is never empty */
    int32_t n_used, n_own;
    bool others;
} gpu_idle;

/* A message that the operations with its contents send themselves, without `publish`: they write
 * pinned memory together with device memory, and the last block raises the flag. It leaves a wave
 * of blocks earlier than a separate kernel next to the neurons. An operation writes host_x or
 * host_q8 (norm) or host_bits (select, route), where they are not NULL; the one that comes last has
 * a flag. Epoch and empty messages are those of `publish`, except that vectors are written before
 * it is known that a message is empty. */
struct gpu_send {
    float *host_x;       /* host: [n_cols][n] */
    void *host_q8;       /* host: [n_cols] int8 form */
    uint32_t *host_bits; /* host: [n_cols][n_words] */
    uint64_t *flag;      /* host; NULL: a later operation raises it */
    const uint64_t *epoch;
    int32_t *arrived; /* [1] zero before and after, for several columns */
    gpu_idle idle;
};

/* Exchange, device to host: writes x (and bits) to pinned memory, then raises the flag to *epoch,
 * an even number. When *epoch is 0 it does nothing. An empty exchange (`idle`) raises the flag to
 * *epoch + 1 and writes nothing else. n may be 0. From device to device "host" means pinned memory,
 * or memory of peer_alloc (gpu.h). */
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

/* Exchange, host (or another device) to device: sets `clear` to zeros, waits until the flag is at
 * *epoch, then y += host_x, with `set` y = host_x, and bits = host_bits. When the wait times out,
 * the device has a fault (gpu.h), y and bits are unchanged, and *epoch becomes 0: later exchanges
 * of this ubatch neither wait nor write memory that the host may still read. When the flag is at
 * *epoch + 1, y is unchanged and all bits are set: choices of no expert. An empty exchange (`idle`)
 * does not wait. n may be 0. */
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
    uint32_t wait_ms; /* how long it waits; 0: as long as the device was opened for */
    gpu_idle idle;
    float *y;
    void *q8;     /* [n_cols] int8 form of y, written when y changes; NULL: none */
    float *clear; /* [n_cols][ld_clear], n elements per column; NULL: none */
    int64_t ld_clear;
    /* few columns: a norm of y in the same kernel, also after an empty exchange; NULL: none */
    const gpu_norm *norm; /* its x is y; read when the operation is enqueued */
} gpu_receive;

/* Stores the device's clock when all earlier work of the stream is done. The host may poll it like
 * a flag, before the stream is idle. */
typedef struct gpu_stamp {
    uint64_t *ns; /* host: nanoseconds since an arbitrary moment, never 0 */
} gpu_stamp;

/* ---- the table --------------------------------------------------------------------------------*/

/* All operations: OP(member, MEMBER of gpu_op, struct of arguments). OP_N takes an array of n
 * structs: matvec computes up to GPU_MAX_PRODUCTS products of one input of few columns,
 * in one launch when their types are equal. matmul takes any number of columns (prefill). matmul_t
 * is the product over rows: y[c][j] = sum_r x[c][r] W[r][j]; bias and y have n_in elements. */
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
    OP(compress, COMPRESS, gpu_compress)                                                           \
    OP(find_blocks, FIND_BLOCKS, gpu_find_blocks)                                                  \
    OP(attention, ATTENTION, gpu_attention)                                                        \
    OP(conv, CONV, gpu_conv)                                                                       \
    OP(recur, RECUR, gpu_recur)                                                                    \
    OP(gate, GATE, gpu_gate)                                                                       \
    OP(ffn_in, FFN_IN, gpu_ffn_in)                                                                 \
    OP(activate, ACTIVATE, gpu_activate)                                                           \
    OP(predict, PREDICT, gpu_predict)                                                              \
    OP(select, SELECT, gpu_select)                                                                 \
    OP(down_rows, DOWN_ROWS, gpu_down_rows)                                                        \
    OP(top_k, TOP_K, gpu_top_k)                                                                    \
    OP(add, ADD, gpu_add)                                                                          \
    OP(mix, MIX, gpu_mix)                                                                          \
    OP(merge, MERGE, gpu_merge)                                                                    \
    OP(hyper, HYPER, gpu_hyper)                                                                    \
    OP(hyper_mean, HYPER_MEAN, gpu_hyper_mean)                                                     \
    OP(past, PAST, gpu_past)                                                                       \
    OP(softcap, SOFTCAP, gpu_softcap)                                                              \
    OP(route, ROUTE, gpu_route)                                                                    \
    OP(expert_in, EXPERT_IN, gpu_expert_in)                                                        \
    OP(expert_matvec, EXPERT_MATVEC, gpu_expert_matvec)                                            \
    OP(expert_down, EXPERT_DOWN, gpu_expert_down)                                                  \
    OP(expert_sum, EXPERT_SUM, gpu_expert_sum)                                                     \
    OP(expert_group, EXPERT_GROUP, gpu_expert_group)                                               \
    OP(expert_matmul, EXPERT_MATMUL, gpu_expert_matmul)                                            \
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

#ifdef __cplusplus
}
#endif
#endif
