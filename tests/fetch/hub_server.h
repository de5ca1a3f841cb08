/* hub_server.h: a hub for tests: serves a few files over HTTP on 127.0.0.1, within the test's
 * process, with the faults that a test sets. A file answers like a large file of Hugging Face: with
 * a redirect to another host ("localhost") and its ETag and size in headers. */
#ifndef TEST_HUB_SERVER_H
#define TEST_HUB_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HUB_SERVER_FILES = 8, HUB_SERVER_LOG = 256, HUB_SERVER_LINE = 600 };

typedef struct hub_server_file {
    const char *name; /* in the repository test/tiny-GGUF, and below /plain/ */
    const void *data;
    size_t n_bytes;
    char sha256[65];
} hub_server_file;

typedef struct hub_server {
    uint16_t port;
    char endpoint[64]; /* "http://127.0.0.1:PORT" */
    hub_server_file files[HUB_SERVER_FILES];
    int n_files;
    const char *commit;
    /* faults; they may be changed between requests */
    size_t cut_after;     /* bytes of a body after which the connection ends; 0: never */
    int n_cuts;           /* number of answers that are cut */
    size_t said_too_much; /* added to X-Linked-Size */
    bool wrong_hash;      /* X-Linked-Etag belongs to other bytes */
    bool no_ranges;       /* Range is ignored */
    bool no_head;         /* HEAD is answered with 405 */
    int fixed_status;     /* status of every answer; 0: the usual one */
    const char *token;    /* requests without it get 401; NULL: none required */
    unsigned pause_us;    /* after every 4 KiB of a body */
    /* requests: "GET /path host=HOST auth=TOKEN range=RANGE" */
    char log[HUB_SERVER_LOG][HUB_SERVER_LINE];
    int n_log;
    int socket;
} hub_server;

/* Starts the server of this process; zeroed fields mean the usual behaviour. */
void hub_server_start(hub_server *s);
void hub_server_add(hub_server *s, const char *name, const void *data, size_t n_bytes);
void hub_server_stop(hub_server *s);
/* Returns the number of requests whose line contains the text. */
int hub_server_count(const hub_server *s, const char *text);

#endif
