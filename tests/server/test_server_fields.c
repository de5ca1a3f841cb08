/* test_server_fields.c: fields of requests: the tables of the APIs, fields that are refused by
 * name, widened schemas, echoed prompts, and limits in the words of each API. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "api_fields.h"
#include "file.h"
#include "mem.h"
#include "server_case.h"

static server_case c;

static int set_up(void **state) {
    (void)state;
    case_open_fim(&c);
    c.options.served.n_ctx = 512;
    case_start(&c);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    case_close(&c);
    return 0;
}

/* ---- tables ---------------------------------------------------------------------------------- */

/* docs/api-fields.md has a heading per route, and a row per field in the order of the table. */
static void test_docs(void **state) {
    static const char *const uses[] = {"used", "harmless", "refused"};
    char *text, line[256];
    size_t n;
    pi_error err;
    (void)state;
    if (file_read(TEST_SOURCE_DIR "/docs/api-fields.md", 1 << 20, &text, &n, &err) != PI_OK)
        fail_msg("%s", err.message);
    char *page = mem_strndup(text, n);
    const char *at = page;
    for (size_t i = 0; i < N_APIS; i++) {
        snprintf(line, sizeof line, "\n## `%s`\n", api_tables[i].route);
        at = strstr(at, line);
        if (!at) fail_msg("no heading for %s in its place", api_tables[i].route);
        for (size_t k = 0; k < api_tables[i].n; k++) {
            const api_field *f = &api_tables[i].fields[k];
            snprintf(line, sizeof line, "\n| `%s` | %s | ", f->name, uses[f->use]);
            at = strstr(at, line);
            if (!at) fail_msg("%s: no row for %s in its place", api_tables[i].route, f->name);
            at += strlen(line) - 1;
            const char *end = strchr(at, '\n');
            if (!strstr(at, f->note) || strstr(at, f->note) > end)
                fail_msg("%s: %s: the row lacks: %s", api_tables[i].route, f->name, f->note);
            if (end[1] != '|' && k + 1 < api_tables[i].n)
                fail_msg("%s: rows end behind %s", api_tables[i].route, f->name);
        }
        const char *next = strchr(at, '\n');
        assert_true(next[1] != '|'); /* no rows except those of the table */
    }
    mem_free(page);
    mem_free(text);
}

/* A request of each API with one more member. */
static http_reply ask_with(size_t api, const char *member) {
    static const char *const bodies[N_APIS] = {
        [API_CHAT] = "{" HELLO ",\"max_tokens\":1%s%s}",
        [API_COMPLETIONS] = "{\"prompt\":\"a\",\"max_tokens\":1%s%s}",
        [API_NATIVE] = "{\"prompt\":\"a\",\"n_predict\":1%s%s}",
        [API_RESPONSES] = "{\"input\":\"a\",\"max_output_tokens\":1%s%s}",
        [API_MESSAGES] = "{" HELLO ",\"max_tokens\":1%s%s}",
        [API_INFILL] = "{\"input_prefix\":\"a\",\"n_predict\":1%s%s}",
        [API_OLLAMA_CHAT] = "{" HELLO ",\"options\":{\"num_predict\":1}%s%s}",
        [API_OLLAMA_GENERATE] = "{\"prompt\":\"a\",\"options\":{\"num_predict\":1}%s%s}"};
    char body[1024];
    snprintf(body, sizeof body, bodies[api], *member ? "," : "", member);
    return http_post(&c, api_tables[api].route, body);
}

/* Refused fields return an error with their name unless they request nothing; harmless fields are
 * accepted. */
static void test_every_field(void **state) {
    static const char *const nothing[] = {"null", "false", "0", "\"\"", "[]", "{}"};
    char member[128];
    (void)state;
    for (size_t i = 0; i < N_APIS; i++) {
        for (size_t k = 0; k < api_tables[i].n; k++) {
            const api_field *f = &api_tables[i].fields[k];
            bool taken = strcmp(f->name, "max_tokens") == 0 || strcmp(f->name, "messages") == 0;
            if (f->use == FIELD_USED || (taken && i == API_MESSAGES)) continue;
            snprintf(member, sizeof member, "\"%s\":{\"type\":\"x\"}", f->name);
            http_reply r = ask_with(i, member);
            if (r.status != (f->use == FIELD_REFUSED ? 400 : 200))
                fail_msg("%s: %s: %d %s", api_tables[i].route, f->name, r.status, r.body);
            const bool ollama = i == API_OLLAMA_CHAT || i == API_OLLAMA_GENERATE;
            const char *const error = ollama ? "error" : "error.message";
            if (r.status == 400) assert_non_null(strstr(http_text(&r, error), f->name));
            http_free(&r);
            for (size_t v = 0; v < 6 && f->use == FIELD_REFUSED; v++) {
                snprintf(member, sizeof member, "\"%s\":%s", f->name, nothing[v]);
                r = ask_with(i, member);
                if (r.status != 200) fail_msg("%s: %s: %s", api_tables[i].route, member, r.body);
                http_free(&r);
            }
        }
        http_reply r = ask_with(i, "\"a_field_of_no_api\":1");
        assert_int_equal(r.status, 200);
        http_free(&r);
    }
    http_reply r = ask_with(API_RESPONSES, "\"include\":[\"message.output_text.logprobs\"]");
    assert_int_equal(r.status, 400);
    http_free(&r);
    r = ask_with(API_RESPONSES, "\"text\":{\"verbosity\":\"low\"}");
    assert_int_equal(r.status, 400);
    http_free(&r);
    r = ask_with(API_CHAT, "\"modalities\":[\"text\"],\"verbosity\":\"medium\"");
    assert_int_equal(r.status, 200);
    http_free(&r);
}

/* Clients that use threads send the whole conversation after an error that names threads. */
static void test_thread(void **state) {
    (void)state;
    http_reply r = ask_with(API_MESSAGES, "\"thread\":{\"type\":\"create\"}");
    assert_int_equal(r.status, 400);
    assert_string_equal(http_text(&r, "error.details.error_code"), "thread_unsupported_request");
    assert_string_equal(http_text(&r, "error.details.unsupported.0"), "thread");
    http_free(&r);
}

/* ---- schemas --------------------------------------------------------------------------------- */

#define ODD_TOOL(strict_)                                                                          \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"save\",\"strict\":" strict_        \
    ",\"parameters\":{\"type\":\"object\",\"properties\":{\"path\":{\"enum\":[\"a\",\"b\"],"       \
    "\"format\":\"path\"},\"ids\":{\"type\":\"array\",\"items\":{\"enum\":[1,2]},"                 \
    "\"uniqueItems\":true,\"maxItems\":2}},\"required\":[\"path\",\"ids\"]}}}],"                   \
    "\"tool_choice\":\"required\",\"parallel_tool_calls\":false"

static void test_widened(void **state) {
    (void)state;
    http_reply r = http_post(&c, "/v1/chat/completions", "{" HELLO "," ODD_TOOL("false") "}");
    assert_int_equal(r.status, 200);
    assert_non_null(strstr(r.headers, "X-Schema-Widened: tool save: $.properties.ids.uniqueItems"));
    assert_string_equal(http_text(&r, "choices.0.message.tool_calls.0.function.name"), "save");
    http_free(&r);
    r = http_post(&c, "/v1/chat/completions", "{" HELLO "," ODD_TOOL("true") "}");
    assert_int_equal(r.status, 400);
    assert_non_null(
        strstr(http_text(&r, "error.message"), "tool save: $.properties.ids.uniqueItems: "));
    http_free(&r);
    static const char *const bodies[] = {
        "{\"prompt\":\"a\",\"json_schema\":{\"type\":\"array\",\"maxItems\":2,\"items\":{\"const\":"
        "1},\"uniqueItems\":true}}",
        "{\"prompt\":\"a\",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{"
        "\"schema\":{\"type\":\"array\",\"maxItems\":2,\"items\":{\"const\":1},\"contains\":{}}}}"
        "}"};
    static const char *const headers[] = {"X-Schema-Widened: json_schema: $.uniqueItems",
                                          "X-Schema-Widened: response_format: $.contains"};
    for (int i = 0; i < 2; i++) {
        r = http_post(&c, "/completion", bodies[i]);
        assert_int_equal(r.status, 200);
        assert_non_null(strstr(r.headers, headers[i]));
        http_free(&r);
    }
    r = ask_with(API_RESPONSES,
                 "\"text\":{\"format\":{\"type\":\"json_schema\",\"name\":\"x\",\"strict\":true,"
                 "\"schema\":{\"type\":\"array\",\"contains\":{}}}}");
    assert_int_equal(r.status, 400);
    assert_non_null(strstr(http_text(&r, "error.message"), "response_format: $.contains: "));
    http_free(&r);
    /* Malformed schemas are refused. */
    http_refused(&c, "/v1/chat/completions",
                 "{" HELLO ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\","
                 "\"parameters\":{\"properties\":{\"a\":{\"type\":\"text\"}}}}}]}",
                 400);
}

/* Nested repetitions and numbers beyond 64 bits never return status 500. */
static void test_heavy(void **state) {
    static const char *const schemas[] = {
        "{\"type\":\"string\",\"pattern\":\"^((((a{0,100}){0,100}){0,100}){0,100})$\"}",
        "{\"type\":\"string\",\"pattern\":\"^((((a{0,100}b?){0,100}c?){0,100}){0,100})$\"}",
        "{\"type\":\"integer\",\"maximum\":18446744073709551615,\"minimum\":-1e400}"};
    char body[512];
    (void)state;
    for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++) {
        snprintf(body, sizeof body, "{\"prompt\":\"a\",\"n_predict\":8,\"json_schema\":%s}",
                 schemas[i]);
        http_reply r = http_post(&c, "/completion", body);
        if (r.status != 200 && r.status != 400) fail_msg("%s: %d", schemas[i], r.status);
        if (i != 1) assert_int_equal(r.status, 200);
        http_free(&r);
    }
}

static void test_output_config(void **state) {
    static const char *const members[] = {
        "\"output_config\":{\"format\":{\"type\":\"json_schema\",\"schema\":{\"const\":[7]}}}",
        "\"output_format\":{\"type\":\"json_schema\",\"schema\":{\"const\":[7]}}"};
    char body[512];
    (void)state;
    for (int i = 0; i < 2; i++) {
        snprintf(body, sizeof body, "{" HELLO ",\"max_tokens\":20,%s}", members[i]);
        http_reply r = http_post(&c, "/v1/messages", body);
        assert_int_equal(r.status, 200);
        assert_string_equal(http_text(&r, "content.0.text"), "[7]");
        http_free(&r);
    }
    http_refused(&c, "/v1/messages",
                 "{" HELLO ",\"max_tokens\":2,\"output_config\":{\"format\":{\"type\":\"x\"}}}",
                 400);
    http_refused(&c, "/v1/messages", "{" HELLO ",\"max_tokens\":2,\"output_format\":3}", 400);
}

#define TWO_TOOLS(begin_, end_)                                                                    \
    "\"tools\":[" begin_ "\"name\":\"a\"" end_ "," begin_ "\"name\":\"b\"" end_ "]"

static void test_allowed_tools(void **state) {
    (void)state;
    http_reply r = http_post(
        &c, "/v1/chat/completions",
        "{" HELLO "," TWO_TOOLS(
            "{\"type\":\"function\",\"function\":{",
            "}}") ",\"parallel_tool_calls\":false,\"tool_choice\":{\"type\":\"allowed_tools\","
                  "\"allowed_tools\":{\"mode\":\"required\",\"tools\":[{\"type\":\"function\","
                  "\"function\":{"
                  "\"name\":\"b\"}}]}},\"max_tokens\":40}");
    assert_int_equal(r.status, 200);
    assert_string_equal(http_text(&r, "choices.0.message.tool_calls.0.function.name"), "b");
    http_free(&r);
    r = http_post(
        &c, "/v1/responses",
        "{\"input\":\"x\"," TWO_TOOLS(
            "{\"type\":\"function\",",
            "}") ",\"tool_choice\":{\"type\":\"allowed_tools\",\"mode\":\"required\",\"tools\":[{"
                 "\"type\":\"function\",\"name\":\"b\"}]},\"max_output_tokens\":40}");
    assert_int_equal(r.status, 200);
    assert_string_equal(http_text(&r, "output.0.name"), "b");
    /* the answer never ends by itself */
    assert_string_equal(http_text(&r, "output.0.status"), "incomplete");
    http_free(&r);
    http_refused(
        &c, "/v1/chat/completions",
        "{" HELLO "," TWO_TOOLS(
            "{\"type\":\"function\",\"function\":{",
            "}}") ",\"tool_choice\":{\"type\":\"allowed_tools\",\"allowed_tools\":{\"tools\":[{"
                  "\"function\":{\"name\":\"c\"}}]}}}",
        400);
}

/* ---- limits ---------------------------------------------------------------------------------- */

static void test_cut(void **state) {
    static const char stream[] = "{\"input\":\"Hello\",\"max_output_tokens\":3,\"stream\":true}";
    (void)state;
    http_reply r = http_post(&c, "/v1/responses", "{\"input\":\"Hello\",\"max_output_tokens\":3}");
    assert_string_equal(http_text(&r, "status"), "incomplete");
    assert_string_equal(http_text(&r, "incomplete_details.reason"), "max_output_tokens");
    assert_string_equal(http_text(&r, "output.0.status"), "incomplete");
    http_free(&r);
    r = http_post(&c, "/v1/responses", stream);
    bool found = false;
    for (size_t i = 0; http_event(&r, i); i++) {
        const char *event = http_event(&r, i);
        if (!strstr(event, "response.output_item.done")) continue;
        found = true;
        assert_non_null(strstr(event, "\"status\":\"incomplete\""));
    }
    assert_true(found);
    http_free(&r);
    r = http_post(&c, "/v1/messages", "{" HELLO ",\"max_tokens\":3}");
    assert_string_equal(http_text(&r, "stop_reason"), "max_tokens");
    http_free(&r);
}

static void test_context(void **state) {
    static char body[8192];
    size_t n = 0;
    char word[4096] = "";
    (void)state;
    for (int i = 0; i < 700; i++) n += (size_t)snprintf(word + n, sizeof word - n, "word ");
    snprintf(body, sizeof body,
             "{\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}],\"max_tokens\":1}", word);
    http_reply r = http_post(&c, "/v1/chat/completions", body);
    assert_int_equal(r.status, 400);
    assert_string_equal(http_text(&r, "error.code"), "context_length_exceeded");
    assert_string_equal(http_text(&r, "error.type"), "invalid_request_error");
    http_free(&r);
    r = http_post(&c, "/v1/messages", body);
    assert_int_equal(r.status, 400);
    assert_non_null(strstr(http_text(&r, "error.message"), "prompt is too long: "));
    assert_non_null(strstr(http_text(&r, "error.message"), " tokens > 512 maximum"));
    http_free(&r);
    snprintf(body, sizeof body, "{\"prompt\":\"%s\"}", word);
    r = http_post(&c, "/completion", body);
    assert_int_equal(r.status, 400);
    assert_int_equal(http_int(&r, "error.code"), 400);
    assert_string_equal(http_text(&r, "error.type"), "exceed_context_size_error");
    assert_int_equal(http_int(&r, "error.n_ctx"), 512);
    assert_true(http_int(&r, "error.n_prompt_tokens") > 512);
    http_free(&r);
}

/* ---- echo ------------------------------------------------------------------------------------ */

static double number_at(http_reply *r, const char *format, size_t i) {
    char path[96];
    double value = NAN;
    snprintf(path, sizeof path, format, i);
    assert_true(json_as_double(http_json(r, path), &value));
    return value;
}

/* The text that the model generated has the same probabilities as a prompt. */
static void test_echo(void **state) {
    enum { WRITTEN = 40 };
    static char body[4096];
    size_t n = 0;
    (void)state;
    http_reply r = http_post(&c, "/v1/completions",
                             "{\"prompt\":\"It was\",\"max_tokens\":40,\"logprobs\":3,"
                             "\"temperature\":0}");
    http_reply ids = http_post(&c, "/tokenize", "{\"content\":\"It was\",\"add_special\":true}");
    size_t n_prompt = json_count(http_json(&ids, "tokens"));
    n += (size_t)snprintf(body, sizeof body,
                          "{\"max_tokens\":0,\"echo\":true,\"logprobs\":3,"
                          "\"prompt\":[\"It was%s",
                          http_text(&r, "choices.0.text"));
    snprintf(body + n, sizeof body - n, "\"]}");
    for (char *s = body; *s; s++)
        if (*s == '\n') *s = ' ';
    http_reply echo = http_post(&c, "/v1/completions", body);
    assert_int_equal(echo.status, 200);
    assert_string_equal(http_text(&echo, "choices.0.finish_reason"), "length");
    assert_int_equal(http_int(&echo, "usage.completion_tokens"), 0);
    assert_int_equal(strncmp(http_text(&echo, "choices.0.text"), "It was", 6), 0);
    assert_int_equal(json_kind_of(http_json(&echo, "choices.0.logprobs.token_logprobs.0")),
                     JSON_NULL);
    assert_int_equal(json_kind_of(http_json(&echo, "choices.0.logprobs.top_logprobs.0")),
                     JSON_NULL);
    for (size_t i = 0; i < WRITTEN; i++) {
        double a = number_at(&r, "choices.0.logprobs.token_logprobs.%zu", i);
        double b = number_at(&echo, "choices.0.logprobs.token_logprobs.%zu", n_prompt + i);
        if (fabs(a - b) > 0.1) fail_msg("token %zu: %g and %g", i, a, b);
        /* text_offset gives the place of each token in the text. */
        char path[96];
        snprintf(path, sizeof path, "choices.0.logprobs.tokens.%zu", n_prompt + i);
        size_t at = (size_t)number_at(&echo, "choices.0.logprobs.text_offset.%zu", n_prompt + i);
        const char *token = http_text(&echo, path), *text = http_text(&echo, "choices.0.text");
        if (strncmp(text + at, token, strlen(token)) != 0)
            fail_msg("token %zu, '%s', is not at %zu of %s", i, token, at, text);
    }
    http_free(&r);
    http_free(&ids);
    http_free(&echo);
    /* Several prompts, of tokens; a stream; a longer answer. */
    echo = http_post(
        &c, "/v1/completions",
        "{\"prompt\":[[1,300,301],[1,302]],\"max_tokens\":1,\"echo\":true,\"logprobs\":0}");
    assert_int_equal(json_count(http_json(&echo, "choices.0.logprobs.tokens")), 4);
    assert_int_equal(json_count(http_json(&echo, "choices.1.logprobs.tokens")), 3);
    assert_int_equal(http_int(&echo, "usage.completion_tokens"), 2);
    http_free(&echo);
    echo = http_post(&c, "/v1/completions",
                     "{\"prompt\":\"It was\",\"max_tokens\":2,\"echo\":true,\"stream\":true}");
    char *all = http_joined(&echo, "choices.0.text", 0);
    assert_int_equal(strncmp(all, "It was", 6), 0);
    assert_true(strlen(all) > 6);
    free(all);
    http_free(&echo);
}

/* Control tokens have no text in a chat, even when a client makes the model generate them. */
static void test_control_tokens(void **state) {
    char body[256];
    (void)state;
    http_reply ids = http_post(&c, "/tokenize", "{\"content\":\"\",\"add_special\":true}");
    snprintf(body, sizeof body, "{" HELLO ",\"max_tokens\":4,\"logit_bias\":{\"%d\":1000}}",
             (int)http_int(&ids, "tokens.0"));
    http_reply r = http_post(&c, "/v1/chat/completions", body);
    assert_int_equal(r.status, 200);
    assert_int_equal(http_int(&r, "usage.completion_tokens"), 4);
    assert_string_equal(http_text(&r, "choices.0.message.content"), "");
    http_free(&r);
    http_free(&ids);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_docs),          cmocka_unit_test(test_every_field),
        cmocka_unit_test(test_thread),        cmocka_unit_test(test_widened),
        cmocka_unit_test(test_heavy),         cmocka_unit_test(test_output_config),
        cmocka_unit_test(test_allowed_tools), cmocka_unit_test(test_cut),
        cmocka_unit_test(test_context),       cmocka_unit_test(test_echo),
        cmocka_unit_test(test_control_tokens)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
