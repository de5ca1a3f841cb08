/* avx2_matvec.c: products of quantized rows with one or a few vectors, on any processor of this
 * tier. */
#include "avx2_matvec.h"

#define DEFINE(type, format) MV_DEFINE(extern, avx2, format)
AVX2_Q_TYPES(DEFINE)
