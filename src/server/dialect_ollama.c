/* dialect_ollama.c: Ollama's API, /api/chat and /api/generate. Requests are translated to chat
 * requests, or to completions when the prompt is raw or has a suffix; streams are lines of JSON. */
#include <string.h>

#include "api_fields.h"
#include "dialects.h"
#include "route_generate.h"

/* ---- request --------------------------------------------------------------------------------- */

/* Copies `options`: sampling, limit and stop texts. */
static pi_status put_options(json_writer *w, const json_node *body, pi_error *err) {
    static const char *const passed[] = {"temperature",
                                         "top_k",
                                         "top_p",
                                         "min_p",
                                         "typical_p",
                                         "seed",
                                         "stop",
                                         "repeat_last_n",
                                         "repeat_penalty",
                                         "presence_penalty",
                                         "frequency_penalty",
                                         "mirostat",
                                         "mirostat_tau",
                                         "mirostat_eta"};
    const json_node *options = json_get(body, "options");
    int64_t n_predict = -1;
    pi_status status = field_kind(body, "options", JSON_OBJECT, err);
    if (status == PI_OK) status = field_int(options, "num_predict", -2, INT32_MAX, &n_predict, err);
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++)
        bytes_json_copy(w, passed[i], options, passed[i]);
    if (json_kind_of(json_get(options, "num_predict")) != JSON_NULL)
        json_put_int(w, "max_tokens", n_predict > 0 ? n_predict : -1); /* 0: also no limit */
    return status;
}

/* Reads format: "json", or a schema. */
static pi_status put_format(json_writer *w, const json_node *body, pi_error *err) {
    const json_node *format = json_get(body, "format");
    const char *name = NULL;
    size_t n = 0;
    if (json_kind_of(format) == JSON_NULL) return PI_OK;
    if (json_as_string(format, &name, &n)) {
        if (n == 0) return PI_OK;
        if (strcmp(name, "json") != 0)
            return error_set(err, PI_ERR_ARG, "format: must be \"json\" or a schema");
        json_put_object(w, "response_format");
        json_put_text(w, "type", "json_object");
        json_end_object(w);
        return PI_OK;
    }
    if (json_kind_of(format) != JSON_OBJECT)
        return error_set(err, PI_ERR_ARG, "format: must be \"json\" or a schema");
    bytes_json_put(w, "json_schema", format);
    return PI_OK;
}

/* Reads think: true, false, a level, or, beyond Ollama's API, a number of tokens. */
static pi_status put_think(json_writer *w, const json_node *body, pi_error *err) {
    const json_node *think = json_get(body, "think");
    const char *level = NULL;
    bool on = true;
    size_t n = 0;
    int64_t budget = -1;
    if (json_kind_of(think) == JSON_NULL) return PI_OK;
    if (json_as_int(think, &budget)) {
        if (budget < 0 || budget > INT32_MAX)
            return error_set(err, PI_ERR_ARG, "think: a number of tokens must be 0 or more");
        json_put_int(w, "thinking_budget_tokens", budget);
        json_put_bool(w, "enable_thinking", budget > 0);
        return PI_OK;
    }
    if (json_as_string(think, &level, &n))
        json_put_string(w, "reasoning_effort", level, n);
    else if (!json_as_bool(think, &on))
        return error_set(err, PI_ERR_ARG,
                         "think: must be true, false, a level or a number of tokens");
    json_put_bool(w, "enable_thinking", on);
    return PI_OK;
}

/* Members that both routes share. Streams are the default. */
static pi_status put_common(json_writer *w, const json_node *body, pi_error *err) {
    bool stream = true;
    pi_status status = field_bool(body, "stream", &stream, err);
    json_put_bool(w, "stream", stream);
    if (status == PI_OK) status = put_options(w, body, err);
    if (status == PI_OK) status = put_format(w, body, err);
    if (status == PI_OK) status = put_think(w, body, err);
    bytes_json_copy(w, "logprobs", body, "logprobs");
    bytes_json_copy(w, "top_logprobs", body, "top_logprobs");
    return status;
}

/* Writes "tool_calls". Calls without an id get one from their number, so that the results, which
 * follow in the same order, can name them. */
static void put_calls(json_writer *w, const json_node *calls, int first) {
    char id[32];
    json_put_array(w, "tool_calls");
    for (size_t i = 0; i < json_count(calls); i++) {
        const json_node *call = json_at(calls, i), *function = json_get(call, "function");
        json_put_object(w, NULL);
        snprintf(id, sizeof id, "call_%d", first + (int)i);
        if (json_kind_of(json_get(call, "id")) == JSON_STRING)
            bytes_json_put(w, "id", json_get(call, "id"));
        else
            json_put_text(w, "id", id);
        json_put_object(w, "function");
        bytes_json_put(w, "name", json_get(function, "name"));
        bytes_json_put(w, "arguments", json_get(function, "arguments"));
        json_end_object(w);
        json_end_object(w);
    }
    json_end_array(w);
}

/* The calls of a conversation so far. */
typedef struct call_history {
    const json_node *last; /* calls of the last message that has calls */
    int n_before;          /* calls before these */
    int n_results;         /* results that have followed them */
} call_history;

/* Writes the id of the next result: that of the call with its number. */
static void put_result_id(json_writer *w, call_history *h) {
    char text[32];
    const int i = h->n_results++;
    const json_node *id = json_get(json_at(h->last, (size_t)i), "id");
    snprintf(text, sizeof text, "call_%d", h->n_before + i);
    if (json_kind_of(id) == JSON_STRING)
        bytes_json_put(w, "tool_call_id", id);
    else
        json_put_text(w, "tool_call_id", text);
}

static pi_status put_message(json_writer *w, const json_node *message, size_t index,
                             call_history *h, pi_error *err) {
    const json_node *calls = json_get(message, "tool_calls");
    const char *role = NULL;
    if (json_count(json_get(message, "images")))
        return error_set(err, PI_ERR_UNSUPPORTED, "messages[%zu]: images are not supported", index);
    pi_status status = field_text(message, "role", &role, err);
    if (status != PI_OK || !role)
        return error_set(err, PI_ERR_ARG, "messages[%zu]: role must be a string", index);
    json_put_object(w, NULL);
    json_put_text(w, "role", role);
    if (json_get(message, "content"))
        bytes_json_put(w, "content", json_get(message, "content"));
    else
        json_put_text(w, "content", "");
    bytes_json_copy(w, "reasoning_content", message, "thinking");
    if (json_count(calls)) {
        *h = (call_history){.last = calls, .n_before = h->n_before + (int)json_count(h->last)};
        put_calls(w, calls, h->n_before);
    }
    if (strcmp(role, "tool") == 0) {
        bytes_json_copy(w, "name", message, "tool_name");
        if (json_kind_of(json_get(message, "tool_call_id")) == JSON_STRING)
            bytes_json_put(w, "tool_call_id", json_get(message, "tool_call_id"));
        else
            put_result_id(w, h);
    }
    json_end_object(w);
    return PI_OK;
}

static pi_status write_chat(const json_node *body, json_writer *w, pi_error *err) {
    const json_node *messages = json_get(body, "messages");
    call_history history = {.last = NULL};
    pi_status status = field_kind(body, "messages", JSON_ARRAY, err);
    json_put_array(w, "messages");
    for (size_t i = 0; i < json_count(messages) && status == PI_OK; i++)
        status = put_message(w, json_at(messages, i), i, &history, err);
    json_end_array(w);
    bytes_json_copy(w, "tools", body, "tools");
    bytes_json_copy(w, "tool_choice", body, "tool_choice");
    return status == PI_OK ? put_common(w, body, err) : status;
}

/* A prompt becomes the user's message, unless it is raw or has a suffix. */
static pi_status write_generate(const json_node *body, json_writer *w, pi_error *err) {
    const char *prompt = "", *system = "", *suffix = "";
    bool raw = false;
    if (json_count(json_get(body, "images")))
        return error_set(err, PI_ERR_UNSUPPORTED, "images: only text is supported");
    pi_status status = field_text(body, "prompt", &prompt, err);
    if (status == PI_OK) status = field_text(body, "system", &system, err);
    if (status == PI_OK) status = field_text(body, "suffix", &suffix, err);
    if (status == PI_OK) status = field_bool(body, "raw", &raw, err);
    if (status != PI_OK) return status;
    if (raw || *suffix) {
        json_put_text(w, "prompt", prompt);
        if (*suffix) json_put_text(w, "suffix", suffix);
        return put_common(w, body, err);
    }
    json_put_array(w, "messages");
    if (*system) {
        json_put_object(w, NULL);
        json_put_text(w, "role", "system");
        json_put_text(w, "content", system);
        json_end_object(w);
    }
    json_put_object(w, NULL);
    json_put_text(w, "role", "user");
    json_put_text(w, "content", prompt);
    json_end_object(w);
    json_end_array(w);
    return put_common(w, body, err);
}

/* ---- answer ---------------------------------------------------------------------------------- */

static const char *done_reason(const answer_choice *k) {
    return k->finish == FINISH_LENGTH ? "length" : "stop";
}

static void put_head(const server_call *c, json_writer *w) {
    json_put_text(w, "model", c->model);
    ollama_put_time(w, "created_at", 0);
}

static int64_t nanoseconds(double seconds) {
    return seconds > 0 ? (int64_t)(1e9 * seconds) : 0;
}

static void put_done(const answer_choice *k, json_writer *w) {
    const sequence_times *t = &k->times;
    json_put_bool(w, "done", true);
    json_put_text(w, "done_reason", done_reason(k));
    json_put_int(w, "total_duration", nanoseconds(t->last_token - t->started));
    json_put_int(w, "load_duration", 0);
    json_put_int(w, "prompt_eval_count", k->n_prompt);
    json_put_int(w, "prompt_eval_duration", nanoseconds(t->first_token - t->started));
    json_put_int(w, "eval_count", (int64_t)k->n_generated);
    json_put_int(w, "eval_duration", nanoseconds(t->last_token - t->first_token));
}

/* Writes the part of a text from byte `first` on; `always`: even if it is empty. */
static void put_rest(json_writer *w, const char *key, const bytes *text, size_t first,
                     bool always) {
    if (always || text->used > first)
        json_put_string(w, key, text->used ? text->data + first : "", text->used - first);
}

/* Writes the calls from number `first` on, without a last one that the limit has cut: clients would
 * make it. */
static void put_message_calls(const answer_choice *k, json_writer *w, int first) {
    bool any = false;
    for (int i = first; i < k->message.n_calls; i++) {
        const tool_call *t = &k->message.calls[i];
        json_doc *arguments = NULL;
        json_parse(t->arguments.data, t->arguments.used, "arguments", &arguments, NULL);
        if (json_kind_of(json_root(arguments)) == JSON_OBJECT) {
            if (!any) json_put_array(w, "tool_calls");
            any = true;
            json_put_object(w, NULL);
            json_put_text(w, "id", t->id);
            json_put_object(w, "function");
            json_put_int(w, "index", i);
            json_put_string(w, "name", t->name.data, t->name.used);
            bytes_json_put(w, "arguments", json_root(arguments));
            json_end_object(w);
            json_end_object(w);
        }
        json_free(arguments);
    }
    if (any) json_end_array(w);
}

/* Writes what the answer has gained since the last line. */
static void put_growth(const server_call *c, const answer_choice *k, json_writer *w) {
    const model_text *m = &k->message;
    const bool chat = c->dialect == &dialect_ollama_chat;
    if (chat) {
        json_put_object(w, "message");
        json_put_text(w, "role", "assistant");
    }
    put_rest(w, chat ? "content" : "response", &m->content, k->sent_content, true);
    put_rest(w, "thinking", &m->reasoning, k->sent_reasoning, false);
    if (chat) {
        put_message_calls(k, w, k->sent_calls);
        json_end_object(w);
    }
    if (c->params.n_top >= 0) openai_put_logprobs(c, k, w, "logprobs", k->sent_tokens);
}

static void ollama_delta(server_call *c, answer_choice *k) {
    const model_text *m = &k->message;
    if (m->content.used == k->sent_content && m->reasoning.used == k->sent_reasoning &&
        m->n_calls == k->sent_calls)
        return;
    json_writer *w = call_event(c, NULL);
    put_head(c, w);
    put_growth(c, k, w);
    json_put_bool(w, "done", false);
    call_event_end(c);
    k->sent_content = m->content.used;
    k->sent_reasoning = m->reasoning.used;
    k->sent_calls = m->n_calls;
    k->sent_tokens = k->n_tokens;
}

static void ollama_end(server_call *c, answer_choice *k) {
    json_writer *w = call_event(c, NULL);
    put_head(c, w);
    put_growth(c, k, w);
    put_done(k, w);
    call_event_end(c);
}

static void ollama_failed(server_call *c, unsigned status, const char *message) {
    (void)status;
    json_put_text(call_event(c, NULL), "error", message);
    call_event_end(c);
}

static void ollama_whole(server_call *c, json_writer *w) {
    json_put_object(w, NULL);
    put_head(c, w);
    put_growth(c, &c->choices[0], w);
    put_done(&c->choices[0], w);
    json_end_object(w);
}

#define OLLAMA_DIALECT                                                                             \
    {                                                                                              \
        .delta = ollama_delta, .end = ollama_end, .failed = ollama_failed, .whole = ollama_whole,  \
        .ping = "", .whole_calls = true, .lines = true                                             \
    }
const dialect dialect_ollama_chat = OLLAMA_DIALECT;
const dialect dialect_ollama_generate = OLLAMA_DIALECT;

/* ---- routes ---------------------------------------------------------------------------------- */

/* Answers a request that only loads or unloads the model. */
static enum MHD_Result reply_loaded(exchange *x, bool chat, const json_node *keep_alive) {
    bytes body = {0};
    bytes_json j;
    int64_t seconds = -1;
    if (!bytes_json_begin(&j, &body)) return http_reply_error(x, 500, "out of memory");
    json_put_object(&j.writer, NULL);
    json_put_text(&j.writer, "model", registry_model(x->server->registry, x->model)->name);
    ollama_put_time(&j.writer, "created_at", 0);
    if (chat) {
        json_put_object(&j.writer, "message");
        json_put_text(&j.writer, "role", "assistant");
        json_put_text(&j.writer, "content", "");
        json_end_object(&j.writer);
    } else {
        json_put_text(&j.writer, "response", "");
    }
    json_put_bool(&j.writer, "done", true);
    json_put_text(&j.writer, "done_reason",
                  json_as_int(keep_alive, &seconds) && seconds == 0 ? "unload" : "load");
    json_end_object(&j.writer);
    return http_reply_json(x, &j, &body);
}

enum MHD_Result route_ollama_chat(exchange *x) {
    static const translation t = {&api_tables[API_OLLAMA_CHAT], write_chat, NULL};
    const json_node *body = NULL;
    enum MHD_Result result;
    if (!http_parse_body(x, &body, &result)) return result;
    if (json_count(json_get(body, "messages")) == 0)
        return reply_loaded(x, true, json_get(body, "keep_alive"));
    return generate_translated(x, &t, &dialect_ollama_chat, "");
}

enum MHD_Result route_ollama_generate(exchange *x) {
    static const translation t = {&api_tables[API_OLLAMA_GENERATE], write_generate, NULL};
    const json_node *body = NULL;
    const char *prompt = NULL;
    size_t n = 0;
    enum MHD_Result result;
    if (!http_parse_body(x, &body, &result)) return result;
    const json_node *text = json_get(body, "prompt");
    if (json_kind_of(text) == JSON_NULL || (json_as_string(text, &prompt, &n) && n == 0))
        return reply_loaded(x, false, json_get(body, "keep_alive"));
    return generate_translated(x, &t, &dialect_ollama_generate, "");
}
