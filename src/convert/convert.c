/* convert.c: Hugging Face folder -> GGUF. The order is: configuration, weights (headers only),
 * match, vocabulary, then the output file. All input that can be checked cheaply is checked before
 * anything is written. */
#include <assert.h>
#include <string.h>

#include "convert_lora.h"
#include "convert_predictors.h"
#include "convert_tensors.h"
#include "cpu_topology.h"
#include "hf_generation.h"
#include "hf_vocab.h"
#include "os_file.h"
#include "powerinfer_tools.h"
#include "quant_mix.h"

pi_convert_options pi_convert_default_options(void) {
    return (pi_convert_options){.type = "f16"};
}

/* Version of the block layouts; all v2 and v3 files have it. */
enum { QUANTIZATION_VERSION = 2 };

static pi_status find_type(const char *name, const quant_traits **out, pi_error *err) {
    const quant_traits *traits = quant_find_name(name);
    if (traits && traits->quantize && quant_find(traits->type) == traits) {
        *out = traits;
        return PI_OK;
    }
    const quant_mix *mix = quant_mix_find(name);
    if (mix && !mix->copy)
        return error_set(err, PI_ERR_ARG,
                         "%s is a mix of types: convert gives all matrices one type: convert to "
                         "f16, then quantize that file to %s",
                         mix->name, mix->name);
    char known[256];
    size_t used = 0;
    known[0] = 0;
    for (uint32_t i = 0; i < QUANT_TYPE_COUNT; i++) {
        const quant_traits *row = quant_find(i);
        if (!row || !row->quantize) continue;
        size_t n = strlen(row->name);
        if (used + n + 3 > sizeof known) break;
        if (used > 0) {
            memcpy(known + used, ", ", 2);
            used += 2;
        }
        memcpy(known + used, row->name, n + 1);
        used += n;
    }
    return error_set(err, PI_ERR_ARG, "unknown type '%.40s': choose one of %s", name, known);
}

/* All resources of a conversion; one function frees them. */
typedef struct conversion {
    const pi_convert_options *options;
    notifier notifier;
    const quant_traits *type;
    hf_config config;
    safetensors *weights;
    convert_plan plan;
    vocab vocab;
    hf_generation generation;
    bool adapter; /* LoRA adapter: no vocabulary */
    convert_lora lora;
    convert_predictors predictors; /* predictors from the options */
    pool *workers;
    gguf_writer *writer;
} conversion;

static pi_status read_input(conversion *c, const char *dir, pi_error *err) {
    os_info info;
    if (os_path_info(dir, &info) != 0 || info.kind != OS_FOLDER)
        return error_set(err, PI_ERR_NOT_FOUND,
                         "not a folder: %.300s: convert needs a Hugging Face model folder", dir);
    c->adapter = convert_lora_is(dir);
    if (!c->adapter && c->options->base)
        return error_set(err, PI_ERR_ARG,
                         "not an adapter: %.300s: a base is for folders with adapter_config.json",
                         dir);
    if (c->adapter && c->options->predictors)
        return error_set(err, PI_ERR_ARG, "an adapter has no predictors: %.300s", dir);
    pi_status status = PI_OK;
    if (c->adapter) status = convert_lora_read(dir, c->options->base, &c->lora, err);
    if (status == PI_OK)
        status = hf_config_read(c->adapter ? c->lora.base : dir, &c->notifier, &c->config, err);
    if (status == PI_OK) status = safetensors_open(dir, &c->weights, err);
    if (status == PI_OK && c->options->predictors)
        status = convert_predictors_read(c->options->predictors, &c->config, c->weights,
                                         &c->predictors, err);
    if (status == PI_OK && c->adapter)
        return convert_plan_make_adapter(&c->config, c->weights, &c->lora, &c->notifier, &c->plan,
                                         err);
    if (status == PI_OK)
        status = convert_plan_make(&c->config, c->weights, c->type->type, &c->notifier, &c->plan,
                                   err);
    if (status == PI_OK)
        status = hf_vocab_read(dir, c->config.n_vocab, c->config.family->pre, &c->notifier,
                               &c->vocab, err);
    if (status == PI_OK) status = hf_generation_read(dir, &c->generation, err);
    return status;
}

static pi_status put_model(conversion *c, pi_error *err) {
    hf_config_put(&c->config, c->writer);
    gguf_put_u32(c->writer, "general.file_type", (uint32_t)c->type->file_type);
    gguf_put_u32(c->writer, "general.quantization_version", QUANTIZATION_VERSION);
    hf_generation_put(&c->generation, c->writer);
    pi_status status = PI_OK;
    if (c->config.predictors)
        status = convert_predictors_put(&c->predictors, &c->config, c->writer, err);
    return status == PI_OK ? vocab_put(&c->vocab, c->writer, err) : status;
}

static pi_status write_output(conversion *c, const char *out_path, pi_error *err) {
    int n_threads = c->options->n_threads > 0 ? c->options->n_threads : cpu_count_physical();
    pi_status status = pool_create(n_threads, &c->workers, err);
    if (status == PI_OK) status = gguf_writer_create(out_path, &c->writer, err);
    if (status != PI_OK) return status;
    if (c->adapter)
        convert_lora_put(&c->lora, &c->config, c->writer);
    else
        status = put_model(c, err);
    if (status == PI_OK) status = convert_plan_declare(&c->plan, c->writer, err);
    if (status == PI_OK) status = gguf_writer_begin_data(c->writer, err);
    progress report = {.fn = c->options->progress, .user = c->options->user};
    if (status == PI_OK)
        status = convert_plan_write(&c->plan, &c->config, c->workers, &report, c->writer, err);
    if (status != PI_OK) return status;
    gguf_writer *writer = c->writer;
    c->writer = NULL; /* finish frees the writer even on errors */
    return gguf_writer_finish(writer, err);
}

pi_status pi_convert(const char *dir, const char *out_path, const pi_convert_options *options,
                     pi_error *err) {
    assert(dir && out_path);
    pi_convert_options defaults = pi_convert_default_options();
    conversion c = {.options = options ? options : &defaults};
    c.notifier = (notifier){c.options->message, c.options->user};
    if (c.options->n_threads < 0 || c.options->n_threads > POOL_MAX_THREADS)
        return error_set(err, PI_ERR_ARG, "bad number of threads %d: choose 0 to %d",
                         c.options->n_threads, POOL_MAX_THREADS);
    pi_status status = find_type(c.options->type ? c.options->type : defaults.type, &c.type, err);
    if (status == PI_OK) status = read_input(&c, dir, err);
    if (status == PI_OK) status = write_output(&c, out_path, err);
    gguf_writer_abort(c.writer);
    pool_destroy(c.workers);
    vocab_free(&c.vocab);
    convert_plan_free(&c.plan);
    convert_lora_free(&c.lora);
    safetensors_close(c.weights);
    return status;
}
