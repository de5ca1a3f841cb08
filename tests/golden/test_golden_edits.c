/* test_golden_edits.c: models with sharp attention, and those of next/, on the CPU and on the
 * simulated GPU, with caches of all types: logits after a session was saved and loaded, copied or
 * rewound must be those of the same tokens without it, and match the recorded logits; keys must be
 * where a removal of tokens moves them. One model of eight, or all with `--cases all`.
 *
 * A removal leaves its influence on later tokens, so no recorded logits exist for it. In a copy of
 * the model whose blocks add nothing to the residual stream, the cached rows of a token depend on
 * the token and its position only: then the cache after a removal must be that of the shorter
 * text. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "run_device.h"
#include "run_engine.h"
#include "run_model.h"
#include "sharp_model.h"

enum { MAX_LAYERS = 16, N_TOKENS = 200, N_FIRST = 101, N_WRONG = 12, LATER = 10 };

static gpu_library library;
static gpu_device *device;
static bool all_cases;
static pi_error err;

static void ok(pi_status status) {
    if (status != PI_OK) fail_msg("%s", err.message);
}

/* ---- contexts -------------------------------------------------------------------------------- */

/* Caches, and gates: F32 caches have the gate of sharp_model.c for all logits. Rounded keys change
 * the scores of sharp attention, and now and then the choice of an expert or of positions, which
 * changes a token's logits altogether: so the NMSE of single tokens has gates for the median and
 * the ninth decile. Moved keys are rounded twice. */
typedef struct cache {
    const char *name;
    quant_type type;
    double median, ninth, moved;
} cache;

static const cache caches[] = {{"f32", QUANT_F32, 0, 0, 1e-10},
                               {"f16", QUANT_F16, 5e-6, 1e-4, 1e-6},
                               {"q8_0", QUANT_Q8_0, 2e-3, 0.1, 1e-3}};
enum { N_CACHES = sizeof caches / sizeof caches[0] };

/* NULL: a head size does not fill blocks of the type. */
static engine_context *open_context(const model *m, const cache *k, bool gpu) {
    static plan_split splits[MAX_LAYERS];
    engine_options o = {.n_threads = 2,
                        .n_batch = N_TOKENS,
                        .n_logits = N_TOKENS,
                        .tier = CPU_TIER_AUTO,
                        .type_k = k->type,
                        .type_v = k->type,
                        .plan.mode = PI_MODE_DENSE};
    for (int i = 0; i < m->hp.n_layer; i++) {
        kv_layer rows;
        assert_true(i < MAX_LAYERS);
        if (!kv_layer_rows(m, i, k->type, k->type, &rows)) return NULL;
        splits[i] = (plan_split){.primary = SIDE_GPU, .hot = model_layer_units(m, i)};
    }
    if (gpu) {
        o.plan.splits = splits;
        o.plan.head = SIDE_GPU;
        o.gpu = library.backend;
        o.devices[0] = device;
        run_engine_keep(m, library.backend->supports, o.plan.mode, splits, &o.plan.head);
    }
    return run_engine_context(m, &o);
}

static void feed(engine_context *c, pi_session *s, const int32_t *tokens, int n, int n_drafts,
                 float *logits) {
    const pi_input in = {.session = s,
                         .tokens = tokens,
                         .n_tokens = n,
                         .n_drafts = n_drafts,
                         .logits = logits ? PI_LOGITS_ALL : PI_LOGITS_NONE};
    ok(engine_forward(c, &in, 1, &err));
    if (logits)
        memcpy(logits, engine_logits(c, 0),
               (size_t)n * (size_t)engine_plan(c)->model->hp.n_vocab * sizeof *logits);
}

/* ---- logits after edits ---------------------------------------------------------------------- */

static void save_and_load(const pi_session *from, pi_session *to, const int32_t *tokens, int n) {
    size_t n_bytes = 0;
    int64_t n_loaded;
    int32_t loaded[N_TOKENS];
    session_get_state(from, tokens, n, NULL, 0, &n_bytes, NULL);
    void *data = malloc(n_bytes);
    ok(session_get_state(from, tokens, n, data, n_bytes, &n_bytes, &err));
    ok(session_set_state(to, data, n_bytes, loaded, N_TOKENS, &n_loaded, &err));
    assert_int_equal(n_loaded, n);
    free(data);
}

static void same(const char *what, const char *name, const float *got, const float *want,
                 size_t n) {
    if (memcmp(got, want, n * sizeof *got))
        fail_msg("%s: %s changes the logits: NMSE %g", name, what, run_nmse(got, want, (int64_t)n));
}

/* Gemma 4 does not scale scores: its attention is the sharpest. The scores of one token of mimo2
 * nearly tie (sharp_model.c). */
static double allowance(const char *name, const cache *k) {
    if (strncmp(name, "gemma4", 6) == 0) return 10;
    return strncmp(name, "mimo2", 5) == 0 && k->type == QUANT_Q8_0 ? 5 : 1;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Compares the logits of n tokens with recorded ones. Later tokens have most of the error: in more
 * positions, more of them nearly tie. */
static void check_logits(const char *what, const char *name, const cache *k, bool gpu,
                         double f32_gate, const float *got, const float *want, int n,
                         int64_t n_vocab) {
    double each[N_TOKENS], all = run_nmse(got, want, n * n_vocab);
    double more = allowance(name, k) * (n < N_TOKENS ? LATER : 1);
    for (int i = 0; i < n; i++) each[i] = run_nmse(got + i * n_vocab, want + i * n_vocab, n_vocab);
    qsort(each, (size_t)n, sizeof *each, ascending);
    double median = each[n / 2], ninth = each[n * 9 / 10], gate = f32_gate * N_TOKENS / n;
    printf("%-22s %s %-4s %-7s NMSE %.1e, median %.1e, ninth decile %.1e\n", name,
           gpu ? "gpu" : "cpu", k->name, what, all, median, ninth);
    bool fits = k->type == QUANT_F32 ? all <= gate
                                     : median <= more * k->median && ninth <= more * k->ninth;
    if (!fits) fail_msg("%s, %s, %s: NMSE %g", name, k->name, what, all);
}

static void check_edits(const char *name, const model *m, const reference *r, double f32_gate,
                        const cache *k, bool gpu) {
    engine_context *c = open_context(m, k, gpu);
    if (!c) return;
    size_t n_vocab = (size_t)m->hp.n_vocab, n_rest = (N_TOKENS - N_FIRST) * n_vocab;
    float *all = malloc(N_TOKENS * n_vocab * sizeof *all), *rest = malloc(n_rest * sizeof *rest);
    const int32_t *later = r->tokens + N_FIRST;
    int64_t n_ctx = r->n_ctx ? r->n_ctx : N_TOKENS;
    pi_session *a = run_engine_session(c, (int)n_ctx), *b = run_engine_session(c, (int)n_ctx);
    feed(c, a, r->tokens, N_FIRST, 0, all);
    ok(session_copy(b, a, N_FIRST, &err));
    feed(c, a, later, N_TOKENS - N_FIRST, 0, all + N_FIRST * n_vocab);
    check_logits("whole", name, k, gpu, f32_gate, all, r->logits, N_TOKENS, m->hp.n_vocab);

    pi_session *d = run_engine_session(c, (int)n_ctx);
    save_and_load(b, d, r->tokens, N_FIRST);
    feed(c, b, later, N_TOKENS - N_FIRST, 0, rest);
    same("copying", name, rest, all + N_FIRST * n_vocab, n_rest);
    feed(c, d, later, N_TOKENS - N_FIRST, 0, rest);
    same("saving and loading", name, rest, all + N_FIRST * n_vocab, n_rest);

    /* other tokens as drafts, which are taken back */
    int32_t wrong[1 + N_WRONG] = {r->tokens[N_FIRST - 1]};
    for (int i = 1; i <= N_WRONG; i++) wrong[i] = (r->tokens[N_FIRST - 1 + i] + 1) % m->hp.n_vocab;
    ok(session_rewind(a, 0, &err));
    feed(c, a, r->tokens, N_FIRST - 1, 0, NULL);
    feed(c, a, wrong, 1 + N_WRONG, N_WRONG, NULL);
    ok(session_rewind(a, N_FIRST, &err));
    feed(c, a, later, N_TOKENS - N_FIRST, 0, rest);
    check_logits("rewound", name, k, gpu, f32_gate, rest, r->logits + N_FIRST * n_vocab,
                 N_TOKENS - N_FIRST, m->hp.n_vocab);
    engine_session_destroy(a);
    engine_session_destroy(b);
    engine_session_destroy(d);
    engine_context_destroy(c);
    free(all);
    free(rest);
}

/* ---- removal --------------------------------------------------------------------------------- */

/* Replaces the last matrices of all blocks by zeros. */
static void silence(model *m) {
    static const tensor_role last[] = {ROLE_ATTN_OUT,    ROLE_FFN_DOWN,      ROLE_FFN_DOWN_T,
                                       ROLE_EXPERT_DOWN, ROLE_EXPERT_DOWN_T, ROLE_SHARED_DOWN,
                                       ROLE_LAUREL_B,    ROLE_ADJUGATE_DOWN};
    enum { LARGEST = 1 << 22 };
    static const uint8_t zeros[LARGEST];
    for (int i = 0; i < m->hp.n_layer; i++)
        for (size_t k = 0; k < sizeof last / sizeof *last; k++) {
            model_tensor *t = &m->layers[i].t[last[k]];
            assert_true(t->n_bytes <= LARGEST);
            if (t->data) t->data = zeros;
        }
}

static float *cached_rows(const pi_session *s, const cache *k, int n, size_t *count) {
    size_t n_bytes = session_range_bytes(s, n);
    uint8_t *data = malloc(n_bytes);
    const quant_traits *traits = quant_find(k->type);
    ok(session_get_range(s, 0, n, data, &err));
    *count = n_bytes / (size_t)traits->block_bytes * (size_t)traits->block_elems;
    float *rows = malloc(*count * sizeof *rows);
    traits->dequantize(data, rows, (int64_t)*count);
    free(data);
    return rows;
}

static void check_removal(const char *name, model *m, const reference *r, const cache *k,
                          bool gpu) {
    enum { FIRST = 40, END = 57, N = 120, LEFT = N - (END - FIRST) };
    const model saved = *m;
    size_t n_layers = (size_t)m->hp.n_layer * sizeof *m->layers;
    model_layer *layers = malloc(n_layers);
    memcpy(layers, m->layers, n_layers);
    silence(m);
    engine_context *c = open_context(m, k, gpu);
    if (c) {
        int n_ctx = r->n_ctx ? (int)r->n_ctx : N;
        pi_session *a = run_engine_session(c, n_ctx), *b = run_engine_session(c, n_ctx);
        feed(c, a, r->tokens, N, 0, NULL);
        pi_status status = session_remove(a, FIRST, END, &err);
        bool moves = !a->state.n_floats && !m->hp.n_pos;
        if (status != PI_ERR_UNSUPPORTED) {
            size_t count;
            ok(status);
            assert_true(moves);
            assert_int_equal(session_length(a), LEFT);
            feed(c, b, r->tokens, FIRST, 0, NULL);
            feed(c, b, r->tokens + END, N - END, 0, NULL);
            float *moved = cached_rows(a, k, LEFT, &count), *want = cached_rows(b, k, LEFT, &count);
            double nmse = run_nmse(moved, want, (int64_t)count);
            printf("%-22s %-4s %-4s moved keys: NMSE %.1e (gate %.0e)\n", name, gpu ? "gpu" : "cpu",
                   k->name, nmse, k->moved);
            if (!(nmse <= k->moved))
                fail_msg("%s: moved keys: NMSE %g is above %g", name, nmse, k->moved);
            free(moved);
            free(want);
        } else if (moves && !(m->arch->has & (ARCH_CHUNKS | ARCH_QK_NORM_LATE))) {
            fail_msg("%s: %s", name, err.message);
        }
        engine_session_destroy(a);
        engine_session_destroy(b);
        engine_context_destroy(c);
    }
    *m = saved;
    memcpy(m->layers, layers, n_layers);
    free(layers);
}

/* ---- models ---------------------------------------------------------------------------------- */

static unsigned number_of(const char *name) {
    unsigned sum = 0;
    for (; *name; name++) sum += (unsigned char)*name;
    return sum;
}

/* In a sample, a model has one type of caches. */
static void check_model(const char *name, model *m, const reference *r, double gate) {
    assert_int_equal(r->n_tokens, N_TOKENS);
    for (int i = 0; i < N_CACHES; i++) {
        if (!all_cases && i != (int)(number_of(name) / 8 % N_CACHES)) continue;
        for (int gpu = 0; gpu < 2; gpu++) {
            check_edits(name, m, r, gate, &caches[i], gpu);
            check_removal(name, m, r, &caches[i], gpu);
        }
    }
}

static bool is_sampled(const char *name) {
    /* the models with compressed keys, with attention over earlier residuals, with n-grams */
    bool alone = strncmp(name, "deepseek4", 9) == 0 || strncmp(name, "kimi-k3", 7) == 0 ||
                 strncmp(name, "qwen4exp", 8) == 0;
    return all_cases || alone || number_of(name) % 8 == 0;
}

static bool visit_sharp(const char *folder, const char *name) {
    sharp_model s;
    if (!is_sampled(name) || !sharp_open(folder, name, &s)) return false;
    check_model(name, s.m, &s.r, s.gate);
    sharp_close(&s);
    return true;
}

static void test_sharp(void **state) {
    (void)state;
    sharp_each(all_cases ? 3 : 0, all_cases ? 61 : 4, visit_sharp);
}

static bool visit_next(const char *folder, const char *name) {
    static const double gate = 1e-6;
    if (!is_sampled(name)) return false;
    model *m = golden_open(folder, name, ".gguf");
    if (!m) return false;
    reference r = golden_read(folder, name, m->hp.n_vocab);
    check_model(name, m, &r, gate);
    reference_free(&r);
    model_close(m);
    return true;
}

static void test_next(void **state) {
    (void)state;
    golden_each("next", ".gguf", 0, all_cases ? 37 : 5, visit_next);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sharp), cmocka_unit_test(test_next)};
    int failed;
    if (!run_device_open(argc, argv, RUN_DEVICE_WAIT_MS, &library, &device, &failed)) return failed;
    all_cases = argc > 1;
    failed = cmocka_run_group_tests_name("golden_edits", tests, NULL, NULL);
    run_device_close(&library, device);
    return failed;
}
