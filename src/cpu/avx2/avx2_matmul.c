/* avx2_matmul.c: products of quantized rows with many vectors, on any CPU of this tier. */
#include "avx2_matmul.h"

#define DEFINE(type, name, ...) TIER_MATMUL_DEFINE(extern, avx2, name, mm_run)
QUANT_BLOCKS(DEFINE)
