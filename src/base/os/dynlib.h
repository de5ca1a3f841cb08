/* dynlib.h: opens shared libraries at run time and finds the folders where they are. */
#ifndef BASE_DYNLIB_H
#define BASE_DYNLIB_H

#include <stdbool.h>
#include <stddef.h>

#include "error.h"

/* Opens the shared library at `path` and resolves all its symbols at once. A path with a slash is
 * opened as it is; a name is searched for in the system's folders. PI_ERR_NOT_FOUND with the
 * system's reason: the file or one of its dependencies is missing. */
pi_status dynlib_open(const char *path, void **handle, pi_error *err);
void dynlib_close(void *handle); /* NULL is fine */

/* A function of the library; NULL when it has no such symbol. ISO C has no cast between object and
 * function pointers. */
typedef void (*dynlib_function)(void);
dynlib_function dynlib_symbol(void *handle, const char *name);

/* Sets an environment variable that a library reads when it starts, unless it is set. No other
 * thread may read the environment meanwhile. */
void dynlib_environment(const char *name, const char *value);

/* Folder of the running program, and folder of the program or shared library that contains
 * `address` (of a function or constant). False when unknown or too long for `buf`. */
bool dynlib_program_folder(char *buf, size_t n_buf);
bool dynlib_folder_of(const void *address, char *buf, size_t n_buf);

#endif
