/* test_api_sampler.c: samplers through the public header: end tokens and sequence breakers from the
 * model's vocabulary, and every error. tests/sample tests the samplers. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "mem.h"
#include "run_model.h"
#include "tiny_model.h"

#define MODEL_PATH TEST_BINARY_DIR "/test_api_sampler.gguf"
#define BARE_PATH  TEST_BINARY_DIR "/test_api_sampler_bare.gguf"

enum { N_VOCAB = 300 };

static pi_error err;
static run_model r, bare;

static int open_models(void **state) {
    (void)state;
    tiny_model t = tiny_default();
    t.n_vocab = N_VOCAB;
    tiny_write(&t, BARE_PATH);
    t.vocabulary = true;
    tiny_write(&t, MODEL_PATH);
    pi_context_options o = run_exact_options();
    r = run_open(MODEL_PATH, &o);
    bare = run_open(BARE_PATH, &o);
    return 0;
}

static int close_models(void **state) {
    (void)state;
    run_close(&r);
    run_close(&bare);
    return 0;
}

/* Feeds the bytes of `text` as byte tokens. Returns whether `next` loses to a slightly less likely
 * token that the text does not contain. */
static bool is_penalized(const pi_sampler_options *o, const pi_model *m, const char *text,
                         char next) {
    enum { BYTE0 = 3, NEVER = 280 };
    pi_sampler *s = NULL;
    if (pi_sampler_create(m, o, &s, &err) != PI_OK) fail_msg("%s", err.message);
    for (; *text; text++) pi_sampler_accept(s, BYTE0 + (uint8_t)*text);
    float logits[N_VOCAB] = {0};
    logits[BYTE0 + next] = 2;
    logits[NEVER] = 1.5f;
    int32_t token = pi_sampler_sample(s, logits);
    pi_sampler_destroy(s);
    assert_true(token == NEVER || token == BYTE0 + next);
    return token == NEVER;
}

static void test_sequence_breakers(void **state) {
    (void)state;
    pi_sampler_options o = pi_sampler_default_options();
    o.temp = 0;
    o.dry_multiplier = 1;
    assert_true(is_penalized(&o, r.model, "xabcd-xabc", 'd'));
    assert_false(is_penalized(&o, r.model, "xabcd-xabc", 'e'));
    assert_false(is_penalized(&o, r.model, "cd-c", 'd')); /* a repetition of one token is allowed */
    static const char *const usual[] = {"ab:cd-ab:c", "ab\ncd-ab\nc", "ab*cd-ab*c", "ab\"cd-ab\"c"};
    for (size_t i = 0; i < 4; i++) assert_false(is_penalized(&o, r.model, usual[i], 'd'));
    assert_true(is_penalized(&o, r.model, "ab;cd-ab;c", 'd'));
    static const char *const own[] = {";", "bc"};
    o.dry_breakers = own;
    o.n_dry_breakers = 2;
    assert_true(is_penalized(&o, r.model, "ab:cd-ab:c", 'd')); /* replaces the default breakers */
    assert_false(is_penalized(&o, r.model, "ab;cd-ab;c", 'd'));
    assert_false(is_penalized(&o, r.model, "abcde-abcd", 'e')); /* a breaker of two tokens */
    assert_true(is_penalized(&o, r.model, "abdce-abdc", 'e'));  /* half a breaker */
    o.n_dry_breakers = 0;                                       /* no breakers */
    assert_true(is_penalized(&o, r.model, "ab:cd-ab:c", 'd'));
    assert_true(is_penalized(&o, r.model, "ab;cd-ab;c", 'd'));
    /* A token that contains the breaker is a breaker: "w280" contains "8". */
    static const char *const inside[] = {"8"};
    o.dry_breakers = inside;
    o.n_dry_breakers = 1;
    pi_sampler *s = NULL;
    assert_int_equal(pi_sampler_create(r.model, &o, &s, &err), PI_OK);
    static const int32_t history[] = {270, 280, 271, 290, 270, 280, 271};
    for (size_t i = 0; i < 7; i++) pi_sampler_accept(s, history[i]);
    float logits[N_VOCAB] = {0};
    logits[290] = 2;
    logits[10] = 1.5f;
    assert_int_equal(pi_sampler_sample(s, logits), 290);
    pi_sampler_destroy(s);
}

static void test_without_a_tokenizer(void **state) {
    (void)state;
    pi_sampler_options o = pi_sampler_default_options();
    o.temp = 0;
    o.dry_multiplier = 1;
    assert_true(is_penalized(&o, bare.model, "ab:cd-ab:c", 'd')); /* only ids: no breakers */
    static const char *const own[] = {";"};
    o.dry_breakers = own;
    o.n_dry_breakers = 1;
    pi_sampler *s = NULL;
    assert_int_equal(pi_sampler_create(bare.model, &o, &s, &err), PI_ERR_UNSUPPORTED);
    assert_null(s);
}

static void test_ends_are_ignored(void **state) {
    (void)state;
    pi_sampler_options o = pi_sampler_default_options();
    o.ignore_eos = true;
    float logits[N_VOCAB] = {0};
    logits[2] = 50; /* </s> */
    for (int temp = 0; temp < 2; temp++) {
        o.temp = (float)temp;
        pi_sampler *s = NULL;
        assert_int_equal(pi_sampler_create(r.model, &o, &s, &err), PI_OK);
        for (int i = 0; i < 50; i++)
            assert_false(pi_token_is_end(r.model, pi_sampler_sample(s, logits)));
        pi_sampler_destroy(s);
    }
}

static void test_errors(void **state) {
    (void)state;
    const pi_logit_bias outside = {N_VOCAB, 1};
    static const char *const empty[] = {"a", ""};
    pi_sampler_options bad[4];
    for (int i = 0; i < 4; i++) {
        bad[i] = pi_sampler_default_options();
        bad[i].dry_multiplier = 1;
    }
    bad[0].logit_bias = &outside;
    bad[0].n_logit_bias = 1;
    bad[1].dry_breakers = empty;
    bad[1].n_dry_breakers = 2;
    bad[2].typical_p = NAN;
    bad[3].dry_breakers = empty;
    bad[3].n_dry_breakers = 1 << 20;
    for (int i = 0; i < 4; i++) {
        pi_sampler *s = NULL;
        memset(&err, 0, sizeof err);
        assert_int_equal(pi_sampler_create(r.model, &bad[i], &s, &err), PI_ERR_ARG);
        run_check_message(&err, PI_ERR_ARG);
        assert_null(s);
    }
}

static void test_no_memory(void **state) {
    (void)state;
    static const char *const own[] = {"ab", ";"};
    pi_sampler_options o = pi_sampler_default_options();
    o.dry_multiplier = 1;
    o.dry_breakers = own;
    o.n_dry_breakers = 2;
    o.ignore_eos = true;
    int64_t before = mem_count();
    pi_sampler *s = NULL;
    assert_int_equal(pi_sampler_create(r.model, &o, &s, &err), PI_OK);
    pi_sampler_destroy(s);
    int64_t needed = mem_count() - before;
    assert_true(needed > 8);
    for (int64_t i = 1; i <= needed; i++) {
        mem_fail_at(i);
        pi_status status = pi_sampler_create(r.model, &o, &s, &err);
        mem_fail_at(0);
        if (status == PI_OK) {
            pi_sampler_destroy(s);
            continue;
        }
        assert_int_equal(status, PI_ERR_NOMEM);
        assert_null(s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sequence_breakers), cmocka_unit_test(test_without_a_tokenizer),
        cmocka_unit_test(test_ends_are_ignored),  cmocka_unit_test(test_errors),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, open_models, close_models);
}
