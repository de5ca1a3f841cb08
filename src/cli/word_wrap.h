/* word_wrap.h: text that comes in pieces, broken at words where a line of the terminal ends. */
#ifndef CLI_WORD_WRAP_H
#define CLI_WORD_WRAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { WORD_WRAP_BYTES = 256 }; /* a longer word is written in pieces */

typedef struct word_wrap {
    FILE *out;
    bool terminal; /* otherwise everything is written as it is */
    /* own; zero at the beginning of a line */
    int columns;        /* of the terminal */
    int column, blanks; /* blanks: before the word */
    char word[WORD_WRAP_BYTES];
    size_t n_word; /* bytes */
    int width;     /* columns */
} word_wrap;

/* Text of a model: what is not printable is escaped on a terminal. The last word is written with
 * what follows it. */
void word_wrap_put(word_wrap *w, const char *text, size_t n);
/* Writes the last word. */
void word_wrap_flush(word_wrap *w);

#endif
