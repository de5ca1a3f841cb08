/* model_delta.h: private to src/model. */
#ifndef MODEL_MODEL_DELTA_H
#define MODEL_MODEL_DELTA_H

#include "model.h"

/* Creates SSM_IN and SSM_GATE from a layer's SSM_QKVZ, if it is bound. PI_ERR_NOMEM. */
pi_status model_bind_delta(model *m, int layer, pi_error *err);

#endif
