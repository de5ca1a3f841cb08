/* inspect_plan.c: plans depend on the model, the kernels and the placement only, so no context is
 * needed, and nothing is put on the GPU. */
#include "inspect_plan.h"

#include "log.h"
#include "model.h"
#include "option_types.h"
#include "place_device.h"
#include "plan.h"

/* Without a GPU the plan is the CPU's alone; an error when the device was named. */
static pi_status choose_cuts(const model *m, const pi_context_options *o, engine_options *engine,
                             place_fit *fit, pi_error *err) {
    pi_error why = {.status = PI_OK};
    place_gpu gpu;
    if (!place_wants_gpu(o)) return PI_OK;
    pi_status status = place_gpu_open(o, &gpu, &why);
    if (status == PI_OK) status = place_gpu_fit(&gpu, m, engine, o, fit, &why);
    place_gpu_close(&gpu);
    if (status == PI_OK) {
        engine->plan.cuts = fit->plan.cuts;
        engine->plan.head = fit->plan.head;
    } else if (o->device != PI_DEVICE_AUTO) {
        return error_set(err, status, "%s", why.message);
    } else if (status != PI_ERR_NOT_FOUND || place_expects_gpu(o)) {
        log_line(LOG_LEVEL_WARN, "no GPU is used: %s", why.message);
    }
    return PI_OK;
}

pi_status inspect_plan(const char *path, const pi_context_options *o, FILE *out, pi_error *err) {
    model *m;
    cpu_kernels kernels;
    plan *p = NULL;
    place_fit fit = {0};
    pi_status status = model_open(path, NULL, &m, err);
    if (status != PI_OK) return status;
    status = option_check(m, o, err);
    engine_options engine = {0};
    if (status == PI_OK) engine = option_engine(o);
    if (status == PI_OK && !cpu_kernels_get(engine.tier, &kernels))
        status = error_set(err, PI_ERR_UNSUPPORTED,
                           "not supported by this CPU: %s kernels: choose auto",
                           cpu_tier_name(engine.tier));
    if (status == PI_OK) status = choose_cuts(m, o, &engine, &fit, err);
    if (status == PI_OK) status = plan_create(m, &kernels, &engine.plan, &p, err);
    if (status == PI_OK) plan_print(p, out);
    plan_free(p);
    place_fit_free(&fit);
    model_close(m);
    return status;
}
