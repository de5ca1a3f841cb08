/* cmd_place.c: prints the placement on CPU and GPU for a described machine. */

#include "cli.h"
#include "cluster_start.h"
#include "os_file.h"

static void show_message(void *user, const char *line) {
    cli_say(user, "%s", line);
}

/* On several machines: the layers of each. A context is made as for the other commands. */
static int place_stages(const cli_options *o) {
    pi_error err;
    pi_model *model = NULL;
    pi_context *context = NULL;
    pi_context_options options = cli_context_options(o, o->ctx_size > 0 ? (int32_t)o->ctx_size : 0);
    pi_status status = cli_model_open(o, false, &model, &err);
    if (status == PI_OK) status = pi_context_create(model, &options, &context, &err);
    if (status == PI_OK) status = cluster_print(context, stdout, o->json, &err);
    pi_context_destroy(context);
    pi_model_close(model);
    return status == PI_OK ? EXIT_DONE : cli_failed(&err);
}

int cmd_place(const cli_options *o) {
    if (o->cluster && pi_cluster_size(o->cluster) > 1) {
        if (o->shape || o->profile)
            return cli_wrong(
                "--shape and --profile: place on several machines measures these ones");
        return place_stages(o);
    }
    if (o->shape && options_typed(o, &o->model))
        return cli_wrong("a file and a shape: -m %.200s and --shape %.64s: give one of them",
                         o->model, o->shape);
    char path[OS_PATH_MAX] = "";
    pi_error err = {.status = PI_OK};
    pi_synth_options synth = cli_synth_options(o);
    pi_place_options options = pi_place_default_options();
    options.profile = o->profile;
    options.device = (pi_device_choice)option_choice_of(o->device);
    cli_devices(o, &options.n_devices, options.devices, options.tensor_split);
    options.backend_folder = o->backend_folder;
    options.measure = o->measure;
    if (o->machine[0]) options.cache = o->machine;
    options.vram_budget = cli_vram_budget(o);
    options.ram_budget = cli_ram_budget(o);
    options.overrides = o->override_tensor.values;
    options.n_overrides = o->override_tensor.count;
    options.cpu_experts = cli_cpu_experts(o);
    options.cpu_ffn = (int32_t)o->n_cpu_ffn;
    options.mode = (pi_mode)o->mode;
    options.max_loss = (float)(o->max_loss / 100);
    options.n_ctx = o->ctx_size > 0 ? (int32_t)o->ctx_size : 0;
    options.depth = (int32_t)o->depth;
    options.n_batch = (int32_t)o->batch_size;
    options.max_batch = cli_max_batch(o);
    options.cache_k = (pi_cache_type)o->cache_type_k;
    options.cache_v = (pi_cache_type)o->cache_type_v;
    options.n_threads = (int32_t)o->threads;
    if (o->shape) options.synth = &synth;
    if (options_given(o, &o->density)) options.density = o->density;
    options.json = o->json;
    options.svg = o->svg;
    options.message = show_message;
    options.user = (void *)(uintptr_t)o;
    pi_status status = PI_OK;
    if (!o->shape) status = cli_model_path(o, path, sizeof path, &err);
    if (status == PI_OK) status = pi_place(path, &options, stdout, &err);
    if (status != PI_OK) return cli_failed(&err);
    if (o->measure && o->machine[0]) cli_say_written(o, o->machine, "bandwidths of this machine");
    if (o->svg) cli_say_written(o, o->svg, "drawing of the placement");
    return EXIT_DONE;
}
