/* test_engine_paging_gpu.c: GPU, memory and drive together: a memory budget changes no answer of a
 * placement, and weights on the GPU take no host memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <unistd.h>

#include "engine.h"
#include "powerinfer_tools.h"
#include "run_device.h"
#include "run_engine.h"
#include "run_model.h"

#define MODEL_PATH TEST_BINARY_DIR "/test_engine_paging_gpu.gguf"

enum { N_TOKENS = 14, N_BATCH = 12, N_CTX = 32, MAX_VOCAB = 512, N_LAYERS = 4, MIB = 1 << 20 };

static gpu_library library;
static gpu_device *device;
static plan_split splits[N_LAYERS];
static adapt_policy adapt;
static float slack;
static int32_t tokens[N_TOKENS];
static float expected[N_TOKENS * MAX_VOCAB], got[N_TOKENS * MAX_VOCAB];

static model *open_model(const char *shape, const char *type, bool bundle) {
    pi_synth_options o = pi_synth_default_options();
    pi_error err;
    o.shape = shape;
    o.type = type;
    o.bundle = bundle;
    if (pi_synth(MODEL_PATH, &o, &err)) fail_msg("%s", err.message);
    model *m = run_engine_open(MODEL_PATH);
    run_random_tokens(3, m->hp.n_vocab, tokens, N_TOKENS);
    return m;
}

static pi_status make_context(const model *m, pi_mode mode, uint64_t budget, engine_context **c) {
    engine_options o = {.n_threads = 2,
                        .n_batch = N_BATCH,
                        .tier = CPU_TIER_AUTO,
                        .type_k = QUANT_F32,
                        .type_v = QUANT_F32,
                        .plan = {.mode = mode, .max_loss = 1, .splits = splits, .head = SIDE_GPU},
                        .ram_budget = budget,
                        .n_positions = N_CTX,
                        .gpu = library.backend,
                        .devices = {device},
                        .prompts = GPU_PROMPTS_SPLIT,
                        .expert_slack = slack,
                        .adapt = adapt};
    return engine_context_create(m, &o, c, NULL);
}

/* The least budget, which a context with a large budget reports; one byte less is refused. */
static uint64_t least_budget(const model *m, pi_mode mode) {
    engine_context *c;
    assert_int_equal(make_context(m, mode, 512 * (uint64_t)MIB, &c), PI_OK);
    paging_sizes s = paging_get_sizes(engine_paging(c));
    engine_context_destroy(c);
    uint64_t least = s.needed + s.beside;
    assert_int_equal(make_context(m, mode, least - 1, &c), PI_ERR_LIMIT);
    return least;
}

/* Few tokens one by one, or a batch and the rest: a simulated GPU is slow, even more so under a
 * sanitizer. */
#ifdef TEST_SAMPLED
enum { N_SINGLE = 2, N_ROOMY = 1, N_TURNS = 2 };
#else
enum { N_SINGLE = 4, N_ROOMY = 2, N_TURNS = 3 };
#endif

static void check(const model *m, pi_mode mode) {
    static const struct {
        int n_tokens, piece, n_budgets;
    } ways[] = {{N_SINGLE, 1, 1 + N_ROOMY}, {N_TOKENS, N_BATCH, 2}};
    uint64_t least = least_budget(m, mode);
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        for (int k = 0; k < ways[w].n_budgets; k++) {
            engine_context *c;
            uint64_t budgets[] = {0, least, least + 512 * 1024};
            float *to = k ? got : expected;
            memset(to, 0, sizeof expected);
            assert_int_equal(make_context(m, mode, budgets[k], &c), PI_OK);
            run_engine_tokens(c, N_CTX, tokens, ways[w].n_tokens, ways[w].piece, to);
            assert_null(engine_gpu_loss(c));
            engine_context_destroy(c);
            if (k && memcmp(expected, got, sizeof expected) != 0)
                fail_msg("mode %d, pieces of %d, budget %d", (int)mode, ways[w].piece, k);
        }
    }
}

static void place(const model *m, plan_side primary, int64_t share) {
    for (int i = 0; i < N_LAYERS; i++) {
        int64_t units = model_layer_units(m, i);
        splits[i] = (plan_split){.primary = i == 1 ? SIDE_CPU : primary,
                                 .hot = i == 2 ? units : units / share};
    }
}

static void neurons(void **state) {
    (void)state;
    model *m = open_model("tiny", "q4_0", true);
    place(m, SIDE_GPU, 3);
    check(m, PI_MODE_PREDICT);
    check(m, PI_MODE_EXACT);
    place(m, SIDE_CPU, 3);
    check(m, PI_MODE_PREDICT);
    model_close(m);
}

static void experts(void **state) {
    (void)state;
    model *m = open_model("tiny-moe", "q8_0", false);
    place(m, SIDE_GPU, 4);
    check(m, PI_MODE_DENSE);
    model_close(m);
    m = open_model("tiny-moe", "q8_0", true);
    check(m, PI_MODE_DENSE);
    place(m, SIDE_GPU, 1); /* no expert is left for the CPU */
    check(m, PI_MODE_DENSE);
    model_close(m);
}

/* With all of the CPU's experts in the cache, routing that prefers experts in memory replaces none:
 * those on the GPU need not be read. */
static void gpu_experts_are_in_memory(void **state) {
    (void)state;
    model *m = open_model("tiny-moe", "q8_0", true);
    place(m, SIDE_CPU, 4);
    for (int k = 0; k < 2; k++) {
        engine_context *c;
        slack = (float)k;
        assert_int_equal(make_context(m, PI_MODE_DENSE, 512 * (uint64_t)MIB, &c), PI_OK);
        run_engine_tokens(c, N_CTX, tokens, N_SINGLE, 1, k ? got : expected);
        assert_null(engine_gpu_loss(c));
        engine_context_destroy(c);
    }
    slack = 0;
    assert_memory_equal(got, expected, N_SINGLE * (size_t)m->hp.n_vocab * sizeof *got);
    model_close(m);
}

/* Any expert with slightly more use moves to the GPU, out of the cache, and others come back to the
 * cache. The moment depends on the time of a copy, and the rounding of sums depends on the
 * moment. */
static void moving_experts(void **state) {
    (void)state;
    const double gate = 1e-6;
    model *m = open_model("tiny-moe", "f16", true);
    place(m, SIDE_GPU, 4);
    adapt = (adapt_policy){0};
    engine_context *c;
    assert_int_equal(make_context(m, PI_MODE_DENSE, 0, &c), PI_OK);
    run_engine_tokens(c, N_CTX, tokens, N_TOKENS, 1, expected);
    engine_context_destroy(c);
    adapt = (adapt_policy){
        .on = true, .ratio = 1.001f, .margin = 0.01f, .half_life = 3, .slice_bytes = MIB};
    uint64_t least = least_budget(m, PI_MODE_DENSE);
    for (int k = 0; k < N_ROOMY; k++) {
        assert_int_equal(make_context(m, PI_MODE_DENSE, least + (uint64_t)k * MIB, &c), PI_OK);
        for (int turn = 0; turn < N_TURNS; turn++) {
            run_engine_tokens(c, N_CTX, tokens, N_TOKENS, turn == 1 ? N_BATCH : 1, got);
            assert_null(engine_gpu_loss(c));
            double nmse = run_nmse(got, expected, (int64_t)N_TOKENS * m->hp.n_vocab);
            if (!(nmse <= gate)) fail_msg("budget %d, turn %d: NMSE %g", k, turn, nmse);
        }
        assert_true(engine_get_counters(c).expert_swaps >= 3);
        engine_context_destroy(c);
    }
    adapt = (adapt_policy){0};
    model_close(m);
}

/* With more weights on the GPU, less host memory is needed. */
static void the_gpu_saves_memory(void **state) {
    (void)state;
    model *m = open_model("tiny", "f16", true);
    uint64_t all[2];
    for (int k = 0; k < 2; k++) {
        engine_context *c;
        place(m, SIDE_GPU, k ? 1 : 4);
        assert_int_equal(make_context(m, PI_MODE_PREDICT, 512 * (uint64_t)MIB, &c), PI_OK);
        paging_sizes s = paging_get_sizes(engine_paging(c));
        all[k] = s.pinned + s.hot;
        assert_int_equal(s.cache, 0);
        engine_context_destroy(c);
    }
    /* three quarters of three layers' neurons are 3 * 576 bundles of 1,536 bytes */
    assert_true(all[0] - all[1] >= (uint64_t)2 * 576 * 1536);
    model_close(m);
}

int main(int argc, char **argv) {
    int status = 0;
    if (!run_device_open(argc, argv, RUN_DEVICE_WAIT_MS, &library, &device, &status)) return status;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(neurons),
        cmocka_unit_test(experts),
        cmocka_unit_test(gpu_experts_are_in_memory),
        cmocka_unit_test(moving_experts),
        cmocka_unit_test(the_gpu_saves_memory),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(MODEL_PATH);
    run_device_close(&library, device);
    return failed;
}
