/* route_generate.c: OpenAI's and llama.cpp's routes that generate: from the body to a call. */
#include <string.h>

#include "answer_form.h"
#include "api_fields.h"
#include "dialects.h"
#include "infill.h"
#include "mem.h"
#include "rng.h"
#include "route_generate.h"

enum { MAX_RESPONSE_FIELDS = 64 };

static const char *const chat_limits[] = {"max_completion_tokens", "max_tokens", "n_predict", NULL};
static const char *const text_limits[] = {"max_tokens", "max_completion_tokens", "n_predict", NULL};
static const char *const native_limits[] = {"n_predict", "max_tokens", NULL};

static pi_status read_params(exchange *x, const json_node *body, const char *const *limit_names,
                             params *p, pi_error *err) {
    const served_options *o = &x->served->options;
    const pi_sampler_options sampling = served_sampling(x->served);
    const pi_status status = adapters_check(x, body, err);
    if (status != PI_OK) return status;
    return params_read(p, body, &sampling, o->max_tokens, !o->evaluates_all, limit_names, o->model,
                       err);
}

/* ---- chat ------------------------------------------------------------------------------------ */

static pi_status read_chat_logprobs(const json_node *body, params *p, pi_error *err) {
    bool wanted = false;
    int64_t n = 0;
    pi_status status = field_bool(body, "logprobs", &wanted, err);
    if (status == PI_OK) status = field_int(body, "top_logprobs", 0, SEQUENCE_MAX_TOP, &n, err);
    if (status == PI_OK && n > 0 && !wanted)
        return error_set(err, PI_ERR_ARG, "top_logprobs: needs logprobs: true");
    if (wanted) p->n_top = (int)n;
    return status;
}

/* Reads reasoning_format; "none" leaves reasoning in the content. keeps: the default is "none". */
static pi_status read_reasoning(const json_node *body, bool keeps, bool *splits, pi_error *err) {
    static const char *const known[] = {"none", "auto", "deepseek", "deepseek-legacy"};
    const char *format = keeps ? "none" : "auto";
    pi_status status = field_text(body, "reasoning_format", &format, err);
    *splits = strcmp(format, "none") != 0;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (status != PI_OK || strcmp(format, known[i]) == 0) return status;
    return error_set(err, PI_ERR_ARG, "reasoning_format: must be auto, deepseek or none");
}

/* Reads the budget of reasoning in tokens. Without one, an effort limits the reasoning of models
 * whose template does not know the variable reasoning_effort. */
static pi_status read_budget(const json_node *body, const served_model *s, int32_t *out,
                             pi_error *err) {
    static const char *const names[] = {"reasoning_budget_tokens", "thinking_budget_tokens"};
    static const struct {
        const char *effort;
        int64_t tokens;
    } levels[] = {{"none", 0}, {"minimal", 256}, {"low", 1024}, {"medium", 4096}};
    const char *effort = NULL;
    int64_t budget = -1;
    pi_status status = field_text(body, "reasoning_effort", &effort, err);
    for (size_t i = 0; i < sizeof names / sizeof *names && status == PI_OK; i++)
        status = field_int(body, names[i], -1, INT32_MAX, &budget, err);
    if (budget < 0 && effort &&
        !strstr(pi_chat_template_source(s->prompts.chat, false), "reasoning_effort"))
        for (size_t i = 0; i < sizeof levels / sizeof *levels; i++)
            if (strcmp(effort, levels[i].effort) == 0) budget = levels[i].tokens;
    *out = budget >= 0 ? (int32_t)budget : s->options.reasoning_budget;
    return status;
}

/* Compiles the grammar of the answer to a prompt. */
static pi_status constrain(server_call *c, const json_node *body, const chat_tools *tools,
                           const char *prompt, size_t n_prompt, pi_error *err) {
    const answer_form form = {
        .model = c->served->options.model,
        .grammars = &c->served->grammars,
        .owner = c->owner,
        .body = body,
        .tools = tools,
        .format = &c->served->tools.format,
        .reasoning_end = c->splits_reasoning ? message_open_reasoning(prompt, n_prompt) : NULL};
    return answer_form_create(&form, &c->grammar, err);
}

/* When the answer continues the last message, cuts the prompt at a tag after that message. */
static pi_status cut_at_tag(const char *tag, bytes *prompt, pi_error *err) {
    const size_t n = strlen(tag);
    for (size_t at = prompt->used; at-- > 0;) {
        if (prompt->used - at < n || memcmp(prompt->data + at, tag, n) != 0) continue;
        prompt->used = at;
        return PI_OK;
    }
    return error_set(err, PI_ERR_UNSUPPORTED,
                     "messages: the answer cannot continue the last message, which the chat "
                     "template does not show");
}

static pi_status render_chat(const served_model *s, const json_node *body, const chat_tools *tools,
                             bytes *prompt, pi_error *err) {
    char letters[21] = "";
    const char *tag = !s->options.completes_messages && chat_continues(body) ? letters : NULL;
    bytes request = {0};
    for (int i = 0; tag && i < 20; i += 10) message_id_letters(letters + i, 10, rng_entropy());
    pi_status status = chat_write_request(body, tools, &s->tools, json_root(s->variables), tag,
                                          &request, err);
    if (status == PI_OK) {
        status = prompt_render(&s->prompts, request.data, request.used, prompt, err);
        if (status == PI_ERR_ARG || status == PI_ERR_FORMAT) chat_explain(body, err);
    }
    if (status == PI_OK && tag) status = cut_at_tag(tag, prompt, err);
    bytes_free(&request);
    return status;
}

static pi_status add_chat_prompt(exchange *x, server_call *c, const json_node *body,
                                 const chat_tools *tools, pi_error *err) {
    const served_model *s = x->served;
    bytes prompt = {0};
    int32_t *tokens = NULL;
    size_t n = 0;
    pi_status status = render_chat(s, body, tools, &prompt, err);
    if (status == PI_OK) {
        const prompt_text text = prompt_rendered(&s->prompts, &prompt);
        status = prompt_tokens(s->prompts.model, &text, &tokens, &n, err);
    }
    if (status == PI_OK) status = constrain(c, body, tools, prompt.data, prompt.used, err);
    if (status == PI_OK)
        status = call_add_prompt(c, tokens, n, err);
    else
        mem_free(tokens);
    if (status == PI_OK) call_begin_messages(c, prompt.data, prompt.used);
    bytes_free(&prompt);
    return status;
}

/* Keeps the tools of a request for as long as its answer is parsed. */
static pi_status keep_tools(server_call *c, const json_node *list, pi_error *err) {
    bytes text = {0};
    bytes_json j;
    if (!bytes_json_begin(&j, &text)) return error_nomem(err, 0, "tools");
    bytes_json_put(&j.writer, NULL, list);
    pi_status status = bytes_json_end(&j)
                           ? json_parse(text.data, text.used, "tools", &c->tools, err)
                           : error_nomem(err, text.used, "tools");
    bytes_free(&text);
    return status;
}

static enum MHD_Result generate_chat(exchange *x, const json_node *body, const dialect *d,
                                     const char *id) {
    params p = {.n_top = -1};
    pi_error err = {.status = PI_OK};
    chat_tools tools = {.choice = TOOLS_NONE};
    bool splits = true;
    pi_status status = d == &dialect_chat ? api_fields_check(body, &api_tables[API_CHAT], &err)
                                          : PI_OK; /* requests of other APIs have been checked */
    if (status == PI_OK) status = read_params(x, body, chat_limits, &p, &err);
    if (status == PI_OK) status = read_chat_logprobs(body, &p, &err);
    if (status == PI_OK)
        status = read_reasoning(body, x->served->options.keeps_reasoning, &splits, &err);
    if (status == PI_OK) status = read_budget(body, x->served, &p.reasoning_budget, &err);
    if (status == PI_OK) status = chat_read_tools(body, &tools, &err);
    if (status != PI_OK) {
        params_free(&p);
        return http_reply_failed(x, &err);
    }
    server_call *c = call_create(x, d, id, &p);
    if (!c) return http_reply_error(x, 500, "out of memory");
    c->splits_reasoning = splits;
    c->parallel_calls = tools.parallel;
    if (tools.list) c->format = x->served->tools.format;
    if (c->format.pairs) status = keep_tools(c, tools.list, &err);
    if (status == PI_OK) status = add_chat_prompt(x, c, body, &tools, &err);
    return status == PI_OK ? call_answer(x, c) : call_refuse(x, c, &err);
}

enum MHD_Result route_chat(exchange *x) {
    const json_node *body = NULL;
    enum MHD_Result result;
    if (!http_parse_body(x, &body, &result)) return result;
    return generate_chat(x, body, &dialect_chat, "chatcmpl-");
}

/* ---- completions ----------------------------------------------------------------------------- */

static pi_status add_text_prompt(exchange *x, server_call *c, const json_node *prompt,
                                 pi_error *err) {
    int32_t *tokens = NULL;
    const char *text = NULL;
    size_t n = 0;
    c->echo_bytes = json_as_string(prompt, &text, &n) ? n : SIZE_MAX;
    pi_status status = prompt_read(&x->served->prompts, prompt, "prompt", &tokens, &n, err);
    return status == PI_OK ? call_add_prompt(c, tokens, n, err) : status;
}

/* The answer stands between the prompt and a suffix. */
static pi_status add_infill(exchange *x, server_call *c, const json_node *prompt,
                            const json_node *body, pi_error *err) {
    infill f = {.extra = json_get(body, "input_extra"), .max_tokens = c->params.max_tokens};
    int32_t *tokens = NULL;
    size_t n = 0;
    if (!json_as_string(prompt, &f.prefix, &f.n_prefix) ||
        !json_as_string(c->params.suffix, &f.suffix, &f.n_suffix))
        return error_set(err, PI_ERR_ARG, "suffix: it and the prompt must be strings");
    if (c->params.echo) return error_set(err, PI_ERR_ARG, "suffix and echo exclude each other");
    c->echo_bytes = SIZE_MAX;
    pi_status status = infill_tokens(&x->served->prompts, &f, &tokens, &n, err);
    return status == PI_OK ? call_add_prompt(c, tokens, n, err) : status;
}

/* Reads one prompt, or an array of prompts. */
static pi_status add_text_prompts(exchange *x, server_call *c, const json_node *body,
                                  pi_error *err) {
    const json_node *prompt = json_get(body, "prompt");
    json_kind kind = json_kind_of(prompt), first = json_kind_of(json_at(prompt, 0));
    if (kind != JSON_STRING && kind != JSON_ARRAY)
        return error_set(err, PI_ERR_ARG,
                         "prompt: must be a string, token ids, or an array of them");
    if (c->params.suffix) return add_infill(x, c, prompt, body, err);
    if (kind == JSON_STRING || (first != JSON_STRING && first != JSON_ARRAY))
        return add_text_prompt(x, c, prompt, err);
    for (size_t i = 1; i < json_count(prompt); i++)
        if (json_kind_of(json_at(prompt, i)) == JSON_INT)
            return add_text_prompt(x, c, prompt, err); /* one prompt of texts and ids */
    pi_status status = PI_OK;
    for (size_t i = 0; i < json_count(prompt) && status == PI_OK; i++)
        status = add_text_prompt(x, c, json_at(prompt, i), err);
    return status;
}

static enum MHD_Result generate_text(exchange *x, const json_node *body, const dialect *d,
                                     const char *id, params *p) {
    pi_error err = {.status = PI_OK};
    server_call *c = call_create(x, d, id, p);
    if (!c) return http_reply_error(x, 500, "out of memory");
    const answer_form form = {.model = x->served->options.model,
                              .grammars = &x->served->grammars,
                              .owner = c->owner,
                              .body = body};
    pi_status status = answer_form_create(&form, &c->grammar, &err);
    if (status == PI_OK) status = add_text_prompts(x, c, body, &err);
    return status == PI_OK ? call_answer(x, c) : call_refuse(x, c, &err);
}

/* The text that follows the answer; NULL: none. */
static const json_node *find_suffix(const json_node *body) {
    const json_node *suffix = json_get(body, "suffix");
    const char *text = NULL;
    size_t n = 0;
    const bool empty = json_kind_of(suffix) == JSON_NULL ||
                       (json_as_string(suffix, &text, &n) && n == 0);
    return empty ? NULL : suffix;
}

enum MHD_Result route_completions(exchange *x) {
    const json_node *body = NULL;
    enum MHD_Result result;
    params p = {.n_top = -1};
    pi_error err = {.status = PI_OK};
    int64_t n_top = -1;
    if (!http_parse_body(x, &body, &result)) return result;
    pi_status status = api_fields_check(body, &api_tables[API_COMPLETIONS], &err);
    if (status == PI_OK) status = read_params(x, body, text_limits, &p, &err);
    if (status == PI_OK) status = field_int(body, "logprobs", 0, SEQUENCE_MAX_TOP, &n_top, &err);
    if (status == PI_OK) status = field_bool(body, "echo", &p.echo, &err);
    p.n_top = (int)n_top;
    p.suffix = find_suffix(body);
    if (status == PI_OK) return generate_text(x, body, &dialect_text, "cmpl-", &p);
    params_free(&p);
    return http_reply_failed(x, &err);
}

/* Reads the fields that only llama.cpp's API has. */
static pi_status read_native(exchange *x, const json_node *body, params *p, pi_error *err) {
    int64_t n_top = 0, milliseconds = -1, indent = 0;
    pi_status status = read_params(x, body, native_limits, p, err);
    if (status == PI_OK) status = field_int(body, "n_probs", 0, SEQUENCE_MAX_TOP, &n_top, err);
    if (status == PI_OK)
        status = field_int(body, "t_max_predict_ms", -1, INT32_MAX, &milliseconds, err);
    if (status == PI_OK) status = field_int(body, "n_indent", 0, INT32_MAX, &indent, err);
    if (status == PI_OK) status = field_bool(body, "return_tokens", &p->returns_tokens, err);
    if (status == PI_OK) status = field_kind(body, "response_fields", JSON_ARRAY, err);
    p->n_top = n_top > 0 ? (int)n_top : -1;
    p->max_seconds = milliseconds > 0 ? 1e-3 * (double)milliseconds : 0;
    p->min_indent = (int32_t)indent;
    p->response_fields = json_get(body, "response_fields");
    if (status == PI_OK && json_count(p->response_fields) > MAX_RESPONSE_FIELDS)
        status = error_set(err, PI_ERR_ARG, "response_fields: more than %d", MAX_RESPONSE_FIELDS);
    return status;
}

static enum MHD_Result generate_native(exchange *x, const json_node *body,
                                       const json_node *suffix) {
    params p = {.n_top = -1};
    pi_error err = {.status = PI_OK};
    pi_status status = read_native(x, body, &p, &err);
    p.suffix = suffix;
    if (status == PI_OK) return generate_text(x, body, &dialect_native, "", &p);
    params_free(&p);
    return http_reply_failed(x, &err);
}

enum MHD_Result route_native(exchange *x) {
    const json_node *body = NULL;
    enum MHD_Result result;
    pi_error err = {.status = PI_OK};
    if (!http_parse_body(x, &body, &result)) return result;
    if (api_fields_check(body, &api_tables[API_NATIVE], &err) != PI_OK)
        return http_reply_failed(x, &err);
    return generate_native(x, body, NULL);
}

/* A translated request, whose fields have been checked. */
static enum MHD_Result generate_prompt(exchange *x, const json_node *body, const dialect *d,
                                       const char *id) {
    params p = {.n_top = -1};
    pi_error err = {.status = PI_OK};
    if (d == &dialect_native) return generate_native(x, body, json_get(body, "suffix"));
    pi_status status = read_params(x, body, text_limits, &p, &err);
    if (status == PI_OK) status = read_chat_logprobs(body, &p, &err);
    p.suffix = find_suffix(body);
    if (status == PI_OK) return generate_text(x, body, d, id, &p);
    params_free(&p);
    return http_reply_failed(x, &err);
}

/* ---- translations ---------------------------------------------------------------------------- */

void generate_put_tools(json_writer *w, const json_node *tools, const char *schema, bool typed) {
    if (json_count(tools) == 0) return;
    json_put_array(w, "tools");
    for (size_t i = 0; i < json_count(tools); i++) {
        const json_node *tool = json_at(tools, i);
        json_put_object(w, NULL);
        if (typed)
            bytes_json_put(w, "type", json_get(tool, "type"));
        else
            json_put_text(w, "type", "function");
        json_put_object(w, "function");
        bytes_json_put(w, "name", json_get(tool, "name"));
        bytes_json_copy(w, "description", tool, "description");
        bytes_json_put(w, "parameters", json_get(tool, schema));
        bytes_json_copy(w, "strict", tool, "strict");
        json_end_object(w);
        json_end_object(w);
    }
    json_end_array(w);
}

/* Translates the body to a chat request, which is JSON text and is parsed like a client's request.
 * False: *result is already the answer. */
static bool parse_translated(exchange *x, const translation *t, json_doc **doc,
                             enum MHD_Result *result) {
    const json_node *body = NULL;
    bytes chat = {0};
    bytes_json j;
    pi_error err = {.status = PI_OK};
    if (!http_parse_body(x, &body, result)) return false;
    if (!bytes_json_begin(&j, &chat)) {
        *result = http_reply_error(x, 500, "out of memory");
        return false;
    }
    json_put_object(&j.writer, NULL);
    pi_status status = api_fields_check(body, t->fields, &err);
    if (status != PI_OK && t->refused) t->refused(x, body);
    if (status == PI_OK) status = t->translate(body, &j.writer, &err);
    json_end_object(&j.writer);
    if (!bytes_json_end(&j) && status == PI_OK) status = error_nomem(&err, chat.used, "request");
    if (status == PI_OK) status = json_parse(chat.data, chat.used, "request", doc, &err);
    bytes_free(&chat);
    if (status != PI_OK) *result = http_reply_failed(x, &err);
    return status == PI_OK;
}

enum MHD_Result generate_translated(exchange *x, const translation *t, const dialect *d,
                                    const char *id) {
    json_doc *doc = NULL;
    enum MHD_Result result;
    if (!parse_translated(x, t, &doc, &result)) return result;
    const json_node *body = json_root(doc);
    result = json_get(body, "messages") ? generate_chat(x, body, d, id)
                                        : generate_prompt(x, body, d, id);
    json_free(doc);
    return result;
}

enum MHD_Result generate_count(exchange *x, const translation *t, const char *object) {
    json_doc *doc = NULL;
    enum MHD_Result result;
    chat_tools tools;
    bytes prompt = {0}, reply = {0};
    bytes_json j;
    int32_t *tokens = NULL;
    size_t n = 0;
    pi_error err = {.status = PI_OK};
    if (!parse_translated(x, t, &doc, &result)) return result;
    const served_model *s = x->served;
    pi_status status = chat_read_tools(json_root(doc), &tools, &err);
    if (status == PI_OK) status = render_chat(s, json_root(doc), &tools, &prompt, &err);
    if (status == PI_OK) {
        prompt_text text = prompt_rendered(&s->prompts, &prompt);
        text.n_ctx = 0;
        status = prompt_tokens(s->prompts.model, &text, &tokens, &n, &err);
    }
    if (status == PI_OK && !bytes_json_begin(&j, &reply)) status = error_nomem(&err, 0, "answer");
    if (status == PI_OK) {
        json_put_object(&j.writer, NULL);
        if (object) json_put_text(&j.writer, "object", object);
        json_put_int(&j.writer, "input_tokens", (int64_t)n);
        json_end_object(&j.writer);
        result = http_reply_json(x, &j, &reply);
    } else {
        result = http_reply_failed(x, &err);
    }
    mem_free(tokens);
    bytes_free(&prompt);
    json_free(doc);
    return result;
}

enum MHD_Result route_apply_template(exchange *x) {
    const json_node *body = NULL;
    enum MHD_Result result;
    pi_error err = {.status = PI_OK};
    chat_tools tools;
    bytes prompt = {0}, reply = {0};
    bytes_json j;
    if (!http_parse_body(x, &body, &result)) return result;
    pi_status status = chat_read_tools(body, &tools, &err);
    if (status == PI_OK) status = render_chat(x->served, body, &tools, &prompt, &err);
    if (status == PI_OK && !bytes_json_begin(&j, &reply)) status = error_nomem(&err, 0, "answer");
    if (status == PI_OK) {
        json_put_object(&j.writer, NULL);
        json_put_string(&j.writer, "prompt", prompt.data, prompt.used);
        json_end_object(&j.writer);
        result = http_reply_json(x, &j, &reply);
    } else {
        result = http_reply_failed(x, &err);
    }
    bytes_free(&prompt);
    return result;
}

/* Writes the completion that is equivalent to a request of /infill: its prompt follows the
 * prefix. */
static pi_status write_infill(const json_node *body, json_writer *w, pi_error *err) {
    static const char *const texts[] = {"input_prefix", "prompt", "input_suffix"};
    bytes joined[2] = {{0}};
    const json_node *value = NULL;
    const char *key = NULL, *text = "";
    void *iter = NULL;
    size_t n = 0;
    pi_status status = PI_OK;
    for (int i = 0; i < 3 && status == PI_OK; i++) {
        value = json_get(body, texts[i]);
        if (json_kind_of(value) == JSON_NULL) continue;
        if (!json_as_string(value, &text, &n))
            status = error_set(err, PI_ERR_ARG, "%s: must be a string", texts[i]);
        else if (!bytes_append(&joined[i / 2], text, n))
            status = error_nomem(err, n, texts[i]);
    }
    json_put_string(w, "prompt", joined[0].used ? joined[0].data : "", joined[0].used);
    json_put_string(w, "suffix", joined[1].used ? joined[1].data : "", joined[1].used);
    while (json_next(body, &iter, &key, &value)) {
        bool skipped = strcmp(key, "suffix") == 0 || strcmp(key, "messages") == 0;
        for (int i = 0; i < 3; i++) skipped |= strcmp(key, texts[i]) == 0;
        if (!skipped) bytes_json_put(w, key, value);
    }
    bytes_free(&joined[0]);
    bytes_free(&joined[1]);
    return status;
}

enum MHD_Result route_infill(exchange *x) {
    static const translation t = {&api_tables[API_INFILL], write_infill, NULL};
    return generate_translated(x, &t, &dialect_native, "");
}
