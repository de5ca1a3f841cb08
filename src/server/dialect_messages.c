/* dialect_messages.c: Anthropic's API, /v1/messages. Requests are translated to chat requests; the
 * answer consists of blocks: thinking, text, and tool uses. */
#include <string.h>

#include "api_fields.h"
#include "dialects.h"
#include "route_generate.h"

/* ---- request --------------------------------------------------------------------------------- */

static bool is_type(const json_node *node, const char *type) {
    const char *s = NULL;
    size_t n = 0;
    return json_as_string(json_get(node, "type"), &s, &n) && strcmp(s, type) == 0;
}

/* Joins the texts of a string or of blocks. */
static pi_status join_texts(const json_node *node, const char *where, bytes *out, pi_error *err) {
    const char *s = NULL;
    size_t n = 0;
    if (json_kind_of(node) == JSON_NULL) return PI_OK;
    if (json_as_string(node, &s, &n))
        return bytes_append(out, s, n) ? PI_OK : error_nomem(err, n, where);
    if (json_kind_of(node) != JSON_ARRAY)
        return error_set(err, PI_ERR_ARG, "%s: must be a string or an array of blocks", where);
    for (size_t i = 0; i < json_count(node); i++) {
        const json_node *block = json_at(node, i);
        if (is_type(block, "tool_use") || is_type(block, "tool_result") ||
            is_type(block, "thinking") || is_type(block, "redacted_thinking"))
            continue;
        if (!is_type(block, "text"))
            return error_set(err, PI_ERR_UNSUPPORTED, "%s: only text is supported", where);
        if (!json_as_string(json_get(block, "text"), &s, &n))
            return error_set(err, PI_ERR_ARG, "%s: text must be a string", where);
        if (!bytes_append(out, s, n)) return error_nomem(err, n, where);
    }
    return PI_OK;
}

static pi_status put_text_message(json_writer *w, const char *role, const json_node *content,
                                  pi_error *err) {
    bytes text = {0};
    pi_status status = join_texts(content, role, &text, err);
    json_put_object(w, NULL);
    json_put_text(w, "role", role);
    json_put_string(w, "content", text.used ? text.data : "", text.used);
    json_end_object(w);
    bytes_free(&text);
    return status;
}

static pi_status put_results(json_writer *w, const json_node *content, bool *any_text,
                             pi_error *err) {
    pi_status status = PI_OK;
    *any_text = json_kind_of(content) != JSON_ARRAY || json_count(content) == 0;
    for (size_t i = 0; i < json_count(content) && status == PI_OK; i++) {
        const json_node *block = json_at(content, i);
        if (!is_type(block, "tool_result")) {
            *any_text = true;
            continue;
        }
        bytes text = {0};
        status = join_texts(json_get(block, "content"), "tool_result", &text, err);
        json_put_object(w, NULL);
        json_put_text(w, "role", "tool");
        bytes_json_put(w, "tool_call_id", json_get(block, "tool_use_id"));
        json_put_string(w, "content", text.used ? text.data : "", text.used);
        json_end_object(w);
        bytes_free(&text);
    }
    return status;
}

static pi_status put_answer(json_writer *w, const json_node *content, pi_error *err) {
    bytes text = {0};
    bool calls = false;
    pi_status status = join_texts(content, "assistant", &text, err);
    json_put_object(w, NULL);
    json_put_text(w, "role", "assistant");
    json_put_string(w, "content", text.used ? text.data : "", text.used);
    bytes_free(&text);
    for (size_t i = 0; i < json_count(content); i++) {
        const json_node *block = json_at(content, i);
        if (is_type(block, "thinking"))
            bytes_json_put(w, "reasoning_content", json_get(block, "thinking"));
        if (!is_type(block, "tool_use")) continue;
        if (!calls) json_put_array(w, "tool_calls");
        calls = true;
        bytes_json_call(w, json_get(block, "id"), json_get(block, "name"),
                        json_get(block, "input"));
    }
    if (calls) json_end_array(w);
    json_end_object(w);
    return status;
}

static pi_status put_messages(json_writer *w, const json_node *body, pi_error *err) {
    const json_node *messages = json_get(body, "messages"), *system = json_get(body, "system");
    pi_status status = field_kind(body, "messages", JSON_ARRAY, err);
    json_put_array(w, "messages");
    if (status == PI_OK && json_kind_of(system) != JSON_NULL)
        status = put_text_message(w, "system", system, err);
    for (size_t i = 0; i < json_count(messages) && status == PI_OK; i++) {
        const json_node *message = json_at(messages, i), *content = json_get(message, "content");
        const char *role = NULL;
        bool any_text = true;
        status = field_text(message, "role", &role, err);
        if (status == PI_OK && (!role || (strcmp(role, "user") && strcmp(role, "assistant"))))
            status = error_set(err, PI_ERR_ARG, "messages[%zu]: role must be user or assistant", i);
        if (status == PI_OK && !content)
            status = error_set(err, PI_ERR_ARG, "messages[%zu]: content is missing", i);
        if (status != PI_OK) break;
        if (strcmp(role, "assistant") == 0) {
            status = put_answer(w, content, err);
            continue;
        }
        status = put_results(w, content, &any_text, err);
        if (status == PI_OK && any_text) status = put_text_message(w, "user", content, err);
    }
    json_end_array(w);
    return status;
}

static pi_status put_tool_choice(json_writer *w, const json_node *choice, pi_error *err) {
    bool single = false;
    pi_status status = field_bool(choice, "disable_parallel_tool_use", &single, err);
    if (json_kind_of(choice) == JSON_NULL || status != PI_OK) return status;
    if (single) json_put_bool(w, "parallel_tool_calls", false);
    if (is_type(choice, "auto")) json_put_text(w, "tool_choice", "auto");
    if (is_type(choice, "none")) json_put_text(w, "tool_choice", "none");
    if (is_type(choice, "any")) json_put_text(w, "tool_choice", "required");
    if (is_type(choice, "tool")) {
        json_put_object(w, "tool_choice");
        json_put_object(w, "function");
        bytes_json_put(w, "name", json_get(choice, "name"));
        json_end_object(w);
        json_end_object(w);
    } else if (!is_type(choice, "auto") && !is_type(choice, "none") && !is_type(choice, "any")) {
        return error_set(err, PI_ERR_ARG, "tool_choice: type must be auto, any, tool or none");
    }
    return PI_OK;
}

/* Reads thinking: {"type": "enabled", "budget_tokens": 2048}; without the field, templates use
 * their default. */
static pi_status put_thinking(json_writer *w, const json_node *body, pi_error *err) {
    const json_node *thinking = json_get(body, "thinking");
    if (json_kind_of(thinking) == JSON_NULL) return PI_OK;
    bool off = is_type(thinking, "disabled");
    if (!off && !is_type(thinking, "enabled") && !is_type(thinking, "adaptive"))
        return error_set(err, PI_ERR_ARG, "thinking: type must be enabled, adaptive or disabled");
    json_put_bool(w, "enable_thinking", !off);
    int64_t budget = -1;
    pi_status status = field_int(thinking, "budget_tokens", 0, INT32_MAX, &budget, err);
    if (budget >= 0 && !off) json_put_int(w, "thinking_budget_tokens", budget);
    return status;
}

/* Refuses tools that Anthropic's servers run themselves (web_search_20250305); this server cannot
 * run them. */
static pi_status check_tools(const json_node *tools, pi_error *err) {
    for (size_t i = 0; i < json_count(tools); i++) {
        const json_node *tool = json_at(tools, i);
        if (json_get(tool, "type") && !is_type(tool, "custom") && !json_get(tool, "input_schema"))
            return error_set(err, PI_ERR_UNSUPPORTED, "tools[%zu]: type must be \"custom\"", i);
    }
    return PI_OK;
}

/* Reads output_config: {"format": {"type": "json_schema", "schema": {...}}, "effort": "low"};
 * output_format is the format alone. */
static pi_status put_output(json_writer *w, const json_node *body, pi_error *err) {
    const json_node *config = json_get(body, "output_config");
    const json_node *format = json_get(config, "format"), *older = json_get(body, "output_format");
    pi_status status = field_kind(body, "output_config", JSON_OBJECT, err);
    if (status == PI_OK) status = field_kind(body, "output_format", JSON_OBJECT, err);
    if (status == PI_OK) status = field_kind(config, "format", JSON_OBJECT, err);
    if (status != PI_OK) return status;
    if (json_kind_of(older) != JSON_NULL && json_kind_of(format) != JSON_NULL)
        return error_set(err, PI_ERR_ARG,
                         "output_format and output_config.format exclude each other");
    bytes_json_copy(w, "reasoning_effort", config, "effort");
    if (json_kind_of(format) == JSON_NULL) format = older;
    if (json_kind_of(format) == JSON_NULL) return PI_OK;
    if (!is_type(format, "json_schema") || json_kind_of(json_get(format, "schema")) != JSON_OBJECT)
        return error_set(err, PI_ERR_ARG, "%s: must be of type json_schema, with a schema",
                         format == older ? "output_format" : "output_config.format");
    json_put_object(w, "response_format");
    json_put_text(w, "type", "json_schema");
    json_put_object(w, "json_schema");
    bytes_json_put(w, "schema", json_get(format, "schema"));
    json_end_object(w);
    json_end_object(w);
    return PI_OK;
}

static pi_status write_chat(const json_node *body, json_writer *w, pi_error *err) {
    static const char *const passed[] = {"max_tokens",
                                         "temperature",
                                         "top_p",
                                         "top_k",
                                         "min_p",
                                         "seed",
                                         "presence_penalty",
                                         "frequency_penalty",
                                         "repeat_penalty",
                                         "logit_bias",
                                         "cache_prompt",
                                         "stream",
                                         "chat_template_kwargs"};
    pi_status status = put_messages(w, body, err);
    if (status == PI_OK) status = field_kind(body, "tools", JSON_ARRAY, err);
    if (status == PI_OK) status = check_tools(json_get(body, "tools"), err);
    if (status == PI_OK) status = field_kind(body, "stop_sequences", JSON_ARRAY, err);
    if (status == PI_OK) status = put_tool_choice(w, json_get(body, "tool_choice"), err);
    if (status == PI_OK) status = put_thinking(w, body, err);
    if (status == PI_OK) status = put_output(w, body, err);
    generate_put_tools(w, json_get(body, "tools"), "input_schema", false);
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++)
        bytes_json_copy(w, passed[i], body, passed[i]);
    bytes_json_copy(w, "stop", body, "stop_sequences");
    return status;
}

/* Clients that use threads continue without them when the answer says that threads are not
 * supported. */
static void note_thread(exchange *x, const json_node *body) {
    if (json_kind_of(json_get(body, "thread")) == JSON_OBJECT) x->unsupported = "thread";
}

static const translation from_messages = {&api_tables[API_MESSAGES], write_chat, note_thread};

enum MHD_Result route_messages(exchange *x) {
    return generate_translated(x, &from_messages, &dialect_messages, "msg_");
}

enum MHD_Result route_count_tokens(exchange *x) {
    return generate_count(x, &from_messages, NULL);
}

/* ---- answer ---------------------------------------------------------------------------------- */

static const char *stop_reason(const answer_choice *k) {
    if (k->finish == FINISH_LENGTH) return "max_tokens";
    if (k->message.n_calls) return "tool_use";
    return k->finish == FINISH_STOP ? "stop_sequence" : "end_turn";
}

static void put_usage(const server_call *c, json_writer *w, bool with_prompt) {
    call_usage u = call_get_usage(c);
    json_put_object(w, "usage");
    if (with_prompt) {
        json_put_int(w, "input_tokens", u.prompt - u.cached);
        json_put_int(w, "cache_creation_input_tokens", 0);
        json_put_int(w, "cache_read_input_tokens", u.cached);
    }
    json_put_int(w, "output_tokens", u.generated);
    json_end_object(w);
}

static void put_stop(const answer_choice *k, json_writer *w) {
    json_put_text(w, "stop_reason", stop_reason(k));
    json_put_text(w, "stop_sequence", k->finish == FINISH_STOP ? k->stopped_by : NULL);
}

static void put_head(const server_call *c, json_writer *w) {
    json_put_text(w, "id", c->id);
    json_put_text(w, "type", "message");
    json_put_text(w, "role", "assistant");
    json_put_text(w, "model", c->model);
}

static void put_use(const tool_call *t, json_writer *w, bool with_input) {
    json_doc *input = NULL;
    json_put_text(w, "type", "tool_use");
    json_put_text(w, "id", t->id);
    json_put_string(w, "name", t->name.data, t->name.used);
    if (with_input) json_parse(t->arguments.data, t->arguments.used, "input", &input, NULL);
    if (json_kind_of(json_root(input)) == JSON_OBJECT) {
        bytes_json_put(w, "input", json_root(input));
    } else {
        json_put_object(w, "input");
        json_end_object(w);
    }
    json_free(input);
}

static void messages_whole(server_call *c, json_writer *w) {
    const answer_choice *k = &c->choices[0];
    const model_text *m = &k->message;
    json_put_object(w, NULL);
    put_head(c, w);
    json_put_array(w, "content");
    if (m->reasoning.used) {
        json_put_object(w, NULL);
        json_put_text(w, "type", "thinking");
        json_put_string(w, "thinking", m->reasoning.data, m->reasoning.used);
        json_put_text(w, "signature", "");
        json_end_object(w);
    }
    if (m->content.used || m->n_calls == 0) {
        json_put_object(w, NULL);
        json_put_text(w, "type", "text");
        json_put_string(w, "text", m->content.used ? m->content.data : "", m->content.used);
        json_end_object(w);
    }
    for (int i = 0; i < m->n_calls; i++) {
        json_put_object(w, NULL);
        put_use(&m->calls[i], w, true);
        json_end_object(w);
    }
    json_end_array(w);
    put_stop(k, w);
    put_usage(c, w, true);
    json_end_object(w);
}

/* ---- stream ---------------------------------------------------------------------------------- */

enum { ITEM_THINKING, ITEM_TEXT, ITEM_USE };

static json_writer *begin_event(server_call *c, const char *type) {
    json_writer *w = call_event(c, type);
    json_put_text(w, "type", type);
    return w;
}

static void messages_begin(server_call *c, answer_choice *k) {
    (void)k;
    json_writer *w = begin_event(c, "message_start");
    json_put_object(w, "message");
    put_head(c, w);
    json_put_array(w, "content");
    json_end_array(w);
    json_put_text(w, "stop_reason", NULL);
    json_put_text(w, "stop_sequence", NULL);
    put_usage(c, w, true);
    json_end_object(w);
    call_event_end(c);
}

static void stop_block(server_call *c, answer_choice *k) {
    if (k->open_item < 0) return;
    json_writer *w = begin_event(c, "content_block_stop");
    json_put_int(w, "index", k->n_items - 1);
    call_event_end(c);
    k->open_item = -1;
}

static void start_block(server_call *c, answer_choice *k, int item) {
    if (k->open_item == item) return;
    stop_block(c, k);
    json_writer *w = begin_event(c, "content_block_start");
    json_put_int(w, "index", k->n_items++);
    json_put_object(w, "content_block");
    json_put_text(w, "type", item == ITEM_TEXT ? "text" : "thinking");
    json_put_text(w, item == ITEM_TEXT ? "text" : "thinking", "");
    if (item == ITEM_THINKING) json_put_text(w, "signature", "");
    json_end_object(w);
    call_event_end(c);
    k->open_item = item;
}

static void put_delta(server_call *c, const answer_choice *k, const char *type, const char *key,
                      const char *text, size_t n) {
    json_writer *w = begin_event(c, "content_block_delta");
    json_put_int(w, "index", k->n_items - 1);
    json_put_object(w, "delta");
    json_put_text(w, "type", type);
    json_put_string(w, key, text, n);
    json_end_object(w);
    call_event_end(c);
}

static void begin_use(server_call *c, answer_choice *k) {
    stop_block(c, k);
    json_writer *w = begin_event(c, "content_block_start");
    json_put_int(w, "index", k->n_items++);
    json_put_object(w, "content_block");
    put_use(&k->message.calls[k->sent_calls], w, false);
    json_end_object(w);
    call_event_end(c);
    k->open_item = ITEM_USE;
}

static void put_input(server_call *c, answer_choice *k, const char *text, size_t n) {
    put_delta(c, k, "input_json_delta", "partial_json", text, n);
}

static const call_events uses = {begin_use, put_input, stop_block};

static void messages_delta(server_call *c, answer_choice *k) {
    const model_text *m = &k->message;
    if (m->reasoning.used > k->sent_reasoning) {
        start_block(c, k, ITEM_THINKING);
        put_delta(c, k, "thinking_delta", "thinking", m->reasoning.data + k->sent_reasoning,
                  m->reasoning.used - k->sent_reasoning);
        k->sent_reasoning = m->reasoning.used;
    }
    if (m->content.used > k->sent_content) {
        start_block(c, k, ITEM_TEXT);
        put_delta(c, k, "text_delta", "text", m->content.data + k->sent_content,
                  m->content.used - k->sent_content);
        k->sent_content = m->content.used;
    }
    call_send_tools(c, k, &uses);
}

static void messages_end(server_call *c, answer_choice *k) {
    stop_block(c, k);
    json_writer *w = begin_event(c, "message_delta");
    json_put_object(w, "delta");
    put_stop(k, w);
    json_end_object(w);
    put_usage(c, w, false);
    call_event_end(c);
}

static void messages_done(server_call *c) {
    begin_event(c, "message_stop");
    call_event_end(c);
}

static void messages_failed(server_call *c, unsigned status, const char *text) {
    json_writer *w = begin_event(c, "error");
    http_put_error(w, "error", status, text);
    call_event_end(c);
}

const dialect dialect_messages = {.begin = messages_begin,
                                  .delta = messages_delta,
                                  .end = messages_end,
                                  .done = messages_done,
                                  .failed = messages_failed,
                                  .whole = messages_whole,
                                  .ping = "event: ping\ndata: {\"type\":\"ping\"}\n\n"};
