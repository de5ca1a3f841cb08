/* inspect_plan.c: plans depend on the model and the kernels only, so no context is needed. */
#include "inspect_plan.h"

#include "model.h"
#include "plan.h"
#include "powerinfer.h"

pi_status inspect_plan(const char *path, FILE *out, pi_error *err) {
    model *m;
    cpu_kernels kernels;
    plan *p = NULL;
    pi_context_options defaults = pi_context_default_options();
    plan_options options = {.mode = FFN_AUTO, .max_loss = defaults.max_loss};
    pi_status status = model_open(path, NULL, &m, err);
    if (status != PI_OK) return status;
    if (!cpu_kernels_get(CPU_TIER_AUTO, &kernels))
        status = error_set(err, PI_ERR_UNSUPPORTED, "no kernels: plan: this processor has none");
    if (status == PI_OK) status = plan_create(m, &kernels, &options, &p, err);
    if (status == PI_OK) plan_print(p, out);
    plan_free(p);
    model_close(m);
    return status;
}
