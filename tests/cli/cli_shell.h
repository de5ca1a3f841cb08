/* cli_shell.h: runs command lines as a user types them, in a separate folder.
 *
 * $PI is the program and $M the test model. Every POWERINFER_ and LLAMA_ variable of the caller is
 * removed; POWERINFER_DEVICE is "cpu", so that no test depends on this machine's GPU.
 * Standard input is empty, standard output and error go to the files `out` and `err`, unless the
 * line redirects them. */
#ifndef TEST_CLI_SHELL_H
#define TEST_CLI_SHELL_H

#include <stddef.h>

/* Why standard output cannot be written to /dev/full, in the program's messages. The C library of
 * Windows has no error for it. */
#if defined(_WIN32)
#define SHELL_FULL    "redirect it to a place that can be written"
#define SHELL_LIBRARY ".dll" /* end of the name of a backend */
#else
#define SHELL_FULL    "No space left on device"
#define SHELL_LIBRARY ".so"
#endif

/* cmocka group fixtures: make and remove the folder and the model. */
int shell_setup(void **state);
int shell_teardown(void **state);

/* Runs `line` with sh; returns its exit status (128 + n for a signal n). */
int sh(const char *line);
/* Returns the bytes of a file in the folder, NUL-terminated, valid until the next call; fails the
 * test if the file is missing. */
const char *shell_read(const char *name, size_t *n_bytes);
/* Whether the folder has a file with this name. */
int shell_has(const char *name);
/* Number of files in the folder whose names end in ".tmp". */
int shell_temporaries(void);
void shell_write(const char *name, const void *data, size_t n_bytes);

/* Check that the last line's standard output (standard error) is exactly this. */
#define assert_out(text) assert_string_equal(shell_read("out", NULL), text)
#define assert_err(text) assert_string_equal(shell_read("err", NULL), text)

/* Checks that a file of the folder contains this text. */
void assert_contains(const char *name, const char *text);
/* Checks a usage error: status 2, exactly this message, nothing on standard output, no new
 * files. */
void assert_wrong(const char *line, const char *message);

#endif
