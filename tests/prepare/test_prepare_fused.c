/* test_prepare_fused.c: models with gate and up in one tensor. phi3 computes the same function as
 * qwen2, so expected files are qwen2 files with these weights in two tensors, which this test
 * joins. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "bundled_file.h"
#include "mem.h"
#include "prepare_files.h"

#define PATH(name) TEST_BINARY_DIR "/test_prepare_fused." name ".gguf"
#define APART_PATH PATH("apart") /* qwen2 */
#define FUSED_PATH PATH("fused") /* phi3 with the same weights */
#define TEXT_PATH  TEST_BINARY_DIR "/test_prepare_fused.txt"

/* The source's tensors without gates. */
static void put_order(gguf_writer *w, const gguf_value *v) {
    enum { MAX_TENSORS = 256 };
    gguf_string names[MAX_TENSORS];
    const uint8_t *cursor = v->data;
    uint64_t n = 0;
    assert_true(v->count <= MAX_TENSORS);
    for (uint64_t i = 0; i < v->count; i++) {
        static const char gate[] = ".ffn_gate.weight";
        const gguf_string name = gguf_next_string(&cursor);
        const size_t n_gate = sizeof gate - 1;
        bool is_gate = name.n_bytes > n_gate &&
                       memcmp(name.data + name.n_bytes - n_gate, gate, n_gate) == 0;
        if (!is_gate) names[n++] = name;
    }
    gguf_put_strings(w, "powerinfer.source.tensors", names, n);
}

/* Replaces qwen2 by phi3 in keys. */
static void put_keys(gguf_writer *w, const gguf_file *f) {
    for (uint64_t i = 0; i < gguf_n_values(f); i++) {
        gguf_value v = *gguf_value_at(f, i);
        char key[128];
        if (gguf_string_is(v.key, "general.architecture")) {
            gguf_put_string(w, "general.architecture", "phi3");
            continue;
        }
        if (gguf_string_is(v.key, "powerinfer.source.tensors")) {
            put_order(w, &v);
            continue;
        }
        if (gguf_string_starts(v.key, "qwen2.")) {
            int n = snprintf(key, sizeof key, "phi3.%.*s", (int)v.key.n_bytes - 6, v.key.data + 6);
            v.key = (gguf_string){key, (uint64_t)n};
        }
        gguf_put_value(w, &v);
    }
}

/* Finds the gate of the layer of an up tensor. */
static const gguf_tensor *gate_of(const gguf_file *f, const gguf_tensor *t) {
    char name[GGUF_MAX_NAME];
    int layer, used = 0;
    if (sscanf(t->name, "blk.%d.ffn_up.weight%n", &layer, &used) != 1 || !used) return NULL;
    snprintf(name, sizeof name, "blk.%d.ffn_gate.weight", layer);
    return files_find(f, name);
}

/* Writes the rows of gate, then those of up, in place of up. */
static void fuse(const char *from, const char *to) {
    gguf_file *f = files_open(from);
    gguf_writer *w;
    pi_error err;
    assert_int_equal(gguf_writer_create(to, &w, &err), PI_OK);
    put_keys(w, f);
    for (int data = 0; data < 2; data++) {
        for (uint64_t i = 0; i < gguf_n_tensors(f); i++) {
            const gguf_tensor *t = gguf_tensor_at(f, i), *gate = gate_of(f, t);
            uint64_t dims[2] = {t->dims[0], 2 * t->dims[1]};
            if (strstr(t->name, "ffn_gate.weight")) continue;
            if (!data) {
                pi_status status = gguf_add_tensor(w, t->name, t->type, t->n_dims,
                                                   gate ? dims : t->dims, &err);
                assert_int_equal(status, PI_OK);
                continue;
            }
            if (gate) assert_int_equal(gguf_write_data(w, gate->data, gate->n_bytes, &err), PI_OK);
            assert_int_equal(gguf_write_data(w, t->data, t->n_bytes, &err), PI_OK);
        }
        if (!data) assert_int_equal(gguf_writer_begin_data(w, &err), PI_OK);
    }
    assert_int_equal(gguf_writer_finish(w, &err), PI_OK);
    gguf_close(f);
}

static void write_models(const char *type, const char *activation) {
    tiny_model t = files_tiny(type);
    t.arch = "qwen2";
    t.qkv_bias = true;
    t.activation = activation;
    tiny_write(&t, APART_PATH);
    fuse(APART_PATH, FUSED_PATH);
}

/* Compares both models in a mode, with all tokens at once and token by token. */
static void check_mode(const char *fused, const char *apart, pi_mode mode) {
    assert_true(files_distance_of(fused, mode, 0, apart, mode) == 0);
    double by_token = files_distance_of(fused, mode, 1, apart, mode);
    assert_true(by_token < (mode == PI_MODE_DENSE || mode == PI_MODE_EXACT ? 1e-9 : 1e-2));
}

/* Prepares, bundles, unbundles, prepares again, undoes: every result equals that of the model with
 * two tensors. */
static void check(const char *type, const char *activation, const pi_prepare_options *options,
                  pi_mode mode) {
    pi_prepare_options o = *options;
    write_models(type, activation);
    check_mode(FUSED_PATH, APART_PATH, PI_MODE_DENSE);
    files_prepare(APART_PATH, PATH("apart.out"), &o);
    files_prepare(FUSED_PATH, PATH("fused.out"), &o);
    fuse(PATH("apart.out"), PATH("want"));
    files_same_content(PATH("fused.out"), PATH("want"));
    check_mode(PATH("fused.out"), PATH("apart.out"), mode);
    files_undo(PATH("fused.out"), PATH("back"));
    files_undo(PATH("apart.out"), PATH("apart.back"));
    fuse(PATH("apart.back"), PATH("want"));
    files_same_content(PATH("back"), PATH("want"));
    if (strcmp(type, "q4_0") != 0) files_same(PATH("back"), FUSED_PATH);
    files_prepare(PATH("fused.out"), PATH("again"), &o);
    files_prepare(PATH("apart.out"), PATH("apart.again"), &o);
    fuse(PATH("apart.again"), PATH("want"));
    files_same_content(PATH("again"), PATH("want"));
    /* with bundles there is no joined tensor */
    bundled_write(PATH("apart.out"), PATH("apart.bundled"), 0);
    fuse(PATH("apart.bundled"), PATH("want"));
    o.bundles = PI_BUNDLES_ALL;
    files_prepare(FUSED_PATH, PATH("bundled"), &o);
    files_same_content(PATH("bundled"), PATH("want"));
    check_mode(PATH("bundled"), PATH("apart.bundled"), mode);
    files_undo(PATH("bundled"), PATH("again"));
    files_same_content(PATH("again"), PATH("back"));
    o.rearrange = true;
    o.calibration = NULL;
    files_prepare(PATH("fused.out"), PATH("again"), &o);
    files_same_content(PATH("again"), PATH("bundled"));
    o.bundles = PI_BUNDLES_NONE;
    files_prepare(PATH("bundled"), PATH("again"), &o);
    files_same_content(PATH("again"), PATH("fused.out"));
}

static void test_predictors(void **state) {
    (void)state;
    prepare_notes notifier;
    pi_prepare_options o = files_options(TEXT_PATH, &notifier);
    check("q4_0", "relu", &o, PI_MODE_PREDICT);
    o.predictor = "none";
    check("f16", "relu", &o, PI_MODE_EXACT);
}

static void test_thresholds(void **state) {
    (void)state;
    prepare_notes notifier;
    pi_prepare_options o = files_options(TEXT_PATH, &notifier);
    o.max_loss = 0.5;
    o.predictor = "none";
    check("f16", "silu", &o, PI_MODE_THRESHOLD);
}

/* Bundles whose gate and up cannot be rows of one tensor. */
static void test_refused(void **state) {
    (void)state;
    prepare_notes notifier;
    pi_error err = {0};
    gguf_writer *w;
    pi_prepare_options o = files_options(TEXT_PATH, &notifier);
    write_models("f16", "relu");
    o.predictor = "none";
    o.bundles = PI_BUNDLES_ALL;
    files_prepare(FUSED_PATH, PATH("bundled"), &o);
    gguf_file *f = files_open(PATH("bundled"));
    assert_int_equal(gguf_writer_create(PATH("bad"), &w, &err), PI_OK);
    for (uint64_t i = 0; i < gguf_n_values(f); i++) {
        const gguf_value *v = gguf_value_at(f, i);
        const gguf_string other[] = {{"bf16", 4}, {"bf16", 4}};
        if (gguf_string_is(v->key, "powerinfer.bundle.gate_type"))
            gguf_put_strings(w, "powerinfer.bundle.gate_type", other, 2);
        else
            gguf_put_value(w, v);
    }
    files_copy_tensors(f, w);
    assert_int_equal(pi_prepare_undo(PATH("bad"), PATH("again"), NULL, &err), PI_ERR_FORMAT);
    assert_non_null(strstr(err.message, "keys say that gate is bf16 and up f16 in layer 0, but "
                                        "they are rows of one matrix"));
}

static int write_text(void **state) {
    (void)state;
    files_write_text(TEXT_PATH, 20000);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_predictors),
        cmocka_unit_test(test_thresholds),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests_name("prepare_fused", tests, write_text, NULL);
}
