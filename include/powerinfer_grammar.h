/* powerinfer_grammar.h: grammars, which samplers make text obey. Included by powerinfer.h.
 *
 * A grammar is compiled for the vocabulary of one model, from GBNF (the notation of llama.cpp's
 * grammar files), from a JSON Schema, or from GBNF whose rules use schemas. A sampler that is
 * created with one (pi_sampler_options.grammar) gives only tokens that can begin or continue a text
 * of the grammar, and a token that ends the text only where the grammar may end. What cannot be
 * honoured is an error when the grammar is made; text is never less constrained than was asked for.
 *
 *     pi_grammar *grammar; pi_sampler *sampler;
 *     pi_grammar_from_schema(model, schema, n_schema, &grammar, NULL);
 *     pi_sampler_options options = pi_sampler_default_options();
 *     options.grammar = grammar;
 *     pi_sampler_create(model, &options, &sampler, NULL);
 *     pi_grammar_free(grammar);
 *
 * A grammar can be used by any number of samplers at the same time, on any threads; what one has
 * found out about which tokens may follow, the others reuse. So keep the grammars of schemas that
 * come again. The model must outlive its grammars. */
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

/* A rule by the name of `rule`, which GBNF can use, for the JSON texts that a schema allows. */
typedef struct pi_grammar_schema {
    const char *rule;   /* letters, digits and "-" */
    const char *schema; /* [n_schema] bytes of JSON */
    size_t n_schema;
} pi_grammar_schema;

/* Everything is copied. */
typedef struct pi_grammar_options {
    const char *root;                 /* the rule that a text begins with; NULL: "root" */
    const pi_grammar_schema *schemas; /* [n_schemas] */
    size_t n_schemas;                 /* <= 1024 */
    /* With at least one trigger the grammar is lazy: text is free until one of the words is in it
     * or one of the tokens is sampled. From there on it obeys the grammar, the word (or what text
     * the token has) being the beginning of the grammar's text. */
    const char *const *trigger_words; /* [n_trigger_words], not empty */
    size_t n_trigger_words;           /* <= 1024 */
    const int32_t *trigger_tokens;    /* [n_trigger_tokens] */
    size_t n_trigger_tokens;          /* <= 1024 */
} pi_grammar_options;

/* From GBNF, n_gbnf bytes of UTF-8; options NULL: all zero. PI_ERR_FORMAT: a syntax error, with its
 * line; a rule that is not defined, is left-recursive, or can never end; bad JSON; a schema that no
 * text meets, or that needs itself without end. PI_ERR_UNSUPPORTED: what a schema asks for cannot
 * be honoured; the model has no tokenizer; built without jansson. PI_ERR_LIMIT: too long, too large
 * or nested too deeply; PI_ERR_ARG: no trigger of these options can be; PI_ERR_NOMEM. */
PI_API pi_status pi_grammar_create(const struct pi_model *model, const char *gbnf, size_t n_gbnf,
                                   const pi_grammar_options *options, pi_grammar **out,
                                   pi_error *err);
/* From a JSON Schema (draft 2020-12; docs/grammar.md has the keywords); "{}" is any JSON value.
 * Errors as above. */
PI_API pi_status pi_grammar_from_schema(const struct pi_model *model, const char *schema,
                                        size_t n_schema, pi_grammar **out, pi_error *err);
/* Samplers that use it go on doing so. */
PI_API void pi_grammar_free(pi_grammar *grammar);
/* One more holder, who frees it like the first one. Returns it. */
PI_API pi_grammar *pi_grammar_retain(pi_grammar *grammar);
/* Bytes that it takes now: it grows with what is found out, up to some 160 MB. */
PI_API size_t pi_grammar_memory(pi_grammar *grammar);

/* Whether text[n_text] can begin a text of the grammar; *complete: whether it is one. Triggers play
 * no part. PI_ERR_LIMIT: the text is too ambiguous or nested too deeply to tell; PI_ERR_NOMEM. */
PI_API pi_status pi_grammar_match(pi_grammar *grammar, const char *text, size_t n_text,
                                  bool *begins, bool *complete, pi_error *err);

/* ---- samplers with a grammar ---------------------------------------------------------------- */

typedef enum pi_grammar_progress {
    PI_GRAMMAR_NONE,     /* the sampler has no grammar */
    PI_GRAMMAR_WAITING,  /* for a trigger */
    PI_GRAMMAR_OPEN,     /* the text so far is not complete */
    PI_GRAMMAR_MAY_END,  /* it is complete, and may go on */
    PI_GRAMMAR_COMPLETE, /* it is complete, and only a token that ends the text may follow */
    PI_GRAMMAR_FAILED    /* no token can follow: *why says why; pi_sampler_sample gives -1 */
} pi_grammar_progress;

/* What the sampled tokens have come to. *why is set for PI_GRAMMAR_FAILED: PI_ERR_LIMIT,
 * PI_ERR_NOMEM or PI_ERR_NOT_FOUND (the vocabulary has no token for what must follow); NULL: not
 * wanted. */
PI_API pi_grammar_progress pi_sampler_grammar_progress(const struct pi_sampler *sampler,
                                                       pi_error *why);
/* The next token begins a new text of the grammar; nothing else of the sampler changes. */
PI_API void pi_sampler_grammar_restart(struct pi_sampler *sampler);

#ifdef __cplusplus
}
#endif
#endif
