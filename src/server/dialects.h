/* dialects.h: the forms in which answers are written, and the routes that generate. */
#ifndef SERVER_DIALECTS_H
#define SERVER_DIALECTS_H

#include "call.h"

extern const dialect dialect_chat;      /* /v1/chat/completions */
extern const dialect dialect_text;      /* /v1/completions */
extern const dialect dialect_native;    /* /completion, as llama.cpp's server has it */
extern const dialect dialect_messages;  /* /v1/messages */
extern const dialect dialect_responses; /* /v1/responses */

/* dialect_openai.c: what dialect_native writes in the same form. */
/* An array with tokens of the answer from number `first` on, each with params.n_top >= 0 others. */
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

/* route_embeddings.c */
enum MHD_Result route_embeddings(exchange *x);
enum MHD_Result route_embedding(exchange *x);
/* What a server does with these options and this model. */
pooling embeddings_pooling(const server_options *options);

/* route_info.c, route_text.c */
enum MHD_Result route_page(exchange *x);
enum MHD_Result route_health(exchange *x);
enum MHD_Result route_models(exchange *x);
enum MHD_Result route_model(exchange *x);
enum MHD_Result route_props(exchange *x);
enum MHD_Result route_slots(exchange *x);
enum MHD_Result route_slot_action(exchange *x); /* route_slots.c */
enum MHD_Result route_metrics(exchange *x);
enum MHD_Result route_tokenize(exchange *x);
enum MHD_Result route_detokenize(exchange *x);

#endif
