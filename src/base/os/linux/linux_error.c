/* linux_error.c: strerror_r of the GNU C library. */
#include <string.h>

#include "os_error.h"

const char *os_error_text(int problem, char *buf, size_t n_buf) {
    return strerror_r(problem, buf, n_buf);
}
