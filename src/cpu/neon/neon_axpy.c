/* neon_axpy.c: sums of selected rows times factors, for few columns. */
#include "neon_mat.h"
#include "neon_quants.h"
#include "tier_axpy.h"

#define QUANTIZED(type, name, ...) AX_DEFINE(neon, name, name##_format)
QUANT_BLOCKS(QUANTIZED)
#define PLAIN(type, name, ...) AX_DEFINE(neon, name, name##_weights)
QUANT_PLAIN(PLAIN)
