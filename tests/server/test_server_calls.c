/* test_server_calls.c: forms of calls. The parser reads the text that a template writes for random
 * calls, at once and byte by byte, and must return the same names and arguments. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "answer_form.h"
#include "message.h"
#include "powerinfer_chat.h"
#include "rng.h"
#include "server_case.h"
#include "tool_style.h"

#define BEFORE                                                                                     \
    "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}<|{{ m.role[0] }}|>"      \
    "{{ m.content or '' }}"
#define AFTER "<|e|>{% endfor %}{% if add_generation_prompt %}<|a|>{% endif %}"
#define CALLS "{% for c in m.tool_calls %}"
#define PAIRS "{% for k, v in c.function.arguments | items %}"
#define VALUE "{{ v if v is string else v | tojson }}"
#define END   "{% endfor %}"

#define LISTED "{% if not loop.last %}, {% endif %}"
#define BARE                                                                                       \
    "{% macro bare(v) %}{% if v is string %}<|\"|>{{ v }}<|\"|>{% elif v is mapping %}{{ '{' }}"   \
    "{% for k, x in v | dictsort %}{% if not loop.first %},{% endif %}{{ k }}:{{ bare(x) }}"       \
    "{% endfor %}}{% elif v is iterable %}[{% for x in v %}{% if not loop.first %},{% endif %}"    \
    "{{ bare(x) }}{% endfor %}]{% else %}{{ v | tojson }}{% endif %}{% endmacro %}"
#define TREE                                                                                       \
    "{% macro tree(k, v) %}]<]x[>[<{{ k }}>{% if v is mapping %}{% for n, i in v.items() %}"       \
    "{{ tree(n, i) }}{% endfor %}{% elif v is iterable and v is not string %}{% for i in v %}"     \
    "{{ tree('item', i) }}{% endfor %}{% else %}{{ v if v is string else v | tojson }}{% endif %}" \
    "]<]x[>[</{{ k }}>{% endmacro %}"
#define TREES                                                                                      \
    TREE BEFORE "{% if m.tool_calls %}]<]x[>[<tool_call>\n" CALLS                                  \
                "]<]x[>[<invoke name=\"{{ c.function.name }}\">" PAIRS "{{ tree(k, v) }}" END      \
                "]<]x[>[</invoke>\n" END "]<]x[>[</tool_call>{% endif %}" AFTER
typedef struct family {
    const char *source, *open;
    const char *again; /* NULL: calls are objects that follow each other */
    unsigned how;
} family;

enum {
    WHOLE = 1, /* the whole text is calls */
    FREE = 2,  /* the grammar of required calls allows other strings */
    HAS_IDS = 4,
    SINGLE = 8 /* one call per answer */
};

static const family families[] = {
    {BEFORE CALLS "\n<tool_call>\n<function={{ c.function.name }}>\n" PAIRS
                  "<parameter={{ k }}>\n" VALUE "\n</parameter>\n" END
                  "</function>\n</tool_call>" END AFTER,
     "<tool_call>", "", 0},
    {BEFORE CALLS "\n<tool_call>{{ c.function.name }}\n" PAIRS
                  "<arg_key>{{ k }}</arg_key>\n<arg_value>" VALUE "</arg_value>\n" END
                  "</tool_call>" END AFTER,
     "<tool_call>", "", 0},
    {BEFORE CALLS "<tool_call>{{ c.function.name }}" PAIRS
                  "<arg_key>{{ k }}</arg_key><arg_value>" VALUE "</arg_value>" END
                  "</tool_call>" END AFTER,
     "<tool_call>", "", 0},
    {BEFORE CALLS "<seed:tool_call>\n<function={{ c.function.name }}>\n" PAIRS
                  "<parameter={{ k }}>" VALUE "</parameter>\n" END
                  "</function>\n</seed:tool_call>" END AFTER,
     "<seed:tool_call>", "", 0},
    {BEFORE "{% if m.tool_calls %}\n<mm:tool_call>\n" CALLS
            "<invoke name=\"{{ c.function.name }}\">\n" PAIRS "<parameter name=\"{{ k }}\">" VALUE
            "</parameter>\n" END "</invoke>\n" END "</mm:tool_call>{% endif %}" AFTER,
     "<mm:tool_call>", "<invoke name=\"", 0},
    {BEFORE
     "{% if m.tool_calls %}\n<|calls>\n" CALLS "<|invoke name=\"{{ c.function.name }}\">\n" PAIRS
     "<|parameter name=\"{{ k }}\" string=\"{{ 'true' if v is string else 'false' }}\">" VALUE
     "</|parameter>\n" END "</|invoke>\n" END "</|calls>{% endif %}" AFTER,
     "<|calls>", "<|invoke name=\"", 0},
    {BEFORE "{% if m.tool_calls %}<|calls|>" CALLS "<|call|>{{ c.function.name }}<|sep|>"
            "{{ c.function.arguments | tojson }}<|done|>" END "<|over|>{% endif %}" AFTER,
     "<|calls|>", "<|call|>", 0},
    {BEFORE "{% if m.tool_calls %}<|calls|>" CALLS "<|call|>function<|sep|>{{ c.function.name }}\n"
            "```json\n{{ c.function.arguments | tojson }}\n```<|done|>\n" END
            "<|over|>{% endif %}" AFTER,
     "<|calls|>", "<|call|>function<|sep|>", 0},
    {BEFORE "{% if m.tool_calls %}<tool_calls>\n" CALLS "{\"name\": \"{{ c.function.name }}\", "
            "\"arguments\": {{ c.function.arguments | tojson }}}\n" END
            "</tool_calls>{% endif %}" AFTER,
     "<tool_calls>", NULL, 0},
    /* Python's literals. */
    {BEFORE "{% if m.tool_calls %}[" CALLS "{{ c.function.name }}({% for k, v in "
            "c.function.arguments | items %}{{ k }}={{ '%r' | format(v) }}" LISTED
            "{% endfor %})" LISTED END "]{% endif %}" AFTER,
     "", ",", WHOLE | FREE},
    {BEFORE "{% if m.tool_calls %}<|call_start|>[" CALLS "{{ c.function.name }}({% for k, v in "
            "c.function.arguments | items %}{{ k }}={{ v | tojson }}" LISTED
            "{% endfor %})" LISTED END "]<|call_end|>{% endif %}" AFTER,
     "<|call_start|>", ",", 0},
    {BEFORE "{% if m.tool_calls %}<calls>" CALLS "{{ c.function.name }}({% for k, v in "
            "c.function.arguments | items %}{{ k }}={{ v | tojson }}" LISTED
            "{% endfor %}){% if not loop.last %}{{ '\\n' }}{% endif %}" END
            "</calls>{% endif %}" AFTER,
     "<calls>", "\n", 0},
    /* Strings between marks, keys without quotes, sorted. */
    {BARE BEFORE CALLS
     "<|tool_call>call:{{ c.function.name }}{{ bare(c.function.arguments) }}<tool_call|>" END AFTER,
     "<|tool_call>", "", 0},
    /* Nested elements. */
    {TREES, "]<]x[>[<tool_call>", "]<]x[>[<invoke name=\"", FREE},
    /* Each call has an id. */
    {BEFORE "{% if m.tool_calls %}<|calls|>" CALLS "<|call|>{{ c.id }}<|args|>"
            "{{ c.function.arguments | tojson }}<|done|>" END "<|over|>{% endif %}" AFTER,
     "<|calls|>", "<|call|>functions.", HAS_IDS},
    {BEFORE CALLS "[TOOL_CALLS]{{ c.function.name }}[CALL_ID]{{ c.id }}[ARGS]"
                  "{{ c.function.arguments | tojson }}" END AFTER,
     "[TOOL_CALLS]", "", HAS_IDS},
    {BEFORE "{% if m.tool_calls %}<|open|>tools<|sep|>" CALLS
            "<|open|>call tool=\"{{ c.function.name }}\" index=\"{{ loop.index }}\"<|sep|>" PAIRS
            "<|open|>argument key=\"{{ k }}\" type=\"{% if v is string %}string"
            "{% elif v is boolean %}boolean{% elif v is number %}number{% elif v is none %}null"
            "{% else %}object{% endif %}\"<|sep|>" VALUE "<|close|>argument<|sep|>" END
            "<|close|>call<|sep|>" END "<|close|>tools<|sep|>{% endif %}" AFTER,
     "<|open|>", "<|open|>call tool=\"", 0},
    /* JSON: the name is the key; an id stands before it or after the arguments. */
    {BEFORE "{% if m.tool_calls %}<|tools|>[" CALLS
            "{\"{{ c.function.name }}\": {{ c.function.arguments | tojson }}}" LISTED END
            "]<|over|>{% endif %}" AFTER,
     "<|tools|>", NULL, 0},
    {BEFORE
     "{% if m.tool_calls %}<|action|>[\n" CALLS
     "    {\"tool_call_id\": \"{{ loop.index0 }}\", \"tool_name\": \"{{ c.function.name }}\", "
     "\"parameters\": {{ c.function.arguments | tojson }}}" LISTED "\n" END
     "]<|over|>{% endif %}" AFTER,
     "<|action|>", NULL, 0},
    {BEFORE "{% if m.tool_calls %}[TOOL_CALLS][" CALLS
            "{\"name\": \"{{ c.function.name }}\", \"arguments\": "
            "{{ c.function.arguments | tojson }}, \"id\": \"{{ c.id }}\"}" LISTED END
            "]{% endif %}" AFTER,
     "[TOOL_CALLS]", NULL, 0},
    /* Arguments as a text, null as content. */
    {BEFORE "{% if m.tool_calls and m.content is none %}{% for c in m.tool_calls %}"
            "<call>{{ c.function.name + '<sep>' + c.function.arguments }}</call>{% endfor %}"
            "{% endif %}" AFTER,
     "<call>", "", 0},
    /* One call per answer. */
    {BEFORE "{% if m.tool_calls %}<call>{{ m.tool_calls[0].function.name }}:"
            "{{ m.tool_calls[0].function.arguments | tojson }}</call>{% endif %}" AFTER,
     "<call>", "", SINGLE},
};
enum { PYTHON = 9, BARE_WORDS = 12 /* rows of the table */ };
enum { N_FAMILIES = sizeof families / sizeof *families };

static const char tools[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\","
    "\"$defs\":{\"text\":{\"type\":\"string\"}},\"properties\":{\"s\":{\"type\":\"string\"},"
    "\"r\":{\"$ref\":\"#/$defs/text\"},\"e\":{\"enum\":[\"7\",\"x\"]},"
    "\"i\":{\"type\":\"integer\"},\"b\":{\"type\":\"boolean\"},\"o\":{\"type\":\"object\"},"
    "\"a\":{\"type\":\"array\"},\"m\":{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"null\"}]}"
    "}}}},{\"type\":\"function\",\"function\":{\"name\":\"get-it_2\",\"parameters\":{}}}]";

static const char *random_text(rng *r, char text[64]) {
    static const char letters[] = "a1 \n\t<>/\"'\\{}[]:,.=";
    size_t n = rng_u64(r) % 20;
    if (rng_u64(r) % 8 == 0) return "\xc3\xa9 <tool_call> 3";
    if (rng_u64(r) % 8 == 0) return "null";
    for (size_t i = 0; i < n; i++) text[i] = letters[rng_u64(r) % (sizeof letters - 1)];
    text[n] = 0;
    return text;
}

/* Writes the arguments of f, each with a probability of one half. */
static void put_arguments(const tool_style *t, json_writer *w, rng *r) {
    char text[64];
    uint64_t has = rng_u64(r);
    json_put_object(w, "arguments");
    if (has & 1) json_put_text(w, "s", random_text(r, text));
    if (has & 2) json_put_text(w, "r", random_text(r, text));
    if (has & 4) json_put_text(w, "e", has & 8 ? "7" : "x");
    if (has & 16) json_put_int(w, "i", (int64_t)(rng_u64(r) % 2000) - 1000);
    if (has & 32) json_put_bool(w, "b", has & 64);
    if (has & 128) {
        json_put_object(w, "o");
        json_put_text(w, t->pairs.sorted || t->pairs.elements ? "key" : random_text(r, text), "v");
        json_end_object(w);
    }
    if (has & 256) {
        json_put_array(w, "a");
        json_put_text(w, NULL, t->pairs.elements ? "a <b" : random_text(r, text)); /* no null */
        json_put_int(w, NULL, 5);
        json_end_array(w);
    }
    if (has & 512) json_put_text(w, "m", NULL);
    json_end_object(w);
}

/* Writes a conversation in the server's form: a question, and an answer with calls. */
static void write_request(const tool_style *t, bytes *out, const bytes *calls) {
    const char *begin = "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}";
    bytes body = {0};
    json_doc *doc = NULL;
    chat_tools list;
    pi_error err;
    assert_true(bytes_append_text(&body, begin));
    if (calls) {
        assert_true(bytes_append_text(&body, ",{\"role\":\"assistant\",\"tool_calls\":"));
        assert_true(bytes_append(&body, calls->data, calls->used));
        assert_true(bytes_append_text(&body, "}"));
    }
    assert_true(bytes_append_text(&body, calls ? "],\"add_generation_prompt\":false,\"tools\":"
                                               : "],\"tools\":"));
    assert_true(bytes_append_text(&body, tools));
    assert_true(bytes_append_text(&body, "}"));
    assert_int_equal(json_parse(body.data, body.used, "body", &doc, NULL), PI_OK);
    assert_int_equal(chat_read_tools(json_root(doc), &list, &err), PI_OK);
    assert_int_equal(chat_write_request(json_root(doc), &list, t, NULL, NULL, out, &err), PI_OK);
    json_free(doc);
    bytes_free(&body);
}

static void write_calls(const tool_style *t, rng *r, bytes *calls, int n) {
    bytes_json j;
    assert_true(bytes_json_begin(&j, calls));
    json_put_array(&j.writer, NULL);
    for (int i = 0; i < n; i++) {
        char id[32];
        bool other = rng_u64(r) % 4 == 0;
        snprintf(id, sizeof id, t->named_ids ? "functions.%s:%d" : "abcdeFG%.0s%02d",
                 other ? "get-it_2" : "f", i);
        json_put_object(&j.writer, NULL);
        json_put_text(&j.writer, "id", id);
        json_put_text(&j.writer, "type", "function");
        json_put_object(&j.writer, "function");
        json_put_text(&j.writer, "name", other ? "get-it_2" : "f");
        if (other) {
            json_put_object(&j.writer, "arguments");
            json_end_object(&j.writer);
        } else {
            put_arguments(t, &j.writer, r);
        }
        json_end_object(&j.writer);
        json_end_object(&j.writer);
    }
    json_end_array(&j.writer);
    assert_true(bytes_json_end(&j));
}

/* Whether two values are equal; the order of keys does not matter. */
static bool same_value(const json_node *a, const json_node *b) {
    void *member = NULL;
    const char *key = NULL, *s = NULL, *t = NULL;
    const json_node *value = NULL;
    size_t n = 0, m = 0;
    double x = 0, y = 0;
    bool p = false, q = false, same = json_count(a) == json_count(b);
    if (json_as_double(a, &x)) return json_as_double(b, &y) && x == y;
    if (json_kind_of(a) != json_kind_of(b)) return false;
    if (json_as_string(a, &s, &n))
        return json_as_string(b, &t, &m) && n == m && memcmp(s, t, n) == 0;
    if (json_as_bool(a, &p)) return json_as_bool(b, &q) && p == q;
    for (size_t i = 0; json_kind_of(a) == JSON_ARRAY && same && i < json_count(a); i++)
        same = same_value(json_at(a, i), json_at(b, i));
    while (json_kind_of(a) == JSON_OBJECT && same && json_next(a, &member, &key, &value))
        same = json_get(b, key) && same_value(value, json_get(b, key));
    return same;
}

static void check_text(const family *f, const tool_style *t, const bytes *text,
                       const json_node *calls, size_t piece) {
    static const char said[] = "Well:\n";
    json_doc *doc = NULL;
    size_t n_said = f->how & WHOLE ? 0 : 5;
    model_text m = {.splits_reasoning = true, .format = &t->format};
    assert_int_equal(json_parse(tools, sizeof tools - 1, "tools", &doc, NULL), PI_OK);
    m.tools = json_root(doc);
    message_begin(&m, "", 0);
    message_feed(&m, said, f->how & WHOLE ? 0 : sizeof said - 1, false);
    for (size_t at = 0; at < text->used; at += piece)
        message_feed(&m, text->data + at, text->used - at < piece ? text->used - at : piece, false);
    message_feed(&m, "", 0, true);
    assert_false(m.failed);
    if ((size_t)m.n_calls != json_count(calls) || m.content.used != n_said)
        fail_msg("%s: %d of %zu calls in \"%.*s\"; content \"%.*s\"", f->open, m.n_calls,
                 json_count(calls), (int)text->used, text->data, (int)m.content.used,
                 m.content.data);
    for (int i = 0; i < m.n_calls; i++) {
        const json_node *function = json_get(json_at(calls, (size_t)i), "function");
        const char *name = NULL;
        size_t n = 0;
        bytes want = {0};
        bytes_json j;
        assert_true(json_as_string(json_get(function, "name"), &name, &n));
        assert_int_equal(m.calls[i].name.used, n);
        assert_memory_equal(m.calls[i].name.data, name, n);
        assert_true(bytes_json_begin(&j, &want));
        bytes_json_put(&j.writer, NULL, json_get(function, "arguments"));
        assert_true(bytes_json_end(&j));
        json_doc *got = NULL;
        if (json_parse(m.calls[i].arguments.data, m.calls[i].arguments.used, "", &got, NULL) !=
                PI_OK ||
            !same_value(json_get(function, "arguments"), json_root(got)) ||
            (!t->pairs.sorted && (want.used != m.calls[i].arguments.used ||
                                  memcmp(want.data, m.calls[i].arguments.data, want.used) != 0)))
            fail_msg("%s: \"%.*s\" is read as %.*s", f->open, (int)text->used, text->data,
                     (int)m.calls[i].arguments.used, m.calls[i].arguments.data);
        bytes_free(&want);
        json_free(got);
        const char *id = NULL;
        json_as_string(json_get(json_at(calls, (size_t)i), "id"), &id, &n);
        if (f->how & HAS_IDS) assert_string_equal(m.calls[i].id, id);
        if (!(f->how & HAS_IDS))
            assert_int_equal(strlen(m.calls[i].id), t->format.short_ids ? 9 : 29);
    }
    message_free(&m);
    json_free(doc);
}

/* Checks whether the grammar of required calls accepts a text without the blanks around it. */
static void check_grammar(pi_grammar *g, const char *text, size_t n, bool expected) {
    bool begins = false, complete = false;
    pi_error err;
    while (n > 0 && strchr(" \n", *text)) text++, n--;
    while (n > 0 && strchr(" \n", text[n - 1])) n--;
    if (pi_grammar_match(g, text, n, &begins, &complete, &err) != PI_OK)
        fail_msg("%s", err.message);
    if (complete != expected)
        fail_msg("the grammar %s \"%.*s\"", expected ? "refuses" : "takes", (int)n, text);
}

static pi_grammar *make_grammar(const tool_style *t, grammar_cache *cache) {
    static const char body[] = "{}";
    json_doc *doc = NULL, *own = NULL;
    pi_grammar *g = NULL;
    pi_error err;
    assert_int_equal(json_parse(body, 2, "body", &doc, NULL), PI_OK);
    assert_int_equal(json_parse(tools, sizeof tools - 1, "tools", &own, NULL), PI_OK);
    const chat_tools wanted = {.choice = TOOLS_REQUIRED, .list = json_root(own), .parallel = true};
    const answer_form form = {.model = case_model,
                              .grammars = cache,
                              .body = json_root(doc),
                              .tools = &wanted,
                              .format = &t->format};
    if (answer_form_create(&form, &g, &err) != PI_OK) fail_msg("%s", err.message);
    json_free(doc);
    json_free(own);
    return g;
}

static void check_random(const family *f, const prompt_maker *p, const tool_style *t, pi_grammar *g,
                         rng *r) {
    bytes calls = {0}, ask = {0}, told = {0}, before = {0}, with = {0};
    json_doc *doc = NULL;
    write_calls(t, r, &calls, f->how & SINGLE ? 1 : 1 + (int)(rng_u64(r) % 3));
    write_request(t, &ask, NULL);
    write_request(t, &told, &calls);
    assert_int_equal(prompt_render(p, ask.data, ask.used, &before, NULL), PI_OK);
    assert_int_equal(prompt_render(p, told.data, told.used, &with, NULL), PI_OK);
    assert_memory_equal(before.data, with.data, before.used);
    bytes_remove_front(&with, before.used);
    with.used -= strlen("<|e|>");
    assert_int_equal(json_parse(calls.data, calls.used, "calls", &doc, NULL), PI_OK);
    check_text(f, t, &with, json_root(doc), with.used);
    check_text(f, t, &with, json_root(doc), 1);
    if (!(f->how & FREE)) check_grammar(g, with.data, with.used, true);
    if (!(f->how & FREE)) check_grammar(g, with.data, with.used - 3, false);
    json_free(doc);
    bytes_free(&calls);
    bytes_free(&ask);
    bytes_free(&told);
    bytes_free(&before);
    bytes_free(&with);
}

static void find_style(const char *source, prompt_maker *p, tool_style *t) {
    const pi_chat_template_options o = {.source = source, .n_source = strlen(source)};
    pi_error err;
    if (prompt_maker_create(p, case_model, &o, &err) != PI_OK) fail_msg("%s", err.message);
    assert_int_equal(tool_style_find(t, p, &err), PI_OK);
}

static void test_round_trip(void **state) {
    rng r;
    (void)state;
    rng_seed(&r, 5);
    for (int i = 0; i < N_FAMILIES; i++) {
        prompt_maker p;
        tool_style t;
        find_style(families[i].source, &p, &t);
        if (t.described) fail_msg("%d: %s is not recognised", i, families[i].open);
        assert_string_equal(t.format.open, families[i].open);
        if (families[i].again)
            assert_string_equal(t.format.pairs->again, families[i].again);
        else
            assert_true(!t.format.pairs && (t.format.further || t.format.list));
        assert_true(t.format.single == !!(families[i].how & SINGLE));
        grammar_cache cache;
        grammar_cache_init(&cache);
        pi_grammar *g = make_grammar(&t, &cache);
        for (int k = 0; k < 200; k++) check_random(&families[i], &p, &t, g, &r);
        pi_grammar_free(g);
        grammar_cache_free(&cache);
        tool_style_free(&t);
        prompt_maker_free(&p);
    }
}

#define X "]<]x[>["
#define TREE_CALL(arguments)                                                                       \
    X "<tool_call>\n" X "<invoke name=\"g\">" arguments X "</invoke>\n" X "</tool_call>"

/* The schemas determine how elements are read, and the grammar accepts the elements that the
 * schemas allow. */
static void test_elements(void **state) {
    static const char body[] =
        "{\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"g\",\"parameters\":{\"type\":"
        "\"object\",\"$defs\":{\"point\":{\"type\":\"object\",\"properties\":{\"x\":{\"type\":"
        "\"number\"},"
        "\"name\":{\"type\":\"string\"}},\"required\":[\"x\"]}},\"properties\":{\"p\":{\"$ref\":"
        "\"#/$defs/point\"},\"l\":{\"type\":\"array\",\"maxItems\":2,\"items\":{\"$ref\":"
        "\"#/$defs/point\"}},\"e\":{\"enum\":[\"a\",\"b\"]},\"o\":{\"type\":\"object\"}},"
        "\"required\":[\"p\"]}}}]}";
#define P(x) X "<p>" X "<x>" x X "</x>" X "</p>"
    static const struct {
        const char *text, *arguments; /* NULL: not a call */
        bool allowed;
    } rows[] = {
        {TREE_CALL(P("1.5")), "{\"p\":{\"x\":1.5}}", true},
        {TREE_CALL(X "<p>" X "<x>1" X "</x>" X "<name>7 <]" X "</name>" X "</p>" X "<l>" X
                     "<item>" X "<x>2" X "</x>" X "</item>" X "<item>" X "<x>3" X "</x>" X
                     "</item>" X "</l>" X "<e>b" X "</e>"),
         "{\"p\":{\"x\":1,\"name\":\"7 <]\"},\"l\":[{\"x\":2},{\"x\":3}],\"e\":\"b\"}", true},
        {TREE_CALL(P("1") X "<l>" X "</l>" X "<o>{\"k\": [1]}" X "</o>"),
         "{\"p\":{\"x\":1},\"l\":[],\"o\":{\"k\":[1]}}", true},
        {TREE_CALL(P("1") X "<o>" X "<item>1" X "</item>" X "<k>" X "</k>" X "</o>"),
         "{\"p\":{\"x\":1},\"o\":{\"item\":1,\"k\":\"\"}}", false},
        {TREE_CALL(P("one")), "{\"p\":{\"x\":\"one\"}}", false},
        {TREE_CALL(X "<p>" X "<name>n" X "</name>" X "</p>"), "{\"p\":{\"name\":\"n\"}}", false},
        {TREE_CALL(P("1") X "<e>c" X "</e>"), "{\"p\":{\"x\":1},\"e\":\"c\"}", false},
        {TREE_CALL(X "<p>" X "<x>1" X "</y>" X "</p>"), NULL, false},
        {TREE_CALL(X "<p>text" X "<x>1" X "</x>" X "</p>"), NULL, false},
        {TREE_CALL(X "<o>" X "<k>1" X "</k>" X "<k>2" X "</k>" X "</o>"), NULL, false},
    };
    prompt_maker p;
    tool_style t;
    grammar_cache cache;
    json_doc *doc = NULL;
    chat_tools list;
    pi_grammar *g = NULL;
    pi_error err;
    (void)state;
    find_style(TREES, &p, &t);
    grammar_cache_init(&cache);
    assert_int_equal(json_parse(body, sizeof body - 1, "body", &doc, NULL), PI_OK);
    assert_int_equal(chat_read_tools(json_root(doc), &list, &err), PI_OK);
    list.choice = TOOLS_REQUIRED;
    const answer_form form = {.model = case_model,
                              .grammars = &cache,
                              .body = json_root(doc),
                              .tools = &list,
                              .format = &t.format};
    if (answer_form_create(&form, &g, &err) != PI_OK) fail_msg("%s", err.message);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const size_t n = strlen(rows[i].text);
        check_grammar(g, rows[i].text, n, rows[i].allowed);
        for (size_t cut = 0; cut <= n; cut++) {
            model_text m = {.format = &t.format, .tools = list.list, .cut = cut < n};
            message_begin(&m, "", 0);
            for (size_t k = 0; k < cut; k++) message_feed(&m, rows[i].text + k, 1, false);
            message_feed(&m, "", 0, true);
            const bytes *got = &m.calls[0].arguments;
            if (cut == n && rows[i].arguments) {
                assert_int_equal(m.n_calls, 1);
                assert_int_equal(got->used, strlen(rows[i].arguments));
                assert_memory_equal(got->data, rows[i].arguments, got->used);
            } else if (cut == n) {
                assert_int_equal(m.n_calls, 0);
            } else if (m.n_calls && rows[i].arguments) { /* the prefix of whole pairs */
                assert_true(got->used <= strlen(rows[i].arguments));
                assert_memory_equal(got->data, rows[i].arguments, got->used);
            }
            message_free(&m);
        }
    }
    pi_grammar_free(g);
    json_free(doc);
    grammar_cache_free(&cache);
    tool_style_free(&t);
    prompt_maker_free(&p);
}

/* Calls that the tools' schemas do not allow. */
static void test_refused(void **state) {
    static const char begin[] = "<tool_call>\n<function=f>\n<parameter=";
    static const char *const wrong[] = {
        "i>\nmany\n</parameter>\n</function>\n</tool_call>",
        "e>\n8\n</parameter>\n</function>\n</tool_call>",
        "x>\n8\n</parameter>\n</function>\n</tool_call>",
        "s>\na\n</parameter>\n</parameter>\n</function>\n</tool_call>",
        "b>\ntrue\n</parameter>\n<parameter=i>\n1\n</parameter>\n</function>\n</tool_call>"};
    static const char good[] =
        "s>\n<</paramete</parameters\n</parameter>\n</function>\n</tool_call>";
    (void)state;
    prompt_maker p;
    tool_style t;
    grammar_cache cache;
    char text[256];
    grammar_cache_init(&cache);
    find_style(families[0].source, &p, &t);
    pi_grammar *g = make_grammar(&t, &cache);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        snprintf(text, sizeof text, "%s%s", begin, wrong[i]);
        check_grammar(g, text, strlen(text), false);
    }
    snprintf(text, sizeof text, "%s%s", begin, good);
    check_grammar(g, text, strlen(text), true);
    pi_grammar_free(g);
    grammar_cache_free(&cache);
    tool_style_free(&t);
    prompt_maker_free(&p);
}

typedef struct example {
    int family;
    const char *text, *content, *calls;
} example;

static const example examples[] = {
    /* Python's constants; numbers and strings without a schema; a duplicate key. */
    {0, "<tool_call><function=f><parameter=b>True</parameter></function></tool_call>", "",
     "f({\"b\":true})"},
    {0,
     "<tool_call>\n<function=g>\n<parameter=x>\n1.5\n</parameter>\n<parameter=y>\nz\n</parameter>"
     "\n<parameter=x>2</parameter></function>\n</tool_call>",
     "", "g({\"x\":1.5,\"y\":\"z\"})"},
    {0, "<tool_call>\n<function=f>\n<parameter=i>\nmany\n</parameter>\n</function>\n</tool_call>",
     "", "f({\"i\":\"many\"})"},
    /* The text ends within the last mark. */
    {0, "<tool_call><function=f></function>", "", "f({})"},
    {4, "<mm:tool_call><invoke name=\"f\"></invoke>", "", "f({})"},
    {4, "<mm:tool_call><invoke name=\"f\"></invoke></mm:tool_call> Done.", " Done.", "f({})"},
    /* Not calls. */
    {0, "<tool_call> is a tag", "<tool_call> is a tag", ""},
    {0, "<tool_call><function=f>x</function></tool_call>",
     "<tool_call><function=f>x</function></tool_call>", ""},
    {1, "<tool_call>f<arg_key>s</arg_key>", "<tool_call>f<arg_key>s</arg_key>", ""},
    {4, "<mm:tool_call>", "<mm:tool_call>", ""},
    /* Python's literals, and variants that models write. */
    {PYTHON, "[f(s='it\\'s', i = 3, b=True,), get-it_2()]", "",
     "f({\"s\":\"it's\",\"i\":3,\"b\":true})get-it_2({})"},
    {PYTHON, "[f(s=\"\\u00e9\\x41\\n\\q\", r=12, a=(1, .5, None), o={'k': [{}]})]", "",
     "f({\"s\":\"\xc3\xa9"
     "A\\n\\\\q\",\"r\":\"12\",\"a\":[1,0.5,null],\"o\":{\"k\":[{}]}})"},
    {PYTHON, "[f(s=Rome, i=1, i=2)]", "", "f({\"s\":\"Rome\",\"i\":1})"},
    {PYTHON, "[1] says so.", "[1] says so.", ""},
    {PYTHON, "[f(s='never ends)]", "[f(s='never ends)]", ""},
    {PYTHON, "[f(s=)]", "[f(s=)]", ""},
    {PYTHON, "[f(o={'a': 1, 'a': 2})]", "[f(o={'a': 1, 'a': 2})]", ""},
    {PYTHON + 1, "Yes: <|call_start|>[f(i=1)]<|call_end|> Done.", "Yes: Done.", "f({\"i\":1})"},
    {BARE_WORDS, "<|tool_call>call:f{s:<|\"|>a}\"<|\"|>,i:2,b:false,m:None}<tool_call|>", "",
     "f({\"s\":\"a}\\\"\",\"i\":2,\"b\":false,\"m\":null})"},
    {BARE_WORDS, "<|tool_call>call:f{s:word,o:{k:[1,<|\"|><|\"|>]}}", "",
     "f({\"s\":\"word\",\"o\":{\"k\":[1,\"\"]}})"},
    {BARE_WORDS, "<|tool_call>call:f{s:<|\"|>a}<tool_call|>",
     "<|tool_call>call:f{s:<|\"|>a}<tool_call|>", ""},
};

/* Texts that end at a limit keep the whole pairs of the last call. */
static const example cut_short[] = {
    {0, "<tool_call>\n<function=f>\n<parameter=i>\n1\n</parameter>\n<parameter=s>\nab", "",
     "f({\"i\":1)"},
    {0, "<tool_call><function=f>", "", "f({)"},
    {0, "<tool_call><function=f", "", ""},
    {0, "<tool_call><function=f></functi", "", "f({})"},
    {0, "<tool_call> is a tag", "<tool_call> is a tag", ""},
    {4, "<mm:tool_call><invoke name=\"f\"></invoke><invoke name=\"g", "", "f({})"},
    {6, "<|calls|><|call|>f<|sep|>{\"i\": 1}<|done|><|call|>g<|sep|>{\"x\": [", "",
     "f({\"i\":1})g({\"x\": [)"},
    {PYTHON + 1, "<|call_start|>[f(i=1, s='a", "", "f({\"i\":1)"},
    {PYTHON + 1, "<|call_start|>[f(i=1), get-i", "", "f({\"i\":1})"},
    {PYTHON, "[ge", "[ge", ""},
    {BARE_WORDS, "<|tool_call>call:f{i:1,s:<|\"|>a<|\"|>", "", "f({\"i\":1)"},
};

static void check_example(const example *e, const tool_style *t, size_t piece, bool cut) {
    json_doc *doc = NULL;
    bytes calls = {0};
    size_t n = strlen(e->text);
    assert_int_equal(json_parse(tools, sizeof tools - 1, "tools", &doc, NULL), PI_OK);
    model_text m = {
        .splits_reasoning = true, .format = &t->format, .cut = cut, .tools = json_root(doc)};
    message_begin(&m, "", 0);
    for (size_t at = 0; at < n; at += piece)
        message_feed(&m, e->text + at, n - at < piece ? n - at : piece, at + piece >= n);
    for (int i = 0; i < m.n_calls; i++) {
        bytes_append(&calls, m.calls[i].name.data, m.calls[i].name.used);
        bytes_append_text(&calls, "(");
        bytes_append(&calls, m.calls[i].arguments.data, m.calls[i].arguments.used);
        bytes_append_text(&calls, ")");
    }
    assert_true(bytes_append(&calls, "", 1) && bytes_append(&m.content, "", 1));
    if (strcmp(calls.data, e->calls) != 0 || strcmp(m.content.data, e->content) != 0)
        fail_msg("\"%s\" in pieces of %zu: \"%s\" and calls \"%s\"", e->text, piece, m.content.data,
                 calls.data);
    bytes_free(&calls);
    message_free(&m);
    json_free(doc);
}

static void check_examples(const example *list, size_t n, bool cut) {
    for (size_t i = 0; i < n; i++) {
        prompt_maker p;
        tool_style t;
        find_style(families[list[i].family].source, &p, &t);
        for (size_t piece = 1; piece <= strlen(list[i].text); piece++)
            check_example(&list[i], &t, piece, cut);
        tool_style_free(&t);
        prompt_maker_free(&p);
    }
}

static void test_examples(void **state) {
    (void)state;
    check_examples(examples, sizeof examples / sizeof *examples, false);
    check_examples(cut_short, sizeof cut_short / sizeof *cut_short, true);
}

/* Text that never ends or is nested too deeply is parsed as text or as a call, in linear time. */
static void test_hostile(void **state) {
    static const char *const begins[] = {"[f(o=", "<|tool_call>call:f{o:"};
    static const int of[] = {PYTHON, BARE_WORDS};
    static const char fill[] = "[{(\"'";
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        prompt_maker p;
        tool_style t;
        find_style(families[of[i]].source, &p, &t);
        for (size_t k = 0; k < sizeof fill - 1; k++) {
            model_text m = {.splits_reasoning = true, .format = &t.format};
            size_t n = 100000;
            message_begin(&m, "", 0);
            message_feed(&m, begins[i], strlen(begins[i]), false);
            for (size_t at = 0; at < n; at++) message_feed(&m, &fill[k], 1, false);
            message_feed(&m, ")]}", 3, true);
            assert_int_equal(m.n_calls, 0);
            assert_int_equal(m.content.used, strlen(begins[i]) + n + 3);
            message_free(&m);
        }
        tool_style_free(&t);
        prompt_maker_free(&p);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_examples),
        cmocka_unit_test(test_elements),   cmocka_unit_test(test_refused),
        cmocka_unit_test(test_hostile),
    };
    return cmocka_run_group_tests(tests, case_open_model, case_close_model);
}
