/* server.h: an HTTP server for one model, with OpenAI's API, llama.cpp's API, and Anthropic's
 * messages.
 *
 * libmicrohttpd runs one thread per connection. This thread parses the request, submits sequences
 * to the scheduler (scheduler.h) and writes the results. The program's main thread starts and stops
 * the server and calls server_tick about once a second.
 *
 * A build without libmicrohttpd or jansson has a server_start that returns PI_ERR_UNSUPPORTED and
 * names the library. */
#ifndef SERVER_SERVER_H
#define SERVER_SERVER_H

#include "server_options.h"

typedef struct server server;

/* The server listens when the function returns. PI_ERR_IO: the address, or the TLS key and
 * certificate; PI_ERR_NOT_FOUND: no built-in template has that name; PI_ERR_FORMAT: the template,
 * or its variables; PI_ERR_ARG: more slots than tokens in a batch. Also the errors of
 * pi_context_create and pi_session_create. */
pi_status server_start(const server_options *options, server **out, pi_error *err);
uint16_t server_port(const server *s);
/* For the log: size of one slot, and number of compute threads. */
const pi_context *server_context(const server *s);
/* Whether the model has no chat template and none was chosen; answers of chats then continue the
 * text. */
bool server_lacks_template(const server *s);
/* Closes connections that are too slow. */
void server_tick(server *s);
/* Accepts no new connections, lets running answers continue for `seconds`, ends everything and
 * frees. Accepts NULL. */
void server_stop(server *s, double seconds);

#endif
