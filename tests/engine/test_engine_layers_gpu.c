/* test_engine_layers_gpu.c: layers on the GPU that have a recurrent state, or that share a KV cache
 * and have per-layer embeddings (Gemma 4), or several residual streams (Gemma 3n): for every
 * placement and every way of feeding tokens, and after going back, copying, saving, loading and the
 * loss of the device, the logits are those of the CPU alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine.h"
#include "layer_embd_model.h"
#include "plan_support.h"
#include "powerinfer_tools.h"
#include "recurrent_model.h"
#include "rng.h"
#include "run_device.h"
#include "run_engine.h"
#include "run_model.h"

#define MODEL_PATH TEST_BINARY_DIR "/test_engine_layers_gpu.gguf"
#define SAVED_PATH TEST_BINARY_DIR "/test_engine_layers_gpu.session"

enum { N_TOKENS = 21, N_CTX = 32, N_BATCH = 16, V = RECURRENT_VOCAB, MAX_LAYERS = 16 };

#ifdef TEST_SAMPLED
enum { N_CUTS = 2 };
#else
enum { N_CUTS = 8 }; /* random placements */
#endif

static gpu_library library;
static gpu_device *device;
static plan_split splits[MAX_LAYERS];
static int32_t tokens[N_TOKENS];
static float want[N_TOKENS * V], got[N_TOKENS * V];
static pi_error err;
static double gate = 1e-6;
static quant_type cache_type = QUANT_F32;

static void ok(pi_status status) {
    if (status != PI_OK) fail_msg("%s", err.message);
}

static engine_options options_for(bool gpu) {
    engine_options o = run_engine_options(PI_MODE_DENSE, N_BATCH, N_TOKENS);
    o.type_k = o.type_v = cache_type;
    if (gpu) {
        o.plan.splits = splits;
        o.plan.head = SIDE_GPU;
        o.gpu = library.backend;
        o.devices[0] = device;
    }
    return o;
}

/* Feeds tokens [first, end) in calls of `piece`; their logits are the CPU's. */
static void feed(const char *what, engine_context *c, pi_session *s, int first, int end,
                 int piece) {
    run_engine_feed(c, s, tokens + first, end - first, piece, got + first * V);
    double nmse = run_nmse(got + first * V, want + first * V, (int64_t)(end - first) * V);
    if (!(nmse <= gate)) fail_msg("%s, from %d by %d: NMSE %g", what, first, piece, nmse);
}

static model *open_arch(const char *arch) {
    _Static_assert((int)PLE_VOCAB == (int)V, "one buffer of logits");
    int dim_full;
    if (sscanf(arch, "gemma4, heads of %d", &dim_full) == 1)
        ple_write_heads(MODEL_PATH, dim_full);
    else if (strcmp(arch, "gemma4") == 0)
        ple_write(MODEL_PATH, QUANT_F32, PLE_WIDTH);
    else if (strcmp(arch, "gemma3n") == 0)
        ple_write_streams_as(MODEL_PATH, QUANT_F32);
    else if (strcmp(arch, "gemma3n, F16") == 0)
        ple_write_streams_as(MODEL_PATH, QUANT_F16);
    else if (strcmp(arch, "gemma3n, Q8_0") == 0)
        ple_write_streams_as(MODEL_PATH, QUANT_Q8_0);
    else
        recurrent_write(arch, NULL, MODEL_PATH);
    run_random_tokens(5, V, tokens, N_TOKENS);
    model *m = run_engine_open(MODEL_PATH);
    assert_true(m->hp.n_layer <= MAX_LAYERS);
    engine_options o = options_for(false);
    engine_context *c = run_engine_context(m, &o);
    run_engine_tokens(c, N_CTX, tokens, N_TOKENS, 0, want);
    engine_context_destroy(c);
    return m;
}

/* Every layer on the GPU, or every other layer, with split neurons. Layers that share a cache stay
 * together. Experts that are not whole groups of int8 stay on the CPU. */
static void place(const model *m, bool all) {
    for (int i = 0; i < m->hp.n_layer; i++) {
        int64_t n = model_layer_units(m, i), unit = plan_split_unit(m, i);
        plan_side primary = all || i % 2 ? SIDE_GPU : SIDE_CPU;
        if (i > model_shared_from(m)) primary = splits[i - 1].primary;
        splits[i] = (plan_split){.primary = primary, .hot = all ? n : n / 2 / unit * unit};
    }
    plan_side head = SIDE_GPU;
    run_engine_keep(m, library.backend->supports, PI_MODE_DENSE, splits, &head);
    assert_int_equal(head, SIDE_GPU);
}

static void check_pieces(const char *arch, const int *pieces, int n_pieces) {
    model *m = open_arch(arch);
    for (int all = 0; all < 2; all++) {
        place(m, all);
        engine_options o = options_for(true);
        engine_context *c = run_engine_context(m, &o);
        for (int i = 0; i < n_pieces; i++) {
            pi_session *s = run_engine_session(c, N_CTX);
            feed(arch, c, s, 0, N_TOKENS, pieces[i]);
            engine_session_destroy(s);
        }
        assert_null(engine_gpu_loss(c));
        engine_context_destroy(c);
    }
    model_close(m);
}

static void test_pieces(void **state) {
    (void)state;
    static const int pieces[] = {5, 1, 0};
    for (int a = 0; a < RECURRENT_ARCHS; a++) check_pieces(recurrent_archs[a], pieces, 3);
    check_pieces("gemma4", pieces, 3);
    check_pieces("gemma3n", pieces, 3);
    check_pieces("gemma3n, F16", pieces, 2);
    /* The GPU rounds prompts to half precision, the CPU does not; this model multiplies errors by
     * 10 and more from layer to layer. */
    gate = 2e-3;
    check_pieces("gemma3n, F16", pieces + 2, 1);
    check_pieces("gemma3n, Q8_0", pieces, 2);
    gate = 1e-6;
}

/* Gemma 4's layers without a window have heads of 512. Caches of all kinds of kernels; prompts of
 * an F16 cache are on tensor cores. */
static void test_wide_heads(void **state) {
    (void)state;
    static const int pieces[] = {5, 1, 0};
    static const struct {
        quant_type type;
        double gate;
    } caches[] = {{QUANT_F32, 1e-6}, {QUANT_F16, 1e-5}, {QUANT_BF16, 1e-3}};
    for (size_t i = 0; i < sizeof caches / sizeof *caches; i++) {
        cache_type = caches[i].type;
        gate = caches[i].gate;
        check_pieces("gemma4, heads of 512", pieces, 3);
    }
    model *m = run_engine_open(MODEL_PATH);
    place(m, true);
    for (int i = 0; i < PLE_LAYERS; i++) assert_int_equal(splits[i].primary, SIDE_GPU);
    model_close(m);
    cache_type = QUANT_F32;
    gate = 1e-6;
}

static char reasons[1024];

static void add_reason(void *user, const char *text) {
    (void)user;
    size_t n = strlen(reasons);
    snprintf(reasons + n, sizeof reasons - n, "%s\n", text);
}

/* `place` puts all neurons of the file's model on the GPU, and says why attention is not there. */
static void check_place_of_neurons(void) {
    static char text[1 << 14];
    pi_place_options o = pi_place_default_options();
    o.device = PI_DEVICE_SIM;
    for (int json = 0; json < 2; json++) {
        FILE *file = tmpfile();
        assert_non_null(file);
        o.json = json;
        ok(pi_place(MODEL_PATH, &o, file, &err));
        rewind(file);
        text[fread(text, 1, sizeof text - 1, file)] = '\0';
        fclose(file);
        if (!json) assert_non_null(strstr(text, reasons));
        const char *at = text;
        for (int i = 0; json && i < PLE_LAYERS; i++) {
            at = strstr(at, "\"hot\": ");
            assert_non_null(at);
            at += strlen("\"hot\": ");
            assert_int_equal(strtol(at, NULL, 10), ple_ff(i));
        }
    }
}

/* No kernel has heads of 520: attention of such layers, and of those that share a cache with them,
 * stays on the CPU, and their neurons go to the GPU as others do. */
static void test_unsupported_heads(void **state) {
    (void)state;
    static const int pieces[] = {5, 0};
    check_pieces("gemma4, heads of 520", pieces, 2);
    model *m = run_engine_open(MODEL_PATH);
    place(m, true);
    for (int i = 0; i < PLE_LAYERS; i++) {
        assert_int_equal(splits[i].primary, i < model_shared_from(m) ? SIDE_GPU : SIDE_CPU);
        assert_int_equal(splits[i].hot, ple_ff(i));
    }
    const plan_options o = {.mode = PI_MODE_DENSE, .supports = library.backend->supports};
    plan_support s;
    ok(plan_support_create(m, &o, &s, &err));
    plan_support_explain(m, &s, add_reason, NULL);
    assert_string_equal(reasons, "layers 1 to 4: attention on the CPU: the GPU does not support "
                                 "heads of this size\n");
    plan_support_free(&s);
    model_close(m);
    if (strcmp(library.backend->name, "sim") == 0) check_place_of_neurons();
}

/* Embeddings come with the first layer on the GPU, also when CPU layers precede it; rewinding,
 * removing tokens and files work as with separate caches. */
static void check_shared_caches(const char *arch) {
    enum { PROMPT = 12 };
    model *m = open_arch(arch);
    int from = model_shared_from(m), n = m->hp.n_layer;
    assert_in_range(from, 1, n - 2);
    engine_options alone = options_for(false), shared = options_for(true);
    engine_context *cpu = run_engine_context(m, &alone);
    for (int first = 0; first <= from; first++) {
        place(m, true);
        for (int i = 0; i < first; i++) splits[i] = (plan_split){.primary = SIDE_CPU};
        engine_context *gpu = run_engine_context(m, &shared);
        pi_session *s = run_engine_session(gpu, N_CTX), *other = run_engine_session(cpu, N_CTX);
        int32_t loaded[N_CTX];
        int64_t n_loaded;
        feed(arch, gpu, s, 0, PROMPT + 3, 4);
        ok(session_rewind(s, PROMPT, &err));
        ok(session_save(s, SAVED_PATH, tokens, PROMPT, &err));
        ok(session_load(other, SAVED_PATH, loaded, N_CTX, &n_loaded, &err));
        feed("rewound", gpu, s, PROMPT, N_TOKENS, 1);
        feed("loaded by the CPU", cpu, other, PROMPT, N_TOKENS, 0);
        ok(session_remove(s, 3, 7, &err));
        ok(session_remove(other, 3, 7, &err));
        run_engine_feed(gpu, s, tokens, 4, 2, got);
        run_engine_feed(cpu, other, tokens, 4, 2, got + 4 * V);
        assert_true(run_nmse(got, got + 4 * V, 4 * V) <= 1e-6);
        engine_session_destroy(s);
        engine_session_destroy(other);
        engine_context_destroy(gpu);
    }
    splits[n - 1].primary = SIDE_CPU;
    engine_context *c;
    assert_int_equal(engine_context_create(m, &shared, &c, &err), PI_ERR_ARG);
    assert_non_null(strstr(err.message, "shares a KV cache"));
    engine_context_destroy(cpu);
    model_close(m);
    remove(SAVED_PATH);
}

static void test_shared_caches(void **state) {
    (void)state;
    check_shared_caches("gemma4");
    check_shared_caches("gemma3n");
}

/* Layers with a cutoff have all their neurons on one device, either one; the other layers have any
 * split. Their rows are copied for prompts or not. Modes leave out rows of up or do not. */
static void test_cutoffs(void **state) {
    (void)state;
    static const gpu_prompts prompts[] = {GPU_PROMPTS_SPLIT, GPU_PROMPTS_STREAMED};
    static const pi_mode modes[] = {PI_MODE_EXACT, PI_MODE_DENSE, PI_MODE_AUTO};
    model *m = open_arch("gemma3n");
    rng r;
    rng_seed(&r, 8);
    for (int number = 0; number < N_CUTS; number++) {
        for (int i = 0; i < m->hp.n_layer; i++) {
            int64_t n = model_layer_units(m, i), unit = plan_split_unit(m, i);
            assert_int_equal(unit, m->layers[i].hp.ffn_top_k ? n : 1);
            plan_side primary = rng_u64(&r) % 2 ? SIDE_GPU : SIDE_CPU;
            if (i > model_shared_from(m)) primary = splits[i - 1].primary;
            int64_t hot = (int64_t)(rng_u64(&r) % (uint64_t)(n / unit + 1)) * unit;
            splits[i] = (plan_split){.primary = primary, .hot = hot};
        }
        engine_options o = options_for(true);
        o.plan.mode = modes[number % 3];
        o.plan.head = number % 2 ? SIDE_CPU : SIDE_GPU;
        o.prompts = prompts[number / 2 % 2];
        engine_context *c = run_engine_context(m, &o);
        pi_session *s = run_engine_session(c, N_CTX);
        feed("cutoffs", c, s, 0, N_TOKENS - 5, 0);
        feed("cutoffs", c, s, N_TOKENS - 5, N_TOKENS, 1 + number % 2 * 2);
        assert_null(engine_gpu_loss(c));
        engine_session_destroy(s);
        engine_context_destroy(c);
    }
    splits[0].hot = 7;
    engine_options o = options_for(true);
    engine_context *c;
    assert_int_equal(engine_context_create(m, &o, &c, &err), PI_ERR_ARG);
    assert_non_null(strstr(err.message, "is not a multiple of"));
    model_close(m);
}

/* Two sessions in one call, of different lengths. */
static void test_sessions(void **state) {
    (void)state;
    enum { BEHIND = 4, STEP = 3 };
    model *m = open_arch("qwen35");
    place(m, true);
    engine_options o = options_for(true);
    engine_context *c = run_engine_context(m, &o);
    pi_session *s[2] = {run_engine_session(c, N_CTX), run_engine_session(c, N_CTX)};
    feed("one behind the other", c, s[1], 0, BEHIND, 0);
    for (int at = 0; at + BEHIND + STEP <= N_TOKENS; at += STEP) {
        pi_input in[2];
        for (int k = 0; k < 2; k++)
            in[k] = (pi_input){.session = s[k],
                               .tokens = tokens + at + k * BEHIND,
                               .n_tokens = STEP,
                               .logits = PI_LOGITS_ALL};
        run_engine_forward(c, in, 2);
        for (int k = 0; k < 2; k++)
            assert_true(run_nmse(engine_logits(c, k * STEP), want + (at + k * BEHIND) * V,
                                 STEP * V) <= 1e-6);
    }
    engine_session_destroy(s[0]);
    engine_session_destroy(s[1]);
    engine_context_destroy(c);
    model_close(m);
}

/* Back to a snapshot; a copy from there; a file, to and from the CPU alone. */
static void test_states(void **state) {
    (void)state;
    enum { PROMPT = 12 };
    static const char *const archs[] = {"lfm2", "mamba2", "qwen35", "falcon-h1"};
    for (int a = 0; a < 4; a++) {
        model *m = open_arch(archs[a]);
        place(m, a % 2);
        engine_options alone = options_for(false), shared = options_for(true);
        engine_context *c[2] = {run_engine_context(m, &alone), run_engine_context(m, &shared)};
        pi_session *s = run_engine_session(c[1], N_CTX), *copy = run_engine_session(c[1], N_CTX);
        feed(archs[a], c[1], s, 0, PROMPT, 0);
        feed(archs[a], c[1], s, PROMPT, PROMPT + 3, 1);
        assert_int_equal(session_rewind_point(s, PROMPT), PROMPT - 1);
        ok(session_copy(copy, s, PROMPT - 1, &err));
        ok(session_rewind(s, PROMPT - 1, &err));
        feed("rewound", c[1], s, PROMPT - 1, N_TOKENS, 3);
        feed("copied", c[1], copy, PROMPT - 1, N_TOKENS, 0);
        engine_session_destroy(copy);
        engine_session_destroy(s);
        for (int from = 0; from < 2; from++) {
            int32_t loaded[N_CTX];
            int64_t n;
            pi_session *saved = run_engine_session(c[from], N_CTX),
                       *other = run_engine_session(c[1 - from], N_CTX);
            feed(archs[a], c[from], saved, 0, PROMPT, 5);
            ok(session_save(saved, SAVED_PATH, tokens, PROMPT, &err));
            ok(session_load(other, SAVED_PATH, loaded, N_CTX, &n, &err));
            assert_int_equal(n, PROMPT);
            feed("loaded", c[1 - from], other, PROMPT, N_TOKENS, 4);
            engine_session_destroy(saved);
            engine_session_destroy(other);
        }
        engine_context_destroy(c[0]);
        engine_context_destroy(c[1]);
        model_close(m);
    }
    remove(SAVED_PATH);
}

/* Without the device the CPU feeds the session's tokens again. */
static void test_lost_device(void **state) {
    (void)state;
    if (!library.backend->fail_at) skip();
    gpu_device *shared = device;
    model *m = open_arch("lfm2");
    place(m, true);
    device = run_device_another(&library, 0, 0, RUN_DEVICE_WAIT_MS);
    engine_options o = options_for(true);
    engine_context *c = run_engine_context(m, &o);
    pi_session *s = run_engine_session(c, N_CTX);
    feed("before", c, s, 0, 9, 3);
    library.backend->fail_at(device, 5);
    feed("lost", c, s, 9, N_TOKENS, 3);
    assert_non_null(strstr(engine_gpu_loss(c), "device lost"));
    engine_session_destroy(s);
    engine_context_destroy(c);
    library.backend->close(device);
    device = shared;
    model_close(m);
}

/* A session takes exactly the device memory that engine_gpu_size reports. */
static void test_size(void **state) {
    (void)state;
    gpu_device *shared = device;
    model *m = open_arch("falcon-h1");
    place(m, false);
    device = run_device_another(&library, 0, 256 << 20, RUN_DEVICE_WAIT_MS);
    engine_options o = options_for(true);
    gpu_exec_bytes bytes;
    ok(engine_gpu_size(m, &o, 0, &bytes, &err));
    assert_true(bytes.state > 0);
    run_engine_check_size(m, &o, &library, device, N_CTX);
    library.backend->close(device);
    device = shared;
    model_close(m);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces),     cmocka_unit_test(test_shared_caches),
        cmocka_unit_test(test_wide_heads), cmocka_unit_test(test_unsupported_heads),
        cmocka_unit_test(test_cutoffs),    cmocka_unit_test(test_sessions),
        cmocka_unit_test(test_states),     cmocka_unit_test(test_lost_device),
        cmocka_unit_test(test_size),
    };
    int failed;
    if (!run_device_open(argc, argv, RUN_DEVICE_WAIT_MS, &library, &device, &failed)) return failed;
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    run_device_close(&library, device);
    return failed;
}
