/* test_golden_pwri.c: compares PowerInfer's own files with logits of the original program:
 * unchanged, when the predictor skips half of the neurons, and with a threshold that every neuron
 * passes. The README of the data gives the gates. The logits distinguish a neuron that is wrongly
 * skipped or computed (1e-2) from rounding (1e-6). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "golden_case.h"
#include "run_model.h"

enum { N_TOKENS = 32 };

static const double f16_gate = 1e-5, q4_0_gate = 1e-3;

static int most_likely(const float *row, int n) {
    int best = 0;
    for (int i = 1; i < n; i++)
        if (row[i] > row[best]) best = i;
    return best;
}

static void compare(const char *what, const float *got, const float *want, int n_vocab,
                    double gate) {
    double nmse = run_nmse(got, want, (int64_t)N_TOKENS * n_vocab);
    printf("%-64s NMSE %.2e (gate %.0e)\n", what, nmse, gate);
    if (!(nmse <= gate)) fail_msg("%s: NMSE %g is above %g", what, nmse, gate);
}

/* With a cache as precise as the reference's, the most likely token may differ only between nearly
 * equally likely tokens. */
static void compare_choices(const char *what, const float *got, const float *want, int n_vocab) {
    static const double close = 0.1; /* difference of logits */
    for (int row = 0; row < N_TOKENS; row++, got += n_vocab, want += n_vocab) {
        double better = (double)want[most_likely(want, n_vocab)] -
                        (double)want[most_likely(got, n_vocab)];
        if (better > 0) printf("%s: behind the most likely token %d by %.3f\n", what, row, better);
        if (!(better <= close))
            fail_msg("%s: a less likely token is chosen after token %d", what, row);
    }
}

static const cpu_tier tiers[] = {CPU_TIER_SCALAR, CPU_TIER_AVX2, CPU_TIER_AVX512, CPU_TIER_NEON};
enum { N_TIERS = sizeof tiers / sizeof tiers[0] };

/* Checks every tier in one batch, token by token, and in uneven pieces. On an emulator the slow
 * scalar tier runs only the batch, the other tiers batch and single tokens. */
static void check(const char *folder, const char *name, const model *m,
                  const plan_options *options) {
    static const int pieces[] = {N_TOKENS, 1, 3, 19};
    double gate = strstr(name, "q4_0") ? q4_0_gate : f16_gate;
    reference want = golden_read(folder, name, m->hp.n_vocab);
    assert_int_equal(want.n_tokens, N_TOKENS);
    float *got = malloc((size_t)N_TOKENS * (size_t)m->hp.n_vocab * sizeof *got);
    for (int i = 0; i < N_TIERS; i++) {
        cpu_kernels kernels;
        if (!cpu_kernels_get(tiers[i], &kernels)) continue;
#ifdef TEST_SAMPLED
        size_t n_ways = tiers[i] == CPU_TIER_SCALAR ? 1 : 2;
#else
        size_t n_ways = sizeof pieces / sizeof pieces[0];
#endif
        for (size_t k = 0; k < n_ways; k++) {
            char what[GOLDEN_NAME_BYTES];
            engine_context *c;
            pi_error err;
            engine_options o = {.n_threads = 1 + (int)k % 2,
                                .n_batch = N_TOKENS,
                                .n_logits = N_TOKENS,
                                .tier = tiers[i],
                                .type_k = QUANT_F32,
                                .type_v = QUANT_F32,
                                .plan = *options};
            if (k == 2) o.type_k = o.type_v = QUANT_F16;
            if (engine_context_create(m, &o, &c, &err)) fail_msg("%s", err.message);
            golden_feed(c, &want, &pieces[k], 1, got);
            engine_context_destroy(c);
            snprintf(what, sizeof what, "%s %s, %s, kv %s, %d at a time", name,
                     ffn_mode_name(options->mode), kernels.name, quant_find(o.type_k)->name,
                     pieces[k]);
            compare(what, got, want.logits, m->hp.n_vocab, gate);
            if (o.type_k == QUANT_F32) compare_choices(what, got, want.logits, m->hp.n_vocab);
        }
    }
    reference_free(&want);
    free(got);
}

/* `name`: without "-sparse". Checks the file's threshold, a threshold that all neurons pass, and no
 * predictor. */
static bool check_file(const char *folder, const char *name) {
    char sparse[GOLDEN_NAME_BYTES], dense[GOLDEN_NAME_BYTES];
    snprintf(sparse, sizeof sparse, "%.200s-sparse", name);
    snprintf(dense, sizeof dense, "%.200s-dense", name);
    model *m = golden_open(folder, sparse, ".pwri.gguf");
    assert_non_null(m);
    assert_true(m->sparse.pwri);
    assert_int_equal(m->layers[0].sparse.predictor, PREDICTOR_RELU_MLP);
    assert_int_equal(m->layers[0].sparse.rank, 64);
    assert_int_equal(m->layers[1].sparse.rank, 96);
    check(folder, sparse, m, &(plan_options){.mode = PI_MODE_AUTO, .max_loss = 0.01f});
#ifndef TEST_SAMPLED /* the mode that `auto` chooses */
    check(folder, sparse, m, &(plan_options){.mode = PI_MODE_PREDICT});
#endif
    plan_options all = {.mode = PI_MODE_PREDICT, .set_threshold = true, .threshold = -1e30f};
    check(folder, dense, m, &all);
    check(folder, dense, m, &(plan_options){.mode = PI_MODE_EXACT});
    check(folder, dense, m, &(plan_options){.mode = PI_MODE_DENSE});
    model_close(m);
    return true;
}

static void test_files(void **state) {
    (void)state;
    golden_each("pwri", "-sparse.pwri.gguf", 1, 5, check_file);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_files)};
    return cmocka_run_group_tests_name("golden_pwri", tests, NULL, NULL);
}
