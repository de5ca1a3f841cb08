/* option_types.h: what the choices of the public header are called inside. */
#ifndef TOOLS_OPTION_TYPES_H
#define TOOLS_OPTION_TYPES_H

#include "cpu.h"
#include "plan.h"
#include "powerinfer.h"

/* The values must be within their lists. */
cpu_tier option_tier(pi_kernels kernels);
ffn_mode option_mode(pi_mode mode);
quant_type option_cache_type(pi_cache_type type);

#endif
