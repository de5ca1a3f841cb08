/* test_synth.c: synthetic models match their options. A simple float forward pass in this file
 * measures the fraction of active neurons: all tokens in one context, softmax attention over the
 * past. It omits rotary positions, which change only which tokens attend to which, not the tested
 * statistics. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "bundled_file.h"
#include "file.h"
#include "gguf.h"
#include "mem.h"
#include "powerinfer_tools.h"
#include "quant.h"
#include "rng.h"
#include "synth.h"

#define OUT_PATH  TEST_BINARY_DIR "/test_synth.gguf"
#define WANT_PATH TEST_BINARY_DIR "/test_synth_want.gguf"

enum {
    N_EMBD = 256,
    N_FF = 768,
    N_LAYER = 4,
    N_HEAD = 4,
    N_HEAD_KV = 2,
    HEAD = N_EMBD / N_HEAD,
    N_KV = N_HEAD_KV * HEAD,
    N_VOCAB = 512,
    N_TOKENS = 96
};

#ifdef TEST_SAMPLED
enum { CASE_STEP = 3, FAILURE_STEP = 9 };
#else
enum { CASE_STEP = 1, FAILURE_STEP = 1 };
#endif

typedef struct measured {
    double density[N_LAYER];
    double top_share; /* share of activations in the most active neurons */
    double logits_std;
    bool finite;
} measured;

static pi_synth_options tiny_options(void) {
    pi_synth_options o = pi_synth_default_options();
    o.shape = "tiny";
    o.type = "f32";
    o.plain = true;
    o.seed = 7;
    o.n_threads = 2;
    return o;
}

static void synth(const pi_synth_options *o) {
    pi_error err = {0};
    if (pi_synth(OUT_PATH, o, &err)) fail_msg("%s", err.message);
}

/* ---- forward --------------------------------------------------------------------------------- */

static float *load(const gguf_file *f, const char *name) {
    const gguf_tensor *t = gguf_find_tensor(f, name);
    if (!t) fail_msg("no tensor %s", name);
    float *w = mem_alloc(t->n_elems * sizeof *w);
    quant_find((uint32_t)t->type)->dequantize(t->data, w, (int64_t)t->n_elems);
    return w;
}

static float *load_layer(const gguf_file *f, int layer, const char *part) {
    char name[64];
    snprintf(name, sizeof name, "blk.%d.%s.weight", layer, part);
    return load(f, name);
}

/* y[n_out] = w[n_out][n_in] x[n_in] */
static void matvec(const float *w, const float *x, float *y, int n_in, int n_out) {
    for (int i = 0; i < n_out; i++) {
        float sum = 0;
        for (int j = 0; j < n_in; j++) sum += w[i * n_in + j] * x[j];
        y[i] = sum;
    }
}

static void norm(const float *x, const float *w, float *y) {
    float square = 0;
    for (int i = 0; i < N_EMBD; i++) square += x[i] * x[i];
    float scale = 1 / sqrtf(square / N_EMBD + 1e-5f);
    for (int i = 0; i < N_EMBD; i++) y[i] = x[i] * scale * w[i];
}

static void attend(const float *q, float k[][N_KV], float v[][N_KV], int n, float *out) {
    for (int h = 0; h < N_HEAD; h++) {
        int kv = h / (N_HEAD / N_HEAD_KV) * HEAD;
        float p[N_TOKENS], sum = 0;
        for (int t = 0; t < n; t++) {
            float dot = 0;
            for (int i = 0; i < HEAD; i++) dot += q[h * HEAD + i] * k[t][kv + i];
            p[t] = expf(dot / sqrtf(HEAD));
            sum += p[t];
        }
        for (int i = 0; i < HEAD; i++) {
            float mean = 0;
            for (int t = 0; t < n; t++) mean += p[t] * v[t][kv + i];
            out[h * HEAD + i] = mean / sum;
        }
    }
}

static void run_layer(const gguf_file *f, int layer, float x[][N_EMBD], int *fired) {
    static const char *const parts[] = {"attn_norm", "attn_q",   "attn_k", "attn_v",  "attn_output",
                                        "ffn_norm",  "ffn_gate", "ffn_up", "ffn_down"};
    float *w[9];
    for (int i = 0; i < 9; i++) w[i] = load_layer(f, layer, parts[i]);
    static float k[N_TOKENS][N_KV], v[N_TOKENS][N_KV];
    for (int t = 0; t < N_TOKENS; t++) {
        float h[N_EMBD], q[N_EMBD], a[N_EMBD], gate[N_FF], up[N_FF];
        norm(x[t], w[0], h);
        matvec(w[1], h, q, N_EMBD, N_EMBD);
        matvec(w[2], h, k[t], N_EMBD, N_KV);
        matvec(w[3], h, v[t], N_EMBD, N_KV);
        attend(q, k, v, t + 1, a);
        matvec(w[4], a, h, N_EMBD, N_EMBD);
        for (int i = 0; i < N_EMBD; i++) x[t][i] += h[i];
        norm(x[t], w[5], h);
        matvec(w[6], h, gate, N_EMBD, N_FF);
        matvec(w[7], h, up, N_EMBD, N_FF);
        for (int i = 0; i < N_FF; i++) {
            fired[i] += gate[i] > 0;
            up[i] *= gate[i] > 0 ? gate[i] : 0;
        }
        matvec(w[8], up, h, N_FF, N_EMBD);
        for (int i = 0; i < N_EMBD; i++) x[t][i] += h[i];
    }
    for (int i = 0; i < 9; i++) mem_free(w[i]);
}

static int descending(const void *a, const void *b) {
    return *(const int *)b - *(const int *)a;
}

static void measure_logits(const gguf_file *f, float x[][N_EMBD], measured *m) {
    float *out_norm = load(f, "output_norm.weight"), *head = load(f, "output.weight");
    double square = 0;
    m->finite = true;
    for (int t = 0; t < N_TOKENS; t++) {
        float h[N_EMBD], logits[N_VOCAB];
        norm(x[t], out_norm, h);
        matvec(head, h, logits, N_EMBD, N_VOCAB);
        for (int i = 0; i < N_VOCAB; i++) {
            square += (double)(logits[i] * logits[i]);
            if (!isfinite(logits[i])) m->finite = false;
        }
    }
    m->logits_std = sqrt(square / N_TOKENS / N_VOCAB);
    mem_free(out_norm);
    mem_free(head);
}

static void measure(double share, measured *m) {
    static float x[N_TOKENS][N_EMBD];
    gguf_file *f;
    assert_int_equal(gguf_open(OUT_PATH, NULL, &f, NULL), PI_OK);
    float *embedding = load(f, "token_embd.weight");
    rng r;
    rng_seed(&r, 99);
    for (int t = 0; t < N_TOKENS; t++) {
        memcpy(x[t], embedding + rng_u64(&r) % N_VOCAB * N_EMBD, sizeof x[t]);
    }
    mem_free(embedding);
    double top = 0, all = 0;
    for (int l = 0; l < N_LAYER; l++) {
        int fired[N_FF] = {0}, sum = 0;
        run_layer(f, l, x, fired);
        qsort(fired, N_FF, sizeof *fired, descending);
        for (int i = 0; i < N_FF; i++) {
            sum += fired[i];
            if (i < share * N_FF) top += fired[i];
        }
        all += sum;
        m->density[l] = (double)sum / N_FF / N_TOKENS;
    }
    m->top_share = top / all;
    measure_logits(f, x, m);
    gguf_close(f);
}

static void check_statistics(const pi_synth_options *o) {
    measured m;
    synth(o);
    measure((double)o->skew_share, &m);
    for (int l = 0; l < N_LAYER; l++) {
        double ratio = m.density[l] / (double)o->density;
        print_message("%s density %g skew %g:%g layer %d: density %.4f (x%.2f), top share %.3f\n",
                      o->type, (double)o->density, (double)o->skew_share, (double)o->skew_mass, l,
                      m.density[l], ratio, m.top_share);
        assert_true(ratio > 0.85 && ratio < 1.15);
    }
    assert_true(fabs(m.top_share - (double)o->skew_mass) < 0.07);
    assert_true(m.finite);
    assert_true(m.logits_std > 0.7 && m.logits_std < 1.4);
}

static void test_density_and_skew(void **state) {
    (void)state;
    const struct {
        float density, share, mass;
    } cases[] = {{0.1f, 0.26f, 0.8f}, {0.05f, 0.2f, 0.7f}, {0.3f, 0.43f, 0.8f}, {0.1f, 0.1f, 0.2f}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i += CASE_STEP) {
        pi_synth_options o = tiny_options();
        o.density = cases[i].density;
        o.skew_share = cases[i].share;
        o.skew_mass = cases[i].mass;
        check_statistics(&o);
    }
}

static void test_types_and_ranks(void **state) {
    (void)state;
    const char *const types[] = {"f16", "q8_0", "q4_0", "q4_k", "bf16", "q6_k"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i += CASE_STEP) {
        pi_synth_options o = tiny_options();
        o.type = types[i];
        o.rank = i % 2 ? 1 << i : 256;
        o.seed = i;
        if (!quant_find_name(types[i])->quantize) {
            print_message("*** SKIPPED: no quantizer for %s ***\n", types[i]);
            continue;
        }
        check_statistics(&o);
        gguf_file *f;
        assert_int_equal(gguf_open(OUT_PATH, NULL, &f, NULL), PI_OK);
        for (uint64_t k = 0; k < gguf_n_tensors(f); k++) { /* all matrices, including the head */
            const gguf_tensor *t = gguf_tensor_at(f, k);
            quant_type expected = t->n_dims == 1 ? QUANT_F32 : quant_find_name(types[i])->type;
            assert_int_equal(t->type, expected);
        }
        gguf_close(f);
    }
}

/* ---- the file -------------------------------------------------------------------------------- */

static uint64_t number(const gguf_file *f, const char *key) {
    uint64_t v = 0;
    const gguf_value *value = gguf_find(f, key);
    if (!value || !gguf_as_u64(value, &v)) fail_msg("no number %s", key);
    return v;
}

static void expect_text(const gguf_file *f, const char *key, const char *text) {
    gguf_string s;
    const gguf_value *value = gguf_find(f, key);
    assert_non_null(value);
    assert_true(gguf_as_string(value, &s));
    assert_true(gguf_string_is(s, text));
}

static void test_header(void **state) {
    (void)state;
    pi_synth_options o = tiny_options();
    o.n_layer = 2;
    synth(&o);
    gguf_file *f;
    assert_int_equal(gguf_open(OUT_PATH, NULL, &f, NULL), PI_OK);
    expect_text(f, "general.architecture", "llama");
    expect_text(f, "llama.hidden_activation", "relu");
    expect_text(f, "tokenizer.ggml.model", "none");
    assert_int_equal(number(f, "llama.block_count"), 2);
    assert_int_equal(number(f, "llama.embedding_length"), N_EMBD);
    assert_int_equal(number(f, "llama.feed_forward_length"), N_FF);
    assert_int_equal(number(f, "llama.attention.head_count"), N_HEAD);
    assert_int_equal(number(f, "llama.attention.head_count_kv"), N_HEAD_KV);
    assert_int_equal(number(f, "llama.rope.dimension_count"), HEAD);
    assert_int_equal(number(f, "llama.vocab_size"), N_VOCAB);
    assert_int_equal(gguf_n_tensors(f), 3 + 2 * 9);
    assert_non_null(gguf_find_tensor(f, "blk.1.ffn_down.weight"));
    assert_null(gguf_find_tensor(f, "blk.2.ffn_down.weight"));
    gguf_close(f);
}

static void test_same_bytes(void **state) {
    (void)state;
    const int threads[] = {1, 3, 1};
    const uint64_t seeds[] = {5, 5, 6};
    char *data[3];
    size_t n[3];
    for (int i = 0; i < 3; i++) {
        pi_synth_options o = tiny_options();
        o.type = "q4_0";
        o.plain = false;
        o.n_threads = threads[i];
        o.seed = seeds[i];
        synth(&o);
        assert_int_equal(file_read(OUT_PATH, 1 << 26, &data[i], &n[i], NULL), PI_OK);
    }
    assert_int_equal(n[0], n[1]);
    assert_memory_equal(data[0], data[1], n[0]); /* any number of threads */
    assert_int_equal(n[0], n[2]);
    assert_true(memcmp(data[0], data[2], n[0]) != 0);
    for (int i = 0; i < 3; i++) mem_free(data[i]);
}

/* ---- bundles --------------------------------------------------------------------------------- */

/* A bundled synthetic file must equal the prepared file bundled by bundled_file.h, for neurons and
 * experts and any number of threads. */
static void test_bundles(void **state) {
    (void)state;
    static const char *const shapes[] = {"tiny", "tiny-opt", "tiny-moe", "tiny-reglu-moe",
                                         "tiny-mla-moe"};
    static const char *const types[] = {"q4_0", "f32", "q8_0", "q4_0", "f16"};
    for (int i = 0; i < 5; i++) {
        pi_synth_options o = tiny_options();
        o.shape = shapes[i];
        o.type = types[i];
        o.plain = false;
        o.rank = 32;
        synth(&o);
        bundled_write(OUT_PATH, WANT_PATH, 0);
        o.bundle = true;
        o.n_threads = 1 + i % 2;
        synth(&o);
        gguf_file *f, *want;
        assert_int_equal(gguf_open(OUT_PATH, NULL, &f, NULL), PI_OK);
        assert_int_equal(gguf_open(WANT_PATH, NULL, &want, NULL), PI_OK);
        assert_int_equal(gguf_alignment(f), 4096);
        /* A synthetic file has no source, so it has no key with the source's tensor order. */
        assert_int_equal(gguf_n_values(f) + 1, gguf_n_values(want));
        assert_int_equal(gguf_n_tensors(f), gguf_n_tensors(want));
        for (uint64_t k = 0; k < gguf_n_tensors(f); k++) {
            const gguf_tensor *t = gguf_tensor_at(f, k), *u = gguf_find_tensor(want, t->name);
            assert_non_null(u);
            assert_memory_equal(t->dims, u->dims, sizeof t->dims);
            assert_memory_equal(t->data, u->data, t->n_bytes);
        }
        gguf_close(f);
        gguf_close(want);
    }
    unlink(WANT_PATH);
}

/* ---- errors ---------------------------------------------------------------------------------- */

static void expect(const pi_synth_options *o, pi_status status, const char *fragment) {
    pi_error err = {0};
    unlink(OUT_PATH);
    pi_status got = pi_synth(OUT_PATH, o, &err);
    if (got != status || !strstr(err.message, fragment)) {
        fail_msg("expected %s with '%s', got %s: %s", pi_status_name(status), fragment,
                 pi_status_name(got), err.message);
    }
    assert_false(file_exists(OUT_PATH));
}

static void test_bad_options(void **state) {
    (void)state;
    pi_synth_options o = tiny_options();
    o.shape = "mixtral-9x7b", expect(&o, PI_ERR_ARG, "tiny, llama-1b, llama-7b, bamboo-7b");
    o = tiny_options(), o.shape = NULL, expect(&o, PI_ERR_ARG, "choose one of");
    o = tiny_options(), o.plain = false, o.rank = 40, expect(&o, PI_ERR_ARG, "multiple of 32");
    o = tiny_options(), o.type = "q4_9", expect(&o, PI_ERR_ARG, "unknown tensor type 'q4_9'");
    o = tiny_options(), o.type = "i32", expect(&o, PI_ERR_ARG, "cannot be written as i32");
    o = tiny_options(), o.n_layer = 5, expect(&o, PI_ERR_ARG, "shape tiny has 1 to 4");
    o = tiny_options(), o.bundle = true, expect(&o, PI_ERR_ARG, "no bundles: a plain file");
    o = tiny_options(), o.n_layer = -1, expect(&o, PI_ERR_ARG, "-1 layers");
    o = tiny_options(), o.rank = 0, expect(&o, PI_ERR_ARG, "rank 0");
    o = tiny_options(), o.rank = 257, expect(&o, PI_ERR_ARG, "ranks from 1 to 256");
    o = tiny_options(), o.density = 0, expect(&o, PI_ERR_ARG, "density 0");
    o = tiny_options(), o.density = NAN, expect(&o, PI_ERR_ARG, "density nan");
    o = tiny_options(), o.skew_mass = 0.2f, expect(&o, PI_ERR_ARG, "skew 0.26:0.2");
    o = tiny_options(), o.skew_share = NAN, expect(&o, PI_ERR_ARG, "skew nan");
    o = tiny_options(), o.density = 0.9f, expect(&o, PI_ERR_ARG, "is impossible at density 0.9");
    o = tiny_options(), o.down_density = 0.05f, expect(&o, PI_ERR_ARG, "none in a plain file");
    o.plain = false, o.shape = "tiny-opt", expect(&o, PI_ERR_ARG, "no gates outside experts");
    o.shape = "tiny-moe", expect(&o, PI_ERR_ARG, "no gates outside experts");
    o = tiny_options(), o.down_density = 0.2f, expect(&o, PI_ERR_ARG, "choose 0 to the density");
    o = tiny_options(), o.n_mtp = 17, expect(&o, PI_ERR_ARG, "17 heads that draft");
    o = tiny_options(), o.shape = "tiny-csa-moe";
    o.plain = false, expect(&o, PI_ERR_ARG, "several residual streams cannot be prepared");
    o = tiny_options(), o.shape = "tiny-kda-moe", o.n_mtp = 1;
    expect(&o, PI_ERR_ARG, "there are no heads that draft for it");
    o = tiny_options(), o.n_threads = -1, expect(&o, PI_ERR_ARG, "");
}

static void test_bad_place(void **state) {
    (void)state;
    pi_synth_options o = tiny_options();
    pi_error err = {0};
    assert_int_equal(pi_synth("/nowhere/at/all.gguf", &o, &err), PI_ERR_IO);
    assert_non_null(strstr(err.message, "/nowhere/at/all.gguf"));
}

static bool stop_at_once(void *user, const char *stage, double fraction) {
    (void)stage, (void)fraction;
    ++*(int *)user;
    return false;
}

static void test_cancel(void **state) {
    (void)state;
    int calls = 0;
    pi_synth_options o = tiny_options();
    o.progress = stop_at_once;
    o.user = &calls;
    expect(&o, PI_ERR_CANCELLED, "cancelled");
    assert_int_equal(calls, 1);
}

static void test_allocation_failures(void **state) {
    (void)state;
    for (int prepared = 0; prepared < 2; prepared++) {
        pi_synth_options o = tiny_options();
        o.n_layer = 1;
        o.plain = !prepared;
        int64_t before = mem_count();
        synth(&o);
        int64_t n = mem_count() - before;
        assert_true(n > 10);
        for (int64_t i = 1; i <= n; i += FAILURE_STEP) {
            mem_fail_at(i);
            expect(&o, PI_ERR_NOMEM, "out of memory");
        }
        mem_fail_at(0);
    }
}

static void test_profile(void **state) {
    (void)state;
    synth_profile p;
    assert_int_equal(synth_profile_solve(0.1, 0.26, 0.8, &p, NULL), PI_OK);
    double mean = 0;
    for (int i = 0; i < 1000; i++) mean += synth_phi(p.mu + p.tau * synth_probit((i + 0.5) / 1000));
    assert_true(fabs(mean / 1000 - 0.1) < 0.001);
    assert_true(fabs(synth_phi(synth_probit(0.123)) - 0.123) < 1e-9);
    /* With equal shares every neuron is active equally often. */
    assert_int_equal(synth_profile_solve(0.1, 0.5, 0.5, &p, NULL), PI_OK);
    assert_true(p.tau < 0.01);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_profile),         cmocka_unit_test(test_header),
        cmocka_unit_test(test_same_bytes),      cmocka_unit_test(test_density_and_skew),
        cmocka_unit_test(test_types_and_ranks), cmocka_unit_test(test_bundles),
        cmocka_unit_test(test_bad_options),     cmocka_unit_test(test_bad_place),
        cmocka_unit_test(test_cancel),          cmocka_unit_test(test_allocation_failures),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(OUT_PATH);
    return failed;
}
