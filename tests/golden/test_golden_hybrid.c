/* test_golden_hybrid.c: recorded logits with a GPU: the models of test_golden.c and
 * test_golden_pwri.c, everything on the GPU, every layer split at half, and placed at random, in
 * one batch and token by token. On the simulated GPU, or on the one that --device names. Gates are
 * those of the processor alone. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine.h"
#include "rng.h"
#include "run_device.h"
#include "shared_data.h"

enum {
    MAX_TOKENS = 64,
    N_SINGLE = 12, /* every token costs many changes of threads on a simulated device */
    MAX_LAYERS = 16,
    PATH_BYTES = 2048,
    NAME_BYTES = 256
};

typedef enum placement { ALL_ON_GPU, ALL_SPLIT, AT_RANDOM, N_PLACEMENTS } placement;

static const char *const placement_names[] = {"on the GPU", "split", "random"};
static gpu_library library;
static gpu_device *device;
static rng random_cuts;

typedef struct reference {
    int32_t tokens[MAX_TOKENS];
    int n_tokens;
    float *logits; /* [n_tokens][n_vocab] */
} reference;

/* `folder` under the shared data; the files of `name` are NAME.tokens.txt and NAME.logits.f32. */
static reference read_reference(const char *folder, const char *name, int n_vocab) {
    char path[PATH_BYTES];
    reference r = {.n_tokens = 0};
    snprintf(path, sizeof path, "%s/%s.tokens.txt", folder, name);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (r.n_tokens < MAX_TOKENS && fscanf(f, "%d", &r.tokens[r.n_tokens]) == 1) r.n_tokens++;
    fclose(f);
    assert_true(r.n_tokens > 1);
    size_t n = (size_t)r.n_tokens * (size_t)n_vocab;
    r.logits = malloc(n * sizeof *r.logits);
    snprintf(path, sizeof path, "%s/%s.logits.f32", folder, name);
    f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fread(r.logits, sizeof *r.logits, n, f), n);
    fclose(f);
    return r;
}

/* ---- placements ------------------------------------------------------------------------------ */

static int random_below(int n) {
    return (int)(rng_u64(&random_cuts) % (uint64_t)n);
}

/* A multiple of what cannot be parted, about part / parts of the layer. */
static int64_t cut_at(const model *m, int layer, int part, int parts) {
    int64_t unit = plan_cut_unit(m, layer);
    return m->layers[layer].hp.n_ff * part / parts / unit * unit;
}

static void place(const model *m, placement which, plan_cut cuts[MAX_LAYERS], plan_options *o) {
    enum { PARTS = 8 };
    assert_true(m->hp.n_layer <= MAX_LAYERS);
    for (int i = 0; i < m->hp.n_layer; i++) {
        if (which == ALL_ON_GPU) cuts[i] = (plan_cut){SIDE_GPU, m->layers[i].hp.n_ff};
        if (which == ALL_SPLIT) cuts[i] = (plan_cut){SIDE_GPU, cut_at(m, i, 1, 2)};
        if (which == AT_RANDOM)
            cuts[i] = (plan_cut){random_below(2) ? SIDE_GPU : SIDE_CPU,
                                 cut_at(m, i, random_below(PARTS + 1), PARTS)};
    }
    o->cuts = cuts;
    o->head = which == AT_RANDOM && random_below(2) ? SIDE_CPU : SIDE_GPU;
}

/* ---- comparing ------------------------------------------------------------------------------- */

/* NMSE of all logits. n_single tokens are fed one by one, the others together. */
static double run(engine_context *c, const reference *r, int n_vocab, int n_single) {
    engine_session *s;
    pi_error err;
    double error = 0, norm = 0;
    if (engine_session_create(c, r->n_tokens, &s, &err)) fail_msg("%s", err.message);
    for (int done = 0, n; done < r->n_tokens; done += n) {
        n = done < n_single ? 1 : r->n_tokens - done;
        const engine_input in = {s, r->tokens + done, n, ENGINE_WANT_ALL};
        if (engine_forward(c, &in, 1, &err)) fail_msg("%s", err.message);
        const float *want = r->logits + (int64_t)done * n_vocab, *got = engine_logits(c, 0);
        for (int64_t i = 0; i < (int64_t)n * n_vocab; i++) {
            double d = (double)got[i] - (double)want[i];
            error += d * d;
            norm += (double)want[i] * (double)want[i];
        }
    }
    engine_session_destroy(s);
    return error / norm;
}

static void check(const char *name, const model *m, const reference *r, plan_options options,
                  double gate) {
    for (int which = 0; which < N_PLACEMENTS; which++) {
        plan_cut cuts[MAX_LAYERS];
        engine_context *c;
        pi_error err;
        place(m, (placement)which, cuts, &options);
        const engine_options o = {.n_threads = 2,
                                  .n_batch = MAX_TOKENS,
                                  .n_logits = MAX_TOKENS,
                                  .tier = CPU_TIER_AUTO,
                                  .type_k = QUANT_F32,
                                  .type_v = QUANT_F32,
                                  .plan = options,
                                  .gpu = library.backend,
                                  .device = device};
        if (engine_context_create(m, &o, &c, &err)) fail_msg("%s: %s", name, err.message);
        for (int single = 0; single < 2; single++) {
            double nmse = run(c, r, m->hp.n_vocab, single ? N_SINGLE : 0);
            printf("%-24s %-9s %-10s %-9s NMSE %.2e (gate %.0e)\n", name,
                   ffn_mode_name(options.mode), placement_names[which],
                   single ? "by token" : "in batch", nmse, gate);
            if (!(nmse <= gate)) fail_msg("%s: NMSE %g is above %g", name, nmse, gate);
        }
        engine_context_destroy(c);
    }
}

/* ---- files ----------------------------------------------------------------------------------- */

/* Visits NAME + ending in a folder of the shared data, in no particular order; returns how many the
 * visitor took. */
static int each_file(const char *folder, const char *ending,
                     bool (*visit)(const char *folder, const char *name)) {
    DIR *dir = opendir(folder);
    int n_files = 0;
    size_t n_ending = strlen(ending);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        size_t n = strlen(e->d_name);
        if (n <= n_ending || strcmp(e->d_name + n - n_ending, ending) != 0) continue;
        char name[NAME_BYTES];
        snprintf(name, sizeof name, "%.*s", (int)(n - n_ending), e->d_name);
        n_files += visit(folder, name);
    }
    closedir(dir);
    return n_files;
}

static bool visit_arch(const char *folder, const char *name) {
    static const double gate = 1e-5;
    char path[PATH_BYTES];
    model *m;
    pi_error err;
    snprintf(path, sizeof path, "%s/%s.gguf", folder, name);
    pi_status status = model_open(path, NULL, &m, &err);
    if (status == PI_ERR_UNSUPPORTED) {
        printf("not supported yet: %s\n", err.message);
        return false;
    }
    if (status != PI_OK) fail_msg("%s", err.message);
    reference r = read_reference(folder, name, m->hp.n_vocab);
    check(name, m, &r, (plan_options){.mode = FFN_DENSE}, gate);
    free(r.logits);
    model_close(m);
    return true;
}

static void test_architectures(void **state) {
    (void)state;
    enum { KNOWN = 4 };
    char folder[PATH_BYTES / 2];
    if (!shared_path(folder, sizeof folder, "conformance/arch")) skip();
    assert_true(each_file(folder, ".gguf", visit_arch) >= KNOWN);
}

/* With the file's threshold, with one that every neuron passes, and without the predictor. */
static bool visit_pwri(const char *folder, const char *name) {
    static const double f16_gate = 1e-5, q4_0_gate = 1e-3;
    char path[PATH_BYTES], sparse[NAME_BYTES], dense[NAME_BYTES];
    snprintf(sparse, sizeof sparse, "%.200s-sparse", name);
    snprintf(dense, sizeof dense, "%.200s-dense", name);
    snprintf(path, sizeof path, "%s/%s.pwri.gguf", folder, sparse);
    double gate = strstr(name, "q4_0") ? q4_0_gate : f16_gate;
    model *m;
    pi_error err;
    if (model_open(path, NULL, &m, &err)) fail_msg("%s", err.message);
    reference chosen = read_reference(folder, sparse, m->hp.n_vocab);
    reference all = read_reference(folder, dense, m->hp.n_vocab);
    check(sparse, m, &chosen, (plan_options){.mode = FFN_PREDICT}, gate);
    check(dense, m, &all, (plan_options){.mode = FFN_EXACT}, gate);
#ifndef TEST_SANITIZED /* the same steps once more */
    check(dense, m, &all,
          (plan_options){.mode = FFN_PREDICT, .set_threshold = true, .threshold = -1e30f}, gate);
#endif
    free(chosen.logits);
    free(all.logits);
    model_close(m);
    return true;
}

static void test_pwri(void **state) {
    (void)state;
    enum { KNOWN = 5 };
    char folder[PATH_BYTES / 2];
    if (!shared_path(folder, sizeof folder, "conformance/pwri")) skip();
    assert_true(each_file(folder, "-sparse.pwri.gguf", visit_pwri) >= KNOWN);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_architectures),
        cmocka_unit_test(test_pwri),
    };
    int failed;
    if (!run_device_open(argc, argv, RUN_DEVICE_WAIT_MS, &library, &device, &failed)) return failed;
    rng_seed(&random_cuts, 5);
    failed = cmocka_run_group_tests_name("golden_hybrid", tests, NULL, NULL);
    run_device_close(&library, device);
    return failed;
}
