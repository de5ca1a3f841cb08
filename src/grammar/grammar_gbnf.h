/* grammar_gbnf.h: GBNF, the notation of llama.cpp's grammar files. Private to src/grammar. */
#ifndef GRAMMAR_GRAMMAR_GBNF_H
#define GRAMMAR_GRAMMAR_GBNF_H

#include "grammar_tree.h"

/* Adds the rules of a text to `t`, which also stores the first problem with its line. */
void grammar_parse_gbnf(grammar_tree *t, const char *text, size_t n);

#endif
