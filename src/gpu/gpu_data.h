/* gpu_data.h: the data of operations (gpu_ops.h): limits of sizes, packed matrices and quantized
 * columns, the tokens of a ubatch, and the layout of a session's cache. */
#ifndef GPU_GPU_DATA_H
#define GPU_GPU_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "quant.h"

#ifdef __cplusplus
extern "C" {
#endif

/* For functions that kernels also call. */
#if defined(__CUDA__) || defined(__HIP__) /* clang; NVIDIA and AMD GPUs */
#define GPU_BOTH static inline __attribute__((host, device))
#else
#define GPU_BOTH static inline
#endif

enum {
    GPU_MAX_COLS = 8,     /* columns of matrix-vector operations */
    GPU_MAX_BATCH = 8192, /* columns of other operations */
    GPU_MAX_PRODUCTS = 4, /* products of one matvec: Q, K, V and the gate */
    GPU_ROW_ALIGN = 16,   /* bytes: rows are read by 16-byte loads */
    GPU_MAX_HEAD = 512,   /* largest head_dim; a multiple of 8 and of the cache's blocks */
    GPU_MAX_ALIBI = 128,  /* with slopes: larger heads need all registers */
    GPU_MAX_SPARSE = 256, /* of sparse attention, and of its index keys */
    GPU_MAX_LATENT = 576, /* largest head_dim of compressed attention (MLA) */
    GPU_MAX_TAPS = 8,     /* taps of a recurrent layer's convolution */
    GPU_MAX_STATE = 256,  /* elements of a row of a recurrent state */
    GPU_MAX_STREAMS = 8,  /* residual streams of a token */
    GPU_MAX_PASTS = 32,   /* residual streams of attention over earlier residuals */
    GPU_MAX_RANK = 8192,  /* elements of a predictor's hidden vector */
    GPU_ATTN_TILE = 64,   /* positions of an attention tile */
    GPU_ATTN_SPLITS = 32  /* maximum parts of a long context, which run in parallel */
};

/* ---- matrices and quantized vectors ---------------------------------------------------------- */

/* A packed row: the quants of all blocks, then their scales, then zeros up to row_bytes. It has the
 * bytes of a GGUF row, but quants are aligned to 16 bytes. `pack` makes it from a GGUF row.
 * GPU_PARTS_name, next to the type's reader in cuda/gpu_formats_32.h and cuda/gpu_formats_k.h,
 * lists the parts of a row: the block fields of each, for all blocks. Float rows are packed as they
 * are in the file. */
typedef struct gpu_mat {
    const void *data;
    size_t row_bytes; /* gpu_mat_row_bytes */
    int64_t n_in, n_out;
    quant_type type;
    bool in_file; /* imported (gpu.h): quantized rows as in the file, row_bytes apart */
} gpu_mat;

/* All types with CPU kernels. */
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

/* The int8 form of a column, n a multiple of 32: int8 q[n] | float d[n/32] | int32 sum[n/16], each
 * part padded to 16 bytes. Columns are gpu_q8_bytes(n) apart. */
GPU_BOTH size_t gpu_q8_d_offset(int64_t n) {
    return (size_t)n;
}
GPU_BOTH size_t gpu_q8_sum_offset(int64_t n) {
    return (size_t)n + ((size_t)n / 32 * 4 + 15) / 16 * 16;
}
GPU_BOTH size_t gpu_q8_bytes(int64_t n) {
    return gpu_q8_sum_offset(n) + ((size_t)n / 16 * 4 + 15) / 16 * 16;
}

/* The input of a product. q8 may be NULL when the product has no quantized weights. */
typedef struct gpu_input {
    const float *x; /* [n_cols][ldx] */
    int64_t ldx;
    const void *q8; /* [n_cols] int8 form of x, made by `quantize` or a norm */
    int32_t n_cols;
} gpu_input;

/* ---- tokens and cache ------------------------------------------------------------------------ */

/* One per column, in device memory. The host uploads them before a launch, so a program does not
 * depend on the session. A session's cache holds, for every layer, keys and then values. The keys
 * of position p are at kv + n_ctx * k_offset + p * k_row, heads contiguous; k_offset is the bytes
 * per position of everything before these keys. */
typedef struct gpu_column {
    uint8_t *kv;   /* device */
    int64_t n_ctx; /* capacity of the cache in positions */
    int32_t token;
    int32_t pos; /* position of the token, which attends to [0, pos] */
    /* For recurrent layers. A session's columns are contiguous: its run. */
    int32_t at, run;         /* index of the column in its run; length of the run */
    int32_t n_before;        /* columns of the run before state_before, < run */
    const float *state_from; /* device: state before the run; NULL: zeros */
    float *state_to;         /* device: state after the run; may equal state_from */
    float *state_before;     /* device: state after n_before columns; NULL: not stored */
} gpu_column;

/* Layout of a layer's keys and values in the cache of every session. */
typedef struct gpu_kv_layout {
    /* bytes per position before them; for F16 and F32 a multiple of GPU_ROW_ALIGN */
    size_t k_offset, v_offset;
    size_t k_row, v_row;            /* bytes of all heads at one position */
    quant_type type_k, type_v;      /* types of cuda/gpu_cache.h */
    int32_t k_hadamard, v_hadamard; /* size of the Hadamard matrix that multiplies rows, see
                                       kv_hadamard in src/session; 0: none. MLA: both equal */
    /* MLA: one head of up to GPU_MAX_LATENT; v_row 0: the keys are also the values */
    int32_t n_head_kv, head_dim;
    int32_t v_dim; /* elements of a value, at most head_dim */
} gpu_kv_layout;

#ifdef __cplusplus
}
#endif
#endif
