/* serve_model.h: opens a model for `serve` by options of the command line, or of a list. */
#ifndef CLI_SERVE_MODEL_H
#define CLI_SERVE_MODEL_H

#include "adapters.h"
#include "cli.h"
#include "server_options.h"

typedef struct serve_model {
    const cli_options *options; /* of this model; outlive it */
    const char *name;
    char path[OPTION_PATH_BYTES];
    cli_adapters parsed;
    server_adapter *adapters; /* [n_adapters] */
    int n_adapters;
} serve_model;

/* Finds the file, which is downloaded if necessary, and checks the options without opening it. */
pi_status serve_model_find(serve_model *m, pi_error *err);
void serve_model_free(serve_model *m);
/* server_model.open and close; user: a serve_model that was found. */
pi_status serve_model_open(void *user, const model_opening *how, served_options *out, void **opened,
                           pi_error *err);
void serve_model_close(void *opened);

#endif
