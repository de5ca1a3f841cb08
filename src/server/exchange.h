/* exchange.h: a request and its answer, on the thread of its connection; the state of the server;
 * and the replies that all routes share. */
#ifndef SERVER_EXCHANGE_H
#define SERVER_EXCHANGE_H

#include <microhttpd.h>
#include <stdatomic.h>

#include "bytes.h"
#include "limiter.h"
#include "os_socket.h"
#include "os_thread.h"
#include "page.h"
#include "registry.h"

enum { HTTP_MAX_PATH = 256, HTTP_MAX_ID = 128 };

/* Status 400: clients that have closed only their side of the connection receive it. A connection
 * that is fully closed looks the same to the server. */
#define HTTP_GONE "the client closed its side of the connection before the answer was there"

/* Status 504: the field timeout of the request. */
#define HTTP_LATE "the request's timeout passed before the answer began"

/* An open connection, in a list of the server. */
typedef struct http_client {
    os_socket fd;
    double deadline; /* clock_seconds by which the request must be complete; 0: it is complete */
    struct http_client *next, *previous;
} http_client;

typedef struct server {
    server_options options;
    registry *registry;
    limiter *limiter;
    page page;
    int64_t created; /* Unix time */
    uint16_t port;
    os_socket listener; /* OS_SOCKET_NONE: passed to the daemon */
    bool is_loopback;   /* reachable only from this machine */
    struct MHD_Daemon *daemon;
    atomic_bool draining; /* requests that use a model are refused */
    os_mutex clients_lock;
    http_client *clients;
    histogram request_seconds; /* of requests that use a model; under clients_lock */
} server;

/* What a request has used, for the log. */
typedef struct request_record {
    int64_t prompt_tokens, cached_tokens, generated_tokens;
    double queue_seconds, first_token_seconds; /* -1: unknown */
} request_record;

typedef struct exchange {
    server *server;
    struct MHD_Connection *connection;
    http_client *client;
    const char *method;
    char path[HTTP_MAX_PATH]; /* without doubled slashes and without a slash at the end */
    bytes body;
    bool too_long, at_prefix; /* at_prefix: the path is the server's prefix without a slash */
    int key;                  /* number of the request's API key; -1: none */
    int model;                /* number of the model in the registry; -1: none */
    served_model *served;     /* a reference; NULL: the route needs no model */
    bool counted;             /* the request uses the model and the key's limits */
    limit_levels levels;      /* of the key, after the request has begun */
    int32_t retry_seconds;    /* value of the header Retry-After; 0: by the status */
    const char *error_code;   /* of the error, in OpenAI's form; NULL: the status */
    double deadline;          /* clock_seconds at which the answer ends; HUGE_VAL: none */
    int64_t priority;         /* lower numbers are served first */
    char id[HTTP_MAX_ID + 1]; /* value of the header X-Request-Id */
    unsigned status;          /* of the answer; 0: none */
    request_record record;
    json_doc *doc;     /* parsed body; NULL until a route parses it */
    bytes widened;     /* value of the header X-Schema-Widened, NUL-terminated; empty: no header */
    size_t n_too_long; /* tokens of a prompt that does not fit, for the error */
    /* feature of Anthropic's API (threads) that the client can do without */
    const char *unsupported;
    double started;
} exchange;

/* Owner of the caches that a request uses: all requests share them, unless keys are isolated. */
static inline int http_owner(const exchange *x) {
    return x->server->options.isolates_keys ? x->key : 0;
}

/* The client's socket; OS_SOCKET_NONE: unknown. */
os_socket http_socket(struct MHD_Connection *connection);
/* Fields of a sequence that follow from its request. */
void http_label_sequence(const exchange *x, sequence *q);

/* Answers with a text of this type; takes ownership of `body`. */
enum MHD_Result http_reply_text(exchange *x, unsigned status, const char *type, bytes *body);
/* Ends the JSON document in `body` and answers with it: status 200, or 500 when writing failed. */
enum MHD_Result http_reply_json(exchange *x, bytes_json *j, bytes *body);
/* {"error":{"code","message","type"}} */
enum MHD_Result http_reply_error(exchange *x, unsigned status, const char *format, ...)
    BASE_PRINTF(3, 4);
/* Answers with the HTTP status that corresponds to err->status. */
enum MHD_Result http_reply_failed(exchange *x, const pi_error *err);
/* Adds the headers that every answer has, sends the response and destroys it. */
enum MHD_Result http_send(exchange *x, unsigned status, struct MHD_Response *response);

/* Writes an error object for streams: "code", "message", "type". */
void http_put_error(json_writer *w, const char *key, unsigned status, const char *message);

/* Parses the body as a JSON object, once. False: the client already has its answer, and *result is
 * what the handler must return. */
bool http_parse_body(exchange *x, const json_node **out, enum MHD_Result *result);

#endif
