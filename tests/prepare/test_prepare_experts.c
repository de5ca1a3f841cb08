/* test_prepare_experts.c: preparing mixtures of experts: experts are sorted by how often the router
 * chose them, with all their data; answers do not change, bit for bit; undo restores the source. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "prepare_files.h"
#include "quant.h"
#include "run_model.h"

#define IN_PATH    TEST_BINARY_DIR "/test_prepare_experts.in.gguf"
#define OUT_PATH   TEST_BINARY_DIR "/test_prepare_experts.out.gguf"
#define AGAIN_PATH TEST_BINARY_DIR "/test_prepare_experts.again.gguf"
#define BACK_PATH  TEST_BINARY_DIR "/test_prepare_experts.back.gguf"
#define TEXT_PATH  TEST_BINARY_DIR "/test_prepare_experts.txt"

enum { N_EXPERT = 8, N_USED = 3, N_TOKENS = 48, MAX_VOCAB = 300, MAX_ROW = 128 };

static tiny_model base_model(const char *arch, const char *type) {
    tiny_model t = files_tiny(type);
    t.arch = arch;
    t.activation = NULL;
    t.experts = (tiny_experts){.n = N_EXPERT, .n_used = N_USED, .n_ff = 64};
    return t;
}

static const gguf_tensor *layer_tensor(const gguf_file *f, int layer, const char *name) {
    char full[GGUF_MAX_NAME];
    snprintf(full, sizeof full, "blk.%d.%s", layer, name);
    return gguf_find_tensor(f, full);
}

/* Checks that expert e of the output is expert perm[e] of the input. */
static void expect_moved(const gguf_file *in, const gguf_file *out, int layer, const char *name,
                         const int32_t *perm) {
    const gguf_tensor *a = layer_tensor(in, layer, name), *b = layer_tensor(out, layer, name);
    if (!a) return;
    assert_non_null(b);
    assert_int_equal(a->type, b->type);
    assert_memory_equal(a->dims, b->dims, sizeof a->dims);
    size_t n_bytes = a->n_bytes / N_EXPERT;
    for (size_t e = 0; e < N_EXPERT; e++)
        assert_memory_equal(b->data + e * n_bytes, a->data + (size_t)perm[e] * n_bytes, n_bytes);
}

static void expect_layer(const gguf_file *in, const gguf_file *out, int layer) {
    static const char *const names[] = {
        "ffn_gate_inp.weight",  "ffn_gate_inp.bias",       "exp_probs_b.bias",
        "ffn_gate_exps.weight", "ffn_gate_up_exps.weight", "ffn_up_exps.weight",
        "ffn_down_exps.weight", "ffn_gate_exps.bias",      "ffn_up_exps.bias",
        "ffn_down_exps.bias",   "ffn_gate_exps.scale",     "ffn_up_exps.scale",
        "ffn_down_exps.scale"};
    const gguf_tensor *freq = layer_tensor(out, layer, "ffn_freq");
    const gguf_tensor *perm = layer_tensor(out, layer, "ffn_expert_perm");
    assert_true(freq && perm && freq->dims[0] == N_EXPERT && perm->dims[0] == N_EXPERT);
    const float *share = (const float *)(const void *)freq->data;
    float all = 0;
    for (int i = 0; i < N_EXPERT; i++) {
        assert_true(i == 0 || share[i] <= share[i - 1]);
        all += share[i];
    }
    assert_true(all > N_USED - 1e-3f && all < N_USED + 1e-3f);
    assert_true(share[0] > share[N_EXPERT - 1]);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        expect_moved(in, out, layer, names[i], (const int32_t *)(const void *)perm->data);
}

static void expect_same_logits(const char *a, const char *b) {
    static float x[N_TOKENS * MAX_VOCAB], y[N_TOKENS * MAX_VOCAB];
    int32_t tokens[N_TOKENS];
    for (int piece = 0; piece < 8; piece++) {
        pi_context_options o = run_exact_options();
        run_model r = run_open(a, &o), s = run_open(b, &o);
        run_random_tokens(3, r.n_vocab, tokens, N_TOKENS);
        run_tokens(&r, tokens, N_TOKENS, piece, x);
        run_tokens(&s, tokens, N_TOKENS, piece, y);
        assert_memory_equal(x, y, (size_t)(N_TOKENS * r.n_vocab) * sizeof *x);
        run_close(&r);
        run_close(&s);
    }
}

static void check(const tiny_model *t) {
    prepare_notes notifier;
    pi_prepare_options o = files_options(TEXT_PATH, &notifier);
    tiny_write(t, IN_PATH);
    pi_prepare_result r = files_prepare(IN_PATH, OUT_PATH, &o);
    assert_string_equal(r.mode, "dense");
    assert_true(r.kl == 0 && r.ppl_after == r.ppl_before);
    assert_int_equal(notifier.n_layers, t->n_layer);
    gguf_file *in = files_open(IN_PATH), *out = files_open(OUT_PATH);
    for (int l = t->experts.n_dense; l < t->n_layer; l++) expect_layer(in, out, l);
    for (int l = 0; l < t->experts.n_dense; l++)
        assert_null(layer_tensor(out, l, "ffn_expert_perm"));
    gguf_close(in);
    gguf_close(out);
    expect_same_logits(IN_PATH, OUT_PATH);
    files_prepare(OUT_PATH, AGAIN_PATH, &o);
    files_same(OUT_PATH, AGAIN_PATH);
    files_undo(OUT_PATH, BACK_PATH);
    files_same(IN_PATH, BACK_PATH);
}

static void test_plain(void **state) {
    (void)state;
    static const char *const types[] = {"f32", "q8_0"};
    for (int i = 0; i < 2; i++) {
        tiny_model t = base_model("llama", types[i]);
        check(&t);
    }
    tiny_model t = base_model("llama", "f32");
    t.scales = true;
    check(&t);
    t.scales = false;
    t.experts.biased = t.experts.twins = true; /* ties: the first expert in the source is chosen */
    check(&t);
}

/* Groups, a bias for the choice, a shared expert, dense layers, gate and up in one tensor. */
static void test_groups(void **state) {
    (void)state;
    tiny_model t = base_model("bailingmoe2", "q8_0");
    t.experts.n_group = 4;
    t.experts.n_group_used = 2;
    t.experts.select_bias = t.experts.fused = true;
    t.experts.n_ff_shared = 96;
    check(&t);
    t.experts.n_dense = 1;
    check(&t);
}

/* Checks that element k of row i of expert e of down_t is element i of row k of expert perm[e] of
 * down. */
static void expect_transposed(const gguf_file *in, const gguf_file *out, int layer) {
    const gguf_tensor *down = layer_tensor(in, layer, "ffn_down_exps.weight");
    const gguf_tensor *down_t = layer_tensor(out, layer, "ffn_down_t_exps.weight");
    const gguf_tensor *moved = layer_tensor(out, layer, "ffn_expert_perm");
    const quant_traits *a = quant_find((uint32_t)down->type);
    const quant_traits *b = quant_find((uint32_t)down_t->type);
    float x[MAX_ROW], y[MAX_ROW];
    double error = 0, power = 0;
    assert_null(layer_tensor(out, layer, "ffn_down_exps.weight"));
    uint64_t n_ff = down->dims[0], n_embd = down->dims[1];
    assert_true(n_ff <= MAX_ROW && n_embd <= MAX_ROW);
    assert_true(down_t->dims[0] == n_embd && down_t->dims[1] == n_ff);
    assert_int_equal(down_t->dims[2], N_EXPERT);
    size_t row = down->n_bytes / (n_embd * N_EXPERT), row_t = down_t->n_bytes / (n_ff * N_EXPERT);
    for (uint64_t e = 0; e < N_EXPERT; e++) {
        uint64_t from = (uint64_t)((const int32_t *)(const void *)moved->data)[e];
        for (uint64_t k = 0; k < n_embd; k++) {
            a->dequantize(down->data + (from * n_embd + k) * row, x, (int64_t)n_ff);
            for (uint64_t i = 0; i < n_ff; i++) {
                b->dequantize(down_t->data + (e * n_ff + i) * row_t, y, (int64_t)n_embd);
                error += (double)(y[k] - x[i]) * (double)(y[k] - x[i]);
                power += (double)x[i] * (double)x[i];
            }
        }
    }
    assert_true(error <= (a->block_elems == 1 ? 0 : 1e-4) * power);
}

/* Experts whose activations have exact zeros: down gets a row per neuron. */
static void check_zeros(const tiny_model *t) {
    const double same_sums = 1e-9;
    prepare_notes notifier;
    pi_prepare_options o = files_options(TEXT_PATH, &notifier);
    bool is_float = quant_find_name(t->type)->block_elems == 1;
    tiny_write(t, IN_PATH);
    pi_prepare_result r = files_prepare(IN_PATH, OUT_PATH, &o);
    assert_string_equal(r.mode, "exact");
    assert_true(files_said(&notifier, "ffn_down_exps is transposed"));
    gguf_file *in = files_open(IN_PATH), *out = files_open(OUT_PATH);
    for (int l = 0; l < t->n_layer; l++) expect_transposed(in, out, l);
    gguf_close(in);
    gguf_close(out);
    static const int pieces[] = {0, 1, 4, 11}; /* all tokens at once, one by one, few, more */
    for (int i = 0; i < 4; i++) {
        double limit = is_float ? same_sums : 1e-3;
        int piece = pieces[i];
        assert_true(files_distance(OUT_PATH, PI_MODE_EXACT, piece, IN_PATH) < limit);
        assert_true(files_distance(OUT_PATH, PI_MODE_EXACT, piece, OUT_PATH) < same_sums);
        assert_true(files_distance(IN_PATH, PI_MODE_EXACT, piece, IN_PATH) < same_sums);
    }
    files_prepare(OUT_PATH, AGAIN_PATH, &o);
    files_undo(AGAIN_PATH, BACK_PATH);
    if (is_float)
        files_same(IN_PATH, BACK_PATH);
    else
        assert_true(files_distance(BACK_PATH, PI_MODE_DENSE, 0, IN_PATH) < 0.03);
}

static void test_zeros(void **state) {
    (void)state;
    static const char *const types[] = {"f32", "f16", "bf16", "q8_0"};
    for (int i = 0; i < 4; i++) {
        tiny_model t = base_model("smallthinker", types[i]);
        check_zeros(&t);
    }
    tiny_model t = base_model("llama", "f16");
    t.activation = "relu";
    t.scales = t.experts.biased = t.experts.fused = true;
    check_zeros(&t);
    t.activation = "drelu";
    check_zeros(&t);
    t.activation = "relu_squared";
    t.experts.n_used = N_EXPERT;
    check_zeros(&t);
}

static void test_no_predictor(void **state) {
    (void)state;
    prepare_notes notifier;
    pi_error err = {0};
    tiny_model t = base_model("llama", "f32");
    pi_prepare_options o = files_options(TEXT_PATH, &notifier);
    tiny_write(&t, IN_PATH);
    unlink(OUT_PATH);
    o.predictor = "lowrank";
    assert_int_equal(pi_prepare(IN_PATH, OUT_PATH, &o, NULL, &err), PI_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "no predictors within these experts"));
    assert_int_equal(access(OUT_PATH, F_OK), -1);
}

int main(void) {
    static const char *const paths[] = {IN_PATH, OUT_PATH, AGAIN_PATH, BACK_PATH, TEXT_PATH};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_zeros),
        cmocka_unit_test(test_no_predictor),
    };
    files_write_text(TEXT_PATH, 1 << 14);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) unlink(paths[i]);
    return failed;
}
