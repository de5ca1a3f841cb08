/* test_prepare_head.c: the output head's predictor that prepare makes: what is written, that the
 * measured loss is that of the file, what undo, quantize and a second preparation do with it, and
 * when there is none. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "prepare_files.h"
#include "shared_data.h"
#include "sparse_keys.h"

#define BUNDLED_PATH TEST_SOURCE_DIR "/models/novella-7m.q8_0.powerinfer.gguf"
#define BOOKS_PATH   TEST_SOURCE_DIR "/models/calibration.txt"
#define TEXT_PATH    TEST_BINARY_DIR "/test_prepare_head.txt"
#define MODEL_PATH   TEST_BINARY_DIR "/test_prepare_head.gguf"
#define OUT_PATH     TEST_BINARY_DIR "/test_prepare_head.out.gguf"
#define OTHER_PATH   TEST_BINARY_DIR "/test_prepare_head.other.gguf"
#define BACK_PATH    TEST_BINARY_DIR "/test_prepare_head.back.gguf"

enum { TOKENS = 4096, N_EMBD = 256, N_VOCAB = 4096 }; /* sizes of the novellas */

static const char *const own_tensors[] = {"output_sketch.fc1.weight", "output_sketch.fc2.weight"};

static pi_prepare_options options_for(prepare_notes *notifier) {
    pi_prepare_options o = files_options(BOOKS_PATH, notifier);
    o.calibration_tokens = TOKENS;
    o.calibration_window = 256;
    o.predictor = "none";
    o.head = true;
    return o;
}

static double number_of(const gguf_file *f, const char *key) {
    double value = (double)NAN;
    const gguf_value *v = gguf_find(f, key);
    if (v) assert_true(gguf_as_f64(v, &value));
    return value;
}

/* Perplexity of the beginning of the books. */
static double perplexity(const char *path, pi_head head) {
    static char text[40000];
    pi_error err = {0};
    pi_model *m = NULL;
    pi_perplexity_report r;
    FILE *file = fopen(BOOKS_PATH, "r");
    assert_non_null(file);
    size_t n = fread(text, 1, sizeof text, file);
    fclose(file);
    while (n > 0 && text[n - 1] & 0x80) n--; /* whole characters */
    if (pi_model_open(path, NULL, &m, &err)) fail_msg("%s", err.message);
    pi_perplexity_options o = pi_perplexity_default_options();
    o.context.mode = PI_MODE_DENSE;
    o.context.head = head;
    o.context.n_threads = 2;
    if (pi_perplexity(m, text, n, &o, &r, &err)) fail_msg("%s", err.message);
    pi_model_close(m);
    return r.perplexity;
}

static bool same_number(const char *a, const char *b, const char *key) {
    gguf_file *x = files_open(a), *y = files_open(b);
    bool same = number_of(x, key) == number_of(y, key);
    gguf_close(x);
    gguf_close(y);
    return same;
}

/* Both files have the same predictor. */
static void expect_same(const char *a, const char *b) {
    gguf_file *x = files_open(a), *y = files_open(b);
    for (int i = 0; i < 2; i++) {
        const gguf_tensor *s = files_find(x, own_tensors[i]), *t = files_find(y, own_tensors[i]);
        assert_int_equal(s->type, t->type);
        assert_int_equal(s->n_bytes, t->n_bytes);
        assert_memory_equal(s->data, t->data, s->n_bytes);
    }
    gguf_close(x);
    gguf_close(y);
    assert_true(same_number(a, b, SPARSE_KEY_HEAD_DISTANCE));
    assert_true(same_number(a, b, SPARSE_KEY_HEAD_ROWS));
}

static void expect_none(const char *path) {
    gguf_file *f = files_open(path);
    for (int i = 0; i < 2; i++) assert_null(gguf_find_tensor(f, own_tensors[i]));
    assert_null(gguf_find(f, SPARSE_KEY_HEAD_DISTANCE));
    assert_null(gguf_find(f, SPARSE_KEY_HEAD_LOSS));
    assert_null(gguf_find(f, SPARSE_KEY_HEAD_ROWS));
    gguf_close(f);
}

/* The file has what the report says, and its loss on other text is small as well. */
static void check_file(const char *path, const pi_prepare_result *r) {
    assert_true(r->head_rank >= 32 && r->head_rank % 32 == 0 && r->head_rank <= N_EMBD / 2);
    assert_true(r->head_bytes > r->head_rows && r->head_bytes <= 0.52); /* measured again */
    assert_true(r->head_rows > 0 && fabs(r->head_loss) < 0.01);
    assert_true(r->head_same >= 0.99);
    gguf_file *f = files_open(path);
    const gguf_tensor *fc1 = files_find(f, own_tensors[0]), *fc2 = files_find(f, own_tensors[1]);
    assert_int_equal(fc1->dims[0], N_EMBD);
    assert_int_equal(fc1->dims[1], r->head_rank);
    assert_int_equal(fc2->dims[0], r->head_rank);
    assert_int_equal(fc2->dims[1], N_VOCAB);
    assert_true(number_of(f, SPARSE_KEY_HEAD_DISTANCE) > 0);
    assert_true(fabs(number_of(f, SPARSE_KEY_HEAD_LOSS) - r->head_loss) < 1e-6);
    assert_true(fabs(number_of(f, SPARSE_KEY_HEAD_ROWS) - r->head_rows) < 1e-6);
    gguf_close(f);
    double rise = perplexity(path, PI_HEAD_PREDICT) / perplexity(path, PI_HEAD_DENSE) - 1;
    assert_true(fabs(rise) < 0.01 && rise != 0);
    /* unless it is named, perplexity has the dense head */
    assert_true(perplexity(path, PI_HEAD_AUTO) == perplexity(path, PI_HEAD_DENSE));
}

static void test_bundled(void **state) {
    (void)state;
    prepare_notes notifier;
    pi_prepare_options o = options_for(&notifier);
    pi_error err = {0};
    pi_prepare_result r = files_prepare(BUNDLED_PATH, OUT_PATH, &o);
    check_file(OUT_PATH, &r);
    /* the result does not depend on the number of threads */
    o.n_threads = 3;
    files_prepare(BUNDLED_PATH, OTHER_PATH, &o);
    expect_same(OUT_PATH, OTHER_PATH);
    assert_true(same_number(OUT_PATH, OTHER_PATH, SPARSE_KEY_HEAD_LOSS));
    /* rearranged: the same tensors and keys */
    pi_prepare_options arranged = pi_prepare_default_options();
    arranged.bundles = PI_BUNDLES_ALL;
    arranged.rearrange = true;
    files_prepare(OUT_PATH, OTHER_PATH, &arranged);
    expect_same(OUT_PATH, OTHER_PATH);
    assert_true(same_number(OUT_PATH, OTHER_PATH, SPARSE_KEY_HEAD_LOSS));
    /* quantized: the predictor stays, its loss is no longer known */
    pi_quantize_options q = pi_quantize_default_options();
    q.type = "q4_0";
    q.allow_requantize = true;
    if (pi_quantize(OUT_PATH, OTHER_PATH, &q, NULL, &err)) fail_msg("%s", err.message);
    expect_same(OUT_PATH, OTHER_PATH);
    gguf_file *f = files_open(OTHER_PATH);
    assert_int_equal(files_find(f, "token_embd.weight")->type, QUANT_Q6_K);
    assert_null(gguf_find(f, SPARSE_KEY_HEAD_LOSS));
    gguf_close(f);
    /* undone, and prepared again without it */
    files_undo(OUT_PATH, BACK_PATH);
    expect_none(BACK_PATH);
    o.head = false;
    files_prepare(OUT_PATH, OTHER_PATH, &o);
    expect_none(OTHER_PATH);
}

/* The layers' thresholds leave room for the head's loss, so that mode auto uses both. */
static void test_novellas(void **state) {
    (void)state;
    static const char *const folders[] = {"models/novella-7m", "models/novella-silu-7m"};
    for (int i = 0; i < 2; i++) {
        char folder[1024];
        prepare_notes notifier;
        if (!shared_path(folder, sizeof folder, folders[i])) continue;
        pi_prepare_options o = options_for(&notifier);
        pi_prepare_result r = files_prepare(folder, OUT_PATH, &o);
        check_file(OUT_PATH, &r);
        if (i == 1) assert_string_equal(r.mode, "threshold");
        if (i == 0) continue;
        assert_true(fmax(r.head_loss, 0) + fmax(r.ppl_after / r.ppl_before - 1, 0) <= o.max_loss);
    }
}

static void expect_left_out(const tiny_model *t, double max_loss, const char *why) {
    prepare_notes notifier;
    pi_prepare_options o = files_options(TEXT_PATH, &notifier);
    o.predictor = "none";
    o.head = true;
    o.max_loss = max_loss;
    tiny_write(t, MODEL_PATH);
    pi_prepare_result r = files_prepare(MODEL_PATH, OUT_PATH, &o);
    assert_int_equal(r.head_rank, 0);
    if (!files_said(&notifier, why)) fail_msg("%s", notifier.messages[notifier.n_messages - 1]);
    expect_none(OUT_PATH);
}

static void test_left_out(void **state) {
    (void)state;
    files_write_text(TEXT_PATH, 20000);
    tiny_model t = files_tiny("q8_0");
    expect_left_out(&t, 0, "no predictor of the output head: none is within the allowed loss");
    t.head_type = "q4_0"; /* a sketch of the smallest rank takes half of its bytes */
    expect_left_out(&t, 1, "it would save less than half of the head's bytes");
    t = files_tiny("f32");
    t.n_embd = 32;
    t.head_dim = t.n_rot = 8;
    expect_left_out(&t, 0.01, "n_embd must be a multiple of 32, and 64 or more");
    t = files_tiny("f32");
    t.arch = "smallthinker";
    t.experts = (tiny_experts){.n = 4, .n_used = 2, .n_ff = 64};
    t.head = (tiny_head){.rank = 32, .type = "q8_0", .profiler = true};
    expect_left_out(&t, 0.01, "no predictor of the output head is made: the model has one");
    gguf_file *f = files_open(OUT_PATH);
    files_find(f, "lm_head_profiler.weight");
    gguf_close(f);
    files_undo(OUT_PATH, BACK_PATH); /* it is part of the source */
    files_same_content(MODEL_PATH, BACK_PATH);
}

static int tear_down(void **state) {
    (void)state;
    unlink(TEXT_PATH);
    unlink(MODEL_PATH);
    unlink(OUT_PATH);
    unlink(OTHER_PATH);
    unlink(BACK_PATH);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_left_out),
        cmocka_unit_test(test_bundled),
        cmocka_unit_test(test_novellas),
    };
    return cmocka_run_group_tests_name("prepare_head", tests, NULL, tear_down);
}
