/* word_wrap.h: wraps text that comes in pieces at words, to the width of the terminal. */
#ifndef CLI_WORD_WRAP_H
#define CLI_WORD_WRAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { WORD_WRAP_BYTES = 256 }; /* a longer word is written in pieces */

typedef struct word_wrap {
    FILE *out;
    bool terminal; /* false: text is written unchanged */
    /* private; zero at the beginning of a line */
    int columns;        /* width of the terminal */
    int column, blanks; /* blanks: before the word */
    char word[WORD_WRAP_BYTES];
    size_t n_word; /* bytes */
    int width;     /* columns */
} word_wrap;

/* Writes text; on a terminal, unprintable characters are escaped. The last word is kept until more
 * text or word_wrap_flush. */
void word_wrap_put(word_wrap *w, const char *text, size_t n);
/* Writes the word that is kept. */
void word_wrap_flush(word_wrap *w);

#endif
