/* model_latent.h: matrices of compressed attention (MLA). Private to src/model. */
#ifndef MODEL_MODEL_LATENT_H
#define MODEL_MODEL_LATENT_H

#include "model.h"

/* Checks that a layer has all tensors that its form of MLA needs, and splits a matrix with both
 * keys and values (older files) into two in the model's arena. PI_ERR_FORMAT names the missing
 * tensor; PI_ERR_NOMEM. */
pi_status model_bind_latent(model *m, int layer, pi_error *err);

#endif
