/* place_stay.h: which parts of a model the user keeps on the CPU, by patterns of tensor names
 * (llama.cpp's --override-tensor) or by numbers of layers. Tensors are not placed one by one: a
 * layer's neurons or experts stay if a pattern matches any of their matrices; its attention, and
 * all other always-read weights, stay if patterns match most bytes of the attention matrices. */
#ifndef PLACE_PLACE_STAY_H
#define PLACE_PLACE_STAY_H

#include "model.h"

typedef struct place_stay_request {
    const char *const *overrides; /* [n_overrides], each "PATTERN=DEVICE,..." */
    int n_overrides;
    int32_t cpu_experts; /* the experts of the first N layers stay */
    int32_t cpu_ffn;     /* the dense FFNs of the first N layers stay */
} place_stay_request;

/* *out: plan_options.stays, to be freed with mem_free; NULL: nothing must stay. The first pattern
 * that matches a tensor's name decides. Patterns that cannot be applied literally produce a
 * warning. PI_ERR_ARG: a bad pattern or device; PI_ERR_UNSUPPORTED: built without PCRE2;
 * PI_ERR_NOMEM. */
pi_status place_stays_create(const model *m, const place_stay_request *r, uint8_t **out,
                             pi_error *err);

#endif
