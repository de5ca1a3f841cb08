/* os_terminal.h: the standard streams and the terminal behind them. */
#ifndef BASE_OS_TERMINAL_H
#define BASE_OS_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

bool os_is_terminal(FILE *stream);
/* Width of the terminal in cells; 0: unknown, or not a terminal. */
int os_terminal_columns(FILE *stream);
/* Cells that a wide character takes; negative: it is not printable. */
int os_character_width(wchar_t c);

/* Whether standard input has bytes that no stream has read yet; waits for them up to `seconds`. */
bool os_stdin_has_input(double seconds);
/* Whether the reader of standard output has closed its end. */
bool os_stdout_is_broken(void);
/* Opens the null device for each standard stream that is closed, so that no other file takes its
 * place; using it fails. Call it first. False: not possible. */
bool os_standard_streams_open(void);

/* Reserves the stream for this thread until os_stream_unlock. */
void os_stream_lock(FILE *stream);
void os_stream_unlock(FILE *stream);

#endif
