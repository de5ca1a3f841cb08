/* man_page.c: man pages in the man(7) macros. */
#include <string.h>

#include "completion.h"

/* Prints text at the start of a line, where a dot or a quote would begin a request. */
static void print_text(FILE *out, const char *text) {
    if (*text == '.' || *text == '\'') fputs("\\&", out);
    for (; *text; text++) {
        if (*text == '\\')
            fputs("\\e", out);
        else if (*text == '-')
            fputs("\\-", out);
        else if (*text == '~')
            fputs("\\(ti", out);
        else if (*text == '^')
            fputs("\\(ha", out);
        else
            fputc(*text, out);
    }
}

static void print_option(FILE *out, const option *o) {
    char text[HELP_TEXT_MAX];
    fputs(".TP\n.B ", out);
    if (o->short_name) {
        fputs("\\-", out);
        print_text(out, o->short_name);
        fputs(", ", out);
    }
    fputs("\\-\\-", out);
    print_text(out, o->long_name);
    for (int a = 0; a < OPTION_MAX_ALIASES && o->aliases[a]; a++) {
        fputs(", ", out);
        print_text(out, o->aliases[a]);
    }
    if (o->argument) {
        fputs(" \\fI", out);
        print_text(out, o->argument);
        fputs("\\fP", out);
    }
    fputc('\n', out);
    help_option_text(o, text, sizeof text);
    print_text(out, text);
    fputc('\n', out);
}

static void print_options(FILE *out, uint32_t bit) {
    fputs(".SH OPTIONS\n", out);
    for (int group = 0; group < GROUP_COUNT; group++) {
        bool headed = false;
        for (size_t i = 0; i < option_count; i++) {
            const option *o = &option_table[i];
            if (!(o->commands & bit) || o->group != (option_group)group) continue;
            if (!headed) fprintf(out, ".SS %s\n", help_group_title(bit, (option_group)group));
            headed = true;
            print_option(out, o);
        }
    }
    fputs(".TP\n.B \\-h, \\-\\-help\nlist the options\n", out);
}

static void print_examples(FILE *out, uint32_t bit) {
    const char *const *lines = help_examples(bit);
    fputs(".SH EXAMPLES\n.nf\n", out);
    for (int i = 0; lines && i < HELP_EXAMPLES; i++) {
        fputs("powerinfer ", out);
        print_text(out, lines[i]);
        fputc('\n', out);
    }
    fputs(".fi\n", out);
}

static void print_commands(FILE *out, const command *commands, size_t n) {
    fputs(".SH COMMANDS\n", out);
    for (size_t i = 0; i < n; i++) {
        fprintf(out, ".TP\n.BR powerinfer\\-%s (1)\n", commands[i].name);
        print_text(out, commands[i].title);
        fputc('\n', out);
    }
}

static void print_head(FILE *out, const command *c) {
    char capitals[32] = "";
    for (size_t i = 0; c && c->name[i] && i + 1 < sizeof capitals; i++)
        capitals[i] = (char)(c->name[i] - 'a' + 'A');
    fprintf(out, ".TH POWERINFER%s%s 1 \"\" \"powerinfer %s\" \"User Commands\"\n.SH NAME\n",
            c ? "\\-" : "", capitals, pi_version());
    fprintf(out, "powerinfer%s%s \\- ", c ? "\\-" : "", c ? c->name : "");
    print_text(out, c ? c->title : "run large language models on ordinary machines");
    fputs("\n.SH SYNOPSIS\n.B powerinfer\n", out);
    print_text(out, c ? c->usage : "COMMAND [options]");
    fputc('\n', out);
}

void man_page(FILE *out, const command *c) {
    size_t n;
    const command *commands = cli_commands(&n);
    print_head(out, c);
    if (c && c->detail) {
        fputs(".SH DESCRIPTION\n", out);
        print_text(out, c->detail);
        fputc('\n', out);
    }
    print_examples(out, c ? c->bit : 0);
    if (c)
        print_options(out, c->bit);
    else
        print_commands(out, commands, n);
    fputs(".SH ENVIRONMENT\n"
          "Every option can also be set in the environment: POWERINFER_ and its long name in\n"
          "capitals with underscores, such as POWERINFER_MODEL.\n"
          ".SH EXIT STATUS\n"
          "0 done, 1 the work failed, 2 the command line was wrong, 128 + N ended by signal N.\n"
          ".SH SEE ALSO\n",
          out);
    if (c) {
        fputs(".BR powerinfer (1)\n", out);
        return;
    }
    for (size_t i = 0; i < n; i++)
        fprintf(out, ".BR powerinfer\\-%s (1)%s\n", commands[i].name, i + 1 < n ? "," : "");
}
