/* test_inspect.c: descriptions of files: exact text and JSON of a small model, and unusual files:
 * truncated, split, unknown architecture, vocabulary only, hostile text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "bundled_file.h"
#include "gguf.h"
#include "gguf_writer.h"
#include "mem.h"
#include "powerinfer_tools.h"
#include "shared_data.h"
#include "tiny_model.h"

#define MODEL_PATH TEST_BINARY_DIR "/test_inspect.gguf"

static const pi_inspect_options as_text = {0}, all_text = {.verbose = true};
static const pi_inspect_options as_json = {.json = true},
                                all_json = {.json = true, .verbose = true};

/* Returns the output of pi_inspect; free() it. */
static char *inspect(const char *path, const pi_inspect_options *options) {
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    assert_non_null(out);
    pi_error err = {0};
    if (pi_inspect(path, options, out, &err)) fail_msg("%s", err.message);
    fclose(out);
    return text;
}

static void expect(const char *path, const pi_inspect_options *options, const char *fragment) {
    char *text = inspect(path, options);
    if (!strstr(text, fragment)) fail_msg("no '%s' in\n%s", fragment, text);
    free(text);
}

static void write_tiny(void) {
    pi_synth_options o = pi_synth_default_options();
    o.plain = true;
    o.n_layer = 1;
    o.n_threads = 1;
    assert_int_equal(pi_synth(MODEL_PATH, &o, NULL), PI_OK);
}

static void test_summary(void **state) {
    (void)state;
    write_tiny();
    char *text = inspect(MODEL_PATH, NULL);
    assert_string_equal(text, "name          synthetic tiny\n"
                              "file          " MODEL_PATH ", 580.34 KiB, GGUF version 3\n"
                              "architecture  llama\n"
                              "shape         1 layer, n_embd 256, n_ff 768, 4 heads of 64, "
                              "2 KV heads\n"
                              "activation    relu\n"
                              "context       2048 tokens, for which the KV cache takes 1.00 MiB "
                              "(f16)\n"
                              "vocabulary    512 tokens, tokenizer none\n"
                              "weights       1.0 million parameters in 12 tensors, 579.00 KiB, "
                              "4.52 bits each\n"
                              "types         q4_0 99.5%, f32 0.5% of the bytes\n"
                              "runnable      yes\n");
    free(text);
}

static void test_everything(void **state) {
    (void)state;
    write_tiny();
    expect(MODEL_PATH, &all_text, "\nkeys (16)\n");
    expect(MODEL_PATH, &all_text, "  llama.rope.freq_base (f32) = 10000\n");
    expect(MODEL_PATH, &all_text, "\ntensors (12): name");
    expect(MODEL_PATH, &all_text, "blk.0.ffn_down.weight");
    expect(MODEL_PATH, &all_text, " q4_0    768 x 256 ");
}

static void test_json(void **state) {
    (void)state;
    write_tiny();
    const char *const fragments[] = {
        "\"file\": \"" MODEL_PATH "\"",
        "\"parts\": 1,",
        "\"version\": 3,",
        "\"magic\": \"GGUF\"",
        "\"complete\": true",
        "\"architecture\": \"llama\"",
        "\"layers\": 1,",
        "\"n_ff\": 768,",
        "\"n_head_kv\": 2,",
        "\"vocabulary\": 512,",
        "\"pre\": null,",
        "\"activation\": \"relu\"",
        "\"parameters\": 1049344,",
        "\"type\": \"q4_0\",",
        "\"tensor_bytes\": 592896,",
        "\"llama.rope.freq_base\": 10000",
        "\"shape\": [256, 512]",
    };
    for (size_t i = 0; i < sizeof fragments / sizeof *fragments; i++) {
        expect(MODEL_PATH, &as_json, fragments[i]);
    }
}

/* Writes a file with one key of every type, but no key of an architecture. */
static void write_odd(void) {
    gguf_writer *w;
    const uint64_t dims[] = {3};
    const float data[3] = {0};
    int16_t numbers[100];
    for (int i = 0; i < 100; i++) numbers[i] = (int16_t)-i;
    const gguf_string words[] = {{"one", 3}, {"t\"wo\x1b[31m", 9}};
    assert_int_equal(gguf_writer_create(MODEL_PATH, &w, NULL), PI_OK);
    gguf_put_string(w, "general.architecture", "martian\x1b]0;x");
    gguf_put_string(w, "general.name", "line one\nline two");
    gguf_put_array(w, "numbers", GGUF_I16, numbers, 100);
    gguf_put_array(w, "few", GGUF_I16, numbers, 3);
    gguf_put_strings(w, "words", words, 2);
    gguf_put_bool(w, "flag", true);
    gguf_put_u64(w, "large", UINT64_MAX);
    char text[501];
    memset(text, 'x', 500);
    text[500] = 0;
    gguf_put_string(w, "long", text);
    assert_int_equal(gguf_add_tensor(w, "t\x01", QUANT_F32, 1, dims, NULL), PI_OK);
    assert_int_equal(gguf_writer_begin_data(w, NULL), PI_OK);
    assert_int_equal(gguf_write_data(w, data, sizeof data, NULL), PI_OK);
    assert_int_equal(gguf_writer_finish(w, NULL), PI_OK);
}

/* Types and parameters come from the rows in the bundles. */
static void test_bundles(void **state) {
    (void)state;
    static const char apart[] = MODEL_PATH ".apart";
    tiny_model t = tiny_default();
    t.type = "q4_0";
    t.n_embd = 64;
    t.sparse.down_t = true;
    tiny_write(&t, apart);
    expect(apart, &as_json, "\"bundles\": null");
    bundled_write(apart, MODEL_PATH, 0);
    /* three rows of 36 bytes at multiples of 32, in 512; 64 neurons in 2 layers */
    expect(MODEL_PATH, &as_text, "bundles       512 bytes per neuron, 78.9% of them padding\n");
    expect(MODEL_PATH, &as_json, "\"stride\": 512,");
    expect(MODEL_PATH, &as_json, "\"bytes\": 65536,\n    \"padding_bytes\": 51712");
    gguf_file *f;
    uint64_t n = 0;
    char fragment[64];
    assert_int_equal(gguf_open(apart, NULL, &f, NULL), PI_OK);
    for (uint64_t i = 0; i < gguf_n_tensors(f); i++) n += gguf_tensor_at(f, i)->n_elems;
    gguf_close(f);
    snprintf(fragment, sizeof fragment, "\"parameters\": %llu,", (unsigned long long)n);
    expect(apart, &as_json, fragment);
    expect(MODEL_PATH, &as_json, fragment);
    unlink(apart);
}

static void test_odd_file(void **state) {
    (void)state;
    write_odd();
    char *text = inspect(MODEL_PATH, &all_text);
    for (const char *p = text; *p; p++) { /* no control characters for a terminal */
        assert_true((unsigned char)*p >= 0x20 || *p == '\n');
    }
    free(text);
    expect(MODEL_PATH, &as_text, "architecture  martian\\x1B]0;x\n");
    expect(MODEL_PATH, &as_text, "runnable      no: ");
    expect(MODEL_PATH, &all_json, "\"runs\": false");
    expect(MODEL_PATH, &as_text, "name          line one\\nline two\n");
    expect(MODEL_PATH, &all_text,
           "numbers (array) = 100 x i16: 0, -1, -2, -3, -4, -5, -6, -7, ...");
    expect(MODEL_PATH, &all_text, "words (array) = 2 x string: \"one\", \"t\"wo\\x1B[31m\"\n");
    expect(MODEL_PATH, &all_text, "flag (bool) = true\n");
    expect(MODEL_PATH, &all_text, "large (u64) = 18446744073709551615\n");
    expect(MODEL_PATH, &all_text, "xxx... (500 bytes)\n");
    expect(MODEL_PATH, &as_json, "\"layers\": null,");
    expect(MODEL_PATH, &as_json, "\"few\": [0, -1, -2]");
    expect(MODEL_PATH, &as_json, "\"count\": 100");
    expect(MODEL_PATH, &all_json, "-98, -99]");
    expect(MODEL_PATH, &as_json, "\"flag\": true");
}

static void test_vocabulary_only(void **state) {
    (void)state;
    gguf_writer *w;
    const gguf_string tokens[] = {{"a", 1}, {"b", 1}, {"c", 1}};
    assert_int_equal(gguf_writer_create(MODEL_PATH, &w, NULL), PI_OK);
    gguf_put_string(w, "general.architecture", "llama");
    gguf_put_string(w, "tokenizer.ggml.model", "gpt2");
    gguf_put_string(w, "tokenizer.ggml.pre", "qwen2");
    gguf_put_strings(w, "tokenizer.ggml.tokens", tokens, 3);
    assert_int_equal(gguf_writer_finish(w, NULL), PI_OK);
    expect(MODEL_PATH, &as_text, "vocabulary    3 tokens, tokenizer gpt2, pre qwen2\n");
    expect(MODEL_PATH, &as_text, "weights       none: vocabulary only\n");
    expect(MODEL_PATH, &as_json, "\"tensors\": []");
}

static void test_layers_that_differ(void **state) {
    (void)state;
    gguf_writer *w;
    const int32_t n_ff[] = {512, 256, 1024};
    assert_int_equal(gguf_writer_create(MODEL_PATH, &w, NULL), PI_OK);
    gguf_put_string(w, "general.architecture", "x");
    gguf_put_u32(w, "x.block_count", 3);
    gguf_put_array(w, "x.feed_forward_length", GGUF_I32, n_ff, 3);
    assert_int_equal(gguf_writer_finish(w, NULL), PI_OK);
    expect(MODEL_PATH, &as_text, "shape         3 layers, n_ff 256 to 1024\n");
    expect(MODEL_PATH, &as_json, "\"n_ff\": [256, 1024]");
}

static void test_cut_file(void **state) {
    (void)state;
    write_tiny();
    assert_int_equal(truncate(MODEL_PATH, 100000), 0);
    expect(MODEL_PATH, &as_text, "incomplete    tensor data is missing");
    expect(MODEL_PATH, &as_json, "\"complete\": false");
    assert_int_equal(truncate(MODEL_PATH, 1000), 0); /* truncates within the header */
    pi_error err = {0};
    assert_int_equal(pi_inspect(MODEL_PATH, NULL, stderr, &err), PI_ERR_FORMAT);
    assert_non_null(strstr(err.message, "byte "));
}

static void test_errors(void **state) {
    (void)state;
    pi_error err = {0};
    assert_int_equal(pi_inspect("/nowhere.gguf", NULL, stderr, &err), PI_ERR_IO);
    write_tiny();
    const pi_inspect_options both = {.json = true, .plan = true};
    assert_int_equal(pi_inspect(MODEL_PATH, &both, stderr, &err), PI_ERR_ARG);
    FILE *full = fopen("/dev/full", "w");
    if (!full) {
        fprintf(stderr, "*** SKIPPED: no /dev/full here ***\n");
        return;
    }
    assert_int_equal(pi_inspect(MODEL_PATH, &all_text, full, &err), PI_ERR_IO);
    fclose(full);
    full = fopen("/dev/full", "w");
    assert_int_equal(pi_inspect(MODEL_PATH, &all_json, full, &err), PI_ERR_IO);
    fclose(full);
}

static void test_plan(void **state) {
    (void)state;
    write_tiny();
    pi_context_options context = pi_context_default_options();
    const pi_inspect_options plan = {.plan = true, .context = &context};
    const pi_inspect_options by_default = {.plan = true};
    pi_error err = {0};
    expect(MODEL_PATH, &by_default, "q4_0 relu exact");
    context.mode = PI_MODE_DENSE;
    expect(MODEL_PATH, &plan, "q4_0 relu\n");
    context.mode = (pi_mode)(PI_MODE_THRESHOLD + 1);
    assert_int_equal(pi_inspect(MODEL_PATH, &plan, stderr, &err), PI_ERR_ARG);
}

static void test_shared_files(void **state) {
    (void)state;
    char path[512];
    if (!shared_path(path, sizeof path, "conformance/arch/gpt-oss-moe.gguf")) skip();
    expect(path, &as_text, "2 experts, 2 used");
    if (!shared_path(path, sizeof path, "conformance/pwri/llama-q4_0-sparse.pwri.gguf")) skip();
    expect(path, &as_text, "PowerInfer's magic PWRI");
    expect(path, &as_text, "predictor     present (fc1, fc2), rank 64 to 96, threshold 0.5\n");
    expect(path, &as_text, "activation    relu\n");
    expect(path, &as_text, "runnable      yes\n");
    expect(path, &as_json, "\"kind\": \"pwri\"");
    expect(path, &as_json, "\"predictor_rank\": [64, 96]");
    expect(path, &as_json, "\"predictor_threshold\": 0.5");
    expect(path, &as_json, "\"prepared_version\": null");
    if (!shared_path(path, sizeof path, "conformance/tokenizer/ggml-vocab-qwen2.gguf")) skip();
    expect(path, &as_text, "vocabulary    151936 tokens, tokenizer gpt2, pre qwen2");
    expect(path, &all_json, "\"tokenizer.ggml.tokens\": [\"!\"");
}

/* inspect shows the original PowerInfer's list of neurons for a GPU; the list is refused as a
 * model. */
static void test_gpu_index(void **state) {
    (void)state;
    gguf_writer *w;
    const uint64_t dims[] = {4};
    const int32_t flags[4] = {1, 0, 1, 0};
    assert_int_equal(gguf_writer_create(MODEL_PATH, &w, NULL), PI_OK);
    gguf_put_string(w, "general.architecture", "generic.gpu_index");
    gguf_put_u32(w, "generic.gpu_index.block_count", 1);
    gguf_put_u64(w, "split.vram_capacity", 1 << 20);
    assert_int_equal(gguf_add_tensor(w, "blk.0.gpu_idx", QUANT_I32, 1, dims, NULL), PI_OK);
    assert_int_equal(gguf_writer_begin_data(w, NULL), PI_OK);
    assert_int_equal(gguf_write_data(w, flags, sizeof flags, NULL), PI_OK);
    assert_int_equal(gguf_writer_finish(w, NULL), PI_OK);
    expect(MODEL_PATH, &as_text,
           "kind          GPU index of the original PowerInfer, of 1 layer, for 1.00 MiB of GPU "
           "memory\n");
    expect(MODEL_PATH, &as_text,
           "runnable      no: not a model: " MODEL_PATH
           ": a GPU index file of the original PowerInfer; give the model that it belongs to\n");
    expect(MODEL_PATH, &as_json, "\"kind\": \"gpu_index\"");
    expect(MODEL_PATH, &as_json, "\"gpu_index_layers\": 1,");
    expect(MODEL_PATH, &as_json, "\"gpu_index_bytes\": 1048576,");
}

static void test_allocation_failures(void **state) {
    (void)state;
    write_tiny();
    FILE *out = fopen("/dev/null", "w");
    assert_non_null(out);
    int64_t before = mem_count();
    assert_int_equal(pi_inspect(MODEL_PATH, &all_json, out, NULL), PI_OK);
    int64_t n = mem_count() - before;
    int n_failed = 0;
    for (int64_t i = 1; i <= n; i++) {
        mem_fail_at(i);
        pi_error err = {0};
        pi_status status = pi_inspect(MODEL_PATH, &all_json, out, &err);
        assert_int_equal(status, PI_ERR_NOMEM);
        assert_non_null(strstr(err.message, "out of memory"));
        n_failed += status != PI_OK;
    }
    mem_fail_at(0);
    assert_true(n_failed > 10);
    fclose(out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_summary),
        cmocka_unit_test(test_everything),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_bundles),
        cmocka_unit_test(test_odd_file),
        cmocka_unit_test(test_vocabulary_only),
        cmocka_unit_test(test_layers_that_differ),
        cmocka_unit_test(test_cut_file),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_plan),
        cmocka_unit_test(test_shared_files),
        cmocka_unit_test(test_gpu_index),
        cmocka_unit_test(test_allocation_failures),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(MODEL_PATH);
    return failed;
}
