/* file_temporary.h: files that nobody else sees: an output until it is complete, an intermediate
 * result. Where the file system can, such a file has no name (O_TMPFILE), so nothing is left of it
 * however the program ends. Elsewhere it is ".NAME.RANDOM.tmp" beside the target, locked (flock) as
 * long as its writer lives: a leftover of a killed run is one that nobody holds locked, and the
 * next writer of the same target removes it.
 *
 * Used by file_writer.c only. Threads: one file belongs to one thread at a time. */
#ifndef BASE_FILE_TEMPORARY_H
#define BASE_FILE_TEMPORARY_H

#include <limits.h>
#include <stdbool.h>

#include "error.h"

typedef struct file_temporary {
    int fd;              /* open for reading and writing, and locked */
    int slot;            /* in the table of names for signals, or -1 */
    bool named;          /* path is a name in the folder; otherwise it leads to fd */
    char path[PATH_MAX]; /* under which the file can be opened */
} file_temporary;

/* An empty file in the folder of `target`, mode 0666 less the umask. Removes what dead writers of
 * the same target left there. Nothing is open after an error. */
pi_status file_temporary_open(file_temporary *t, const char *target, pi_error *err);
/* Takes the name away, where the file stays reachable without. */
void file_temporary_hide(file_temporary *t);
/* Makes the file appear as `target`, at once and instead of what was there. 0, or errno: then all
 * is as it was. The file stays open. */
int file_temporary_publish(file_temporary *t, const char *target);
/* Closes it; what has not been published is gone. */
void file_temporary_close(file_temporary *t);

/* Length of the folder part of a path, with its slash; 0: the working folder. */
size_t file_folder_length(const char *path);

/* Unlinks the names of all unfinished files. Async-signal-safe. */
void file_temporary_unlink_all(void);

#endif
