/* synth_model.h: a model without weights: sizes, types and statistics of what pi_synth would write.
 * Its tensors have no data; only their presence and sizes may be used. */
#ifndef SYNTH_SYNTH_MODEL_H
#define SYNTH_SYNTH_MODEL_H

#include "model.h"
#include "powerinfer_tools.h"

/* PI_ERR_ARG, PI_ERR_NOMEM; after an error nothing needs to be freed. */
pi_status synth_model_create(const pi_synth_options *options, model *out, pi_error *err);
void synth_model_free(model *m); /* a zeroed one is fine */

#endif
