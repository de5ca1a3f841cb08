/* test_prepare.c: prepares small models, runs and undoes them. Expected rows are computed from the
 * source file; expected answers come from running it in mode dense. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "prepare_files.h"
#include "quant.h"
#include "sparse_keys.h"

#define IN_PATH    TEST_BINARY_DIR "/test_prepare.in.gguf"
#define OUT_PATH   TEST_BINARY_DIR "/test_prepare.out.gguf"
#define AGAIN_PATH TEST_BINARY_DIR "/test_prepare.again.gguf"
#define BACK_PATH  TEST_BINARY_DIR "/test_prepare.back.gguf"
#define TEXT_PATH  TEST_BINARY_DIR "/test_prepare.txt"

/* Distances between runs with another order of sums, and with ffn_down in 8 bits. */
static const double same_sums = 1e-9, same_but_8_bits = 1e-3;

static const gguf_tensor *layer_tensor(const gguf_file *f, int layer, const char *name) {
    char full[GGUF_MAX_NAME];
    snprintf(full, sizeof full, "blk.%d.%s", layer, name);
    return files_find(f, full);
}

static const gguf_tensor *maybe_tensor(const gguf_file *f, int layer, const char *name) {
    char full[GGUF_MAX_NAME];
    snprintf(full, sizeof full, "blk.%d.%s", layer, name);
    return gguf_find_tensor(f, full);
}

static const uint8_t *row_of(const gguf_tensor *t, int64_t row) {
    return t->data + t->n_bytes / (t->n_elems / t->dims[0]) * (size_t)row;
}

/* Checks that row i (for vectors: element i) of `out` is row perm[i] of `in`. */
static void check_moved(const gguf_tensor *in, const gguf_tensor *out, const int32_t *perm) {
    assert_int_equal(in->type, out->type);
    assert_memory_equal(in->dims, out->dims, sizeof in->dims);
    uint64_t n = in->n_dims == 1 ? in->dims[0] : in->dims[1];
    size_t n_bytes = in->n_bytes / (size_t)n;
    for (uint64_t i = 0; i < n; i++)
        assert_memory_equal(out->data + i * n_bytes, in->data + (size_t)perm[i] * n_bytes, n_bytes);
}

/* Checks that element k of row i of down_t is element perm[i] of row k of down. */
static void check_down(const gguf_tensor *down, const gguf_tensor *down_t, const int32_t *perm) {
    int64_t n_ff = (int64_t)down->dims[0], n_embd = (int64_t)down->dims[1];
    const quant_traits *a = quant_find((uint32_t)down->type);
    const quant_traits *b = quant_find((uint32_t)down_t->type);
    static float x[512], y[512];
    double error = 0, power = 0;
    assert_int_equal(down_t->dims[0], n_embd);
    assert_int_equal(down_t->dims[1], n_ff);
    for (int64_t k = 0; k < n_embd; k++) {
        a->dequantize(row_of(down, k), x, n_ff);
        for (int64_t i = 0; i < n_ff; i++) {
            b->dequantize(row_of(down_t, i), y, n_embd);
            error += pow((double)y[k] - (double)x[perm[i]], 2);
            power += pow((double)x[perm[i]], 2);
        }
    }
    if (a == b && a->block_elems == 1)
        assert_true(error == 0);
    else
        assert_true(error / power < 1e-4);
}

/* Checks one layer of a prepared file without running it. */
static void check_layer(const gguf_file *in, const gguf_file *out, int layer) {
    const gguf_tensor *freq = layer_tensor(out, layer, "ffn_freq");
    const gguf_tensor *perm = layer_tensor(out, layer, "ffn_perm");
    const gguf_tensor *gate = layer_tensor(in, layer, "ffn_gate.weight");
    uint64_t n_ff = gate->dims[1];
    static const char *const moved[] = {"ffn_gate.weight", "ffn_up.weight", "ffn_gate.bias",
                                        "ffn_up.bias"};
    bool seen[512] = {false};
    assert_int_equal(freq->type, QUANT_F32);
    assert_int_equal(perm->type, QUANT_I32);
    assert_int_equal(freq->n_elems, n_ff);
    assert_int_equal(perm->n_elems, n_ff);
    const float *f = (const float *)(const void *)freq->data;
    const int32_t *p = (const int32_t *)(const void *)perm->data;
    for (uint64_t i = 0; i < n_ff; i++) {
        assert_in_range(p[i], 0, n_ff - 1);
        assert_false(seen[p[i]]);
        seen[p[i]] = true;
        assert_true(f[i] >= 0 && f[i] <= 1);
        assert_true(i == 0 || f[i] <= f[i - 1]);
    }
    assert_true(f[0] > f[n_ff - 1]);
    for (size_t k = 0; k < 4; k++) {
        const gguf_tensor *t = maybe_tensor(in, layer, moved[k]);
        if (t) check_moved(t, layer_tensor(out, layer, moved[k]), p);
    }
    check_down(layer_tensor(in, layer, "ffn_down.weight"),
               layer_tensor(out, layer, "ffn_down_t.weight"), p);
    assert_null(maybe_tensor(out, layer, "ffn_down.weight"));
}

static double number(const gguf_file *f, const char *key) {
    double x = 0;
    const gguf_value *v = gguf_find(f, key);
    if (!v || !gguf_as_f64(v, &x)) fail_msg("no number %s", key);
    return x;
}

static void check_file(int n_layer, bool predictors) {
    gguf_file *in = files_open(IN_PATH), *out = files_open(OUT_PATH);
    for (int l = 0; l < n_layer; l++) check_layer(in, out, l);
    assert_true(number(out, SPARSE_KEY_VERSION) == SPARSE_VERSION);
    assert_true(number(out, SPARSE_KEY_CALIBRATION_TOKENS) == 1024);
    double loss = number(out, SPARSE_KEY_CALIBRATION_LOSS);
    assert_true(predictors ? fabs(loss) < 1 : fabs(loss) < 0.01);
    gguf_string digest;
    assert_true(gguf_as_string(gguf_find(out, SPARSE_KEY_CALIBRATION_SHA256), &digest));
    assert_int_equal(digest.n_bytes, 64);
    gguf_close(in);
    gguf_close(out);
}

/* ---- exact ----------------------------------------------------------------------------------- */

static void check_exact(const tiny_model *t) {
    prepare_notes notifier;
    pi_prepare_options o = files_options(TEXT_PATH, &notifier);
    bool is_float = quant_find_name(t->type)->block_elems == 1;
    double limit = is_float ? same_sums : same_but_8_bits;
    o.predictor = "none";
    tiny_write(t, IN_PATH);
    pi_prepare_result r = files_prepare(IN_PATH, OUT_PATH, &o);
    check_file(t->n_layer, false);
    assert_string_equal(r.mode, "exact");
    assert_true(r.kl >= 0 && r.kl < 0.01);
    assert_true(r.density > 0.2 && r.density < 0.6);
    assert_int_equal(notifier.n_layers, t->n_layer);
    for (int l = 0; l < t->n_layer; l++) {
        assert_string_equal(notifier.layers[l].kind, "none");
        assert_true(notifier.layers[l].recall == 1 && notifier.layers[l].selected == 1);
    }
    for (int piece = 0; piece < 2; piece++) { /* all tokens at once, one by one */
        assert_true(files_distance(OUT_PATH, PI_MODE_DENSE, piece, IN_PATH) < limit);
        assert_true(files_distance(OUT_PATH, PI_MODE_EXACT, piece, OUT_PATH) < same_sums);
        assert_true(files_distance(OUT_PATH, PI_MODE_AUTO, piece, IN_PATH) < limit);
    }
    files_undo(OUT_PATH, BACK_PATH);
    if (is_float)
        files_same(IN_PATH, BACK_PATH);
    else
        assert_true(files_distance(BACK_PATH, PI_MODE_DENSE, 0, IN_PATH) < 30 * limit);
}

/* Sanitizers and emulators test the first and the last type; other tests use F16. */
#ifdef TEST_SAMPLED
enum { EVERY_TYPE = 4 };
#else
enum { EVERY_TYPE = 1 };
#endif

static void test_types(void **state) {
    (void)state;
    static const char *const types[] = {"f32", "f16", "bf16", "q8_0", "q4_0"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i += EVERY_TYPE) {
        tiny_model t = files_tiny(types[i]);
        check_exact(&t);
    }
}

static void test_biases_and_scales(void **state) {
    (void)state;
    tiny_model t = files_tiny("f16");
    t.ffn_bias = true;
    check_exact(&t);
    t.scales = true;
    check_exact(&t);
    t.activation = "relu_squared";
    check_exact(&t);
    t.activation = "drelu";
    check_exact(&t);
}

/* Preparing a prepared file composes the orders, so undo still gives the source. */
static void test_again(void **state) {
    (void)state;
    prepare_notes notifier;
    pi_prepare_options o = files_options(TEXT_PATH, &notifier);
    tiny_model t = files_tiny("f16");
    tiny_write(&t, IN_PATH);
    files_prepare(IN_PATH, AGAIN_PATH, &o);
    o.calibration_tokens = 512; /* other frequencies, another order */
    files_prepare(AGAIN_PATH, OUT_PATH, &o);
    gguf_file *in = files_open(IN_PATH), *out = files_open(OUT_PATH), *mid = files_open(AGAIN_PATH);
    const gguf_tensor *a = layer_tensor(out, 0, "ffn_perm"), *b = layer_tensor(mid, 0, "ffn_perm");
    assert_memory_not_equal(a->data, b->data, a->n_bytes);
    for (int l = 0; l < t.n_layer; l++) check_layer(in, out, l);
    gguf_close(in);
    gguf_close(out);
    gguf_close(mid);
    files_undo(OUT_PATH, BACK_PATH);
    files_same(IN_PATH, BACK_PATH);
    pi_error err = {0};
    assert_int_equal(pi_prepare_undo(IN_PATH, OUT_PATH, NULL, &err), PI_ERR_FORMAT);
    assert_non_null(strstr(err.message, "not a prepared model"));
}

/* ---- predictors ------------------------------------------------------------------------------ */

static void check_predictor(const char *kind, double recall) {
    prepare_notes notifier;
    pi_prepare_options o = files_options(TEXT_PATH, &notifier);
    o.predictor = kind;
    o.recall = recall;
    files_prepare(IN_PATH, OUT_PATH, &o);
    check_file(2, true);
    gguf_file *f = files_open(OUT_PATH);
    for (int l = 0; l < 2; l++) {
        const pi_prepare_layer *layer = &notifier.layers[l];
        assert_string_equal(layer->kind, kind);
        assert_true(layer->contribution_recall > recall - 0.1);
        assert_true(layer->selected > 0 && layer->selected <= 1);
        assert_true(layer->recall > 0 && layer->recall <= 1);
        bool sign = strcmp(kind, "sign") == 0;
        assert_int_equal(layer->rank > 0, !sign);
        assert_int_equal(maybe_tensor(f, l, "ffn_sign") != NULL, sign);
        assert_int_equal(maybe_tensor(f, l, "fc1.weight") != NULL, !sign);
        assert_non_null(maybe_tensor(f, l, "fc2.bias"));
    }
    gguf_close(f);
    for (int piece = 0; piece < 2; piece++) {
        /* selected neurons are exact, so only missed neurons cause a difference */
        assert_true(files_distance(OUT_PATH, PI_MODE_PREDICT, piece, IN_PATH) < 0.3);
        assert_true(files_distance(OUT_PATH, PI_MODE_EXACT, piece, IN_PATH) < same_sums);
    }
    files_undo(OUT_PATH, BACK_PATH);
    files_same(IN_PATH, BACK_PATH);
}

static void test_predictors(void **state) {
    (void)state;
    tiny_model t = files_tiny("f16");
    t.ffn_bias = true;
    tiny_write(&t, IN_PATH);
    check_predictor("sign", 0.95);
    check_predictor("lowrank", 0.95);
    check_predictor("relu_mlp", 0.95);
}

/* ---- thresholds ------------------------------------------------------------------------------ */

/* Doubles the rows of up and of down (a column) of neuron `k` in layer 0. */
static void double_neuron(const char *path, int64_t k, bool up, bool down) {
    gguf_file *f = files_open(path);
    const gguf_tensor *u = layer_tensor(f, 0, "ffn_up.weight");
    const gguf_tensor *d = layer_tensor(f, 0, "ffn_down.weight");
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    for (int64_t i = 0; i < (int64_t)u->dims[0]; i++) {
        for (int which = 0; which < 2; which++) {
            const gguf_tensor *t = which ? d : u;
            int64_t at = 2 * (which ? i * (int64_t)d->dims[0] + k : k * (int64_t)u->dims[0] + i);
            uint16_t half;
            memcpy(&half, t->data + at, sizeof half);
            if (which ? !down : !up) continue;
            assert_true((half & 0x7c00) != 0 && (half & 0x7c00) < 0x7800); /* doubles exactly */
            half = (uint16_t)(half + 0x0400);
            assert_int_equal(fseek(file, (long)t->file_offset + (long)at, SEEK_SET), 0);
            assert_int_equal(fwrite(&half, sizeof half, 1, file), 1);
        }
    }
    assert_int_equal(fclose(file), 0);
    gguf_close(f);
}

/* The factor of the source's neuron `k` in layer 0. */
static double factor_of(const char *path, int64_t k) {
    gguf_file *f = files_open(path);
    const gguf_tensor *cut = layer_tensor(f, 0, "ffn_cut");
    const int32_t *perm = (const void *)layer_tensor(f, 0, "ffn_perm")->data;
    const float *factors = (const void *)cut->data;
    double factor = -1;
    for (uint64_t i = 0; i < cut->n_elems; i++) {
        assert_true(factors[i] > 0);
        if (perm[i] == k) factor = (double)factors[i];
    }
    gguf_close(f);
    return factor;
}

/* A factor is proportional to the neuron's up and to its row of down. */
static void test_factors(void **state) {
    (void)state;
    enum { NEURON = 5 };
    prepare_notes notifier;
    pi_prepare_options o = files_options(TEXT_PATH, &notifier);
    tiny_model t = files_tiny("f16");
    double before = 0;
    t.activation = "silu";
    o.max_loss = 0.02;
    o.predictor = "none";
    for (int i = 0; i < 3; i++) {
        tiny_write(&t, IN_PATH);
        double_neuron(IN_PATH, NEURON, i > 0, i > 1);
        files_prepare(IN_PATH, OUT_PATH, &o);
        double factor = factor_of(OUT_PATH, NEURON);
        assert_true(factor > 0);
        if (i > 0) assert_true(fabs(factor / before - 2) < 1e-5);
        before = factor;
    }
}

/* quantize keeps the thresholds; the loss is no longer known. */
static void check_quantized(int n_layer) {
    pi_quantize_options q = pi_quantize_default_options();
    pi_error err;
    q.type = "q8_0";
    if (pi_quantize(OUT_PATH, AGAIN_PATH, &q, NULL, &err) != PI_OK) fail_msg("%s", err.message);
    static const char *const keys[] = {SPARSE_KEY_THRESHOLD_CUT, SPARSE_KEY_THRESHOLD_DOWN,
                                       SPARSE_KEY_THRESHOLD_UP_ROWS,
                                       SPARSE_KEY_THRESHOLD_DOWN_ROWS};
    gguf_file *before = files_open(OUT_PATH), *after = files_open(AGAIN_PATH);
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
        for (int l = 0; l < n_layer; l++) {
            double a = NAN, b = NAN;
            assert_true(gguf_item_f64(gguf_find(before, keys[k]), (uint64_t)l, &a));
            assert_true(gguf_item_f64(gguf_find(after, keys[k]), (uint64_t)l, &b));
            assert_true(a == b);
        }
    assert_null(gguf_find(after, SPARSE_KEY_THRESHOLD_LOSS));
    gguf_close(before);
    gguf_close(after);
}

static void test_thresholds(void **state) {
    (void)state;
    static const char *const activations[] = {"silu", "gelu"};
    for (int i = 0; i < 2; i++) {
        prepare_notes notifier;
        pi_prepare_options o = files_options(TEXT_PATH, &notifier);
        tiny_model t = files_tiny("f16");
        t.activation = activations[i];
        t.ffn_bias = i == 1;
        tiny_write(&t, IN_PATH);
        o.max_loss = 0.02;
        o.predictor = "none"; /* named: skips what max_loss allows, without a check of the gain */
        pi_prepare_result r = files_prepare(IN_PATH, OUT_PATH, &o);
        assert_string_equal(r.mode, "threshold");
        assert_true(r.ppl_after / r.ppl_before - 1 <= 0.02 && r.kl <= 0.02);
        assert_true(r.density > 0 && r.density < 1);
        gguf_file *in = files_open(IN_PATH), *out = files_open(OUT_PATH);
        double loss = number(out, SPARSE_KEY_THRESHOLD_LOSS), cut, down, up_rows, down_rows;
        assert_true(fabs(loss - (r.ppl_after / r.ppl_before - 1)) < 1e-6);
        for (uint64_t l = 0; l < 2; l++) {
            check_layer(in, out, (int)l);
            assert_true(gguf_item_f64(gguf_find(out, SPARSE_KEY_THRESHOLD_CUT), l, &cut));
            assert_true(gguf_item_f64(gguf_find(out, SPARSE_KEY_THRESHOLD_DOWN), l, &down));
            assert_true(gguf_item_f64(gguf_find(out, SPARSE_KEY_THRESHOLD_UP_ROWS), l, &up_rows));
            assert_true(
                gguf_item_f64(gguf_find(out, SPARSE_KEY_THRESHOLD_DOWN_ROWS), l, &down_rows));
            assert_true(cut >= 0 && down > 0); /* within 2% both leave out something */
            assert_true(fabs(up_rows - notifier.layers[l].density) < 1e-6);
            assert_true(fabs(down_rows - notifier.layers[l].down) < 1e-6);
            assert_true(down_rows < up_rows);
        }
        gguf_close(in);
        gguf_close(out);
        assert_true(files_distance(OUT_PATH, PI_MODE_DENSE, 0, IN_PATH) < same_sums);
        double off = files_distance(OUT_PATH, PI_MODE_THRESHOLD, 0, IN_PATH);
        assert_true(off > same_sums && off < 0.1); /* some neurons are skipped, with little loss */
        check_quantized(2);
        files_undo(OUT_PATH, BACK_PATH);
        files_same(IN_PATH, BACK_PATH);
    }
}

/* ---- types of the input ---------------------------------------------------------------------- */

static void test_quantize_first(void **state) {
    (void)state;
    prepare_notes notifier;
    pi_prepare_options o = files_options(TEXT_PATH, &notifier);
    tiny_model t = files_tiny("f16");
    tiny_write(&t, IN_PATH);
    o.type = "q4_0";
    o.predictor = "none";
    files_prepare(IN_PATH, OUT_PATH, &o);
    gguf_file *in = files_open(IN_PATH), *out = files_open(OUT_PATH);
    const gguf_tensor *perm = layer_tensor(out, 0, "ffn_perm");
    assert_int_equal(layer_tensor(out, 0, "ffn_gate.weight")->type, QUANT_Q4_0);
    assert_int_equal(layer_tensor(out, 0, "ffn_down_t.weight")->type, QUANT_Q8_0);
    /* from the F16 matrix, not from 4 bits */
    check_down(layer_tensor(in, 0, "ffn_down.weight"), layer_tensor(out, 0, "ffn_down_t.weight"),
               (const int32_t *)(const void *)perm->data);
    gguf_close(in);
    gguf_close(out);
    assert_int_equal(files_count("test_prepare.out"), 1); /* no intermediate file is left */
    files_undo(OUT_PATH, BACK_PATH);
    gguf_file *back = files_open(BACK_PATH);
    assert_int_equal(layer_tensor(back, 0, "ffn_down.weight")->type, QUANT_Q4_0);
    gguf_close(back);
    o.down_type = "f16";
    files_prepare(IN_PATH, OUT_PATH, &o);
    out = files_open(OUT_PATH);
    assert_int_equal(layer_tensor(out, 0, "ffn_down_t.weight")->type, QUANT_F16);
    gguf_close(out);
}

static int set_up(void **state) {
    (void)state;
    files_write_text(TEXT_PATH, 4000);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    unlink(IN_PATH);
    unlink(OUT_PATH);
    unlink(AGAIN_PATH);
    unlink(BACK_PATH);
    unlink(TEXT_PATH);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),          cmocka_unit_test(test_biases_and_scales),
        cmocka_unit_test(test_again),          cmocka_unit_test(test_predictors),
        cmocka_unit_test(test_thresholds),     cmocka_unit_test(test_factors),
        cmocka_unit_test(test_quantize_first),
    };
    return cmocka_run_group_tests_name("prepare", tests, set_up, tear_down);
}
