/* avx512_plain.c: products of unquantized rows. BF16 rows here are for CPUs without the bf16
 * unit. */
#include "avx512_mat.h"
#include "tier_plain.h"

static const plain_format f32_format = PLAIN_F32, f16_format = PLAIN_F16,
                          bf16_wide_format = PLAIN_BF16;

PLAIN_DEFINE(avx512, f32)
PLAIN_DEFINE(avx512, f16)
PLAIN_DEFINE(avx512, bf16_wide)
