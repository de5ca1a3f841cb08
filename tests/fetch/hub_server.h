/* hub_server.h: a hub for tests: a few files over HTTP on 127.0.0.1, within the test's process,
 * with the faults that a test asks for. Files answer as Hugging Face's large files do: a redirect
 * to another host ("localhost") with their ETag and size in headers. */
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
    int n_cuts;           /* answers that are cut */
    size_t said_too_much; /* added to X-Linked-Size */
    bool wrong_hash;      /* X-Linked-Etag is of other bytes */
    bool no_ranges;       /* Range is ignored */
    bool no_head;         /* HEAD is answered with 405 */
    int fixed_status;     /* of every answer; 0: as usual */
    const char *token;    /* without it 401; NULL: not needed */
    unsigned pause_us;    /* after every 4 KiB of a body */
    /* requests: "GET /path host=HOST auth=TOKEN range=RANGE" */
    char log[HUB_SERVER_LOG][HUB_SERVER_LINE];
    int n_log;
    int socket;
} hub_server;

/* The server of this process; its zeroed fields are the usual behaviour. */
void hub_server_start(hub_server *s);
void hub_server_add(hub_server *s, const char *name, const void *data, size_t n_bytes);
void hub_server_stop(hub_server *s);
/* Number of requests whose line has this text. */
int hub_server_count(const hub_server *s, const char *text);

#endif
