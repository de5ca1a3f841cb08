/* grammar_schema.h: JSON Schema as rules of a grammar. Private to src/grammar and src/api. */
#ifndef GRAMMAR_GRAMMAR_SCHEMA_H
#define GRAMMAR_GRAMMAR_SCHEMA_H

#include "grammar_tree.h"
#include "powerinfer_grammar.h"

/* Defines `rule` as the JSON texts that a schema allows. `t` keeps the first problem. Keywords that
 * a grammar cannot express give PI_ERR_UNSUPPORTED, or with schema->widen are ignored and listed in
 * t->widened. Alternatives that no text satisfies are left out when the tree is checked. */
void grammar_add_schema(grammar_tree *t, int32_t rule, const pi_grammar_schema *schema);

#endif
