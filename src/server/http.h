/* http.h: the callbacks of libmicrohttpd, and the table of routes. */
#ifndef SERVER_HTTP_H
#define SERVER_HTTP_H

#include "exchange.h"

enum {
    HTTP_MAX_HEADER = 32 << 10, /* bytes of the request line and the headers */
    HTTP_MAX_BODY = 32 << 20,   /* bytes; a context of a million tokens is about 4 MB of text */
    /* nice value of connection threads: each gets a tenth of the CPU time of other threads */
    HTTP_NICE = 10
};

/* libmicrohttpd's callbacks; `user` is the server. */
enum MHD_Result http_handle(void *user, struct MHD_Connection *connection, const char *url,
                            const char *method, const char *version, const char *upload,
                            size_t *n_upload, void **state);
/* Decodes %XX in place. Texts with %00 stay unchanged, because a NUL would end them. */
size_t http_unescape(void *user, struct MHD_Connection *connection, char *text);
void http_completed(void *user, struct MHD_Connection *connection, void **state,
                    enum MHD_RequestTerminationCode code);
void http_connection(void *user, struct MHD_Connection *connection, void **socket_state,
                     enum MHD_ConnectionNotificationCode code);

/* What a route needs of a model. */
typedef enum route_use {
    USE_NONE,
    USE_KNOWN,  /* names a model; x->served is NULL while it is not loaded */
    USE_QUERY,  /* as USE_KNOWN, but only the query may name the model */
    USE_LOADED, /* describes a loaded model: the request neither loads it nor counts as a use */
    USE_PROPS,  /* as USE_LOADED; without a name, x->model may be -1: all models */
    USE_CHANGE, /* changes which models are loaded; the route finds the model */
    USE_MODEL
} route_use;

/* In http_routes.c. */
typedef struct http_route {
    /* a path that ends with a slash matches all paths that begin with it */
    const char *method, *path;
    enum MHD_Result (*handler)(exchange *x);
    route_use use;
    bool is_public; /* needs no API key */
    bool generates; /* text */
} http_route;
/* Finds the route of a method and a path. NULL: none; then *allowed is the method that the path
 * supports, or NULL when the path does not exist. */
const http_route *http_find_route(const char *method, const char *path, const char **allowed);

/* In http_model.c. */
/* Finds the model that the request names, and gets a reference to it in x->served; begins the
 * request of its key. False: the client already has its answer, *result. */
bool http_begin_use(exchange *x, const http_route *route, enum MHD_Result *result);
/* Waits until the request's model x->model is loaded and gets a reference to it in x->served.
 * False: the client already has its answer, *result. */
bool http_acquire_model(exchange *x, enum MHD_Result *result);
/* Drops the reference: called when the handler has returned; streams hold their own, and clients
 * that read slowly keep no model in memory. */
void http_release_model(exchange *x);
/* Ends it. */
void http_end_use(exchange *x);
/* In http_log.c. */
void http_choose_id(exchange *x);
/* Writes the line of the log for a request that has ended. complete: the client got the answer. */
void http_log(const exchange *x, bool complete);

#endif
