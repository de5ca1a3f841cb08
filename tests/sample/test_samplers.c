/* test_samplers.c: compares samplers that change logits (logit bias, penalties, DRY), and typical,
 * XTC, dynamic temperature and Mirostat, with their definitions; DRY also with a brute-force
 * search. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "dry.h"
#include "mem.h"
#include "rng.h"
#include "sample_check.h"

/* ---- scores ---------------------------------------------------------------------------------- */

static void test_logit_bias(void **state) {
    (void)state;
    const double p[] = {0.5, 0.25, 0.25};
    float logits[3];
    to_logits(p, logits, 3);
    const pi_logit_bias bias[] = {{1, (float)log(2)}, {2, -INFINITY}, {1, (float)log(2)}};
    pi_sampler_options o = plain_options();
    o.logit_bias = bias;
    o.n_logit_bias = 3;
    const double expected[] = {0.5 / 1.5, 1 / 1.5, 0}; /* 0.25 times 2 times 2 */
    check_distribution(&o, logits, expected, 3);
    o.temp = 0;
    assert_int_equal(sample_once(&o, logits, 3), 1);
    const pi_logit_bias all[] = {{0, -INFINITY}, {1, INFINITY}, {2, INFINITY}};
    const float hostile[] = {1, -INFINITY, 0}; /* -inf + inf is NaN: probability 0 */
    o.logit_bias = all;
    assert_int_equal(sample_once(&o, hostile, 3), 2);
    o.temp = 1;
    assert_int_equal(sample_once(&o, hostile, 3), 2);
}

static void test_ignored_ends(void **state) {
    (void)state;
    const int32_t ends[] = {0, 3};
    const sample_vocab vocab = {.n_vocab = 4, .n_history = 8, .ends = ends, .n_ends = 2};
    const float logits[] = {9, 1, 0, 9};
    pi_sampler_options o = plain_options();
    o.ignore_eos = true;
    o.temp = 0;
    sampler *s = NULL;
    assert_int_equal(sampler_create(&o, &vocab, &s, NULL), PI_OK);
    assert_int_equal(sampler_sample(s, logits), 1);
    sampler_free(s);
    o.ignore_eos = false;
    assert_int_equal(sampler_create(&o, &vocab, &s, NULL), PI_OK);
    assert_int_equal(sampler_sample(s, logits), 0);
    sampler_free(s);
}

static void test_presence_and_frequency(void **state) {
    (void)state;
    const float logits[] = {4, 3.5f, 0};
    pi_sampler_options o = plain_options();
    o.temp = 0;
    o.presence_penalty = 0.75f;
    sampler *s = make_sampler(&o, 3);
    assert_int_equal(sampler_sample(s, logits), 0);
    assert_int_equal(sampler_sample(s, logits), 1); /* 3.25 3.5 */
    assert_int_equal(sampler_sample(s, logits), 0); /* 3.25 2.75 for any number of repetitions */
    assert_int_equal(sampler_sample(s, logits), 0);
    sampler_free(s);
    o.presence_penalty = 0;
    o.frequency_penalty = 0.4f;
    s = make_sampler(&o, 3);
    const int32_t expected[] = {0, 0, 1, 0, 1, 0, 1}; /* 4 3.6|3.2 3.5|3.2 3.1|2.8 3.1|2.8 2.7 */
    for (size_t i = 0; i < 7; i++) assert_int_equal(sampler_sample(s, logits), expected[i]);
    sampler_free(s);
    o.frequency_penalty = -1; /* negative penalties favour repetition */
    s = make_sampler(&o, 3);
    for (int i = 0; i < 3; i++) sampler_accept(s, 1);
    assert_int_equal(sampler_sample(s, logits), 1);
    sampler_free(s);
    o.repeat_last_n = 0;
    s = make_sampler(&o, 3);
    for (int i = 0; i < 3; i++) sampler_accept(s, 1);
    assert_int_equal(sampler_sample(s, logits), 0);
    sampler_free(s);
}

/* ---- DRY ------------------------------------------------------------------------------------- */

static pi_sampler_options dry_options(float multiplier, float base, int32_t allowed) {
    pi_sampler_options o = plain_options();
    o.dry_multiplier = multiplier;
    o.dry_base = base;
    o.dry_allowed_length = allowed;
    return o;
}

/* text: digits are tokens 0..9. Stores the penalties in scores[10]. */
static void dry_scores(const pi_sampler_options *o, int32_t window, const dry_breakers *breakers,
                       const char *text, float *scores) {
    dry *d = dry_create(o, 10, window, breakers);
    assert_non_null(d);
    for (; *text; text++) dry_accept(d, *text - '0');
    for (int i = 0; i < 10; i++) scores[i] = 0;
    dry_apply(d, scores);
    float again[10] = {0};
    dry_apply(d, again); /* the second call gives the same result */
    assert_memory_equal(scores, again, sizeof again);
    dry_free(d);
}

static void check_scores(const float *scores, const double *expected) {
    for (int i = 0; i < 10; i++) {
        if (fabs((double)scores[i] - expected[i]) > 1e-5)
            fail_msg("token %d: %g, expected %g", i, (double)scores[i], expected[i]);
    }
}

static void test_dry_by_hand(void **state) {
    (void)state;
    float scores[10];
    pi_sampler_options o = dry_options(0.5f, 2, 2);
    /* 1 2 3 occurred before, followed by 4: length 3, one more than allowed. */
    dry_scores(&o, 64, NULL, "91234561230123", scores);
    check_scores(scores, (double[10]){-1, 0, 0, 0, -1, 0, 0, 0, 0, 0});
    /* The longest match counts: 1 2 3 for 4, 2 3 for 7. */
    dry_scores(&o, 64, NULL, "12345237623780123", scores);
    check_scores(scores, (double[10]){0, 0, 0, 0, -1, 0, 0, -0.5, 0, 0});
    /* One token is below the allowed length; the history may be empty. */
    dry_scores(&o, 64, NULL, "123453", scores);
    check_scores(scores, (double[10]){0});
    dry_scores(&o, 64, NULL, "", scores);
    check_scores(scores, (double[10]){0});
    /* A run overlaps itself: six equal tokens are a match of five. */
    dry_scores(&o, 64, NULL, "777777", scores);
    check_scores(scores, (double[10]){0, 0, 0, 0, 0, 0, 0, -4, 0, 0});
    /* Tokens outside the window are ignored. */
    dry_scores(&o, 7, NULL, "1234056123", scores);
    check_scores(scores, (double[10]){0});
    dry_scores(&o, 1, NULL, "1111", scores);
    check_scores(scores, (double[10]){0});
}

static void test_dry_breakers(void **state) {
    (void)state;
    float scores[10];
    pi_sampler_options o = dry_options(1, 2, 1);
    dry_breaker items[2] = {{.tokens = {9}, .n = 1}, {.tokens = {8, 7}, .n = 2}};
    const dry_breakers breakers = {items, 2};
    dry_scores(&o, 64, NULL, "1923401923", scores); /* length 4: 8 */
    check_scores(scores, (double[10]){0, 0, 0, 0, -8, 0, 0, 0, 0, 0});
    dry_scores(&o, 64, &breakers, "1923401923", scores); /* 2 3 only: 2 */
    check_scores(scores, (double[10]){0, 0, 0, 0, -2, 0, 0, 0, 0, 0});
    dry_scores(&o, 64, &breakers, "1872340187234018723", scores); /* 2 3 again */
    check_scores(scores, (double[10]){0, 0, 0, 0, -2, 0, 0, 0, 0, 0});
    dry_scores(&o, 64, &breakers, "182340182340", scores); /* half a breaker has no effect: 6 - 1 */
    check_scores(scores, (double[10]){0, -32, 0, 0, 0, 0, 0, 0, 0, 0});
    dry_scores(&o, 64, &breakers, "239239", scores); /* nothing after the breaker */
    check_scores(scores, (double[10]){0});
}

static void test_dry_in_the_chain(void **state) {
    (void)state;
    pi_sampler_options o = dry_options(100, 1, 2);
    o.temp = 0;
    const float logits[] = {5, 4, 3, 2};
    sampler *s = make_sampler(&o, 4);
    const int32_t prompt[] = {1, 2, 0, 3, 1, 2};
    for (size_t i = 0; i < 6; i++) sampler_accept(s, prompt[i]);
    assert_int_equal(sampler_sample(s, logits), 1); /* 0 would continue the repetition */
    sampler_free(s);
    o.dry_base = 0.5f; /* below 1: off */
    s = make_sampler(&o, 4);
    for (size_t i = 0; i < 6; i++) sampler_accept(s, prompt[i]);
    assert_int_equal(sampler_sample(s, logits), 0);
    sampler_free(s);
    /* For repetitions of any length logits stay finite, and banned tokens stay banned. */
    o = dry_options(1e30f, 1000, 0);
    const pi_logit_bias ban = {0, -INFINITY};
    o.logit_bias = &ban;
    o.n_logit_bias = 1;
    o.temp = 0;
    s = make_sampler(&o, 4);
    for (int i = 0; i < 200; i++) assert_int_not_equal(sampler_sample(s, logits), 0);
    sampler_free(s);
}

/* DRY by its definition, in cubic time. */
static void dry_brute(const int32_t *text, int n, int limit, const pi_sampler_options *o,
                      double *penalty, int n_vocab) {
    int longest[MAX_VOCAB] = {0};
    for (int end = 0; end < n - 1; end++) { /* a match that ends at `end` */
        int length = 0;
        while (length <= end && length < limit && text[end - length] == text[n - 1 - length])
            length++;
        if (length > longest[text[end + 1]]) longest[text[end + 1]] = length;
    }
    for (int i = 0; i < n_vocab; i++) {
        int over = longest[i] - o->dry_allowed_length;
        penalty[i] = longest[i] > 0 && over >= 0
                         ? (double)o->dry_multiplier * pow((double)o->dry_base, over)
                         : 0;
    }
}

static void test_dry_against_brute_force(void **state) {
    (void)state;
    rng r;
    rng_seed(&r, 5);
    for (int round = 0; round < 300; round++) {
        int n_vocab = 2 + (int)(rng_u64(&r) % 4), window = 1 + (int)(rng_u64(&r) % 60);
        pi_sampler_options o = dry_options(0.8f, 1.25f, (int32_t)(rng_u64(&r) % 4));
        dry_breaker item = {.tokens = {0}, .n = 1};
        const dry_breakers breakers = {&item, 1};
        bool broken = round % 2;
        dry *d = dry_create(&o, n_vocab, window, broken ? &breakers : NULL);
        int32_t text[100];
        for (int n = 1; n <= 100; n++) {
            text[n - 1] = (int32_t)(rng_u64(&r) % (uint64_t)n_vocab);
            dry_accept(d, text[n - 1]);
            int from = n > window ? n - window : 0, limit = 0;
            while (limit < n - from && !(broken && text[n - 1 - limit] == 0)) limit++;
            double expected[MAX_VOCAB];
            float scores[MAX_VOCAB] = {0};
            dry_brute(text + from, n - from, limit, &o, expected, n_vocab);
            dry_apply(d, scores);
            for (int i = 0; i < n_vocab; i++) {
                assert_true(fabs((double)scores[i] + expected[i]) <= 1e-6 * (1 + expected[i]));
            }
        }
        dry_free(d);
    }
}

/* ---- filters --------------------------------------------------------------------------------- */

static void test_typical(void **state) {
    (void)state;
    /* Entropy 1.2799 nats. Surprises 0.6931 1.3863 1.6094 2.9957, so off by 0.587 0.106 0.330
     * 1.716: the order is 1, 2, 0, 3. */
    const double p[] = {0.5, 0.25, 0.2, 0.05};
    float logits[4];
    to_logits(p, logits, 4);
    pi_sampler_options o = plain_options();
    for (int with_top_k = 0; with_top_k < 2; with_top_k++) {
        o.top_k = with_top_k ? 4 : 0;
        o.typical_p = 0.2f;
        check_distribution(&o, logits, (double[]){0, 1, 0, 0}, 4);
        o.typical_p = 0.4f;
        check_distribution(&o, logits, (double[]){0, 0.25 / 0.45, 0.2 / 0.45, 0}, 4);
        o.typical_p = 0.9f;
        check_distribution(&o, logits, (double[]){0.5 / 0.95, 0.25 / 0.95, 0.2 / 0.95, 0}, 4);
        o.typical_p = 0.99f;
        check_distribution(&o, logits, p, 4);
        o.typical_p = 0; /* never nothing */
        check_distribution(&o, logits, (double[]){0, 1, 0, 0}, 4);
    }
    o.typical_p = 0.4f; /* top-p comes later and counts the remaining tokens */
    o.top_p = 0.5f;
    check_distribution(&o, logits, (double[]){0, 1, 0, 0}, 4);
}

static void test_xtc(void **state) {
    (void)state;
    const double p[] = {0.05, 0.3, 0.4, 0.2, 0.05};
    float logits[5];
    to_logits(p, logits, 5);
    pi_sampler_options o = plain_options();
    o.xtc_probability = 1;
    o.xtc_threshold = 0.1f; /* the last of 0.4 0.3 0.2 remains */
    const double cut[] = {0.05 / 0.3, 0, 0, 0.2 / 0.3, 0.05 / 0.3};
    check_distribution(&o, logits, cut, 5);
    o.xtc_threshold = 0.35f; /* only one token reaches it: none is removed */
    check_distribution(&o, logits, p, 5);
    o.xtc_threshold = 0.51f;
    check_distribution(&o, logits, p, 5);
    o.xtc_threshold = 0; /* all reach it: the least likely remains, with the usual order of ties */
    check_distribution(&o, logits, (double[]){0, 0, 0, 0, 1}, 5);
    o.xtc_threshold = 0.1f;
    o.xtc_probability = 0.25f; /* a mixture of the truncated and the full distribution */
    double mixed[5];
    for (int i = 0; i < 5; i++) mixed[i] = 0.25 * cut[i] + 0.75 * p[i];
    check_distribution(&o, logits, mixed, 5);
    o.temp = 0; /* greedy ignores XTC */
    assert_int_equal(sample_once(&o, logits, 5), 2);
}

static void test_dynamic_temperature(void **state) {
    (void)state;
    pi_sampler_options o = plain_options();
    o.dynatemp_range = 0.5f;
    const double even[] = {0.25, 0.25, 0.25, 0.25};
    float logits[4];
    to_logits(even, logits, 4);
    check_distribution(&o, logits, even, 4);
    const double p[] = {0.7, 0.2, 0.1};
    to_logits(p, logits, 3);
    double entropy = 0, total = 0, expected[3];
    for (int i = 0; i < 3; i++) entropy -= p[i] * log(p[i]);
    o.dynatemp_exponent = 2;
    double temp = 0.5 + pow(entropy / log(3), 2);
    for (int i = 0; i < 3; i++) total += expected[i] = pow(p[i], 1 / temp);
    for (int i = 0; i < 3; i++) expected[i] /= total;
    check_distribution(&o, logits, expected, 3);
    o.dynatemp_range = 5; /* low entropy with a temperature of zero */
    const float sure[] = {0, 900, 0};
    check_distribution(&o, sure, (double[]){0, 1, 0}, 3);
}

/* ---- mirostat -------------------------------------------------------------------------------- */

/* Logits of a Zipf distribution with exponent s, shuffled. */
static void zipf_logits(float *logits, int32_t n, double s, uint64_t seed) {
    rng r;
    rng_seed(&r, seed);
    for (int32_t i = 0; i < n; i++) logits[i] = (float)(-s * log(i + 1));
    for (int32_t i = n - 1; i > 0; i--) {
        int32_t j = (int32_t)(rng_u64(&r) % (uint64_t)(i + 1));
        float t = logits[i];
        logits[i] = logits[j];
        logits[j] = t;
    }
}

/* The paper's claim: the mean surprisal of drawn tokens approaches the target. Mirostat measures
 * surprisal under the truncated distribution, which the test cannot see. The test measures it under
 * the full distribution, where it can only be higher; the bounds allow for that. */
static void test_mirostat_reaches_its_target(void **state) {
    (void)state;
    enum { N = 5000, ROUNDS = 3000 };
    float *logits = mem_calloc(N, sizeof *logits);
    zipf_logits(logits, N, 1.1, 3);
    double log_total = 0;
    for (int i = 0; i < N; i++) log_total += exp((double)logits[i]);
    log_total = log(log_total);
    for (int version = 1; version <= 2; version++) {
        double before = 0;
        for (int tau = 2; tau <= 6; tau += 2) {
            pi_sampler_options o = plain_options();
            o.mirostat = version;
            o.mirostat_tau = (float)tau;
            o.top_k = 1; /* not used with Mirostat */
            sampler *s = make_sampler(&o, N);
            double sum = 0;
            for (int i = 0; i < ROUNDS; i++) {
                int32_t token = sampler_sample(s, logits);
                if (i >= ROUNDS / 2) sum += (log_total - (double)logits[token]) / log(2);
            }
            sampler_free(s);
            double surprise = sum / (ROUNDS - ROUNDS / 2);
            assert_true(surprise > before + 0.5);
            assert_true(surprise > tau - 0.3 && surprise < tau + 3);
            before = surprise;
        }
    }
    mem_free(logits);
}

/* Version 2 by hand: mu starts at 2 tau; tokens with a higher surprisal are removed. */
static void test_mirostat_2_by_hand(void **state) {
    (void)state;
    const double p[] = {0.5, 0.25, 0.125, 0.125}; /* 1 2 3 3 bits */
    float logits[4];
    to_logits(p, logits, 4);
    pi_sampler_options o = plain_options();
    o.mirostat = 2;
    o.mirostat_eta = 0; /* mu is constant */
    o.mirostat_tau = 1.1f;
    check_distribution(&o, logits, (double[]){0.5 / 0.75, 0.25 / 0.75, 0, 0}, 4);
    o.mirostat_tau = 1.6f;
    check_distribution(&o, logits, p, 4);
    o.mirostat_tau = 0.1f; /* even the best token exceeds mu: it remains */
    check_distribution(&o, logits, (double[]){1, 0, 0, 0}, 4);
    /* Learning: after the only token, with surprisal 0, mu grows by eta tau. 0.2 + 20 * 0.05 >
     * 1. */
    o.mirostat_eta = 0.5f;
    sampler *s = make_sampler(&o, 4);
    int first = -1;
    for (int i = 0; i < 400 && first < 0; i++) {
        if (sampler_sample(s, logits) != 0) first = i;
    }
    sampler_free(s);
    assert_true(first > 20); /* mu passes 2 bits after (2 - 0.2) / 0.05 = 36 steps */
    o.temp = 0;
    assert_int_equal(sample_once(&o, logits, 4), 0);
}

static void test_mirostat_1_by_hand(void **state) {
    (void)state;
    enum { N = 64 };
    float logits[N];
    for (int i = 0; i < N; i++) logits[i] = (float)(-2 * log(i + 1)); /* s is 2 exactly */
    pi_sampler_options o = plain_options();
    o.mirostat = 1;
    o.mirostat_eta = 0;
    o.mirostat_tau = 1.75f;
    /* k = (2^3.5 * 1 / (1 - 1/64)) ^ (1/2) = 3.39: three tokens. */
    double expected[N] = {1 / (1 + 1. / 4 + 1. / 9)};
    expected[1] = expected[0] / 4;
    expected[2] = expected[0] / 9;
    check_distribution(&o, logits, expected, N);
    o.mirostat_tau = 0; /* k = 1.008 */
    double one[N] = {1};
    check_distribution(&o, logits, one, N);
}

/* ---- all samplers together ------------------------------------------------------------------- */

static void test_nothing_breaks_the_chain(void **state) {
    (void)state;
    const float extremes[] = {NAN, INFINITY, -INFINITY, FLT_MAX, -FLT_MAX, 0, -0.0f, 1e-40f, 88};
    enum { N_EXTREMES = sizeof extremes / sizeof *extremes };
    rng r;
    rng_seed(&r, 9);
    for (int round = 0; round < 3000; round++) {
        int32_t n = 1 + (int32_t)(rng_u64(&r) % 12);
        float logits[12];
        bool any = false;
        for (int i = 0; i < n; i++) {
            logits[i] = rng_u64(&r) % 2 ? extremes[rng_u64(&r) % N_EXTREMES] : rng_normal(&r);
            any = any || logits[i] > -INFINITY;
        }
        pi_sampler_options o = plain_options();
        o.seed = (uint64_t)round;
        o.temp = rng_u64(&r) % 4 ? (float)pow(10, 40 * rng_uniform(&r) - 20) : 0;
        o.dynatemp_range = rng_u64(&r) % 3 ? 0 : o.temp;
        o.top_k = (int32_t)(rng_u64(&r) % 5);
        o.typical_p = rng_u64(&r) % 2 ? 1 : (float)rng_uniform(&r);
        o.top_p = rng_u64(&r) % 2 ? 1 : (float)rng_uniform(&r);
        o.min_p = rng_u64(&r) % 2 ? 0 : (float)rng_uniform(&r);
        o.xtc_probability = rng_u64(&r) % 2 ? 0 : 1;
        o.xtc_threshold = (float)rng_uniform(&r) / 2;
        o.mirostat = (int32_t)(rng_u64(&r) % 5) - 2;
        if (o.mirostat < 0) o.mirostat = 0;
        o.mirostat_tau = (float)(6 * rng_uniform(&r));
        o.repeat_penalty = (float)pow(2, 2 * rng_uniform(&r) - 1);
        o.frequency_penalty = rng_normal(&r);
        o.dry_multiplier = rng_u64(&r) % 2 ? 0 : 1e20f;
        sampler *s = make_sampler(&o, n), *same = make_sampler(&o, n);
        int64_t before = mem_count();
        for (int i = 0; i < 20; i++) {
            int32_t token = sampler_sample(s, logits);
            assert_int_equal(token, sampler_sample(same, logits));
            assert_in_range(token, 0, n - 1);
            if (any) assert_true(logits[token] > -INFINITY);
        }
        assert_true(mem_count() == before);
        sampler_free(s);
        sampler_free(same);
    }
}

/* ---- top-n sigma, order of samplers ---------------------------------------------------------- */

/* Second formulation: variance as mean of squares minus square of the mean; tokens are kept by
 * their distance from the best in standard deviations. */
static void test_top_n_sigma(void **state) {
    (void)state;
    enum { N = 40 };
    rng random;
    rng_seed(&random, 7);
    for (int round = 0; round < 6; round++) {
        float logits[N];
        double sum = 0, squares = 0, best = -1e30, total = 0, expected[N];
        for (int i = 0; i < N; i++) {
            logits[i] = (float)(8 * rng_uniform(&random) - 4);
            sum += (double)logits[i];
            squares += (double)logits[i] * (double)logits[i];
            best = fmax(best, (double)logits[i]);
        }
        double deviation = sqrt(squares / N - sum / N * (sum / N)), n = 0.25 + 0.5 * round;
        int kept = 0;
        for (int i = 0; i < N; i++) {
            bool stays = (best - (double)logits[i]) / deviation <= n;
            expected[i] = stays ? exp((double)logits[i]) : 0;
            total += expected[i];
            kept += stays;
        }
        for (int i = 0; i < N; i++) expected[i] /= total;
        assert_in_range(kept, 1, N);
        assert_true(round > 2 || kept < N);
        pi_sampler_options o = plain_options();
        o.top_n_sigma = (float)n;
        check_distribution(&o, logits, expected, N);
    }
    /* Banned tokens do not count; a single token and equal tokens are kept; values up to 0 are
     * off. */
    const float banned[] = {1, -INFINITY, 0, -INFINITY};
    pi_sampler_options o = plain_options();
    o.top_n_sigma = 1.5f; /* the deviation of 1 and 0 is a half: 0 is two of them below */
    check_distribution(&o, banned, (const double[]){1, 0, 0, 0}, 4);
    o.top_n_sigma = 2;
    const double e = exp(1);
    check_distribution(&o, banned, (const double[]){e / (e + 1), 0, 1 / (e + 1), 0}, 4);
    const float equal[] = {3, 3, 3, 3};
    o.top_n_sigma = 0.01f;
    check_distribution(&o, equal, (const double[]){0.25, 0.25, 0.25, 0.25}, 4);
    o.top_n_sigma = 0;
    check_distribution(&o, banned, (const double[]){e / (e + 1), 0, 1 / (e + 1), 0}, 4);
}

static void use_chain(pi_sampler_options *o, const pi_sampler_kind *kinds, size_t n) {
    o->samplers = kinds;
    o->n_samplers = n;
}

static void test_order_of_samplers(void **state) {
    (void)state;
    const double p[] = {0.5, 0.25, 0.15, 0.1};
    float logits[4];
    to_logits(p, logits, 4);
    pi_sampler_options o = plain_options();
    o.top_p = 0.7f;
    o.temp = 2;
    o.top_k = 1;
    /* By hand: a temperature of 2 takes the square root of probabilities. */
    double root[4], sum = 0;
    for (int i = 0; i < 4; i++) root[i] = sqrt(p[i]);
    const pi_sampler_kind top_p_first[] = {PI_SAMPLER_TOP_P, PI_SAMPLER_TEMPERATURE};
    use_chain(&o, top_p_first, 2); /* 0.5 + 0.25 reach 0.7; top-k is not in the chain */
    sum = root[0] + root[1];
    check_distribution(&o, logits, (const double[]){root[0] / sum, root[1] / sum, 0, 0}, 4);
    const pi_sampler_kind temp_first[] = {PI_SAMPLER_TEMPERATURE, PI_SAMPLER_TOP_P};
    use_chain(&o, temp_first, 2); /* 0.37 + 0.26 + 0.20 reach 0.7 */
    sum = root[0] + root[1] + root[2];
    check_distribution(&o, logits, (const double[]){root[0] / sum, root[1] / sum, root[2] / sum, 0},
                       4);
    use_chain(&o, temp_first, 0); /* only the draw */
    check_distribution(&o, logits, p, 4);
    o.temp = 0; /* no temperature in the chain */
    check_distribution(&o, logits, p, 4);
    const pi_sampler_kind twice[] = {PI_SAMPLER_TEMPERATURE, PI_SAMPLER_TEMPERATURE};
    o.temp = 0.5f;
    use_chain(&o, twice, 2); /* the fourth power */
    double fourth[4];
    for (int i = 0; i < 4; i++) fourth[i] = pow(p[i], 4);
    sum = fourth[0] + fourth[1] + fourth[2] + fourth[3];
    for (int i = 0; i < 4; i++) fourth[i] /= sum;
    check_distribution(&o, logits, fourth, 4);
    o.top_k = 2;
    const pi_sampler_kind last[] = {PI_SAMPLER_TEMPERATURE, PI_SAMPLER_TOP_K};
    use_chain(&o, last, 2);
    sum = p[0] * p[0] + p[1] * p[1];
    check_distribution(&o, logits, (const double[]){p[0] * p[0] / sum, p[1] * p[1] / sum, 0, 0}, 4);
}

/* Penalties and DRY after a filter see only the remaining tokens. */
static void test_scores_after_filters(void **state) {
    (void)state;
    const double p[] = {0.4, 0.3, 0.2, 0.1};
    float logits[4];
    to_logits(p, logits, 4);
    const pi_sampler_kind filter_first[] = {PI_SAMPLER_TOP_K, PI_SAMPLER_PENALTIES, PI_SAMPLER_DRY};
    pi_sampler_options o = plain_options();
    o.top_k = 2;
    o.presence_penalty = 20;
    o.repeat_last_n = 1; /* only the last token is penalized: it never repeats */
    for (int by_chain = 0; by_chain < 2; by_chain++) {
        if (by_chain) use_chain(&o, filter_first, 3);
        sampler *s = make_sampler(&o, 4);
        bool seen[4] = {false};
        sampler_accept(s, 0);
        for (int i = 0, before = 0; i < 200; i++) {
            int32_t token = sampler_sample(s, logits);
            assert_int_not_equal(token, before);
            seen[token] = true;
            before = token;
        }
        assert_true(seen[0] && seen[1] && !seen[3]);
        assert_int_equal(seen[2], !by_chain); /* gains only when the penalty comes first */
        sampler_free(s);
    }
    o = plain_options();
    o.dry_multiplier = 20;
    o.dry_allowed_length = 1;
    o.top_k = 2;
    use_chain(&o, filter_first, 3);
    sampler *s = make_sampler(&o, 4);
    const int32_t history[] = {3, 0, 2, 3}; /* 0 followed 3 */
    for (int i = 0; i < 4; i++) sampler_accept(s, history[i]);
    assert_int_equal(sampler_sample(s, logits), 1);
    sampler_free(s);
}

static void test_bad_chains(void **state) {
    (void)state;
    pi_sampler_kind kinds[PI_SAMPLER_CHAIN_MAX + 1] = {PI_SAMPLER_TOP_K};
    const sample_vocab vocab = {.n_vocab = 4, .n_history = 8};
    pi_sampler_options o = plain_options();
    sampler *s = NULL;
    use_chain(&o, kinds, PI_SAMPLER_CHAIN_MAX + 1);
    assert_int_equal(sampler_create(&o, &vocab, &s, NULL), PI_ERR_ARG);
    use_chain(&o, kinds, PI_SAMPLER_CHAIN_MAX);
    kinds[5] = PI_SAMPLER_KINDS;
    assert_int_equal(sampler_create(&o, &vocab, &s, NULL), PI_ERR_ARG);
    assert_null(s);
    o = plain_options();
    o.top_n_sigma = NAN;
    assert_int_equal(sampler_create(&o, &vocab, &s, NULL), PI_ERR_ARG);
}

/* ---- clones ---------------------------------------------------------------------------------- */

/* A clone draws the tokens that the original would have drawn, and can be synchronized with it
 * again. */
static void test_clones(void **state) {
    (void)state;
    enum { N = 60, DRAWS = 40 };
    float logits[N];
    rng r;
    rng_seed(&r, 4);
    pi_sampler_options o = dry_options(0.7f, 1.5f, 1);
    o.temp = 1.3f;
    o.top_k = 20;
    o.top_p = 0.95f;
    o.xtc_probability = 0.5f;
    o.repeat_penalty = 1.4f;
    o.repeat_last_n = 7;
    o.frequency_penalty = 0.2f;
    const pi_logit_bias bias = {3, 2};
    o.logit_bias = &bias;
    o.n_logit_bias = 1;
    for (int version = 0; version < 3; version++) {
        int32_t drawn[DRAWS];
        o.mirostat = version;
        sampler *s = make_sampler(&o, N), *clone;
        for (int i = 0; i < N; i++) logits[i] = rng_normal(&r);
        for (int i = 0; i < 30; i++) sampler_sample(s, logits);
        assert_int_equal(sampler_clone(s, &clone, NULL), PI_OK);
        for (int round = 0; round < 3; round++) {
            for (int i = 0; i < DRAWS; i++) drawn[i] = sampler_sample(clone, logits);
            for (int i = 0; i < DRAWS; i++) assert_int_equal(sampler_sample(s, logits), drawn[i]);
            sampler_sample(s, logits); /* the states differ now */
            sampler_copy(clone, s);
        }
        sampler_free(s);
        sampler_free(clone);
    }
}

/* The basis of drafting: with equal random numbers, draws from two distributions agree with the
 * probability of an exponential race, while each keeps its own distribution (test_sample). */
static void test_draws_agree(void **state) {
    (void)state;
    enum { N = 50, DRAWS = 20000 };
    rng r;
    rng_seed(&r, 8);
    for (int round = 0; round < 4; round++) {
        float a[N], b[N];
        double p = 0, q = 0, distance = 0;
        for (int i = 0; i < N; i++) {
            a[i] = 2 * rng_normal(&r);
            b[i] = a[i] + 0.25f * (float)round * rng_normal(&r);
            p += exp((double)a[i]);
            q += exp((double)b[i]);
        }
        for (int i = 0; i < N; i++)
            distance += fabs(exp((double)a[i]) / p - exp((double)b[i]) / q) / 2;
        pi_sampler_options o = plain_options();
        sampler *first = make_sampler(&o, N), *second = make_sampler(&o, N);
        int same = 0;
        for (int i = 0; i < DRAWS; i++)
            same += sampler_sample(first, a) == sampler_sample(second, b);
        double least = (1 - distance) / (1 + distance), most = 1 - distance;
        double slack = 5 * sqrt(DRAWS) / 2;
        if (same < DRAWS * least - slack || same > DRAWS * most + slack)
            fail_msg("%d of %d draws agree at a distance of %.3f", same, DRAWS, distance);
        if (round == 0) assert_int_equal(same, DRAWS);
        sampler_free(first);
        sampler_free(second);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logit_bias),
        cmocka_unit_test(test_ignored_ends),
        cmocka_unit_test(test_presence_and_frequency),
        cmocka_unit_test(test_dry_by_hand),
        cmocka_unit_test(test_dry_breakers),
        cmocka_unit_test(test_dry_in_the_chain),
        cmocka_unit_test(test_dry_against_brute_force),
        cmocka_unit_test(test_typical),
        cmocka_unit_test(test_xtc),
        cmocka_unit_test(test_dynamic_temperature),
        cmocka_unit_test(test_mirostat_reaches_its_target),
        cmocka_unit_test(test_mirostat_2_by_hand),
        cmocka_unit_test(test_mirostat_1_by_hand),
        cmocka_unit_test(test_nothing_breaks_the_chain),
        cmocka_unit_test(test_top_n_sigma),
        cmocka_unit_test(test_order_of_samplers),
        cmocka_unit_test(test_scores_after_filters),
        cmocka_unit_test(test_clones),
        cmocka_unit_test(test_draws_agree),
        cmocka_unit_test(test_bad_chains),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
