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

/* In http_routes.c. */
typedef enum MHD_Result (*route_handler)(exchange *x);
/* Finds the handler of a method and a path. NULL: none; then *allowed is the method that the path
 * supports, or NULL when the path does not exist. */
route_handler http_find_route(const char *method, const char *path, const char **allowed);
/* Whether the path's route generates text. */
bool http_generates(const char *path);
/* Whether the path needs no API key. */
bool http_is_public(const char *path);

#endif
