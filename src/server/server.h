/* server.h: an HTTP server for one model or several, with OpenAI's API, llama.cpp's API, and
 * Anthropic's messages.
 *
 * libmicrohttpd runs one thread per connection. This thread parses the request, submits sequences
 * to the scheduler (scheduler.h) of the model that it names, and writes the results. A thread of
 * the registry (registry.h) loads and unloads models. The program's main thread starts and stops
 * the server and calls server_tick about once a second.
 *
 * A build without libmicrohttpd or jansson has a server_start that returns PI_ERR_UNSUPPORTED and
 * names the library. */
#ifndef SERVER_SERVER_H
#define SERVER_SERVER_H

#include "server_options.h"

typedef struct server server;

/* The server listens, and its only model is loaded, when the function returns; with `routes`, the
 * models of at_start are loaded afterwards, and their errors are in the list of models. PI_ERR_IO:
 * the address, or the TLS key and certificate. Also the errors of loading the only model: of
 * server_model.open; PI_ERR_NOT_FOUND: no built-in template has that name; PI_ERR_FORMAT: the
 * template, or its variables; PI_ERR_ARG: more slots than tokens in a batch; errors of
 * pi_context_create and pi_session_create. */
pi_status server_start(const server_options *options, server **out, pi_error *err);
uint16_t server_port(const server *s);

/* For the log, of the only model. */
typedef struct server_description {
    int32_t n_slots, n_ctx, n_threads; /* n_slots 0: the model is not loaded, or one of several */
    const char *mode, *kernels;
    bool lacks_template; /* chats continue the text: the model has no template, none was chosen */
} server_description;
void server_describe(const server *s, server_description *out);
/* Closes connections that are too slow. */
void server_tick(server *s);
/* From now on requests that use a model get status 503, /health says "draining", and connections
 * end with their next answer. Requests that the server has accepted continue. */
void server_drain(server *s);
bool server_is_busy(server *s); /* a request is being answered */
/* Drains for `seconds` at most, ends everything and frees. Accepts NULL. */
void server_stop(server *s, double seconds);

#endif
