/* completion.c: completions for bash, zsh and fish: commands, their options, values of options:
 * choices or file names. */
#include "completion.h"

#include <string.h>

/* Prints "-m", "--model" and aliases, each between `before` and `after`. */
static void print_names(FILE *out, const option *o, const char *before, const char *after) {
    if (o->short_name) fprintf(out, "%s-%s%s", before, o->short_name, after);
    fprintf(out, "%s--%s%s", before, o->long_name, after);
    for (int a = 0; a < OPTION_MAX_ALIASES && o->aliases[a]; a++)
        fprintf(out, "%s%s%s", before, o->aliases[a], after);
}

/* Prints "a|b" as "a b". */
static void print_choices(FILE *out, const char *choices) {
    for (; *choices; choices++) fputc(*choices == '|' ? ' ' : *choices, out);
}

/* Prints text for a pair of ', with a backslash before every character of `escaped`. */
static void print_quoted(FILE *out, const char *text, const char *escaped) {
    for (; *text; text++) {
        if (*text == '\'')
            fputs("'\\''", out);
        else if (strchr(escaped, *text))
            fprintf(out, "\\%c", *text);
        else
            fputc(*text, out);
    }
}

static bool takes_file(const option *o) {
    return o->argument && (strstr(o->argument, "FILE") || strcmp(o->argument, "DIR") == 0);
}

static void print_commands(FILE *out, const command *commands, size_t n) {
    for (size_t i = 0; i < n; i++) fprintf(out, "%s%s", i ? " " : "", commands[i].name);
}

/* First arguments of the command `completion`. */
static const char forms[] = "bash zsh fish man all";

/* Options of every command that are not in the table. */
static const char help_options[] = " -h --help";

/* ---- bash ------------------------------------------------------------------------------------ */

static void bash_values(FILE *out, const command *c) {
    for (size_t i = 0; i < option_count; i++) {
        const option *o = &option_table[i];
        if (!(o->commands & c->bit) || !o->choices) continue;
        fputs("        ", out);
        fprintf(out, "--%s", o->long_name);
        if (o->short_name) fprintf(out, "|-%s", o->short_name);
        for (int a = 0; a < OPTION_MAX_ALIASES && o->aliases[a]; a++)
            fprintf(out, "|%s", o->aliases[a]);
        fputs(") values='", out);
        print_choices(out, o->choices);
        fputs("' ;;\n", out);
    }
}

void completion_bash(FILE *out) {
    size_t n;
    const command *commands = cli_commands(&n);
    fputs("# bash completion for powerinfer; written by: powerinfer completion bash\n"
          "_powerinfer() {\n"
          "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} options= "
          "values=\n"
          "    COMPREPLY=()\n"
          "    if ((COMP_CWORD == 1)); then\n"
          "        COMPREPLY=($(compgen -W '",
          out);
    print_commands(out, commands, n);
    fputs(" help --help --version' -- \"$cur\"))\n"
          "        return\n"
          "    fi\n"
          "    # --name=value arrives as three words\n"
          "    if [[ $cur == = ]]; then cur=\n"
          "    elif [[ $prev == = ]]; then prev=${COMP_WORDS[COMP_CWORD-2]}; fi\n"
          "    case ${COMP_WORDS[1]} in\n",
          out);
    for (size_t i = 0; i < n; i++) {
        const command *c = &commands[i];
        fprintf(out, "    %s)\n        options='", c->name);
        for (size_t k = 0; k < option_count; k++)
            if (option_table[k].commands & c->bit) print_names(out, &option_table[k], " ", "");
        fprintf(out, "%s'\n        case $prev in\n", help_options);
        bash_values(out, c);
        if (c->bit == COMMAND_COMPLETION) {
            fprintf(out, "        completion) values='%s' ;;\n        man) values='", forms);
            print_commands(out, commands, n);
            fputs("' ;;\n", out);
        }
        fputs("        esac ;;\n", out);
    }
    fputs("    help) values='", out);
    print_commands(out, commands, n);
    fputs("' ;;\n"
          "    esac\n"
          "    if [[ -n $values ]]; then\n"
          "        COMPREPLY=($(compgen -W \"$values\" -- \"$cur\"))\n"
          "    elif [[ $cur == -* ]]; then\n"
          "        COMPREPLY=($(compgen -W \"$options\" -- \"$cur\"))\n"
          "    fi\n"
          "}\n"
          "complete -o default -F _powerinfer powerinfer\n",
          out);
}

/* ---- zsh ------------------------------------------------------------------------------------- */

/* '(-m --model)'{-m,--model}'[help]:FILE:_files' */
static void zsh_option(FILE *out, const option *o) {
    bool several = o->short_name || o->aliases[0];
    bool repeats = o->type == OPTION_TEXTS;
    fputs("            ", out);
    if (repeats) {
        fputs("\\*", out);
    } else if (several) {
        fputs("'(", out);
        print_names(out, o, " ", "");
        fputs(")'", out);
    }
    if (several) {
        fputs("{", out);
        if (o->short_name) fprintf(out, "-%s,", o->short_name);
        fprintf(out, "--%s", o->long_name);
        for (int a = 0; a < OPTION_MAX_ALIASES && o->aliases[a]; a++)
            fprintf(out, ",%s", o->aliases[a]);
        fputs("}'[", out);
    } else {
        fprintf(out, "--%s'[", o->long_name);
    }
    print_quoted(out, o->help, "[]:\\");
    fputs("]", out);
    if (o->argument) {
        fputs(":", out);
        print_quoted(out, o->argument, "[]:\\");
        fputs(":", out);
        if (o->choices) {
            fputs("(", out);
            print_choices(out, o->choices);
            fputs(")", out);
        } else {
            fputs(takes_file(o) ? "_files" : " ", out); /* a blank: only the description */
        }
    }
    fputs("' \\\n", out);
}

void completion_zsh(FILE *out) {
    size_t n;
    const command *commands = cli_commands(&n);
    fputs("#compdef powerinfer\n"
          "# zsh completion for powerinfer; written by: powerinfer completion zsh\n"
          "_powerinfer() {\n"
          "    local -a commands\n"
          "    if (( CURRENT == 2 )); then\n"
          "        commands=(\n",
          out);
    for (size_t i = 0; i < n; i++) {
        fprintf(out, "            '%s:", commands[i].name);
        print_quoted(out, commands[i].title, ":\\");
        fputs("'\n", out);
    }
    fputs("        )\n"
          "        _describe command commands\n"
          "        return\n"
          "    fi\n"
          "    shift words\n"
          "    (( CURRENT-- ))\n"
          "    case $words[1] in\n",
          out);
    for (size_t i = 0; i < n; i++) {
        fprintf(out, "    %s)\n        _arguments \\\n", commands[i].name);
        for (size_t k = 0; k < option_count; k++)
            if (option_table[k].commands & commands[i].bit) zsh_option(out, &option_table[k]);
        fputs("            '(-h --help)'{-h,--help}'[list the options]' \\\n", out);
        if (commands[i].bit == COMMAND_COMPLETION) {
            fprintf(out, "            '1:form:(%s)' \\\n            '2:command:(", forms);
            print_commands(out, commands, n);
            fputs(")' ;;\n", out);
        } else {
            fputs("            '*:file:_files' ;;\n", out);
        }
    }
    fputs("    help)\n        compadd ", out);
    print_commands(out, commands, n);
    fputs(" ;;\n", out);
    fputs("    esac\n"
          "}\n"
          "_powerinfer \"$@\"\n",
          out);
}

/* ---- fish ------------------------------------------------------------------------------------ */

static void fish_option(FILE *out, const option *o, const command *commands, size_t n) {
    fputs("complete -c powerinfer -n '__fish_seen_subcommand_from", out);
    for (size_t i = 0; i < n; i++)
        if (o->commands & commands[i].bit) fprintf(out, " %s", commands[i].name);
    fprintf(out, "' -l %s", o->long_name);
    if (o->short_name) fprintf(out, " -%c %s", o->short_name[1] ? 'o' : 's', o->short_name);
    for (int a = 0; a < OPTION_MAX_ALIASES && o->aliases[a]; a++) {
        const char *name = o->aliases[a] + strspn(o->aliases[a], "-");
        fprintf(out, " -%c %s", o->aliases[a][1] == '-' ? 'l' : name[1] ? 'o' : 's', name);
    }
    if (o->choices) {
        fputs(" -x -a '", out);
        print_choices(out, o->choices);
        fputs("'", out);
    } else if (o->argument) {
        fputs(takes_file(o) ? " -r -F" : " -x", out);
    }
    fputs(" -d '", out);
    for (const char *c = o->help; *c; c++) {
        if (*c == '\'' || *c == '\\') fputc('\\', out);
        fputc(*c, out);
    }
    fputs("'\n", out);
}

void completion_fish(FILE *out) {
    size_t n;
    const command *commands = cli_commands(&n);
    fputs("# fish completion for powerinfer; written by: powerinfer completion fish\n", out);
    for (size_t i = 0; i < n; i++) {
        fprintf(out, "complete -c powerinfer -n __fish_use_subcommand -f -a %s -d '",
                commands[i].name);
        for (const char *c = commands[i].title; *c; c++) {
            if (*c == '\'' || *c == '\\') fputc('\\', out);
            fputc(*c, out);
        }
        fputs("'\n", out);
    }
    fprintf(out,
            "complete -c powerinfer -n '__fish_seen_subcommand_from completion' -f -a '%s'\n"
            "complete -c powerinfer -n '__fish_seen_subcommand_from help' -f -a '",
            forms);
    print_commands(out, commands, n);
    fputs("'\n", out);
    for (size_t k = 0; k < option_count; k++) fish_option(out, &option_table[k], commands, n);
}
