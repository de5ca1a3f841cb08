/* tool_style.c: derives the form of tool calls from a chat template.
 *
 * The probe renders two conversations: a question, up to where the model answers, and the same
 * question with an answer that calls PROBE_NAME with PROBE_KEY = PROBE_VALUE. The text that only
 * the second rendering has is what the model would have written. If the name is within JSON, the
 * JSON is an object (or an array of objects) with keys for name and arguments, or with the name as
 * the key of the arguments.
 *
 * Otherwise the name stands before the arguments. A call with a second key, and two calls in one
 * answer, show the marks around names, keys and values. A word that differs between two otherwise
 * equal calls, such as a number or an id, may be any word.
 *
 * Templates expect arguments as an object or as a text, and missing content as an empty text or as
 * null. The probe tries all combinations, the usual one first. */
#include "tool_style.h"

#include <string.h>

#include "call_arguments.h"
#include "clock.h"
#include "error.h"
#include "mem.h"
#include "os_text.h"

#define PROBE_NAME  "probe_name"
#define PROBE_KEY   "probe_key"
#define PROBE_VALUE "probe_value"
/* For calls that are not JSON. */
#define SECOND_NAME  "second_name"
#define SECOND_KEY   "second_key"
#define SECOND_VALUE "902105"

enum {
    MAX_MARK = 100,    /* maximum bytes of a mark */
    PROBE_SECONDS = 10 /* for all probes of a template; each takes milliseconds */
};

#define TOOL(name)                                                                                 \
    "{\"type\":\"function\",\"function\":{\"name\":\"" name "\",\"description\":\"d\","            \
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"" PROBE_KEY                             \
    "\":{\"type\":\"string\",\"description\":\"d\"},\"" SECOND_KEY                                 \
    "\":{\"type\":\"integer\",\"description\":\"d\"}},\"required\":[\"" PROBE_KEY "\"]}}}"
#define TOOLS    "\"tools\":[" TOOL(PROBE_NAME) "," TOOL(SECOND_NAME) "]"
#define QUESTION "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}"

static const char question[] = QUESTION "]," TOOLS ",\"add_generation_prompt\":true}";
static const char plain[] = QUESTION ",{\"role\":\"assistant\",\"content\":\"" PROBE_VALUE
                                     "\"}]," TOOLS "}";

/* An answer with calls. */
typedef struct probe {
    bool text_arguments, null_content;
    int ids; /* row of call_ids */
    int n_calls;
    bool second_key, reversed;
} probe;

/* Ids of two calls: nine letters and digits, as some templates require; ids that contain the name,
 * as others require; the usual form. */
static const char *const call_ids[][2] = {
    {"call00001", "call00002"},
    {"functions." PROBE_NAME ":0", "functions." SECOND_NAME ":1"},
    {"call_0123456789abcdefghijklmn", ""}};

static bool put_call(bytes *b, const probe *q, int index) {
    const char *quote = q->text_arguments ? "\\\"" : "\"";
    char first[64], second[64], text[512];
    snprintf(first, sizeof first, "%s" PROBE_KEY "%s: %s" PROBE_VALUE "%s", quote, quote, quote,
             quote);
    snprintf(second, sizeof second, "%s" SECOND_KEY "%s: " SECOND_VALUE, quote, quote);
    const char *around = q->text_arguments ? "\"" : "";
    snprintf(text, sizeof text,
             "%s{\"id\":\"%s\",\"type\":\"function\",\"function\":{\"name\":\"%s\","
             "\"arguments\":%s{%s%s%s}%s}}",
             index ? "," : "", call_ids[q->ids][index], index ? SECOND_NAME : PROBE_NAME, around,
             q->reversed ? second : first, q->second_key ? ", " : "",
             !q->second_key ? ""
             : q->reversed  ? first
                            : second,
             around);
    return bytes_append_text(b, text);
}

/* Copies s[n] with a NUL. */
static bool keep(bytes *b, const char *s, size_t n) {
    return bytes_append(b, s, n) && bytes_append(b, "", 1);
}

static const char *after(const char *s, const char *word) {
    const char *hit = strstr(s, word);
    return hit ? hit + strlen(word) : NULL;
}

/* Appends the key of the value that begins at `at` in JSON: "key": value */
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

/* Length of the mark that s begins with; 0: none. */
static size_t mark_extent(const char *s) {
    size_t n = *s == '<' || *s == '[' ? strcspn(s, ">]") + 1 : 0;
    if (strncmp(s, "```", 3) == 0) n = 3;
    return n > strlen(s) ? 0 : n;
}

/* Finds the key of an id in the object: a key before the name, or the key of the probe's id. */
static bool read_id(tool_style *t, const char *json, const char *name, const char *args) {
    const char *key = strchr(json, '"'), *id = strstr(args, call_ids[0][0]);
    size_t n = strlen(t->name_key.data);
    t->format.id_first = key < name && strncmp(key + 1, t->name_key.data, n) != 0;
    if (t->format.id_first) return keep(&t->id_key, key + 1, strcspn(key + 1, "\""));
    return id ? key_before(args, id, &t->id_key) : keep(&t->id_key, "", 0);
}

/* Reads the form of a call whose name is within JSON. text: what the model would have written,
 * NUL-terminated; its parts may be empty. */
static bool read_form(tool_style *t, const char *text) {
    const char *name = strstr(text, PROBE_NAME), *key = strstr(text, "\"" PROBE_KEY "\"");
    if (!name || !key) return false;
    const char *args = key;
    while (args > text && *args != '{') args--;
    const char *close = after(key, "}"), *json = strpbrk(text, "{[");
    while (json && *json == '[' && json[1 + strspn(json + 1, " \n\t")] != '{')
        json = strpbrk(json + 1, "{["); /* a mark */
    if (*args != '{' || !json || !close || json > name || name > args || name[-1] != '"')
        return false;
    t->format.list = *json == '[';
    close = after(close, "}");
    if (close && t->format.list) close = after(close, "]");
    const char *first = json + strspn(json, "[{ \n\t") + 1; /* after the quote */
    bool good = close && (first == name ? keep(&t->name_key, "", 0) && keep(&t->args_key, "", 0) &&
                                              keep(&t->id_key, "", 0)
                                        : key_before(json, name - 1, &t->name_key) &&
                                              key_before(json, args, &t->args_key) &&
                                              read_id(t, json, name, args));
    if (!good) return false;
    /* Up to the end of the turn, a mark or nothing follows the call. */
    close += strspn(close, " \n");
    const char *open = text + strspn(text, " \n\t");
    if (open > json) open = json;
    return keep(&t->open, open, trimmed(open, (size_t)(json - open))) &&
           keep(&t->close, close, mark_extent(close));
}

static void set_format(tool_style *t) {
    t->format.open = t->open.data;
    t->format.close = t->close.data;
    t->format.name_key = t->name_key.data;
    t->format.args_key = t->args_key.data;
    t->format.id_key = t->id_key.data;
}

/* Sets the form to JSON objects with the usual keys between these marks. */
static bool keep_usual(tool_style *t, const char *open, const char *close) {
    bool good = keep(&t->open, open, strlen(open)) && keep(&t->close, close, strlen(close)) &&
                keep(&t->name_key, "name", 4) && keep(&t->args_key, "arguments", 9) &&
                keep(&t->id_key, "", 0);
    if (good) set_format(t);
    return good;
}

/* Returns where the model's words begin in `with`. Marks with which both prompt and answer begin
 * are not split ("<think>", "<tool_call>"). Reasoning is not part of the call, not even empty
 * reasoning that the template writes. Both texts end with a NUL. */
static size_t answer_start(const char *before, const char *with) {
    size_t n = 0, reasoning = message_open_reasoning_at(before, strlen(before));
    while (before[n] && before[n] == with[n]) n++;
    while (before[n] && n > 0 && !strchr(" \n\t>]", with[n - 1])) n--;
    if (n > reasoning) n = reasoning;
    return n + message_reasoning_extent(with + n, strlen(with + n));
}

/* ---- pairs ----------------------------------------------------------------------------------- */

typedef struct span {
    const char *s;
    size_t n;
} span;

static span trim(span x) {
    while (x.n > 0 && bytes_is_space(*x.s)) x.s++, x.n--;
    while (x.n > 0 && bytes_is_space(x.s[x.n - 1])) x.n--;
    return x;
}

static span common_bytes(span a, span b) {
    size_t n = 0;
    while (n < a.n && n < b.n && a.s[n] == b.s[n]) n++;
    return (span){a.s, n};
}

/* Common prefix of two texts, without an incomplete mark at its end. */
static span common(span a, span b) {
    size_t n = common_bytes(a, b).n;
    for (size_t i = n; i > 0 && a.s[i - 1] != '>'; i--)
        if (a.s[i - 1] == '<') n = i - 1;
    return (span){a.s, n};
}

static span rest_of(span x, span begin) {
    return (span){x.s + begin.n, x.n - begin.n};
}

static bool ends_with(span x, span end) {
    return x.n >= end.n && memcmp(x.s + x.n - end.n, end.s, end.n) == 0;
}

static bool equal(span a, span b) {
    return a.n == b.n && memcmp(a.s, b.s, a.n) == 0;
}

static const char *mark(tool_style *t, span x) {
    bytes *b = &t->marks[t->n_marks++];
    return keep(b, x.s, x.n) ? b->data : "";
}

/* Sets *between to the text from *at to the next `word`, and moves *at behind the word. */
static bool until(const char **at, const char *word, span *between) {
    const char *hit = *at ? strstr(*at, word) : NULL;
    if (hit) *between = (span){*at, (size_t)(hit - *at)};
    *at = hit ? hit + strlen(word) : NULL;
    return hit;
}

/* The texts between the words of a call, and the rest of the turn after the call. */
typedef struct pair_spans {
    span open, first, string_end, between, other_end, rest;
} pair_spans;

static bool split_call(const char *text, size_t n_turn_end, const char *name, pair_spans *x) {
    const char *at = text, *key = strstr(text, PROBE_KEY), *again = NULL;
    if (!key || !until(&at, name, &x->open)) return false;
    /* The name also stands in a header, which ends before the call. */
    while ((again = strstr(at, name)) && again < key) {
        const char *begin = after(at, "<|message|>");
        if (!begin || begin > again) begin = text;
        x->open = (span){begin, (size_t)(again - begin)};
        at = again + strlen(name);
    }
    if (!until(&at, PROBE_KEY, &x->first) || !until(&at, PROBE_VALUE, &x->string_end) ||
        !until(&at, SECOND_KEY, &x->between) || !until(&at, SECOND_VALUE, &x->other_end))
        return false;
    size_t n = strlen(at);
    x->rest = (span){at, n > n_turn_end ? n - n_turn_end : 0};
    return true;
}

/* Writes the text that a and b share, with CALL_WORD_ in place of one word that differs. False:
 * more than one word differs. */
static bool generalise(span a, span b, char out[MAX_MARK + 1], bool *word) {
    const span begin = common_bytes(a, b);
    size_t n = begin.n, end = 0;
    while (end < a.n - n && end < b.n - n && a.s[a.n - end - 1] == b.s[b.n - end - 1]) end++;
    *word = n < a.n || n < b.n;
    if (*word) {
        while (n > 0 && call_is_word(a.s[n - 1])) n--;
        while (end > 0 && call_is_word(a.s[a.n - end])) end--;
    }
    for (size_t i = n; *word && i < a.n - end; i++)
        if (!call_is_word(a.s[i])) return false;
    if (n + end + 1 > MAX_MARK) return false;
    memcpy(out, a.s, n);
    out[n] = CALL_WORD_;
    memcpy(out + n + *word, a.s + a.n - end, end);
    out[n + *word + end] = 0;
    return true;
}

/* Renderings of an answer with one call, and with two calls. */
typedef struct answers {
    /* both NULL: the template refuses two calls, or writes only one of them */
    const char *one, *both;
    const char *text;  /* rendering of a plain answer */
    size_t n_turn_end; /* bytes at the end of each rendering that the model does not write */
    const probe *how;
} answers;

/* Finds the marks around further calls of one answer, if they differ from those of the first call.
 * tail: the text after the arguments of one call. */
static void read_further(tool_style *t, const answers *y, span whole_open, span value_end,
                         span tail, bool bare) {
    pair_spans a, b;
    call_pairs *p = &t->pairs;
    p->again = p->end = "";
    p->close = NULL;
    if (y->both && split_call(y->both, y->n_turn_end, PROBE_NAME, &a) &&
        split_call(a.rest.s, y->n_turn_end, SECOND_NAME, &b) && b.open.s == a.rest.s) {
        span x = rest_of(b.open, value_end), last = rest_of(b.rest, value_end);
        span close = common(x, last), again = trim(rest_of(x, close));
        bool separate = bare && trim(last).n && x.n; /* a comma or a newline separates two calls */
        if (separate && !again.n) again = (span){x.s, 1};
        if ((trim(close).n || separate) && again.n && !equal(again, trim(whole_open))) {
            p->close = mark(t, trim(close));
            p->again = mark(t, again);
            p->end = mark(t, trim(rest_of(last, close)));
        }
    }
    if (!p->close) p->close = mark(t, trim(tail));
}

/* Splits the text before the first name into `open` and `begin`. `open` ends at the end of the
 * first mark that plain answers do not contain; it is empty when the text is only a bracket. */
static bool read_open(tool_style *t, const answers *y, span open) {
    const char *end = memchr(open.s, '>', open.n);
    span outer = *open.s == '<' && end ? (span){open.s, (size_t)(end + 1 - open.s)} : open;
    while (outer.n < open.n && os_find(y->text, strlen(y->text), outer.s, outer.n)) {
        end = memchr(outer.s + outer.n, '>', open.n - outer.n);
        outer.n = end ? (size_t)(end + 1 - open.s) : open.n;
    }
    if (open.n == 1) outer.n = 0;
    t->pairs.open = mark(t, outer);
    t->pairs.begin = mark(t, trim(rest_of(open, outer)));
    return open.n > 0;
}

/* Reads name_end, which may differ by one word between two calls. `first` is the text after the
 * name of one call; its last n_not bytes are not part of name_end. */
static bool read_name_end(tool_style *t, const answers *y, span first, size_t n_not) {
    call_pairs *p = &t->pairs;
    pair_spans a, b;
    char text[MAX_MARK + 1];
    bool word = false;
    first.n = trimmed(first.s, first.n - n_not);
    if (first.n > MAX_MARK) return false;
    memcpy(text, first.s, first.n);
    text[first.n] = 0;
    if (y->both && split_call(y->both, y->n_turn_end, PROBE_NAME, &a) &&
        split_call(a.rest.s, y->n_turn_end, SECOND_NAME, &b)) {
        b.first.n = b.first.n >= n_not ? trimmed(b.first.s, b.first.n - n_not) : 0;
        if (!generalise(first, b.first, text, &word)) return false;
    }
    if (strstr(text, call_ids[0][0])) return false;
    p->name_end[0] = p->name_end[1] = mark(t, (span){text, strlen(text)});
    /* Models of this form write this text themselves. */
    if (strstr(text, "<|channel|>")) p->name_end[1] = " <|constrain|>json<|message|>";
    p->has_id = word && os_find(first.s, first.n, call_ids[0][0], strlen(call_ids[0][0]));
    if (word && y->how->ids == 1) {
        p->has_id = true;
        p->id_begin = "functions.";
    }
    return true;
}

/* Mark before values that are not strings: the name of a type in it may be the name of any type. */
static const char *other_end(tool_style *t, span string, span other) {
    static const char *const types[] = {"number", "integer", "int"};
    char text[MAX_MARK + 1];
    span begin = common_bytes(string, other);
    for (size_t i = 0; i < 3 && other.n < MAX_MARK; i++) {
        size_t n = strlen(types[i]);
        if (begin.n + n > other.n || memcmp(other.s + begin.n, types[i], n) != 0) continue;
        memcpy(text, other.s, begin.n);
        text[begin.n] = CALL_WORD_;
        memcpy(text + begin.n + 1, other.s + begin.n + n, other.n - begin.n - n);
        return mark(t, (span){text, other.n - n + 1});
    }
    return mark(t, other);
}

/* Reads arguments that are marked keys and values. */
static bool read_pairs(tool_style *t, const answers *y) {
    pair_spans x, a, b;
    call_pairs *p = &t->pairs;
    if (!split_call(y->one, y->n_turn_end, PROBE_NAME, &x)) return false;
    /* Marks that distinguish more than two types cannot be derived from a few values. */
    if (y->both && split_call(y->both, y->n_turn_end, PROBE_NAME, &a) &&
        (!split_call(a.rest.s, y->n_turn_end, SECOND_NAME, &b) ||
         !equal(x.string_end, b.string_end) || !equal(x.between, b.between) ||
         !equal(x.other_end, b.other_end)))
        return false;
    span value_end = common(x.between, x.rest), open = trim(x.open), core = trim(value_end);
    /* White space at the start of the mark belongs to it; white space at its end belongs to the
     * next. */
    value_end.n = (size_t)(core.s + core.n - value_end.s);
    span key_begin = trim(rest_of(x.between, value_end)), first = trim(x.first);
    if (!core.n || core.n > MAX_MARK || !key_begin.n || !ends_with(first, key_begin) ||
        *open.s != '<' || !trim(x.string_end).n || !trim(x.other_end).n)
        return false;
    size_t n_key = key_begin.n + (x.first.n - trimmed(x.first.s, x.first.n));
    if (!read_open(t, y, open) || !read_name_end(t, y, x.first, n_key)) return false;
    p->key_begin = mark(t, key_begin);
    p->key_end[0] = mark(t, x.string_end);
    p->key_end[1] = other_end(t, x.string_end, x.other_end);
    p->value_end = mark(t, value_end);
    read_further(t, y, open, value_end, rest_of(x.rest, value_end), false);
    return *p->close;
}

/* Reads arguments that are elements with a mark before each tag: ]<KEY>VALUE]</KEY>. */
static bool read_elements(tool_style *t, const answers *y) {
    static const char second[] = SECOND_KEY ">";
    pair_spans x, a, b;
    call_pairs *p = &t->pairs;
    if (!split_call(y->one, y->n_turn_end, PROBE_NAME, &x)) return false;
    const span tag = {PROBE_KEY ">", sizeof PROBE_KEY};
    const char *key = os_find(x.between.s, x.between.n, tag.s, tag.n);
    if (!key || !equal(x.string_end, (span){">", 1}) || !equal(x.other_end, (span){">", 1}))
        return false;
    const span value_end = {x.between.s, (size_t)(key - x.between.s)};
    const span key_begin = rest_of(x.between, (span){NULL, value_end.n + tag.n});
    const size_t n_end = value_end.n + sizeof second - 1;
    if (key_begin.n < 2 || value_end.n != key_begin.n + 1 || value_end.s[key_begin.n] != '/' ||
        memcmp(value_end.s, key_begin.s, key_begin.n) != 0 || !ends_with(x.first, key_begin) ||
        x.rest.n < n_end || memcmp(x.rest.s, value_end.s, value_end.n) != 0 ||
        memcmp(x.rest.s + value_end.n, second, sizeof second - 1) != 0)
        return false;
    span open = trim(x.open);
    if (open.n < key_begin.n || memcmp(open.s, key_begin.s, key_begin.n) != 0) return false;
    const char *end = memchr(open.s + key_begin.n, '>', open.n - key_begin.n);
    const span outer = {open.s, end ? (size_t)(end + 1 - open.s) : open.n};
    p->open = mark(t, outer);
    p->begin = mark(t, trim(rest_of(open, outer)));
    if (!read_name_end(t, y, x.first, key_begin.n)) return false;
    p->elements = true;
    p->literal.quote = "";
    p->key_begin = mark(t, key_begin);
    p->key_end[0] = p->key_end[1] = ">";
    p->value_end = mark(t, value_end);
    p->again = p->end = "";
    span tail = rest_of(x.rest, (span){NULL, n_end}), last = {tail.s, 0};
    if (y->both && split_call(y->both, y->n_turn_end, PROBE_NAME, &a) &&
        split_call(a.rest.s, y->n_turn_end, SECOND_NAME, &b) && b.open.s == a.rest.s &&
        b.open.n > n_end && b.rest.n > n_end) {
        const span next = rest_of(b.open, (span){NULL, n_end});
        last = rest_of(b.rest, (span){NULL, n_end});
        size_t n = common_bytes(next, last).n;
        while (n > 0 && (next.n - n < key_begin.n || memcmp(next.s + n, key_begin.s, key_begin.n)))
            n--;
        tail.n = n;
        p->again = mark(t, trim(rest_of(next, tail)));
        p->end = mark(t, trim(rest_of(last, tail)));
    }
    p->close = mark(t, trim(tail));
    return *p->close && *p->begin;
}

/* Reads arguments that are literals in brackets: NAME(K="V", L=1). */
static bool read_literals(tool_style *t, const answers *y) {
    pair_spans x;
    call_pairs *p = &t->pairs;
    if (!split_call(y->one, y->n_turn_end, PROBE_NAME, &x)) return false;
    span first = trim(x.first), equals = trim(x.other_end), quote = trim(x.string_end);
    char bracket = first.n ? first.s[first.n - 1] : 0;
    if ((bracket != '(' && bracket != '{') || *x.rest.s != (bracket == '(' ? ')' : '}') ||
        equals.n != 1 || !strchr("=:", *equals.s) || quote.n < 2 || *quote.s != *equals.s)
        return false;
    quote = trim(rest_of(quote, equals));
    span open = trim(x.open), comma = trim(x.between), bracket_end = {x.rest.s, 1};
    if (comma.n <= quote.n || memcmp(comma.s, quote.s, quote.n) != 0) return false;
    comma = trim(rest_of(comma, quote));
    bool usual = quote.n == 1 && strchr("\"'", *quote.s);
    if (comma.n != 1 || *comma.s != ',' || (quote.n == 1 && !usual) || quote.n > MAX_MARK)
        return false;
    if (!read_open(t, y, open) || !read_name_end(t, y, x.first, 0)) return false;
    p->literal.equals = *equals.s;
    p->literal.quote = usual ? "" : mark(t, quote);
    p->key_begin = p->key_end[0] = p->key_end[1] = p->value_end = "";
    read_further(t, y, open, bracket_end, rest_of(x.rest, bracket_end), true);
    return true;
}

/* Reads a call whose name stands before one JSON object. */
static bool read_object(tool_style *t, const answers *y) {
    pair_spans x;
    call_pairs *p = &t->pairs;
    if (!split_call(y->one, y->n_turn_end, PROBE_NAME, &x) || *x.rest.s != '}') return false;
    span open = (span){x.open.s, trimmed(x.open.s, x.open.n)}, object = {x.rest.s, 1};
    while (open.n && strchr("\n\t", *open.s)) open.s++, open.n--;
    const char *brace = memchr(x.first.s, '{', x.first.n);
    if (!brace || !open.n || !read_open(t, y, open)) return false;
    if (!read_name_end(t, y, x.first, x.first.n - (size_t)(brace - x.first.s))) return false;
    p->key_begin = p->key_end[0] = p->key_end[1] = p->value_end = "";
    span tail = rest_of(x.rest, object), core = trim(tail);
    read_further(t, y, open, object, tail, false);
    if (!*p->again) p->close = mark(t, (span){core.s, core.n ? mark_extent(core.s) : 0});
    return *p->name_end[0];
}

/* ---- probing --------------------------------------------------------------------------------- */

/* Renders an answer; returns where the model's words begin. NULL: the template refuses the
 * request. */
static const char *render(const prompt_maker *p, const char *request, const char *before,
                          bytes *out) {
    if (prompt_render(p, request, strlen(request), out, NULL) != PI_OK || !bytes_append(out, "", 1))
        return NULL;
    return out->data + answer_start(before, out->data);
}

/* Renders a probe; returns where its words begin after the text that the template writes for an
 * empty content. */
static const char *render_probe(const prompt_maker *p, const probe *q, const char *before,
                                const char *text, bytes *out) {
    bytes request = {0};
    bool good = bytes_append_text(&request, QUESTION ",{\"role\":\"assistant\",\"content\":") &&
                bytes_append_text(&request, q->null_content ? "null" : "\"\"") &&
                bytes_append_text(&request, ",\"tool_calls\":[");
    for (int i = 0; i < q->n_calls && good; i++) good = put_call(&request, q, i);
    good = good && bytes_append_text(&request, "]}]," TOOLS "}") && bytes_append(&request, "", 1);
    const char *with = good ? render(p, request.data, before, out) : NULL;
    const char *value = strstr(text, PROBE_VALUE);
    size_t n = value ? (size_t)(value - text) : 0;
    bytes_free(&request);
    if (!with || !n || strncmp(with, text, n) != 0) return with;
    with += n;
    value += strlen(PROBE_VALUE);
    for (n = 0; value[n] && with[n] == value[n];) n++;
    while (n > 0 && with[n - 1] != '>') n--;
    return with + n;
}

/* Length of the common end of an answer that calls and an answer without calls, from a border
 * between marks on. */
static size_t turn_end(const char *text, const char *with) {
    size_t n_with = strlen(with);
    for (const char *end = after(text, PROBE_VALUE); end && *end; end = strchr(end + 1, '<')) {
        size_t n = strlen(end);
        if (n < n_with && strcmp(with + n_with - n, end) == 0 &&
            strchr(">]}) \n", with[n_with - n - 1]))
            return n;
    }
    return 0;
}

/* Finds the form of calls whose name stands before their arguments. */
static bool find_pairs(tool_style *t, const prompt_maker *p, const char *before, answers *y) {
    static bool (*const forms[])(tool_style * t, const answers *y) = {read_pairs, read_elements,
                                                                      read_literals, read_object};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        tool_style_free(t);
        if (!forms[i](t, y)) continue;
        t->format = (call_format){
            .open = t->pairs.open, .close = t->pairs.close, .pairs = &t->pairs};
        probe q = *y->how;
        bytes out = {0};
        q.n_calls = 1;
        q.second_key = q.reversed = true;
        const char *text = render_probe(p, &q, before, y->text, &out);
        const char *key = text ? strstr(text, PROBE_KEY) : NULL;
        t->pairs.sorted = key && strstr(key, SECOND_KEY);
        bytes_free(&out);
        return true;
    }
    tool_style_free(t);
    return false;
}

/* Whether only blanks stand between two calls that are objects. */
static bool has_further(const char *both) {
    const char *at = both ? strstr(both, SECOND_VALUE "}") : NULL;
    if (at) at += strlen(SECOND_VALUE "}");
    if (at) at += strspn(at, " \n\t\r");
    return at && *at == '}' && at[1 + strspn(at + 1, " \n\t\r")] == '{';
}

/* Finds the form, as far as the template shows it to this probe. */
static bool find_form(tool_style *t, const prompt_maker *p, const char *before, const char *text,
                      const probe *how) {
    bytes with = {0}, two = {0}, both = {0};
    probe q = *how;
    answers y = {.text = text, .how = how};
    q.n_calls = 1;
    const char *call = render_probe(p, &q, before, text, &with);
    q.second_key = true;
    y.one = call ? render_probe(p, &q, before, text, &two) : NULL;
    q.n_calls = 2;
    y.both = y.one ? render_probe(p, &q, before, text, &both) : NULL;
    if (y.both && !strstr(y.both, SECOND_NAME)) y.both = NULL;
    bool good = false;
    if (y.one && strstr(call, PROBE_NAME) && strstr(call, PROBE_VALUE)) {
        y.n_turn_end = turn_end(text, y.one);
        with.data[with.used - 1 - turn_end(text, call)] = 0;
        tool_style_free(t);
        good = read_form(t, call);
        if (good) {
            set_format(t);
            t->format.further = *t->format.close && !t->format.list && has_further(y.both);
        } else {
            good = find_pairs(t, p, before, &y);
        }
        t->format.single = !y.both;
        t->text_arguments = how->text_arguments;
        t->null_content = how->null_content;
        t->named_ids = how->ids == 1;
    }
    bytes_free(&with);
    bytes_free(&two);
    bytes_free(&both);
    return good;
}

static bool find_any_form(tool_style *t, const prompt_maker *p, const char *before) {
    bytes plain_text = {0}, with = {0};
    const char *text = render(p, plain, before, &plain_text);
    bool good = false;
    for (int i = 0; i < 8 && text && !good; i++) {
        const probe q = {.text_arguments = i & 2, .null_content = i & 1, .ids = i / 4};
        good = find_form(t, p, before, text, &q);
        const probe usual = {.text_arguments = q.text_arguments,
                             .null_content = q.null_content,
                             .ids = 2,
                             .n_calls = 1};
        if (good) t->format.short_ids = !render_probe(p, &usual, before, text, &with);
    }
    bytes_free(&plain_text);
    bytes_free(&with);
    return good;
}

/* Whether the template renders results that are in the message of their calls. */
static bool shows_responses(const prompt_maker *p) {
    static const char request[] = QUESTION
        ",{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"call00001\","
        "\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":{}}}],"
        "\"tool_responses\":[{\"name\":\"f\",\"response\":\"" PROBE_VALUE "\"}]}]}";
    bytes out = {0};
    bool shows = prompt_render(p, request, sizeof request - 1, &out, NULL) == PI_OK &&
                 bytes_append(&out, "", 1) && strstr(out.data, PROBE_VALUE);
    bytes_free(&out);
    return shows;
}

/* Finds the form for templates that show tools but drop calls; calls are then part of the content.
 * The prompt names the mark that opens them, or the mark is one token. */
static bool find_written(tool_style *t, const prompt_maker *p, const char *before) {
    static const struct {
        const char *open, *close;
        bool python;
    } forms[] = {{"<|tool_call_start|>", "<|tool_call_end|>", true}, {"<|tool_call|>", "", false}};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        const char *open = forms[i].open, *close = forms[i].close;
        int32_t *tokens = NULL;
        size_t n = 0;
        const prompt_text mark = {.text = open, .n = strlen(open), .flags = PI_TOKENIZE_SPECIAL};
        if (prompt_tokens(p->model, &mark, &tokens, &n, NULL) != PI_OK) n = 0;
        mem_free(tokens);
        if (n != 1 && !strstr(before, open)) continue;
        tool_style_free(t);
        if (!keep_usual(t, open, close)) return false;
        t->written = true;
        t->format.list = true;
        if (forms[i].python) t->format.pairs = &t->pairs;
        t->pairs = (call_pairs){.open = open,
                                .begin = "[",
                                .name_end = {"(", "("},
                                .key_begin = "",
                                .key_end = {"", ""},
                                .value_end = "",
                                .close = "",
                                .again = ",",
                                .end = "]<|tool_call_end|>",
                                .literal = {.equals = '=', .quote = ""}};
        return true;
    }
    return false;
}

/* Whether the template refuses tools without the members that the APIs make optional. */
static bool refuses_bare_tools(const prompt_maker *p) {
    static const char request[] = QUESTION
        "],\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"" PROBE_NAME
        "\",\"parameters\":{\"type\":\"object\",\"properties\":{\"" PROBE_KEY
        "\":{\"type\":\"string\"}}}}},{\"type\":\"function\",\"function\":{\"name\":"
        "\"" SECOND_NAME "\"}}],\"add_generation_prompt\":true}";
    bytes out = {0};
    bool refuses = prompt_render(p, request, sizeof request - 1, &out, NULL) != PI_OK;
    bytes_free(&out);
    return refuses;
}

pi_status tool_style_find(tool_style *t, const prompt_maker *maker, pi_error *err) {
    bytes before = {0};
    prompt_maker probing = *maker;
    const prompt_maker *p = &probing;
    probing.deadline = clock_seconds() + PROBE_SECONDS;
    *t = (tool_style){.described = false};
    bool good = prompt_render(p, question, sizeof question - 1, &before, NULL) == PI_OK &&
                bytes_append(&before, "", 1) && strstr(before.data, PROBE_NAME);
    if (good && find_any_form(t, p, before.data))
        t->tool_responses = shows_responses(p);
    else
        good = good && find_written(t, p, before.data);
    bytes_free(&before);
    if (good) {
        t->full_tools = refuses_bare_tools(p);
        return PI_OK;
    }
    tool_style_free(t);
    t->described = true;
    return keep_usual(t, "<tool_call>", "</tool_call>") ? PI_OK : error_nomem(err, 64, "tools");
}

/* ---- calls as text --------------------------------------------------------------------------- */

/* Appends a value in Python's syntax. */
static bool put_python(bytes *out, const json_node *node) {
    bytes_json j;
    void *member = NULL;
    const char *key = NULL;
    const json_node *value = NULL;
    bool truth = false, good = true, first = true;
    switch (json_kind_of(node)) {
    case JSON_NULL:
        return bytes_append_text(out, "None");
    case JSON_BOOL:
        json_as_bool(node, &truth);
        return bytes_append_text(out, truth ? "True" : "False");
    case JSON_ARRAY:
        good = bytes_append_text(out, "[");
        for (size_t i = 0; i < json_count(node) && good; i++)
            good = (i == 0 || bytes_append_text(out, ", ")) && put_python(out, json_at(node, i));
        return good && bytes_append_text(out, "]");
    case JSON_OBJECT:
        good = bytes_append_text(out, "{");
        for (; good && json_next(node, &member, &key, &value); first = false) {
            good = (first || bytes_append_text(out, ", ")) && bytes_json_begin(&j, out);
            if (!good) break;
            json_put_text(&j.writer, NULL, key);
            good = bytes_json_end(&j) && bytes_append_text(out, ": ") && put_python(out, value);
        }
        return good && bytes_append_text(out, "}");
    default:
        if (!bytes_json_begin(&j, out)) return false;
        bytes_json_put(&j.writer, NULL, node);
        return bytes_json_end(&j);
    }
}

static bool put_keywords(bytes *out, const char *name, const json_node *arguments) {
    void *member = NULL;
    const char *key = NULL;
    const json_node *value = NULL;
    bool good = bytes_append_text(out, name) && bytes_append_text(out, "("), first = true;
    if (json_kind_of(arguments) != JSON_OBJECT) arguments = NULL;
    for (; good && json_next(arguments, &member, &key, &value); first = false)
        good = (first || bytes_append_text(out, ", ")) && bytes_append_text(out, key) &&
               bytes_append_text(out, "=") && put_python(out, value);
    return good && bytes_append_text(out, ")");
}

static bool put_object(bytes *out, const json_node *name, const json_node *arguments) {
    bytes_json j;
    if (!bytes_json_begin(&j, out)) return false;
    json_put_object(&j.writer, NULL);
    bytes_json_put(&j.writer, "name", name);
    bytes_json_put(&j.writer, "arguments", arguments);
    json_end_object(&j.writer);
    return bytes_json_end(&j);
}

bool tool_style_write(const tool_style *t, const json_node *calls, bytes *out) {
    bool good = true;
    const char *open = t->format.open, *close = t->close.data;
    for (size_t i = 0; i < json_count(calls) && good; i++) {
        const json_node *function = json_get(json_at(calls, i), "function");
        const json_node *arguments = json_get(function, "arguments");
        const char *s = NULL, *name = "";
        size_t n = 0;
        json_doc *doc = NULL;
        json_as_string(json_get(function, "name"), &name, &n);
        if (json_as_string(arguments, &s, &n) && (doc = call_arguments_parse(s, n)))
            arguments = json_root(doc);
        if (t->written)
            good = (i || bytes_append_text(out, open)) && bytes_append_text(out, i ? ", " : "[");
        else
            good = (!out->used || bytes_append_text(out, "\n")) && bytes_append_text(out, open) &&
                   bytes_append_text(out, "\n");
        good = good && (t->format.pairs ? put_keywords(out, name, arguments)
                                        : put_object(out, json_get(function, "name"), arguments));
        if (!t->written)
            good = good && bytes_append_text(out, "\n") && bytes_append_text(out, close);
        json_free(doc);
    }
    if (t->written) good = good && bytes_append_text(out, "]") && bytes_append_text(out, close);
    return good;
}

void tool_style_free(tool_style *t) {
    bytes_free(&t->open);
    bytes_free(&t->close);
    bytes_free(&t->id_key);
    bytes_free(&t->name_key);
    bytes_free(&t->args_key);
    for (int i = 0; i < t->n_marks; i++) bytes_free(&t->marks[i]);
    *t = (tool_style){.described = false};
}
