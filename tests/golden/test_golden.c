/* test_golden.c: logits against recorded references: the conformance models of every architecture
 * that the table knows, every kernel tier, in one batch, token by token and split unevenly. Gates
 * are those of the data's README: NMSE = sum (a - b)^2 / sum b^2. */
#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine.h"
#include "shared_data.h"

enum { MAX_TOKENS = 4096, PATH_BYTES = 1024 };

typedef struct reference {
    int32_t tokens[MAX_TOKENS];
    int n_tokens;
    float *logits; /* [n_tokens][n_vocab] */
} reference;

static void read_reference(reference *r, const char *tokens_path, const char *logits_path,
                           int n_vocab) {
    FILE *f = fopen(tokens_path, "r");
    assert_non_null(f);
    r->n_tokens = 0;
    while (r->n_tokens < MAX_TOKENS && fscanf(f, "%d", &r->tokens[r->n_tokens]) == 1) r->n_tokens++;
    fclose(f);
    assert_true(r->n_tokens > 0);
    size_t n = (size_t)r->n_tokens * (size_t)n_vocab;
    r->logits = malloc(n * sizeof(float));
    f = fopen(logits_path, "rb");
    assert_non_null(f);
    assert_int_equal(fread(r->logits, sizeof(float), n, f), n);
    fclose(f);
}

/* Feeds the tokens in pieces whose sizes repeat `pieces` and returns the NMSE of all logits. */
static double run(const model *m, const engine_options *o, const reference *r, const int *pieces,
                  int n_pieces) {
    engine_context *c;
    engine_session *s;
    pi_error err;
    if (engine_context_create(m, o, &c, &err) != PI_OK) fail_msg("%s", err.message);
    if (engine_session_create(c, r->n_tokens, &s, &err) != PI_OK) fail_msg("%s", err.message);
    double error = 0, norm = 0;
    int64_t n_vocab = m->hp.n_vocab;
    for (int done = 0, i = 0; done < r->n_tokens; i++) {
        int n = pieces[i % n_pieces];
        if (n > r->n_tokens - done) n = r->n_tokens - done;
        engine_input in = {s, r->tokens + done, n, ENGINE_WANT_ALL};
        if (engine_forward(c, &in, 1, &err) != PI_OK) fail_msg("%s", err.message);
        assert_int_equal(engine_logits_rows(c), n);
        const float *want = r->logits + done * n_vocab, *got = engine_logits(c, 0);
        for (int64_t k = 0; k < n * n_vocab; k++) {
            double d = (double)got[k] - (double)want[k];
            error += d * d;
            norm += (double)want[k] * (double)want[k];
        }
        done += n;
    }
    engine_session_destroy(s);
    engine_context_destroy(c);
    return error / norm;
}

typedef enum split { SPLIT_WHOLE, SPLIT_SINGLE, SPLIT_UNEVEN, N_SPLITS } split;

/* With the splits [first, end). */
static void check(const char *name, const model *m, const reference *r, engine_options o,
                  double gate, int first, int end) {
    static const int whole[] = {MAX_TOKENS}, single[] = {1}, uneven[] = {3, 1, 7, 2, 17};
    struct {
        const int *pieces;
        int n;
    } splits[N_SPLITS] = {{whole, 1}, {single, 1}, {uneven, 5}};
    for (int i = first; i < end; i++) {
        double nmse = run(m, &o, r, splits[i].pieces, splits[i].n);
        printf("%-28s %-9s kv %s/%s threads %d split %d: NMSE %.2e (gate %.0e)\n", name,
               cpu_tier_name(o.tier), quant_find(o.type_k)->name, quant_find(o.type_v)->name,
               o.n_threads, i, nmse, gate);
        if (!(nmse <= gate)) fail_msg("%s: NMSE %g is above %g", name, nmse, gate);
    }
}

static engine_options options(cpu_tier tier, quant_type kv, int n_threads) {
    return (engine_options){.n_threads = n_threads,
                            .n_threads_batch = n_threads,
                            .n_batch = 512,
                            .n_logits = 512,
                            .tier = tier,
                            .type_k = kv,
                            .type_v = kv};
}

static const cpu_tier tiers[] = {CPU_TIER_SCALAR, CPU_TIER_REFERENCE, CPU_TIER_AVX2,
                                 CPU_TIER_AVX512, CPU_TIER_NEON};
enum { N_TIERS = sizeof tiers / sizeof tiers[0] };

static bool tier_available(cpu_tier tier) {
    cpu_kernels k;
    return cpu_kernels_get(tier, &k);
}

/* Runs one model under all available tiers. An emulator is ten to thirty times slower: there every
 * tier runs every model once, and the processor's own tier in two ways. */
static void check_model(const char *name, const model *m, const reference *r, double gate_f16,
                        double gate_f32, double gate_scalar) {
    for (int i = 0; i < N_TIERS; i++) {
        if (!tier_available(tiers[i])) continue;
        double gate = tiers[i] == CPU_TIER_SCALAR ? gate_scalar : gate_f32;
#ifdef TEST_EMULATED
        check(name, m, r, options(tiers[i], QUANT_F32, 2), gate, SPLIT_WHOLE, SPLIT_SINGLE);
        if (tiers[i] > CPU_TIER_REFERENCE)
            check(name, m, r, options(tiers[i], QUANT_F16, 1), gate_f16, SPLIT_SINGLE,
                  SPLIT_UNEVEN);
#else
        check(name, m, r, options(tiers[i], QUANT_F32, 1), gate, 0, N_SPLITS);
        check(name, m, r, options(tiers[i], QUANT_F16, 2), gate_f16, 0, N_SPLITS);
        check(name, m, r, options(tiers[i], QUANT_F32, 3), gate, 0, N_SPLITS);
#endif
    }
}

/* Model files of a folder, in no particular order; the file names end in ".gguf". */
static void each_model(const char *folder,
                       void (*visit)(const char *folder, const char *name, int *counts),
                       int counts[2]) {
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        size_t n = strlen(e->d_name);
        if (n < 6 || strcmp(e->d_name + n - 5, ".gguf") != 0) continue;
        char name[256];
        snprintf(name, sizeof name, "%.*s", (int)(n - 5), e->d_name);
        visit(folder, name, counts);
    }
    closedir(dir);
    printf("%s: %d models checked, %d not supported yet\n", folder, counts[0], counts[1]);
}

static model *open_supported(const char *path, int counts[2]) {
    model *m = NULL;
    pi_error err;
    pi_status status = model_open(path, NULL, &m, &err);
    if (status == PI_ERR_UNSUPPORTED) {
        printf("not supported yet: %s\n", err.message);
        counts[1]++;
        return NULL;
    }
    if (status != PI_OK) fail_msg("%s", err.message);
    counts[0]++;
    return m;
}

static void visit_arch(const char *folder, const char *name, int counts[2]) {
    char path[PATH_BYTES], tokens[PATH_BYTES], logits[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s.gguf", folder, name);
    snprintf(tokens, sizeof tokens, "%s/%s.tokens.txt", folder, name);
    snprintf(logits, sizeof logits, "%s/%s.logits.f32", folder, name);
    model *m = open_supported(path, counts);
    if (!m) return;
    reference r;
    read_reference(&r, tokens, logits, m->hp.n_vocab);
    check_model(name, m, &r, 1e-4, 1e-5, 1e-5);
    free(r.logits);
    model_close(m);
}

static void test_architectures(void **state) {
    (void)state;
    char folder[PATH_BYTES];
    int counts[2] = {0};
    if (!shared_path(folder, sizeof folder, "conformance/arch")) skip();
    each_model(folder, visit_arch, counts);
    enum { KNOWN = 4 }; /* falcon, llama, qwen2, qwen3 */
    assert_true(counts[0] >= KNOWN);
}

/* The K types mix types; their gate is wider. */
static void visit_quant(const char *folder, const char *name, int counts[2]) {
    char path[PATH_BYTES], tokens[PATH_BYTES], logits[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s.gguf", folder, name);
    snprintf(tokens, sizeof tokens, "%s/tokens.txt", folder);
    snprintf(logits, sizeof logits, "%s/%s.logits.f32", folder, name);
    model *m = open_supported(path, counts);
    if (!m) return;
    reference r;
    read_reference(&r, tokens, logits, m->hp.n_vocab);
    double gate = strstr(name, "_K") || strstr(name, "IQ4_XS") ? 4e-4 : 2e-4;
    if (strstr(name, "BF16")) gate = 1e-5;
    check_model(name, m, &r, gate, gate, 1e-6);
    free(r.logits);
    model_close(m);
}

static void test_types(void **state) {
    (void)state;
    char folder[PATH_BYTES];
    int counts[2] = {0};
    if (!shared_path(folder, sizeof folder, "conformance/quant")) skip();
    each_model(folder, visit_quant, counts);
    assert_true(counts[0] >= 13);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_architectures),
        cmocka_unit_test(test_types),
    };
    return cmocka_run_group_tests_name("golden", tests, NULL, NULL);
}
