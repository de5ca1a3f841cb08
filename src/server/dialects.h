/* dialects.h: the dialects of answers, and the routes that generate. */
#ifndef SERVER_DIALECTS_H
#define SERVER_DIALECTS_H

#include "call.h"

extern const dialect dialect_chat;      /* /v1/chat/completions */
extern const dialect dialect_text;      /* /v1/completions */
extern const dialect dialect_native;    /* /completion, in the form of llama.cpp's server */
extern const dialect dialect_messages;  /* /v1/messages */
extern const dialect dialect_responses; /* /v1/responses */

/* In dialect_openai.c; dialect_native uses the same form. */
/* Writes an array with the tokens of the answer from number `first` on, each with params.n_top >= 0
 * alternatives. */
void openai_put_logprobs(const server_call *c, const answer_choice *k, json_writer *w,
                         const char *key, size_t first);
void openai_failed(server_call *c, unsigned status, const char *text);

enum MHD_Result route_chat(exchange *x);
enum MHD_Result route_completions(exchange *x);
enum MHD_Result route_native(exchange *x);
enum MHD_Result route_messages(exchange *x);
enum MHD_Result route_count_tokens(exchange *x);
enum MHD_Result route_responses(exchange *x);
enum MHD_Result route_apply_template(exchange *x);

/* In route_embeddings.c. */
enum MHD_Result route_embeddings(exchange *x);
enum MHD_Result route_embedding(exchange *x);
/* Returns the pooling that a server uses with these options and this model. */
pooling embeddings_pooling(const server_options *options);

/* In route_info.c and route_text.c. */
enum MHD_Result route_page(exchange *x);
enum MHD_Result route_health(exchange *x);
enum MHD_Result route_models(exchange *x);
enum MHD_Result route_model(exchange *x);
enum MHD_Result route_props(exchange *x);
enum MHD_Result route_slots(exchange *x);
enum MHD_Result route_slot_action(exchange *x); /* in route_slots.c */
enum MHD_Result route_metrics(exchange *x);
enum MHD_Result route_tokenize(exchange *x);
enum MHD_Result route_detokenize(exchange *x);

#endif
