/* fuzz_grammar.h: what the targets for grammars and schemas do with a tree. */
#ifndef FUZZ_FUZZ_GRAMMAR_H
#define FUZZ_FUZZ_GRAMMAR_H

#include "grammar.h"

/* Compiles it and reads a text byte by byte, with a small vocabulary. */
void fuzz_use_grammar(grammar_tree *t, const char *text, size_t n);

#endif
