/* hub_cache.h: the folder of Hugging Face's tools: valid names, paths of files, choice of a file.
 * It uses no network. */
#ifndef FETCH_HUB_CACHE_H
#define FETCH_HUB_CACHE_H

#include <stdbool.h>
#include <stddef.h>

#include "error.h"
#include "os_file.h"

enum { HUB_NAME_MAX = 256, HUB_COMMIT = 40, HUB_MAX_FILES = 65536 };

/* "USER/REPO[:QUANT]" */
typedef struct hub_repo {
    char name[HUB_NAME_MAX];  /* "USER/REPO" */
    char quant[HUB_NAME_MAX]; /* "": none was given */
} hub_repo;

/* Names of files in a repository, with "/" between folders; all pass hub_file_valid. */
typedef struct hub_files {
    char **names; /* [n] */
    size_t n, capacity;
} hub_files;

pi_status hub_repo_parse(const char *text, hub_repo *out, pi_error *err);

/* Whether text from a server may become a part of a path. */
bool hub_commit_valid(const char *commit);
bool hub_file_valid(const char *name);
/* An ETag without its quotes and W/; false when the rest is no ETag. */
bool hub_etag_plain(const char *etag, char *buf, size_t n_buf);
bool hub_etag_is_sha256(const char *etag);

pi_status hub_files_add(hub_files *f, const char *name, pi_error *err);
void hub_files_free(hub_files *f); /* a zeroed one is fine */
/* The file for `quant`, its first part if it is split; NULL: none. */
const char *hub_files_choose(const hub_files *f, const char *quant);
/* "Q4_K_M, Q8_0, ...": the available quants. */
void hub_files_describe(const hub_files *f, char *buf, size_t n_buf);

/* Parts of a split file: 1 when it is not split; and the name of the i-th (0, 1, ...). */
int hub_parts(const char *name);
bool hub_part_name(const char *name, int i, char *buf, size_t n_buf);

/* Paths; false when they do not fit. */
bool hub_folder(const char *hub, const char *repo, char path[OS_PATH_MAX]);
bool hub_blob_path(const char *hub, const char *repo, const char *etag, char path[OS_PATH_MAX]);
bool hub_lock_path(const char *hub, const char *repo, const char *etag, char path[OS_PATH_MAX]);
bool hub_snapshot_path(const char *hub, const char *repo, const char *commit, const char *file,
                       char path[OS_PATH_MAX]);

/* The commit of a branch or tag as last seen. */
bool hub_read_ref(const char *hub, const char *repo, const char *ref, char commit[HUB_COMMIT + 1]);
pi_status hub_write_ref(const char *hub, const char *repo, const char *ref, const char *commit,
                        pi_error *err);
/* Puts a finished blob into the snapshot of a commit. */
pi_status hub_link(const char *hub, const char *repo, const char *commit, const char *file,
                   const char *etag, pi_error *err);
/* Files of a snapshot that are there. */
pi_status hub_list(const char *hub, const char *repo, const char *commit, hub_files *out,
                   pi_error *err);

#endif
