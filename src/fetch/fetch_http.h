/* fetch_http.h: HTTP requests with libcurl, one at a time, with rules for redirects and tokens. */
#ifndef FETCH_FETCH_HTTP_H
#define FETCH_FETCH_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"

enum { HTTP_URL_MAX = 8192, HTTP_VALUE_MAX = 256 };

typedef struct http_client http_client; /* keeps connections open between requests */

typedef struct http_request {
    const char *url;
    const char *token;   /* bearer token; NULL: none */
    const char *home;    /* only requests to the origin of this URL carry the token */
    bool head;           /* headers only; a redirect to another origin is not followed */
    int64_t from;        /* first requested byte */
    const char *version; /* ETag for If-Range; NULL: none */
    /* Takes the body of a successful response; false: stop, PI_ERR_CANCELLED. */
    bool (*body)(void *user, const char *data, size_t n_bytes);
    bool (*tick)(void *user); /* called about once a second; false: stop */
    void *user;
} http_request;

/* Headers of the last response; "" and -1: absent. */
typedef struct http_reply {
    long status;                      /* 0: no response */
    char etag[HTTP_VALUE_MAX];        /* with its quotes */
    char linked_etag[HTTP_VALUE_MAX]; /* X-Linked-Etag: of the file behind a redirect */
    char commit[HTTP_VALUE_MAX];      /* X-Repo-Commit */
    char type[HTTP_VALUE_MAX];        /* Content-Type */
    char error[HTTP_VALUE_MAX];       /* X-Error-Message */
    int64_t length;                   /* Content-Length */
    int64_t linked_size;              /* X-Linked-Size */
    int64_t range_start, range_total; /* Content-Range */
} http_reply;

pi_status fetch_http_open(http_client **out, pi_error *err);
void fetch_http_close(http_client *c); /* NULL is fine */

/* PI_OK: a complete response with any status; only 200 and 206 pass their bodies to the callback.
 * PI_ERR_IO with the reason: no response, or only a part of one (reply->status is set if its
 * headers arrived). PI_ERR_CANCELLED, PI_ERR_UNSUPPORTED, PI_ERR_NOMEM. */
pi_status fetch_http_send(http_client *c, const http_request *r, http_reply *reply, pi_error *err);

/* Scheme and host of a URL, for messages: "https://host". */
void fetch_http_origin(const char *url, char *buf, size_t n_buf);

#endif
