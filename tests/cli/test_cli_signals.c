/* test_cli_signals.c: signals at random moments of a command. Afterwards the output's name has the
 * earlier file or the complete new file, no temporary file is left, and the terminal's cursor is at
 * the start of a line. Half of the runs have no unnamed temporary files (names_only.h); in these
 * SIGKILL may leave a file, which the next run removes.
 *
 * A command runs once to measure its time and output, then repeatedly with a signal after a random
 * fraction of this time, half of the runs on a terminal, for SECONDS or MAX rounds. The seed is
 * printed; PI_TEST_SEED sets it. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli_shell.h"
#include "clock.h"
#include "hf_folder.h"
#include "names_only.h"
#include "rng.h"

#define SECONDS 1.5

#ifdef TEST_SAMPLED
enum { MIN_ROUNDS = 2 };
#else
enum { MIN_ROUNDS = 4 };
#endif
enum { MAX_ROUNDS = 60, LINE_ROOM = 1024 };

static rng random_source;

/* ---- one run --------------------------------------------------------------------------------- */

/* A pseudo-terminal. */
typedef struct terminal {
    int screen, line; /* the master, and the slave for the program; -1: none */
} terminal;

static const terminal no_terminal = {-1, -1};

static terminal open_terminal(void) {
    terminal t = {.screen = posix_openpt(O_RDWR | O_NOCTTY)};
    assert_true(t.screen >= 0);
    assert_int_equal(grantpt(t.screen), 0);
    assert_int_equal(unlockpt(t.screen), 0);
    t.line = open(ptsname(t.screen), O_RDWR | O_NOCTTY);
    assert_true(t.line >= 0);
    return t;
}

static pid_t start(const char *line, const terminal *t, bool names) {
    char whole[LINE_ROOM];
    assert_true(snprintf(whole, sizeof whole, "exec $PI %s", line) < LINE_ROOM);
    /* The handler of faults of the tests continues with the next test, so a child must not have
     * it. */
    sigset_t fault, old;
    sigemptyset(&fault);
    sigaddset(&fault, SIGBUS);
    sigprocmask(SIG_BLOCK, &fault, &old);
    pid_t pid = fork();
    if (pid == 0) signal(SIGBUS, SIG_DFL);
    sigprocmask(SIG_SETMASK, &old, NULL);
    assert_int_not_equal(pid, -1);
    if (pid != 0) return pid;
    if (names) (void)names_only();
    int in = open("/dev/null", O_RDONLY);
    int out = t->line >= 0 ? t->line : open("said", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (in < 0 || out < 0) _exit(127);
    dup2(in, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    dup2(out, STDERR_FILENO);
    if (t->line >= 0) {
        close(t->line);
        close(t->screen);
    }
    execl("/bin/sh", "sh", "-c", whole, (char *)NULL);
    _exit(127);
}

/* Reads the terminal's output until the program ends; returns its last byte, '\n' for no output. */
static char watch(terminal *t) {
    char buffer[4096], last = '\n';
    ssize_t n;
    close(t->line);
    while ((n = read(t->screen, buffer, sizeof buffer)) > 0) last = buffer[n - 1];
    close(t->screen); /* EIO: the slave is closed */
    return last;
}

typedef struct ending {
    int status; /* status of waitpid */
    char last;  /* last byte on the terminal */
} ending;

/* Sends signal `number` after `delay` seconds; 0: no signal. */
static ending run_once(const char *line, double delay, int number, bool on_terminal, bool names) {
    ending e = {.last = '\n'};
    terminal t = on_terminal ? open_terminal() : no_terminal;
    pid_t pid = start(line, &t, names);
    if (number) {
        usleep((useconds_t)(delay * 1e6));
        assert_int_equal(kill(pid, number), 0); /* also succeeds after the program has ended */
    }
    if (on_terminal) e.last = watch(&t);
    assert_int_equal(waitpid(pid, &e.status, 0), pid);
    return e;
}

/* ---- checks ---------------------------------------------------------------------------------- */

static size_t file_bytes(const char *name) {
    struct stat st;
    assert_int_equal(stat(name, &st), 0);
    return (size_t)st.st_size;
}

/* The program ended normally, with status 128 + signal after cleanup, or by the signal itself
 * before there was anything to clean up. */
static bool is_fine(int status, int number) {
    if (WIFSIGNALED(status)) return WTERMSIG(status) == number;
    return WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 128 + number;
}

static const char old_content[] = "what was there before";

/* Checks the file with the output's name. */
static void judge(const char *line, const char *check, bool was_there) {
    if (was_there) assert_true(shell_has("result"));
    if (!shell_has("result")) return;
    if (check) {
        if (sh(check) != 0) fail_msg("%s: %s", line, shell_read("err", NULL));
    } else if (was_there && file_bytes("result") == sizeof old_content) {
        assert_memory_equal(shell_read("result", NULL), old_content, sizeof old_content);
    } else {
        assert_int_equal(file_bytes("result"), file_bytes("whole"));
    }
}

static void interrupt(const char *line, double seconds, const char *check) {
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGXCPU, SIGBUS, SIGKILL};
    uint64_t dice = rng_u64(&random_source);
    int number = numbers[(dice >> 8) % (sizeof numbers / sizeof *numbers)];
    bool was_there = !check && dice & 2, on_terminal = dice & 4 && number != SIGKILL;
    double delay = seconds * (double)(dice >> 40) / (double)(1 << 24);
    unlink("result");
    if (was_there) shell_write("result", old_content, sizeof old_content);
    ending e = run_once(line, delay, number, on_terminal, dice & 8);
    if (!is_fine(e.status, number))
        fail_msg("%s: signal %d after %.4f s: status %x", line, number, delay, (unsigned)e.status);
    if (e.last != '\n') fail_msg("%s: signal %d after %.4f s: a line is left", line, number, delay);
    judge(line, check, was_there);
    if (number == SIGKILL && shell_temporaries() != 0) { /* the next run removes the file */
        unlink("result");
        assert_int_equal(run_once(line, 0, 0, false, true).status, 0);
    }
    if (shell_temporaries() != 0)
        fail_msg("%s: signal %d after %.4f s: a temporary file is left", line, number, delay);
}

/* `line` writes `result`. check: a command that succeeds for every valid output; NULL: all valid
 * outputs have one size. */
static void torture(const char *line, const char *check) {
    unlink("result");
    double begin = clock_seconds();
    if (run_once(line, 0, 0, false, false).status != 0)
        fail_msg("%s: %s", line, shell_read("said", NULL));
    double seconds = clock_seconds() - begin;
    assert_int_equal(rename("result", "whole"), 0);
    int rounds = 0;
    for (begin = clock_seconds(); rounds < MAX_ROUNDS; rounds++) {
        if (rounds >= MIN_ROUNDS && clock_seconds() - begin > SECONDS) break;
        interrupt(line, 1.1 * seconds, check);
    }
    print_message("%2d rounds over %.3f s: %s\n", rounds, seconds, line);
    unlink("result");
    unlink("whole");
}

/* ---- commands -------------------------------------------------------------------------------- */

static void test_run(void **state) {
    (void)state;
    torture("run -m model.gguf -p abc -t 1 -n 300 -c 1024 --ignore-eos --prompt-cache result "
            "--prompt-cache-all",
            "$PI run -q -m model.gguf -p abc -t 1 -n 300 -c 1024 --prompt-cache result "
            "--prompt-cache-ro");
}

static void test_synth(void **state) {
    (void)state;
    torture("synth -o result --plain --layers 2 -t 1", NULL);
    torture("synth -o result --layers 1 --rank 32 -t 1", NULL);
}

static void test_quantize(void **state) {
    (void)state;
    assert_int_equal(sh("$PI synth -o big --plain --type f16"), 0);
    torture("quantize big result Q4_0 1", NULL);
}

static void test_perplexity(void **state) {
    (void)state;
    torture("perplexity -t 1 -m model.gguf -f text -c 32 --kl-divergence-base result", NULL);
}

static void test_imatrix(void **state) {
    (void)state;
    torture("imatrix -t 1 -m model.gguf -f text -c 32 -o result", NULL);
}

static void test_eval(void **state) {
    (void)state;
    torture("eval -t 1 -m model.gguf --tokens ids --logits-out result --batch 1", NULL);
}

static void test_convert(void **state) {
    (void)state;
#ifdef TEST_HAS_JSON
    hf_folder folder;
    model_shape shape = shape_tiny("llama");
    shape.n_ff = 2048;
    char line[LINE_ROOM];
    folder_open(&folder);
    folder_write_model(&folder, &shape);
    snprintf(line, sizeof line, "convert %.400s -o result --type q4_0 -t 1", folder.dir);
    torture(line, NULL);
    folder_close(&folder);
#else
    print_message("*** SKIPPED: built without jansson ***\n");
#endif
}

/* ---- other ends ------------------------------------------------------------------------------ */

/* A limit on CPU time, and SIGHUP for a program that ignores it. */
static void test_limits(void **state) {
    (void)state;
    static const char line[] = "synth -o result --shape llama-1b --plain -t 1";
    char limited[LINE_ROOM];
    snprintf(limited, sizeof limited, "ulimit -c 0; ulimit -S -t 1; $PI %s", line);
    assert_int_equal(sh(limited), 128 + SIGXCPU);
    assert_int_equal(shell_temporaries(), 0);
    assert_false(shell_has("result"));
    assert_int_equal(
        sh("trap '' HUP; $PI eval -q -t 1 -m model.gguf --tokens ids --logits-out result"
           " --batch 1 & pid=$!; kill -HUP $pid; wait $pid"),
        0);
    assert_true(shell_has("result"));
    unlink("result");
}

/* Waits until the program writes text or a temporary file: then it has opened its model. Under an
 * emulator the file may have no name (names_only.h): waits for LONGEST_WAIT. */
static void wait_for_output(void) {
    enum { POLLS_PER_SECOND = 100, LONGEST_WAIT = 3 };
    for (int i = 0; i < POLLS_PER_SECOND * LONGEST_WAIT; i++) {
        if (shell_temporaries() > 0 || (shell_has("said") && file_bytes("said") > 0)) return;
        usleep(1000000 / POLLS_PER_SECOND);
    }
}

/* Truncates the model file while the program generates text. */
static void cut_while(const char *line) {
    assert_int_equal(sh("cp model.gguf cut.gguf"), 0);
    unlink("said");
    pid_t pid = start(line, &no_terminal, true);
    int status;
    wait_for_output();
    if (waitpid(pid, &status, WNOHANG) != 0)
        fail_msg("%s: ended by itself: %x: %s", line, (unsigned)status, shell_read("said", NULL));
    assert_int_equal(truncate("cut.gguf", 4096), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    static const char last[] = "powerinfer: file became shorter while it was in use: cut.gguf\n";
    size_t n, n_last = sizeof last - 1;
    const char *said = shell_read("said", &n); /* begins with a text of any bytes */
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 1 || n < n_last ||
        memcmp(said + n - n_last, last, n_last) != 0)
        fail_msg("%s: status %x: %s", line, (unsigned)status,
                 n < n_last ? said : said + n - n_last);
    assert_int_equal(shell_temporaries(), 0);
    assert_false(shell_has("result"));
}

static void test_model_that_is_cut(void **state) {
    (void)state;
    assert_int_equal(sh("yes 261 | head -n 100000 >many"), 0);
    cut_while("run -q -m cut.gguf -p abc -t 2 -c 100000 --ignore-eos");
    cut_while("eval -q -m cut.gguf --tokens many --logits-out result --batch 1 -t 2");
}

static int setup(void **state) {
    int status = shell_setup(state);
    if (status != 0) return status;
    const char *given = getenv("PI_TEST_SEED");
    unsigned long long seed = given ? strtoull(given, NULL, 10) : (unsigned long long)getpid();
    print_message("seed %llu\n", seed);
    rng_seed(&random_source, seed);
    static char text[5000];
    for (size_t i = 0; i < sizeof text; i++) text[i] = (char)(i % 7 ? 'a' + i * i % 26 : ' ');
    shell_write("text", text, sizeof text);
    return sh("yes 261 | head -n 500 >ids");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_run),
        cmocka_unit_test(test_synth),
        cmocka_unit_test(test_quantize),
        cmocka_unit_test(test_convert),
        cmocka_unit_test(test_perplexity),
        cmocka_unit_test(test_imatrix),
        cmocka_unit_test(test_eval),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_model_that_is_cut),
    };
    return cmocka_run_group_tests_name("cli_signals", tests, setup, shell_teardown);
}
