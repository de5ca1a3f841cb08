/* test_golden_pwri.c: PowerInfer's own files against logits of the original program: as they are,
 * where the predictor leaves out half of the neurons, and with a threshold that every neuron
 * passes. Gates are those of the data's README; the vectors tell a neuron that is wrongly left out
 * or computed from rounding (1e-2 against 1e-6). */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine.h"
#include "shared_data.h"

enum { N_TOKENS = 32, PATH_BYTES = 1024, NAME_BYTES = 256 };

#define FOLDER "conformance/pwri"
static const char SPARSE_ENDING[] = "-sparse.pwri.gguf";

static const double f16_gate = 1e-5, q4_0_gate = 1e-3;

static void path_of(char path[PATH_BYTES], const char *name, const char *ending) {
    char folder[PATH_BYTES / 2];
    assert_true(shared_path(folder, sizeof folder, FOLDER));
    snprintf(path, PATH_BYTES, "%s/%s%s", folder, name, ending);
}

static void read_tokens(const char *name, int32_t tokens[N_TOKENS]) {
    char path[PATH_BYTES];
    path_of(path, name, ".tokens.txt");
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    for (int i = 0; i < N_TOKENS; i++) assert_int_equal(fscanf(f, "%d", &tokens[i]), 1);
    fclose(f);
}

static float *read_logits(const char *name, int n_vocab) {
    char path[PATH_BYTES];
    path_of(path, name, ".logits.f32");
    size_t n = (size_t)N_TOKENS * (size_t)n_vocab;
    float *logits = malloc(n * sizeof *logits);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fread(logits, sizeof *logits, n, f), n);
    fclose(f);
    return logits;
}

/* Logits of all tokens, fed `piece` at a time. */
static void feed(const model *m, const engine_options *o, const int32_t *tokens, int piece,
                 float *logits) {
    engine_context *c;
    engine_session *s;
    pi_error err;
    size_t n_vocab = (size_t)m->hp.n_vocab;
    if (engine_context_create(m, o, &c, &err) != PI_OK) fail_msg("%s", err.message);
    if (engine_session_create(c, N_TOKENS, &s, &err) != PI_OK) fail_msg("%s", err.message);
    for (int done = 0; done < N_TOKENS; done += piece) {
        int n = piece < N_TOKENS - done ? piece : N_TOKENS - done;
        engine_input in = {s, tokens + done, n, ENGINE_WANT_ALL};
        if (engine_forward(c, &in, 1, &err) != PI_OK) fail_msg("%s", err.message);
        memcpy(logits + (size_t)done * n_vocab, engine_logits(c, 0),
               (size_t)n * n_vocab * sizeof *logits);
    }
    engine_session_destroy(s);
    engine_context_destroy(c);
}

static int most_likely(const float *row, int n) {
    int best = 0;
    for (int i = 1; i < n; i++)
        if (row[i] > row[best]) best = i;
    return best;
}

static void compare(const char *what, const float *got, const float *want, int n_vocab,
                    double gate) {
    double error = 0, norm = 0;
    for (int64_t i = 0; i < (int64_t)N_TOKENS * n_vocab; i++) {
        double d = (double)got[i] - (double)want[i];
        error += d * d;
        norm += (double)want[i] * (double)want[i];
    }
    printf("%-64s NMSE %.2e (gate %.0e)\n", what, error / norm, gate);
    if (!(error / norm <= gate)) fail_msg("%s: NMSE %g is above %g", what, error / norm, gate);
}

/* With a cache as exact as the reference's, no token is close enough to another to be mistaken. */
static void compare_choices(const char *what, const float *got, const float *want, int n_vocab) {
    for (int row = 0; row < N_TOKENS; row++)
        if (most_likely(got + row * n_vocab, n_vocab) != most_likely(want + row * n_vocab, n_vocab))
            fail_msg("%s: another token is the most likely one after token %d", what, row);
}

static const cpu_tier tiers[] = {CPU_TIER_SCALAR, CPU_TIER_AVX2, CPU_TIER_AVX512, CPU_TIER_NEON};
enum { N_TIERS = sizeof tiers / sizeof tiers[0] };

/* In one batch, token by token, and unevenly, for every tier. Emulated, the slow scalar tier stops
 * after the batch and the others after single tokens. */
static void check(const char *name, const model *m, const plan_options *options) {
    int32_t tokens[N_TOKENS];
    static const int pieces[] = {N_TOKENS, 1, 3, 19};
    double gate = strstr(name, "q4_0") ? q4_0_gate : f16_gate;
    read_tokens(name, tokens);
    float *want = read_logits(name, m->hp.n_vocab), *got = read_logits(name, m->hp.n_vocab);
    for (int i = 0; i < N_TIERS; i++) {
        cpu_kernels kernels;
        if (!cpu_kernels_get(tiers[i], &kernels)) continue;
#ifdef TEST_EMULATED
        size_t n_ways = tiers[i] == CPU_TIER_SCALAR ? 1 : 2;
#else
        size_t n_ways = sizeof pieces / sizeof pieces[0];
#endif
        for (size_t k = 0; k < n_ways; k++) {
            char what[NAME_BYTES];
            engine_options o = {.n_threads = 1 + (int)k % 2,
                                .n_batch = N_TOKENS,
                                .n_logits = N_TOKENS,
                                .tier = tiers[i],
                                .type_k = QUANT_F32,
                                .type_v = QUANT_F32,
                                .plan = *options};
            if (k == 2) o.type_k = o.type_v = QUANT_F16;
            feed(m, &o, tokens, pieces[k], got);
            snprintf(what, sizeof what, "%s %s, %s, kv %s, %d at a time", name,
                     ffn_mode_name(options->mode), kernels.name, quant_find(o.type_k)->name,
                     pieces[k]);
            compare(what, got, want, m->hp.n_vocab, gate);
            if (o.type_k == QUANT_F32) compare_choices(what, got, want, m->hp.n_vocab);
        }
    }
    free(want);
    free(got);
}

/* `name` without "-sparse": its own threshold, one that all pass, and no predictor at all. */
static void check_file(const char *name) {
    char path[PATH_BYTES], sparse[NAME_BYTES], dense[NAME_BYTES];
    snprintf(sparse, sizeof sparse, "%.200s-sparse", name);
    snprintf(dense, sizeof dense, "%.200s-dense", name);
    path_of(path, sparse, ".pwri.gguf");
    model *m;
    pi_error err;
    if (model_open(path, NULL, &m, &err) != PI_OK) fail_msg("%s", err.message);
    assert_true(m->sparse.pwri);
    assert_int_equal(m->layers[0].sparse.predictor, PREDICTOR_RELU_MLP);
    assert_int_equal(m->layers[0].sparse.rank, 64);
    assert_int_equal(m->layers[1].sparse.rank, 96);
    check(sparse, m, &(plan_options){.mode = FFN_AUTO});
#ifndef TEST_EMULATED /* the mode that `auto` has taken */
    check(sparse, m, &(plan_options){.mode = FFN_PREDICT});
#endif
    plan_options all = {.mode = FFN_PREDICT, .set_threshold = true, .threshold = -1e30f};
    check(dense, m, &all);
    check(dense, m, &(plan_options){.mode = FFN_EXACT});
    check(dense, m, &(plan_options){.mode = FFN_DENSE});
    model_close(m);
}

static void test_files(void **state) {
    (void)state;
    char folder[PATH_BYTES];
    if (!shared_path(folder, sizeof folder, FOLDER)) skip();
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    int n_files = 0;
    size_t n_ending = sizeof SPARSE_ENDING - 1;
    for (struct dirent *e; (e = readdir(dir));) {
        size_t n = strlen(e->d_name);
        if (n <= n_ending || strcmp(e->d_name + n - n_ending, SPARSE_ENDING) != 0) continue;
        char name[NAME_BYTES];
        snprintf(name, sizeof name, "%.*s", (int)(n - n_ending), e->d_name);
        check_file(name);
        n_files++;
    }
    closedir(dir);
    assert_true(n_files >= 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_files)};
    return cmocka_run_group_tests_name("golden_pwri", tests, NULL, NULL);
}
