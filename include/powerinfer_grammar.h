/* powerinfer_grammar.h: grammars that constrain sampled text. Included by powerinfer.h.
 *
 * A grammar is compiled for the vocabulary of one model, from GBNF (the notation of llama.cpp's
 * grammar files), from a JSON Schema, or from GBNF whose rules use schemas. A sampler that is
 * created with one (pi_sampler_options.grammar) samples only tokens that continue a text of the
 * grammar, and end-of-generation tokens only where the grammar allows it. Unsupported constraints
 * are errors when the grammar is compiled; pi_grammar_schema.widen leaves them out and lists them.
 * A constraint is never silently relaxed.
 *
 *     pi_grammar *grammar; pi_sampler *sampler;
 *     pi_grammar_from_schema(model, schema, n_schema, &grammar, NULL);
 *     pi_sampler_options options = pi_sampler_default_options();
 *     options.grammar = grammar;
 *     pi_sampler_create(model, &options, &sampler, NULL);
 *     pi_grammar_free(grammar);
 *
 * A grammar can be used by any number of samplers at the same time, on any threads, which share its
 * cache of token masks; so keep the grammar of a schema that is used again. The model must outlive
 * its grammars. */
#ifndef POWERINFER_GRAMMAR_H
#define POWERINFER_GRAMMAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "powerinfer_status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pi_grammar pi_grammar;
struct pi_model;
struct pi_sampler;

/* Defines `rule`, which GBNF can refer to, as the JSON texts that a schema allows. */
typedef struct pi_grammar_schema {
    const char *rule;   /* letters, digits and "-" */
    const char *schema; /* [n_schema] bytes of JSON */
    size_t n_schema;
    /* Keywords that a grammar cannot express constrain nothing, instead of being an error;
     * pi_grammar_widened lists them. */
    bool widen;
    const char *name; /* in messages, "tool f"; NULL: "JSON Schema" */
    const char *path; /* in messages: place of this schema within `name`, "$.properties.x"; NULL:
                         "$" */
} pi_grammar_schema;

/* Everything is copied. */
typedef struct pi_grammar_options {
    const char *root;                 /* the start rule; NULL: "root" */
    const pi_grammar_schema *schemas; /* [n_schemas] */
    size_t n_schemas;                 /* <= 1024 */
    /* With at least one trigger the grammar is lazy: text is unconstrained until it contains one of
     * the words or one of the tokens is sampled. From there on the text follows the grammar, whose
     * text begins with the word (or the token's text). */
    const char *const *trigger_words; /* [n_trigger_words], not empty */
    size_t n_trigger_words;           /* <= 1024 */
    const int32_t *trigger_tokens;    /* [n_trigger_tokens] */
    size_t n_trigger_tokens;          /* <= 1024 */
} pi_grammar_options;

/* From GBNF, n_gbnf bytes of UTF-8; options NULL: all zero. PI_ERR_FORMAT: a syntax error, with its
 * line; a rule that is not defined, is left-recursive, or can never end; bad JSON; a schema that no
 * text satisfies, or that is infinitely recursive. PI_ERR_UNSUPPORTED: a keyword that is not
 * supported; the model has no tokenizer; built without jansson. PI_ERR_LIMIT: a limit of length,
 * size or nesting; PI_ERR_ARG: an invalid trigger; PI_ERR_NOMEM. */
PI_API pi_status pi_grammar_create(const struct pi_model *model, const char *gbnf, size_t n_gbnf,
                                   const pi_grammar_options *options, pi_grammar **out,
                                   pi_error *err);
/* From a JSON Schema (draft 2020-12; docs/grammar.md has the keywords); "{}" is any JSON value.
 * Errors as above. */
PI_API pi_status pi_grammar_from_schema(const struct pi_model *model, const char *schema,
                                        size_t n_schema, pi_grammar **out, pi_error *err);
/* Drops one reference; samplers hold their own. */
PI_API void pi_grammar_free(pi_grammar *grammar);
/* Adds a reference, to be freed like the first one. Returns the grammar. */
PI_API pi_grammar *pi_grammar_retain(pi_grammar *grammar);
/* Current size of a grammar in bytes; the cache of token masks grows up to about 160 MB. */
PI_API size_t pi_grammar_memory(pi_grammar *grammar);

/* Schema keywords that constrain nothing, "tool f: $.properties.x.uniqueItems", and unknown
 * formats; at most 64. NULL: there is no i-th one. Valid as long as the grammar. */
PI_API const char *pi_grammar_widened(const pi_grammar *grammar, size_t i);

/* *begins: text[n_text] is a prefix of a text of the grammar; *complete: it is a text of the
 * grammar. Ignores triggers. PI_ERR_LIMIT: the text is too ambiguous or nested too deeply to tell;
 * PI_ERR_NOMEM. */
PI_API pi_status pi_grammar_match(pi_grammar *grammar, const char *text, size_t n_text,
                                  bool *begins, bool *complete, pi_error *err);

/* ---- samplers with a grammar ---------------------------------------------------------------- */

typedef enum pi_grammar_progress {
    PI_GRAMMAR_NONE,     /* the sampler has no grammar */
    PI_GRAMMAR_WAITING,  /* for a trigger */
    PI_GRAMMAR_OPEN,     /* the text so far is not complete */
    PI_GRAMMAR_MAY_END,  /* the text is complete and may continue */
    PI_GRAMMAR_COMPLETE, /* the text is complete; only an end-of-generation token may follow */
    PI_GRAMMAR_FAILED    /* no token can follow, *why has the reason; pi_sampler_sample gives -1 */
} pi_grammar_progress;

/* State of the grammar after the sampled tokens. *why is set for PI_GRAMMAR_FAILED: PI_ERR_LIMIT,
 * PI_ERR_NOMEM or PI_ERR_NOT_FOUND (the vocabulary has no token for what must follow); NULL: not
 * wanted. */
PI_API pi_grammar_progress pi_sampler_grammar_progress(const struct pi_sampler *sampler,
                                                       pi_error *why);
/* The next token begins a new text of the grammar; the sampler is otherwise unchanged. */
PI_API void pi_sampler_grammar_restart(struct pi_sampler *sampler);

#ifdef __cplusplus
}
#endif
#endif
