/* message.c: splits a model's text into reasoning, content and calls.
 *
 * Bytes are held back while they may be a prefix of a marker, and within a call until its JSON is
 * complete. Text that proves not to be a call becomes content. */
#include "message.h"

#include <inttypes.h>
#include <string.h>

#include "os_text.h"
#include "rng.h"

static const struct reasoning_mark marks[] = {
    {"<think>", "</think>", ""},
    {"<thought>", "</thought>", ""},
    {"[THINK]", "[/THINK]", ""},
    {"<seed:think>", "</seed:think>", ""},
    {"<mm:think>", "</mm:think>", ""},
    {"<|START_THINKING|>", "<|END_THINKING|>", ""},
    {"<|channel>thought", "<channel|>", ""},
    {"<|channel|>analysis<|message|>", "<|end|>", "<|start|>assistant<|channel|>final<|message|>"},
};
enum { N_MARKS = sizeof marks / sizeof marks[0], HARMONY = N_MARKS - 1 };

/* After this prompt an answer consists of several messages: header, text, end, next header. A
 * header names the recipient of its message; a call begins within its header. */
static const char headers_after[] = "<|start|>assistant", header_end[] = "<|message|>";
static const char *const header_marks[] = {"<|end|>", "<|start|>", "<|channel|>"};
static const char constrain[] = "<|constrain|>"; /* type of the arguments, within a header */
enum { N_HEADER_MARKS = 3, MAX_HEADER = 256 };

static size_t spaces(const char *s, size_t n) {
    size_t i = 0;
    while (i < n && bytes_is_space(s[i])) i++;
    return i;
}

size_t message_beginning_at_end(const char *s, size_t n, const char *word) {
    size_t m = strlen(word);
    if (m == 0) return 0;
    for (size_t k = m - 1 < n ? m - 1 : n; k > 0; k--)
        if (memcmp(s + n - k, word, k) == 0) return k;
    return 0;
}

static const char *find(const char *s, size_t n, const char *word) {
    size_t m = strlen(word);
    return m && n >= m ? os_find(s, n, word, m) : NULL;
}

static bool is_part(const char *mark, const char *text) {
    return mark && strstr(mark, text) != NULL;
}

bool message_is_mark(const call_format *format, const char *text) {
    const call_pairs *p = format->pairs;
    bool is = is_part(headers_after, text) || is_part(header_end, text) ||
              is_part(constrain, text) || is_part(format->open, text) ||
              is_part(format->close, text);
    for (int i = 0; i < N_HEADER_MARKS; i++) is |= is_part(header_marks[i], text);
    for (int i = 0; i < N_MARKS; i++)
        is |= is_part(marks[i].begin, text) || is_part(marks[i].end, text) ||
              is_part(marks[i].after, text);
    if (!p) return is;
    const char *const texts[] = {p->open,         p->begin,      p->name_end[0], p->name_end[1],
                                 p->key_begin,    p->key_end[0], p->key_end[1],  p->value_end,
                                 p->close,        p->again,      p->end,         p->id_begin,
                                 p->literal.quote};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) is |= is_part(texts[i], text);
    return is;
}

static void drop(model_text *m, size_t n) {
    bytes_remove_front(&m->held, n);
    m->scan = (call_scan){.at = 0};
}

static void move(model_text *m, bytes *to, size_t n) {
    if (!bytes_append(to, m->held.data, n)) m->failed = true;
    drop(m, n);
}

/* ---- calls ----------------------------------------------------------------------------------- */

void message_id_letters(char *id, int n, uint64_t bits) {
    static const char letters[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    for (int i = 0; i < n; i++, bits /= sizeof letters - 1)
        id[i] = letters[bits % (sizeof letters - 1)];
}

static void make_id(char id[128], bool is_short) {
    if (is_short) {
        message_id_letters(id, MESSAGE_SHORT_ID, rng_entropy());
        id[MESSAGE_SHORT_ID] = 0;
        return;
    }
    memcpy(id, "call_", 5);
    for (int i = 5; i < 29; i += 8) message_id_letters(id + i, 8, rng_entropy());
    id[29] = 0;
}

static bool put_arguments(bytes *out, const json_node *node) {
    const char *text = NULL;
    size_t n = 0;
    bytes_json j;
    if (json_as_string(node, &text, &n)) return bytes_append(out, text, n);
    if (json_kind_of(node) != JSON_OBJECT) return bytes_append_text(out, "{}");
    if (!bytes_json_begin(&j, out)) return false;
    bytes_json_put(&j.writer, NULL, node);
    return bytes_json_end(&j);
}

static tool_call *new_call(model_text *m) {
    tool_call *call = &m->calls[m->n_calls++];
    *call = (tool_call){.id = ""};
    make_id(call->id, m->format->short_ids);
    return call;
}

static bool add_call(model_text *m, const char *name, size_t n_name, const json_node *arguments) {
    if (n_name == 0 || m->n_calls == MESSAGE_MAX_CALLS) return false;
    tool_call *call = new_call(m);
    if (!bytes_append(&call->name, name, n_name) || !put_arguments(&call->arguments, arguments))
        m->failed = true;
    return true;
}

static bool add_object(model_text *m, const json_node *object) {
    const char *name = NULL;
    size_t n = 0;
    void *member = NULL;
    const json_node *arguments = NULL;
    if (*m->format->name_key) {
        if (!json_as_string(json_get(object, m->format->name_key), &name, &n)) return false;
        return add_call(m, name, n, json_get(object, m->format->args_key));
    }
    if (json_count(object) != 1 || !json_next(object, &member, &name, &arguments)) return false;
    return add_call(m, name, strlen(name), arguments);
}

/* Reads the JSON of a call, json[n]. */
static bool read_call(model_text *m, const char *json, size_t n) {
    json_doc *doc = NULL;
    bool good = false;
    if (json_parse(json, n, "call", &doc, NULL) != PI_OK) return false;
    const json_node *root = json_root(doc);
    if (json_kind_of(root) == JSON_OBJECT) good = add_object(m, root);
    for (size_t i = 0; json_kind_of(root) == JSON_ARRAY && i < json_count(root); i++)
        good |= add_object(m, json_at(root, i));
    json_free(doc);
    return good;
}

/* Whether more text may complete the closing mark after s[n]. */
static bool closes_later(const char *close, const char *s, size_t n) {
    size_t gap = spaces(s, n), n_close = strlen(close);
    return n - gap < n_close && memcmp(s + gap, close, n - gap) == 0;
}

/* After a call: takes the mark that ends all calls, if it follows. True: decided. */
static bool step_end(model_text *m, bool last) {
    size_t used = 0;
    call_outcome outcome = call_pairs_mark(m->format->pairs->end, m->held.data, m->held.used,
                                           &used);
    if (outcome == CALL_READ) drop(m, used);
    if (outcome == CALL_MORE && last) drop(m, m->held.used);
    if (outcome == CALL_MORE && !last) return false;
    m->within = false;
    m->phase = MESSAGE_CONTENT;
    return true;
}

/* `held` begins with the opening mark, or follows a call (m->within). */
static bool step_pairs(model_text *m, bool last) {
    const call_pairs *p = m->format->pairs;
    call_found found = {.used = 0};
    const size_t n_open = strlen(m->format->open);
    const call_end end = !last ? CALL_GOES_ON : m->cut ? CALL_CUT : CALL_ENDS;
    call_outcome outcome = CALL_NONE;
    if (m->n_calls < MESSAGE_MAX_CALLS)
        outcome = call_pairs_read(p, &m->scan, m->held.data, m->held.used, m->within, end, m->tools,
                                  &found);
    if (found.failed) m->failed = true;
    if (outcome == CALL_MORE && last && (n_open || m->within)) drop(m, m->held.used);
    if (outcome == CALL_MORE && !last) return false;
    if (outcome != CALL_READ && m->within) return step_end(m, last);
    if (outcome != CALL_READ) {
        m->phase = MESSAGE_CONTENT;
        const size_t bracket = spaces(m->held.data, m->held.used) + 1; /* begins a whole text */
        if (m->held.used) move(m, &m->content, n_open ? n_open : bracket);
        return true;
    }
    tool_call *call = new_call(m);
    call->name = found.name;
    call->arguments = found.arguments;
    if (*found.id) memcpy(call->id, found.id, sizeof call->id);
    drop(m, found.used);
    m->within = *p->again;
    if (!m->within) m->phase = MESSAGE_CONTENT;
    return true;
}

/* Returns the value of a key that was written in s[n]; NULL: not yet written. */
static const char *value_of(const char *s, size_t n, const char *key) {
    size_t n_key = strlen(key);
    const char *end = s + n, *at = s;
    while ((at = find(at, (size_t)(end - at), key))) {
        bool quoted = at > s && at[-1] == '"';
        at += n_key;
        if (!quoted || at == end || *at != '"') continue;
        const char *value = at + 1 + spaces(at + 1, (size_t)(end - at - 1));
        if (value == end || *value++ != ':') continue;
        value += spaces(value, (size_t)(end - value));
        if (value < end) return value;
    }
    return NULL;
}

/* Reads the complete parts of a call from s[n], the beginning of an object. False: not even the
 * name is complete. */
static bool add_beginning(model_text *m, const char *s, size_t n) {
    const char *end = s + n, *args = value_of(s, n, m->format->args_key);
    const char *name = value_of(s, args ? (size_t)(args - s) : n, m->format->name_key);
    if (!*m->format->name_key) { /* the object begins {"NAME": ARGUMENTS */
        name = n > 1 ? s + 1 + spaces(s + 1, n - 1) : end;
        name = name < end ? name : NULL;
        const char *colon = name ? find(name + 1, (size_t)(end - name - 1), "\"") : NULL;
        if (colon) colon += 1 + spaces(colon + 1, (size_t)(end - colon - 1));
        args = colon && colon < end ? colon + 1 + spaces(colon + 1, (size_t)(end - colon - 1))
                                    : NULL;
        if (args == end) args = NULL;
    }
    if (!name || *name != '"' || (!args && !*m->format->open)) return false;
    const char *name_end = memchr(name + 1, '"', (size_t)(end - name - 1));
    if (!name_end || !add_call(m, name + 1, (size_t)(name_end - name - 1), NULL)) return false;
    bytes *arguments = &m->calls[m->n_calls - 1].arguments;
    arguments->used = 0;
    if (args && *args == '{' && !bytes_append(arguments, args, (size_t)(end - args)))
        m->failed = true;
    return true;
}

/* Begins a call whose name is complete and whose arguments begin, in json[n]. */
static void begin_growth(model_text *m, const char *json, size_t n) {
    const call_format *f = m->format;
    if (f->list || !*f->open || !*f->name_key || m->n_calls == MESSAGE_MAX_CALLS) return;
    const char *args = value_of(json, n, f->args_key);
    const char *name = args ? value_of(json, (size_t)(args - json), f->name_key) : NULL;
    if (!name || *args != '{' || *name++ != '"') return;
    const char *end = memchr(name, '"', (size_t)(args - name));
    if (!end || end == name || memchr(name, '\\', (size_t)(end - name))) return;
    tool_call *call = new_call(m);
    if (!bytes_append(&call->name, name, (size_t)(end - name))) m->failed = true;
    memset(&m->growth, 0, sizeof m->growth);
    m->growth.at = (size_t)(args - json);
    m->growing = true;
}

/* Adds the new part of json[n] to the arguments of the call, without blanks between values. */
static void grow(model_text *m, const char *json, size_t n) {
    bytes *out = &m->calls[m->n_calls - 1].arguments;
    for (; m->growth.at < n && !m->growth.complete; m->growth.at++) {
        const char *c = json + m->growth.at;
        const bool quoted = m->growth.quoted, escaped = m->growth.escaped;
        m->growth.escaped = quoted && !escaped && *c == '\\';
        if (*c == '"' && !escaped) m->growth.quoted = !quoted;
        if (!quoted && (*c == '{' || *c == '[')) m->growth.depth++;
        if (!quoted && (*c == '}' || *c == ']')) m->growth.complete = --m->growth.depth == 0;
        if ((quoted || !bytes_is_space(*c)) && !bytes_append(out, c, 1)) m->failed = true;
    }
}

/* Reads the calls of truncated JSON in s[n]. False: there is no call. */
static bool add_cut(model_text *m, const char *s, size_t n) {
    size_t at = n > 0 && *s == '[', extent = 0;
    bool any = false;
    for (; at < n; at += extent) {
        while (at < n && (bytes_is_space(s[at]) || s[at] == ',')) at++;
        extent = call_scan_extent(&(call_scan){.at = 0}, NULL, s + at, n - at);
        if (extent == 0) return add_beginning(m, s + at, n - at) || any;
        any |= read_call(m, s + at, extent);
    }
    return any;
}

/* After the JSON of a call, at: does a further call follow, or the closing mark? */
static bool step_behind(model_text *m, size_t at, bool last) {
    const call_format *f = m->format;
    size_t n = m->held.used, n_close = strlen(f->close), gap = spaces(m->held.data + at, n - at);
    const char *s = m->held.data + at + gap;
    bool inside = n_close && !f->list && *f->open;
    if (n - at - gap >= n_close && memcmp(s, f->close, n_close) == 0) {
        if (n_close) at += gap + n_close;
        inside = false;
    } else if (last && closes_later(f->close, m->held.data + at, n - at)) {
        drop(m, n); /* a prefix of the mark */
        m->phase = MESSAGE_CONTENT;
        m->within = false;
        return true;
    }
    m->within = inside && (at + gap < n ? *s == '{' : !last);
    drop(m, at);
    if (!m->within) m->phase = MESSAGE_CONTENT;
    return true;
}

/* `held` begins with the opening mark, or follows a call (m->within). True: something was decided;
 * call again. */
static bool step_call(model_text *m, bool last) {
    const call_format *f = m->format;
    if (f->pairs) return step_pairs(m, last);
    const char *s = m->held.data;
    size_t n = m->held.used, n_open = m->within ? 0 : strlen(f->open), at = n_open;
    if (at < n) at += spaces(s + at, n - at);
    if (m->within && (at == n || s[at] != '{')) {
        if (!last && (at == n || closes_later(f->close, s, n))) return false;
        return step_behind(m, 0, last);
    }
    size_t extent = at < n ? call_scan_extent(&m->scan, NULL, s + at, n - at) : 0;
    if (m->grows_calls && !m->growing && extent == 0) begin_growth(m, s + at, n - at);
    if (m->growing) grow(m, s + at, extent ? extent : n - at);
    if (extent && !last && closes_later(f->close, s + at + extent, n - at - extent)) return false;
    bool wrong = at < n && s[at] != '{' && s[at] != '[';
    if (extent == 0 && !wrong && !last) return false;
    if (m->growing) {
        m->growing = false;
        if (extent > 0) return step_behind(m, at + extent, last);
        drop(m, n); /* truncated */
        return false;
    }
    /* A call without a name is dropped. */
    if (extent == 0 && !wrong && m->cut && (add_cut(m, s + at, n - at) || *f->open)) {
        drop(m, n);
        return false;
    }
    if (extent == 0 || !read_call(m, s + at, extent)) {
        size_t n_text = m->within ? at + (extent ? extent : 1) : n_open ? n_open : at + (at < n);
        m->phase = MESSAGE_CONTENT; /* not a call: the mark is content */
        m->within = false;
        move(m, &m->content, n_text);
        return true;
    }
    return step_behind(m, at + extent, last);
}

/* ---- reasoning and content ------------------------------------------------------------------- */

const struct reasoning_mark *message_mark_at(const char *text, size_t n, size_t *used, bool *more) {
    const size_t n_space = spaces(text, n);
    *more = false;
    for (int i = 0; i < N_MARKS; i++) {
        const size_t n_mark = strlen(marks[i].begin), n_text = n - n_space;
        if (memcmp(text + n_space, marks[i].begin, n_text < n_mark ? n_text : n_mark) != 0)
            continue;
        *used = n_space + n_mark;
        *more = n_text < n_mark;
        return *more ? NULL : &marks[i];
    }
    return NULL;
}

/* At the start of the text: is this reasoning? False: not yet known. */
static bool step_start(model_text *m, bool last) {
    size_t used = 0;
    bool more = false;
    if (m->splits_reasoning) m->mark = message_mark_at(m->held.data, m->held.used, &used, &more);
    if (more && !last) return false;
    m->phase = m->mark ? MESSAGE_REASONING : MESSAGE_CONTENT;
    drop(m, m->mark ? used : 0);
    return true;
}

static bool step_reasoning(model_text *m, bool last) {
    if (m->reasoning.used == 0) drop(m, spaces(m->held.data, m->held.used));
    if (m->held.used == 0) return false;
    const char *s = m->held.data, *end = find(s, m->held.used, m->mark->end);
    if (!end) {
        size_t back = last ? 0 : message_beginning_at_end(s, m->held.used, m->mark->end);
        size_t n = m->held.used - back;
        while (!last && n > 0 && bytes_is_space(s[n - 1])) n--; /* trailing blanks are held back */
        move(m, &m->reasoning, n);
        return false;
    }
    const char *after = m->mark->after;
    size_t n_end = (size_t)(end - s) + strlen(m->mark->end), n_after = strlen(after);
    size_t rest = m->held.used - n_end, gap = spaces(s + n_end, rest);
    if (gap == rest && !last) return false; /* how much to drop depends on the text that follows */
    if (rest - gap < n_after && memcmp(s + n_end + gap, after, rest - gap) == 0 && !last)
        return false;
    size_t n = (size_t)(end - s);
    while (n > 0 && bytes_is_space(s[n - 1])) n--;
    if (rest - gap >= n_after && memcmp(s + n_end + gap, after, n_after) == 0) gap += n_after;
    move(m, &m->reasoning, n);
    drop(m, n_end + gap - n);
    m->phase = MESSAGE_CONTENT;
    return true;
}

/* `held` begins with a header or with a prefix of one. */
static bool step_header(model_text *m, bool last) {
    const char *s = m->held.data, *open = m->format ? m->format->open : "";
    const size_t most = MAX_HEADER + strlen(header_end);
    const size_t n = m->held.used < most ? m->held.used : most;
    const char *end = find(s, n, header_end), *call = find(s, end ? (size_t)(end - s) : n, open);
    if (call) {
        drop(m, (size_t)(call - s));
        m->phase = MESSAGE_CALL;
    } else if (end) {
        bool thinks = find(s, (size_t)(end - s), "analysis") ||
                      find(s, (size_t)(end - s), "to=self");
        if (!thinks && m->content.used && !bytes_append(&m->content, "\n\n", 2)) m->failed = true;
        drop(m, (size_t)(end - s) + strlen(header_end));
        m->phase = thinks ? MESSAGE_REASONING : MESSAGE_CONTENT;
        m->mark = &marks[HARMONY];
    } else if (last || n == most) {
        if (last && m->cut && *s == '<')
            drop(m, n);
        else
            move(m, &m->content, 1);
        m->phase = MESSAGE_CONTENT;
        m->headers = false;
    } else {
        return false;
    }
    return true;
}

/* Finds the next mark of a header; *n bytes of `held` before it are content. True: found; *part:
 * length of a prefix of a mark at the end. */
static bool find_header(const model_text *m, size_t *n, size_t *part) {
    const char *first = NULL;
    for (int i = 0; i < N_HEADER_MARKS; i++) {
        const char *hit = find(m->held.data, m->held.used, header_marks[i]);
        size_t begun = message_beginning_at_end(m->held.data, m->held.used, header_marks[i]);
        if (hit && (!first || hit < first)) first = hit;
        if (begun > *part) *part = begun;
    }
    if (first) *n = (size_t)(first - m->held.data);
    return first;
}

static bool step_content(model_text *m, bool last) {
    const char *s = m->held.data;
    size_t n = m->held.used, back = 0, part = 0;
    if (m->held.used == 0) return false;
    const bool header = m->headers && find_header(m, &n, &part);
    if (header && n == 0) {
        if (find(s, m->held.used, header_marks[0]) == s)
            drop(m, strlen(header_marks[0]));
        else
            m->phase = MESSAGE_HEADER;
        return true;
    }
    if (m->format) {
        const char *open = m->format->open, *mark = find(s, n, open);
        bool whole = !*open && m->content.used == 0 && m->n_calls == 0 && spaces(s, n) < n &&
                     (s[spaces(s, n)] == '{' || s[spaces(s, n)] == '[');
        if (whole) mark = s;
        if (mark) {
            size_t before = (size_t)(mark - s), text = before;
            while (text > 0 && bytes_is_space(s[text - 1])) text--;
            move(m, &m->content, text);
            drop(m, before - text);
            m->phase = MESSAGE_CALL;
            return true;
        }
        back = header || (last && !m->cut) ? 0 : message_beginning_at_end(s, n, open);
        if (!header && !last && part > back) back = part;
        /* White space before a call is dropped. */
        while (!last && !header && back < n && bytes_is_space(s[n - back - 1])) back++;
        if (spaces(s, n) == n && (m->n_calls || (header && !m->content.used))) {
            if (last || header) drop(m, n);
            return header;
        }
    } else if (!header && !last) {
        back = part;
    }
    move(m, &m->content, n - back);
    return header;
}

const struct reasoning_mark *message_open_mark(const char *prompt, size_t n) {
    while (n > 0 && bytes_is_space(prompt[n - 1])) n--;
    for (int i = 0; i < N_MARKS; i++) {
        size_t n_begin = strlen(marks[i].begin);
        if (n >= n_begin && memcmp(prompt + n - n_begin, marks[i].begin, n_begin) == 0)
            return &marks[i];
    }
    return NULL;
}

const char *message_open_reasoning(const char *prompt, size_t n) {
    const struct reasoning_mark *mark = message_open_mark(prompt, n);
    return mark ? mark->end : NULL;
}

size_t message_open_reasoning_at(const char *prompt, size_t n) {
    const struct reasoning_mark *mark = message_open_mark(prompt, n);
    if (!mark) return n;
    while (bytes_is_space(prompt[n - 1])) n--;
    return n - strlen(mark->begin);
}

size_t message_reasoning_extent(const char *text, size_t n) {
    size_t at = spaces(text, n);
    for (int i = 0; i < N_MARKS; i++) {
        size_t n_begin = strlen(marks[i].begin), n_end = strlen(marks[i].end);
        bool begins = n - at >= n_begin && memcmp(text + at, marks[i].begin, n_begin) == 0;
        bool ends = n - at >= n_end && memcmp(text + at, marks[i].end, n_end) == 0;
        const char *end = begins || ends ? find(text + at, n - at, marks[i].end) : NULL;
        if (!end) continue;
        at = (size_t)(end - text) + n_end;
        return at + spaces(text + at, n - at);
    }
    return 0;
}

bool message_has_headers(const char *prompt, size_t n) {
    const size_t n_after = strlen(headers_after);
    return n >= n_after && memcmp(prompt + n - n_after, headers_after, n_after) == 0;
}

const struct reasoning_mark *message_header_mark(void) {
    return &marks[HARMONY];
}

void message_begin(model_text *m, const char *prompt, size_t n_prompt) {
    m->mark = m->splits_reasoning ? message_open_mark(prompt, n_prompt) : NULL;
    if (m->mark) m->phase = MESSAGE_REASONING;
    m->headers = m->splits_reasoning && message_has_headers(prompt, n_prompt);
    if (m->headers) m->phase = MESSAGE_HEADER;
}

void message_feed(model_text *m, const char *text, size_t n, bool last) {
    if (!m->splits_reasoning && !m->format) { /* everything is content */
        if (!bytes_append(&m->content, text, n)) m->failed = true;
        return;
    }
    if (!bytes_append(&m->held, text, n)) m->failed = true;
    bool more = !m->failed && (m->held.used > 0 || last);
    while (more && !m->failed && m->held.used > 0) {
        switch (m->phase) {
        case MESSAGE_START:
            more = step_start(m, last);
            break;
        case MESSAGE_HEADER:
            more = step_header(m, last);
            break;
        case MESSAGE_REASONING:
            more = step_reasoning(m, last);
            break;
        case MESSAGE_CONTENT:
            more = step_content(m, last);
            break;
        case MESSAGE_CALL:
            more = step_call(m, last);
            break;
        }
    }
}

void message_free(model_text *m) {
    bytes_free(&m->reasoning);
    bytes_free(&m->content);
    bytes_free(&m->held);
    for (int i = 0; i < m->n_calls; i++) {
        bytes_free(&m->calls[i].name);
        bytes_free(&m->calls[i].arguments);
    }
}
