/* dialects.h: the dialects of answers, and the routes that generate. */
#ifndef SERVER_DIALECTS_H
#define SERVER_DIALECTS_H

#include "call.h"

extern const dialect dialect_chat;      /* /v1/chat/completions */
extern const dialect dialect_text;      /* /v1/completions */
extern const dialect dialect_native;    /* /completion, in the form of llama.cpp's server */
extern const dialect dialect_messages;  /* /v1/messages */
extern const dialect dialect_responses; /* /v1/responses */
extern const dialect dialect_ollama_chat, dialect_ollama_generate; /* /api/chat, /api/generate */

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
enum MHD_Result route_input_tokens(exchange *x);
enum MHD_Result route_infill(exchange *x);
enum MHD_Result route_ollama_chat(exchange *x);
enum MHD_Result route_ollama_generate(exchange *x);
enum MHD_Result route_apply_template(exchange *x);

/* In route_embeddings.c. */
enum MHD_Result route_embeddings(exchange *x);
enum MHD_Result route_embedding(exchange *x);
enum MHD_Result route_ollama_embed(exchange *x);
enum MHD_Result route_ollama_embeddings(exchange *x);
enum MHD_Result route_rerank(exchange *x); /* in route_rerank.c */

/* In route_info.c, route_metrics.c and route_text.c. */
enum MHD_Result route_page(exchange *x);
enum MHD_Result route_health(exchange *x);
enum MHD_Result route_models(exchange *x);
enum MHD_Result route_model(exchange *x);
enum MHD_Result route_model_load(exchange *x);
enum MHD_Result route_model_unload(exchange *x);
enum MHD_Result route_props(exchange *x);
enum MHD_Result route_props_change(exchange *x);
enum MHD_Result route_adapters(exchange *x); /* in route_adapters.c */
enum MHD_Result route_adapters_change(exchange *x);
/* Checks the field `lora` of a request: only the scales of the loaded model are supported. */
pi_status adapters_check(exchange *x, const json_node *body, pi_error *err);
enum MHD_Result route_slots(exchange *x);
enum MHD_Result route_slot_action(exchange *x); /* in route_slots.c */
enum MHD_Result route_metrics(exchange *x);
enum MHD_Result route_tokenize(exchange *x);
enum MHD_Result route_detokenize(exchange *x);

/* In route_info.c: writes an object with the settings. */
void info_put_sampling(json_writer *w, const char *key, const pi_sampler_options *o);

/* In route_ollama.c. */
/* Writes a time as RFC 3339 in UTC; unix_seconds 0: now. */
void ollama_put_time(json_writer *w, const char *key, int64_t unix_seconds);
enum MHD_Result route_ollama_tags(exchange *x);
enum MHD_Result route_ollama_ps(exchange *x);
enum MHD_Result route_ollama_show(exchange *x);
enum MHD_Result route_ollama_version(exchange *x);

#endif
