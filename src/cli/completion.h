/* completion.h: completions for shells, man pages and the tables of docs/llama-flags.md, written
 * from the tables of commands and options, as --help is. */
#ifndef CLI_COMPLETION_H
#define CLI_COMPLETION_H

#include <stdio.h>

#include "cli.h"

void completion_bash(FILE *out);
void completion_zsh(FILE *out);
void completion_fish(FILE *out);
/* Prints the man page of a command; NULL: of the program. */
void man_page(FILE *out, const command *c);
void flags_page(FILE *out);

#endif
