/* neon_plain.c: products of unquantized rows. */
#include "neon_mat.h"
#include "tier_plain.h"

static const plain_format f32_format = PLAIN_F32, f16_format = PLAIN_F16, bf16_format = PLAIN_BF16;

PLAIN_DEFINE(neon, f32)
PLAIN_DEFINE(neon, f16)
PLAIN_DEFINE(neon, bf16)
