/* neon_mat.h: declarations shared by the files of this tier.
 *
 * The tier needs NEON and the dot product instructions; files whose name contains _i8mm_ also use
 * products of 8-bit matrices, and are entered into the table only on CPUs that have them.
 *
 * Functions with bodies are static: they must not be shared with files compiled for older CPUs. */
#ifndef CPU_NEON_MAT_H
#define CPU_NEON_MAT_H

#include "act.h"
#include "cpu.h"
#include "simd.h"
#include "tier_table.h"

#define NEON_INLINE static inline __attribute__((always_inline))

#define NEON_DECLARE(type, name, ...) TIER_DECLARE(neon, name)
QUANT_PLAIN(NEON_DECLARE)
QUANT_BLOCKS(NEON_DECLARE)
#define NEON_I8MM_DECLARE(type, name, ...) TIER_MATMUL_DECLARE(neon_i8mm, name)
QUANT_BLOCKS(NEON_I8MM_DECLARE)

#endif
