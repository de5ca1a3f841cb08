/* test_golden.c: compares logits with recorded references: conformance models of every architecture
 * in the table, every kernel tier, in one batch, token by token and split unevenly. The README of
 * the data gives the gates: NMSE = sum (a - b)^2 / sum b^2. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "golden_case.h"
#include "shared_data.h"

typedef enum split { SPLIT_WHOLE, SPLIT_SINGLE, SPLIT_UNEVEN, N_SPLITS } split;

/* Checks the model with the splits [first, end). */
static void check(const char *name, const model *m, const reference *r, engine_options o,
                  double gate, int first, int end) {
    static const int whole[] = {REFERENCE_MAX_TOKENS}, single[] = {1}, uneven[] = {3, 1, 7, 2, 17};
    struct {
        const int *pieces;
        int n;
    } splits[N_SPLITS] = {{whole, 1}, {single, 1}, {uneven, 5}};
    for (int i = first; i < end; i++) {
        engine_context *c;
        pi_error err;
        if (engine_context_create(m, &o, &c, &err)) fail_msg("%s", err.message);
        double nmse = golden_nmse(c, r, splits[i].pieces, splits[i].n);
        engine_context_destroy(c);
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

/* Runs one model with all available tiers: every split once; the most uneven split also with
 * another cache and another number of threads. The plain C tiers are slow and differ only in the
 * kernels: they run one split with each cache. An emulator is 10 to 30 times slower: there every
 * tier runs every model once, and the CPU's own tier runs two splits. */
static void check_model(const char *name, const model *m, const reference *r, double gate_f16,
                        double gate_f32, double gate_scalar) {
    for (int i = 0; i < N_TIERS; i++) {
        if (!tier_available(tiers[i])) continue;
        double gate = tiers[i] == CPU_TIER_SCALAR ? gate_scalar : gate_f32;
#ifdef TEST_SAMPLED
        check(name, m, r, options(tiers[i], QUANT_F32, 2), gate, SPLIT_WHOLE, SPLIT_SINGLE);
        if (tiers[i] > CPU_TIER_REFERENCE)
            check(name, m, r, options(tiers[i], QUANT_F16, 1), gate_f16, SPLIT_SINGLE,
                  SPLIT_UNEVEN);
#else
        if (tiers[i] <= CPU_TIER_REFERENCE) {
            check(name, m, r, options(tiers[i], QUANT_F32, 2), gate, SPLIT_WHOLE, SPLIT_SINGLE);
            check(name, m, r, options(tiers[i], QUANT_F16, 1), gate_f16, SPLIT_UNEVEN, N_SPLITS);
            continue;
        }
        check(name, m, r, options(tiers[i], QUANT_F32, 1), gate, 0, N_SPLITS);
        check(name, m, r, options(tiers[i], QUANT_F16, 2), gate_f16, SPLIT_SINGLE, N_SPLITS);
        check(name, m, r, options(tiers[i], QUANT_F32, 3), gate, SPLIT_UNEVEN, N_SPLITS);
#endif
    }
}

static bool check_arch(const char *name, const model *m, reference *r) {
    check_model(name, m, r, 1e-4, 1e-5, 1e-5);
    return true;
}

static void test_architectures(void **state) {
    (void)state;
    golden_each_model("arch", 0, 12, check_arch);
}

/* One run of each kind is enough: check_model compares the tiers, and these models add only
 * plans. */
static void check_plan(const char *name, const model *m, const reference *r, double gate_f32) {
    /* rounded index keys select a few other positions */
    const double gate_f16 = m->hp.index_sums ? 1e-2 : 1e-4;
    check(name, m, r, options(CPU_TIER_AUTO, QUANT_F32, 2), gate_f32, 0, N_SPLITS);
    check(name, m, r, options(CPU_TIER_AUTO, QUANT_F16, 1), gate_f16, SPLIT_SINGLE, SPLIT_UNEVEN);
    engine_options paged = options(CPU_TIER_AUTO, QUANT_F16, 1);
    paged.ram_budget = (uint64_t)1 << 30; /* the pager reads the weights, whatever their size */
    check(name, m, r, paged, gate_f16, SPLIT_UNEVEN, N_SPLITS);
}

static bool check_more(const char *name, const model *m, reference *r) {
    check_plan(name, m, r, 1e-5);
    return true;
}

/* With the least memory budget: weights come from the drive. */
static void check_budget(const char *name, const model *m, const reference *r, double gate) {
    engine_options o = options(CPU_TIER_AUTO, QUANT_F32, 2);
    engine_context *c;
    pi_error err;
    o.n_positions = r->n_tokens;
    o.ram_budget = (uint64_t)1 << 30;
    if (engine_context_create(m, &o, &c, &err)) fail_msg("%s: %s", name, err.message);
    const paging_sizes n = paging_get_sizes(engine_paging(c));
    engine_context_destroy(c);
    o.ram_budget = n.needed + n.beside;
    check(name, m, r, o, gate, SPLIT_SINGLE, N_SPLITS);
}

static bool check_next(const char *name, const model *m, reference *r) {
    check_plan(name, m, r, 1e-6);
    check_budget(name, m, r, 1e-6);
    return true;
}

static void test_more_architectures(void **state) {
    (void)state;
    golden_each_model("more", 17, 62, check_more);
    golden_each_model("next", 0, 37, check_next);
}

/* A file with the number of layers that draft, but without the layers. */
static void test_no_draft_layers(void **state) {
    (void)state;
    char path[512];
    const gguf_override count = {
        .key = "deepseek4.nextn_predict_layers", .type = GGUF_I64, .integer = 1};
    model *m;
    pi_error err;
    if (!shared_path(path, sizeof path, "conformance/next/deepseek4-topk-moe.gguf")) skip();
    if (model_open(path, &(gguf_open_options){.overrides = &count, .n_overrides = 1}, &m, &err))
        fail_msg("%s", err.message);
    assert_int_equal(m->hp.n_layer, 4);
    assert_int_equal(m->hp.n_draft_layer, 0);
    model_close(m);
}

/* K types are mixtures of types; their gate is wider. */
static bool check_quant(const char *name, const model *m, reference *r) {
    double gate = strstr(name, "_K") || strstr(name, "IQ4_XS") ? 4e-4 : 2e-4;
    if (strstr(name, "BF16")) gate = 1e-5;
    check_model(name, m, r, gate, gate, 1e-6);
    return true;
}

static void test_types(void **state) {
    (void)state;
    golden_each_model("quant", 2, 13, check_quant);
}

/* Types of three bits and less, and a quantized mixture of experts. The folder's tokens.txt belongs
 * to the mixtures; the logits of the dense model belong to another text. */
static bool check_lowbit(const char *name, const model *m, reference *r) {
    static const int32_t dense_tokens[] = {
        65, 117, 144, 1,   112, 145, 51,  56,  101, 49, 87, 83, 80,  96, 129, 100, 83, 33,  83,  11,
        11, 139, 140, 149, 87,  155, 104, 119, 75,  63, 66, 45, 153, 14, 27,  52,  61, 101, 117, 5};
    if (strstr(name, "dense")) {
        assert_int_equal(r->n_tokens, sizeof dense_tokens / sizeof *dense_tokens);
        memcpy(r->tokens, dense_tokens, sizeof dense_tokens);
    }
    check_model(name, m, r, 6e-4, 6e-4, 1e-6);
    return true;
}

static void test_low_types(void **state) {
    (void)state;
    golden_each_model("lowbit", 0, 18, check_lowbit);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_architectures),   cmocka_unit_test(test_more_architectures),
        cmocka_unit_test(test_no_draft_layers), cmocka_unit_test(test_types),
        cmocka_unit_test(test_low_types),
    };
    return cmocka_run_group_tests_name("golden", tests, NULL, NULL);
}
