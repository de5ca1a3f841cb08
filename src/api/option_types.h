/* option_types.h: translates the options of the public header to the engine's. */
#ifndef API_OPTION_TYPES_H
#define API_OPTION_TYPES_H

#include "engine.h"
#include "powerinfer.h"

/* Checks a context's options and translates them. Fields about GPUs are checked here and go to
 * place_device.h. ram_budget is 0 for PI_RAM_FREE. PI_ERR_ARG: a value outside its list or limits;
 * PI_ERR_UNSUPPORTED: the model lacks the data for the mode. */
pi_status option_engine(const model *m, const pi_context_options *o, engine_options *out,
                        pi_error *err);
/* Fills in what the caller left to the engine and `tune` has measured on this machine. */
void option_apply_tuning(const model *m, const pi_context_options *o, engine_options *out);

#endif
