/* cli.c: models and the options of contexts, for all commands. */
#include "cli.h"

#include <string.h>

#include "adapters.h"
#include "affix.h"
#include "dynlib.h"
#include "file.h"
#include "model_source.h"
#include "os_file.h"
#include "overrides.h"
#include "powerinfer_embed.h"
#include "terminal.h"

static const char bundled_model[] = "novella-7m.q8_0.powerinfer.gguf";

/* Relative to the folder of the executable: of a build, of an installation, of an archive. */
static const char *const bundled_folders[] = {"../models", "../share/powerinfer/models", "models"};

_Static_assert(TERMINAL_COLOR_AUTO == 0 && TERMINAL_COLOR_ON == 1 && TERMINAL_COLOR_OFF == 2,
               "choices of --color are in the order of terminal_color");
_Static_assert(PI_KERNELS_AUTO == 0 && PI_KERNELS_SCALAR == 1 && PI_KERNELS_AVX2 == 2 &&
                   PI_KERNELS_AVX512 == 3 && PI_KERNELS_NEON == 4,
               "choices of --kernels are in the order of pi_kernels");
_Static_assert(PI_DEVICE_AUTO == 0 && PI_DEVICE_CPU == 1,
               "choices of --device are in the order of pi_device_choice");
_Static_assert(PI_MODE_AUTO == 0 && PI_MODE_DENSE == 1 && PI_MODE_EXACT == 2 &&
                   PI_MODE_PREDICT == 3 && PI_MODE_THRESHOLD == 4,
               "choices of --mode are in the order of pi_mode");

bool cli_bundled_path(const char *name, char *buf, size_t n_buf) {
    char program[OS_PATH_MAX], folder[OS_PATH_MAX];
    if (!dynlib_program_folder(program, sizeof program)) return false;
    for (size_t i = 0; i < sizeof bundled_folders / sizeof bundled_folders[0]; i++)
        if (file_join(folder, sizeof folder, program, bundled_folders[i]) &&
            file_join(buf, n_buf, folder, name) && file_exists(buf))
            return true;
    return false;
}

pi_status cli_refuse_hf(const char *path, pi_error *err) {
    static const char *const endings[] = {".safetensors", "config.json", ".safetensors.index.json"};
    char config[OS_PATH_MAX];
    bool is_folder = file_join(config, sizeof config, path, "config.json") && file_exists(config);
    size_t n = strlen(path);
    if (!is_folder) {
        bool is_part = false;
        for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++)
            is_part = is_part || ends_with(path, endings[i]);
        if (!is_part) return PI_OK;
        n = file_folder_length(path); /* convert takes its folder */
    }
    while (n > 1 && os_path_separates(path[n - 1])) n--;
    return error_set(err, PI_ERR_FORMAT,
                     "not a GGUF file but %s: %.400s: convert it with powerinfer convert %.*s -o "
                     "model.gguf",
                     is_folder ? "a Hugging Face folder" : "part of a Hugging Face model", path,
                     n > 0 ? (int)n : 1, n > 0 ? path : ".");
}

pi_status cli_model_path(const cli_options *o, char *buf, size_t n_buf, pi_error *err) {
    if (model_source_given(o)) return model_source_path(o, buf, n_buf, err);
    if (o->model) {
        if (strlen(o->model) >= n_buf) {
            return error_set(err, PI_ERR_ARG, "path is too long: --model: give a shorter one");
        }
        memcpy(buf, o->model, strlen(o->model) + 1);
        pi_status status = cli_refuse_hf(buf, err);
        return status == PI_OK ? model_source_refuse_name(buf, err) : status;
    }
    if (cli_bundled_path(bundled_model, buf, n_buf)) return PI_OK;
    return error_set(err, PI_ERR_NOT_FOUND,
                     "no model given and the bundled one is missing: %s next to the program: give "
                     "one with -m FILE",
                     bundled_model);
}

const char *cli_model_name(const cli_options *o, const pi_model_info *info, char *buf,
                           size_t n_buf) {
    pi_error ignored;
    if (info->name[0] || cli_model_path(o, buf, n_buf, &ignored) != PI_OK) return info->name;
    return file_name(buf);
}

pi_status cli_refuse_encoder(const pi_model *model, pi_error *err) {
    pi_model_info info;
    if (!pi_model_is_encoder(model)) return PI_OK;
    pi_model_get_info(model, &info);
    return error_set(err, PI_ERR_UNSUPPORTED,
                     "not a language model: %s is an encoder, which generates no text: use "
                     "powerinfer embed",
                     info.architecture);
}

static pi_status open_model(const cli_options *o, bool vocab_only, const cli_opening *how,
                            pi_model **out, pi_error *err) {
    char path[OS_PATH_MAX];
    cli_overrides overrides = {.n = 0};
    *out = NULL;
    pi_status status = how->receive ? PI_OK : cli_model_path(o, path, sizeof path, err);
    pi_model_options options = pi_model_default_options();
    options.no_mmap = o->no_mmap;
    options.mlock = o->mlock;
    options.check_tensors = o->check_tensors;
    options.vocab_only = vocab_only;
    options.pre = o->pre;
    if (status == PI_OK) status = cli_overrides_parse(o, &overrides, err);
    options.overrides = overrides.items;
    options.n_overrides = overrides.n;
    cli_adapters adapters = {.n = 0};
    if (status == PI_OK && !vocab_only) status = cli_adapters_parse(&o->lora, &adapters, err);
    for (size_t i = 0; i < adapters.n && how->scales; i++) adapters.items[i].scale = how->scales[i];
    options.adapters = adapters.items;
    options.n_adapters = adapters.n;
    options.adapters_by_context = o->cluster && pi_cluster_size(o->cluster) > 1;
    options.progress = how->progress;
    options.progress_user = how->user;
    if (status == PI_OK)
        status = how->receive ? pi_cluster_receive(how->receive, how->folder, &options, out, err)
                              : pi_model_open(path, &options, out, err);
    cli_adapters_free(&adapters);
    cli_overrides_free(&overrides);
    /* A rank without its model ends all of them, which then name it. */
    if (status != PI_OK && status != PI_ERR_CANCELLED && o->cluster && !how->receive)
        pi_cluster_abort(o->cluster, err->message);
    return status;
}

pi_status cli_model_open(const cli_options *o, bool vocab_only, pi_model **out, pi_error *err) {
    return open_model(o, vocab_only, &(cli_opening){.scales = NULL}, out, err);
}

pi_status cli_model_open_as(const cli_options *o, const cli_opening *how, pi_model **out,
                            pi_error *err) {
    return open_model(o, false, how, out, err);
}

static uint64_t gib_bytes(double gib) {
    double bytes = gib * 1073741824, most = 0x1p62;
    return bytes < most ? (uint64_t)bytes : (uint64_t)most;
}

uint64_t cli_vram_budget(const cli_options *o) {
    return options_given(o, &o->vram_budget) ? gib_bytes(o->vram_budget) : PI_VRAM_FREE;
}

uint64_t cli_ram_budget(const cli_options *o) {
    return options_given(o, &o->ram_budget) ? gib_bytes(o->ram_budget) : PI_RAM_FREE;
}

int32_t cli_cpu_experts(const cli_options *o) {
    return o->cpu_moe ? INT32_MAX : (int32_t)o->n_cpu_moe;
}

int64_t cli_context_size(const cli_options *o, const pi_model_info *info) {
    if (o->ctx_size > 0) return o->ctx_size;
    int64_t size = info->n_ctx_train > 0 ? info->n_ctx_train : CLI_CONTEXT_DEFAULT;
    return o->ctx_size < 0 && size > CLI_CONTEXT_DEFAULT ? CLI_CONTEXT_DEFAULT : size;
}

void cli_devices(const cli_options *o, int32_t *n, int32_t devices[PI_MAX_DEVICES],
                 float shares[PI_MAX_DEVICES]) {
    *n = 0;
    while (*n < PI_MAX_DEVICES && option_number_of(o->device, *n) >= 0) {
        devices[*n] = option_number_of(o->device, *n);
        ++*n;
    }
    for (int i = 0; i < o->tensor_split.count; i++) shares[i] = (float)o->tensor_split.values[i];
}

int32_t cli_max_batch(const cli_options *o) {
    enum { MAX_BATCH = 2048 };
    return options_given(o, &o->batch_size) ? 0 : MAX_BATCH;
}

pi_context_options cli_context_options(const cli_options *o, int32_t n_ctx) {
    pi_context_options options = pi_context_default_options();
    options.n_threads = (int32_t)o->threads;
    options.n_threads_batch = (int32_t)o->threads_batch;
    options.pin_threads = o->cpu_strict != 0;
    options.deterministic = o->deterministic;
    options.n_batch = (int32_t)o->batch_size;
    options.max_batch = cli_max_batch(o);
    options.kernels = (pi_kernels)o->kernels;
    options.mode = (pi_mode)o->mode;
    options.head = (pi_head)o->head;
    /* What verifies the model's own drafts loses nothing. */
    options.max_loss = o->spec == SPEC_SELF ? 0 : (float)(o->max_loss / 100);
    if (options_given(o, &o->threshold)) options.threshold = (float)o->threshold;
    options.cache_k = (pi_cache_type)o->cache_type_k;
    options.cache_v = (pi_cache_type)o->cache_type_v;
    options.expert_slack = (float)(o->expert_slack / 100);
    options.attn_blocks = (int32_t)o->attn_blocks;
    options.n_ctx = n_ctx;
    options.device = (pi_device_choice)option_choice_of(o->device);
    cli_devices(o, &options.n_devices, options.devices, options.tensor_split);
    options.vram_budget = cli_vram_budget(o);
    options.ram_budget = cli_ram_budget(o);
    options.gpu_layers = (int32_t)o->gpu_layers;
    options.overrides = o->override_tensor.values;
    options.n_overrides = o->override_tensor.count;
    options.cpu_experts = cli_cpu_experts(o);
    options.cpu_ffn = (int32_t)o->n_cpu_ffn;
    options.backend_folder = o->backend_folder;
    options.machine = o->machine[0] ? o->machine : NULL;
    options.cache_folder = o->shaders_folder[0] ? o->shaders_folder : NULL;
    options.adapt = o->adapt;
    options.cluster = o->cluster;
    return options;
}

pi_synth_options cli_synth_options(const cli_options *o) {
    pi_synth_options options = pi_synth_default_options();
    options.shape = o->shape;
    options.type = o->type;
    options.n_layer = (int32_t)o->layers;
    options.density = (float)o->density;
    options.down_density = (float)o->down_density;
    options.skew_share = (float)o->skew.first;
    options.skew_mass = (float)o->skew.second;
    options.rank = (int32_t)o->rank;
    options.plain = o->plain;
    options.bundle = o->synth_bundle;
    options.n_mtp = (int32_t)o->mtp;
    return options;
}
