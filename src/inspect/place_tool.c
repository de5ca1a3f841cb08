/* place_tool.c: pi_place: gathers the inputs of a placement (sizes of the model, modes of its
 * layers, a machine, a budget), solves it and writes the result. */
#include <stdio.h>
#include <string.h>

#include "file.h"
#include "measure_machine.h"
#include "mem.h"
#include "option_types.h"
#include "place_fit.h"
#include "place_stay.h"
#include "place_tool.h"
#include "plan_support.h"
#include "synth_model.h"

enum { DEFAULT_BATCH = 512, MAX_CONTEXT = 1 << 28 };

pi_place_options pi_place_default_options(void) {
    return (pi_place_options){
        .vram_budget = PI_PLACE_ALL,
        .ram_budget = PI_RAM_FREE,
        .max_loss = pi_context_default_options().max_loss,
        .depth = PLACE_DEFAULT_DEPTH,
        .n_batch = DEFAULT_BATCH,
        .density = 1,
    };
}

typedef struct place_job {
    const pi_place_options *options;
    const model *model;
    model *opened; /* from a file; NULL: the shape's */
    model shape;
    measured_machines machines;
    engine_options engine; /* options of the context, on the CPU alone */
    place_workload work;
    place_plan plan;
    place_prediction prediction;
    place_layer_time *layers; /* [n_layer] */
    uint8_t *stays;           /* parts that the options keep on the CPU */
    plan_support support;     /* includes parts that the GPU does not support */
    place_memory memory;
    place_report report;
} place_job;

/* ---- input ----------------------------------------------------------------------------------- */

static pi_status check_options(const pi_place_options *o, pi_error *err) {
    if (o->n_ctx < 0 || o->n_ctx > MAX_CONTEXT || o->depth < 0 || o->n_batch < 1)
        return error_set(err, PI_ERR_ARG, "invalid sizes: place: context %d, depth %d, batch %d",
                         (int)o->n_ctx, (int)o->depth, (int)o->n_batch);
    if (!(o->density >= 0 && o->density <= 1))
        return error_set(err, PI_ERR_ARG, "invalid density: place: %g is not in 0..1", o->density);
    return PI_OK;
}

static pi_status open_model(place_job *j, const char *path, pi_error *err) {
    pi_status status;
    if (j->options->synth) {
        status = synth_model_create(j->options->synth, &j->shape, err);
        j->model = &j->shape;
        return status;
    }
    status = model_open(path, NULL, &j->opened, err);
    j->model = j->opened;
    return status;
}

static pi_status make_workload(place_job *j, pi_error *err) {
    const pi_place_options *o = j->options;
    const place_stay_request request = {.overrides = o->overrides,
                                        .n_overrides = o->n_overrides,
                                        .cpu_experts = o->cpu_experts,
                                        .cpu_ffn = o->cpu_ffn};
    pi_context_options context = pi_context_default_options();
    context.mode = o->mode;
    context.max_loss = o->max_loss;
    context.n_batch = o->n_batch;
    context.n_ctx = o->n_ctx;
    context.cache_k = o->cache_k;
    context.cache_v = o->cache_v;
    context.ram_budget = o->ram_budget;
    pi_status status = option_engine(j->model, &context, &j->engine, err);
    if (status == PI_OK) status = place_stays_create(j->model, &request, &j->stays, err);
    if (status != PI_OK) return status;
    plan_options asked = j->engine.plan;
    asked.stays = j->stays;
    status = plan_support_create(j->model, &asked, &j->support, err);
    if (status != PI_OK) return status;
    asked.stays = j->support.stays;
    size_t n = (size_t)j->model->hp.n_layer;
    j->layers = mem_calloc(n, sizeof *j->layers);
    if (!j->layers) return error_nomem(err, n * sizeof *j->layers, "layers");
    int32_t n_ctx = (int32_t)j->engine.n_positions;
    j->report.n_ctx = n_ctx;
    j->report.depth = o->depth < n_ctx ? o->depth : n_ctx;
    const place_use use = {.n_ctx = n_ctx,
                           .depth = o->depth,
                           .n_batch = o->n_batch,
                           .type_k = j->engine.type_k,
                           .type_v = j->engine.type_v,
                           .density = o->density};
    return place_make_workload(j->model, &asked, use, &j->work, &j->report.mode, err);
}

/* A budget above the card's memory is allowed: the placement is then for a larger card. */
static void choose_budgets(place_job *j) {
    bool more = false;
    for (int i = 0; i < j->machines.n; i++) {
        const place_machine *m = &j->machines.machine[i];
        uint64_t has = m->has_gpu ? m->device[SIDE_GPU].memory_bytes : 0;
        uint64_t *budget = &j->report.budgets[i];
        *budget = j->options->vram_budget;
        if (*budget == PI_PLACE_ALL) *budget = has;
        more = more || (has && *budget > has);
    }
    j->report.budget = j->report.budgets[0];
    if (more && j->options->message)
        j->options->message(
            j->options->user,
            "the budget exceeds this machine's GPU memory: the placement is for a larger GPU");
}

/* Warns when the fixed memory of the GPU exceeds the budget. */
static void warn_of_budget(const place_job *j) {
    const double mib = 1048576;
    const place_machine *m = &j->machines.machine[0];
    uint64_t fixed = m->runtime_bytes + m->margin_bytes + j->work.scratch_bytes;
    char line[256];
    if (!m->has_gpu || j->report.budget == 0 || j->report.budget > fixed || !j->options->message)
        return;
    snprintf(line, sizeof line,
             "nothing fits on the GPU: a budget of %.1f MiB: the runtime takes %.1f MiB, buffers "
             "%.1f MiB, the margin %.1f MiB: use more than %.2f GiB",
             (double)j->report.budget / mib, (double)m->runtime_bytes / mib,
             (double)j->work.scratch_bytes / mib, (double)m->margin_bytes / mib,
             (double)fixed / mib / 1024);
    j->options->message(j->options->user, line);
}

/* Predicts the drive's part of a token. */
static pi_status predict_memory(place_job *j, pi_error *err) {
    const place_memory_case memory = {
        .model = j->model, .work = &j->work, .machine = j->machines.machine, .plan = &j->plan};
    if (j->engine.ram_budget == 0) return PI_OK;
    if (j->options->synth)
        return error_set(err, PI_ERR_ARG,
                         "a memory budget needs a model file: place: write the shape with synth");
    j->report.memory = &j->memory;
    return place_memory_predict(&memory, &j->engine, &j->prediction, &j->memory, err);
}

/* ---- output ---------------------------------------------------------------------------------- */

static const char *name_of(const model *m, const char *path) {
    if (m->name[0]) return m->name;
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static void print_reason(void *out, const char *text) {
    fprintf(out, "%s\n", text);
}

static pi_status write_report(place_job *j, const char *path, FILE *out, pi_error *err) {
    place_report *r = &j->report;
    r->model_name = name_of(j->model, path);
    r->machine = j->machines.machine;
    r->peers = j->machines.here ? j->machines.peers : NULL;
    r->n_devices = j->machines.n;
    r->work = &j->work;
    r->plan = &j->plan;
    r->prediction = &j->prediction;
    r->layers = j->layers;
    pi_status status = PI_OK;
    if (j->options->svg) status = place_write_svg(r, j->options->svg, err);
    if (status != PI_OK) return status;
    if (j->options->json) {
        place_write_json(r, out);
    } else {
        place_write_text(r, out);
        plan_support_explain(j->model, &j->support, print_reason, out);
    }
    return PI_OK;
}

static void free_job(place_job *j) {
    place_plan_free(&j->plan);
    place_workload_free(&j->work);
    mem_free(j->layers);
    mem_free(j->stays);
    plan_support_free(&j->support);
    if (j->options->synth) synth_model_free(&j->shape);
    model_close(j->opened);
}

pi_status pi_place(const char *path, const pi_place_options *options, FILE *out, pi_error *err) {
    const pi_place_options defaults = pi_place_default_options();
    place_job j = {.options = options ? options : &defaults};
    pi_status status = check_options(j.options, err);
    if (status == PI_OK && j.options->svg) status = file_writer_probe(j.options->svg, err);
    if (status == PI_OK) status = open_model(&j, path, err);
    if (status == PI_OK) status = make_workload(&j, err);
    if (status == PI_OK) status = measure_machine(j.options, path, &j.machines, err);
    if (status == PI_OK) {
        const int n = j.machines.n;
        choose_budgets(&j);
        j.report.end[0] = j.work.n_layers;
        if (n > 1) place_choose_stages(&j.work, j.machines.share, n, 0, j.report.end);
        status = place_solve_stages(&j.work, j.machines.machine, j.report.budgets, j.report.end, n,
                                    &j.plan, err);
    }
    if (status == PI_OK) {
        place_predict(&j.work, j.machines.machine, &j.plan, &j.prediction, j.layers);
        status = predict_memory(&j, err);
    }
    if (status == PI_OK) {
        warn_of_budget(&j);
        uint64_t has = j.machines.machine[0].device[SIDE_CPU].memory_bytes;
        if (has && !j.report.memory && j.prediction.resident[SIDE_CPU] > has && j.options->message)
            j.options->message(j.options->user, "the CPU's weights exceed this machine's memory: "
                                                "the prediction assumes that they fit");
        status = write_report(&j, path, out, err);
    }
    free_job(&j);
    return status;
}
