/* test_engine_hybrid.c: every placement gives the answer of the CPU alone. Random placements of
 * random models of every architecture, in every mode, with every kind of predictor, on the
 * simulated GPU (or the one that --device names), in one batch, a few tokens at a time and one by
 * one, several sessions at once, with rewinding.
 *
 * Choices are compared with float weights: scores from int8 inputs move by whole steps when an
 * input is a rounding error away from another integer, and a neuron near the threshold may fall to
 * either side. Signs always read int8 inputs; the seeds here have no such neuron. For block types
 * the integer arithmetic of GPU and CPU is identical, so dense and exact modes are compared. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "clock.h"
#include "engine.h"
#include "rng.h"
#include "run_device.h"
#include "run_engine.h"
#include "run_model.h"
#include "tiny_model.h"

#define MODEL_PATH TEST_BINARY_DIR "/test_engine_hybrid.gguf"

/* Every model runs on two of the four placements of choose_splits, in one batch and in one of the
 * two divisions into pieces, alternating; with arguments (a device, or `--cases all`, but not with
 * `--cases some`) on all of them in every way. Sanitizers and emulators run every twelfth model;
 * there the device is lost at fewer moments, whose distance grows by a LOSSES-th of their number.
 */
#ifdef TEST_SAMPLED
enum { STEP = 12, LOSSES = 1, N_FOR_ONE = 2 };
#else
enum { STEP = 1, LOSSES = 4, N_FOR_ONE = 3 }; /* placements of tests of one model */
#endif
enum {
    N_PLACEMENTS = 4,
    N_TOKENS = 21,
    MAX_VOCAB = 64,
    N_CTX = 64,
    N_BATCH = 16,
};

/* Bound for F16 and float weights; the promise is 1e-5. */
static const double float_gate = 1e-6, block_gate = 1e-3;

static gpu_library library;
static gpu_device *device;
static rng random_splits;
static bool all_cases;

static int32_t tokens[N_TOKENS];
static float want[N_TOKENS * MAX_VOCAB], got[N_TOKENS * MAX_VOCAB];
static plan_split splits[TINY_MAX_LAYERS];

/* ---- running --------------------------------------------------------------------------------- */

static engine_options options_for(pi_mode mode) {
    return run_engine_options(mode, N_BATCH, N_TOKENS);
}

static uint32_t n_placed;

static void place(engine_options *o, plan_side head) {
    o->plan.splits = splits;
    o->plan.head = head;
    o->gpu = library.backend;
    o->devices[0] = device;
    o->plan.merge_norms = 1 & n_placed++; /* every second time */
}

static pi_session *make_session(engine_context *c) {
    return run_engine_session(c, N_CTX);
}

/* n tokens from `from` on; `out` receives their logits. */
static void feed(engine_context *c, pi_session *s, int from, int n, float *out) {
    const int32_t n_vocab = engine_plan(c)->model->hp.n_vocab;
    run_engine_feed(c, s, tokens + from, n, 0, out + from * n_vocab);
}

/* The first tokens, `piece` at a time (0: in one call). */
static void run(engine_context *c, int n_tokens, int piece, float *out) {
    run_engine_tokens(c, N_CTX, tokens, n_tokens, piece, out);
}

/* `want` receives the answer of the CPU alone. */
static void run_alone(const model *m, const engine_options *o) {
    engine_context *c = run_engine_context(m, o);
    assert_true(m->hp.n_vocab <= MAX_VOCAB);
    if (o->plan.mode != PI_MODE_DENSE) assert_int_equal(engine_plan(c)->mode, o->plan.mode);
    run(c, N_TOKENS, 1, want);
    engine_context_destroy(c);
}

/* A separate device in place of the shared one. */
static void open_another(uint64_t memory_limit, uint32_t wait_ms) {
    device = run_device_another(&library, 0, memory_limit, wait_ms);
}

/* ---- placements ------------------------------------------------------------------------------ */

static int64_t random_below(int64_t n) {
    return (int64_t)(rng_u64(&random_splits) % (uint64_t)n);
}

static int64_t random_hot(const model *m, int layer) {
    int64_t n = model_layer_units(m, layer), unit = plan_split_unit(m, layer);
    switch (random_below(4)) {
    case 0:
        return 0;
    case 1:
        return n;
    default:
        return random_below(n / unit) * unit;
    }
}

static plan_side random_side(void) {
    return random_below(2) ? SIDE_GPU : SIDE_CPU;
}

/* Everything on the GPU, everything split with either primary, then random placements. */
static plan_side choose_splits(const model *m, int number) {
    for (int i = 0; i < m->hp.n_layer; i++) {
        int64_t n = model_layer_units(m, i), unit = plan_split_unit(m, i);
        int64_t half = n / 2 / unit * unit;
        if (number == 0) splits[i] = (plan_split){.primary = SIDE_GPU, .hot = n};
        if (number == 1) splits[i] = (plan_split){.primary = SIDE_GPU, .hot = half};
        if (number == 2) splits[i] = (plan_split){.primary = SIDE_CPU, .hot = half};
        if (number > 2) splits[i] = (plan_split){.primary = random_side(), .hot = random_hot(m, i)};
    }
    return number <= 1 ? SIDE_GPU : number == 2 ? SIDE_CPU : random_side();
}

static void describe_splits(const model *m, plan_side head, char *text, size_t n_text) {
    size_t n = 0;
    for (int i = 0; i < m->hp.n_layer && n < n_text; i++)
        n += (size_t)snprintf(text + n, n_text - n, "%s %d/%d, ",
                              splits[i].primary == SIDE_GPU ? "gpu" : "cpu", (int)splits[i].hot,
                              (int)model_layer_units(m, i));
    if (n < n_text) snprintf(text + n, n_text - n, "head %s", head == SIDE_GPU ? "gpu" : "cpu");
}

/* In one batch, and in pieces: `turn` selects the ways. */
static void compare(const char *what, const model *m, pi_mode mode, plan_side head, double gate,
                    int turn) {
    /* A single token costs as many launches as a batch. */
    static const struct { int n_tokens, piece; } runs[] = {{N_TOKENS, 0}, {N_TOKENS, 7}, {6, 1}};
    enum { N_RUNS = sizeof runs / sizeof runs[0] };
    static const gpu_prompts prompts[] = {GPU_PROMPTS_SPLIT, GPU_PROMPTS_STREAMED,
                                          GPU_PROMPTS_AUTO};
    engine_options o = options_for(mode);
    o.prompts = prompts[random_below(3)];
    place(&o, head);
    engine_context *c = run_engine_context(m, &o);
    for (int i = 0; i < N_RUNS; i++) {
        char text[256];
        if (!all_cases && i > 0 && i != 1 + turn % 2) continue;
        memset(got, 0xff, sizeof got);
        run(c, runs[i].n_tokens, runs[i].piece, got);
        double nmse = run_nmse(got, want, (int64_t)runs[i].n_tokens * m->hp.n_vocab);
        describe_splits(m, head, text, sizeof text);
        if (!(nmse <= gate))
            fail_msg("%s, %s: %s, pieces of %d, prompts %d: NMSE %g is above %g", what,
                     ffn_mode_name(mode), text, runs[i].piece, (int)o.prompts, nmse, gate);
    }
    engine_context_destroy(c);
}

static model *open_model(const tiny_model *t) {
    run_random_tokens(t->seed, t->n_vocab, tokens, N_TOKENS);
    return run_engine_open_tiny(t, MODEL_PATH);
}

static void check(const char *what, const tiny_model *t, pi_mode mode) {
    static int number;
    int turn = number / STEP;
    if (number++ % STEP) return;
    model *m = open_model(t);
    double gate = t->type[0] == 'f' ? float_gate : block_gate;
    engine_options o = options_for(mode);
    run_alone(m, &o);
    for (int i = 0; i < N_PLACEMENTS; i++) { /* 0 and 3, 1 and 2 */
        bool mine = turn % 2 == (i == 1 || i == 2);
        plan_side head = choose_splits(m, i);
        run_engine_keep(m, library.backend->supports, mode, splits, &head);
        if (all_cases || mine) compare(what, m, mode, head, gate, turn / 2 + i / 2);
    }
    model_close(m);
}

/* ---- models ---------------------------------------------------------------------------------- */

static tiny_model base_model(const char *arch) {
    tiny_model t = tiny_default();
    t.arch = arch;
    t.type = "f16";
    t.n_embd = 64;
    t.n_vocab = 43; /* not a multiple of anything */
    t.head_dim = t.n_rot = 16;
    t.n_layer = 3;
    t.n_head[2] = t.n_head[0];
    t.n_head_kv[2] = t.n_head_kv[0];
    t.n_ff[0] = 608;
    t.n_ff[1] = 96;
    t.n_ff[2] = 320;
    if (strcmp(arch, "qwen2") == 0) t.qkv_bias = true;
    t.fused_ffn = strcmp(arch, "phi3") == 0;
    if (strcmp(arch, "opt") == 0) {
        t.qkv_bias = t.out_bias = t.ffn_bias = t.tied = true;
        t.n_pos = N_CTX;
    }
    return t;
}

static void test_archs(void **state) {
    (void)state;
    /* variants that the GPU's code expresses differently */
    static const char *const names[] = {"llama", "qwen2", "qwen3", "falcon", "opt", "bamboo"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        tiny_model t = base_model(names[i]);
        check(t.arch, &t, PI_MODE_DENSE);
        t.sparse.down_t = true;
        check(t.arch, &t, PI_MODE_DENSE);
    }
    tiny_model t = base_model("falcon");
    t.two_norms = true;
    check("falcon with two norms", &t, PI_MODE_DENSE);
}

/* Compressed attention: queries with or without a separate latent vector. */
static tiny_model latent_model(const char *type, int n_latent_q) {
    tiny_model t = base_model("deepseek2");
    t.type = type;
    t.head_dim = 40;
    t.n_rot = 8;
    t.n_latent = 32;
    t.n_latent_q = n_latent_q;
    t.v_dim = 32;
    tiny_set_heads(&t, 5, 1);
    return t;
}

static void test_latent(void **state) {
    (void)state;
    static const char *const types[] = {"f16", "f32", "q8_0"};
    for (int i = 0; i < 3; i++) {
        tiny_model t = latent_model(types[i], i == 1 ? 0 : 32);
        check("latent", &t, PI_MODE_DENSE);
    }
    tiny_model t = latent_model("f16", 0);
    t.scales = true;
    check("latent, scales", &t, PI_MODE_DENSE);
}

/* Values shorter than keys; layers with different numbers of KV heads. */
static void test_uneven_heads(void **state) {
    (void)state;
    static const char *const types[] = {"f16", "q8_0"};
    for (int i = 0; i < 2; i++) {
        tiny_model t = base_model("mimo2");
        t.type = types[i];
        t.head_dim = 48;
        t.n_rot = 16;
        t.v_dim = i ? 32 : 24;
        t.n_head_kv[1] = i ? 4 : 1;
        check("uneven", &t, PI_MODE_DENSE);
    }
}

static void test_scales(void **state) {
    (void)state;
    tiny_model t = base_model("llama");
    t.scales = true;
    check("scales", &t, PI_MODE_DENSE);
    t.activation = "relu";
    t.sparse.down_t = true;
    check("scales", &t, PI_MODE_EXACT);
    t.sparse.predictor = "lowrank";
    t.sparse.rank = 32;
    check("scales", &t, PI_MODE_PREDICT);
}

static void test_exact(void **state) {
    (void)state;
    static const char *const activations[] = {"relu", "drelu", "relu_squared", "fatrelu"};
    for (int i = 0; i < 4; i++) {
        tiny_model t = base_model("llama");
        t.activation = activations[i];
        t.threshold = 0.05f;
        check(t.activation, &t, PI_MODE_EXACT);
        t.sparse.down_t = true;
        check(t.activation, &t, PI_MODE_EXACT);
    }
    tiny_model t = base_model("opt");
    t.sparse.down_t = true;
    check("opt", &t, PI_MODE_EXACT);
    t = base_model("falcon");
    t.activation = "relu";
    check("falcon", &t, PI_MODE_EXACT);
    t = base_model("phi3");
    t.activation = "relu";
    t.sparse.down_t = true;
    check("phi3", &t, PI_MODE_EXACT);
}

static void test_predict(void **state) {
    (void)state;
    static const char *const kinds[] = {"sign", "lowrank", "relu_mlp"};
    static const char *const archs[] = {"llama", "opt", "falcon", "phi3"};
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < 4; k++) {
            if (k > 0 && i == 0) continue; /* signs belong to a gate */
            tiny_model t = base_model(archs[k]);
            t.activation = "relu";
            t.sparse = (tiny_sparse){.down_t = true,
                                     .predictor = kinds[i],
                                     .rank = i == 1 ? 37 : 32,
                                     .residual = i == 2};
            t.seed += 3;
            char what[64];
            snprintf(what, sizeof what, "%s, %s", archs[k], kinds[i]);
            check(what, &t, PI_MODE_PREDICT);
        }
    }
}

static void test_threshold(void **state) {
    (void)state;
    tiny_model t = base_model("llama");
    t.sparse = (tiny_sparse){.down_t = true, .cut = 0.05f, .cut_factors = true};
    check("silu", &t, PI_MODE_THRESHOLD);
    t.sparse.cut_down = 0.02f;
    check("silu, two thresholds", &t, PI_MODE_THRESHOLD);
}

static void test_types(void **state) {
    (void)state;
    static const char *const types[] = {"f32", "bf16", "q8_0", "q4_0", "mxfp4"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        tiny_model t = base_model("llama");
        t.type = types[i];
        t.activation = "relu";
        check(types[i], &t, PI_MODE_EXACT);
        t.sparse.down_t = true;
        check(types[i], &t, PI_MODE_EXACT);
    }
}

/* ---- experts --------------------------------------------------------------------------------- */

/* With float weights, choices are compared. Block types round a prompt's inputs differently on the
 * two devices, which may choose other experts: there every token uses all experts. */
static tiny_model expert_model(const char *arch, const char *type) {
    tiny_model t = base_model(arch);
    t.type = type;
    t.experts = (tiny_experts){.n = 12, .n_used = 3, .n_ff = 96};
    if (type[0] != 'f' && type[0] != 'b') t.experts.n_used = t.experts.n;
    return t;
}

static void test_experts(void **state) {
    (void)state;
    static const char *const types[] = {"f16", "f32", "bf16", "q8_0", "q4_0", "mxfp4"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        tiny_model t = expert_model("llama", types[i]);
        check(types[i], &t, PI_MODE_DENSE);
    }
    tiny_model t = expert_model("llama", "f16");
    t.experts.biased = true;
    check("biases", &t, PI_MODE_DENSE);
    t.scales = true;
    check("scales", &t, PI_MODE_DENSE);
    t = expert_model("smallthinker", "f16");
    check("router of the layer's input, ReLU", &t, PI_MODE_DENSE);
}

/* Groups, a bias for the choice, sigmoid, a shared expert, dense layers, gate and up in one
 * tensor. */
static void test_expert_groups(void **state) {
    (void)state;
    tiny_model t = expert_model("bailingmoe2", "f16");
    t.experts.n_group = 4;
    t.experts.n_group_used = 2;
    t.experts.select_bias = true;
    check("groups", &t, PI_MODE_DENSE);
    t.experts.n_dense = 1;
    t.experts.n_ff_shared = 64;
    t.experts.fused = true;
    check("shared", &t, PI_MODE_DENSE);
    t.type = "q8_0";
    t.experts.n_used = t.experts.n;
    t.experts.n_group = t.experts.n_group_used = 0;
    check("shared", &t, PI_MODE_DENSE);
}

static int n_tiled, n_by_pair; /* products of experts in each way */

static void count_tiled(gpu_stream *s, const gpu_expert_matmul *a) {
    n_tiled++;
    library.backend->ops.expert_matmul(s, a);
}

static void count_by_pair(gpu_stream *s, const gpu_expert_in *a) {
    n_by_pair++;
    library.backend->ops.expert_in(s, a);
}

/* Ubatches with fewer pairs than experts multiply pair by pair, larger ones in tiles: with weights
 * of the input or of the output, with down as in the file or by rows, and with a part of the
 * experts on the GPU; answers stay. */
static void test_expert_tiles(void **state) {
    (void)state;
    static const struct {
        int n_tokens;
        bool tiles;
    } runs[] = {{N_BATCH, true}, {GPU_MAX_COLS + 1, false}, {GPU_MAX_COLS, false}, {13, true}};
    gpu_backend counting = *library.backend;
    counting.ops.expert_matmul = count_tiled;
    counting.ops.expert_in = count_by_pair;
    for (int i = 0; i < 4; i++) {
        tiny_model t = expert_model(i == 1 ? "llama4" : "llama", i == 2 ? "f32" : "f16");
        t.experts = (tiny_experts){.n = 24, .n_used = 2, .n_ff = 96, .biased = i == 3};
        t.sparse.down_t = i == 2;
        model *m = open_model(&t);
        engine_options o = options_for(PI_MODE_DENSE);
        run_alone(m, &o);
        plan_side head = choose_splits(m, i % 3);
        place(&o, head);
        o.gpu = &counting;
        engine_context *c = run_engine_context(m, &o);
        for (size_t k = 0; k < sizeof runs / sizeof *runs; k++) {
            n_tiled = n_by_pair = 0;
            run(c, runs[k].n_tokens, 0, got);
            assert_int_equal(n_tiled > 0, runs[k].tiles);
            assert_int_equal(n_by_pair > 0, !runs[k].tiles);
            double nmse = run_nmse(got, want, (int64_t)runs[k].n_tokens * m->hp.n_vocab);
            if (!(nmse <= float_gate)) fail_msg("model %d, run %d: NMSE %g", i, (int)k, nmse);
        }
        engine_context_destroy(c);
        model_close(m);
    }
}

/* ---- sessions -------------------------------------------------------------------------------- */

/* Several sessions share ubatches; one is rewound and fed again. */
static void test_sessions(void **state) {
    (void)state;
    tiny_model t = base_model("llama");
    t.activation = "relu";
    t.sparse.down_t = true;
    model *m = open_model(&t);
    int n_vocab = m->hp.n_vocab;
    engine_options o = options_for(PI_MODE_EXACT);
    run_alone(m, &o);
    place(&o, choose_splits(m, 1));
    engine_context *c = run_engine_context(m, &o);
    pi_session *a = make_session(c), *b = make_session(c);
    pi_error err;
    for (int i = 0; i < 12; i += 4) {
        const pi_input in[] = {
            {.session = a, .tokens = tokens + i, .n_tokens = 4, .logits = PI_LOGITS_ALL},
            {.session = b, .tokens = tokens + i, .n_tokens = 4, .logits = PI_LOGITS_LAST}};
        if (engine_forward(c, in, 2, &err)) fail_msg("%s", err.message);
        double nmse = run_nmse(engine_logits(c, 0), want + i * n_vocab, 4 * n_vocab);
        assert_true(nmse <= float_gate);
        nmse = run_nmse(engine_logits(c, 4), want + (i + 3) * n_vocab, n_vocab);
        assert_true(nmse <= float_gate);
    }
    assert_int_equal(session_rewind(a, 5, &err), PI_OK);
    feed(c, a, 5, 16, got);
    assert_true(run_nmse(got + 5 * n_vocab, want + 5 * n_vocab, 16 * n_vocab) <= float_gate);
    engine_session_destroy(a);
    engine_session_destroy(b);
    engine_context_destroy(c);
    model_close(m);
}

/* A session saved under one placement continues under another. */
static void check_session_file(const tiny_model *t) {
    static const char *const path = TEST_BINARY_DIR "/test_engine_hybrid.session";
    model *m = open_model(t);
    int n_vocab = m->hp.n_vocab;
    engine_options alone = options_for(PI_MODE_DENSE), shared = alone;
    plan_side head = choose_splits(m, 1);
    splits[1].primary = SIDE_CPU;
    run_engine_keep(m, library.backend->supports, PI_MODE_DENSE, splits, &head);
    place(&shared, head);
    engine_context *c[] = {run_engine_context(m, &alone), run_engine_context(m, &shared)};
    run(c[0], N_TOKENS, 1, want);
    for (int from = 0; from < 2; from++) {
        int32_t loaded[N_TOKENS];
        int64_t n_loaded;
        pi_error err;
        pi_session *a = make_session(c[from]), *b = make_session(c[1 - from]);
        feed(c[from], a, 0, 13, got);
        if (session_save(a, path, tokens, 13, &err)) fail_msg("%s", err.message);
        if (session_load(b, path, loaded, 11, &n_loaded, &err)) fail_msg("%s", err.message);
        assert_int_equal(n_loaded, 11);
        assert_memory_equal(loaded, tokens, 11 * sizeof *tokens);
        feed(c[1 - from], b, 11, N_TOKENS - 11, got);
        double nmse = run_nmse(got, want, N_TOKENS * n_vocab);
        if (!(nmse <= float_gate)) fail_msg("from %d: NMSE %g", from, nmse);
        engine_session_destroy(a);
        engine_session_destroy(b);
    }
    for (int i = 0; i < 2; i++) engine_context_destroy(c[i]);
    model_close(m);
    remove(path);
}

static void test_session_file(void **state) {
    (void)state;
    tiny_model t = base_model("llama");
    check_session_file(&t);
    t = latent_model("f16", 0);
    check_session_file(&t);
}

/* A model with predicted neurons, one token at a time. */
static model *open_predicting(void) {
    tiny_model t = base_model("llama");
    t.activation = "relu";
    t.sparse = (tiny_sparse){.down_t = true, .predictor = "lowrank", .rank = 32};
    return open_model(&t);
}

/* The GPU is used to the end, and the result is `want`. */
static void expect_wanted(engine_context *c, int n_vocab) {
    run(c, N_TOKENS, 3, got);
    assert_null(engine_gpu_loss(c));
    assert_true(run_nmse(got, want, N_TOKENS * n_vocab) <= float_gate);
}

/* The device is lost at any operation of any ubatch: answers and sessions stay. */
static void test_lost_device(void **state) {
    (void)state;
    if (!library.backend->fail_at) skip();
    model *m = open_predicting();
    int n_vocab = m->hp.n_vocab, n_lost = 0;
    engine_options o = options_for(PI_MODE_PREDICT);
    run_alone(m, &o);
    plan_side head = choose_splits(m, 1);
    splits[2].primary = SIDE_CPU;
    place(&o, head);
    gpu_device *shared = device;
    for (int64_t n = 1, lost = 1; lost; n += n / LOSSES + 1) {
        pi_error err;
        open_another(0, RUN_DEVICE_WAIT_MS);
        o.devices[0] = device;
        engine_context *c = run_engine_context(m, &o);
        pi_session *a = make_session(c), *b = make_session(c);
        feed(c, a, 0, 2, got);
        feed(c, b, 0, 9, got);
        library.backend->fail_at(device, n);
        for (int i = 2; i < 8; i += 2) feed(c, a, i, 2, got);
        feed(c, b, 9, N_TOKENS - 9, got);
        lost = engine_gpu_loss(c) != NULL;
        n_lost += (int)lost;
        if (lost) assert_non_null(strstr(engine_gpu_loss(c), "device lost"));
        double nmse = run_nmse(got, want, N_TOKENS * n_vocab);
        if (!(nmse <= float_gate)) fail_msg("lost at %d: NMSE %g", (int)n, nmse);
        assert_int_equal(session_rewind(a, 3, &err), PI_OK);
        feed(c, a, 3, 4, got);
        assert_true(run_nmse(got + 3 * n_vocab, want + 3 * n_vocab, 4 * n_vocab) <= float_gate);
        engine_session_destroy(a);
        engine_session_destroy(b);
        engine_context_destroy(c);
        library.backend->close(device);
    }
    device = shared;
    assert_true(n_lost > 5);
    model_close(m);
}

/* With too little device memory a context reports so; where only a cache does not fit, neurons make
 * room. */
static void test_little_memory(void **state) {
    (void)state;
    tiny_model t = base_model("llama");
    model *m = open_model(&t);
    engine_options o = options_for(PI_MODE_DENSE);
    run_alone(m, &o);
    place(&o, choose_splits(m, 1));
    gpu_exec_bytes bytes;
    pi_error err;
    if (engine_gpu_size(m, &o, 0, &bytes, &err)) fail_msg("%s", err.message);
    uint64_t need = bytes.weights + bytes.scratch;
    gpu_device *shared = device;
    for (int i = 0; i <= 8; i++) { /* the last has room for all except a cache */
        open_another(i < 8 ? need * (uint64_t)(i + 1) / 9 : need, RUN_DEVICE_WAIT_MS);
        o.devices[0] = device;
        engine_context *c;
        pi_status status = engine_context_create(m, &o, &c, &err);
        assert_int_equal(status, i < 8 ? PI_ERR_NOMEM : PI_OK);
        if (i == 8) {
            run(c, N_TOKENS, 3, got);
            assert_null(engine_gpu_loss(c));
            assert_true(run_nmse(got, want, N_TOKENS * m->hp.n_vocab) <= float_gate);
            engine_context_destroy(c);
        } else {
            run_check_message(&err, status);
        }
        library.backend->close(device);
    }
    device = shared;
    model_close(m);
}

/* A cancelled call leaves nothing waiting, and the next one works. */
static void test_cancel(void **state) {
    (void)state;
    tiny_model t = base_model("llama");
    model *m = open_model(&t);
    engine_options o = options_for(PI_MODE_DENSE);
    run_alone(m, &o);
    for (int number = 0; number < 3; number++) {
        place(&o, choose_splits(m, number));
        engine_context *c = run_engine_context(m, &o);
        pi_session *s = make_session(c);
        for (int n = 1; n <= 12; n += 11) { /* few tokens, many tokens */
            const pi_input in = {
                .session = s, .tokens = tokens, .n_tokens = n, .logits = PI_LOGITS_LAST};
            pi_error err;
            engine_cancel(c);
            assert_int_equal(engine_forward(c, &in, 1, &err), PI_ERR_CANCELLED);
            assert_int_equal(session_length(s), 0);
        }
        feed(c, s, 0, N_TOKENS, got);
        assert_null(engine_gpu_loss(c));
        assert_true(run_nmse(got, want, N_TOKENS * m->hp.n_vocab) <= float_gate);
        engine_session_destroy(s);
        engine_context_destroy(c);
    }
    model_close(m);
}

/* A device that hardly waits for the CPU may be given up; answers stay. */
static void test_impatient(void **state) {
    (void)state;
    tiny_model t = base_model("llama");
    model *m = open_model(&t);
    engine_options o = options_for(PI_MODE_DENSE);
    run_alone(m, &o);
    gpu_device *shared = device;
    open_another(0, 1);
    place(&o, choose_splits(m, 2));
    engine_context *c = run_engine_context(m, &o);
    run(c, N_TOKENS, 1, got);
    assert_true(run_nmse(got, want, N_TOKENS * m->hp.n_vocab) <= float_gate);
    engine_context_destroy(c);
    library.backend->close(device);
    device = shared;
    model_close(m);
}

/* A context takes exactly the predicted device memory. */
static void check_size(model *m, pi_mode mode) {
    gpu_device *shared = device;
    /* With a limit only allocations count, not the driver's own memory. */
    open_another(256 << 20, RUN_DEVICE_WAIT_MS);
    for (int i = 0; i < 6; i++) {
        engine_options o = options_for(mode);
        place(&o, choose_splits(m, i));
        gpu_exec_bytes bytes;
        uint64_t before, after, total;
        pi_error err;
        if (engine_gpu_size(m, &o, 0, &bytes, &err)) fail_msg("%s", err.message);
        assert_int_equal(library.backend->memory(device, &before, &total, &err), PI_OK);
        engine_context *c = run_engine_context(m, &o);
        pi_session *s = make_session(c);
        assert_int_equal(library.backend->memory(device, &after, &total, &err), PI_OK);
        uint64_t cache = bytes.kv_per_position * N_CTX;
        assert_int_equal(before - after, bytes.weights + bytes.scratch + cache);
        engine_session_destroy(s);
        engine_context_destroy(c);
        assert_int_equal(library.backend->memory(device, &after, &total, &err), PI_OK);
        assert_int_equal(before, after);
    }
    library.backend->close(device);
    device = shared;
    model_close(m);
}

static void test_size(void **state) {
    (void)state;
    check_size(open_predicting(), PI_MODE_PREDICT);
    tiny_model t = expert_model("llama", "q8_0");
    check_size(open_model(&t), PI_MODE_DENSE);
}

/* On a device that allocates memory in large pieces a context takes one piece; answers are
 * unchanged. */
static void test_one_piece(void **state) {
    (void)state;
    gpu_backend coarse = *library.backend;
    coarse.granularity = 2 << 20;
    model *m = open_predicting();
    engine_options o = options_for(PI_MODE_PREDICT);
    run_alone(m, &o);
    gpu_device *shared = device;
    for (int i = 0; i < N_FOR_ONE; i++) {
        gpu_exec_bytes bytes;
        pi_error err;
        place(&o, choose_splits(m, i));
        o.gpu = &coarse;
        if (engine_gpu_size(m, &o, 0, &bytes, &err)) fail_msg("%s", err.message);
        /* The context fits exactly that memory and a cache, which is more than the rest of one
         * piece. */
        uint64_t cache = bytes.kv_per_position * N_CTX;
        open_another(bytes.weights + bytes.scratch + cache, RUN_DEVICE_WAIT_MS);
        o.devices[0] = device;
        engine_context *c = run_engine_context(m, &o);
        expect_wanted(c, m->hp.n_vocab);
        engine_context_destroy(c);
        library.backend->close(device);
    }
    device = shared;
    model_close(m);
}

static pi_status record_nothing(gpu_stream *s, pi_error *err) {
    (void)s;
    return error_set(err, PI_ERR_DEVICE, "no programs here");
}

/* Where programs cannot be recorded they are enqueued in pieces, with the same answers. */
static void test_no_programs(void **state) {
    (void)state;
    gpu_backend plain = *library.backend;
    plain.record_begin = record_nothing;
    model *m = open_predicting();
    engine_options o = options_for(PI_MODE_PREDICT);
    run_alone(m, &o);
    for (int i = 0; i < N_FOR_ONE; i++) {
        place(&o, choose_splits(m, i));
        o.gpu = &plain;
        engine_context *c = run_engine_context(m, &o);
        expect_wanted(c, m->hp.n_vocab);
        engine_context_destroy(c);
    }
    model_close(m);
}

static void publish_nothing(gpu_stream *s, const gpu_publish *a) {
    (void)s;
    (void)a;
}

/* A message that the device never sends, as when a kernel has crashed, is missed as soon as all the
 * device's work is over, long before the timeout. */
static void test_silence(void **state) {
    (void)state;
    gpu_backend silent = *library.backend;
    silent.ops.publish = publish_nothing;
    tiny_model t = base_model("llama");
    model *m = open_model(&t);
    engine_options o = options_for(PI_MODE_DENSE);
    run_alone(m, &o);
    /* The device's last step is that message: it does not wait for the CPU's answer after it. */
    memset(splits, 0, sizeof splits);
    for (int i = 0; i < m->hp.n_layer; i++) splits[i].primary = SIDE_CPU;
    splits[m->hp.n_layer - 1].hot = model_layer_units(m, m->hp.n_layer - 1) / 2;
    o.prompts = GPU_PROMPTS_SPLIT;
    place(&o, SIDE_CPU);
    o.gpu = &silent;
    engine_context *c = run_engine_context(m, &o);
    double start = clock_seconds();
    run(c, N_TOKENS, 0, got);
    assert_true(clock_seconds() - start < 1.5e-3 * RUN_DEVICE_WAIT_MS); /* not 120 s */
    assert_non_null(strstr(engine_gpu_loss(c), "timed out"));
    assert_true(run_nmse(got, want, N_TOKENS * m->hp.n_vocab) <= float_gate);
    engine_context_destroy(c);
    /* Where each device waits for the other the timeout must pass, but not as long as a slow CPU
     * may need. */
    enum { WAIT_MS = 1000, TRIES = 8 };
    gpu_device *shared = device;
    open_another(0, WAIT_MS);
    place(&o, choose_splits(m, 1));
    o.gpu = &silent;
    c = run_engine_context(m, &o);
    start = clock_seconds();
    run(c, N_TOKENS, 0, got);
    assert_true(clock_seconds() - start < 1e-3 * WAIT_MS * TRIES);
    assert_non_null(strstr(engine_gpu_loss(c), "timed out"));
    assert_true(run_nmse(got, want, N_TOKENS * m->hp.n_vocab) <= float_gate);
    engine_context_destroy(c);
    library.backend->close(device);
    device = shared;
    model_close(m);
}

/* A split point inside a block, or outside the layer, is refused. */
static void test_bad_splits(void **state) {
    (void)state;
    tiny_model t = base_model("llama");
    t.type = "q4_0";
    model *m = open_model(&t);
    static const int64_t bad[] = {-32, 16, 640};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        engine_context *c;
        pi_error err;
        engine_options o = options_for(PI_MODE_DENSE);
        memset(splits, 0, sizeof splits);
        splits[0].hot = bad[i];
        place(&o, SIDE_CPU);
        pi_status status = engine_context_create(m, &o, &c, &err);
        assert_int_equal(status, PI_ERR_ARG);
        run_check_message(&err, status);
    }
    model_close(m);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_archs),        cmocka_unit_test(test_uneven_heads),
        cmocka_unit_test(test_scales),       cmocka_unit_test(test_latent),
        cmocka_unit_test(test_exact),        cmocka_unit_test(test_predict),
        cmocka_unit_test(test_threshold),    cmocka_unit_test(test_types),
        cmocka_unit_test(test_experts),      cmocka_unit_test(test_expert_groups),
        cmocka_unit_test(test_cancel),       cmocka_unit_test(test_impatient),
        cmocka_unit_test(test_sessions),     cmocka_unit_test(test_size),
        cmocka_unit_test(test_session_file), cmocka_unit_test(test_bad_splits),
        cmocka_unit_test(test_lost_device),  cmocka_unit_test(test_little_memory),
        cmocka_unit_test(test_one_piece),    cmocka_unit_test(test_silence),
        cmocka_unit_test(test_no_programs),  cmocka_unit_test(test_expert_tiles),
    };
    int failed;
    if (!run_device_open(argc, argv, RUN_DEVICE_WAIT_MS, &library, &device, &failed)) return failed;
    all_cases = argc > 1;
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], "--cases") == 0) all_cases = strcmp(argv[i + 1], "some") != 0;
    rng_seed(&random_splits, 11);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    run_device_close(&library, device);
    return failed;
}
