/* route_generate.h: the translation of requests of other APIs. */
#ifndef SERVER_ROUTE_GENERATE_H
#define SERVER_ROUTE_GENERATE_H

#include "call.h"

/* Writes the members of the chat request that is equivalent to `body`. */
typedef pi_status (*chat_translator)(const json_node *body, json_writer *w, pi_error *err);

typedef struct translation {
    const struct api_fields *fields; /* fields that the body is checked against */
    chat_translator translate;
    /* Called with a body that the check refuses; adds to the answer. NULL: nothing. */
    void (*refused)(exchange *x, const json_node *body);
} translation;

/* Answers in the form of a dialect: like /v1/chat/completions, or like /v1/completions when the
 * translated request has a prompt instead of messages. id: see call_create. */
enum MHD_Result generate_translated(exchange *x, const translation *t, const dialect *d,
                                    const char *id);

/* Answers with the number of tokens of the prompt. object: member of the answer; NULL: none. */
enum MHD_Result generate_count(exchange *x, const translation *t, const char *object);

/* Writes the member "tools" of such a request, if it has tools; `schema` is the API's name of
 * parameters. `typed`: the request also has tools that are not functions, whose types are passed
 * on. */
void generate_put_tools(json_writer *w, const json_node *tools, const char *schema, bool typed);

#endif
