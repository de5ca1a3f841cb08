/* cli_inside.h: the program as a function: runs its main() with any arguments inside the test's
 * process and captures the output. For tests that run it thousands of times or reach into it
 * (mem_fail_at). Tests of the process itself, such as signals and exit statuses seen from outside,
 * start the real program (cli_shell.h).
 *
 * The call replaces the streams stdout and stderr, not the descriptors, so that a sanitizer's
 * report still reaches the terminal. This requires a C library where stdout and stderr are
 * variables; on Windows it replaces the descriptors, elsewhere CMake omits these tests. One call at
 * a time. */
#ifndef TEST_CLI_INSIDE_H
#define TEST_CLI_INSIDE_H

#include <stdbool.h>
#include <stddef.h>

typedef struct cli_result {
    int status;
    char *out, *err; /* NUL-terminated */
    size_t n_out, n_err;
} cli_result;

/* words[0 .. n) follow the program's name. Free the result with cli_result_free(). */
cli_result cli_inside(int n, const char *const *words);
void cli_result_free(cli_result *r);

/* True when `text` is exactly one line "powerinfer: what was wrong: where, or what to do", without
 * control characters. */
bool cli_is_message(const char *text);

#endif
