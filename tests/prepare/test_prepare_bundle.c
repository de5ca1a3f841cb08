/* test_prepare_bundle.c: files with bundles of neurons: written when a model is prepared, made from
 * a prepared file, unbundled, prepared again, undone. Expected files are files without bundles,
 * bundled by the tests' writer. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "bundled_file.h"
#include "failing.h"
#include "gguf_writer.h"
#include "prepare_files.h"
#include "sparse_keys.h"

#define PATH(name) TEST_BINARY_DIR "/test_prepare_bundle." name ".gguf"
#define IN_PATH    PATH("in")
#define APART_PATH PATH("apart") /* prepared without bundles */
#define WANT_PATH  PATH("want")
#define OUT_PATH   PATH("out")
#define BACK_PATH  PATH("back")
#define TEXT_PATH  TEST_BINARY_DIR "/test_prepare_bundle.txt"

static pi_prepare_result prepare(const char *in, const char *out, pi_bundles bundles,
                                 bool rearrange, prepare_notes *notifier) {
    pi_prepare_options o = files_options(rearrange ? NULL : TEXT_PATH, notifier);
    o.bundles = bundles;
    o.rearrange = rearrange;
    return files_prepare(in, out, &o);
}

/* Prepares IN to APART and bundles APART to WANT. */
static void write_models(const tiny_model *t, prepare_notes *notifier) {
    tiny_write(t, IN_PATH);
    prepare(IN_PATH, APART_PATH, PI_BUNDLES_KEEP, false, notifier);
    bundled_write(APART_PATH, WANT_PATH, 0);
}

static void check_undone(const char *bundled) {
    files_undo(APART_PATH, BACK_PATH);
    files_undo(bundled, PATH("other"));
    files_same(BACK_PATH, PATH("other"));
}

static void test_prepared(void **state) {
    (void)state;
    static const char *const archs[] = {"llama", "opt"}, *const types[] = {"q4_0", "f16"};
    prepare_notes notifier;
    for (int i = 0; i < 2; i++) {
        tiny_model t = files_tiny(types[i]);
        t.arch = archs[i];
        if (i == 1) t.ffn_bias = t.qkv_bias = t.out_bias = true;
        if (i == 1) t.n_pos = 256;
        t.scales = i == 0;
        write_models(&t, &notifier);
        /* prepares and bundles at once; `rearrange` has no effect on a file that is not prepared */
        pi_prepare_options o = files_options(TEXT_PATH, &notifier);
        o.bundles = PI_BUNDLES_ALL;
        o.rearrange = true;
        pi_prepare_result r = files_prepare(IN_PATH, OUT_PATH, &o);
        assert_non_null(r.mode);
        assert_int_equal(notifier.n_layers, t.n_layer);
        files_same_content(OUT_PATH, WANT_PATH);
        check_undone(OUT_PATH);
        /* preparing again keeps bundles, and other results do not depend on them */
        prepare(OUT_PATH, BACK_PATH, PI_BUNDLES_KEEP, false, &notifier);
        prepare(APART_PATH, PATH("again"), PI_BUNDLES_KEEP, false, &notifier);
        bundled_write(PATH("again"), WANT_PATH, 0);
        files_same_content(BACK_PATH, WANT_PATH);
        prepare(OUT_PATH, BACK_PATH, PI_BUNDLES_NONE, false, &notifier);
        files_same_content(BACK_PATH, PATH("again"));
    }
}

/* Experts: gate and up separate or in one tensor, preceding dense layers, scales and biases, down
 * with a row per neuron. */
static void test_experts(void **state) {
    (void)state;
    static const char *const archs[] = {"llama", "bailingmoe2", "smallthinker"};
    static const char *const types[] = {"q8_0", "q8_0", "f16"};
    prepare_notes notifier;
    for (int i = 0; i < 3; i++) {
        tiny_model t = files_tiny(types[i]);
        t.arch = archs[i];
        t.activation = NULL;
        t.experts = (tiny_experts){.n = 8, .n_used = 3, .n_ff = 64};
        t.scales = t.experts.biased = i == 0;
        if (i == 1) {
            t.experts.fused = t.experts.select_bias = true;
            t.experts.n_ff_shared = 96;
            t.experts.n_dense = 1;
        }
        write_models(&t, &notifier);
        prepare(IN_PATH, OUT_PATH, PI_BUNDLES_ALL, false, &notifier);
        files_same_content(OUT_PATH, WANT_PATH);
        check_undone(OUT_PATH);
        files_undo(OUT_PATH, BACK_PATH);
        files_same_content(BACK_PATH, IN_PATH);
        prepare(APART_PATH, BACK_PATH, PI_BUNDLES_ALL, true, &notifier);
        files_same_content(BACK_PATH, WANT_PATH);
        prepare(WANT_PATH, BACK_PATH, PI_BUNDLES_NONE, true, &notifier);
        files_same_content(BACK_PATH, APART_PATH);
        prepare(OUT_PATH, BACK_PATH, PI_BUNDLES_KEEP, false,
                &notifier); /* experts are already sorted */
        prepare(APART_PATH, IN_PATH, PI_BUNDLES_KEEP, false, &notifier);
        bundled_write(IN_PATH, WANT_PATH, 0);
        files_same_content(BACK_PATH, WANT_PATH);
    }
}

static void test_rearranged(void **state) {
    (void)state;
    prepare_notes notifier;
    tiny_model t = files_tiny("q8_0");
    write_models(&t, &notifier);
    pi_prepare_result r = prepare(APART_PATH, OUT_PATH, PI_BUNDLES_ALL, true, &notifier);
    files_same_content(OUT_PATH, WANT_PATH);
    assert_null(r.mode);
    assert_true(isnan(r.ppl_before) && isnan(r.ppl_after) && isnan(r.kl));
    assert_true(r.bytes_out > r.bytes_in);
    assert_int_equal(notifier.n_layers, 0);
    assert_true(notifier.calls > 0);
    assert_true(files_said(&notifier, "already prepared: only bundles change"));
    check_undone(OUT_PATH);
    prepare(OUT_PATH, BACK_PATH, PI_BUNDLES_ALL, true, &notifier);
    files_same(OUT_PATH, BACK_PATH);
    prepare(OUT_PATH, BACK_PATH, PI_BUNDLES_NONE, true, &notifier);
    files_same_content(BACK_PATH, APART_PATH);
    /* bundles with too much padding are shortened */
    bundled_write(APART_PATH, WANT_PATH, 3);
    prepare(WANT_PATH, BACK_PATH, PI_BUNDLES_ALL, true, &notifier);
    files_same_content(BACK_PATH, OUT_PATH);
}

/* Writes IN with its tensors in reverse order, so that down comes before gate and up. */
static void reverse_input(void) {
    gguf_file *f = files_open(PATH("other"));
    gguf_writer *w;
    pi_error err;
    uint64_t n = gguf_n_tensors(f);
    assert_int_equal(gguf_writer_create(IN_PATH, &w, &err), PI_OK);
    for (uint64_t i = 0; i < gguf_n_values(f); i++) gguf_put_value(w, gguf_value_at(f, i));
    for (uint64_t i = n; i > 0; i--) {
        const gguf_tensor *t = gguf_tensor_at(f, i - 1);
        assert_int_equal(gguf_add_tensor(w, t->name, t->type, t->n_dims, t->dims, &err), PI_OK);
    }
    assert_int_equal(gguf_writer_begin_data(w, &err), PI_OK);
    for (uint64_t i = n; i > 0; i--) {
        const gguf_tensor *t = gguf_tensor_at(f, i - 1);
        assert_int_equal(gguf_write_data(w, t->data, t->n_bytes, &err), PI_OK);
    }
    assert_int_equal(gguf_writer_finish(w, &err), PI_OK);
    gguf_close(f);
}

/* Undo restores the source's order of tensors after any sequence of commands. */
static void test_order(void **state) {
    (void)state;
    static const char *const archs[] = {"llama", "llama", "smallthinker"};
    prepare_notes notifier;
    for (int i = 0; i < 3; i++) {
        tiny_model t = files_tiny("f16");
        t.arch = archs[i];
        if (i > 0) t.experts = (tiny_experts){.n = 8, .n_used = 3, .n_ff = 64};
        if (i == 2) t.activation = NULL;
        tiny_write(&t, PATH("other"));
        reverse_input();
        prepare(IN_PATH, APART_PATH, PI_BUNDLES_NONE, false, &notifier);
        prepare(IN_PATH, OUT_PATH, PI_BUNDLES_ALL, false, &notifier);
        files_undo(OUT_PATH, BACK_PATH);
        files_same(BACK_PATH, IN_PATH);
        prepare(OUT_PATH, BACK_PATH, PI_BUNDLES_NONE, true, &notifier);
        files_same(BACK_PATH, APART_PATH);
        prepare(APART_PATH, BACK_PATH, PI_BUNDLES_ALL, true, &notifier);
        files_same(BACK_PATH, OUT_PATH);
        prepare(OUT_PATH, PATH("again"), PI_BUNDLES_KEEP, false, &notifier); /* prepared again */
        files_undo(PATH("again"), BACK_PATH);
        files_same(BACK_PATH, IN_PATH);
    }
}

/* Writes IN again with another alignment of its tensors. */
static void align_input(uint32_t alignment) {
    gguf_file *f = files_open(APART_PATH);
    gguf_writer *w;
    pi_error err;
    assert_int_equal(gguf_writer_create(IN_PATH, &w, &err), PI_OK);
    for (uint64_t i = 0; i < gguf_n_values(f); i++) gguf_put_value(w, gguf_value_at(f, i));
    gguf_put_u32(w, GGUF_KEY_ALIGNMENT, alignment);
    files_copy_tensors(f, w);
}

/* Undo restores the file's alignment. */
static void test_alignment(void **state) {
    (void)state;
    static const uint32_t of_input[] = {64, 8192}, of_bundles[] = {4096, 8192};
    prepare_notes notifier;
    tiny_model t = files_tiny("f16");
    write_models(&t, &notifier);
    for (int i = 0; i < 2; i++) {
        align_input(of_input[i]);
        prepare(IN_PATH, OUT_PATH, PI_BUNDLES_ALL, true, &notifier);
        gguf_file *f = files_open(OUT_PATH);
        assert_int_equal(gguf_alignment(f), of_bundles[i]);
        gguf_close(f);
        prepare(OUT_PATH, BACK_PATH, PI_BUNDLES_NONE, true, &notifier);
        files_same(BACK_PATH, IN_PATH);
        files_undo(OUT_PATH, BACK_PATH);
        f = files_open(BACK_PATH);
        assert_int_equal(gguf_alignment(f), of_input[i]);
        assert_null(gguf_find(f, SPARSE_KEY_SOURCE_ALIGNMENT));
        assert_null(gguf_find(f, SPARSE_KEY_BUNDLE_UP_TYPE));
        gguf_close(f);
    }
}

static void test_refused(void **state) {
    (void)state;
    prepare_notes notifier;
    pi_error err = {0};
    pi_prepare_options o = files_options(TEXT_PATH, &notifier);
    tiny_model t = files_tiny("f16");
    o.bundles = PI_BUNDLES_ALL;
    o.calibration = NULL;
    o.rearrange = true;
    tiny_write(&t, IN_PATH);
    remove(OUT_PATH);
    assert_int_equal(pi_prepare(IN_PATH, OUT_PATH, &o, NULL, &err), PI_ERR_ARG);
    assert_int_equal(access(OUT_PATH, F_OK), -1);
}

static void test_memory(void **state) {
    (void)state;
    prepare_notes notifier;
    pi_error err;
    tiny_model t = files_tiny("q8_0");
    write_models(&t, &notifier);
    pi_prepare_options o = files_options(NULL, &notifier);
    o.rearrange = true;
    for (int all = 0; all < 2; all++) {
        const char *in = all ? APART_PATH : WANT_PATH;
        o.bundles = all ? PI_BUNDLES_ALL : PI_BUNDLES_NONE;
        remove(OUT_PATH);
        for (failing f = failing_each(3); failing_next(&f);) {
            pi_status status = pi_prepare(in, OUT_PATH, &o, NULL, &err);
            if (failing_hit(&f, status, &err)) assert_int_equal(access(OUT_PATH, F_OK), -1);
        }
        files_same_content(OUT_PATH, all ? WANT_PATH : APART_PATH);
    }
}

static int write_text(void **state) {
    (void)state;
    files_write_text(TEXT_PATH, 20000);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prepared),  cmocka_unit_test(test_rearranged),
        cmocka_unit_test(test_alignment), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_memory),    cmocka_unit_test(test_experts),
        cmocka_unit_test(test_order),
    };
    return cmocka_run_group_tests_name("prepare_bundle", tests, write_text, NULL);
}
