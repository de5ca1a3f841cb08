/* test_engine_lengths.c: prompts of 1 to 2,048 tokens in one ubatch, and contexts that use a device
 * at the same time from two threads, give the answers of the CPU alone. --most N: of at
 * most N tokens; the simulated GPU, which is slow, gets at most 300. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine.h"
#include "os_thread.h"
#include "run_device.h"
#include "run_engine.h"
#include "run_model.h"

#define MODEL_PATH TEST_BINARY_DIR "/test_engine_lengths.gguf"

enum { MOST_TOKENS = 2048, MOST_ON_SIM = 300, N_VOCAB = 40 };

static const double gate = 1e-6; /* F16 weights */
static gpu_library library;
static gpu_device *device;
static int32_t tokens[MOST_TOKENS];
static float want[MOST_TOKENS * N_VOCAB];
static plan_split splits[TINY_MAX_LAYERS];

static int most = MOST_TOKENS; /* --most */

static int most_tokens(void) {
    return strcmp(library.backend->name, "sim") == 0 && most > MOST_ON_SIM ? MOST_ON_SIM : most;
}

static model *open_model(void) {
    tiny_model t = tiny_default();
    t.type = "f16";
    t.n_embd = 64;
    t.head_dim = t.n_rot = 16;
    t.n_ff[0] = t.n_ff[1] = 160;
    t.activation = "relu";
    t.sparse = (tiny_sparse){.down_t = true, .predictor = "lowrank", .rank = 32};
    assert_int_equal(t.n_vocab, N_VOCAB);
    run_random_tokens(t.seed, N_VOCAB, tokens, MOST_TOKENS);
    return run_engine_open_tiny(&t, MODEL_PATH);
}

/* Whole layers on the GPU, or `half` of the neurons of each. */
static engine_options options_for(const model *m, pi_mode mode, gpu_device *on, bool half) {
    engine_options o = run_engine_options(mode, most_tokens(), most_tokens());
    if (!on) return o;
    for (int i = 0; i < m->hp.n_layer; i++) {
        const int64_t n = model_layer_units(m, i), unit = plan_split_unit(m, i);
        splits[i] = (plan_split){.primary = SIDE_GPU, .hot = half ? n / 2 / unit * unit : n};
    }
    o.plan.splits = splits;
    o.plan.head = SIDE_GPU;
    o.gpu = library.backend;
    o.devices[0] = on;
    return o;
}

/* `want` receives the answer of the CPU alone. */
static void run_alone(const model *m, pi_mode mode, int n_tokens) {
    const engine_options o = options_for(m, mode, NULL, false);
    engine_context *c = run_engine_context(m, &o);
    run_engine_tokens(c, n_tokens, tokens, n_tokens, 0, want);
    engine_context_destroy(c);
}

static void test_lengths(void **state) {
    (void)state;
    static const int lengths[] = {1, 2, 8, 9, 63, 64, 65, 257, MOST_ON_SIM, 1000, MOST_TOKENS};
    static const pi_mode modes[] = {PI_MODE_DENSE, PI_MODE_EXACT, PI_MODE_PREDICT};
    model *m = open_model();
    float *got = malloc(sizeof want);
    assert_non_null(got);
    for (int k = 0; k < 3; k++) {
        run_alone(m, modes[k], most_tokens());
        const engine_options o = options_for(m, modes[k], device, k != 0);
        engine_context *c = run_engine_context(m, &o);
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            const int n = lengths[i];
            if (n > most_tokens()) break;
            memset(got, 0xff, sizeof want);
            run_engine_tokens(c, n, tokens, n, 0, got);
            const double nmse = run_nmse(got, want, (int64_t)n * N_VOCAB);
            if (!(nmse <= gate)) fail_msg("mode %d, %d tokens: NMSE %g", (int)modes[k], n, nmse);
        }
        assert_null(engine_gpu_loss(c));
        engine_context_destroy(c);
    }
    free(got);
    model_close(m);
}

/* A context that a thread feeds, three tokens at a time. */
enum { N_FED = 24, ROUNDS = 4 };
typedef struct feeder {
    os_thread thread;
    engine_context *context;
    pi_session *session;
    double worst;
    pi_error err;
} feeder;

static void feed(void *arg) {
    feeder *f = arg;
    for (int round = 0; round < ROUNDS; round++) {
        if (session_rewind(f->session, 0, &f->err)) return;
        for (int i = 0; i < N_FED; i += 3) {
            const pi_input in = {.session = f->session,
                                 .tokens = tokens + i,
                                 .n_tokens = 3,
                                 .logits = PI_LOGITS_ALL};
            if (engine_forward(f->context, &in, 1, &f->err)) return;
            const double nmse = run_nmse(engine_logits(f->context, 0), want + i * N_VOCAB,
                                         3 * N_VOCAB);
            if (!(nmse <= f->worst)) f->worst = nmse;
        }
    }
}

static void test_contexts(void **state) {
    (void)state;
    model *m = open_model();
    feeder f[2] = {{.worst = 0}};
    gpu_device *another = run_device_another(&library, 0, 0, RUN_DEVICE_WAIT_MS);
    run_alone(m, PI_MODE_EXACT, N_FED);
    for (int i = 0; i < 2; i++) {
        const engine_options o = options_for(m, PI_MODE_EXACT, i ? another : device, i == 1);
        f[i].context = run_engine_context(m, &o);
        f[i].session = run_engine_session(f[i].context, N_FED);
    }
    for (int i = 0; i < 2; i++) assert_int_equal(os_thread_start(&f[i].thread, feed, &f[i]), 0);
    for (int i = 0; i < 2; i++) os_thread_join(&f[i].thread);
    for (int i = 0; i < 2; i++) {
        if (f[i].err.status) fail_msg("%s", f[i].err.message);
        if (!(f[i].worst <= gate)) fail_msg("context %d: NMSE %g", i, f[i].worst);
        assert_null(engine_gpu_loss(f[i].context));
        engine_session_destroy(f[i].session);
        engine_context_destroy(f[i].context);
    }
    library.backend->close(another);
    model_close(m);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_contexts),
    };
    int failed;
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], "--most") == 0) most = (int)strtol(argv[i + 1], NULL, 10);
    if (most < N_FED || most > MOST_TOKENS) return 2;
    if (!run_device_open(argc, argv, RUN_DEVICE_WAIT_MS, &library, &device, &failed)) return failed;
    failed = cmocka_run_group_tests_name("engine_lengths", tests, NULL, NULL);
    run_device_close(&library, device);
    return failed;
}
