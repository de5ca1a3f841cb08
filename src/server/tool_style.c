/* tool_style.c: reading the form of tool calls off a template.
 *
 * Two conversations are rendered: a question, as it stands before the model answers, and the same
 * with an answer that calls PROBE_NAME with PROBE_KEY = PROBE_VALUE. What the second has behind the
 * first is what the model would have written. In it the JSON value with the arguments is found. If
 * the name is within that value, it is an object (or an array of them) with a key for each, else
 * the name stands before it. */
#include "tool_style.h"

#include <string.h>

#include "error.h"

#define PROBE_NAME  "probe_name"
#define PROBE_KEY   "probe_key"
#define PROBE_VALUE "probe_value"

static const char question[] =
    "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}],"
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"" PROBE_NAME
    "\",\"description\":\"d\",\"parameters\":{\"type\":\"object\",\"properties\":{\"" PROBE_KEY
    "\":{\"type\":\"string\"}},\"required\":[\"" PROBE_KEY "\"]}}}],"
    "\"add_generation_prompt\":true}";
static const char answer[] =
    "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":\"\","
    "\"tool_calls\":[{\"id\":\"call00001\",\"type\":\"function\",\"function\":{\"name\":"
    "\"" PROBE_NAME "\",\"arguments\":{\"" PROBE_KEY "\":\"" PROBE_VALUE "\"}}}]}],"
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"" PROBE_NAME
    "\",\"description\":\"d\",\"parameters\":{\"type\":\"object\",\"properties\":{\"" PROBE_KEY
    "\":{\"type\":\"string\"}},\"required\":[\"" PROBE_KEY "\"]}}}]}";

/* Copies s[n] with a NUL. */
static bool keep(bytes *b, const char *s, size_t n) {
    return bytes_append(b, s, n) && bytes_append(b, "", 1);
}

static const char *after(const char *s, const char *word) {
    const char *hit = strstr(s, word);
    return hit ? hit + strlen(word) : NULL;
}

/* The key before the value that begins at `at` in JSON: "key": value */
static bool key_before(const char *begin, const char *at, bytes *out) {
    const char *end = at;
    while (end > begin && end[-1] != ':') end--;
    while (end > begin && end[-1] != '"') end--;
    if (end <= begin + 1) return false;
    const char *start = end - 1;
    while (start > begin && start[-1] != '"') start--;
    return start > begin && keep(out, start, (size_t)(end - 1 - start));
}

static size_t trimmed(const char *s, size_t n) {
    while (n > 0 && strchr(" \n\t\r", s[n - 1])) n--;
    return n;
}

/* text: what the model would have written, NUL-terminated; empty parts of it are allowed. */
static bool read_form(tool_style *t, const char *text) {
    const char *name = strstr(text, PROBE_NAME), *key = strstr(text, "\"" PROBE_KEY "\"");
    if (!name || !key) return false;
    const char *args = key;
    while (args > text && *args != '{') args--;
    if (*args != '{') return false;
    const char *close = after(key, "}");
    const char *json = strpbrk(text, "{[");
    while (json && *json == '[' && json[1] != '{') json = strpbrk(json + 1, "{["); /* a mark */
    if (!json || !close) return false;
    size_t n_open;
    if (json < name) { /* the name is within */
        const char *quote = name - 1;
        if (*quote != '"' || name > args) return false;
        t->format.list = *json == '[';
        n_open = trimmed(text, (size_t)(json - text));
        close = after(close, "}");
        if (close && t->format.list) close = after(close, "]");
        if (!close || !key_before(json, quote, &t->name_key) ||
            !key_before(json, args, &t->args_key))
            return false;
    } else {
        n_open = (size_t)(name - text);
        const char *end = name + strlen(PROBE_NAME);
        size_t n_end = trimmed(end, (size_t)(args - end));
        if (!keep(&t->name_end, end, n_end ? n_end : (size_t)(args - end)) || !*t->name_end.data)
            return false;
    }
    /* What follows the call up to the end of the turn: a mark, or nothing. */
    close += strspn(close, " \n");
    size_t n_close = *close == '<' || *close == '[' ? strcspn(close, ">]") + 1 : 0;
    if (n_close > strlen(close)) n_close = 0;
    return keep(&t->open, text, n_open) && keep(&t->close, close, n_close);
}

static void set_format(tool_style *t) {
    t->format.open = t->open.data;
    t->format.close = t->close.data;
    t->format.name_key = t->name_key.data;
    t->format.args_key = t->args_key.data;
    t->format.name_end = t->name_end.data;
}

static pi_status describe(tool_style *t, pi_error *err) {
    tool_style_free(t);
    t->described = true;
    if (!keep(&t->open, "<tool_call>", 11) || !keep(&t->close, "</tool_call>", 12) ||
        !keep(&t->name_key, "name", 4) || !keep(&t->args_key, "arguments", 9))
        return error_nomem(err, 64, "tools");
    set_format(t);
    return PI_OK;
}

/* Where in `with` the model's own words begin. Marks are not cut where prompt and answer begin
 * alike
 * ("<think>", "<tool_call>"), and reasoning is none of the call, not even an empty one that the
 * template writes. Both end with a NUL. */
static size_t answer_start(const char *before, const char *with) {
    size_t n = 0, reasoning = message_open_reasoning_at(before, strlen(before));
    while (before[n] && before[n] == with[n]) n++;
    while (before[n] && n > 0 && !strchr(" \n\t>]", with[n - 1])) n--;
    if (n > reasoning) n = reasoning;
    return n + message_reasoning_extent(with + n, strlen(with + n));
}

pi_status tool_style_find(tool_style *t, const prompt_maker *p, pi_error *err) {
    bytes before = {0}, with = {0};
    *t = (tool_style){.described = false};
    if (!p->chat) return PI_OK;
    pi_status status = prompt_render(p, question, sizeof question - 1, &before, NULL);
    if (status == PI_OK) status = prompt_render(p, answer, sizeof answer - 1, &with, NULL);
    if (status == PI_OK && (!bytes_append(&with, "", 1) || !bytes_append(&before, "", 1)))
        status = PI_ERR_NOMEM;
    if (status == PI_OK && strstr(before.data, PROBE_NAME) &&
        read_form(t, with.data + answer_start(before.data, with.data))) {
        set_format(t);
    } else {
        status = describe(t, err);
    }
    bytes_free(&before);
    bytes_free(&with);
    return status;
}

void tool_style_free(tool_style *t) {
    bytes_free(&t->open);
    bytes_free(&t->close);
    bytes_free(&t->name_end);
    bytes_free(&t->name_key);
    bytes_free(&t->args_key);
    *t = (tool_style){.described = false};
}
