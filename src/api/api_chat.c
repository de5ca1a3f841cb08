/* api_chat.c: chat templates of an open model. A template is parsed once and then immutable; every
 * rendering has its own memory, so that threads share a template. */
#include <string.h>

#include "api_types.h"
#include "chat_template.h"
#include "clock.h"
#include "json.h"
#include "mem.h"
#include "powerinfer_chat.h"
#include "template.h"

/* A template's source and its program. */
typedef struct parsed_template {
    char *source; /* NUL-terminated */
    template_program *program;
    bool drops_system;
} parsed_template;

/* Limit of steps for the short conversations of a probe. */
#define PROBE_STEPS (TEMPLATE_DEFAULT_STEPS / 10)

struct pi_chat_template {
    parsed_template plain, tools; /* `tools` is empty if `plain` serves both */
    char *bos, *eos;              /* NULL: undefined in the template */
    double seconds;               /* of one rendering; 0: no limit */
};

static pi_status parsed_create(parsed_template *parsed, const char *source, size_t n,
                               pi_error *err) {
    parsed->source = mem_strndup(source, n);
    if (!parsed->source) return error_nomem(err, n, "chat template");
    return template_parse(source, n, &parsed->program, err);
}

static pi_status parsed_probe(const pi_chat_template *t, parsed_template *parsed, pi_error *err) {
    const template_input like = {.bos = t->bos,
                                 .eos = t->eos,
                                 .now = {.tm_mday = 1}, /* any valid time */
                                 .limits = {.steps = PROBE_STEPS, .seconds = t->seconds}};
    if (!parsed->program) return PI_OK;
    return template_drops_system(parsed->program, &like, &parsed->drops_system, err);
}

static void parsed_free(parsed_template *parsed) {
    template_free(parsed->program);
    mem_free(parsed->source);
}

static pi_status take_own(pi_chat_template *t, const pi_model *m, pi_error *err) {
    gguf_string plain, tools;
    const gguf_file *file = api_file(m);
    if (!chat_template_of(file, false, &plain))
        return error_set(err, PI_ERR_NOT_FOUND, "the model has no chat template");
    pi_status status = parsed_create(&t->plain, plain.data, plain.n_bytes, err);
    if (status != PI_OK || !chat_template_of(file, true, &tools) || tools.data == plain.data)
        return status;
    return parsed_create(&t->tools, tools.data, tools.n_bytes, err);
}

static pi_status take_source(pi_chat_template *t, const pi_model *m,
                             const pi_chat_template_options *options, pi_error *err) {
    if (options->source) return parsed_create(&t->plain, options->source, options->n_source, err);
    if (!options->name) return take_own(t, m, err);
    const char *source = template_find_builtin(options->name);
    if (!source)
        return error_set(err, PI_ERR_NOT_FOUND, "no chat template has the name %s", options->name);
    return parsed_create(&t->plain, source, strlen(source), err);
}

static pi_status take_token(const pi_model *m, const char *given, const char *key, char **out,
                            pi_error *err) {
    if (!given) return chat_template_token(api_file(m), key, out, err);
    *out = mem_strdup(given);
    return *out ? PI_OK : error_nomem(err, strlen(given), "token");
}

pi_status pi_chat_template_create(const pi_model *m, const pi_chat_template_options *options,
                                  pi_chat_template **out, pi_error *err) {
    const pi_chat_template_options defaults = {.source = NULL};
    if (!options) options = &defaults;
    *out = NULL;
    pi_chat_template *t = mem_calloc(1, sizeof *t);
    if (!t) return error_nomem(err, sizeof *t, "chat template");
    t->seconds = options->seconds;
    pi_status status = take_source(t, m, options, err);
    if (!status) status = take_token(m, options->bos, CHAT_TEMPLATE_BOS, &t->bos, err);
    if (!status) status = take_token(m, options->eos, CHAT_TEMPLATE_EOS, &t->eos, err);
    if (!status) status = parsed_probe(t, &t->plain, err);
    if (!status) status = parsed_probe(t, &t->tools, err);
    if (status != PI_OK) {
        pi_chat_template_free(t);
        return status;
    }
    *out = t;
    return PI_OK;
}

void pi_chat_template_free(pi_chat_template *t) {
    if (!t) return;
    parsed_free(&t->plain);
    parsed_free(&t->tools);
    mem_free(t->bos);
    mem_free(t->eos);
    mem_free(t);
}

static const parsed_template *parsed_of(const pi_chat_template *t, bool tools) {
    return tools && t->tools.program ? &t->tools : &t->plain;
}

const char *pi_chat_template_source(const pi_chat_template *t, bool tools) {
    return parsed_of(t, tools)->source;
}

pi_status pi_chat_template_render(const pi_chat_template *t, const char *request, size_t n_request,
                                  const struct tm *now, char **text, size_t *n_text,
                                  pi_error *err) {
    json_doc *doc;
    template_input input = {.bos = t->bos, .eos = t->eos, .limits.seconds = t->seconds};
    time_t clock = time(NULL);
    *text = NULL;
    *n_text = 0;
    if (now)
        input.now = *now;
    else if (!clock_local_time(clock, &input.now))
        return error_set(err, PI_ERR_IO, "the time of day is not known");
    pi_status status = json_parse(request, n_request, "request", &doc, err);
    if (status != PI_OK) return status;
    input.request = json_root(doc);
    const parsed_template *parsed = parsed_of(t, json_count(json_get(input.request, "tools")) > 0);
    input.moves_system = parsed->drops_system;
    status = template_render(parsed->program, &input, text, n_text, err);
    json_free(doc);
    return status;
}

void pi_text_free(char *text) {
    mem_free(text);
}
