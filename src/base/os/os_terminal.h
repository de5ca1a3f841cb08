/* os_terminal.h: the standard streams and the terminal behind them. */
#ifndef BASE_OS_TERMINAL_H
#define BASE_OS_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

bool os_is_terminal(FILE *stream);
/* Width of the terminal in cells; 0: unknown, or not a terminal. */
int os_terminal_columns(FILE *stream);
/* Cells that a character of n bytes, well-formed UTF-8, takes; negative: unknown or not printable.
 */
int os_character_width(const char *character, size_t n);

/* The next byte of standard input; EOF: the end. What a user types is UTF-8, also where the C
 * library would read other bytes (Windows). */
int os_stdin_get(void);
/* Turns line ends in text[n] that was read from standard input into LF; returns the new length.
 * Shells of Windows write CR and LF. */
size_t os_stdin_lines(char *text, size_t n);
/* Starts reading standard input key by key, without echo; Ctrl-C is a key, not a signal. False:
 * standard input is not a console of Windows. On other systems libedit reads keys. */
bool os_keys_begin(void);
void os_keys_end(void);
/* Waits for the next key: a code point (Ctrl and a letter: 1 to 26) or one of these. Negative: no
 * more keys. Only after os_keys_begin. */
enum {
    OS_KEY_LEFT = 0x110000, /* after the last code point */
    OS_KEY_RIGHT,
    OS_KEY_WORD_LEFT, /* with Ctrl */
    OS_KEY_WORD_RIGHT,
    OS_KEY_UP,
    OS_KEY_DOWN,
    OS_KEY_HOME,
    OS_KEY_END,
    OS_KEY_DELETE
};
int os_key_read(void);
/* Whether standard input has bytes that no stream has read yet; waits for them up to `seconds`. */
bool os_stdin_has_input(double seconds);
/* Whether the reader of standard output has closed its end. */
bool os_stdout_is_broken(void);
/* Opens the null device for each standard stream that is closed, so that no other file takes its
 * place; using it fails. Call it first. False: not possible. */
bool os_standard_streams_open(void);

/* Whether standard input is a terminal whose window closes when this program ends, because it was
 * opened for it. */
bool os_terminal_closes(void);
/* Opens a web address in the user's browser, without waiting. Returns 0 or an error number. */
int os_open_address(const char *address);

/* Reserves the stream for this thread until os_stream_unlock. */
void os_stream_lock(FILE *stream);
void os_stream_unlock(FILE *stream);

#endif
