/* test_engine_bundle.c: a file with bundled neurons or experts gives the same answers as the file
 * with separate matrices, bit for bit: every mode, kind of predictor, architecture with neurons and
 * type of weights, on every tier of the CPU's kernels, and split with the simulated GPU, in one
 * batch, a few tokens at a time and one by one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "bundled_file.h"
#include "engine.h"
#include "run_device.h"
#include "run_engine.h"
#include "run_model.h"
#include "tiny_model.h"

#define PLAIN_PATH   TEST_BINARY_DIR "/test_engine_bundle_plain.gguf"
#define BUNDLED_PATH TEST_BINARY_DIR "/test_engine_bundle.gguf"

enum { N_TOKENS = 21, MAX_VOCAB = 64, N_CTX = 32, N_BATCH = 16, ALONE = -1 };
#ifdef TEST_SAMPLED
enum { N_SPLITS = 1, TYPE_STEP = 4 };
#else
enum { N_SPLITS = 3, TYPE_STEP = 1 };
#endif

static gpu_library library;
static gpu_device *device;
static int32_t tokens[N_TOKENS];
static float plain_logits[N_TOKENS * MAX_VOCAB], logits[N_TOKENS * MAX_VOCAB];
static model *plain, *bundled;

/* ---- running --------------------------------------------------------------------------------- */

/* All layers on the GPU; half of the neurons on the GPU, with either primary device. */
static void set_splits(const model *m, int split, plan_split *splits) {
    for (int i = 0; i < m->hp.n_layer; i++) {
        int64_t n = model_layer_units(m, i);
        splits[i] = (plan_split){.primary = split == 2 ? SIDE_CPU : SIDE_GPU,
                                 .hot = split == 0 ? n : n / 2};
    }
}

static void run(const model *m, pi_mode mode, cpu_tier tier, int split, int piece, float *out) {
    plan_split splits[TINY_MAX_LAYERS];
    engine_options o = run_engine_options(mode, N_BATCH, N_TOKENS);
    o.tier = tier;
    if (split != ALONE) {
        set_splits(m, split, splits);
        o.plan.splits = splits;
        o.plan.head = split == 2 ? SIDE_CPU : SIDE_GPU;
        o.gpu = library.backend;
        o.devices[0] = device;
        o.prompts = split == 1 ? GPU_PROMPTS_STREAMED : GPU_PROMPTS_SPLIT;
    }
    engine_context *c = run_engine_context(m, &o);
    run_engine_tokens(c, N_CTX, tokens, N_TOKENS, piece, out);
    engine_context_destroy(c);
}

/* All tokens at once, a few at a time and, except on the simulated GPU, one by one. */
static void compare(const char *what, pi_mode mode, cpu_tier tier, int split) {
    static const int pieces[] = {0, 7, 1};
    size_t n_bytes = (size_t)N_TOKENS * (size_t)plain->hp.n_vocab * sizeof *logits;
    for (int i = 0; i < (split == ALONE ? 3 : 2); i++) {
        run(plain, mode, tier, split, pieces[i], plain_logits);
        run(bundled, mode, tier, split, pieces[i], logits);
        if (memcmp(plain_logits, logits, n_bytes) != 0)
            fail_msg("%s, mode %s, tier %d, split %d, pieces of %d: bundles change the answer",
                     what, ffn_mode_name(mode), (int)tier, split, pieces[i]);
    }
}

static void open_models(const tiny_model *t, int extra) {
    run_random_tokens(t->seed, t->n_vocab, tokens, N_TOKENS);
    plain = run_engine_open_tiny(t, PLAIN_PATH);
    bundled_write(PLAIN_PATH, BUNDLED_PATH, extra);
    bundled = run_engine_open(BUNDLED_PATH);
    for (int i = 0; i < t->n_layer; i++)
        assert_true(bundled->layers[i].bundle || bundled->layers[i].expert_bundle);
    assert_true(bundled->n_params == plain->n_params);
}

static void close_models(void) {
    model_close(plain);
    model_close(bundled);
}

/* ---- models ---------------------------------------------------------------------------------- */

static tiny_model base_model(const char *arch, const char *type) {
    tiny_model t = tiny_default();
    t.arch = arch;
    t.type = type;
    t.n_embd = 64;
    t.n_vocab = 43; /* not a multiple of anything */
    t.head_dim = t.n_rot = 16;
    t.n_ff[0] = 608; /* several parts */
    t.n_ff[1] = 96;
    t.activation = "relu";
    t.sparse.down_t = true;
    if (strcmp(arch, "opt") == 0) {
        t.qkv_bias = t.out_bias = t.ffn_bias = t.tied = true;
        t.n_pos = N_CTX;
    }
    return t;
}

static void test_modes(void **state) {
    (void)state;
    static const char *const archs[] = {"llama", "opt", "falcon"};
    static const char *const kinds[] = {"lowrank", "relu_mlp", "sign"};
    for (int i = 0; i < 3; i++) {
        tiny_model t = base_model(archs[i], i == 1 ? "q8_0" : "f16");
        t.sparse.predictor = kinds[i == 0 ? 2 : i - 1]; /* signs belong to a gate */
        t.sparse.rank = 32;
        t.sparse.residual = i == 1;
        t.scales = i == 0;
        open_models(&t, i);
        compare(t.arch, PI_MODE_DENSE, CPU_TIER_AUTO, ALONE);
        compare(t.arch, PI_MODE_EXACT, CPU_TIER_AUTO, ALONE);
        compare(t.arch, PI_MODE_PREDICT, CPU_TIER_AUTO, ALONE);
        for (int split = i; split < N_SPLITS; split++)
            compare(t.arch, PI_MODE_PREDICT, CPU_TIER_AUTO, split);
        close_models();
    }
}

/* Gate and up separate or in one tensor, up alone, down with a row per neuron. */
static void test_experts(void **state) {
    (void)state;
    static const char *const archs[] = {"llama", "bailingmoe2", "smallthinker"};
    static const char *const types[] = {"q4_0", "q8_0", "f16"};
    for (int i = 0; i < 3; i++) {
        tiny_model t = base_model(archs[i], types[i]);
        t.sparse.down_t = false;
        t.activation = i == 2 ? "relu" : NULL;
        t.experts = (tiny_experts){.n = 8, .n_used = 3, .n_ff = 64, .fused = i == 1};
        if (i == 1) t.experts.n_ff_shared = 96;
        t.scales = t.experts.biased = i == 0;
        open_models(&t, i);
        compare(t.arch, PI_MODE_DENSE, CPU_TIER_AUTO, ALONE);
        compare(t.arch, PI_MODE_DENSE, CPU_TIER_SCALAR, ALONE);
        if (i == 2) compare(t.arch, PI_MODE_EXACT, CPU_TIER_AUTO, ALONE);
        for (int split = i % N_SPLITS; split < N_SPLITS; split++)
            compare(t.arch, i == 2 ? PI_MODE_EXACT : PI_MODE_DENSE, CPU_TIER_AUTO, split);
        close_models();
    }
}

static void test_threshold(void **state) {
    (void)state;
    tiny_model t = base_model("llama", "q4_0");
    t.activation = NULL;
    t.sparse.cut = 0.05f;
    t.sparse.cut_factors = true;
    open_models(&t, 0);
    compare("silu", PI_MODE_THRESHOLD, CPU_TIER_AUTO, ALONE);
    compare("silu", PI_MODE_THRESHOLD, CPU_TIER_AUTO, 1);
    close_models();
}

/* Every way of reading rows in kernels, also with odd numbers of bytes. */
static void test_types(void **state) {
    (void)state;
    static const char *const types[] = {"f32",  "f16",  "bf16",   "q8_0",    "q4_0",  "q5_1",
                                        "q4_k", "q6_k", "iq4_nl", "iq3_xxs", "tq2_0", "mxfp4"};
    static const cpu_tier tiers[] = {CPU_TIER_SCALAR, CPU_TIER_AVX2, CPU_TIER_AVX512,
                                     CPU_TIER_NEON};
    for (size_t i = 0; i < sizeof types / sizeof *types; i += TYPE_STEP) {
        tiny_model t = base_model("llama", types[i]);
        if (quant_find_name(types[i])->block_elems > 32) {
            t.n_embd = 256;
            t.head_dim = t.n_rot = 64;
            t.n_ff[0] = t.n_ff[1] = 64;
        } else if (strcmp(types[i], "mxfp4") == 0) {
            t.n_embd = 96; /* rows of 51 bytes */
        }
        open_models(&t, 0);
        for (size_t k = 0; k < sizeof tiers / sizeof *tiers; k++) {
            cpu_kernels kernels;
            if (!cpu_kernels_get(tiers[k], &kernels)) continue;
            compare(types[i], PI_MODE_EXACT, tiers[k], ALONE);
        }
        close_models();
    }
}

int main(int argc, char **argv) {
    int status;
    if (!run_device_open(argc, argv, RUN_DEVICE_WAIT_MS, &library, &device, &status)) return status;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_modes), cmocka_unit_test(test_threshold),
        cmocka_unit_test(test_experts), cmocka_unit_test(test_types)};
    status = cmocka_run_group_tests(tests, NULL, NULL);
    run_device_close(&library, device);
    return status;
}
