/* chat_history.c: messages in memory and in files. The program has no general JSON parser: it reads
 * the form of files that it writes, objects of strings, one per line. */
#include "chat_history.h"

#include <stdlib.h>
#include <string.h>

#include "file.h"
#include "json_writer.h"
#include "mem.h"
#include "os_text.h"

enum { MESSAGES_MAX = 1 << 20 };

static const char *const roles[] = {"system", "user", "assistant"};
enum { N_ROLES = sizeof roles / sizeof *roles };

static void message_free(chat_message *m) {
    text_free(&m->content);
    text_free(&m->reasoning);
}

void chat_history_free(chat_history *t) {
    chat_history_cut(t, 0);
    mem_free(t->messages);
    *t = (chat_history){.n = 0};
}

void chat_history_cut(chat_history *t, size_t n) {
    while (t->n > n) message_free(&t->messages[--t->n]);
}

static pi_status copy_text(text_buffer *to, const text_buffer *from, pi_error *err) {
    return text_append(to, from ? from->data : NULL, from ? from->used : 0, err);
}

pi_status chat_history_add(chat_history *t, const char *role, const text_buffer *content,
                           const text_buffer *reasoning, pi_error *err) {
    chat_message m = {.role = role};
    if (!mem_grow((void **)&t->messages, &t->capacity, t->n + 1, sizeof *t->messages, MESSAGES_MAX))
        return error_nomem(err, sizeof *t->messages, "conversation");
    pi_status status = copy_text(&m.content, content, err);
    if (status == PI_OK) status = copy_text(&m.reasoning, reasoning, err);
    if (status == PI_OK)
        t->messages[t->n++] = m;
    else
        message_free(&m);
    return status;
}

size_t chat_history_first(const chat_history *t) {
    return t->n > 0 && strcmp(t->messages[0].role, "system") == 0;
}

chat_message *chat_history_last(chat_history *t, const char *role) {
    for (size_t i = t->n; i-- > 0;) {
        if (strcmp(t->messages[i].role, role) == 0) return &t->messages[i];
    }
    return NULL;
}

pi_status chat_history_system(chat_history *t, const char *text, size_t n, pi_error *err) {
    text_buffer content = {.data = NULL};
    bool old = chat_history_first(t) > 0;
    pi_status status = text_append(&content, text, n, err);
    if (status == PI_OK && n) status = chat_history_add(t, "system", &content, NULL, err);
    text_free(&content);
    if (status != PI_OK) return status;
    if (old) {
        message_free(&t->messages[0]);
        memmove(t->messages, t->messages + 1, --t->n * sizeof *t->messages);
    }
    if (n) { /* moves the message from the end to the beginning */
        chat_message m = t->messages[t->n - 1];
        memmove(t->messages + 1, t->messages, (t->n - 1) * sizeof m);
        t->messages[0] = m;
    }
    return PI_OK;
}

/* ---- writing --------------------------------------------------------------------------------- */

static void put_message(json_writer *w, const chat_message *m, const char *reasoning) {
    json_put_object(w, NULL);
    json_put_text(w, "role", m->role);
    json_put_string(w, "content", m->content.data, m->content.used);
    if (m->reasoning.used) json_put_string(w, reasoning, m->reasoning.data, m->reasoning.used);
    json_end_object(w);
}

pi_status chat_history_request(const chat_history *t, const char *variables, char **json, size_t *n,
                               pi_error *err) {
    os_text request;
    json_writer w;
    *json = NULL;
    if (!os_text_open(&request)) return error_nomem(err, 0, "request");
    json_begin_compact(&w, request.file);
    json_put_object(&w, NULL);
    json_put_array(&w, "messages");
    for (size_t i = 0; i < t->n; i++) put_message(&w, &t->messages[i], "reasoning_content");
    json_end_array(&w);
    json_put_bool(&w, "add_generation_prompt", true);
    json_end_object(&w);
    bool good = os_text_close(&request);
    const char *text = request.text;
    size_t n_text = request.n, n_variables = variables ? strlen(variables) : 0,
           room = n_text + n_variables + 64;
    if (good) *json = mem_calloc(room, 1);
    while (n_text > 0 && text[n_text - 1] != '}') n_text--;
    if (*json && n_text > 0)
        *n = (size_t)snprintf(*json, room, "%.*s%s%s}", (int)n_text - 1, text,
                              variables ? ", \"chat_template_kwargs\": " : "",
                              variables ? variables : "");
    mem_free(request.text);
    return *json ? PI_OK : error_nomem(err, n_text, "request");
}

pi_status chat_history_save(const chat_history *t, const char *path, pi_error *err) {
    os_text lines;
    if (!os_text_open(&lines)) return error_nomem(err, 0, "conversation");
    for (size_t i = 0; i < t->n; i++) {
        json_writer w;
        json_begin_compact(&w, lines.file);
        put_message(&w, &t->messages[i], "reasoning");
        fputc('\n', lines.file);
    }
    bool good = os_text_close(&lines);
    file_writer *out = NULL;
    pi_status status = good ? file_writer_open(path, &out, err)
                            : error_nomem(err, lines.n, "conversation");
    if (status == PI_OK) {
        status = file_writer_write(out, lines.text, lines.n, err);
        if (status == PI_OK)
            status = file_writer_commit(out, err);
        else
            file_writer_abort(out);
    }
    mem_free(lines.text);
    return status;
}

/* ---- reading --------------------------------------------------------------------------------- */

typedef struct reader {
    const char *at, *end;
    int line;
} reader;

static void skip_blanks(reader *r) {
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\r')) r->at++;
}

static bool take(reader *r, char c) {
    skip_blanks(r);
    if (r->at >= r->end || *r->at != c) return false;
    r->at++;
    return true;
}

static bool take_hex(reader *r, uint32_t *out) {
    char digits[5] = "", *end;
    if (r->end - r->at < 4) return false;
    memcpy(digits, r->at, 4);
    r->at += 4;
    *out = (uint32_t)strtoul(digits, &end, 16);
    return end == digits + 4 && digits[0] != '+' && digits[0] != '-' && digits[0] != ' ';
}

/* Reads the escape after a backslash. */
static bool take_escape(reader *r, char *out, size_t *n) {
    static const char names[] = "\"\\/bfnrt", codes[] = "\"\\/\b\f\n\r\t";
    uint32_t code, low;
    char c = r->at < r->end ? *r->at++ : '\0';
    const char *name = c ? strchr(names, c) : NULL;
    *n = 1;
    if (name) out[0] = codes[name - names];
    if (name || c != 'u') return name != NULL;
    if (!take_hex(r, &code)) return false;
    if (code >= 0xd800 && code <= 0xdbff) { /* a high surrogate: the low one follows */
        bool pair = r->end - r->at >= 6 && r->at[0] == '\\' && r->at[1] == 'u';
        r->at += 2;
        if (!pair || !take_hex(r, &low) || low < 0xdc00 || low > 0xdfff) return false;
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    } else if (code >= 0xdc00 && code <= 0xdfff) {
        return false;
    }
    *n = text_put_utf8(code, out);
    return true;
}

static bool take_string(reader *r, text_buffer *out, pi_error *err) {
    text_free(out);
    if (!take(r, '"')) return false;
    if (text_append(out, NULL, 0, err) != PI_OK) return false;
    while (r->at < r->end && *r->at != '"' && *r->at != '\n') {
        char text[4] = {*r->at++};
        size_t n = 1;
        if (text[0] == '\\' && !take_escape(r, text, &n)) return false;
        if (text_append(out, text, n, err) != PI_OK) return false;
    }
    return take(r, '"');
}

/* Reads one message; false: malformed, or out of memory (see err). */
static bool take_message(reader *r, chat_history *t, pi_error *err) {
    text_buffer key = {.data = NULL}, role = {.data = NULL}, content = {.data = NULL},
                reasoning = {.data = NULL}, other = {.data = NULL};
    bool good = take(r, '{');
    do {
        good = good && take_string(r, &key, err) && take(r, ':');
        const char *name = good ? key.data : "";
        text_buffer *value = strcmp(name, "role") == 0        ? &role
                             : strcmp(name, "content") == 0   ? &content
                             : strcmp(name, "reasoning") == 0 ? &reasoning
                                                              : &other;
        good = good && take_string(r, value, err);
    } while (good && take(r, ','));
    good = good && take(r, '}') && role.data && content.data;
    const char *known = NULL;
    for (size_t i = 0; i < N_ROLES && good; i++) {
        if (strcmp(roles[i], role.data) == 0) known = roles[i];
    }
    good = good && known && chat_history_add(t, known, &content, &reasoning, err) == PI_OK;
    text_free(&key);
    text_free(&role);
    text_free(&content);
    text_free(&reasoning);
    text_free(&other);
    return good;
}

pi_status chat_history_load(chat_history *t, const char *path, pi_error *err) {
    char *text = NULL;
    size_t n = 0;
    chat_history loaded = {.n = 0};
    pi_error why = {.status = PI_OK};
    pi_status status = file_read_stream(path, CLI_TEXT_MAX, &text, &n, err);
    if (status != PI_OK) return status;
    reader r = {.at = text, .end = text + n, .line = 1};
    while (status == PI_OK) {
        skip_blanks(&r);
        if (r.at >= r.end) break;
        if (*r.at == '\n') {
            r.at++;
            r.line++;
        } else if (!take_message(&r, &loaded, &why)) {
            status = why.status ? error_set(err, why.status, "%s", why.message)
                                : error_set(err, PI_ERR_FORMAT,
                                            "not a message of a saved conversation: %.400s, line "
                                            "%d",
                                            path, r.line);
        }
    }
    mem_free(text);
    if (status != PI_OK) {
        chat_history_free(&loaded);
        return status;
    }
    chat_history_free(t);
    *t = loaded;
    return PI_OK;
}
