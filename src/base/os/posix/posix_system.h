/* posix_system.h: small functions that differ between POSIX systems, for the files of this folder.
 * Each system's folder defines them, and has its own files for subjects that differ more. */
#ifndef BASE_POSIX_SYSTEM_H
#define BASE_POSIX_SYSTEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

/* A pipe whose ends other programs do not inherit, and whose reads and writes do not wait. 0 or -1,
 * with errno set. */
int posix_pipe(int ends[2]);
/* A stream socket that other programs do not inherit; -1: errno tells why. */
int posix_stream_socket(int family, int protocol);
/* Path of the running program; false: unknown, or too long for `buf`. */
bool posix_program_path(char *buf, size_t n_buf);
/* Time of the last change, in ns. */
int64_t posix_modified(const struct stat *st);
/* The variables of the environment; NULL ends the list. */
char **posix_environment(void);
/* The program that opens an address in the user's browser. */
char *posix_opener(void);

#endif
