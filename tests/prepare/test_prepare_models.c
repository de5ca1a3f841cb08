/* test_prepare_models.c: real inputs: the bundled model, files of the original PowerInfer, and a
 * Hugging Face folder. The test compares the report of prepare on the bundled model with the
 * model's known properties. Files of the original PowerInfer must give the same answers as before,
 * and without a predictor those of its dense runs. */
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

#define MODEL_PATH TEST_SOURCE_DIR "/models/novella-7m.q8_0.powerinfer.gguf"
#define BOOKS_PATH TEST_SOURCE_DIR "/models/calibration.txt"
#define OUT_PATH   TEST_BINARY_DIR "/test_prepare_models.out.gguf"
#define BACK_PATH  TEST_BINARY_DIR "/test_prepare_models.back.gguf"

#ifdef TEST_SAMPLED
enum { TOKENS = 2048, HELD_OUT = 512, PWRI_STEP = 4 }; /* for the original's files below */
#else
enum { TOKENS = 8192, HELD_OUT = 1024, PWRI_STEP = 1 };
#endif

static const double same_sums = 1e-9;

static void test_bundled(void **state) {
    (void)state;
    prepare_notes notifier;
    pi_prepare_options o = files_options(BOOKS_PATH, &notifier);
    o.calibration_tokens = TOKENS;
    o.calibration_window = 0;
    pi_prepare_result r = files_prepare(MODEL_PATH, OUT_PATH, &o);
    assert_int_equal(r.tokens, TOKENS);
    assert_int_equal(r.held_out, HELD_OUT);
    assert_string_equal(r.mode, "predict");
    assert_int_equal(notifier.n_layers, 6);
    for (int l = 0; l < 6; l++) {
        const pi_prepare_layer *layer = &notifier.layers[l];
        assert_string_not_equal(layer->kind, "none");
        assert_true(layer->density > 0.03 && layer->density < 0.3); /* about a tenth is active */
        assert_true(layer->contribution_recall > 0.96);
        assert_true(layer->selected > layer->density && layer->selected < 0.6);
    }
    double loss = r.ppl_after / r.ppl_before - 1;
    assert_true(loss < 0.01 && r.kl > 0 && r.kl < 0.02);
    gguf_file *f = files_open(OUT_PATH);
    double stored;
    assert_true(gguf_as_f64(gguf_find(f, SPARSE_KEY_CALIBRATION_LOSS), &stored));
    assert_true(fabs(stored - loss) < 1e-6);
    gguf_close(f);
    /* Q8_0 rows become Q8_0 columns: only the rounding to 8 bits */
    assert_true(files_distance(OUT_PATH, PI_MODE_EXACT, 0, MODEL_PATH) < 1e-4);
    assert_true(files_distance(OUT_PATH, PI_MODE_EXACT, 1, OUT_PATH) < same_sums);
    assert_true(files_distance(OUT_PATH, PI_MODE_AUTO, 1, MODEL_PATH) < 0.05);
    files_undo(OUT_PATH, BACK_PATH);
    assert_true(files_distance(BACK_PATH, PI_MODE_DENSE, 0, MODEL_PATH) < 1e-4);
}

/* Neurons move with their predictors; nothing else changes. */
static void check_pwri(const char *name, bool is_float) {
    char path[1024], relative[128];
    prepare_notes notifier;
    snprintf(relative, sizeof relative, "conformance/pwri/%s", name);
    if (!shared_path(path, sizeof path, relative)) return;
    pi_prepare_options o = files_options(BOOKS_PATH, &notifier);
    pi_prepare_result r = files_prepare(path, OUT_PATH, &o);
    assert_string_equal(notifier.layers[0].kind, "relu_mlp");
    assert_int_equal(notifier.layers[0].rank, 64);
    assert_int_equal(notifier.layers[1].rank, 96);
    assert_true(r.kl >= 0);
    for (int l = 0; l < 2; l++) { /* random weights: half of all neurons, half of the active ones */
        const pi_prepare_layer *layer = &notifier.layers[l];
        assert_true(layer->density > 0.2 && layer->density < 0.55); /* dReLU: a quarter */
        assert_true(layer->recall > 0.4 && layer->recall < 0.6);
        assert_true(layer->contribution_recall > 0.4 && layer->contribution_recall < 0.6);
        assert_true(layer->selected > 0.4 && layer->selected < 0.6);
    }
    for (int piece = 0; piece < 2; piece++) {
        assert_true(files_distance_of(OUT_PATH, PI_MODE_PREDICT, piece, path, PI_MODE_PREDICT) <
                    same_sums);
        assert_true(files_distance(OUT_PATH, PI_MODE_DENSE, piece, path) < same_sums);
    }
    files_undo(OUT_PATH, BACK_PATH); /* an ordinary file */
    gguf_file *f = files_open(BACK_PATH);
    assert_false(gguf_is_pwri(f));
    assert_non_null(gguf_find_tensor(f, "blk.1.ffn_down.weight"));
    assert_null(gguf_find_tensor(f, "blk.1.fc1.weight"));
    gguf_close(f);
    assert_true(files_distance(BACK_PATH, PI_MODE_DENSE, 0, path) < (is_float ? same_sums : 0.1));
    /* new predictors on request */
    o.predictor = "sign";
    files_prepare(path, OUT_PATH, &o);
    assert_string_equal(notifier.layers[0].kind, "sign");
    f = files_open(OUT_PATH);
    assert_null(gguf_find_tensor(f, "blk.0.fc1.weight"));
    assert_null(gguf_find(f, SPARSE_KEY_PREDICTOR_THRESHOLD));
    gguf_close(f);
    assert_true(files_distance(OUT_PATH, PI_MODE_EXACT, 0, path) < same_sums);
}

static void test_pwri(void **state) {
    (void)state;
    static const struct {
        const char *name;
        bool is_float;
    } files[] = {{"llama-f16-sparse.pwri.gguf", true},
                 {"bamboo-f16-sparse.pwri.gguf", true},
                 {"falcon-f16-sparse.pwri.gguf", true},
                 {"opt-f16-sparse.pwri.gguf", true},
                 {"llama-q4_0-sparse.pwri.gguf", false}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i += PWRI_STEP)
        check_pwri(files[i].name, files[i].is_float);
}

static void test_folder(void **state) {
    (void)state;
    char folder[1024];
    prepare_notes notifier;
    pi_error err = {0};
    if (!shared_path(folder, sizeof folder, "models/novella-7m")) return;
    pi_prepare_options o = files_options(BOOKS_PATH, &notifier);
    pi_convert_options convert = pi_convert_default_options();
    pi_status status = pi_convert(folder, BACK_PATH, &convert, &err);
    if (status == PI_ERR_UNSUPPORTED && strstr(err.message, "jansson")) {
        fprintf(stderr, "*** SKIPPED: built without jansson ***\n");
        return;
    }
    assert_int_equal(status, PI_OK);
    o.predictor = "none";
    files_prepare(folder, OUT_PATH, &o);
    assert_int_equal(files_count("test_prepare_models.out"), 1); /* no intermediate file is left */
    assert_true(files_distance(OUT_PATH, PI_MODE_EXACT, 0, BACK_PATH) < same_sums);
    gguf_file *f = files_open(OUT_PATH);
    assert_int_equal(files_find(f, "blk.0.ffn_down_t.weight")->type, QUANT_F16);
    gguf_close(f);
    files_undo(OUT_PATH, TEST_BINARY_DIR "/test_prepare_models.undone.gguf");
    files_same(BACK_PATH, TEST_BINARY_DIR "/test_prepare_models.undone.gguf");
    unlink(TEST_BINARY_DIR "/test_prepare_models.undone.gguf");
}

/* A mixture whose experts have ReLU gates: predictors within them. The file's README has the share
 * of zeros per layer: 0.69 in the first, 0.82 to 0.92 in the others. */
static void test_experts(void **state) {
    (void)state;
    char folder[1024], text[1024];
    prepare_notes notes;
    if (!shared_path(folder, sizeof folder, "models/novella-moe-12m")) return;
    if (!shared_path(text, sizeof text, "models/novella-7m/calibration.txt")) return;
    pi_prepare_options o = files_options(text, &notes);
    o.calibration_tokens = 8192; /* fewer tokens make predictors that select more neurons */
    o.calibration_window = 0;
    pi_prepare_result r = files_prepare(folder, OUT_PATH, &o);
    assert_string_equal(r.mode, "predict");
    assert_int_equal(notes.n_layers, 6);
    for (int l = 0; l < 6; l++) {
        const pi_prepare_layer *layer = &notes.layers[l];
        assert_string_not_equal(layer->kind, "none");
        assert_true(layer->density > (l ? 0.06 : 0.25) && layer->density < (l ? 0.2 : 0.35));
        assert_true(layer->contribution_recall > 0.96);
        assert_true(layer->selected > layer->density && layer->selected < (l ? 0.35 : 0.6));
    }
    assert_true(r.ppl_after / r.ppl_before - 1 < 0.01 && r.kl > 0 && r.kl < 0.02);
    assert_true(files_distance(OUT_PATH, PI_MODE_EXACT, 1, OUT_PATH) < same_sums);
    double lost = files_distance(OUT_PATH, PI_MODE_PREDICT, 1, OUT_PATH);
    assert_true(lost > same_sums && lost < 0.05);
    files_undo(OUT_PATH, BACK_PATH);
    assert_true(files_distance(BACK_PATH, PI_MODE_DENSE, 0, OUT_PATH) < same_sums);
}

static int tear_down(void **state) {
    (void)state;
    unlink(OUT_PATH);
    unlink(BACK_PATH);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bundled),
        cmocka_unit_test(test_pwri),
        cmocka_unit_test(test_folder),
        cmocka_unit_test(test_experts),
    };
    return cmocka_run_group_tests_name("prepare_models", tests, NULL, tear_down);
}
