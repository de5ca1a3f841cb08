/* fuzz_grammar.h: shared by the targets for grammars and schemas. An input is a source, a NUL, and
 * a text that the grammar of the source reads. */
#ifndef FUZZ_FUZZ_GRAMMAR_H
#define FUZZ_FUZZ_GRAMMAR_H

#include "grammar.h"
#include "grammar_tree.h"

/* Builds a tree from the source, compiles its rule "root" and reads the text byte by byte, with a
 * small vocabulary; also computes masks at some bytes. */
void fuzz_use_grammar(void (*build)(grammar_tree *t, const char *source, size_t n),
                      const uint8_t *data, size_t n);
/* Writes such an input; like fuzz_seed. */
size_t fuzz_grammar_seed(const char *source, const char *text, uint8_t *data, size_t max);

#endif
