/* test_api_grammar.c: the public grammar functions: a SentencePiece vocabulary with byte tokens,
 * all samplers, rules of schemas within GBNF, triggers, and refused grammars. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "failing.h"
#include "powerinfer.h"
#include "rng.h"
#include "tiny_model.h"

#define MODEL_PATH TEST_BINARY_DIR "/test_api_grammar.gguf"

enum { N_VOCAB = 320, N_TEXT = 4096 };

static pi_error err;
static pi_model *model;
static float logits[N_VOCAB];

static void ok(pi_status status) {
    if (status != PI_OK) fail_msg("%s", err.message);
}

static int set_up(void **state) {
    tiny_model t = tiny_default();
    pi_model_options o = pi_model_default_options();
    (void)state;
    o.vocab_only = true;
    t.n_vocab = N_VOCAB;
    t.vocabulary = true;
    tiny_write(&t, MODEL_PATH);
    ok(pi_model_open(MODEL_PATH, &o, &model, &err));
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    pi_model_close(model);
    return 0;
}

static pi_grammar *gbnf(const char *text) {
    pi_grammar *g;
    ok(pi_grammar_create(model, text, strlen(text), NULL, &g, &err));
    return g;
}

static void random_logits(rng *random) {
    for (int i = 0; i < N_VOCAB; i++) logits[i] = 3 * rng_normal(random);
}

/* Generates until the sampler ends the text; returns the number of tokens. */
static int write_text(pi_sampler *s, rng *random, int n_max, char *text) {
    size_t n = 0;
    int i = 0;
    for (; i < n_max; i++) {
        random_logits(random);
        int32_t token = pi_sampler_sample(s, logits);
        size_t n_piece = 0;
        assert_true(token >= 0);
        if (pi_token_is_end(model, token)) break;
        ok(pi_token_text(model, token, false, text + n, N_TEXT - n, &n_piece, &err));
        assert_true(n_piece > 0);
        n += n_piece;
    }
    text[n] = '\0';
    return i;
}

/* With any other samplers the text matches the grammar. Byte tokens write characters of several
 * bytes. */
static void test_samplers(void **state) {
    pi_sampler_options kinds[6];
    rng random;
    char text[N_TEXT];
    (void)state;
    rng_seed(&random, 5);
    for (int k = 0; k < 6; k++) {
        kinds[k] = pi_sampler_default_options();
        kinds[k].seed = (uint64_t)k;
    }
    kinds[1].temp = 0;
    kinds[2].mirostat = 2;
    kinds[3].repeat_penalty = 1.5f;
    kinds[3].dry_multiplier = 1;
    kinds[4].top_k = 1;
    kinds[4].xtc_probability = 1;
    kinds[5].ignore_eos = true;
    pi_grammar *g = gbnf(
        "root ::= \"\xc3\xa9\" [a-z \xce\xb1-\xcf\x89]{3,20} (\"\xe6\x97\xa5\" | \"!\")");
    for (int round = 0; round < 30; round++) {
        pi_sampler *s;
        bool begins, complete;
        kinds[round % 6].grammar = g;
        ok(pi_sampler_create(model, &kinds[round % 6], &s, &err));
        int n = write_text(s, &random, 200, text);
        assert_in_range(n, 5, 199);
        ok(pi_grammar_match(g, text, strlen(text), &begins, &complete, &err));
        if (!complete) fail_msg("%s", text);
        assert_int_equal(pi_sampler_grammar_progress(s, &err), PI_GRAMMAR_COMPLETE);
        pi_sampler_grammar_restart(s);
        assert_int_equal(pi_sampler_grammar_progress(s, NULL), PI_GRAMMAR_OPEN);
        write_text(s, &random, 200, text);
        ok(pi_grammar_match(g, text, strlen(text), &begins, &complete, &err));
        assert_true(complete);
        pi_sampler_destroy(s);
    }
    pi_grammar_free(g);
}

/* The distribution is the model's, restricted to allowed tokens; greedy takes the most likely
 * allowed token. */
static void test_greedy(void **state) {
    pi_sampler_options o = pi_sampler_default_options();
    pi_grammar *g = gbnf("root ::= [b-d]");
    pi_sampler *s;
    char text[64];
    size_t n;
    (void)state;
    o.temp = 0;
    o.grammar = g;
    ok(pi_sampler_create(model, &o, &s, &err));
    pi_grammar_free(g); /* the sampler holds a reference */
    int32_t want = -1;
    for (int i = 0; i < N_VOCAB; i++) {
        ok(pi_token_text(model, i, false, text, sizeof text, &n, &err));
        logits[i] = (float)i / 1000;
        bool allowed = n == 1 && text[0] >= 'b' && text[0] <= 'd' && !pi_token_is_end(model, i);
        if (allowed) want = i;
    }
    assert_true(want >= 0);
    assert_int_equal(pi_sampler_sample(s, logits), want);
    assert_true(pi_token_is_end(model, pi_sampler_sample(s, logits)));
    pi_sampler_destroy(s);
    /* Without a grammar there is no progress of a grammar. */
    ok(pi_sampler_create(model, NULL, &s, &err));
    assert_int_equal(pi_sampler_grammar_progress(s, NULL), PI_GRAMMAR_NONE);
    pi_sampler_grammar_restart(s);
    pi_sampler_destroy(s);
}

static void test_lazy(void **state) {
    static const char *const words[] = {"<t>"};
    const pi_grammar_options lazy = {.trigger_words = words, .n_trigger_words = 1};
    static const char text[] = "root ::= \"<t>\" \"ok\"";
    pi_sampler_options o = pi_sampler_default_options();
    pi_sampler *s;
    (void)state;
    ok(pi_grammar_create(model, text, strlen(text), &lazy, &o.grammar, &err));
    o.temp = 0;
    ok(pi_sampler_create(model, &o, &s, &err));
    for (const char *c = "ab<t>"; *c; c++) {
        size_t n;
        char piece[64];
        assert_int_equal(pi_sampler_grammar_progress(s, NULL), PI_GRAMMAR_WAITING);
        for (int i = 0; i < N_VOCAB; i++) {
            ok(pi_token_text(model, i, false, piece, sizeof piece, &n, &err));
            logits[i] = n == 1 && piece[0] == *c ? 10 : 0;
        }
        pi_sampler_sample(s, logits);
    }
    assert_int_equal(pi_sampler_grammar_progress(s, NULL), PI_GRAMMAR_OPEN);
    pi_sampler_destroy(s);
    pi_grammar_free(o.grammar);
}

static void match(pi_grammar *g, const char *text, bool want) {
    bool begins, complete;
    ok(pi_grammar_match(g, text, strlen(text), &begins, &complete, &err));
    if (complete != want) fail_msg("%s", text);
}

#ifdef TEST_HAS_JSON
static void test_schemas(void **state) {
    static const char args[] =
        "{\"properties\":{\"city\":{\"enum\":[\"Rome\"]}},\"required\":[\"city\"]}";
    const pi_grammar_schema schemas[] = {
        {.rule = "weather-args", .schema = args, .n_schema = sizeof args - 1},
        {.rule = "any", .schema = "{}", .n_schema = 2}};
    pi_grammar_options o = {.schemas = schemas, .n_schemas = 2, .root = "call"};
    static const char text[] = "call ::= \"<c>\" weather-args \"</c>\" | \"<a>\" any";
    pi_grammar *g;
    (void)state;
    ok(pi_grammar_create(model, text, strlen(text), &o, &g, &err));
    match(g, "<c>{\"city\": \"Rome\"}</c>", true);
    match(g, "<a>[1]", true);
    match(g, "<c>{}</c>", false);
    pi_grammar_free(g);
    ok(pi_grammar_from_schema(model, "{\"type\":\"null\"}", 15, &g, &err));
    match(g, "null", true);
    pi_grammar_free(g);
    assert_int_equal(pi_grammar_from_schema(model, "{", 1, &g, &err), PI_ERR_FORMAT);
    assert_null(g);
    assert_int_equal(pi_grammar_from_schema(model, "{\"if\":{}}", 9, &g, &err), PI_ERR_UNSUPPORTED);
    o.schemas = (const pi_grammar_schema[]){{.rule = "call", .schema = "{}", .n_schema = 2}};
    o.n_schemas = 1;
    assert_int_equal(pi_grammar_create(model, text, strlen(text), &o, &g, &err), PI_ERR_FORMAT);
}
#endif

static void test_refused(void **state) {
    static const int32_t tokens[] = {N_VOCAB};
    static const char *const empty[] = {""};
    pi_grammar_options o = {.trigger_tokens = tokens, .n_trigger_tokens = 1};
    pi_model_options open = pi_model_default_options();
    pi_sampler_options with = pi_sampler_default_options();
    pi_model *other;
    pi_sampler *s;
    pi_grammar *g;
    (void)state;
    assert_int_equal(pi_grammar_create(model, "a ::= \"x\"", 9, NULL, &g, &err), PI_ERR_FORMAT);
    assert_string_equal(err.message, "the grammar has no start rule root");
    assert_null(g);
    assert_int_equal(pi_grammar_create(model, "root ::= \"x\"", 12, &o, &g, &err), PI_ERR_ARG);
    o = (pi_grammar_options){.trigger_words = empty, .n_trigger_words = 1};
    assert_int_equal(pi_grammar_create(model, "root ::= \"x\"", 12, &o, &g, &err), PI_ERR_ARG);
    open.vocab_only = true;
    ok(pi_model_open(MODEL_PATH, &open, &other, &err));
    with.grammar = gbnf("root ::= \"x\"");
    assert_int_equal(pi_sampler_create(other, &with, &s, &err), PI_ERR_ARG);
    assert_null(s);
    pi_grammar_free(with.grammar);
    pi_grammar_free(NULL);
    pi_model_close(other);
}

static void test_nomem(void **state) {
    rng random;
    (void)state;
    rng_seed(&random, 1);
    random_logits(&random);
    for (failing f = failing_each(1); failing_next(&f);) {
        pi_sampler_options o = pi_sampler_default_options();
        pi_sampler *s = NULL;
        pi_status status = pi_grammar_create(model, "root ::= [ab]+", 14, NULL, &o.grammar, &err);
        if (status == PI_OK) status = pi_sampler_create(model, &o, &s, &err);
        if (status == PI_OK && pi_sampler_sample(s, logits) < 0) {
            assert_int_equal(pi_sampler_grammar_progress(s, &err), PI_GRAMMAR_FAILED);
            status = err.status;
        }
        failing_hit(&f, status, &err);
        pi_sampler_destroy(s);
        pi_grammar_free(o.grammar);
    }
}

/* Draws one token from flat logits; with `only`, the token of this byte. */
static int32_t draw(pi_sampler *s, char only) {
    for (int i = 0; i < N_VOCAB; i++) {
        char piece[64];
        size_t n;
        ok(pi_token_text(model, i, false, piece, sizeof piece, &n, &err));
        logits[i] = only && n == 1 && piece[0] == only ? 100 : 0;
    }
    return pi_sampler_sample(s, logits);
}

/* An allocation fails after a trigger: the sampler tries no other token. The random numbers show
 * this: the next draw uses the second number, as without a failure. */
static void test_failure_is_final(void **state) {
    static const char *const words[] = {"b"};
    static const char text[] = "root ::= \"b\" [acegikmoqsuwyACEGIKMOQSUWY02468]";
    const pi_grammar_options lazy = {.trigger_words = words, .n_trigger_words = 1};
    int32_t second[64];
    int n = 0;
    (void)state;
    for (failing f = failing_each(1); failing_next(&f);) {
        pi_sampler_options o = pi_sampler_default_options();
        pi_sampler *s = NULL;
        o.seed = 3;
        o.top_k = 0;
        o.top_p = o.temp = 1;
        o.min_p = 0;
        pi_status status = pi_grammar_create(model, text, strlen(text), &lazy, &o.grammar, &err);
        if (status == PI_OK) status = pi_sampler_create(model, &o, &s, &err);
        if (status == PI_OK && draw(s, 'b') < 0) {
            assert_int_equal(pi_sampler_grammar_progress(s, &err), PI_GRAMMAR_FAILED);
            status = err.status;
        }
        failing_hit(&f, status, &err);
        if (s) {
            pi_sampler_grammar_restart(s);
            assert_in_range(n, 0, 63);
            second[n++] = draw(s, 0);
        }
        pi_sampler_destroy(s);
        pi_grammar_free(o.grammar);
    }
    assert_true(n > 1); /* the last run has no failure */
    for (int i = 0; i < n; i++) assert_int_equal(second[i], second[n - 1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_samplers),
        cmocka_unit_test(test_greedy),
        cmocka_unit_test(test_lazy),
#ifdef TEST_HAS_JSON
        cmocka_unit_test(test_schemas),
#endif
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_nomem),
        cmocka_unit_test(test_failure_is_final),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
