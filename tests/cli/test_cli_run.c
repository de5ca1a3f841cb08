/* test_cli_run.c: completing a prompt: output streams, determinism, limits, signals, broken
 * streams. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#if !defined(_WIN32)
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#endif

#include <cmocka.h>

#include "cli_shell.h"
#include "cli_test_model.h"
#include "clock.h"

#define RUN "$PI run -m $M "

enum { PIPE_BYTES = 4096 };   /* size of the smallest pipe */
enum { PATIENCE_MS = 60000 }; /* far longer than these tests need, also under sanitizers */

static void same_output(const char *a, const char *b) {
    char line[2048];
    snprintf(line, sizeof line, "%s >a; %s >b; cmp a b", a, b);
    assert_int_equal(sh(line), 0);
}

static void different_output(const char *a, const char *b) {
    char line[2048];
    snprintf(line, sizeof line, "{ %s; } >a && { %s; } >b && ! cmp -s a b", a, b);
    assert_int_equal(sh(line), 0);
}

static void test_streams(void **state) {
    (void)state;
    assert_int_equal(sh(RUN "-p abc -n 5 --temp 0"), 0);
    size_t n;
    const char *text = shell_read("out", &n);
    assert_true(n > 0);
    assert_int_not_equal(strncmp(text, "abc", 3), 0); /* the prompt is not echoed */
    const char *timings = shell_read("err", NULL);
    assert_int_equal(strncmp(timings, "load: ", 6), 0);
    assert_non_null(strstr(timings, "\nprompt:      5 tokens, "));
    assert_non_null(strstr(timings, "\ngeneration:  5 tokens, "));
    assert_non_null(strstr(timings, " kernels, "));
    assert_non_null(strstr(timings, "\nmodel:       test model, llama, f32, "));
    assert_non_null(strstr(timings, "\nmode:        dense\n"));
    assert_non_null(strstr(timings, "\nKV cache:    9 of 64 tokens, K f16, V f16\n"));
    assert_non_null(strstr(timings, " ms/token\n"));
    assert_null(strstr(timings, "seed"));
    assert_int_equal(sh(RUN "-p abc -n 5 -v -s 77"), 0);
    assert_contains("err", "seed:        77\n");
    assert_int_equal(sh(RUN "-p abc -n 5 -q"), 0);
    assert_err("");
}

static void test_determinism(void **state) {
    (void)state;
    same_output(RUN "-q -p abc -n 30 --temp 0", RUN "-q -p abc -n 30 --temp 0 -s 5");
    same_output(RUN "-q -p abc -n 30 --temp 0", RUN "-q -p abc -n 30 --temp -1 --no-mmap");
    same_output(RUN "-q -p abc -n 30 --temp 0", RUN "-q -p abc -n 30 --top-k 1");
    same_output(RUN "-q -p abc -n 30 -s 5 --temp 1.5", RUN "-q -p abc -n 30 --seed=5 --temp 1.5");
    different_output(RUN "-q -p abc -n 30 -s 5 --temp 1.5", RUN "-q -p abc -n 30 -s 6 --temp 1.5");
    different_output(RUN "-q -p abc -n 50 --temp 5 --top-k 0",
                     RUN "-q -p abc -n 50 --temp 5 --top-k 0");
    same_output(RUN "-q -p abc -n 30 -s 5",
                "POWERINFER_PREDICT=30 POWERINFER_SEED=5 " RUN "-q -p abc");
    same_output(RUN "-q -p abc -n 20 -s 5",
                RUN "-q -p abc --n-predict 20 -s 5 --temp .8 --top-k 40 --top-p .95 --min-p .05 "
                    "--repeat-penalty 1 --repeat-last-n 64 --typical 1.0 --presence-penalty 0 "
                    "--frequency-penalty 0.0 --mirostat 0 --xtc-probability 0 --dry-multiplier 0 "
                    "--grammar '' -ngl 99 --mode dense --device cpu --threshold -1e30 "
                    "--vram-budget 8 --max-loss 1 --batch_size 3");
    different_output(RUN "-q -p aaa -n 40 --temp 0", RUN "-q -p aaa -n 40 --temp 0 "
                                                         "--repeat-penalty 1.8");
}

static void test_where_the_prompt_comes_from(void **state) {
    (void)state;
    assert_int_equal(sh("printf 'a\\nb' >plain; printf 'a\\nb\\n' >newline"), 0);
    const char *typed = RUN "-q -n 20 --temp 0 -p 'a\\nb'";
    same_output(typed, RUN "-q -n 20 --temp 0 -f plain");
    same_output(typed, RUN "-q -n 20 --temp 0 -f newline");
    same_output(typed, RUN "-q -n 20 --temp 0 <newline");
    same_output(typed, "cat plain | " RUN "-q -n 20 --temp 0");
    same_output(typed, "POWERINFER_PROMPT=zzz " RUN "-q -n 20 --temp 0 -f plain");
    same_output(RUN "-q -n 20 --temp 0 --no-escape -p 'a\\nb'",
                RUN "-q -n 20 --temp 0 -p 'a\\\\nb'");
    assert_int_equal(sh(RUN "-p 'a\\x62' -n 0"), 0);
    assert_contains("err", "prompt:      4 tokens"); /* BOS, space, ab */
    same_output(RUN "-q -n 5 --temp 0 -p ''", RUN "-q -n 5 --temp 0 </dev/null");
    assert_int_equal(sh(RUN "-n 5 <&-"), 1);
    assert_contains("err", "powerinfer: cannot read file: standard input: ");
}

static void test_limits(void **state) {
    (void)state;
    assert_int_equal(sh(RUN "-p abc -n 0"), 0);
    assert_out("");
    assert_contains("err", "generation:  0 tokens");
    assert_int_equal(sh(RUN "-q -p abcdef -c 4"), 1);
    assert_err(
        "powerinfer: the prompt has 8 tokens but the context holds 4: give a larger one with "
        "-c, or a shorter prompt\n");
    assert_out("");
    /* The training context, 64: 5 tokens of the prompt; the last token is never fed. */
    assert_int_equal(sh(RUN "-p abc --ignore-eos"), 0);
    assert_contains("err", "generation:  60 tokens");
    assert_contains("err", "the context is full: 64 tokens: ");
    assert_null(strstr(shell_read("err", NULL), "warning"));
    assert_int_equal(sh(RUN "-p abc --ignore-eos -c 100"), 0);
    assert_contains("err", "generation:  96 tokens");
    assert_contains("err",
                    "warning: a context of 100 tokens is longer than the 64 that the model was "
                    "trained for\n");
    assert_int_equal(sh(RUN "-p abc --ignore-eos -c 5"), 0);
    assert_contains("err", "generation:  1 token\n");
    assert_int_equal(sh(RUN "-p abc --ignore-eos -c 20 -n 17 --json"), 0);
    assert_contains("err", "the prompt and -n 17 need a context of 21 tokens, this one has 20: ");
    assert_contains("out", "\"stop\": \"length\",\n  \"context_full\": true,");
    assert_int_equal(sh(RUN "-p abc --ignore-eos -c 20 -n 16 --json"), 0);
    assert_null(strstr(shell_read("err", NULL), "context of"));
    assert_contains("out", "\"stop\": \"length\",\n  \"context_full\": false,");
    assert_int_equal(sh(RUN "-p abc --ignore-eos -n 7 -c 100"), 0);
    assert_contains("err", "generation:  7 tokens");
}

/* For any name of the model and any options, no row of the summary wraps or has control
 * characters. */
static void test_summary_fits(void **state) {
    (void)state;
    static const char name[] = "test model", hostile[] = "\x1b[2J\xe2\x80\xae\xc2\x9b!";
    size_t n;
    char file[256];
    snprintf(file, sizeof file,
             "cp $M named && printf '%%s' '%s' | dd of=named bs=1 conv=notrunc "
             "seek=$(grep -abo '%s' named | head -n 1 | cut -d: -f1) 2>dd",
             hostile, name);
    assert_int_equal(sizeof hostile, sizeof name);
    assert_int_equal(sh(file), 0);
    assert_int_equal(sh("$PI run -m named -p abc -n 5 -c 60000 --ignore-eos -v"), 0);
    const char *text = shell_read("err", &n);
    assert_non_null(strstr(text, "\nmodel:       \\x1B[2J\\xE2\\x80\\xAE\\xC2\\x9B!, llama, "));
    assert_null(memchr(text, 0x1b, n));
    assert_int_equal(sh("$PI inspect named -v"), 0);
    text = shell_read("out", &n);
    assert_non_null(strstr(text, "name          \\x1B[2J\\xE2\\x80\\xAE\\xC2\\x9B!\n"));
    assert_non_null(strstr(text, "general.name (string) = \\x1B[2J"));
    assert_true(!memchr(text, 0x1b, n) && !memchr(text, 0xae, n));
    assert_int_equal(sh("$PI run -p abc -n 5 --temp 0"), 0); /* the bundled model */
    assert_contains("err", "\nmodel:       novella-7m, llama, q8_0, 7.3 MiB\n");
    assert_contains("err", "\nmode:        exact: lossless\n");
    assert_int_equal(sh("$PI run -p abc -n 5 --temp 0 --mode predict --prompt-cache saved"), 0);
    assert_contains("err", "\nmode:        predict: +0.39% perplexity, measured by prepare\n");
    assert_int_equal(sh("$PI run -p abc -n 5 --temp 0 --mode predict --prompt-cache saved"), 0);
    assert_contains("err", " from the cache), ");
    assert_int_equal(sh("$PI run -p abc -n 5 --temp 0 --threshold -1 --mode predict"), 0);
    assert_contains("err", "\nmode:        predict: its loss was not measured\n");
    int columns = 0;
    for (const char *c = shell_read("err", NULL); *c; c++) {
        columns = *c == '\n' ? 0 : columns + 1;
        assert_true(columns <= 80);
    }
}

/* A text ends with exactly one newline on every kind of output; an empty text has none. */
static void test_last_line_ends(void **state) {
    (void)state;
    static const char *const lines[] = {RUN "-q -p abc -n 5 --temp 0 -l 260+100",
                                        RUN "-q -p abc -n 5 --temp 0 -l 260+100 | cat",
                                        RUN "-q -p abc -n 5 --temp 0 -l 260+100 >out 2>&1"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        assert_int_equal(sh(lines[i]), 0);
        assert_out("aaaaa\n");
    }
    assert_int_equal(sh(RUN "-q -p abc -n 2 --temp 0 -l 13+100"), 0); /* generates newlines */
    assert_out("\n\n");
    assert_int_equal(sh(RUN "-q -p abc -n 5 --temp 0 -l 260+100 --json"), 0);
    assert_contains("out", "\"text\": \"aaaaa\",");
}

/* ---- a full context -------------------------------------------------------------------------- */

enum { SHIFT_CONTEXT = 12, SHIFT_TOKENS = 24, SHIFT_KEPT = 3 /* BOS and --keep 2 */ };

/* The most likely token after `ids`, by eval. */
static int best_after(const int *ids, int n) {
    char text[256];
    int used = 0, best = 0;
    for (int i = 0; i < n; i++)
        used += snprintf(text + used, sizeof text - (size_t)used, "%d ", ids[i]);
    shell_write("window", text, (size_t)used);
    assert_int_equal(sh("$PI eval -m $M --tokens window --kernels scalar --logits-out logits"), 0);
    size_t n_bytes;
    const char *data = shell_read("logits", &n_bytes);
    float logits[TEST_MODEL_VOCAB];
    assert_int_equal(n_bytes, (size_t)n * sizeof logits);
    memcpy(logits, data + n_bytes - sizeof logits, sizeof logits);
    logits[TEST_MODEL_EOS] = -1e30f;
    for (int i = 0; i < TEST_MODEL_VOCAB; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

/* After a shift every token is the most likely one after the remaining tokens. */
static void test_context_shift(void **state) {
    (void)state;
    int window[SHIFT_CONTEXT] = {TEST_MODEL_BOS, TEST_MODEL_SPACE, TEST_MODEL_LETTER_A,
                                 TEST_MODEL_LETTER_A + 1, TEST_MODEL_LETTER_A + 2};
    int n = 5, shifts = 0;
    assert_int_equal(sh(RUN "-p abc -n 24 -c 12 --keep 2 --context-shift --temp 0 --ignore-eos "
                            "--kernels scalar --json --verbose-prompt"),
                     0);
    assert_contains("err", "     1 -> '<s>'\n   259 -> ' '\n   260 -> 'a'\n   261 -> 'b'\n");
    assert_contains("out", "\"context_full\": false");
    char json[4096];
    snprintf(json, sizeof json, "%s", shell_read("out", NULL));
    char *at = strstr(json, "\"tokens\": [");
    assert_non_null(at);
    at += strlen("\"tokens\": [");
    for (int i = 0; i < SHIFT_TOKENS; i++) {
        int token = (int)strtol(at, &at, 10);
        at += *at == ',';
        assert_int_equal(token, best_after(window, n));
        if (n == SHIFT_CONTEXT) {
            int dropped = (n - SHIFT_KEPT) / 2;
            memmove(window + SHIFT_KEPT, window + SHIFT_KEPT + dropped,
                    (size_t)(n - SHIFT_KEPT - dropped) * sizeof *window);
            n -= dropped;
            shifts++;
        }
        window[n++] = token;
    }
    assert_true(shifts >= 3);
    /* With all tokens kept, none can be dropped. */
    assert_int_equal(sh(RUN "-p abc -c 5 --keep -1 --context-shift --ignore-eos"), 0);
    assert_contains("err", "the context is full: 5 tokens");
    assert_int_equal(sh(RUN "-p abc -n 24 -c 12 --context-shift --ignore-eos --prompt-cache all "
                            "--prompt-cache-all"),
                     0);
    assert_contains("err", "prompt cache: not written: the context was shifted");
    assert_false(shell_has("all"));
}

static void test_output_that_cannot_be_written(void **state) {
    (void)state;
    assert_int_equal(sh(RUN "-p abc -n 8 >/dev/full"), 1);
    assert_err("powerinfer: writing failed: standard output: No space left on device\n");
    assert_int_equal(sh(RUN "-p abc -n 8 --json >/dev/full"), 1);
    assert_contains("err", "powerinfer: writing failed: standard output: " SHELL_FULL "\n");
    assert_int_equal(sh(RUN "-p abc -n 8 >&-"), 1);
#if !defined(_WIN32) /* wine does not see that a pipe of the host is closed */
    /* The reader closes the pipe: the program ends early and without a message. */
    assert_int_equal(sh("{ " RUN
                        "-q -p abc -c 1000000 --ignore-eos; echo $? >status; } | head -c 10 "
                        ">ten"),
                     0);
    assert_err("");
    assert_string_equal(shell_read("status", NULL), "1\n");
#endif
}

#if !defined(_WIN32) /* test_cli_console.c has these tests for the console of Windows */
/* ---- signals --------------------------------------------------------------------------------- */

typedef struct child {
    pid_t pid;
    int out; /* read end of its standard output */
} child;

/* Starts a generation that would take minutes. in: its standard input, or -1. */
static child start(int in, const char *line) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_true(fcntl(ends[1], F_SETPIPE_SZ, PIPE_BYTES) >= PIPE_BYTES);
    child c = {.pid = fork(), .out = ends[0]};
    assert_int_not_equal(c.pid, -1);
    if (c.pid == 0) {
        dup2(ends[1], STDOUT_FILENO);
        if (in >= 0) dup2(in, STDIN_FILENO);
        close(ends[0]);
        close(ends[1]);
        execl("/bin/sh", "sh", "-c", line, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    return c;
}

static void wait_for_output(int fd) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
}

static int finish(child *c) {
    char buffer[4096];
    while (read(c->out, buffer, sizeof buffer) > 0) continue; /* until the program closes it */
    close(c->out);
    int status;
    assert_int_equal(waitpid(c->pid, &status, 0), c->pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

#define ENDLESS "exec $PI run -m $M -p abc --ignore-eos -c 2000000 2>err"

static void test_one_signal_ends_the_text(void **state) {
    (void)state;
    static const int signals[] = {SIGINT, SIGTERM};
    for (int i = 0; i < 2; i++) {
        child c = start(-1, ENDLESS);
        wait_for_output(c.out);
        double begin = clock_seconds();
        assert_int_equal(kill(c.pid, signals[i]), 0);
        assert_int_equal(finish(&c), 128 + signals[i]);
        assert_true(clock_seconds() - begin < 20);
        assert_contains("err", "cancelled\n");
        assert_contains("err", "\ngeneration:  "); /* timings are printed */
    }
}

static void test_signal_in_json(void **state) {
    (void)state;
    child c = start(-1, "exec $PI run -m $M -p abc --ignore-eos -c 2000000 --json -v 2>err >json");
    int begun = 0; /* the seed is the last setting that -v prints */
    for (int waited = 0; waited < PATIENCE_MS && !begun; waited += 50) {
        usleep(50 * 1000);
        begun = shell_has("err") && strstr(shell_read("err", NULL), "seed: ") != NULL;
    }
    assert_true(begun);
    assert_int_equal(kill(c.pid, SIGINT), 0);
    assert_int_equal(finish(&c), 130);
    assert_contains("json", "\"stop\": \"cancelled\"");
}

/* The output is not read, so writing blocks. The first signal has no effect; the second must end
 * the program. The pipe has the minimum size and is nearly full from the start. */
static void test_second_signal_ends_the_program(void **state) {
    (void)state;
#ifdef __SANITIZE_THREAD__
    fprintf(stderr, "SKIPPED: this sanitizer holds signals back while a write blocks\n");
    skip();
#endif
    child c = start(-1, "head -c 4000 /dev/zero; " ENDLESS);
    int now = 0, still = 0;
    for (int waited = 0; waited < PATIENCE_MS && still < 5; waited += 100) {
        int before = now;
        usleep(100 * 1000);
        assert_int_equal(ioctl(c.out, FIONREAD, &now), 0);
        still = now > PIPE_BYTES - 16 && now == before ? still + 1 : 0;
    }
    assert_int_equal(still, 5);
    assert_int_equal(kill(c.pid, SIGINT), 0);
    usleep(200 * 1000);
    assert_int_equal(waitpid(c.pid, NULL, WNOHANG), 0); /* still running */
    assert_int_equal(kill(c.pid, SIGINT), 0);
    assert_int_equal(finish(&c), 130);
}

static void test_nothing_waits_on_a_terminal(void **state) {
    (void)state;
    int terminal = posix_openpt(O_RDWR | O_NOCTTY);
    assert_true(terminal >= 0);
    assert_int_equal(grantpt(terminal), 0);
    assert_int_equal(unlockpt(terminal), 0);
    int in = open(ptsname(terminal), O_RDWR | O_NOCTTY);
    assert_true(in >= 0);
    child c = start(in, "exec $PI run -m $M 2>err");
    assert_int_equal(finish(&c), 2);
    assert_err("powerinfer: no prompt: run: give one with -p or -f, or on standard input\n");
    c = start(in, "exec $PI tokenize -m $M 2>err");
    assert_int_equal(finish(&c), 2);
    assert_err("powerinfer: no text: tokenize: give one with -p, or on standard input\n");
    /* With a prompt, standard input may be a terminal. */
    c = start(in, "exec $PI run -m $M -p a -n 1 -q 2>err");
    assert_int_equal(finish(&c), 0);
    assert_err("");
    close(in);
    close(terminal);
}

/* A terminal shows a generated ESC [ as an escape and does not execute it. */
static void test_no_commands_to_a_terminal(void **state) {
    (void)state;
    char shown[256] = "";
    int terminal = posix_openpt(O_RDWR | O_NOCTTY);
    assert_true(terminal >= 0);
    assert_true(grantpt(terminal) == 0 && unlockpt(terminal) == 0);
    int out = open(ptsname(terminal), O_RDWR | O_NOCTTY);
    assert_true(out >= 0);
    char line[256];
    snprintf(line, sizeof line, RUN "-q -p abc -n 4 --temp 0 -l 30+100 >%s", ptsname(terminal));
    assert_int_equal(sh(line), 0);
    for (size_t n = 0; !strchr(shown, '\n');) {
        wait_for_output(terminal);
        ssize_t got = read(terminal, shown + n, sizeof shown - 1 - n);
        assert_true(got > 0);
        n += (size_t)got;
    }
    assert_string_equal(shown, "\\x1B\\x1B\\x1B\\x1B\r\n");
    close(out);
    close(terminal);
    assert_int_equal(sh(RUN "-q -p abc -n 4 --temp 0 -l 30+100"), 0); /* a file gets the bytes */
    assert_out("\x1b\x1b\x1b\x1b\n");
}

#endif

/* Each write of the program ends with a whole character, unless the bytes are not UTF-8. This test
 * checks only the whole stream, which must equal the detokenized text. */
static void test_stream_is_the_detokenized_text(void **state) {
    (void)state;
    assert_int_equal(sh(RUN "-q -p abc -n 60 --temp 0 --json >json; "
                            "sed -n 's/.*\"tokens\": \\[\\(.*\\)\\],*$/\\1/p' json | tr -d , >ids; "
                            "$PI tokenize -m $M --detok <ids >text; " RUN
                            "-q -p abc -n 60 --temp 0 >stream; test -s ids && test -s stream"),
                     0);
    assert_int_equal(sh("tail -c 1 text | grep -q . && echo >>text; "
                        "sed 's/^ //' stream | cmp - text || cmp stream text"),
                     0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_streams),
        cmocka_unit_test(test_determinism),
        cmocka_unit_test(test_where_the_prompt_comes_from),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_summary_fits),
        cmocka_unit_test(test_last_line_ends),
        cmocka_unit_test(test_context_shift),
        cmocka_unit_test(test_output_that_cannot_be_written),
#if !defined(_WIN32)
        cmocka_unit_test(test_one_signal_ends_the_text),
        cmocka_unit_test(test_signal_in_json),
        cmocka_unit_test(test_second_signal_ends_the_program),
        cmocka_unit_test(test_nothing_waits_on_a_terminal),
        cmocka_unit_test(test_no_commands_to_a_terminal),
#endif
        cmocka_unit_test(test_stream_is_the_detokenized_text),
    };
    return cmocka_run_group_tests(tests, shell_setup, shell_teardown);
}
