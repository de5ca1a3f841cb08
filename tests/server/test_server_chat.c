/* test_server_chat.c: chats in the three APIs that support them: forms of answers and of
 * streams. */
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

static void test_answer(void **state) {
    (void)state;
    static const char *const paths[] = {"/v1/chat/completions", "/v1/chat/completions/",
                                        "//v1//chat/completions", "/chat/completions"};
    for (int i = 0; i < 4; i++) {
        http_reply r = http_post(&c, paths[i], "{" HELLO ",\"max_completion_tokens\":5}");
        assert_int_equal(r.status, 200);
        assert_string_equal(http_text(&r, "object"), "chat.completion");
        assert_string_equal(http_text(&r, "model"), "novella");
        assert_string_equal(http_text(&r, "choices.0.message.role"), "assistant");
        assert_string_equal(http_text(&r, "choices.0.finish_reason"), "length");
        assert_int_equal(http_int(&r, "usage.completion_tokens"), 5);
        http_free(&r);
    }
}

/* Roles, parts and nulls that clients send. */
static void test_messages(void **state) {
    (void)state;
    http_reply r = http_post(
        &c, "/apply-template",
        "{\"messages\":[{\"role\":\"developer\",\"content\":\"Be brief.\"},"
        "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
        "{\"type\":\"text\",\"text\":\"b\"}]},{\"role\":\"assistant\",\"content\":null},"
        "{\"role\":\"user\",\"content\":\"\\u00e4\"}]}");
    assert_string_equal(http_text(&r, "prompt"),
                        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nab<|im_end|>\n"
                        "<|im_start|>assistant\n<|im_end|>\n<|im_start|>user\n\xc3\xa4<|im_end|>\n"
                        "<|im_start|>assistant\n");
    http_free(&r);
    static const char *const wrong[] = {
        "{}",
        "{\"messages\":[]}",
        "{\"messages\":{}}",
        "{\"messages\":[3]}",
        "{\"messages\":[{\"content\":\"a\"}]}",
        "{\"messages\":[{\"role\":3,\"content\":\"a\"}]}",
        "{\"messages\":[{\"role\":\"user\",\"content\":3}]}",
        "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]}",
        "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]}",
        "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":{}}]}",
        "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{}]}]}",
        "{" HELLO ",\"tools\":{}}",
        "{" HELLO ",\"tools\":[{}]}",
        "{" HELLO ",\"tools\":[{\"type\":\"x\",\"function\":{\"name\":\"f\"}}]}",
        "{" HELLO ",\"tool_choice\":\"required\"}",
        "{" HELLO ",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"f\"}}}",
        "{" HELLO ",\"top_logprobs\":3}",
        "{" HELLO ",\"logprobs\":3}",
        "{" HELLO ",\"stream\":\"yes\"}",
        "{" HELLO ",\"stream_options\":3}",
        "{" HELLO ",\"n\":0}",
        "{" HELLO ",\"n\":1000000}",
        "{" HELLO ",\"stop\":3}",
        "{" HELLO ",\"stop\":[3]}",
        "{" HELLO ",\"logit_bias\":3}",
        "{" HELLO ",\"logit_bias\":{\"x\":1}}",
        "{" HELLO ",\"logit_bias\":{\"99999999\":1}}",
        "{" HELLO ",\"samplers\":[\"nope\"]}",
        "{\"messages\":[{\"role\":\"user\"}]}",
        "{\"messages\":[{\"role\":\"assistant\"}]}",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a\",\"name\":3}]}",
        "{" HELLO ",\"documents\":{}}",
        "{" HELLO ",\"chat_template_kwargs\":\"x\"}",
        "{" HELLO ",\"enable_thinking\":\"yes\"}",
        "{" HELLO ",\"add_generation_prompt\":3}",
        "{" HELLO ",\"reasoning_format\":\"x\"}",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        http_refused(&c, "/v1/chat/completions", wrong[i], 400);
}

/* Every number field with absurd values. */
static void test_numbers(void **state) {
    (void)state;
    static const char *const names[] = {"max_tokens",
                                        "max_completion_tokens",
                                        "n",
                                        "top_logprobs",
                                        "top_k",
                                        "top_p",
                                        "min_p",
                                        "typical_p",
                                        "repeat_penalty",
                                        "repeat_last_n",
                                        "dynatemp_range",
                                        "xtc_probability",
                                        "dry_multiplier",
                                        "dry_base",
                                        "dry_allowed_length",
                                        "dry_penalty_last_n",
                                        "mirostat",
                                        "mirostat_tau",
                                        "mirostat_eta"};
    static const char *const values[] = {"-1e300", "-3.5", "\"1\"", "[]", "true", "-99999999999"};
    char body[256];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        for (size_t k = 0; k < sizeof values / sizeof *values; k++) {
            snprintf(body, sizeof body, "{" HELLO ",\"%s\":%s}", names[i], values[k]);
            http_refused(&c, "/v1/chat/completions", body, 400);
        }
    }
    http_refused(&c, "/v1/chat/completions", "{" HELLO ",\"temperature\":1e300}", 400);
    http_refused(&c, "/v1/chat/completions", "{" HELLO ",\"max_tokens\":1e300}", 400);
    http_refused(&c, "/v1/chat/completions", "{" HELLO ",\"seed\":1.5}", 400);
    http_refused(&c, "/v1/chat/completions", "{" HELLO ",\"presence_penalty\":1e300}", 400);
}

/* Returns the choice of an event, and whether it is the last event of the choice. */
static int64_t index_of(http_reply *r, size_t i) {
    json_doc *doc;
    int64_t index = -1;
    json_as_int(event_json(r, i, "choices.0.index", &doc), &index);
    json_free(doc);
    return index;
}

static void test_stream(void **state) {
    (void)state;
    http_reply whole = http_post(&c, "/v1/chat/completions", "{" HELLO ",\"max_tokens\":9}");
    http_reply r = http_post(&c, "/v1/chat/completions",
                             "{" HELLO ",\"max_tokens\":9,\"stream\":true,\"n\":2,"
                             "\"stream_options\":{\"include_usage\":true}}");
    int ends[2] = {0, 0}, n_empty = 0;
    size_t n = 0;
    while (http_event(&r, n)) n++;
    assert_non_null(strcasestr(r.headers, "text/event-stream"));
    assert_string_equal(http_event(&r, n - 1), "[DONE]");
    for (size_t i = 0; i + 1 < n; i++) {
        json_doc *doc;
        const char *reason = NULL;
        size_t length;
        json_as_string(event_json(&r, i, "choices.0.finish_reason", &doc), &reason, &length);
        bool empty = json_count(json_get(json_root(doc), "choices")) == 0;
        n_empty += empty;
        assert_true(empty == (i == n - 2)); /* the usage chunk alone, at the end */
        assert_true(empty == (json_kind_of(json_get(json_root(doc), "usage")) == JSON_OBJECT));
        if (reason) {
            assert_string_equal(reason, "length");
            ends[index_of(&r, i)]++;
        }
        json_free(doc);
    }
    assert_int_equal(n_empty, 1);
    assert_true(ends[0] == 1 && ends[1] == 1);
    for (int i = 0; i < 2; i++) {
        char *text = http_joined(&r, "choices.0.delta.content", i);
        assert_string_equal(text, http_text(&whole, "choices.0.message.content"));
        free(text);
    }
    http_free(&r);
    http_free(&whole);
    r = http_post(&c, "/v1/chat/completions", "{" HELLO ",\"max_tokens\":3,\"stream\":true}");
    assert_null(strstr(r.body, "usage"));
    assert_null(strstr(r.body, "\"choices\":[]"));
    http_free(&r);
}

static void test_chat_logprobs(void **state) {
    (void)state;
    http_reply r = http_post(&c, "/v1/chat/completions",
                             "{" HELLO ",\"max_tokens\":6,\"logprobs\":true,\"top_logprobs\":3}");
    assert_int_equal(json_count(http_json(&r, "choices.0.logprobs.content")), 6);
    assert_int_equal(json_count(http_json(&r, "choices.0.logprobs.content.5.top_logprobs")), 3);
    assert_string_equal(http_text(&r, "choices.0.logprobs.content.0.token"),
                        http_text(&r, "choices.0.logprobs.content.0.top_logprobs.0.token"));
    http_free(&r);
    r = http_post(&c, "/v1/chat/completions",
                  "{" HELLO ",\"max_tokens\":6,\"logprobs\":true,\"stream\":true}");
    size_t n = 0;
    for (size_t i = 0; http_event(&r, i); i++) {
        json_doc *doc;
        n += json_count(event_json(&r, i, "choices.0.logprobs.content", &doc));
        json_free(doc);
    }
    assert_int_equal(n, 6);
    http_free(&r);
}

static void test_anthropic(void **state) {
    (void)state;
    static const char body[] = "{\"model\":\"x\",\"max_tokens\":9,\"system\":\"Be brief.\"," HELLO
                               "}";
    static const char stream[] =
        "{\"model\":\"x\",\"max_tokens\":9,\"system\":[{\"type\":\"text\",\"text\":\"Be brief.\"}],"
        "\"stream\":true," HELLO "}";
    static const char *const order[] = {"message_start", "content_block_start"};
    http_reply whole = http_post(&c, "/v1/messages", body);
    assert_string_equal(http_text(&whole, "type"), "message");
    assert_string_equal(http_text(&whole, "stop_reason"), "max_tokens");
    assert_int_equal(http_int(&whole, "usage.output_tokens"), 9);
    http_reply r = http_post(&c, "/v1/messages", stream);
    for (size_t i = 0; i < 2; i++) {
        json_doc *doc;
        const char *type = NULL;
        size_t n;
        json_as_string(event_json(&r, i, "type", &doc), &type, &n);
        assert_string_equal(type, order[i]);
        json_free(doc);
    }
    char *text = http_joined(&r, "delta.text", 0);
    assert_string_equal(text, http_text(&whole, "content.0.text"));
    free(text);
    assert_non_null(strstr(r.body, "event: message_stop\n"));
    assert_null(strstr(r.body, "[DONE]"));
    http_free(&r);
    http_free(&whole);
    r = http_post(&c, "/v1/messages", "{\"max_tokens\":20,\"stop_sequences\":[\"e\"]," HELLO "}");
    assert_string_equal(http_text(&r, "stop_reason"), "stop_sequence");
    assert_string_equal(http_text(&r, "stop_sequence"), "e");
    http_free(&r);
    r = http_post(&c, "/v1/messages/count_tokens", body);
    whole = http_post(&c, "/v1/messages", body);
    assert_int_equal(http_int(&r, "input_tokens"),
                     http_int(&whole, "usage.input_tokens") +
                         http_int(&whole, "usage.cache_read_input_tokens"));
    http_free(&whole);
    http_free(&r);
    http_refused(&c, "/v1/messages/count_tokens", "{\"messages\":3}", 400);
    http_refused(&c, "/v1/messages", "{\"messages\":[{\"role\":\"system\",\"content\":\"x\"}]}",
                 400);
    http_refused(&c, "/v1/messages", "{\"messages\":3}", 400);
    http_refused(
        &c, "/v1/messages",
        "{" HELLO ",\"tools\":[{\"type\":\"web_search_20250305\",\"name\":\"web_search\"}]}", 400);
    http_refused(&c, "/v1/chat/completions", "{" HELLO ",\"functions\":[{\"name\":\"f\"}]}", 400);
    http_refused(&c, "/v1/messages", "{\"messages\":[{\"role\":\"user\"}]}", 400);
    http_refused(&c, "/v1/messages", "{" HELLO ",\"thinking\":3}", 400);
    http_refused(&c, "/v1/messages", "{" HELLO ",\"thinking\":{\"type\":\"x\"}}", 400);
    http_refused(&c, "/v1/messages", "{" HELLO ",\"tool_choice\":{\"type\":\"x\"}}", 400);
}

static void test_responses(void **state) {
    (void)state;
    http_reply whole = http_post(&c, "/v1/responses",
                                 "{\"input\":\"Hello there\",\"max_output_tokens\":9}");
    assert_string_equal(http_text(&whole, "status"), "incomplete");
    assert_string_equal(http_text(&whole, "incomplete_details.reason"), "max_output_tokens");
    http_reply chat = http_post(&c, "/v1/chat/completions", "{" HELLO ",\"max_tokens\":9}");
    assert_string_equal(http_text(&whole, "output.0.content.0.text"),
                        http_text(&chat, "choices.0.message.content"));
    http_reply r = http_post(
        &c, "/v1/responses",
        "{\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_text\","
        "\"text\":\"Hello there\"}]}],\"max_output_tokens\":9,\"stream\":true}");
    for (size_t i = 0; http_event(&r, i); i++) { /* events are numbered without gaps */
        json_doc *doc;
        int64_t number = -1;
        json_as_int(event_json(&r, i, "sequence_number", &doc), &number);
        assert_int_equal(number, i);
        json_free(doc);
    }
    char *text = http_joined(&r, "delta", 0);
    assert_string_equal(text, http_text(&chat, "choices.0.message.content"));
    free(text);
    http_free(&r);
    http_free(&chat);
    http_free(&whole);
    http_refused(&c, "/v1/responses", "{\"input\":3}", 400);
    http_refused(&c, "/v1/responses", "{\"input\":[{\"role\":\"user\"}]}", 400);
    http_refused(&c, "/v1/responses", "{\"input\":\"a\",\"text\":3}", 400);
    http_refused(&c, "/v1/responses", "{\"input\":\"a\",\"reasoning\":3}", 400);
    http_refused(&c, "/v1/responses", "{\"input\":\"a\",\"previous_response_id\":\"r\"}", 400);
}

/* A call that max_tokens truncates is returned as a call with its arguments so far, not as
 * content. */
/* Sanitizers and emulators take every third place. */
#ifdef TEST_SAMPLED
enum { CUT_STEP = 27 };
#else
enum { CUT_STEP = 9 };
#endif

static void check_cut_calls(void) {
    int n_parts = 0;
    for (int n = 1; n < 200; n += CUT_STEP) { /* tokens may be bytes */
        char body[1024];
        json_doc *doc = NULL;
        snprintf(body, sizeof body,
                 "{" HELLO "," WEATHER ",\"temperature\":1,\"seed\":3,\"tool_choice\":"
                 "\"required\",\"parallel_tool_calls\":false,\"max_tokens\":%d}",
                 n);
        http_reply r = http_post(&c, "/v1/chat/completions", body);
        assert_int_equal(r.status, 200);
        const bool cut = strcmp(http_text(&r, "choices.0.finish_reason"), "length") == 0;
        const json_node *content = http_json(&r, "choices.0.message.content");
        const char *text = "";
        size_t length = 0;
        assert_true(json_kind_of(content) == JSON_NULL || json_as_string(content, &text, &length));
        assert_int_equal(length, 0);
        if (cut && http_json(&r, "choices.0.message.tool_calls.0")) {
            assert_string_equal(http_text(&r, "choices.0.message.tool_calls.0.function.name"),
                                "weather");
            text = http_text(&r, "choices.0.message.tool_calls.0.function.arguments");
            n_parts += *text == '{' &&
                       json_parse(text, strlen(text), "arguments", &doc, NULL) != PI_OK;
        }
        json_free(doc);
        http_free(&r);
        if (!cut) break;
    }
    assert_true(n_parts > 0);
}

static void test_tools(void **state) {
    (void)state;
    static const char whole[] = "{" HELLO "," WEATHER ",\"temperature\":1,\"seed\":3,"
                                "\"tool_choice\":\"required\",\"parallel_tool_calls\":false}";
    static const char stream[] = "{" HELLO "," WEATHER
                                 ",\"temperature\":1,\"seed\":3,\"stream\":true,\"tool_choice\":{"
                                 "\"type\":\"function\",\"function\":{\"name\":\"weather\"}}}";
    http_reply r = http_post(&c, "/v1/chat/completions", whole);
    assert_int_equal(r.status, 200);
    assert_string_equal(http_text(&r, "choices.0.finish_reason"), "tool_calls");
    assert_int_equal(json_kind_of(http_json(&r, "choices.0.message.content")), JSON_NULL);
    assert_int_equal(json_count(http_json(&r, "choices.0.message.tool_calls")), 1);
    assert_string_equal(http_text(&r, "choices.0.message.tool_calls.0.function.name"), "weather");
    case_check_weather(http_text(&r, "choices.0.message.tool_calls.0.function.arguments"));
    http_free(&r);
    r = http_post(&c, "/v1/chat/completions", stream);
    int n_ids = 0, n_calls = 0;
    for (size_t i = 0; http_event(&r, i); i++) { /* every piece of a call has its index */
        json_doc *doc;
        int64_t index = -1;
        const json_node *call = event_json(&r, i, "choices.0.delta.tool_calls.0", &doc);
        n_calls += call != NULL;
        if (call) assert_true(json_as_int(json_get(call, "index"), &index) && index == 0);
        n_ids += json_kind_of(json_get(call, "id")) == JSON_STRING;
        json_free(doc);
    }
    /* arguments arrive in parts, while they are written; a busy server joins tokens */
    assert_true(n_calls > 2 && n_ids == 1);
    char *text = http_joined(&r, "choices.0.delta.tool_calls.0.function.arguments", 0);
    case_check_weather(text);
    free(text);
    text = http_joined(&r, "choices.0.finish_reason", 0);
    assert_string_equal(text, "tool_calls");
    free(text);
    http_free(&r);
    check_cut_calls();
    /* A conversation continues after a call. */
    r = http_post(&c, "/apply-template",
                  "{" WEATHER ",\"messages\":[{\"role\":\"assistant\",\"content\":null,"
                  "\"tool_calls\":[{\"id\":\"a\",\"type\":\"function\",\"function\":{\"name\":"
                  "\"weather\",\"arguments\":\"{\\\"city\\\":\\\"Rome\\\"}\"}}]},"
                  "{\"role\":\"tool\",\"tool_call_id\":\"a\",\"content\":\"sunny\"}]}");
    const char *prompt = http_text(&r, "prompt");
    assert_non_null(strstr(prompt, "\"name\":\"weather\",\"arguments\":{\"city\":\"Rome\"}"));
    assert_non_null(strstr(prompt, "<tool_response>\nsunny\n</tool_response>"));
    http_free(&r);
}

static void test_tools_of_others(void **state) {
    (void)state;
    http_reply r = http_post(
        &c, "/v1/messages",
        "{" HELLO
        ",\"max_tokens\":200,\"temperature\":1,\"seed\":3,\"tool_choice\":{\"type\":\"tool\","
        "\"name\":\"f\"},\"tools\":[{\"name\":\"f\",\"input_schema\":{\"type\":\"object\","
        "\"properties\":{\"a\":{\"const\":\"b\"}},\"required\":[\"a\"],"
        "\"additionalProperties\":false}}]}");
    assert_string_equal(http_text(&r, "stop_reason"), "tool_use");
    assert_string_equal(http_text(&r, "content.0.type"), "tool_use");
    assert_string_equal(http_text(&r, "content.0.input.a"), "b");
    http_free(&r);
    r = http_post(&c, "/v1/responses",
                  "{\"input\":\"x\",\"tool_choice\":\"required\",\"parallel_tool_calls\":false,"
                  "\"tools\":[{\"type\":\"function\","
                  "\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":{\"a\":{"
                  "\"const\":\"b\"}},\"required\":[\"a\"],\"additionalProperties\":false}}]}");
    assert_string_equal(http_text(&r, "output.0.type"), "function_call");
    assert_string_equal(http_text(&r, "output.0.arguments"), "{\"a\":\"b\"}");
    bool parallel = true; /* the default */
    assert_true(json_as_bool(http_json(&r, "parallel_tool_calls"), &parallel) && !parallel);
    http_free(&r);
}

static void test_forms(void **state) {
    (void)state;
    static const char schema[] =
        "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"boolean\"}},\"required\":[\"a\"],"
        "\"additionalProperties\":false}";
    static const char *const fields[] = {
        "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":%s}}",
        "\"response_format\":{\"type\":\"json_object\",\"schema\":%s}", "\"json_schema\":%s"};
    char body[1024], field[512];
    for (int i = 0; i < 3; i++) {
        json_doc *doc;
        bool truth;
        snprintf(field, sizeof field, fields[i], schema);
        snprintf(body, sizeof body, "{" HELLO ",\"temperature\":1,\"seed\":1,%s}", field);
        http_reply r = http_post(&c, "/v1/chat/completions", body);
        const char *text = http_text(&r, "choices.0.message.content");
        assert_int_equal(json_parse(text, strlen(text), "content", &doc, NULL), PI_OK);
        assert_int_equal(json_count(json_root(doc)), 1);
        assert_true(json_as_bool(json_get(json_root(doc), "a"), &truth));
        assert_string_equal(http_text(&r, "choices.0.finish_reason"), "stop");
        json_free(doc);
        http_free(&r);
    }
    http_reply r = http_post(&c, "/completion",
                             "{\"prompt\":\"x\",\"grammar\":\"root ::= \\\"no\\\" \\\"pe\\\"\"}");
    assert_string_equal(http_text(&r, "content"), "nope");
    http_free(&r);
    static const char *const wrong[] = {
        "{" HELLO ",\"grammar\":\"root ::= (\"}",
        "{" HELLO ",\"grammar\":\"root ::= root\"}",
        "{" HELLO ",\"grammar\":3}",
        "{" HELLO ",\"json_schema\":\"x\"}",
        "{" HELLO ",\"json_schema\":{\"type\":\"nope\"}}",
        "{" HELLO ",\"response_format\":3}",
        "{" HELLO ",\"response_format\":{}}",
        "{" HELLO ",\"response_format\":{\"type\":3}}",
        "{" HELLO ",\"response_format\":{\"type\":\"xml\"}}",
        "{" HELLO ",\"response_format\":{\"type\":\"json_schema\"}}",
        "{" HELLO ",\"json_schema\":{},\"grammar\":\"root ::= \\\"a\\\"\"}",
        "{" HELLO "," WEATHER ",\"grammar\":\"root ::= \\\"a\\\"\"}",
        "{" HELLO "," WEATHER ",\"tool_choice\":{\"type\":\"allowed_tools\"}}",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        http_refused(&c, "/v1/chat/completions", wrong[i], 400);
    /* With tools, an answer has the requested form or consists of calls; required calls are
     * calls. */
    for (int i = 0; i < 8; i++) {
        snprintf(body, sizeof body,
                 "{" HELLO "," WEATHER ",\"temperature\":1,\"seed\":%d,\"max_tokens\":200,%s"
                 "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":%s}}}",
                 i, i % 2 ? "\"tool_choice\":\"required\",\"parallel_tool_calls\":false," : "",
                 schema);
        http_reply answer = http_post(&c, "/v1/chat/completions", body);
        assert_int_equal(answer.status, 200);
        const char *content = NULL;
        size_t n_content = 0;
        if (json_as_string(http_json(&answer, "choices.0.message.content"), &content, &n_content)) {
            assert_int_equal(i % 2, 0);
            json_doc *doc;
            bool truth;
            assert_int_equal(json_parse(content, n_content, "content", &doc, NULL), PI_OK);
            assert_true(json_as_bool(json_get(json_root(doc), "a"), &truth));
            json_free(doc);
        } else {
            case_check_weather(
                http_text(&answer, "choices.0.message.tool_calls.0.function.arguments"));
        }
        http_free(&answer);
    }
    size_t n = 60000;
    char *brackets = malloc(n + 256);
    size_t at = (size_t)snprintf(brackets, 256, "{" HELLO ",\"grammar\":\"root ::= ");
    memset(brackets + at, '(', n);
    snprintf(brackets + at + n, 8, "\"}");
    http_refused(&c, "/v1/chat/completions", brackets, 400);
    free(brackets);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answer),          cmocka_unit_test(test_messages),
        cmocka_unit_test(test_numbers),         cmocka_unit_test(test_stream),
        cmocka_unit_test(test_chat_logprobs),   cmocka_unit_test(test_anthropic),
        cmocka_unit_test(test_responses),       cmocka_unit_test(test_tools),
        cmocka_unit_test(test_tools_of_others), cmocka_unit_test(test_forms),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
