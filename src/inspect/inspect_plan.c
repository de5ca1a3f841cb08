/* inspect_plan.c: prints plans. A plan depends on the model, the kernels and the placement only, so
 * no context is needed and the GPU's memory is not used. */
#include "inspect_plan.h"

#include "engine.h"
#include "log.h"
#include "mem.h"
#include "model.h"
#include "option_types.h"
#include "place_choose.h"
#include "plan_support.h"

static void print_reason(void *out, const char *text) {
    fprintf(out, "%s\n", text);
}

/* Without a GPU the plan is for the CPU alone; a named device that is missing is an error. */
static pi_status choose_splits(const model *m, const pi_context_options *o, engine_options *engine,
                               place_gpus_fit *fit, pi_error *err) {
    pi_error why = {.status = PI_OK};
    place_gpus gpus;
    uint8_t *stays;
    pi_status status = place_option_stays(m, o, &stays, err);
    if (status != PI_OK || !place_wants_gpu(o)) {
        mem_free(stays);
        return status;
    }
    engine_options sized = *engine;
    sized.plan.stays = stays;
    sized.ram_budget = 0; /* the placement is the same with and without a memory budget */
    status = place_gpus_choose(o, m, &sized, &gpus, fit, &why);
    place_gpus_close(&gpus);
    mem_free(stays);
    if (status == PI_OK) {
        engine->plan.splits = fit->plan.splits;
        engine->plan.head = fit->plan.head;
        engine->plan.merge_norms = fit->merge_norms;
    } else if (o->device != PI_DEVICE_AUTO) {
        return error_set(err, status, "%s", why.message);
    } else if (status != PI_ERR_NOT_FOUND || place_expects_gpu(o)) {
        log_line(LOG_LEVEL_WARN, "running on the CPU: %s", why.message);
    }
    return PI_OK;
}

/* Prints how a memory budget is divided, when one was given. */
static pi_status print_memory(const model *m, engine_options *engine, FILE *out, pi_error *err) {
    const double gib = 1 << 30;
    engine_context *c;
    if (engine->ram_budget == 0) return PI_OK;
    engine->sizes_only = true;
    pi_status status = engine_context_create(m, engine, &c, err);
    if (status != PI_OK) return status;
    paging_sizes s = paging_get_sizes(engine_paging(c));
    engine_context_destroy(c);
    fprintf(out, "memory: budget %.3f GiB, at least %.3f\n", (double)engine->ram_budget / gib,
            (double)(s.needed + s.beside) / gib);
    const struct {
        const char *what;
        uint64_t bytes, of;
    } rows[] = {{"buffers and KV cache", s.beside + s.lent, 0},
                {"always in memory", s.always, 0},
                {"matrices kept in memory", s.pinned, s.pinned + s.streamed},
                {"ring (streamed matrices)", s.ring, s.streamed},
                {"hot prefixes of neurons", s.hot, 0},
                {"cache", s.cache, s.cached}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].bytes == 0) continue;
        fprintf(out, "  %-24s %9.3f GiB", rows[i].what, (double)rows[i].bytes / gib);
        if (rows[i].of) fprintf(out, " of %.3f", (double)rows[i].of / gib);
        fputc('\n', out);
    }
    return PI_OK;
}

pi_status inspect_plan(const char *path, const pi_context_options *o, FILE *out, pi_error *err) {
    model *m;
    cpu_kernels kernels;
    plan *p = NULL;
    place_gpus_fit fit = {0};
    pi_status status = model_open(path, NULL, &m, err);
    if (status != PI_OK) return status;
    engine_options engine = {0};
    status = option_engine(m, o, &engine, err);
    if (status == PI_OK) option_apply_tuning(m, o, &engine);
    if (status == PI_OK && !cpu_kernels_get(engine.tier, &kernels))
        status = error_set(err, PI_ERR_UNSUPPORTED,
                           "not supported by this CPU: %s kernels: choose auto",
                           cpu_tier_name(engine.tier));
    if (status == PI_OK) status = choose_splits(m, o, &engine, &fit, err);
    if (status == PI_OK) status = plan_create(m, &kernels, &engine.plan, &p, err);
    if (status == PI_OK) {
        plan_print(p, out);
        if (fit.support.lacks) plan_support_explain(m, &fit.support, print_reason, out);
    }
    if (status == PI_OK) status = print_memory(m, &engine, out, err);
    plan_free(p);
    place_gpus_fit_free(&fit);
    model_close(m);
    return status;
}
