/* inspect_plan.c: plans depend on the model, the kernels and the placement only, so no context is
 * needed, and nothing is put on the GPU. */
#include "inspect_plan.h"

#include "log.h"
#include "model.h"
#include "option_types.h"
#include "place_device.h"
#include "plan.h"

/* Without a GPU the plan is the processor's alone. */
static void choose_cuts(const model *m, const pi_context_options *o, engine_options *engine,
                        place_fit *fit) {
    pi_error why = {.status = PI_OK};
    place_gpu gpu;
    if (!place_wants_gpu(o)) return;
    pi_status status = place_gpu_open(o, &gpu, &why);
    if (status == PI_OK) status = place_gpu_fit(&gpu, m, engine, o, fit, &why);
    place_gpu_close(&gpu);
    if (status == PI_OK) {
        engine->plan.cuts = fit->cuts;
        engine->plan.head = fit->head;
    } else if (status != PI_ERR_NOT_FOUND || place_insists_on_gpu(o)) {
        log_line(LOG_LEVEL_WARN, "no GPU is used: %s", why.message);
    }
}

pi_status inspect_plan(const char *path, const pi_context_options *o, FILE *out, pi_error *err) {
    model *m;
    cpu_kernels kernels;
    plan *p = NULL;
    place_fit fit = {0};
    pi_status status = option_check(o, err);
    if (status == PI_OK) status = model_open(path, NULL, &m, err);
    if (status != PI_OK) return status;
    engine_options engine = option_engine(o);
    if (!cpu_kernels_get(engine.tier, &kernels))
        status = error_set(err, PI_ERR_UNSUPPORTED,
                           "no kernels: plan: not on this processor: choose others (--kernels)");
    if (status == PI_OK) {
        choose_cuts(m, o, &engine, &fit);
        status = plan_create(m, &kernels, &engine.plan, &p, err);
    }
    if (status == PI_OK) plan_print(p, out);
    plan_free(p);
    place_fit_free(&fit);
    model_close(m);
    return status;
}
