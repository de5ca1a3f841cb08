/* avx2_matmul_t.c: products over the rows of a matrix. */
#include "avx2_mat.h"
#include "avx2_quants_k.h"
#include "tier_matmul_t.h"

#define QUANTIZED(type, name, ...) MT_DEFINE(avx2, name, name##_format)
QUANT_BLOCKS(QUANTIZED)
#define PLAIN(type, name, ...) MT_DEFINE(avx2, name, name##_weights)
QUANT_PLAIN(PLAIN)
