/* test_sample.c: compares every sampler with its definition, on small distributions with results
 * computed by hand, and with a plain sorting implementation on random distributions. Draws are
 * counted with fixed seeds; the bounds are five standard deviations, so a correct sampler does not
 * fail. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "clock.h"
#include "mem.h"
#include "rng.h"
#include "sample_check.h"

static void test_draw_follows_the_distribution(void **state) {
    (void)state;
    const double p[] = {0.05, 0.4, 0.0, 0.25, 0.3};
    float logits[5];
    to_logits(p, logits, 5);
    pi_sampler_options o = plain_options();
    check_distribution(&o, logits, p, 5);
    for (int i = 0; i < 5; i++) logits[i] += 1000; /* softmax ignores an offset */
    check_distribution(&o, logits, p, 5);
}

static void test_temperature(void **state) {
    (void)state;
    const double p[] = {0.1, 0.2, 0.7};
    float logits[3];
    to_logits(p, logits, 3);
    pi_sampler_options o = plain_options();
    o.temp = 2; /* square roots of the probabilities */
    double root[3], total = 0;
    for (int i = 0; i < 3; i++) total += root[i] = sqrt(p[i]);
    for (int i = 0; i < 3; i++) root[i] /= total;
    check_distribution(&o, logits, root, 3);
    o.temp = 0.5f; /* squares of the probabilities */
    const double square[] = {0.01 / 0.54, 0.04 / 0.54, 0.49 / 0.54};
    check_distribution(&o, logits, square, 3);
    o.temp = 1e-30f; /* the limit is greedy */
    const double only_best[] = {0, 0, 1};
    check_distribution(&o, logits, only_best, 3);
}

static void test_top_k_keeps_the_k_best(void **state) {
    (void)state;
    const double p[] = {0.1, 0.3, 0.05, 0.35, 0.2};
    float logits[5];
    to_logits(p, logits, 5);
    pi_sampler_options o = plain_options();
    o.top_k = 2;
    const double two[] = {0, 0.3 / 0.65, 0, 0.35 / 0.65, 0};
    check_distribution(&o, logits, two, 5);
    o.top_k = 4;
    const double four[] = {0.1 / 0.95, 0.3 / 0.95, 0, 0.35 / 0.95, 0.2 / 0.95};
    check_distribution(&o, logits, four, 5);
    o.top_k = 99;
    check_distribution(&o, logits, p, 5);
    o.top_k = -1;
    check_distribution(&o, logits, p, 5);
}

static void test_top_k_ties_go_to_lower_ids(void **state) {
    (void)state;
    const float logits[] = {0, 1, 1, 1, 1, 0};
    pi_sampler_options o = plain_options();
    o.top_k = 2;
    const double expected[] = {0, 0.5, 0.5, 0, 0, 0};
    check_distribution(&o, logits, expected, 6);
    o.top_k = 1;
    const double one[] = {0, 1, 0, 0, 0, 0};
    check_distribution(&o, logits, one, 6);
}

static void test_top_p_keeps_the_smallest_mass(void **state) {
    (void)state;
    const double p[] = {0.1, 0.4, 0.05, 0.25, 0.2};
    float logits[5];
    to_logits(p, logits, 5);
    for (int with_top_k = 0; with_top_k < 2; with_top_k++) {
        pi_sampler_options o = plain_options();
        o.top_k = with_top_k ? 4 : 0; /* sorted entries and the heap are different code */
        double scale = with_top_k ? 0.95 : 1;
        o.top_p = (float)(0.6 / scale); /* 0.4 + 0.25 is the first sum that reaches 0.6 */
        const double two[] = {0, 0.4 / 0.65, 0, 0.25 / 0.65, 0};
        check_distribution(&o, logits, two, 5);
        o.top_p = (float)(0.8 / scale); /* 0.2 is also needed */
        const double three[] = {0, 0.4 / 0.85, 0, 0.25 / 0.85, 0.2 / 0.85};
        check_distribution(&o, logits, three, 5);
        o.top_p = 0; /* one token always remains */
        const double one[] = {0, 1, 0, 0, 0};
        check_distribution(&o, logits, one, 5);
    }
}

static void test_min_p_is_relative_to_the_best(void **state) {
    (void)state;
    const double p[] = {0.5, 0.24, 0.2, 0.06};
    float logits[4];
    to_logits(p, logits, 4);
    pi_sampler_options o = plain_options();
    o.min_p = 0.41f; /* 0.205 and up */
    const double two[] = {0.5 / 0.74, 0.24 / 0.74, 0, 0};
    check_distribution(&o, logits, two, 4);
    o.min_p = 0.1f; /* 0.05 and up */
    check_distribution(&o, logits, p, 4);
    o.min_p = 7; /* the best token always remains */
    const double one[] = {1, 0, 0, 0};
    check_distribution(&o, logits, one, 4);
}

/* Truncation comes before the temperature: with a high temperature first, both would be kept. */
static void test_order_of_the_chain(void **state) {
    (void)state;
    const double p[] = {0.9, 0.07, 0.03};
    float logits[3];
    to_logits(p, logits, 3);
    pi_sampler_options o = plain_options();
    o.temp = 100;
    o.top_p = 0.85f;
    const double one[] = {1, 0, 0};
    check_distribution(&o, logits, one, 3);
    o.top_p = 1;
    o.min_p = 0.05f; /* 0.045 and up */
    double a = pow(0.9, 0.01), b = pow(0.07, 0.01);
    const double two[] = {a / (a + b), b / (a + b), 0};
    check_distribution(&o, logits, two, 3);
}

static void test_greedy(void **state) {
    (void)state;
    pi_sampler_options o = plain_options();
    o.temp = 0;
    const float logits[] = {-3, 7, 2, 7, -INFINITY};
    assert_int_equal(sample_once(&o, logits, 5), 1);
    o.temp = -1;
    o.top_k = 1;
    o.top_p = 0.5f;
    assert_int_equal(sample_once(&o, logits, 5), 1);
}

static void test_penalty_divides_and_multiplies(void **state) {
    (void)state;
    pi_sampler_options o = plain_options();
    o.temp = 0;
    o.repeat_penalty = 2;
    const float positive[] = {4, 3, 1};
    sampler *s = make_sampler(&o, 3);
    assert_int_equal(sampler_sample(s, positive), 0); /* 4 3 1 */
    assert_int_equal(sampler_sample(s, positive), 1); /* 2 3 1 */
    assert_int_equal(sampler_sample(s, positive), 0); /* 2 1.5 1: penalized only once */
    assert_int_equal(sampler_sample(s, positive), 0);
    sampler_free(s);
    const float negative[] = {-1, -1.5f, -5};
    s = make_sampler(&o, 3);
    sampler_accept(s, 0);
    assert_int_equal(sampler_sample(s, negative), 1); /* -2 -1.5 -5 */
    assert_int_equal(sampler_sample(s, negative), 0); /* -2 -3 -5 */
    sampler_free(s);
}

static void test_penalty_window(void **state) {
    (void)state;
    pi_sampler_options o = plain_options();
    o.temp = 0;
    o.repeat_penalty = 2;
    o.repeat_last_n = 2;
    const float logits[] = {8, 6, 5, 4.5f};
    sampler *s = make_sampler(&o, 4);
    assert_int_equal(sampler_sample(s, logits), 0);
    assert_int_equal(sampler_sample(s, logits), 1);
    assert_int_equal(sampler_sample(s, logits), 2); /* 4 3 5 4.5 */
    assert_int_equal(sampler_sample(s, logits), 0); /* 0 has left the window */
    sampler_accept(s, 3);
    sampler_accept(s, 3);
    sampler_accept(s, 3);
    assert_int_equal(sampler_sample(s, logits), 0);
    sampler_free(s);
    o.repeat_last_n = -1; /* tokens never leave the window */
    s = make_sampler(&o, 4);
    for (int i = 0; i < 1000; i++) sampler_accept(s, 1);
    sampler_accept(s, 0);
    for (int i = 0; i < 1000; i++) sampler_accept(s, 2);
    assert_int_equal(sampler_sample(s, logits), 3);
    sampler_free(s);
    o.repeat_last_n = 0;
    s = make_sampler(&o, 4);
    sampler_accept(s, 0);
    assert_int_equal(sampler_sample(s, logits), 0);
    sampler_free(s);
}

static void test_hostile_logits(void **state) {
    (void)state;
    float logits[] = {NAN, 1, NAN, 3, -INFINITY};
    const double expected[] = {0, 1 / (1 + exp(2)), 0, exp(2) / (1 + exp(2)), 0};
    pi_sampler_options o = plain_options();
    check_distribution(&o, logits, expected, 5);
    o.top_k = 2;
    check_distribution(&o, logits, expected, 5);
    o.top_p = 0.999f;
    check_distribution(&o, logits, expected, 5);
    o.temp = 0;
    assert_int_equal(sample_once(&o, logits, 5), 3);
    const float nothing[] = {NAN, -INFINITY, NAN};
    for (int temp = 0; temp < 2; temp++) {
        for (int top_k = 0; top_k < 3; top_k++) {
            o = plain_options();
            o.temp = (float)temp;
            o.top_k = top_k;
            o.top_p = 0.9f;
            o.min_p = 0.1f;
            assert_int_equal(sample_once(&o, nothing, 3), 0);
        }
    }
    const float infinite[] = {FLT_MAX, INFINITY, -FLT_MAX, 0};
    o = plain_options();
    o.min_p = 0.05f;
    o.top_p = 0.95f;
    const double halves[] = {0.5, 0.5, 0, 0}; /* +inf counts as FLT_MAX */
    check_distribution(&o, infinite, halves, 4);
}

static void test_logits_are_not_changed(void **state) {
    (void)state;
    float logits[64], copy[64];
    rng r;
    rng_seed(&r, 1);
    for (int i = 0; i < 64; i++) logits[i] = rng_normal(&r);
    memcpy(copy, logits, sizeof logits);
    pi_sampler_options o = plain_options();
    o.repeat_penalty = 1.3f;
    o.top_p = 0.9f;
    sampler *s = make_sampler(&o, 64);
    for (int i = 0; i < 20; i++) sampler_sample(s, logits);
    sampler_free(s);
    assert_memory_equal(logits, copy, sizeof logits);
}

static void test_same_seed_same_tokens(void **state) {
    (void)state;
    float logits[200];
    rng r;
    rng_seed(&r, 7);
    for (int i = 0; i < 200; i++) logits[i] = rng_normal(&r);
    pi_sampler_options o = {.temp = 0.8f,
                            .top_k = 40,
                            .top_p = 0.95f,
                            .min_p = 0.05f,
                            .typical_p = 1,
                            .repeat_penalty = 1.1f,
                            .repeat_last_n = 64,
                            .seed = 5};
    sampler *a = make_sampler(&o, 200), *b = make_sampler(&o, 200);
    o.seed = 6;
    sampler *c = make_sampler(&o, 200);
    int differ = 0;
    for (int i = 0; i < 100; i++) {
        int32_t token = sampler_sample(a, logits);
        assert_int_equal(token, sampler_sample(b, logits));
        differ += token != sampler_sample(c, logits);
    }
    assert_true(differ > 20);
    assert_true(sampler_seed(a) == 5 && sampler_seed(c) == 6);
    sampler_free(a);
    sampler_free(b);
    sampler_free(c);
    o.seed = UINT64_MAX;
    a = make_sampler(&o, 200);
    b = make_sampler(&o, 200);
    assert_true(sampler_seed(a) != sampler_seed(b));
    o.seed = sampler_seed(a); /* the reported seed reproduces the run */
    c = make_sampler(&o, 200);
    for (int i = 0; i < 50; i++) {
        assert_int_equal(sampler_sample(a, logits), sampler_sample(c, logits));
    }
    sampler_free(a);
    sampler_free(b);
    sampler_free(c);
}

typedef struct entry {
    double logit;
    int32_t id;
} entry;

static int entry_compare(const void *pa, const void *pb) {
    const entry *a = pa, *b = pb;
    if (a->logit != b->logit) return a->logit > b->logit ? -1 : 1;
    return a->id < b->id ? -1 : 1;
}

/* The chain by its definition: sorts all tokens, then truncates. Stores the resulting distribution
 * in p. */
static void reference_chain(const pi_sampler_options *o, const float *logits, int32_t n,
                            double *p) {
    entry e[MAX_VOCAB];
    for (int32_t i = 0; i < n; i++) e[i] = (entry){.logit = (double)logits[i], .id = i};
    qsort(e, (size_t)n, sizeof e[0], entry_compare);
    int32_t kept = o->top_k > 0 && o->top_k < n ? o->top_k : n;
    double total = 0, mass = 0;
    for (int32_t i = 0; i < kept; i++) total += exp(e[i].logit - e[0].logit);
    for (int32_t i = 0; i < kept && o->top_p < 1; i++) {
        mass += exp(e[i].logit - e[0].logit) / total;
        if (mass >= (double)o->top_p) kept = i + 1;
    }
    while (kept > 1 && exp(e[kept - 1].logit - e[0].logit) < (double)o->min_p) kept--;
    total = 0;
    for (int32_t i = 0; i < kept; i++) total += exp((e[i].logit - e[0].logit) / (double)o->temp);
    for (int32_t i = 0; i < n; i++) p[i] = 0;
    for (int32_t i = 0; i < kept; i++) {
        p[e[i].id] = exp((e[i].logit - e[0].logit) / (double)o->temp) / total;
    }
}

static void test_chain_against_sorting(void **state) {
    (void)state;
    rng r;
    rng_seed(&r, 11);
    for (int round = 0; round < 40; round++) {
        int32_t n = 2 + (int32_t)(rng_u64(&r) % 60);
        float logits[MAX_VOCAB];
        double expected[MAX_VOCAB];
        for (int32_t i = 0; i < n; i++) { /* coarse steps give ties */
            logits[i] = roundf(rng_normal(&r) * 8) / 4;
        }
        pi_sampler_options o = plain_options();
        o.seed = rng_u64(&r) >> 1;
        o.temp = 0.5f + (float)rng_uniform(&r);
        if (round % 2) o.top_k = 1 + (int32_t)(rng_u64(&r) % 40);
        if (round % 3) o.top_p = 0.3f + 0.69f * (float)rng_uniform(&r);
        if (round % 5) o.min_p = 0.2f * (float)rng_uniform(&r);
        reference_chain(&o, logits, n, expected);
        check_distribution(&o, logits, expected, n);
    }
}

static void test_bad_options_are_refused(void **state) {
    (void)state;
    const sample_vocab ten = {.n_vocab = 10, .n_history = 64};
    enum { N_BAD = 24 };
    pi_sampler_options bad[N_BAD];
    const pi_logit_bias outside = {10, 1}, negative = {-1, 1}, nan_bias = {0, NAN};
    for (int i = 0; i < N_BAD; i++) bad[i] = plain_options();
    bad[0].temp = NAN;
    bad[1].top_p = -0.1f;
    bad[2].top_p = NAN;
    bad[3].min_p = -1;
    bad[4].min_p = NAN;
    bad[5].repeat_penalty = 0;
    bad[6].repeat_penalty = NAN;
    bad[7].repeat_last_n = -2;
    bad[8].typical_p = NAN;
    bad[9].typical_p = -1;
    bad[10].mirostat = 3;
    bad[11].mirostat = -1;
    bad[12].mirostat_tau = NAN;
    bad[13].mirostat_eta = -1;
    bad[14].xtc_probability = NAN;
    bad[15].xtc_threshold = -0.5f;
    bad[16].dry_multiplier = NAN;
    bad[17].dry_base = -1;
    bad[18].dry_allowed_length = -1;
    bad[19].dry_last_n = -2;
    bad[20].frequency_penalty = INFINITY;
    bad[21].logit_bias = &outside;
    bad[22].logit_bias = &negative;
    bad[23].logit_bias = &nan_bias;
    for (int i = 21; i < N_BAD; i++) bad[i].n_logit_bias = 1;
    for (int i = 0; i < N_BAD; i++) {
        sampler *s = NULL;
        pi_error err = {0};
        assert_int_equal(sampler_create(&bad[i], &ten, &s, &err), PI_ERR_ARG);
        assert_null(s);
        assert_int_equal(err.status, PI_ERR_ARG);
        assert_true(strlen(err.message) > 10);
        assert_int_equal(sampler_create(&bad[i], &ten, &s, NULL), PI_ERR_ARG);
    }
    sampler_free(NULL);
}

static void test_allocation_failures(void **state) {
    (void)state;
    const dry_breaker breaker = {.tokens = {7}, .n = 1};
    const dry_breakers breakers = {(dry_breaker *)(uintptr_t)&breaker, 1};
    const int32_t end = 3;
    const sample_vocab vocab = {1000, 64, &end, 1, &breakers};
    pi_sampler_options o = plain_options();
    o.repeat_penalty = 1.2f;
    o.dry_multiplier = 1;
    o.ignore_eos = true;
    int64_t before = mem_count();
    sampler *s = NULL;
    assert_int_equal(sampler_create(&o, &vocab, &s, NULL), PI_OK);
    int64_t needed = mem_count() - before;
    sampler_free(s);
    assert_true(needed >= 12);
    for (int64_t n = 1; n <= needed; n++) {
        pi_error err = {0};
        mem_fail_at(n);
        assert_int_equal(sampler_create(&o, &vocab, &s, &err), PI_ERR_NOMEM);
        assert_null(s);
    }
    mem_fail_at(0);
}

static void test_sampling_does_not_allocate_and_is_fast(void **state) {
    (void)state;
    enum { N = 151936, ROUNDS = 20 };
    float *logits = mem_calloc(N, sizeof *logits);
    assert_non_null(logits);
    rng r;
    rng_seed(&r, 3);
    for (int i = 0; i < N; i++) logits[i] = 3 * rng_normal(&r);
    pi_sampler_options o = {.temp = 0.8f,
                            .top_k = 40,
                            .top_p = 0.95f,
                            .min_p = 0.05f,
                            .typical_p = 1,
                            .repeat_penalty = 1.1f,
                            .repeat_last_n = 64,
                            .seed = 5};
    for (int top_k = 40; top_k >= 0; top_k -= 40) {
        o.top_k = top_k;
        sampler *s = make_sampler(&o, N);
        int64_t before = mem_count();
        double start = clock_seconds();
        for (int i = 0; i < ROUNDS; i++) sampler_sample(s, logits);
        print_message("top-k %d: %.3f ms a token\n", top_k,
                      (clock_seconds() - start) * 1e3 / ROUNDS);
        assert_true(mem_count() == before);
        sampler_free(s);
    }
    mem_free(logits);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_draw_follows_the_distribution),
        cmocka_unit_test(test_temperature),
        cmocka_unit_test(test_top_k_keeps_the_k_best),
        cmocka_unit_test(test_top_k_ties_go_to_lower_ids),
        cmocka_unit_test(test_top_p_keeps_the_smallest_mass),
        cmocka_unit_test(test_min_p_is_relative_to_the_best),
        cmocka_unit_test(test_order_of_the_chain),
        cmocka_unit_test(test_greedy),
        cmocka_unit_test(test_penalty_divides_and_multiplies),
        cmocka_unit_test(test_penalty_window),
        cmocka_unit_test(test_hostile_logits),
        cmocka_unit_test(test_logits_are_not_changed),
        cmocka_unit_test(test_same_seed_same_tokens),
        cmocka_unit_test(test_chain_against_sorting),
        cmocka_unit_test(test_bad_options_are_refused),
        cmocka_unit_test(test_allocation_failures),
        cmocka_unit_test(test_sampling_does_not_allocate_and_is_fast),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
