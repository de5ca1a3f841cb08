/* test_engine_multi_gpu.c: layers in stages over three devices, each a helper in layers of the
 * others, give the answer of the CPU: random placements of several kinds of models, in one batch,
 * in pieces and one by one, on devices with and without access to each other's memory; sessions
 * that share ubatches, are rewound, copied, saved and loaded. Each device takes exactly the
 * predicted memory. When any device is lost, answers and sessions stay. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "clock.h"
#include "context.h"
#include "gpu_exec_impl.h"
#include "layer_embd_model.h"
#include "recurrent_model.h"
#include "rng.h"
#include "run_device.h"
#include "run_engine.h"
#include "run_model.h"
#include "tiny_model.h"
#include "trace.h"

#define MODEL_PATH TEST_BINARY_DIR "/test_engine_multi_gpu.gguf"

enum { HELPERS = 2 }; /* the placement where every device is a helper */
enum { N_DEVICES = 3, N_TOKENS = 17, N_CTX = 32, N_BATCH = 12, MAX_VOCAB = 288, MAX_LAYERS = 16 };

#ifdef TEST_SAMPLED
enum { N_RANDOM = 1, LOSSES = 1, N_LOST = 1, STEP = 2 };
#else
/* Placements of a model; moments at which a device is lost, and the number of those that are
 * tested; every STEP-th of other cases. */
enum { N_RANDOM = 2, LOSSES = 2, N_LOST = 3, STEP = 1 };
#endif

static const double gate = 1e-6; /* for float weights */

static gpu_library library;
static gpu_device *device, *devices[N_DEVICES];
/* Numbers of the devices, as far as there are enough. Simulated devices 0 and 1 reach each other;
 * device 2 does not reach them. */
enum { SETS = 3 };
static const int numbers[SETS][N_DEVICES] = {{0, 1, 2}, {0, 1, 0}, {0, 2, 0}};
static uint32_t peers[N_DEVICES];
static rng random_splits;
static int32_t tokens[N_TOKENS];
static float want[N_TOKENS * MAX_VOCAB], got[N_TOKENS * MAX_VOCAB];
static plan_split splits[MAX_LAYERS];
static pi_error err;

/* ---- models and placements ------------------------------------------------------------------- */

static tiny_model base_model(void) {
    tiny_model t = tiny_default();
    t.type = "f16";
    t.n_embd = 64;
    t.n_vocab = 43;
    t.head_dim = t.n_rot = 16;
    t.n_layer = TINY_MAX_LAYERS;
    for (int i = 0; i < t.n_layer; i++) {
        t.n_head[i] = t.n_head[0];
        t.n_head_kv[i] = t.n_head_kv[0];
        t.n_ff[i] = i == 1 ? 96 : 160;
    }
    return t;
}

static tiny_model predicting_model(void) {
    tiny_model t = base_model();
    t.activation = "relu";
    t.sparse = (tiny_sparse){.down_t = true, .predictor = "lowrank", .rank = 32};
    return t;
}

static tiny_model expert_model(void) {
    tiny_model t = base_model();
    t.experts = (tiny_experts){.n = 12, .n_used = 3, .n_ff = 96};
    return t;
}

static int64_t random_below(int64_t n) {
    return (int64_t)(rng_u64(&random_splits) % (uint64_t)n);
}

static plan_side random_side(void) {
    return random_below(3) ? SIDE_GPU : SIDE_CPU;
}

/* Ranges of the neurons that `hot` leaves of a layer: random ranges, or (even) a third of them and
 * then, alternating from layer to layer, half of the rest or all of it. */
static void add_helpers(const model *m, int layer, bool even) {
    plan_split *c = &splits[layer];
    int64_t unit = plan_split_unit(m, layer), left = model_layer_units(m, layer) - c->hot;
    if (m->layers[layer].t[ROLE_ROUTER].data) return;
    for (int i = 0, part = 3; i < N_DEVICES; i++) {
        if (i == c->device) continue;
        c->helpers[i] = (even ? left / part : random_below(left / unit + 1) * unit) / unit * unit;
        left -= c->helpers[i];
        part = 1 + layer % 2;
    }
}

/* Device numbers that do not descend; the first placements use all devices. */
static void place(const model *m, engine_options *o, int number) {
    int n_layer = m->hp.n_layer, at = 0;
    assert_true(n_layer <= MAX_LAYERS);
    for (int i = 0; i < n_layer; i++) {
        int64_t n = model_layer_units(m, i), unit = plan_split_unit(m, i);
        int even = i * N_DEVICES / n_layer;
        bool shares = i > model_shared_from(m); /* a shared KV cache: such layers stay together */
        at += (int)random_below(N_DEVICES - at);
        if (shares) even = at = splits[i - 1].device;
        splits[i] = (plan_split){.primary = SIDE_GPU, .hot = n, .device = even};
        if (number == 1) splits[i].hot = n / 2 / unit * unit;
        if (number == HELPERS) splits[i].hot = n / 4 / unit * unit;
        if (number > HELPERS)
            splits[i] = (plan_split){
                .primary = random_side(), .hot = random_below(n / unit + 1) * unit, .device = at};
        if (shares) splits[i].primary = splits[i - 1].primary;
        if (number >= HELPERS) add_helpers(m, i, number == HELPERS);
    }
    o->plan.splits = splits;
    o->plan.head = number <= HELPERS ? SIDE_GPU : random_side();
    o->gpu = library.backend;
    o->plan.merge_norms = 5; /* not on GPU 1 */
    memcpy(o->devices, devices, sizeof devices);
    memcpy(o->peers, peers, sizeof peers);
}

static void open_set(int set, uint64_t memory_limit) {
    int n;
    if (library.backend->count(&n, &err)) fail_msg("%s", err.message);
    for (int i = 0; i < N_DEVICES; i++) {
        devices[i] = run_device_another(&library, numbers[set][i] % n, memory_limit,
                                        RUN_DEVICE_WAIT_MS);
        peers[i] = 0;
        for (int k = 0; k < N_DEVICES; k++)
            if (library.backend->reaches(numbers[set][i] % n, numbers[set][k] % n))
                peers[i] |= 1u << k;
    }
}

static void open_devices(uint64_t memory_limit) {
    open_set(0, memory_limit);
}

static void close_devices(void) {
    for (int i = 0; i < N_DEVICES; i++) library.backend->close(devices[i]);
}

static engine_options options_for(pi_mode mode) {
    return run_engine_options(mode, N_BATCH, N_TOKENS);
}

static model *open_model(const tiny_model *t) {
    run_random_tokens(t->seed, t->n_vocab, tokens, N_TOKENS);
    return run_engine_open_tiny(t, MODEL_PATH);
}

/* Every device has a part of every layer. */
static void check_helpers(const engine_context *c) {
    const plan *p = engine_plan(c);
    for (int layer = 0; layer < p->model->hp.n_layer; layer++)
        for (int i = 0; i < N_DEVICES && p->n_expert == 0; i++) {
            int n = 0;
            for (int k = 0; k < p->n_gpu_steps; k++) {
                const plan_step *s = &p->gpu_steps[k];
                n += s->device == i && s->layer == layer && s->weight_bytes > 0;
            }
            assert_true(n > 1 && plan_gpu_ffn(p, i, layer)->n_ff > 0);
        }
}

/* Every stage sends to the next one, into its memory if that is reachable. */
static void check_hand_offs(const engine_context *c) {
    for (int i = 1; i < N_DEVICES; i++) {
        const gpu_exec *from = c->gpu.gpus[i - 1], *to = c->gpu.gpus[i];
        assert_int_equal(plan_peer_of(to->plan), i - 1);
        assert_non_null(to->inbox.device);
        assert_ptr_equal(from->outbox.device, to->inbox.device);
        assert_int_equal(to->inbox.host == NULL, peers[i - 1] >> i & 1);
    }
}

static void run_alone(const model *m, const engine_options *o) {
    engine_context *c = run_engine_context(m, o);
    assert_true(m->hp.n_vocab <= MAX_VOCAB);
    if (o->plan.mode != PI_MODE_DENSE) assert_int_equal(engine_plan(c)->mode, o->plan.mode);
    run_engine_tokens(c, N_CTX, tokens, N_TOKENS, 1, want);
    engine_context_destroy(c);
}

/* n tokens from `from` on; their logits are the CPU's. */
static void feed(const char *what, engine_context *c, pi_session *s, int from, int n, int piece) {
    int n_vocab = c->cpu.model->hp.n_vocab;
    run_engine_feed(c, s, tokens + from, n, piece, got + from * n_vocab);
    double nmse = run_nmse(got + from * n_vocab, want + from * n_vocab, (int64_t)n * n_vocab);
    if (!(nmse <= gate)) fail_msg("%s: %d from %d by %d: NMSE %g", what, n, from, piece, nmse);
}

/* ---- answers --------------------------------------------------------------------------------- */

static void compare(const char *what, const model *m, pi_mode mode) {
    static const struct { int n, piece; } runs[] = {{N_TOKENS, 0}, {N_TOKENS, 6}, {3, 1}};
    static const gpu_prompts prompts[] = {GPU_PROMPTS_SPLIT, GPU_PROMPTS_STREAMED};
    engine_options o = options_for(mode);
    static int turn; /* so that every kind of placement runs in every way */
    run_alone(m, &o);
    for (int number = 0; number < 2 + N_RANDOM; number++) {
        int way = (number + turn) % 3;
        o.prompts = prompts[(number + turn) % 2];
        close_devices();
        open_set((number + 2 * turn) % SETS, 0);
        place(m, &o, number);
        engine_context *c = run_engine_context(m, &o);
        pi_session *s = run_engine_session(c, N_CTX);
        if (number <= HELPERS) check_hand_offs(c);
        if (number == HELPERS) check_helpers(c);
        feed(what, c, s, 0, runs[way].n, runs[way].piece);
        assert_null(engine_gpu_loss(c));
        engine_session_destroy(s);
        engine_context_destroy(c);
    }
    turn++;
    close_devices();
    open_devices(0);
}

static void compare_tiny(const char *what, const tiny_model *t, pi_mode mode) {
    model *m = open_model(t);
    compare(what, m, mode);
    model_close(m);
}

static void test_answers(void **state) {
    (void)state;
    tiny_model t = predicting_model();
    compare_tiny("predict", &t, PI_MODE_PREDICT);
#ifndef TEST_SAMPLED /* `predict` has the same threads and more messages */
    t = base_model();
    compare_tiny("dense", &t, PI_MODE_DENSE);
    t.activation = "relu";
    t.sparse.down_t = true;
    compare_tiny("exact", &t, PI_MODE_EXACT);
#endif
    t = expert_model();
    compare_tiny("experts", &t, PI_MODE_DENSE);
}

/* Cold rows of a prompt are copied to some devices only, where one device has none, or alongside
 * ranges of helpers. */
static void test_streamed(void **state) {
    (void)state;
    tiny_model t = base_model();
    model *m = open_model(&t);
    engine_options o = options_for(PI_MODE_DENSE);
    run_alone(m, &o);
    for (int without = 0; without <= N_DEVICES; without++) {
        place(m, &o, without < N_DEVICES ? 1 : HELPERS);
        for (int i = 0; i < m->hp.n_layer; i++)
            if (splits[i].device == without) splits[i].hot = model_layer_units(m, i);
        o.prompts = GPU_PROMPTS_STREAMED;
        engine_context *c = run_engine_context(m, &o);
        pi_session *s = run_engine_session(c, N_CTX);
        feed("streamed", c, s, 0, N_BATCH, 0);
        assert_null(engine_gpu_loss(c));
        engine_session_destroy(s);
        engine_context_destroy(c);
    }
    model_close(m);
}

/* Experts or neurons of every stage move while the model runs; neurons of helpers stay. */
static void check_adapted(const tiny_model *t, pi_mode mode) {
    model *m = open_model(t);
    engine_options o = options_for(mode);
    run_alone(m, &o);
    o.adapt = (adapt_policy){
        .on = true, .ratio = 1.001f, .margin = 0.01f, .half_life = 3, .slice_bytes = 1 << 20};
    for (int number = 1; number <= HELPERS; number++) {
        place(m, &o, number);
        engine_context *c = run_engine_context(m, &o);
        pi_session *s = run_engine_session(c, N_CTX);
        feed("adapted", c, s, 0, N_TOKENS, 1);
        assert_null(engine_gpu_loss(c));
        const pi_counters n = engine_get_counters(c);
        if (t->experts.n > 0)
            assert_true(n.expert_swaps > 2);
        else
            assert_int_equal(n.neuron_swaps > 40, number < HELPERS);
        engine_session_destroy(s);
        engine_context_destroy(c);
    }
    model_close(m);
}

static void test_adapted(void **state) {
    (void)state;
    tiny_model t = expert_model();
    check_adapted(&t, PI_MODE_DENSE);
    t = predicting_model();
    check_adapted(&t, PI_MODE_PREDICT);
    check_adapted(&t, PI_MODE_EXACT);
}

static void test_recurrent(void **state) {
    (void)state;
    model *m;
    recurrent_write("qwen35", NULL, MODEL_PATH);
    if (model_open(MODEL_PATH, NULL, &m, &err)) fail_msg("%s", err.message);
    run_random_tokens(5, m->hp.n_vocab, tokens, N_TOKENS);
    engine_options o = options_for(PI_MODE_DENSE);
    run_alone(m, &o);
    place(m, &o, 1);
    engine_context *c = run_engine_context(m, &o);
    pi_session *a = run_engine_session(c, N_CTX), *b = run_engine_session(c, N_CTX);
    feed("recurrent", c, a, 0, 9, 0);
    if (session_copy(b, a, 9, &err)) fail_msg("%s", err.message);
    feed("recurrent", c, b, 9, 4, 1);
    feed("recurrent", c, a, 9, N_TOKENS - 9, 3);
    engine_session_destroy(a);
    engine_session_destroy(b);
    engine_context_destroy(c);
    model_close(m);
}

/* Several residual streams move from stage to stage, also over layers whose primary is the CPU. */
static void test_streams(void **state) {
    (void)state;
    static const gpu_prompts prompts[] = {GPU_PROMPTS_SPLIT, GPU_PROMPTS_STREAMED};
    model *m;
    ple_write_streams(MODEL_PATH, QUANT_F32, 0);
    if (model_open(MODEL_PATH, NULL, &m, &err)) fail_msg("%s", err.message);
    run_random_tokens(5, m->hp.n_vocab, tokens, N_TOKENS);
    engine_options o = options_for(PI_MODE_DENSE);
    o.type_k = o.type_v = QUANT_F32; /* prompts also round queries, and errors grow */
    run_alone(m, &o);
    for (int number = 0; number < HELPERS + 1 + 2 * N_RANDOM; number++) {
        close_devices();
        open_set(number % SETS, 0);
        place(m, &o, number);
        o.prompts = prompts[number % 2];
        engine_context *c = run_engine_context(m, &o);
        pi_session *s = run_engine_session(c, N_CTX);
        feed("streams", c, s, 0, 11, 0);
        feed("streams", c, s, 11, N_TOKENS - 11, 1 + number % 3);
        assert_null(engine_gpu_loss(c));
        engine_session_destroy(s);
        engine_context_destroy(c);
    }
    model_close(m);
    close_devices();
    open_devices(0);
}

static pi_status record_nothing(gpu_stream *s, pi_error *e) {
    (void)s;
    return error_nomem(e, 1, "a program");
}

/* Devices that cannot record programs have their steps enqueued one by one, alongside devices that
 * can. */
static void test_no_programs(void **state) {
    (void)state;
    static gpu_backend broken;
    tiny_model t = base_model();
    model *m = open_model(&t);
    engine_options o = options_for(PI_MODE_DENSE);
    broken = *library.backend;
    broken.record_begin = record_nothing;
    run_alone(m, &o);
    for (int which = 1; which < 1 << N_DEVICES; which += STEP) {
        place(m, &o, which % (HELPERS + 1));
        engine_context *c = run_engine_context(m, &o);
        pi_session *s = run_engine_session(c, N_CTX);
        for (int i = 0; i < N_DEVICES; i++)
            if (which >> i & 1) c->gpu.gpus[i]->b = &broken;
        feed("not recorded", c, s, 0, 3, which % 2 + 1);
        assert_null(engine_gpu_loss(c));
        engine_session_destroy(s);
        engine_context_destroy(c);
    }
    model_close(m);
}

#ifdef __SANITIZE_THREAD__ /* tokens are slow */
static const double query_seconds = 0.4;
#else
static const double query_seconds = 50e-3;
#endif

/* Drivers whose launches wait for their kernels, so that no program can wait for its host, and
 * drivers that keep launches back until they are asked: they are asked long before query_seconds,
 * after which a wait asks every driver. On a busy machine only some tokens are that fast. */
static void test_drivers(void **state) {
    (void)state;
    if (strcmp(library.backend->name, "sim") != 0) skip();
    static const char *const kinds[] = {"serial", "late"};
    enum { WAIT_MS = 500, AGAIN = 10 };
    tiny_model t = base_model();
    model *m = open_model(&t);
    engine_options o = options_for(PI_MODE_DENSE);
    run_alone(m, &o);
    for (int i = 0; i < 2 * (HELPERS + 1); i++) {
        const bool serial = i % 2 == 0;
        double least = 1e9;
        close_devices();
        setenv("SIM_DRIVER", kinds[i % 2], 1);
        open_set(i % SETS, 0);
        for (int k = 0; k < N_DEVICES && serial; k++) {
            library.backend->close(devices[k]);
            devices[k] = run_device_another(&library, numbers[i % SETS][k], 0, WAIT_MS);
        }
        place(m, &o, i / 2);
        engine_context *c = run_engine_context(m, &o);
        for (int k = 0; k < N_DEVICES; k++) assert_int_equal(c->gpu.gpus[k]->serial, serial);
        pi_session *s = NULL;
        for (int again = 0; again < AGAIN && least > query_seconds; again++) {
            engine_session_destroy(s);
            s = run_engine_session(c, N_CTX);
            feed(kinds[i % 2], c, s, 0, 4, 0);
            for (int k = 4; k < N_TOKENS; k++) {
                double start = clock_seconds();
                feed(kinds[i % 2], c, s, k, 1, 1);
                least = fmin(least, clock_seconds() - start);
            }
        }
        assert_null(engine_gpu_loss(c));
        assert_true(least < query_seconds);
        engine_session_destroy(s);
        s = run_engine_session(c, N_CTX);
        feed(kinds[i % 2], c, s, 0, N_TOKENS, 0);
        engine_session_destroy(s);
        engine_context_destroy(c);
        unsetenv("SIM_DRIVER");
    }
    close_devices();
    open_devices(0);
    model_close(m);
}

/* The self-test of a device with a number runs once per process. */
static void test_probed_once(void **state) {
    (void)state;
    tiny_model t = base_model();
    model *m = open_model(&t);
    engine_options o = options_for(PI_MODE_DENSE);
    run_alone(m, &o);
    for (int i = 0; i < 3; i++) {
        const bool numbered = i < 2;
        close_devices();
        if (i == 0) setenv("SIM_DRIVER", "serial", 1);
        open_set(0, 0);
        unsetenv("SIM_DRIVER");
        place(m, &o, 0);
        for (int k = 0; k < N_DEVICES; k++) o.numbers[k] = numbered ? 1 + numbers[0][k] : 0;
        engine_context *c = run_engine_context(m, &o);
        pi_session *s = run_engine_session(c, N_CTX);
        for (int k = 0; k < N_DEVICES; k++) assert_int_equal(c->gpu.gpus[k]->serial, numbered);
        feed("self-test kept", c, s, 0, N_TOKENS, 0);
        engine_session_destroy(s);
        engine_context_destroy(c);
    }
    model_close(m);
}

/* ---- sessions -------------------------------------------------------------------------------- */

/* Two sessions in every ubatch; one is rewound, one copied, one saved and loaded by the CPU and
 * back. */
static void test_sessions(void **state) {
    (void)state;
    static const char *const path = TEST_BINARY_DIR "/test_engine_multi_gpu.session";
    tiny_model t = predicting_model();
    model *m = open_model(&t);
    int n_vocab = m->hp.n_vocab;
    engine_options alone = options_for(PI_MODE_PREDICT), o = alone;
    run_alone(m, &alone);
    place(m, &o, HELPERS);
    splits[1].primary = SIDE_CPU;
    engine_context *c = run_engine_context(m, &o), *cpu = run_engine_context(m, &alone);
    pi_session *a = run_engine_session(c, N_CTX), *b = run_engine_session(c, N_CTX);
    for (int i = 0; i < 12; i += 4) {
        const pi_input in[] = {
            {.session = a, .tokens = tokens + i, .n_tokens = 4, .logits = PI_LOGITS_ALL},
            {.session = b, .tokens = tokens + i, .n_tokens = 4, .logits = PI_LOGITS_LAST}};
        if (engine_forward(c, in, 2, &err)) fail_msg("%s", err.message);
        assert_true(run_nmse(engine_logits(c, 0), want + i * n_vocab, 4 * n_vocab) <= gate);
        assert_true(run_nmse(engine_logits(c, 4), want + (i + 3) * n_vocab, n_vocab) <= gate);
    }
    assert_int_equal(session_rewind(a, 5, &err), PI_OK);
    feed("rewound", c, a, 5, 9, 0);
    if (session_copy(b, a, 13, &err)) fail_msg("%s", err.message);
    feed("copied", c, b, 13, 3, 1);
    pi_session *there = run_engine_session(cpu, N_CTX);
    for (int turn = 0; turn < 2; turn++) {
        int32_t loaded[N_TOKENS];
        int64_t n_loaded;
        pi_session *from = turn ? there : a, *to = turn ? b : there;
        if (session_save(from, path, tokens, 14 + turn, &err)) fail_msg("%s", err.message);
        if (session_load(to, path, loaded, N_TOKENS, &n_loaded, &err)) fail_msg("%s", err.message);
        assert_int_equal(n_loaded, 14 + turn);
        feed("loaded", turn ? c : cpu, to, 14 + turn, 1, 0);
    }
    remove(path);
    engine_session_destroy(there);
    engine_session_destroy(a);
    engine_session_destroy(b);
    engine_context_destroy(cpu);
    engine_context_destroy(c);
    model_close(m);
}

/* A cancelled call leaves no device waiting. */
static void test_cancel(void **state) {
    (void)state;
    tiny_model t = base_model();
    model *m = open_model(&t);
    engine_options o = options_for(PI_MODE_DENSE);
    run_alone(m, &o);
    place(m, &o, 1);
    engine_context *c = run_engine_context(m, &o);
    pi_session *s = run_engine_session(c, N_CTX);
    for (int n = 1; n <= 12; n += 11) { /* few tokens, many tokens */
        const pi_input in = {
            .session = s, .tokens = tokens, .n_tokens = n, .logits = PI_LOGITS_LAST};
        engine_cancel(c);
        assert_int_equal(engine_forward(c, &in, 1, &err), PI_ERR_CANCELLED);
    }
    feed("cancelled", c, s, 0, N_TOKENS, 5);
    assert_null(engine_gpu_loss(c));
    engine_session_destroy(s);
    engine_context_destroy(c);
    model_close(m);
}

/* ---- devices --------------------------------------------------------------------------------- */

/* The last devices in turn, at several operations. */
static void test_lost_devices(void **state) {
    (void)state;
    if (!library.backend->fail_at) skip();
    tiny_model t = predicting_model();
    model *m = open_model(&t);
    engine_options o = options_for(PI_MODE_PREDICT);
    run_alone(m, &o);
    close_devices();
    for (int which = N_DEVICES - N_LOST; which < N_DEVICES; which++) {
        int n_lost = 0;
        for (int64_t n = 1, lost = 1; lost; n += n * 2 / LOSSES + 1) {
            open_devices(0);
            place(m, &o, n_lost % 2 ? 0 : HELPERS); /* 0: the CPU waits for none in between */
            engine_context *c = run_engine_context(m, &o);
            pi_session *a = run_engine_session(c, N_CTX), *b = run_engine_session(c, N_CTX);
            feed("kept", c, a, 0, 2, 0);
            feed("kept", c, b, 0, 1, 0);
            library.backend->fail_at(devices[which], n);
            feed("lost", c, a, 2, 2, 1);
            feed("lost", c, b, 1, 10, 0);
            lost = engine_gpu_loss(c) != NULL;
            n_lost += (int)lost;
            if (lost) assert_int_equal(c->gpu.n_gpus, 0);
            engine_session_destroy(a);
            engine_session_destroy(b);
            engine_context_destroy(c);
            close_devices();
        }
        assert_true(n_lost > 2);
    }
    open_devices(0);
    model_close(m);
}

static uint64_t free_bytes(int i) {
    uint64_t n, total;
    if (library.backend->memory(devices[i], &n, &total, &err)) fail_msg("%s", err.message);
    return n;
}

/* Exact to the byte, for every device. A device without memory for another cache returns neurons to
 * the CPU, from all layers. */
static void test_memory(void **state) {
    (void)state;
    tiny_model t = base_model();
    model *m = open_model(&t);
    engine_options o = options_for(PI_MODE_DENSE);
    run_alone(m, &o);
    close_devices();
    open_devices(256 << 20);
    for (int number = STEP - 1; number < 4; number += STEP) {
        uint64_t before[N_DEVICES], cache[N_DEVICES];
        gpu_exec_bytes bytes[N_DEVICES];
        place(m, &o, number);
        if (number == 1) splits[0].helpers[1] = splits[0].hot / 2;
        for (int i = 0; i < N_DEVICES; i++) {
            before[i] = free_bytes(i);
            if (engine_gpu_size(m, &o, i, &bytes[i], &err)) fail_msg("%s", err.message);
            cache[i] = bytes[i].kv_per_position * N_CTX;
        }
        engine_context *c = run_engine_context(m, &o);
        pi_session *s = run_engine_session(c, N_CTX);
        for (int i = 0; i < N_DEVICES; i++)
            assert_int_equal(before[i] - free_bytes(i),
                             bytes[i].weights + bytes[i].scratch + cache[i]);
        feed("limited", c, s, 0, 5, 0);
        if (number == 1) { /* room for half a cache */
            library.backend->limit(devices[1], before[1] - free_bytes(1) + cache[1] / 2);
            pi_session *more = run_engine_session(c, N_CTX);
            assert_null(engine_gpu_loss(c));
            assert_non_null(engine_gpu_kept(c, 1));
            for (int i = 0; i < m->hp.n_layer; i++) {
                const plan_split *now = &engine_plan(c)->splits[i];
                for (int k = 0; k < N_DEVICES; k++) {
                    int64_t was = k == splits[i].device ? splits[i].hot : splits[i].helpers[k];
                    int64_t is = k == now->device ? now->hot : now->helpers[k];
                    assert_true(k == 1 && was > 0 ? is < was : is == was);
                }
            }
            feed("smaller", c, more, 0, 9, 0);
            feed("smaller", c, s, 5, 4, 1);
            engine_session_destroy(more);
            library.backend->limit(devices[1], 256 << 20);
        }
        engine_session_destroy(s);
        engine_context_destroy(c);
        for (int i = 0; i < N_DEVICES; i++) assert_int_equal(before[i], free_bytes(i));
    }
    close_devices();
    open_devices(0);
    model_close(m);
}

/* Every device has a separate row with the whole plan's steps, each of them once. */
static void test_trace(void **state) {
    (void)state;
    tiny_model t = base_model();
    model *m = open_model(&t);
    engine_options o = options_for(PI_MODE_DENSE);
    place(m, &o, 1);
    engine_context *c = run_engine_context(m, &o);
    pi_session *s = run_engine_session(c, N_CTX);
    const pi_input in = {.session = s, .tokens = tokens, .n_tokens = 1, .logits = PI_LOGITS_LAST};
    if (engine_trace_start(c, 1, &err)) fail_msg("%s", err.message);
    if (engine_forward(c, &in, 1, &err)) fail_msg("%s", err.message);
    const engine_trace *trace = engine_get_trace(c);
    const plan *p = engine_plan(c);
    int next = 0;
    assert_int_equal(trace->n_gpus, N_DEVICES);
    for (int i = 0; i < N_DEVICES; i++) {
        const trace_row *row = &trace->rows[trace->n_threads + i];
        assert_true(row->n > 0);
        for (int k = 0; k < row->n; k++) {
            int step = row->events[k].step;
            assert_int_equal(p->gpu_steps[step].device, i);
            assert_true(step >= next); /* the head's last step represents the whole head */
            next = step + 1;
        }
    }
    assert_int_equal(next, p->n_gpu_steps);
    engine_session_destroy(s);
    engine_context_destroy(c);
    model_close(m);
}

static void test_bad_splits(void **state) {
    (void)state;
    tiny_model t = base_model();
    model *m = open_model(&t);
    engine_options o = options_for(PI_MODE_DENSE);
    engine_context *c;
    place(m, &o, 0);
    splits[2].device = 0;
    splits[1].device = 1;
    assert_int_equal(engine_context_create(m, &o, &c, &err), PI_ERR_ARG);
    run_check_message(&err, PI_ERR_ARG);
    assert_non_null(strstr(err.message, "layer 2: device 0 after device 1"));
    static const int64_t bad[] = {-32, 65, INT64_MAX};
    for (int i = 0; i < 4; i++) {
        place(m, &o, 0);
        splits[1].hot = 32;
        splits[1].helpers[i < 3 ? 1 : splits[1].device] = i < 3 ? bad[i] : 32;
        assert_int_equal(engine_context_create(m, &o, &c, &err), PI_ERR_ARG);
        run_check_message(&err, PI_ERR_ARG);
        assert_non_null(strstr(err.message, "layer 1: "));
    }
    place(m, &o, 0);
    splits[2].device = splits[3].device = PLAN_MAX_DEVICES;
    assert_int_equal(engine_context_create(m, &o, &c, &err), PI_ERR_ARG);
    run_check_message(&err, PI_ERR_ARG);
    model_close(m);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),    cmocka_unit_test(test_streamed),
        cmocka_unit_test(test_recurrent),  cmocka_unit_test(test_streams),
        cmocka_unit_test(test_adapted),    cmocka_unit_test(test_no_programs),
        cmocka_unit_test(test_drivers),    cmocka_unit_test(test_probed_once),
        cmocka_unit_test(test_sessions),   cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_memory),     cmocka_unit_test(test_trace),
        cmocka_unit_test(test_bad_splits), cmocka_unit_test(test_lost_devices),
    };
    int failed;
    if (!run_device_open(argc, argv, RUN_DEVICE_WAIT_MS, &library, &device, &failed)) return failed;
    open_devices(0);
    rng_seed(&random_splits, 23);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    close_devices();
    run_device_close(&library, device);
    return failed;
}
