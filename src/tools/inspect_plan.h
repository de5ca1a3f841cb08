/* inspect_plan.h: the steps that a context would run for a model. */
#ifndef TOOLS_INSPECT_PLAN_H
#define TOOLS_INSPECT_PLAN_H

#include <stdio.h>

#include "error.h"

/* Opens the model and prints its plan for this processor, a line per step. Errors of model_open and
 * plan_create. */
pi_status inspect_plan(const char *path, FILE *out, pi_error *err);

#endif
