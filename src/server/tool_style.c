/* tool_style.c: reading the form of tool calls off a template.
 *
 * Two conversations are rendered: a question, as it stands before the model answers, and the same
 * with an answer that calls PROBE_NAME with PROBE_KEY = PROBE_VALUE. What the second has behind the
 * first is what the model would have written. In it the JSON value with the arguments is found. If
 * the name is within that value, it is an object (or an array of them) with a key for each, else
 * the name stands before it.
 *
 * Where there is no such value, a call with a second key, and two calls in one answer, show the
 * marks around names, keys and values. */
#include "tool_style.h"

#include <string.h>

#include "error.h"

#define PROBE_NAME  "probe_name"
#define PROBE_KEY   "probe_key"
#define PROBE_VALUE "probe_value"
#define CALL_ID     "call00001" /* nine letters and digits, as some templates demand */
/* Of calls that are no JSON: */
#define SECOND_NAME  "second_name"
#define SECOND_KEY   "second_key"
#define SECOND_VALUE "902105"

enum { MAX_MARK = 100 }; /* bytes of the mark that ends a value */

#define TOOL(name)                                                                                 \
    "{\"type\":\"function\",\"function\":{\"name\":\"" name "\",\"description\":\"d\","            \
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"" PROBE_KEY                             \
    "\":{\"type\":\"string\"},\"" SECOND_KEY                                                       \
    "\":{\"type\":\"integer\"}},\"required\":[\"" PROBE_KEY "\"]}}}"
#define TOOLS    "\"tools\":[" TOOL(PROBE_NAME) "," TOOL(SECOND_NAME) "]"
#define QUESTION "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}"
#define ANSWER   QUESTION ",{\"role\":\"assistant\",\"content\":\""
#define CALL(id, name, arguments)                                                                  \
    "{\"id\":\"" id "\",\"type\":\"function\",\"function\":{\"name\":\"" name                      \
    "\",\"arguments\":{" arguments "}}}"
#define ONE_ARGUMENT  "\"" PROBE_KEY "\":\"" PROBE_VALUE "\""
#define TWO_ARGUMENTS ONE_ARGUMENT ",\"" SECOND_KEY "\":" SECOND_VALUE

static const char question[] = QUESTION "]," TOOLS ",\"add_generation_prompt\":true}";
static const char plain[] = ANSWER PROBE_VALUE "\"}]," TOOLS "}";
static const char answer[] = ANSWER
    "\",\"tool_calls\":[" CALL(CALL_ID, PROBE_NAME, ONE_ARGUMENT) "]}]," TOOLS "}";
static const char with_two[] = ANSWER
    "\",\"tool_calls\":[" CALL(CALL_ID, PROBE_NAME, TWO_ARGUMENTS) "]}]," TOOLS "}";
static const char two_calls[] = ANSWER
    "\",\"tool_calls\":[" CALL(CALL_ID, PROBE_NAME, TWO_ARGUMENTS) "," CALL(
        "call00002", SECOND_NAME, TWO_ARGUMENTS) "]}]," TOOLS "}";

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
        if (strstr(t->name_end.data, CALL_ID)) return false; /* each call has another one */
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

/* What two texts begin with, without the beginning of a mark. */
static span common(span a, span b) {
    size_t n = 0;
    while (n < a.n && n < b.n && a.s[n] == b.s[n]) n++;
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

/* What is between *at and the next `word`; *at: behind it. */
static bool until(const char **at, const char *word, span *between) {
    const char *hit = *at ? strstr(*at, word) : NULL;
    if (hit) *between = (span){*at, (size_t)(hit - *at)};
    *at = hit ? hit + strlen(word) : NULL;
    return hit;
}

/* The texts between the words of a call, and what is left of the turn behind it. */
typedef struct pair_spans {
    span open, first, string_end, between, other_end, rest;
} pair_spans;

static bool split_call(const char *text, size_t n_turn_end, const char *name, pair_spans *x) {
    const char *at = text;
    if (!until(&at, name, &x->open) || !until(&at, PROBE_KEY, &x->first) ||
        !until(&at, PROBE_VALUE, &x->string_end) || !until(&at, SECOND_KEY, &x->between) ||
        !until(&at, SECOND_VALUE, &x->other_end))
        return false;
    size_t n = strlen(at);
    x->rest = (span){at, n > n_turn_end ? n - n_turn_end : 0};
    return true;
}

/* The marks around further calls of one answer, if they are not those of the first. both: an answer
 * with two calls; NULL: the template refuses that. tail: what follows the arguments of one. */
static void read_further(tool_style *t, const char *both, size_t n_turn_end, span whole_open,
                         span value_end, span tail) {
    pair_spans a, b;
    call_pairs *p = &t->pairs;
    p->again = p->end = "";
    p->close = NULL;
    if (both && split_call(both, n_turn_end, PROBE_NAME, &a) &&
        split_call(a.rest.s, n_turn_end, SECOND_NAME, &b)) {
        span x = rest_of(b.open, value_end), last = rest_of(b.rest, value_end);
        span close = common(x, last), again = trim(rest_of(x, close));
        if (trim(close).n && again.n && !equal(again, trim(whole_open))) {
            p->close = mark(t, trim(close));
            p->again = mark(t, again);
            p->end = mark(t, trim(rest_of(last, close)));
        }
    }
    if (!p->close) p->close = mark(t, trim(tail));
}

/* Whether both calls of an answer have the marks of a single one: those that count calls, or tell
 * more types than two, cannot be known from a few. */
static bool same_marks(const pair_spans *x, const char *both, size_t n_turn_end) {
    pair_spans a, b;
    if (!both || !split_call(both, n_turn_end, PROBE_NAME, &a)) return true;
    if (!split_call(a.rest.s, n_turn_end, SECOND_NAME, &b)) return false;
    return equal(x->first, b.first) && equal(x->string_end, b.string_end) &&
           equal(x->between, b.between) && equal(x->other_end, b.other_end);
}

/* one, both: what the model would have written, behind which the turn ends with n_turn_end bytes.
 */
static bool read_pairs(tool_style *t, const char *one, const char *both, size_t n_turn_end) {
    pair_spans x;
    call_pairs *p = &t->pairs;
    if (!split_call(one, n_turn_end, PROBE_NAME, &x) || !same_marks(&x, both, n_turn_end))
        return false;
    span value_end = common(x.between, x.rest), open = trim(x.open), core = trim(value_end);
    /* White space that begins the mark counts; what ends it belongs to the next. */
    value_end.n = (size_t)(core.s + core.n - value_end.s);
    span key_begin = trim(rest_of(x.between, value_end)), first = trim(x.first);
    if (!core.n || core.n > MAX_MARK || !key_begin.n || !ends_with(first, key_begin) ||
        *open.s != '<' || !trim(x.string_end).n || !trim(x.other_end).n)
        return false;
    size_t n_key = key_begin.n + (x.first.n - trimmed(x.first.s, x.first.n));
    const char *end = memchr(open.s, '>', open.n);
    span outer = {open.s, end ? (size_t)(end + 1 - open.s) : open.n};
    p->open = mark(t, outer);
    p->begin = mark(t, trim(rest_of(open, outer)));
    p->name_end = mark(t, (span){x.first.s, trimmed(x.first.s, x.first.n - n_key)});
    p->key_begin = mark(t, key_begin);
    p->key_end[0] = mark(t, x.string_end);
    p->key_end[1] = mark(t, x.other_end);
    p->value_end = mark(t, value_end);
    read_further(t, both, n_turn_end, open, value_end, rest_of(x.rest, value_end));
    return *p->close;
}

/* The name stands before one JSON object, and further calls begin with another mark than the first:
 * <calls><call>NAME<sep>{...}</call><call>...</calls>. */
static bool read_wrapped(tool_style *t, const char *one, const char *both, size_t n_turn_end) {
    pair_spans x;
    call_pairs *p = &t->pairs;
    if (!split_call(one, n_turn_end, PROBE_NAME, &x) || *x.rest.s != '}') return false;
    span open = trim(x.open), object = {x.rest.s, 1};
    const char *brace = memchr(x.first.s, '{', x.first.n);
    const char *end = memchr(open.s, '>', open.n);
    if (!brace || !end) return false;
    read_further(t, both, n_turn_end, open, object, rest_of(x.rest, object));
    if (!*p->again) return false;
    span outer = {open.s, (size_t)(end + 1 - open.s)};
    p->open = mark(t, outer);
    p->begin = mark(t, trim(rest_of(open, outer)));
    p->name_end = mark(t, (span){x.first.s, trimmed(x.first.s, (size_t)(brace - x.first.s))});
    p->key_begin = p->key_end[0] = p->key_end[1] = p->value_end = "";
    return *p->name_end;
}

/* An answer as a text, from where the model writes; NULL: the template refuses it. */
static const char *render(const prompt_maker *p, const char *request, const char *before,
                          bytes *out) {
    if (prompt_render(p, request, strlen(request), out, NULL) != PI_OK || !bytes_append(out, "", 1))
        return NULL;
    return out->data + answer_start(before, out->data);
}

/* Bytes at the end of an answer that calls with which answers without calls end, too. */
static size_t turn_end(const prompt_maker *p, const char *before, const char *with) {
    bytes text = {0};
    const char *turn = render(p, plain, before, &text),
               *end = turn ? after(turn, PROBE_VALUE) : NULL;
    size_t n = end ? strlen(end) : 0, n_with = strlen(with);
    if (n > n_with || (n && strcmp(with + n_with - n, end) != 0)) n = 0;
    bytes_free(&text);
    return n;
}

/* What an answer with two arguments, and one with two calls, show. json: the arguments are JSON,
 * and the format is known but for further calls. */
static bool find_pairs(tool_style *t, const prompt_maker *p, const char *before, bool json) {
    bytes one = {0}, both = {0};
    const char *first = render(p, with_two, before, &one);
    const char *two = render(p, two_calls, before, &both);
    size_t n = first ? turn_end(p, before, first) : 0;
    if (!json) tool_style_free(t);
    bool good = first && (json ? read_wrapped(t, first, two, n) : read_pairs(t, first, two, n));
    if (good)
        t->format = (call_format){
            .open = t->pairs.open, .close = t->pairs.close, .pairs = &t->pairs};
    bytes_free(&one);
    bytes_free(&both);
    return good;
}

/* Whether nothing but blanks stands between two calls that are objects. */
static bool has_further(const prompt_maker *p, const char *before) {
    bytes both = {0};
    const char *text = render(p, two_calls, before, &both);
    const char *at = text ? strstr(text, SECOND_VALUE "}") : NULL;
    if (at) at += strlen(SECOND_VALUE "}");
    if (at) at += strspn(at, " \n\t\r");
    bool further = at && *at == '}';
    if (further) further = at[1 + strspn(at + 1, " \n\t\r")] == '{';
    bytes_free(&both);
    return further;
}

/* The form, as far as the template tells it. before: the prompt, which may lack the tools. */
static bool find_form(tool_style *t, const prompt_maker *p, const char *before) {
    bytes with = {0};
    const char *text = render(p, answer, before, &with);
    bool good = false;
    if (text && strstr(before, PROBE_NAME)) {
        with.data[with.used - 1 - turn_end(p, before, text)] = 0;
        good = read_form(t, text);
        if (good) set_format(t);
        if (!good || !t->format.name_key)
            good |= find_pairs(t, p, before, good);
        else
            t->format.further = *t->format.close && has_further(p, before);
    }
    bytes_free(&with);
    return good;
}

pi_status tool_style_find(tool_style *t, const prompt_maker *p, pi_error *err) {
    bytes before = {0};
    *t = (tool_style){.described = false};
    if (!p->chat) return PI_OK;
    bool good = prompt_render(p, question, sizeof question - 1, &before, NULL) == PI_OK &&
                bytes_append(&before, "", 1) && find_form(t, p, before.data);
    bytes_free(&before);
    return good ? PI_OK : describe(t, err);
}

void tool_style_free(tool_style *t) {
    bytes_free(&t->open);
    bytes_free(&t->close);
    bytes_free(&t->name_end);
    bytes_free(&t->name_key);
    bytes_free(&t->args_key);
    for (int i = 0; i < t->n_marks; i++) bytes_free(&t->marks[i]);
    *t = (tool_style){.described = false};
}
