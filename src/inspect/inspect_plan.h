/* inspect_plan.h: the steps that a context would run for a model. */
#ifndef INSPECT_INSPECT_PLAN_H
#define INSPECT_INSPECT_PLAN_H

#include <stdio.h>

#include "powerinfer.h"

/* Opens the model and prints its plan, a line per step, for the CPU and the GPU of the options.
 * Errors of option_engine, model_open and plan_create. */
pi_status inspect_plan(const char *path, const pi_context_options *o, FILE *out, pi_error *err);

#endif
