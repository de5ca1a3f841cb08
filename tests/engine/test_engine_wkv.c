/* test_engine_wkv.c: RWKV. The logits of small models equal those of a plain pass in double
 * precision, token by token; files with other forms of tensors give the same logits, and files
 * without some are refused.
 *
 * Formulas: RWKV-6 (Peng et al. 2024, arXiv 2404.05892), RWKV-7 (Peng et al. 2025, arXiv
 * 2503.14456). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "gguf_writer.h"
#include "mem.h"
#include "recurrent_model.h"
#include "run_model.h"

#define MODEL_PATH TEST_BINARY_DIR "/test_engine_wkv.gguf"
#define OTHER_PATH TEST_BINARY_DIR "/test_engine_wkv_other.gguf"

enum { N_TOKENS = 24, V = RECURRENT_VOCAB, E = 32, N = 8, HEADS = E / N, LAYERS = 3, MOST = 64 };

static int32_t tokens[N_TOKENS];
static float want[N_TOKENS * V], got[N_TOKENS * V];
static pi_error err;

static void ok(pi_status status) {
    if (status != PI_OK) fail_msg("%s", err.message);
}

/* ---- the plain pass -------------------------------------------------------------------------- */

typedef struct layer_state {
    double att[E], ffn[E];     /* the inputs of the previous token */
    double heads[HEADS][N][N]; /* [value][key] */
} layer_state;

typedef struct plain {
    gguf_file *file;
    bool is_7, qwen; /* RWKV-7; in the layers of Qwen2 */
    int layer;
    double first[E]; /* values of the first layer */
} plain;

/* Element i of a tensor; 0 where the file does not have it. */
static double at(const plain *p, const char *name, int64_t i) {
    char full[GGUF_MAX_NAME];
    if (p->layer < 0)
        snprintf(full, sizeof full, "%s", name);
    else
        snprintf(full, sizeof full, "blk.%d.%s", p->layer, name);
    const gguf_tensor *t = gguf_find_tensor(p->file, full);
    if (!t) return 0;
    assert_int_equal(t->type, QUANT_F32);
    assert_true((uint64_t)i < t->n_elems);
    float x;
    memcpy(&x, t->data + (size_t)i * sizeof x, sizeof x);
    return (double)x;
}

static bool has(const plain *p, const char *name) {
    char full[GGUF_MAX_NAME];
    snprintf(full, sizeof full, "blk.%d.%s", p->layer, name);
    return gguf_find_tensor(p->file, full);
}

/* y [n_out] = rows from `row` on of W [n_in, ..] times x. */
static void multiply(const plain *p, const char *name, int row, const double *x, int n_in,
                     int n_out, double *y) {
    for (int r = 0; r < n_out; r++) {
        y[r] = 0;
        for (int i = 0; i < n_in; i++) y[r] += at(p, name, (int64_t)(row + r) * n_in + i) * x[i];
    }
}

static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

/* Norm of n elements whose weights begin at `first`. */
static void norm(const plain *p, const char *name, bool mean, double eps, int first, int n,
                 const double *x, double *y) {
    char weight[GGUF_MAX_NAME], bias[GGUF_MAX_NAME];
    double m = 0, square = 0;
    snprintf(weight, sizeof weight, "%s.weight", name);
    snprintf(bias, sizeof bias, "%s.bias", name);
    for (int i = 0; i < n && mean; i++) m += x[i] / n;
    for (int i = 0; i < n; i++) square += (x[i] - m) * (x[i] - m) / n;
    for (int i = 0; i < n; i++)
        y[i] = (x[i] - m) / sqrt(square + eps) * at(p, weight, first + i) + at(p, bias, first + i);
}

static void norm_input(const plain *p, const char *name, const double *x, double *y) {
    norm(p, name, !p->qwen, 1e-5, 0, E, x, y);
}

enum { R, W, K, VALUE, A, G, INPUTS }; /* RWKV-7's order of inputs */

/* Inputs between x and the one before, by weights; RWKV-6's weights depend on x. */
static void shift(const plain *p, const double *x, const double *before, double out[INPUTS][E]) {
    static const int rank = 8, of_6[] = {W, K, VALUE, R, G};
    double xx[E], hidden[MOST], more[E];
    if (!p->is_7) {
        for (int i = 0; i < E; i++)
            xx[i] = x[i] + (before[i] - x[i]) * at(p, "time_mix_lerp_x.weight", i);
        multiply(p, "time_mix_w1.weight", 0, xx, E, 5 * rank, hidden);
        for (int i = 0; i < 5 * rank; i++) hidden[i] = tanh(hidden[i]);
    }
    for (int k = 0; k < (p->is_7 ? INPUTS : 5); k++) {
        if (p->is_7 && k == G && !has(p, "time_mix_g1.weight")) break;
        if (!p->is_7) multiply(p, "time_mix_w2.weight", k * E, hidden + k * rank, rank, E, more);
        for (int i = 0; i < E; i++) {
            double weight = at(p, "time_mix_lerp_fused.weight", k * E + i);
            out[p->is_7 ? k : of_6[k]][i] = x[i] +
                                            (before[i] - x[i]) * (weight + (p->is_7 ? 0 : more[i]));
        }
    }
}

/* y = bias + B f(A x), with a rank of 8; f: tanh, sigmoid or none. */
static void low_rank(const plain *p, const char *a, const char *b, const char *bias, char f,
                     const double *x, double *y) {
    double hidden[8];
    multiply(p, a, 0, x, E, 8, hidden);
    for (int i = 0; i < 8; i++)
        hidden[i] = f == 't' ? tanh(hidden[i]) : f == 's' ? sigmoid(hidden[i]) : hidden[i];
    multiply(p, b, 0, hidden, 8, E, y);
    for (int i = 0; i < E && bias; i++) y[i] += at(p, bias, i);
}

static void mix_7(plain *p, double in[INPUTS][E], double s[HEADS][N][N], double *out) {
    double r[E], w[E], k[E], v[E], a[E], g[E], follow[E];
    multiply(p, "time_mix_receptance.weight", 0, in[R], E, E, r);
    multiply(p, "time_mix_key.weight", 0, in[K], E, E, k);
    multiply(p, "time_mix_value.weight", 0, in[VALUE], E, E, v);
    low_rank(p, "time_mix_w1.weight", "time_mix_w2.weight", "time_mix_w0.weight", 't', in[W], w);
    low_rank(p, "time_mix_a1.weight", "time_mix_a2.weight", "time_mix_a0.weight", 0, in[A], a);
    low_rank(p, "time_mix_v1.weight", "time_mix_v2.weight", "time_mix_v0.weight", 0, in[VALUE],
             follow);
    bool gated = has(p, "time_mix_g1.weight");
    if (gated) low_rank(p, "time_mix_g1.weight", "time_mix_g2.weight", NULL, 's', in[G], g);
    for (int i = 0; i < E; i++) {
        if (p->layer == 0) p->first[i] = v[i];
        v[i] += (p->first[i] - v[i]) * sigmoid(follow[i]);
        w[i] = exp(-exp(-0.5) * sigmoid(w[i]));
        a[i] = sigmoid(a[i]);
    }
    for (int h = 0; h < HEADS; h++) {
        double kk[N], y[N], length = 0, own = 0;
        for (int i = 0; i < N; i++) {
            kk[i] = k[h * N + i] * at(p, "time_mix_k_k.weight", h * N + i);
            length += kk[i] * kk[i];
        }
        for (int i = 0; i < N; i++) {
            kk[i] /= sqrt(length);
            k[h * N + i] *= 1 + (a[h * N + i] - 1) * at(p, "time_mix_k_a.weight", h * N + i);
            own += r[h * N + i] * k[h * N + i] * at(p, "time_mix_r_k.weight", h * N + i);
        }
        for (int j = 0; j < N; j++) {
            double erased = 0;
            y[j] = 0;
            for (int i = 0; i < N; i++) erased -= s[h][j][i] * kk[i];
            for (int i = 0; i < N; i++) {
                s[h][j][i] = s[h][j][i] * w[h * N + i] + erased * kk[i] * a[h * N + i] +
                             v[h * N + j] * k[h * N + i];
                y[j] += s[h][j][i] * r[h * N + i];
            }
        }
        if (has(p, "time_mix_ln.weight")) norm(p, "time_mix_ln", true, 64e-5, h * N, N, y, y);
        for (int j = 0; j < N; j++)
            out[h * N + j] = (y[j] + own * v[h * N + j]) * (gated ? g[h * N + j] : 1);
    }
}

static void mix_6(const plain *p, double in[INPUTS][E], double s[HEADS][N][N], double *out) {
    static const char *const names[] = {"time_mix_receptance", "time_mix_key", "time_mix_value"};
    const int inputs[] = {R, K, VALUE};
    int shared = p->qwen ? 2 : 1; /* heads that share keys and values */
    double x[3][E], w[E], g[E], *r = x[0], *keys = x[1], *values = x[2];
    for (int k = 0; k < 3; k++) {
        char weight[GGUF_MAX_NAME], bias[GGUF_MAX_NAME];
        snprintf(weight, sizeof weight, "%s.weight", names[k]);
        snprintf(bias, sizeof bias, "%s.bias", names[k]);
        int n = k == 0 ? E : E / shared;
        multiply(p, weight, 0, in[inputs[k]], E, n, x[k]);
        for (int i = 0; i < n; i++) x[k][i] += at(p, bias, i);
    }
    multiply(p, "time_mix_gate.weight", 0, in[G], E, E, g);
    low_rank(p, "time_mix_decay_w1.weight", "time_mix_decay_w2.weight", "time_mix_decay.weight",
             't', in[W], w);
    for (int h = 0; h < HEADS; h++) {
        double y[N];
        for (int j = 0; j < N; j++) {
            double v = values[h / shared * N + j];
            y[j] = 0;
            for (int i = 0; i < N; i++) {
                double decay = exp(-exp(w[h * N + i])), k = keys[h / shared * N + i];
                double u = at(p, "time_mix_first.weight", h * N + i), old = s[h][j][i];
                if (p->qwen) k *= 1 - decay;
                s[h][j][i] = old * decay + k * v;
                y[j] += r[h * N + i] * (p->qwen ? s[h][j][i] / sqrt(N) : old + u * k * v);
            }
        }
        if (!p->qwen) norm(p, "time_mix_ln", true, 64e-5, h * N, N, y, y);
        for (int j = 0; j < N; j++)
            out[h * N + j] = y[j] * sigmoid(g[h * N + j]) * (p->qwen ? 1 : g[h * N + j]);
    }
}

static void ffn(const plain *p, const double *x, const double *before, double *out) {
    double in[E], gate[E], up[MOST], more[MOST];
    const char *key = p->qwen ? "ffn_up.weight" : "channel_mix_key.weight";
    const char *value = p->qwen ? "ffn_down.weight" : "channel_mix_value.weight";
    enum { N_FF = 48 };
    for (int i = 0; i < E; i++) /* Qwen2's FFN is not shifted: the weight is absent */
        in[i] = x[i] + (before[i] - x[i]) * at(p, "channel_mix_lerp_k.weight", i);
    multiply(p, key, 0, in, E, N_FF, up);
    if (p->qwen) multiply(p, "ffn_gate.weight", 0, in, E, N_FF, more);
    for (int i = 0; i < N_FF; i++)
        up[i] = p->qwen ? more[i] * sigmoid(more[i]) * up[i] : up[i] > 0 ? up[i] * up[i] : 0;
    multiply(p, value, 0, up, N_FF, E, out);
    if (!has(p, "channel_mix_receptance.weight")) return;
    for (int i = 0; i < E; i++)
        in[i] = x[i] + (before[i] - x[i]) * at(p, "channel_mix_lerp_r.weight", i);
    multiply(p, "channel_mix_receptance.weight", 0, in, E, E, gate);
    for (int i = 0; i < E; i++) out[i] *= sigmoid(gate[i]);
}

/* Logits of all tokens in `want`. */
static void run_plain(const char *arch) {
    static layer_state states[LAYERS];
    plain p = {.is_7 = strstr(arch, "rwkv7"), .qwen = strstr(arch, "qwen2") || arch[0] == 'a'};
    memset(states, 0, sizeof states);
    ok(gguf_open(MODEL_PATH, NULL, &p.file, &err));
    for (int t = 0; t < N_TOKENS; t++) {
        double x[E], y[E], in[INPUTS][E], mixed[E], logit;
        p.layer = -1;
        for (int i = 0; i < E; i++) x[i] = at(&p, "token_embd.weight", tokens[t] * E + i);
        if (!p.qwen) norm_input(&p, "token_embd_norm", x, x);
        for (p.layer = 0; p.layer < LAYERS; p.layer++) {
            layer_state *s = &states[p.layer];
            norm_input(&p, "attn_norm", x, y);
            shift(&p, y, s->att, in);
            memcpy(s->att, y, sizeof y);
            if (p.is_7)
                mix_7(&p, in, s->heads, mixed);
            else
                mix_6(&p, in, s->heads, mixed);
            multiply(&p, "time_mix_output.weight", 0, mixed, E, E, y);
            for (int i = 0; i < E; i++) x[i] += y[i];
            norm_input(&p, p.qwen ? "ffn_norm" : "attn_norm_2", x, y);
            ffn(&p, y, s->ffn, mixed);
            memcpy(s->ffn, y, sizeof y);
            bool halved = strcmp(arch, "rwkv6") == 0 && p.layer % 2 == 1;
            for (int i = 0; i < E; i++) x[i] = (x[i] + mixed[i]) * (halved ? 0.5 : 1);
        }
        p.layer = -1;
        norm_input(&p, "output_norm", x, y);
        for (int v = 0; v < V; v++) {
            logit = 0;
            for (int i = 0; i < E; i++) logit += at(&p, "token_embd.weight", v * E + i) * y[i];
            want[t * V + v] = (float)logit;
        }
    }
    gguf_close(p.file);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static const char *const archs[] = {"rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"};

static void test_formulas(void **state) {
    (void)state;
    static const pi_kernels kernels[] = {PI_KERNELS_SCALAR, PI_KERNELS_AUTO};
    run_random_tokens(9, V, tokens, N_TOKENS);
    for (int a = 0; a < 4; a++) {
        recurrent_write(archs[a], NULL, MODEL_PATH);
        run_plain(archs[a]);
        for (int k = 0; k < 2; k++) {
            pi_context_options o = run_exact_options();
            o.kernels = kernels[k];
            run_model r = run_open(MODEL_PATH, &o);
            for (int piece = 0; piece < 6; piece += 5) {
                run_tokens(&r, tokens, N_TOKENS, piece, got);
                double nmse = run_nmse(got, want, N_TOKENS * V);
                if (!(nmse <= 1e-10)) fail_msg("%s, pieces of %d: NMSE %g", archs[a], piece, nmse);
            }
            run_close(&r);
        }
    }
}

/* Copies the model without the tensor `left_out`; with `split` the weights of RWKV-6's inputs are
 * separate tensors, as in older files. */
static void copy_model(const char *left_out, bool split) {
    static const char letters[] = "wkvrg";
    gguf_file *g;
    gguf_writer *w;
    ok(gguf_open(MODEL_PATH, NULL, &g, &err));
    ok(gguf_writer_create(OTHER_PATH, &w, &err));
    for (uint64_t i = 0; i < gguf_n_values(g); i++) gguf_put_value(w, gguf_value_at(g, i));
    for (int data = 0; data < 2; data++) {
        for (uint64_t i = 0; i < gguf_n_tensors(g); i++) {
            const gguf_tensor *t = gguf_tensor_at(g, i);
            const char *fused = strstr(t->name, "fused.weight");
            if (left_out && strcmp(t->name, left_out) == 0) continue;
            for (int k = 0; k < 5 && split && fused; k++) {
                char name[GGUF_MAX_NAME];
                const size_t n = E * sizeof(float);
                snprintf(name, sizeof name, "%.*s%c.weight", (int)(fused - t->name), t->name,
                         letters[k]);
                if (data)
                    ok(gguf_write_data(w, t->data + (size_t)k * n, n, &err));
                else
                    ok(gguf_add_tensor(w, name, QUANT_F32, 1, (uint64_t[]){E}, &err));
            }
            if (split && fused) continue;
            if (data)
                ok(gguf_write_data(w, t->data, t->n_bytes, &err));
            else
                ok(gguf_add_tensor(w, t->name, t->type, t->n_dims, t->dims, &err));
        }
        if (!data) ok(gguf_writer_begin_data(w, &err));
    }
    ok(gguf_writer_finish(w, &err));
    gguf_close(g);
}

static void test_separate_weights(void **state) {
    (void)state;
    pi_context_options o = run_exact_options();
    recurrent_write("rwkv6", NULL, MODEL_PATH);
    run_random_tokens(9, V, tokens, N_TOKENS);
    run_model r = run_open(MODEL_PATH, &o);
    run_tokens(&r, tokens, N_TOKENS, 0, want);
    run_close(&r);
    copy_model(NULL, true);
    r = run_open(OTHER_PATH, &o);
    run_tokens(&r, tokens, N_TOKENS, 0, got);
    assert_memory_equal(got, want, sizeof want);
    run_close(&r);
}

static void test_missing_tensors(void **state) {
    (void)state;
    static const struct {
        const char *arch, *tensor, *text;
    } missing[] = {
        {"rwkv6", "blk.1.time_mix_lerp_fused.weight", "layer 1 has no weights of the token before"},
        {"rwkv7", "blk.2.time_mix_v0.weight", "layer 2 has no weights of the first layer's values"},
        {"rwkv7", "blk.2.time_mix_v1.weight", "the rows of ssm_first_a and ssm_first_b"},
        {"arwkv7", "blk.0.time_mix_a2.weight", "blk.0.time_mix_a2.weight is not in the file"},
        {"rwkv7", "blk.1.channel_mix_lerp_k.weight",
         "channel_mix_lerp_k.weight is not in the file"},
    };
    for (size_t i = 0; i < sizeof missing / sizeof missing[0]; i++) {
        pi_model *m;
        recurrent_write(missing[i].arch, NULL, MODEL_PATH);
        copy_model(missing[i].tensor, false);
        assert_int_equal(pi_model_open(OTHER_PATH, NULL, &m, &err), PI_ERR_FORMAT);
        if (!strstr(err.message, missing[i].text)) fail_msg("%s", err.message);
    }
    /* the first layer has no earlier values */
    recurrent_write("rwkv7", NULL, MODEL_PATH);
    copy_model("blk.0.time_mix_v0.weight", false);
    pi_model *m;
    ok(pi_model_open(OTHER_PATH, NULL, &m, &err));
    pi_model_close(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formulas),
        cmocka_unit_test(test_separate_weights),
        cmocka_unit_test(test_missing_tensors),
    };
    return cmocka_run_group_tests_name("engine_wkv", tests, NULL, NULL);
}
