/* model_check.h: checks of tensors against each other. Private to src/model. */
#ifndef MODEL_MODEL_CHECK_H
#define MODEL_MODEL_CHECK_H

#include "model.h"

/* Checks that the sizes of a classifier's tensors, and of projections of a text's vector, fit each
 * other. PI_ERR_FORMAT. */
pi_status model_check_text(const model *m, pi_error *err);
/* Checks a layer's bound tensors: experts, combinations that no step computes, products of two
 * matrices. PI_ERR_FORMAT, PI_ERR_UNSUPPORTED. */
pi_status model_check_layer(const model *m, int layer, pi_error *err);

#endif
