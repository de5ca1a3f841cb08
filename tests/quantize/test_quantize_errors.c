/* test_quantize_errors.c: wrong requests, hostile files, full disks, cancelling, failing
 * allocations: each gives one message, no output and no temporary file. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "bundled_file.h"
#include "failing.h"
#include "file.h"
#include "mem.h"
#include "quantize_files.h"
#include "run_model.h"
#include "tiny_model.h"

#define IN_PATH      TEST_BINARY_DIR "/test_quantize_errors.in.gguf"
#define OUT_PATH     TEST_BINARY_DIR "/test_quantize_errors.out.gguf"
#define LINK_PATH    TEST_BINARY_DIR "/test_quantize_errors.link.gguf"
#define IMATRIX_PATH TEST_BINARY_DIR "/test_quantize_errors.imatrix.gguf"

static const made_tensor tensors[] = {
    {"token_embd.weight", QUANT_F16, 2, {256, 40, 1, 1}},
    {"blk.0.attn_v.weight", QUANT_Q8_0, 2, {256, 16, 1, 1}},
    {"blk.0.ffn_down.weight", QUANT_F32, 2, {512, 16, 1, 1}},
    {"output.weight", QUANT_F16, 2, {256, 40, 1, 1}},
};
enum { N_TENSORS = sizeof tensors / sizeof *tensors };

/* Counts the files of OUT_PATH in the build folder, finished or not. */
static int count_outputs(void) {
    DIR *dir = opendir(TEST_BINARY_DIR);
    assert_non_null(dir);
    int n = 0;
    for (struct dirent *e; (e = readdir(dir));)
        n += strstr(e->d_name, "test_quantize_errors.out.gguf") != NULL;
    closedir(dir);
    return n;
}

static pi_quantize_options options(void) {
    pi_quantize_options o = pi_quantize_default_options();
    o.n_threads = 2;
    o.allow_requantize = true;
    return o;
}

/* Expects this status and a message with these words. */
static void fails(const char *in, const char *out, const pi_quantize_options *o, pi_status status,
                  const char *words) {
    pi_error err = {0};
    pi_status found = pi_quantize(in, out, o, NULL, &err);
    if (found != status)
        fail_msg("%s instead of %s: %s", pi_status_name(found), pi_status_name(status),
                 err.message);
    if (!strstr(err.message, words)) fail_msg("no \"%s\" in: %s", words, err.message);
    assert_null(strchr(err.message, '\n'));
    assert_int_equal(count_outputs(), 0);
}

static void test_requests(void **state) {
    (void)state;
    made_write(IN_PATH, tensors, N_TENSORS, 1, NULL);
    pi_quantize_options o = options();
    o.type = "Q4_KM";
    fails(IN_PATH, OUT_PATH, &o, PI_ERR_ARG, "did you mean Q4_K_M?");
    o.type = "Q4_X";
    fails(IN_PATH, OUT_PATH, &o, PI_ERR_ARG, "choose one of F32, F16");
    o = options();
    o.output_type = "q9";
    fails(IN_PATH, OUT_PATH, &o, PI_ERR_ARG, "type of the output matrix");
    o = options();
    o.embedding_type = "i8";
    fails(IN_PATH, OUT_PATH, &o, PI_ERR_ARG, "type of the embeddings");
    static const pi_tensor_type bad = {"no_such_tensor", "q4_k_m"};
    o = options();
    o.tensor_types = &bad;
    o.n_tensor_types = 1;
    fails(IN_PATH, OUT_PATH, &o, PI_ERR_ARG, "type of tensors");
    o = options();
    o.n_threads = -1;
    fails(IN_PATH, OUT_PATH, &o, PI_ERR_ARG, "threads");
    o = options();
    o.allow_requantize = false;
    fails(IN_PATH, OUT_PATH, &o, PI_ERR_ARG, "blk.0.attn_v.weight is q8_0 and would become");
    o = options();
    o.type = "IQ2_XS";
    fails(IN_PATH, OUT_PATH, &o, PI_ERR_ARG, "no importance matrix");
    o = options();
    o.allow_requantize = false;
    o.type = "Q8_0"; /* no tensor would be quantized twice */
    pi_error err = {0};
    assert_int_equal(pi_quantize(IN_PATH, OUT_PATH, &o, NULL, &err), PI_OK);
    o.type = "F16"; /* floats lose no precision */
    assert_int_equal(pi_quantize(IN_PATH, OUT_PATH, &o, NULL, &err), PI_OK);
    unlink(OUT_PATH);
}

static void test_paths(void **state) {
    (void)state;
    made_write(IN_PATH, tensors, N_TENSORS, 1, NULL);
    pi_quantize_options o = options();
    fails(IN_PATH, IN_PATH, &o, PI_ERR_ARG, "output is the input");
#if !defined(_WIN32) /* wine removes the file instead of the link */
    unlink(LINK_PATH);
    assert_int_equal(symlink(IN_PATH, LINK_PATH), 0);
    fails(IN_PATH, LINK_PATH, &o, PI_ERR_ARG, "output is the input");
    unlink(LINK_PATH);
#endif
    fails(IN_PATH, TEST_BINARY_DIR "/no/such/folder.gguf", &o, PI_ERR_IO, "no/such");
    fails(TEST_BINARY_DIR "/no.gguf", OUT_PATH, &o, PI_ERR_IO, "no.gguf");
    if (access("/dev/full", W_OK) == 0) fails(IN_PATH, "/dev/full", &o, PI_ERR_IO, "/dev/full");
    gguf_file *f = made_open(IN_PATH); /* the input is intact */
    assert_int_equal(gguf_n_tensors(f), N_TENSORS);
    gguf_close(f);
}

static void test_truncated(void **state) {
    (void)state;
    made_write(IN_PATH, tensors, N_TENSORS, 1, NULL);
    char *bytes = NULL;
    size_t n = 0;
    pi_error err = {0};
    assert_int_equal(file_read(IN_PATH, (size_t)1 << 24, &bytes, &n, &err), PI_OK);
    pi_quantize_options o = options();
    for (size_t cut = 0; cut < n; cut += cut < 400 ? 7 : 9973) {
        FILE *file = fopen(IN_PATH, "wb");
        assert_non_null(file);
        assert_int_equal(fwrite(bytes, 1, cut, file), cut);
        fclose(file);
        fails(IN_PATH, OUT_PATH, &o, PI_ERR_FORMAT, IN_PATH);
    }
    mem_free(bytes);
}

/* Overwrites one value of a tensor of floats. */
static void poke(const char *name, uint64_t at, float value) {
    gguf_file *f = made_open(IN_PATH);
    const gguf_tensor *t = made_find(f, name);
    FILE *file = fopen(IN_PATH, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, (long)(t->file_offset + at * sizeof value), SEEK_SET), 0);
    assert_int_equal(fwrite(&value, sizeof value, 1, file), 1);
    fclose(file);
    gguf_close(f);
}

static void test_values(void **state) {
    (void)state;
    static const float bad[] = {(float)(0.0 / 0.0), (float)(1.0 / 0.0), (float)(-1.0 / 0.0)};
    pi_quantize_options o = options();
    for (size_t i = 0; i < 3; i++) {
        made_write(IN_PATH, tensors, N_TENSORS, 1, NULL);
        poke("blk.0.ffn_down.weight", 512 * 9 + 511, bad[i]);
        fails(IN_PATH, OUT_PATH, &o, PI_ERR_RANGE, "blk.0.ffn_down.weight, row 9");
    }
    made_write(IN_PATH, tensors, N_TENSORS, 1, NULL);
    poke("blk.0.ffn_down.weight", 512 * 3, 1e6f);
    o.type = "F16";
    fails(IN_PATH, OUT_PATH, &o, PI_ERR_RANGE, "overflow in f16");
    static const pi_tensor_type advice = {"blk.0.ffn_down.weight", "bf16"};
    o.tensor_types = &advice;
    o.n_tensor_types = 1;
    pi_error err = {0};
    if (pi_quantize(IN_PATH, OUT_PATH, &o, NULL, &err) != PI_OK) fail_msg("%s", err.message);
    unlink(OUT_PATH);
}

/* A file of the original PowerInfer cannot be quantized: its meaning depends on more than its
 * tensors. */
static void test_other_magic(void **state) {
    (void)state;
    made_write(IN_PATH, tensors, N_TENSORS, 1, NULL);
    FILE *file = fopen(IN_PATH, "r+b");
    assert_non_null(file);
    assert_int_equal(fwrite("PWRI", 1, 4, file), 4);
    fclose(file);
    pi_quantize_options o = options();
    fails(IN_PATH, OUT_PATH, &o, PI_ERR_UNSUPPORTED, "made for the original PowerInfer");
}

/* Bundles cannot be quantized: they hold rows of several matrices. */
static void test_bundles(void **state) {
    (void)state;
    tiny_model t = tiny_default();
    t.sparse.down_t = true;
    tiny_write(&t, OUT_PATH);
    bundled_write(OUT_PATH, IN_PATH, 0);
    unlink(OUT_PATH);
    static const char *const types[] = {"q8_0", "copy"};
    for (int i = 0; i < 2; i++) {
        pi_quantize_options o = options();
        o.type = types[i];
        fails(IN_PATH, OUT_PATH, &o, PI_ERR_UNSUPPORTED,
              "neurons are bundled: " IN_PATH ": blk.0.ffn_bundle.weight has rows of several "
              "matrices: rearrange the file first, with bundles = PI_BUNDLES_NONE");
    }
    pi_quantize_options o = options();
    t.experts = (tiny_experts){.n = 4, .n_used = 2, .n_ff = 64};
    tiny_write(&t, OUT_PATH);
    bundled_write(OUT_PATH, IN_PATH, 0);
    unlink(OUT_PATH);
    fails(IN_PATH, OUT_PATH, &o, PI_ERR_UNSUPPORTED,
          "experts are bundled: " IN_PATH ": blk.0.ffn_bundle_exps.weight has rows");
}

static void test_imatrix_files(void **state) {
    (void)state;
    static const char *const name = "blk.0.ffn_down.weight";
    made_write(IN_PATH, tensors, N_TENSORS, 1, NULL);
    pi_quantize_options o = options();
    o.imatrix = IN_PATH;
    fails(IN_PATH, OUT_PATH, &o, PI_ERR_FORMAT, "not an importance matrix");
    o.imatrix = TEST_BINARY_DIR "/no.gguf";
    fails(IN_PATH, OUT_PATH, &o, PI_ERR_IO, "no.gguf");
    /* importance of a model with longer rows */
    made_imatrix(IMATRIX_PATH, IN_PATH, &name, 1);
    made_tensor other[N_TENSORS];
    memcpy(other, tensors, sizeof other);
    other[2].dims[0] = 256;
    made_write(IN_PATH, other, N_TENSORS, 1, NULL);
    o.imatrix = IMATRIX_PATH;
    fails(IN_PATH, OUT_PATH, &o, PI_ERR_FORMAT, "of another model");
    FILE *file = fopen(IMATRIX_PATH, "wb");
    assert_non_null(file);
    fputs("\1\0\0\0 an older form", file);
    fclose(file);
    fails(IN_PATH, OUT_PATH, &o, PI_ERR_FORMAT, "GGUF form");
    unlink(IMATRIX_PATH);
}

/* ---- cancelling ------------------------------------------------------------------------------ */

typedef struct stopper {
    int calls, stop_at;
} stopper;

static bool stop(void *user, const char *stage, double fraction) {
    stopper *s = user;
    assert_string_equal(stage, "quantizing");
    assert_true(fraction > 0 && fraction <= 1);
    return ++s->calls != s->stop_at;
}

static void test_cancel(void **state) {
    (void)state;
    made_write(IN_PATH, tensors, N_TENSORS, 1, NULL);
    stopper s = {.stop_at = 1};
    pi_quantize_options o = options();
    o.progress = stop;
    o.user = &s;
    fails(IN_PATH, OUT_PATH, &o, PI_ERR_CANCELLED, "cancelled");
    /* the output of an earlier run stays unchanged */
    s = (stopper){.stop_at = -1};
    pi_error err = {0};
    assert_int_equal(pi_quantize(IN_PATH, OUT_PATH, &o, NULL, &err), PI_OK);
    assert_true(s.calls > 0);
    s = (stopper){.stop_at = 1};
    o.type = "Q2_K";
    assert_int_equal(pi_quantize(IN_PATH, OUT_PATH, &o, NULL, &err), PI_ERR_CANCELLED);
    gguf_file *f = made_open(OUT_PATH);
    assert_int_equal(made_find(f, "token_embd.weight")->type, QUANT_Q4_K);
    gguf_close(f);
    assert_int_equal(count_outputs(), 1);
    unlink(OUT_PATH);
}

static void test_no_memory(void **state) {
    (void)state;
    static const char *const name = "blk.0.ffn_down.weight";
    made_write(IN_PATH, tensors, N_TENSORS, 1, NULL);
    made_imatrix(IMATRIX_PATH, IN_PATH, &name, 1);
    pi_quantize_options o = options();
    o.imatrix = IMATRIX_PATH;
    failing f = failing_each(1);
    while (failing_next(&f)) {
        pi_error err = {0};
        pi_status status = pi_quantize(IN_PATH, OUT_PATH, &o, NULL, &err);
        if (!failing_hit(&f, status, &err)) break;
        run_check_message(&err, PI_ERR_NOMEM);
        assert_int_equal(count_outputs(), 0);
    }
    assert_true(f.n > 10);
    unlink(OUT_PATH);
    unlink(IMATRIX_PATH);
}

static int tear_down(void **state) {
    (void)state;
    unlink(IN_PATH);
    unlink(OUT_PATH);
    unlink(LINK_PATH);
    unlink(IMATRIX_PATH);
    return 0;
}

int main(void) {
    unlink(OUT_PATH);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests),      cmocka_unit_test(test_paths),
        cmocka_unit_test(test_truncated),     cmocka_unit_test(test_values),
        cmocka_unit_test(test_imatrix_files), cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_other_magic),   cmocka_unit_test(test_bundles),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests_name("quantize_errors", tests, NULL, tear_down);
}
