/* terminal.c: see terminal.h. The progress bar uses only control sequences that every terminal
 * knows: carriage return, "erase to the end of the line", and green. */
#include "terminal.h"

#include <locale.h>
#include <math.h>
#include <string.h>

#include "clock.h"
#include "os_terminal.h"
#include "printable.h"

enum {
    BAR_WIDTH = 32,     /* cells, in a wide terminal */
    BAR_LEAST = 8,      /* a shorter bar shows nothing */
    NUMBERS_WIDTH = 18, /* " 100%, 1234 s left" */
    COLUMNS_UNKNOWN = 80,
    PLAIN_STEPS = 10,  /* lines per stage when there is no terminal */
    PLAIN_SECONDS = 2, /* between two of these lines, and before the first line */
    ESTIMATE_AFTER = 2 /* seconds of a stage before its time left can be estimated */
};

static terminal_color colors;
static int columns_given; /* 0: none */

void terminal_set(terminal_color color, int columns) {
    colors = color;
    columns_given = columns;
}

const char *terminal_style(FILE *out, const char *style) {
    bool styled = colors == TERMINAL_COLOR_AUTO ? os_is_terminal(out) : colors == TERMINAL_COLOR_ON;
    return styled ? style : "";
}

int terminal_columns(FILE *out, int unknown) {
    if (columns_given > 0) return columns_given;
    int columns = os_terminal_columns(out);
    return columns > 0 ? columns : unknown;
}

void terminal_use_locale(void) {
    const char *name = setlocale(LC_CTYPE, "");
    if (name && strcmp(name, "C") != 0 && strcmp(name, "POSIX") != 0) return;
    if (!setlocale(LC_CTYPE, "C.UTF-8")) setlocale(LC_CTYPE, "en_US.UTF-8");
}

void terminal_progress_begin(terminal_progress *p, bool quiet) {
    *p = (terminal_progress){.silent = quiet,
                             .is_terminal = os_is_terminal(stderr),
                             .shown = -1,
                             .printed = clock_seconds()};
}

/* " 42%, 3 min left" */
static int describe(const terminal_progress *p, double fraction, char *buf, size_t n_buf) {
    int n = snprintf(buf, n_buf, " %3d%%", (int)(fraction * 100));
    double spent = clock_seconds() - p->started;
    if (spent <= ESTIMATE_AFTER || fraction <= p->began_at || fraction >= 1) return n;
    double seconds = spent * (1 - fraction) / (fraction - p->began_at);
    bool minutes = seconds >= 100;
    return n + snprintf(buf + n, n_buf - (size_t)n, ", %.0f %s left",
                        ceil(minutes ? seconds / 60 : seconds), minutes ? "min" : "s");
}

/* The bar has one line, because a wrapped line cannot be redrawn in place. In a narrow terminal the
 * bar gets shorter, then disappears, then the stage's name is truncated. */
static void draw_bar(terminal_progress *p, double fraction) {
    char cells[BAR_WIDTH + 1], numbers[64];
    int room = terminal_columns(stderr, COLUMNS_UNKNOWN) -
               1; /* some terminals wrap after the last column */
    int n_numbers = describe(p, fraction, numbers, sizeof numbers);
    int n_stage = (int)strlen(p->stage);
    /* The bar keeps its width when the time left appears. */
    int width = room - n_stage - 1 - (n_numbers > NUMBERS_WIDTH ? n_numbers : NUMBERS_WIDTH);
    if (width > BAR_WIDTH) width = BAR_WIDTH;
    fputs("\r\033[K", stderr);
    if (width >= BAR_LEAST) {
        int filled = (int)(fraction * width);
        memset(cells, '-', (size_t)width);
        memset(cells, '#', (size_t)filled);
        fprintf(stderr, "%s %s%.*s%s%.*s%s", p->stage, terminal_style(stderr, TERMINAL_GREEN),
                filled, cells, terminal_style(stderr, TERMINAL_PLAIN), width - filled,
                cells + filled, numbers);
    } else {
        if (n_numbers > room) n_numbers = room;
        if (n_stage > room - n_numbers) n_stage = room - n_numbers;
        fprintf(stderr, "%.*s%.*s", n_stage, p->stage, n_numbers, numbers);
    }
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
        p->began_at = fraction;
    }
    int step = (int)(fraction * (p->is_terminal ? 100 : PLAIN_STEPS));
    if (step == p->shown) return true;
    if (p->is_terminal) {
        draw_bar(p, fraction);
    } else {
        /* A stage whose beginning was printed also gets its last line. */
        double now = clock_seconds();
        bool ends = step == PLAIN_STEPS && p->shown >= 0;
        if (now - p->printed < PLAIN_SECONDS && !ends) return true;
        p->printed = now;
        fprintf(stderr, "%s: %d%%\n", p->stage, step * 100 / PLAIN_STEPS);
    }
    p->shown = step;
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
