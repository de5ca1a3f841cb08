/* test_cli_prepare.c: the command prepare on the bundled model. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "cli_shell.h"
#include "os_file.h"

#define BUNDLED TEST_SOURCE_DIR "/models/novella-7m.q8_0.powerinfer.gguf"

static void test_command_lines(void **state) {
    (void)state;
    assert_wrong("$PI prepare",
                 "powerinfer: no input: prepare: name one, as in prepare IN -o FILE\n");
    assert_wrong("$PI prepare $M", "powerinfer: no output: prepare: name a file with -o\n");
    assert_wrong("$PI prepare $M -o o.gguf -q --predictor best",
                 "powerinfer: unknown predictor: best: choose auto, none, sign, lowrank or "
                 "relu_mlp\n");
    assert_int_equal(sh("cp $M a.gguf; $PI prepare --undo a.gguf -o o.gguf"), 1);
    assert_err("powerinfer: not a prepared model: a.gguf: nothing to undo\n");
    assert_wrong("$PI prepare a.gguf -o a.gguf",
                 "powerinfer: output is the input: a.gguf: give another name for the output\n");
    assert_int_equal(sh("$PI prepare -q missing.gguf -o o.gguf"), 1);
    assert_contains("err", "missing.gguf");
    assert_int_equal(sh("$PI prepare -q a.gguf -o o.gguf --calibration no.txt"), 1);
    assert_contains("err", "no.txt");
    assert_int_equal(sh(": >e.txt; $PI prepare -q a.gguf -o o.gguf --calibration e.txt"), 1);
    assert_contains("err", "powerinfer: the calibration text is empty: e.txt: ");
    assert_false(shell_has("o.gguf"));
    assert_int_equal(shell_temporaries(), 0);
}

/* The bundled text and model; answers in mode exact do not change. */
static void test_bundled(void **state) {
    (void)state;
    assert_int_equal(sh("$PI prepare " BUNDLED " -o p.gguf --json -q --predictor "
                        "none --calibration-tokens 2048"),
                     0);
    assert_err("");
    assert_true(shell_read("out", NULL)[0] == '{');
    static const char *const keys[] = {
        "\"layers\"",     "\"density\"",  "\"kind\"", "\"rank\"",
        "\"recall\"",     "\"selected\"", "\"kl\"",   "\"contribution_recall\"",
        "\"ppl_before\"", "\"ppl_after\""};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) assert_contains("out", keys[i]);
    assert_int_equal(sh("$PI run -m p.gguf -p 'The old man' -n 8 --temp 0 -q"), 0);
    assert_int_equal(sh("$PI prepare --undo p.gguf -o u.gguf"), 0);
    assert_out("");
    assert_int_equal(sh("$PI inspect u.gguf --json | grep -c powerinfer"), 1);
    assert_int_equal(sh("$PI prepare " BUNDLED " -o p.gguf --predictor none "
                        "--calibration-tokens 2048"),
                     0);
    assert_contains("out", "mode exact: perplexity ");
    assert_contains("out", "powerinfer prepare --undo p.gguf -o FILE");
    assert_contains("err", "calibrating on 2048 tokens in 4 windows of 512, 1 of them held out");
}

/* Bundles of neurons: a prepared file is rearranged and gives the same answers. */
static void test_bundles(void **state) {
    (void)state;
    assert_wrong("$PI prepare p.gguf --undo --bundle all -o o.gguf",
                 "powerinfer: incompatible options: prepare: --undo takes bundles apart: leave out "
                 "--bundle\n");
    assert_int_equal(sh("cp " BUNDLED " p.gguf; $PI prepare p.gguf --bundle all -o "
                        "b.gguf"),
                     0);
    assert_contains("err", "already prepared: only bundles change; use --calibration FILE");
    assert_contains("out", " MiB of them predictors\n");
    assert_int_equal(sh("$PI inspect b.gguf"), 0);
    assert_contains("out", "bundles       1024 bytes per neuron, 20.3% of them padding\n");
    assert_int_equal(
        sh("for m in p b; do $PI perplexity -m $m.gguf -q -c 64 --chunks 2 -f " TEST_SOURCE_DIR
           "/models/calibration.txt >$m.txt || exit 1; done; "
           "cmp p.txt b.txt"),
        0);
    assert_int_equal(sh("$PI prepare b.gguf --bundle none -o a.gguf -q --json"), 0);
    assert_contains("out", "\"layers\": []");
    assert_contains("out", "\"ppl_before\": null");
    assert_int_equal(sh("$PI prepare b.gguf --bundle some -o a.gguf"), 2);
    assert_contains("err", "expected one of keep, none, all");
}

static void test_interrupt(void **state) {
    (void)state;
    if (os_path_is_absolute("C:\\")) skip(); /* Windows: another program cannot send Ctrl-C */
    assert_int_equal(sh("$PI prepare -q --undo " BUNDLED " -o plain.gguf"), 0);
    /* stops the program as soon as it has an unfinished file in this folder, with or without a
     * name: by then it handles the signal, which its shell ignores */
    assert_int_equal(sh("$PI prepare -q plain.gguf -o i.gguf --type q4_0 "
                        "--calibration-tokens 65536 & "
                        "until ls -l /proc/$!/fd | grep -q \"$PWD/.*\\(tmp\\|(deleted)\\)$\" || "
                        "! kill -0 $!; do sleep 0.1; done; "
                        "kill -INT $!; wait $!"),
                     130);
    assert_int_equal(shell_temporaries(), 0);
    assert_false(shell_has("i.gguf"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_command_lines),
        cmocka_unit_test(test_bundled),
        cmocka_unit_test(test_bundles),
        cmocka_unit_test(test_interrupt),
    };
    return cmocka_run_group_tests_name("cli_prepare", tests, shell_setup, shell_teardown);
}
