/* model_source.h: models that are downloaded: -hf, -mu, addresses in place of files; and what to
 * say to names of models that are no files. */
#ifndef CLI_MODEL_SOURCE_H
#define CLI_MODEL_SOURCE_H

#include "error.h"
#include "options.h"

/* Models that were downloaded or found for this command line, so that later questions of a command
 * do not ask the network again. */
typedef struct model_source {
    char *what, *path;
} model_source;

typedef struct model_sources {
    model_source *items; /* [n] */
    size_t n, capacity;
} model_sources;

void model_sources_free(model_sources *s);

/* Settles which of -m, -hf and -mu counts: one may be typed, and it replaces what the environment
 * says. PI_ERR_ARG when they contradict each other. */
pi_status model_source_settle(cli_options *o, pi_error *err);
/* Writes the one that was typed: "-m FILE", "-hf USER/REPO", "-mu URL"; false: none. */
bool model_source_typed(const cli_options *o, char *buf, size_t n_buf);

/* Whether the model comes from the hub or an address, and its file, downloaded if it must be. A
 * signal ends the program. */
bool model_source_given(const cli_options *o);
pi_status model_source_path(const cli_options *o, char *buf, size_t n_buf, pi_error *err);
/* Whether a path is a download, in whose folder other files must not be written. */
bool model_source_is_ours(const cli_options *o, const char *path);
/* As model_source_path; *path lives as long as o->sources. */
pi_status model_source_keep(const cli_options *o, const char **path, pi_error *err);

/* Refuses a word that names no file: PI_ERR_ARG for a model as other programs or Hugging Face name
 * it, PI_ERR_NOT_FOUND for another word. Paths pass: opening them tells more. */
pi_status model_source_refuse_name(const char *word, pi_error *err);

#endif
