/* place_device.c: finds and opens GPUs, and describes the machine. */
#include "place_device.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "gpu_known.h"
#include "gpu_presence.h"
#include "gpu_reading.h"
#include "log.h"
#include "mem.h"
#include "place_profile.h"
#include "place_prompt.h"
#include "place_stay.h"

/* The simulated GPU has no meaningful speed. Placement treats it as fast with free transfers, so
 * that it gets filled. */
static const double SIM_GPU_GBPS = 1000, SIM_CPU_GBPS = 10, SIM_STEP = 0, SIM_SYNC = 1e-7;

static const double GIB = 1073741824;

enum { MAX_DEVICES = 64 }; /* maximum devices of a backend; others are ignored */
/* Assumed bytes per second for choosing among devices: of a device that reports no bandwidth, and
 * of the CPU. */
static const double UNKNOWN_RATE = 250e9, CPU_RATE = 50e9;

/* ---- the machine ----------------------------------------------------------------------------- */

static place_machine simulated_machine(const gpu_info *info) {
    const place_device gpu = {info->memory_total, SIM_GPU_GBPS, SIM_GPU_GBPS, SIM_STEP};
    const place_device cpu = {0, SIM_CPU_GBPS, SIM_CPU_GBPS, SIM_STEP};
    place_machine m = {.name = "simulated",
                       .has_gpu = true,
                       .device = {[SIDE_CPU] = cpu, [SIDE_GPU] = gpu},
                       .sync = SIM_SYNC,
                       .overlaps = info->overlaps};
    snprintf(m.gpu_name, sizeof m.gpu_name, "%s", info->name);
    return m;
}

/* Rates are rounded to a sixteenth of an octave (4%), more than a measurement varies on an idle
 * GPU: so most processes get equal rates, and equal placements. */
static double round_rate(double gbps) {
    const double steps = 16;
    return gbps > 0 ? exp2(round(steps * log2(gbps)) / steps) : 0;
}

/* Times reading the device's memory, once per process: 3 to 15 ms. The rates that the data sheet
 * gives stay where the times are not plausible: another program uses the GPU, it has not left a low
 * power state, or it is emulated. */
static void time_reading(const gpu_backend *b, const place_gpu *g, uint64_t most_bytes,
                         place_device *out) {
    const double least_gbps = 5, least_share = 0.5; /* of what the data sheet promises */
    const double promised = g->info.bandwidth > 0 ? out->stream_gbps : 0;
    gpu_known *known = gpu_known_lock(b->name, g->index);
    if (!known->timed) {
        const gpu_reading_options options = {.most_bytes = most_bytes,
                                             .long_ms = 0.5,
                                             .least_gbps = fmax(least_gbps, least_share * promised),
                                             .repeats = 3};
        gpu_reading reading;
        known->timed = true;
        if (gpu_reading_measure(b, g->device, &options, &reading, NULL) == PI_OK &&
            reading.stream_gbps >= options.least_gbps) {
            known->stream_gbps = round_rate(reading.stream_gbps);
            known->gather_gbps = round_rate(reading.gather_gbps);
        }
    }
    if (known->stream_gbps > 0) {
        out->stream_gbps = known->stream_gbps;
        out->gather_gbps = known->gather_gbps;
    }
    gpu_known_unlock();
}

/* Seconds of an exchange where kernels may not wait for the host, timed once per process. */
static double time_sync(const gpu_backend *b, const place_gpu *g, double otherwise) {
    gpu_known *known = gpu_known_lock(b->name, g->index);
    double seconds = known->sync;
    if (seconds == 0 && gpu_reading_sync(b, g->device, &seconds, NULL) != PI_OK) seconds = 0;
    known->sync = seconds;
    gpu_known_unlock();
    return fmax(seconds, otherwise);
}

/* This machine with the GPU: rates from `cache` (NULL: none), or else data sheet figures with a
 * bandwidth that is measured now. */
static void describe_machine(const pi_context_options *o, place_gpu *g) {
    const gpu_backend *b = g->library.backend;
    const gpu_backend_row *row = gpu_backend_find(b->name);
    place_machine *m = &g->machine;
    if (row && !row->real) {
        *m = simulated_machine(&g->info);
    } else {
        const bool measured = place_profile_of_gpu(&g->info, o->machine, m);
        m->shared = g->info.shared_memory;
        uint64_t room = g->info.memory_free < o->vram_budget ? g->info.memory_free : o->vram_budget;
        if (!measured) time_reading(b, g, room / 4, &m->device[SIDE_GPU]);
        if (!b->kernels_may_wait) m->sync = time_sync(b, g, m->sync);
        m->device[SIDE_GPU].memory_bytes = g->info.memory_free;
    }
    m->node_bytes = b->node_bytes;
}

/* ---- the device ------------------------------------------------------------------------------ */

int place_choose_device(const gpu_info *infos, int n, uint64_t need, uint64_t budget) {
    int best = 0;
    double least = INFINITY;
    for (int i = 0; i < n; i++) {
        double rate = infos[i].bandwidth > 0 ? infos[i].bandwidth : UNKNOWN_RATE;
        uint64_t fits = infos[i].memory_free < budget ? infos[i].memory_free : budget;
        uint64_t here = need < fits ? need : fits;
        double seconds = need > 0 ? (double)here / rate + (double)(need - here) / CPU_RATE
                                  : 1 / rate;
        if (seconds >= least) continue;
        least = seconds;
        best = i;
    }
    return best;
}

/* gpu_device_check, with the description of a device. */
static pi_status describe(const gpu_backend *b, int index, gpu_info *info, pi_error *err) {
    const gpu_backend_row *row = gpu_backend_find(b->name);
    pi_status status = b->describe(index, info, err);
    return status == PI_OK && row ? gpu_device_check(row, info, err) : status;
}

/* Device `wanted` of a backend; -1: the best device for `need` bytes. */
static pi_status choose_index(const gpu_backend *b, const pi_context_options *o, int wanted,
                              uint64_t need, int *index, gpu_info *info, pi_error *err) {
    gpu_info infos[MAX_DEVICES];
    int numbers[MAX_DEVICES], n = 0, found = 0;
    pi_status status = b->count(&n, err);
    if (status != PI_OK) return status;
    if (wanted >= n)
        return error_set(err, PI_ERR_NOT_FOUND, "no device %d: %s: there are %d, from 0 on", wanted,
                         b->name, n);
    status = error_set(err, PI_ERR_NOT_FOUND, "no device found: %s", b->name);
    for (int i = 0; i < n && found < MAX_DEVICES; i++) {
        if (wanted >= 0 && i != wanted) continue;
        pi_status answer = describe(b, i, &infos[found], err);
        if (answer != PI_OK) status = answer;
        if (answer != PI_OK || (infos[found].software && o->device == PI_DEVICE_AUTO)) continue;
        numbers[found++] = i;
    }
    if (found == 0) return status;
    int best = place_choose_device(infos, found, need, o->vram_budget);
    *index = numbers[best];
    *info = infos[best];
    return PI_OK;
}

/* Bytes that may be allocated; 0: the budget does not even cover the runtime. */
static uint64_t set_budget(const pi_context_options *o, place_gpu *g) {
    const place_machine *m = &g->machine;
    uint64_t free = g->info.memory_free; /* the runtime is loaded already */
    uint64_t usable = free > m->margin_bytes ? free - m->margin_bytes : 0;
    g->runtime = m->runtime_bytes;
    g->budget = usable + g->runtime;
    if (o->vram_budget >= g->budget) return usable; /* the margin stays free with any budget */
    g->budget = o->vram_budget;
    return g->budget > g->runtime ? g->budget - g->runtime : 0;
}

/* The free memory is measured after the runtime is loaded. */
static pi_status open_one(const pi_context_options *o, uint64_t need, const char *name, int wanted,
                          place_gpu *g, pi_error *err) {
    uint64_t total;
    const gpu_open_options options = {.cache_folder = o->cache_folder};
    pi_status status = gpu_library_open(name, o->backend_folder, &g->library, err);
    const gpu_backend *b = g->library.backend;
    if (status == PI_OK) status = choose_index(b, o, wanted, need, &g->index, &g->info, err);
    if (status == PI_OK) status = b->open(g->index, gpu_host_default(), &options, &g->device, err);
    if (status == PI_OK) status = b->memory(g->device, &g->info.memory_free, &total, err);
    if (status != PI_OK) return status;
    describe_machine(o, g);
    uint64_t limit = set_budget(o, g);
    if (limit == 0 && o->vram_budget == PI_VRAM_FREE)
        return error_set(err, PI_ERR_LIMIT,
                         "too little memory: %s: %.2f GiB are free, runtime and margin take %.2f: "
                         "end other programs that use the GPU",
                         g->info.name, (double)g->info.memory_free / GIB,
                         (double)(g->runtime + g->machine.margin_bytes) / GIB);
    if (limit == 0)
        return error_set(err, PI_ERR_LIMIT,
                         "too little memory: %s: the budget is %.2f GiB, the runtime takes "
                         "%.2f: use a larger one",
                         g->info.name, (double)g->budget / GIB, (double)g->runtime / GIB);
    b->limit(g->device, limit);
    return PI_OK;
}

/* Numbers of the requested devices, *n >= 1; -1: the best device. */
static void list_wanted(const pi_context_options *o, int *n, int wanted[PI_MAX_DEVICES],
                        double share[PI_MAX_DEVICES]) {
    int n_shares = 0, n_all = o->n_devices;
    for (int i = 0; i < PI_MAX_DEVICES; i++)
        if (o->tensor_split[i] > 0) n_shares = i + 1;
    if (n_all <= 0) n_all = n_shares;
    *n = 0;
    for (int i = 0; i < n_all; i++) {
        if (n_shares > 0 && !(o->tensor_split[i] > 0)) continue;
        wanted[*n] = o->n_devices > 0 ? o->devices[i] : i;
        share[(*n)++] = (double)o->tensor_split[i];
    }
    if (*n == 0) wanted[(*n)++] = -1;
}

static void find_peers(place_gpus *g) {
    memset(g->peers, 0, sizeof g->peers);
    for (int i = 0; i < g->n; i++)
        for (int k = 0; k < g->n; k++)
            if (g->gpu[i].library.backend->reaches(g->gpu[i].index, g->gpu[k].index))
                g->peers[i] |= 1u << k;
}

/* The best device of one backend. */
static pi_status open_named(const pi_context_options *o, uint64_t need, const char *name,
                            place_gpus *g, pi_error *err) {
    int n, wanted[PI_MAX_DEVICES];
    pi_status status = PI_OK;
    list_wanted(o, &n, wanted, g->share);
    for (int i = 0; i < n && status == PI_OK; i++) {
        g->n = i + 1;
        status = open_one(o, need, name, wanted[i], &g->gpu[i], err);
        if (status == PI_OK && n > 1 && g->gpu[i].library.backend->one_device)
            status = error_set(err, PI_ERR_UNSUPPORTED,
                               "several GPUs: %s: a context uses one of its devices", name);
        if (status == PI_OK && !(g->share[i] > 0))
            g->share[i] = (double)(g->gpu[i].budget - g->gpu[i].runtime);
    }
    if (status == PI_OK) find_peers(g);
    return status;
}

static void close_one(place_gpu *g) {
    if (g->device) g->library.backend->close(g->device);
    gpu_library_close(&g->library);
}

pi_status place_gpus_add(const pi_context_options *o, int index, place_gpus *g, int *at,
                         pi_error *err) {
    place_gpu added = {0};
    assert(g->n > 0 && g->n < PI_MAX_DEVICES);
    pi_status status = open_one(o, 0, g->gpu[0].library.backend->name, index, &added, err);
    if (status != PI_OK) {
        close_one(&added);
        return status;
    }
    for (*at = g->n++; *at > 0 && g->gpu[*at - 1].index > index; --*at) {
        g->gpu[*at] = g->gpu[*at - 1];
        g->share[*at] = g->share[*at - 1];
    }
    g->gpu[*at] = added;
    g->share[*at] = (double)(added.budget - added.runtime);
    find_peers(g);
    return PI_OK;
}

bool place_wants_gpu(const pi_context_options *o) {
    return o->device != PI_DEVICE_CPU && o->vram_budget != 0 && o->gpu_layers != 0;
}

bool place_expects_gpu(const pi_context_options *o) {
    return o->device != PI_DEVICE_AUTO || o->vram_budget != PI_VRAM_FREE || o->gpu_layers >= 0;
}

/* Finds out why a backend has no device, if there is a GPU. */
static void explain(const pi_context_options *o, const gpu_backend_row *row, const place_gpus *g,
                    pi_error *err) {
    gpu_presence p;
    gpu_presence_find("", row, &p);
    gpu_presence_explain(&p, row, g->gpu[0].library.backend != NULL, o->backend_folder != NULL,
                         err);
}

/* The best device of any backend. The reason of a backend whose GPU is present takes precedence
 * over those of others; a warning reports a GPU that is passed over. */
static pi_status open_best(const pi_context_options *o, uint64_t need, place_gpus *out,
                           pi_error *err) {
    pi_error why = {.status = PI_OK};
    const char *first_name = "";
    const gpu_backend_row *row;
    for (int i = 0; (row = gpu_backend_at(i)); i++) {
        pi_error here = {.status = PI_OK};
        if (!row->real) continue;
        if (open_named(o, need, row->name, out, &here) == PI_OK) {
            if (why.status != PI_OK && why.status != PI_ERR_NOT_FOUND)
                log_line(LOG_LEVEL_WARN, "not used: %s: %s", first_name, why.message);
            return PI_OK;
        }
        explain(o, row, out, &here);
        place_gpus_close(out);
        if (i > 0 && (why.status != PI_ERR_NOT_FOUND || here.status == PI_ERR_NOT_FOUND)) continue;
        why = here;
        first_name = row->title;
    }
    return error_set(err, why.status, "%s", why.message);
}

pi_status place_gpus_open(const pi_context_options *o, uint64_t need, place_gpus *out,
                          pi_error *err) {
    *out = (place_gpus){0};
    if (o->device == PI_DEVICE_AUTO) return open_best(o, need, out, err);
    const gpu_backend_row *row = gpu_backend_at((int)o->device - PI_DEVICE_CPU - 1);
    pi_error why;
    if (open_named(o, need, row->name, out, &why) == PI_OK) return PI_OK;
    explain(o, row, out, &why);
    place_gpus_close(out);
    return error_set(err, why.status, "%s", why.message);
}

void place_gpus_close(place_gpus *g) {
    for (int i = 0; i < g->n; i++) close_one(&g->gpu[i]);
    *g = (place_gpus){0};
}

/* ---- splits ---------------------------------------------------------------------------------- */

static uint64_t usable(const place_request *r, int d) {
    return r->gpu[d].budget > r->gpu[d].runtime ? r->gpu[d].budget - r->gpu[d].runtime : 0;
}

static place_fit_options options_for(const place_request *r, int d, const model *m,
                                     const engine_options *engine) {
    return (place_fit_options){.model = m,
                               .engine = engine,
                               .machine = &r->gpu[d].machine,
                               .budget = usable(r, d),
                               .node_bytes = r->gpu[d].machine.node_bytes,
                               .n_ctx = r->n_ctx,
                               .depth = r->depth,
                               .gpu_layers = r->gpu_layers,
                               .density = r->density};
}

/* Maximum memory of a stage's GPU for the input from the previous stage. */
static uint64_t inbox_bytes(const place_request *r, int d, const model *m,
                            const engine_options *engine) {
    bool reached = false;
    for (int i = 0; i < d; i++) reached = reached || r->peers[i] >> d & 1;
    return reached ? gpu_exec_inbox_bytes(m, engine->n_batch) : 0;
}

/* What GPU d is asked to hold: its part of layers [first, end). */
static place_fit_options stage_options(const place_request *r, int d, const model *m,
                                       const engine_options *engine, int first, int end) {
    place_fit_options options = options_for(r, d, m, engine);
    uint64_t apart = inbox_bytes(r, d, m, engine);
    options.budget = options.budget > apart ? options.budget - apart : 0;
    options.first = first;
    options.end = end;
    return options;
}

/* Places layers [first, end) on one GPU. */
static pi_status fit_stage(const place_request *r, int d, const model *m,
                           const engine_options *engine, int first, int end, place_fit *out,
                           pi_error *err) {
    place_fit_options options = stage_options(r, d, m, engine, first, end);
    pi_status status = place_fit_create(&options, out, err);
    if (status != PI_OK || out->any || out->least > options.budget || !r->named) return status;
    place_fit_free(out);
    options.gpu_layers = m->hp.n_layer + 1;
    status = place_fit_create(&options, out, err);
    if (status != PI_OK || out->any || r->gpu_layers >= 0) return status;
    place_fit_free(out);
    options.gpu_layers = -1;
    options.always = true;
    return place_fit_create(&options, out, err);
}

bool place_is_too_small(const place_request *r, const place_gpus_fit *f, int d, pi_error *err) {
    const double mib = 1048576;
    const place_fit *s = &f->stage[d];
    uint64_t need = s->least + r->gpu[d].runtime;
    char help[96] = "";
    if (s->any || s->least <= s->budget) return false;
    if (s->least_batch > 0)
        snprintf(help, sizeof help, ", or a batch of at most %d", s->least_batch);
    else if (s->least_without_kv)
        snprintf(help, sizeof help, ", or a smaller context");
    error_set(err, PI_ERR_LIMIT,
              "too little memory: %s: the budget is %.1f MiB, the runtime takes %.1f MiB, the "
              "smallest useful placement %.1f MiB: use a budget of at least %.1f MiB%s",
              r->gpu[d].name, (double)r->gpu[d].budget / mib, (double)r->gpu[d].runtime / mib,
              (double)s->least / mib, ceil((double)need / mib * 10) / 10, help);
    return true;
}

/* Why a stage has nothing; PI_OK: none has. */
static pi_status refuse_empty(const place_request *r, const place_gpus_fit *f, int first_layer,
                              pi_error *err) {
    for (int d = 0, first = 0; d < r->n; first = f->end[d++]) {
        if (first == f->end[d] || f->end[d] <= first_layer || f->stage[d].any) continue;
        if (place_is_too_small(r, f, d, err)) return PI_ERR_LIMIT;
        if (f->support.stays && f->stage[d].least == 0)
            return error_set(err, PI_ERR_LIMIT, "not used: %s: all its layers must stay on the CPU",
                             r->gpu[d].name);
        return error_set(err, PI_ERR_LIMIT,
                         "not used: %s: this model is predicted to run faster on the CPU alone",
                         r->gpu[d].name);
    }
    return PI_OK;
}

/* The first layer that may be on a GPU. */
static int first_on_gpu(const model *m, const place_request *r) {
    bool few = r->gpu_layers >= 0 && r->gpu_layers < m->hp.n_layer;
    return few ? m->hp.n_layer - r->gpu_layers : 0;
}

/* The workload of the whole model. */
static pi_status make_workload(const model *m, const engine_options *engine, const place_request *r,
                               place_workload *out, pi_error *err) {
    const char *mode;
    const place_use use = {.n_ctx = r->n_ctx,
                           .depth = r->depth,
                           .n_batch = engine->n_batch,
                           .type_k = engine->type_k,
                           .type_v = engine->type_v,
                           .density = r->density};
    return place_make_workload(m, &engine->plan, use, out, &mode, err);
}

/* Computes the sizes of all devices for the plan; reduces the room of devices over their budget. */
static pi_status measure_all(const place_request *r, const model *m, const engine_options *engine,
                             place_gpus_fit *f, uint64_t *room, bool *fits, pi_error *err) {
    pi_status status = PI_OK;
    *fits = true;
    for (int d = 0; d < r->n && status == PI_OK; d++) {
        place_fit_options options = options_for(r, d, m, engine);
        options.device = d;
        status = place_fit_measure(&options, &f->plan, &f->stage[d], err);
        uint64_t bytes = place_fit_bytes(&f->stage[d]);
        if (status != PI_OK || bytes <= options.budget) continue;
        uint64_t over = bytes - options.budget;
        room[d] = room[d] > over ? room[d] - over : 0;
        *fits = false;
    }
    return status;
}

/* Helpers use the memory that stages leave free, unless the number of offloaded layers was given.
 * Sizes differ from the solver's by more than rounding: a device without cold rows needs no buffers
 * for them. */
static pi_status fit_helpers(const place_request *r, const model *m, const engine_options *engine,
                             const place_workload *work, place_gpus_fit *f, pi_error *err) {
    enum { ROUNDS = 8 };
    uint64_t room[PI_MAX_DEVICES] = {0};
    place_machine machine[PI_MAX_DEVICES];
    pi_status status = PI_OK;
    if (r->n == 1) return PI_OK;
    bool fits = false;
    if (r->gpu_layers >= 0) return measure_all(r, m, engine, f, room, &fits, err);
    for (int d = 0; d < r->n; d++) {
        uint64_t used = place_fit_bytes(&f->stage[d]), budget = usable(r, d);
        machine[d] = r->gpu[d].machine;
        if (f->stage[d].any && budget > used) room[d] = budget - used;
    }
    for (int round = 0; round <= ROUNDS && !fits && status == PI_OK; round++) {
        for (int i = 0; i < m->hp.n_layer; i++)
            memset(f->plan.splits[i].helpers, 0, sizeof f->plan.splits[i].helpers);
        if (round < ROUNDS) status = place_add_helpers(work, machine, room, r->n, &f->plan, err);
        if (status == PI_OK) status = measure_all(r, m, engine, f, room, &fits, err);
    }
    return status;
}

pi_status place_option_stays(const model *m, const pi_context_options *o, uint8_t **out,
                             pi_error *err) {
    const place_stay_request request = {.overrides = o->overrides,
                                        .n_overrides = o->n_overrides,
                                        .cpu_experts = o->cpu_experts,
                                        .cpu_ffn = o->cpu_ffn};
    return place_stays_create(m, &request, out, err);
}

static void log_reason(void *user, const char *text) {
    (void)user;
    log_line(LOG_LEVEL_DEBUG, "%s", text);
}

/* Adds the parts that the devices do not support to o->stays. */
static pi_status find_support(const model *m, plan_options *o, plan_support *out, pi_error *err) {
    char text[PLAN_LACK_TEXT];
    pi_status status = plan_support_create(m, o, out, err);
    if (status != PI_OK) return status;
    plan_support_explain(m, out, log_reason, NULL);
    o->stays = out->stays;
    const plan_lack *lack = plan_support_lacks_all(out);
    if (!lack) return PI_OK;
    status = error_set(err, PI_ERR_UNSUPPORTED, "not supported on the GPU: %s",
                       plan_lack_text(lack, text));
    plan_support_free(out);
    return status;
}

static uint32_t merging_devices(const place_request *r) {
    uint32_t mask = 0;
    for (int d = 0; d < r->n; d++) mask |= (uint32_t)!r->gpu[d].machine.overlaps << d;
    return mask;
}

/* Splits for ubatches of engine->n_batch tokens. */
static pi_status fit_batch(const place_request *r, const model *m, const engine_options *engine,
                           place_gpus_fit *out, pi_error *err) {
    size_t n = (size_t)m->hp.n_layer;
    engine_options on_these = *engine;
    *out = (place_gpus_fit){.plan = {.n_layers = (int)n}, .merge_norms = merging_devices(r)};
    on_these.plan.supports = r->supports;
    on_these.plan.merge_norms = out->merge_norms;
    pi_status status = find_support(m, &on_these.plan, &out->support, err);
    if (status != PI_OK) return status;
    out->plan.splits = mem_calloc(n, sizeof *out->plan.splits);
    if (!out->plan.splits) {
        place_gpus_fit_free(out);
        return error_nomem(err, n * sizeof *out->plan.splits, "splits");
    }
    place_workload work = {0};
    memcpy(on_these.peers, r->peers, sizeof on_these.peers);
    engine = &on_these;
    status = r->n > 1 ? make_workload(m, engine, r, &work, err) : PI_OK;
    out->end[0] = (int)n;
    if (r->n > 1 && status == PI_OK)
        place_choose_stages(&work, r->share, r->n, first_on_gpu(m, r), out->end);
    for (int d = 0, first = 0; d < r->n && status == PI_OK; first = out->end[d++]) {
        if (first == out->end[d] || out->end[d] <= first_on_gpu(m, r)) continue;
        status = fit_stage(r, d, m, engine, first, out->end[d], &out->stage[d], err);
        if (status != PI_OK) break;
        const place_plan *p = &out->stage[d].plan;
        for (int i = first; i < out->end[d]; i++) {
            out->plan.splits[i] = p->splits[i];
            out->plan.splits[i].device = d;
        }
        if (p->head == SIDE_GPU) out->plan.head = SIDE_GPU;
    }
    if (status == PI_OK) status = fit_helpers(r, m, engine, &work, out, err);
    place_workload_free(&work);
    if (status != PI_OK) place_gpus_fit_free(out);
    return status;
}

/* Seconds of a prompt in ubatches of n_batch tokens. The stages compute a ubatch one after the
 * other. */
static double prompt_seconds(const place_request *r, const place_gpus_fit *f, int n_batch) {
    double seconds = 0;
    for (int d = 0; d < r->n; d++) {
        gpu_exec_prompt prompt = f->stage[d].bytes.prompt;
        if (!f->stage[d].any) continue;
        if (seconds > 0) prompt.cpu_seconds = 0; /* of all layers: counted already */
        seconds += place_prompt_seconds(&r->gpu[d].machine, &prompt, PLACE_PROMPT_TOKENS, n_batch);
    }
    return seconds;
}

/* Splits for ubatches of engine->n_batch tokens, and the prediction of a prompt. */
static pi_status fit_and_expect(const place_request *r, const model *m,
                                const engine_options *engine, place_gpus_fit *out, pi_error *err) {
    pi_status status = fit_batch(r, m, engine, out, err);
    if (status != PI_OK) return status;
    out->n_batch = engine->n_batch;
    out->prompt_seconds = prompt_seconds(r, out, engine->n_batch);
    for (int d = 0; d < r->n; d++) {
        const gpu_exec_prompt *prompt = &out->stage[d].bytes.prompt;
        if (engine->n_batch >= prompt->streams_from && out->stage[d].any)
            out->prompt_copies += prompt->cold_bytes;
    }
    return PI_OK;
}

/* The predicted seconds of a turn. */
static pi_status predict_turn(const place_request *r, const model *m, const engine_options *engine,
                              const place_gpus_fit *f, double *seconds, pi_error *err) {
    place_workload work;
    place_prediction p;
    place_machine machines[PI_MAX_DEVICES];
    engine_options on_these = *engine;
    on_these.plan.merge_norms = f->merge_norms;
    pi_status status = make_workload(m, &on_these, r, &work, err);
    if (status != PI_OK) return status;
    for (int d = 0; d < r->n; d++) machines[d] = r->gpu[d].machine;
    place_predict(&work, machines, &f->plan, &p, NULL);
    place_workload_free(&work);
    *seconds = f->prompt_seconds + PLACE_ANSWER_TOKENS * p.seconds;
    return PI_OK;
}

pi_status place_fit_all(const place_request *r, const model *m, const engine_options *engine,
                        place_gpus_fit *out, pi_error *err) {
    const double least_gain = 0.02; /* of a prompt, before the buffers take memory from neurons */
    double best = 0, seconds;       /* best 0: not predicted, since nothing is compared with it */
    engine_options larger = *engine;
    bool copies = false;
    pi_status status = fit_and_expect(r, m, engine, out, err);
    for (int d = 0; d < r->n && status == PI_OK; d++)
        copies = copies ||
                 (out->stage[d].any && out->stage[d].bytes.prompt.streams_from <= r->max_batch);
    for (larger.n_batch *= 2; copies && larger.n_batch <= r->max_batch; larger.n_batch *= 2) {
        place_gpus_fit f;
        double gain = out->prompt_seconds - prompt_seconds(r, out, larger.n_batch);
        if (gain < least_gain * out->prompt_seconds) continue;
        if (best == 0 && predict_turn(r, m, engine, out, &best, NULL) != PI_OK) break;
        if (fit_and_expect(r, m, &larger, &f, NULL) != PI_OK) break;
        bool keeps = predict_turn(r, m, &larger, &f, &seconds, NULL) == PI_OK && seconds < best;
        for (int d = 0; d < r->n; d++) keeps = keeps && f.stage[d].any == out->stage[d].any;
        if (keeps) {
            place_gpus_fit_free(out);
            *out = f;
            best = seconds;
        } else {
            place_gpus_fit_free(&f);
        }
    }
    return status;
}

pi_status place_holds_all(const place_request *r, const model *m, const engine_options *engine,
                          bool *holds, pi_error *err) {
    const int begin = first_on_gpu(m, r);
    int end[PI_MAX_DEVICES] = {m->hp.n_layer};
    place_workload work = {0};
    pi_status status = r->n > 1 ? make_workload(m, engine, r, &work, err) : PI_OK;
    if (r->n > 1 && status == PI_OK) place_choose_stages(&work, r->share, r->n, begin, end);
    place_workload_free(&work);
    *holds = true;
    for (int d = 0, first = 0; d < r->n && status == PI_OK && *holds; first = end[d++]) {
        if (first == end[d] || end[d] <= begin) continue;
        const place_fit_options options = stage_options(r, d, m, engine, first, end[d]);
        place_fit fit;
        status = place_fit_create(&options, &fit, err);
        if (status != PI_OK) break;
        *holds = fit.gpu_layers == r->gpu_layers;
        place_fit_free(&fit);
    }
    return status;
}

place_request place_gpus_request(const place_gpus *g, const model *m, const pi_context_options *o) {
    const bool few = o->deterministic; /* ubatches of few tokens: no copies */
    const bool in_memory = o->ram_budget == PI_RAM_FREE || o->ram_budget == PI_RAM_MAPPED;
    place_request r = {.n = g->n,
                       .supports = g->gpu[0].library.backend->supports,
                       .n_ctx = o->n_ctx > 0 ? o->n_ctx : place_default_context(m),
                       .depth = PLACE_DEFAULT_DEPTH,
                       .gpu_layers = o->gpu_layers,
                       .max_batch = few || !in_memory ? 0 : o->max_batch,
                       .density = 1,
                       .named = o->device != PI_DEVICE_AUTO};
    memcpy(r.share, g->share, sizeof r.share);
    memcpy(r.peers, g->peers, sizeof r.peers);
    for (int d = 0; d < g->n; d++) {
        r.gpu[d].name = g->gpu[d].info.name;
        r.gpu[d].machine = g->gpu[d].machine;
        r.gpu[d].budget = g->gpu[d].budget;
        r.gpu[d].runtime = g->gpu[d].runtime;
    }
    return r;
}

pi_status place_gpus_fit_create(const place_gpus *g, const model *m, const engine_options *engine,
                                const pi_context_options *o, place_gpus_fit *out, pi_error *err) {
    const place_request r = place_gpus_request(g, m, o);
    pi_status status = place_fit_all(&r, m, engine, out, err);
    if (status != PI_OK) return status;
    status = refuse_empty(&r, out, first_on_gpu(m, &r), err);
    if (status != PI_OK) place_gpus_fit_free(out);
    return status;
}

void place_gpus_fit_free(place_gpus_fit *f) {
    place_plan_free(&f->plan);
    plan_support_free(&f->support);
    for (int d = 0; d < PI_MAX_DEVICES; d++) place_fit_free(&f->stage[d]);
    *f = (place_gpus_fit){0};
}
