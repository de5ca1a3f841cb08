/* plan_support.h: which parts of a model a GPU backend supports. The primary's part of a layer and
 * its neurons (experts) need different operations and weight types: each can stay on the CPU
 * without the other. */
#ifndef ENGINE_PLAN_SUPPORT_H
#define ENGINE_PLAN_SUPPORT_H

#include "gpu_support.h"
#include "plan.h"

/* The first feature that a backend lacks for a part: an operation, optionally for weights of a
 * type, or for layers of this shape (`shape`). */
typedef struct plan_lack {
    gpu_op op; /* GPU_OP_COUNT: the part is supported */
    quant_type type;
    bool shape;
    const char *feature; /* of the model: "encoders"; NULL: an operation */
} plan_lack;

typedef enum plan_layer_part { PLAN_PART_PRIMARY, PLAN_PART_NEURONS, PLAN_PARTS } plan_layer_part;

/* Whether tensors of a layer's role belong to its neurons or experts, which may be on either
 * device. `t`: arch_tensor_whole of the role. */
bool plan_tensor_moves(const model_layer *l, tensor_role role, const arch_tensor *t);

/* Whether `supports` (NULL: gpu_kernels_support) has all operations that a part of a layer needs in
 * this mode; layer n_layer: the steps after the layers. *lack: the missing operation. */
bool plan_is_supported(const model *m, int layer, pi_mode mode, plan_layer_part part,
                       gpu_supports *supports, plan_lack *lack);
enum { PLAN_LACK_TEXT = 64 };
/* "experts of this size", "matvec of type Q4_0", "operation recur"; returns `text`. */
const char *plan_lack_text(const plan_lack *lack, char text[PLAN_LACK_TEXT]);

typedef struct plan_support {
    int n_layer;
    uint8_t *stays;   /* [n_layer + 1], plan_options.stays: the parts of the option and the
                         unsupported parts; NULL: none */
    plan_lack *lacks; /* [n_layer + 1][PLAN_PARTS] */
} plan_support;

/* Fills the support for options.supports. PI_ERR_NOMEM. */
pi_status plan_support_create(const model *m, const plan_options *options, plan_support *out,
                              pi_error *err);
void plan_support_free(plan_support *s); /* accepts a zeroed support */
/* The operation that the backend lacks if it supports no part of the model; NULL: it supports some
 * part. */
const plan_lack *plan_support_lacks_all(const plan_support *s);
/* Prints a line for each run of layers that keep a part on the CPU for the same reason. */
void plan_support_explain(const model *m, const plan_support *s,
                          void (*line)(void *user, const char *text), void *user);

#endif
