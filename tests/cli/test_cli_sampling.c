/* test_cli_sampling.c: options of `run`: samplers, texts that end the generation, prompt caches,
 * progress, and starts of messages. tests/sample tests the samplers; these tests check that each
 * option reaches its sampler from the command line and the environment. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli_shell.h"
#include "cli_test_model.h"

#define RUN   "$PI run -m $M "
#define DRAWN RUN "-q -p abc -n 50 -s 5 --temp 1.2 "

static void compare(const char *a, const char *b, int same) {
    char line[2048];
    snprintf(line, sizeof line, "{ %s; } >a && { %s; } >b && %s cmp -s a b", a, b, same ? "" : "!");
    if (sh(line) != 0) fail_msg("%s: %s / %s", same ? "differ" : "are the same", a, b);
}

/* The off value of an option changes nothing, an on value does; equal seeds give equal texts, also
 * from the environment. */
static void test_every_sampler(void **state) {
    (void)state;
    static const struct {
        const char *off, *on, *environment;
    } options[] = {
        {"--typical 1", "--typical 0.1", "POWERINFER_TYPICAL=0.1"},
        {"--typical-p 1.0", "--typical-p 0.1", "POWERINFER_TYPICAL=0.1"},
        {"--presence-penalty 0", "--presence-penalty 9", "POWERINFER_PRESENCE_PENALTY=9"},
        {"--frequency-penalty 0", "--frequency-penalty 9", "POWERINFER_FREQUENCY_PENALTY=9"},
        {"--repeat-penalty 1", "--repeat-penalty 9", "POWERINFER_REPEAT_PENALTY=9"},
        {"--dynatemp-range 0", "--dynatemp-range 1.2", "POWERINFER_DYNATEMP_RANGE=1.2"},
        {"--xtc-probability 0", "--xtc-probability 1 --xtc-threshold 0.01",
         "POWERINFER_XTC_PROBABILITY=1 POWERINFER_XTC_THRESHOLD=0.01"},
        {"--xtc-probability 1 --xtc-threshold .6", "--xtc-probability 1 --xtc-threshold 0.01",
         "POWERINFER_XTC_PROBABILITY=1 POWERINFER_XTC_THRESHOLD=0.01"},
        {"--mirostat 0", "--mirostat 1", "POWERINFER_MIROSTAT=1"},
        {"--mirostat 0", "--mirostat 2", "POWERINFER_MIROSTAT=2"},
        {"--mirostat-ent 2", "--mirostat 2 --mirostat-ent 2",
         "POWERINFER_MIROSTAT=2 POWERINFER_MIROSTAT_ENT=2"},
        {"--dry-multiplier 0", "--dry-multiplier 50 --dry-allowed-length 1 --dry-base 1",
         "POWERINFER_DRY_MULTIPLIER=50 POWERINFER_DRY_ALLOWED_LENGTH=1 POWERINFER_DRY_BASE=1"},
        {"--dry-multiplier 50 --dry-penalty-last-n 0", "--dry-multiplier 50 --dry-allowed-length 1",
         "POWERINFER_DRY_MULTIPLIER=50 POWERINFER_DRY_ALLOWED_LENGTH=1"},
        {"--top-nsigma 0", "--top-nsigma 0.5", "POWERINFER_TOP_NSIGMA=0.5"},
        {"--samplers 'penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature'",
         "--samplers 'top_k'", "POWERINFER_SAMPLERS=top-k"},
        {"--sampling-seq edskypmxt", "--sampler-seq k", "POWERINFER_SAMPLING_SEQ=k"},
        {"-l 260+0", "-l 260+20", "POWERINFER_LOGIT_BIAS=260+20"},
        {"-l 260-0", "--logit-bias=260+inf", "POWERINFER_LOGIT_BIAS=260+inf"},
    };
    assert_int_equal(sh(DRAWN ">drawn"), 0);
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        char line[2048];
        snprintf(line, sizeof line,
                 DRAWN "%s >off && " DRAWN "%s >on && %s " DRAWN
                       ">environment && cmp drawn off && ! cmp -s drawn on && cmp on environment",
                 options[i].off, options[i].on, options[i].environment);
        if (sh(line) != 0)
            fail_msg("%s, %s, %s: %s", options[i].off, options[i].on, options[i].environment,
                     shell_read("out", NULL));
    }
    compare(DRAWN "--mirostat 2", DRAWN "--mirostat 2 --mirostat-ent 1", 0);
    compare(DRAWN "--mirostat 2", DRAWN "--mirostat 2 --mirostat-lr 3", 0);
}

static void test_bias_and_ends(void **state) {
    (void)state;
    char line[256];
    snprintf(line, sizeof line, RUN "-q -p abc -n 5 --temp 0 -l %d+1000", TEST_MODEL_LETTER_A + 23);
    assert_int_equal(sh(line), 0);
    assert_out("xxxxx\n");
    snprintf(line, sizeof line, RUN "-q -p abc -n 5 -s 1 -l %d+1000 -l %d-inf -l %d+900",
             TEST_MODEL_LETTER_A + 23, TEST_MODEL_LETTER_A + 23, TEST_MODEL_LETTER_A + 24);
    assert_int_equal(sh(line), 0);
    assert_out("yyyyy\n");
    snprintf(line, sizeof line, RUN "-p abc -n 5 --temp 0 -l %d+1000 --json", TEST_MODEL_EOS);
    assert_int_equal(sh(line), 0);
    assert_contains("out", "\"stop\": \"eos\"");
    snprintf(line, sizeof line, RUN "-p abc -n 5 --temp 0 -l %d+1000 --json --ignore-eos",
             TEST_MODEL_EOS);
    assert_int_equal(sh(line), 0);
    assert_contains("out", "\"stop\": \"length\"");
    assert_int_equal(sh(RUN "-p abc -l 999999+1"), 2);
    assert_err("powerinfer: no such token: logit bias of token 999999: use 0 to 285\n");
    static const char *const bad[] = {"",
                                      "5",
                                      "+1",
                                      "-5+1",
                                      "5+",
                                      "5+x",
                                      "5+1x",
                                      "5*2",
                                      "5+nan",
                                      " 5+1",
                                      "99999999999999999999+1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(line, sizeof line, RUN "-p abc -l '%s'", bad[i]);
        assert_int_equal(sh(line), 2);
        assert_contains("err", "invalid value: --logit-bias");
    }
}

static void test_orders_that_are_wrong(void **state) {
    (void)state;
    assert_wrong(RUN "-p abc --samplers 'top_k;top_q'",
                 "powerinfer: unknown sampler \"top_q\": --samplers: expected one of penalties, "
                 "dry, top_n_sigma, top_k, typ_p, top_p, min_p, xtc, temperature\n");
    assert_wrong(
        RUN "-p abc --sampling-seq kz",
        "powerinfer: unknown sampler \"z\": --sampling-seq: expected one of e penalties, d dry, s "
        "top_n_sigma, k top_k, y typ_p, p top_p, m min_p, x xtc, t temperature\n");
    assert_wrong(RUN "-p abc --sampling-seq k --samplers top_k",
                 "powerinfer: two orders: --samplers and --sampling-seq: give one of them\n");
    assert_wrong(RUN "-p abc --sampling-seq kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk",
                 "powerinfer: too many samplers: give at most 32\n");
}

static void test_breakers(void **state) {
    (void)state;
    /* The next token is an "a" unless DRY sees a repeated sequence; then it is a "z". */
    char dry[512], line[1024];
    snprintf(dry, sizeof dry,
             RUN "-q -p ababababab -n 1 --temp 0 -l %d+500 -l %d+400 --dry-multiplier 1000 ",
             TEST_MODEL_LETTER_A, TEST_MODEL_LETTER_A + 25);
    snprintf(line, sizeof line, "%s --dry-sequence-breaker none", dry);
    compare(dry, line, 1); /* the default breakers do not occur */
    snprintf(line, sizeof line, "%s --dry-sequence-breaker a --dry-sequence-breaker b", dry);
    compare(dry, line, 0);
    snprintf(line, sizeof line, "%s --dry-sequence-breaker '\\x61' --dry-sequence-breaker b", dry);
    compare(dry, line, 0);
    snprintf(line, sizeof line, "%s --dry-sequence-breaker ''", dry);
    assert_int_equal(sh(line), 2);
    assert_contains("err", "invalid length: sequence breaker 1");
}

static void test_texts_that_end(void **state) {
    (void)state;
    char line[512], forced[256];
    snprintf(forced, sizeof forced, RUN "-p abc -n 9 --temp 0 --repeat-penalty 3 -l %d+90 -l %d+80",
             TEST_MODEL_LETTER_A + 23, TEST_MODEL_LETTER_A + 24);
    snprintf(line, sizeof line, "%s -q", forced);
    assert_int_equal(sh(line), 0);
    const char *text = shell_read("out", NULL); /* x, then y, then any token */
    assert_int_equal(strncmp(text, "xy", 2), 0);
    snprintf(line, sizeof line, "%s -q -r never -r y -r xyz", forced);
    assert_int_equal(sh(line), 0);
    assert_out("xy\n"); /* the stop text is printed */
    snprintf(line, sizeof line, "%s -q --reverse-prompt 'x\\x79'", forced);
    assert_int_equal(sh(line), 0);
    assert_out("xy\n");
    snprintf(line, sizeof line, "%s -q -r abc -r bcx", forced); /* the prompt is not searched */
    assert_int_equal(sh(line), 0);
    assert_true(strlen(shell_read("out", NULL)) > 2);
    snprintf(line, sizeof line, "%s --json -r y", forced);
    assert_int_equal(sh(line), 0);
    assert_contains("out", "\"text\": \"xy\"");
    assert_contains("out", "\"stop\": \"stop\"");
}

static void test_full_context(void **state) {
    (void)state;
    assert_int_equal(sh(RUN "-p abc --ignore-eos -c 10 --json"), 0);
    assert_contains("out", "\"stop\": \"length\"");
    assert_contains("err", "the context is full: 10 tokens: for a longer "
                           "text give a larger one with -c, or --context-shift\n");
    assert_int_equal(sh(RUN "-p abc --ignore-eos -c 10 -n 20"), 0);
    assert_contains("err", "the context is full");
    assert_int_equal(sh(RUN "-p abc --ignore-eos -c 10 -n 6"), 0); /* the text fits */
    assert_null(strstr(shell_read("err", NULL), "the context is full"));
    assert_int_equal(sh(RUN "-q -p abc --ignore-eos -c 10"), 0);
    assert_err("");
}

/* Text and messages in one stream never share a line: a newline follows the text. */
static void test_where_messages_begin(void **state) {
    (void)state;
    char line[256];
    snprintf(line, sizeof line, RUN "-p abc -n 3 --temp 0 -l %d+1000 ", TEST_MODEL_LETTER_A);
    char both[512];
    snprintf(both, sizeof both, "%s >both 2>&1", line);
    assert_int_equal(sh(both), 0);
    assert_int_equal(strncmp(shell_read("both", NULL), "aaa\nload: ", 10), 0);
    snprintf(both, sizeof both, "%s 2>&1 | cat >both", line);
    assert_int_equal(sh(both), 0);
    assert_int_equal(strncmp(shell_read("both", NULL), "aaa\nload: ", 10), 0);
    assert_int_equal(sh(line), 0);
    assert_out("aaa\n");
    assert_int_equal(strncmp(shell_read("err", NULL), "load: ", 6), 0);
    snprintf(both, sizeof both, "%s -q >both 2>&1", line);
    assert_int_equal(sh(both), 0);
    assert_string_equal(shell_read("both", NULL), "aaa\n");
    snprintf(line, sizeof line, RUN "-p abc -n 3 --temp 0 -l %d+1000 >both 2>&1",
             TEST_MODEL_BYTE0 + '\n');
    assert_int_equal(sh(line), 0);
    assert_int_equal(strncmp(shell_read("both", NULL), "\n\n\nload: ", 9), 0);
    assert_null(strchr(shell_read("both", NULL), '\033')); /* no colors without a terminal */
}

static void test_progress(void **state) {
    (void)state;
    assert_int_equal(sh(RUN "-p abc -n 1"), 0);
    assert_null(strstr(shell_read("err", NULL), "prefill"));
    /* A prompt that takes long, one token per batch; its length depends on the machine. */
    char line[256];
    int n = 1000, shown = 0;
    for (; n <= 256000 && !shown; n *= 2) {
        snprintf(line, sizeof line,
                 "head -c %d /dev/zero | tr '\\0' a >long; " RUN "-f long -c %d -n 1 -b 1 -t 1", n,
                 n + 2);
        assert_int_equal(sh(line), 0);
        shown = strstr(shell_read("err", NULL), "prefill: ") != NULL;
    }
    assert_true(shown);
    assert_contains("err", "prefill: 100%\nload: ");
    assert_null(strchr(shell_read("err", NULL), '\r'));
    snprintf(line, sizeof line, RUN "-q -f long -c %d -n 1 -b 1 -t 1", n);
    assert_int_equal(sh(line), 0);
    assert_err("");
}

/* ---- prompt cache ---------------------------------------------------------------------------- */

#define GREEDY RUN "-n 8 --temp 0 --ignore-eos "

static void test_prompt_cache(void **state) {
    (void)state;
    assert_int_equal(sh(GREEDY "-p abcabc >want && " GREEDY "-p abcxyz >other"), 0);
    assert_int_equal(sh(GREEDY "-p abcabc --prompt-cache c >got && cmp want got"), 0);
    assert_null(strstr(shell_read("err", NULL), "prompt cache: "));
    assert_int_equal(sh("cp c first"), 0);
    assert_int_equal(sh(GREEDY "-p abcabc --prompt-cache c >got && cmp want got && cmp c first"),
                     0);
    assert_contains("err", "prompt cache: 7 of 8 tokens\n");
    assert_contains("err", "\nprompt:      8 tokens");
    /* Another prompt with a common prefix: the file is not written with -ro, otherwise written. */
    assert_int_equal(sh(GREEDY "-p abcxyz --prompt-cache c --prompt-cache-ro >got && cmp other got "
                               "&& cmp c first"),
                     0);
    assert_contains("err", "prompt cache: 5 of 8 tokens\n");
    assert_int_equal(sh(GREEDY "-p abcxyz --prompt-cache c >got && cmp other got && ! cmp -s c "
                               "first"),
                     0);
    /* The file also has the generated text, to which the next prompt may be equal. */
    assert_int_equal(sh(GREEDY "-p abcabc --prompt-cache all --prompt-cache-all --json >json"), 0);
    assert_int_equal(sh("test $(wc -c <all) -gt $(wc -c <first)"), 0);
    assert_int_equal(sh(GREEDY "-p abcabc --prompt-cache all >got && cmp want got"), 0);
    assert_contains("err", "prompt cache: 7 of 8 tokens\n");
    assert_int_equal(sh(GREEDY "-q -p abcabc --prompt-cache all"), 0);
    assert_err("");
    assert_int_equal(shell_temporaries(), 0);
}

static void test_prompt_caches_that_are_refused(void **state) {
    (void)state;
    assert_int_equal(sh(GREEDY "-p abcabc --prompt-cache good"), 0);
    assert_int_equal(sh("printf 'my letter' >letter; cp letter copy; head -c 100 good >cut; "
                        "{ cat good; echo; } >longer; : >empty"),
                     0);
    static const char *const names[] = {"letter", "cut", "longer", "empty", "$M"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char line[256];
        snprintf(line, sizeof line, "cp %s before; " GREEDY "-p abc --prompt-cache %s", names[i],
                 names[i]);
        assert_int_equal(sh(line), 1);
        const char *message = shell_read("err", NULL);
        assert_true(strstr(message, "powerinfer: not a saved session: ") == message ||
                    strstr(message, "powerinfer: saved session ") == message);
        assert_out("");
        snprintf(line, sizeof line, "cmp before %s", names[i]); /* the file is unchanged */
        assert_int_equal(sh(line), 0);
    }
    assert_int_equal(sh(GREEDY "-p abc --prompt-cache good -ctk f32"), 1);
    assert_err("powerinfer: saved with other cache types: good: use the same types, or name "
               "another file\n");
    assert_int_equal(sh(GREEDY "-p abc --prompt-cache no/such/folder"), 1);
    assert_int_equal(sh(GREEDY "-p abc --prompt-cache ."), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_sampler),
        cmocka_unit_test(test_bias_and_ends),
        cmocka_unit_test(test_orders_that_are_wrong),
        cmocka_unit_test(test_breakers),
        cmocka_unit_test(test_texts_that_end),
        cmocka_unit_test(test_full_context),
        cmocka_unit_test(test_where_messages_begin),
        cmocka_unit_test(test_progress),
        cmocka_unit_test(test_prompt_cache),
        cmocka_unit_test(test_prompt_caches_that_are_refused),
    };
    return cmocka_run_group_tests(tests, shell_setup, shell_teardown);
}
