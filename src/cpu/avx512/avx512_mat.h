/* avx512_mat.h: declarations shared by the files of this tier. */
#ifndef CPU_AVX512_MAT_H
#define CPU_AVX512_MAT_H

#include "cpu.h"
#include "tier_table.h"

#define AVX512_DECLARE(type, name, ...) TIER_DECLARE(avx512, name)
QUANT_PLAIN(AVX512_DECLARE)
QUANT_BLOCKS(AVX512_DECLARE)
/* without the bf16 unit */
TIER_MATVEC_DECLARE(avx512, bf16_wide)
TIER_MATMUL_DECLARE(avx512, bf16_wide)

#endif
