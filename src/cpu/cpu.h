/* cpu.h: the CPU's kernels, behind one table of functions per tier.
 *
 * A tier is a set of instructions. The table starts as the scalar reference and is overwritten tier
 * by tier in ascending order (scalar, avx2, avx512, avx512 with BF16), so that every entry always
 * exists. Kernels are pure functions over ranges: no allocation, no threads, no errors; the engine
 * splits ranges over its workers. Results do not depend on how ranges are split.
 *
 * Matrices have GGUF's layout: row r holds the n_in weights of output r. A product is y[c][r] =
 * sum_k W[r][k] * x[c][k]. Activations are quantized once per vector to the form that the kernels
 * of the weight type need (cpu_act); all rows use them. */
#ifndef CPU_CPU_H
#define CPU_CPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "activation.h"
#include "quant.h"

typedef enum cpu_tier {
    CPU_TIER_AUTO,
    CPU_TIER_SCALAR,    /* float activations, double accumulation: the reference */
    CPU_TIER_REFERENCE, /* scalar code for the same int8/bf16 arithmetic as the fast tiers; tests */
    CPU_TIER_AVX2,      /* AVX2 + FMA + F16C + BMI2 */
    CPU_TIER_AVX512,    /* F + BW + DQ + VL + VNNI; also the BF16 unit if present */
    CPU_TIER_NEON,      /* NEON + dot products; also I8MM if present */
    CPU_TIER_COUNT
} cpu_tier;

/* ---- activations ---------------------------------------------------------------------------- */

typedef enum cpu_act_kind {
    CPU_ACT_F32,  /* unchanged floats */
    CPU_ACT_BF16, /* rounded to bfloat16 */
    /* int8 in groups of 32 with a float scale, and sums: q = round(x / d), d = amax / 127 */
    CPU_ACT_Q8,
    CPU_ACT_Q8_BF16,   /* Q8 for matvec, and BF16 in more than one panel for large matmuls */
    CPU_ACT_F32_SPLIT, /* F32; in more than one panel two bfloat16, whose sum is x within 2^-16 */
    CPU_ACT_KIND_COUNT
} cpu_act_kind;

typedef enum cpu_act_layout {
    CPU_ACT_COLUMNS, /* vectors are contiguous: for matvec */
    CPU_ACT_PANELS   /* CPU_PANEL vectors interleaved: for matmul */
} cpu_act_layout;

enum {
    CPU_PANEL = 16,     /* vectors in a panel; the last panel is padded with zeros */
    CPU_ACT_GROUP = 32, /* elements per int8 group */
    CPU_ROW_TILE = 16,  /* matmul row ranges start at multiples of this */
    CPU_COL_TILE = 256  /* matmul_t column ranges start at multiples of this: whole blocks */
};

/* Quantized vectors. The layout of `data` is private to src/cpu (act.h there). */
typedef struct cpu_act {
    cpu_act_kind kind;
    cpu_act_layout layout;
    int64_t n;      /* elements of a vector; for Q8 a multiple of CPU_ACT_GROUP */
    int64_t n_cols; /* vectors */
    void *data;     /* 64-byte aligned, cpu_act_bytes(...) long */
} cpu_act;

size_t cpu_act_bytes(cpu_act_kind kind, cpu_act_layout layout, int64_t n, int64_t n_cols);

/* ---- matrices ------------------------------------------------------------------------------- */

typedef struct cpu_mat {
    const void *data; /* row r at data + r * row_bytes; 2-byte alignment is enough */
    size_t row_bytes; /* from row to row; larger than a row when rows of two matrices alternate */
    int64_t n_in;     /* elements per row */
    int64_t n_out;    /* rows */
    quant_type type;
} cpu_mat;

typedef struct cpu_mat_kernels {
    cpu_act_kind act; /* the form of x that both kernels need */

    /* y[c * ldy + r] for r in [row0, row1) and every column c of x (layout COLUMNS). For few
     * columns: each row is read from memory once. */
    void (*matvec)(const cpu_mat *w, int64_t row0, int64_t row1, const cpu_act *x, float *y,
                   int64_t ldy);

    /* Like matvec for many columns (layout PANELS): rows are decoded tile by tile into `scratch`
     * (CPU_SCRATCH_BYTES, 64-byte aligned, one per thread). row0 is a multiple of CPU_ROW_TILE;
     * row1 is a multiple or n_out. */
    void (*matmul)(const cpu_mat *w, int64_t row0, int64_t row1, const cpu_act *x, float *y,
                   int64_t ldy, void *scratch);

    /* Selected rows only: y[c * ldy + i] is row rows[i] times column c, for i < n_rows and every
     * column of x (COLUMNS). rows ascends. The result of a (row, column) pair equals that of matvec
     * bit for bit. Rows are not contiguous: the next ones are prefetched while one is computed. */
    void (*matvec_rows)(const cpu_mat *w, const int32_t *rows, int64_t n_rows, const cpu_act *x,
                        float *y, int64_t ldy);
} cpu_mat_kernels;

/* Matrices stored with one row per neuron whose product runs over neurons: ffn_down_t. */
typedef struct cpu_mat_t_kernels {
    /* Sums of selected rows: acc[c * ldacc + j] += sum over i < n_rows of h[c * ldh + i] *
     * w[rows[i]][j], for j < n_in and c < n_cols. Terms are added in the order of i, weights are
     * exact floats: h is not rounded. A row with h = 0 for a column adds nothing to it. acc is
     * 64-byte aligned. */
    void (*axpy_rows)(const cpu_mat *w, const int32_t *rows, int64_t n_rows, const float *h,
                      int64_t ldh, int64_t n_cols, float *acc, int64_t ldacc);

    /* All rows for many columns: y[c * ldy + j] = sum over n < n_out of h[c][n] * w[n][j], for j in
     * [col0, col1) and every column of h (kind `act`, layout PANELS, n = n_out elements each). col0
     * is a multiple of CPU_COL_TILE; col1 is a multiple or n_in. */
    cpu_act_kind act;
    void (*matmul_t)(const cpu_mat *w, int64_t col0, int64_t col1, const cpu_act *h, float *y,
                     int64_t ldy, void *scratch);
} cpu_mat_t_kernels;

/* Bytes of scratch for matmul and matmul_t of all tiers: a block of decoded rows that fits into L2
 * (512 KiB or more) together with the activations that are multiplied. The last 4096 bytes are for
 * gaps between tiles. A multiple of 64. */
enum { CPU_SCRATCH_BYTES = 256 * 1024 + 4096 };

/* When matmul is faster than matvec, per tier and form of activations. Constants: matvec and matmul
 * round differently, so no measurement at run time may choose between them. Source:
 * docs/performance.md, "Several tokens at once". */
typedef struct cpu_tiled {
    int from; /* number of columns from which matmul is used */
    /* speed of matmul on one core for many columns: weights times columns per ns */
    double products_per_ns;
} cpu_tiled;

/* ---- attention ------------------------------------------------------------------------------ */

/* Attention of queries that share one KV head to positions [k0, k1). Online softmax: per query i
 * the state is (m, l, acc): the running maximum, the sum of exp(s - m), and the sum of exp(s - m) *
 * v. States start as (-inf, 0, 0), are updated in place, and can be merged, so a range of positions
 * may be split. Source: Milakov and Gimelshein 2018; Dao 2022. */
typedef struct cpu_attn {
    const float *q; /* [n_q][head_dim], already scaled */
    int n_q;
    int head_dim; /* of K, a multiple of 2 and of the types' blocks */
    int v_dim;    /* of V, at most head_dim, also a multiple of 2 and of the blocks; 0: head_dim */
    const void *k, *v; /* position j at k + j * k_stride, of type_k; V likewise. v NULL: computes
                          only m, the highest score */
    size_t k_stride, v_stride; /* bytes */
    quant_type type_k, type_v; /* types of the cache */
    int64_t k0, k1;
    const int32_t *first, *limit; /* [n_q]: query i attends to positions in [first[i], limit[i]) */
    float softcap;                /* s = softcap * tanh(s / softcap); 0: off */
    const float *slopes; /* [n_slopes] ALiBi: the score of position j grows by slopes[i % n_slopes]
                          * (j + 1 - limit[i]); NULL: off */
    int n_slopes;
    float *m, *l;  /* [n_q] */
    float *acc;    /* [n_q][v_dim] */
    void *scratch; /* cpu_attn_scratch_bytes(n_q, head_dim), 64-byte aligned */
} cpu_attn;

size_t cpu_attn_scratch_bytes(int n_q, int head_dim);

/* ---- recurrence ------------------------------------------------------------------------------ */

/* Recurrence of one head of a recurrent layer over tokens; the state S is [n_rows][n]. For every
 * token, and every row r:
 *     S[r] *= decay, element by element
 *     d = value[r], or with `beta` beta * (value[r] - S[r] . key)
 *     S[r] += d * key;  out[r] = S[r] . query
 * Without beta this is Mamba-2's scan (Dao and Gu 2024), with beta the gated delta rule (Yang et
 * al. 2024). Several tokens at once are added in another order than single tokens, and round
 * differently. */
typedef struct cpu_recurrence {
    float *state;                     /* [n_rows][n] */
    int64_t n_rows, n;                /* elements of a value, of a key */
    int n_tokens;                     /* 1 to CPU_RECUR_TOKENS */
    const float *decay, *key, *query; /* [n_tokens][n] */
    const float *value;               /* [n_tokens][n_rows] */
    const float *beta;                /* [n_tokens]; NULL: no delta rule */
    float *out;                       /* [n_tokens][ld_out], n_rows of them */
    int64_t ld_out;
    float *scratch; /* cpu_recur_floats(n) */
} cpu_recurrence;

/* Maximum tokens at once: the work on pairs of tokens then equals the work on rows of the state. */
enum { CPU_RECUR_TOKENS = 16 };

static inline size_t cpu_recur_floats(int64_t n) {
    return (3 * CPU_RECUR_TOKENS + 1) * (size_t)n;
}

/* Tile of gemm_tile: its sums fill 24 of AVX-512's 32 registers, or in quarters 12 of 16 registers
 * of 8 floats. */
enum { CPU_GEMM_ROWS = 12, CPU_GEMM_COLS = 32 };

/* ---- the table ------------------------------------------------------------------------------ */

typedef struct cpu_kernels {
    cpu_tier tier;
    const char *name; /* "avx512" */

    cpu_mat_kernels mat[QUANT_TYPE_COUNT];     /* matvec is NULL for types without kernels */
    cpu_mat_t_kernels mat_t[QUANT_TYPE_COUNT]; /* for the same types */
    cpu_tiled tiled[CPU_ACT_KIND_COUNT];

    /* Quantizes columns [col0, col1) of x (column c at x + c * ldx) into `out`. For PANELS col0 is
     * a multiple of CPU_PANEL; col1 is a multiple or n_cols. Non-finite input gives non-finite
     * output, not undefined behaviour. */
    void (*act_encode)(const float *x, int64_t ldx, int64_t col0, int64_t col1, cpu_act *out);

    /* Both norms return the sum of squares, which is not finite when an x is not finite. y = x /
     * sqrt(mean(x^2) + eps) * w; w may be NULL (1). x and y may be equal. */
    float (*rms_norm)(const float *x, const float *w, float *y, int64_t n, float eps);
    /* y = (x - mean) / sqrt(var + eps) * w + b; w, b may be NULL. */
    float (*layer_norm)(const float *x, const float *w, const float *b, float *y, int64_t n,
                        float eps);
    /* Rotates the first n_rot elements of a head in place. cs: [n_rot/2][2] = (cos, sin). Pairs are
     * (2i, 2i+1), or with `neox` (i, i + n_rot/2). */
    void (*rope)(float *x, int n_rot, const float *cs, bool neox);
    /* Multiplies each `block` of n elements in place by the Hadamard matrix of that size
     * (Sylvester's) over sqrt(block), which is its own inverse. block is a power of two that
     * divides n. All tiers give the same bits. */
    void (*hadamard)(float *x, int64_t n, int block);
    /* y[i] = f(gate[i]) * up[i]; up NULL: y[i] = f(gate[i]). threshold is FATReLU's. May run in
     * place. */
    void (*activate)(activation f, float threshold, const float *gate, const float *up, float *y,
                     int64_t n);
    void (*add)(const float *a, const float *b, float *y, int64_t n); /* y = a + b */
    void (*softcap)(float *x, float cap, int64_t n);                  /* x = cap * tanh(x / cap) */
    /* y[i] = e^(a ln(1 + e^v)), v = x[i] + bias[i]: decays of a recurrence, for a < 0. With least <
     * 0 no decay is below e^least: e^(least / (1 + e^(a v))). */
    void (*decay)(const float *x, const float *bias, float a, float least, float *y, int64_t n);
    void (*gate)(const float *gate, float *x, int64_t n); /* x[i] /= 1 + e^-gate[i] */
    void (*recur)(const cpu_recurrence *a);

    /* One tile of a float matrix product, for src/prepare: c[i * ldc + j] = sum over k < n_k of
     * a[k][i] * b[k][j] for i < CPU_GEMM_ROWS, j < CPU_GEMM_COLS; with `add` the sum is added to c.
     * a [n_k][CPU_GEMM_ROWS] and b [n_k][CPU_GEMM_COLS] are packed, 64-byte aligned. */
    void (*gemm_tile)(const float *a, const float *b, int64_t n_k, float *c, int64_t ldc, bool add);

    /* Selects neurons: writes first + i, ascending, for every i < n with score[i] + bias[i] >=
     * threshold (bias NULL: score[i] alone; NaN is selected) and returns their number; `out` has
     * room for n. */
    int64_t (*select)(const float *score, const float *bias, float threshold, int32_t first,
                      int64_t n, int32_t *out);
    /* Keeps the pairs (v[i], rows[i]) for which |v[i]| * weight[i] is above cut or NaN, in order
     * and in place; returns their number. weight NULL: 1. */
    int64_t (*keep)(float *v, const float *weight, int32_t *rows, float cut, int64_t n);
    /* y[c * ldy + r] = sum over k of x[c][k] * s, s = 1 where bit k of row r is set, else -1, for r
     * in [row0, row1). Bit k of a row is bit k % 8 of its byte k / 8; rows are x->n / 8 bytes. x is
     * CPU_ACT_Q8, COLUMNS. */
    void (*sign_dot)(const uint8_t *bits, int64_t row0, int64_t row1, const cpu_act *x, float *y,
                     int64_t ldy);

    /* Writes n floats as a KV cache row of `type`. */
    void (*kv_store)(const float *x, void *dst, quant_type type, int64_t n);
    void (*attention)(const cpu_attn *a);
} cpu_kernels;

/* Fills `out`. False: this CPU lacks the tier's instructions. AUTO chooses the best tier. */
bool cpu_kernels_get(cpu_tier tier, cpu_kernels *out);
const char *cpu_tier_name(cpu_tier tier);

#endif
