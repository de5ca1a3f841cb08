/* test_server_templates.c: the input that different chat templates receive for a request: system
 * messages that they refuse, answers that are continued, calls and results in the forms that they
 * expect, bare tools. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server_case.h"

static server_case c;

static int set_up(void **state) {
    (void)state;
    case_open(&c);
    c.options.served.n_ctx = 1024; /* long descriptions of tools */
    case_start(&c);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    case_close(&c);
    return 0;
}

/* A server with another template, until use_template(NULL). */
static void use_template(const char *source) {
    case_stop(&c);
    c.options.served.template_source = source;
    c.options.served.n_template = source ? strlen(source) : 0;
    c.options.served.template_name = source ? NULL : "chatml";
    case_start(&c);
}

static void assert_prompt(const char *request, const char *prompt) {
    http_reply r = http_post(&c, "/apply-template", request);
    assert_int_equal(r.status, 200);
    assert_string_equal(http_text(&r, "prompt"), prompt);
    http_free(&r);
}

/* Arguments that the template writes as marked keys and values become JSON for the client, with the
 * types of the schema; the definitions outlive a request that came in another API's form. */
static void test_tools_in_pairs(void **state) {
    static const char template[] =
        "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}<|{{ m.role }}|>"
        "{{ m.content }}{% for c in m.tool_calls %}\n<tool_call>\n<function={{ c.function.name "
        "}}>\n"
        "{% for k, v in c.function.arguments | items %}<parameter={{ k }}>\n{{ v }}\n</parameter>\n"
        "{% endfor %}</function>\n</tool_call>{% endfor %}<|e|>{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>{% endif %}";
    (void)state;
    use_template(template);
    http_reply r = http_post(&c, "/v1/chat/completions",
                             "{" HELLO "," WEATHER ",\"temperature\":1,\"seed\":3,"
                             "\"tool_choice\":\"required\",\"parallel_tool_calls\":false}");
    assert_int_equal(r.status, 200);
    assert_string_equal(http_text(&r, "choices.0.finish_reason"), "tool_calls");
    assert_string_equal(http_text(&r, "choices.0.message.tool_calls.0.function.name"), "weather");
    case_check_weather(http_text(&r, "choices.0.message.tool_calls.0.function.arguments"));
    http_free(&r);
    r = http_post(
        &c, "/v1/messages",
        "{" HELLO ",\"max_tokens\":200,\"temperature\":1,\"seed\":3,\"tool_choice\":{"
        "\"type\":\"tool\",\"name\":\"f\"},\"tools\":[{\"name\":\"f\",\"input_schema\":{"
        "\"type\":\"object\",\"properties\":{\"x\":{\"const\":\"7\"}},\"required\":[\"x\"]"
        "}}]}");
    assert_int_equal(r.status, 200);
    assert_string_equal(http_text(&r, "content.0.input.x"), "7"); /* the schema allows a string */
    http_free(&r);
    use_template(NULL);
}

#define SYSTEM(text) "{\"role\":\"system\",\"content\":\"" text "\"}"
#define USER(text)   "{\"role\":\"user\",\"content\":\"" text "\"}"

/* Where a template refuses or drops system messages, user messages carry their text. */
static void test_templates_without_system(void **state) {
    static const char *const templates[] = {
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}"
        "<{{ m.role }}>{{ m.content }}{% endfor %}",
        "{% for m in messages %}{% if m.role != 'system' %}<{{ m.role }}>{{ m.content }}{% endif %}"
        "{% endfor %}"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        use_template(templates[i]);
        assert_prompt("{\"messages\":[" SYSTEM("be brief") "," USER("hi") "]}",
                      "<user>be brief\n\nhi");
        assert_prompt(
            "{\"messages\":[" USER("hi") "," SYSTEM("a") "," SYSTEM("b") "," USER("c") "]}",
            "<user>hi<user>a\n\nb\n\nc");
        assert_prompt("{\"messages\":[" USER("hi") "," SYSTEM("last") "]}", "<user>hi<user>last");
        http_reply r = http_post(&c, "/apply-template",
                                 "{\"messages\":[" USER("hi") "]," WEATHER "}");
        const char *prompt = http_text(&r, "prompt");
        assert_memory_equal(prompt, "<user>You can call", strlen("<user>You can call"));
        assert_non_null(strstr(prompt, "\n\nhi"));
        http_free(&r);
    }
    use_template(NULL);
}

/* An answer continues the assistant's last message: the prompt ends with its text. It has
 * everything that the template writes before this text, and nothing that the template writes after
 * it. */
static void test_continued(void **state) {
#define HALF "{\"role\":\"assistant\",\"content\":\"Half a \"}"
    (void)state;
    assert_prompt("{\"messages\":[" USER("hi") "," HALF "]}",
                  "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nHalf a ");
    assert_prompt("{\"messages\":[" USER("hi") "," HALF "],\"add_generation_prompt\":true}",
                  "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nHalf a <|im_end|>\n"
                  "<|im_start|>assistant\n");
    assert_prompt("{\"messages\":[" USER("hi") ",{\"role\":\"assistant\",\"content\":\"\"}]}",
                  "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<|im_end|>\n"
                  "<|im_start|>assistant\n");
    use_template("{% for m in messages %}<{{ m.role }}>{{ '<think></think>' if loop.last and "
                 "m.role == 'assistant' }}{{ m.content | trim }}<e>{% endfor %}"
                 "{% if add_generation_prompt %}<assistant><think>{% endif %}");
    assert_prompt("{\"messages\":[" USER("hi") "," HALF "]}",
                  "<user>hi<e><assistant><think></think>Half a ");
    http_reply r = http_post(&c, "/v1/messages",
                             "{\"max_tokens\":3,\"messages\":[" USER("hi") "," HALF "]}");
    assert_int_equal(r.status, 200);
    assert_string_equal(http_text(&r, "content.0.type"), "text"); /* no reasoning */
    http_free(&r);
    use_template("{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}");
    http_refused(&c, "/v1/chat/completions", "{\"messages\":[" USER("hi") "," HALF "]}", 400);
    use_template(NULL);
}

#define CALLED(arguments)                                                                          \
    "{\"messages\":[" USER(                                                                        \
        "q") ",{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"1\","                             \
             "\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":" arguments         \
             "}}]},{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":\"ok\"}]," WEATHER "}"

/* Truncated arguments become an object for the template, up to their last complete value, also in a
 * text. Others stay unchanged, and the error of a template that refuses them names their place. */
static void test_cut_arguments(void **state) {
#define CALLS_WITH(arguments)                                                                      \
    "{{ tools | tojson if tools and not messages[1] }}{% for m in messages %}<{{ m.role }}>"       \
    "{{ m.content or '' }}{% for c in m.tool_calls %}<call>{\"name\":\"{{ c.function.name }}\","   \
    "\"arguments\":" arguments "}</call>{% endfor %}{% endfor %}"
    static const char *const templates[] = {
        CALLS_WITH(
            "{% for k, v in c.function.arguments.items() %}{{ '{' if loop.first }}\"{{ k }}\""
            ":{{ v | tojson(separators=[',', ':']) }}{{ ',' if not loop.last }}"
            "{{ '}' if loop.last }}{% endfor %}"),
        CALLS_WITH("{{ c.function.arguments | fromjson | tojson(separators=[',', ':']) }}")};
    static const struct {
        const char *request, *shown;
    } rows[] = {
        {CALLED("{\"a\":1}"), "{\"a\":1}"},
        {CALLED("\"{\\\"a\\\":1,\\\"b\\\":23\""), "{\"a\":1}"},
        {CALLED("\"{\\\"a\\\":\\\"x}\\\\\\\"y\\\"\""), "{\"a\":\"x}\\\"y\"}"},
        {CALLED("\"{\\\"a\\\":[1,{\\\"b\\\":[2],\\\"c\\\":\\\"half\""), "{\"a\":[1,{\"b\":[2]}]}"},
        {CALLED("\"{\\\"a\\\":{},\\\"b\""), "{\"a\":{}}"},
    };
    char want[256];
    (void)state;
    for (int i = 0; i < 2; i++) {
        use_template(templates[i]);
        for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
            snprintf(want, sizeof want,
                     "<user>q<assistant><call>{\"name\":\"f\",\"arguments\":%s}</call><tool>ok",
                     rows[k].shown);
            assert_prompt(rows[k].request, want);
        }
        static const char *const wrong[] = {CALLED("\"Paris\""), CALLED("\"{]\""),
                                            CALLED("\"[1]\"")};
        for (int k = 0; k < 3 - i; k++) { /* fromjson accepts an array */
            http_reply r = http_post(&c, "/apply-template", wrong[k]);
            assert_int_equal(r.status, 400);
            assert_non_null(strstr(http_text(&r, "error.message"),
                                   "messages[1]: tool_calls[0]: arguments are not a JSON object"));
            http_free(&r);
        }
    }
    use_template(CALLS_WITH("{{ c.function.arguments | tojson }}"));
    assert_prompt(CALLED("\"Paris\""), "<user>q<assistant><call>{\"name\":\"f\",\"arguments\":"
                                       "\"Paris\"}</call><tool>ok");
    assert_prompt(CALLED("\"\""), "<user>q<assistant><call>{\"name\":\"f\",\"arguments\":{}}"
                                  "</call><tool>ok");
    use_template(NULL);
}

/* Templates that need a description of each tool and parameter get empty ones; other templates get
 * the request's tools. */
static void test_bare_tools(void **state) {
    static const char request[] = "{\"messages\":[" USER(
        "q") "],\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\","
             "\"strict\":true,\"parameters\":{\"properties\":{\"a\":{\"enum\":[1]}},\"required\":[]"
             "}}},"
             "{\"type\":\"function\",\"function\":{\"name\":\"g\"}}]}";
    (void)state;
#define SHOWS_CALLS                                                                                \
    "{% for m in messages %}{{ m.content or '' }}{% for c in m.tool_calls %}<call>{\"name\": \""   \
    "{{ c.function.name }}\", \"arguments\": {{ c.function.arguments | tojson }}}</call>"          \
    "{% endfor %}{% endfor %}"
    use_template("{% for t in tools %}{{ t.function.name + t.function.description }}("
                 "{% for k, v in t.function.parameters.properties.items() %}"
                 "{{ k + ': ' + v.description }}{{ v.enum }}{% endfor %})"
                 "{{ t.function.parameters.type }}{{ t.function.strict }}{% endfor %}" SHOWS_CALLS);
    assert_prompt(request, "f(a: [1])objectTrueg()objectq");
    use_template("{{ tools | tojson }}" SHOWS_CALLS);
    assert_prompt(request,
                  "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"strict\": true, "
                  "\"parameters\": {\"properties\": {\"a\": {\"enum\": [1]}}, \"required\": []}}}, "
                  "{\"type\": \"function\", \"function\": {\"name\": \"g\"}}]q");
    use_template(NULL);
}

/* reasoning_effort is a variable of the template, which chat_template_kwargs overrides. */
static void test_effort(void **state) {
    (void)state;
    use_template("{{ reasoning_effort }},{{ enable_thinking }},{{ x }}");
    assert_prompt("{" HELLO ",\"reasoning_effort\":\"high\"}", "high,,");
    assert_prompt("{" HELLO ",\"reasoning_effort\":\"none\"}", "none,False,");
    assert_prompt("{" HELLO ",\"reasoning_effort\":\"none\",\"enable_thinking\":true}",
                  "none,True,");
    assert_prompt("{" HELLO ",\"reasoning_effort\":\"low\",\"chat_template_kwargs\":{"
                  "\"reasoning_effort\":\"mine\",\"x\":1}}",
                  "mine,,1");
    http_refused(&c, "/apply-template", "{" HELLO ",\"reasoning_effort\":5}", 400);
    use_template(NULL);
}

#define CALL(id, name, arguments)                                                                  \
    "{\"id\":\"" id "\",\"type\":\"function\",\"function\":{\"name\":\"" name                      \
    "\",\"arguments\":\"" arguments "\"}}"
#define RESULT(id, text) "{\"role\":\"tool\",\"tool_call_id\":\"" id "\",\"content\":\"" text "\"}"
#define NEXT_TURN(calls, results)                                                                  \
    "{\"messages\":[" USER(                                                                        \
        "q") ",{\"role\":\"assistant\",\"content\":\"Well\",\"tool_calls\":[" calls "]}," results  \
             "," USER("and") "]," WEATHER "}"

/* Results within the message that calls, by the calls' names (Gemma 4). */
static void test_results_within(void **state) {
    (void)state;
    use_template(
        "{{ tools | tojson if tools and not messages[1] }}{% for m in messages if m.role != "
        "'tool' %}<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls %}<|tool_call>call:"
        "{{ c.function.name }}{{ '{' }}{% for k, v in c.function.arguments | dictsort %}"
        "{{ ',' if not loop.first }}{{ k }}:{% if v is string %}<|\"|>{{ v }}<|\"|>"
        "{% else %}{{ v | tojson }}{% endif %}{% endfor %}{{ '}' }}<tool_call|>{% endfor %}"
        "{% for r in m.tool_responses %}<|tool_response>{{ r.name }}={{ r.response | "
        "tojson }}<tool_response|>{% endfor %}{% endfor %}");
    assert_prompt(
        NEXT_TURN(CALL("1", "f", "{\\\"s\\\":\\\"x\\\"}") "," CALL("2", "g", "{}"),
                  RESULT("2", "{\\\"t\\\":[1]}") "," RESULT("1", "plain")),
        "<user>q<assistant>Well<|tool_call>call:f{s:<|\"|>x<|\"|>}<tool_call|><|tool_call>"
        "call:g{}<tool_call|><|tool_response>g={\"t\": [1]}<tool_response|><|tool_response>"
        "f=\"plain\"<tool_response|><user>and");
    use_template(NULL);
}

/* Calls as part of the content, for templates that show tools but drop calls (Granite 3). */
static void test_written_calls(void **state) {
    (void)state;
    use_template("{% if tools %}Write <|tool_call|> and a list: {{ tools | length }}{% endif %}"
                 "{% for t in tools %}{{ t.function.name }}{% endfor %}{% for m in messages %}"
                 "<{{ m.role }}>{{ m.content }}{% endfor %}");
    assert_prompt(NEXT_TURN(CALL("1", "f", "{\\\"s\\\":[1]}") "," CALL("2", "g", "{"),
                            RESULT("1", "x") "," RESULT("2", "y")),
                  "Write <|tool_call|> and a list: 1weather<user>q<assistant>Well<|tool_call|>"
                  "[{\"name\":\"f\",\"arguments\":{\"s\":[1]}}, {\"name\":\"g\",\"arguments\":{}}]"
                  "<tool>x<tool>y<user>and");
    http_reply r = http_post(&c, "/v1/chat/completions",
                             "{" HELLO "," WEATHER ",\"temperature\":1,\"seed\":3,"
                             "\"tool_choice\":\"required\",\"parallel_tool_calls\":false}");
    case_check_weather(http_text(&r, "choices.0.message.tool_calls.0.function.arguments"));
    http_free(&r);
    use_template(NULL);
}

/* Ids of nine letters and digits, as some templates require: ids of another server are converted, a
 * call's and its result's in the same way. */
static void test_short_ids(void **state) {
    (void)state;
    use_template("{{ tools | tojson if tools and not messages[1] }}{% for m in messages %}"
                 "<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls %}"
                 "{{ raise_exception('nine') if c.id | length != 9 }}[CALLS]{\"name\": \""
                 "{{ c.function.name }}\", \"arguments\": {{ c.function.arguments | tojson }}, "
                 "\"id\": \"{{ c.id }}\"}{% endfor %}{{ m.tool_call_id }}{% endfor %}");
    http_reply r = http_post(
        &c, "/apply-template",
        NEXT_TURN(CALL("call_0123456789", "f", "{}") "," CALL("abcDEF123", "g", "{}"),
                  RESULT("call_0123456789", "x:") "," RESULT("abcDEF123", "y:")));
    if (r.status != 200) fail_msg("%s", r.body);
    const char *prompt = http_text(&r, "prompt"), *id = strstr(prompt, "\"id\": \"");
    char shown[16] = "", result[32];
    assert_non_null(id);
    memcpy(shown, id + 7, 9);
    assert_int_equal(
        strspn(shown, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"), 9);
    snprintf(result, sizeof result, "<tool>x:%s<", shown);
    assert_non_null(strstr(prompt, result));
    assert_non_null(strstr(prompt, "\"id\": \"abcDEF123\"}"));
    assert_non_null(strstr(prompt, "<tool>y:abcDEF123<user>and"));
    http_free(&r);
    use_template(NULL);
}

/* Items of one answer (reasoning, text, calls) become one message of the chat. */
static void test_response_items(void **state) {
    static const char request[] =
        "{\"max_output_tokens\":1,\"reasoning\":{\"effort\":\"low\"},\"input\":["
        "{\"role\":\"user\",\"content\":\"q\"},"
        "{\"type\":\"reasoning\",\"summary\":[],\"content\":[{\"type\":\"reasoning_text\","
        "\"text\":\"hm\"}]},"
        "{\"type\":\"message\",\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\","
        "\"text\":\"so\"}]},"
        "{\"type\":\"function_call\",\"call_id\":\"1\",\"name\":\"f\",\"arguments\":\"{}\"},"
        "{\"type\":\"function_call\",\"call_id\":\"2\",\"name\":\"g\",\"arguments\":\"{}\"},"
        "{\"type\":\"function_call_output\",\"call_id\":\"1\",\"output\":\"x\"},"
        "{\"type\":\"function_call_output\",\"call_id\":\"2\",\"output\":\"y\"}]}";
    (void)state;
    use_template(
        "{% set m = messages[1] %}{{ raise_exception(messages | tojson) if messages[2] and "
        "not (messages | length == 4 and m.role == 'assistant' and m.reasoning_content == "
        "'hm' and m.content[:2] == 'so' and '\"f\"' in m.content and '\"g\"' in m.content "
        "and reasoning_effort == 'low') }}x");
    http_reply r = http_post(&c, "/v1/responses", request);
    if (r.status != 200) fail_msg("%s", r.body);
    http_free(&r);
    use_template(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_response_items),
        cmocka_unit_test(test_tools_in_pairs),
        cmocka_unit_test(test_templates_without_system),
        cmocka_unit_test(test_continued),
        cmocka_unit_test(test_cut_arguments),
        cmocka_unit_test(test_bare_tools),
        cmocka_unit_test(test_effort),
        cmocka_unit_test(test_results_within),
        cmocka_unit_test(test_written_calls),
        cmocka_unit_test(test_short_ids),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
