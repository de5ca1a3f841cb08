/* test_golden_hybrid.c: recorded logits with a GPU: the models of test_golden.c and
 * test_golden_pwri.c, with everything on the GPU, with every layer split in half, and with random
 * placements and a second GPU as helper. The tokens come in one batch or one by one, in turn; with
 * `--cases all` or --device, both ways. The tests run on the simulated GPU, or on the device that
 * --device names. The gates are the gates of the CPU.
 *
 * For slow devices: --models more/gemma2-dense,pwri/llama-q4_0 checks only these models, with one
 * placement each; --tokens N only their first N tokens. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "rng.h"
#include "run_device.h"
#include "run_engine.h"
#include "shared_data.h"
#include "sharp_model.h"

enum { MAX_LAYERS = 16 };

typedef enum placement { ALL_ON_GPU, ALL_SPLIT, AT_RANDOM, N_PLACEMENTS } placement;

static const char *const placement_names[] = {"on the GPU", "split", "random"};
static gpu_library library;
static gpu_device *device, *helper;
static rng random_splits;
static bool all_cases;     /* --cases all, or --device: a real GPU is fast */
static const char *models; /* --models; NULL: all */
static int n_chosen, max_tokens = REFERENCE_MAX_TOKENS;

/* ---- placements ------------------------------------------------------------------------------ */

static int random_below(int n) {
    return (int)(rng_u64(&random_splits) % (uint64_t)n);
}

/* Returns a split point at about part / parts of the layer, a multiple of the layer's split
 * unit. */
static int64_t split_at(const model *m, int layer, int part, int parts) {
    int64_t unit = plan_split_unit(m, layer);
    return model_layer_units(m, layer) * part / parts / unit * unit;
}

static void place(const model *m, placement which, plan_split splits[MAX_LAYERS], plan_options *o) {
    enum { PARTS = 8 };
    assert_true(m->hp.n_layer <= MAX_LAYERS);
    for (int i = 0; i < m->hp.n_layer; i++) {
        splits[i] = (plan_split){.primary = SIDE_GPU, .hot = model_layer_units(m, i)};
        if (which == ALL_SPLIT) splits[i].hot = split_at(m, i, 1, 2);
        if (which != AT_RANDOM) continue;
        int hot = random_below(PARTS + 1), end = hot + random_below(PARTS + 1 - hot);
        splits[i].primary = random_below(2) ? SIDE_GPU : SIDE_CPU;
        splits[i].hot = split_at(m, i, hot, PARTS);
        if (!m->layers[i].t[ROLE_ROUTER].data)
            splits[i].helpers[1] = split_at(m, i, end, PARTS) - splits[i].hot;
    }
    o->splits = splits;
    o->head = which == AT_RANDOM && random_below(2) ? SIDE_CPU : SIDE_GPU;
    run_engine_keep(m, library.backend->supports, o->mode, splits, &o->head);
}

/* ---- comparing ------------------------------------------------------------------------------- */

/* Sizes of the pieces in which tokens are fed, repeated. */
typedef struct feeding {
    const char *name;
    int n, pieces[13];
} feeding;

/* A single token costs many thread switches on the simulated device: "by token" ends with one
 * batch. */
static const feeding feedings[] = {
    {"in batch", 1, {REFERENCE_MAX_TOKENS}},
    {"by token", 13, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, REFERENCE_MAX_TOKENS}},
    {"any size", 4, {9, 1, 3, REFERENCE_MAX_TOKENS}},
};

/* Compares the logits of a context on two devices for each way of feeding the tokens. */
static void check_placement(const char *name, const model *m, const reference *r,
                            plan_options options, placement which, const feeding *ways, int n_ways,
                            double gate) {
    plan_split splits[MAX_LAYERS];
    engine_context *c;
    pi_error err;
    reference first = *r;
    if (first.n_tokens > max_tokens) first.n_tokens = max_tokens;
    place(m, which, splits, &options);
    const engine_options o = {.n_threads = 2,
                              .n_batch = first.n_tokens,
                              .n_logits = first.n_tokens,
                              .tier = CPU_TIER_AUTO,
                              .type_k = QUANT_F32,
                              .type_v = QUANT_F32,
                              .plan = options,
                              .gpu = library.backend,
                              .devices = {device, helper},
                              .prompts = (gpu_prompts)random_below(3)};
    if (engine_context_create(m, &o, &c, &err)) fail_msg("%s: %s", name, err.message);
    for (int i = 0; i < n_ways; i++) {
        double nmse = golden_nmse(c, &first, ways[i].pieces, ways[i].n);
        printf("%-24s %-9s %-10s %-9s NMSE %.2e (gate %.0e)\n", name, ffn_mode_name(options.mode),
               placement_names[which], ways[i].name, nmse, gate);
        if (!(nmse <= gate)) fail_msg("%s: NMSE %g is above %g", name, nmse, gate);
    }
    engine_context_destroy(c);
}

/* Checks all placements, each fed in one of the first two ways, in turn. `one`: only one placement,
 * since another mode of the model runs them all. With --models one of any size. */
static void check(const char *name, const model *m, const reference *r, plan_options options,
                  double gate, bool one) {
    static int turn;
    if (models) {
        check_placement(name, m, r, options, (placement)(turn++ % N_PLACEMENTS), &feedings[2], 1,
                        gate);
        return;
    }
    int first = one && !all_cases ? turn++ % N_PLACEMENTS : 0;
    int end = one && !all_cases ? first + 1 : N_PLACEMENTS;
    for (int which = first; which < end; which++, turn++)
        check_placement(name, m, r, options, (placement)which,
                        feedings + (all_cases ? 0 : turn % 2), all_cases ? 2 : 1, gate);
}

/* ---- choice of models ------------------------------------------------------------------------ */

/* Without --models every model is chosen. */
static bool is_chosen(const char *part, const char *name) {
    char whole[GOLDEN_NAME_BYTES];
    const size_t n = (size_t)snprintf(whole, sizeof whole, "%s/%.200s", part, name);
    if (!models) return true;
    for (const char *at = models; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, whole, n) == 0 && (at[n] == ',' || at[n] == '\0')) {
            n_chosen++;
            return true;
        }
    }
    return false;
}

/* The least number of models that must be there. */
static int least(int n) {
    return models ? 0 : n;
}

/* Every model of --models was there, unless the shared data are missing. */
static void test_chosen(void **state) {
    (void)state;
    char shared[GOLDEN_PATH_BYTES];
    int n_models = models != NULL;
    for (const char *at = models; at && (at = strchr(at, ',')); at++) n_models++;
    if (n_models > 0 && !shared_path(shared, sizeof shared, "conformance")) skip();
    assert_int_equal(n_chosen, n_models);
}

/* ---- files ----------------------------------------------------------------------------------- */

static const double arch_gate = 1e-5;

static bool check_arch(const char *name, const model *m, reference *r) {
    if (!is_chosen("arch", name)) return false;
    check(name, m, r, (plan_options){.mode = PI_MODE_DENSE}, arch_gate, false);
    return true;
}

static unsigned number_of(const char *name) {
    unsigned sum = 0;
    for (; *name; name++) sum += (unsigned char)*name;
    return sum;
}

/* The models are many: each gets one placement and pieces of all sizes. */
static void check_once(const char *name, const model *m, const reference *r, double gate) {
    check_placement(name, m, r, (plan_options){.mode = PI_MODE_DENSE},
                    (placement)(number_of(name) % N_PLACEMENTS), &feedings[2], 1, gate);
}

static bool check_more(const char *name, const model *m, reference *r) {
    if (!is_chosen("more", name)) return false;
    check_once(name, m, r, arch_gate);
    return true;
}

static bool check_next(const char *name, const model *m, reference *r) {
    if (!is_chosen("next", name)) return false;
    for (placement which = 0; which < AT_RANDOM; which++)
        check_placement(name, m, r, (plan_options){.mode = PI_MODE_DENSE}, which, &feedings[2], 1,
                        arch_gate);
    return true;
}

/* With sharp attention, errors in exchanged or kept data show in every later token. Runs one model
 * of four, or all with --cases all. */
static bool visit_sharp(const char *folder, const char *name) {
    sharp_model s;
    if (!all_cases && number_of(name) % 4 != 0) return false;
    if (!sharp_open(folder, name, &s)) return false;
    check_once(name, s.m, &s.r, s.gate);
    sharp_close(&s);
    return true;
}

/* The gates require float sums; tensor cores of a real GPU take 16-bit activations. */
static void test_sharp(void **state) {
    (void)state;
    if (strcmp(library.backend->name, "sim") != 0 || models) skip();
    sharp_each(all_cases ? 3 : 0, all_cases ? 61 : 12, visit_sharp);
}

static void test_architectures(void **state) {
    (void)state;
    golden_each_model("arch", 0, least(12), check_arch);
    golden_each_model("more", least(17), least(45), check_more);
    golden_each_model("next", 0, least(37), check_next);
}

/* Runs the file's threshold, a threshold that every neuron passes, and no predictor. */
static bool visit_pwri(const char *folder, const char *name) {
    static const double f16_gate = 1e-5, q4_0_gate = 1e-3;
    char sparse[GOLDEN_NAME_BYTES], dense[GOLDEN_NAME_BYTES];
    if (!is_chosen("pwri", name)) return false;
    snprintf(sparse, sizeof sparse, "%.200s-sparse", name);
    snprintf(dense, sizeof dense, "%.200s-dense", name);
    double gate = strstr(name, "q4_0") ? q4_0_gate : f16_gate;
    model *m = golden_open(folder, sparse, ".pwri.gguf");
    assert_non_null(m);
    reference chosen = golden_read(folder, sparse, m->hp.n_vocab);
    reference all = golden_read(folder, dense, m->hp.n_vocab);
    check(sparse, m, &chosen, (plan_options){.mode = PI_MODE_PREDICT}, gate, false);
    check(dense, m, &all, (plan_options){.mode = PI_MODE_EXACT}, gate, true);
    check(dense, m, &all,
          (plan_options){.mode = PI_MODE_PREDICT, .set_threshold = true, .threshold = -1e30f}, gate,
          true);
    reference_free(&chosen);
    reference_free(&all);
    model_close(m);
    return true;
}

static void test_pwri(void **state) {
    (void)state;
    golden_each("pwri", "-sparse.pwri.gguf", least(1), least(5), visit_pwri);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_architectures),
        cmocka_unit_test(test_sharp),
        cmocka_unit_test(test_pwri),
        cmocka_unit_test(test_chosen),
    };
    int failed;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--models") == 0) models = argv[i + 1];
        if (strcmp(argv[i], "--tokens") == 0) max_tokens = (int)strtol(argv[i + 1], NULL, 10);
    }
    if (!run_device_open(argc, argv, RUN_DEVICE_WAIT_MS, &library, &device, &failed)) return failed;
    helper = run_device_another(&library, 0, 0, RUN_DEVICE_WAIT_MS);
    all_cases = argc > 1;
    rng_seed(&random_splits, 5);
    failed = cmocka_run_group_tests_name("golden_hybrid", tests, NULL, NULL);
    library.backend->close(helper);
    run_device_close(&library, device);
    return failed == 0 && models && n_chosen == 0 ? SHARED_SKIPPED : failed;
}
