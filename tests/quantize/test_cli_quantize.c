/* test_cli_quantize.c: the commands quantize and imatrix. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "cli_shell.h"

static void test_command_lines(void **state) {
    (void)state;
    assert_int_equal(sh("$PI quantize $M a.gguf f16"), 0);
    assert_contains("out", "f16: ");
    assert_contains("out", " bits per weight, ");
    assert_int_equal(sh("$PI quantize -q a.gguf b.gguf q8_0 2 && $PI quantize -q a.gguf c.gguf 7 "
                        "-t 1 && cmp b.gguf c.gguf"),
                     0);
    assert_out("");
    assert_err("");
    assert_wrong("$PI quantize", "powerinfer: no input: quantize: as in quantize IN OUT TYPE\n");
    assert_wrong("$PI quantize a.gguf",
                 "powerinfer: no type: quantize: as in quantize IN OUT TYPE\n");
    assert_wrong("$PI quantize a.gguf o.gguf q8_0 many",
                 "powerinfer: not a number of threads: many: quantize IN OUT TYPE [THREADS]\n");
    assert_wrong("$PI quantize a.gguf a.gguf q8_0",
                 "powerinfer: output is the input: a.gguf: give another name for the output\n");
    assert_wrong("$PI quantize a.gguf o.gguf q8_0 --tensor-type ffn",
                 "powerinfer: invalid value: --tensor-type \"ffn\": expected PATTERN=TYPE, such as "
                 "ffn_down=q6_k\n");
    assert_int_equal(sh("$PI quantize a.gguf o.gguf q8"), 2);
    assert_contains("err", "powerinfer: unknown type: q8: choose one of F32, F16, BF16, Q4_0, ");
    assert_wrong("$PI quantize a.gguf o.gguf Q4_KM",
                 "powerinfer: unknown type: Q4_KM: did you mean Q4_K_M?\n");
    assert_wrong("$PI quantize a.gguf q5-k-s",
                 "powerinfer: unknown type: q5-k-s: did you mean Q5_K_S?\n");
    assert_int_equal(sh("$PI quantize b.gguf o.gguf q4_0"), 2);
    assert_contains("err", "powerinfer: already quantized: b.gguf: ");
    assert_int_equal(sh("$PI quantize missing.gguf o.gguf q4_0"), 1);
    assert_false(shell_has("o.gguf"));
    assert_int_equal(sh("$PI quantize -q a.gguf /dev/full q4_0"), 1);
    assert_contains("err", "/dev/full");
}

/* Without an output name, the output gets llama-quantize's default name in the folder of the
 * input. */
static void test_output_left_out(void **state) {
    (void)state;
    assert_int_equal(sh("mkdir -p sub && $PI quantize -q $M sub/a.gguf f16 && "
                        "$PI quantize -q sub/a.gguf want.gguf q8_0"),
                     0);
    assert_int_equal(sh("$PI quantize sub/a.gguf q8_0"), 0);
    assert_contains("err", "output: sub/ggml-model-Q8_0.gguf\n");
    assert_int_equal(sh("cmp want.gguf sub/ggml-model-Q8_0.gguf && rm sub/ggml-model-Q8_0.gguf"),
                     0);
    assert_int_equal(sh("cd sub && $PI quantize -q a.gguf 7 1 && cmp ../want.gguf "
                        "ggml-model-Q8_0.gguf"),
                     0);
    assert_err("");
    assert_int_equal(sh("$PI quantize -q -m sub/a.gguf x.gguf q8_0 && cmp x.gguf want.gguf"), 0);
    assert_int_equal(sh("$PI quantize sub/a.gguf q8_0 --dry-run && ! ls sub/*Q4*"), 0);
}

static void test_types(void **state) {
    (void)state;
    assert_int_equal(sh("$PI quantize -q $M a.gguf f16"), 0);
    assert_int_equal(sh("$PI quantize -q a.gguf t.gguf q8_0 --tensor-type ffn_down=f32 "
                        "--tensor-type 'blk.0.*=bf16' --token-embedding-type q5_1"),
                     0);
    assert_int_equal(sh("$PI inspect -v t.gguf --json"), 0);
    /* the environment applies only if the command line has no such option */
    assert_int_equal(sh("POWERINFER_TENSOR_TYPE=weight=f16 $PI quantize a.gguf q8_0 --dry-run"), 0);
    assert_contains("out", "0 of ");
    assert_int_equal(sh("POWERINFER_TENSOR_TYPE=weight=f16 $PI quantize a.gguf q8_0 --dry-run "
                        "--tensor-type ffn_up=f32 | grep -c -e '-> q8_0'"),
                     0);
    static const char line[] =
        "i=0; while [ $i -lt 257 ]; do echo --tensor-type x=f16; i=$((i+1)); done >words; "
        "$PI quantize a.gguf q8_0 --dry-run $(cat words)";
    assert_int_equal(sh(line), 2);
    assert_err("powerinfer: too many values: --tensor-type: at most 256\n");
}

static void test_dry_run_and_json(void **state) {
    (void)state;
    assert_int_equal(sh("$PI quantize -q $M a.gguf f16 && rm -f o.gguf"), 0);
    assert_int_equal(sh("$PI quantize -q a.gguf o.gguf q8_0 --dry-run"), 0);
    assert_false(shell_has("o.gguf"));
    assert_contains("out", "token_embd.weight");
    assert_int_equal(sh("$PI quantize -q a.gguf o.gguf q8_0 --json"), 0);
    assert_err("");
    assert_contains("out", "\"type\": \"q8_0\"");
    assert_contains("out", "\"relative_rmse\": 0.0");
    assert_contains("out", "\"bits_per_weight\": ");
    assert_int_equal(sh("$PI quantize a.gguf o.gguf q8_0 --json >/dev/full"), 1);
}

static void test_imatrix(void **state) {
    (void)state;
    assert_int_equal(sh("$PI imatrix -m $M"), 2);
    assert_err("powerinfer: no text: imatrix: name a file with -f\n");
    assert_int_equal(sh("for i in 1 2 3 4 5 6 7 8 9; do echo some text $i; done >text"), 0);
    assert_int_equal(sh("$PI imatrix -m $M -f text -c 8 --chunks 3 -o i.gguf -fa -ub 8 -ngl 99"),
                     0);
    assert_contains("err", "wrote i.gguf: ");
    assert_contains("err", " KiB, importance matrix for quantize --imatrix\n");
    assert_int_equal(sh("$PI imatrix -q -m $M -f text -c 8 --chunks 3 -o i.gguf"), 0);
    assert_out("");
    assert_err("");
    assert_int_equal(sh("$PI quantize -q $M a.gguf f16 && $PI quantize -q a.gguf i4.gguf q4_0 "
                        "--imatrix i.gguf && $PI quantize -q a.gguf p4.gguf q4_0"),
                     0);
    assert_int_equal(sh("cmp -s i4.gguf p4.gguf"), 1);
    assert_int_equal(sh("$PI quantize a.gguf o2.gguf q4_0 --imatrix a.gguf"), 1);
    assert_contains("err", "not an importance matrix");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_command_lines), cmocka_unit_test(test_output_left_out),
        cmocka_unit_test(test_types),         cmocka_unit_test(test_dry_run_and_json),
        cmocka_unit_test(test_imatrix),
    };
    return cmocka_run_group_tests_name("cli_quantize", tests, shell_setup, shell_teardown);
}
