/* test_server_ollama.c: Ollama's API compared with the OpenAI API of the same server; and texts
 * between a prefix and a suffix, compared with prompts made of token ids. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "bytes.h"
#include "mem.h"
#include "server_case.h"

static server_case c;

static int set_up(void **state) {
    (void)state;
    case_open_fim(&c);
    /* sums do not depend on the number of tokens in a step */
    c.options.served.context.kernels = PI_KERNELS_SCALAR;
    c.options.served.n_ctx = 512;
    c.options.metrics_prefix = "llamacpp:";
    case_start(&c);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    case_close(&c);
    return 0;
}

/* Returns line `i` of a stream, parsed; the caller frees it. NULL: there is no such line. */
static json_doc *line_of(const http_reply *r, int i) {
    const char *at = r->body;
    json_doc *doc = NULL;
    pi_error err;
    for (; i > 0 && *at; i--) at += strcspn(at, "\n") + 1;
    if (!*at) return NULL;
    if (json_parse(at, strcspn(at, "\n"), "line", &doc, &err) != PI_OK) fail_msg("%s", err.message);
    return doc;
}

/* Joins the texts `outer`.`key` (outer NULL: `key`) of all lines; checks that only the last one is
 * done. Free the result with mem_free. */
static char *joined(const http_reply *r, const char *outer, const char *key) {
    bytes all = {0};
    json_doc *doc, *next = line_of(r, 0);
    assert_non_null(strstr(r->headers, "application/x-ndjson"));
    for (int i = 0; (doc = next); i++) {
        const json_node *line = json_root(doc);
        const char *text = NULL;
        bool done = false;
        size_t n = 0;
        next = line_of(r, i + 1);
        if (json_as_string(json_get(outer ? json_get(line, outer) : line, key), &text, &n))
            bytes_append(&all, text, n);
        assert_true(json_as_bool(json_get(line, "done"), &done) && done == !next);
        assert_true(json_as_string(json_get(line, "created_at"), &text, &n) && text[n - 1] == 'Z');
        json_free(doc);
    }
    bytes_append(&all, "", 1);
    return all.data;
}

static char *text_at(const char *path, const char *body, const char *member) {
    http_reply r = http_post(&c, path, body);
    if (r.status != 200) fail_msg("%s", r.body);
    char *text = strdup(http_text(&r, member));
    http_free(&r);
    return text;
}

#define ASK_OPENAI(fields) "{" HELLO ",\"temperature\":0," fields "}"
#define ASK_OLLAMA(options, fields)                                                                \
    "{\"model\":\"any\"," HELLO ",\"options\":{\"temperature\":0," options "}," fields "}"

static void test_chat(void **state) {
    (void)state;
    char *want = text_at("/v1/chat/completions", ASK_OPENAI("\"max_tokens\":12"),
                         "choices.0.message.content");
    http_reply r = http_post(&c, "/api/chat", ASK_OLLAMA("\"num_predict\":12", "\"stream\":false"));
    assert_int_equal(r.status, 200);
    assert_string_equal(http_text(&r, "message.content"), want);
    assert_string_equal(http_text(&r, "message.role"), "assistant");
    assert_string_equal(http_text(&r, "done_reason"), "length");
    assert_int_equal(http_int(&r, "eval_count"), 12);
    assert_true(http_int(&r, "prompt_eval_count") > 12 && http_int(&r, "eval_duration") > 0 &&
                http_int(&r, "total_duration") >= http_int(&r, "eval_duration"));
    http_free(&r);
    r = http_post(&c, "/api/chat", ASK_OLLAMA("\"num_predict\":12", "\"keep_alive\":\"5m\""));
    char *streamed = joined(&r, "message", "content");
    assert_string_equal(streamed, want);
    mem_free(streamed);
    http_free(&r);
    free(want);
}

static void test_generate(void **state) {
    (void)state;
    char *want = text_at("/v1/chat/completions",
                         "{\"messages\":[{\"role\":\"system\",\"content\":\"Be brief.\"},{\"role\":"
                         "\"user\",\"content\":\"Hello\"}],\"temperature\":0,\"max_tokens\":9}",
                         "choices.0.message.content");
    http_reply r = http_post(&c, "/api/generate",
                             "{\"system\":\"Be brief.\",\"prompt\":\"Hello\",\"options\":{"
                             "\"temperature\":0,\"num_predict\":9}}");
    char *got = joined(&r, NULL, "response");
    assert_string_equal(got, want);
    mem_free(got);
    free(want);
    http_free(&r);
    want = text_at("/v1/completions",
                   "{\"prompt\":\"It was a\",\"temperature\":0,\"max_tokens\":9}",
                   "choices.0.text");
    got = text_at("/api/generate",
                  "{\"prompt\":\"It was a\",\"raw\":true,\"stream\":false,\"options\":{"
                  "\"temperature\":0,\"num_predict\":9}}",
                  "response");
    assert_string_equal(got, want);
    free(got);
    free(want);
}

static void test_form(void **state) {
    (void)state;
    char *text = text_at("/api/chat",
                         ASK_OLLAMA("\"num_predict\":60",
                                    "\"stream\":false,\"format\":{\"type\":\"object\","
                                    "\"properties\":{\"city\":{\"enum\":[\"Rome\",\"Oslo\"]}},"
                                    "\"required\":[\"city\"],\"additionalProperties\":false}"),
                         "message.content");
    json_doc *doc = NULL;
    const char *city = NULL;
    size_t n = 0;
    assert_int_equal(json_parse(text, strlen(text), "answer", &doc, NULL), PI_OK);
    assert_true(json_as_string(json_get(json_root(doc), "city"), &city, &n));
    assert_true(strcmp(city, "Rome") == 0 || strcmp(city, "Oslo") == 0);
    json_free(doc);
    free(text);
    text = text_at("/api/chat",
                   ASK_OLLAMA("\"num_predict\":1", "\"stream\":false,\"format\":\"json\""),
                   "message.content");
    assert_int_equal(text[strspn(text, " \n\t")], '{');
    free(text);
}

static void test_tools(void **state) {
    (void)state;
    static const char asked[] = ASK_OLLAMA("\"num_predict\":200",
                                           "\"stream\":%s,"
                                           "\"tool_choice\":\"required\"," WEATHER);
    char body[2048];
    snprintf(body, sizeof body, asked, "false");
    http_reply r = http_post(&c, "/api/chat", body);
    assert_string_equal(http_text(&r, "message.tool_calls.0.function.name"), "weather");
    char *city = strdup(http_text(&r, "message.tool_calls.0.function.arguments.city"));
    assert_true(strcmp(city, "Rome") == 0 || strcmp(city, "Oslo") == 0);
    http_free(&r);
    snprintf(body, sizeof body, asked, "true");
    r = http_post(&c, "/api/chat", body);
    assert_non_null(strstr(r.body, "\"tool_calls\":[{"));
    assert_non_null(strstr(r.body, city));
    http_free(&r);
    free(city);
    /* Results are attributed to calls by their order: the prompt is that of the ids. */
    static const char call[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"Weather?\"},"
                               "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{%s"
                               "\"function\":{\"name\":\"weather\",\"arguments\":%s}}]},{\"role\":"
                               "\"tool\",%s\"content\":\"sunny\"}],%s," WEATHER "}";
    snprintf(body, sizeof body, call, "", "{\"city\":\"Rome\",\"days\":2}",
             "\"tool_name\":\"weather\",",
             "\"stream\":false,\"options\":{\"temperature\":0,\"num_predict\":8}");
    char *got = text_at("/api/chat", body, "message.content");
    snprintf(body, sizeof body, call, "\"id\":\"call_0\",\"type\":\"function\",",
             "\"{\\\"city\\\":\\\"Rome\\\",\\\"days\\\":2}\"",
             "\"name\":\"weather\",\"tool_call_id\":\"call_0\",",
             "\"temperature\":0,\"max_tokens\":8");
    char *want = text_at("/v1/chat/completions", body, "choices.0.message.content");
    assert_string_equal(got, want);
    free(got);
    free(want);
}

static void test_information(void **state) {
    (void)state;
    http_reply r = http_ask(&c, "GET", "/api/tags", NULL, NULL);
    assert_string_equal(http_text(&r, "models.0.name"), c.options.served.model_name);
    assert_string_equal(http_text(&r, "models.0.details.family"), "llama");
    assert_string_equal(http_text(&r, "models.0.details.quantization_level"), "Q8_0");
    assert_string_equal(http_text(&r, "models.0.details.parameter_size"), "6.95M");
    assert_int_equal(strlen(http_text(&r, "models.0.digest")), 64);
    http_free(&r);
    r = http_ask(&c, "GET", "/api/ps", NULL, NULL);
    assert_int_equal(http_int(&r, "models.0.context_length"), c.options.served.n_ctx);
    http_free(&r);
    r = http_ask(&c, "GET", "/api/version", NULL, NULL);
    assert_true(http_text(&r, "version")[0] == '0');
    http_free(&r);
    r = http_post(&c, "/api/show", "{\"model\":\"any\"}");
    const json_node *info = http_json(&r, "model_info");
    int64_t n = 0;
    assert_true(json_as_int(json_get(info, "llama.block_count"), &n) && n == 6);
    assert_int_equal(json_kind_of(json_get(info, "tokenizer.ggml.tokens")), JSON_NULL);
    assert_int_equal(json_kind_of(json_get(info, "general.name")), JSON_STRING);
    assert_string_equal(http_text(&r, "capabilities.0"), "completion");
    assert_string_equal(http_text(&r, "capabilities.2"), "insert");
    http_free(&r);
    r = http_ask(&c, "GET", "/props", NULL, NULL);
    assert_string_equal(http_text(&r, "model_path"), CASE_MODEL);
    assert_non_null(http_json(&r, "chat_template_caps.supports_tools"));
    http_free(&r);
    r = http_ask(&c, "GET", "/metrics", NULL, NULL);
    assert_non_null(strstr(r.body, "\nllamacpp:n_decode_total "));
    assert_non_null(strstr(r.body, "# TYPE llamacpp:prompt_tokens_total counter\n"));
    http_free(&r);
    /* A request without a message or a prompt loads the model. */
    r = http_post(&c, "/api/chat", "{\"model\":\"any\",\"messages\":[]}");
    assert_string_equal(http_text(&r, "done_reason"), "load");
    http_free(&r);
    r = http_post(&c, "/api/generate", "{\"model\":\"any\",\"keep_alive\":0}");
    assert_string_equal(http_text(&r, "done_reason"), "unload");
    http_free(&r);
}

static void test_embeddings(void **state) {
    (void)state;
    bytes text = {0};
    http_reply want = http_post(&c, "/v1/embeddings", "{\"input\":[\"Hello\",\"Good night\"]}");
    http_reply r = http_post(&c, "/api/embed", "{\"input\":[\"Hello\",\"Good night\"]}");
    http_reply one = http_post(&c, "/api/embeddings", "{\"prompt\":\"Good night\"}");
    double a = 0, b = 0, d = 0;
    for (int i = 0; i < 8; i++) {
        char path[64];
        snprintf(path, sizeof path, "data.1.embedding.%d", i);
        assert_true(json_as_double(http_json(&want, path), &a));
        snprintf(path, sizeof path, "embeddings.1.%d", i);
        assert_true(json_as_double(http_json(&r, path), &b));
        snprintf(path, sizeof path, "embedding.%d", i);
        assert_true(json_as_double(http_json(&one, path), &d));
        assert_true(a == b && a == d);
    }
    assert_int_equal(http_int(&r, "prompt_eval_count"), http_int(&want, "usage.prompt_tokens"));
    http_free(&want);
    http_free(&r);
    http_free(&one);
    bytes_append_text(&text, "{\"input\":[\"");
    for (int i = 0; i < 600; i++) bytes_append_text(&text, "night ");
    bytes_append_text(&text, "\"]");
    const size_t n = text.used;
    bytes_append(&text, "}", 2);
    r = http_post(&c, "/api/embed", text.data); /* cut to the context */
    assert_int_equal(r.status, 200);
    http_free(&r);
    text.used = n;
    bytes_append(&text, ",\"truncate\":false}", 19);
    r = http_post(&c, "/api/embed", text.data);
    bytes_free(&text);
    assert_int_equal(r.status, 400);
    assert_non_null(strstr(http_text(&r, "error"), "context"));
    http_free(&r);
}

static void test_errors(void **state) {
    (void)state;
    static const char *const bodies[] = {
        "{\"messages\":[{\"role\":\"user\",\"content\":\"x\",\"images\":[\"aa\"]}]}",
        "{\"messages\":[{\"content\":\"x\"}]}",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"format\":\"yaml\"}",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"think\":[3]}",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"options\":7}",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"options\":{\"num_predict\":-3}}",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"stream\":1}",
        "[]"};
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        http_reply r = http_post(&c, "/api/chat", bodies[i]);
        if (r.status != 400) fail_msg("%s: status %d: %s", bodies[i], r.status, r.body);
        assert_true(*http_text(&r, "error"));
        http_free(&r);
    }
    http_reply r = http_post(&c, "/api/generate", "{\"prompt\":\"x\",\"context\":[1,2]}");
    assert_int_equal(r.status, 400);
    assert_non_null(strstr(http_text(&r, "error"), "/api/chat"));
    http_free(&r);
}

/* ---- texts in the middle --------------------------------------------------------------------- */

/* The answer to a prompt of token ids in the form of infill.h. */
static char *in_the_middle(const char *prefix, const char *suffix) {
    int32_t ids[64];
    size_t n = 0;
    char body[2048];
    int at = snprintf(body, sizeof body, "{\"temperature\":0,\"n_predict\":9,\"prompt\":[1,%d",
                      CASE_FIM_PRE);
    pi_tokenize(c.model, prefix, strlen(prefix), 0, ids, 64, &n, NULL);
    for (size_t i = 0; i < n; i++)
        at += snprintf(body + at, sizeof body - (size_t)at, ",%d", ids[i]);
    at += snprintf(body + at, sizeof body - (size_t)at, ",%d", CASE_FIM_SUF);
    pi_tokenize(c.model, suffix, strlen(suffix), 0, ids, 64, &n, NULL);
    for (size_t i = 0; i < n; i++)
        at += snprintf(body + at, sizeof body - (size_t)at, ",%d", ids[i]);
    snprintf(body + at, sizeof body - (size_t)at, ",%d]}", CASE_FIM_MID);
    return text_at("/completion", body, "content");
}

static void test_infill(void **state) {
    (void)state;
    char *want = in_the_middle("The old keeper", " and the sea.");
    char *got = text_at("/infill",
                        "{\"input_prefix\":\"The old\",\"prompt\":\" keeper\",\"input_suffix\":"
                        "\" and the sea.\",\"n_predict\":9,\"temperature\":0}",
                        "content");
    assert_string_equal(got, want);
    free(got);
    got = text_at("/v1/completions",
                  "{\"prompt\":\"The old keeper\",\"suffix\":\" and the sea.\",\"max_tokens\":9,"
                  "\"temperature\":0}",
                  "choices.0.text");
    assert_string_equal(got, want);
    free(got);
    got = text_at("/api/generate",
                  "{\"prompt\":\"The old keeper\",\"suffix\":\" and the sea.\",\"stream\":false,"
                  "\"options\":{\"num_predict\":9,\"temperature\":0}}",
                  "response");
    assert_string_equal(got, want);
    free(got);
    free(want);
    http_refused(&c, "/infill", "{\"input_prefix\":7}", 400);
    http_refused(&c, "/infill", "{\"input_prefix\":\"a\",\"input_extra\":[{\"name\":\"x\"}]}", 400);
    http_refused(&c, "/v1/completions", "{\"prompt\":[1,2],\"suffix\":\"a\"}", 400);
}

/* Long texts are cut far from the gap, and leave room for the answer. */
static void test_long_infill(void **state) {
    (void)state;
    bytes body = {0};
    bytes_append_text(&body, "{\"input_extra\":[{\"filename\":\"a.c\",\"text\":\"");
    for (int i = 0; i < 400; i++) bytes_append_text(&body, "other ");
    bytes_append_text(&body, "\"}],\"input_prefix\":\"");
    for (int i = 0; i < 2000; i++) bytes_append_text(&body, "far ");
    bytes_append_text(&body, "\",\"input_suffix\":\"");
    for (int i = 0; i < 2000; i++) bytes_append_text(&body, " far");
    bytes_append_text(&body, "\",\"n_predict\":20,\"ignore_eos\":true}");
    bytes_append(&body, "", 1);
    http_reply r = http_post(&c, "/infill", body.data);
    if (r.status != 200) fail_msg("%s", r.body);
    assert_int_equal(http_int(&r, "tokens_predicted"), 20);
    assert_in_range(http_int(&r, "tokens_evaluated"), c.options.served.n_ctx - 20 - 8,
                    c.options.served.n_ctx - 20);
    http_free(&r);
    bytes_free(&body);
}

/* A text ends before a line with fewer blanks, and after its first line when its time is over. */
static void test_lines(void **state) {
    (void)state;
    static const char asked[] = "{\"prompt\":\"Once\",\"n_predict\":200,\"grammar\":\"%s\",%s}";
    char body[512];
    snprintf(body, sizeof body, asked,
             "root ::= \\\"one\\\\n\\\\ttwo\\\\n\\\\n  three\\\\n four \\\" [a-z ]{100}",
             "\"n_indent\":1");
    char *text = text_at("/completion", body, "content");
    assert_int_equal(strncmp(text, "one\n\ttwo\n\n  three\n four ", 24), 0);
    assert_true(strlen(text) > 24);
    free(text);
    snprintf(body, sizeof body, asked,
             "root ::= \\\"one\\\\n  two\\\\n\\\\n three\\\\n four \\\" [a-z ]{100}",
             "\"n_indent\":2");
    text = text_at("/completion", body, "content");
    assert_string_equal(text, "one\n  two\n\n ");
    free(text);
    snprintf(body, sizeof body, asked, "root ::= [a-z]{20} \\\"\\\\n\\\" [a-z ]{900}",
             "\"t_max_predict_ms\":1");
    text = text_at("/completion", body, "content");
    assert_true(strlen(text) > 20 && text[20] == '\n' && strlen(text) < 60);
    free(text);
}

static void test_response_fields(void **state) {
    (void)state;
    http_reply r = http_post(
        &c, "/completion",
        "{\"prompt\":\"Once\",\"n_predict\":4,\"return_tokens\":true,"
        "\"response_fields\":[\"tokens\",\"timings/predicted_n\",\"\",\"none\","
        "\"tokens\"],\"samplers\":[\"top_k\",\"top_p\",\"infill\"]}");
    assert_int_equal(json_count(http_json(&r, "tokens")), 4);
    assert_int_equal(http_int(&r, "timings/predicted_n"), 4);
    assert_null(http_json(&r, "content"));
    assert_null(http_json(&r, "none"));
    http_free(&r);
    r = http_post(&c, "/v1/responses/input_tokens", "{\"input\":\"Hello\"}");
    assert_string_equal(http_text(&r, "object"), "response.input_tokens");
    assert_true(http_int(&r, "input_tokens") > 2);
    http_free(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chat),           cmocka_unit_test(test_generate),
        cmocka_unit_test(test_form),           cmocka_unit_test(test_tools),
        cmocka_unit_test(test_information),    cmocka_unit_test(test_embeddings),
        cmocka_unit_test(test_errors),         cmocka_unit_test(test_infill),
        cmocka_unit_test(test_long_infill),    cmocka_unit_test(test_lines),
        cmocka_unit_test(test_response_fields)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
