/* download.h: downloads one file to its place: resumes, retries, checks. */
#ifndef FETCH_DOWNLOAD_H
#define FETCH_DOWNLOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "fetch_http.h"
#include "fetch_options.h"

typedef struct download {
    const fetch_options *options;
    http_client *http;
    const char *url;
    const char *name;    /* for messages */
    const char *path;    /* where the file goes */
    const char *lock;    /* file that is locked during the download */
    const char *partial; /* the partial file; kept when the download stops */
    int64_t size;        /* bytes; -1: the server does not say */
    const char *sha256;  /* NULL: not known */
    const char *version; /* required ETag of the rest of a partial file; NULL: none */
    bool resumable;      /* `partial` can only be the beginning of this version */
} download;

/* The URL of the hub: options->endpoint, or FETCH_ENDPOINT. */
const char *fetch_endpoint(const fetch_options *o);

/* Reports progress; false: stop. */
bool download_tick(void *user); /* user: a const fetch_options */

/* Does nothing when the file exists; while another process downloads it, waits for that. */
pi_status download_run(const download *d, pi_error *err);

/* Sets the error for a response that is not a success. */
pi_status download_refused(const fetch_options *o, const http_reply *reply, const char *url,
                           pi_error *err);

#endif
