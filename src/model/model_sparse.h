/* model_sparse.h: reads the sparse FFN's keys and tensors. Private to src/model. */
#ifndef MODEL_MODEL_SPARSE_H
#define MODEL_MODEL_SPARSE_H

#include "bundle.h"
#include "model.h"

/* Fills m->sparse and every layer's `sparse` from the file's keys and the bound tensors, and checks
 * all of them. PI_ERR_FORMAT names the key or tensor. */
pi_status model_bind_sparse(model *m, pi_error *err);

/* As for a model without such keys and tensors. */
void model_clear_sparse(model *m);

/* Fills m->tuning from the file's keys. PI_ERR_FORMAT names the key. */
pi_status model_read_tuning(model *m, pi_error *err);

/* Call before model_bind_sparse: binds gate, up and FFN_DOWN_T from a layer's FFN_BUNDLE, or the
 * experts' matrices from its EXPERT_BUNDLE, if it is bound; without their scales. PI_ERR_FORMAT
 * names the tensor. */
pi_status model_bind_bundle(model *m, bundle_kind kind, int layer, pi_error *err);
/* Neurons per expert of a layer with an EXPERT_BUNDLE according to the file's key, 0 if the key has
 * no entry; leaves *out unchanged for layers without the bundle. */
void model_bundle_width(const model *m, int layer, int32_t *out);

/* Finds the value of a key with one item per layer, strings or floating-point numbers; *v is NULL
 * when the key is missing. PI_ERR_FORMAT names the key. */
pi_status model_find_array(const model *m, const char *key, bool strings, const gguf_value **v,
                           pi_error *err);

#endif
