/* avx2_matmul.c: products of quantized rows with many vectors (prefill). */
#include "avx2_columns.h"

#define DEFINE(type, name, ...) TIER_MATMUL_DEFINE(extern, avx2, name, mc_matmul)
QUANT_BLOCKS(DEFINE)
