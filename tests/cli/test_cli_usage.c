/* test_cli_usage.c: help, wrong command lines, the environment, tokenize, inspect: everything that
 * does not generate. Messages are compared as they are printed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli_shell.h"

#define MODEL "$PI tokenize -m $M "

static void test_version_and_help(void **state) {
    (void)state;
    assert_int_equal(sh("$PI --version"), 0);
    assert_out("powerinfer 0.1.0\n");
    assert_err("");
    assert_int_equal(sh("$PI --help"), 0);
    assert_err("");
    static const char *const commands[] = {"run",     "eval",    "tokenize", "bench",
                                           "inspect", "convert", "synth",    "template"};
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        char text[64], line[64];
        snprintf(text, sizeof text, "\n  %-10s ", commands[i]);
        assert_contains("out", text);
        snprintf(line, sizeof line, "$PI %s --help >help; $PI help %s >help2", commands[i],
                 commands[i]);
        assert_int_equal(sh(line), 0);
        assert_int_equal(sh("cmp help help2"), 0);
        snprintf(text, sizeof text, "usage: powerinfer %s ", commands[i]);
        assert_contains("help", text);
        assert_contains("help", "POWERINFER_");
        sh("$PI --help");
    }
    assert_null(strstr(shell_read("out", NULL), "\n  chat "));
    assert_int_equal(sh("$PI run --help"), 0);
    assert_contains("out", "-n, --predict, --n-predict N");
    assert_contains("out", "(default 0.8)");
    assert_int_equal(sh("$PI"), 2);
    assert_out("");
    assert_contains("err", "usage: powerinfer COMMAND");
}

static void test_unknown_commands(void **state) {
    (void)state;
    assert_wrong("$PI rum", "powerinfer: unknown command: rum: did you mean run?\n");
    assert_wrong("$PI frobnicate",
                 "powerinfer: unknown command: frobnicate: see powerinfer --help\n");
    assert_wrong("$PI chat -m x",
                 "powerinfer: not in this version: chat: see powerinfer --help for what is\n");
    assert_wrong("$PI help serve",
                 "powerinfer: not in this version: serve: see powerinfer --help for what is\n");
    assert_wrong("$PI -m x",
                 "powerinfer: no command: -m: name a command first, such as powerinfer run "
                 "-m\n");
}

static void test_wrong_options(void **state) {
    (void)state;
    assert_wrong("$PI run --tmep 1", "powerinfer: unknown option: --tmep: did you mean --temp?\n");
    assert_wrong("$PI run --frobnicate",
                 "powerinfer: unknown option: --frobnicate: see powerinfer run --help\n");
    assert_wrong("$PI tokenize --temp 1",
                 "powerinfer: unknown option: --temp: see powerinfer tokenize --help\n");
    assert_wrong("$PI run -n", "powerinfer: value is missing: -n: give N after it\n");
    assert_wrong("$PI run -n 1x",
                 "powerinfer: \"1x\" is not a whole number in range: -n: give -1 to "
                 "2147483647\n");
    assert_wrong("$PI run -t 513 -p a",
                 "powerinfer: \"513\" is not a whole number in range: -t: give 0 to 512\n");
    assert_wrong("$PI run --top-p=1.5",
                 "powerinfer: \"1.5\" is not a number in range: --top-p: give 0 to 1\n");
    assert_wrong("$PI run --temp nan",
                 "powerinfer: \"nan\" is not a number in range: --temp: give a number\n");
    assert_wrong("$PI run -ctk q4_0",
                 "powerinfer: \"q4_0\" is unknown: -ctk: choose from f16, f32, q8_0\n");
    assert_wrong("$PI run --json=perhaps",
                 "powerinfer: \"perhaps\" is neither on nor off: --json: give 1 or 0\n");
    assert_wrong("$PI run hello",
                 "powerinfer: unexpected argument: hello: see powerinfer run --help\n");
    assert_wrong("$PI run -p a -f b", "powerinfer: two prompts: -p and -f: give one of them\n");
    assert_wrong("$PI bench -p 512,x",
                 "powerinfer: \"512,x\" is not a list of whole numbers in range: -p: "
                 "give numbers like 512,128\n");
    assert_wrong(
        "$PI synth -o x --skew 2:1",
        "powerinfer: \"2:1\" is not a pair in range: --skew: give two numbers of 0 to 1, like "
        "0.26:0.8\n");
    assert_wrong(
        "$PI run --mode fast",
        "powerinfer: \"fast\" is unknown: --mode: choose from auto, dense, exact, predict, "
        "threshold\n");
    assert_wrong("$PI eval", "powerinfer: no token ids: eval: name a file with --tokens\n");
    assert_wrong("$PI eval --tokens x",
                 "powerinfer: no output: eval: name a file with --logits-out\n");
    assert_wrong("$PI convert -o x",
                 "powerinfer: no folder: convert: name one, as in convert DIR -o FILE\n");
    assert_wrong("$PI convert x", "powerinfer: no output: convert: name a file with -o\n");
    assert_wrong("$PI synth", "powerinfer: no output: synth: name a file with -o\n");
}

static void test_features_of_later_versions(void **state) {
    (void)state;
    assert_wrong(
        "$PI eval --device gpu",
        "powerinfer: \"gpu\" is unknown: --device: choose from auto, cpu, cuda, hip, sim\n");
    assert_wrong("$PI run --mirostat 3",
                 "powerinfer: \"3\" is not a whole number in range: --mirostat: give 0 to 2\n");
    assert_wrong(
        "$PI run -p a -l 5",
        "powerinfer: \"5\" is no token and bias: --logit-bias: give an id, a sign and a number, "
        "such as 15043+1 or 15043-inf\n");
    assert_wrong("$PI run -p a -r ''",
                 "powerinfer: the text is empty: --reverse-prompt: give the text to end at\n");
    assert_wrong("$PI run -j '{}'", "powerinfer: not in this version: -j: leave the option out\n");
}

static void test_environment(void **state) {
    (void)state;
    assert_wrong("POWERINFER_TOP_K=x $PI run -p a",
                 "powerinfer: \"x\" is not a whole number in range: POWERINFER_TOP_K: give -1 to "
                 "2147483647\n");
    assert_int_equal(sh("POWERINFER_MODEL=$M $PI tokenize --ids -p ab"), 0);
    assert_out("259 260 261\n");
    assert_int_equal(sh("POWERINFER_MODEL=/nowhere " MODEL "--ids -p ab"), 0);
    assert_out("259 260 261\n");
    assert_int_equal(sh("POWERINFER_IDS=1 POWERINFER_PROMPT=ab " MODEL), 0);
    assert_out("259 260 261\n");
    assert_int_equal(sh("POWERINFER_IDS=off POWERINFER_TOP_K=x POWERINFER_PRE= " MODEL "-p a"), 0);
    assert_out("   259 -> ' '\n   260 -> 'a'\n");
    assert_int_equal(sh("POWERINFER_PROMPT=zz " MODEL "--ids -p ab"), 0);
    assert_out("259 260 261\n");
}

static void test_tokenize(void **state) {
    (void)state;
    assert_int_equal(sh(MODEL "--ids --bos -p 'ab c'"), 0);
    assert_out("1 259 260 261 259 262\n");
    assert_int_equal(sh("printf 'ab\\n' | " MODEL "--ids --stdin"), 0);
    assert_out("259 260 261 13\n"); /* byte for byte: the newline counts */
    assert_int_equal(sh(MODEL "--ids -p 'a\\n'"), 0);
    assert_out("259 260 95 273\n"); /* likewise in -p: a backslash and an n */
    assert_int_equal(sh("printf '' | " MODEL "--ids"), 0);
    assert_out("\n");
    assert_int_equal(sh(MODEL "--ids -p '</s>'"), 0);
    assert_out("259 63 50 278 65\n"); /* plain text */
    assert_int_equal(sh(MODEL "--ids --special -p 'a</s>'"), 0);
    assert_out("259 260 2\n");
    assert_int_equal(sh(MODEL "-p \"a'\""), 0);
    assert_out("   259 -> ' '\n   260 -> 'a'\n    42 -> '\\''\n");
    assert_int_equal(sh("printf '\\377' | " MODEL), 0);
    assert_out("   259 -> ' '\n   258 -> '\\xFF'\n");
    assert_wrong(MODEL "-p a --stdin", "powerinfer: two texts: -p and --stdin: give one of them\n");
}

static void test_detokenize(void **state) {
    (void)state;
    assert_int_equal(sh(MODEL "--detok -p '259 260 261 259 262'"), 0);
    assert_out("ab c");
    assert_int_equal(sh("printf ' 260\\n\\t261\\n' | " MODEL "--detok"), 0);
    assert_out("ab");
    assert_int_equal(sh(MODEL "--detok -p '260 2'"), 0);
    assert_out("a");
    assert_int_equal(sh(MODEL "--detok --special -p '260 2'"), 0);
    assert_out("a</s>");
    assert_int_equal(sh("printf '\\303\\266\\001\\377x' >text; " MODEL "--ids <text | " MODEL
                        "--detok | cmp - text"),
                     0);
    assert_int_equal(sh(MODEL "--detok -p '260 x'"), 1);
    assert_err("powerinfer: \"x\" is not a token id: -p, line 1: give whole numbers separated by "
               "white space\n");
    assert_int_equal(sh("printf '1\\n286' | " MODEL "--detok"), 1);
    assert_err("powerinfer: token id 286 is outside the vocabulary: standard input, line 2: this "
               "model has ids 0 to 285\n");
    assert_out("");
}

static void test_files_that_are_not_there(void **state) {
    (void)state;
    assert_int_equal(sh("$PI run -m nowhere.gguf -p a"), 1);
    assert_contains("err", "nowhere.gguf: No such file or directory\n");
    assert_int_equal(sh("$PI run -m $M -f nowhere.txt"), 1);
    assert_contains("err", "nowhere.txt: No such file or directory\n");
    assert_int_equal(sh("$PI inspect nowhere.gguf"), 1);
    assert_out("");
    assert_int_equal(sh("printf 'GGUF but not really, and long enough' >bad.gguf; "
                        "$PI run -m bad.gguf -p a"),
                     1);
    assert_contains("err", "bad.gguf");
    assert_int_equal(sh("mkdir lonely; cp $PI lonely/; lonely/powerinfer run -p a"), 1);
    assert_err("powerinfer: no model given and the bundled one is missing: "
               "novella-7m.q8_0.powerinfer.gguf "
               "beside the program: give one with -m FILE\n");
}

static void test_bundled_model_is_found(void **state) {
    (void)state;
    assert_int_equal(sh("mkdir -p built/bin built/models && cp $PI built/bin/ && "
                        "cp $M built/models/novella-7m.q8_0.powerinfer.gguf && cd / && "
                        "\"$OLDPWD\"/built/bin/powerinfer tokenize --ids -p ab"),
                     0);
    assert_out("259 260 261\n");
    assert_int_equal(sh("mkdir -p used/bin used/share/powerinfer/models && cp $PI used/bin/ && "
                        "cp $M used/share/powerinfer/models/novella-7m.q8_0.powerinfer.gguf && "
                        "PATH=$PWD/used/bin powerinfer tokenize --ids -p ab"),
                     0);
    assert_out("259 260 261\n");
}

static void test_output_that_cannot_be_written(void **state) {
    (void)state;
    static const char *const lines[] = {MODEL "-p a >/dev/full", "$PI --version >/dev/full",
                                        "$PI run --help >/dev/full",
                                        "$PI inspect --devices --json >/dev/full"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        assert_int_equal(sh(lines[i]), 1);
        assert_err("powerinfer: writing failed: standard output: No space left on device\n");
    }
    assert_int_equal(sh("$PI --version >&-"), 1);
    assert_err("powerinfer: writing failed: standard output: Bad file descriptor\n");
    /* A reader that has gone is no news. */
    assert_int_equal(sh("mkfifo pipe; (exec 3<pipe; exec 3<&-) & exec 4>pipe; wait; "
                        "$PI --version >&4"),
                     1);
    assert_err("");
}

static void test_inspect(void **state) {
    (void)state;
    assert_int_equal(sh("$PI inspect --devices"), 0);
    assert_int_equal(strncmp(shell_read("out", NULL), "cpu: ", 5), 0);
    assert_contains("out", "\ncuda");
    assert_int_equal(sh("$PI inspect --devices --backend-folder /nowhere"), 0);
    assert_contains("out", "\nsim: no backend sim: /nowhere: there is no libpowerinfer_sim.so\n");
    assert_int_equal(sh("$PI inspect -m $M"), 0);
    assert_contains("out", "llama");
    assert_int_equal(sh("$PI inspect $M >one; $PI inspect -m $M >two; cmp one two"), 0);
    assert_wrong("$PI inspect a -m b", "powerinfer: two files: a and -m b: give one of them\n");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_version_and_help),
        cmocka_unit_test(test_unknown_commands),
        cmocka_unit_test(test_wrong_options),
        cmocka_unit_test(test_features_of_later_versions),
        cmocka_unit_test(test_environment),
        cmocka_unit_test(test_tokenize),
        cmocka_unit_test(test_detokenize),
        cmocka_unit_test(test_files_that_are_not_there),
        cmocka_unit_test(test_bundled_model_is_found),
        cmocka_unit_test(test_output_that_cannot_be_written),
        cmocka_unit_test(test_inspect),
    };
    return cmocka_run_group_tests(tests, shell_setup, shell_teardown);
}
