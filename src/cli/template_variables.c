/* template_variables.c: see template_variables.h. */
#include "template_variables.h"

#include <string.h>

#include "error.h"
#include "json_writer.h"
#include "mem.h"
#include "os_text.h"

static const char blanks[] = " \t\r\n";

/* Finds the members of an object, the text between its braces; *n: its bytes, 0: no members. */
static pi_status find_members(const char *json, const char **members, size_t *n, pi_error *err) {
    const char *begin = json + strspn(json, blanks);
    size_t length = strlen(begin);
    while (length > 0 && strchr(blanks, begin[length - 1])) length--;
    if (length < 2 || begin[0] != '{' || begin[length - 1] != '}')
        return error_set(
            err, PI_ERR_ARG,
            "invalid value: --chat-template-kwargs \"%.200s\": expected a JSON object, "
            "such as {\"enable_thinking\": false}",
            json);
    *members = begin + 1;
    *n = length - 2;
    if (strspn(*members, blanks) >= *n) *n = 0;
    return PI_OK;
}

/* Whether --chat-template-kwargs may have the member, which then takes precedence. */
static bool has_member(const cli_options *o, const char *key) {
    return o->chat_template_kwargs && strstr(o->chat_template_kwargs, key);
}

/* Writes an object with the variables of the other options. */
static bool write_own(const cli_options *o, FILE *f, bool *any) {
    const char *effort = o->reasoning_effort;
    if (effort && strcmp(effort, "default") == 0) effort = NULL;
    bool none = effort && strcmp(effort, "none") == 0;
    bool off = o->reasoning == REASONING_OFF || o->reasoning_budget == 0 || none;
    bool on = o->reasoning == REASONING_ON && !off;
    json_writer w;
    if (has_member(o, "\"enable_thinking\"")) on = off = false;
    if (none || has_member(o, "\"reasoning_effort\"")) effort = NULL;
    *any = off || on || effort;
    json_begin_compact(&w, f);
    json_put_object(&w, NULL);
    if (off || on) json_put_bool(&w, "enable_thinking", on);
    if (effort) json_put_text(&w, "reasoning_effort", effort);
    json_end_object(&w);
    return !ferror(f);
}

pi_status template_variables_create(const cli_options *o, char **out, pi_error *err) {
    const char *members = "";
    size_t n = 0;
    bool any = false;
    *out = NULL;
    pi_status status = PI_OK;
    if (o->chat_template_kwargs) status = find_members(o->chat_template_kwargs, &members, &n, err);
    if (status != PI_OK) return status;
    os_text own;
    bool opened = os_text_open(&own);
    bool good = opened && write_own(o, own.file, &any);
    good = opened && os_text_close(&own) && good;
    if (good && (any || n > 0)) {
        size_t n_own = own.n, room = n_own + n + 8;
        *out = mem_calloc(room, 1);
        good = *out != NULL;
        while (n_own > 0 && own.text[n_own - 1] != '}') n_own--;
        if (good && n_own > 0)
            snprintf(*out, room, "%.*s%s%.*s}", (int)n_own - 1, own.text, any && n > 0 ? ", " : "",
                     (int)n, members);
    }
    mem_free(own.text);
    return good ? PI_OK : error_nomem(err, own.n + n, "template variables");
}
