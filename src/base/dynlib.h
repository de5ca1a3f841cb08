/* dynlib.h: shared objects that are opened at run time, and where to look for them. */
#ifndef BASE_DYNLIB_H
#define BASE_DYNLIB_H

#include <stdbool.h>
#include <stddef.h>

#include "error.h"

/* Opens the shared object at `path` (with a slash, so that no search path plays a part), all of its
 * symbols resolved at once. PI_ERR_NOT_FOUND with the system's reason: there is no such file, or
 * something that it needs is missing. */
pi_status dynlib_open(const char *path, void **handle, pi_error *err);
void dynlib_close(void *handle); /* NULL is fine */

/* A function of it; NULL when there is none. ISO C has no cast between objects and functions. */
typedef void (*dynlib_function)(void);
dynlib_function dynlib_symbol(void *handle, const char *name);

/* Folder of the program that runs, and of the program or shared object that holds `address` (of a
 * function or constant). False when it is not known or does not fit. */
bool dynlib_program_folder(char *buf, size_t n_buf);
bool dynlib_folder_of(const void *address, char *buf, size_t n_buf);

#endif
