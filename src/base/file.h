/* file.h: reads whole files (mapped or copied) and writes files atomically. Messages name the path.
 *
 * Truncating a mapped file raises SIGBUS in its readers, as in every program that maps files. The
 * library installs no handler; a program's handler can ask file_map_path_at which file it was.
 * Copies (--no-mmap) are not affected. */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"
#include "os_file.h"

struct progress; /* progress.h */

typedef struct file_map {
    const uint8_t *data; /* [size], read-only */
    size_t size;         /* bytes */
    bool copied;         /* true: private huge-page memory; false: a mapping of the file */
} file_map;

/* Maps a regular file read-only. An empty file gives size 0 and data non-NULL. With `copy` the
 * bytes are read into huge-page memory instead (--no-mmap). PI_ERR_IO: cannot be opened or read, or
 * is a directory or a device; PI_ERR_NOMEM. */
pi_status file_map_open(file_map *map, const char *path, bool copy, pi_error *err);
/* Maps a regular file so that its bytes can be written: pages that are written become memory of the
 * map, and the file does not change. PI_ERR_IO, PI_ERR_NOMEM. */
pi_status file_map_private(file_map *map, const char *path, pi_error *err);
/* Copies the file into memory with progress reports (NULL: none). PI_ERR_CANCELLED. */
pi_status file_map_copy(file_map *map, const char *path, struct progress *report, pi_error *err);
void file_map_close(file_map *map); /* a zeroed map is fine */
/* Locks the pages in memory (--mlock). PI_ERR_IO with advice on `ulimit -l` when not permitted,
 * PI_ERR_CANCELLED. */
pi_status file_map_lock(const file_map *map, struct progress *report, pi_error *err);
/* Hint that bytes of the map will not be read again: releases the whole pages among them; a later
 * access reads them from the file again. Copies are kept. */
void file_map_forget(const file_map *map, const void *data, size_t n_bytes);
/* Path of the mapped file that contains an address, valid while the file is open, and the offset in
 * the file (offset may be NULL). NULL: no mapped file contains it. Async-signal-safe. */
const char *file_map_path_at(const void *address, uint64_t *offset);
/* Error text, before the path, for a mapped file whose bytes are gone. */
#define FILE_MAP_CUT "file became shorter while it was in use: "

/* Reads a whole regular file of at most max_bytes into *data (free with mem_free) and adds a NUL
 * that n_bytes does not count. PI_ERR_LIMIT when longer. */
pi_status file_read(const char *path, size_t max_bytes, char **data, size_t *n_bytes,
                    pi_error *err);
/* Like file_read for a path that the user gave: also reads pipes and terminals, and "-" is standard
 * input. Waits for the writer of a pipe. */
pi_status file_read_stream(const char *path, size_t max_bytes, char **data, size_t *n_bytes,
                           pi_error *err);

/* A file that exists completely or not at all: bytes go to a temporary file in the same folder,
 * which file_writer_commit renames. file_writer.c describes the exceptions (streams, targets that
 * cannot be renamed over) and the checks of the target. */
typedef struct file_writer file_writer;
pi_status file_writer_open(const char *path, file_writer **out, pi_error *err);
/* Whether a later file_writer_open could write there; call it before long work. */
pi_status file_writer_probe(const char *path, pi_error *err);
pi_status file_writer_write(file_writer *w, const void *data, size_t n_bytes, pi_error *err);
pi_status file_writer_zeros(file_writer *w, size_t n_bytes, pi_error *err); /* padding */
uint64_t file_writer_offset(const file_writer *w);                          /* bytes written */
/* Overwrites bytes that were already written. */
pi_status file_writer_patch(file_writer *w, uint64_t offset, const void *data, size_t n_bytes,
                            pi_error *err);
/* Path of the bytes before the commit. After file_writer_flush all bytes can be read there. */
const char *file_writer_path(const file_writer *w);
pi_status file_writer_flush(file_writer *w, pi_error *err);
/* Both free the writer. A failed commit leaves no file behind. NULL is fine for abort. */
pi_status file_writer_commit(file_writer *w, pi_error *err);
void file_writer_abort(file_writer *w);
/* Unlinks temporary files before a signal ends the program (async-signal-safe). False: a finished
 * file is being copied onto its target; do not exit yet. A second call never returns false. */
bool file_writer_signal_cleanup(void);

/* An empty file on the disk of a target, for an intermediate result that must not outlive the work.
 * Other programs see no name; the path works as long as the file is open. */
typedef struct file_scratch file_scratch;
pi_status file_scratch_create(const char *beside, file_scratch **out, pi_error *err);
/* As file_scratch_create, in memory. PI_ERR_IO: this system has no such files. */
pi_status file_scratch_create_memory(file_scratch **out, pi_error *err);
const char *file_scratch_path(const file_scratch *s);
os_file file_scratch_file(const file_scratch *s); /* open for reading and writing */
void file_scratch_remove(file_scratch *s);        /* frees; NULL is fine */

bool file_exists(const char *path);
/* dir + "/" + name into buf; false when it does not fit. */
bool file_join(char *buf, size_t n_buf, const char *dir, const char *name);
/* Length of the folder part of a path, its separator included; 0: the working folder. */
size_t file_folder_length(const char *path);
/* The last name of a path, a part of it. */
const char *file_name(const char *path);
/* Creates the folders of a path that do not exist; with `is_private` for this user only.
 * PI_ERR_IO, PI_ERR_LIMIT: the path is too long. */
pi_status file_create_folders(const char *path, bool is_private, pi_error *err);

#endif
