/* test_api_finite.c: weights that give NaN or infinite values are an error that names the place
 * where these first occur, on the CPU and on the GPU, and no session changes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "gguf.h"
#include "run_model.h"
#include "tiny_model.h"

#define MODEL_PATH TEST_BINARY_DIR "/test_api_finite.gguf"

enum { N_CTX = 48, N = 20, N_VOCAB = 40, ODD_TOKEN = 7 };

#ifdef TEST_HAS_SIM
enum { HAS_SIM = 1 };
#else
enum { HAS_SIM = 0 };
#endif

/* Sanitizers and emulators run every fifth combination, with a different start for every case. */
#ifdef TEST_SAMPLED
enum { EVERY = 5 };
#else
enum { EVERY = 1 };
#endif

static pi_error err;

/* Overwrites one float of a tensor. */
static void put_float(const char *tensor, uint64_t index, float value) {
    gguf_file *file;
    if (gguf_open(MODEL_PATH, NULL, &file, &err)) fail_msg("%s", err.message);
    const gguf_tensor *t = gguf_find_tensor(file, tensor);
    if (!t) fail_msg("no %s", tensor);
    assert_int_equal(t->type, QUANT_F32);
    FILE *f = fopen(MODEL_PATH, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, (long)(t->file_offset + index * sizeof value), SEEK_SET), 0);
    assert_int_equal(fwrite(&value, sizeof value, 1, f), 1);
    assert_int_equal(fclose(f), 0);
    gguf_close(file);
}

/* Sets the scale of the first block of a q8_0 tensor to NaN. */
static void put_nan_scale(const char *tensor) {
    gguf_file *file;
    static const uint8_t nan_half[] = {0x00, 0x7e};
    if (gguf_open(MODEL_PATH, NULL, &file, &err)) fail_msg("%s", err.message);
    const gguf_tensor *t = gguf_find_tensor(file, tensor);
    assert_true(t && t->type == QUANT_Q8_0);
    FILE *f = fopen(MODEL_PATH, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, (long)t->file_offset, SEEK_SET), 0);
    assert_int_equal(fwrite(nan_half, sizeof nan_half, 1, f), 1);
    assert_int_equal(fclose(f), 0);
    gguf_close(file);
}

static const char *device_of(const run_model *r) {
    pi_placement p;
    pi_context_get_placement(r->context, &p);
    return p.device;
}

static void refuse_one(const run_model *r, const pi_input *in, const char *where) {
    int32_t before = pi_session_length(in->session);
    memset(&err, 0, sizeof err);
    pi_status status = pi_forward(r->context, in, 1, &err);
    if (status != PI_ERR_RANGE || !strstr(err.message, where))
        fail_msg("%s, %s: %d tokens: \"%s\" does not say %s", pi_context_kernels(r->context),
                 device_of(r), in->n_tokens, err.message, where);
    run_check_message(&err, PI_ERR_RANGE);
    assert_int_equal(pi_session_length(in->session), before);
    assert_int_equal(pi_logits_rows(r->context), 0);
    assert_int_equal(pi_hidden_rows(r->context), 0);
}

/* Also requests hidden states instead of logits: they are finite where only the output matrix is
 * not. */
static void refuse(const run_model *r, pi_session *s, int n, pi_logits_wanted want,
                   const char *where) {
    static const int32_t ids[N] = {ODD_TOKEN, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13};
    pi_input in = {.session = s, .tokens = ids, .n_tokens = n, .logits = want};
    refuse_one(r, &in, where);
    if (want == PI_LOGITS_NONE || strstr(where, "output matrix")) return;
    in.logits = PI_LOGITS_NONE;
    in.hidden = want == PI_LOGITS_LAST ? PI_HIDDEN_LAST : PI_HIDDEN_ALL;
    refuse_one(r, &in, where);
}

/* One token, several, many. */
static void refuse_all(const pi_context_options *o, const char *where) {
    run_model r = run_open(MODEL_PATH, o);
    pi_session *s = run_session(&r, N_CTX);
    refuse(&r, s, 1, PI_LOGITS_LAST, where);
    refuse(&r, s, 4, PI_LOGITS_ALL, where);
    refuse(&r, s, N, PI_LOGITS_LAST, where);
    pi_session_destroy(s);
    run_close(&r);
}

static pi_context_options options_of(pi_kernels kernels, int gpu_layers) {
    pi_context_options o = run_exact_options();
    o.kernels = kernels;
    o.n_threads = 2;
    o.n_batch = 12; /* some in tiles, some neuron by neuron */
    if (gpu_layers > 0) o.device = PI_DEVICE_SIM;
    o.gpu_layers = gpu_layers;
    o.n_ctx = 2 * N_CTX;
    return o;
}

/* Every choice of kernels, and a GPU with some or all of three layers. */
static void refuse_everywhere(const char *where) {
    static int turn;
    for (int k = 0; k < RUN_KERNELS; k++) {
        if (!run_has_kernels(MODEL_PATH, run_kernels[k]) || turn++ % EVERY) continue;
        pi_context_options o = options_of(run_kernels[k], 0);
        refuse_all(&o, where);
    }
    for (int layers = 2; layers <= 4 && HAS_SIM; layers += 2) { /* the last two; all and the head */
        if (turn++ % EVERY) continue;
        pi_context_options o = options_of(PI_KERNELS_AUTO, layers);
        refuse_all(&o, where);
    }
}

static const struct {
    const char *tensor, *where;
    float value;
} cases[] = {
    {"token_embd.weight", "token embeddings", (float)NAN},
    {"blk.0.attn_norm.weight", "attention of layer 0", (float)NAN},
    {"blk.0.attn_q.weight", "attention of layer 0", (float)NAN},
    {"blk.1.attn_v.weight", "attention of layer 1", (float)INFINITY},
    {"blk.1.attn_output.weight", "attention of layer 1", (float)NAN},
    {"blk.1.ffn_norm.weight", "feed-forward network of layer 1", (float)NAN},
    {"blk.1.ffn_up.weight", "feed-forward network of layer 1", (float)NAN},
    {"blk.2.ffn_down.weight", "feed-forward network of layer 2", -(float)INFINITY},
    {"blk.1.ffn_down.weight", "feed-forward network of layer 1", 1e35f}, /* overflows */
    {"output_norm.weight", "output matrix", (float)NAN},
    {"output.weight", "output matrix", (float)NAN},
};

static void test_tensors(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tiny_model t = tiny_default();
        t.n_layer = 3;
        tiny_write(&t, MODEL_PATH);
        uint64_t row = strcmp(cases[i].tensor, "token_embd.weight") == 0 ? ODD_TOKEN : 0;
        put_float(cases[i].tensor, row * (uint64_t)t.n_embd, cases[i].value);
        refuse_everywhere(cases[i].where);
    }
}

static void test_quantized(void **state) {
    (void)state;
    static const char *const tensors[][2] = {
        {"blk.1.attn_k.weight", "attention of layer 1"},
        {"blk.0.ffn_gate.weight", "feed-forward network of layer 0"},
        {"blk.2.ffn_down.weight", "feed-forward network of layer 2"},
        {"output.weight", "output matrix"}};
    for (size_t i = 0; i < 4; i++) {
        tiny_model t = tiny_default();
        t.type = "q8_0";
        t.n_layer = 3;
        tiny_write(&t, MODEL_PATH);
        put_nan_scale(tensors[i][0]);
        refuse_everywhere(tensors[i][1]);
    }
}

/* Both blocks at once, and neurons one by one. */
static void test_other_layers(void **state) {
    (void)state;
    tiny_model t = tiny_default();
    t.arch = "falcon";
    t.n_layer = 3;
    tiny_write(&t, MODEL_PATH);
    put_float("blk.1.attn_output.weight", 3, NAN);
    refuse_everywhere("in the layer 1");
    t = tiny_default();
    t.arch = "bamboo";
    t.n_layer = 3;
    t.sparse.down_t = true;
    tiny_write(&t, MODEL_PATH);
    for (int neuron = 0; neuron < t.n_ff[1]; neuron++)
        put_float("blk.1.ffn_down_t.weight", (uint64_t)(neuron * t.n_embd), NAN);
    refuse_everywhere("feed-forward network of layer 1");
    tiny_write(&t, MODEL_PATH); /* ReLU of NaN is not zero */
    put_float("blk.1.ffn_gate.weight", 0, NAN);
    refuse_everywhere("feed-forward network of layer 1");
}

/* One bad token changes neither other tokens nor sessions. */
static void test_goes_on(void **state) {
    (void)state;
    static const int32_t ids[] = {1, 2, 3, 4, 5, 6};
    for (int gpu_layers = 0; gpu_layers <= 3 * HAS_SIM; gpu_layers += 3) {
        tiny_model t = tiny_default();
        t.n_layer = 3;
        tiny_write(&t, MODEL_PATH);
        pi_context_options o = options_of(PI_KERNELS_SCALAR, gpu_layers);
        float want[6 * N_VOCAB], got[6 * N_VOCAB];
        run_model r = run_open(MODEL_PATH, &o);
        run_tokens(&r, ids, 6, 3, want);
        run_close(&r);
        put_float("token_embd.weight", ODD_TOKEN * (uint64_t)t.n_embd, NAN);
        r = run_open(MODEL_PATH, &o);
        const char *device = device_of(&r);
        pi_session *s = run_session(&r, N_CTX);
        run_feed(&r, s, ids, 3, 0, got);
        refuse(&r, s, 2, PI_LOGITS_NONE, "token embeddings");
        run_feed(&r, s, ids + 3, 3, 0, got + 3 * N_VOCAB);
        assert_memory_equal(got, want, sizeof want);
        /* A bad model does not count as a failure of the GPU. */
        assert_string_equal(device_of(&r), device);
        pi_session_destroy(s);
        run_close(&r);
    }
}

/* A model may forbid a token by a bias of -infinity. */
static void test_forbidden_token(void **state) {
    (void)state;
    tiny_model t = tiny_default();
    t.arch = "qwen2";
    t.qkv_bias = t.head_bias = true;
    tiny_write(&t, MODEL_PATH);
    put_float("output.bias", 3, -(float)INFINITY);
    pi_context_options o = options_of(PI_KERNELS_SCALAR, 0);
    run_model r = run_open(MODEL_PATH, &o);
    int32_t id = 1;
    float logits[N_VOCAB];
    run_tokens(&r, &id, 1, 0, logits);
    assert_true(isinf(logits[3]) && logits[3] < 0);
    put_float("output.bias", 3, (float)INFINITY);
    run_close(&r);
    refuse_all(&o, "output matrix");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensors),         cmocka_unit_test(test_quantized),
        cmocka_unit_test(test_other_layers),    cmocka_unit_test(test_goes_on),
        cmocka_unit_test(test_forbidden_token),
    };
    return cmocka_run_group_tests_name("api_finite", tests, NULL, NULL);
}
