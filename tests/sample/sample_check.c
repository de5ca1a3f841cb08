/* sample_check.c: see sample_check.h. Bounds are five standard deviations, so a correct sampler
 * does not fail with the fixed seeds. */
#include "sample_check.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

pi_sampler_options plain_options(void) {
    return (pi_sampler_options){.temp = 1,
                                .dynatemp_exponent = 1,
                                .top_p = 1,
                                .typical_p = 1,
                                .repeat_penalty = 1,
                                .repeat_last_n = 64,
                                .xtc_threshold = 0.1f,
                                .dry_base = 1.75f,
                                .dry_allowed_length = 2,
                                .dry_last_n = -1,
                                .mirostat_tau = 5,
                                .mirostat_eta = 0.1f,
                                .seed = 42};
}

sampler *make_sampler(const pi_sampler_options *options, int32_t n_vocab) {
    sampler *s = NULL;
    pi_error err = {0};
    sample_vocab vocab = {.n_vocab = n_vocab, .n_history = 64};
    assert_int_equal(sampler_create(options, &vocab, &s, &err), PI_OK);
    assert_non_null(s);
    return s;
}

int32_t sample_once(const pi_sampler_options *options, const float *logits, int32_t n) {
    sampler *s = make_sampler(options, n);
    int32_t token = sampler_sample(s, logits);
    sampler_free(s);
    return token;
}

void to_logits(const double *p, float *logits, int32_t n) {
    for (int32_t i = 0; i < n; i++) logits[i] = p[i] > 0 ? (float)log(p[i]) : -INFINITY;
}

void check_distribution(const pi_sampler_options *options, const float *logits,
                        const double *expected, int32_t n) {
    enum { ROUNDS = 40000 };
    int32_t counts[MAX_VOCAB] = {0};
    sampler *s = make_sampler(options, n);
    for (int r = 0; r < ROUNDS; r++) {
        int32_t token = sampler_sample(s, logits);
        assert_in_range(token, 0, n - 1);
        counts[token]++;
    }
    sampler_free(s);
    for (int32_t i = 0; i < n; i++) {
        double deviation = sqrt(ROUNDS * expected[i] * (1 - expected[i]));
        if (expected[i] == 0) {
            assert_int_equal(counts[i], 0);
        } else if (fabs(counts[i] - ROUNDS * expected[i]) > 5 * deviation + 1e-6) {
            fail_msg("token %d drawn %d times, expected %.1f", (int)i, (int)counts[i],
                     ROUNDS * expected[i]);
        }
    }
}
