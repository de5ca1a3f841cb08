/* os_error.h: the system's words for its errors. */
#ifndef BASE_OS_ERROR_H
#define BASE_OS_ERROR_H

#include <stddef.h>

/* "No such file or directory" for an error number of <errno.h>; may use `buf`. Thread-safe. */
const char *os_error_text(int problem, char *buf, size_t n_buf);

#endif
