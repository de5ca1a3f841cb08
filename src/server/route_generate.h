/* route_generate.h: what the routes of other APIs make of their requests. */
#ifndef SERVER_ROUTE_GENERATE_H
#define SERVER_ROUTE_GENERATE_H

#include "call.h"

/* Writes the members of the chat request that asks for the same as `body`. */
typedef pi_status (*chat_translator)(const json_node *body, json_writer *w, pi_error *err);

typedef struct translation {
    const struct api_fields *fields; /* which the body is checked against */
    chat_translator translate;
    /* Told of a body that the check refuses, for what the answer says besides; NULL: nothing. */
    void (*refused)(exchange *x, const json_node *body);
} translation;

/* Answers as /v1/chat/completions would, in the form of a dialect. id: as for call_create. */
enum MHD_Result generate_translated(exchange *x, const translation *t, const dialect *d,
                                    const char *id);

/* Answers with the number of tokens of its prompt. */
enum MHD_Result generate_count(exchange *x, const translation *t);

/* The member "tools" of such a request, if there are any: `schema` is what the API calls
 * parameters. `typed`: it has other tools than functions, whose types are passed on. */
void generate_put_tools(json_writer *w, const json_node *tools, const char *schema, bool typed);

#endif
