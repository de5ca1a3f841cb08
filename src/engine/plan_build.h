/* plan_build.h: what the files that make plans share. Private to src/engine. */
#ifndef ENGINE_PLAN_BUILD_H
#define ENGINE_PLAN_BUILD_H

#include "plan.h"

enum { PLAN_FFN_STEPS = 8 }; /* of one layer's feed-forward half, at most */

/* Appends a step; there is room. */
plan_step *plan_add_step(plan *p, plan_op op, int layer, plan_buffer in);
/* The matrix of a role, bound in layer `layer` (-1: global), with its bias. */
plan_matrix plan_make_matrix(const plan *p, int layer, tensor_role role, tensor_role bias,
                             plan_buffer out);
/* The same as the step's next matrix. */
void plan_add_matrix(const plan *p, plan_step *s, tensor_role role, tensor_role bias,
                     plan_buffer out);
/* The feed-forward half of a layer. */
void plan_add_ffn(plan *p, int layer, const plan_options *options);

#endif
