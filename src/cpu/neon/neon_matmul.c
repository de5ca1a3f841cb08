/* neon_matmul.c: matrix products of quantized types with the dot product instructions. */
#define MM_I8MM 0
#include "neon_matmul.h"

#define DEFINE(type, name, ...) TIER_MATMUL_DEFINE(extern, neon, name, mm_run)
QUANT_BLOCKS(DEFINE)
