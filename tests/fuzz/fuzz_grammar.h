/* fuzz_grammar.h: what the targets for grammars and schemas share. An input is a source, a NUL, and
 * a text that is read by the grammar of that source. */
#ifndef FUZZ_FUZZ_GRAMMAR_H
#define FUZZ_FUZZ_GRAMMAR_H

#include "grammar.h"
#include "grammar_tree.h"

/* Has a tree built of the source, compiles its rule "root" and reads the text byte by byte, with a
 * small vocabulary; masks are asked for on the way. */
void fuzz_use_grammar(void (*build)(grammar_tree *t, const char *source, size_t n),
                      const uint8_t *data, size_t n);
/* Writes such an input as fuzz_seed does. */
size_t fuzz_grammar_seed(const char *source, const char *text, uint8_t *data, size_t max);

#endif
