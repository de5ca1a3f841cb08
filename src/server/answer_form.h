/* answer_form.h: what a client demands of the form of an answer, as a grammar: its own GBNF, JSON,
 * a JSON Schema, or calls of tools. What cannot be honoured is an error, never free text. */
#ifndef SERVER_ANSWER_FORM_H
#define SERVER_ANSWER_FORM_H

#include "chat_request.h"
#include "grammar_cache.h"

typedef struct answer_form {
    const pi_model *model;
    grammar_cache *grammars;
    int owner; /* whose compiled grammars may be reused */
    const json_node *body;
    const chat_tools *tools;   /* NULL: the route has none */
    const call_format *format; /* of calls */
    const char *reasoning_end; /* the prompt ends within reasoning, which ends so; NULL: no */
} answer_form;

/* *out stays NULL when anything will do; else pi_grammar_free. PI_ERR_ARG: wrong fields, or several
 * that exclude each other; what pi_grammar_create says. */
pi_status answer_form_create(const answer_form *f, pi_grammar **out, pi_error *err);

#endif
