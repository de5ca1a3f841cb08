/* test_prepare_squared.c: squared ReLU without a gate, and ReLU inside experts. Up decides which
 * neurons are active where there is no gate. Models of every architecture that has squared ReLU are
 * prepared with and without predictors. In one of them every layer has a single block, mostly not
 * an FFN. The files of the conformance data have no vocabulary: copies get one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "gguf_writer.h"
#include "prepare_files.h"
#include "shared_data.h"

#define IN_PATH   TEST_BINARY_DIR "/test_prepare_squared.in.gguf"
#define OUT_PATH  TEST_BINARY_DIR "/test_prepare_squared.out.gguf"
#define BACK_PATH TEST_BINARY_DIR "/test_prepare_squared.back.gguf"
#define TEXT_PATH TEST_BINARY_DIR "/test_prepare_squared.txt"

static const double same_sums = 1e-9;

/* ---- a copy with a vocabulary ---------------------------------------------------------------- */

enum { MAX_VOCAB = 512, MAX_TEXT = 16 };

/* Three control tokens, the space, the letters; other tokens never occur. */
static void put_letters(gguf_writer *w, int n_vocab) {
    enum { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, BLANK = 3, LETTERS = 26 };
    static const char *const first[] = {"<unk>", "<s>", "</s>", "\xe2\x96\x81"};
    static char texts[MAX_VOCAB][MAX_TEXT];
    gguf_string tokens[MAX_VOCAB];
    float scores[MAX_VOCAB];
    int32_t types[MAX_VOCAB];
    assert_in_range(n_vocab, BLANK + 1 + LETTERS, MAX_VOCAB);
    for (int i = 0; i < n_vocab; i++) {
        int letter = i - BLANK - 1;
        if (i <= BLANK)
            snprintf(texts[i], MAX_TEXT, "%s", first[i]);
        else if (letter < LETTERS)
            snprintf(texts[i], MAX_TEXT, "%c", 'a' + letter);
        else
            snprintf(texts[i], MAX_TEXT, "<%d>", i);
        tokens[i] = (gguf_string){texts[i], strlen(texts[i])};
        scores[i] = (float)-i;
        types[i] = i == 0 ? UNKNOWN : i < BLANK ? CONTROL : NORMAL;
    }
    gguf_put_string(w, "tokenizer.ggml.model", "llama");
    gguf_put_strings(w, "tokenizer.ggml.tokens", tokens, (uint64_t)n_vocab);
    gguf_put_array(w, "tokenizer.ggml.scores", GGUF_F32, scores, (uint64_t)n_vocab);
    gguf_put_array(w, "tokenizer.ggml.token_type", GGUF_I32, types, (uint64_t)n_vocab);
    gguf_put_u32(w, "tokenizer.ggml.bos_token_id", 1);
    gguf_put_u32(w, "tokenizer.ggml.eos_token_id", 2);
}

/* key NULL: no further key. */
static void copy_with_letters(const char *from, const char *key, const char *value) {
    pi_error err = {0};
    gguf_writer *w = NULL;
    gguf_file *f = files_open(from);
    assert_int_equal(gguf_writer_create(IN_PATH, &w, &err), PI_OK);
    for (uint64_t i = 0; i < gguf_n_values(f); i++) {
        const gguf_value *v = gguf_value_at(f, i);
        if (!gguf_string_starts(v->key, "tokenizer.")) gguf_put_value(w, v);
    }
    if (key) gguf_put_string(w, key, value);
    put_letters(w, (int)files_find(f, "token_embd.weight")->dims[1]);
    files_copy_tensors(f, w);
}

/* ---- one model ------------------------------------------------------------------------------- */

/* Tests the model at IN_PATH. */
static void check(const char *predictor, int n_layer) {
    prepare_notes notifier;
    pi_prepare_options o = files_options(TEXT_PATH, &notifier);
    bool exact = strcmp(predictor, "none") == 0;
    o.predictor = predictor;
    o.recall = 0.95;
    pi_prepare_result r = files_prepare(IN_PATH, OUT_PATH, &o);
    assert_int_equal(notifier.n_layers, n_layer);
    assert_true(r.density > 0.2 && r.density < 0.6); /* random weights: about half */
    if (exact) assert_string_equal(r.mode, "exact");
    int n_sorted = 0;
    gguf_file *f = files_open(OUT_PATH);
    for (int l = 0; l < n_layer; l++) {
        char name[GGUF_MAX_NAME];
        const pi_prepare_layer *layer = &notifier.layers[l];
        snprintf(name, sizeof name, "blk.%d.ffn_down_t.weight", l);
        bool has_ffn = gguf_find_tensor(f, name);
        assert_string_equal(layer->kind, has_ffn ? predictor : "none");
        if (has_ffn && !exact) assert_true(layer->contribution_recall > 0.85);
        if (has_ffn && !exact) assert_true(layer->selected < 0.95);
        n_sorted += has_ffn;
    }
    assert_true(n_sorted > 0);
    gguf_close(f);
    for (int piece = 0; piece < 2; piece++) { /* all at once, one by one */
        assert_true(files_distance(OUT_PATH, PI_MODE_DENSE, piece, IN_PATH) < same_sums);
        assert_true(files_distance(OUT_PATH, PI_MODE_EXACT, piece, IN_PATH) < same_sums);
        if (!exact) assert_true(files_distance(OUT_PATH, PI_MODE_PREDICT, piece, IN_PATH) < 0.1);
    }
    files_undo(OUT_PATH, BACK_PATH);
    files_same(IN_PATH, BACK_PATH);
}

static void test_tiny(void **state) {
    (void)state;
    static const char *const kinds[] = {"none", "sign", "lowrank", "relu_mlp"};
    tiny_model t = files_tiny("f16");
    t.arch = "opt";
    t.activation = "relu_squared";
    t.n_pos = 512;
    t.qkv_bias = t.out_bias = t.ffn_bias = true;
    tiny_write(&t, IN_PATH);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) check(kinds[i], t.n_layer);
}

static void test_real(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int n_layer;
    } files[] = {
        {"arcee-dense", 2}, {"nemotron-dense", 2}, {"jais2-dense", 2}, {"nemotron_h-dense", 3}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[1024], relative[128];
        snprintf(relative, sizeof relative, "conformance/more/%s.gguf", files[i].name);
        if (!shared_path(path, sizeof path, relative)) return;
        copy_with_letters(path, NULL, NULL);
        check("none", files[i].n_layer);
        check("lowrank", files[i].n_layer);
    }
}

/* Experts with exact zeros: neurons of experts are skipped. */
static void test_experts(void **state) {
    (void)state;
    char path[1024];
    prepare_notes notifier;
    pi_prepare_options o = files_options(TEXT_PATH, &notifier);
    if (!shared_path(path, sizeof path, "conformance/more/smallthinker-moe.gguf")) return;
    copy_with_letters(path, NULL, NULL);
    o.predictor = "none";
    pi_prepare_result r = files_prepare(IN_PATH, OUT_PATH, &o);
    assert_string_equal(r.mode, "exact");
    assert_true(files_said(&notifier, "ffn_down_exps is transposed"));
    for (int piece = 0; piece < 2; piece++)
        assert_true(files_distance(OUT_PATH, PI_MODE_EXACT, piece, IN_PATH) < same_sums);
    files_undo(OUT_PATH, BACK_PATH);
    files_same(IN_PATH, BACK_PATH);
}

/* Layers with an FFN and experts: only the experts are sorted. */
static void test_beside(void **state) {
    (void)state;
    char path[1024];
    prepare_notes notifier;
    pi_prepare_options o = files_options(TEXT_PATH, &notifier);
    if (!shared_path(path, sizeof path, "conformance/more/gemma4-moe.gguf")) return;
    copy_with_letters(path, NULL, NULL);
    pi_prepare_result r = files_prepare(IN_PATH, BACK_PATH, &o);
    assert_string_equal(r.mode, "dense");
    files_prepare(BACK_PATH, OUT_PATH, &o); /* again */
    for (int piece = 0; piece < 2; piece++)
        assert_true(files_distance(OUT_PATH, PI_MODE_DENSE, piece, IN_PATH) < same_sums);
    files_undo(OUT_PATH, BACK_PATH);
    files_same(IN_PATH, BACK_PATH);
}

/* Layers with one block each, most of them without neurons. */
static void test_thresholds(void **state) {
    (void)state;
    char path[1024];
    prepare_notes notifier;
    pi_prepare_options o = files_options(TEXT_PATH, &notifier);
    if (!shared_path(path, sizeof path, "conformance/more/nemotron_h-dense.gguf")) return;
    copy_with_letters(path, "nemotron_h.hidden_activation", "silu");
    o.predictor = "none"; /* by name: whatever can be skipped within the budget */
    o.max_loss = 0.02;
    pi_prepare_result r = files_prepare(IN_PATH, OUT_PATH, &o);
    assert_string_equal(r.mode, "threshold");
    assert_true(r.density > 0 && r.density < 1);
    for (int piece = 0; piece < 2; piece++)
        assert_true(files_distance(OUT_PATH, PI_MODE_THRESHOLD, piece, IN_PATH) < 0.1);
    files_undo(OUT_PATH, BACK_PATH);
    files_same(IN_PATH, BACK_PATH);
}

static int tear_down(void **state) {
    static const char *const paths[] = {IN_PATH, OUT_PATH, BACK_PATH, TEXT_PATH};
    (void)state;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) unlink(paths[i]);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tiny),       cmocka_unit_test(test_real),
        cmocka_unit_test(test_beside),     cmocka_unit_test(test_experts),
        cmocka_unit_test(test_thresholds),
    };
    files_write_text(TEXT_PATH, 1 << 14);
    return cmocka_run_group_tests_name("prepare_squared", tests, NULL, tear_down);
}
