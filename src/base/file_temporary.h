/* file_temporary.h: files that other programs do not see: unfinished outputs and intermediate
 * results. Where the file system supports it, such a file has no name, so nothing is left
 * however the program ends. Elsewhere it is ".NAME.RANDOM.tmp" in the target's folder, locked while
 * its writer lives. A killed writer leaves an unlocked file, which the next writer of the same
 * target removes.
 *
 * Used by file_writer.c only. Threads: one file belongs to one thread at a time. */
#ifndef BASE_FILE_TEMPORARY_H
#define BASE_FILE_TEMPORARY_H

#include <stdbool.h>

#include "error.h"
#include "os_file.h"

typedef struct file_temporary {
    os_file file;           /* open for reading and writing, locked */
    int slot;               /* index in the table of names that a signal removes, or -1 */
    bool named;             /* path is a name in the folder; otherwise it leads to file */
    char path[OS_PATH_MAX]; /* opens the file */
} file_temporary;

/* Creates an empty file in the folder of `target`, mode 0666 minus the umask. Removes what dead
 * writers of the same target left there. No file is open after an error. */
pi_status file_temporary_open(file_temporary *t, const char *target, pi_error *err);
/* Removes the name where the file stays reachable without one. */
void file_temporary_hide(file_temporary *t);
/* Puts the file in place of `target` atomically. Returns 0 or an error number; after an error
 * nothing has changed. The file stays open. */
int file_temporary_publish(file_temporary *t, const char *target);
/* Closes the file; an unpublished file is deleted. */
void file_temporary_close(file_temporary *t);

/* Unlinks the names of all unfinished files. Async-signal-safe. */
void file_temporary_unlink_all(void);

#endif
