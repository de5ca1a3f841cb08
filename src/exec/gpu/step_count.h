/* step_count.h: what a layer costs in decode besides its bytes: kernels on the GPU, barriers of the
 * threads on the CPU. Messages between the devices are not counted. */
#ifndef EXEC_STEP_COUNT_H
#define EXEC_STEP_COUNT_H

#include "plan.h"

typedef struct step_counts {
    int32_t always[PLAN_SIDES];  /* on the primary of the layer */
    int32_t neurons[PLAN_SIDES]; /* on a device with some of its neurons (experts) */
    int32_t norms; /* on the GPU as the primary: norms that are part of these kernels */
} step_counts;
/* out: [n_layer + 1], the last is the head. The splits in the options are ignored. depth: positions
 * that the token attends to. Layers without kernels on the GPU have 0 for it. */
pi_status step_count_layers(const model *m, const plan_options *options, int64_t depth,
                            step_counts *out, pi_error *err);

#endif
