/* terminal.h: progress of long work on standard error: a bar with the time left that is redrawn on
 * a terminal, a plain line every tenth otherwise, nothing with -q. */
#ifndef CLI_TERMINAL_H
#define CLI_TERMINAL_H

#include <stdbool.h>

enum { TERMINAL_STAGE_MAX = 64 };

typedef struct terminal_progress {
    bool silent, is_terminal;
    bool bar_shown;                 /* the cursor is at the end of a bar */
    char stage[TERMINAL_STAGE_MAX]; /* last one shown, cut to fit */
    double started;                 /* clock_seconds of the stage's first step */
    int shown;                      /* percent on a terminal, tenths otherwise; -1: nothing yet */
} terminal_progress;

void terminal_progress_begin(terminal_progress *p, bool quiet);
/* A pi_progress; user is the terminal_progress. Always returns true: stopping is by signal. */
bool terminal_progress_step(void *user, const char *stage, double fraction);
/* A pi_message; user is the terminal_progress. */
void terminal_progress_message(void *user, const char *line);
/* Ends the line of the bar, if there is one. Before any other message. */
void terminal_progress_end(terminal_progress *p);

#endif
