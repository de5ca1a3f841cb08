/* test_cli_recurrent.c: commands on models with recurrent layers: prompts with a common prefix,
 * full contexts, turns of a chat, preparing, and GPU options. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli_shell.h"
#include "recurrent_model.h"

#define MODEL TEST_BINARY_DIR "/test_cli_recurrent.gguf"
#define RUN   "$PI run -m " MODEL " --temp 0 --ignore-eos "

#define PREPARE "$PI prepare " MODEL " -o ready.gguf --calibration text --calibration-tokens 1024"

/* The second run evaluates only the last token and gives the same text. */
static void test_prompt_cache(void **state) {
    (void)state;
    for (int i = 0; i < RECURRENT_ARCHS; i++) {
        recurrent_write(recurrent_archs[i], NULL, MODEL);
        assert_int_equal(sh("rm -f cache; " RUN "-q -p 'abcabcabc' -n 8 >plain"), 0);
        assert_int_equal(sh(RUN "-p 'abcabcabc' -n 8 --prompt-cache cache >first"), 0);
        assert_int_equal(sh(RUN "-p 'abcabcabc' -n 8 --prompt-cache cache >second"), 0);
        assert_contains("err", "prompt cache: 10 of 11 tokens\n");
        assert_int_equal(sh("cmp plain first && cmp plain second"), 0);
        assert_int_equal(sh(RUN "-q -p 'abcabcabcdef' -n 8 >plain"), 0);
        assert_int_equal(sh(RUN "-p 'abcabcabcdef' -n 8 --prompt-cache cache >longer"), 0);
        assert_contains("err", "prompt cache: 10 of 14 tokens\n");
        assert_int_equal(sh("cmp plain longer"), 0);
        /* The common prefix has no snapshot. */
        assert_int_equal(sh(RUN "-q -p 'abcdabcdabcd' -n 8 >plain"), 0);
        assert_int_equal(sh(RUN "-p 'abcdabcdabcd' -n 8 --prompt-cache cache >other"), 0);
        assert_contains("err", "prompt cache: 0 of 14 tokens\n");
        assert_int_equal(sh("cmp plain other"), 0);
    }
}

/* The kept tokens are evaluated again. */
static void test_context_shift(void **state) {
    (void)state;
    recurrent_write("qwen35", NULL, MODEL);
    assert_int_equal(sh(RUN "-q -p 'abcabc' -n 60 -c 24 --context-shift --keep 4 >all"), 0);
    assert_int_equal(sh(RUN "-q -p 'abcabc' -n 60 -c 24 --context-shift --keep 4 -b 1 >again"), 0);
    assert_int_equal(sh("cmp all again && test $(wc -c <all) -ge 60"), 0);
}

/* The second turn continues at the end of the first prompt or of its answer. */
static void test_chat(void **state) {
    (void)state;
    recurrent_write("lfm2", NULL, MODEL);
    assert_int_equal(sh("printf 'ab\\n/regen\\ncd\\n' | $PI chat -q -m " MODEL
                        " --chat-template chatml "
                        "--temp 0 --ignore-eos -c 512 -n 4 --json"),
                     0);
    const char *at = shell_read("out", NULL);
    long n_first = 0;
    for (int line = 0; line < 3; line++) {
        const char *prompt = strstr(at, "\"prompt_tokens\":"),
                   *cached = strstr(at, "\"cached_tokens\":");
        assert_true(prompt != NULL && cached != NULL);
        long n_prompt = strtol(prompt + 16, NULL, 10), n_cached = strtol(cached + 16, NULL, 10);
        if (line == 0) n_first = n_prompt;
        if (line == 0) assert_int_equal(n_cached, 0);
        if (line == 1) assert_int_equal(n_cached, n_prompt - 1);
        if (line == 2) assert_in_range(n_cached, n_first - 1, n_prompt - 1);
        at = strchr(at, '\n') + 1;
    }
}

/* FFNs of models with recurrent layers have neurons to sort and to skip, also where only some
 * layers have an FFN; a model without FFNs is refused. */
static void test_prepare(void **state) {
    (void)state;
    assert_int_equal(sh("yes 'some words to read' | head -n 400 >text"), 0);
    const recurrent_keys relu = {.relu = true};
    static const char *const archs[] = {"lfm2", "plamo2", "nemotron_h", "nemotron_h_moe"};
    for (int i = 0; i < 4; i++) {
        recurrent_write(archs[i], i < 2 ? &relu : NULL, MODEL);
        assert_int_equal(sh(PREPARE), 0);
        assert_int_equal(sh(RUN "-q -p abc -n 12 >plain"), 0);
        assert_int_equal(sh("$PI run -m ready.gguf --temp 0 --ignore-eos -q -p abc -n 12 "
                            "--mode exact >ready && cmp plain ready"),
                         0);
    }
    recurrent_write("mamba2", NULL, MODEL);
    assert_int_equal(sh(PREPARE), 1);
    assert_contains("err", "cannot be prepared yet: ");
    assert_contains("err", ": no layer has an FFN: run the file as it is\n");
}

static void test_device(void **state) {
    (void)state;
    recurrent_write("mamba2", NULL, MODEL);
    assert_int_equal(sh("$PI place -m " MODEL " --vram-budget 1 --profile rtx-3060-ddr4"), 0);
    assert_contains("out", "budget 1024.0 MiB");
    assert_contains("out", "tokens/s");
    assert_int_equal(sh("$PI inspect " MODEL), 0);
    assert_contains("out", " in recurrent layers, whatever the context\n");
    assert_int_equal(sh("$PI inspect --plan " MODEL), 0);
    assert_contains("out", "recurrent state of a session: ");
    assert_contains("out", " SSM, 4 heads [8, 8]");
}

/* Experts that are not whole int8 groups stay on the CPU; attention may be on the GPU. */
static void test_not_supported(void **state) {
    (void)state;
    static const char why[] =
        "layers 0 to 2: experts on the CPU: the GPU does not support experts of this size\n";
    recurrent_write("qwen3next", NULL, MODEL);
    assert_int_equal(sh("$PI place -m " MODEL " --vram-budget 1 --profile rtx-3060-ddr4"), 0);
    assert_contains("out", why);
    assert_int_equal(sh("$PI inspect --plan --device sim " MODEL), 0);
    assert_contains("out", why);
    assert_contains("out", "gpu ");
    assert_int_equal(sh(RUN "-v -p abc -n 12 --device sim >sim"), 0);
    assert_contains("err", why);
    assert_contains("err", "3 of 3 layers");
    assert_int_equal(sh(RUN "-q -p abc -n 12 --device cpu >cpu && cmp sim cpu"), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prompt_cache), cmocka_unit_test(test_context_shift),
        cmocka_unit_test(test_chat),         cmocka_unit_test(test_prepare),
        cmocka_unit_test(test_device),       cmocka_unit_test(test_not_supported),
    };
    return cmocka_run_group_tests_name("cli_recurrent", tests, shell_setup, shell_teardown);
}
