/* line_edit.h: edits a line on a terminal whose keys are read one by one (os_key_read), with
 * history and completion. For systems without libedit. */
#ifndef CLI_LINE_EDIT_H
#define CLI_LINE_EDIT_H

#include "cli_text.h"

typedef struct line_edit line_edit;

typedef enum line_result {
    LINE_DONE,      /* Enter */
    LINE_INTERRUPT, /* Ctrl-C on an empty line */
    LINE_END        /* Ctrl-D or Ctrl-Z on an empty line, or no more keys */
} line_result;

typedef struct line_edit_options {
    int (*key)(void *user); /* the next key (os_terminal.h); negative: no more */
    /* Tab: appends the completion of text[n] to `insert`, or prints the choices on the screen. */
    void (*complete)(void *user, const char *text, size_t n, text_buffer *insert);
    void *user;
    FILE *screen;        /* a terminal that shows UTF-8; no control sequences */
    const char *history; /* file, created if missing; NULL: none. Borrowed */
} line_edit_options;

pi_status line_edit_create(const line_edit_options *o, line_edit **out, pi_error *err);
void line_edit_free(line_edit *e); /* accepts NULL */

/* Reads a line. *line: its text with a newline, NUL-terminated, valid until the next call. `keep`:
 * add the line to the history. */
line_result line_edit_read(line_edit *e, const char *prompt, bool keep, const char **line,
                           size_t *n);
/* The next line starts with this text. False: out of memory. */
bool line_edit_prefill(line_edit *e, const char *text);
/* Whether Ctrl-C cleared the last line at least once. */
bool line_edit_was_cleared(const line_edit *e);

#endif
