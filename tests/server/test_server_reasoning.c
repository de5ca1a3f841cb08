/* test_server_reasoning.c: budgets of reasoning: in all APIs, streamed and in one piece, with a
 * constrained answer, and the marks of models whose answers consist of several messages. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "message.h"
#include "reasoning.h"
#include "server_case.h"

static server_case c;

static int set_up(void **state) {
    (void)state;
    case_open(&c);
    c.options.served.template_name = NULL;
    return case_open_model(state);
}

static int tear_down(void **state) {
    case_close(&c);
    return case_close_model(state);
}

/* The bundled model does not know marks of reasoning: it never ends what the template begins. */
static void start(const char *source) {
    c.options.served.template_source = source;
    c.options.served.n_template = strlen(source);
    case_start(&c);
}

#define THINKS "{{ messages[0].content }}<think>"
#define REST   ",\"max_tokens\":24,\"ignore_eos\":true"

static http_reply chat(const char *more) {
    char body[512];
    snprintf(body, sizeof body, "{" HELLO REST "%s}", more);
    http_reply r = http_post(&c, "/v1/chat/completions", body);
    assert_int_equal(r.status, 200);
    return r;
}

static void test_chat(void **state) {
    (void)state;
    start(THINKS);
    http_reply all = chat(""), some = chat(",\"reasoning_budget_tokens\":5");
    const char *reasoning = http_text(&some, "choices.0.message.reasoning_content");
    const char *content = http_text(&some, "choices.0.message.content");
    assert_int_equal(http_int(&all, "usage.completion_tokens_details.reasoning_tokens"), 24);
    assert_int_equal(http_int(&some, "usage.completion_tokens_details.reasoning_tokens"), 5);
    assert_int_equal(http_int(&some, "usage.completion_tokens"), 24);
    assert_true(strlen(reasoning) > 0 && strlen(content) > 0);
    assert_null(strstr(content, "think>"));
    /* greedy: the budget changes nothing before it is used up */
    assert_memory_equal(reasoning, http_text(&all, "choices.0.message.reasoning_content"),
                        strlen(reasoning));
    http_reply stream = chat(",\"thinking_budget_tokens\":5,\"stream\":true");
    char *streamed = http_joined(&stream, "choices.0.delta.reasoning_content", 0);
    char *text = http_joined(&stream, "choices.0.delta.content", 0);
    assert_string_equal(streamed, reasoning);
    assert_string_equal(text, content);
    free(streamed);
    free(text);
    http_free(&stream);
    http_free(&all);
    http_free(&some);
    all = chat(",\"reasoning_budget_tokens\":0");
    assert_null(http_json(&all, "choices.0.message.reasoning_content"));
    assert_true(strlen(http_text(&all, "choices.0.message.content")) > 0);
    http_free(&all);
    all = chat(",\"reasoning_effort\":\"none\""); /* the template does not know it */
    assert_null(http_json(&all, "choices.0.message.reasoning_content"));
    http_free(&all);
    /* the mark is banned: no budget, and no token that nobody asked for */
    int32_t mark[16];
    size_t n = 0;
    char ban[96];
    assert_int_equal(
        pi_tokenize(case_model, "</think>", 8, PI_TOKENIZE_SPECIAL, mark, 16, &n, NULL), PI_OK);
    snprintf(ban, sizeof ban, ",\"reasoning_budget_tokens\":5,\"logit_bias\":[[%d,false]]",
             mark[0]);
    all = chat(ban);
    assert_string_equal(http_text(&all, "choices.0.message.content"), "");
    assert_int_equal(http_int(&all, "usage.completion_tokens_details.reasoning_tokens"), 24);
    http_free(&all);
    http_refused(&c, "/v1/chat/completions", "{" HELLO ",\"reasoning_budget_tokens\":-2}", 400);
    http_refused(&c, "/v1/chat/completions", "{" HELLO ",\"thinking_budget_tokens\":\"x\"}", 400);
    case_stop(&c);
}

static void test_other_apis(void **state) {
    (void)state;
    start(THINKS);
    http_reply r = http_post(&c, "/v1/messages",
                             "{" HELLO ",\"max_tokens\":24,\"thinking\":{\"type\":\"enabled\","
                             "\"budget_tokens\":6}}");
    assert_int_equal(r.status, 200);
    assert_string_equal(http_text(&r, "content.0.type"), "thinking");
    assert_string_equal(http_text(&r, "content.1.type"), "text");
    http_free(&r);
    http_refused(&c, "/v1/messages",
                 "{" HELLO ",\"max_tokens\":9,\"thinking\":{\"type\":\"enabled\","
                 "\"budget_tokens\":-1}}",
                 400);
    r = http_post(&c, "/v1/responses",
                  "{\"input\":\"Hello there\",\"max_output_tokens\":24,"
                  "\"reasoning_budget_tokens\":6}");
    assert_int_equal(r.status, 200);
    assert_string_equal(http_text(&r, "output.0.type"), "reasoning");
    assert_string_equal(http_text(&r, "output.1.type"), "message");
    assert_int_equal(http_int(&r, "usage.output_tokens_details.reasoning_tokens"), 6);
    http_free(&r);
    r = http_post(&c, "/api/chat",
                  "{" HELLO ",\"stream\":false,\"think\":6,\"options\":{\"num_predict\":24}}");
    assert_int_equal(r.status, 200);
    assert_true(strlen(http_text(&r, "message.thinking")) > 0);
    assert_true(strlen(http_text(&r, "message.content")) > 0);
    http_free(&r);
    case_stop(&c);
}

/* A constrained answer begins where the budget ends the reasoning. */
static void test_constrained(void **state) {
    (void)state;
    start(THINKS);
    http_reply r = chat(",\"reasoning_budget_tokens\":4,\"response_format\":{\"type\":"
                        "\"json_schema\",\"json_schema\":{\"schema\":{\"const\":\"red\"}}}");
    assert_string_equal(http_text(&r, "choices.0.message.content"), "\"red\"");
    assert_string_equal(http_text(&r, "choices.0.finish_reason"), "stop");
    assert_int_equal(http_int(&r, "usage.completion_tokens_details.reasoning_tokens"), 4);
    http_free(&r);
    case_stop(&c);
}

/* The server's default, and a template that handles efforts itself. */
static void test_defaults(void **state) {
    (void)state;
    c.options.served.reasoning_budget = 3;
    start(THINKS);
    http_reply r = chat("");
    assert_int_equal(http_int(&r, "usage.completion_tokens_details.reasoning_tokens"), 3);
    http_free(&r);
    r = chat(",\"reasoning_budget_tokens\":7");
    assert_int_equal(http_int(&r, "usage.completion_tokens_details.reasoning_tokens"), 7);
    http_free(&r);
    case_stop(&c);
    c.options.served.reasoning_budget = -1;
    start("{{ reasoning_effort }}" THINKS);
    r = chat(",\"reasoning_effort\":\"none\"");
    assert_int_equal(http_int(&r, "usage.completion_tokens_details.reasoning_tokens"), 24);
    http_free(&r);
    case_stop(&c);
}

/* ---- marks ----------------------------------------------------------------------------------- */

/* Feeds a text until a token is forced; returns the number of bytes that were fed. */
static size_t feed(reasoning_watch *w, const char *text) {
    int32_t tokens[256];
    size_t n = 0, n_fed = 0;
    assert_int_equal(
        pi_tokenize(case_model, text, strlen(text), PI_TOKENIZE_SPECIAL, tokens, 256, &n, NULL),
        PI_OK);
    for (size_t i = 0; i < n && reasoning_forced(w) < 0; i++) {
        char piece[64];
        size_t n_piece = 0;
        reasoning_note(w, tokens[i]);
        assert_int_equal(
            pi_token_text(case_model, tokens[i], true, piece, sizeof piece, &n_piece, NULL), PI_OK);
        n_fed += n_piece;
    }
    return n_fed;
}

/* Feeds the forced tokens; returns their text. */
static const char *end(reasoning_watch *w) {
    static char text[256];
    size_t used = 0, n = 0;
    for (int32_t token; (token = reasoning_forced(w)) >= 0; used += n) {
        assert_int_equal(
            pi_token_text(case_model, token, true, text + used, sizeof text - used, &n, NULL),
            PI_OK);
        reasoning_note(w, token);
    }
    text[used] = 0;
    return text;
}

static void test_marks(void **state) {
    (void)state;
    reasoning_watch w;
    /* the model opens the reasoning itself, or does not */
    reasoning_begin(&w, case_model, 2, "user: hi\n", 9);
    feed(&w, " \n<think>one two three four");
    assert_int_equal(w.n, 2);
    assert_non_null(strstr(end(&w), "</think>"));
    assert_int_equal(w.state, REASONING_CLOSED);
    feed(&w, "<think>again");
    assert_int_equal(w.state, REASONING_CLOSED);
    reasoning_begin(&w, case_model, 2, "user: hi\n", 9);
    feed(&w, "No. <think>one two three");
    assert_int_equal(w.state, REASONING_CLOSED);
    assert_int_equal(w.n, 0);
    /* it ends the reasoning itself */
    reasoning_begin(&w, case_model, 50, "<think>\n", 8);
    feed(&w, "hm</think>Hello");
    assert_int_equal(w.state, REASONING_CLOSED);
    assert_true(w.n > 0 && reasoning_forced(&w) < 0);
    /* a character is not divided */
    reasoning_begin(&w, case_model, 1, "<think>", 7);
    reasoning_note(&w, 3 + 0xc3); /* byte tokens of the vocabulary */
    assert_int_equal(reasoning_forced(&w), -1);
    reasoning_note(&w, 3 + 0xa4);
    assert_true(reasoning_forced(&w) >= 0);
    /* several messages: the budget is for all of them together */
    static const char prompt[] = "<|start|>assistant",
                      analysis[] = "<|channel|>analysis<|message|>";
    char text[256];
    reasoning_begin(&w, case_model, 3, prompt, strlen(prompt));
    snprintf(text, sizeof text, "%sone two three four five", analysis);
    assert_true(feed(&w, text) < strlen(text));
    assert_int_equal(w.n, 3);
    assert_non_null(strstr(end(&w), "<|end|><|start|>assistant<|channel|>final<|message|>"));
    feed(&w, "So<|end|><|start|>assistant");
    assert_int_equal(w.state, REASONING_CLOSED);
    feed(&w, text);
    assert_int_equal(w.n, 3);
    assert_true(reasoning_forced(&w) >= 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chat),        cmocka_unit_test(test_other_apis),
        cmocka_unit_test(test_constrained), cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_marks),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
