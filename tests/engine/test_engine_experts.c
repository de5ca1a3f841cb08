/* test_engine_experts.c: mixtures of experts. Where activations have exact zeros, skipped neurons
 * change no answer, on the CPU and on two devices, and are not read. Experts that move between the
 * devices while the model runs change no answer either; they move when the gain justifies it,
 * within the rate limit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "activity.h"
#include "adapt.h"
#include "engine.h"
#include "rng.h"
#include "run_device.h"
#include "run_engine.h"
#include "run_model.h"
#include "tiny_model.h"

#define MODEL_PATH TEST_BINARY_DIR "/test_engine_experts.gguf"

enum { N_TOKENS = 18, MAX_VOCAB = 64, N_CTX = 64, N_EXPERT = 6 };

/* Sums in another order; block types round a prompt's inputs differently on two devices. On the CPU
 * alone tiles give activations of F16 weights 16 bits (CPU_ACT_F32_SPLIT), so that more values
 * rounded into the cache fall to the other side. */
static const double cpu_gate = 1e-8, float_gate = 1e-6, block_gate = 1e-3;

static gpu_library library;
static gpu_device *device;
static rng random_splits;
static int32_t tokens[N_TOKENS];
static float want[N_TOKENS * MAX_VOCAB], got[N_TOKENS * MAX_VOCAB];
static plan_split splits[TINY_MAX_LAYERS];

static engine_options options_for(pi_mode mode) {
    return run_engine_options(mode, N_TOKENS, N_TOKENS);
}

static model *open_model(const tiny_model *t) {
    run_random_tokens(t->seed, t->n_vocab, tokens, N_TOKENS);
    assert_true(t->n_vocab <= MAX_VOCAB);
    return run_engine_open_tiny(t, MODEL_PATH);
}

/* All tokens in a new session, `piece` at a time. */
static void run(engine_context *c, int piece, float *out) {
    run_engine_tokens(c, N_CTX, tokens, N_TOKENS, piece, out);
}

static void expect_same(const char *what, int piece, int n_vocab, double gate) {
    double nmse = run_nmse(got, want, (int64_t)N_TOKENS * n_vocab);
    if (!(nmse <= gate)) fail_msg("%s, pieces of %d: NMSE %g is above %g", what, piece, nmse, gate);
}

/* ---- neurons of experts ---------------------------------------------------------------------- */

static void place_at_random(engine_options *o, const model *m) {
    for (int i = 0; i < m->hp.n_layer; i++)
        splits[i] = (plan_split){.primary = rng_u64(&random_splits) % 2 ? SIDE_GPU : SIDE_CPU,
                                 .hot = (int64_t)(rng_u64(&random_splits) % (N_EXPERT + 1))};
    o->plan.splits = splits;
    o->plan.head = rng_u64(&random_splits) % 2 ? SIDE_GPU : SIDE_CPU;
    o->gpu = library.backend;
    o->devices[0] = device;
}

/* Bytes of FFN weights that all tokens read one by one, as a fraction of all. */
static double share_read(engine_context *c) {
    pi_counters n = engine_get_counters(c);
    return (double)n.ffn_bytes / (double)n.ffn_total_bytes;
}

static void check(const char *what, const tiny_model *t) {
    static const int pieces[] = {1, 3, N_TOKENS};
    model *m = open_model(t);
    double gate = t->type[0] == 'f' ? float_gate : block_gate;
    engine_options dense = options_for(PI_MODE_DENSE), exact = options_for(PI_MODE_AUTO);
    engine_context *all = run_engine_context(m, &dense), *some = run_engine_context(m, &exact);
    assert_int_equal(engine_plan(some)->mode, PI_MODE_EXACT);
    run(all, 1, want);
    for (int i = 0; i < 3; i++) {
        run(some, pieces[i], got);
        expect_same(what, pieces[i], m->hp.n_vocab, t->type[0] == 'f' ? cpu_gate : block_gate);
        if (i > 0) continue;
        /* random neurons: half of them are active, so that one or two of each neuron's three rows
         * are read; mode dense also leaves out half of the rows of down */
        double share = share_read(some) / share_read(all);
        assert_true(t->sparse.down_t ? share > 0.7 && share < 0.9 : share > 0.7 && share < 0.95);
    }
    engine_context_destroy(some);
    for (int i = 0; i < 3; i++) {
        place_at_random(&exact, m);
        engine_context *both = run_engine_context(m, &exact);
        run(both, pieces[i], got);
        expect_same(what, pieces[i], m->hp.n_vocab, gate);
        if (i == 0) { /* the GPU counts its reads as the CPU does */
            double share = share_read(both) / share_read(all);
            assert_true(t->sparse.down_t ? share > 0.7 && share < 0.9
                                         : share > 0.7 && share < 0.95);
        }
        engine_context_destroy(both);
    }
    engine_context_destroy(all);
    model_close(m);
}

static tiny_model expert_model(const char *arch, const char *type) {
    tiny_model t = tiny_default();
    t.arch = arch;
    t.type = type;
    t.n_embd = 64;
    t.head_dim = t.n_rot = 16;
    t.experts = (tiny_experts){.n = N_EXPERT, .n_used = 3, .n_ff = 96};
    if (type[0] != 'f') t.experts.n_used = N_EXPERT; /* for any effect of rounding on choices */
    return t;
}

/* Sanitizers run one model of each type. */
#ifdef TEST_SAMPLED
enum { ZEROS_STEP = 3 };
#else
enum { ZEROS_STEP = 1 };
#endif

static void test_zeros(void **state) {
    (void)state;
    static const char *const types[] = {"f16", "q4_0"};
    for (int i = 0; i < 4; i += ZEROS_STEP) {
        tiny_model t = expert_model("smallthinker", types[i / 2]);
        t.sparse.down_t = i % 2;
        check(types[i / 2], &t);
    }
    tiny_model t = expert_model("llama", "f16");
    t.activation = "relu";
    t.experts.biased = t.scales = t.sparse.down_t = true;
    check("biases and scales", &t);
    t.activation = "drelu";
    check("drelu", &t);
    t.activation = "fatrelu";
    t.threshold = 0.01f;
    t.experts.biased = false;
    t.experts.fused = true;
    check("fatrelu", &t);
}

/* Predictors within experts run on the CPU: a layer with experts on the GPU, or whose primary is
 * the GPU, runs exact; the others predict. */
static void test_predictors(void **state) {
    (void)state;
    static const char *const kinds[] = {"lowrank", "sign"};
    for (int i = 0; i < 2; i++) {
        tiny_model t = expert_model("llama", "f16");
        t.activation = "relu";
        t.sparse = (tiny_sparse){.down_t = true, .predictor = kinds[i], .rank = 32};
        model *m = open_model(&t);
        engine_options o = options_for(PI_MODE_EXACT);
        engine_context *exact = run_engine_context(m, &o);
        run(exact, 1, want);
        engine_context_destroy(exact);
        o = options_for(PI_MODE_PREDICT);
        o.gpu = library.backend;
        o.devices[0] = device;
        o.plan.splits = splits;
        o.plan.head = SIDE_CPU;
        for (int hot = 0; hot < 3; hot++) { /* none; some on the GPU; the primary is the GPU */
            for (int l = 0; l < m->hp.n_layer; l++)
                splits[l] = (plan_split){.primary = hot == 2 ? SIDE_GPU : SIDE_CPU,
                                         .hot = hot == 1 ? 2 : 0};
            engine_context *c = run_engine_context(m, &o);
            assert_int_equal(engine_plan(c)->mode, hot ? PI_MODE_EXACT : PI_MODE_PREDICT);
            run(c, 1, got);
            engine_context_destroy(c);
            if (hot)
                expect_same(kinds[i], 1, m->hp.n_vocab, float_gate);
            else
                assert_true(run_nmse(got, want, (int64_t)N_TOKENS * m->hp.n_vocab) > float_gate);
        }
        splits[0] = (plan_split){.primary = SIDE_CPU}; /* both modes in one plan */
        engine_context *c = run_engine_context(m, &o);
        assert_int_equal(engine_plan(c)->experts[0].mode, PI_MODE_PREDICT);
        assert_int_equal(engine_plan(c)->experts[1].mode, PI_MODE_EXACT);
        engine_context_destroy(c);
        model_close(m);
    }
}

/* ---- experts that move ----------------------------------------------------------------------- */

enum { HOT = 3, SLICE = 4000 };

static void place_alternately(engine_options *o, const model *m) {
    for (int i = 0; i < m->hp.n_layer; i++)
        splits[i] = (plan_split){.primary = i % 2 ? SIDE_GPU : SIDE_CPU, .hot = HOT};
    o->plan.splits = splits;
    o->plan.head = SIDE_CPU;
    o->gpu = library.backend;
    o->devices[0] = device;
}

/* Any expert with slightly more use moves. */
static const adapt_policy restless = {
    .on = true, .ratio = 1.001f, .margin = 0.01f, .half_life = 3, .slice_bytes = SLICE};

static uint64_t expert_bytes(const engine_context *c, int layer) {
    const plan_experts *e = &engine_plan(c)->experts[layer];
    uint64_t in = (e->up.row_size + e->gate.row_size) * (uint64_t)e->n_ff;
    return in + e->down.row_size * (uint64_t)e->down.w.n_out;
}

static void check_moving(const char *what, const tiny_model *t) {
    static const int pieces[] = {1, 3, N_TOKENS};
    model *m = open_model(t);
    engine_options alone = options_for(PI_MODE_AUTO), both = alone;
    engine_context *c = run_engine_context(m, &alone);
    run(c, 1, want);
    engine_context_destroy(c);
    place_alternately(&both, m);
    both.adapt = restless;
    c = run_engine_context(m, &both);
    for (int turn = 0; turn < 6; turn++) {
        run(c, pieces[turn % 3], got);
        expect_same(what, pieces[turn % 3], m->hp.n_vocab, float_gate);
    }
    const pi_counters n = engine_get_counters(c);
    assert_true(n.expert_swaps >= 3);
    assert_true(n.expert_swaps * expert_bytes(c, 0) <= n.ubatches * SLICE);
    engine_context_destroy(c);
    model_close(m);
}

static tiny_model moving_model(const char *arch) {
    tiny_model t = expert_model(arch, "f16");
    t.experts.n_used = 2;
    t.experts.n_ff = 32;
    return t;
}

static void test_moving(void **state) {
    (void)state;
    tiny_model t = moving_model("llama");
    check_moving("gate, up, down", &t);
    t.experts.biased = t.scales = true;
    check_moving("biases and scales", &t);
    t = moving_model("llama");
    t.experts.fused = true;
    t.activation = "relu";
    t.sparse.down_t = true;
    check_moving("two in one, a row of down per neuron", &t);
}

/* The device is lost while an expert is on its way. */
static void test_loss(void **state) {
    (void)state;
    const tiny_model t = moving_model("llama");
    gpu_device *shared = device;
    if (!library.backend->fail_at) skip();
    model *m = open_model(&t);
    engine_options alone = options_for(PI_MODE_AUTO), both = alone;
    engine_context *c = run_engine_context(m, &alone);
    run(c, 1, want);
    engine_context_destroy(c);
    for (int moment = 150; moment < 450; moment += 135) {
        device = run_device_another(&library, 0, 0, 2000);
        place_alternately(&both, m);
        both.adapt = restless;
        c = run_engine_context(m, &both);
        library.backend->fail_at(device, moment);
        run(c, 1, got);
        expect_same("lost", moment, m->hp.n_vocab, float_gate);
        assert_non_null(engine_gpu_loss(c));
        engine_context_destroy(c);
        library.backend->close(device);
    }
    device = shared;
    model_close(m);
}

/* ---- usage counts ---------------------------------------------------------------------------- */

/* Usage counts of experts do not depend on the place of the router or the experts. */
static void test_activity(void **state) {
    (void)state;
    const tiny_model t = moving_model("llama");
    model *m = open_model(&t);
    engine_options o = options_for(PI_MODE_AUTO);
    uint32_t bins[TINY_MAX_LAYERS][N_EXPERT];
    pi_layer_activity a;
    pi_error err;
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < m->hp.n_layer; i++)
            splits[i] = (plan_split){.primary = round > 1 ? SIDE_GPU : SIDE_CPU,
                                     .hot = round == 1   ? HOT
                                            : round == 2 ? N_EXPERT
                                                         : N_EXPERT / 2};
        if (round == 1) place_alternately(&o, m);
        engine_context *c = run_engine_context(m, &o);
        run(c, 1, got); /* before: it does not count */
        assert_int_equal(engine_watch(c, N_EXPERT, &err), PI_OK);
        run(c, 1, got);
        for (int l = 0; l < m->hp.n_layer; l++) {
            uint64_t all = 0, hot = 0;
            int first = round > 0 && splits[l].primary == SIDE_GPU; /* only stored */
            engine_get_activity(c, l, &a);
            assert_int_equal(a.kind, PI_ACTIVITY_EXPERTS);
            assert_int_equal(a.n_units, N_EXPERT);
            assert_int_equal(a.n_hot, round ? splits[l].hot : 0);
            for (int e = 0; e < N_EXPERT; e++) {
                if (round == 0) bins[l][e] = a.bins[e];
                assert_true(abs((int)bins[l][e] - (int)a.bins[e]) <= first);
                all += a.bins[e];
                if (e < a.n_hot) hot += a.bins[e];
            }
            assert_true(all >= 2 * (N_TOKENS - 1) && all <= 2 * N_TOKENS);
            assert_int_equal(a.hot, hot);
        }
        engine_context_destroy(c);
    }
    model_close(m);
}

/* ---- conditions for a move ------------------------------------------------------------------- */

static void use(expert_adapter *a, int layer, int32_t expert, int n) {
    adapt_count(a, layer, expert, n);
}

static void test_policy(void **state) {
    (void)state;
    const tiny_model t = moving_model("llama");
    const adapt_policy policy = {.on = true, .ratio = 1.5f, .margin = 8, .half_life = 1 << 20};
    model *m = open_model(&t);
    engine_options o = options_for(PI_MODE_AUTO);
    place_alternately(&o, m);
    engine_context *c = run_engine_context(m, &o);
    expert_adapter *a;
    pi_error err;
    adapt_swap s;
    assert_int_equal(adapt_create(engine_plan(c), &policy, &a, &err), PI_OK);
    assert_non_null(a);
    /* the last expert of the prefix has left its slot */
    assert_int_equal(adapt_slot(a, 1, 0), 0);
    assert_int_equal(adapt_expert(a, 1, HOT - 1), -1);
    assert_true(adapt_slot(a, 1, HOT - 1) >= HOT);
    assert_int_equal(adapt_expert(a, 1, adapt_slot(a, 1, HOT - 1)), HOT - 1);
    use(a, 1, 5, 8); /* the margin */
    assert_false(adapt_pick(a, 1, &s));
    use(a, 1, 5, 1);
    assert_true(adapt_pick(a, 1, &s));
    assert_true(s.layer == 1 && s.in == 5 && s.out == 0 && s.slot == HOT - 1);
    adapt_finish(a, &s);
    assert_int_equal(adapt_slot(a, 1, 5), HOT - 1);
    assert_int_equal(adapt_expert(a, 1, 0), -1);
    assert_true(adapt_slot(a, 1, 0) >= HOT);
    /* moves back only when its use exceeds that of the expert there by margin and ratio */
    use(a, 1, 1, 40);
    use(a, 1, 5, 31); /* also 40 */
    use(a, 1, 0, 60);
    assert_false(adapt_pick(a, 1, &s));
    use(a, 1, 0, 1);
    assert_true(adapt_pick(a, 1, &s));
    assert_true(s.in == 0 && (s.out == 1 || s.out == 5) && s.slot == 0);
    /* where the gain is larger */
    use(a, 0, 4, 30);
    assert_true(adapt_pick(a, 1, &s) && s.layer == 0 && s.in == 4);
    /* old use no longer counts */
    assert_false(adapt_pick(a, 100 << 20, &s));
    adapt_free(a);
    /* nothing to adapt: the GPU has a single expert, or all experts */
    for (int hot = 0; hot <= N_EXPERT; hot += hot == 1 ? N_EXPERT - 1 : 1) {
        engine_context *other;
        for (int i = 0; i < m->hp.n_layer; i++) splits[i].hot = hot;
        other = run_engine_context(m, &o);
        assert_int_equal(adapt_create(engine_plan(other), &policy, &a, &err), PI_OK);
        assert_null(a);
        engine_context_destroy(other);
    }
    engine_context_destroy(c);
    model_close(m);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_zeros), cmocka_unit_test(test_predictors), cmocka_unit_test(test_moving),
    cmocka_unit_test(test_loss),  cmocka_unit_test(test_activity),   cmocka_unit_test(test_policy)};

int main(int argc, char **argv) {
    int status;
    if (!run_device_open(argc, argv, RUN_DEVICE_WAIT_MS, &library, &device, &status)) return status;
    rng_seed(&random_splits, 11);
    status = cmocka_run_group_tests(tests, NULL, NULL);
    run_device_close(&library, device);
    remove(MODEL_PATH);
    return status;
}
