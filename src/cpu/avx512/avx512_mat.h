/* avx512_mat.h: what the files of this tier offer to each other. */
#ifndef CPU_AVX512_MAT_H
#define CPU_AVX512_MAT_H

#include "cpu.h"
#include "tier_table.h"

#define AVX512_DECLARE(type, name) TIER_DECLARE(avx512, name)
TIER_TYPES(AVX512_DECLARE)
/* without the bf16 unit */
TIER_MATVEC_DECLARE(avx512, bf16_wide)
TIER_MATMUL_DECLARE(avx512, bf16_wide)

void avx512_act_encode(const float *x, int64_t ldx, int64_t col0, int64_t col1, cpu_act *out);
uint64_t avx512_stream_read(const void *p, size_t n_bytes);

#endif
