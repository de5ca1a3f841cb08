/* test_kernel.c: tests every kernel of every tier that this CPU supports, and times the kernels.
 *
 *   test_kernel                                        the tests
 *   test_kernel --bench [type] [rows] [cols]           GB/s and GOP/s per tier and type
 *   test_kernel --bench columns [type] [tier]          vectors from which matmul beats matvec
 *   test_kernel --bench gather [type] [n_in] [density] GB/s of selected rows and of all rows
 *   test_kernel --bench share [type] [tier]            share of read bandwidth, matmul over Q4_0's
 *   test_kernel --bench axpy [type] [rows] [cols]      a row per neuron: sums of selected rows
 *   test_kernel --bench matmul_t [type] [rows] [cols]  a row per neuron: many vectors */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "cpu.h"
#include "cpu_features.h"
#include "kernel_tests.h"

static void test_tiers(void **state) {
    (void)state;
    cpu_kernels k, best;
    assert_true(cpu_kernels_get(CPU_TIER_AUTO, &best));
    assert_true(cpu_kernels_get(CPU_TIER_SCALAR, &k));
    assert_int_equal(k.tier, CPU_TIER_SCALAR);
    assert_string_equal(k.name, "scalar");
    assert_false(cpu_kernels_get(CPU_TIER_COUNT, &k));
    assert_string_equal(cpu_tier_name((cpu_tier)99), "unknown");
    for (int tier = CPU_TIER_SCALAR; tier < CPU_TIER_COUNT; tier++) {
        bool there = cpu_kernels_get((cpu_tier)tier, &k);
        print_message("tier %s: %s\n", cpu_tier_name((cpu_tier)tier),
                      !there                   ? "not here"
                      : (int)best.tier == tier ? "the best here"
                                               : "here");
        if (!there) continue;
        assert_int_equal(k.tier, tier);
        assert_string_equal(k.name, cpu_tier_name((cpu_tier)tier));
        assert_non_null(k.act_encode);
        assert_true(k.select != NULL && k.keep != NULL && k.sign_dot != NULL);
        for (uint32_t type = 0; type < QUANT_TYPE_COUNT; type++) {
            const quant_traits *t = quant_find(type);
            bool wanted = t != NULL && t->dequantize != NULL;
            assert_int_equal(wanted, k.mat[type].matvec != NULL);
            assert_int_equal(wanted, k.mat[type].matmul != NULL);
            assert_int_equal(wanted, k.mat_t[type].axpy_rows != NULL);
            assert_int_equal(wanted, k.mat_t[type].matmul_t != NULL);
            assert_int_equal(wanted, k.mat[type].matvec_rows != NULL);
        }
    }
}

static cpu_tier best_with(const cpu_features *allowed) {
    cpu_kernels k;
    cpu_features_limit(allowed);
    assert_true(cpu_kernels_get(CPU_TIER_AUTO, &k));
    cpu_features_limit(NULL);
    return k.tier;
}

/* A tier is not available if the CPU lacks one of its instruction sets; `auto` then takes the next
 * tier. */
static void test_older_processors(void **state) {
    (void)state;
    cpu_kernels k;
    const cpu_features here = *cpu_features_get(), none = {0};
    assert_int_equal(best_with(&none), CPU_TIER_REFERENCE);
    cpu_features_limit(&none);
    assert_false(cpu_kernels_get(CPU_TIER_AVX2, &k));
    assert_false(cpu_kernels_get(CPU_TIER_AVX512, &k));
    assert_false(cpu_kernels_get(CPU_TIER_NEON, &k));
    cpu_features_limit(NULL);
    assert_memory_equal(cpu_features_get(), &here, sizeof here);

    cpu_features old = here;
    bool avx2 = cpu_kernels_get(CPU_TIER_AVX2, &k), neon = cpu_kernels_get(CPU_TIER_NEON, &k);
    bool *const avx512_parts[] = {&old.avx512, &old.avx512_vnni};
    for (size_t i = 0; i < sizeof avx512_parts / sizeof *avx512_parts && avx2; i++) {
        *avx512_parts[i] = false;
        assert_int_equal(best_with(&old), CPU_TIER_AVX2);
        old = here;
    }
    bool *const avx2_parts[] = {&old.avx2, &old.fma, &old.f16c, &old.bmi2};
    for (size_t i = 0; i < sizeof avx2_parts / sizeof *avx2_parts && avx2; i++) {
        *avx2_parts[i] = false;
        assert_int_equal(best_with(&old), CPU_TIER_REFERENCE);
        old = here;
    }
    if (!neon) return;
    old.i8mm = false;
    assert_int_equal(best_with(&old), CPU_TIER_NEON);
    old.dotprod = false;
    assert_int_equal(best_with(&old), CPU_TIER_REFERENCE);
}

int main(int argc, char **argv) {
    if (argc > 2 && strcmp(argv[1], "--bench") == 0 && strcmp(argv[2], "gather") == 0)
        return kernel_gather(argc - 3, argv + 3);
    if (argc > 2 && strcmp(argv[1], "--bench") == 0 && strcmp(argv[2], "columns") == 0)
        return kernel_bench_columns(argc - 3, argv + 3);
    if (argc > 2 && strcmp(argv[1], "--bench") == 0 && strcmp(argv[2], "share") == 0)
        return kernel_share(argc - 3, argv + 3);
    if (argc > 1 && strcmp(argv[1], "--bench") == 0) {
        bool mat_t = argc > 2 && (strcmp(argv[2], "axpy") == 0 || strcmp(argv[2], "matmul_t") == 0);
        return (mat_t ? kernel_bench_mat_t : kernel_bench)(argc - 2, argv + 2);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tiers),
        cmocka_unit_test(test_older_processors),
        cmocka_unit_test(kernel_test_encode_meaning),
        cmocka_unit_test(kernel_test_encode_tiers),
        cmocka_unit_test(kernel_test_encode_ranges),
        cmocka_unit_test(kernel_test_decode),
        cmocka_unit_test(kernel_test_sizes),
        cmocka_unit_test(kernel_test_random_bits),
        cmocka_unit_test(kernel_test_long_rows),
        cmocka_unit_test(kernel_test_many_blocks),
        cmocka_unit_test(kernel_test_split_rows),
        cmocka_unit_test(kernel_test_hostile),
        cmocka_unit_test(kernel_test_mat_t_sizes),
        cmocka_unit_test(kernel_test_mat_t_many_blocks),
        cmocka_unit_test(kernel_test_mat_t_cuts),
        cmocka_unit_test(kernel_test_mat_t_hostile),
        cmocka_unit_test(kernel_test_rows),
        cmocka_unit_test(kernel_test_rows_hostile),
        cmocka_unit_test(kernel_test_select),
        cmocka_unit_test(kernel_test_keep),
        cmocka_unit_test(kernel_test_sign_dot),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
