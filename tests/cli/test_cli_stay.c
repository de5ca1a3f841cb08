/* test_cli_stay.c: -ot, -cmoe, -ncmoe and -ncffn: the parts that must stay on the CPU are in no
 * GPU's part of the plan, and answers with the simulated GPU equal those of the CPU. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli_shell.h"
#include "mem.h"

#define EVAL "$PI eval -t 1 -m %s --tokens ids --kernels scalar "

enum { N_LAYERS = 4 }; /* layers of both models */

static char expected[32]; /* file with the CPU's logits of `model` */
static const char *model;

static int make_models(void **state) {
    int failed = shell_setup(state);
    if (failed) return failed;
    shell_write("ids", "1 2", 3);
    return sh("$PI synth -q --plain --type f16 --shape tiny-moe -o moe && "
              "$PI synth -q --plain --type f16 --shape tiny -o dense");
}

static void use(const char *name) {
    char line[256];
    model = name;
    snprintf(expected, sizeof expected, "%s.cpu", name);
    snprintf(line, sizeof line, EVAL "--device cpu -q --logits-out %s", model, expected);
    assert_int_equal(sh(line), 0);
}

static float *read_floats(const char *name, size_t *n) {
    size_t n_bytes;
    const char *data = shell_read(name, &n_bytes);
    float *values = mem_alloc(n_bytes);
    assert_non_null(values);
    memcpy(values, data, n_bytes);
    *n = n_bytes / sizeof *values;
    return values;
}

/* Writes for every layer, from its line "layers A to B: attention on the gpu, H of N ...", 'G' or
 * 'C' for attention and the units on the GPU; then the device of the head. */
static void describe(char *out, size_t n_out) {
    const char *log = shell_read("err", NULL);
    size_t used = 0;
    for (int i = 0; i < N_LAYERS; i++) {
        for (const char *at = log; (at = strstr(at, "layers ")); at++) {
            int first, last, hot;
            char home[4];
            if (sscanf(at, "layers %d to %d: attention on the %3s, %d of", &first, &last, home,
                       &hot) != 4 ||
                i < first || i > last)
                continue;
            used += (size_t)snprintf(out + used, n_out - used, "%c%d ", home[0] - 32, hot);
            break;
        }
    }
    snprintf(out + used, n_out - used, "%s", strstr(log, "head on the gpu") ? "G" : "C");
}

/* Checks that eval with these options has the placement `placed`, and the answer of the CPU. */
static void check(const char *options, const char *placed) {
    char line[512], is[256];
    size_t n, m;
    double error = 0, power = 0;
    snprintf(line, sizeof line, EVAL "-v --device sim --logits-out logits %s", model, options);
    assert_int_equal(sh(line), 0);
    describe(is, sizeof is);
    if (strcmp(is, placed) != 0) fail_msg("%s: %s, not %s", options, is, placed);
    float *want = read_floats(expected, &n), *got = read_floats("logits", &m);
    assert_int_equal(n, m);
    for (size_t i = 0; i < n; i++) {
        double d = (double)got[i] - (double)want[i];
        error += d * d;
        power += (double)want[i] * (double)want[i];
    }
    assert_true(power > 0 && error / power < 1e-5);
    mem_free(want);
    mem_free(got);
}

static bool warns(const char *text) {
    return strstr(shell_read("err", NULL), text) != NULL;
}

static void test_experts(void **state) {
    (void)state;
    static const struct {
        const char *options, *placed;
    } rows[] = {{"-ngl 99", "G16 G16 G16 G16 G"},
                {"-ngl 99 -cmoe", "G0 G0 G0 G0 G"},
                {"-ngl 99 -ncmoe 2", "G0 G0 G16 G16 G"},
                {"-ngl 99 -ncffn 4", "G16 G16 G16 G16 G"}, /* no dense layers */
                {"-cmoe", "G0 G0 G0 G0 G"},
                {"-ngl 2 -cmoe", "C0 C0 G0 G0 C"},
                {"-ngl 99 -ot exps=CPU", "G0 G0 G0 G0 G"},
                {"-ngl 99 -ot '.ffn_.*_exps.=CPU'", "G0 G0 G0 G0 G"},
                {"-ngl 99 --override-tensor 'ffn_(up|down|gate)_exps=CPU'", "G0 G0 G0 G0 G"},
                {"-ngl 99 -ot 'blk\\.(1|3)\\.ffn_.*_exps\\.=CPU'", "G16 G0 G16 G0 G"},
                {"-ngl 99 -ot 'blk\\.[0-9]{1,2}\\.ffn_up_exps=CPU'", "G0 G0 G0 G0 G"},
                {"-ngl 99 -ot 'blk\\.0\\..*=CPU'", "C0 G16 G16 G16 G"},
                {"-ngl 99 -ot 'blk\\.0\\..*=CUDA0,exps=CPU'", "G16 G0 G0 G0 G"},
                {"-ngl 99 -ot 'blk\\.0\\.ffn_.*exps=CPU' -ot 'blk\\.2\\.ffn_.*exps=CPU'",
                 "G0 G16 G0 G16 G"},
                {"-ngl 99 -ot output.weight=CPU", "G16 G16 G16 G16 C"},
                {"-ngl 99 -ot attn=CPU", "C16 C16 C16 C16 G"}};
    use("moe");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) check(rows[i].options, rows[i].placed);
}

static void test_neurons(void **state) {
    (void)state;
    char all[64], some[64], none[64];
    use("dense");
    assert_int_equal(sh("$PI eval -v -m dense --tokens ids --device sim -ngl 99 --logits-out all"),
                     0);
    describe(all, sizeof all);
    const int n = (int)strtol(all + 1, NULL, 10);
    assert_true(n > 0);
    snprintf(some, sizeof some, "G0 G%d G%d G%d G", n, n, n);
    snprintf(none, sizeof none, "G0 G0 G0 G0 G");
    check("-ngl 99 -ncffn 1", some);
    check("-ngl 99 --n-cpu-ffn 4", none);
    check("-ngl 99 -ot 'blk\\.0\\.ffn=CPU'", some);
    check("-ngl 99 -ot 'ffn_(gate|up|down)=CPU'", none);
    check("-ngl 99 -cmoe", all);
    assert_true(warns("warning: the model has no experts that could stay on the CPU\n"));
}

/* A warning for each pattern that cannot be obeyed literally. */
static void test_warnings(void **state) {
    (void)state;
    use("moe");
    check("-ngl 99 -ot ffn_up_exps=CPU", "G0 G0 G0 G0 G");
    assert_true(warns("warning: override-tensor: the matrices that belong to "
                      "blk.0.ffn_up_exps.weight stay on the CPU as well\n"));
    check("-ngl 99 -ot ffn_gate_inp=CPU", "G16 G16 G16 G16 G");
    assert_true(warns("warning: override-tensor: blk.0.ffn_gate_inp.weight cannot stay on the CPU "
                      "alone: it is placed with its layer's attention\n"));
    check("-ngl 99 -ot nothing=CPU", "G16 G16 G16 G16 G");
    assert_true(warns("no tensor of the model is left for \"nothing\"\n"));
    check("-ngl 99 -ot 'exps=CUDA1,attn=ROCm0'", "G16 G16 G16 G16 G");
    const char *first = strstr(shell_read("err", NULL), "names a GPU");
    assert_true(first && !strstr(first + 1, "names a GPU"));
    check("-ngl 99 -ot exps=CPU", "G0 G0 G0 G0 G");
    assert_false(warns("warning"));
}

static void test_errors(void **state) {
    (void)state;
    static const struct {
        const char *options, *message;
        int status;
    } rows[] = {
        {"-ot exps", "invalid value: override-tensor \"exps\": expected PATTERN=DEVICE, such as",
         2},
        {"-ot exps=CPU,x", "invalid value: override-tensor \"x\": expected PATTERN=DEVICE", 2},
        {"-ot =CPU", "expected PATTERN=DEVICE", 2},
        {"-ot exps=DISK", "invalid value: override-tensor: no such device: \"DISK\": use CPU", 2},
        {"-ot '(=CPU'", "override-tensor: not a regular expression: \"(\": ", 2},
        {"-ot '.*=CPU'", "not used: simulated GPU: all its layers must stay on the CPU", 1},
        {"-ncmoe -1", "invalid value: -ncmoe \"-1\": expected an integer from 0", 2}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char line[256];
        snprintf(line, sizeof line, "$PI eval -m moe --tokens ids --logits-out no --device sim %s",
                 rows[i].options);
        assert_int_equal(sh(line), rows[i].status);
        if (!warns(rows[i].message)) fail_msg("%s: %s", rows[i].options, shell_read("err", NULL));
    }
    /* Patterns are also parsed without a GPU. */
    assert_int_equal(sh("$PI eval -m moe --tokens ids --logits-out no --device cpu -ot '(=CPU'"),
                     2);
    assert_int_equal(
        sh("$PI eval -q -m moe --tokens ids --logits-out x --device cpu -cmoe -ot exps=CPU"), 0);
}

/* The options in inspect --plan, place, and the commands that generate. */
static void test_other_commands(void **state) {
    (void)state;
    assert_int_equal(sh("$PI inspect --plan moe --device sim -ngl 99 >plan"), 0);
    assert_int_equal(sh("grep -q 'gpu .* experts_in ' plan"), 0);
    assert_int_equal(sh("$PI inspect --plan moe --device sim -ngl 99 -cmoe >plan"), 0);
    assert_int_equal(sh("grep -q 'gpu .* experts_in ' plan"), 1);
    assert_int_equal(sh("$PI place -q --json --profile rtx-4090-ddr5 --shape mixtral-8x7b -cmoe "
                        ">all; grep -c '\"hot\": 0,' all"),
                     0);
    assert_string_equal(shell_read("out", NULL), "32\n");
    assert_int_equal(
        sh("$PI place -q --json --profile rtx-4090-ddr5 --shape mixtral-8x7b -ncmoe 30 "
           ">some; grep -c '\"hot\": 0,' some"),
        0);
    assert_string_equal(shell_read("out", NULL), "30\n");
    assert_int_equal(sh("$PI bench -q -m moe -p 4 -n 2 -r 1 --device sim -ngl 99 -ot exps=CPU"), 0);
    assert_int_equal(sh("$PI place -q --json -m moe --device sim -ot '(=CPU'"), 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_experts),        cmocka_unit_test(test_neurons),
        cmocka_unit_test(test_warnings),       cmocka_unit_test(test_errors),
        cmocka_unit_test(test_other_commands),
    };
    return cmocka_run_group_tests(tests, make_models, shell_teardown);
}
