/* test_cli_perplexity.c: the command perplexity: JSON, text, base runs, and one message for input
 * that cannot be scored. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli_shell.h"

#define RUN "$PI perplexity -q -m $M "

static void write_text(const char *name) {
    char many[2000];
    size_t n = 0;
    while (n + 40 < sizeof many)
        n += (size_t)snprintf(many + n, sizeof many - n, "line %zu of a tale\n", n);
    shell_write(name, many, n);
}

static double number_after(const char *name, const char *key) {
    const char *all = shell_read(name, NULL), *at = strstr(all, key);
    if (!at) fail_msg("no %s in: %s", key, all);
    return strtod(at + strlen(key), NULL);
}

/* Expects status 1, exactly this message, and nothing on standard output. */
static void fails(const char *line, const char *message) {
    assert_int_equal(sh(line), 1);
    assert_err(message);
    assert_out("");
}

static void test_json(void **state) {
    (void)state;
    write_text("text");
    assert_int_equal(sh(RUN "-f text -c 32 --json"), 0);
    assert_err("");
    assert_int_equal(strncmp(shell_read("out", NULL), "{\n  \"tokens\": ", 14), 0);
    double tokens = number_after("out", "\"tokens\": ");
    assert_true(tokens > 0 && (int)tokens % 31 == 0);
    assert_true(number_after("out", "\"nll\": ") > 1);
    assert_true(number_after("out", "\"perplexity\": ") > 3);
    assert_true(number_after("out", "\"stderr\": ") > 0);
    assert_null(strstr(shell_read("out", NULL), "kl"));
    assert_int_equal(sh(RUN "-f text -c 32 --json >all; " RUN "-f text -c 32 --json --first 3"), 0);
    assert_int_equal((int)number_after("out", "\"tokens\": "), 93);
    /* Other ways to pass the text give the same results. */
    assert_int_equal(sh("cat text | " RUN "-c 32 --json"), 0);
    assert_int_equal(sh("cat text | " RUN "-f - --ctx-size 32 --json >o; cmp o all"), 0);
    assert_int_equal(sh("POWERINFER_FILE=text POWERINFER_CTX_SIZE=32 " RUN "--json >o; cmp o all"),
                     0);
    assert_int_equal(sh(RUN "-f text -c 32 --chunks 3 --llama-windows --json"), 0);
    assert_int_equal((int)number_after("out", "\"tokens\": "), 3 * 15);
    /* Overlapping windows of 32 + 2 tokens; 4 of each are scored. */
    assert_int_equal(sh(RUN "-f text -c 32 --ppl-stride 4 --first 5"), 0);
    assert_contains("out", "tokens scored     20 in 5 windows of 34\n");
    /* The text names the scored tokens, and the option to compare with llama-perplexity. */
    assert_int_equal(sh(RUN "-f text -c 32 --first 3"), 0);
    assert_contains("out",
                    "scored            all but the first token of a window; llama-perplexity");
    assert_contains("out", "use --llama-windows to compare with it\n");
    assert_int_equal(sh(RUN "-f text -c 32 --first 3 --llama-windows"), 0);
    assert_contains("out",
                    "scored            as llama-perplexity: the second half of each window\n");
    assert_int_equal(sh(RUN "-f text -c 32 --ppl-stride 4 --llama-windows"), 2);
    assert_err("powerinfer: --ppl-stride with --llama-windows: perplexity: give one of them\n");
    /* 0: the context of the training, 64 here */
    assert_int_equal(sh(RUN "-f text -c 0 --first 1 --json"), 0);
    assert_int_equal((int)number_after("out", "\"tokens\": "), 63);
}

static void test_text_and_progress(void **state) {
    (void)state;
    write_text("text");
    assert_int_equal(sh("$PI perplexity -m $M -f text -c 16"), 0);
    assert_int_equal(strncmp(shell_read("out", NULL), "perplexity  ", 12), 0);
    assert_contains("out", " windows of 16\n");
    assert_null(strchr(shell_read("err", NULL), '%')); /* short runs print no progress */
    assert_int_equal(sh("$PI perplexity -m $M -f text -c 100 --first 1"), 0);
    assert_contains("err", "windows of 100 tokens are longer than the 64 the model was trained "
                           "for\n");
}

static void test_base_runs(void **state) {
    (void)state;
    write_text("text");
    assert_int_equal(sh(RUN "-f text -c 32 --first 9 --kl-divergence-base base --json"), 0);
    assert_null(strstr(shell_read("out", NULL), "kl"));
    double nll = number_after("out", "\"nll\": ");
    assert_int_equal(sh(RUN "--kl-divergence-base base --kl-divergence --json"), 0);
    assert_true(number_after("out", "\"nll\": ") == nll);
    assert_true(number_after("out", "\"mean\": ") < 1e-7);
    assert_true(number_after("out", "\"max\": ") < 1e-7);
    assert_true(number_after("out", "\"top1\": ") == 1);
    assert_int_equal(sh(RUN "-f text --kl-divergence-base base --kl-divergence"), 0);
    assert_contains("out", "\nsame top-1 token  100.000%\n");
    assert_wrong(
        RUN "-c 33 --kl-divergence-base base --kl-divergence",
        "powerinfer: the base run has other windows: base: it was made with 32 tokens, not as "
        "llama.cpp's\n");
    fails(RUN "--kl-divergence-base text --kl-divergence",
          "powerinfer: not a base run: text: write one first\n");
    assert_int_equal(sh("head -c 5000 base >cut"), 0);
    assert_int_equal(sh(RUN "--kl-divergence-base cut --kl-divergence"), 1);
    assert_contains("err", "powerinfer: base run is damaged: cut: 5000 ");
    fails(RUN "-f text -c 32 --kl-divergence-base nofolder/base",
          "powerinfer: cannot create file: nofolder/base: No such file or directory\n");
    assert_int_equal(shell_temporaries(), 0);
    assert_int_equal(sh(RUN "--kl-divergence"), 2);
    assert_err(
        "powerinfer: no base run: --kl-divergence: give its file with --kl-divergence-base\n");
}

static void test_texts_that_cannot_be_scored(void **state) {
    (void)state;
    shell_write("short", "a b c", 5);
    fails(RUN "-f short",
          "powerinfer: the text is too short: perplexity: it has 7 tokens, a window 512: give a "
          "longer text or smaller windows\n");
    fails(RUN "-f /dev/null",
          "powerinfer: the text is empty: perplexity: give a text of at least one window\n");
    fails(RUN, "powerinfer: the text is empty: perplexity: give a text of at least one window\n");
    fails(RUN "-f nowhere", "powerinfer: cannot open file: nowhere: No such file or directory\n");
    fails(RUN "-f $M", "powerinfer: not a text: byte 5 is NUL: give a file of UTF-8 text\n");
    fails("printf 'caf\\351 au lait' | " RUN "-c 4",
          "powerinfer: not a text: byte 3 is not UTF-8: give a file of UTF-8 text\n");
    assert_wrong(RUN "-f short -c 1",
                 "powerinfer: windows of 1 tokens are too small: perplexity: use 2 or more\n");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_text_and_progress),
        cmocka_unit_test(test_base_runs),
        cmocka_unit_test(test_texts_that_cannot_be_scored),
    };
    return cmocka_run_group_tests_name("cli_perplexity", tests, shell_setup, shell_teardown);
}
