/* test_prepare_split.c: files with a tensor per expert: the original PowerInfer's Mixtral, with
 * predictors within experts, and ordinary files before llama.cpp joined these tensors. Such a file
 * gives the logits of the same file with joined tensors, bit for bit, in any order of tensors, and
 * `prepare` writes joined tensors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "failing.h"
#include "prepare_files.h"
#include "run_model.h"

#define JOINED_PATH TEST_BINARY_DIR "/test_prepare_split.joined.gguf"
#define SPLIT_PATH  TEST_BINARY_DIR "/test_prepare_split.gguf"
#define OUT_PATH    TEST_BINARY_DIR "/test_prepare_split.out.gguf"
#define BACK_PATH   TEST_BINARY_DIR "/test_prepare_split.back.gguf"
#define TEXT_PATH   TEST_BINARY_DIR "/test_prepare_split.txt"

enum { N_EXPERT = 4, N_TOKENS = 40, MAX_VOCAB = 300, MAX_TENSORS = 128 };

static float want[N_TOKENS * MAX_VOCAB], got[N_TOKENS * MAX_VOCAB];

/* dReLU, router and predictors as in TurboSparse-Mixtral. */
static tiny_model original(const char *type) {
    tiny_model t = files_tiny(type);
    t.activation = NULL;
    t.experts = (tiny_experts){.n = N_EXPERT, .n_used = 2, .n_ff = 96};
    t.sparse = (tiny_sparse){.pwri = true,
                             .down_t = true,
                             .predictor = "relu_mlp",
                             .no_bias = true,
                             .rank = 32,
                             .threshold = 0.1f};
    return t;
}

typedef enum split_order { BY_MATRIX, BY_EXPERT, BACKWARDS } split_order;

/* A tensor of the output: a part of one of the input. */
typedef struct part {
    char name[GGUF_MAX_NAME];
    const gguf_tensor *from;
    int expert; /* -1: the whole tensor */
} part;

static bool is_of_experts(const gguf_tensor *t) {
    return strstr(t->name, "_exps.weight") != NULL;
}

static void name_part(part *p) {
    int n = (int)(strlen(p->from->name) - strlen("_exps.weight"));
    snprintf(p->name, sizeof p->name, "%.*s.%d.weight", n, p->from->name, p->expert);
}

static int list_parts(const gguf_file *f, split_order order, part *parts) {
    int n = 0;
    for (uint64_t i = 0; i < gguf_n_tensors(f); i++)
        if (!is_of_experts(gguf_tensor_at(f, i)))
            parts[n++] = (part){.from = gguf_tensor_at(f, i), .expert = -1};
    int first = n, outer = order == BY_EXPERT ? N_EXPERT : 1;
    int inner = order == BY_EXPERT ? 1 : N_EXPERT;
    for (int k = 0; k < outer; k++)
        for (uint64_t i = 0; i < gguf_n_tensors(f); i++)
            for (int e = 0; e < inner && is_of_experts(gguf_tensor_at(f, i)); e++)
                parts[n++] = (part){.from = gguf_tensor_at(f, i), .expert = k + e};
    for (int i = first; i < n && order == BACKWARDS; i++) {
        int other = first + n - 1 - i;
        if (other <= i) break;
        part swap = parts[i];
        parts[i] = parts[other];
        parts[other] = swap;
    }
    for (int i = first; i < n; i++) name_part(&parts[i]);
    assert_true(n <= MAX_TENSORS && n > first);
    return n;
}

static void set_magic(const char *path) {
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fwrite("PWRI", 1, 4, f), 4);
    assert_int_equal(fclose(f), 0);
}

/* Writes SPLIT_PATH. without: the name of a part that is left out; half: one with half of its rows;
 * or NULL. */
static void split(split_order order, const char *without, const char *half) {
    static part parts[MAX_TENSORS];
    pi_error err;
    gguf_writer *w;
    gguf_file *f = files_open(JOINED_PATH);
    bool pwri = gguf_is_pwri(f);
    int n = list_parts(f, order, parts);
    assert_int_equal(gguf_writer_create(SPLIT_PATH, &w, &err), PI_OK);
    for (uint64_t i = 0; i < gguf_n_values(f); i++) gguf_put_value(w, gguf_value_at(f, i));
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < n; i++) {
            const part *p = &parts[i];
            const char *name = p->expert < 0 ? p->from->name : p->name;
            if (without && strcmp(name, without) == 0) continue;
            uint64_t dims[GGUF_MAX_DIMS];
            memcpy(dims, p->from->dims, sizeof dims);
            size_t n_bytes = p->from->n_bytes / (size_t)(p->expert < 0 ? 1 : N_EXPERT);
            size_t at = p->expert < 0 ? 0 : (size_t)p->expert * n_bytes;
            if (half && strcmp(name, half) == 0) {
                dims[1] /= 2;
                n_bytes /= 2;
            }
            if (pass == 0)
                assert_int_equal(gguf_add_tensor(w, name, p->from->type,
                                                 p->expert < 0 ? p->from->n_dims : 2, dims, &err),
                                 PI_OK);
            else
                assert_int_equal(gguf_write_data(w, p->from->data + at, n_bytes, &err), PI_OK);
        }
        if (pass == 0) assert_int_equal(gguf_writer_begin_data(w, &err), PI_OK);
    }
    assert_int_equal(gguf_writer_finish(w, &err), PI_OK);
    gguf_close(f);
    if (pwri) set_magic(SPLIT_PATH);
}

static void run(const char *path, pi_mode mode, const char *expected, int piece, float *out) {
    int32_t tokens[N_TOKENS];
    pi_context_options o = run_exact_options();
    o.mode = mode;
    run_model r = run_open(path, &o);
    assert_string_equal(pi_context_mode(r.context), expected);
    run_random_tokens(7, r.n_vocab, tokens, N_TOKENS);
    run_tokens(&r, tokens, N_TOKENS, piece, out);
    run_close(&r);
}

static void expect_equal(const char *a, const char *b, pi_mode mode, const char *expected) {
    for (int piece = 0; piece < 6; piece += 2) {
        run(a, mode, expected, piece + (piece > 0), want);
        run(b, mode, expected, piece + (piece > 0), got);
        assert_memory_equal(want, got, sizeof want);
    }
}

static void test_original(void **state) {
    (void)state;
    static const char *const types[] = {"f16", "q4_0", "f32"};
    for (int order = BY_MATRIX; order <= BACKWARDS; order++) {
        tiny_model t = original(types[order]);
        tiny_write(&t, JOINED_PATH);
        split((split_order)order, NULL, NULL);
        expect_equal(JOINED_PATH, SPLIT_PATH, PI_MODE_AUTO, "predict");
        expect_equal(JOINED_PATH, SPLIT_PATH, PI_MODE_EXACT, "exact");
        run(SPLIT_PATH, PI_MODE_EXACT, "exact", 1, want);
        run(SPLIT_PATH, PI_MODE_PREDICT, "predict", 1, got);
        assert_memory_not_equal(want, got, sizeof want); /* the predictors leave out neurons */
    }
}

/* The file's predictors stay, and are measured; experts are sorted with them. */
static void test_upgrade(void **state) {
    (void)state;
    for (int order = BY_EXPERT; order <= BACKWARDS; order++) {
        prepare_notes notes;
        tiny_model t = original("f32");
        tiny_write(&t, JOINED_PATH);
        split((split_order)order, NULL, NULL);
        pi_prepare_options o = files_options(TEXT_PATH, &notes);
        o.max_loss = 1e6;
        pi_prepare_result r = files_prepare(SPLIT_PATH, OUT_PATH, &o);
        assert_string_equal(r.mode, "predict");
        for (int l = 0; l < t.n_layer; l++) {
            assert_string_equal(notes.layers[l].kind, "relu_mlp");
            assert_int_equal(notes.layers[l].rank, 32);
            assert_true(notes.layers[l].recall > 0 && notes.layers[l].recall < 1);
            assert_true(notes.layers[l].selected > 0 && notes.layers[l].selected < 1);
        }
        gguf_file *f = files_open(OUT_PATH);
        assert_false(gguf_is_pwri(f));
        assert_non_null(gguf_find_tensor(f, "blk.1.fc1_exps.weight"));
        assert_non_null(gguf_find_tensor(f, "blk.1.ffn_down_t_exps.weight"));
        assert_null(gguf_find_tensor(f, "blk.1.fc1.0.weight"));
        gguf_close(f);
        expect_equal(SPLIT_PATH, OUT_PATH, PI_MODE_PREDICT, "predict");
        expect_equal(SPLIT_PATH, OUT_PATH, PI_MODE_EXACT, "exact");
        files_undo(OUT_PATH, BACK_PATH);
        assert_true(files_distance(BACK_PATH, PI_MODE_DENSE, 0, SPLIT_PATH) < 1e-9);
        o.bundles = PI_BUNDLES_ALL;
        files_prepare(SPLIT_PATH, OUT_PATH, &o);
        expect_equal(SPLIT_PATH, OUT_PATH, PI_MODE_PREDICT, "predict");
        files_undo(OUT_PATH, BACK_PATH);
        assert_true(files_distance(BACK_PATH, PI_MODE_DENSE, 0, SPLIT_PATH) < 1e-9);
        files_undo(SPLIT_PATH, BACK_PATH);
        assert_true(files_distance(BACK_PATH, PI_MODE_DENSE, 0, SPLIT_PATH) < 1e-9);
    }
}

static void test_ordinary(void **state) {
    (void)state;
    for (int order = BY_MATRIX; order <= BACKWARDS; order++) {
        tiny_model t = original("q8_0");
        t.sparse = (tiny_sparse){0};
        tiny_write(&t, JOINED_PATH);
        split((split_order)order, NULL, NULL);
        expect_equal(JOINED_PATH, SPLIT_PATH, PI_MODE_AUTO, "dense");
    }
}

static void expect_refused(const char *without, const char *half, const char *why) {
    pi_error err;
    pi_model *m;
    split(BY_EXPERT, without, half);
    assert_int_not_equal(pi_model_open(SPLIT_PATH, NULL, &m, &err), PI_OK);
    assert_null(m);
    if (!strstr(err.message, why)) fail_msg("%s", err.message);
}

static void test_refusals(void **state) {
    (void)state;
    tiny_model t = original("f16");
    tiny_write(&t, JOINED_PATH);
    expect_refused("blk.1.ffn_up.2.weight", NULL,
                   "missing tensor: " SPLIT_PATH ": blk.1.ffn_up.2.weight is not in the file");
    expect_refused("blk.0.fc2.3.weight", NULL, "blk.0.fc2.3.weight is not in the file");
    expect_refused("blk.0.fc2.0.weight", NULL, "blk.0.fc2_exps.weight is not in the file");
    expect_refused(NULL, "blk.0.fc1.1.weight",
                   "experts differ: " SPLIT_PATH ": tensor blk.0.fc1.1.weight");
    expect_refused(NULL, "blk.1.ffn_gate.3.weight", "blk.1.ffn_gate.3.weight has another type");
}

static void test_memory(void **state) {
    (void)state;
    tiny_model t = original("f16");
    tiny_write(&t, JOINED_PATH);
    split(BACKWARDS, NULL, NULL); /* all tensors are copied */
    for (failing f = failing_each(1); failing_next(&f);) {
        pi_error err;
        pi_model *m;
        pi_status status = pi_model_open(SPLIT_PATH, NULL, &m, &err);
        if (failing_hit(&f, status, &err)) continue;
        pi_model_close(m);
    }
}

int main(void) {
    static const char *const paths[] = {JOINED_PATH, SPLIT_PATH, OUT_PATH, BACK_PATH, TEXT_PATH};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_original), cmocka_unit_test(test_upgrade),
        cmocka_unit_test(test_ordinary), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_memory),
    };
    files_write_text(TEXT_PATH, 1 << 14);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) unlink(paths[i]);
    return failed;
}
