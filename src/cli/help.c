/* help.c: --help, written from the tables of commands and options, so that it cannot be out of
 * date. */
#include <string.h>

#include "cli.h"
#include "terminal.h"

enum {
    WIDTH = 96,        /* most columns; a little less than the lines of the sources */
    NARROW = 66,       /* with fewer columns descriptions begin on the next line */
    HELP_COLUMN = 30,  /* where descriptions begin */
    HELP_INDENT = 6,   /* where they begin on a narrow terminal */
    TITLE_COLUMN = 13, /* of the commands' titles */
    LEFT_MAX = 160     /* bytes of "-n, --predict, --n-predict N" */
};

static int width_of(FILE *out) {
    int columns = terminal_columns(out, WIDTH);
    return columns < WIDTH ? columns : WIDTH;
}

/* Words of `text`, wrapped, from column `at` on; further lines are indented to `indent`. */
static void print_wrapped(FILE *out, const char *text, int at, int indent) {
    const int width = width_of(out);
    while (*text) {
        int length = (int)strcspn(text, " ");
        if (at > indent && at + 1 + length > width) {
            fprintf(out, "\n%*s", indent, "");
            at = indent;
        } else if (at > indent) {
            fputc(' ', out);
            at++;
        }
        fprintf(out, "%.*s", length, text);
        at += length;
        text += length;
        text += strspn(text, " ");
    }
    fputc('\n', out);
}

static void print_heading(FILE *out, const char *text) {
    fprintf(out, "\n%s", terminal_style(out, TERMINAL_BOLD));
    print_wrapped(out, text, 0, 0);
    fputs(terminal_style(out, TERMINAL_PLAIN), out);
}

static void print_option(FILE *out, const option *o) {
    char left[LEFT_MAX], right[2 * WIDTH * 3];
    int n = snprintf(left, sizeof left, "  %s%s%s--%s", o->short_name ? "-" : "    ",
                     o->short_name ? o->short_name : "", o->short_name ? ", " : "", o->long_name);
    for (int a = 0; a < OPTION_MAX_ALIASES && o->aliases[a]; a++) {
        n += snprintf(left + n, sizeof left - (size_t)n, ", %s", o->aliases[a]);
    }
    if (o->argument) n += snprintf(left + n, sizeof left - (size_t)n, " %s", o->argument);
    int m = snprintf(right, sizeof right, "%s", o->help);
    const char *sign = " (";
    for (const char *c = o->choices ? o->choices : ""; *c;) {
        int length = (int)strcspn(c, "|");
        m += snprintf(right + m, sizeof right - (size_t)m, "%s%.*s", sign, length, c);
        sign = ", ";
        c += length + (c[length] == '|');
    }
    if (o->standard)
        m += snprintf(right + m, sizeof right - (size_t)m, "%sdefault %s", o->choices ? "; " : " (",
                      o->standard);
    if (o->choices || o->standard) snprintf(right + m, sizeof right - (size_t)m, ")");
    if (width_of(out) < NARROW) {
        fputs("  ", out);
        print_wrapped(out, left + strspn(left, " "), 2, HELP_INDENT - 2);
        fprintf(out, "%*s", HELP_INDENT, "");
        print_wrapped(out, right, HELP_INDENT, HELP_INDENT);
        return;
    }
    fputs(left, out);
    if (n + 2 > HELP_COLUMN) {
        fputc('\n', out);
        n = 0;
    }
    fprintf(out, "%*s", HELP_COLUMN - n, "");
    print_wrapped(out, right, HELP_COLUMN, HELP_COLUMN);
}

static void print_group(FILE *out, uint32_t bit, option_group group, const char *heading) {
    bool headed = false;
    for (size_t i = 0; i < option_count; i++) {
        const option *o = &option_table[i];
        if (!(o->commands & bit) || o->group != group) continue;
        if (!headed) print_heading(out, heading);
        headed = true;
        print_option(out, o);
    }
}

/* The first name of everything that is accepted for llama.cpp's sake. */
static void print_habits(FILE *out, uint32_t bit) {
    char list[2048] = "";
    size_t n = 0;
    for (size_t i = 0; i < habit_count; i++) {
        const option_habit *h = &habit_table[i];
        if (!(h->commands & bit) || !h->accepted || n + LEFT_MAX > sizeof list) continue;
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%.*s", n ? " " : "",
                              (int)strcspn(h->names, " "), h->names);
    }
    if (n == 0) return;
    print_heading(out, "Accepted for compatibility with llama.cpp, without effect");
    fputs("  ", out);
    print_wrapped(out, list, 2, 2);
}

void help_command(FILE *out, const command *c) {
    fputs("usage: powerinfer", out);
    print_wrapped(out, c->usage, 17, 7);
    fputc('\n', out);
    print_wrapped(out, c->title, 0, 0);
    if (c->detail) {
        fputc('\n', out);
        print_wrapped(out, c->detail, 0, 0);
    }
    print_group(out, c->bit, GROUP_COMMAND, "Options");
    print_group(out, c->bit, GROUP_COMMON, "Common options");
    print_group(out, c->bit, GROUP_ENGINE, "Engine");
    print_group(out, c->bit, GROUP_SAMPLING, "Sampling");
    print_habits(out, c->bit);
    fputc('\n', out);
    print_wrapped(
        out,
        "Every option can also be set in the environment: POWERINFER_ and its long name "
        "in capitals with underscores, such as POWERINFER_MODEL. Variables of llama.cpp's "
        "server, LLAMA_ARG_*, are also read.",
        0, 0);
}

void help_program(FILE *out, const command *commands, size_t n) {
    fprintf(out, "powerinfer %s:", pi_version());
    print_wrapped(out, "run large language models on ordinary machines",
                  (int)strlen(pi_version()) + 12, 0);
    fprintf(out, "\n"
                 "usage: powerinfer COMMAND [options]\n"
                 "       powerinfer COMMAND --help\n"
                 "       powerinfer --version\n");
    print_heading(out, "Commands");
    for (size_t i = 0; i < n; i++) {
        fprintf(out, "  %-10s ", commands[i].name);
        print_wrapped(out, commands[i].title, TITLE_COLUMN, TITLE_COLUMN);
    }
    fputc('\n', out);
    print_wrapped(out,
                  "Results go to standard output, progress and timings to standard error. Exit "
                  "status: 0 done, 1 the work failed, 2 the command line was wrong.",
                  0, 0);
}
