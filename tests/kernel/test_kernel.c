/* test_kernel.c: compares every kernel of every tier that this processor can run, and times them.
 *
 *   test_kernel                               the tests
 *   test_kernel --bench [type] [rows] [cols]  a table of GB/s and GOP/s per tier and type */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "cpu.h"
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
        assert_non_null(k.stream_read);
        for (uint32_t type = 0; type < QUANT_TYPE_COUNT; type++) {
            const quant_traits *t = quant_find(type);
            bool wanted = t != NULL && t->dequantize != NULL;
            assert_int_equal(wanted, k.mat[type].matvec != NULL);
            assert_int_equal(wanted, k.mat[type].matmul != NULL);
        }
    }
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "--bench") == 0) return kernel_bench(argc - 2, argv + 2);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tiers),
        cmocka_unit_test(kernel_test_encode_meaning),
        cmocka_unit_test(kernel_test_encode_tiers),
        cmocka_unit_test(kernel_test_encode_ranges),
        cmocka_unit_test(kernel_test_stream_read),
        cmocka_unit_test(kernel_test_decode),
        cmocka_unit_test(kernel_test_sizes),
        cmocka_unit_test(kernel_test_random_bits),
        cmocka_unit_test(kernel_test_long_rows),
        cmocka_unit_test(kernel_test_many_blocks),
        cmocka_unit_test(kernel_test_split_rows),
        cmocka_unit_test(kernel_test_hostile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
