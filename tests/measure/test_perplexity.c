/* test_perplexity.c: compares pi_perplexity on tiny random models with a calculation in long
 * double, one token at a time; every way to batch windows; base runs; refusals; every allocation
 * fails in turn. */
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

#include "mem.h"
#include "powerinfer_tools.h"
#include "run_model.h"
#include "tiny_model.h"

#define MODEL_A   TEST_BINARY_DIR "/test_perplexity_a.gguf"
#define MODEL_B   TEST_BINARY_DIR "/test_perplexity_b.gguf"
#define BASE_PATH TEST_BINARY_DIR "/test_perplexity_base"

enum { VOCAB = 300, MAX_TEXT_TOKENS = 512, BOS = 1 };

static pi_error err;
static const char text[] =
    "It was a bright cold day in April, and the clocks were striking thirteen; nobody had told "
    "the tide, which came in at four as it always had, gr\xc3\xbc\xc3\x9f"
    "end.";

static int write_models(void **state) {
    (void)state;
    tiny_model t = tiny_default();
    t.vocabulary = true;
    t.n_vocab = VOCAB;
    tiny_write(&t, MODEL_A);
    t.seed = 2;
    tiny_write(&t, MODEL_B);
    return 0;
}

static int remove_models(void **state) {
    (void)state;
    unlink(MODEL_A);
    unlink(MODEL_B);
    unlink(BASE_PATH);
    return 0;
}

/* ---- direct calculation ---------------------------------------------------------------------- */

typedef struct by_hand {
    int n; /* number of scored tokens */
    int32_t targets[MAX_TEXT_TOKENS];
    long double log_p[MAX_TEXT_TOKENS][VOCAB];
} by_hand;

static void score(by_hand *h, const float *logits, int32_t target) {
    long double sum = 0;
    for (int k = 0; k < VOCAB; k++) sum += expl((long double)logits[k]);
    for (int k = 0; k < VOCAB; k++) h->log_p[h->n][k] = (long double)logits[k] - logl(sum);
    h->targets[h->n++] = target;
}

static size_t take_tokens(const pi_model *m, int32_t tokens[MAX_TEXT_TOKENS]) {
    size_t n;
    assert_int_equal(
        pi_tokenize(m, text, strlen(text), PI_TOKENIZE_BOS, tokens, MAX_TEXT_TOKENS, &n, &err),
        PI_OK);
    assert_int_equal(tokens[0], BOS);
    return n;
}

/* Calculates the log probabilities before every scored token. `llama`: windows begin with BOS, and
 * tokens c/2 + 1 .. c - 1 are scored; else tokens 1 .. c - 1. */
static void work_out(by_hand *h, const char *path, int c, bool llama) {
    static int32_t tokens[MAX_TEXT_TOKENS];
    static float logits[MAX_TEXT_TOKENS * VOCAB];
    pi_context_options o = run_exact_options();
    run_model r = run_open(path, &o);
    const size_t n = take_tokens(r.model, tokens);
    h->n = 0;
    for (int w = 0; (w + 1) * c <= (int)n; w++) {
        int32_t *window = tokens + w * c;
        if (llama) window[0] = BOS;
        run_tokens(&r, window, c, 1, logits);
        for (int i = llama ? c / 2 + 1 : 1; i < c; i++) {
            score(h, logits + (i - 1) * VOCAB, window[i]);
        }
    }
    run_close(&r);
}

/* Calculates the values for windows of c + stride / 2 tokens that begin every `stride` tokens; the
 * last `stride` tokens of each are scored. */
static void work_out_strided(by_hand *h, const char *path, int c, int stride) {
    static int32_t tokens[MAX_TEXT_TOKENS];
    static float logits[MAX_TEXT_TOKENS * VOCAB];
    pi_context_options o = run_exact_options();
    run_model r = run_open(path, &o);
    const size_t n = take_tokens(r.model, tokens);
    h->n = 0;
    int length = c + stride / 2;
    for (int start = 0; start < (int)n - length; start += stride) {
        run_tokens(&r, tokens + start, length, 1, logits);
        for (int i = start + length - stride; i < start + length; i++) {
            score(h, logits + (i - start - 1) * VOCAB, tokens[i]);
        }
    }
    run_close(&r);
}

static void check_against(const by_hand *h, const pi_perplexity_report *r) {
    long double sum = 0, squares = 0;
    assert_int_equal(r->tokens, h->n);
    for (int i = 0; i < h->n; i++) sum -= h->log_p[i][h->targets[i]];
    long double mean = sum / h->n;
    for (int i = 0; i < h->n; i++) {
        long double d = -h->log_p[i][h->targets[i]] - mean;
        squares += d * d;
    }
    double error = (double)sqrtl(squares / h->n / (h->n - 1));
    assert_true(fabs(r->nll - (double)mean) < 2e-6);
    assert_true(fabs(r->perplexity - exp((double)mean)) < 2e-6 * r->perplexity);
    assert_true(fabs(r->perplexity_stderr / r->perplexity - error) < 1e-5);
}

static pi_perplexity_options exact(int32_t n_ctx) {
    pi_perplexity_options o = pi_perplexity_default_options();
    o.context = run_exact_options();
    o.n_ctx = n_ctx;
    return o;
}

static pi_perplexity_report measure(const char *path, const pi_perplexity_options *o) {
    pi_model *m;
    pi_perplexity_report r;
    if (pi_model_open(path, NULL, &m, &err) != PI_OK) fail_msg("%s", err.message);
    if (pi_perplexity(m, text, strlen(text), o, &r, &err) != PI_OK) fail_msg("%s", err.message);
    pi_model_close(m);
    return r;
}

/* ---- perplexity ------------------------------------------------------------------------------ */

static void test_every_split_against_hand(void **state) {
    (void)state;
    static const struct {
        int n_batch, n_logits, n_threads;
    } splits[] = {{1, 0, 1},  {7, 0, 2},   {64, 0, 1},  {64, 1, 2},
                  {64, 5, 1}, {200, 0, 3}, {512, 40, 2}};
    static const int sizes[] = {2, 3, 8, 16, 31, 60};
    by_hand *h = calloc(1, sizeof *h);
    for (int llama = 0; llama < 2; llama++) {
        for (size_t c = (size_t)llama; c < sizeof sizes / sizeof *sizes; c++) {
            work_out(h, MODEL_A, sizes[c], llama);
            assert_true(h->n > 20);
            for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) {
                pi_perplexity_options o = exact(sizes[c]);
                o.context.n_batch = splits[i].n_batch;
                o.context.n_logits = splits[i].n_logits;
                o.context.n_threads = splits[i].n_threads;
                o.llama_windows = llama;
                pi_perplexity_report r = measure(MODEL_A, &o);
                check_against(h, &r);
                assert_int_equal(r.n_ctx, sizes[c]);
                assert_false(r.has_divergence);
            }
        }
    }
    free(h);
}

static void test_strides_against_hand(void **state) {
    (void)state;
    static const int cases[][3] = {
        {8, 4, 512}, {16, 5, 7}, {16, 16, 64}, {20, 1, 512}, {9, 10, 64}};
    by_hand *h = calloc(1, sizeof *h);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        work_out_strided(h, MODEL_A, cases[i][0], cases[i][1]);
        assert_true(h->n > 20);
        pi_perplexity_options o = exact(cases[i][0]);
        o.stride = cases[i][1];
        o.context.n_batch = cases[i][2];
        pi_perplexity_report r = measure(MODEL_A, &o);
        check_against(h, &r);
        assert_int_equal(r.n_ctx, cases[i][0] + cases[i][1] / 2);
        assert_int_equal(r.n_windows, h->n / cases[i][1]);
    }
    free(h);
}

static void test_first_windows(void **state) {
    (void)state;
    by_hand *h = calloc(1, sizeof *h);
    work_out(h, MODEL_A, 16, false);
    pi_perplexity_options o = exact(16);
    int n_all = measure(MODEL_A, &o).n_windows;
    assert_int_equal(h->n, n_all * 15);
    for (o.n_windows = 1; o.n_windows <= n_all + 2; o.n_windows++) {
        h->n = (o.n_windows < n_all ? o.n_windows : n_all) * 15;
        pi_perplexity_report r = measure(MODEL_A, &o);
        check_against(h, &r);
    }
    free(h);
}

/* ---- divergence ------------------------------------------------------------------------------ */

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int best_of(const long double *log_p) {
    int best = 0;
    for (int k = 1; k < VOCAB; k++)
        if (log_p[k] > log_p[best]) best = k;
    return best;
}

static void check_divergence(const by_hand *a, const by_hand *b, const pi_divergence *d) {
    static double kl[MAX_TEXT_TOKENS];
    double sum = 0, p_sum = 0, p_squares = 0, base = 0;
    int same = 0;
    for (int i = 0; i < a->n; i++) {
        long double each = 0;
        for (int k = 0; k < VOCAB; k++)
            each += expl(a->log_p[i][k]) * (a->log_p[i][k] - b->log_p[i][k]);
        kl[i] = (double)each;
        sum += kl[i];
        int t = a->targets[i];
        double p = (double)(expl(b->log_p[i][t]) - expl(a->log_p[i][t]));
        p_sum += p;
        p_squares += p * p;
        base -= (double)a->log_p[i][t];
        same += best_of(a->log_p[i]) == best_of(b->log_p[i]);
    }
    int n = a->n;
    qsort(kl, (size_t)n, sizeof *kl, compare);
    double gate = 1e-4 * kl[n - 1] + 1e-6; /* tolerance of rounding to 16 bits */
    assert_true(fabs(d->mean - sum / n) < gate);
    assert_true(fabs(d->max - kl[n - 1]) < gate);
    assert_true(n % 2 == 1 && fabs(d->median - kl[n / 2]) < gate);
    static const double shares[] = {0.9, 0.95, 0.99, 0.999};
    const double got[] = {d->p90, d->p95, d->p99, d->p99_9};
    for (int i = 0; i < 4; i++) {
        double at = shares[i] * (n - 1);
        int below = (int)at;
        double want = kl[below] + (at - below) * (kl[below + 1] - kl[below]);
        assert_true(fabs(got[i] - want) < gate);
    }
    assert_true(fabs(d->p_diff_mean - p_sum / n) < 1e-6);
    assert_true(fabs(d->p_diff_rms - sqrt(p_squares / n)) < 1e-6);
    assert_true(fabs(d->base_nll - base / n) < 1e-4);
    assert_true(fabs(d->base_perplexity / exp(base / n) - 1) < 1e-4);
    assert_true(fabs(d->top1 * n - same) <= 1.01); /* a near tie may round to a tie */
    assert_true(d->mean_stderr > 0 && d->mean_stderr < d->max);
}

static void test_divergence_against_hand(void **state) {
    (void)state;
    by_hand *a = calloc(1, sizeof *a), *b = calloc(1, sizeof *b);
    for (int llama = 0; llama < 2; llama++) {
        int c = llama ? 11 : 16;
        work_out(a, MODEL_A, c, llama);
        work_out(b, MODEL_B, c, llama);
        assert_int_equal(a->n, b->n);
        pi_perplexity_options out = exact(c);
        out.llama_windows = llama;
        out.base_out = BASE_PATH;
        pi_perplexity_report r = measure(MODEL_A, &out);
        assert_false(r.has_divergence);
        check_against(a, &r);
        /* The base run defines the windows; any batch reads the rows of its tokens. */
        for (int n_batch = 1; n_batch < 200; n_batch = n_batch * 5 + 1) {
            pi_perplexity_options in = exact(n_batch > 5 ? c : 0);
            in.context.n_batch = n_batch;
            in.context.n_threads = 2;
            in.base_in = BASE_PATH;
            r = measure(MODEL_B, &in);
            assert_true(r.has_divergence);
            check_against(b, &r);
            check_divergence(a, b, &r.divergence);
        }
        /* A model has no divergence from itself. */
        pi_perplexity_options in = exact(0);
        in.base_in = BASE_PATH;
        r = measure(MODEL_A, &in);
        assert_true(r.divergence.max < 1e-7 && r.divergence.mean > -1e-12);
        assert_true(r.divergence.top1 == 1 && r.divergence.p_diff_rms < 1e-5);
    }
    free(a);
    free(b);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static pi_status refuse(const char *t, size_t n, const pi_perplexity_options *o) {
    pi_model *m;
    pi_perplexity_report r;
    if (pi_model_open(MODEL_A, NULL, &m, &err) != PI_OK) fail_msg("%s", err.message);
    pi_status status = pi_perplexity(m, t, n, o, &r, &err);
    run_check_message(&err, status);
    pi_model_close(m);
    return status;
}

static void test_texts_that_cannot_be_scored(void **state) {
    (void)state;
    pi_perplexity_options o = exact(16);
    assert_int_equal(refuse("", 0, &o), PI_ERR_LIMIT);
    assert_int_equal(refuse("short", 5, &o), PI_ERR_LIMIT);
    assert_int_equal(refuse(NULL, 0, &o), PI_ERR_ARG);
    char bytes[200];
    memset(bytes, 'a', sizeof bytes);
    bytes[150] = 0;
    assert_int_equal(refuse(bytes, sizeof bytes, &o), PI_ERR_FORMAT);
    assert_non_null(strstr(err.message, "byte 150 is NUL"));
    bytes[150] = (char)0xFE;
    assert_int_equal(refuse(bytes, sizeof bytes, &o), PI_ERR_FORMAT);
    assert_non_null(strstr(err.message, "byte 150 is not UTF-8"));
    bytes[150] = 'a';
    bytes[199] = (char)0xE2; /* a sequence cut at the end of the text is valid */
    pi_model *m;
    pi_perplexity_report r;
    assert_int_equal(pi_model_open(MODEL_A, NULL, &m, &err), PI_OK);
    assert_int_equal(pi_perplexity(m, bytes, sizeof bytes, &o, &r, &err), PI_OK);
    pi_model_close(m);
}

static void test_options_that_do_not_fit(void **state) {
    (void)state;
    size_t n = strlen(text);
    pi_perplexity_options o = exact(1);
    assert_int_equal(refuse(text, n, &o), PI_ERR_ARG);
    o = exact(-5);
    assert_int_equal(refuse(text, n, &o), PI_ERR_ARG);
    o = exact(2);
    o.llama_windows = true;
    assert_int_equal(refuse(text, n, &o), PI_ERR_ARG);
    o = exact(16);
    o.n_windows = -1;
    assert_int_equal(refuse(text, n, &o), PI_ERR_ARG);
    o = exact(16);
    o.context.n_batch = 0;
    assert_int_equal(refuse(text, n, &o), PI_ERR_ARG);
    o = exact(0); /* the default window is longer than this text */
    assert_int_equal(refuse(text, n, &o), PI_ERR_LIMIT);
    o = exact(16);
    o.base_in = o.base_out = BASE_PATH;
    assert_int_equal(refuse(text, n, &o), PI_ERR_ARG);
    static const int32_t strides[] = {-1, 32, INT32_MAX};
    for (int i = 0; i < 3; i++) {
        o = exact(16);
        o.stride = strides[i];
        assert_int_equal(refuse(text, n, &o), PI_ERR_ARG);
    }
    o = exact(16);
    o.stride = 4;
    o.llama_windows = true;
    assert_int_equal(refuse(text, n, &o), PI_ERR_ARG);
    o.llama_windows = false;
    o.base_out = BASE_PATH;
    assert_int_equal(refuse(text, n, &o), PI_ERR_ARG);
}

static void flip_byte(const char *path, long at) {
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    int byte = fgetc(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    fputc(byte ^ 0xFF, f);
    assert_int_equal(fclose(f), 0);
}

static void test_base_runs_that_do_not_fit(void **state) {
    (void)state;
    size_t n = strlen(text);
    pi_perplexity_options o = exact(16);
    o.base_out = BASE_PATH;
    pi_perplexity_report whole = measure(MODEL_A, &o);
    o = exact(17);
    o.base_in = BASE_PATH;
    assert_int_equal(refuse(text, n, &o), PI_ERR_ARG);
    o.n_ctx = 16;
    o.llama_windows = true;
    assert_int_equal(refuse(text, n, &o), PI_ERR_ARG);
    o.llama_windows = false;
    char other[sizeof text];
    memcpy(other, text, sizeof text);
    other[100] = '#';
    assert_int_equal(refuse(other, n, &o), PI_ERR_FORMAT);
    assert_non_null(strstr(err.message, "another text"));
    /* A shorter text or fewer windows use the first part of the base run. */
    o.n_windows = 2;
    assert_int_equal(measure(MODEL_A, &o).n_windows, 2);
    /* Without a text the base run provides all tokens. */
    pi_model *m;
    pi_perplexity_report r;
    o.n_windows = 0;
    assert_int_equal(pi_model_open(MODEL_B, NULL, &m, &err), PI_OK);
    assert_int_equal(pi_perplexity(m, NULL, 0, &o, &r, &err), PI_OK);
    assert_int_equal(r.tokens, whole.tokens);
    pi_model_close(m);
    flip_byte(BASE_PATH, 32 + 4L * 16 * whole.n_windows + (8 + 2 * VOCAB) + 3); /* second row */
    assert_int_equal(refuse(text, n, &o), PI_ERR_FORMAT);
    assert_non_null(strstr(err.message, "window 0, token 2"));
    flip_byte(BASE_PATH, 0);
    assert_int_equal(refuse(text, n, &o), PI_ERR_FORMAT);
    o.base_in = "/nowhere/base";
    assert_int_equal(refuse(text, n, &o), PI_ERR_IO);
    tiny_model t = tiny_default();
    t.vocabulary = true;
    t.n_vocab = VOCAB + 1;
    tiny_write(&t, BASE_PATH ".gguf");
    o = exact(16);
    o.base_out = BASE_PATH;
    measure(BASE_PATH ".gguf", &o);
    unlink(BASE_PATH ".gguf");
    o.base_out = NULL;
    o.base_in = BASE_PATH;
    assert_int_equal(refuse(text, n, &o), PI_ERR_FORMAT);
    assert_non_null(strstr(err.message, "another vocabulary"));
}

static void test_weights_that_are_not_numbers(void **state) {
    (void)state;
    FILE *f = fopen(MODEL_B, "rb");
    assert_non_null(f);
    static uint8_t bytes[1 << 20];
    size_t n = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    assert_in_range(n, 1 << 12, sizeof bytes - 1);
    memset(bytes + n - 1024, 0xFF, 1024); /* float32 of all ones is NaN */
    f = fopen(BASE_PATH, "wb");
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
    pi_model *m;
    pi_perplexity_report r;
    pi_perplexity_options o = exact(16);
    assert_int_equal(pi_model_open(BASE_PATH, NULL, &m, &err), PI_OK);
    assert_int_equal(pi_perplexity(m, text, strlen(text), &o, &r, &err), PI_ERR_RANGE);
    run_check_message(&err, PI_ERR_RANGE);
    pi_model_close(m);
}

/* ---- progress and cancelling ----------------------------------------------------------------- */

typedef struct listener {
    double last;
    int n_steps, n_lines, stop_after;
    bool slow; /* the work takes more than two seconds */
} listener;

static bool on_progress(void *user, const char *stage, double fraction) {
    listener *l = user;
    assert_string_equal(stage, "scoring");
    assert_true(fraction > l->last && fraction <= 1);
    l->last = fraction;
    if (l->slow && l->n_steps == 0) usleep(2100 * 1000);
    return ++l->n_steps < l->stop_after;
}

static void on_message(void *user, const char *line) {
    listener *l = user;
    assert_non_null(strstr(line, "%: perplexity "));
    l->n_lines++;
}

static void test_progress_and_stopping(void **state) {
    (void)state;
    listener l = {.stop_after = INT32_MAX, .slow = true};
    pi_perplexity_options o = exact(4);
    o.context.n_batch = 3;
    o.progress = on_progress;
    o.message = on_message;
    o.user = &l;
    measure(MODEL_A, &o);
    assert_true(l.last == 1);
    assert_int_equal(l.n_lines, 9); /* 10% to 90% */
    l = (listener){.stop_after = INT32_MAX};
    measure(MODEL_A, &o);
    assert_int_equal(l.n_lines, 0); /* a short run prints no progress */
    l = (listener){.stop_after = 1};
    unlink(BASE_PATH);
    o.base_out = BASE_PATH;
    assert_int_equal(refuse(text, strlen(text), &o), PI_ERR_CANCELLED);
    assert_int_equal(l.n_steps, 1);
    assert_int_equal(access(BASE_PATH, F_OK), -1); /* no partial file */
}

/* ---- allocation failures --------------------------------------------------------------------- */

static void fail_each(const pi_perplexity_options *o) {
    pi_model *m;
    pi_perplexity_report r;
    assert_int_equal(pi_model_open(MODEL_A, NULL, &m, &err), PI_OK);
    int64_t n = mem_count();
    assert_int_equal(pi_perplexity(m, text, strlen(text), o, &r, &err), PI_OK);
    n = mem_count() - n;
    assert_in_range(n, 8, 1000);
    for (int64_t i = 1; i <= n; i++) {
        if (o->base_out) unlink(BASE_PATH);
        mem_fail_at(i);
        pi_status status = pi_perplexity(m, text, strlen(text), o, &r, &err);
        mem_fail_at(0);
        assert_int_equal(status, PI_ERR_NOMEM);
        run_check_message(&err, PI_ERR_NOMEM);
        if (o->base_out) assert_int_equal(access(BASE_PATH, F_OK), -1);
    }
    if (o->base_out) assert_int_equal(pi_perplexity(m, text, strlen(text), o, &r, &err), PI_OK);
    pi_model_close(m);
}

static void test_each_allocation_fails(void **state) {
    (void)state;
    pi_perplexity_options o = exact(16);
    o.context.n_threads = 2;
    o.base_out = BASE_PATH;
    fail_each(&o);
    o.base_out = NULL;
    o.base_in = BASE_PATH;
    fail_each(&o);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_split_against_hand),
        cmocka_unit_test(test_first_windows),
        cmocka_unit_test(test_strides_against_hand),
        cmocka_unit_test(test_divergence_against_hand),
        cmocka_unit_test(test_texts_that_cannot_be_scored),
        cmocka_unit_test(test_options_that_do_not_fit),
        cmocka_unit_test(test_base_runs_that_do_not_fit),
        cmocka_unit_test(test_weights_that_are_not_numbers),
        cmocka_unit_test(test_progress_and_stopping),
        cmocka_unit_test(test_each_allocation_fails),
    };
    return cmocka_run_group_tests_name("perplexity", tests, write_models, remove_models);
}
