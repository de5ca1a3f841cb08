/* windows_error.c: words for error numbers. The C library has none for those that POSIX added. */
#include <errno.h>
#include <string.h>

#include "os_error.h"

const char *os_error_text(int problem, char *buf, size_t n_buf) {
    static const struct {
        int problem;
        const char *text;
    } own[] = {
        {ETXTBSY, "another program has it open"},
        {EWOULDBLOCK, "Resource temporarily unavailable"},
        {EOPNOTSUPP, "Operation not supported"},
        {ENOTSUP, "Operation not supported"},
        {ECANCELED, "Operation canceled"},
        {ELOOP, "Too many levels of symbolic links"},
        {ETIMEDOUT, "timed out"},
        {EADDRINUSE, "Address already in use"},
        {EADDRNOTAVAIL, "Cannot assign requested address"},
        {EAFNOSUPPORT, "Address family not supported"},
        {ECONNREFUSED, "Connection refused"},
        {ECONNRESET, "Connection reset by peer"},
        {ENETUNREACH, "Network is unreachable"},
        {EHOSTUNREACH, "No route to host"},
        {ENOBUFS, "No buffer space available"},
    };
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (own[i].problem == problem) return own[i].text;
    return strerror_s(buf, n_buf, problem) == 0 ? buf : "unknown error";
}
