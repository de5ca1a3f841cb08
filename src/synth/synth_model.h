/* synth_model.h: a model without weights: sizes, types and statistics of what pi_synth would write.
 * Its tensors point nowhere; only their presence and sizes may be looked at. */
#ifndef SYNTH_SYNTH_MODEL_H
#define SYNTH_SYNTH_MODEL_H

#include "model.h"
#include "powerinfer_tools.h"

/* PI_ERR_ARG, PI_ERR_NOMEM; nothing is left to free then. */
pi_status synth_model_create(const pi_synth_options *options, model *out, pi_error *err);
void synth_model_free(model *m); /* a zeroed one is fine */

#endif
