/* file.h: whole files in (mapped or copied), files out (atomically). Messages name the path.
 *
 * Truncating a mapped file raises SIGBUS in its readers, as for every program that maps files. The
 * library leaves that signal alone; a program's handler can ask file_map_path_at what it was.
 * Copies (--no-mmap) are safe from it. */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"

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
/* The copy with reports (NULL: none). PI_ERR_CANCELLED. */
pi_status file_map_copy(file_map *map, const char *path, struct progress *report, pi_error *err);
void file_map_close(file_map *map); /* a zeroed map is fine */
/* Locks the pages in memory (--mlock). PI_ERR_IO with advice on `ulimit -l` when not allowed,
 * PI_ERR_CANCELLED. */
pi_status file_map_lock(const file_map *map, struct progress *report, pi_error *err);
/* Hint that bytes of the map will not be read again: whole pages within are released, and read from
 * the file again if needed. Copies stay. */
void file_map_forget(const file_map *map, const void *data, size_t n_bytes);
/* The path of the mapped file that holds an address, valid while it is open, and where in the file
 * that is (offset may be NULL). NULL: none does. Async-signal-safe. */
const char *file_map_path_at(const void *address, uint64_t *offset);
/* What is said of such a file when its bytes have gone, before its path. */
#define FILE_MAP_CUT "file became shorter while it was in use: "

/* Reads a whole regular file of at most max_bytes into *data (mem_free), with a NUL added that is
 * not counted. PI_ERR_LIMIT when longer. */
pi_status file_read(const char *path, size_t max_bytes, char **data, size_t *n_bytes,
                    pi_error *err);
/* The same for a file that the user names: also a pipe or a terminal, and "-": standard input.
 * Waits for whoever writes there. */
pi_status file_read_stream(const char *path, size_t max_bytes, char **data, size_t *n_bytes,
                           pi_error *err);

/* A file that exists completely or not at all: a temporary one in the same folder, which takes the
 * name in file_writer_commit. Its exceptions (streams, targets that nothing can be renamed over)
 * and how a target is checked stand in file_writer.c. */
typedef struct file_writer file_writer;
pi_status file_writer_open(const char *path, file_writer **out, pi_error *err);
/* Whether a later file_writer_open could write there; for before long work. */
pi_status file_writer_probe(const char *path, pi_error *err);
pi_status file_writer_write(file_writer *w, const void *data, size_t n_bytes, pi_error *err);
pi_status file_writer_zeros(file_writer *w, size_t n_bytes, pi_error *err); /* padding */
uint64_t file_writer_offset(const file_writer *w);                          /* bytes written */
/* Overwrites bytes that were already written. */
pi_status file_writer_patch(file_writer *w, uint64_t offset, const void *data, size_t n_bytes,
                            pi_error *err);
/* Where the bytes lie until the commit, and a call after which all of them can be read there. */
const char *file_writer_path(const file_writer *w);
pi_status file_writer_flush(file_writer *w, pi_error *err);
/* Both free the writer. A failed commit leaves nothing behind. NULL is fine for abort. */
pi_status file_writer_commit(file_writer *w, pi_error *err);
void file_writer_abort(file_writer *w);
/* Unlinks temporary files before the program ends by a signal (async-signal-safe). False: a
 * finished file is being copied onto its target; do not end yet. The second call never says so. */
bool file_writer_signal_cleanup(void);

/* An empty file on the disk of a target that must not outlive the work: an intermediate result. It
 * has no name that others see; the path leads to it as long as it is open. */
typedef struct file_scratch file_scratch;
pi_status file_scratch_create(const char *beside, file_scratch **out, pi_error *err);
const char *file_scratch_path(const file_scratch *s);
int file_scratch_descriptor(const file_scratch *s); /* for reading and writing */
void file_scratch_remove(file_scratch *s);          /* frees; NULL is fine */

bool file_exists(const char *path);
/* dir + "/" + name into buf; false when it does not fit. */
bool file_join(char *buf, size_t n_buf, const char *dir, const char *name);

#endif
