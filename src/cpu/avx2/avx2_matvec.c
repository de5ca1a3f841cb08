/* avx2_matvec.c: products of quantized rows with one or a few vectors, on any CPU of this tier. */
#include "avx2_matvec.h"

#define DEFINE(type, name, ...) ROWS_DEFINE(extern, avx2, name, mv_run)
QUANT_BLOCKS(DEFINE)
