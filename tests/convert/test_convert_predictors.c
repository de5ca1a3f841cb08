/* test_convert_predictors.c: a folder of predictors of the original PowerInfer becomes part of a
 * prepared file, which runs with them; and folders that cannot be converted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "failing.h"
#include "hf_folder.h"
#include "powerinfer_metadata.h"
#include "run_model.h"
#include "torch_archive.h"

enum { N_TOKENS = 12, N_VOCAB = 40, N_EMBD = 64, N_FF = 96, N_LAYER = 2, N_LOGITS = 480 };
static const int rank_of[N_LAYER] = {32, 8};

static torch_archive archive;
static float values[N_FF * N_EMBD], plain[N_LOGITS], got[N_LOGITS];

static void add_item(const char *name, int rows, int cols) {
    for (uint64_t i = 0; i < (uint64_t)(rows * cols); i++) values[i] = tensor_value(name, i);
    torch_item(&archive, name, "FloatStorage", 0, rows, cols, cols, values,
               (size_t)(rows * cols) * sizeof *values);
}

static void write_layer(const hf_folder *f, int layer, int n_embd, int rank, const char *more) {
    char name[32];
    snprintf(name, sizeof name, "model_%d.pt", layer);
    torch_begin(&archive);
    add_item("fc1.weight", rank, n_embd);
    add_item("fc2.weight", N_FF, rank);
    if (more) add_item(more, 2, 2);
    torch_end(&archive);
    torch_finish(&archive);
    folder_write(f, name, archive.out, archive.n_out);
}

static void open_predictors(hf_folder *f, const char *config) {
    folder_open(f);
    for (int i = 0; i < N_LAYER; i++) write_layer(f, i, N_EMBD, rank_of[i], NULL);
    if (config) folder_write_text(f, "config.json", config);
}

static void open_model(hf_folder *f, const char *activation) {
    static char extra[128];
    model_shape shape = shape_tiny("llama");
    snprintf(extra, sizeof extra, "\"tie_word_embeddings\":false,\"hidden_act\":\"%s\",",
             activation);
    shape.dtype = "F32";
    shape.extra = extra;
    folder_open(f);
    folder_write_model(f, &shape);
}

static pi_status convert(hf_folder *f, const char *predictors, pi_error *err) {
    pi_convert_options options = pi_convert_default_options();
    options.type = "f32";
    options.predictors = predictors;
    return pi_convert(f->dir, f->out, &options, err);
}

static void feed(hf_folder *f, const char *predictors, float *logits) {
    pi_error err = {0};
    if (convert(f, predictors, &err) != PI_OK) fail_msg("%s", err.message);
    pi_context_options options = run_exact_options();
    run_model r = run_open(f->out, &options);
    int32_t tokens[N_TOKENS];
    run_random_tokens(7, r.n_vocab, tokens, N_TOKENS);
    run_tokens(&r, tokens, N_TOKENS, 1, logits);
    run_close(&r);
}

static void test_tensors(void **state) {
    (void)state;
    hf_folder model, predictors;
    pi_error err = {0};
    open_model(&model, "relu");
    open_predictors(&predictors, "{\"sparse_threshold\": -0.5}");
    if (convert(&model, predictors.dir, &err) != PI_OK) fail_msg("%s", err.message);
    gguf_file *g = NULL;
    if (gguf_open(model.out, NULL, &g, &err) != PI_OK) fail_msg("%s", err.message);
    for (int layer = 0; layer < N_LAYER; layer++) {
        char name[64], down[64];
        const uint64_t rank = (uint64_t)rank_of[layer];
        for (int half = 0; half < 2; half++) {
            snprintf(name, sizeof name, "blk.%d.fc%d.weight", layer, half + 1);
            const gguf_tensor *t = gguf_find_tensor(g, name);
            assert_non_null(t);
            assert_int_equal(t->type, QUANT_F32);
            assert_int_equal(t->dims[0], half ? rank : N_EMBD);
            assert_int_equal(t->dims[1], half ? N_FF : rank);
            for (uint64_t i = 0; i < t->dims[0] * t->dims[1]; i++)
                assert_true(((const float *)(const void *)t->data)[i] ==
                            tensor_value(name + strlen("blk.0."), i));
        }
        snprintf(name, sizeof name, "blk.%d.ffn_down_t.weight", layer);
        snprintf(down, sizeof down, "model.layers.%d.mlp.down_proj.weight", layer);
        const gguf_tensor *t = gguf_find_tensor(g, name);
        assert_non_null(t);
        assert_int_equal(t->dims[0], N_EMBD);
        assert_int_equal(t->dims[1], N_FF);
        for (uint64_t i = 0; i < N_EMBD * N_FF; i++)
            assert_true(((const float *)(const void *)t->data)[i] ==
                        tensor_value(down, i % N_EMBD * N_FF + i / N_EMBD));
        snprintf(name, sizeof name, "blk.%d.ffn_down.weight", layer);
        assert_null(gguf_find_tensor(g, name));
    }
    double threshold = 0;
    assert_true(gguf_as_f64(gguf_find(g, "powerinfer.sparse_threshold"), &threshold));
    assert_true(threshold == -0.5);
    gguf_close(g);
    folder_close(&predictors);
    folder_close(&model);
}

/* A threshold below all scores selects all neurons, one above all scores selects none. */
static void test_runs(void **state) {
    (void)state;
    hf_folder model, predictors;
    open_model(&model, "relu");
    feed(&model, NULL, plain);
    open_predictors(&predictors, "{\"sparse_threshold\": -1e6}");
    feed(&model, predictors.dir, got);
    double nmse = run_nmse(got, plain, N_LOGITS);
    if (!(nmse <= 1e-10)) fail_msg("logits differ: NMSE %g", nmse);
    folder_write_text(&predictors, "config.json", "{\"sparse_threshold\": 1e6}");
    feed(&model, predictors.dir, got);
    assert_true(run_nmse(got, plain, N_LOGITS) > 1e-3);
    folder_close(&predictors);
    folder_close(&model);
}

static void refuse(hf_folder *model, const hf_folder *predictors, pi_status expected,
                   const char *words) {
    pi_error err = {0};
    pi_status status = convert(model, predictors->dir, &err);
    if (!strstr(err.message, words)) fail_msg("'%s' is not in: %s", words, err.message);
    if (status != expected) fail_msg("status %s: %s", pi_status_name(status), err.message);
    assert_null(strchr(err.message, '\n'));
    assert_false(folder_has_output(model));
}

static void test_refused(void **state) {
    (void)state;
    hf_folder model, silu, f;
    open_model(&model, "relu");
    open_model(&silu, "silu");
    open_predictors(&f, NULL);
    refuse(&silu, &f, PI_ERR_UNSUPPORTED, "never zero");
    write_layer(&f, 1, N_EMBD, 32, "fc1.bias");
    refuse(&model, &f, PI_ERR_UNSUPPORTED, "blk.1.fc1.bias");
    write_layer(&f, 1, 63, 32, NULL);
    refuse(&model, &f, PI_ERR_FORMAT, "blk.1.fc1.weight is [32, 63]");
    torch_begin(&archive);
    add_item("fc1.weight", 32, N_EMBD);
    torch_end(&archive);
    torch_finish(&archive);
    folder_write(&f, "model_1.pt", archive.out, archive.n_out);
    refuse(&model, &f, PI_ERR_FORMAT, "blk.1.fc2.weight");
    /* a pickle of a whole module instead of a table of its tensors */
    static const char module[] = "\x80\x02"
                                 "c__main__\nMLP\nq\x01)\x81q\x02.";
    torch_begin(&archive);
    archive.n_pickle = 0;
    torch_raw(&archive, module, sizeof module - 1);
    torch_finish(&archive);
    folder_write(&f, "model_1.pt", archive.out, archive.n_out);
    refuse(&model, &f, PI_ERR_UNSUPPORTED, "model_1.pt");
    folder_write_text(&f, "model_1.pt", "PK");
    refuse(&model, &f, PI_ERR_UNSUPPORTED, "model_1.pt");
    folder_write_text(&f, "config.json", "{\"sparse_threshold\": \"high\"}");
    refuse(&model, &f, PI_ERR_FORMAT, "sparse_threshold");
    folder_close(&f);
    folder_open(&f);
    write_layer(&f, 0, N_EMBD, 32, NULL);
    refuse(&model, &f, PI_ERR_NOT_FOUND, "model_1.pt");
    folder_write_text(&model, "adapter_config.json", "{}");
    refuse(&model, &f, PI_ERR_ARG, "no predictors");
    folder_close(&f);
    folder_close(&silu);
    folder_close(&model);
}

static void test_no_memory(void **state) {
    (void)state;
    hf_folder model, predictors;
    open_model(&model, "relu");
    open_predictors(&predictors, "{}");
    failing each = failing_each(1);
    while (failing_next(&each)) {
        pi_error err = {0};
        pi_status status = convert(&model, predictors.dir, &err);
        if (failing_hit(&each, status, &err)) assert_false(folder_has_output(&model));
    }
    folder_close(&predictors);
    folder_close(&model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_runs),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
