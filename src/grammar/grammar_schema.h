/* grammar_schema.h: JSON Schema as rules of a grammar. Private to src/grammar and src/api. */
#ifndef GRAMMAR_GRAMMAR_SCHEMA_H
#define GRAMMAR_GRAMMAR_SCHEMA_H

#include "grammar_tree.h"
#include "powerinfer_grammar.h"

/* Defines `rule` as the JSON texts that a schema allows. Problems are kept in `t`. Keywords that a
 * grammar cannot express are PI_ERR_UNSUPPORTED, or with schema->widen are left out and noted in
 * t->widened. Alternatives that no text satisfies are left out when the tree is checked. */
void grammar_add_schema(grammar_tree *t, int32_t rule, const pi_grammar_schema *schema);

#endif
