/* flags_page.c: the tables of docs/llama-flags.md: how each command treats the flags of its
 * counterpart in llama.cpp. scripts/llama-flags.sh writes them into the document. */
#include <string.h>

#include "completion.h"

static const struct {
    const char *programs, *command;
    uint32_t bit;
} pages[] = {{"llama-cli, llama-completion", "run", COMMAND_RUN},
             {"llama-server", "serve", COMMAND_SERVE},
             {"llama-bench", "bench", COMMAND_BENCH},
             {"llama-perplexity", "perplexity", COMMAND_PERPLEXITY},
             {"llama-quantize", "quantize", COMMAND_QUANTIZE},
             {"llama-imatrix", "imatrix", COMMAND_IMATRIX},
             {"llama-tokenize", "tokenize", COMMAND_TOKENIZE},
             {"llama-embedding", "embed", COMMAND_EMBED}};

/* Prints alternatives with slashes: a bar would end the cell of the table. */
static void put_slashes(FILE *out, const char *text) {
    for (; *text; text++) fputc(*text == '|' ? '/' : *text, out);
}

/* Prints names separated by blanks as "`-a`, `--all [N]`". */
static void put_names(FILE *out, const char *names, const char *argument, bool may_be_bare) {
    while (*names) {
        size_t n = strcspn(names, " ");
        fprintf(out, "`%.*s", (int)n, names);
        names += n + (names[n] == ' ');
        if (!*names && argument) {
            fputs(may_be_bare ? " [" : " ", out);
            put_slashes(out, argument);
            if (may_be_bare) fputc(']', out);
        }
        fputs(*names ? "`, " : "`", out);
    }
}

static void put_option(FILE *out, const option *o) {
    char names[256];
    int n = snprintf(names, sizeof names, "%s%s%s--%s", o->short_name ? "-" : "",
                     o->short_name ? o->short_name : "", o->short_name ? " " : "", o->long_name);
    for (int a = 0; a < OPTION_MAX_ALIASES && o->aliases[a]; a++)
        n += snprintf(names + n, sizeof names - (size_t)n, " %s", o->aliases[a]);
    for (int opposite = 0; opposite <= (o->opposite != NULL); opposite++) {
        fputs("| ", out);
        put_names(out, opposite ? o->opposite : names, o->argument, o->bare != NULL);
        fputs(" | same", out);
        if (o->llama_note) fprintf(out, "; %s", o->llama_note);
        fputs(" |\n", out);
    }
}

static void put_compat(FILE *out, const option_compat *c) {
    fputs("| ", out);
    put_names(out, c->names, c->argument, c->may_be_bare);
    if (c->meant) {
        fprintf(out, " | use %s |\n", c->meant);
    } else if (c->later) {
        fprintf(out, " | not supported yet: %s |\n", c->later);
    } else if (!c->accepted) {
        fprintf(out, " | not supported: %s |\n", c->refused);
    } else if (!c->refused) {
        fputs(" | accepted, no effect |\n", out);
    } else {
        fputs(" | accepted at ", out);
        put_slashes(out, c->accepted);
        fprintf(out, ", no effect; else not supported: %s |\n", c->refused);
    }
}

void flags_page(FILE *out) {
    for (size_t p = 0; p < sizeof pages / sizeof *pages; p++) {
        fprintf(out, "%s## %s: powerinfer %s\n\n| flag | here |\n|---|---|\n", p ? "\n" : "",
                pages[p].programs, pages[p].command);
        fputs("| `-h`, `--help`, `--usage` | same |\n", out);
        for (size_t i = 0; i < option_count; i++)
            if (option_table[i].commands & option_table[i].llama & pages[p].bit)
                put_option(out, &option_table[i]);
        for (size_t i = 0; i < compat_count; i++)
            if (compat_table[i].commands & pages[p].bit) put_compat(out, &compat_table[i]);
    }
}
