/* place_stay.h: what has to stay on the CPU because somebody said so, by tensors' names as
 * llama.cpp's --override-tensor has them, or by layers. Tensors are not placed one by one: a
 * layer's neurons (experts) stay when a matrix of theirs is named; its attention, with all that a
 * token always reads, stays when most bytes of attention's matrices are. */
#ifndef PLACE_PLACE_STAY_H
#define PLACE_PLACE_STAY_H

#include "model.h"

typedef struct place_stay_request {
    const char *const *overrides; /* [n_overrides], each "PATTERN=DEVICE,..." */
    int n_overrides;
    int32_t cpu_experts, cpu_ffn; /* experts, and dense FFNs, of so many first layers */
} place_stay_request;

/* *out: plan_options.stays, to be freed with mem_free; NULL: nothing has to stay. The first pattern
 * that is found in a tensor's name counts. What cannot be kept to the letter is a warning in the
 * log. PI_ERR_ARG: a pattern or a device; PI_ERR_UNSUPPORTED: built without PCRE2; PI_ERR_NOMEM. */
pi_status place_stays_create(const model *m, const place_stay_request *r, uint8_t **out,
                             pi_error *err);

/* Whether a tensor of a layer is part of its neurons, or experts, which may be on either device.
 * `t`: the row of the tensor, or of that which it is part of; NULL: there is none. */
bool place_tensor_moves(const model_layer *l, tensor_role role, const arch_tensor *t);

#endif
