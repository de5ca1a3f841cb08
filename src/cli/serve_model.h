/* serve_model.h: opens a model for `serve` by options of the command line, or of a list. */
#ifndef CLI_SERVE_MODEL_H
#define CLI_SERVE_MODEL_H

#include "cli.h"
#include "server_options.h"

typedef struct serve_model {
    const cli_options *options; /* of this model; outlive it */
    const char *name;
    char path[OPTION_PATH_BYTES];
} serve_model;

/* Finds the file, which is downloaded if necessary, and checks the options without opening it. */
pi_status serve_model_find(serve_model *m, pi_error *err);
/* server_model.open and close; user: a serve_model that was found. */
pi_status serve_model_open(void *user, served_options *out, void **opened, pi_error *err);
void serve_model_close(void *opened);

#endif
