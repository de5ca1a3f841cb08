/* test_perplexity_novella.c: pi_perplexity on a model and a text with recorded values: the mean
 * surprise of a float32 pass over the same windows. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "powerinfer_tools.h"
#include "shared_data.h"

#define FOLDER    "models/novella-7m"
#define F16_PATH  TEST_BINARY_DIR "/test_perplexity.f16.gguf"
#define BASE_PATH TEST_BINARY_DIR "/test_perplexity.klbase"
#define Q8_0_PATH TEST_SOURCE_DIR "/models/novella-7m.q8_0.powerinfer.gguf"

enum { PATH_BYTES = 1024, MAX_TEXT = 1 << 20 };

static pi_error err;
static bool whole_text;
static char text[MAX_TEXT];
static size_t n_text;

/* Reads the text and converts the model; false if the data is missing. */
static bool prepare(void) {
    char path[PATH_BYTES];
    if (!shared_path(path, sizeof path, FOLDER "/heldout.txt")) return false;
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    n_text = fread(text, 1, sizeof text, f);
    fclose(f);
    assert_in_range(n_text, 1, sizeof text - 1);
    if (access(F16_PATH, R_OK) == 0) return true;
#ifndef TEST_HAS_JSON
    fprintf(stderr, "*** SKIPPED: the model cannot be converted without jansson ***\n");
    return false;
#endif
    pi_convert_options o = pi_convert_default_options();
    o.type = "f16";
    o.n_threads = 2;
    assert_true(shared_path(path, sizeof path, FOLDER));
    if (pi_convert(path, F16_PATH, &o, &err) != PI_OK) fail_msg("%s", err.message);
    return true;
}

static pi_perplexity_options windows(int32_t n_ctx, int32_t n_windows) {
    pi_perplexity_options o = pi_perplexity_default_options();
    o.context.n_threads = 2;
    o.n_ctx = n_ctx;
    o.n_windows = n_windows;
    return o;
}

static pi_perplexity_report measure(const char *path, const pi_perplexity_options *o) {
    pi_model *m;
    pi_perplexity_report r;
    if (pi_model_open(path, NULL, &m, &err) != PI_OK) fail_msg("%s", err.message);
    if (pi_perplexity(m, text, n_text, o, &r, &err) != PI_OK) fail_msg("%s", err.message);
    pi_model_close(m);
    printf("%d windows of %d: %lld tokens, %.7f nats, perplexity %.4f +- %.4f\n", r.n_windows,
           r.n_ctx, (long long)r.tokens, r.nll, r.perplexity, r.perplexity_stderr);
    return r;
}

/* The recorded values are 3.4914970 nats and perplexity 32.835 over 200 windows of 256. */
static void test_windows_of_256(void **state) {
    (void)state;
    pi_perplexity_options o = windows(256, 200);
    o.context.cache_k = o.context.cache_v = PI_CACHE_F32;
    pi_perplexity_report r = measure(F16_PATH, &o);
    assert_int_equal(r.tokens, 200 * 255);
    assert_true(fabs(r.nll - 3.4914970) < 1e-5);
    assert_true(fabs(r.perplexity - 32.835066) < 3.3e-4);
    assert_true(r.perplexity_stderr > 0.1 && r.perplexity_stderr < 1);
}

/* Windows are longer than a batch, and rows come in pieces. The recorded value is 3.3667284 nats
 * over 40 windows of 1024, which needs `--text whole` (ctest -C long); otherwise the first windows
 * are compared with a run in one batch. */
static void test_windows_of_1024(void **state) {
    (void)state;
    const int n = whole_text ? 40 : 4;
    pi_perplexity_options o = windows(1024, n);
    pi_perplexity_report r = measure(F16_PATH, &o);
    assert_int_equal(r.tokens, n * 1023);
    o.context.n_batch = 1024;
    const double expected = whole_text ? 3.3667284 : measure(F16_PATH, &o).nll;
    assert_true(fabs(r.nll - expected) < (whole_text ? 1e-4 : 1e-5));
}

/* Two windows are enough for the slow float reference kernels; the fast kernels must give the same
 * value on these windows. */
static void test_scalar_kernels(void **state) {
    (void)state;
    pi_perplexity_options o = windows(256, 2);
    o.context.cache_k = o.context.cache_v = PI_CACHE_F32;
    double fast = measure(F16_PATH, &o).nll;
    o.context.kernels = PI_KERNELS_SCALAR;
    assert_true(fabs(measure(F16_PATH, &o).nll - fast) < 1e-5);
}

/* In the committed file 8 bits per weight cost less than 0.1% and little divergence. */
static void test_bundled_model(void **state) {
    (void)state;
    pi_perplexity_options o = windows(256, 20);
    o.base_out = BASE_PATH;
    pi_perplexity_report base = measure(F16_PATH, &o);
    o.base_out = NULL;
    o.base_in = BASE_PATH;
    pi_perplexity_report same = measure(F16_PATH, &o);
    assert_true(same.has_divergence);
    assert_true(same.divergence.max < 1e-7 && same.divergence.mean > -1e-12);
    assert_true(same.divergence.top1 == 1);
    assert_true(fabs(same.divergence.base_nll - base.nll) < 1e-5);
    o.context.mode = PI_MODE_DENSE;
    pi_perplexity_report q8_0 = measure(Q8_0_PATH, &o);
    const pi_divergence *d = &q8_0.divergence;
    printf("KL %.6f +- %.6f, 99%% %.6f, max %.6f, same best %.4f\n", d->mean, d->mean_stderr,
           d->p99, d->max, d->top1);
    assert_true(fabs(q8_0.nll / base.nll - 1) < 1e-3);
    assert_true(d->mean > 1e-5 && d->mean < 1e-3);
    assert_true(d->median < d->p90 && d->p90 < d->p99 && d->p99 < d->p99_9 && d->p99_9 < d->max);
    assert_true(d->top1 > 0.97 && d->top1 < 1);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_windows_of_256),
        cmocka_unit_test(test_windows_of_1024),
        cmocka_unit_test(test_scalar_kernels),
        cmocka_unit_test(test_bundled_model),
    };
    whole_text = argc == 3 && strcmp(argv[1], "--text") == 0 && strcmp(argv[2], "whole") == 0;
    unlink(F16_PATH);
    if (!prepare()) return SHARED_SKIPPED;
    int failed = cmocka_run_group_tests_name("perplexity_novella", tests, NULL, NULL);
    unlink(F16_PATH);
    unlink(BASE_PATH);
    return failed;
}
