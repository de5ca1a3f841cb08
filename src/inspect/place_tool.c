/* place_tool.c: pi_place: gathers the inputs of a placement (sizes of the model, modes of its
 * layers, a machine, a budget), solves it and writes the result. */
#include <stdio.h>
#include <string.h>

#include "engine.h"
#include "file.h"
#include "measure_machine.h"
#include "mem.h"
#include "option_types.h"
#include "place_device.h"
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
    place_request request; /* with a GPU */
    place_gpus_fit fit;
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
    context.n_threads = o->n_threads;
    context.n_batch = o->n_batch;
    context.max_batch = o->max_batch;
    context.n_ctx = o->n_ctx;
    context.cache_k = o->cache_k;
    context.cache_v = o->cache_v;
    context.ram_budget = o->ram_budget;
    pi_status status = option_engine(j->model, &context, &j->engine, err);
    if (status == PI_OK && !o->profile) option_apply_tuning(j->model, &context, &j->engine);
    if (status == PI_OK) status = place_stays_create(j->model, &request, &j->stays, err);
    if (status != PI_OK) return status;
    plan_options asked = j->engine.plan;
    asked.stays = j->stays;
    status = plan_support_create(j->model, &asked, &j->support, err);
    if (status != PI_OK) return status;
    asked.stays = j->support.stays;
    for (int i = 0; i < j->machines.n; i++)
        asked.merge_norms |= (uint32_t)!j->machines.machine[i].overlaps << i;
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

/* The part of a budget that a context takes: as when it runs, its margin stays free of the GPU's
 * memory, or of the larger one's that the budget is for. */
static uint64_t without_margin(const place_machine *m, uint64_t budget) {
    uint64_t has = m->device[SIDE_GPU].memory_bytes;
    if (has == 0) return budget;
    if (budget > has) has = budget;
    uint64_t most = has > m->margin_bytes ? has - m->margin_bytes : 0;
    return budget < most ? budget : most;
}

static void make_request(place_job *j) {
    place_request *r = &j->request;
    *r = (place_request){.n = j->machines.n,
                         .n_ctx = j->report.n_ctx,
                         .depth = j->options->depth,
                         .gpu_layers = -1,
                         .max_batch = j->engine.ram_budget ? 0 : j->options->max_batch,
                         .density = j->options->density,
                         .named = j->machines.here && j->options->device != PI_DEVICE_AUTO};
    for (int i = 0; i < r->n; i++) {
        const place_machine *m = &j->machines.machine[i];
        r->gpu[i].name = m->gpu_name[0] ? m->gpu_name : m->name;
        r->gpu[i].machine = *m;
        r->gpu[i].runtime = m->runtime_bytes;
        r->gpu[i].budget = without_margin(m, j->report.budgets[i]);
        r->share[i] = j->machines.share[i];
        if (j->machines.here) r->peers[i] = j->machines.peers[i];
    }
}

/* The placement that a context would get, and the bytes that it would take. */
static pi_status place_as_run(place_job *j, pi_error *err) {
    engine_options engine = j->engine;
    pi_error why = {.status = PI_OK};
    engine.plan.stays = j->stays;
    engine.ram_budget = 0; /* the placement is the same with and without a memory budget */
    make_request(j);
    pi_status status = place_fit_all(&j->request, j->model, &engine, &j->fit, &why);
    if (status == PI_ERR_UNSUPPORTED)
        return PI_OK; /* all on the CPU; the report gives the reasons */
    if (status != PI_OK) return error_set(err, status, "%s", why.message);
    for (int i = 0; i < j->request.n; i++)
        if (place_is_too_small(&j->request, &j->fit, i, &why) && j->report.budgets[i] > 0 &&
            j->options->message)
            j->options->message(j->options->user, why.message);
    return PI_OK;
}

/* The bytes of the GPUs in the prediction are estimates; these are what contexts allocate. */
static void count_bytes(place_job *j) {
    place_prediction *p = &j->prediction;
    p->weights[SIDE_GPU] = p->kv_cache[SIDE_GPU] = p->resident[SIDE_GPU] = 0;
    p->scratch = p->runtime = p->margin = 0;
    for (int i = 0; i < j->request.n; i++) {
        const place_fit *f = &j->fit.stage[i];
        p->on_device[i] = f->any ? place_fit_bytes(f) + j->request.gpu[i].runtime : 0;
        p->resident[SIDE_GPU] += p->on_device[i];
        if (!f->any) continue;
        p->weights[SIDE_GPU] += f->bytes.weights;
        p->kv_cache[SIDE_GPU] += f->kv_bytes;
        p->scratch += f->bytes.scratch + f->program_bytes;
        p->runtime += j->request.gpu[i].runtime;
        p->margin += j->report.budgets[i] - j->request.gpu[i].budget;
    }
}

/* Without a GPU the solver's plan, which has everything on the CPU; else its bound, from the
 * buffers of the placement. */
static pi_status solve(place_job *j, pi_error *err) {
    const int n = j->machines.n;
    const bool has_gpu = j->machines.machine[0].has_gpu;
    place_machine machines[PI_MAX_DEVICES];
    uint64_t budgets[PI_MAX_DEVICES];
    pi_status status = has_gpu ? place_as_run(j, err) : PI_OK;
    for (int i = 0; i < n; i++) {
        machines[i] = j->machines.machine[i];
        machines[i].margin_bytes = 0;
        budgets[i] = has_gpu ? j->request.gpu[i].budget : 0;
        const place_fit *f = &j->fit.stage[i];
        uint64_t scratch = f->any ? f->bytes.scratch + f->program_bytes : f->work.scratch_bytes;
        if (scratch > 0 && (i == 0 || scratch < j->work.scratch_bytes))
            j->work.scratch_bytes = scratch;
    }
    if (status == PI_OK)
        status = place_solve_stages(&j->work, machines, budgets, j->report.end, n, &j->plan, err);
    if (status != PI_OK || !has_gpu) return status;
    for (int i = 0; i < j->work.n_layers; i++)
        j->plan.splits[i] = j->fit.plan.splits ? j->fit.plan.splits[i] : (plan_split){0};
    j->plan.head = j->fit.plan.head;
    j->report.n_batch = j->fit.n_batch;
    j->report.prompt_seconds = j->fit.prompt_seconds;
    j->report.prompt_copies = j->fit.prompt_copies;
    return PI_OK;
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
    return file_name(path);
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
    place_gpus_fit_free(&j->fit);
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
    if (status == PI_OK) status = measure_machine(j.options, path, &j.machines, err);
    if (status == PI_OK) status = make_workload(&j, err); /* kernels depend on the GPUs */
    if (status == PI_OK) {
        const int n = j.machines.n;
        choose_budgets(&j);
        j.report.end[0] = j.work.n_layers;
        if (n > 1) place_choose_stages(&j.work, j.machines.share, n, 0, j.report.end);
        status = solve(&j, err);
    }
    if (status == PI_OK) {
        place_predict(&j.work, j.machines.machine, &j.plan, &j.prediction, j.layers);
        count_bytes(&j);
        status = predict_memory(&j, err);
    }
    if (status == PI_OK) {
        uint64_t has = j.machines.machine[0].device[SIDE_CPU].memory_bytes;
        if (has && !j.report.memory && j.prediction.resident[SIDE_CPU] > has && j.options->message)
            j.options->message(j.options->user, "the CPU's weights exceed this machine's memory: "
                                                "the prediction assumes that they fit");
        status = write_report(&j, path, out, err);
    }
    free_job(&j);
    return status;
}
