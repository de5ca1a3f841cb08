/* option_types.h: what the choices of the public header are called inside. */
#ifndef API_OPTION_TYPES_H
#define API_OPTION_TYPES_H

#include "engine.h"
#include "powerinfer.h"

/* The value must be within its list. */
quant_type option_cache_type(pi_cache_type type);

/* Whether a context's options are within their lists and limits, PI_ERR_ARG, and the model has what
 * the mode needs, PI_ERR_UNSUPPORTED. */
pi_status option_check(const model *m, const pi_context_options *o, pi_error *err);
/* All of them but what concerns the GPU. */
engine_options option_engine(const pi_context_options *o);

#endif
