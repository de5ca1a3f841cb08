/* test_engine_layer_embd.c: a model as Gemma 4 E2B: an embedding per layer, last layers that read
 * the caches of earlier ones and have wider FFNs, heads of two sizes; against a pass over the whole
 * sequence in double precision, written from the model's own code. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "engine.h"
#include "layer_embd_model.h"
#include "run_model.h"

#define MODEL_PATH TEST_BINARY_DIR "/test_engine_layer_embd.gguf"

enum { N_TOKENS = 29, MAX_WIDTH = 2 * PLE_FF };

static int32_t tokens[N_TOKENS];
static float want[N_TOKENS * PLE_VOCAB], got[N_TOKENS * PLE_VOCAB];
static pi_error err;

static void ok(pi_status status) {
    if (status != PI_OK) fail_msg("%s", err.message);
}

/* ---- the reference --------------------------------------------------------------------------- */

static gguf_file *file;

/* Element i of a tensor. */
static double at(const char *name, int layer, int64_t i) {
    char full[64];
    float x[256];
    if (layer >= 0) snprintf(full, sizeof full, "blk.%d.%s.weight", layer, name);
    if (layer < 0) snprintf(full, sizeof full, "%s.weight", name);
    const gguf_tensor *t = gguf_find_tensor(file, full);
    if (!t) fail_msg("no %s", full);
    const quant_traits *q = quant_find(t->type);
    q->dequantize(t->data + (size_t)(i / q->block_elems) * (size_t)q->block_bytes, x,
                  q->block_elems);
    return (double)x[i % q->block_elems];
}

/* y = W x */
static void times(const char *name, int layer, const double *x, int n_in, int n_out, double *y) {
    for (int r = 0; r < n_out; r++) {
        y[r] = 0;
        for (int k = 0; k < n_in; k++) y[r] += at(name, layer, (int64_t)r * n_in + k) * x[k];
    }
}

/* y may be x; without a name there are no weights. */
static void rms_norm(const char *name, int layer, const double *x, int n, double *y) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += x[i] * x[i];
    for (int i = 0; i < n; i++)
        y[i] = x[i] / sqrt(sum / n + ple_eps) * (name ? at(name, layer, i) : 1);
}

static double gelu(double x) {
    return x / 2 * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
}

static void rotate(int layer, double *head, int position) {
    int half = ple_head_dim(layer) / 2;
    for (int i = 0; i < half; i++) {
        double angle = position /
                       pow(ple_windowed[layer] ? ple_base_window : ple_base_full, (double)i / half);
        if (!ple_windowed[layer]) angle /= at("rope_freqs", -1, i);
        double a = head[i], b = head[i + half];
        head[i] = a * cos(angle) - b * sin(angle);
        head[i + half] = a * sin(angle) + b * cos(angle);
    }
}

/* Normed and rotated heads of a token. */
static void make_heads(const char *name, const char *norm, int layer, const double *x, int n,
                       int position, double *out) {
    int d = ple_head_dim(layer);
    times(name, layer, x, PLE_EMBD, n * d, out);
    for (int h = 0; h < n; h++) {
        rms_norm(norm, layer, out + h * d, d, out + h * d);
        if (norm) rotate(layer, out + h * d, position);
    }
}

static double keys[PLE_OWN][N_TOKENS][PLE_KV_HEADS * PLE_DIM_FULL],
    values[PLE_OWN][N_TOKENS][PLE_KV_HEADS * PLE_DIM_FULL];

/* Scores are not scaled: heads are normed. */
static void attend(int layer, const double *y, int position, double *out) {
    int d = ple_head_dim(layer), own = layer < PLE_OWN ? layer : ple_windowed[layer] ? 1 : 2;
    double q[PLE_HEADS * PLE_DIM_FULL], score[N_TOKENS], seen[PLE_HEADS * PLE_DIM_FULL] = {0};
    if (own == layer) {
        make_heads("attn_k", "attn_k_norm", layer, y, PLE_KV_HEADS, position, keys[own][position]);
        make_heads("attn_v", NULL, layer, y, PLE_KV_HEADS, position, values[own][position]);
    }
    make_heads("attn_q", "attn_q_norm", layer, y, PLE_HEADS, position, q);
    int first = ple_windowed[layer] && position >= PLE_WINDOW ? position - PLE_WINDOW + 1 : 0;
    for (int h = 0; h < PLE_HEADS; h++) {
        double sum = 0;
        int kv = h / (PLE_HEADS / PLE_KV_HEADS) * d;
        for (int p = first; p <= position; p++) {
            score[p] = 0;
            for (int i = 0; i < d; i++) score[p] += q[h * d + i] * keys[own][p][kv + i];
            sum += score[p] = exp(score[p]);
        }
        for (int p = first; p <= position; p++)
            for (int i = 0; i < d; i++) seen[h * d + i] += score[p] / sum * values[own][p][kv + i];
    }
    times("attn_output", layer, seen, PLE_HEADS * d, PLE_EMBD, out);
}

static void add_normed(const char *norm, int layer, const double *y, double *x) {
    double normed[PLE_EMBD];
    rms_norm(norm, layer, y, PLE_EMBD, normed);
    for (int i = 0; i < PLE_EMBD; i++) x[i] += normed[i];
}

/* ple: the layer's vector of the token. */
static void run_layer(int layer, int position, const double *ple, double *x) {
    double y[PLE_EMBD], out[PLE_EMBD], gate[MAX_WIDTH], up[MAX_WIDTH];
    rms_norm("attn_norm", layer, x, PLE_EMBD, y);
    attend(layer, y, position, out);
    add_normed("post_attention_norm", layer, out, x);
    rms_norm("ffn_norm", layer, x, PLE_EMBD, y);
    times("ffn_gate", layer, y, PLE_EMBD, ple_ff(layer), gate);
    times("ffn_up", layer, y, PLE_EMBD, ple_ff(layer), up);
    for (int i = 0; i < ple_ff(layer); i++) gate[i] = gelu(gate[i]) * up[i];
    times("ffn_down", layer, gate, ple_ff(layer), PLE_EMBD, out);
    add_normed("post_ffw_norm", layer, out, x);
    times("inp_gate", layer, x, PLE_EMBD, PLE_WIDTH, gate);
    for (int i = 0; i < PLE_WIDTH; i++) gate[i] = gelu(gate[i]) * ple[i];
    times("proj", layer, gate, PLE_WIDTH, PLE_EMBD, out);
    add_normed("post_norm", layer, out, x);
    for (int i = 0; i < PLE_EMBD; i++) x[i] *= at("layer_output_scale", layer, 0);
}

static void run_token(int position, float *logits) {
    int32_t token = tokens[position];
    double x[PLE_EMBD], y[PLE_EMBD], ple[PLE_LAYERS * PLE_WIDTH], z[PLE_VOCAB];
    for (int i = 0; i < PLE_EMBD; i++)
        x[i] = sqrt(PLE_EMBD) * at("token_embd", -1, token * PLE_EMBD + i);
    times("per_layer_model_proj", -1, x, PLE_EMBD, PLE_LAYERS * PLE_WIDTH, ple);
    for (int i = 0; i < PLE_LAYERS * PLE_WIDTH; i++) ple[i] /= sqrt(PLE_EMBD);
    for (int layer = 0; layer < PLE_LAYERS; layer++) {
        double *part = ple + layer * PLE_WIDTH;
        rms_norm("per_layer_proj_norm", -1, part, PLE_WIDTH, part);
        for (int i = 0; i < PLE_WIDTH; i++) {
            int64_t from = (int64_t)(token * PLE_LAYERS + layer) * PLE_WIDTH + i;
            part[i] = (part[i] + sqrt(PLE_WIDTH) * at("per_layer_token_embd", -1, from)) / sqrt(2);
        }
    }
    for (int layer = 0; layer < PLE_LAYERS; layer++)
        run_layer(layer, position, ple + layer * PLE_WIDTH, x);
    rms_norm("output_norm", -1, x, PLE_EMBD, y);
    times("token_embd", -1, y, PLE_EMBD, PLE_VOCAB, z);
    for (int i = 0; i < PLE_VOCAB; i++) logits[i] = (float)(ple_softcap * tanh(z[i] / ple_softcap));
}

static void compute(quant_type table) {
    ple_write(MODEL_PATH, table, PLE_WIDTH);
    run_random_tokens(3, PLE_VOCAB, tokens, N_TOKENS);
    ok(gguf_open(MODEL_PATH, NULL, &file, &err));
    for (int i = 0; i < N_TOKENS; i++) run_token(i, want + i * PLE_VOCAB);
    gguf_close(file);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void check(const char *what) {
    double nmse = run_nmse(got, want, N_TOKENS * PLE_VOCAB);
    if (!(nmse <= 1e-9)) fail_msg("%s: NMSE %g", what, nmse);
}

/* All kernels, whole, token by token and in pieces; also a table in blocks. */
static void test_logits(void **state) {
    (void)state;
    static const int pieces[] = {0, 1, 5};
    static const quant_type tables[] = {QUANT_F32, QUANT_Q8_0, QUANT_Q5_1};
    for (int t = 0; t < 3; t++) {
        compute(tables[t]);
        for (int k = 0; k < RUN_KERNELS; k++) {
            if (!run_has_kernels(MODEL_PATH, run_kernels[k])) continue;
            pi_context_options o = run_exact_options();
            o.kernels = run_kernels[k];
            o.n_threads = 1 + k % 2;
            run_model r = run_open(MODEL_PATH, &o);
            for (int i = 0; i < 3; i++) {
                run_tokens(&r, tokens, N_TOKENS, pieces[i], got);
                check(quant_find(tables[t])->name);
            }
            run_close(&r);
        }
    }
}

/* A layer by itself, as `prepare` runs it: all of them, then the head's products by hand. */
static void test_layers(void **state) {
    (void)state;
    model *m;
    engine_context *c;
    engine_session *s;
    compute(QUANT_F32);
    ok(model_open(MODEL_PATH, NULL, &m, &err));
    const engine_options o = {.n_threads = 1,
                              .n_batch = N_TOKENS,
                              .type_k = QUANT_F32,
                              .type_v = QUANT_F32,
                              .tier = CPU_TIER_SCALAR};
    ok(engine_context_create(m, &o, &c, &err));
    ok(engine_session_create(c, N_TOKENS, &s, &err));
    float x[N_TOKENS * PLE_EMBD];
    for (int layer = -1; layer < PLE_LAYERS; layer++)
        ok(engine_run_layer(c, s, layer, tokens, x, N_TOKENS, 0, &err));
    ok(gguf_open(MODEL_PATH, NULL, &file, &err));
    for (int i = 0; i < N_TOKENS; i++) {
        double y[PLE_EMBD], z[PLE_VOCAB];
        for (int k = 0; k < PLE_EMBD; k++) y[k] = (double)x[i * PLE_EMBD + k];
        rms_norm("output_norm", -1, y, PLE_EMBD, y);
        times("token_embd", -1, y, PLE_EMBD, PLE_VOCAB, z);
        for (int k = 0; k < PLE_VOCAB; k++)
            got[i * PLE_VOCAB + k] = (float)(ple_softcap * tanh(z[k] / ple_softcap));
    }
    gguf_close(file);
    check("layer by layer");
    engine_session_destroy(s);
    engine_context_destroy(c);
    model_close(m);
}

/* Tensors and key have to agree. */
static void test_keys(void **state) {
    (void)state;
    static const struct {
        int n;
        const char *text;
    } cases[] = {{-1, "wrong shape: "}, {0, "wrong shape: "}, {32, "wrong shape: "}};
    for (int i = 0; i < 3; i++) {
        pi_model *m;
        ple_write(MODEL_PATH, QUANT_F32, cases[i].n);
        pi_model_options options = pi_model_default_options();
        pi_status status = pi_model_open(MODEL_PATH, &options, &m, &err);
        assert_int_equal(status, PI_ERR_FORMAT);
        run_check_message(&err, status);
        if (!strstr(err.message, cases[i].text)) fail_msg("%s", err.message);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logits),
        cmocka_unit_test(test_layers),
        cmocka_unit_test(test_keys),
    };
    int failed = cmocka_run_group_tests_name("engine_layer_embd", tests, NULL, NULL);
    remove(MODEL_PATH);
    return failed;
}
