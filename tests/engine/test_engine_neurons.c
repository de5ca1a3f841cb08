/* test_engine_neurons.c: neurons that move between the devices while the model runs. They change no
 * answer, in any mode with either primary, in prompts and with several sessions, when the device is
 * lost and when memory is short; the GPU's neurons follow the text, within the rate limit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "adapt_neurons.h"
#include "engine.h"
#include "mem.h"
#include "run_device.h"
#include "run_engine.h"
#include "run_model.h"
#include "tiny_model.h"

#define MODEL_PATH TEST_BINARY_DIR "/test_engine_neurons.gguf"

enum { N_TOKENS = 21, MAX_VOCAB = 64, N_CTX = 64, N_BATCH = 16 };
#ifdef TEST_SANITIZED
enum { ROUNDS = 1 };
#else
enum { ROUNDS = 2 };
#endif

/* Sums in another order; the promise is 1e-5. */
static const double float_gate = 1e-6;

static gpu_library library;
static gpu_device *device;
static int32_t tokens[N_TOKENS];
static float want[N_TOKENS * MAX_VOCAB], got[N_TOKENS * MAX_VOCAB];
static plan_split splits[TINY_MAX_LAYERS];

/* Neurons with slightly more uses move, after every second ubatch. */
static const adapt_policy restless = {
    .on = true, .ratio = 1.001f, .margin = 0.01f, .half_life = 2, .slice_bytes = 1 << 20};

static engine_options options_for(pi_mode mode) {
    return run_engine_options(mode, N_BATCH, N_TOKENS);
}

static model *open_model(const tiny_model *t) {
    run_random_tokens(t->seed, t->n_vocab, tokens, N_TOKENS);
    assert_true(t->n_vocab <= MAX_VOCAB);
    return run_engine_open_tiny(t, MODEL_PATH);
}

static tiny_model moving_model(const char *arch) {
    tiny_model t = tiny_default();
    t.arch = arch;
    t.type = "f16";
    t.activation = "relu";
    t.n_embd = 64;
    t.n_vocab = 43;
    t.head_dim = t.n_rot = 16;
    t.n_ff[0] = 608; /* more than one part */
    t.n_ff[1] = 96;
    t.sparse.down_t = true;
    return t;
}

/* Half of each layer's neurons on the GPU; layers alternate in their primary. */
static void place(engine_options *o, const model *m, int first_primary) {
    for (int i = 0; i < m->hp.n_layer; i++)
        splits[i] = (plan_split){.primary = (i + first_primary) % 2 ? SIDE_GPU : SIDE_CPU,
                                 .hot = m->layers[i].hp.n_ff / 2};
    o->plan.splits = splits;
    o->plan.head = SIDE_CPU;
    o->gpu = library.backend;
    o->devices[0] = device;
    o->adapt = restless;
}

static void run(engine_context *c, int piece, float *out) {
    run_engine_tokens(c, N_CTX, tokens, N_TOKENS, piece, out);
}

static void run_alone(const model *m, pi_mode mode) {
    engine_options o = options_for(mode);
    engine_context *c = run_engine_context(m, &o);
    assert_int_equal(engine_plan(c)->mode, mode);
    run(c, 1, want);
    engine_context_destroy(c);
}

static void expect_same(const char *what, int number, int n_vocab) {
    double nmse = run_nmse(got, want, (int64_t)N_TOKENS * n_vocab);
    if (!(nmse <= float_gate)) fail_msg("%s, %d: NMSE %g", what, number, nmse);
}

/* ---- answers --------------------------------------------------------------------------------- */

/* The share of active neurons that were on the GPU between two counts. */
static double gpu_share(const pi_counters *from, const pi_counters *to) {
    return (double)(to->active_gpu_neurons - from->active_gpu_neurons) /
           (double)(to->active_neurons - from->active_neurons);
}

static void check(const char *what, const tiny_model *t, pi_mode mode) {
    static const int pieces[] = {1, 3, N_BATCH};
    static const gpu_prompts prompts[] = {GPU_PROMPTS_SPLIT, GPU_PROMPTS_STREAMED};
    model *m = open_model(t);
    run_alone(m, mode);
    for (int first = 0; first < 2; first++) {
        engine_options o = options_for(mode);
        place(&o, m, first);
        o.prompts = prompts[first];
        engine_context *c = run_engine_context(m, &o);
        uint64_t moved = 0;
        for (int turn = 0; turn < ROUNDS * 3; turn++) {
            run(c, pieces[turn % 3], got);
            expect_same(what, turn, m->hp.n_vocab);
            pi_counters n = engine_get_counters(c);
            if (turn < 2) assert_true(n.neuron_swaps > moved); /* while it decodes */
            moved = n.neuron_swaps;
        }
        assert_null(engine_gpu_loss(c));
        engine_context_destroy(c);
    }
    model_close(m);
}

static void test_exact(void **state) {
    (void)state;
    tiny_model t = moving_model("llama");
    check("llama", &t, PI_MODE_EXACT);
    t.type = "f32";
    t.activation = "drelu";
    check("drelu", &t, PI_MODE_EXACT);
    t = moving_model("falcon"); /* no gate */
    check("falcon", &t, PI_MODE_EXACT);
    t = moving_model("phi3"); /* gate and up in one tensor */
    t.fused_ffn = true;
    check("phi3", &t, PI_MODE_EXACT);
    t = moving_model("opt"); /* biases, in the file as float16 */
    t.qkv_bias = t.out_bias = t.ffn_bias = t.tied = true;
    t.n_pos = N_CTX;
    t.vector_type = "f16";
    check("opt", &t, PI_MODE_EXACT);
}

static void test_predict(void **state) {
    (void)state;
    static const char *const kinds[] = {"sign", "lowrank", "relu_mlp"};
    for (int i = 0; i < 3; i++) {
        tiny_model t = moving_model("llama");
        t.sparse.predictor = kinds[i];
        t.sparse.rank = 32;
        t.seed += 3;
        check(kinds[i], &t, PI_MODE_PREDICT);
    }
}

static void test_threshold(void **state) {
    (void)state;
    tiny_model t = moving_model("llama");
    t.activation = NULL;
    t.sparse.cut = 0.05f;
    t.sparse.cut_factors = true;
    check("threshold", &t, PI_MODE_THRESHOLD);
}

/* The same text again and again: neurons move until the GPU has those with the most uses, which
 * needs the uses on both devices. */
static void test_rest(void **state) {
    (void)state;
    enum { TURNS = 12, MOVING = 9 };
    static const pi_mode modes[] = {PI_MODE_EXACT, PI_MODE_PREDICT, PI_MODE_THRESHOLD};
    for (int i = 0; i < 6; i++) {
        tiny_model t = moving_model("llama");
        t.n_ff[0] = 352;
        if (i / 2 == 1) t.sparse.predictor = "lowrank";
        if (i / 2 == 2) t.activation = NULL;
        t.sparse.rank = 32;
        t.sparse.cut = 0.3f;
        t.seed += 3;
        model *m = open_model(&t);
        pi_counters n[TURNS + 1] = {{0}};
        engine_options o = options_for(modes[i / 2]);
        place(&o, m, i % 2);
        o.adapt.margin = 4;
        o.adapt.half_life = N_TOKENS;
        engine_context *c = run_engine_context(m, &o);
        for (int turn = 0; turn < TURNS; turn++) {
            run(c, 1, got);
            n[turn + 1] = engine_get_counters(c);
        }
        assert_true(n[TURNS].neuron_swaps > 0);
        assert_int_equal(n[TURNS].neuron_swaps, n[MOVING].neuron_swaps);
        double before = gpu_share(&n[0], &n[1]), after = gpu_share(&n[MOVING], &n[TURNS]);
        if (!(after > before + 0.1)) fail_msg("%d: the GPU's share: %g, %g", i, before, after);
        engine_context_destroy(c);
        model_close(m);
    }
}

/* Where nothing can move, --adapt is no error: neurons along the rows of down, dense layers,
 * kernels that compute all neurons, all neurons on one device. */
static void test_fixed(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        tiny_model t = moving_model("llama");
        t.sparse.down_t = i > 0;
        t.scales = i == 2;
        pi_mode mode = i == 1 ? PI_MODE_DENSE : PI_MODE_EXACT;
        model *m = open_model(&t);
        run_alone(m, mode);
        engine_options o = options_for(mode);
        place(&o, m, 0);
        for (int k = 0; k < m->hp.n_layer && i == 3; k++)
            splits[k].hot = k ? m->layers[k].hp.n_ff : 0;
        engine_context *c = run_engine_context(m, &o);
        for (int turn = 0; turn < 2; turn++) {
            run(c, 1, got);
            expect_same("fixed", i, m->hp.n_vocab);
        }
        assert_int_equal(engine_get_counters(c).neuron_swaps, 0);
        engine_context_destroy(c);
        model_close(m);
    }
}

/* A model that was copied to memory keeps its places. */
static void test_copied(void **state) {
    (void)state;
    const tiny_model t = moving_model("llama");
    const gguf_open_options copy = {.copy = true};
    pi_error err;
    model *m;
    model_close(open_model(&t));
    if (model_open(MODEL_PATH, &copy, &m, &err)) fail_msg("%s", err.message);
    run_alone(m, PI_MODE_EXACT);
    engine_options o = options_for(PI_MODE_EXACT);
    place(&o, m, 0);
    engine_context *c = run_engine_context(m, &o);
    run(c, 1, got);
    expect_same("copied", 0, m->hp.n_vocab);
    assert_int_equal(engine_get_counters(c).neuron_swaps, 0);
    engine_context_destroy(c);
    model_close(m);
}

/* Sessions share the weights and the places; one is rewound and fed again. Another context of the
 * same model has other places. */
static void test_sessions(void **state) {
    (void)state;
    const tiny_model t = moving_model("llama");
    model *m = open_model(&t);
    int n_vocab = m->hp.n_vocab;
    run_alone(m, PI_MODE_EXACT);
    engine_options o = options_for(PI_MODE_EXACT);
    place(&o, m, 0);
    engine_context *c = run_engine_context(m, &o), *other = run_engine_context(m, &o);
    pi_session *a = run_engine_session(c, N_CTX), *b = run_engine_session(c, N_CTX);
    pi_error err;
    for (int i = 0; i < 12; i += 2) {
        const pi_input in[] = {
            {.session = a, .tokens = tokens + i, .n_tokens = 2, .logits = PI_LOGITS_ALL},
            {.session = b, .tokens = tokens + i, .n_tokens = 2, .logits = PI_LOGITS_LAST}};
        run_engine_forward(c, in, 2);
        assert_true(run_nmse(engine_logits(c, 0), want + i * n_vocab, 2 * n_vocab) <= float_gate);
        assert_true(run_nmse(engine_logits(c, 2), want + (i + 1) * n_vocab, n_vocab) <= float_gate);
    }
    assert_true(engine_get_counters(c).neuron_swaps > 0);
    run(other, N_BATCH, got);
    expect_same("another context", 0, n_vocab);
    assert_int_equal(engine_get_counters(other).neuron_swaps, 0);
    assert_int_equal(session_rewind(a, 5, &err), PI_OK);
    run_engine_feed(c, a, tokens + 5, 16, 1, got + 5 * n_vocab);
    assert_true(run_nmse(got + 5 * n_vocab, want + 5 * n_vocab, 16 * n_vocab) <= float_gate);
    engine_session_destroy(a);
    engine_session_destroy(b);
    engine_context_destroy(c);
    engine_context_destroy(other);
    model_close(m);
}

/* ---- failures -------------------------------------------------------------------------------- */

/* The device is lost while neurons move, or later: the CPU goes on with the places of the file. */
static void test_loss(void **state) {
    (void)state;
    tiny_model t = moving_model("llama");
    gpu_device *shared = device;
    int n_lost = 0;
    if (!library.backend->fail_at) skip();
    t.sparse.predictor = "lowrank";
    t.sparse.rank = 32;
    model *m = open_model(&t);
    run_alone(m, PI_MODE_PREDICT);
    for (int moment = 60; moment < 700; moment += 90) {
        engine_options o = options_for(PI_MODE_PREDICT);
        device = run_device_another(&library, 0, 0, 2000);
        place(&o, m, 1);
        engine_context *c = run_engine_context(m, &o);
        run(c, 3, got);
        library.backend->fail_at(device, moment);
        run(c, 1, got);
        expect_same("lost", moment, m->hp.n_vocab);
        run(c, 3, got);
        expect_same("afterwards", moment, m->hp.n_vocab);
        n_lost += engine_gpu_loss(c) != NULL;
        engine_context_destroy(c);
        library.backend->close(device);
    }
    assert_true(n_lost > 3);
    device = shared;
    model_close(m);
}

/* Neurons make room for a cache: the places begin anew, with fewer neurons on the GPU. */
static void test_little_memory(void **state) {
    (void)state;
    const tiny_model t = moving_model("llama");
    model *m = open_model(&t);
    run_alone(m, PI_MODE_EXACT);
    engine_options o = options_for(PI_MODE_EXACT);
    place(&o, m, 1);
    gpu_exec_bytes bytes;
    pi_error err;
    if (engine_gpu_size(m, &o, 0, &bytes, &err)) fail_msg("%s", err.message);
    gpu_device *shared = device;
    uint64_t cache = (uint64_t)N_CTX * bytes.kv_per_position + bytes.state;
    device = run_device_another(&library, 0, bytes.weights + bytes.scratch + cache + cache / 2,
                                2000);
    o.devices[0] = device;
    engine_context *c = run_engine_context(m, &o);
    pi_session *s = run_engine_session(c, N_CTX);
    int n_vocab = m->hp.n_vocab, half = N_TOKENS / 2;
    run_engine_feed(c, s, tokens, half, 1, got);
    assert_true(engine_get_counters(c).neuron_swaps > 0);
    pi_session *second = run_engine_session(c, N_CTX);
    assert_non_null(engine_gpu_kept(c, 0));
    run_engine_feed(c, s, tokens + half, N_TOKENS - half, 1, got + half * n_vocab);
    expect_same("first session", 0, n_vocab);
    run_engine_feed(c, second, tokens, N_TOKENS, 3, got);
    expect_same("second session", 0, n_vocab);
    assert_null(engine_gpu_loss(c));
    engine_session_destroy(s);
    engine_session_destroy(second);
    engine_context_destroy(c);
    library.backend->close(device);
    device = shared;
    model_close(m);
}

/* Every allocation fails in turn: an error, or a context that works. */
static void test_out_of_memory(void **state) {
    (void)state;
    const tiny_model t = moving_model("llama");
    model *m = open_model(&t);
    run_alone(m, PI_MODE_EXACT);
    gpu_device *shared = device;
    int n_failed = 0;
    for (int64_t n = 1, hit = 1; hit; n++) {
        engine_options o = options_for(PI_MODE_EXACT);
        engine_context *c = NULL;
        pi_error err;
        device = run_device_another(&library, 0, 0, 2000);
        place(&o, m, 0);
        const int64_t before = mem_count();
        mem_fail_at(n);
        pi_status status = engine_context_create(m, &o, &c, &err);
        hit = mem_count() - before >= n;
        mem_fail_at(0);
        if (status != PI_OK) {
            assert_int_equal(status, PI_ERR_NOMEM);
            assert_true(hit);
            run_check_message(&err, status);
            n_failed++;
        } else if (!hit || n % 16 == 0) {
            run(c, 3, got);
            expect_same("out of memory", (int)n, m->hp.n_vocab);
        }
        engine_context_destroy(c);
        library.backend->close(device);
    }
    assert_true(n_failed > 50);
    device = shared;
    model_close(m);
}

/* The device allocates what engine_gpu_size says. */
static void test_size(void **state) {
    (void)state;
    const tiny_model t = moving_model("llama");
    model *m = open_model(&t);
    for (int first = 0; first < 2; first++) {
        engine_options o = options_for(PI_MODE_EXACT), still = o;
        gpu_exec_bytes with, without;
        pi_error err;
        place(&o, m, first);
        run_engine_check_size(m, &o, &library, device, N_CTX);
        still = o;
        still.adapt.on = false;
        assert_int_equal(engine_gpu_size(m, &o, 0, &with, &err), PI_OK);
        assert_int_equal(engine_gpu_size(m, &still, 0, &without, &err), PI_OK);
        assert_int_equal(with.weights, without.weights);
        assert_true(with.scratch > without.scratch);
    }
    model_close(m);
}

/* ---- a change of subject --------------------------------------------------------------------- */

/* Tokens of two subjects, whose embeddings differ in the sign of their first element, far above the
 * others. Gates read this element only: neurons [0, SET) are active for the first subject, the next
 * SET for the second, the others never. The GPU has [0, SET). */
enum {
    SET = 40,
    N_PER_SUBJECT = 20,
    PHASE = 120, /* tokens */
    SLICE = 1000 /* bytes: two neurons */
};

static void patch(const gguf_file *f, FILE *file, const char *name, const float *data) {
    const gguf_tensor *t = gguf_find_tensor(f, name);
    assert_non_null(t);
    assert_int_equal(t->type, QUANT_F32);
    assert_int_equal(fseek(file, (long)t->file_offset, SEEK_SET), 0);
    assert_int_equal(fwrite(data, 1, t->n_bytes, file), t->n_bytes);
}

static model *open_two_subjects(void) {
    enum { N_EMBD = 32, N_FF = 96, N_VOCAB = 2 * N_PER_SUBJECT };
    static float rows[N_FF * N_EMBD], embd[N_VOCAB * N_EMBD], ones[N_EMBD];
    tiny_model t = tiny_default();
    t.activation = "relu";
    t.n_embd = N_EMBD;
    t.n_vocab = N_VOCAB;
    t.n_ff[0] = t.n_ff[1] = N_FF;
    t.sparse.down_t = true;
    tiny_write(&t, MODEL_PATH);
    gguf_file *f;
    pi_error err;
    if (gguf_open(MODEL_PATH, NULL, &f, &err)) fail_msg("%s", err.message);
    FILE *file = fopen(MODEL_PATH, "r+b");
    assert_non_null(file);
    const gguf_tensor *e = gguf_find_tensor(f, "token_embd.weight");
    memcpy(embd, e->data, sizeof embd);
    for (int i = 0; i < N_VOCAB; i++) embd[i * N_EMBD] = i < N_PER_SUBJECT ? 20 : -20;
    for (int i = 0; i < 2 * SET; i++) rows[i * N_EMBD] = i < SET ? 0.1f : -0.1f;
    for (int i = 0; i < N_EMBD; i++) ones[i] = 1;
    patch(f, file, "token_embd.weight", embd);
    for (int i = 0; i < t.n_layer; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.ffn_gate.weight", i);
        patch(f, file, name, rows);
        snprintf(name, sizeof name, "blk.%d.ffn_norm.weight", i);
        patch(f, file, name, ones);
    }
    assert_int_equal(fclose(file), 0);
    gguf_close(f);
    return run_engine_open(MODEL_PATH);
}

/* Decodes a token of the subject; returns the share of active neurons that the GPU computed, and
 * compares the logits with those of the CPU alone. */
static double step(engine_context *both, pi_session *s, engine_context *alone,
                   pi_session *reference, int32_t token) {
    const int32_t n_vocab = engine_plan(both)->model->hp.n_vocab;
    const pi_counters before = engine_get_counters(both);
    run_engine_feed(both, s, &token, 1, 1, got);
    run_engine_feed(alone, reference, &token, 1, 1, want);
    double nmse = run_nmse(got, want, n_vocab);
    if (!(nmse <= float_gate)) fail_msg("NMSE %g", nmse);
    const pi_counters n = engine_get_counters(both);
    assert_int_equal(n.active_neurons - before.active_neurons, 2 * SET); /* in two layers */
    assert_true(n.neuron_swap_bytes - before.neuron_swap_bytes <= SLICE);
    return gpu_share(&before, &n);
}

static void test_subjects(void **state) {
    (void)state;
    model *m = open_two_subjects();
    engine_options o = options_for(PI_MODE_EXACT);
    engine_context *alone = run_engine_context(m, &o);
    for (int first = 0; first < 2; first++) {
        place(&o, m, first);
        for (int i = 0; i < m->hp.n_layer; i++) splits[i].hot = SET;
        o.adapt = (adapt_policy){.on = true, .margin = 4, .half_life = 16, .slice_bytes = SLICE};
        engine_context *both = run_engine_context(m, &o);
        pi_session *s = run_engine_session(both, 4 * PHASE);
        pi_session *reference = run_engine_session(alone, 4 * PHASE);
        double share[4] = {0};
        for (int i = 0; i < 4 * PHASE; i++) { /* the subjects alternate */
            int phase = i / PHASE, other = phase % 2;
            share[phase] = step(both, s, alone, reference,
                                other * N_PER_SUBJECT + i * 7 % N_PER_SUBJECT);
            if (i == 0) assert_true(share[phase] == 1);
            if (i % PHASE == 0 && i > 0) assert_true(share[phase] == 0);
        }
        /* at the end of each phase */
        for (int i = 0; i < 4; i++) assert_true(share[i] == 1);
        assert_int_equal(engine_get_counters(both).neuron_swaps, 3 * 2 * SET);
        engine_session_destroy(s);
        engine_session_destroy(reference);
        engine_context_destroy(both);
    }
    engine_context_destroy(alone);
    model_close(m);
}

/* ---- the choice ------------------------------------------------------------------------------ */

static void use(neuron_adapter *a, int layer, int32_t place, int n) {
    for (int i = 0; i < n; i++) neuron_adapter_count(a, layer, place - 1, (const int32_t[]){1}, 1);
}

static const neuron_move *end_half_life(neuron_adapter *a, int n_ubatches) {
    for (int i = 0; i < n_ubatches; i++) neuron_adapter_end(a);
    return neuron_adapter_next(a);
}

static void test_policy(void **state) {
    (void)state;
    enum { HALF_LIFE = 4 };
    const tiny_model t = moving_model("llama");
    const adapt_policy policy = {.on = true, .ratio = 1.5f, .margin = 8, .half_life = HALF_LIFE};
    model *m = open_model(&t);
    engine_options o = options_for(PI_MODE_EXACT);
    place(&o, m, 0);
    engine_context *c = run_engine_context(m, &o);
    neuron_adapter *a;
    pi_error err;
    int32_t hot = (int32_t)splits[1].hot, n = m->layers[1].hp.n_ff;
    assert_int_equal(neuron_adapter_create(engine_plan(c), &policy, &a, &err), PI_OK);
    assert_non_null(a);
    assert_null(end_half_life(a, HALF_LIFE));
    use(a, 1, n - 1, 8); /* the margin */
    assert_null(end_half_life(a, HALF_LIFE));
    use(a, 1, n - 1, 5); /* half of 8 are left */
    use(a, 0, (int32_t)splits[0].hot, 20);
    const neuron_move *next = end_half_life(a, HALF_LIFE);
    /* the larger gain first; in exchange for the coldest of equal neurons */
    assert_non_null(next);
    assert_int_equal(next->layer, 0);
    assert_int_equal(next->hot, splits[0].hot - 1);
    assert_int_equal(next->cold, splits[0].hot);
    neuron_adapter_finish(a);
    next = neuron_adapter_next(a);
    assert_non_null(next);
    assert_int_equal(next->layer, 1);
    assert_int_equal(next->hot, hot - 1);
    assert_int_equal(next->cold, n - 1);
    neuron_adapter_finish(a);
    assert_null(neuron_adapter_next(a));
    /* The uses of the GPU's neurons count: in layer 1 all but one are used 30 times, some by the
     * bits of the second column, the others by its values. The neuron that came has half of 13 / 2
     * uses, the last neuron has 20. */
    static uint32_t bits[2][2];
    static float h[2][96];
    for (int i = 0; i < hot - 1; i++) {
        if (i % 2)
            bits[1][i / 32] |= 1u << i % 32;
        else
            h[1][i] = -1;
    }
    for (int i = 0; i < 30; i++) {
        neuron_adapter_count_bits(a, 1, bits[0], 2, 2, hot);
        neuron_adapter_count_values(a, 1, h[0], 96, 2, hot);
    }
    use(a, 1, hot, 20);
    next = end_half_life(a, HALF_LIFE);
    assert_non_null(next);
    assert_int_equal(next->layer, 1);
    assert_int_equal(next->hot, hot - 1);
    assert_int_equal(next->cold, hot);
    assert_int_equal(next->gain, 20 - (8 / 2 + 5) / 2);
    neuron_adapter_finish(a);
    assert_null(neuron_adapter_next(a));
    neuron_adapter_free(a);
    engine_context_destroy(c);
    model_close(m);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_exact),         cmocka_unit_test(test_predict),
    cmocka_unit_test(test_threshold),     cmocka_unit_test(test_rest),
    cmocka_unit_test(test_fixed),         cmocka_unit_test(test_copied),
    cmocka_unit_test(test_sessions),      cmocka_unit_test(test_loss),
    cmocka_unit_test(test_little_memory), cmocka_unit_test(test_out_of_memory),
    cmocka_unit_test(test_size),          cmocka_unit_test(test_subjects),
    cmocka_unit_test(test_policy)};

int main(int argc, char **argv) {
    int status;
    if (!run_device_open(argc, argv, RUN_DEVICE_WAIT_MS, &library, &device, &status)) return status;
    status = cmocka_run_group_tests(tests, NULL, NULL);
    run_device_close(&library, device);
    remove(MODEL_PATH);
    return status;
}
