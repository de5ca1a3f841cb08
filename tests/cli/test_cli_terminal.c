/* test_cli_terminal.c: the progress bar on terminals of every width, which never reaches the last
 * column, so that no terminal wraps it; progress in logs; text wrapped at words. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#if !defined(_WIN32)
#include <sys/ioctl.h>
#endif

#include <cmocka.h>

#include "clock.h"
#include "terminal.h"
#include "word_wrap.h"

#if !defined(_WIN32) /* pseudo-terminals of POSIX */
enum { DRAWN_MAX = 1 << 16 };

/* Draws all steps of a stage on a terminal of `columns` and returns the output. */
static const char *draw(int columns, const char *stage, double seconds_ago) {
    static char drawn[DRAWN_MAX];
    size_t n = 0;
    int master = posix_openpt(O_RDWR | O_NOCTTY), saved = dup(STDERR_FILENO);
    assert_true(master >= 0 && saved >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
    int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    assert_true(slave >= 0);
    struct winsize size = {.ws_row = 24, .ws_col = (unsigned short)columns};
    assert_int_equal(ioctl(slave, TIOCSWINSZ, &size), 0);
    assert_int_equal(fcntl(master, F_SETFL, O_NONBLOCK), 0);
    assert_true(dup2(slave, STDERR_FILENO) >= 0);
    terminal_progress p;
    terminal_progress_begin(&p, false);
    bool is_terminal = p.is_terminal;
    for (int i = 0; i <= 100; i++) {
        terminal_progress_step(&p, stage, i / 100.0);
        if (i == 0) p.started = clock_seconds() - seconds_ago;
        ssize_t got;
        while ((got = read(master, drawn + n, DRAWN_MAX - 1 - n)) > 0) n += (size_t)got;
    }
    terminal_progress_end(&p);
    assert_true(dup2(saved, STDERR_FILENO) >= 0);
    for (ssize_t got; (got = read(master, drawn + n, DRAWN_MAX - 1 - n)) > 0;) n += (size_t)got;
    close(saved);
    close(slave);
    close(master);
    drawn[n] = 0;
    assert_true(is_terminal);
    return drawn;
}

/* Width of the widest line in columns; *lines: number of newlines. Control sequences have no width;
 * a carriage return goes to the first column. */
static int widest(const char *drawn, int *lines) {
    int widest = 0, column = 0;
    *lines = 0;
    for (const char *c = drawn; *c; c++) {
        if (*c == '\r') column = 0;
        if (*c == '\n') ++*lines;
        if (*c == '\033')
            c += strcspn(c, "Km");
        else if ((unsigned char)*c >= ' ')
            column++;
        if (column > widest) widest = column;
    }
    return widest;
}

static void test_every_width(void **state) {
    (void)state;
    static const char *const stages[] = {
        "x", "prefill", "a stage whose name is longer than a narrow terminal is wide, yes"};
    static const double ago[] = {0, 50, 5000, 1e7};
    for (int columns = 2; columns <= 120; columns += columns < 20 ? 3 : 7) {
        for (size_t i = 0; i < 12; i++) {
            int lines;
            int width = widest(draw(columns, stages[i / 4], ago[i % 4]), &lines);
            if (width >= columns || lines != 1)
                fail_msg("%d columns: %d used, %d lines", columns, width, lines);
        }
    }
}

static void test_what_is_shown(void **state) {
    (void)state;
    const char *wide = draw(80, "scoring", 0);
    assert_non_null(strstr(wide, "scoring \033[32m################\033[0m----------------  50%"));
    const char *narrow = draw(40, "scoring", 0);
    assert_non_null(strstr(narrow, "scoring \033[32m######\033[0m-------  50%")); /* 13 cells */
    const char *tiny = draw(20, "scoring", 0);
    assert_non_null(strstr(tiny, "scoring  50%"));
    assert_null(strchr(tiny, '#'));
    const char *unknown = draw(0, "scoring", 0); /* like 80 columns */
    assert_non_null(strstr(unknown, "scoring \033[32m################\033[0m"));
    assert_non_null(strstr(draw(40, "scoring", 60), " s left"));
}

#endif

/* Runs the steps of a stage, `seconds` apart, and returns the lines in a log. */
static const char *write_log(int n_steps, double seconds) {
    static char logged[4096];
    int pipe_ends[2], saved = dup(STDERR_FILENO);
    assert_int_equal(pipe(pipe_ends), 0);
    assert_true(dup2(pipe_ends[1], STDERR_FILENO) >= 0);
    close(pipe_ends[1]);
    terminal_progress p;
    terminal_progress_begin(&p, false);
    for (int i = 0; i <= n_steps; i++) {
        p.printed -= seconds;
        terminal_progress_step(&p, "scoring", (double)i / n_steps);
    }
    terminal_progress_end(&p);
    assert_true(dup2(saved, STDERR_FILENO) >= 0);
    close(saved);
    ssize_t n = read(pipe_ends[0], logged, sizeof logged - 1);
    close(pipe_ends[0]);
    assert_true(n >= 0);
    logged[n] = 0;
    return logged;
}

static void test_logs(void **state) {
    (void)state;
    assert_string_equal(write_log(100, 0.001), ""); /* short work */
    assert_string_equal(write_log(4, 2.5),
                        "scoring: 0%\nscoring: 20%\nscoring: 50%\nscoring: 70%\nscoring: 100%\n");
    /* At most one line in two seconds: at steps 3, 7, ... and at the end. */
    assert_string_equal(write_log(20, 0.5),
                        "scoring: 10%\nscoring: 30%\nscoring: 50%\nscoring: 70%\nscoring: 90%\n"
                        "scoring: 100%\n");
}

static void test_columns(void **state) {
    (void)state;
    assert_int_equal(terminal_columns(stdout, 7),
                     isatty(STDOUT_FILENO) ? terminal_columns(stdout, 9) : 7);
    terminal_set(TERMINAL_COLOR_AUTO, 33);
    assert_int_equal(terminal_columns(stdout, 7), 33);
    terminal_set(TERMINAL_COLOR_AUTO, 0);
}

/* Returns the output on a terminal of `columns` for a text in pieces of whole characters, about
 * `piece` bytes each; free the result. */
static char *wrap(const char *text, int columns, size_t piece) {
    char *shown = NULL;
    size_t n_shown = 0, n = strlen(text);
    terminal_set(TERMINAL_COLOR_AUTO, columns);
    word_wrap w = {.out = open_memstream(&shown, &n_shown), .terminal = true};
    assert_non_null(w.out);
    for (size_t i = 0; i < n;) {
        size_t end = i + piece < n ? i + piece : n;
        while (end < n && ((unsigned char)text[end] & 0xc0) == 0x80) end++;
        word_wrap_put(&w, text + i, end - i);
        i = end;
    }
    word_wrap_flush(&w);
    fclose(w.out);
    terminal_set(TERMINAL_COLOR_AUTO, 0);
    return shown;
}

static void test_words(void **state) {
    (void)state;
    static const struct {
        const char *text, *shown; /* on 10 columns */
    } cases[] = {
        {"one two three four", "one two\nthree four"},
        {"  indented text", "  indented\ntext"},
        {"exactly 10", "exactly 10"},
        {"exactly 10 more", "exactly 10\nmore"},
        {"a\n\nb  c\n", "a\n\nb  c\n"},
        {"a 12345678901234567890123", "a\n1234567890\n1234567890\n123"},
        {"schöne Grüße", "schöne\nGrüße"},
        {"你好你好你好", "你好你好你\n好"}, /* two columns each */
        {"ab 你好你好", "ab 你好你\n好"},
        {"a\tb", "a       b"},
        {"a \033[2J b", "a \\x1B[2J\nb"},
        {"e\u0301e\u0301 e\u0301e\u0301e\u0301e\u0301e\u0301e\u0301e\u0301",
         "e\u0301e\u0301 e\u0301e\u0301e\u0301e\u0301e\u0301e\u0301e\u0301"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (size_t piece = 1; piece < 20; piece += 3) {
            char *shown = wrap(cases[i].text, 10, piece);
            assert_string_equal(shown, cases[i].shown);
            free(shown);
        }
    }
}

/* Without a terminal no text is changed. */
static void test_bytes(void **state) {
    (void)state;
    char *shown = NULL;
    size_t n_shown = 0;
    word_wrap w = {.out = open_memstream(&shown, &n_shown)};
    word_wrap_put(&w, "a\xff \033[2J\tb", 10);
    word_wrap_flush(&w);
    fclose(w.out);
    assert_string_equal(shown, "a\xff \033[2J\tb");
    free(shown);
}

int main(void) {
    terminal_use_locale();
    const struct CMUnitTest tests[] = {
#if !defined(_WIN32)
        cmocka_unit_test(test_every_width),
        cmocka_unit_test(test_what_is_shown),
#endif
        cmocka_unit_test(test_logs),
        cmocka_unit_test(test_columns),
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
