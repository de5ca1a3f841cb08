/* neon_mat.h: what the files of this tier offer to each other, and a transpose that all use.
 *
 * The tier needs NEON and the dot product instructions; files whose name has _i8mm_ also use the
 * products of 8-bit matrices, and are entered into the table only where these are there.
 *
 * Functions with bodies are static: they must not be shared with files compiled for lesser
 * processors. */
#ifndef CPU_NEON_MAT_H
#define CPU_NEON_MAT_H

#include <arm_neon.h>

#include "act.h"
#include "cpu.h"

#define NEON_INLINE static inline __attribute__((always_inline))
/* Asks for the cache line at p, which may lie outside of any object. */
#define NEON_PREFETCH(p) __builtin_prefetch(p, 0, 3)

#define NEON_VEC_DECLARE(name)                                                                     \
    void neon_matvec_##name(const cpu_mat *w, int64_t row0, int64_t row1, const cpu_act *x,        \
                            float *y, int64_t ldy);                                                \
    void neon_matvec_rows_##name(const cpu_mat *w, const int32_t *rows, int64_t n_rows,            \
                                 const cpu_act *x, float *y, int64_t ldy);
#define NEON_MUL_DECLARE(tier, name)                                                               \
    void tier##_matmul_##name(const cpu_mat *w, int64_t row0, int64_t row1, const cpu_act *x,      \
                              float *y, int64_t ldy, void *scratch);

NEON_VEC_DECLARE(f32)
NEON_VEC_DECLARE(f16)
NEON_VEC_DECLARE(bf16)
NEON_MUL_DECLARE(neon, f32)
NEON_MUL_DECLARE(neon, f16)
NEON_MUL_DECLARE(neon, bf16)

/* Every quantized type with kernels in this tier: X(type, format). */
#define NEON_Q_TYPES(X)                                                                            \
    X(Q4_0, q4_0)                                                                                  \
    X(Q4_1, q4_1)                                                                                  \
    X(Q5_0, q5_0)                                                                                  \
    X(Q5_1, q5_1)                                                                                  \
    X(Q8_0, q8_0)                                                                                  \
    X(IQ4_NL, iq4_nl)                                                                              \
    X(MXFP4, mxfp4)                                                                                \
    X(Q2_K, q2_K)                                                                                  \
    X(Q3_K, q3_K)                                                                                  \
    X(Q4_K, q4_K)                                                                                  \
    X(Q5_K, q5_K)                                                                                  \
    X(Q6_K, q6_K)                                                                                  \
    X(IQ4_XS, iq4_xs)

#define NEON_Q_DECLARE(type, format)                                                               \
    NEON_VEC_DECLARE(format)                                                                       \
    NEON_MUL_DECLARE(neon, format)                                                                 \
    NEON_MUL_DECLARE(neon_i8mm, format)
NEON_Q_TYPES(NEON_Q_DECLARE)

void neon_act_encode(const float *x, int64_t ldx, int64_t col0, int64_t col1, cpu_act *out);
uint64_t neon_stream_read(const void *p, size_t n_bytes);

/* 4 x 4 words of 4 bytes: v[i][j] becomes v[j][i]. */
NEON_INLINE void neon_transpose4(uint32x4_t v[4]) {
    uint64x2_t a = vreinterpretq_u64_u32(vtrn1q_u32(v[0], v[1]));
    uint64x2_t b = vreinterpretq_u64_u32(vtrn2q_u32(v[0], v[1]));
    uint64x2_t c = vreinterpretq_u64_u32(vtrn1q_u32(v[2], v[3]));
    uint64x2_t d = vreinterpretq_u64_u32(vtrn2q_u32(v[2], v[3]));
    v[0] = vreinterpretq_u32_u64(vtrn1q_u64(a, c));
    v[1] = vreinterpretq_u32_u64(vtrn1q_u64(b, d));
    v[2] = vreinterpretq_u32_u64(vtrn2q_u64(a, c));
    v[3] = vreinterpretq_u32_u64(vtrn2q_u64(b, d));
}

#endif
