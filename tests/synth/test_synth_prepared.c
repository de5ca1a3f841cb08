/* test_synth_prepared.c: a prepared synthetic model is the plain model of the same seed with its
 * hottest neurons first, and its predictor works as the file states. The engine runs the model and
 * reports the FFN inputs; this file computes gates, contributions and scores in float from the
 * prepared file. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine.h"
#include "gguf.h"
#include "mem.h"
#include "powerinfer_tools.h"
#include "quant.h"
#include "rng.h"
#include "run_engine.h"
#include "sparse_keys.h"
#include "synth.h"

/* An architecture and the name of its gate. */
typedef struct kind {
    const char *shape, *gate;
    bool has_up; /* in addition to the gate */
} kind;

static const kind llama = {"tiny", "ffn_gate.weight", true};
static const kind opt = {"tiny-opt", "ffn_up.weight", false};
static const kind falcon = {"tiny-falcon", "ffn_up.weight", false};

#define PLAIN_PATH    TEST_BINARY_DIR "/test_synth_plain.gguf"
#define PREPARED_PATH TEST_BINARY_DIR "/test_synth_prepared.gguf"

enum { N_EMBD = 256, N_FF = 768, N_LAYER = 4, N_VOCAB = 512, N_TOKENS = 192 };

static pi_synth_options tiny_options(const char *type) {
    pi_synth_options o = pi_synth_default_options();
    o.shape = "tiny";
    o.type = type;
    o.seed = 11;
    o.n_threads = 2;
    return o;
}

static void synth(const char *path, const pi_synth_options *o) {
    pi_error err = {0};
    if (pi_synth(path, o, &err)) fail_msg("%s", err.message);
}

/* Writes the plain and the prepared file of the options. */
static void synth_both(pi_synth_options o) {
    synth(PREPARED_PATH, &o);
    o.plain = true;
    synth(PLAIN_PATH, &o);
}

static gguf_file *open_file(const char *path) {
    gguf_file *f;
    pi_error err = {0};
    if (gguf_open(path, NULL, &f, &err)) fail_msg("%s", err.message);
    return f;
}

static const gguf_tensor *find(const gguf_file *f, int layer, const char *part) {
    char name[64];
    snprintf(name, sizeof name, "blk.%d.%s", layer, part);
    const gguf_tensor *t = gguf_find_tensor(f, name);
    if (!t) fail_msg("no tensor %s", name);
    return t;
}

/* Returns the tensor as floats; mem_free(). */
static float *load(const gguf_file *f, int layer, const char *part) {
    const gguf_tensor *t = find(f, layer, part);
    float *w = mem_alloc(t->n_elems * sizeof *w);
    assert_non_null(w);
    quant_find((uint32_t)t->type)->dequantize(t->data, w, (int64_t)t->n_elems);
    return w;
}

/* ---- the same network ------------------------------------------------------------------------ */

static void expect_permutation(const int32_t *perm) {
    bool seen[N_FF] = {false};
    for (int i = 0; i < N_FF; i++) {
        assert_true(perm[i] >= 0 && perm[i] < N_FF && !seen[perm[i]]);
        seen[perm[i]] = true;
    }
}

/* Rows of neurons must be equal byte by byte. */
static void expect_rows(const gguf_tensor *plain, const gguf_tensor *prepared,
                        const int32_t *perm) {
    size_t row = plain->n_bytes / N_FF;
    assert_int_equal(prepared->n_bytes, plain->n_bytes);
    for (int i = 0; i < N_FF; i++) {
        const char *have = (const char *)prepared->data + row * (size_t)i;
        assert_memory_equal(have, (const char *)plain->data + row * (size_t)perm[i], row);
    }
}

/* Compares row i of down_t with column perm[i] of down. */
static void expect_columns(const float *down, const float *down_t, const int32_t *perm) {
    for (int i = 0; i < N_FF; i++)
        for (int j = 0; j < N_EMBD; j++)
            assert_true(down_t[i * N_EMBD + j] == down[j * N_FF + perm[i]]);
}

static void expect_same_attention(const gguf_file *plain, const gguf_file *prepared, int layer) {
    const char *const parts[] = {"attn_norm.weight", "attn_q.weight",      "attn_k.weight",
                                 "attn_v.weight",    "attn_output.weight", "ffn_norm.weight"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const gguf_tensor *a = find(plain, layer, parts[i]), *b = find(prepared, layer, parts[i]);
        assert_int_equal(a->n_bytes, b->n_bytes);
        assert_memory_equal(a->data, b->data, a->n_bytes);
    }
}

static void check_same_network(const char *type) {
    pi_synth_options o = tiny_options(type);
    synth_both(o);
    gguf_file *plain = open_file(PLAIN_PATH), *prepared = open_file(PREPARED_PATH);
    for (int l = 0; l < N_LAYER; l++) {
        const gguf_tensor *p = find(prepared, l, "ffn_perm");
        assert_int_equal(p->type, QUANT_I32);
        const int32_t *perm = (const int32_t *)(const void *)p->data;
        expect_permutation(perm);
        expect_same_attention(plain, prepared, l);
        expect_rows(find(plain, l, "ffn_gate.weight"), find(prepared, l, "ffn_gate.weight"), perm);
        expect_rows(find(plain, l, "ffn_up.weight"), find(prepared, l, "ffn_up.weight"), perm);
        float *down = load(plain, l, "ffn_down.weight"),
              *t = load(prepared, l, "ffn_down_t.weight");
        /* Only floats: quantized types group rows and columns differently. */
        if (!quant_find_name(type)->is_quantized) expect_columns(down, t, perm);
        mem_free(down);
        mem_free(t);
        char name[64];
        snprintf(name, sizeof name, "blk.%d.ffn_down.weight", l);
        assert_null(gguf_find_tensor(prepared, name));
    }
    gguf_close(plain);
    gguf_close(prepared);
}

static void test_same_network(void **state) {
    (void)state;
    check_same_network("f32");
    check_same_network("f16");
    check_same_network("q4_0");
    check_same_network("q8_0");
}

/* ---- frequencies and predictor --------------------------------------------------------------- */

/* Inputs of the FFNs, [N_LAYER][N_TOKENS][N_EMBD]. */
typedef struct inputs {
    float x[N_LAYER][N_TOKENS][N_EMBD];
} inputs;

static void take_input(void *user, const plan_step *step, const float *x, int64_t ldx, int n_rows) {
    inputs *in = user;
    tensor_role role = step->n_matrices ? step->matrix[0].role : ROLE_COUNT;
    if (role != ROLE_FFN_GATE && role != ROLE_FFN_UP) return;
    assert_int_equal(n_rows, N_TOKENS);
    for (int t = 0; t < N_TOKENS; t++)
        memcpy(in->x[step->layer][t], x + t * ldx, sizeof in->x[0][0]);
}

/* Runs the model; stores the logits of all tokens in `logits` [N_TOKENS][N_VOCAB], unless NULL. */
static void run(const char *path, pi_mode mode, inputs *in, float *logits) {
    engine_options o = {.n_threads = 1,
                        .n_batch = N_TOKENS,
                        .type_k = QUANT_F16,
                        .type_v = QUANT_F16,
                        .n_logits = N_TOKENS,
                        .plan = {.mode = mode}};
    int32_t tokens[N_TOKENS];
    rng r;
    rng_seed(&r, 5);
    for (int i = 0; i < N_TOKENS; i++) tokens[i] = (int32_t)(rng_u64(&r) % N_VOCAB);
    model *m = run_engine_open(path);
    engine_context *c = run_engine_context(m, &o);
    if (in) engine_observe(c, take_input, in);
    run_engine_tokens(c, N_TOKENS, tokens, N_TOKENS, 0, logits);
    engine_context_destroy(c);
    model_close(m);
}

static float dot(const float *a, const float *b, int n) {
    float sum = 0;
    for (int i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

/* Sums over tokens and neurons of one layer. */
typedef struct quality {
    double fired, selected, contributed, caught;
    double freq;                  /* sum of the file's frequencies, per token */
    double s, g, ss, gg, sg, n;   /* sums of score and centered gate, for the correlation */
    double hot_fired, half_fired; /* first eighth, first half of the neurons */
} quality;

static void measure_layer(const gguf_file *f, const kind *k, int layer, int rank, const inputs *in,
                          quality *q) {
    float *gate = load(f, layer, k->gate), *up = k->has_up ? load(f, layer, "ffn_up.weight") : NULL;
    float *down = load(f, layer, "ffn_down_t.weight"), *fc1 = load(f, layer, "fc1.weight");
    float *fc2 = load(f, layer, "fc2.weight"), *bias = load(f, layer, "fc2.bias");
    float *freq = load(f, layer, "ffn_freq");
    float length[N_FF], hidden[N_EMBD];
    for (int i = 0; i < N_FF; i++) {
        length[i] = sqrtf(dot(down + i * N_EMBD, down + i * N_EMBD, N_EMBD));
        q->freq += (double)freq[i] * N_TOKENS;
        assert_true(freq[i] >= 0 && freq[i] <= 1 && (i == 0 || freq[i] <= freq[i - 1]));
    }
    for (int t = 0; t < N_TOKENS; t++) {
        const float *x = in->x[layer][t];
        for (int j = 0; j < rank; j++) hidden[j] = dot(fc1 + j * N_EMBD, x, N_EMBD);
        for (int i = 0; i < N_FF; i++) {
            float g = dot(gate + i * N_EMBD, x, N_EMBD), score = dot(fc2 + i * rank, hidden, rank);
            bool fires = g > 0, chosen = score + bias[i] >= 0;
            float other = up ? fabsf(dot(up + i * N_EMBD, x, N_EMBD)) : 1;
            float contribution = fires ? g * other * length[i] : 0;
            q->fired += fires;
            q->selected += chosen;
            q->contributed += (double)contribution;
            q->caught += chosen ? (double)contribution : 0;
            if (i < N_FF / 8) q->hot_fired += fires;
            if (i < N_FF / 2) q->half_fired += fires;
            double own = (double)g - synth_probit((double)freq[i]);
            q->s += (double)score, q->ss += (double)(score * score);
            q->g += own, q->gg += own * own, q->sg += own * (double)score, q->n++;
        }
    }
    float *all[] = {gate, up, down, fc1, fc2, bias, freq};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) mem_free(all[i]);
}

static double item(const gguf_file *f, const char *key, uint64_t i) {
    const gguf_value *v = gguf_find(f, key);
    double d = NAN;
    if (!v || v->count != N_LAYER || !gguf_item_f64(v, i, &d)) fail_msg("no numbers %s", key);
    return d;
}

static void check_predictor(const kind *k, const char *type, int rank, float density) {
    static inputs in;
    pi_synth_options o = tiny_options(type);
    o.shape = k->shape;
    o.rank = rank;
    o.density = density;
    synth(PREPARED_PATH, &o);
    run(PREPARED_PATH, PI_MODE_DENSE, &in, NULL);
    gguf_file *f = open_file(PREPARED_PATH);
    quality all = {0};
    for (int l = 0; l < N_LAYER; l++) {
        quality q = {0};
        measure_layer(f, k, l, rank, &in, &q);
        double cov = q.sg / q.n - q.s / q.n * q.g / q.n;
        double correlation = cov / sqrt((q.ss / q.n - q.s / q.n * q.s / q.n) *
                                        (q.gg / q.n - q.g / q.n * q.g / q.n));
        double selected = item(f, SPARSE_KEY_PREDICTOR_DENSITY, (uint64_t)l);
        double recall = item(f, SPARSE_KEY_PREDICTOR_RECALL, (uint64_t)l);
        print_message(
            "%s %s rank %d density %g layer %d: fired %.4f, selected %.4f of %.4f, recall "
            "%.4f, correlation %.3f\n",
            k->shape, type, rank, (double)density, l, q.fired / q.n, q.selected / q.n, selected,
            q.caught / q.contributed, correlation);
        assert_true(fabs(recall - 0.98) < 1e-3);
        assert_true(fabs(q.caught / q.contributed - recall) < 0.015);
        assert_true(fabs(q.selected / q.n / selected - 1) < 0.15);
        assert_true(fabs(correlation - sqrt(0.9)) < 0.03);
        all.fired += q.fired, all.n += q.n, all.freq += q.freq;
        all.hot_fired += q.hot_fired, all.half_fired += q.half_fired;
    }
    assert_true(fabs(all.fired / all.n / (double)density - 1) < 0.06);
    assert_true(fabs(all.freq / all.n / (double)density - 1) < 0.01);
    assert_true(all.hot_fired / all.fired > 0.4); /* skew 0.26:0.8 */
    assert_true(all.half_fired / all.fired > 0.93);
    gguf_close(f);
}

static void test_predictor(void **state) {
    (void)state;
    check_predictor(&llama, "q8_0", 128, 0.05f);
    check_predictor(&opt, "f16", 128, 0.1f);
#ifndef TEST_SAMPLED
    check_predictor(&llama, "f16", 64, 0.1f);
    check_predictor(&llama, "f16", 256, 0.2f);
    check_predictor(&llama, "q4_0", 256, 0.1f);
    check_predictor(&falcon, "f16", 128, 0.1f);
#endif
}

/* ---- the same answers ------------------------------------------------------------------------ */

/* Returns the RMS difference relative to the plain file's logits. */
static double difference(const float *a, const float *b) {
    double square = 0, lost = 0;
    for (int i = 0; i < N_TOKENS * N_VOCAB; i++) {
        square += (double)(a[i] * a[i]);
        lost += (double)((a[i] - b[i]) * (a[i] - b[i]));
    }
    return sqrt(lost / square);
}

/* F16 rounds the weights of both files alike, so only the order of sums differs; the predictor
 * loses 2% of the contributions. */
static void check_answers(const kind *k) {
    static float plain[N_TOKENS * N_VOCAB], prepared[N_TOKENS * N_VOCAB];
    const struct {
        pi_mode mode;
        double most;
    } modes[] = {{PI_MODE_DENSE, 1e-3}, {PI_MODE_EXACT, 1e-3}, {PI_MODE_PREDICT, 0.1}};
    pi_synth_options o = tiny_options("f16");
    o.shape = k->shape;
    synth_both(o);
    run(PLAIN_PATH, PI_MODE_DENSE, NULL, plain);
    for (int i = 0; i < 3; i++) {
        run(PREPARED_PATH, modes[i].mode, NULL, prepared);
        double d = difference(plain, prepared);
        print_message("%s mode %s: %.2e\n", k->shape, ffn_mode_name(modes[i].mode), d);
        assert_true(d < modes[i].most);
        if (modes[i].mode == PI_MODE_PREDICT) assert_true(d > 1e-3); /* the predictor was used */
    }
}

static void test_same_answers(void **state) {
    (void)state;
    check_answers(&llama);
    check_answers(&opt);
    check_answers(&falcon);
}

/* ---- keys and types -------------------------------------------------------------------------- */

static void expect_texts(const gguf_file *f, const char *key, const char *text) {
    const gguf_value *v = gguf_find(f, key);
    assert_non_null(v);
    assert_int_equal(v->count, N_LAYER);
    const uint8_t *cursor = v->data;
    for (int i = 0; i < N_LAYER; i++) {
        gguf_string s = gguf_next_string(&cursor);
        assert_int_equal(s.n_bytes, strlen(text));
        assert_memory_equal(s.data, text, s.n_bytes);
    }
}

/* Bytes of the FFN that one mode reads of the prepared file, token by token. */
static uint64_t ffn_bytes(pi_mode mode) {
    int32_t tokens[N_TOKENS];
    engine_options o = run_engine_options(mode, 1, 1);
    model *m = run_engine_open(PREPARED_PATH);
    engine_context *c = run_engine_context(m, &o);
    for (int i = 0; i < N_TOKENS; i++) tokens[i] = (i * 37 + 5) % N_VOCAB;
    run_engine_tokens(c, N_TOKENS, tokens, N_TOKENS, 1, NULL);
    uint64_t n_bytes = engine_get_counters(c).ffn_bytes;
    engine_context_destroy(c);
    model_close(m);
    return n_bytes;
}

/* Rows of down that mode threshold reads, as planned. */
static void test_down_density(void **state) {
    (void)state;
    pi_synth_options o = tiny_options("f16");
    o.density = 0.4f;
    o.skew_mass = 0.5f;
    o.down_density = 0.25f;
    synth(PREPARED_PATH, &o);
    const uint64_t row = N_EMBD * 2, all = (uint64_t)N_FF * N_LAYER * N_TOKENS;
    double up = (double)(ffn_bytes(PI_MODE_EXACT) / row - all) / 2 / (double)all;
    double down = (double)(ffn_bytes(PI_MODE_THRESHOLD) / row - all) / (double)all - up;
    print_message("rows of up %.4f, of down %.4f\n", up, down);
    assert_true(fabs(up / 0.4 - 1) < 0.06 && fabs(down / 0.25 - 1) < 0.06);
}

static void test_keys(void **state) {
    (void)state;
    pi_synth_options o = tiny_options("q4_k");
    o.rank = 96; /* rows of fc2 are not whole q4_k blocks */
    synth(PREPARED_PATH, &o);
    gguf_file *f = open_file(PREPARED_PATH);
    uint64_t version = 0;
    double loss = NAN;
    assert_true(gguf_as_u64(gguf_find(f, SPARSE_KEY_VERSION), &version));
    assert_int_equal(version, SPARSE_VERSION);
    assert_true(gguf_as_f64(gguf_find(f, SPARSE_KEY_CALIBRATION_LOSS), &loss));
    assert_true(loss == 0);
    expect_texts(f, SPARSE_KEY_PREDICTOR_KIND, "lowrank");
    expect_texts(f, SPARSE_KEY_PREDICTOR_INPUT, "normed");
    expect_texts(f, SPARSE_KEY_SOURCE_DOWN_TYPE, "q4_k");
    assert_true(isnan(item(f, SPARSE_KEY_THRESHOLD_CUT, 0)));
    for (int l = 0; l < N_LAYER; l++) {
        const gguf_tensor *fc1 = find(f, l, "fc1.weight"), *fc2 = find(f, l, "fc2.weight");
        assert_int_equal(fc1->type, QUANT_Q4_K);
        assert_int_equal(fc1->dims[0], N_EMBD);
        assert_int_equal(fc1->dims[1], 96);
        assert_int_equal(fc2->type, QUANT_Q8_0);
        assert_int_equal(fc2->dims[0], 96);
        assert_int_equal(fc2->dims[1], N_FF);
        assert_int_equal(find(f, l, "ffn_down_t.weight")->type, QUANT_Q4_K);
    }
    gguf_close(f);
}

static void test_cut(void **state) {
    (void)state;
    synth_profile profile;
    assert_int_equal(synth_profile_solve(0.1, 0.26, 0.8, &profile, NULL), PI_OK);
    synth_predictor low = synth_predictor_solve(&profile, 0.9, 0, 0);
    synth_predictor high = synth_predictor_solve(&profile, 0.98, 0, 0);
    synth_predictor rough = synth_predictor_solve(&profile, 0.98, 0.01, 0.1);
    assert_true(fabs(low.recall - 0.9) < 1e-6 && fabs(high.recall - 0.98) < 1e-6);
    assert_true(low.density < high.density && high.density < rough.density);
    assert_true(low.threshold > high.threshold);

    /* Compares with sampling: three normals per neuron and token. */
    rng r;
    rng_seed(&r, 3);
    double all = 0, caught = 0, selected = 0;
    enum { DRAWS = 400000 };
    for (int i = 0; i < DRAWS; i++) {
        double t = synth_clamp_mean(profile.mu + profile.tau * (double)rng_normal(&r));
        double seen = sqrt(0.9) * (double)rng_normal(&r);
        double gate = t + seen + sqrt(0.1) * (double)rng_normal(&r);
        bool chosen = t + seen >= high.threshold;
        selected += chosen;
        all += gate > 0 ? gate : 0;
        caught += chosen && gate > 0 ? gate : 0;
    }
    assert_true(fabs(caught / all - 0.98) < 0.003);
    assert_true(fabs(selected / DRAWS / high.density - 1) < 0.02);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cut),          cmocka_unit_test(test_same_network),
        cmocka_unit_test(test_predictor),    cmocka_unit_test(test_same_answers),
        cmocka_unit_test(test_down_density), cmocka_unit_test(test_keys),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(PLAIN_PATH);
    unlink(PREPARED_PATH);
    return failed;
}
