/* serve_keys.h: the API keys and the origins of `serve`. */
#ifndef CLI_SERVE_KEYS_H
#define CLI_SERVE_KEYS_H

#include "cli.h"
#include "server_options.h"

enum { SERVE_MAX_WORDS = 1024 };

typedef struct serve_words {
    char *text; /* all values, each NUL-terminated */
    const char *words[SERVE_MAX_WORDS];
    int n;
} serve_words;

typedef struct serve_keys {
    serve_words keys, origins;
    key_limits limits[SERVE_MAX_WORDS]; /* [keys.n] */
    bool limited;                       /* a key has a name or a limit */
} serve_keys;

/* Reads --api-key, --api-key-file and --cors-origin. PI_ERR_ARG: no key, or too many values;
 * PI_ERR_FORMAT: a setting of a key; errors of reading the file. */
pi_status serve_keys_read(serve_keys *k, const cli_options *o, pi_error *err);
void serve_keys_free(serve_keys *k); /* accepts zeroed keys */

#endif
