/* dialects.h: the forms in which answers are written, and the routes that generate. */
#ifndef SERVER_DIALECTS_H
#define SERVER_DIALECTS_H

#include "call.h"

extern const dialect dialect_chat;      /* /v1/chat/completions */
extern const dialect dialect_text;      /* /v1/completions */
extern const dialect dialect_native;    /* /completion, as llama.cpp's server has it */
extern const dialect dialect_messages;  /* /v1/messages */
extern const dialect dialect_responses; /* /v1/responses */

/* dialect_openai.c */
void openai_put_usage(const server_call *c, json_writer *w);
/* Bytes of a token; 0 when they are more than `room`. */
size_t openai_token_text(const server_call *c, int32_t token, char *text, size_t room);

enum MHD_Result route_chat(exchange *x);
enum MHD_Result route_completions(exchange *x);
enum MHD_Result route_native(exchange *x);
enum MHD_Result route_messages(exchange *x);
enum MHD_Result route_responses(exchange *x);
enum MHD_Result route_apply_template(exchange *x);

/* route_info.c, route_text.c */
enum MHD_Result route_health(exchange *x);
enum MHD_Result route_models(exchange *x);
enum MHD_Result route_props(exchange *x);
enum MHD_Result route_slots(exchange *x);
enum MHD_Result route_metrics(exchange *x);
enum MHD_Result route_tokenize(exchange *x);
enum MHD_Result route_detokenize(exchange *x);

#endif
