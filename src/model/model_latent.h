/* model_latent.h: matrices of compressed attention (MLA). Private to src/model. */
#ifndef MODEL_MODEL_LATENT_H
#define MODEL_MODEL_LATENT_H

#include "model.h"

/* Whether a layer has all that its form needs; keys and values that are in one matrix (older files)
 * become two in the model's arena. PI_ERR_FORMAT names the tensor that is missing, PI_ERR_NOMEM. */
pi_status model_bind_latent(model *m, int layer, pi_error *err);

#endif
