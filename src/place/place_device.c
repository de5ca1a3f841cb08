/* place_device.c: finding and opening a GPU, and what is known of the machine it is in. */
#include "place_device.h"

#include <string.h>

#include "place_profile.h"

/* The simulated GPU's time means nothing. It counts as fast, and hand-offs as free, so that as much
 * as fits is placed there. */
static const double SIM_GPU_GBPS = 1000, SIM_CPU_GBPS = 10, SIM_STEP = 0, SIM_SYNC = 1e-7;

static const double GIB = 1073741824;

static bool is_simulated(const gpu_backend *b) {
    return strcmp(b->name, "sim") == 0;
}

/* ---- the machine ------------------------------------------------------------------------------
 */

static place_machine simulated_machine(const gpu_info *info) {
    const place_device gpu = {info->memory_total, SIM_GPU_GBPS, SIM_GPU_GBPS, SIM_STEP};
    const place_device cpu = {0, SIM_CPU_GBPS, SIM_CPU_GBPS, SIM_STEP};
    return (place_machine){.name = "simulated",
                           .has_gpu = true,
                           .device = {[SIDE_CPU] = cpu, [SIDE_GPU] = gpu},
                           .sync = SIM_SYNC};
}

/* This machine, with this GPU: as measured (`cache`, NULL: none), or else from data sheets. */
static void gpu_machine(const gpu_backend *b, const gpu_info *info, const char *cache,
                        place_machine *out) {
    if (is_simulated(b)) {
        *out = simulated_machine(info);
        return;
    }
    place_profile_of_gpu(info, cache, out);
    out->shared = info->shared_memory;
    out->device[SIDE_GPU].memory_bytes = info->memory_free;
}

/* ---- the device -------------------------------------------------------------------------------
 */

/* The device of a backend that has most memory free. */
static pi_status choose_index(const gpu_backend *b, int *index, gpu_info *info, pi_error *err) {
    int n = 0;
    pi_status status = b->count(&n, err);
    *index = -1;
    if (status != PI_OK) return status;
    status = error_set(err, PI_ERR_NOT_FOUND, "no device found: %s", b->name);
    for (int i = 0; i < n; i++) {
        gpu_info here;
        pi_status answer = b->describe(i, &here, err);
        if (answer != PI_OK) status = answer;
        if (answer != PI_OK || (*index >= 0 && here.memory_free <= info->memory_free)) continue;
        *index = i;
        *info = here;
    }
    return *index < 0 ? status : PI_OK;
}

/* What may be allocated: 0 when the budget does not even cover the runtime. */
static uint64_t set_budget(const pi_context_options *o, place_gpu *g) {
    const place_machine *m = &g->machine;
    uint64_t free = g->info.memory_free; /* the runtime is there already */
    uint64_t usable = free > m->margin_bytes ? free - m->margin_bytes : 0;
    g->runtime = m->runtime_bytes;
    g->budget = usable + g->runtime;
    if (o->vram_budget == PI_VRAM_FREE || o->vram_budget >= free + g->runtime) return usable;
    g->budget = o->vram_budget;
    return g->budget > g->runtime ? g->budget - g->runtime : 0;
}

static pi_status open_named(const pi_context_options *o, const char *name, place_gpu *g,
                            pi_error *err) {
    int index;
    pi_status status = gpu_library_open(name, o->backend_folder, &g->library, err);
    if (status == PI_OK) status = choose_index(g->library.backend, &index, &g->info, err);
    if (status != PI_OK) return status;
    gpu_machine(g->library.backend, &g->info, o->machine, &g->machine);
    const gpu_open_options options = {.memory_limit = set_budget(o, g)};
    if (options.memory_limit == 0)
        return error_set(err, PI_ERR_LIMIT,
                         "too little memory: %s: a budget of %.2f GiB, of which the runtime takes "
                         "%.2f: use a larger one",
                         g->info.name, (double)g->budget / GIB, (double)g->runtime / GIB);
    return g->library.backend->open(index, gpu_host_default(), &options, &g->device, err);
}

bool place_wants_gpu(const pi_context_options *o) {
    return o->device != PI_DEVICE_CPU && o->vram_budget != 0 && o->gpu_layers != 0;
}

bool place_expects_gpu(const pi_context_options *o) {
    return o->device != PI_DEVICE_AUTO || o->vram_budget != PI_VRAM_FREE || o->gpu_layers >= 0;
}

/* The best there is. A backend that is there but has something wrong is more telling than one that
 * is missing. */
static pi_status open_best(const pi_context_options *o, place_gpu *out, pi_error *err) {
    pi_error why = {.status = PI_OK};
    for (int i = 0; gpu_backend_name(i) && strcmp(gpu_backend_name(i), "sim") != 0; i++) {
        pi_error here = {.status = PI_OK};
        if (open_named(o, gpu_backend_name(i), out, &here) == PI_OK) return PI_OK;
        place_gpu_close(out);
        if (i == 0 || (why.status == PI_ERR_NOT_FOUND && here.status != PI_ERR_NOT_FOUND))
            why = here;
    }
    return error_set(err, why.status, "%s", why.message);
}

pi_status place_gpu_open(const pi_context_options *o, place_gpu *out, pi_error *err) {
    static const char *const names[] = {
        [PI_DEVICE_CUDA] = "cuda", [PI_DEVICE_HIP] = "hip", [PI_DEVICE_SIM] = "sim"};
    *out = (place_gpu){0};
    if (o->device == PI_DEVICE_AUTO) return open_best(o, out, err);
    pi_status status = open_named(o, names[o->device], out, err);
    if (status != PI_OK) place_gpu_close(out);
    return status;
}

void place_gpu_close(place_gpu *g) {
    if (g->device) g->library.backend->close(g->device);
    gpu_library_close(&g->library);
    *g = (place_gpu){0};
}

/* ---- cuts -------------------------------------------------------------------------------------
 */

pi_status place_gpu_fit(const place_gpu *g, const model *m, const engine_options *engine,
                        const pi_context_options *o, place_fit *out, pi_error *err) {
    const double mib = 1048576;
    place_fit_options wish = {.model = m,
                              .engine = engine,
                              .machine = &g->machine,
                              .budget = g->budget - g->runtime,
                              .n_ctx = o->n_ctx > 0 ? o->n_ctx : place_default_context(m),
                              .depth = PLACE_DEFAULT_DEPTH,
                              .gpu_layers = o->gpu_layers,
                              .density = 1};
    pi_status status = place_fit_create(&wish, out, err);
    if (status == PI_OK && !out->any && out->least <= wish.budget && o->device != PI_DEVICE_AUTO) {
        place_fit_free(out);
        wish.gpu_layers = m->hp.n_layer + 1;
        status = place_fit_create(&wish, out, err);
    }
    if (status != PI_OK || out->any) return status;
    if (out->least > wish.budget)
        status = error_set(err, PI_ERR_LIMIT,
                           "too little memory: %s: the budget leaves %.1f MiB, the smallest useful "
                           "amount is %.1f MiB: use a larger one, or a smaller batch",
                           g->info.name, (double)wish.budget / mib, (double)out->least / mib);
    else
        status = error_set(err, PI_ERR_LIMIT,
                           "not used: %s: this model is predicted to run faster on the CPU alone",
                           g->info.name);
    place_fit_free(out);
    return status;
}
