/* test_novella.c: compares the bundled model with its training program: logits of a recorded
 * float32 pass, and perplexity over a text that it was not trained on. Runs the model converted to
 * F16 and the committed Q8_0 file.
 *
 * Gates for logits, as NMSE = sum (a - b)^2 / sum b^2. The reference is itself float32 arithmetic
 * with an error of about 1e-12; scalar kernels with an F32 cache add about as much. */
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
#include "reference.h"
#include "run_model.h"
#include "shared_data.h"

#define FOLDER    "models/novella-7m"
#define F16_PATH  TEST_BINARY_DIR "/test_novella.f16.gguf"
#define Q8_0_PATH TEST_SOURCE_DIR "/models/novella-7m.q8_0.powerinfer.gguf"

enum { N_VOCAB = 4096, PATH_BYTES = 1024 };

static pi_error err;

static FILE *open_shared(const char *name) {
    char path[PATH_BYTES];
    if (!shared_path(path, sizeof path, name)) return NULL;
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    return f;
}

static bool have_model(void) {
    char path[PATH_BYTES];
    return shared_path(path, sizeof path, FOLDER "/model.safetensors");
}

/* Writes F16_PATH; prints SKIPPED and returns false without the model, or in a build that cannot
 * convert. */
static bool convert(const char *name) {
    char folder[PATH_BYTES];
    pi_convert_options o = pi_convert_default_options();
    o.type = "f16";
    o.n_threads = 2;
    if (!shared_path(folder, sizeof folder, name)) return false;
    pi_status status = pi_convert(folder, F16_PATH, &o, &err);
    if (status == PI_ERR_UNSUPPORTED && strstr(err.message, "without jansson") != NULL) {
        fprintf(stderr, "*** SKIPPED for F16: %s ***\n", err.message);
        return false;
    }
    if (status != PI_OK) fail_msg("%s", err.message);
    return true;
}

/* ---- logits ---------------------------------------------------------------------------------- */

static reference read_reference(void) {
    static const char below[] = TEST_SOURCE_DIR "/tests/golden/reference/novella";
    char tokens[PATH_BYTES], logits[PATH_BYTES];
    snprintf(tokens, sizeof tokens, "%s/reference.tokens.txt", below);
    snprintf(logits, sizeof logits, "%s/reference.logits.f32", below);
    reference r = reference_read(tokens, logits, N_VOCAB);
    assert_int_equal(r.n_tokens, 42);
    return r;
}

static int argmax(const float *logits) {
    int best = 0;
    for (int i = 1; i < N_VOCAB; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

/* Compares one file under one set of options; returns the number of rows with the same best
 * token. */
static int compare(const char *what, const char *path, const pi_context_options *o,
                   const reference *want, double gate) {
    run_model r = run_open(path, o);
    assert_int_equal(r.n_vocab, N_VOCAB);
    size_t n = (size_t)want->n_tokens * N_VOCAB;
    float *got = calloc(n, sizeof *got);
    static const int pieces[] = {0, 1, 5};
    int same = want->n_tokens;
    for (int p = 0; p < 3; p++) {
        run_tokens(&r, want->tokens, want->n_tokens, pieces[p], got);
        double nmse = run_nmse(got, want->logits, (int64_t)n);
        int agree = 0;
        for (int i = 0; i < want->n_tokens; i++)
            agree += argmax(got + i * N_VOCAB) == argmax(want->logits + i * N_VOCAB);
        printf("%s %-7s cache %d, pieces of %d: NMSE %.2e (gate %.0e), %d of %d best tokens\n",
               what, pi_context_kernels(r.context), o->cache_k, pieces[p], nmse, gate, agree,
               want->n_tokens);
        if (!(nmse <= gate)) fail_msg("%s: NMSE %g is above %g", what, nmse, gate);
        if (agree < same) same = agree;
    }
    free(got);
    run_close(&r);
    return same;
}

static void test_f16_logits(void **state) {
    (void)state;
    if (!have_model() || !convert(FOLDER)) skip();
    reference want = read_reference();
    for (int i = 0; i < RUN_KERNELS; i++) {
        if (!run_has_kernels(F16_PATH, run_kernels[i])) continue;
        pi_context_options o = run_exact_options();
        o.kernels = run_kernels[i];
        o.n_threads = 2;
        int same = compare("f16", F16_PATH, &o, &want, 1e-11);
        assert_int_equal(same, want.n_tokens);
        o.cache_k = o.cache_v = PI_CACHE_F16;
        compare("f16", F16_PATH, &o, &want, 1e-7);
        o.cache_k = o.cache_v = PI_CACHE_Q8_0;
        compare("f16", F16_PATH, &o, &want, 2e-5);
    }
    reference_free(&want);
}

/* The bundled model's relatives: SiLU gates, and a mixture of eight experts with ReLU gates. Their
 * references are in their folders. */
static void test_relatives(void **state) {
    (void)state;
    static const char *const names[] = {"models/novella-silu-7m", "models/novella-moe-12m"};
    for (int k = 0; k < 2; k++) {
        char inside[64], tokens[PATH_BYTES], logits[PATH_BYTES];
        if (!convert(names[k])) skip();
        snprintf(inside, sizeof inside, "%s/reference.tokens.txt", names[k]);
        assert_true(shared_path(tokens, sizeof tokens, inside));
        snprintf(inside, sizeof inside, "%s/reference.logits.f32", names[k]);
        assert_true(shared_path(logits, sizeof logits, inside));
        reference want = reference_read(tokens, logits, N_VOCAB);
        for (int i = 0; i < RUN_KERNELS; i++) {
            if (!run_has_kernels(F16_PATH, run_kernels[i])) continue;
            pi_context_options o = run_exact_options();
            o.kernels = run_kernels[i];
            int same = compare(names[k], F16_PATH, &o, &want, 1e-11);
            assert_int_equal(same, want.n_tokens);
        }
        reference_free(&want);
    }
}

/* Q8_0 also rounds the weights. */
static void test_q8_0_logits(void **state) {
    (void)state;
    assert_int_equal(access(Q8_0_PATH, R_OK), 0);
    reference want = read_reference();
    for (int i = 0; i < RUN_KERNELS; i++) {
        if (!run_has_kernels(Q8_0_PATH, run_kernels[i])) continue;
        pi_context_options o = run_exact_options();
        o.kernels = run_kernels[i];
        o.mode = PI_MODE_DENSE;
        int same = compare("q8_0", Q8_0_PATH, &o, &want, 2e-4);
        assert_true(same >= want.n_tokens - 4); /* 3 near ties may flip */
    }
    reference_free(&want);
}

/* ---- perplexity ------------------------------------------------------------------------------ */

/* `--text whole` (ctest -C long) takes the whole text, which has a recorded value. Otherwise the
 * beginning is enough, because perplexity_novella compares F16 with the recorded value and the
 * committed file with F16: here modes are compared with each other, and kernels with the scalar
 * kernels. */
#ifdef TEST_SAMPLED
enum { FEW_WINDOWS = 4, SLOW_WINDOWS = 1 };
#else
enum { FEW_WINDOWS = 40, SLOW_WINDOWS = 3 };
#endif
enum { WINDOW = 256, N_WINDOWS = 200 };

static bool whole_text;

/* Returns -log of the probability that the logits give to a token, in nats. */
static double surprise(const float *logits, int32_t token) {
    float most = logits[argmax(logits)];
    double sum = 0;
    for (int i = 0; i < N_VOCAB; i++) sum += (double)expf(logits[i] - most);
    return log(sum) + (double)(most - logits[token]);
}

/* Returns the tokens of the text, or NULL if the text is missing. */
static int32_t *read_text(const pi_model *m, size_t *n_tokens) {
    enum { MAX_TEXT = 1 << 20 };
    FILE *f = open_shared(FOLDER "/heldout.txt");
    if (!f) return NULL;
    char *text = calloc(1, MAX_TEXT);
    size_t n = fread(text, 1, MAX_TEXT, f);
    fclose(f);
    assert_in_range(n, 1, MAX_TEXT - 1);
    int32_t *tokens = calloc(n + 8, sizeof *tokens);
    if (pi_tokenize(m, text, n, PI_TOKENIZE_BOS, tokens, n + 8, n_tokens, &err) != PI_OK)
        fail_msg("%s", err.message);
    free(text);
    return tokens;
}

/* Returns the mean surprise over the first windows: the text starts with one BOS and is split into
 * windows without overlap; every token after a window's first counts. */
static double mean_surprise(const char *path, pi_kernels kernels, pi_mode mode, int n_windows) {
    pi_context_options o = pi_context_default_options();
    o.kernels = kernels;
    o.mode = mode;
    o.n_threads = 2;
    o.n_batch = WINDOW;
    run_model r = run_open(path, &o);
    size_t n_tokens = 0;
    int32_t *tokens = read_text(r.model, &n_tokens);
    assert_non_null(tokens);
    assert_true(n_tokens >= (size_t)N_WINDOWS * WINDOW);
    pi_session *s = run_session(&r, WINDOW);
    double sum = 0;
    for (int w = 0; w < n_windows; w++) {
        const int32_t *window = tokens + w * WINDOW;
        pi_input in = {.session = s, .tokens = window, .n_tokens = WINDOW, .logits = PI_LOGITS_ALL};
        assert_int_equal(pi_session_rewind(s, 0, NULL), PI_OK);
        if (pi_forward(r.context, &in, 1, &err) != PI_OK) fail_msg("%s", err.message);
        for (int i = 0; i + 1 < WINDOW; i++)
            sum += surprise(pi_logits(r.context, i), window[i + 1]);
    }
    double mean = sum / (n_windows * (WINDOW - 1));
    printf("%s %s: %d windows, mean surprise %.6f nats\n", path + strlen(TEST_SOURCE_DIR),
           pi_context_kernels(r.context), n_windows, mean);
    pi_session_destroy(s);
    free(tokens);
    run_close(&r);
    return mean;
}

/* Returns the number after the first occurrence of the key in the small JSON file. */
static double reference_number(const char *key) {
    char text[4096] = "", quoted[64];
    FILE *f = open_shared(FOLDER "/reference.json");
    assert_non_null(f);
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    assert_true(n > 0);
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    const char *at = strstr(text, quoted);
    assert_non_null(at);
    return strtod(at + strlen(quoted), NULL);
}

/* Tests the committed file; perplexity_novella tests F16, which costs at most 1e-5. */
static void test_perplexity(void **state) {
    (void)state;
    if (!have_model()) skip();
    int n = whole_text ? N_WINDOWS : FEW_WINDOWS;
    double q8_0 = mean_surprise(Q8_0_PATH, PI_KERNELS_AUTO, PI_MODE_DENSE, n);
    double want = reference_number("nll");
    assert_true(reference_number("windows") == N_WINDOWS && reference_number("c") == WINDOW);
    if (whole_text) assert_true(fabs(q8_0 / want - 1) < 1e-3);
    /* prepare fitted the predictors to other texts: they stay within 1% of the perplexity. */
    double predicted = mean_surprise(Q8_0_PATH, PI_KERNELS_AUTO, PI_MODE_PREDICT, n);
    assert_true(exp(predicted - q8_0) < 1.01 && predicted != q8_0);
}

/* Skipping neurons that are exactly zero does not change the result. */
static void test_exact_equals_dense(void **state) {
    (void)state;
    reference want = read_reference();
    size_t n = (size_t)want.n_tokens * N_VOCAB;
    float *dense = calloc(n, sizeof *dense), *exact = calloc(n, sizeof *exact);
    for (int i = 0; i < RUN_KERNELS; i++) {
        if (!run_has_kernels(Q8_0_PATH, run_kernels[i])) continue;
        pi_context_options o = run_exact_options();
        o.kernels = run_kernels[i];
        for (int mode = PI_MODE_DENSE; mode <= PI_MODE_EXACT; mode++) {
            o.mode = (pi_mode)mode;
            run_model r = run_open(Q8_0_PATH, &o);
            run_tokens(&r, want.tokens, want.n_tokens, 1, mode == PI_MODE_DENSE ? dense : exact);
            run_close(&r);
        }
        assert_true(run_nmse(exact, dense, (int64_t)n) < 1e-10);
        for (int t = 0; t < want.n_tokens; t++)
            assert_int_equal(argmax(exact + t * N_VOCAB), argmax(dense + t * N_VOCAB));
    }
    free(dense);
    free(exact);
    reference_free(&want);
}

/* Compares the slower kernels with the scalar kernels over the beginning of the text. */
static void test_perplexity_of_kernels(void **state) {
    (void)state;
    if (!have_model()) skip();
    bool f16 = convert(FOLDER);
    const char *path = f16 ? F16_PATH : Q8_0_PATH;
    double got, exact = mean_surprise(path, PI_KERNELS_SCALAR, PI_MODE_DENSE, SLOW_WINDOWS);
    for (int i = 1; i < RUN_KERNELS; i++) {
        if (!run_has_kernels(path, run_kernels[i])) continue;
        if (f16) {
            got = mean_surprise(F16_PATH, run_kernels[i], PI_MODE_DENSE, SLOW_WINDOWS);
            assert_true(fabs(got / exact - 1) < 1e-4);
        }
        got = mean_surprise(Q8_0_PATH, run_kernels[i], PI_MODE_DENSE, SLOW_WINDOWS);
        assert_true(fabs(got / exact - 1) < 5e-3);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f16_logits),         cmocka_unit_test(test_relatives),
        cmocka_unit_test(test_q8_0_logits),        cmocka_unit_test(test_perplexity),
        cmocka_unit_test(test_exact_equals_dense), cmocka_unit_test(test_perplexity_of_kernels),
    };
    whole_text = argc == 3 && strcmp(argv[1], "--text") == 0 && strcmp(argv[2], "whole") == 0;
    int failed = cmocka_run_group_tests_name("novella", tests, NULL, NULL);
    unlink(F16_PATH);
    return failed;
}
