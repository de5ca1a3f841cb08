/* test_golden_support.c: recorded logits with GPU backends that lack operations or types: what they
 * do not support stays on the CPU, layer by layer, and the logits stay the same. The backends are
 * the simulated GPU's table with other answers; operations that they lack are functions that make
 * the test fail. First a backend that lacks everything that the plan says it does not need, then
 * backends that lack one operation, or one type of weights, of those that it needs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "golden_case.h"
#include "layer_embd_model.h"
#include "plan_support.h"
#include "run_device.h"
#include "run_engine.h"
#include "run_model.h"

#define MODEL_PATH TEST_BINARY_DIR "/test_golden_support.gguf"

enum { MAX_LAYERS = 16, TRIES = 2 /* models that each operation and type is removed from */ };

static const double gate = 1e-5;
static const int pieces[] = {9, 1, 3, REFERENCE_MAX_TOKENS};

static gpu_library library;
static gpu_device *device;

/* ---- a backend that lacks something ---------------------------------------------------------- */

static gpu_backend limited;
static bool removed[GPU_OP_COUNT];
static quant_type removed_type = GPU_NO_TYPE;
static const char *used; /* a removed operation that was enqueued */

static bool limited_supports(gpu_op op, quant_type type, const gpu_shape *shape) {
    if (removed[op] || (type == removed_type && type != GPU_NO_TYPE)) return false;
    return library.backend->supports(op, type, shape);
}

/* Printed at once: later steps may fail because of it. */
static void use(const char *name) {
    if (!used) fprintf(stderr, "used %s\n", name);
    used = name;
}

#define REMOVED(name, NAME, args)                                                                  \
    static void removed_##name(gpu_stream *s, const args *a) {                                     \
        (void)s;                                                                                   \
        (void)a;                                                                                   \
        use(#name);                                                                                \
    }
#define REMOVED_N(name, NAME, args)                                                                \
    static void removed_##name(gpu_stream *s, const args *a, int32_t n) {                          \
        (void)s;                                                                                   \
        (void)a;                                                                                   \
        (void)n;                                                                                   \
        use(#name);                                                                                \
    }
GPU_OPS(REMOVED, REMOVED_N)

/* All weights of the device are packed there. */
static void checked_pack(gpu_stream *s, const gpu_pack *a) {
    if (a->dst.type == removed_type) use("pack of a removed type");
    library.backend->ops.pack(s, a);
}

static void limit_backend(void) {
    limited = *library.backend;
    limited.supports = limited_supports;
    limited.ops.pack = checked_pack;
#define REMOVE(name, NAME, args)                                                                   \
    if (removed[GPU_OP_##NAME]) limited.ops.name = removed_##name;
    GPU_OPS(REMOVE, REMOVE)
#undef REMOVE
}

/* ---- one model ------------------------------------------------------------------------------- */

static int n_tried[GPU_OP_COUNT], n_tried_types[GPU_NO_TYPE], n_runs, n_whole;

/* Everything on the GPU that the backend supports, or a half of all neurons. */
static void check(const char *name, const char *lacks, const model *m, const reference *r,
                  pi_mode mode) {
    plan_split splits[MAX_LAYERS];
    plan_side head = SIDE_GPU;
    bool split = n_runs++ % 2, any = false;
    assert_true(m->hp.n_layer <= MAX_LAYERS);
    limit_backend();
    for (int i = 0; i < m->hp.n_layer; i++) {
        int64_t n = model_layer_units(m, i), unit = plan_split_unit(m, i);
        splits[i] = (plan_split){.primary = SIDE_GPU, .hot = split ? n / 2 / unit * unit : n};
    }
    run_engine_keep(m, limited.supports, mode, splits, &head);
    for (int i = 0; i < m->hp.n_layer; i++)
        any = any || splits[i].primary == SIDE_GPU || splits[i].hot > 0;
    if (!any && head == SIDE_CPU) return; /* there is no GPU in such a plan */
    const engine_options o = {.n_threads = 2,
                              .n_batch = r->n_tokens,
                              .n_logits = r->n_tokens,
                              .tier = CPU_TIER_AUTO,
                              .type_k = QUANT_F32,
                              .type_v = QUANT_F32,
                              .plan = {.mode = mode, .splits = splits, .head = head},
                              .gpu = &limited,
                              .devices = {device},
                              .prompts = n_runs % 4 < 2 ? GPU_PROMPTS_STREAMED : GPU_PROMPTS_SPLIT};
    engine_context *c;
    pi_error err;
    used = NULL;
    if (engine_context_create(m, &o, &c, &err))
        fail_msg("%s without %s: %s", name, lacks, err.message);
    double nmse = golden_nmse(c, r, pieces, sizeof pieces / sizeof *pieces);
    if (used) fail_msg("%s without %s: used %s", name, lacks, used);
    if (engine_gpu_loss(c)) fail_msg("%s without %s: %s", name, lacks, engine_gpu_loss(c));
    if (!(nmse <= gate)) fail_msg("%s without %s: NMSE %g is above %g", name, lacks, nmse, gate);
    engine_context_destroy(c);
}

/* Whether anything stays on the CPU because of what is removed. */
static bool matters(const model *m, pi_mode mode) {
    plan_split splits[MAX_LAYERS] = {{0}};
    plan_side head = SIDE_GPU;
    return run_engine_keep(m, limited_supports, mode, splits, &head);
}

static void check_model(const char *name, const model *m, const reference *r, pi_mode mode) {
    bool needed[GPU_OP_COUNT];
    memset(removed, 0, sizeof removed);
    removed_type = GPU_NO_TYPE;
    if (matters(m, mode)) return; /* a part is on the CPU in any case */
    n_whole++;
    for (int op = 0; op < GPU_OP_COUNT; op++) {
        removed[op] = true;
        needed[op] = matters(m, mode);
        removed[op] = false;
    }
    for (int op = 0; op < GPU_OP_COUNT; op++) removed[op] = !needed[op];
    check(name, "what it does not need", m, r, mode);
    memset(removed, 0, sizeof removed);
    for (int op = 0; op < GPU_OP_COUNT; op++) {
        if (!needed[op] || n_tried[op] >= TRIES) continue;
        n_tried[op]++;
        removed[op] = true;
        check(name, gpu_op_name((gpu_op)op), m, r, mode);
        removed[op] = false;
    }
    for (int type = 0; type < GPU_NO_TYPE; type++) {
        removed_type = (quant_type)type;
        if (!matters(m, mode) || n_tried_types[type] >= TRIES) continue;
        n_tried_types[type]++;
        check(name, quant_find((uint32_t)type)->name, m, r, mode);
    }
    removed_type = GPU_NO_TYPE;
}

/* ---- files ----------------------------------------------------------------------------------- */

static bool visit(const char *folder, const char *name) {
    model *m = golden_open(folder, name, ".gguf");
    if (!m) return false;
    reference r = golden_read(folder, name, m->hp.n_vocab);
    check_model(name, m, &r, PI_MODE_DENSE);
    reference_free(&r);
    model_close(m);
    return true;
}

static bool visit_pwri(const char *folder, const char *name) {
    char sparse[GOLDEN_NAME_BYTES];
    snprintf(sparse, sizeof sparse, "%.200s-sparse", name);
    if (strstr(name, "q4_0")) return true; /* has another gate */
    model *m = golden_open(folder, sparse, ".pwri.gguf");
    assert_non_null(m);
    reference r = golden_read(folder, sparse, m->hp.n_vocab);
    check_model(sparse, m, &r, PI_MODE_PREDICT);
    reference_free(&r);
    model_close(m);
    return true;
}

static void test_models(void **state) {
    (void)state;
    golden_each("pwri", "-sparse.pwri.gguf", 1, 5, visit_pwri);
    golden_each("arch", ".gguf", 0, 12, visit);
    golden_each("more", ".gguf", 17, 45, visit);
    golden_each("next", ".gguf", 0, 37, visit);
    assert_true(n_whole > 0); /* models that the backend supports */
}

/* Models with several residual streams, caches that layers share and cutoffs, against the CPU. */
static void test_streams(void **state) {
    (void)state;
    enum { N_TOKENS = 21 };
    for (int streams = 0; streams < 2; streams++) {
        reference r = {.n_tokens = N_TOKENS};
        if (streams)
            ple_write_streams(MODEL_PATH, QUANT_F32, 0);
        else
            ple_write(MODEL_PATH, QUANT_F32, PLE_WIDTH);
        model *m = run_engine_open(MODEL_PATH);
        engine_options o = run_engine_options(PI_MODE_DENSE, N_TOKENS, N_TOKENS);
        o.type_k = o.type_v = QUANT_F32;
        run_random_tokens(5, PLE_VOCAB, r.tokens, N_TOKENS);
        r.logits = malloc((size_t)N_TOKENS * PLE_VOCAB * sizeof *r.logits);
        engine_context *c = run_engine_context(m, &o);
        run_engine_tokens(c, N_TOKENS, r.tokens, N_TOKENS, 0, r.logits);
        engine_context_destroy(c);
        check_model(streams ? "gemma3n" : "gemma4", m, &r, PI_MODE_DENSE);
        reference_free(&r);
        model_close(m);
    }
}

/* The reasons why layers stay on the CPU. */
static char reasons[4096];

static void add_line(void *user, const char *text) {
    (void)user;
    size_t n = strlen(reasons);
    snprintf(reasons + n, sizeof reasons - n, "%s\n", text);
}

static bool visit_reasons(const char *folder, const char *name) {
    char want[256];
    plan_support s;
    pi_error err;
    model *m = golden_open(folder, name, ".gguf");
    if (!m) return false;
    const plan_options o = {.mode = PI_MODE_DENSE, .supports = limited_supports};
    memset(removed, 0, sizeof removed);
    reasons[0] = 0;
    assert_int_equal(plan_support_create(m, &o, &s, &err), PI_OK);
    plan_support_explain(m, &s, add_line, NULL);
    plan_support_free(&s);
    if (reasons[0]) { /* a backend that lacks something else */
        model_close(m);
        return true;
    }
    removed[GPU_OP_NORM] = true;
    assert_int_equal(plan_support_create(m, &o, &s, &err), PI_OK);
    plan_support_explain(m, &s, add_line, NULL);
    snprintf(want, sizeof want,
             "layers 0 to %d: attention on the CPU: the GPU does not support operation norm\n",
             m->hp.n_layer - 1);
    if (!strstr(reasons, want)) fail_msg("%s", reasons);
    assert_non_null(
        strstr(reasons, "output head on the CPU: the GPU does not support operation norm\n"));
    assert_null(plan_support_lacks_all(&s));
    plan_support_free(&s);
    removed[GPU_OP_PUBLISH] = true;
    assert_int_equal(plan_support_create(m, &o, &s, &err), PI_OK);
    assert_int_equal(plan_support_lacks_all(&s)->op, GPU_OP_PUBLISH);
    plan_support_free(&s);
    removed[GPU_OP_NORM] = removed[GPU_OP_PUBLISH] = false;
    model_close(m);
    return true;
}

static void test_reasons(void **state) {
    (void)state;
    golden_each("more", ".gguf", 17, 45, visit_reasons);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reasons),
        cmocka_unit_test(test_streams),
        cmocka_unit_test(test_models),
    };
    int failed;
    if (!run_device_open(argc, argv, RUN_DEVICE_WAIT_MS, &library, &device, &failed)) return failed;
    failed = cmocka_run_group_tests_name("golden_support", tests, NULL, NULL);
    for (int op = 0; op < GPU_OP_COUNT; op++)
        if (n_tried[op] == 0)
            printf("*** SKIPPED: no model needs %s ***\n", gpu_op_name((gpu_op)op));
    run_device_close(&library, device);
    return failed;
}
