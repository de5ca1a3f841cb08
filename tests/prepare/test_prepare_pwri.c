/* test_prepare_pwri.c: small files of the original PowerInfer: kept predictors of any rank are
 * measured like new ones. The predictor of Falcon reads the layer's input, which in the first layer
 * is a row of the embedding matrix, so expected values can be computed directly. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "gguf_writer.h"
#include "prepare_files.h"
#include "sparse_keys.h"

#define IN_PATH   TEST_BINARY_DIR "/test_prepare_pwri.in.gguf"
#define OUT_PATH  TEST_BINARY_DIR "/test_prepare_pwri.out.gguf"
#define TEXT_PATH TEST_BINARY_DIR "/test_prepare_pwri.txt"

enum { N_EMBD = 64, N_FF = 128, N_KINDS = 4, N_TEXT = 4000, BYTE_TOKENS = 3, MOST_RANK = 64 };

static const double same_sums = 1e-9;

/* "abcabc...": after BOS, every window of 64 has each letter 21 times. */
static const int kinds[N_KINDS] = {1, BYTE_TOKENS + 'a', BYTE_TOKENS + 'b', BYTE_TOKENS + 'c'};
static const int times[N_KINDS] = {1, 21, 21, 21};

static tiny_model pwri_model(const char *arch, int rank, float threshold) {
    tiny_model t = files_tiny("f32");
    t.arch = arch;
    t.activation = NULL;
    t.sparse = (tiny_sparse){.pwri = true,
                             .down_t = true,
                             .predictor = "relu_mlp",
                             .residual = true,
                             .no_bias = true,
                             .rank = rank,
                             .threshold = threshold};
    return t;
}

/* ---- by hand --------------------------------------------------------------------------------- */

static const float *floats(const gguf_file *f, const char *name) {
    return (const float *)(const void *)files_find(f, name)->data;
}

static double dot(const float *row, const double *x, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += (double)row[i] * x[i];
    return sum;
}

/* Sums over the tokens of a window. */
typedef struct counts {
    double fired, chosen, both, added, caught;
} counts;

static void count_token(const gguf_file *f, const tiny_model *t, int token, double weight,
                        counts *out) {
    const float *embd = floats(f, "token_embd.weight") + token * N_EMBD;
    const float *w = floats(f, "blk.0.attn_norm.weight"), *b = floats(f, "blk.0.attn_norm.bias");
    double x[N_EMBD], y[N_EMBD], hidden[MOST_RANK], mean = 0, square = 0;
    for (int i = 0; i < N_EMBD; i++) mean += (x[i] = (double)embd[i]) / N_EMBD;
    for (int i = 0; i < N_EMBD; i++) square += (x[i] - mean) * (x[i] - mean) / N_EMBD;
    for (int i = 0; i < N_EMBD; i++)
        y[i] = (x[i] - mean) / sqrt(square + (double)t->eps) * (double)w[i] + (double)b[i];
    int rank = t->sparse.rank;
    for (int i = 0; i < rank; i++)
        hidden[i] = fmax(0, dot(floats(f, "blk.0.fc1.weight") + i * N_EMBD, x, N_EMBD));
    for (int i = 0; i < N_FF; i++) {
        const float *down = floats(f, "blk.0.ffn_down_t.weight") + i * N_EMBD;
        double a = fmax(0, dot(floats(f, "blk.0.ffn_up.weight") + i * N_EMBD, y, N_EMBD));
        double score = dot(floats(f, "blk.0.fc2.weight") + i * rank, hidden, rank), length = 0;
        for (int k = 0; k < N_EMBD; k++) length += (double)down[k] * (double)down[k];
        double adds = weight * a * sqrt(length);
        bool chosen = score >= (double)t->sparse.threshold;
        out->fired += a > 0 ? weight : 0;
        out->chosen += chosen ? weight : 0;
        out->both += a > 0 && chosen ? weight : 0;
        out->added += adds;
        out->caught += chosen ? adds : 0;
    }
}

static double item(const gguf_file *f, const char *key, uint64_t i) {
    double x = NAN;
    const gguf_value *v = gguf_find(f, key);
    if (!v || !gguf_item_f64(v, i, &x)) fail_msg("no item %d of %s", (int)i, key);
    return x;
}

static void near(double is, double want, double limit, const char *what) {
    if (!(fabs(is - want) <= limit)) fail_msg("%s is %.9g instead of %.9g", what, is, want);
}

static void check_measures(int rank, float threshold) {
    prepare_notes notifier;
    pi_prepare_options o = files_options(TEXT_PATH, &notifier);
    tiny_model t = pwri_model("falcon", rank, threshold);
    tiny_write(&t, IN_PATH);
    files_prepare(IN_PATH, OUT_PATH, &o);
    gguf_file *in = files_open(IN_PATH), *out = files_open(OUT_PATH);
    assert_true(gguf_is_pwri(in));
    counts n = {0};
    double tokens = 0;
    for (int k = 0; k < N_KINDS; k++) {
        count_token(in, &t, kinds[k], times[k], &n);
        tokens += times[k];
    }
    const pi_prepare_layer *l = &notifier.layers[0];
    assert_string_equal(l->kind, "relu_mlp");
    assert_int_equal(l->rank, rank);
    near(l->density, n.fired / (tokens * N_FF), 1e-9, "density");
    near(l->selected, n.chosen / (tokens * N_FF), 1e-9, "selected");
    near(l->recall, n.both / n.fired, 1e-9, "recall");
    near(l->contribution_recall, n.caught / n.added, 1e-5, "contribution recall");
    for (uint64_t i = 0; i < 2; i++) {
        near(item(out, SPARSE_KEY_PREDICTOR_RECALL, i), notifier.layers[i].contribution_recall,
             1e-6, SPARSE_KEY_PREDICTOR_RECALL);
        near(item(out, SPARSE_KEY_PREDICTOR_DENSITY, i), notifier.layers[i].selected, 1e-6,
             SPARSE_KEY_PREDICTOR_DENSITY);
    }
    gguf_close(in);
    gguf_close(out);
}

static void test_measures(void **state) {
    (void)state;
    check_measures(32, 0.125f);
    check_measures(37, 0.125f);
    check_measures(1, 0.01f);
    check_measures(37, -1e30f); /* all neurons */
    check_measures(37, 1e30f);  /* none */
}

/* ---- files ----------------------------------------------------------------------------------- */

/* Every architecture and rank: the prepared file gives the same answers. */
static void test_odd_ranks(void **state) {
    (void)state;
    static const char *const archs[] = {"llama", "opt", "falcon"};
    for (int i = 0; i < 3; i++) {
        prepare_notes notifier;
        pi_prepare_options o = files_options(TEXT_PATH, &notifier);
        tiny_model t = pwri_model(archs[i], 33 + i, 0.125f);
        t.type = i == 1 ? "f16" : "f32";
        t.n_pos = i == 1 ? 256 : 0;
        t.qkv_bias = t.out_bias = t.ffn_bias = t.tied = i == 1;
        tiny_write(&t, IN_PATH);
        files_prepare(IN_PATH, OUT_PATH, &o);
        for (int l = 0; l < 2; l++) {
            assert_int_equal(notifier.layers[l].rank, 33 + i);
            assert_true(notifier.layers[l].recall > 0 && notifier.layers[l].recall < 1);
            assert_true(notifier.layers[l].selected > 0 && notifier.layers[l].selected < 1);
        }
        for (int piece = 0; piece < 2; piece++)
            assert_true(files_distance_of(OUT_PATH, PI_MODE_PREDICT, piece, IN_PATH,
                                          PI_MODE_PREDICT) < same_sums);
    }
}

/* Removes the predictor of one layer from IN. */
static void drop_predictor(int layer) {
    char fc1[GGUF_MAX_NAME], fc2[GGUF_MAX_NAME];
    gguf_file *f = files_open(IN_PATH);
    gguf_writer *w;
    pi_error err;
    snprintf(fc1, sizeof fc1, "blk.%d.fc1.weight", layer);
    snprintf(fc2, sizeof fc2, "blk.%d.fc2.weight", layer);
    assert_int_equal(gguf_writer_create(OUT_PATH, &w, &err), PI_OK);
    for (uint64_t i = 0; i < gguf_n_values(f); i++) gguf_put_value(w, gguf_value_at(f, i));
    for (int data = 0; data < 2; data++) {
        if (data) assert_int_equal(gguf_writer_begin_data(w, &err), PI_OK);
        for (uint64_t i = 0; i < gguf_n_tensors(f); i++) {
            const gguf_tensor *t = gguf_tensor_at(f, i);
            if (strcmp(t->name, fc1) == 0 || strcmp(t->name, fc2) == 0) continue;
            pi_status status = data
                                   ? gguf_write_data(w, t->data, t->n_bytes, &err)
                                   : gguf_add_tensor(w, t->name, t->type, t->n_dims, t->dims, &err);
            assert_int_equal(status, PI_OK);
        }
    }
    assert_int_equal(gguf_writer_finish(w, &err), PI_OK);
    gguf_close(f);
    assert_int_equal(unlink(IN_PATH), 0); /* Windows renames over no file */
    assert_int_equal(rename(OUT_PATH, IN_PATH), 0);
    FILE *magic = fopen(IN_PATH, "r+b");
    assert_non_null(magic);
    assert_int_equal(fwrite("PWRI", 1, 4, magic), 4);
    assert_int_equal(fclose(magic), 0);
}

/* Fits the biases of layer 1, whose predictor is missing, while layer 0 keeps its predictor. */
static void fit_missing(float threshold, float bias[N_FF]) {
    prepare_notes notifier;
    pi_prepare_options o = files_options(TEXT_PATH, &notifier);
    tiny_model t = pwri_model("llama", 40, threshold);
    tiny_write(&t, IN_PATH);
    drop_predictor(1);
    o.recall = 1;
    o.max_loss = 1;
    files_prepare(IN_PATH, OUT_PATH, &o);
    assert_string_equal(notifier.layers[0].kind, "relu_mlp");
    assert_int_equal(notifier.layers[0].rank, 40);
    assert_string_not_equal(notifier.layers[1].kind, "none");
    assert_true(notifier.layers[1].recall > 0.99 && notifier.layers[1].selected < 0.9);
    gguf_file *f = files_open(OUT_PATH);
    assert_null(gguf_find_tensor(f, "blk.0.fc2.bias"));
    const gguf_tensor *x = files_find(f, "blk.1.fc2.bias");
    assert_true(x->n_elems <= N_FF);
    memcpy(bias, x->data, x->n_bytes);
    gguf_close(f);
}

/* The file's threshold applies to all layers: biases of new predictors include it. */
static void test_missing_one(void **state) {
    (void)state;
    float without[N_FF] = {0}, with[N_FF] = {0};
    fit_missing(0, without);
    fit_missing(1.5f, with);
    for (int i = 0; i < N_FF / 2; i++) assert_true(with[i] == without[i] + 1.5f);
}

static int set_up(void **state) {
    (void)state;
    static char text[N_TEXT];
    for (int i = 0; i < N_TEXT; i++) text[i] = (char)('a' + i % 3);
    files_write(TEXT_PATH, text, sizeof text);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    unlink(IN_PATH);
    unlink(OUT_PATH);
    unlink(TEXT_PATH);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_measures),
        cmocka_unit_test(test_odd_ranks),
        cmocka_unit_test(test_missing_one),
    };
    return cmocka_run_group_tests_name("prepare_pwri", tests, set_up, tear_down);
}
