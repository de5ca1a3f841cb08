/* model_split.h: experts in separate tensors, "blk.N.ffn_gate.E.weight", as in GGUF files of early
 * 2024 and before and in the original PowerInfer's files of Mixtral. Opening a model joins those of
 * a layer: the rest of the engine sees one tensor with a part per expert. */
#ifndef MODEL_MODEL_SPLIT_H
#define MODEL_MODEL_SPLIT_H

#include "model.h"

/* The tensors of all experts of a layer as one, [n_in, n_out, n_expert]. */
typedef struct model_split {
    gguf_tensor all; /* named after the role; data: of the first expert; not in the file's list */
    size_t expert_bytes; /* from expert to expert */
    tensor_role role;
    int layer;
} model_split;

/* Joins all such tensors. Matrices that are evenly spaced in the file stay there; others, and
 * predictors, are copied to the model's memory. PI_ERR_FORMAT: an expert lacks a tensor, or has
 * another type or shape than the first; PI_ERR_NOMEM. */
pi_status model_join_experts(model *m, pi_error *err);
/* The joined tensors of a role in a layer; NULL: there are none. */
const model_split *model_find_split(const model *m, tensor_role role, int layer);
/* The joined tensors that the tensor of this name is a part of, and the part's expert; NULL: it is
 * none. */
const model_split *model_split_of(const model *m, const char *name, int *expert);

#endif
