/* route_generate.h: what the routes of other APIs make of their requests. */
#ifndef SERVER_ROUTE_GENERATE_H
#define SERVER_ROUTE_GENERATE_H

#include "call.h"

/* Answers a body in the form of /v1/chat/completions, in the words of a dialect. */
enum MHD_Result generate_chat(exchange *x, const json_node *body, const dialect *d, const char *id);

#endif
