/* test_engine_cache.c: the types of KV caches. The error of each type follows its number of bits,
 * in every form of attention. The way of feeding tokens and the placement of layers make little
 * difference. A session saved on one device continues on the other, and tokens are removed as with
 * floats. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "engine.h"
#include "mem.h"
#include "run_device.h"
#include "run_engine.h"
#include "run_model.h"

#define MODEL_PATH TEST_BINARY_DIR "/test_engine_cache.gguf"

enum { N_TOKENS = 30, N_CTX = 32, V = 40, LAYERS = 2 };

static gpu_library library;
static gpu_device *device;
static plan_split splits[LAYERS];
static int32_t tokens[N_TOKENS];
static float want[N_TOKENS * V], same[N_TOKENS * V], got[N_TOKENS * V];
static pi_error err;

static void ok(pi_status status) {
    if (status != PI_OK) fail_msg("%s", err.message);
}

/* Bounds on the NMSE of the logits, a few times the measured values. loss: against an F32 cache.
 * order: between two ways to compute one value; a value near the middle between two stored values
 * may fall to either side. */
static const struct {
    quant_type type;
    double loss, order;
} types[] = {{QUANT_F32, 1e-10, 1e-10}, {QUANT_F16, 1e-6, 1e-8},  {QUANT_BF16, 3e-5, 1e-6},
             {QUANT_Q8_0, 3e-4, 1e-5},  {QUANT_Q5_1, 1e-2, 1e-4}, {QUANT_Q5_0, 1e-2, 1e-4},
             {QUANT_Q4_1, 4e-2, 1e-3},  {QUANT_Q4_0, 4e-2, 1e-3}, {QUANT_IQ4_NL, 4e-2, 1e-3}};
enum { TYPES = sizeof types / sizeof *types };

/* Forms of attention. */
static const char *const forms[] = {"llama", "qwen3", "mimo2", "deepseek2", "minimax-m3"};
enum { FORMS = sizeof forms / sizeof *forms };

/* Small errors there choose other blocks and other experts. */
static bool chooses(int form) {
    return strcmp(forms[form], "minimax-m3") == 0;
}

static model *open_form(const char *arch) {
    tiny_model t = tiny_default();
    t.arch = arch;
    t.n_embd = 64;
    t.head_dim = 64;
    t.n_rot = 32;
    tiny_set_heads(&t, 6, 2);
    if (strcmp(arch, "qwen3") == 0) { /* matrices of 32 */
        t.head_dim = t.n_rot = 96;
        tiny_set_heads(&t, 2, 2);
    } else if (strcmp(arch, "mimo2") == 0) {
        t.v_dim = 32;
    } else if (strcmp(arch, "deepseek2") == 0) { /* rows of 32 + 64 */
        t.head_dim = 48;
        t.n_latent = 64;
        t.n_latent_q = 32;
        t.v_dim = 32;
        tiny_set_heads(&t, 4, 1);
    } else if (strcmp(arch, "minimax-m3") == 0) {
        t.experts = (tiny_experts){.n = 4, .n_used = 2, .n_ff = 32, .n_dense = 1};
        t.index = (tiny_index){.dim = 32, .size = 4, .top = 3, .local = 1};
    }
    run_random_tokens(3, V, tokens, N_TOKENS);
    return run_engine_open_tiny(&t, MODEL_PATH);
}

static engine_options options_for(const model *m, cpu_tier tier, quant_type k, quant_type v,
                                  bool gpu) {
    engine_options o = run_engine_options(PI_MODE_DENSE, N_TOKENS, N_TOKENS);
    o.tier = tier;
    o.type_k = k;
    o.type_v = v;
    for (int i = 0; i < LAYERS; i++)
        splits[i] = (plan_split){.primary = SIDE_GPU, .hot = model_layer_units(m, i)};
    if (gpu) {
        o.plan.splits = splits;
        o.plan.head = SIDE_GPU;
        o.gpu = library.backend;
        o.devices[0] = device;
    }
    return o;
}

static void near(const char *what, quant_type type, const float *a, const float *b, int n,
                 double gate) {
    double nmse = run_nmse(a, b, (int64_t)n * V);
    if (!(nmse <= gate))
        fail_msg("%s, %s: NMSE %g is above %g", what, quant_find(type)->name, nmse, gate);
}

static void compute(const model *m, const engine_options *o, int piece, float *logits) {
    engine_context *c = run_engine_context(m, o);
    run_engine_tokens(c, N_CTX, tokens, N_TOKENS, piece, logits);
    assert_null(engine_gpu_loss(c));
    engine_context_destroy(c);
}

static void test_loss(void **state) {
    (void)state;
    for (int f = 0; f < FORMS; f++) {
        model *m = open_form(forms[f]);
        engine_options o = options_for(m, CPU_TIER_SCALAR, QUANT_F32, QUANT_F32, false);
        compute(m, &o, 0, want);
        for (int t = 0; t < TYPES; t++) {
            o = options_for(m, CPU_TIER_AUTO, types[t].type, types[t].type, false);
            compute(m, &o, 0, same);
            near(forms[f], types[t].type, same, want, N_TOKENS, chooses(f) ? 1 : types[t].loss);
            compute(m, &o, t % 2 ? 7 : 1, got);
            near("in pieces", types[t].type, got, same, N_TOKENS, chooses(f) ? 1 : types[t].order);
        }
        model_close(m);
    }
}

/* Alternates pairs of types; prompts and single tokens. */
static void test_gpu(void **state) {
    (void)state;
    for (int f = 0; f < FORMS; f++) {
        model *m = open_form(forms[f]);
        for (int t = f % 3; t < TYPES; t += 3) {
            quant_type k = types[t].type, v = types[f % 2 ? t : (t + f) % TYPES].type;
            engine_options o = options_for(m, CPU_TIER_AUTO, k, v, false);
            compute(m, &o, 0, want);
            o = options_for(m, CPU_TIER_AUTO, k, v, true);
            compute(m, &o, t / 2 % 2, got);
            near("GPU", k, got, want, N_TOKENS, chooses(f) ? 1 : types[TYPES - 1].order);
        }
        model_close(m);
    }
}

/* The first tokens on one device, the others on the other device. */
static void check_moved(const model *m, quant_type type, bool to_gpu, double gate) {
    enum { FIRST = 20 };
    engine_options o = options_for(m, CPU_TIER_AUTO, type, type, !to_gpu);
    engine_options other = options_for(m, CPU_TIER_AUTO, type, type, to_gpu);
    engine_context *c = run_engine_context(m, &o), *d = run_engine_context(m, &other);
    pi_session *s = run_engine_session(c, N_CTX), *on = run_engine_session(d, N_CTX);
    size_t n = 0;
    int32_t loaded[N_CTX];
    int64_t n_loaded;
    run_engine_feed(c, s, tokens, FIRST, 0, NULL);
    session_get_state(s, tokens, FIRST, NULL, 0, &n, &err);
    uint8_t *data = mem_calloc(n, 1), *again = mem_calloc(n, 1);
    assert_true(data && again);
    ok(session_get_state(s, tokens, FIRST, data, n, &n, &err));
    ok(session_set_state(on, data, n, loaded, N_CTX, &n_loaded, &err));
    assert_int_equal(n_loaded, FIRST);
    ok(session_get_state(on, tokens, FIRST, again, n, &n, &err));
    assert_memory_equal(data, again, n); /* no value changes during the transfer */
    run_engine_feed(c, s, tokens + FIRST, N_TOKENS - FIRST, 3, want);
    run_engine_feed(d, on, tokens + FIRST, N_TOKENS - FIRST, 3, got);
    near(to_gpu ? "to the GPU" : "to the CPU", type, got, want, N_TOKENS - FIRST, gate);
    mem_free(data);
    mem_free(again);
    engine_session_destroy(s);
    engine_session_destroy(on);
    engine_context_destroy(c);
    engine_context_destroy(d);
}

static void test_moved(void **state) {
    (void)state;
    for (int f = 0; f < FORMS; f++) {
        model *m = open_form(forms[f]);
        for (int t = f; t < TYPES; t += 4) check_moved(m, types[t].type, t % 8 < 4, types[t].order);
        model_close(m);
    }
}

/* After removing tokens the others are as with floats: keys are rotated back, moved and rotated
 * again. */
static void check_removed(const model *m, quant_type type, bool gpu, float *logits) {
    enum { FED = 22, FIRST = 4, END = 13 };
    engine_options o = options_for(m, CPU_TIER_AUTO, type, type, gpu);
    engine_context *c = run_engine_context(m, &o);
    pi_session *s = run_engine_session(c, N_CTX);
    run_engine_feed(c, s, tokens, FED, 0, NULL);
    ok(session_remove(s, FIRST, END, &err));
    run_engine_feed(c, s, tokens + FED, N_TOKENS - FED, 0, logits);
    engine_session_destroy(s);
    engine_context_destroy(c);
}

static void test_removed(void **state) {
    (void)state;
    enum { LEFT = 8 };
    for (int f = 0; f < FORMS; f++) {
        model *m = open_form(forms[f]);
        check_removed(m, QUANT_F32, false, want);
        for (int t = 1 + f % 2; t < TYPES; t += 2) {
            check_removed(m, types[t].type, t / 2 % 2, got);
            near("removed", types[t].type, got, want, LEFT, chooses(f) ? 1 : 2 * types[t].loss);
        }
        model_close(m);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_loss), cmocka_unit_test(test_gpu),
                                       cmocka_unit_test(test_moved),
                                       cmocka_unit_test(test_removed)};
    int failed;
    if (!run_device_open(argc, argv, RUN_DEVICE_WAIT_MS, &library, &device, &failed)) return failed;
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    run_device_close(&library, device);
    return failed;
}
