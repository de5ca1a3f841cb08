/* dialect_responses.c: /v1/responses without state: the server stores nothing, so each request
 * carries the whole conversation. Requests are translated to chat requests; the answer consists of
 * items: reasoning, a message, and function calls. */
#include <string.h>

#include "api_fields.h"
#include "dialects.h"
#include "route_generate.h"

/* ---- request --------------------------------------------------------------------------------- */

static const char *type_of(const json_node *node) {
    const char *s = NULL;
    size_t n = 0;
    return json_as_string(json_get(node, "type"), &s, &n) ? s : "";
}

static bool is_answer(const json_node *item) {
    const char *role = NULL, *type = type_of(item);
    size_t n = 0;
    return (!*type || strcmp(type, "message") == 0) &&
           json_as_string(json_get(item, "role"), &role, &n) && strcmp(role, "assistant") == 0;
}

/* Appends the texts of a reasoning item, which are those of its content, or else of its summary. */
static pi_status add_reasoning(const json_node *item, bytes *out, pi_error *err) {
    const json_node *parts = json_get(item, "content");
    if (!json_count(parts)) parts = json_get(item, "summary");
    for (size_t i = 0; i < json_count(parts); i++) {
        const char *text = NULL;
        size_t n = 0;
        if (json_as_string(json_get(json_at(parts, i), "text"), &text, &n) &&
            !bytes_append(out, text, n))
            return error_nomem(err, n, "input");
    }
    return PI_OK;
}

/* Writes the items of one answer as one message: reasoning, a text, calls. Returns the number of
 * items. */
static size_t put_answer(json_writer *w, const json_node *input, size_t index, pi_status *status,
                         pi_error *err) {
    size_t i = index, n_calls = 0;
    bytes reasoning = {0};
    const json_node *item = json_at(input, i);
    for (; strcmp(type_of(item), "reasoning") == 0 && *status == PI_OK; item = json_at(input, ++i))
        *status = add_reasoning(item, &reasoning, err);
    const bool text = is_answer(item);
    if (text || strcmp(type_of(item), "function_call") == 0) {
        json_put_object(w, NULL);
        json_put_text(w, "role", "assistant");
        if (reasoning.used) json_put_string(w, "reasoning_content", reasoning.data, reasoning.used);
        if (text) bytes_json_copy(w, "content", item, "content");
        if (text) item = json_at(input, ++i);
        for (; strcmp(type_of(item), "function_call") == 0; item = json_at(input, ++i)) {
            if (n_calls++ == 0) json_put_array(w, "tool_calls");
            bytes_json_call(w, json_get(item, "call_id"), json_get(item, "name"),
                            json_get(item, "arguments"));
        }
        if (n_calls) json_end_array(w);
        json_end_object(w);
    }
    bytes_free(&reasoning);
    return i - index;
}

/* Returns the number of items that the message took. */
static size_t put_items(json_writer *w, const json_node *input, size_t index, pi_status *status,
                        pi_error *err) {
    const json_node *item = json_at(input, index);
    const char *type = type_of(item);
    const bool output = strcmp(type, "function_call_output") == 0;
    if (json_kind_of(item) != JSON_OBJECT) {
        *status = error_set(err, PI_ERR_ARG, "input[%zu]: must be an object", index);
        return 1;
    }
    if (is_answer(item) || strcmp(type, "function_call") == 0 || strcmp(type, "reasoning") == 0)
        return put_answer(w, input, index, status, err);
    if (!output && *type && strcmp(type, "message") != 0) {
        *status = error_set(err, PI_ERR_UNSUPPORTED, "input[%zu]: type %s is not supported", index,
                            type);
        return 1;
    }
    json_put_object(w, NULL);
    if (output) {
        json_put_text(w, "role", "tool");
        bytes_json_put(w, "tool_call_id", json_get(item, "call_id"));
        bytes_json_copy(w, "content", item, "output");
    } else {
        bytes_json_put(w, "role", json_get(item, "role"));
        bytes_json_copy(w, "content", item, "content");
    }
    json_end_object(w);
    return 1;
}

static pi_status put_input(json_writer *w, const json_node *body, pi_error *err) {
    const json_node *input = json_get(body, "input");
    const char *instructions = NULL;
    json_kind kind = json_kind_of(input);
    pi_status status = field_text(body, "instructions", &instructions, err);
    if (status == PI_OK && kind != JSON_STRING && kind != JSON_ARRAY)
        status = error_set(err, PI_ERR_ARG, "input: must be a string or an array of items");
    json_put_array(w, "messages");
    if (instructions) {
        json_put_object(w, NULL);
        json_put_text(w, "role", "system");
        json_put_text(w, "content", instructions);
        json_end_object(w);
    }
    if (kind == JSON_STRING) {
        json_put_object(w, NULL);
        json_put_text(w, "role", "user");
        bytes_json_put(w, "content", input);
        json_end_object(w);
    }
    for (size_t i = 0; kind == JSON_ARRAY && i < json_count(input) && status == PI_OK;)
        i += put_items(w, input, i, &status, err);
    json_end_array(w);
    return status;
}

static void put_function(json_writer *w, const char *key, const json_node *tool) {
    json_put_object(w, key);
    json_put_text(w, "type", "function");
    json_put_object(w, "function");
    bytes_json_put(w, "name", json_get(tool, "name"));
    json_end_object(w);
    json_end_object(w);
}

static void put_tool_choice(json_writer *w, const json_node *choice) {
    const json_node *tools = json_get(choice, "tools");
    if (json_kind_of(choice) != JSON_OBJECT) {
        bytes_json_put(w, "tool_choice", choice);
    } else if (strcmp(type_of(choice), "allowed_tools") == 0) {
        json_put_object(w, "tool_choice");
        json_put_text(w, "type", "allowed_tools");
        json_put_object(w, "allowed_tools");
        bytes_json_copy(w, "mode", choice, "mode");
        json_put_array(w, "tools");
        for (size_t i = 0; i < json_count(tools); i++) put_function(w, NULL, json_at(tools, i));
        json_end_array(w);
        json_end_object(w);
        json_end_object(w);
    } else {
        put_function(w, "tool_choice", choice);
    }
}

/* Writes text.format as response_format: the schema, which stands next to its type in text.format,
 * moves into json_schema. */
static void put_format(json_writer *w, const json_node *format) {
    if (strcmp(type_of(format), "json_schema") != 0) {
        bytes_json_put(w, "response_format", format);
        return;
    }
    json_put_object(w, "response_format");
    json_put_text(w, "type", "json_schema");
    json_put_object(w, "json_schema");
    bytes_json_put(w, "schema", json_get(format, "schema"));
    bytes_json_copy(w, "strict", format, "strict");
    json_end_object(w);
    json_end_object(w);
}

/* Refuses log probabilities in `include`, the only extra that this server offers (in another API),
 * and any text.verbosity except medium. */
static pi_status check_extras(const json_node *body, pi_error *err) {
    const json_node *include = json_get(body, "include");
    const char *text = NULL;
    size_t n = 0;
    pi_status status = field_kind(body, "include", JSON_ARRAY, err);
    for (size_t i = 0; i < json_count(include) && status == PI_OK; i++)
        if (json_as_string(json_at(include, i), &text, &n) && strstr(text, "logprobs"))
            status = error_set(err, PI_ERR_UNSUPPORTED,
                               "include: %s: not supported: use /v1/chat/completions", text);
    text = "medium";
    if (status == PI_OK) status = field_text(json_get(body, "text"), "verbosity", &text, err);
    if (status == PI_OK && strcmp(text, "medium") != 0)
        status = error_set(err, PI_ERR_UNSUPPORTED, "text.verbosity: not supported");
    return status;
}

static pi_status write_chat(const json_node *body, json_writer *w, pi_error *err) {
    static const char *const passed[] = {"temperature",
                                         "top_p",
                                         "top_k",
                                         "min_p",
                                         "seed",
                                         "stop",
                                         "presence_penalty",
                                         "frequency_penalty",
                                         "repeat_penalty",
                                         "logit_bias",
                                         "stream",
                                         "cache_prompt",
                                         "chat_template_kwargs",
                                         "reasoning_budget_tokens",
                                         "parallel_tool_calls"};
    const json_node *format = json_get(json_get(body, "text"), "format");
    pi_status status = put_input(w, body, err);
    if (status == PI_OK) status = field_kind(body, "text", JSON_OBJECT, err);
    if (status == PI_OK) status = check_extras(body, err);
    if (status == PI_OK) status = field_kind(body, "reasoning", JSON_OBJECT, err);
    if (status == PI_OK) status = field_kind(body, "tools", JSON_ARRAY, err);
    generate_put_tools(w, json_get(body, "tools"), "parameters", true);
    if (json_get(body, "tool_choice")) put_tool_choice(w, json_get(body, "tool_choice"));
    bytes_json_copy(w, "max_completion_tokens", body, "max_output_tokens");
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++)
        bytes_json_copy(w, passed[i], body, passed[i]);
    bytes_json_copy(w, "reasoning_effort", json_get(body, "reasoning"), "effort");
    if (format) put_format(w, format);
    return status;
}

static const translation from_responses = {&api_tables[API_RESPONSES], write_chat, NULL};

enum MHD_Result route_responses(exchange *x) {
    return generate_translated(x, &from_responses, &dialect_responses, "resp_");
}

enum MHD_Result route_input_tokens(exchange *x) {
    return generate_count(x, &from_responses, "response.input_tokens");
}

/* ---- items ----------------------------------------------------------------------------------- */

enum { ITEM_REASONING, ITEM_MESSAGE, ITEM_CALL };

static const char *const item_types[] = {"reasoning", "message", "function_call"};
static const char *const item_ids[] = {"rs_", "msg_", "fc_"};
static const char *const part_types[] = {"reasoning_text", "output_text"};

static void put_part(json_writer *w, const char *key, int item, const bytes *text) {
    json_put_object(w, key);
    json_put_text(w, "type", part_types[item]);
    json_put_string(w, "text", text && text->used ? text->data : "", text ? text->used : 0);
    if (item == ITEM_MESSAGE) {
        json_put_array(w, "annotations");
        json_end_array(w);
    }
    json_end_object(w);
}

static void put_item_id(const server_call *c, json_writer *w, const char *key, int item,
                        int index) {
    char id[64];
    snprintf(id, sizeof id, "%s%s_%d", item_ids[item], c->id + strlen("resp_"), index);
    json_put_text(w, key, id);
}

/* cut: the item is the last one of an answer that reached its limit. */
static const char *status_of(bool complete, bool cut) {
    return !complete ? "in_progress" : cut ? "incomplete" : "completed";
}

/* Writes an item with its current content; `text` NULL: no content yet. */
static void put_output(const server_call *c, json_writer *w, const char *key, int item, int index,
                       const bytes *text, bool cut) {
    json_put_object(w, key);
    put_item_id(c, w, "id", item, index);
    json_put_text(w, "type", item_types[item]);
    json_put_text(w, "status", status_of(text != NULL, cut));
    if (item == ITEM_MESSAGE) json_put_text(w, "role", "assistant");
    if (item == ITEM_REASONING) {
        json_put_array(w, "summary");
        json_end_array(w);
    }
    json_put_array(w, "content");
    if (text) put_part(w, NULL, item, text);
    json_end_array(w);
    json_end_object(w);
}

static void put_call(const server_call *c, json_writer *w, const char *key, const tool_call *t,
                     int index, bool complete, bool cut) {
    json_put_object(w, key);
    put_item_id(c, w, "id", ITEM_CALL, index);
    json_put_text(w, "type", "function_call");
    json_put_text(w, "status", status_of(complete, cut));
    json_put_text(w, "call_id", t->id);
    json_put_string(w, "name", t->name.data, t->name.used);
    json_put_string(w, "arguments", t->arguments.data, complete ? t->arguments.used : 0);
    json_end_object(w);
}

static void put_usage(const server_call *c, json_writer *w) {
    call_usage u = call_get_usage(c);
    json_put_object(w, "usage");
    json_put_int(w, "input_tokens", u.prompt);
    json_put_object(w, "input_tokens_details");
    json_put_int(w, "cached_tokens", u.cached);
    json_end_object(w);
    json_put_int(w, "output_tokens", u.generated);
    json_put_object(w, "output_tokens_details");
    json_put_int(w, "reasoning_tokens", u.reasoning);
    json_end_object(w);
    json_put_int(w, "total_tokens", u.prompt + u.generated);
    json_end_object(w);
}

/* Whether the last call of an answer that reached its limit lacks arguments. */
static bool call_is_cut(const answer_choice *k, int i) {
    const bytes *arguments = &k->message.calls[i].arguments;
    json_doc *doc = NULL;
    if (k->finish != FINISH_LENGTH || i + 1 < k->message.n_calls) return false;
    bool whole = arguments->used &&
                 json_parse(arguments->data, arguments->used, "", &doc, NULL) == PI_OK;
    json_free(doc);
    return !whole;
}

static void put_all_output(const server_call *c, json_writer *w, const answer_choice *k) {
    const model_text *m = &k->message;
    bool cut = k->finish == FINISH_LENGTH && m->n_calls == 0, content = m->content.used > 0;
    int index = 0;
    /* Without content, the reasoning was truncated. */
    if (m->reasoning.used)
        put_output(c, w, NULL, ITEM_REASONING, index++, &m->reasoning, cut && !content);
    if (content || m->n_calls == 0) put_output(c, w, NULL, ITEM_MESSAGE, index++, &m->content, cut);
    for (int i = 0; i < m->n_calls; i++)
        put_call(c, w, NULL, &m->calls[i], index++, true, call_is_cut(k, i));
}

/* Writes the response; k NULL: the response has only begun. */
static void put_response(const server_call *c, json_writer *w, const char *key,
                         const answer_choice *k) {
    bool cut = k && k->finish == FINISH_LENGTH;
    json_put_object(w, key);
    json_put_text(w, "id", c->id);
    json_put_text(w, "object", "response");
    json_put_int(w, "created_at", c->created);
    json_put_text(w, "status", !k ? "in_progress" : cut ? "incomplete" : "completed");
    json_put_text(w, "error", NULL);
    if (cut) {
        json_put_object(w, "incomplete_details");
        json_put_text(w, "reason", "max_output_tokens");
        json_end_object(w);
    } else {
        json_put_text(w, "incomplete_details", NULL);
    }
    json_put_text(w, "instructions", NULL);
    json_put_object(w, "metadata");
    json_end_object(w);
    json_put_text(w, "model", c->model);
    json_put_array(w, "output");
    if (k) put_all_output(c, w, k);
    json_end_array(w);
    json_put_bool(w, "parallel_tool_calls", c->parallel_calls);
    json_put_text(w, "previous_response_id", NULL);
    json_put_bool(w, "store", false);
    json_put_float(w, "temperature", c->params.sampling.temp);
    json_put_float(w, "top_p", c->params.sampling.top_p);
    json_put_text(w, "tool_choice", "auto");
    json_put_array(w, "tools");
    json_end_array(w);
    if (k)
        put_usage(c, w);
    else
        json_put_text(w, "usage", NULL);
    json_end_object(w);
}

static void responses_whole(server_call *c, json_writer *w) {
    put_response(c, w, NULL, &c->choices[0]);
}

/* ---- stream ---------------------------------------------------------------------------------- */

static json_writer *begin_event(server_call *c, const char *type) {
    int64_t number = (int64_t)c->n_events;
    json_writer *w = call_event(c, type);
    json_put_text(w, "type", type);
    json_put_int(w, "sequence_number", number);
    return w;
}

static json_writer *begin_item_event(server_call *c, const answer_choice *k, const char *type,
                                     int item) {
    json_writer *w = begin_event(c, type);
    put_item_id(c, w, "item_id", item, k->n_items - 1);
    json_put_int(w, "output_index", k->n_items - 1);
    return w;
}

static json_writer *begin_part_event(server_call *c, const answer_choice *k, const char *type,
                                     int item) {
    json_writer *w = begin_item_event(c, k, type, item);
    json_put_int(w, "content_index", 0);
    return w;
}

static void responses_begin(server_call *c, answer_choice *k) {
    static const char *const types[] = {"response.created", "response.in_progress"};
    (void)k;
    for (int i = 0; i < 2; i++) {
        json_writer *w = begin_event(c, types[i]);
        put_response(c, w, "response", NULL);
        call_event_end(c);
    }
}

/* last: no item follows. */
static void close_item(server_call *c, answer_choice *k, bool last) {
    int item = k->open_item;
    if (item < 0) return;
    const bytes *text = item == ITEM_MESSAGE ? &k->message.content : &k->message.reasoning;
    json_writer *w = begin_part_event(
        c, k, item == ITEM_MESSAGE ? "response.output_text.done" : "response.reasoning_text.done",
        item);
    json_put_string(w, "text", text->used ? text->data : "", text->used);
    call_event_end(c);
    w = begin_part_event(c, k, "response.content_part.done", item);
    put_part(w, "part", item, text);
    call_event_end(c);
    w = begin_event(c, "response.output_item.done");
    json_put_int(w, "output_index", k->n_items - 1);
    put_output(c, w, "item", item, k->n_items - 1, text, last && k->finish == FINISH_LENGTH);
    call_event_end(c);
    k->open_item = -1;
}

static void open_item(server_call *c, answer_choice *k, int item) {
    if (k->open_item == item) return;
    close_item(c, k, k->message.content.used == 0);
    k->open_item = item;
    k->n_items++;
    json_writer *w = begin_event(c, "response.output_item.added");
    json_put_int(w, "output_index", k->n_items - 1);
    put_output(c, w, "item", item, k->n_items - 1, NULL, false);
    call_event_end(c);
    w = begin_part_event(c, k, "response.content_part.added", item);
    put_part(w, "part", item, NULL);
    call_event_end(c);
}

static void send_text(server_call *c, answer_choice *k, int item, const bytes *text, size_t *sent) {
    if (text->used <= *sent) return;
    open_item(c, k, item);
    json_writer *w = begin_part_event(
        c, k, item == ITEM_MESSAGE ? "response.output_text.delta" : "response.reasoning_text.delta",
        item);
    json_put_string(w, "delta", text->data + *sent, text->used - *sent);
    call_event_end(c);
    *sent = text->used;
}

static void begin_call(server_call *c, answer_choice *k) {
    close_item(c, k, false);
    k->n_items++;
    json_writer *w = begin_event(c, "response.output_item.added");
    json_put_int(w, "output_index", k->n_items - 1);
    put_call(c, w, "item", &k->message.calls[k->sent_calls], k->n_items - 1, false, false);
    call_event_end(c);
}

static void send_arguments(server_call *c, answer_choice *k, const char *text, size_t n) {
    json_writer *w = begin_item_event(c, k, "response.function_call_arguments.delta", ITEM_CALL);
    json_put_string(w, "delta", text, n);
    call_event_end(c);
}

static void end_call(server_call *c, answer_choice *k) {
    const tool_call *t = &k->message.calls[k->sent_calls];
    json_writer *w = begin_item_event(c, k, "response.function_call_arguments.done", ITEM_CALL);
    json_put_string(w, "arguments", t->arguments.data, t->arguments.used);
    call_event_end(c);
    w = begin_event(c, "response.output_item.done");
    json_put_int(w, "output_index", k->n_items - 1);
    put_call(c, w, "item", t, k->n_items - 1, true, call_is_cut(k, k->sent_calls));
    call_event_end(c);
}

static const call_events call_items = {begin_call, send_arguments, end_call};

static void responses_delta(server_call *c, answer_choice *k) {
    const model_text *m = &k->message;
    send_text(c, k, ITEM_REASONING, &m->reasoning, &k->sent_reasoning);
    send_text(c, k, ITEM_MESSAGE, &m->content, &k->sent_content);
    call_send_tools(c, k, &call_items);
}

static void responses_end(server_call *c, answer_choice *k) {
    if (k->message.content.used == 0 && k->message.n_calls == 0) open_item(c, k, ITEM_MESSAGE);
    close_item(c, k, true);
    json_writer *w = begin_event(c, k->finish == FINISH_LENGTH ? "response.incomplete"
                                                               : "response.completed");
    put_response(c, w, "response", k);
    call_event_end(c);
}

static void responses_failed(server_call *c, unsigned status, const char *text) {
    json_writer *w = begin_event(c, "error");
    json_put_int(w, "code", status);
    json_put_text(w, "message", text);
    json_put_text(w, "param", NULL);
    call_event_end(c);
}

const dialect dialect_responses = {.begin = responses_begin,
                                   .delta = responses_delta,
                                   .end = responses_end,
                                   .failed = responses_failed,
                                   .whole = responses_whole};
