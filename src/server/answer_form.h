/* answer_form.h: compiles the form of the answer that a client requests into a grammar: GBNF, JSON,
 * a JSON Schema, or tool calls. A form that cannot be enforced is an error; it never becomes free
 * text. */
#ifndef SERVER_ANSWER_FORM_H
#define SERVER_ANSWER_FORM_H

#include "chat_request.h"
#include "grammar_cache.h"

typedef struct answer_form {
    const pi_model *model;
    grammar_cache *grammars;
    int owner; /* owner whose compiled grammars may be reused */
    const json_node *body;
    const chat_tools *tools;   /* NULL: the route has no tools */
    const call_format *format; /* format of calls */
    /* text that ends the reasoning in which the prompt ends; NULL: the prompt ends outside
     * reasoning */
    const char *reasoning_end;
} answer_form;

/* Compiles the grammar; free *out with pi_grammar_free. *out stays NULL when any answer is allowed.
 * PI_ERR_ARG: wrong fields, or fields that exclude each other. Also the errors of
 * pi_grammar_create. */
pi_status answer_form_create(const answer_form *f, pi_grammar **out, pi_error *err);

#endif
