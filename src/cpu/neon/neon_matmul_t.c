/* neon_matmul_t.c: products over the rows of a matrix. */
#include "neon_mat.h"
#include "neon_quants.h"
#include "tier_matmul_t.h"

#define QUANTIZED(type, name, ...) MT_DEFINE(neon, name, name##_format)
QUANT_BLOCKS(QUANTIZED)
#define PLAIN(type, name, ...) MT_DEFINE(neon, name, name##_weights)
QUANT_PLAIN(PLAIN)
