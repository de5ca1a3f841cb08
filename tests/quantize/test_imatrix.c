/* test_imatrix.c: collects importance and tests its benefit. This file recomputes the inputs of the
 * first matrices from the embedding and the norm; the inputs of the other matrices must at least
 * depend on the model. Quantizing with the importance matrix must lower the error on the
 * calibration text. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "bundled_file.h"
#include "failing.h"
#include "imatrix.h"
#include "mem.h"
#include "quantize_files.h"
#include "tiny_model.h"

#define MODEL_PATH TEST_BINARY_DIR "/test_imatrix.model.gguf"
#define TEXT_PATH  TEST_BINARY_DIR "/test_imatrix.txt"
#define OUT_PATH   TEST_BINARY_DIR "/test_imatrix.out.gguf"
#define PLAIN_PATH TEST_BINARY_DIR "/test_imatrix.plain.gguf"
#define BEST_PATH  TEST_BINARY_DIR "/test_imatrix.best.gguf"

enum { N_EMBD = 256, N_FF = 512, CHUNK = 32 };

static tiny_model description(void) {
    tiny_model t = tiny_default();
    t.type = "f16";
    t.n_embd = N_EMBD;
    tiny_set_heads(&t, 4, 2);
    t.head_dim = 64;
    t.n_rot = 64;
    for (int i = 0; i < TINY_MAX_LAYERS; i++) t.n_ff[i] = N_FF;
    t.n_vocab = 300;
    t.vocabulary = true;
    t.tied = true;
    return t;
}

static int set_up(void **state) {
    (void)state;
    tiny_model t = description();
    tiny_write(&t, MODEL_PATH);
    FILE *file = fopen(TEXT_PATH, "wb");
    if (!file) return -1;
    for (int i = 0; i < 40; i++) fprintf(file, "a line, and number %d of them. ", i * i);
    return fclose(file);
}

static int tear_down(void **state) {
    (void)state;
    unlink(MODEL_PATH);
    unlink(TEXT_PATH);
    unlink(OUT_PATH);
    unlink(PLAIN_PATH);
    unlink(BEST_PATH);
    return 0;
}

static pi_imatrix_options options(void) {
    pi_imatrix_options o = pi_imatrix_default_options();
    o.chunk = CHUNK;
    o.n_threads = 2;
    return o;
}

static void collect(const pi_imatrix_options *o) {
    pi_error err = {0};
    if (pi_imatrix(MODEL_PATH, TEXT_PATH, OUT_PATH, o, &err) != PI_OK) fail_msg("%s", err.message);
}

static const float *floats_of(const gguf_file *f, const char *name) {
    const gguf_tensor *t = made_find(f, name);
    assert_int_equal(t->type, QUANT_F32);
    return (const float *)(const void *)t->data;
}

/* Returns the tokens of the first n windows; BOS replaces the first token of each window. */
static int32_t *tokens_of_windows(int n) {
    pi_model *model = NULL;
    pi_error err = {0};
    char text[4096];
    static int32_t tokens[4096];
    size_t n_tokens = 0;
    FILE *file = fopen(TEXT_PATH, "rb");
    assert_non_null(file);
    size_t n_text = fread(text, 1, sizeof text, file);
    fclose(file);
    if (pi_model_open(MODEL_PATH, NULL, &model, &err) != PI_OK) fail_msg("%s", err.message);
    assert_int_equal(
        pi_tokenize(model, text, n_text, PI_TOKENIZE_BOS, tokens, 4096, &n_tokens, &err), PI_OK);
    assert_true(n_tokens >= (size_t)(n * CHUNK));
    pi_model_info info;
    pi_model_get_info(model, &info);
    for (int i = 0; info.add_bos && i < n; i++) tokens[i * CHUNK] = info.token_bos;
    pi_model_close(model);
    return tokens;
}

static void test_first_matrix(void **state) {
    (void)state;
    enum { WINDOWS = 3 };
    pi_imatrix_options o = options();
    o.n_chunks = WINDOWS;
    collect(&o);
    const int32_t *tokens = tokens_of_windows(WINDOWS);
    gguf_file *model = made_open(MODEL_PATH), *found = made_open(OUT_PATH);
    float *embd = made_floats(made_find(model, "token_embd.weight"));
    float *norm = made_floats(made_find(model, "blk.0.attn_norm.weight"));
    double eps = 0, expected[N_EMBD] = {0};
    assert_true(gguf_as_f64(gguf_find(model, "llama.attention.layer_norm_rms_epsilon"), &eps));
    for (int i = 0; i < WINDOWS * CHUNK; i++) {
        const float *x = embd + (size_t)tokens[i] * N_EMBD;
        double mean = 0;
        for (int k = 0; k < N_EMBD; k++) mean += (double)x[k] * (double)x[k] / N_EMBD;
        for (int k = 0; k < N_EMBD; k++)
            expected[k] += pow((double)x[k] * (double)norm[k], 2) / (mean + eps);
    }
    static const char *const parts[] = {"attn_q", "attn_k", "attn_v"};
    for (int p = 0; p < 3; p++) {
        char name[64];
        snprintf(name, sizeof name, "blk.0.%s.weight.in_sum2", parts[p]);
        const float *sums = floats_of(found, name);
        for (int k = 0; k < N_EMBD; k++)
            if (fabs((double)sums[k] - expected[k]) > 1e-4 * expected[k])
                fail_msg("%s[%d]: %g, not %g", name, k, (double)sums[k], expected[k]);
    }
    mem_free(embd);
    mem_free(norm);
    gguf_close(model);
    gguf_close(found);
}

static void test_form(void **state) {
    (void)state;
    static const char *const parts[] = {"attn_q",   "attn_k", "attn_v",  "attn_output",
                                        "ffn_gate", "ffn_up", "ffn_down"};
    pi_imatrix_options o = options();
    o.n_chunks = 2;
    collect(&o);
    imatrix m;
    pi_error err = {0};
    assert_int_equal(imatrix_open(OUT_PATH, &m, &err), PI_OK);
    assert_int_equal(imatrix_entries(&m), 14);
    assert_int_equal(imatrix_chunks(&m), 2);
    gguf_string dataset = imatrix_dataset(&m);
    assert_int_equal(dataset.n_bytes, strlen(TEXT_PATH));
    for (int l = 0; l < 2; l++) {
        for (int p = 0; p < 7; p++) {
            char name[64];
            snprintf(name, sizeof name, "blk.%d.%s.weight.counts", l, parts[p]);
            assert_true(floats_of(m.file, name)[0] == 2 * CHUNK);
            snprintf(name, sizeof name, "blk.%d.%s.weight.in_sum2", l, parts[p]);
            const gguf_tensor *t = made_find(m.file, name);
            assert_int_equal(t->dims[0], p == 6 ? N_FF : N_EMBD);
            double sum = 0;
            for (uint64_t k = 0; k < t->n_elems; k++)
                sum += (double)((const float *)(const void *)t->data)[k];
            assert_true(isfinite(sum) && sum > 0);
        }
    }
    imatrix_close(&m);
    /* the head has the name of the matrix that it shares */
    o.process_output = true;
    collect(&o);
    gguf_file *f = made_open(OUT_PATH);
    assert_int_equal(gguf_n_tensors(f), 30);
    assert_true(floats_of(f, "token_embd.weight.counts")[0] == 2 * CHUNK);
    gguf_close(f);
}

/* One matrix for Q, K and V has one row of sums, under its own name. */
static void test_fused(void **state) {
    (void)state;
    tiny_model t = description();
    t.arch = "falcon";
    t.tied = false;
    tiny_write(&t, MODEL_PATH);
    pi_imatrix_options o = options();
    o.n_chunks = 1;
    collect(&o);
    gguf_file *found = made_open(OUT_PATH);
    for (int layer = 0; layer < t.n_layer; layer++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.attn_qkv.weight.in_sum2", layer);
        const float *sums = floats_of(found, name);
        for (int k = 0; k < N_EMBD; k++) assert_true(sums[k] > 0);
    }
    assert_non_null(gguf_find_tensor(found, "blk.1.attn_output.weight.in_sum2"));
    assert_non_null(gguf_find_tensor(found, "blk.1.ffn_up.weight.in_sum2"));
    assert_null(gguf_find_tensor(found, "blk.1.attn_q.weight.in_sum2"));
    gguf_close(found);
    assert_int_equal(set_up(NULL), 0);
}

static void collect_from(const char *model, const char *out, const pi_imatrix_options *o) {
    pi_error err = {0};
    if (pi_imatrix(model, TEXT_PATH, out, o, &err) != PI_OK) fail_msg("%s", err.message);
}

static char said[1024];

static void hear(void *user, const char *line) {
    (void)user;
    size_t used = strlen(said);
    snprintf(said + used, sizeof said - used, "%s\n", line);
}

/* A prepared file and the ordinary file made from it have the same entries; the entries of ffn_down
 * have the ordinary name and the order of the columns. The values of layer 0 are equal; in later
 * layers they differ because ffn_down is quantized twice. */
static void test_prepared(void **state) {
    (void)state;
    static const char bundled[] = TEST_SOURCE_DIR "/models/novella-7m.q8_0.powerinfer.gguf";
    pi_error err;
    pi_imatrix_options o = options();
    o.n_chunks = 4;
    if (pi_prepare_undo(bundled, PLAIN_PATH, NULL, &err) != PI_OK) fail_msg("%s", err.message);
    collect_from(bundled, OUT_PATH, &o);
    collect_from(PLAIN_PATH, BEST_PATH, &o);
    gguf_file *prepared = made_open(OUT_PATH), *plain = made_open(BEST_PATH);
    assert_int_equal(gguf_n_tensors(prepared), gguf_n_tensors(plain));
    for (int layer = 0; layer < 6; layer++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.ffn_down.weight.in_sum2", layer);
        const float *a = floats_of(prepared, name), *b = floats_of(plain, name);
        uint64_t n = made_find(plain, name)->n_elems;
        double difference = 0, sum = 0;
        for (uint64_t i = 0; i < n; i++) {
            difference += fabs((double)a[i] - (double)b[i]);
            sum += (double)b[i];
        }
        assert_true(sum > 0 && difference <= (layer == 0 ? 1e-5 : 0.1) * sum);
    }
    gguf_close(prepared);
    gguf_close(plain);
    /* a few tokens compute neuron by neuron, and the inputs of ffn_down_t are not observed */
    o.chunk = 4;
    o.message = hear;
    said[0] = 0;
    collect_from(bundled, OUT_PATH, &o);
    assert_non_null(strstr(said,
                           "no entry for blk.5.ffn_down.weight: windows of more than 8 tokens "
                           "are needed for it\n"));
    prepared = made_open(OUT_PATH);
    assert_null(gguf_find_tensor(prepared, "blk.5.ffn_down.weight.in_sum2"));
    assert_non_null(gguf_find_tensor(prepared, "blk.5.ffn_up.weight.in_sum2"));
    gguf_close(prepared);
}

/* Bundles of neurons do not change the importance matrix. */
static void test_bundles(void **state) {
    (void)state;
    static const char model[] = TEST_SOURCE_DIR "/models/novella-7m.q8_0.powerinfer.gguf";
    pi_imatrix_options o = options();
    o.n_chunks = 1;
    bundled_write(model, PLAIN_PATH, 0);
    collect_from(model, OUT_PATH, &o);
    collect_from(PLAIN_PATH, BEST_PATH, &o);
    gguf_file *apart = made_open(OUT_PATH), *bundled = made_open(BEST_PATH);
    assert_int_equal(gguf_n_tensors(apart), gguf_n_tensors(bundled));
    for (uint64_t i = 0; i < gguf_n_tensors(apart); i++) {
        const gguf_tensor *t = gguf_tensor_at(apart, i);
        assert_memory_equal(t->data, made_find(bundled, t->name)->data, t->n_bytes);
    }
    gguf_close(apart);
    gguf_close(bundled);
}

/* Sums do not depend on the number of threads, and windows do not depend on earlier windows. */
static void test_repeatable(void **state) {
    (void)state;
    pi_imatrix_options o = options();
    o.n_chunks = 4;
    collect(&o);
    assert_int_equal(rename(OUT_PATH, BEST_PATH), 0);
    o.n_threads = 1;
    collect(&o);
    gguf_file *a = made_open(BEST_PATH), *b = made_open(OUT_PATH);
    for (uint64_t i = 0; i < gguf_n_tensors(a); i++) {
        const gguf_tensor *x = gguf_tensor_at(a, i), *y = gguf_tensor_at(b, i);
        for (uint64_t k = 0; k < x->n_elems; k++) {
            double p = (double)((const float *)(const void *)x->data)[k];
            double q = (double)((const float *)(const void *)y->data)[k];
            if (fabs(p - q) > 1e-3 * fabs(q)) fail_msg("%s: %g, %g", x->name, p, q);
        }
    }
    gguf_close(a);
    gguf_close(b);
}

/* Returns the sum over a matrix of importance * error^2: the error on the calibration text. */
static double weighted_error(const gguf_tensor *from, const gguf_tensor *to, const float *w) {
    float *a = made_floats(from), *b = made_floats(to);
    double sum = 0;
    for (uint64_t i = 0; i < from->n_elems; i++)
        sum += (double)w[i % from->dims[0]] * pow((double)a[i] - (double)b[i], 2);
    mem_free(a);
    mem_free(b);
    return sum;
}

static void test_error_is_lower(void **state) {
    (void)state;
    static const char *const types[] = {"Q4_0", "Q4_1", "Q5_0", "Q5_1",   "Q2_K",   "Q3_K_S",
                                        "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4"};
    pi_imatrix_options collecting = options();
    pi_error err = {0};
    collect(&collecting);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        pi_quantize_options o = pi_quantize_default_options();
        o.type = types[i];
        o.pure = true;
        o.n_threads = 2;
        assert_int_equal(pi_quantize(MODEL_PATH, PLAIN_PATH, &o, NULL, &err), PI_OK);
        o.imatrix = OUT_PATH;
        assert_int_equal(pi_quantize(MODEL_PATH, BEST_PATH, &o, NULL, &err), PI_OK);
        gguf_file *model = made_open(MODEL_PATH);
        gguf_file *plain = made_open(PLAIN_PATH), *best = made_open(BEST_PATH);
        imatrix m;
        assert_int_equal(imatrix_open(OUT_PATH, &m, &err), PI_OK);
        double before = 0, after = 0;
        for (uint64_t k = 0; k < gguf_n_tensors(model); k++) {
            const gguf_tensor *t = gguf_tensor_at(model, k);
            const float *w = NULL;
            assert_int_equal(imatrix_find(&m, t, &w, &err), PI_OK);
            if (!w) continue;
            before += weighted_error(t, made_find(plain, t->name), w);
            after += weighted_error(t, made_find(best, t->name), w);
        }
        print_message("%-7s weighted error with importance / without: %.3f\n", types[i],
                      after / before);
        if (!(after < before)) fail_msg("%s: %g, not below %g", types[i], after, before);
        imatrix_close(&m);
        gguf_close(model);
        gguf_close(plain);
        gguf_close(best);
    }
}

/* ---- errors ---------------------------------------------------------------------------------- */

static void fails(const char *model, const char *text, const char *out, const pi_imatrix_options *o,
                  pi_status status, const char *words) {
    pi_error err = {0};
    unlink(OUT_PATH);
    pi_status found = pi_imatrix(model, text, out, o, &err);
    if (found != status)
        fail_msg("%s instead of %s: %s", pi_status_name(found), pi_status_name(status),
                 err.message);
    if (!strstr(err.message, words)) fail_msg("no \"%s\" in: %s", words, err.message);
    assert_false(made_exists(OUT_PATH));
}

static bool stop_at_once(void *user, const char *stage, double fraction) {
    (void)user;
    assert_string_equal(stage, "collecting");
    assert_true(fraction > 0 && fraction <= 1);
    return false;
}

static void test_errors(void **state) {
    (void)state;
    pi_imatrix_options o = options();
    fails(MODEL_PATH, TEST_BINARY_DIR "/no.txt", OUT_PATH, &o, PI_ERR_IO, "no.txt");
    fails(TEXT_PATH, TEXT_PATH, OUT_PATH, &o, PI_ERR_FORMAT, TEXT_PATH);
    fails(MODEL_PATH, TEXT_PATH, TEST_BINARY_DIR "/no/such/file", &o, PI_ERR_IO, "no/such");
    if (access("/dev/full", W_OK) == 0)
        fails(MODEL_PATH, TEXT_PATH, "/dev/full", &o, PI_ERR_IO, "/dev/full");
    o.progress = stop_at_once;
    fails(MODEL_PATH, TEXT_PATH, OUT_PATH, &o, PI_ERR_CANCELLED, "cancelled");
    o = options();
    o.chunk = 0;
    fails(MODEL_PATH, TEXT_PATH, OUT_PATH, &o, PI_ERR_ARG, "1 to");
    o = options();
    o.n_threads = -2;
    fails(MODEL_PATH, TEXT_PATH, OUT_PATH, &o, PI_ERR_ARG, "threads");
    /* a text shorter than a window gives one window */
    o = options();
    o.chunk = 4096;
    collect(&o);
    gguf_file *f = made_open(OUT_PATH);
    uint64_t n = 0;
    assert_true(gguf_as_u64(gguf_find(f, "imatrix.chunk_count"), &n) && n == 1);
    gguf_close(f);
}

static void test_no_memory(void **state) {
    (void)state;
    pi_imatrix_options o = options();
    o.n_chunks = 1;
    unlink(OUT_PATH);
    failing f = failing_each(1);
    while (failing_next(&f)) {
        pi_error err = {0};
        pi_status status = pi_imatrix(MODEL_PATH, TEXT_PATH, OUT_PATH, &o, &err);
        if (!failing_hit(&f, status, &err)) break;
        assert_false(made_exists(OUT_PATH));
    }
    assert_true(f.n > 20);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_matrix), cmocka_unit_test(test_form),
        cmocka_unit_test(test_repeatable),   cmocka_unit_test(test_error_is_lower),
        cmocka_unit_test(test_errors),       cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_fused),        cmocka_unit_test(test_prepared),
        cmocka_unit_test(test_bundles),
    };
    return cmocka_run_group_tests_name("imatrix", tests, set_up, tear_down);
}
