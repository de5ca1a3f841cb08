/* cli_inside.h: the program as a function: its main() with any arguments inside the test's own
 * process, with what it prints caught. For tests that run it thousands of times or reach into it
 * (mem_fail_at). Everything about the process itself, such as signals and exit statuses seen from
 * outside, is for the tests that start the real program (cli_shell.h).
 *
 * stdout and stderr are exchanged as streams, not as descriptors, so that a sanitizer's report
 * still reaches the terminal. That takes a C library in which they are variables; CMake leaves
 * these tests out elsewhere. One call at a time. */
#ifndef TEST_CLI_INSIDE_H
#define TEST_CLI_INSIDE_H

#include <stdbool.h>
#include <stddef.h>

typedef struct cli_result {
    int status;
    char *out, *err; /* NUL-terminated */
    size_t n_out, n_err;
} cli_result;

/* words[0 .. n) follow the program's name. cli_result_free() after it. */
cli_result cli_inside(int n, const char *const *words);
void cli_result_free(cli_result *r);

/* True when `text` is exactly one line "powerinfer: what was wrong: where, or what to do", without
 * control characters. */
bool cli_is_message(const char *text);

#endif
