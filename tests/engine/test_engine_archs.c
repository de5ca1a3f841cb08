/* test_engine_archs.c: architectures that differ from llama: norms with means and biases, attention
 * and FFN blocks in parallel, one matrix for Q, K and V, learned positions, no gate. The models are
 * plain, prepared and files of the original PowerInfer, and are compared with a plain pass in
 * double precision under all kernels. Bounds as in test_engine_forward.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gguf_writer.h"
#include "plain_forward.h"
#include "run_model.h"
#include "tiny_model.h"

#define OTHER_PATH TEST_BINARY_DIR "/test_engine_archs_other.gguf"
#define MODEL_PATH TEST_BINARY_DIR "/test_engine_archs.gguf"

#ifdef TEST_SAMPLED
enum { N_TOKENS = 19, N_WAYS = 3, MAX_VOCAB = 64 };
#else
enum { N_TOKENS = 37, N_WAYS = 4, MAX_VOCAB = 64 };
#endif

static int32_t tokens[N_TOKENS];
static double exact[N_TOKENS * MAX_VOCAB];
static float want[N_TOKENS * MAX_VOCAB], got[N_TOKENS * MAX_VOCAB];

/* Every way of feeding the tokens to one mode gives the plain pass's logits. */
static void check(const char *what, const tiny_model *t, pi_mode mode, plain_mode plain) {
    static const int pieces[] = {0, 1, 5, 20}; /* the first N_WAYS */
    int64_t n = (int64_t)N_TOKENS * t->n_vocab;
    assert_true(t->n_vocab <= MAX_VOCAB);
    tiny_write(t, MODEL_PATH);
    run_random_tokens(t->seed, t->n_vocab, tokens, N_TOKENS);
    plain_forward(t, MODEL_PATH, plain, tokens, N_TOKENS, exact);
    for (int64_t i = 0; i < n; i++) want[i] = (float)exact[i];
    for (int k = 0; k < RUN_KERNELS; k++) {
        if (!run_has_kernels(MODEL_PATH, run_kernels[k])) continue;
        pi_context_options o = run_exact_options();
        o.kernels = run_kernels[k];
        o.mode = mode;
        run_model r = run_open(MODEL_PATH, &o);
        for (int i = 0; i < N_WAYS; i++) {
            run_tokens(&r, tokens, N_TOKENS, pieces[i], got);
            double nmse = run_nmse(got, want, n);
            if (!(nmse <= plain_gate(t, run_kernels[k])))
                fail_msg("%s, %s, mode %d, pieces of %d: NMSE %g is above %g", what,
                         pi_context_kernels(r.context), (int)mode, pieces[i], nmse,
                         plain_gate(t, run_kernels[k]));
        }
        run_close(&r);
    }
}

static tiny_model base_model(const char *arch) {
    tiny_model t = tiny_default();
    t.arch = arch;
    t.n_embd = 64;
    t.head_dim = t.n_rot = 16;
    t.n_ff[0] = 320;
    t.n_ff[1] = 96;
    if (strcmp(arch, "opt") == 0) {
        t.qkv_bias = t.out_bias = t.ffn_bias = t.tied = true;
        t.n_pos = 64;
    }
    return t;
}

/* As the original's converter writes the file: rows per neuron, a predictor that reads the residual
 * stream. */
static tiny_model pwri_model(const char *arch) {
    tiny_model t = base_model(arch);
    t.sparse = (tiny_sparse){.pwri = true,
                             .down_t = true,
                             .predictor = "relu_mlp",
                             .residual = true,
                             .no_bias = true,
                             .rank = 32,
                             .threshold = 0.125f};
    return t;
}

/* All forms of one architecture. `exact_zeros`: the ordinary GGUF file has an activation that gives
 * exact zeros. */
static void check_forms(const tiny_model *t, bool exact_zeros) {
    check(t->arch, t, PI_MODE_DENSE, PLAIN_DENSE);
    check(t->arch, t, PI_MODE_AUTO, PLAIN_DENSE);
    tiny_model prepared = *t;
    prepared.sparse.down_t = true;
    prepared.sparse.predictor = exact_zeros ? "lowrank" : NULL;
    prepared.sparse.rank = 32;
    check("prepared", &prepared, PI_MODE_DENSE, PLAIN_DENSE);
    if (exact_zeros) check("prepared", &prepared, PI_MODE_EXACT, PLAIN_DENSE);
    if (exact_zeros) check("prepared", &prepared, PI_MODE_PREDICT, PLAIN_PREDICT);
    prepared.sparse.residual = true;
    if (exact_zeros) check("residual", &prepared, PI_MODE_PREDICT, PLAIN_PREDICT);
}

static void check_pwri(const tiny_model *t) {
    tiny_model m = *t;
    check("pwri", &m, PI_MODE_DENSE, PLAIN_DENSE);
    check("pwri", &m, PI_MODE_EXACT, PLAIN_DENSE);
    check("pwri", &m, PI_MODE_PREDICT, PLAIN_PREDICT);
    check("pwri", &m, PI_MODE_AUTO, PLAIN_PREDICT);
    m.type = "f16";
    m.vector_type = "f16";
    check("pwri f16", &m, PI_MODE_PREDICT, PLAIN_PREDICT);
    m.type = "q4_0";
    m.vector_type = "f32";
    check("pwri q4_0", &m, PI_MODE_DENSE, PLAIN_DENSE);
    check("pwri q4_0", &m, PI_MODE_EXACT, PLAIN_DENSE);
    m.head_type = "q8_0";
    check("pwri q4_0, q8_0", &m, PI_MODE_EXACT, PLAIN_DENSE);
    m.n_embd = 256;
    m.head_dim = m.n_rot = 64;
    m.head_type = "q6_k";
    check("pwri q4_0, q6_k", &m, PI_MODE_EXACT, PLAIN_DENSE);
}

static void test_falcon(void **state) {
    (void)state;
    tiny_model t = base_model("falcon");
    t.two_norms = true;
    check_forms(&t, false);
    t.scales = true;
    check("scales", &t, PI_MODE_DENSE, PLAIN_DENSE);
    t.scales = false;
    t.two_norms = false;
    tiny_set_heads(&t, 4, 1);
    check("one KV head, one norm", &t, PI_MODE_DENSE, PLAIN_DENSE);
    t.activation = "relu";
    check_forms(&t, true);
}

static void test_falcon_pwri(void **state) {
    (void)state;
    tiny_model t = pwri_model("falcon");
    t.two_norms = true;
    check_pwri(&t);
    t.two_norms = false;
    tiny_set_heads(&t, 4, 1);
    check_pwri(&t);
}

/* Values shorter than keys; layers with different numbers of KV heads. */
static void test_uneven_heads(void **state) {
    (void)state;
    static const char *const types[] = {"f32", "f16", "q8_0"};
    for (int i = 0; i < 3; i++) {
        tiny_model t = base_model("mimo2");
        t.type = types[i];
        t.head_dim = 48;
        t.n_rot = 16;
        t.v_dim = 32;
        t.n_head_kv[0] = i == 1 ? 4 : 1;
        check("uneven", &t, PI_MODE_DENSE, PLAIN_DENSE);
    }
}

/* xIELU, whose numbers differ by layer. */
static void test_apertus(void **state) {
    (void)state;
    static const char *const types[] = {"f32", "q8_0"};
    for (int i = 0; i < 2; i++) {
        tiny_model t = base_model("apertus");
        t.type = types[i];
        t.qkv_bias = t.out_bias = t.rope_freqs = i == 1;
        check("apertus", &t, PI_MODE_DENSE, PLAIN_DENSE);
        check("apertus", &t, PI_MODE_AUTO, PLAIN_DENSE);
    }
}

/* ---- step35 ---------------------------------------------------------------------------------- */

/* Writes OTHER_PATH: the model of MODEL_PATH as step35. `windowed`: all layers have a window, which
 * is longer than the text, and rotate as many elements as the model does; otherwise the key has
 * twice their number. All gates are sigmoid(0), for which attention's output is doubled, and the
 * limits of hidden values are never reached. */
static void write_step35(const tiny_model *t, bool windowed) {
    enum { WINDOW = 64 };
    const uint32_t pattern[TINY_MAX_LAYERS] = {windowed, windowed, windowed, windowed};
    const float limits[TINY_MAX_LAYERS] = {1e9f, 1e9f, 1e9f, 1e9f};
    const size_t prefix = strlen(t->arch);
    gguf_file *g;
    gguf_writer *w;
    pi_error err;
    if (gguf_open(MODEL_PATH, NULL, &g, &err)) fail_msg("%s", err.message);
    if (gguf_writer_create(OTHER_PATH, &w, &err)) fail_msg("%s", err.message);
    gguf_put_string(w, "general.architecture", "step35");
    for (uint64_t i = 0; i < gguf_n_values(g); i++) {
        gguf_value v = *gguf_value_at(g, i);
        char key[96];
        if (gguf_string_is(v.key, "general.architecture")) continue;
        if (v.key.n_bytes > prefix && memcmp(v.key.data, t->arch, prefix) == 0) {
            snprintf(key, sizeof key, "step35%.*s", (int)(v.key.n_bytes - prefix),
                     v.key.data + prefix);
            if (strcmp(key, "step35.rope.dimension_count") == 0) continue;
            v.key = (gguf_string){key, strlen(key)};
        }
        gguf_put_value(w, &v);
    }
    gguf_put_u32(w, "step35.rope.dimension_count", (uint32_t)(2 * t->n_rot));
    if (windowed) gguf_put_u32(w, "step35.rope.dimension_count_swa", (uint32_t)t->n_rot);
    gguf_put_u32(w, "step35.attention.sliding_window", WINDOW);
    gguf_put_array(w, "step35.attention.sliding_window_pattern", GGUF_U32, pattern,
                   (uint64_t)t->n_layer);
    gguf_put_array(w, "step35.swiglu_clamp_exp", GGUF_F32, limits, (uint64_t)t->n_layer);
    gguf_put_array(w, "step35.swiglu_clamp_shexp", GGUF_F32, limits, (uint64_t)t->n_layer);
    static const float zeros[64 * 8];
    for (int data = 0; data < 2; data++) {
        for (uint64_t i = 0; i < gguf_n_tensors(g); i++) {
            const gguf_tensor *x = gguf_tensor_at(g, i);
            if (!data && gguf_add_tensor(w, x->name, x->type, x->n_dims, x->dims, &err))
                fail_msg("%s", err.message);
            float *values = malloc(x->n_bytes);
            assert_non_null(values);
            memcpy(values, x->data, x->n_bytes);
            for (uint64_t k = 0; k < x->n_elems && strstr(x->name, "attn_output"); k++)
                values[k] *= 2;
            if (data && gguf_write_data(w, values, x->n_bytes, &err)) fail_msg("%s", err.message);
            free(values);
        }
        for (int i = 0; i < t->n_layer; i++) {
            const uint64_t dims[] = {(uint64_t)t->n_embd, (uint64_t)t->n_head[i]};
            char name[64];
            size_t n_bytes = (size_t)(dims[0] * dims[1]) * sizeof *zeros;
            assert_true(n_bytes <= sizeof zeros);
            snprintf(name, sizeof name, "blk.%d.attn_gate.weight", i);
            if (data ? gguf_write_data(w, zeros, n_bytes, &err)
                     : gguf_add_tensor(w, name, QUANT_F32, 2, dims, &err))
                fail_msg("%s", err.message);
        }
        if (!data && gguf_writer_begin_data(w, &err)) fail_msg("%s", err.message);
    }
    if (gguf_writer_finish(w, &err)) fail_msg("%s", err.message);
    gguf_close(g);
}

/* A model of another architecture with the same experts, written as step35. Layers have different
 * numbers of heads. */
static void test_step35(void **state) {
    (void)state;
    tiny_model t = base_model("bailingmoe2");
    const int64_t n = (int64_t)N_TOKENS * t.n_vocab;
    t.n_rot = 8;
    t.n_head[1] = 6;
    t.n_head_kv[1] = 3;
    t.experts = (tiny_experts){
        .n = 4, .n_used = 2, .n_ff = 32, .n_dense = 1, .n_ff_shared = 16, .select_bias = true};
    tiny_write(&t, MODEL_PATH);
    run_random_tokens(t.seed, t.n_vocab, tokens, N_TOKENS);
    pi_context_options o = run_exact_options();
    run_model r = run_open(MODEL_PATH, &o);
    run_tokens(&r, tokens, N_TOKENS, 0, want);
    run_close(&r);
    for (int windowed = 0; windowed < 2; windowed++) {
        write_step35(&t, windowed);
        r = run_open(OTHER_PATH, &o);
        run_tokens(&r, tokens, N_TOKENS, 5, got);
        double nmse = run_nmse(got, want, n);
        if (!(nmse <= 1e-10)) fail_msg("windowed %d: NMSE %g", windowed, nmse);
        run_close(&r);
    }
}

static void test_opt(void **state) {
    (void)state;
    tiny_model t = base_model("opt");
    check_forms(&t, true);
    t.tied = false;
    check("separate head", &t, PI_MODE_DENSE, PLAIN_DENSE);
    t = pwri_model("opt");
    check_pwri(&t);
}

static void test_bamboo(void **state) {
    (void)state;
    tiny_model t = base_model("bamboo");
    check_forms(&t, true);
    t = pwri_model("bamboo");
    t.freq_base = 50000;
    check_pwri(&t);
}

static void test_llama_pwri(void **state) {
    (void)state;
    tiny_model t = pwri_model("llama");
    check_pwri(&t);
}

/* Learned positions end: creating a session that could pass the end is refused. */
static void test_positions_end(void **state) {
    (void)state;
    tiny_model t = base_model("opt");
    t.n_pos = 40;
    tiny_write(&t, MODEL_PATH);
    pi_context_options o = run_exact_options();
    run_model r = run_open(MODEL_PATH, &o);
    pi_model_info info;
    pi_model_get_info(r.model, &info);
    assert_int_equal(info.n_ctx_train, 40); /* the key says 256 */
    pi_session *s;
    pi_error err;
    pi_status status = pi_session_create(r.context, 41, &s, &err);
    assert_int_equal(status, PI_ERR_LIMIT);
    run_check_message(&err, status);
    assert_non_null(strstr(err.message, "41 tokens"));
    assert_non_null(strstr(err.message, "has 40 learned positions"));
    assert_null(s);
    s = run_session(&r, 40);
    run_random_tokens(3, t.n_vocab, tokens, N_TOKENS);
    run_feed(&r, s, tokens, N_TOKENS, 0, got);
    pi_session_destroy(s);
    run_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_falcon),        cmocka_unit_test(test_falcon_pwri),
        cmocka_unit_test(test_opt),           cmocka_unit_test(test_uneven_heads),
        cmocka_unit_test(test_bamboo),        cmocka_unit_test(test_llama_pwri),
        cmocka_unit_test(test_positions_end), cmocka_unit_test(test_apertus),
        cmocka_unit_test(test_step35),
    };
    return cmocka_run_group_tests_name("engine_archs", tests, NULL, NULL);
}
