/* serve_models.h: the models of `serve --models`: the GGUF files of a folder, and lists of models
 * with options, in the form of llama.cpp's presets:
 *
 *     version = 1
 *     [*]                      ; for all models
 *     parallel = 2
 *     [NAME]                   ; a file of the folder, or with the keys model or hf-repo any other
 *     model = /models/x.gguf
 *     ctx-size = 8192
 *     load-on-startup = true
 *
 * Keys are options of `serve` without their dashes, or llama.cpp's variables LLAMA_ARG_*. The
 * command line overrides the section, which overrides [*]. */
#ifndef CLI_SERVE_MODELS_H
#define CLI_SERVE_MODELS_H

#include "serve_model.h"

enum { SERVE_MAX_MODELS = 1024 };

typedef struct serve_models {
    server_model *items; /* [n], ordered by name */
    int n;
    struct listed_model *listed; /* [n] */
    struct word_array *common;   /* of the sections [*] */
    size_t capacity;
} serve_models;

/* PI_ERR_ARG: a key or value of a list, which the message names; PI_ERR_NOT_FOUND: no models.
 * Downloads models of hf-repo. */
pi_status serve_models_read(serve_models *s, const cli_options *o, pi_error *err);
void serve_models_free(serve_models *s); /* accepts zeroed models */

#endif
