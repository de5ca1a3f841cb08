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
#include "tier_table.h"

#define NEON_INLINE static inline __attribute__((always_inline))
/* Asks for the cache line at p, which may lie outside of any object. */
#define NEON_PREFETCH(p) __builtin_prefetch(p, 0, 3)

#define NEON_DECLARE(type, name) TIER_DECLARE(neon, name)
TIER_TYPES(NEON_DECLARE)
#define NEON_I8MM_DECLARE(type, name) TIER_MATMUL_DECLARE(neon_i8mm, name)
TIER_Q_TYPES(NEON_I8MM_DECLARE)

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
