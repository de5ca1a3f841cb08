/* grammar_schema.h: JSON Schema as rules of a grammar. Private to src/sample and src/api. */
#ifndef SAMPLE_GRAMMAR_SCHEMA_H
#define SAMPLE_GRAMMAR_SCHEMA_H

#include "grammar_tree.h"

/* Defines `rule` as the JSON texts that a schema allows (text[n]: JSON). Problems are kept in `t`:
 * what a schema asks for and a grammar cannot give is PI_ERR_UNSUPPORTED, never left out.
 * Alternatives that no text meets are left out when the tree is checked. */
void grammar_add_schema(grammar_tree *t, int32_t rule, const char *text, size_t n);

#endif
