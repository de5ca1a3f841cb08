/* test_prepare_errors.c: wrong requests, texts that are not text, models without skippable neurons,
 * full disks, cancelling, failing allocations: one message, no output, no other files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#if !defined(_WIN32)
#include <signal.h>
#include <sys/resource.h>
#endif

#include <cmocka.h>

#include "failing.h"
#include "prepare_files.h"
#include "run_model.h"

#define IN_PATH   TEST_BINARY_DIR "/test_prepare_errors.in.gguf"
#define OUT_NAME  "test_prepare_errors.out.gguf"
#define OUT_PATH  TEST_BINARY_DIR "/" OUT_NAME
#define TEXT_PATH TEST_BINARY_DIR "/test_prepare_errors.txt"
#define BAD_PATH  TEST_BINARY_DIR "/test_prepare_errors.bad.txt"

static prepare_notes notifier;

static void fails(const char *in, const char *out, const pi_prepare_options *o, pi_status status,
                  const char *words) {
    pi_error err = {0};
    pi_status found = pi_prepare(in, out, o, NULL, &err);
    if (found != status)
        fail_msg("%s instead of %s: %s", pi_status_name(found), pi_status_name(status),
                 err.message);
    if (!strstr(err.message, words)) fail_msg("no \"%s\" in: %s", words, err.message);
    run_check_message(&err, status);
    assert_int_equal(files_count(OUT_NAME), 0);
    assert_int_equal(notifier.n_layers, 0);
}

static void write_tiny(const char *type, const char *activation) {
    tiny_model t = files_tiny(type);
    t.activation = activation;
    tiny_write(&t, IN_PATH);
}

/* ---- texts ----------------------------------------------------------------------------------- */

static void test_texts(void **state) {
    (void)state;
    static char bytes[4000];
    pi_prepare_options o = files_options(BAD_PATH, &notifier);
    write_tiny("f32", "relu");
    files_write(BAD_PATH, "", 0);
    fails(IN_PATH, OUT_PATH, &o, PI_ERR_FORMAT, "is empty");
    memset(bytes, 'a', sizeof bytes);
    bytes[3500] = 0;
    files_write(BAD_PATH, bytes, sizeof bytes);
    fails(IN_PATH, OUT_PATH, &o, PI_ERR_FORMAT, "byte 3500 is NUL");
    bytes[3500] = '\xff';
    files_write(BAD_PATH, bytes, sizeof bytes);
    fails(IN_PATH, OUT_PATH, &o, PI_ERR_FORMAT, "byte 3500 is not UTF-8");
    files_write(BAD_PATH, bytes, 20);
    fails(IN_PATH, OUT_PATH, &o, PI_ERR_LIMIT, "too short");
    unlink(BAD_PATH);
    fails(IN_PATH, OUT_PATH, &o, PI_ERR_IO, "bad.txt");
    o.calibration = NULL;
    fails(IN_PATH, OUT_PATH, &o, PI_ERR_ARG, "no calibration text");
    /* short but usable: a message, and success */
    bytes[3500] = 'a';
    files_write(BAD_PATH, bytes, 300);
    o.calibration = BAD_PATH;
    o.predictor = "none";
    pi_prepare_result r = files_prepare(IN_PATH, OUT_PATH, &o);
    assert_true(files_said(&notifier, "fewer than the 1024 asked for"));
    assert_true(r.tokens >= 128 && r.tokens < 512 && r.held_out == 64);
    unlink(OUT_PATH);
    /* a truncated UTF-8 sequence at the end is no error */
    bytes[299] = '\xc3';
    files_write(BAD_PATH, bytes, 300);
    files_prepare(IN_PATH, OUT_PATH, &o);
    unlink(OUT_PATH);
    unlink(BAD_PATH);
}

static void test_no_vocabulary(void **state) {
    (void)state;
    tiny_model t = files_tiny("f32");
    t.vocabulary = false;
    tiny_write(&t, IN_PATH);
    pi_prepare_options o = files_options(TEXT_PATH, &notifier);
    fails(IN_PATH, OUT_PATH, &o, PI_ERR_NOT_FOUND, "calibration text");
}

/* ---- requests -------------------------------------------------------------------------------- */

static void test_requests(void **state) {
    (void)state;
    write_tiny("f32", "relu");
    pi_prepare_options good = files_options(TEXT_PATH, &notifier), o = good;
    o.predictor = "magic";
    fails(IN_PATH, OUT_PATH, &o, PI_ERR_ARG, "choose auto, none, sign");
    o = good;
    o.predictor_type = "q9";
    fails(IN_PATH, OUT_PATH, &o, PI_ERR_ARG, "type of predictors");
    o = good;
    o.down_type = "q4_k_m";
    fails(IN_PATH, OUT_PATH, &o, PI_ERR_ARG, "type of ffn_down");
    o = good;
    o.type = "q4";
    fails(IN_PATH, OUT_PATH, &o, PI_ERR_ARG, "choose one of F32");
    o = good;
    o.recall = 0;
    fails(IN_PATH, OUT_PATH, &o, PI_ERR_ARG, "bad recall");
    o.recall = 1.5;
    fails(IN_PATH, OUT_PATH, &o, PI_ERR_ARG, "bad recall");
    o = good;
    o.max_loss = -1;
    fails(IN_PATH, OUT_PATH, &o, PI_ERR_ARG, "bad loss");
    o = good;
    o.n_threads = -1;
    fails(IN_PATH, OUT_PATH, &o, PI_ERR_ARG, "threads");
    o = good;
    o.calibration_window = 4;
    fails(IN_PATH, OUT_PATH, &o, PI_ERR_ARG, "bad calibration window");
    o = good;
    o.calibration_tokens = 100;
    fails(IN_PATH, OUT_PATH, &o, PI_ERR_ARG, "too few calibration tokens");
    /* Q4_K has blocks of 256, rows of ffn_down_t have 64 elements: F16 replaces it, as in
     * quantize */
    o = good;
    o.down_type = "q4_k";
    o.predictor = "none";
    files_prepare(IN_PATH, OUT_PATH, &o);
    gguf_file *f = files_open(OUT_PATH);
    assert_int_equal(files_find(f, "blk.0.ffn_down_t.weight")->type, QUANT_F16);
    gguf_close(f);
    unlink(OUT_PATH);
}

static void test_models(void **state) {
    (void)state;
    pi_prepare_options o = files_options(TEXT_PATH, &notifier);
    /* activations that are never zero: no predictor; by default the result must not be slower than
     * dense */
    write_tiny("f32", "silu");
    o.predictor = "lowrank";
    fails(IN_PATH, OUT_PATH, &o, PI_ERR_UNSUPPORTED, "no predictor for silu");
    o.predictor = NULL;
    o.max_loss = 1e-7;
    fails(IN_PATH, OUT_PATH, &o, PI_ERR_UNSUPPORTED, "too little sparsity");
    o.max_loss = 0.01;
    /* nearly all neurons are always active */
    tiny_model t = files_tiny("f32");
    t.activation = "fatrelu";
    t.threshold = -30;
    tiny_write(&t, IN_PATH);
    fails(IN_PATH, OUT_PATH, &o, PI_ERR_UNSUPPORTED, "use the dense model");
    o.predictor = "none"; /* named: prepares anyway */
    files_prepare(IN_PATH, OUT_PATH, &o);
    unlink(OUT_PATH);
    /* sizes that predictors do not support: no predictor and a message, or an error if one is
     * named */
    t = files_tiny("f32");
    t.n_embd = 48;
    t.head_dim = t.n_rot = 12;
    tiny_write(&t, IN_PATH);
    o = files_options(TEXT_PATH, &notifier);
    o.predictor = "lowrank";
    fails(IN_PATH, OUT_PATH, &o, PI_ERR_ARG, "32");
    o.predictor = NULL;
    pi_prepare_result r = files_prepare(IN_PATH, OUT_PATH, &o);
    assert_string_equal(r.mode, "exact");
    assert_true(files_said(&notifier, "not a multiple of 32"));
    unlink(OUT_PATH);
    /* --type is for ordinary models */
    o.predictor = NULL;
    write_tiny("f32", "relu");
    files_prepare(IN_PATH, OUT_PATH, &o);
    assert_int_equal(rename(OUT_PATH, IN_PATH), 0);
    o = files_options(TEXT_PATH, &notifier);
    o.type = "q8_0";
    fails(IN_PATH, OUT_PATH, &o, PI_ERR_UNSUPPORTED, "undo it first");
}

static void test_paths(void **state) {
    (void)state;
    write_tiny("f32", "relu");
    pi_prepare_options o = files_options(TEXT_PATH, &notifier);
    fails(IN_PATH, IN_PATH, &o, PI_ERR_ARG, "output is the input");
    fails(IN_PATH, TEST_BINARY_DIR "/no/such/folder.gguf", &o, PI_ERR_IO, "no/such");
    fails(IN_PATH, TEST_BINARY_DIR, &o, PI_ERR_IO, "folder");
    fails(IN_PATH, "/dev/null", &o, PI_ERR_IO, "not a file");
    fails(TEST_BINARY_DIR "/no.gguf", OUT_PATH, &o, PI_ERR_IO, "no.gguf");
    fails(TEXT_PATH, OUT_PATH, &o, PI_ERR_FORMAT, TEXT_PATH);
    /* before any computation */
    assert_int_equal(notifier.calls, 0);
    gguf_close(files_open(IN_PATH)); /* the input is intact */
}

/* ---- stopping -------------------------------------------------------------------------------- */

#if !defined(_WIN32) /* Windows has no limit of the size of files */
/* A disk that becomes full at any point of the file, simulated by a limit on file sizes. With a
 * predictor the temporary file of predictors reaches the limit first. */
static void check_full_disk(const char *predictor) {
    struct rlimit old, small;
    struct stat whole;
    write_tiny("f32", "relu");
    pi_prepare_options o = files_options(TEXT_PATH, &notifier);
    o.predictor = predictor;
    files_prepare(IN_PATH, OUT_PATH, &o);
    assert_int_equal(stat(OUT_PATH, &whole), 0);
    unlink(OUT_PATH);
    notifier = (prepare_notes){0};
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, SIG_IGN);
    for (int i = 0; i < 4; i++) {
        small = old;
        small.rlim_cur = (rlim_t)whole.st_size * (rlim_t)i / 4;
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        pi_error err = {0};
        pi_status status = pi_prepare(IN_PATH, OUT_PATH, &o, NULL, &err);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
        if (status != PI_ERR_IO) fail_msg("%s: %s", pi_status_name(status), err.message);
        assert_non_null(strstr(err.message, "cannot write file"));
        bool waits = strstr(err.message, "a temporary one next to") != NULL;
        assert_int_equal(waits, i == 0 && strcmp(predictor, "none") != 0);
        assert_int_equal(files_count(OUT_NAME), 0);
    }
    signal(SIGXFSZ, SIG_DFL);
}

static void test_full_disk(void **state) {
    (void)state;
    check_full_disk("none");
    check_full_disk("sign");
    check_full_disk("lowrank");
}

#endif

static void test_cancel(void **state) {
    (void)state;
    write_tiny("f32", "relu");
    pi_prepare_options o = files_options(TEXT_PATH, &notifier);
    notifier.stop_at = 1;
    fails(IN_PATH, OUT_PATH, &o, PI_ERR_CANCELLED, "cancelled");
    notifier = (prepare_notes){.stop_at = 2};
    o.type = "q8_0"; /* with intermediate files */
    fails(IN_PATH, OUT_PATH, &o, PI_ERR_CANCELLED, "cancelled");
    /* an earlier output is unchanged */
    o.type = NULL;
    o.predictor = "none";
    files_prepare(IN_PATH, OUT_PATH, &o);
    gguf_close(files_open(OUT_PATH));
    notifier = (prepare_notes){.stop_at = 2};
    pi_error err = {0};
    assert_int_equal(pi_prepare(IN_PATH, OUT_PATH, &o, NULL, &err), PI_ERR_CANCELLED);
    gguf_close(files_open(OUT_PATH));
    assert_int_equal(files_count(OUT_NAME), 1);
    unlink(OUT_PATH);
}

/* Every allocation of a run fails in turn, or every `stride`-th where there are thousands. */
static void check_no_memory(const pi_prepare_options *o, bool undo, int stride) {
    failing f = failing_each(stride);
    while (failing_next(&f)) {
        pi_error err = {0};
        pi_status status = undo ? pi_prepare_undo(IN_PATH, OUT_PATH, o, &err)
                                : pi_prepare(IN_PATH, OUT_PATH, o, NULL, &err);
        if (!failing_hit(&f, status, &err)) break;
        run_check_message(&err, PI_ERR_NOMEM);
        assert_int_equal(files_count(OUT_NAME), 0);
    }
    assert_true(f.n > 50);
    notifier = (prepare_notes){0};
}

static void test_no_memory(void **state) {
    (void)state;
    enum { SPREAD = 7 }; /* prime, so that every part of a run has other failures */
    pi_prepare_options o = files_options(TEXT_PATH, &notifier);
    o.calibration_tokens = 256;
    o.n_threads = 1;
    write_tiny("f16", "relu");
    o.predictor = "none";
    check_no_memory(&o, false, 1);
    assert_int_equal(rename(OUT_PATH, IN_PATH), 0);
    check_no_memory(&o, true, 1);
    unlink(OUT_PATH);
    write_tiny("q8_0", "silu");
    check_no_memory(&o, false, SPREAD);
    unlink(OUT_PATH);
    write_tiny("f16", "relu");
    o.predictor = "sign";
    check_no_memory(&o, false, SPREAD);
    unlink(OUT_PATH);
    o.predictor = "lowrank";
    o.type = "q4_0";
    check_no_memory(&o, false, SPREAD);
    unlink(OUT_PATH);
    /* keeps the predictor of the file */
    tiny_model t = files_tiny("f16");
    t.sparse = (tiny_sparse){.pwri = true,
                             .down_t = true,
                             .predictor = "relu_mlp",
                             .residual = true,
                             .no_bias = true,
                             .rank = 33};
    tiny_write(&t, IN_PATH);
    o.predictor = o.type = NULL;
    check_no_memory(&o, false, SPREAD);
    unlink(OUT_PATH);
}

static int set_up(void **state) {
    (void)state;
    unlink(OUT_PATH);
    files_write_text(TEXT_PATH, 4000);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    unlink(IN_PATH);
    unlink(OUT_PATH);
    unlink(TEXT_PATH);
    unlink(BAD_PATH);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_no_vocabulary),
        cmocka_unit_test(test_requests),
        cmocka_unit_test(test_models),
        cmocka_unit_test(test_paths),
#if !defined(_WIN32)
        cmocka_unit_test(test_full_disk),
#endif

        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests_name("prepare_errors", tests, set_up, tear_down);
}
