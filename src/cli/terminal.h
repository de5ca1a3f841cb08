/* terminal.h: properties of the terminal: width, colors, characters; and the progress of long work
 * on standard error: on a terminal a bar with the time left, otherwise a line every tenth, at most
 * one in two seconds, and nothing with -q. */
#ifndef CLI_TERMINAL_H
#define CLI_TERMINAL_H

#include <stdbool.h>
#include <stdio.h>

/* In the order of the choices of --color. */
typedef enum terminal_color {
    TERMINAL_COLOR_AUTO, /* on terminals */
    TERMINAL_COLOR_ON,
    TERMINAL_COLOR_OFF
} terminal_color;

/* Before anything is printed. columns: the width from the environment; 0: ask the terminal. */
void terminal_set(terminal_color color, int columns);
/* Control sequence of a style; "" without colors. */
#define TERMINAL_BOLD  "\033[1m"
#define TERMINAL_DIM   "\033[2m"
#define TERMINAL_GREEN "\033[32m"
#define TERMINAL_PLAIN "\033[0m"
const char *terminal_style(FILE *out, const char *style);
/* Current width, as terminals are resized; `unknown` where `out` is no terminal. */
int terminal_columns(FILE *out, int unknown);
/* Sets the character set of the user's locale (UTF-8 in the locale "C") for libedit and wcwidth. */
void terminal_use_locale(void);

enum { TERMINAL_STAGE_MAX = 64 };

typedef struct terminal_progress {
    bool silent, is_terminal;
    bool bar_shown;                 /* the cursor is at the end of a bar */
    char stage[TERMINAL_STAGE_MAX]; /* last stage that was shown, truncated */
    double started, began_at;       /* clock_seconds and fraction of the stage's first step */
    int shown;                      /* percent on a terminal, tenths otherwise; -1: nothing yet */
    double printed;                 /* without a terminal: clock_seconds of the last line, at first
                                     * of the beginning */
} terminal_progress;

void terminal_progress_begin(terminal_progress *p, bool quiet);
/* A pi_progress; user: the terminal_progress. Always returns true: signals stop the work. */
bool terminal_progress_step(void *user, const char *stage, double fraction);
/* A pi_message; user: the terminal_progress. */
void terminal_progress_message(void *user, const char *line);
/* Ends the line of the bar, if there is one; call it before any other message. */
void terminal_progress_end(terminal_progress *p);

#endif
