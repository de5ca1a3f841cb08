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
    o.predictor = "none";
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

/* ---- predictors within experts --------------------------------------------------------------- */

enum { N_FF = 64, N_EMBD = 64, N_RARE = 256 /* experts with fewer training tokens get no fit */ };

/* Predictors of the named kind; the experts of a random router are used unevenly. */
static tiny_model predicted_model(const char *arch) {
    tiny_model t = base_model(arch, "f16");
    if (strcmp(arch, "llama") == 0) t.activation = "relu";
    return t;
}

/* The experts' biases: 1e30, which selects all neurons, exactly for experts with few tokens.
 * Returns the number of these experts. */
static int count_rare(const gguf_file *f, int layer, int n_train) {
    const gguf_tensor *bias = layer_tensor(f, layer, "fc2_exps.bias");
    const gguf_tensor *freq = layer_tensor(f, layer, "ffn_freq");
    assert_true(bias && bias->n_dims == 2 && bias->dims[0] == N_FF && bias->dims[1] == N_EXPERT);
    const float *b = (const float *)(const void *)bias->data;
    const float *share = (const float *)(const void *)freq->data;
    int n_rare = 0;
    for (int e = 0; e < N_EXPERT; e++) {
        int n_open = 0;
        for (int i = 0; i < N_FF; i++) n_open += b[e * N_FF + i] == 1e30f;
        assert_true(n_open == 0 || n_open == N_FF);
        n_rare += n_open == N_FF;
        float tokens = share[e] * (float)n_train; /* held-out tokens may choose others */
        if (tokens > 1.2f * N_RARE) assert_int_equal(n_open, 0);
        if (tokens < 0.8f * N_RARE) assert_int_equal(n_open, N_FF);
    }
    return n_rare;
}

static void expect_tensors(const gguf_file *f, int layer, const pi_prepare_layer *found) {
    const gguf_tensor *fc1 = layer_tensor(f, layer, "fc1_exps.weight");
    const gguf_tensor *fc2 = layer_tensor(f, layer, "fc2_exps.weight");
    const gguf_tensor *sign = layer_tensor(f, layer, "ffn_sign_exps");
    if (strcmp(found->kind, "sign") == 0) {
        assert_true(!fc1 && !fc2 && sign);
        assert_true(sign->dims[0] == N_EMBD / 8 && sign->dims[1] == N_FF);
        assert_int_equal(sign->dims[2], N_EXPERT);
        return;
    }
    assert_true(fc1 && fc2 && !sign && found->rank > 0);
    assert_true(fc1->dims[0] == N_EMBD && fc1->dims[1] == (uint64_t)found->rank);
    assert_true(fc2->dims[0] == (uint64_t)found->rank && fc2->dims[1] == N_FF);
    assert_true(fc1->dims[2] == N_EXPERT && fc2->dims[2] == N_EXPERT);
}

/* The signs of an expert are those of its gate in the output. */
static void expect_signs(const gguf_file *f, int layer) {
    const gguf_tensor *sign = layer_tensor(f, layer, "ffn_sign_exps");
    const gguf_tensor *gate = layer_tensor(f, layer, "ffn_gate_exps.weight");
    const gguf_tensor *bias = layer_tensor(f, layer, "fc2_exps.bias");
    const float *b = (const float *)(const void *)bias->data;
    float x[N_EMBD];
    for (uint64_t r = 0; r < N_EXPERT * N_FF; r++) {
        if (b[r] == 1e30f) continue;
        quant_find((uint32_t)gate->type)
            ->dequantize(gate->data + r * (gate->n_bytes / N_EXPERT / N_FF), x, N_EMBD);
        for (uint64_t k = 0; k < N_EMBD; k++)
            assert_int_equal(sign->data[r * (N_EMBD / 8) + k / 8] >> (k % 8) & 1, x[k] > 0);
    }
}

static void check_predictors(const tiny_model *t, const char *kind) {
    const double slack = 0.01;
    prepare_notes notes;
    pi_prepare_options o = files_options(TEXT_PATH, &notes);
    o.predictor = kind;
    o.recall = 0.95;
    o.max_loss = 1e6;
    tiny_write(t, IN_PATH);
    pi_prepare_result r = files_prepare(IN_PATH, OUT_PATH, &o);
    int n_train = (int)(r.tokens - r.held_out), n_rare = 0;
    assert_string_equal(r.mode, "predict");
    assert_true(r.predictor_bytes > 0 && r.kl > 0);
    gguf_file *out = files_open(OUT_PATH);
    for (int l = 0; l < t->n_layer; l++) {
        const pi_prepare_layer *found = &notes.layers[l];
        assert_string_equal(found->kind, kind);
        assert_true(found->contribution_recall >= o.recall - slack);
        assert_true(found->selected > found->density * 0.8 && found->selected < 1);
        expect_tensors(out, l, found);
        n_rare += count_rare(out, l, n_train);
        if (strcmp(kind, "sign") == 0) expect_signs(out, l);
    }
    gguf_close(out);
    assert_true(n_rare > 0 && n_rare < t->n_layer * N_EXPERT);
    /* the mode leaves out neurons, and the others are those of the source */
    double lost = files_distance(OUT_PATH, PI_MODE_PREDICT, 0, IN_PATH);
    assert_true(lost > 1e-9 && lost < 0.1);
    assert_true(files_distance(OUT_PATH, PI_MODE_EXACT, 0, IN_PATH) < 1e-9);
    for (int piece = 1; piece < 12; piece += 5)
        assert_true(files_distance_of(OUT_PATH, PI_MODE_PREDICT, piece, OUT_PATH, PI_MODE_PREDICT) <
                    1e-6);
    o.n_threads = 1;
    files_prepare(IN_PATH, AGAIN_PATH, &o);
    files_same(OUT_PATH, AGAIN_PATH); /* for any number of threads */
    files_undo(OUT_PATH, BACK_PATH);
    files_same(IN_PATH, BACK_PATH);
    /* bundles keep the predictors */
    pi_prepare_options bundle = pi_prepare_default_options();
    bundle.bundles = PI_BUNDLES_ALL;
    bundle.rearrange = true;
    files_prepare(OUT_PATH, AGAIN_PATH, &bundle);
    for (int piece = 0; piece < 4; piece += 3)
        assert_true(
            files_distance_of(AGAIN_PATH, PI_MODE_PREDICT, piece, OUT_PATH, PI_MODE_PREDICT) ==
            files_distance_of(OUT_PATH, PI_MODE_PREDICT, piece, OUT_PATH, PI_MODE_PREDICT));
    files_undo(AGAIN_PATH, BACK_PATH);
    files_same(IN_PATH, BACK_PATH);
}

static void test_predictors(void **state) {
    (void)state;
    static const char *const kinds[] = {"sign", "lowrank", "relu_mlp"};
    for (int i = 0; i < 3; i++) {
        tiny_model t = predicted_model(i == 1 ? "smallthinker" : "llama");
        t.experts.biased = i == 2;
        check_predictors(&t, kinds[i]);
    }
}

/* quantize keeps the predictors; the loss is no longer known. */
static void test_quantized(void **state) {
    (void)state;
    prepare_notes notes;
    pi_error err;
    pi_prepare_options o = files_options(TEXT_PATH, &notes);
    pi_quantize_options q = pi_quantize_default_options();
    tiny_model t = predicted_model("llama");
    o.predictor = "lowrank";
    tiny_write(&t, IN_PATH);
    files_prepare(IN_PATH, OUT_PATH, &o);
    q.type = "q8_0";
    q.allow_requantize = true; /* predictors are Q4_0 */
    if (pi_quantize(OUT_PATH, AGAIN_PATH, &q, NULL, &err) != PI_OK) fail_msg("%s", err.message);
    assert_true(files_distance_of(AGAIN_PATH, PI_MODE_PREDICT, 1, OUT_PATH, PI_MODE_PREDICT) <
                0.05);
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
        cmocka_unit_test(test_plain),     cmocka_unit_test(test_groups),
        cmocka_unit_test(test_zeros),     cmocka_unit_test(test_predictors),
        cmocka_unit_test(test_quantized), cmocka_unit_test(test_no_predictor),
    };
    files_write_text(TEXT_PATH, 1 << 14);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) unlink(paths[i]);
    return failed;
}
