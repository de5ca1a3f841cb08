/* test_cli_terminal.c: the progress bar on terminals of every width: what it draws never reaches
 * the last column, so that no terminal wraps it into a second line. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmocka.h>

#include "clock.h"
#include "terminal.h"

enum { DRAWN_MAX = 1 << 16 };

/* Draws all steps of a stage on a terminal of `columns` and returns what reached it. */
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

/* Widest line in columns; *lines is how many newlines there are. Control sequences have no width,
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
    const char *unknown = draw(0, "scoring", 0); /* as 80 columns */
    assert_non_null(strstr(unknown, "scoring \033[32m################\033[0m"));
    assert_non_null(strstr(draw(40, "scoring", 60), " s left"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_width),
        cmocka_unit_test(test_what_is_shown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
