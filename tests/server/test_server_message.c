/* test_server_message.c: the parts of a text, however it is divided into pieces; and the form of
 * tool calls that templates show. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "message.h"
#include "powerinfer_chat.h"
#include "server_case.h"
#include "tool_style.h"

static const call_format hermes = {.open = "<tool_call>",
                                   .name_key = "name",
                                   .args_key = "arguments",
                                   .id_key = "",
                                   .close = "</tool_call>"};
static const call_pairs named_marks = {.open = "<function=",
                                       .begin = "",
                                       .name_end = {">", ">"},
                                       .key_begin = "",
                                       .key_end = {"", ""},
                                       .value_end = "",
                                       .close = "</function>",
                                       .again = "",
                                       .end = ""};
static const call_format named = {
    .open = "<function=", .close = "</function>", .pairs = &named_marks};
static const call_pairs harmony_marks = {
    .open = " to=functions.",
    .begin = "",
    .name_end = {"<|channel|>commentary json<|message|>", " <|constrain|>json<|message|>"},
    .key_begin = "",
    .key_end = {"", ""},
    .value_end = "",
    .close = "<|call|>",
    .again = "",
    .end = ""};
static const call_format harmony = {
    .open = " to=functions.", .close = "<|call|>", .pairs = &harmony_marks};
static const call_format listed = {.open = "[TOOL_CALLS]",
                                   .name_key = "name",
                                   .args_key = "arguments",
                                   .id_key = "id",
                                   .list = true,
                                   .close = ""};
static const call_format whole = {
    .open = "", .name_key = "name", .args_key = "parameters", .id_key = "", .close = ""};

typedef struct example {
    const call_format *format; /* NULL: no tools */
    const char *prompt, *text;
    const char *reasoning, *content;
    const char *calls; /* "name(arguments)name(arguments)" */
} example;

static const example examples[] = {
    {NULL, "", "Hello.", "", "Hello.", ""},
    {NULL, "", "<think>\nhm\n</think>\n\nHello.", "hm", "Hello.", ""},
    {NULL, "", " \n<think>hm</think>Hello <think>x", "hm", "Hello <think>x", ""},
    {NULL, "<|im_start|>assistant\n<think>\n", "hm\nha\n</think>Hello.", "hm\nha", "Hello.", ""},
    {NULL, "", "<think>never ends", "never ends", "", ""},
    {NULL, "", "<thin air", "", "<thin air", ""},
    {NULL, "", "a < b </think>", "", "a < b </think>", ""},
    {NULL, "",
     "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Hello",
     "hm", "Hello", ""},
    /* Messages with headers. */
    {NULL, "<|start|>assistant", "<|channel|>final<|message|>Hello", "", "Hello", ""},
    {NULL, "<|start|>assistant",
     "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary<|message|>I "
     "look.<|end|><|start|>assistant<|channel|>final<|message|>Hello",
     "hm", "I look.\n\nHello", ""},
    {&harmony, "<|start|>assistant",
     "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary "
     "to=functions.f <|constrain|>json<|message|>{\"x\": 1}<|call|>",
     "hm", "", "f({\"x\":1})"},
    {&harmony, "<|start|>assistant",
     "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant to=functions.f<|channel|>"
     "commentary json<|message|>{}",
     "", "I look.", "f({})"},
    {&harmony, "<|start|>assistant", "No header at all", "", "No header at all", ""},
    {&harmony, "<|start|>assistant", /* only blanks before a mark */
     "<|channel|>commentary<|message|> \n<|end|><|start|>assistant<|channel|>final<|message|>Hello",
     "", "Hello", ""},
    {&harmony, "<|start|>assistant",
     "<|channel|>commentary<|message|>I look. <|end|><|start|>assistant to=functions.f<|channel|>"
     "commentary json<|message|>{}",
     "", "I look. ", "f({})"},
    {&hermes, "", "Hello <tool_cal", "", "Hello <tool_cal", ""},
    {&hermes, "",
     "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": [1, \"}\"]}}\n</tool_call>", "", "",
     "f({\"x\":[1,\"}\"]})"},
    {&hermes, "",
     "<think>hm</think>\nWell:\n\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n"
     "<tool_call>{\"name\":\"g\",\"arguments\":{\"a\":1}}</tool_call>\n",
     "hm", "Well:", "f({})g({\"a\":1})"},
    {&hermes, "", "<tool_call>no call</tool_call>", "", "<tool_call>no call</tool_call>", ""},
    {&hermes, "", "<tool_call>{\"name\": \"f\", \"arg", "", "<tool_call>{\"name\": \"f\", \"arg",
     ""},
    {&hermes, "", "a <b> c", "", "a <b> c", ""},
    {&named, "", "<function=f>{\"x\": 1}</function>", "", "", "f({\"x\":1})"},
    {&listed, "",
     "[TOOL_CALLS] [{\"name\":\"f\",\"arguments\":{}},{\"name\":\"g\",\"arguments\":{}}]", "", "",
     "f({})g({})"},
    {&whole, "", "{\"name\": \"f\", \"parameters\": {\"x\": \"\\\"{\"}}", "", "",
     "f({\"x\":\"\\\"{\"})"},
    {&whole, "", "{\"other\": 1}", "", "{\"other\": 1}", ""},
    {&whole, "", "no {\"name\": 1}", "", "no {\"name\": 1}", ""},
    /* Several calls within one pair of marks. */
    {&hermes, "",
     "<tool_call>\n{\"name\":\"f\",\"arguments\":{}}\n{\"name\":\"g\",\"arguments\":{}}\n"
     "</tool_call> Done.",
     "", " Done.", "f({})g({})"},
    {&hermes, "", "<tool_call>{\"name\":\"f\",\"arguments\":{}} and {\"name\":\"g\"}", "",
     " and {\"name\":\"g\"}", "f({})"},
    {&hermes, "", "<tool_call>{\"name\":\"f\",\"arguments\":{}} {\"no\": 1} </tool_call>", "",
     " {\"no\": 1} </tool_call>", "f({})"},
};
enum { N_EXAMPLES = sizeof examples / sizeof *examples };

/* Texts that end at a limit keep the beginning of the last call. */
static const example cut_short[] = {
    {&hermes, "", "Hello", "", "Hello", ""},
    {&hermes, "", "Hello <tool_ca", "", "Hello ", ""},
    {&hermes, "", "Well: <tool_call>{\"name\": \"f", "", "Well:", ""},
    {&hermes, "", "<tool_call>{\"name\" : \"f\"", "", "", "f()"},
    {&hermes, "", "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"name\": [\"}\", \"", "", "",
     "f({\"name\": [\"}\", \")"},
    {&hermes, "", "<tool_call>{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\n", "", "",
     "f({})"},
    {&hermes, "",
     "<tool_call>{\"name\":\"f\",\"arguments\":{}}\n{\"name\":\"g\",\"arguments\":{\"a\":1}", "",
     "", "f({})g({\"a\":1})"},
    {&hermes, "", "<tool_call>{\"name\":\"f\",\"arguments\":{}}\n{\"na", "", "", "f({})"},
    {&hermes, "", "<tool_call>{\"name\":\"f\",\"arguments\":{}}\n</tool", "", "", "f({})"},
    {&hermes, "", "<tool_call>no call", "", "<tool_call>no call", ""},
    {&named, "", "<function=f>{\"x\": 1", "", "", "f({\"x\": 1)"},
    {&named, "", "<function=f>", "", "", "f()"},
    {&named, "", "<function=f", "", "", ""},
    {&listed, "",
     "[TOOL_CALLS][{\"name\":\"f\",\"arguments\":{}}, {\"name\":\"g\",\"arguments\":{\"a", "", "",
     "f({})g({\"a)"},
    {&listed, "", "[TOOL_CALLS][{\"name\":\"f\",\"arguments\":{}}, {\"na", "", "", "f({})"},
    {&whole, "", "{\"name\": \"f\", \"parameters\": {\"x", "", "", "f({\"x)"},
    {&whole, "", "{\"name\": \"Kim\", \"age\": 3", "", "{\"name\": \"Kim\", \"age\": 3", ""},
};
enum { N_CUT_SHORT = sizeof cut_short / sizeof *cut_short };

static void check_bytes(const example *e, size_t cut, const bytes *got, const char *want) {
    if (got->used != strlen(want) || memcmp(got->used ? got->data : "", want, got->used) != 0)
        fail_msg("\"%s\" in pieces of %zu: \"%.*s\", not \"%s\"", e->text, cut, (int)got->used,
                 got->used ? got->data : "", want);
}

static void check(const example *e, size_t cut, bool limited) {
    model_text m = {.splits_reasoning = true, .format = e->format, .cut = limited};
    bytes calls = {0};
    size_t n = strlen(e->text);
    message_begin(&m, e->prompt, strlen(e->prompt));
    for (size_t at = 0; at < n; at += cut)
        message_feed(&m, e->text + at, n - at < cut ? n - at : cut, at + cut >= n);
    assert_false(m.failed);
    check_bytes(e, cut, &m.reasoning, e->reasoning);
    check_bytes(e, cut, &m.content, e->content);
    for (int i = 0; i < m.n_calls; i++) {
        assert_memory_equal(m.calls[i].id, "call_", 5);
        for (int k = 0; k < i; k++) assert_string_not_equal(m.calls[i].id, m.calls[k].id);
        bytes_append(&calls, m.calls[i].name.data, m.calls[i].name.used);
        bytes_append_text(&calls, "(");
        bytes_append(&calls, m.calls[i].arguments.data, m.calls[i].arguments.used);
        bytes_append_text(&calls, ")");
    }
    check_bytes(e, cut, &calls, e->calls);
    bytes_free(&calls);
    message_free(&m);
}

static void test_pieces(void **state) {
    (void)state;
    for (int i = 0; i < N_EXAMPLES; i++)
        for (size_t cut = 1; cut <= strlen(examples[i].text); cut++)
            check(&examples[i], cut, false);
    for (int i = 0; i < N_CUT_SHORT; i++)
        for (size_t cut = 1; cut <= strlen(cut_short[i].text); cut++)
            check(&cut_short[i], cut, true);
}

/* Without reasoning and tools, a text is content at once, byte for byte. */
static void test_plain(void **state) {
    (void)state;
    model_text m = {.splits_reasoning = false};
    message_begin(&m, "", 0);
    message_feed(&m, "<think>", 7, false);
    assert_int_equal(m.content.used, 7);
    message_free(&m);
}

/* Arguments grow byte by byte, without blanks between values; calls follow each other, and the last
 * one is truncated. */
static void test_growth(void **state) {
    static const call_format format = {.open = "<tool_call>",
                                       .name_key = "name",
                                       .args_key = "arguments",
                                       .id_key = "",
                                       .close = "</tool_call>"};
    static const char text[] =
        "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, {\"b\": \"x } \\\" { y\"}]}}\n"
        "</tool_call>\n<tool_call>{\"arguments\":{\"q\":1},\"name\":\"g\"}</tool_call>"
        "<tool_call>{\"name\":\"h\",\"arguments\":{\"c\": \"cu";
    static const char first[] = "{\"a\":[1,{\"b\":\"x } \\\" { y\"}]}";
    (void)state;
    for (int cut = 0; cut < 2; cut++) {
        model_text m = {.format = &format, .grows_calls = true, .cut = cut};
        size_t grown = 0, n_grown = 0;
        message_begin(&m, "", 0);
        for (size_t i = 0; i < strlen(text); i++) {
            message_feed(&m, text + i, 1, i + 1 == strlen(text));
            if (m.n_calls != 1) continue;
            const bytes *a = &m.calls[0].arguments;
            assert_true(a->used >= grown);
            if (a->used) assert_memory_equal(a->data, first, a->used);
            n_grown += a->used > grown;
            grown = a->used;
            if (grown < strlen(first)) assert_true(m.growing);
        }
        assert_int_equal(n_grown, strlen(first));
        assert_int_equal(m.n_calls, 3);
        assert_false(m.growing);
        assert_int_equal(m.calls[1].arguments.used, strlen("{\"q\":1}")); /* complete at once */
        assert_int_equal(m.calls[1].name.data[0], 'g');
        assert_int_equal(m.calls[2].name.data[0], 'h');
        assert_int_equal(m.calls[2].arguments.used, strlen("{\"c\":\"cu"));
        assert_int_equal(m.content.used, 0);
        message_free(&m);
    }
}

/* ---- templates ------------------------------------------------------------------------------- */

static void find_style(const char *source, tool_style *t) {
    const pi_chat_template_options o = {.source = source, .n_source = strlen(source)};
    prompt_maker p;
    pi_error err;
    if (prompt_maker_create(&p, case_model, &o, &err) != PI_OK) fail_msg("%s", err.message);
    assert_int_equal(tool_style_find(t, &p, &err), PI_OK);
    prompt_maker_free(&p);
}

#define TOOLS "{% if tools %}{{ tools | tojson }}{% endif %}"
#define ASK   "{% if add_generation_prompt %}<|a|>{% endif %}"

static void test_styles(void **state) {
    (void)state;
    tool_style t;
    find_style(TOOLS
               "{% for m in messages %}<|{{ m.role[0] }}|>{{ m.content }}"
               "{% for c in m.tool_calls %}<tool_call>\n{\"name\": \"{{ c.function.name }}\", "
               "\"arguments\": {{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}"
               "<|e|>{% endfor %}" ASK,
               &t);
    assert_false(t.described);
    assert_string_equal(t.format.open, "<tool_call>");
    assert_string_equal(t.format.name_key, "name");
    assert_string_equal(t.format.args_key, "arguments");
    assert_string_equal(t.format.close, "</tool_call>");
    assert_false(t.format.list);
    tool_style_free(&t);
    find_style(TOOLS "{% for m in messages %}<|{{ m.role[0] }}|>{{ m.content }}"
                     "{% for c in m.tool_calls %}<function={{ c.function.name }}>"
                     "{{ c.function.arguments | tojson }}</function>{% endfor %}<|e|>"
                     "{% endfor %}" ASK,
               &t);
    assert_string_equal(t.format.open, "<function=");
    assert_string_equal(t.format.pairs->name_end[0], ">");
    assert_string_equal(t.format.pairs->key_begin, "");
    assert_string_equal(t.format.pairs->close, "</function>");
    tool_style_free(&t);
    find_style(TOOLS "{% for m in messages %}<|{{ m.role[0] }}|>{{ m.content }}"
                     "{% if m.tool_calls %}[TOOL_CALLS] [{% for c in m.tool_calls %}"
                     "{\"name\": \"{{ c.function.name }}\", \"arguments\": "
                     "{{ c.function.arguments | tojson }}, \"id\": \"{{ c.id }}\"}{% endfor %}]"
                     "{% endif %}<|e|>{% endfor %}" ASK,
               &t);
    assert_string_equal(t.format.open, "[TOOL_CALLS]");
    assert_string_equal(t.format.close, ""); /* the end of the turn is not part of the call */
    assert_true(t.format.list);
    assert_false(t.format.further);
    tool_style_free(&t);
    find_style("{% for m in messages %}<|{{ m.role[0] }}|>{{ m.content }}{% endfor %}", &t);
    assert_true(t.described);
    tool_style_free(&t);
    /* Marks that number the calls. */
    find_style(TOOLS
               "{% for m in messages %}<|{{ m.role[0] }}|>{{ m.content }}"
               "{% for c in m.tool_calls %}<call name=\"{{ c.function.name }}\" "
               "n=\"{{ loop.index }}\">{% for k, v in c.function.arguments | items %}"
               "<arg={{ k }}>{{ v }}</arg>{% endfor %}</call>{% endfor %}<|e|>{% endfor %}" ASK,
               &t);
    assert_false(t.described);
    assert_string_equal(t.format.pairs->name_end[0], "\" n=\"" CALL_WORD "\">");
    tool_style_free(&t);
    /* Arguments without marks around them. */
    find_style(TOOLS "{% for m in messages %}<|{{ m.role[0] }}|>{{ m.content }}"
                     "{% for c in m.tool_calls %}<tool_call><function={{ c.function.name }}>"
                     "{% for k, v in c.function.arguments | items %}{{ k }} {{ v }} "
                     "{% endfor %}</function></tool_call>{% endfor %}<|e|>"
                     "{% endfor %}" ASK,
               &t);
    assert_true(t.described);
    assert_string_equal(t.format.open, "<tool_call>");
    assert_string_equal(t.format.name_key, "name");
    tool_style_free(&t);
}

#define HERMES_CALLS                                                                               \
    "{% for c in m.tool_calls %}<tool_call>\n{\"name\": \"{{ c.function.name }}\", "               \
    "\"arguments\": {{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}<|e|>"

/* Templates whose prompts open reasoning, or write empty reasoning; reasoning is not part of the
 * call. */
static void test_styles_with_reasoning(void **state) {
    static const char *const begins[][2] = {/* after a question; before an answer */
                                            {"", "<think>\n\n</think>\n\n"},
                                            {"<think>\n", ""},
                                            {"<think>\n", "<think>\n\n</think>\n\n"},
                                            {"<think>\n\n</think>\n\n", ""},
                                            {"<think>", "</think>"}};
    (void)state;
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) {
        char source[1024];
        tool_style t;
        snprintf(source, sizeof source, "%s%s%s%s%s",
                 TOOLS "{% for m in messages %}<|{{ m.role[0] }}|>{% if m.tool_calls %}",
                 begins[i][1],
                 "{% endif %}{{ m.content }}" HERMES_CALLS "{% endfor %}"
                 "{% if add_generation_prompt %}<|a|>",
                 begins[i][0], "{% endif %}");
        find_style(source, &t);
        assert_false(t.described);
        assert_string_equal(t.format.open, "<tool_call>");
        assert_string_equal(t.format.close, "</tool_call>");
        tool_style_free(&t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_styles_with_reasoning),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_growth),
        cmocka_unit_test(test_styles),
    };
    return cmocka_run_group_tests(tests, case_open_model, case_close_model);
}
