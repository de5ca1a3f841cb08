/* own_library.h: finds the shared objects of this project that the program opens at run time
 * (libpowerinfer_NAME.so): GPU backends, the transport of a cluster. */
#ifndef BASE_OWN_LIBRARY_H
#define BASE_OWN_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

#include "error.h"

/* The path of the shared object in this folder. False: it is not there, or the path is too long. */
bool own_library_in(const char *folder, const char *name, char *path, size_t n_path);
/* Looks next to the program, next to the library that contains this function, in the install folder
 * relative to both, and in the install folder of the build. PI_ERR_NOT_FOUND: it is in none. */
pi_status own_library_find(const char *name, char *path, size_t n_path, pi_error *err);

#endif
