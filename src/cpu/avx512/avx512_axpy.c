/* avx512_axpy.c: sums of selected rows times factors, for few columns. */
#include "avx512_mat.h"
#include "avx512_quants_k.h"
#include "tier_axpy.h"

#define QUANTIZED(type, name, ...) AX_DEFINE(avx512, name, name##_format)
QUANT_BLOCKS(QUANTIZED)
#define PLAIN(type, name, ...) AX_DEFINE(avx512, name, name##_weights)
QUANT_PLAIN(PLAIN)
