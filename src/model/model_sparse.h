/* model_sparse.h: reads the sparse FFN's keys and tensors. Private to src/model. */
#ifndef MODEL_MODEL_SPARSE_H
#define MODEL_MODEL_SPARSE_H

#include "model.h"

/* Fills m->sparse and every layer's `sparse` from the file's keys and the tensors that are bound
 * already, all of them checked. PI_ERR_FORMAT names the key or tensor. */
pi_status model_bind_sparse(model *m, pi_error *err);

#endif
