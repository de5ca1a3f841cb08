/* test_cli_speculate.c: options of speculative decoding: every kind of drafts gives the same text,
 * in run and in chat, with full contexts and stop texts; the report; refusals. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli_shell.h"
#include "cli_test_model.h"
#include "recurrent_model.h"
#include "tiny_model.h"

/* Scalar kernels: steps of at most eight tokens give the same bits as steps of one. */
#define RUN "$PI run -m $M --kernels scalar -ctk f32 -ctv f32 "

static const char *const drafts[] = {
    "--spec ngram --draft-max 7", "--spec ngram --draft-min 2 --draft-max 5",
    "-md $M --draft-max 7",       "--spec draft -md $M --draft 4 --draft-min 4 -ctkd f32",
    "--spec auto --draft-max 3",  "--spec off -md nowhere.gguf",
};
enum { N_DRAFTS = sizeof drafts / sizeof *drafts };

static void same_text(const char *options) {
    char line[1024];
    snprintf(line, sizeof line, RUN "-q %s >plain", options);
    assert_int_equal(sh(line), 0);
    for (int i = 0; i < N_DRAFTS; i++) {
        snprintf(line, sizeof line, RUN "-q %s %s >drafted && cmp plain drafted", options,
                 drafts[i]);
        if (sh(line) != 0) fail_msg("another text: %s %s", options, drafts[i]);
    }
}

static void test_same_text(void **state) {
    (void)state;
    same_text("-p abcabcabcabc -n 30 --temp 0");
    same_text("-p abcabcabcabc -n 30 -s 3 --temp 1.2 --ignore-eos --repeat-penalty 1.1");
    same_text("-p abcabcabcabc -n 40 -s 3 --top-k 4 --ignore-eos -c 24 --context-shift --keep 3");
    same_text("-p abcabc --temp 0 --ignore-eos -c 32"); /* to the end of the context */
    same_text("-p abcabc -n 20 --grammar 'root ::= (\"ab\" | \"c\")+ \"d\"' -s 4");
    same_text("-p abcabc -n 1 -s 4");
    same_text("-p abcabc -n 0");
}

/* A stop text within a draft, and the session afterwards. */
static void test_stops_and_caches(void **state) {
    (void)state;
    same_text("-p aaaa -n 30 --temp 0 --ignore-eos -r a -r e -r i");
    assert_int_equal(sh("rm -f one two; " RUN "-q -p abcabc -n 12 --temp 0 --ignore-eos "
                        "--prompt-cache one --prompt-cache-all"),
                     0);
    assert_int_equal(sh(RUN "-q -p abcabc -n 12 --temp 0 --ignore-eos --prompt-cache two "
                            "--prompt-cache-all --spec draft -md $M --draft-min 5 --draft-max 5"),
                     0);
    assert_int_equal(sh(RUN "-p abcabc -n 4 --temp 0 --prompt-cache two >a && " RUN
                            "-p abcabc -n 4 --temp 0 --prompt-cache one >b && cmp a b"),
                     0);
}

static void test_chat(void **state) {
    (void)state;
    static const char line[] =
        "printf 'abab\\n/regen\\ncd\\n' | $PI chat -q -m $M --kernels scalar "
        "--chat-template chatml --ignore-eos -c 512 -n 12 -s 2 ";
    char all[1024];
    for (int i = 0; i < N_DRAFTS; i++) {
        snprintf(all, sizeof all, "%s >plain; %s %s >drafted; cmp plain drafted", line, line,
                 drafts[i]);
        if (sh(all) != 0) fail_msg("another conversation: %s", drafts[i]);
    }
}

/* The model drafts for itself: all drafted tokens are accepted. */
static void test_report(void **state) {
    (void)state;
    assert_int_equal(sh(RUN "-p abc -n 21 --temp 0 --ignore-eos --spec draft -md $M --draft-min 4 "
                            "--draft-max 4"),
                     0);
    assert_contains("err", "speculation: 20 tokens in 4 steps, 16 of 16 drafted accepted\n");
    assert_int_equal(sh(RUN "-p abc -n 21 --temp 0 --ignore-eos --spec draft -md $M --draft-min 4 "
                            "--draft-max 4 --json"),
                     0);
    assert_contains("out", "\"steps\": 4,\n");
    assert_contains("out", "\"draft_n\": 16,\n");
    assert_contains("out", "\"draft_n_accepted\": 16\n");
    assert_int_equal(sh(RUN "-p abc -n 5 --json"), 0);
    assert_null(strstr(shell_read("out", NULL), "draft_n"));
    assert_null(strstr(shell_read("err", NULL), "speculation"));
}

static void test_refused(void **state) {
    (void)state;
    assert_wrong(RUN "-p a --spec draft",
                 "powerinfer: no draft model: --spec draft: give one with -md FILE\n");
    assert_wrong(RUN "-p a --spec ngram --draft-min 5 --draft-max 4",
                 "powerinfer: out of range: --draft-min 5: --draft-max is 4\n");
    assert_wrong(RUN "-p a --draft-max -3",
                 "powerinfer: invalid value: --draft-max \"-3\": expected an integer from 1 to "
                 "64\n");
    assert_wrong(RUN "-p a --draft-p-min 2",
                 "powerinfer: invalid value: --draft-p-min \"2\": expected a number from 0 to 1\n");
    assert_wrong(RUN "-p a --spec maybe",
                 "powerinfer: invalid value: --spec \"maybe\": expected one of off, ngram, draft, "
                 "auto, self, mtp, eagle3\n");
    assert_wrong(RUN "-p a --spec eagle3",
                 "powerinfer: no head that drafts: --spec eagle3: give its file with -md FILE\n");
    assert_int_equal(sh(RUN "-p a --spec mtp"), 1);
    assert_contains("err", "no layers for multi-token prediction");
    assert_wrong(
        RUN "-p a --spec self -md $M",
        "powerinfer: two drafters: --spec self: the model drafts for itself: leave out -md "
        "or -hfd, or --spec\n");
    assert_wrong(RUN "-p a --spec self --mode predict",
                 "powerinfer: incompatible options: --spec self drafts with loss and verifies "
                 "without: leave out --mode predict or threshold, --head predict and "
                 "--attn-blocks\n");
    assert_wrong(RUN "-p a --spec self --head predict",
                 "powerinfer: incompatible options: --spec self drafts with loss and verifies "
                 "without: leave out --mode predict or threshold, --head predict and "
                 "--attn-blocks\n");
    assert_int_equal(sh(RUN "-p a --spec self"), 1);
    assert_contains("err", "no data for drafts: --spec self: the model has neither predictors nor "
                           "thresholds; `powerinfer prepare` adds them");
    assert_int_equal(sh(RUN "-p a -n 2 -md nowhere.gguf"), 1);
    assert_contains("err", "cannot open file: nowhere.gguf: ");
    assert_int_equal(sh("$PI synth -q -o other.gguf --shape tiny && " RUN "-p a -md other.gguf"),
                     2);
    assert_contains("err", "vocabularies differ: draft model: ");
    assert_int_equal(sh("$PI serve -m $M --port 0 --spec draft"), 2);
    assert_contains("err", "no draft model: --spec draft");
}

/* Drafts of the bundled model in mode predict give the text of mode exact, also when some are
 * rejected. */
static void test_self(void **state) {
    (void)state;
    static const char *const options[] = {"--temp 0", "-s 3 --temp 1.5 --ignore-eos"};
    for (int i = 0; i < 2; i++) {
        char line[1024];
        snprintf(line, sizeof line,
                 "run='$PI run --kernels scalar -ctk f32 -ctv f32 -p Once -n 60 %s'; "
                 "eval \"$run --mode exact -q\" >plain && "
                 "eval \"$run --spec self --draft-min 4 --draft-max 4\" >drafted && "
                 "cmp plain drafted",
                 options[i]);
        if (sh(line) != 0) fail_msg("%s: %s", options[i], shell_read("err", NULL));
        assert_contains("err", "mode:        exact: lossless\n");
        assert_contains("err", "speculation: ");
        assert_null(strstr(shell_read("err", NULL), " 0 of "));
    }
}

/* Rejected drafts rewind the recurrent states of the model and of a recurrent draft model. */
static void test_recurrent(void **state) {
    (void)state;
    static const char path[] = TEST_BINARY_DIR "/test_cli_speculate.gguf";
    static const char *const options[] = {"--temp 0", "-s 5 --temp 1.2"};
    char line[1024];
    for (int i = 0; i < RECURRENT_ARCHS; i++) {
        recurrent_write(recurrent_archs[i], NULL, path);
        for (int k = 0; k < 2; k++) {
            snprintf(
                line, sizeof line,
                "run='$PI run -p abcabc -n 8 --ignore-eos %s -m %s'; eval \"$run -q\" >plain && "
                "eval \"$run --spec ngram --draft-min 3\" >ngram && cmp plain ngram && "
                "eval \"$run -md %s --draft-min 2 --draft-max 4\" >draft && cmp plain draft",
                options[k], path, path);
            if (sh(line) != 0)
                fail_msg("%s, %s: %s", recurrent_archs[i], options[k], shell_read("err", NULL));
            assert_contains("err", "speculation: ");
        }
    }
}

/* A head in the model's file, which drafts what the model says, and a random EAGLE-3 head. */
static void test_heads(void **state) {
    (void)state;
    static const char *const options[] = {"--temp 0", "-s 5 --temp 1.2"};
    char line[1024];
    tiny_model t = tiny_default(), e = tiny_default();
    t.n_vocab = e.n_vocab = RECURRENT_VOCAB;
    t.vocabulary = true;
    t.draft = (tiny_draft){.n = 1, .agrees = true};
    e.arch = "eagle3";
    e.n_layer = 1;
    e.two_norms = true;
    e.draft = (tiny_draft){.reads = {0, 1, 2}, .n_target = t.n_embd, .n_ids = 99};
    tiny_write(&t, TEST_BINARY_DIR "/test_cli_speculate_mtp.gguf");
    tiny_write(&e, TEST_BINARY_DIR "/test_cli_speculate_eagle3.gguf");
    for (int k = 0; k < 2; k++) {
        snprintf(line, sizeof line,
                 "D=" TEST_BINARY_DIR "/test_cli_speculate; "
                 "run=\"$PI run -p abcabc -n 33 --ignore-eos --kernels scalar -ctk f32 -ctv f32 %s "
                 "-m ${D}_mtp.gguf\"; eval \"$run -q\" >plain && "
                 "eval \"$run --spec eagle3 -md ${D}_eagle3.gguf --draft-min 3 --draft-max 3\" "
                 ">drafted && cmp plain drafted && "
                 "eval \"$run --spec mtp --draft-min 3 --draft-max 3\" >drafted && "
                 "cmp plain drafted",
                 options[k]);
        if (sh(line) != 0) fail_msg("%s: %s", options[k], shell_read("err", NULL));
        assert_contains("err", "speculation: 32 tokens in 8 steps, 24 of 24 drafted accepted");
    }
    snprintf(line, sizeof line,
             "D=" TEST_BINARY_DIR "/test_cli_speculate; "
             "chat=\"$PI chat -q -m ${D}_mtp.gguf --kernels scalar --chat-template chatml "
             "--ignore-eos -c 256 -n 12 -s 2\"; printf 'ab\\ncd\\n' >said; "
             "$chat <said >plain && $chat --spec mtp --draft-min 3 <said >drafted && "
             "cmp plain drafted && $chat --spec eagle3 -md ${D}_eagle3.gguf --draft-min 3 <said "
             ">drafted && cmp plain drafted");
    if (sh(line) != 0) fail_msg("another conversation: %s", shell_read("err", NULL));
    size_t n = 0;
    shell_read("plain", &n);
    assert_true(n > 20);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_heads),
                                       cmocka_unit_test(test_same_text),
                                       cmocka_unit_test(test_stops_and_caches),
                                       cmocka_unit_test(test_chat),
                                       cmocka_unit_test(test_report),
                                       cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_self),
                                       cmocka_unit_test(test_recurrent)};
    return cmocka_run_group_tests(tests, shell_setup, shell_teardown);
}
