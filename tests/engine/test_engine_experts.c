/* test_engine_experts.c: mixtures of experts whose activations have exact zeros: what is left out
 * changes no answer, on the CPU and on two devices, and is not read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "engine.h"
#include "rng.h"
#include "run_device.h"
#include "run_model.h"
#include "tiny_model.h"

#define MODEL_PATH TEST_BINARY_DIR "/test_engine_experts.gguf"

enum { N_TOKENS = 18, MAX_VOCAB = 64, N_CTX = 64, N_EXPERT = 6 };

/* Sums in another order; block types round a prompt's inputs differently on two devices. */
static const double cpu_gate = 1e-9, float_gate = 1e-6, block_gate = 1e-3;

static gpu_library library;
static gpu_device *device;
static rng random_cuts;
static int32_t tokens[N_TOKENS];
static float want[N_TOKENS * MAX_VOCAB], got[N_TOKENS * MAX_VOCAB];
static plan_cut cuts[TINY_MAX_LAYERS];

static engine_options options_for(pi_mode mode) {
    return (engine_options){.n_threads = 2,
                            .n_threads_batch = 2,
                            .n_batch = N_TOKENS,
                            .n_logits = N_TOKENS,
                            .tier = CPU_TIER_AUTO,
                            .type_k = QUANT_F16,
                            .type_v = QUANT_F16,
                            .plan = {.mode = mode, .max_loss = 1}};
}

static model *open_model(const tiny_model *t) {
    model *m;
    pi_error err;
    tiny_write(t, MODEL_PATH);
    run_random_tokens(t->seed, t->n_vocab, tokens, N_TOKENS);
    assert_true(t->n_vocab <= MAX_VOCAB);
    if (model_open(MODEL_PATH, NULL, &m, &err)) fail_msg("%s", err.message);
    return m;
}

static engine_context *make_context(const model *m, const engine_options *o) {
    engine_context *c;
    pi_error err;
    if (engine_context_create(m, o, &c, &err)) fail_msg("%s", err.message);
    return c;
}

/* All tokens in a new session, `piece` at a time. */
static void run(engine_context *c, int n_vocab, int piece, float *out) {
    engine_session *s;
    pi_error err;
    if (engine_session_create(c, N_CTX, &s, &err)) fail_msg("%s", err.message);
    for (int done = 0; done < N_TOKENS; done += piece) {
        int n = piece < N_TOKENS - done ? piece : N_TOKENS - done;
        const pi_input in = {
            .session = s, .tokens = tokens + done, .n_tokens = n, .logits = PI_LOGITS_ALL};
        if (engine_forward(c, &in, 1, &err)) fail_msg("%s", err.message);
        for (int i = 0; i < n; i++)
            memcpy(out + (done + i) * n_vocab, engine_logits(c, i), (size_t)n_vocab * sizeof *out);
    }
    engine_session_destroy(s);
}

static void expect_same(const char *what, int piece, int n_vocab, double gate) {
    double nmse = run_nmse(got, want, (int64_t)N_TOKENS * n_vocab);
    if (!(nmse <= gate)) fail_msg("%s, pieces of %d: NMSE %g is above %g", what, piece, nmse, gate);
}

/* ---- neurons of experts ---------------------------------------------------------------------- */

static void place_at_random(engine_options *o, const model *m) {
    for (int i = 0; i < m->hp.n_layer; i++)
        cuts[i] = (plan_cut){rng_u64(&random_cuts) % 2 ? SIDE_GPU : SIDE_CPU,
                             (int64_t)(rng_u64(&random_cuts) % (N_EXPERT + 1))};
    o->plan.cuts = cuts;
    o->plan.head = rng_u64(&random_cuts) % 2 ? SIDE_GPU : SIDE_CPU;
    o->gpu = library.backend;
    o->device = device;
}

/* Bytes of FFN weights that all tokens read one by one, in parts of all there are. */
static double share_read(engine_context *c) {
    pi_counters n = engine_get_counters(c);
    return (double)n.ffn_bytes / (double)n.ffn_total_bytes;
}

static void check(const char *what, const tiny_model *t) {
    static const int pieces[] = {1, 3, N_TOKENS};
    model *m = open_model(t);
    double gate = t->type[0] == 'f' ? float_gate : block_gate;
    engine_options dense = options_for(PI_MODE_DENSE), exact = options_for(PI_MODE_AUTO);
    engine_context *all = make_context(m, &dense), *some = make_context(m, &exact);
    assert_int_equal(engine_plan(some)->mode, PI_MODE_EXACT);
    run(all, m->hp.n_vocab, 1, want);
    for (int i = 0; i < 3; i++) {
        run(some, m->hp.n_vocab, pieces[i], got);
        expect_same(what, pieces[i], m->hp.n_vocab, t->type[0] == 'f' ? cpu_gate : block_gate);
        if (i > 0) continue;
        /* random neurons: half of them fire, so that of three rows of each one or two are read */
        double share = share_read(some) / share_read(all);
        assert_true(t->sparse.down_t ? share > 0.5 && share < 0.8 : share > 0.7 && share < 0.95);
    }
    engine_context_destroy(some);
    for (int i = 0; i < 3; i++) {
        place_at_random(&exact, m);
        engine_context *both = make_context(m, &exact);
        run(both, m->hp.n_vocab, pieces[i], got);
        expect_same(what, pieces[i], m->hp.n_vocab, gate);
        if (i == 0) { /* the GPU counts what it reads as the CPU does */
            double share = share_read(both) / share_read(all);
            assert_true(t->sparse.down_t ? share > 0.5 && share < 0.8
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
    if (type[0] != 'f') t.experts.n_used = N_EXPERT; /* whatever rounding makes of choices */
    return t;
}

static void test_zeros(void **state) {
    (void)state;
    static const char *const types[] = {"f16", "q4_0"};
    for (int i = 0; i < 4; i++) {
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

static const struct CMUnitTest tests[] = {cmocka_unit_test(test_zeros)};

int main(int argc, char **argv) {
    int status;
    if (!run_device_open(argc, argv, RUN_DEVICE_WAIT_MS, &library, &device, &status)) return status;
    rng_seed(&random_cuts, 11);
    status = cmocka_run_group_tests(tests, NULL, NULL);
    run_device_close(&library, device);
    remove(MODEL_PATH);
    return status;
}
