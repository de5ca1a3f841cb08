/* fetch_options.h: the options of all downloads. */
#ifndef FETCH_FETCH_OPTIONS_H
#define FETCH_FETCH_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

#include "error.h"
#include "progress.h"

#define FETCH_ENDPOINT "https://huggingface.co"

typedef struct fetch_options {
    const char *endpoint;    /* URL of the hub; NULL: FETCH_ENDPOINT */
    const char *token;       /* for private and gated repositories; NULL: none */
    const char *hub_folder;  /* HUB of fetch.h */
    const char *urls_folder; /* URLS of fetch.h */
    bool offline;            /* use only files that are there already */
    progress_fn progress;    /* may be NULL; false: stop */
    void (*message)(void *user, const char *line); /* may be NULL */
    bool (*stop)(void *user);                      /* called about once a second; NULL: never */
    void *user;
} fetch_options;

#endif
