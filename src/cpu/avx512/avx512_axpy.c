/* avx512_axpy.c: sums of chosen rows times factors, for few columns. */
#include "avx512_mat.h"
#include "avx512_quants_k.h"
#include "tier_axpy.h"

#define QUANTIZED(type, name) AX_DEFINE(avx512, name, name##_format)
TIER_Q_TYPES(QUANTIZED)
#define PLAIN(type, name) AX_DEFINE(avx512, name, name##_weights)
TIER_PLAIN_TYPES(PLAIN)
