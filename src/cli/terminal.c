/* terminal.c: drawing a progress bar. Only two control sequences are used, which every terminal of
 * the last decades knows: carriage return and "erase to the end of the line"; and green, only on
 * a terminal. */
#include "terminal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "printable.h"

enum {
    BAR_WIDTH = 32,    /* cells */
    PLAIN_STEPS = 10,  /* lines per stage when there is no terminal */
    ESTIMATE_AFTER = 2 /* seconds of a stage before its time left means anything */
};

void terminal_progress_begin(terminal_progress *p, bool quiet) {
    *p = (terminal_progress){
        .silent = quiet, .is_terminal = isatty(STDERR_FILENO) == 1, .shown = -1};
}

static void show_time_left(double seconds) {
    if (seconds < 100)
        fprintf(stderr, ", %.0f s left", ceil(seconds));
    else
        fprintf(stderr, ", %.0f min left", ceil(seconds / 60));
}

static void draw_bar(terminal_progress *p, double fraction) {
    char cells[BAR_WIDTH + 1];
    int filled = (int)(fraction * BAR_WIDTH);
    memset(cells, '-', BAR_WIDTH);
    memset(cells, '#', (size_t)filled);
    cells[BAR_WIDTH] = 0;
    fprintf(stderr, "\r\033[K%s \033[32m%.*s\033[0m%s %3d%%", p->stage, filled, cells,
            cells + filled, (int)(fraction * 100));
    double spent = clock_seconds() - p->started;
    if (spent > ESTIMATE_AFTER && fraction > 0 && fraction < 1)
        show_time_left(spent * (1 - fraction) / fraction);
    fflush(stderr);
    p->bar_shown = true;
}

bool terminal_progress_step(void *user, const char *stage, double fraction) {
    terminal_progress *p = user;
    if (p->silent) return true;
    if (!(fraction >= 0)) fraction = 0; /* also NaN */
    if (fraction > 1) fraction = 1;
    char cut[TERMINAL_STAGE_MAX];
    snprintf(cut, sizeof cut, "%s", stage);
    if (strcmp(cut, p->stage) != 0) {
        terminal_progress_end(p);
        memcpy(p->stage, cut, sizeof cut);
        p->shown = -1;
        p->started = clock_seconds();
    }
    int step = (int)(fraction * (p->is_terminal ? 100 : PLAIN_STEPS));
    if (step == p->shown) return true;
    p->shown = step;
    if (p->is_terminal) {
        draw_bar(p, fraction);
    } else {
        fprintf(stderr, "%s: %d%%\n", p->stage, step * 100 / PLAIN_STEPS);
    }
    return true;
}

void terminal_progress_message(void *user, const char *line) {
    terminal_progress *p = user;
    if (p->silent) return;
    terminal_progress_end(p);
    printable_print(stderr, line, strlen(line));
    fputc('\n', stderr);
}

void terminal_progress_end(terminal_progress *p) {
    if (p->bar_shown) fputc('\n', stderr);
    p->bar_shown = false;
    p->shown = -1;
}
