/* test_server_text.c: completions: limits, stop texts, log-probabilities, several prompts and
 * choices, the prefix that a slot keeps; and tokenization. */
#include <math.h>
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
    case_start(&c);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    case_close(&c);
    return 0;
}

static char *complete(const char *fields) {
    char body[1024];
    snprintf(body, sizeof body, "{\"prompt\":\"It was a dark night and\"%s}", fields);
    http_reply r = http_post(&c, "/v1/completions", body);
    assert_int_equal(r.status, 200);
    char *text = strdup(http_text(&r, "choices.0.text"));
    http_free(&r);
    return text;
}

/* The text that the library generates token by token. */
static char *expected(int n) {
    pi_context *context;
    pi_session *session;
    pi_context_options o = c.options.served.context;
    static const char prompt[] = "It was a dark night and";
    int32_t tokens[256], next = 0;
    size_t n_tokens = 0, used = 0, length = 0;
    char *text = calloc(1, 4096);
    assert_int_equal(pi_context_create(c.model, &o, &context, NULL), PI_OK);
    assert_int_equal(pi_session_create(context, 256, &session, NULL), PI_OK);
    assert_int_equal(
        pi_tokenize(c.model, prompt, strlen(prompt), PI_TOKENIZE_BOS, tokens, 256, &n_tokens, NULL),
        PI_OK);
    pi_input in = {.session = session,
                   .tokens = tokens,
                   .n_tokens = (int32_t)n_tokens,
                   .logits = PI_LOGITS_LAST};
    pi_model_info info;
    pi_model_get_info(c.model, &info);
    for (int i = 0; i < n; i++) {
        assert_int_equal(pi_forward(context, &in, 1, NULL), PI_OK);
        const float *logits = pi_logits(context, 0);
        next = 0;
        for (int32_t k = 1; k < info.n_vocab; k++)
            if (logits[k] > logits[next]) next = k;
        pi_token_text(c.model, next, false, text + used, 4096 - used, &length, NULL);
        used += length;
        in.tokens = &next;
        in.n_tokens = 1;
    }
    pi_session_destroy(session);
    pi_context_destroy(context);
    return text;
}

static void test_same_as_the_library(void **state) {
    (void)state;
    char *want = expected(24), *got = complete(",\"max_tokens\":24");
    assert_string_equal(got, want);
    free(got);
    got = complete(",\"max_tokens\":24"); /* now with the slot's prefix */
    assert_string_equal(got, want);
    free(got);
    got = complete(",\"max_tokens\":24,\"cache_prompt\":false");
    assert_string_equal(got, want);
    free(got);
    free(want);
}

static void test_limits(void **state) {
    (void)state;
    static const char *const names[] = {"max_tokens", "max_completion_tokens", "n_predict"};
    char body[256];
    for (int i = 0; i < 3; i++) {
        snprintf(body, sizeof body, "{\"prompt\":\"Once\",\"%s\":7}", names[i]);
        http_reply r = http_post(&c, "/v1/completions/", body);
        assert_int_equal(r.status, 200);
        assert_int_equal(http_int(&r, "usage.completion_tokens"), 7);
        assert_string_equal(http_text(&r, "choices.0.finish_reason"), "length");
        http_free(&r);
    }
    http_reply r = http_post(&c, "/v1/completions", "{\"prompt\":\"Once\",\"max_tokens\":0}");
    double rate = -1;
    assert_int_equal(http_int(&r, "usage.completion_tokens"), 0);
    assert_string_equal(http_text(&r, "choices.0.text"), "");
    assert_true(json_as_double(http_json(&r, "timings.predicted_per_second"), &rate) && rate == 0);
    http_free(&r);
    /* Up to the end of the context: as many tokens as fit, and one more that is not fed. */
    r = http_post(&c, "/v1/completions",
                  "{\"prompt\":\"Once\",\"ignore_eos\":true,\"temperature\":0}");
    assert_int_equal(http_int(&r, "usage.total_tokens"), 257);
    assert_string_equal(http_text(&r, "choices.0.finish_reason"), "length");
    http_free(&r);
}

/* Every stop text that occurs in an answer truncates it there, wherever tokens begin and end. */
static void test_stop(void **state) {
    (void)state;
    char *text = complete(",\"max_tokens\":24"), fields[256];
    for (size_t i = 0; i + 4 < strlen(text); i++) {
        char stop[5];
        memcpy(stop, text + i, 4);
        stop[4] = 0;
        if (strpbrk(stop, "\"\\\n")) continue;
        snprintf(fields, sizeof fields, ",\"max_tokens\":24,\"stop\":[\"nowhere\",\"%s\"]", stop);
        char *got = complete(fields);
        size_t n = (size_t)(strstr(text, stop) - text);
        if (strlen(got) != n || memcmp(got, text, n) != 0)
            fail_msg("stop \"%s\": \"%s\" of \"%s\"", stop, got, text);
        free(got);
    }
    free(text);
}

static void test_stream_is_the_same(void **state) {
    (void)state;
    char *want = complete(",\"max_tokens\":24");
    http_reply r = http_post(&c, "/v1/completions",
                             "{\"prompt\":\"It was a dark night and\",\"max_tokens\":24,"
                             "\"stream\":true}");
    char *got = http_joined(&r, "choices.0.text", 0);
    assert_string_equal(got, want);
    assert_non_null(strstr(r.body, "data: [DONE]"));
    assert_null(strstr(r.body, "\"usage\"")); /* not requested */
    free(got);
    http_free(&r);
    r = http_post(&c, "/completion",
                  "{\"prompt\":\"It was a dark night and\",\"n_predict\":24,\"stream\":true}");
    got = http_joined(&r, "content", 0);
    assert_string_equal(got, want);
    free(got);
    free(want);
    http_free(&r);
}

static void test_logprobs(void **state) {
    (void)state;
    http_reply r = http_post(&c, "/v1/completions",
                             "{\"prompt\":\"Once\",\"max_tokens\":8,\"logprobs\":5}");
    assert_int_equal(json_count(http_json(&r, "choices.0.logprobs.tokens")), 8);
    for (int i = 0; i < 8; i++) {
        char path[80];
        double chosen = 1, sum = 0;
        const char *key;
        const json_node *value;
        void *iter = NULL;
        snprintf(path, sizeof path, "choices.0.logprobs.token_logprobs.%d", i);
        assert_true(json_as_double(http_json(&r, path), &chosen));
        snprintf(path, sizeof path, "choices.0.logprobs.top_logprobs.%d", i);
        const json_node *tops = http_json(&r, path);
        assert_int_equal(json_count(tops), 5);
        while (json_next(tops, &iter, &key, &value)) {
            double p = 1;
            json_as_double(value, &p);
            assert_true(p <= chosen); /* greedy: the chosen token is the most likely */
            sum += exp(p);
        }
        assert_true(chosen < 0 && sum <= 1.0001 && sum > 0);
    }
    http_free(&r);
    r = http_post(&c, "/completion", "{\"prompt\":\"Once\",\"n_predict\":3,\"n_probs\":2}");
    assert_int_equal(json_count(http_json(&r, "completion_probabilities")), 3);
    assert_int_equal(json_count(http_json(&r, "completion_probabilities.0.top_logprobs")), 2);
    assert_true(json_count(http_json(&r, "completion_probabilities.0.bytes")) > 0);
    http_free(&r);
}

static void test_bias_and_seed(void **state) {
    (void)state;
    http_reply r = http_post(
        &c, "/v1/completions",
        "{\"prompt\":\"Once\",\"max_tokens\":4,\"logit_bias\":{\"300\":1000}}");
    http_reply t = http_post(&c, "/detokenize", "{\"tokens\":[300,300,300,300]}");
    assert_string_equal(http_text(&r, "choices.0.text") + 1, http_text(&t, "content")); /* " ha" */
    http_free(&r);
    http_free(&t);
    char *a = complete(",\"max_tokens\":16,\"temperature\":1.5,\"seed\":7");
    char *b = complete(",\"max_tokens\":16,\"temperature\":1.5,\"seed\":7");
    char *other = complete(",\"max_tokens\":16,\"temperature\":1.5,\"seed\":8");
    assert_string_equal(a, b);
    assert_string_not_equal(a, other);
    free(a);
    free(b);
    free(other);
}

static void test_several(void **state) {
    (void)state;
    http_reply r = http_post(&c, "/v1/completions",
                             "{\"prompt\":[\"Once\",[1,300,301]],\"max_tokens\":4,\"n\":3}");
    assert_int_equal(json_count(http_json(&r, "choices")), 6);
    for (int i = 0; i < 6; i++) {
        char path[40], first[40];
        snprintf(path, sizeof path, "choices.%d.index", i);
        assert_int_equal(http_int(&r, path), i);
        snprintf(path, sizeof path, "choices.%d.text", i);
        snprintf(first, sizeof first, "choices.%d.text", i < 3 ? 0 : 3);
        assert_string_equal(http_text(&r, path), http_text(&r, first));
    }
    assert_int_equal(http_int(&r, "usage.completion_tokens"), 24);
    http_free(&r);
}

/* The second turn of a conversation reads only the new tokens. */
/* Texts and ids in one array are one prompt. */
static void test_mixed(void **state) {
    (void)state;
    http_reply mixed = http_post(&c, "/completion",
                                 "{\"prompt\":[\"Once\",300,\"a\"],\"n_predict\":4,\"n_probs\":1}");
    http_reply tokens = http_post(&c, "/tokenize", "{\"content\":\"Once\",\"add_special\":true}");
    http_reply last = http_post(&c, "/tokenize", "{\"content\":\"a\"}");
    char prompt[512] = "", body[1024];
    const json_node *lists[] = {http_json(&tokens, "tokens"), NULL, http_json(&last, "tokens")};
    for (int k = 0; k < 3; k++) {
        for (size_t i = 0; i < (lists[k] ? json_count(lists[k]) : 1); i++) {
            int64_t id = 300;
            json_as_int(json_at(lists[k], i), &id);
            snprintf(prompt + strlen(prompt), sizeof prompt - strlen(prompt), "%s%d",
                     *prompt ? "," : "", (int)id);
        }
    }
    snprintf(body, sizeof body, "{\"prompt\":[%s],\"n_predict\":4}", prompt);
    http_reply ids = http_post(&c, "/completion", body);
    assert_int_equal(http_int(&mixed, "tokens_evaluated"), http_int(&ids, "tokens_evaluated"));
    assert_string_equal(http_text(&mixed, "content"), http_text(&ids, "content"));
    http_free(&ids);
    http_free(&last);
    http_free(&tokens);
    http_free(&mixed);
    http_refused(&c, "/completion", "{\"prompt\":[\"a\",-1]}", 400);
}

static void test_prefix(void **state) {
    (void)state;
    char body[2048], prompt[1024] = "";
    for (int i = 0; i < 20; i++) snprintf(prompt + strlen(prompt), 40, "The %dth day passed. ", i);
    snprintf(body, sizeof body, "{\"prompt\":\"%s\",\"max_tokens\":1}", prompt);
    http_reply r = http_post(&c, "/v1/completions", body);
    int64_t n = http_int(&r, "usage.prompt_tokens");
    http_free(&r);
    snprintf(body, sizeof body, "{\"prompt\":\"%sAnd then\",\"max_tokens\":1}", prompt);
    r = http_post(&c, "/v1/completions", body);
    assert_true(http_int(&r, "usage.prompt_tokens_details.cached_tokens") >= n - 2);
    assert_true(http_int(&r, "timings.prompt_n") <= 5);
    http_free(&r);
}

/* Simultaneous requests with a common prefix read it once. */
static void test_shared_prefix(void **state) {
    (void)state;
    char body[2048], prompt[1024] = "";
    for (int i = 0; i < 20; i++)
        snprintf(prompt + strlen(prompt), 40, "%d nights went by; ", 100 + i);
    snprintf(body, sizeof body, "{\"prompt\":\"%s\",\"max_tokens\":1,\"n\":4}", prompt);
    http_reply before = http_ask(&c, "GET", "/metrics", NULL, NULL);
    http_reply r = http_post(&c, "/v1/completions", body);
    http_reply after = http_ask(&c, "GET", "/metrics", NULL, NULL);
    static const char name[] = "\npowerinfer_prompt_tokens_total ";
    double a = strtod(strstr(before.body, name) + strlen(name), NULL);
    double b = strtod(strstr(after.body, name) + strlen(name), NULL);
    double n = (double)http_int(&r, "usage.prompt_tokens");
    assert_true(b - a >= n - 20 && b - a <= n + 20);
    http_free(&before);
    http_free(&r);
    http_free(&after);
}

static void test_tokens(void **state) {
    (void)state;
    http_reply r = http_post(&c, "/tokenize", "{\"content\":\"Hello world\"}");
    char body[256] = "{\"tokens\":[";
    for (size_t i = 0; i < json_count(http_json(&r, "tokens")); i++) {
        int64_t id = -1;
        json_as_int(json_at(http_json(&r, "tokens"), i), &id);
        snprintf(body + strlen(body), 16, "%s%d", i ? "," : "", (int)id);
    }
    snprintf(body + strlen(body), 16, "]}");
    http_reply t = http_post(&c, "/detokenize", body);
    assert_string_equal(http_text(&t, "content"), "Hello world");
    http_free(&t);
    http_free(&r);
    http_refused(&c, "/tokenize", "{\"content\":3}", 400);
    http_refused(&c, "/detokenize", "{\"tokens\":[999999]}", 400);
    http_refused(&c, "/detokenize", "{\"tokens\":[-1]}", 400);
    http_refused(&c, "/detokenize", "{\"tokens\":\"x\"}", 400);
}

/* ---- grammars -------------------------------------------------------------------------------- */

/* A repeated grammar or schema is not compiled again; the least recently used are evicted. */
static void test_grammars_are_kept(void **state) {
    (void)state;
    enum { MANY = 70 };
    static const char *const fields[] = {
        ",\"max_tokens\":3,\"grammar\":\"root ::= [a-c]+\"",
        ",\"max_tokens\":3,\"json_schema\":{\"type\":\"integer\"}",
        ",\"max_tokens\":3,\"json_schema\":{\"type\":\"boolean\"}"};
    char other[128];
    int64_t before = (int64_t)case_metric(&c, "grammars_compiled_total"),
            reused = (int64_t)case_metric(&c, "grammars_reused_total");
    for (int i = 0; i < 3; i++) {
        char *first = complete(fields[i]);
        assert_int_equal(case_metric(&c, "grammars_compiled_total"), before + i + 1);
        assert_int_equal(case_metric(&c, "grammars_reused_total"), reused + i);
        char *second = complete(fields[i]);
        assert_int_equal(case_metric(&c, "grammars_compiled_total"), before + i + 1);
        assert_int_equal(case_metric(&c, "grammars_reused_total"), reused + i + 1);
        assert_string_equal(first, second);
        free(first);
        free(second);
    }
    http_refused(&c, "/v1/completions", "{\"prompt\":\"a\",\"grammar\":\"root ::= (\"}", 400);
    for (int i = 0; i < MANY; i++) {
        snprintf(other, sizeof other, ",\"max_tokens\":1,\"grammar\":\"root ::= [a-c]{%d}\"",
                 i + 1);
        free(complete(other));
        if (i < MANY / 2) free(complete(fields[0])); /* used repeatedly, so it stays */
    }
    assert_int_equal(case_metric(&c, "grammars_cached"), 64);
    assert_int_equal(case_metric(&c, "grammars_compiled_total"), before + 3 + MANY);
    free(complete(fields[0]));
    assert_int_equal(case_metric(&c, "grammars_compiled_total"), before + 3 + MANY);
    free(complete(fields[1]));
    assert_int_equal(case_metric(&c, "grammars_compiled_total"), before + 3 + MANY + 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_as_the_library),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_stream_is_the_same),
        cmocka_unit_test(test_logprobs),
        cmocka_unit_test(test_bias_and_seed),
        cmocka_unit_test(test_several),
        cmocka_unit_test(test_mixed),
        cmocka_unit_test(test_prefix),
        cmocka_unit_test(test_shared_prefix),
        cmocka_unit_test(test_grammars_are_kept),
        cmocka_unit_test(test_tokens),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
