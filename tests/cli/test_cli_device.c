/* test_cli_device.c: --device, --vram-budget and -ngl on the simulated GPU: answers equal those of
 * the CPU; a named device is used, or its refusal is an error. */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli_shell.h"
#include "cli_test_model.h"
#include "mem.h"
#include "shared_data.h"

#define EVAL "$PI eval -m $M --tokens ids --kernels scalar -t 1 -b 4 "

enum { N_TOKENS = 6, COUNT = N_TOKENS * TEST_MODEL_VOCAB };

static float *read_logits(const char *name) {
    size_t n_bytes;
    const char *data = shell_read(name, &n_bytes);
    assert_int_equal(n_bytes, COUNT * sizeof(float));
    float *values = mem_alloc(n_bytes);
    assert_non_null(values);
    memcpy(values, data, n_bytes);
    return values;
}

/* Runs eval with these options and checks that its logits are those of the CPU. The messages are in
 * `err`. */
static void same_answer(const char *options) {
    char line[1024];
    double error = 0, power = 0;
    snprintf(line, sizeof line, EVAL "--logits-out logits %s", options);
    assert_int_equal(sh(line), 0);
    assert_out("");
    float *expected = read_logits("expected"), *logits = read_logits("logits");
    for (int i = 0; i < COUNT; i++) {
        double d = (double)logits[i] - (double)expected[i];
        error += d * d;
        power += (double)expected[i] * (double)expected[i];
    }
    assert_true(power > 0 && error / power < 1e-5);
    mem_free(expected);
    mem_free(logits);
}

static int make_expected(void **state) {
    static const char ids[] = "1 260 261 262 263 264";
    int failed = shell_setup(state);
    if (failed) return failed;
    shell_write("ids", ids, sizeof ids - 1);
    return sh(EVAL "-q --device cpu --logits-out expected");
}

static bool says(const char *text) {
    return strstr(shell_read("err", NULL), text) != NULL;
}

/* Checks that eval with these options fails with one line that begins with `message`. */
static void refused(const char *options, const char *message) {
    char line[1024];
    snprintf(line, sizeof line, EVAL "--logits-out refused %s", options);
    assert_int_equal(sh(line), 1);
    assert_out("");
    const char *err = shell_read("err", NULL);
    assert_int_equal(strncmp(err, message, strlen(message)), 0);
    assert_ptr_equal(strchr(err, '\n') + 1, err + strlen(err));
    assert_false(shell_has("refused"));
}

/* Returns the number after `key` in the messages. */
static double number_after(const char *key) {
    const char *at = strstr(shell_read("err", NULL), key);
    if (!at) fail_msg("no %s", key);
    return strtod(at + strlen(key), NULL);
}

static void test_layers(void **state) {
    (void)state;
    same_answer("--device sim -ngl 0 -v");
    assert_false(says("gpu"));
    same_answer("--device sim -ngl 1 -v");
    assert_true(says("layers 0 to 0: attention on the cpu, 0 of "));
    assert_true(says("layers 1 to 1: attention on the gpu, "));
    assert_true(says("head on the cpu"));
    same_answer("--device sim --n-gpu-layers 2 -v");
    assert_true(says("layers 0 to 1: attention on the gpu, ") && says("head on the cpu"));
    same_answer("--device sim -ngl 99 -v");
    assert_true(says("layers 0 to 1: attention on the gpu, ") && says("head on the gpu"));
}

/* One of several devices, by its number. */
static void test_numbers(void **state) {
    (void)state;
    same_answer("--device sim:0 -ngl 99 -v");
    same_answer("--device sim:1 -ngl 99 -v");
    assert_true(says("layers 0 to 1: attention on the gpu, "));
    refused("--device sim:4", "powerinfer: no device 4: sim: there are 4, from 0 on");
    assert_int_equal(sh(EVAL "--logits-out refused --device cpu:1"), 2);
    assert_true(says("invalid value: --device \"cpu:1\": expected one of auto"));
    assert_int_equal(sh(EVAL "--logits-out refused --device sim:x"), 2);
}

/* Several devices, with layers in stages. */
static void test_several(void **state) {
    (void)state;
    same_answer("--device sim:0,1 -ngl 99 -v");
    assert_true(says("layers 0 to 0: attention on the gpu, ") && says(" neurons on the GPU 0"));
    assert_true(says("layers 1 to 1: attention on the gpu, ") && says(" neurons on the GPU 1"));
    assert_true(says("GPU 0 sends to GPU 1: into its memory\n"));
    same_answer("--device sim:3,1 -ts 1,1 -v");
    assert_true(says("GPU 3 sends to GPU 1: through host memory"));
    assert_true(says(" neurons on the GPU 3") && says(" neurons on the GPU 1"));
    same_answer("--device sim -ts 0/3/0/1 -sm layer -v"); /* only devices with a share are used */
    assert_true(says("GPU 1: ") && says("GPU 3: ") && !says("GPU 0: ") && !says("GPU 2: "));
    same_answer("--device sim:2,0,1 -ts 0,0,5 -v");
    assert_true(says("layers 0 to 1: attention on the gpu, ") && says("GPU 1: "));
    same_answer("--device sim:0,1 -ts 0,0 -ngl 1 -v");
    assert_true(says("layers 0 to 0: attention on the cpu, 0 of "));
    static const char *const wrong[][2] = {
        {"--device sim:0,0", "--device \"sim:0,0\": expected different numbers of devices"},
        {"--device sim:0,", "expected different numbers of devices"},
        {"--device sim:0,1,2,3,4,5,6,7,8", "expected different numbers of devices"},
        {"--device sim:0,1 -ts 1,1,1", "more shares than devices: --tensor-split: 3 for 2 devices"},
        {"--device sim:0 -ts 1,1", "more shares than devices: --tensor-split: 2 for 1 devices"},
        {"-ts 1,x", "-ts \"1,x\": expected at most 8 numbers of 0 or more"},
        {"-ts -1", "-ts \"-1\": expected at most 8 numbers"},
        {"-ts 1,1,1,1,1,1,1,1,1", "expected at most 8 numbers"},
        {"-sm row", "rows are not split across GPUs: choose GPUs with --device cuda:0,1"},
        {"-mg 1", "choose the GPU with --device cuda:1"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char line[256];
        snprintf(line, sizeof line, EVAL "--logits-out refused %s", wrong[i][0]);
        if (sh(line) != 2) fail_msg("%s is no error", wrong[i][0]);
        if (!says(wrong[i][1])) fail_msg("%s: %s", wrong[i][0], shell_read("err", NULL));
    }
    refused("--device sim:0,5", "powerinfer: no device 5: sim: there are 4, from 0 on");
    refused("--device sim -ts 1,1,1,1,1", "powerinfer: no device 4: sim: there are 4, from 0 on");
    assert_int_equal(sh("$PI run -m $M -p ab -n 4 --temp 0 --device cpu -q >cpu"), 0);
    assert_int_equal(sh("$PI run -m $M -p ab -n 4 --temp 0 --device sim:0,1 >gpu"), 0);
    assert_true(says("GPU:         2 devices: 2 of 2 layers, ") &&
                says("             1, simulated GPU: layers 1 to 1, "));
    assert_int_equal(sh("cmp cpu gpu"), 0);
    assert_int_equal(sh("$PI inspect --plan $M --device sim:0,1 >plan"), 0);
    assert_int_equal(sh("grep -q '^[0-9]* *gpu1 ' plan && grep -q ' send .* to gpu1$' plan &&"
                        "grep -q ' receive .* from gpu0$' plan"),
                     0);
}

/* Peer access: simulated devices reach each other in pairs. */
static void test_reaches(void **state) {
    (void)state;
    static const char *const order[] = {"\"devices\": [", "\"reaches\": [1]", "\"reaches\": [0]",
                                        "\"reaches\": []"};
    assert_int_equal(sh("$PI place -q --json -m $M --device sim:1,0,3 -ts 1,1,1"), 0);
    const char *at = shell_read("out", NULL);
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        const char *next = strstr(at, order[i]);
        if (!next) fail_msg("no %s in %s", order[i], at);
        at = next + strlen(order[i]);
    }
    assert_null(strstr(at, "\"reaches\""));
}

/* Budgets: none, less than the buffers, parts of the weights, all weights. */
static void test_budgets(void **state) {
    (void)state;
    char options[128];
    same_answer("--device sim -v");
    double weights = number_after("weights "), other = number_after("buffers ");
    other += number_after("KV cache ");
    same_answer("--device sim --vram-budget 0 -v");
    assert_false(says("gpu") || says("warning"));
    refused("--device sim --vram-budget 0.0001", "powerinfer: too little memory: simulated GPU: ");
    for (int quarters = 1; quarters <= 4; quarters++) {
        snprintf(options, sizeof options, "--device sim -v --vram-budget %.17g",
                 (other + weights * quarters / 4 + 1) / 1073741824);
        same_answer(options);
        double taken = number_after("weights ") + number_after("buffers ");
        taken += number_after("KV cache ");
        assert_true(taken > other / 2 && taken <= other + weights * quarters / 4 + 1);
        /* With a part of the weights the buffers are larger than with all: cold rows pass through
         * two tiles. */
        assert_true(number_after("weights ") >= weights * (quarters - 1.5) / 4);
    }
}

/* The first layer, or every layer, has no neurons: the minimum comes from another layer. */
static void test_budget_without_neurons(void **state) {
    (void)state;
    static const char *const names[] = {"mamba2-dense", "nemotron_h-dense"};
    char path[PATH_MAX], relative[64], line[2 * PATH_MAX];
    for (int i = 0; i < 2; i++) {
        snprintf(relative, sizeof relative, "conformance/more/%s.gguf", names[i]);
        if (!shared_path(path, sizeof path, relative)) return;
        snprintf(line, sizeof line,
                 "$PI bench -q -m %s -p 0 -n 1 -r 1 --device sim --vram-budget 0.001", path);
        assert_int_equal(sh(line), 1);
        assert_contains("err",
                        "powerinfer: too little memory: simulated GPU: the budget is 1.0 MiB, ");
    }
}

static void test_a_gpu_that_cannot_be_used(void **state) {
    (void)state;
    /* A named device must exist, in every command that computes. */
    static const char no_sim[] = "powerinfer: no backend sim: /nowhere: there is no "
                                 "libpowerinfer_sim" SHELL_LIBRARY "\n";
    refused("--device sim --backend-folder /nowhere", no_sim);
    refused("-q --device sim --backend-folder /nowhere", no_sim);
    refused("--device sim --backend-folder " TEST_BINARY_DIR "/old_backend",
            "powerinfer: backend of another version: ");
    static const char *const others[] = {"run -p ab -n 1", "bench -p 0 -n 1 -r 1",
                                         "perplexity -f ids -c 8", "inspect --plan"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        char line[256];
        snprintf(line, sizeof line, "$PI %s -m $M --device sim --backend-folder /nowhere",
                 others[i]);
        assert_int_equal(sh(line), 1);
        assert_out("");
        assert_true(says(no_sim));
    }
    /* Without a named device the CPU computes, with a message if a GPU was expected. */
    same_answer("--device auto -ngl 99 --backend-folder /nowhere");
    assert_true(says("warning: running on the CPU: "));
    same_answer("--device auto --backend-folder /nowhere");
    assert_false(says("GPU"));
    same_answer("-q --device auto -ngl 99 --backend-folder /nowhere");
    assert_err("");
    assert_int_equal(
        sh("POWERINFER_DEVICE=sim POWERINFER_BACKEND_FOLDER=/nowhere " EVAL "--logits-out logits"),
        1);
    assert_err(no_sim);
    assert_int_equal(sh(EVAL "--device gpu --logits-out logits"), 2);
    assert_int_equal(sh(EVAL "-ngl -2 --logits-out logits"), 2);
}

static void test_other_commands(void **state) {
    (void)state;
    assert_int_equal(sh("$PI run -m $M -p ab -n 4 --temp 0 --device cpu -q >cpu"), 0);
    assert_int_equal(sh("$PI run -m $M -p ab -n 4 --temp 0 --device sim -ngl 99 >gpu"), 0);
    assert_true(says("GPU:         simulated GPU: 2 of 2 layers, 100% of neurons, 0."));
    assert_int_equal(sh("cmp cpu gpu"), 0);
    assert_int_equal(sh("$PI inspect --plan $M --device sim -ngl 1"), 0);
    const char *text = shell_read("out", NULL);
    assert_true(strstr(text, " gpu ") && strstr(text, " cpu ") && strstr(text, " receive "));
    assert_int_equal(sh("$PI inspect --plan $M --device cpu"), 0);
    assert_null(strstr(shell_read("out", NULL), " gpu "));
    assert_int_equal(sh("$PI inspect --plan --device cpu --mode exact"), 0); /* the bundled model */
    assert_non_null(strstr(shell_read("out", NULL), "relu exact"));
    assert_int_equal(sh("$PI place -m $M --device sim --json"), 0);
    assert_non_null(strstr(shell_read("out", NULL), "\"head\": \"gpu\""));
    assert_int_equal(sh("$PI perplexity -m $M -f ids -c 8 --first 2 --device cpu -q >cpu && "
                        "$PI perplexity -m $M -f ids -c 8 --first 2 --device sim -ngl 1 -q >gpu "
                        "&& cut -c1-22 cpu >a && cut -c1-22 gpu >b && cmp a b"),
                     0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layers),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_several),
        cmocka_unit_test(test_reaches),
        cmocka_unit_test(test_budgets),
        cmocka_unit_test(test_budget_without_neurons),
        cmocka_unit_test(test_a_gpu_that_cannot_be_used),
        cmocka_unit_test(test_other_commands),
    };
    return cmocka_run_group_tests(tests, make_expected, shell_teardown);
}
