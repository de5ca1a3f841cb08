/* darwin_error.c: strerror_r of POSIX. */
#include <string.h>

#include "os_error.h"

const char *os_error_text(int problem, char *buf, size_t n_buf) {
    (void)strerror_r(problem, buf, n_buf); /* for an unknown number it writes a text as well */
    return buf;
}
