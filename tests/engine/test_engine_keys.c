/* test_engine_keys.c: a small synthetic DeepSeek-V4 on a GPU: compressed keys, a table of experts,
 * streams that are mixed. Every placement gives the logits of the CPU alone: in one batch, a few
 * tokens at a time and one by one, in several contexts and sessions at once, rewound, and when a
 * saved session continues under another placement. Also the kernels and the memory that a plan
 * states. The simulated GPU, or the one that --device names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "dynlib.h"
#include "engine.h"
#include "gpu_exec_impl.h"
#include "powerinfer_tools.h"
#include "run_device.h"
#include "run_engine.h"
#include "run_model.h"
#include "session.h"

#define MODEL_PATH   TEST_BINARY_DIR "/test_engine_keys.gguf"
#define SESSION_PATH TEST_BINARY_DIR "/test_engine_keys.session"

/* Windows of 32 positions, 16 of the compressed keys of 4 positions, and a key of 128. */
enum { N_VOCAB = 512, N_TOKENS = 150, N_LAYER = 4, N_CTX = 256, N_BATCH = 64 };

static const double gate = 1e-6;

static gpu_library library;
static gpu_device *device;
static model *m;
static plan_split splits[N_LAYER];
static int32_t tokens[N_TOKENS];
static float want[N_TOKENS * N_VOCAB], got[N_TOKENS * N_VOCAB];

static engine_options options(void) {
    engine_options o = run_engine_options(PI_MODE_DENSE, N_BATCH, N_TOKENS);
    o.type_k = o.type_v = QUANT_F32; /* a rounded index key would select others */
    return o;
}

/* `want` receives the logits of the CPU alone. */
static void open_model(const char *type) {
    pi_error err = {0};
    pi_synth_options o = pi_synth_default_options();
    o.shape = "tiny-csa-moe";
    o.type = type;
    o.plain = true;
    o.seed = 5;
    if (pi_synth(MODEL_PATH, &o, &err)) fail_msg("%s", err.message);
    m = run_engine_open(MODEL_PATH);
    assert_int_equal(m->hp.n_layer, N_LAYER);
    assert_true(m->layers[0].hp.routes_by_token && m->hp.hyper_rounds > 0);
    run_random_tokens(7, N_VOCAB, tokens, N_TOKENS);
    const engine_options alone = options();
    engine_context *c = run_engine_context(m, &alone);
    run_engine_tokens(c, N_CTX, tokens, N_TOKENS, 0, want);
    engine_context_destroy(c);
}

/* Bit i of `on_gpu`: the primary of layer i is the GPU, whose experts are `part` eighths. */
static engine_options place(unsigned on_gpu, int part, plan_side head) {
    engine_options o = options();
    for (int i = 0; i < N_LAYER; i++)
        splits[i] = (plan_split){.primary = on_gpu >> i & 1 ? SIDE_GPU : SIDE_CPU,
                                 .hot = model_layer_units(m, i) * part / 8};
    o.plan.splits = splits;
    o.gpu = library.backend;
    o.devices[0] = device;
    const bool whole = !run_engine_keep(m, library.backend->supports, PI_MODE_DENSE, splits, &head);
    if (strcmp(library.backend->name, "sim") == 0) assert_true(whole);
    o.plan.head = head;
    return o;
}

static void check(const char *what, int first, int n) {
    double nmse = run_nmse(got + first * N_VOCAB, want + first * N_VOCAB, (int64_t)n * N_VOCAB);
    if (!(nmse <= gate)) fail_msg("%s: NMSE %g is above %g", what, nmse, gate);
}

static void test_placements(void **state) {
    (void)state;
    static const struct {
        unsigned on_gpu;
        int part;
        plan_side head;
    } places[] = {{15, 8, SIDE_GPU}, {15, 4, SIDE_GPU}, {6, 0, SIDE_CPU}, {9, 3, SIDE_GPU}};
    enum { BY_TOKEN = 12, BY_SEVENS = 84 }; /* each call costs as many launches as a batch */
    open_model("f32");
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const engine_options o = place(places[i].on_gpu, places[i].part, places[i].head);
        engine_context *c = run_engine_context(m, &o);
        run_engine_tokens(c, N_CTX, tokens, N_TOKENS, 0, got);
        check("in batches", 0, N_TOKENS);
        if (i == 0) run_engine_tokens(c, N_CTX, tokens, BY_TOKEN, 1, got);
        if (i == 1) run_engine_tokens(c, N_CTX, tokens, BY_SEVENS, 7, got);
        check(i == 0 ? "by token" : "by sevens", 0, i == 0 ? BY_TOKEN : BY_SEVENS);
        engine_context_destroy(c);
    }
    model_close(m);
}

/* Two contexts; two sessions in one call, whose positions differ; the session goes back. */
static void test_sessions(void **state) {
    (void)state;
    enum { APART = 21, STEP = 11, UNTIL = 77 };
    pi_error err;
    open_model("f32");
    const engine_options o = place(15, 4, SIDE_GPU);
    engine_context *c[] = {run_engine_context(m, &o), run_engine_context(m, &o)};
    for (int k = 0; k < 2; k++) {
        pi_session *a = run_engine_session(c[k], N_CTX), *b = run_engine_session(c[k], N_CTX);
        run_engine_feed(c[k], a, tokens, APART, 0, NULL);
        for (int i = 0; i < UNTIL; i += STEP) {
            const pi_input in[] = {
                {.session = a,
                 .tokens = tokens + APART + i,
                 .n_tokens = STEP,
                 .logits = PI_LOGITS_ALL},
                {.session = b, .tokens = tokens + i, .n_tokens = STEP, .logits = PI_LOGITS_ALL}};
            run_engine_forward(c[k], in, 2);
            for (int j = 0; j < 2; j++) {
                const int at = j == 0 ? APART + i : i;
                memcpy(got + at * N_VOCAB, engine_logits(c[k], j * STEP),
                       sizeof *got * STEP * N_VOCAB);
                check(j == 0 ? "first session" : "second session", at, STEP);
            }
        }
        assert_int_equal(session_rewind(a, 0, &err), PI_OK);
        assert_int_equal(session_rewind(b, UNTIL - STEP, &err), PI_OK);
        run_engine_feed(c[k], b, tokens + UNTIL - STEP, 40, 0, got + (UNTIL - STEP) * N_VOCAB);
        check("rewound", UNTIL - STEP, 40);
        assert_int_equal(session_copy(a, b, UNTIL - STEP + 40, &err), PI_OK);
        run_engine_feed(c[k], a, tokens + UNTIL - STEP + 40, 3, 1,
                        got + (UNTIL - STEP + 40) * N_VOCAB);
        check("copied", UNTIL - STEP + 40, 3);
        engine_session_destroy(a);
        engine_session_destroy(b);
    }
    for (int k = 0; k < 2; k++) engine_context_destroy(c[k]);
    model_close(m);
}

/* Saved by the CPU alone and loaded with layers on both devices, and the other way round. */
static void test_session_file(void **state) {
    (void)state;
    enum { FIRST = 90 };
    open_model("f16");
    const engine_options alone = options(), shared = place(10, 5, SIDE_CPU);
    engine_context *c[] = {run_engine_context(m, &alone), run_engine_context(m, &shared)};
    for (int from = 0; from < 2; from++) {
        int32_t loaded[N_TOKENS];
        int64_t n_loaded;
        pi_error err;
        pi_session *a = run_engine_session(c[from], N_CTX);
        pi_session *b = run_engine_session(c[1 - from], N_CTX);
        run_engine_feed(c[from], a, tokens, FIRST, 0, NULL);
        if (session_save(a, SESSION_PATH, tokens, FIRST, &err)) fail_msg("%s", err.message);
        if (session_load(b, SESSION_PATH, loaded, N_TOKENS, &n_loaded, &err))
            fail_msg("%s", err.message);
        assert_int_equal(n_loaded, FIRST);
        run_engine_feed(c[1 - from], b, tokens + FIRST, N_TOKENS - FIRST, 0, got + FIRST * N_VOCAB);
        check(from == 0 ? "saved by the CPU" : "saved by the GPU", FIRST, N_TOKENS - FIRST);
        engine_session_destroy(a);
        engine_session_destroy(b);
    }
    for (int i = 0; i < 2; i++) engine_context_destroy(c[i]);
    model_close(m);
}

/* Kernels that the plan counts for a token, and the memory of context and session. */
static void test_counts(void **state) {
    (void)state;
    typedef uint64_t kernel_counter(void);
    kernel_counter *kernels = (kernel_counter *)dynlib_symbol(library.handle,
                                                              "powerinfer_sim_kernels");
    static const char *const types[] = {"f16", "q8_0"};
    if (!kernels) skip();
    for (int t = 0; t < 2; t++) {
        open_model(types[t]);
        const engine_options o = place(15, 8, SIDE_GPU);
        engine_context *c = run_engine_context(m, &o);
        pi_session *s = run_engine_session(c, N_CTX);
        const uint64_t before = kernels();
        run_engine_feed(c, s, tokens, 1, 0, got);
        assert_int_equal(kernels() - before, gpu_exec_count_kernels(engine_plan(c), 1));
        engine_session_destroy(s);
        engine_context_destroy(c);
        run_engine_check_size(m, &o, &library, device, N_CTX);
        model_close(m);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_placements),
        cmocka_unit_test(test_sessions),
        cmocka_unit_test(test_session_file),
        cmocka_unit_test(test_counts),
    };
    int failed;
    if (!run_device_open(argc, argv, RUN_DEVICE_WAIT_MS, &library, &device, &failed)) return failed;
    failed = cmocka_run_group_tests_name("engine_keys", tests, NULL, NULL);
    run_device_close(&library, device);
    return failed;
}
