/* test_engine_layer_embd.c: a model like Gemma 4 E2B: an embedding per layer, last layers that read
 * the caches of earlier ones and have wider FFNs, heads of two sizes; and one like Gemma 3n:
 * several residual streams, a low-rank branch, a cutoff for neurons. Both are compared with passes
 * over the whole sequence in double precision, written from the models' original code. */
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
#include "powerinfer_memory.h"
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

/* y may be x; name NULL: no weights. */
static void rms_norm(const char *name, int layer, const double *x, int n, double *y) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += x[i] * x[i];
    for (int i = 0; i < n; i++)
        y[i] = x[i] / sqrt(sum / n + ple_eps) * (name ? at(name, layer, i) : 1);
}

static double gelu(double x) {
    return x / 2 * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
}

static bool streams; /* the model with several streams */

static int head_dim(int layer) {
    return streams ? PLE_DIM_FULL : ple_head_dim(layer);
}

static void rotate(int layer, double *head, int position) {
    int half = head_dim(layer) / 2;
    for (int i = 0; i < half; i++) {
        double angle = position /
                       pow(ple_windowed[layer] ? ple_base_window : ple_base_full, (double)i / half);
        if (!ple_windowed[layer] && !streams) angle /= at("rope_freqs", -1, i);
        double a = head[i], b = head[i + half];
        head[i] = a * cos(angle) - b * sin(angle);
        head[i + half] = a * sin(angle) + b * cos(angle);
    }
}

/* Normed and rotated heads of a token. */
static void make_heads(const char *name, const char *norm, int layer, const double *x, int n,
                       int position, double *out) {
    int d = head_dim(layer);
    times(name, layer, x, PLE_EMBD, n * d, out);
    for (int h = 0; h < n; h++) {
        rms_norm(norm, layer, out + h * d, d, out + h * d);
        if (norm) rotate(layer, out + h * d, position);
    }
}

static double keys[PLE_OWN][N_TOKENS][PLE_KV_HEADS * PLE_DIM_FULL],
    values[PLE_OWN][N_TOKENS][PLE_KV_HEADS * PLE_DIM_FULL];

/* Scores are not scaled, since heads are normed. */
static void attend(int layer, const double *y, int position, double *out) {
    int d = head_dim(layer), own = layer < PLE_OWN ? layer : ple_windowed[layer] ? 1 : 2;
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

/* A token's embedding, and its embeddings for all layers. */
static void embed(int32_t token, double *x, double *ple) {
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
}

static void run_head(const double *x, double softcap, float *logits) {
    double y[PLE_EMBD], z[PLE_VOCAB];
    rms_norm("output_norm", -1, x, PLE_EMBD, y);
    times("token_embd", -1, y, PLE_EMBD, PLE_VOCAB, z);
    for (int i = 0; i < PLE_VOCAB; i++) logits[i] = (float)(softcap * tanh(z[i] / softcap));
}

/* ---- several residual streams ---------------------------------------------------------------- */

typedef double stream[PLE_EMBD];

static void route(int layer, const double *x, double r[PLE_STREAMS]) {
    double y[PLE_EMBD];
    rms_norm("altup_router_norm", layer, x, PLE_EMBD, y);
    times("altup_router", layer, y, PLE_EMBD, PLE_STREAMS, r);
    for (int k = 0; k < PLE_STREAMS; k++) r[k] = tanh(r[k] / PLE_EMBD);
}

/* x, rescaled to the norm of `as`. */
static void level(const double *as, double *x) {
    double length = 0, is = 0;
    for (int i = 0; i < PLE_EMBD; i++) length += as[i] * as[i] / PLE_EMBD;
    for (int i = 0; i < PLE_EMBD; i++) is += x[i] * x[i] / PLE_EMBD;
    for (int i = 0; i < PLE_EMBD; i++) x[i] *= sqrt(length / fmax(is, 1e-5));
}

/* One matrix of a stack. */
static void times_item(const char *name, int item, const double *x, double *y) {
    for (int r = 0; r < PLE_EMBD; r++) {
        y[r] = 0;
        for (int k = 0; k < PLE_EMBD; k++)
            y[r] += at(name, -1, ((int64_t)item * PLE_EMBD + r) * PLE_EMBD + k) * x[k];
    }
}

static void cut_off(double deviations, double *gate) {
    double mean = 0, variance = 0;
    for (int i = 0; i < PLE_FF; i++) mean += gate[i] / PLE_FF;
    for (int i = 0; i < PLE_FF; i++) variance += (gate[i] - mean) * (gate[i] - mean) / PLE_FF;
    for (int i = 0; i < PLE_FF; i++)
        gate[i] = fmax(0, gate[i] - (mean + deviations * sqrt(variance)));
}

/* Stream 0, through a layer. */
static void run_first(int layer, int position, double *x) {
    double y[PLE_EMBD], out[PLE_EMBD], low[PLE_RANK], gate[PLE_FF], up[PLE_FF];
    rms_norm("attn_norm", layer, x, PLE_EMBD, y);
    attend(layer, y, position, out);
    add_normed("post_attention_norm", layer, out, x);
    times("laurel_l", layer, y, PLE_EMBD, PLE_RANK, low);
    times("laurel_r", layer, low, PLE_RANK, PLE_EMBD, out);
    add_normed("laurel_post_norm", layer, out, y);
    for (int i = 0; i < PLE_EMBD; i++) x[i] = (x[i] + y[i]) / sqrt(2);
    rms_norm("ffn_norm", layer, x, PLE_EMBD, y);
    times("ffn_gate", layer, y, PLE_EMBD, PLE_FF, gate);
    times("ffn_up", layer, y, PLE_EMBD, PLE_FF, up);
    if (isfinite(ple_cutoffs[layer])) cut_off(ple_cutoffs[layer], gate);
    for (int i = 0; i < PLE_FF; i++) gate[i] = gelu(gate[i]) * up[i];
    times("ffn_down", layer, gate, PLE_FF, PLE_EMBD, out);
    add_normed("post_ffw_norm", layer, out, x);
}

static void run_streams(int layer, int position, const double *ple, stream *x) {
    double r[PLE_STREAMS], w[PLE_STREAMS * PLE_STREAMS], gate[PLE_WIDTH], out[PLE_EMBD];
    stream p[PLE_STREAMS], first;
    route(layer, x[0], r);
    times("altup_predict_coef", layer, r, PLE_STREAMS, PLE_STREAMS * PLE_STREAMS, w);
    for (int a = 0; a < PLE_STREAMS; a++)
        for (int i = 0; i < PLE_EMBD; i++) {
            p[a][i] = x[a][i];
            for (int b = 0; b < PLE_STREAMS; b++) p[a][i] += w[a * PLE_STREAMS + b] * x[b][i];
        }
    memcpy(first, p[0], sizeof first);
    run_first(layer, position, first);
    route(layer, first, r);
    times("altup_correct_coef", layer, r, PLE_STREAMS, PLE_STREAMS, w);
    for (int a = 0; a < PLE_STREAMS; a++)
        for (int i = 0; i < PLE_EMBD; i++) x[a][i] = p[a][i] + (1 + w[a]) * (first[i] - p[0][i]);
    for (int i = 0; i < PLE_EMBD; i++) first[i] = x[0][i] * at("altup_correct_scale", layer, i);
    times("inp_gate", layer, first, PLE_EMBD, PLE_WIDTH, gate);
    for (int i = 0; i < PLE_WIDTH; i++) gate[i] = gelu(gate[i]) * ple[i];
    times("proj", layer, gate, PLE_WIDTH, PLE_EMBD, out);
    for (int a = 1; a < PLE_STREAMS; a++) add_normed("post_norm", layer, out, x[a]);
}

static void run_token_streams(int position, float *logits) {
    double ple[PLE_LAYERS * PLE_WIDTH];
    stream x[PLE_STREAMS], sum;
    embed(tokens[position], x[0], ple);
    for (int a = 1; a < PLE_STREAMS; a++) times_item("altup_proj", a - 1, x[0], x[a]);
    for (int a = 1; a < PLE_STREAMS; a++) level(x[0], x[a]);
    for (int layer = 0; layer < PLE_LAYERS; layer++)
        run_streams(layer, position, ple + layer * PLE_WIDTH, x);
    memcpy(sum, x[0], sizeof sum);
    for (int a = 1; a < PLE_STREAMS; a++) {
        stream back;
        times_item("altup_unembd_proj", a - 1, x[a], back);
        level(x[0], back);
        for (int i = 0; i < PLE_EMBD; i++) sum[i] += back[i];
    }
    for (int i = 0; i < PLE_EMBD; i++) sum[i] /= PLE_STREAMS;
    run_head(sum, 30, logits);
}

/* ---------------------------------------------------------------------------------------------- */

static void run_token(int position, float *logits) {
    double x[PLE_EMBD], ple[PLE_LAYERS * PLE_WIDTH];
    embed(tokens[position], x, ple);
    for (int layer = 0; layer < PLE_LAYERS; layer++)
        run_layer(layer, position, ple + layer * PLE_WIDTH, x);
    run_head(x, ple_softcap, logits);
}

static void compute(quant_type table) {
    if (streams)
        ple_write_streams(MODEL_PATH, table, 0);
    else
        ple_write(MODEL_PATH, table, PLE_WIDTH);
    run_random_tokens(3, PLE_VOCAB, tokens, N_TOKENS);
    ok(gguf_open(MODEL_PATH, NULL, &file, &err));
    for (int i = 0; i < N_TOKENS; i++)
        (streams ? run_token_streams : run_token)(i, want + i * PLE_VOCAB);
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

/* Several streams in these ways; `exact` leaves out rows of up, `dense` does not. */
static void test_streams(void **state) {
    (void)state;
    static const int pieces[] = {0, 1, 5};
    static const pi_mode modes[] = {PI_MODE_AUTO, PI_MODE_EXACT, PI_MODE_DENSE};
    streams = true;
    compute(QUANT_Q8_0);
    for (int k = 0; k < RUN_KERNELS; k++) {
        if (!run_has_kernels(MODEL_PATH, run_kernels[k])) continue;
        for (int mode = 0; mode < 3; mode++) {
            pi_context_options o = run_exact_options();
            o.kernels = run_kernels[k];
            o.mode = modes[mode];
            o.n_threads = 1 + (k + mode) % 2;
            run_model r = run_open(MODEL_PATH, &o);
            for (int i = 0; i < 3; i++) {
                run_tokens(&r, tokens, N_TOKENS, pieces[i], got);
                check("streams");
            }
            run_close(&r);
        }
    }
    streams = false;
}

/* The least memory budget of the model, so that its matrices come from the file. */
static uint64_t least_budget(void) {
    pi_memory memory;
    pi_context_options o = run_exact_options();
    o.ram_budget = 64 << 20;
    run_model r = run_open(MODEL_PATH, &o);
    pi_context_get_memory(r.context, &memory);
    run_close(&r);
    return memory.needed;
}

/* Rewinds within the windows and continues; also with matrices from the file. */
static void test_streams_sessions(void **state) {
    (void)state;
    enum { BACK = 11 };
    streams = true;
    compute(QUANT_F32);
    streams = false;
    for (int paged = 0; paged < 2; paged++) {
        pi_context_options o = run_exact_options();
        if (paged) o.ram_budget = least_budget();
        run_model r = run_open(MODEL_PATH, &o);
        pi_session *s = run_session(&r, 2 * N_TOKENS);
        run_feed(&r, s, tokens, N_TOKENS, 7, got);
        check(paged ? "paged" : "mapped");
        ok(pi_session_rewind(s, BACK, &err));
        run_feed(&r, s, tokens + BACK, N_TOKENS - BACK, 1, got + BACK * PLE_VOCAB);
        check("rewound");
        pi_session_destroy(s);
        run_close(&r);
    }
}

/* Unsupported: another stream that layers compute, a GPU's part, a single layer. */
static void test_streams_refused(void **state) {
    (void)state;
    pi_model *opened;
    pi_model_options options = pi_model_default_options();
    ple_write_streams(MODEL_PATH, QUANT_F32, 1);
    pi_status status = pi_model_open(MODEL_PATH, &options, &opened, &err);
    assert_int_equal(status, PI_ERR_UNSUPPORTED);
    run_check_message(&err, status);
    if (!strstr(err.message, "gemma3n.altup.active_idx")) fail_msg("%s", err.message);
    ple_write_streams(MODEL_PATH, QUANT_F32, 0);
    model *m;
    engine_context *c;
    pi_session *s;
    float x[PLE_EMBD];
    ok(model_open(MODEL_PATH, NULL, &m, &err));
    const engine_options o = {.n_threads = 1, .n_batch = 1, .tier = CPU_TIER_SCALAR};
    ok(engine_context_create(m, &o, &c, &err));
    ok(engine_session_create(c, 1, &s, &err));
    assert_int_equal(engine_run_layer(c, s, 0, tokens, x, 1, 0, &err), PI_ERR_ARG);
    engine_session_destroy(s);
    engine_context_destroy(c);
    model_close(m);
}

/* Layer by layer, as `prepare` runs the model: all layers, then the head's products by hand. */
static void test_layers(void **state) {
    (void)state;
    model *m;
    engine_context *c;
    pi_session *s;
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

/* Tensors and key must agree. */
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
        cmocka_unit_test(test_logits),           cmocka_unit_test(test_streams),
        cmocka_unit_test(test_streams_sessions), cmocka_unit_test(test_streams_refused),
        cmocka_unit_test(test_layers),           cmocka_unit_test(test_keys),
    };
    int failed = cmocka_run_group_tests_name("engine_layer_embd", tests, NULL, NULL);
    remove(MODEL_PATH);
    return failed;
}
