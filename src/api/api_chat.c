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
typedef struct chat_form {
    char *source; /* NUL-terminated */
    template_program *program;
    bool drops_system;
} chat_form;

/* Limit of steps for the short conversations of a probe. */
#define PROBE_STEPS (TEMPLATE_DEFAULT_STEPS / 10)

struct pi_chat_template {
    chat_form plain, tools; /* `tools` is empty where one template serves both */
    char *bos, *eos;        /* NULL: the template does not see them */
    double seconds;         /* of one rendering; 0: no limit */
};

static pi_status form_create(chat_form *form, const char *source, size_t n, pi_error *err) {
    form->source = mem_strndup(source, n);
    if (!form->source) return error_nomem(err, n, "chat template");
    return template_parse(source, n, &form->program, err);
}

static pi_status probe_form(const pi_chat_template *t, chat_form *form, pi_error *err) {
    const template_input like = {
        .bos = t->bos, .eos = t->eos, .limits = {.steps = PROBE_STEPS, .seconds = t->seconds}};
    if (!form->program) return PI_OK;
    return template_drops_system(form->program, &like, &form->drops_system, err);
}

static void form_free(chat_form *form) {
    template_free(form->program);
    mem_free(form->source);
}

static pi_status take_own(pi_chat_template *t, const pi_model *m, pi_error *err) {
    gguf_string plain, tools;
    const gguf_file *file = api_file(m);
    if (!chat_template_of(file, false, &plain))
        return error_set(err, PI_ERR_NOT_FOUND, "the model has no chat template");
    pi_status status = form_create(&t->plain, plain.data, plain.n_bytes, err);
    if (status != PI_OK || !chat_template_of(file, true, &tools) || tools.data == plain.data)
        return status;
    return form_create(&t->tools, tools.data, tools.n_bytes, err);
}

static pi_status take_source(pi_chat_template *t, const pi_model *m,
                             const pi_chat_template_options *options, pi_error *err) {
    if (options->source) return form_create(&t->plain, options->source, options->n_source, err);
    if (!options->name) return take_own(t, m, err);
    const char *source = template_find_builtin(options->name);
    if (!source)
        return error_set(err, PI_ERR_NOT_FOUND, "no chat template has the name %s", options->name);
    return form_create(&t->plain, source, strlen(source), err);
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
    if (!status) status = probe_form(t, &t->plain, err);
    if (!status) status = probe_form(t, &t->tools, err);
    if (status != PI_OK) {
        pi_chat_template_free(t);
        return status;
    }
    *out = t;
    return PI_OK;
}

void pi_chat_template_free(pi_chat_template *t) {
    if (!t) return;
    form_free(&t->plain);
    form_free(&t->tools);
    mem_free(t->bos);
    mem_free(t->eos);
    mem_free(t);
}

static const chat_form *form_of(const pi_chat_template *t, bool tools) {
    return tools && t->tools.program ? &t->tools : &t->plain;
}

const char *pi_chat_template_source(const pi_chat_template *t, bool tools) {
    return form_of(t, tools)->source;
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
    const chat_form *form = form_of(t, json_count(json_get(input.request, "tools")) > 0);
    input.moves_system = form->drops_system;
    status = template_render(form->program, &input, text, n_text, err);
    json_free(doc);
    return status;
}

void pi_text_free(char *text) {
    mem_free(text);
}
