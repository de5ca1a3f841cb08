/* model_source.h: models that are downloaded: -hf, -mu, URLs instead of files; and messages for
 * names of models that are not files. */
#ifndef CLI_MODEL_SOURCE_H
#define CLI_MODEL_SOURCE_H

#include "error.h"
#include "options.h"

/* Models that were downloaded or found in the cache. The list is kept until the command ends, so
 * that the command uses the network once per model. */
typedef struct model_source {
    char *what, *path; /* the URL, or repository and file; the local file */
} model_source;

typedef struct model_sources {
    model_source *items; /* [n] */
    size_t n, capacity;
} model_sources;

void model_sources_free(model_sources *s);

/* Selects one of -m, -hf and -mu: at most one may be typed; it replaces the others, which come from
 * the environment. PI_ERR_ARG: several are typed. */
pi_status model_source_settle(cli_options *o, pi_error *err);
/* Writes the typed option: "-m FILE", "-hf USER/REPO", "-mu URL". False: none is typed. */
bool model_source_typed(const cli_options *o, char *buf, size_t n_buf);

/* Whether the model comes from the hub or a URL; and the path of its file, which is downloaded if
 * necessary. A signal ends the program. */
bool model_source_given(const cli_options *o);
pi_status model_source_path(const cli_options *o, char *buf, size_t n_buf, pi_error *err);
/* Whether a path is a download; no other files may be written to the folder of a download. */
bool model_source_is_ours(const cli_options *o, const char *path);
/* Like model_source_path; *path is valid as long as o->sources. */
pi_status model_source_keep(const cli_options *o, const char **path, pi_error *err);

/* Refuses a word that names no file: PI_ERR_ARG for a model name of other programs or of Hugging
 * Face, PI_ERR_NOT_FOUND for other words. Paths are accepted: opening them gives a better
 * message. */
pi_status model_source_refuse_name(const char *word, pi_error *err);

#endif
