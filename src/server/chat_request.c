/* chat_request.c: checks messages and tools, and rewrites them for the template. */
#include "chat_request.h"

#include <string.h>

#include "call_arguments.h"
#include "fields.h"
#include "hash.h"

/* ---- tools ----------------------------------------------------------------------------------- */

static const char *function_name(const json_node *tool) {
    const char *name = NULL;
    size_t n = 0;
    json_as_string(json_get(json_get(tool, "function"), "name"), &name, &n);
    return name && n && n == strlen(name) ? name : NULL;
}

static pi_status check_tools(const json_node *list, pi_error *err) {
    if (json_count(list) > CHAT_MAX_TOOLS)
        return error_set(err, PI_ERR_ARG, "tools: more than %d", CHAT_MAX_TOOLS);
    for (size_t i = 0; i < json_count(list); i++) {
        const json_node *tool = json_at(list, i), *function = json_get(tool, "function");
        const char *type = "function";
        if (field_text(tool, "type", &type, err) != PI_OK || strcmp(type, "function") != 0)
            return error_set(err, PI_ERR_ARG, "tools[%zu]: type must be \"function\"", i);
        if (!function_name(tool))
            return error_set(err, PI_ERR_ARG, "tools[%zu]: a function with a name is needed", i);
        for (size_t k = 0; k < i; k++)
            if (strcmp(function_name(json_at(list, k)), function_name(tool)) == 0)
                return error_set(err, PI_ERR_ARG, "tools[%zu]: duplicate name", i);
        if (field_kind(function, "parameters", JSON_OBJECT, err) != PI_OK)
            return error_set(err, PI_ERR_ARG, "tools[%zu]: parameters must be an object", i);
    }
    return PI_OK;
}

static bool has_tool(const json_node *list, const char *name) {
    for (size_t i = 0; i < json_count(list); i++) {
        const char *other = function_name(json_at(list, i));
        if (other && strcmp(other, name) == 0) return true;
    }
    return false;
}

bool chat_tool_allowed(const chat_tools *tools, size_t i) {
    const char *name = function_name(json_at(tools->list, i));
    if (tools->choice == TOOLS_NAMED) return strcmp(name, tools->name) == 0;
    return !tools->allowed || has_tool(tools->allowed, name);
}

/* {"mode": "auto" or "required", "tools": [...]} */
static pi_status read_allowed(const json_node *choice, chat_tools *out, pi_error *err) {
    const char *mode = "auto";
    const json_node *list = json_get(choice, "tools");
    pi_status status = field_text(choice, "mode", &mode, err);
    if (status != PI_OK) return status;
    if (strcmp(mode, "auto") != 0 && strcmp(mode, "required") != 0)
        return error_set(err, PI_ERR_ARG, "tool_choice: mode must be \"auto\" or \"required\"");
    if (json_kind_of(list) != JSON_ARRAY || json_count(list) == 0)
        return error_set(err, PI_ERR_ARG, "tool_choice: allowed_tools needs tools");
    for (size_t i = 0; i < json_count(list); i++) {
        const char *name = function_name(json_at(list, i));
        if (!name || !has_tool(out->list, name))
            return error_set(err, PI_ERR_ARG, "tool_choice: tools[%zu] is not one of the tools", i);
    }
    out->allowed = list;
    out->choice = strcmp(mode, "auto") == 0 ? TOOLS_AUTO : TOOLS_REQUIRED;
    return PI_OK;
}

pi_status chat_read_tools(const json_node *body, chat_tools *out, pi_error *err) {
    const json_node *list = json_get(body, "tools"), *choice = json_get(body, "tool_choice");
    const char *word = NULL;
    size_t n = 0;
    *out = (chat_tools){.choice = TOOLS_NONE, .parallel = true};
    pi_status status = field_kind(body, "tools", JSON_ARRAY, err);
    if (status == PI_OK) status = field_bool(body, "parallel_tool_calls", &out->parallel, err);
    if (status == PI_OK) status = check_tools(list, err);
    if (status != PI_OK) return status;
    if (json_count(list) > 0) out->list = list;
    if (json_kind_of(choice) == JSON_NULL) {
        out->choice = out->list ? TOOLS_AUTO : TOOLS_NONE;
        return PI_OK;
    }
    if (json_kind_of(choice) == JSON_OBJECT) {
        const char *type = "function";
        if (field_text(choice, "type", &type, err) != PI_OK) return PI_ERR_ARG;
        if (strcmp(type, "allowed_tools") == 0)
            return read_allowed(json_get(choice, "allowed_tools"), out, err);
        if (strcmp(type, "function") != 0)
            return error_set(err, PI_ERR_UNSUPPORTED,
                             "tool_choice: type must be \"function\" or \"allowed_tools\"");
        out->choice = TOOLS_NAMED;
        out->name = function_name(choice);
        if (!out->name || !has_tool(out->list, out->name))
            return error_set(err, PI_ERR_ARG, "tool_choice: there is no such tool");
        return PI_OK;
    }
    json_as_string(choice, &word, &n);
    if (word && strcmp(word, "none") == 0)
        out->list = NULL;
    else if (word && strcmp(word, "auto") == 0)
        out->choice = out->list ? TOOLS_AUTO : TOOLS_NONE;
    else if (word && strcmp(word, "required") == 0)
        out->choice = TOOLS_REQUIRED;
    else
        return error_set(err, PI_ERR_ARG,
                         "tool_choice: must be \"none\", \"auto\", \"required\" or a function");
    if (out->choice == TOOLS_REQUIRED && !out->list)
        return error_set(err, PI_ERR_ARG, "tool_choice: there are no tools");
    return PI_OK;
}

/* ---- messages -------------------------------------------------------------------------------- */

/* Joins the texts of a content of several parts. */
static pi_status take_content(const json_node *message, size_t index, bytes *text, pi_error *err) {
    const json_node *content = json_get(message, "content");
    const char *s = NULL;
    size_t n = 0;
    if (json_kind_of(content) == JSON_NULL) return PI_OK;
    if (json_as_string(content, &s, &n))
        return bytes_append(text, s, n) ? PI_OK : error_nomem(err, n, "messages");
    if (json_kind_of(content) != JSON_ARRAY)
        return error_set(err, PI_ERR_ARG,
                         "messages[%zu]: content must be a string or an array of parts", index);
    for (size_t i = 0; i < json_count(content); i++) {
        const json_node *part = json_at(content, i);
        const char *type = NULL;
        json_as_string(json_get(part, "type"), &type, &n);
        bool text_part = type && (strcmp(type, "text") == 0 || strcmp(type, "input_text") == 0 ||
                                  strcmp(type, "output_text") == 0);
        if (!text_part)
            return error_set(err, PI_ERR_UNSUPPORTED,
                             "messages[%zu]: content[%zu]: only text is supported", index, i);
        if (!json_as_string(json_get(part, "text"), &s, &n))
            return error_set(err, PI_ERR_ARG, "messages[%zu]: content[%zu]: text must be a string",
                             index, i);
        if (!bytes_append(text, s, n)) return error_nomem(err, n, "messages");
    }
    return PI_OK;
}

/* State of the calls in the messages so far. */
typedef struct history {
    const tool_style *style;
    const json_node *calls; /* calls of the last message that has calls */
    int n_before, n;        /* number of calls before these; total number */
    const char *tag;        /* appended to the last content; NULL: nothing */
} history;

/* Writes arguments. Clients expect JSON in a text; most templates expect an object. */
static void put_arguments(json_writer *w, const json_node *arguments, bool text) {
    const char *s = NULL;
    size_t n = 0;
    json_doc *doc = NULL;
    bytes json = {0};
    bytes_json j;
    const json_node *object = arguments;
    if (json_as_string(arguments, &s, &n) && (doc = call_arguments_parse(s, n)))
        object = json_root(doc);
    if (json_kind_of(object) == JSON_OBJECT && text && bytes_json_begin(&j, &json)) {
        bytes_json_put(&j.writer, NULL, object);
        bytes_json_end(&j);
        json_put_string(w, "arguments", json.used ? json.data : "", json.used);
        bytes_free(&json);
    } else {
        bytes_json_put(w, "arguments", object);
    }
    json_free(doc);
}

/* Writes the id; replaces an id that is not short by one made from its hash. */
static void put_short_id(json_writer *w, const char *key, const char *id, size_t n) {
    char text[MESSAGE_SHORT_ID];
    bool good = n == sizeof text;
    for (size_t i = 0; i < n && good; i++)
        good = call_is_word(id[i]) && id[i] != '_' && id[i] != '-';
    message_id_letters(text, MESSAGE_SHORT_ID, hash_bytes((hash_key){{0, 0}}, id, n));
    json_put_string(w, key, good ? id : text, sizeof text);
}

/* Writes an id in the form that the template expects. call: the call it names, number `index` of
 * all; NULL: not known. */
static void put_id(json_writer *w, const char *key, const history *h, const json_node *id,
                   const json_node *call, int index) {
    static const char begin[] = "functions.";
    const char *s = NULL;
    size_t n = 0;
    char text[512];
    if (!json_as_string(id, &s, &n)) {
        bytes_json_put(w, key, id);
    } else if (h->style->format.short_ids) {
        put_short_id(w, key, s, n);
    } else if (h->style->named_ids && call && strncmp(s, begin, strlen(begin)) != 0) {
        snprintf(text, sizeof text, "%s%.400s:%d", begin, function_name(call), index);
        json_put_text(w, key, text);
    } else {
        json_put_string(w, key, s, n);
    }
}

static bool same_text(const json_node *a, const json_node *b) {
    const char *s = NULL, *t = NULL;
    size_t n = 0, m = 0;
    return json_as_string(a, &s, &n) && json_as_string(b, &t, &m) && n == m && memcmp(s, t, n) == 0;
}

/* Returns the call that a tool's message answers; NULL: none of the last calls. */
static const json_node *answered_call(const history *h, const json_node *message, int *index) {
    const json_node *id = json_get(message, "tool_call_id");
    for (size_t i = 0; i < json_count(h->calls); i++) {
        *index = h->n_before + (int)i;
        if (same_text(json_get(json_at(h->calls, i), "id"), id)) return json_at(h->calls, i);
    }
    return NULL;
}

static void put_calls(json_writer *w, const history *h) {
    json_put_array(w, "tool_calls");
    for (size_t i = 0; i < json_count(h->calls); i++) {
        const json_node *call = json_at(h->calls, i), *function = json_get(call, "function");
        json_put_object(w, NULL);
        put_id(w, "id", h, json_get(call, "id"), call, h->n_before + (int)i);
        json_put_text(w, "type", "function");
        json_put_object(w, "function");
        bytes_json_put(w, "name", json_get(function, "name"));
        put_arguments(w, json_get(function, "arguments"), h->style->text_arguments);
        json_end_object(w);
        json_end_object(w);
    }
    json_end_array(w);
}

static pi_status check_calls(const json_node *message, size_t index, pi_error *err) {
    const json_node *calls = json_get(message, "tool_calls");
    if (field_kind(message, "tool_calls", JSON_ARRAY, err) != PI_OK)
        return error_set(err, PI_ERR_ARG, "messages[%zu]: tool_calls must be an array", index);
    for (size_t i = 0; i < json_count(calls); i++)
        if (!function_name(json_at(calls, i)))
            return error_set(err, PI_ERR_ARG, "messages[%zu]: tool_calls[%zu]: no function", index,
                             i);
    return PI_OK;
}

/* Turns a tool's result into a user message, for templates that do not support tools. */
static bool describe_result(bytes *text) {
    bytes whole = {0};
    bool good = bytes_append_text(&whole, "<tool_response>\n") &&
                bytes_append(&whole, text->data, text->used) &&
                bytes_append_text(&whole, "\n</tool_response>");
    bytes_free(text);
    *text = whole;
    return good;
}

static const char *const message_texts[] = {"name", "tool_call_id", "reasoning_content"};

/* Checks a message. An answer may lack content, because it may consist of calls; null is an empty
 * text. */
static pi_status check_message(const json_node *message, const char *role, size_t index,
                               pi_error *err) {
    bool answers = strcmp(role, "assistant") == 0 && json_count(json_get(message, "tool_calls"));
    pi_error own;
    if (!json_get(message, "content") && !answers)
        return error_set(err, PI_ERR_ARG, "messages[%zu]: content is missing", index);
    for (size_t i = 0; i < sizeof message_texts / sizeof *message_texts; i++)
        if (field_kind(message, message_texts[i], JSON_STRING, &own) != PI_OK)
            return error_set(err, PI_ERR_ARG, "messages[%zu]: %s", index, own.message);
    return PI_OK;
}

/* Writes the results that follow message `index`, which calls, as part of that message. Contents
 * that are JSON objects are written as objects. Returns the number of messages that were taken. */
static size_t put_responses(json_writer *w, const history *h, const json_node *messages,
                            size_t index, pi_status *status, pi_error *err) {
    const char *role = NULL;
    size_t n = 0, length = 0;
    json_put_array(w, "tool_responses");
    for (; *status == PI_OK; n++) {
        const json_node *message = json_at(messages, index + n + 1), *name;
        if (!json_as_string(json_get(message, "role"), &role, &length) || strcmp(role, "tool") != 0)
            break;
        bytes text = {0};
        json_doc *doc = NULL;
        int number = 0;
        *status = check_message(message, role, index + n + 1, err);
        if (*status == PI_OK) *status = take_content(message, index + n + 1, &text, err);
        name = json_get(json_get(answered_call(h, message, &number), "function"), "name");
        json_put_object(w, NULL);
        bytes_json_put(w, "name", name ? name : json_get(message, "name"));
        if (text.used && json_parse(text.data, text.used, "", &doc, NULL) == PI_OK &&
            json_kind_of(json_root(doc)) == JSON_OBJECT)
            bytes_json_put(w, "response", json_root(doc));
        else
            json_put_string(w, "response", text.used ? text.data : "", text.used);
        json_end_object(w);
        json_free(doc);
        bytes_free(&text);
    }
    json_end_array(w);
    return n;
}

/* Writes the message's members for the template, except calls and their results. */
static void put_members(json_writer *w, const history *h, const json_node *message,
                        const char *role, const bytes *text, bool calls) {
    int index = 0;
    json_put_text(w, "role", role);
    if (calls && text->used == 0 && h->style->null_content)
        json_put_text(w, "content", NULL);
    else
        json_put_string(w, "content", text->used ? text->data : "", text->used);
    for (size_t i = 0; i < sizeof message_texts / sizeof *message_texts; i++) {
        const json_node *value = json_get(message, message_texts[i]);
        if (json_kind_of(value) != JSON_STRING) continue;
        const json_node *call = i == 1 ? answered_call(h, message, &index) : NULL;
        if (i == 1)
            put_id(w, message_texts[i], h, value, call, index);
        else
            bytes_json_put(w, message_texts[i], value);
    }
}

/* *taken: number of further messages that became part of this one. */
static pi_status put_message(json_writer *w, const json_node *messages, size_t index, history *h,
                             const bytes *description, size_t *taken, pi_error *err) {
    const tool_style *style = h->style;
    const json_node *message = json_at(messages, index), *calls = json_get(message, "tool_calls");
    const char *role = NULL;
    bytes text = {0};
    pi_status status = field_text(message, "role", &role, err);
    if (json_kind_of(message) != JSON_OBJECT || status != PI_OK || !role || !*role)
        return error_set(err, PI_ERR_ARG, "messages[%zu]: an object with a role is needed", index);
    if (strcmp(role, "developer") == 0) role = "system";
    status = check_message(message, role, index, err);
    if (status == PI_OK) status = take_content(message, index, &text, err);
    if (status == PI_OK) status = check_calls(message, index, err);
    bool good = true;
    if (style->described && strcmp(role, "tool") == 0) {
        good = describe_result(&text);
        role = "user";
    }
    bool own = json_count(calls) && !style->described && !style->written;
    if (json_count(calls) && !own && status == PI_OK) good &= tool_style_write(style, calls, &text);
    if (description->used && index == 0 && strcmp(role, "system") == 0)
        good &= bytes_append_text(&text, "\n\n") &&
                bytes_append(&text, description->data, description->used);
    if (h->tag && index + 1 == json_count(messages)) good &= bytes_append_text(&text, h->tag);
    if (status == PI_OK && !good) status = error_nomem(err, text.used, "messages");
    if (status == PI_OK) {
        if (own) {
            h->calls = calls;
            h->n_before = h->n;
            h->n += (int)json_count(calls);
        }
        json_put_object(w, NULL);
        put_members(w, h, message, role, &text, own);
        if (own) put_calls(w, h);
        if (own && style->tool_responses)
            *taken = put_responses(w, h, messages, index, &status, err);
        json_end_object(w);
    }
    bytes_free(&text);
    return status;
}

/* Describes the tools in a system message, for a model whose template does not support tools. */
static bool write_description(const json_node *tools, bytes *out) {
    bool good = bytes_append_text(
        out, "You can call these functions, each described by a JSON object:\n<tools>\n");
    for (size_t i = 0; i < json_count(tools) && good; i++) {
        bytes_json j;
        good = bytes_json_begin(&j, out);
        if (!good) return false;
        bytes_json_put(&j.writer, NULL, json_get(json_at(tools, i), "function"));
        good = bytes_json_end(&j) && bytes_append_text(out, "\n");
    }
    return good && bytes_append_text(
                       out, "</tools>\nTo call one, write its name and arguments as JSON within "
                            "tags:\n<tool_call>\n{\"name\": NAME, \"arguments\": {...}}\n"
                            "</tool_call>");
}

static pi_status put_messages(json_writer *w, const json_node *body, const tool_style *style,
                              const bytes *description, const char *tag, pi_error *err) {
    history h = {.style = style, .tag = tag};
    const json_node *messages = json_get(body, "messages");
    const char *role = NULL;
    size_t n = 0;
    pi_status status = PI_OK;
    if (json_kind_of(messages) != JSON_ARRAY || json_count(messages) == 0)
        return error_set(err, PI_ERR_ARG, "messages: must be an array of at least one message");
    if (json_count(messages) > CHAT_MAX_MESSAGES)
        return error_set(err, PI_ERR_ARG, "messages: more than %d", CHAT_MAX_MESSAGES);
    json_put_array(w, "messages");
    json_as_string(json_get(json_at(messages, 0), "role"), &role, &n);
    bool has_system = role && (strcmp(role, "system") == 0 || strcmp(role, "developer") == 0);
    if (description->used && !has_system) {
        json_put_object(w, NULL);
        json_put_text(w, "role", "system");
        json_put_string(w, "content", description->data, description->used);
        json_end_object(w);
    }
    for (size_t i = 0, taken = 0; i < json_count(messages) && status == PI_OK; i += 1 + taken) {
        taken = 0;
        status = put_message(w, messages, i, &h, description, &taken, err);
    }
    json_end_array(w);
    return status;
}

bool chat_continues(const json_node *body) {
    const json_node *messages = json_get(body, "messages");
    const json_node *last = json_count(messages) ? json_at(messages, json_count(messages) - 1)
                                                 : NULL;
    const char *s = NULL;
    size_t n = 0;
    return json_as_string(json_get(last, "role"), &s, &n) && strcmp(s, "assistant") == 0 &&
           !json_count(json_get(last, "tool_calls")) && !json_get(body, "add_generation_prompt") &&
           (json_count(json_get(last, "content")) ||
            (json_as_string(json_get(last, "content"), &s, &n) && n));
}

/* Writes the tools; missing descriptions and parameters become empty ones. */
static void put_full_tools(json_writer *w, const json_node *list) {
    json_put_array(w, "tools");
    for (size_t i = 0; i < json_count(list); i++) {
        const json_node *function = json_get(json_at(list, i), "function"), *value = NULL;
        const json_node *parameters = json_get(function, "parameters");
        const json_node *properties = json_get(parameters, "properties");
        void *member = NULL;
        const char *key = NULL;
        json_put_object(w, NULL);
        json_put_text(w, "type", "function");
        json_put_object(w, "function");
        while (json_next(function, &member, &key, &value))
            if (strcmp(key, "parameters") != 0) bytes_json_put(w, key, value);
        if (!json_get(function, "description")) json_put_text(w, "description", "");
        json_put_object(w, "parameters");
        if (!json_get(parameters, "type")) json_put_text(w, "type", "object");
        for (member = NULL; json_next(parameters, &member, &key, &value);)
            if (strcmp(key, "properties") != 0) bytes_json_put(w, key, value);
        json_put_object(w, "properties");
        for (member = NULL; json_next(properties, &member, &key, &value);) {
            void *part = NULL;
            const char *name = NULL;
            const json_node *inner = NULL;
            json_put_object(w, key);
            while (json_next(value, &part, &name, &inner)) bytes_json_put(w, name, inner);
            if (!json_get(value, "description")) json_put_text(w, "description", "");
            json_end_object(w);
        }
        json_end_object(w);
        json_end_object(w);
        json_end_object(w);
        json_end_object(w);
    }
    json_end_array(w);
}

/* Writes the server's default variables that the request does not set. effort: the request's
 * reasoning_effort; NULL: none. */
static void put_defaults(json_writer *w, const json_node *defaults, const json_node *body,
                         const char *effort) {
    const json_node *own = json_get(body, "chat_template_kwargs"), *value = NULL;
    void *member = NULL;
    const char *key = NULL;
    bool none = effort && strcmp(effort, "none") == 0;
    while (json_next(defaults, &member, &key, &value)) {
        bool thinks = strcmp(key, "enable_thinking") == 0;
        if (json_get(own, key) || (thinks && (none || json_get(body, key))) ||
            (effort && strcmp(key, "reasoning_effort") == 0))
            continue;
        bytes_json_put(w, key, value);
    }
}

/* Writes the variables of the template; effort NULL: the request has no reasoning_effort. */
static void put_variables(json_writer *w, const json_node *defaults, const json_node *body,
                          const char *effort) {
    const json_node *own = json_get(body, "chat_template_kwargs"), *value = NULL;
    void *member = NULL;
    const char *key = NULL;
    bool none = effort && strcmp(effort, "none") == 0;
    bytes_json_copy(w, "documents", body, "documents");
    bytes_json_copy(w, "enable_thinking", body, "enable_thinking");
    if (none && !json_get(body, "enable_thinking")) json_put_bool(w, "enable_thinking", false);
    json_put_object(w, "chat_template_kwargs");
    put_defaults(w, defaults, body, effort);
    if (effort && !json_get(own, "reasoning_effort")) json_put_text(w, "reasoning_effort", effort);
    while (json_next(own, &member, &key, &value)) bytes_json_put(w, key, value);
    json_end_object(w);
}

pi_status chat_write_request(const json_node *body, const chat_tools *tools,
                             const tool_style *style, const json_node *defaults, const char *tag,
                             bytes *out, pi_error *err) {
    bytes description = {0};
    bytes_json j;
    bool generation = !tag, thinking = false;
    const char *effort = NULL;
    pi_status status = field_kind(body, "documents", JSON_ARRAY, err);
    if (status == PI_OK) status = field_kind(body, "chat_template_kwargs", JSON_OBJECT, err);
    if (status == PI_OK) status = field_bool(body, "enable_thinking", &thinking, err);
    if (status == PI_OK) status = field_bool(body, "add_generation_prompt", &generation, err);
    if (status == PI_OK) status = field_text(body, "reasoning_effort", &effort, err);
    if (status != PI_OK) return status;
    bool good = !tools->list || !style->described || write_description(tools->list, &description);
    if (!good || !bytes_json_begin(&j, out)) {
        bytes_free(&description);
        return error_nomem(err, out->used, "messages");
    }
    json_put_object(&j.writer, NULL);
    status = put_messages(&j.writer, body, style, &description, tag, err);
    if (tools->list && style->full_tools)
        put_full_tools(&j.writer, tools->list);
    else if (tools->list && !style->described)
        bytes_json_put(&j.writer, "tools", tools->list);
    json_put_bool(&j.writer, "add_generation_prompt", generation);
    put_variables(&j.writer, defaults, body, effort);
    json_end_object(&j.writer);
    if (!bytes_json_end(&j) && status == PI_OK) status = error_nomem(err, out->used, "messages");
    bytes_free(&description);
    return status;
}

void chat_explain(const json_node *body, pi_error *err) {
    const json_node *messages = json_get(body, "messages");
    for (size_t i = 0; i < json_count(messages); i++) {
        const json_node *calls = json_get(json_at(messages, i), "tool_calls");
        for (size_t k = 0; k < json_count(calls); k++) {
            const char *s = NULL;
            size_t n = 0;
            const json_node *function = json_get(json_at(calls, k), "function");
            if (!json_as_string(json_get(function, "arguments"), &s, &n)) continue;
            json_doc *doc = call_arguments_parse(s, n);
            json_free(doc);
            if (doc) continue;
            const pi_error why = *err;
            error_set(err, why.status,
                      "messages[%zu]: tool_calls[%zu]: arguments are not a JSON object, which "
                      "the chat template refuses: %s",
                      i, k, why.message);
            return;
        }
    }
}
