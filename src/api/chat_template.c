/* chat_template.c: renders a request with a chat template: the template of a model's metadata, a
 * text, or a well-known one by name. */
#include "chat_template.h"

#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "json.h"
#include "mem.h"
#include "powerinfer_tools.h"
#include "template.h"

/* State of a call. Strings belong to the model's file, to the options or to the state. */
typedef struct work {
    gguf_file *model;
    json_doc *request;
    const char *source;
    size_t n_source;
    char *bos, *eos; /* from the vocabulary; NULL: none */
} work;

const char *pi_template_name(size_t index) {
    return index < template_builtin_count ? template_builtins[index].name : NULL;
}

pi_status chat_template_token(const gguf_file *f, const char *key, char **out, pi_error *err) {
    const gguf_value *id_value = gguf_find(f, key);
    const gguf_value *tokens = gguf_find(f, "tokenizer.ggml.tokens");
    uint64_t id;
    *out = NULL;
    if (!id_value || !gguf_as_u64(id_value, &id)) return PI_OK;
    if (!tokens || tokens->type != GGUF_ARRAY || tokens->item_type != GGUF_STRING) return PI_OK;
    if (id >= tokens->count) return PI_OK;
    const uint8_t *cursor = tokens->data;
    gguf_string text = {0};
    for (uint64_t i = 0; i <= id; i++) text = gguf_next_string(&cursor);
    *out = mem_strndup(text.data, text.n_bytes);
    return *out ? PI_OK : error_nomem(err, text.n_bytes, "token");
}

bool chat_template_of(const gguf_file *f, bool tools, gguf_string *out) {
    const gguf_value *v = tools ? gguf_find(f, "tokenizer.chat_template.tool_use") : NULL;
    if (!v) v = gguf_find(f, "tokenizer.chat_template");
    return v && gguf_as_string(v, out);
}

static pi_status open_model(work *w, const pi_template_options *options, pi_error *err) {
    const gguf_open_options open = {.header_only = true};
    if (!options->model) return PI_OK;
    pi_status status = gguf_open(options->model, &open, &w->model, err);
    if (!status) status = chat_template_token(w->model, CHAT_TEMPLATE_BOS, &w->bos, err);
    if (!status) status = chat_template_token(w->model, CHAT_TEMPLATE_EOS, &w->eos, err);
    return status;
}

static pi_status find_source(work *w, const pi_template_options *options, pi_error *err) {
    gguf_string own;
    if (options->source) {
        w->source = options->source;
        w->n_source = options->n_source;
        return PI_OK;
    }
    if (options->name) {
        w->source = template_find_builtin(options->name);
        if (!w->source)
            return error_set(err, PI_ERR_NOT_FOUND, "no chat template has the name %s",
                             options->name);
        w->n_source = strlen(w->source);
        return PI_OK;
    }
    if (!w->model) return error_set(err, PI_ERR_ARG, "no chat template and no model was given");
    const json_node *tools = json_get(json_root(w->request), "tools");
    if (!chat_template_of(w->model, json_count(tools) > 0, &own))
        return error_set(err, PI_ERR_NOT_FOUND, "the model has no chat template: %s",
                         options->model);
    w->source = own.data;
    w->n_source = own.n_bytes;
    return PI_OK;
}

static pi_status write_prompt(const work *w, const pi_template_options *options, FILE *out,
                              pi_error *err) {
    template_program *program = NULL;
    char *text = NULL;
    size_t n = 0;
    template_input input = {.request = json_root(w->request)};
    input.bos = options->bos ? options->bos : w->bos;
    input.eos = options->eos ? options->eos : w->eos;
    time_t now = time(NULL);
    if (options->now)
        input.now = *options->now;
    else if (!clock_local_time(now, &input.now))
        return error_set(err, PI_ERR_IO, "the time of day is not known");
    pi_status status = template_parse(w->source, w->n_source, &program, err);
    if (!status) status = template_render(program, &input, &text, &n, err);
    if (!status && n) fwrite(text, 1, n, out);
    mem_free(text);
    template_free(program);
    return status;
}

pi_status pi_template(const char *request, size_t n_request, const pi_template_options *options,
                      FILE *out, pi_error *err) {
    work w = {.model = NULL};
    pi_status status = json_parse(request, n_request, "request", &w.request, err);
    if (!status) status = open_model(&w, options, err);
    if (!status) status = find_source(&w, options, err);
    if (!status) status = write_prompt(&w, options, out, err);
    mem_free(w.bos);
    mem_free(w.eos);
    gguf_close(w.model);
    json_free(w.request);
    return status;
}
