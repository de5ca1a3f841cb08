/* avx512_matmul_t.c: products over the rows of a matrix, in floats: for F32 and F16 rows, whose
 * precision bfloat16 would lose, and for all types on CPUs without the bf16 unit. */
#include "avx512_mat.h"
#include "avx512_quants_k.h"
#include "tier_matmul_t.h"

#define QUANTIZED(type, name, ...) MT_DEFINE(avx512, name, name##_format)
QUANT_BLOCKS(QUANTIZED)
#define PLAIN(type, name, ...) MT_DEFINE(avx512, name, name##_weights)
QUANT_PLAIN(PLAIN)
