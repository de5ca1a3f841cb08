/* model_drafter.h: opens a head that drafts for a model (model_draft): a layer for multi-token
 * prediction (MTP; DeepSeek-V3, arXiv 2412.19437) or an EAGLE-3 head. */
#ifndef MODEL_MODEL_DRAFTER_H
#define MODEL_MODEL_DRAFTER_H

#include "model.h"

/* file NULL: the head is in the target's file, in the layers after the model's last one. Otherwise
 * a file with such layers for the target's architecture, or an EAGLE-3 head; the head then owns the
 * file, which is closed after an error. layer: 0 for the first of these layers. Embeddings, output
 * norm and output matrix missing from the file are taken from the target, which must outlive the
 * head. PI_ERR_NOT_FOUND: the file has no such head; PI_ERR_UNSUPPORTED: an encoder, or an
 * architecture with embeddings per layer or with several residual streams (except DeepSeek-V4);
 * PI_ERR_FORMAT. */
pi_status model_open_drafter(const model *target, gguf_file *file, int layer, model **out,
                             pi_error *err);

/* Tensors that a layer for multi-token prediction adds to those of the architecture. */
const arch_tensor *model_nextn_tensors(int *n);

/* model_open.c: binds the tensors of layers from `first` on, with 0 also global ones; one tensor of
 * a layer, or a global one. PI_ERR_FORMAT, PI_ERR_UNSUPPORTED, PI_ERR_NOMEM. */
pi_status model_bind_layers(model *m, int first, pi_error *err);
pi_status model_bind_tensor(model *m, const arch_tensor *row, int layer, pi_error *err);

#endif
