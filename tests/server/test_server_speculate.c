/* test_server_speculate.c: speculative decoding in the server. With any drafts, answers equal those
 * of a server without drafts, to the last digit of their log-probabilities: sampled answers,
 * answers with stop texts, grammars and limits that end within a draft, one by one and several at
 * once. The float reference kernels are used, because their results do not depend on the number of
 * tokens in a step. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "powerinfer_speculate.h"
#include "recurrent_model.h"
#include "server_case.h"
#include "tiny_model.h"

enum { N_SLOTS = 2, N_DRAFT = 3 };

static server_case c;
static pi_model *draft_model; /* a second model from the same file */
static pi_context *draft_context;

#define PROMPT "\"prompt\":\"the cat, the cat, the cat, the\",\"cache_prompt\":false"

static const char *const requests[] = {
    "{" PROMPT ",\"max_tokens\":12,\"logprobs\":2}",
    "{" PROMPT ",\"max_tokens\":10,\"temperature\":1.2,\"seed\":4,\"logprobs\":1}",
    "{" PROMPT ",\"max_tokens\":5,\"temperature\":1,\"seed\":5,\"repeat_penalty\":1.3,"
    "\"dry_multiplier\":0.5,\"n\":2}",
    "{" PROMPT ",\"max_tokens\":12,\"stop\":[\"at, t\"],\"logprobs\":0}",
    "{" PROMPT ",\"max_tokens\":8,\"temperature\":1,\"seed\":6,\"mirostat\":2}",
    "{" PROMPT ",\"max_tokens\":12,\"grammar\":\"root ::= (\\\" cat\\\" | \\\" the\\\" | "
    "\\\",\\\")+ \\\"!\\\"\"}",
    "{" PROMPT ",\"max_tokens\":6,\"speculative.n_max\":0}",
    "{" PROMPT ",\"max_tokens\":1}",
};
enum { N_REQUESTS = sizeof requests / sizeof *requests };

static char *plain[N_REQUESTS]; /* answers of a server without drafts */

/* Returns the part of an answer that does not depend on ids and times. */
static char *choices_of(const http_reply *r) {
    char *from = strstr(r->body, "\"choices\""), *to = from ? strstr(from, "\"usage\"") : NULL;
    if (r->status != 200 || !to) fail_msg("%d: %s", r->status, r->body);
    return strndup(from, (size_t)(to - from));
}

/* Returns only the texts of such a part. */
static char *texts_of(const char *choices) {
    static const char name[] = "\"text\":\"";
    char *texts = calloc(1, strlen(choices) + 1), *to = texts;
    for (const char *at = strstr(choices, name); at; at = strstr(at, name)) {
        at += sizeof name - 1;
        for (; *at != '"' || at[-1] == '\\'; at++) *to++ = *at;
        *to++ = '\n';
    }
    return texts;
}

static char *ask(int i) {
    http_reply r = http_post(&c, "/v1/completions", requests[i]);
    char *text = choices_of(&r);
    http_free(&r);
    return text;
}

static int set_up(void **state) {
    (void)state;
    pi_error err;
    case_open(&c);
    c.options.served.n_slots = N_SLOTS;
    c.options.served.context.kernels = PI_KERNELS_SCALAR;
    if (pi_model_open(CASE_MODEL, NULL, &draft_model, &err) != PI_OK) fail_msg("%s", err.message);
    pi_context_options o = c.options.served.context;
    o.n_logits = N_SLOTS;
    o.kernels = PI_KERNELS_AUTO;
    if (pi_context_create(draft_model, &o, &draft_context, &err) != PI_OK)
        fail_msg("%s", err.message);
    case_start(&c);
    for (int i = 0; i < N_REQUESTS; i++) plain[i] = ask(i);
    case_stop(&c);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    for (int i = 0; i < N_REQUESTS; i++) free(plain[i]);
    pi_context_destroy(draft_context);
    pi_model_close(draft_model);
    case_close(&c);
    return 0;
}

/* n_min 0: measured. */
static void start_with(bool lookup, bool model, int32_t n_min) {
    pi_speculator_options o = pi_speculator_default_options();
    pi_error err;
    o.model = c.model;
    o.ngrams = lookup;
    if (model) o.draft_model = draft_model;
    if (model) o.draft_context = draft_context;
    o.n_texts = N_SLOTS;
    o.n_ctx = c.options.served.n_ctx;
    o.n_max = N_DRAFT;
    o.n_min = n_min;
    if (pi_speculator_create(&o, &c.options.served.speculator, &err) != PI_OK)
        fail_msg("%s", err.message);
    case_start(&c);
}

/* Starts with drafts that are the same on every machine. */
static void start(bool lookup, bool model) {
    start_with(lookup, model, N_DRAFT);
}

static void stop(void) {
    case_stop(&c);
    pi_speculator_destroy(c.options.served.speculator);
    c.options.served.speculator = NULL;
}

/* Steps that also have parts of prompts round differently: log-probabilities differ in the last
 * digits, texts do not. */
static void *ask_some(void *arg) {
    int first = (int)(intptr_t)arg;
    void *wrong = NULL;
    for (int i = first; i < first + 2; i++) {
        char *choices = ask(i), *texts = texts_of(choices), *expected = texts_of(plain[i]);
        if (strcmp(texts, expected) != 0 || !*texts) wrong = (void *)(intptr_t)requests[i];
        free(choices);
        free(texts);
        free(expected);
    }
    return wrong;
}

static void check(bool lookup, bool model) {
    start(lookup, model);
    for (int i = 0; i < N_REQUESTS; i++) {
        char *text = ask(i);
        assert_string_equal(text, plain[i]);
        free(text);
    }
    double drafted = case_metric(&c, "tokens_drafted_total");
    double right = case_metric(&c, "tokens_drafted_accepted_total");
    assert_true(right > 5 && right <= drafted);
    assert_true(case_metric(&c, "decode_total") < case_metric(&c, "tokens_predicted_total"));
    enum { N_CLIENTS = 3 };
    pthread_t threads[N_CLIENTS];
    for (int i = 0; i < N_CLIENTS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, ask_some, (void *)(intptr_t)(2 * i)), 0);
    void *wrong = NULL;
    for (int i = 0; i < N_CLIENTS; i++) {
        void *of_one = NULL;
        pthread_join(threads[i], &of_one);
        if (of_one) wrong = of_one;
    }
    stop();
    if (wrong) fail_msg("another answer at several requests: %s", (const char *)wrong);
}

static void test_lookup(void **state) {
    (void)state;
    check(true, false);
}

static void test_draft_model(void **state) {
    (void)state;
    check(false, true);
}

/* A budget of reasoning that ends within a draft: the answers of a server without drafts. */
static void test_reasoning_budget(void **state) {
    static const char source[] = "{{ messages[0].content }}<think>";
    enum { N_BUDGETS = 8 };
    char *expected[N_BUDGETS], body[512];
    const char *name = c.options.served.template_name;
    int64_t accepted = 0;
    (void)state;
    c.options.served.template_name = NULL;
    c.options.served.template_source = source;
    c.options.served.n_template = strlen(source);
    for (int drafts = 0; drafts < 2; drafts++) {
        if (drafts)
            start(false, true);
        else
            case_start(&c);
        for (int i = 0; i < N_BUDGETS; i++) {
            snprintf(
                body, sizeof body,
                "{\"messages\":[{\"role\":\"user\",\"content\":\"the cat, the cat, the cat, the\""
                "}],\"max_tokens\":24,\"ignore_eos\":true,\"cache_prompt\":false,\"logprobs\":true,"
                "\"reasoning_budget_tokens\":%d}",
                i);
            http_reply r = http_post(&c, "/v1/chat/completions", body);
            char *choices = choices_of(&r);
            assert_int_equal(http_int(&r, "usage.completion_tokens_details.reasoning_tokens"), i);
            assert_true(strlen(http_text(&r, "choices.0.message.content")) > 0);
            if (drafts) {
                assert_string_equal(choices, expected[i]);
                accepted += http_int(&r, "timings.draft_n_accepted");
                free(expected[i]);
                free(choices);
            } else {
                expected[i] = choices;
            }
            http_free(&r);
        }
        if (drafts)
            stop();
        else
            case_stop(&c);
    }
    assert_true(accepted > N_BUDGETS); /* the draft model is the model itself */
    c.options.served.template_name = name;
    c.options.served.template_source = NULL;
}

/* timings, a stream with several tokens at once, and the request's own limit. */
static void test_what_is_said(void **state) {
    (void)state;
    start(false, true);
    http_reply r = http_post(&c, "/v1/completions", requests[0]);
    int64_t drafted = http_int(&r, "timings.draft_n");
    int64_t right = http_int(&r, "timings.draft_n_accepted");
    assert_true(drafted >= right && right >= 6); /* the draft model is the model itself */
    http_free(&r);
    r = http_post(&c, "/v1/completions", requests[6]);
    assert_null(http_json(&r, "timings.draft_n"));
    http_free(&r);
    r = http_post(&c, "/v1/completions",
                  "{" PROMPT ",\"max_tokens\":12,\"stream\":true,\"speculative.n_max\":3}");
    char *text = http_joined(&r, "choices.0.text", 0);
    const char *whole = strstr(plain[0], text);
    assert_true(*text && whole);
    free(text);
    http_free(&r);
    http_refused(&c, "/v1/completions", "{" PROMPT ",\"speculative.n_max\":-1}", 400);
    http_refused(&c, "/v1/completions", "{" PROMPT ",\"speculative.n_max\":\"x\"}", 400);
    r = http_ask(&c, "GET", "/slots", NULL, NULL);
    bool on = false;
    assert_true(json_as_bool(http_json(&r, "0.speculative"), &on) && on);
    http_free(&r);
    stop();
    c.options.served.n_ctx =
        32; /* up to the end of the context: as many tokens as without drafts */
    start(true, true);
    r = http_post(&c, "/v1/completions", "{" PROMPT ",\"ignore_eos\":true}");
    assert_int_equal(http_int(&r, "usage.total_tokens"), 33);
    assert_string_equal(http_text(&r, "choices.0.finish_reason"), "length");
    http_free(&r);
    stop();
}

/* Batches with almost no room besides the slots: prompts progress with any drafts. */
static void test_small_batches(void **state) {
    (void)state;
    int32_t before = c.options.served.context.n_batch;
    for (int32_t n_batch = N_SLOTS + 1; n_batch <= N_SLOTS + 4; n_batch += 3) {
        c.options.served.context.n_batch = n_batch;
        start_with(true, true, n_batch == N_SLOTS + 1 ? N_DRAFT : 0);
        pthread_t other;
        assert_int_equal(pthread_create(&other, NULL, ask_some, (void *)(intptr_t)0), 0);
        void *wrong = ask_some((void *)(intptr_t)2), *wrong_too = NULL;
        pthread_join(other, &wrong_too);
        stop();
        assert_true(!wrong && !wrong_too);
    }
    c.options.served.context.n_batch = before;
}

/* Recurrent layers are rewound to before the drafts, and accepted tokens are fed again. */
static void test_recurrent(void **state) {
    (void)state;
    static const char path[] = TEST_BINARY_DIR "/test_server_speculate.gguf";
    static const char body[] = "{\"prompt\":\"abcabcabcab\",\"max_tokens\":200,"
                               "\"ignore_eos\":true,\"return_tokens\":true}";
    pi_model *novella = c.model;
    pi_error err;
    recurrent_write("qwen3next", NULL, path);
    if (pi_model_open(path, NULL, &c.model, &err) != PI_OK) fail_msg("%s", err.message);
    c.options.served.model = c.model;
    char *texts[2];
    for (int i = 0; i < 2; i++) {
        if (i == 0)
            case_start(&c);
        else
            start(true, false);
        http_reply r = http_post(&c, "/v1/completions", body);
        texts[i] = choices_of(&r);
        http_free(&r);
        if (i == 1) {
            double right = case_metric(&c, "tokens_drafted_accepted_total");
            assert_true(right > 0 && right < case_metric(&c, "tokens_drafted_total"));
        }
        i == 0 ? case_stop(&c) : stop();
    }
    assert_string_equal(texts[0], texts[1]);
    free(texts[0]);
    free(texts[1]);
    pi_model_close(c.model);
    c.options.served.model = c.model = novella;
}

/* Layers for multi-token prediction that draft what the model says: the same answers, sampled ones
 * as well, and nearly all drafts accepted. */
static void test_head(void **state) {
    (void)state;
    static const char path[] = TEST_BINARY_DIR "/test_server_speculate_mtp.gguf";
    static const char *const bodies[] = {
        "{\"prompt\":\"abcabc\",\"max_tokens\":40,\"ignore_eos\":true,\"temperature\":0}",
        "{\"prompt\":\"abcabc\",\"max_tokens\":40,\"ignore_eos\":true,\"temperature\":1.2,"
        "\"seed\":5,\"logprobs\":1}"};
    pi_model *novella = c.model, *others = draft_model, *head;
    pi_context *of_others = draft_context;
    pi_error err;
    tiny_model t = tiny_default();
    t.n_vocab = 320;
    t.vocabulary = true;
    t.draft = (tiny_draft){.n = 1, .agrees = true};
    tiny_write(&t, path);
    if (pi_model_open(path, NULL, &c.model, &err) != PI_OK ||
        pi_model_open_drafter(c.model, NULL, 0, &head, &err) != PI_OK)
        fail_msg("%s", err.message);
    pi_context_options o = c.options.served.context;
    o.n_logits = N_SLOTS;
    if (pi_context_create(head, &o, &draft_context, &err) != PI_OK) fail_msg("%s", err.message);
    draft_model = head;
    c.options.served.model = c.model;
    char *texts[2][2];
    for (int i = 0; i < 2; i++) {
        c.options.served.context.drafter = i ? head : NULL;
        i == 0 ? case_start(&c) : start(false, true);
        for (int k = 0; k < 2; k++) {
            http_reply r = http_post(&c, "/v1/completions", bodies[k]);
            texts[i][k] = choices_of(&r);
            http_free(&r);
        }
        if (i == 1) {
            double right = case_metric(&c, "tokens_drafted_accepted_total");
            assert_true(right > 50 && right <= case_metric(&c, "tokens_drafted_total"));
        }
        i == 0 ? case_stop(&c) : stop();
    }
    for (int k = 0; k < 2; k++) {
        assert_string_equal(texts[0][k], texts[1][k]);
        free(texts[0][k]);
        free(texts[1][k]);
    }
    c.options.served.context.drafter = NULL;
    pi_context_destroy(draft_context);
    pi_model_close(head);
    pi_model_close(c.model);
    draft_model = others;
    draft_context = of_others;
    c.options.served.model = c.model = novella;
    remove(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lookup),           cmocka_unit_test(test_draft_model),
        cmocka_unit_test(test_small_batches),    cmocka_unit_test(test_recurrent),
        cmocka_unit_test(test_reasoning_budget), cmocka_unit_test(test_head),
        cmocka_unit_test(test_what_is_said)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
