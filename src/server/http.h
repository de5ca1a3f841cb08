/* http.h: one HTTP request on its connection's thread, and the ways to answer it. */
#ifndef SERVER_HTTP_H
#define SERVER_HTTP_H

#include <microhttpd.h>

#include "bytes.h"
#include "grammar_cache.h"
#include "os_socket.h"
#include "os_thread.h"
#include "page.h"
#include "prompt.h"
#include "scheduler.h"
#include "server.h"
#include "tool_style.h"

enum {
    HTTP_MAX_HEADER = 32 << 10, /* bytes of request line and headers */
    HTTP_MAX_BODY = 32 << 20,   /* bytes; a context of a million tokens is about 4 MB of text */
    HTTP_MAX_PATH = 256,
    HTTP_NICE = 10 /* of the threads of connections: each gets a tenth of what others get */
};

/* Status 400, for clients that have closed only their half of the connection; one that has closed
 * all of it looks the same from here. */
#define HTTP_GONE "the client closed its side of the connection before the answer was there"

/* A connection, from accept to close; in a list of the server. */
typedef struct http_client {
    int fd;
    double deadline; /* clock_seconds until which its request must be here; 0: it is */
    struct http_client *next, *previous;
} http_client;

struct server {
    server_options options;
    scheduler *scheduler;
    prompt_maker prompts;
    tool_style tools;
    int32_t *marks; /* [n_marks] control tokens whose texts answers are read by, ascending */
    size_t n_marks;
    grammar_cache grammars;
    pi_model_info info;
    page page;
    json_doc *variables; /* options.template_variables; NULL: none */
    pooling pooling;     /* of embeddings; POOLING_NONE: the model's is not supported */
    int64_t created;     /* Unix time */
    uint16_t port;
    os_socket listener; /* OS_SOCKET_NONE: given to the daemon */
    bool is_loopback;   /* only this machine reaches it */
    struct MHD_Daemon *daemon;
    os_mutex clients_lock;
    http_client *clients;
};

typedef struct exchange {
    server *server;
    struct MHD_Connection *connection;
    http_client *client;
    const char *method;
    char path[HTTP_MAX_PATH]; /* without doubled slashes and without one at the end */
    bytes body;
    bool too_long, at_prefix; /* the latter: the server's prefix without its slash */
    int key;                  /* number of its API key; -1: none */
    json_doc *doc;            /* of the body, once a route has parsed it */
    bytes widened;     /* what the header X-Schema-Widened says, NUL-terminated; empty: no header */
    size_t n_too_long; /* tokens of the prompt, where an error says that they do not fit */
    const char *unsupported; /* of Anthropic's threads: what the client could do without */
    double started;
} exchange;

/* Whose caches a request uses: all requests share them, unless keys are isolated. */
static inline int http_owner(const exchange *x) {
    return x->server->options.isolates_keys ? x->key : 0;
}

/* Answers with a text of this type and takes what is in `body`. */
enum MHD_Result http_reply_text(exchange *x, unsigned status, const char *type, bytes *body);
/* Ends the JSON document that was written to `body` and answers with it: status 200, or 500 when it
 * could not be written. */
enum MHD_Result http_reply_json(exchange *x, bytes_json *j, bytes *body);
/* {"error":{"code","message","type"}} */
enum MHD_Result http_reply_error(exchange *x, unsigned status, const char *format, ...)
    BASE_PRINTF(3, 4);
/* The same with the HTTP status that belongs to a pi_status. */
enum MHD_Result http_reply_failed(exchange *x, const pi_error *err);
/* Adds the headers that every answer has, sends and destroys the response. */
enum MHD_Result http_send(exchange *x, unsigned status, struct MHD_Response *response);

/* Members of an error object, for streams: "code", "message", "type". */
void http_put_error(json_writer *w, const char *key, unsigned status, const char *message);

/* The body as a JSON object; otherwise false, and *result is what the handler returns: the client
 * has its answer already. */
bool http_parse_body(exchange *x, const json_node **out, enum MHD_Result *result);

/* The callback of libmicrohttpd; http_routes.c has the table behind it. */
enum MHD_Result http_handle(void *user, struct MHD_Connection *connection, const char *url,
                            const char *method, const char *version, const char *upload,
                            size_t *n_upload, void **state);
/* Decodes %XX in place; texts with %00 stay as they are, which would end there. */
size_t http_unescape(void *user, struct MHD_Connection *connection, char *text);
void http_completed(void *user, struct MHD_Connection *connection, void **state,
                    enum MHD_RequestTerminationCode code);
void http_connection(void *user, struct MHD_Connection *connection, void **socket_state,
                     enum MHD_ConnectionNotificationCode code);

/* http_routes.c */
typedef enum MHD_Result (*route_handler)(exchange *x);
/* The handler of method and path. NULL: none; then *allowed is the method that the path has, or
 * NULL when there is no such path. */
route_handler http_find_route(const char *method, const char *path, const char **allowed);
/* Paths that need no API key. */
bool http_is_public(const char *path);

#endif
