/* serve_model.c: see serve_model.h. */
#include "serve_model.h"

#include <string.h>

#include "cli_text.h"
#include "drafting.h"
#include "file.h"
#include "mem.h"
#include "memory_room.h"
#include "sampling.h"
#include "template_variables.h"

/* All that an open model of the server needs. */
typedef struct opened_model {
    pi_model *model;
    sampling sampling;
    drafting drafting;
    char *variables; /* variables of the template; NULL: none */
    char *template_source;
    size_t n_template;
} opened_model;

static pi_status read_template(const cli_options *o, opened_model *m, pi_error *err) {
    pi_status status = template_variables_create(o, &m->variables, err);
    if (status == PI_OK && o->chat_template_file)
        status = file_read_stream(o->chat_template_file, CLI_TEXT_MAX, &m->template_source,
                                  &m->n_template, err);
    return status;
}

static pi_status check_context(const cli_options *o, pi_error *err) {
    if (o->ctx_size <= 0 || o->ctx_size / o->parallel >= 1) return PI_OK;
    return error_set(err, PI_ERR_ARG, "-c %lld: too small for %lld slots: -np",
                     (long long)o->ctx_size, (long long)o->parallel);
}

static pi_status list_adapters(serve_model *m, pi_error *err) {
    pi_status status = cli_adapters_parse(&m->options->lora, &m->parsed, err);
    if (status != PI_OK || m->parsed.n == 0) return status;
    m->adapters = mem_calloc(m->parsed.n, sizeof *m->adapters);
    if (!m->adapters) return error_nomem(err, m->parsed.n * sizeof *m->adapters, "adapters");
    m->n_adapters = (int)m->parsed.n;
    for (size_t i = 0; i < m->parsed.n; i++)
        m->adapters[i] = (server_adapter){
            .path = m->parsed.items[i].path,
            .scale = m->options->lora_init_without_apply ? 0 : m->parsed.items[i].scale};
    return PI_OK;
}

void serve_model_free(serve_model *m) {
    cli_adapters_free(&m->parsed);
    mem_free(m->adapters);
    m->parsed = (cli_adapters){.n = 0};
    m->adapters = NULL;
}

pi_status serve_model_find(serve_model *m, pi_error *err) {
    const cli_options *o = m->options;
    opened_model *tried = mem_calloc(1, sizeof *tried);
    if (!tried) return error_nomem(err, sizeof *tried, "model");
    pi_status status = sampling_create(o, &tried->sampling, err);
    if (status == PI_OK) status = drafting_check(o, err);
    if (status == PI_OK) status = check_context(o, err);
    if (status == PI_OK) status = template_variables_create(o, &tried->variables, err);
    if (status == PI_OK) status = cli_model_path(o, m->path, sizeof m->path, err);
    if (status == PI_OK && o->hf_repo_draft) { /* no download while the server runs */
        cli_options draft = *o;
        char path[OPTION_PATH_BYTES];
        draft.model = o->model_draft;
        draft.hf_repo = o->hf_repo_draft;
        draft.hf_file = draft.model_url = NULL;
        status = cli_model_path(&draft, path, sizeof path, err);
    }
    if (status == PI_OK) status = list_adapters(m, err);
    if (status == PI_OK && !file_exists(m->path)) /* the message is that of opening it */
        status = cli_model_open(o, false, &tried->model, err);
    serve_model_close(tried);
    return status;
}

/* Bytes of the prompt store (--cache-ram). */
static uint64_t store_bytes(const cli_options *o, const pi_model_info *info) {
    static const uint64_t most = (uint64_t)8 << 30;
    if (o->cache_ram == -1) return UINT64_MAX;
    if (o->cache_ram >= 0) return (uint64_t)o->cache_ram << 20;
    if (o->ram_budget > 0) return 0;
    const uint64_t room = memory_room(); /* includes pages of the mapped weights */
    const uint64_t share = room > info->weight_bytes ? (room - info->weight_bytes) / 4 : 0;
    return share < most ? share : most;
}

static pi_status fill(const serve_model *m, opened_model *opened, served_options *out,
                      pi_error *err) {
    const cli_options *o = m->options;
    pi_model_info info;
    pi_model_get_info(opened->model, &info);
    const int32_t n_ctx = (int32_t)(o->ctx_size > 0 ? o->ctx_size / o->parallel
                                                    : cli_context_size(o, &info));
    int64_t n_all = (int64_t)n_ctx * o->parallel;
    pi_context_options context = cli_context_options(o, n_all < INT32_MAX ? (int32_t)n_all
                                                                          : INT32_MAX);
    pi_status status = drafting_create(o, opened->model, (int32_t)o->parallel, n_ctx, &context,
                                       &opened->drafting, err);
    if (status != PI_OK) return status;
    context.timed_forms = !o->deterministic;
    *out = (served_options){
        .model = opened->model,
        .model_path = m->path,
        .model_name = m->name,
        .context = context,
        .sampling = opened->sampling.options,
        .n_slots = (int32_t)o->parallel,
        .n_ctx = n_ctx,
        .store = {.max_bytes = store_bytes(o, &info),
                  .folder = o->cache_disk,
                  .max_file_bytes = (uint64_t)(o->cache_disk_size * (double)(1 << 30))},
        .max_queue = (int32_t)o->queue,
        .max_tokens = (int32_t)o->predict,
        .template_source = opened->template_source,
        .n_template = opened->n_template,
        .template_name = o->chat_template,
        .template_variables = opened->variables,
        .reasoning_budget = (int32_t)o->reasoning_budget,
        .keeps_reasoning = o->reasoning_format == FORMAT_NONE,
        .evaluates_all = o->no_cache_prompt,
        .completes_messages = o->no_prefill_assistant,
        .pooling = (server_pooling)o->pooling,
        .speculator = opened->drafting.speculator};
    return PI_OK;
}

/* pi_progress: ends the loading of a model when the server stops. */
static bool goes_on(void *user, const char *stage, double fraction) {
    const atomic_bool *stopped = user;
    (void)stage;
    (void)fraction;
    return !atomic_load(stopped);
}

pi_status serve_model_open(void *user, const model_opening *how, served_options *out, void **result,
                           pi_error *err) {
    const cli_opening opening = {
        .scales = how->scales, .progress = goes_on, .user = (void *)(uintptr_t)how->stopped};
    const serve_model *m = user;
    const cli_options *o = m->options;
    opened_model *opened = mem_calloc(1, sizeof *opened);
    *result = NULL;
    if (!opened) return error_nomem(err, sizeof *opened, "model");
    pi_status status = sampling_create(o, &opened->sampling, err);
    if (status == PI_OK) status = read_template(o, opened, err);
    if (status == PI_OK) status = cli_model_open_as(o, &opening, &opened->model, err);
    if (status == PI_OK && atomic_load(how->stopped))
        status = error_set(err, PI_ERR_CANCELLED, "the server is shutting down");
    if (status == PI_OK) status = sampling_add_grammar(o, opened->model, &opened->sampling, err);
    if (status == PI_OK) status = fill(m, opened, out, err);
    if (status != PI_OK)
        serve_model_close(opened);
    else
        *result = opened;
    return status;
}

void serve_model_close(void *opened) {
    opened_model *m = opened;
    if (!m) return;
    drafting_free(&m->drafting);
    sampling_free(&m->sampling);
    pi_model_close(m->model);
    mem_free(m->template_source);
    mem_free(m->variables);
    mem_free(m);
}
