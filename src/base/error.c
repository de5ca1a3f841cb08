/* error.c: formatting of pi_error messages and the names of statuses. */
#include "error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const status_names[] = {
#define STATUS_NAME(name, text) #name,
    PI_STATUS_LIST(STATUS_NAME)
#undef STATUS_NAME
};

static const char *const status_texts[] = {
#define STATUS_TEXT(name, text) text,
    PI_STATUS_LIST(STATUS_TEXT)
#undef STATUS_TEXT
};

const char *pi_status_name(pi_status status) {
    return (unsigned)status < PI_STATUS_COUNT ? status_names[status] : "unknown";
}

const char *pi_status_text(pi_status status) {
    return (unsigned)status < PI_STATUS_COUNT ? status_texts[status] : "unknown";
}

/* One line, printable: names from files may hold anything. Bytes >= 0x80 are kept (UTF-8). */
static void make_printable(char *s) {
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c < 0x20 || c == 0x7f) *s = '?';
    }
}

pi_status error_set(pi_error *err, pi_status status, const char *format, ...) {
    if (err) {
        va_list args;
        va_start(args, format);
        vsnprintf(err->message, sizeof err->message, format, args);
        va_end(args);
        make_printable(err->message);
        err->status = status;
    }
    return status;
}

pi_status error_set_errno(pi_error *err, int errno_value, const char *format, ...) {
    pi_status status = errno_value == ENOMEM ? PI_ERR_NOMEM : PI_ERR_IO;
    if (err) {
        va_list args;
        va_start(args, format);
        int n = vsnprintf(err->message, sizeof err->message, format, args);
        va_end(args);
        if (n >= 0 && (size_t)n < sizeof err->message) {
            char text[128];
            snprintf(err->message + n, sizeof err->message - (size_t)n, ": %s",
                     strerror_r(errno_value, text, sizeof text));
        }
        make_printable(err->message);
        err->status = status;
    }
    return status;
}

pi_status error_prefix(pi_error *err, pi_status status, const char *format, ...) {
    if (!err) return status;
    char old[PI_ERROR_TEXT_MAX];
    memcpy(old, err->message, sizeof old);
    va_list args;
    va_start(args, format);
    int n = vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
    if (n >= 0 && (size_t)n < sizeof err->message) {
        /* A message that does not fit is cut; the prefix is the part that says where. */
        int room = (int)sizeof err->message - n;
        snprintf(err->message + n, (size_t)room, ": %.*s", room > 3 ? room - 3 : 0, old);
    }
    make_printable(err->message);
    return err->status;
}

pi_status error_nomem(pi_error *err, size_t n_bytes, const char *what) {
    return error_set(err, PI_ERR_NOMEM, "out of memory: %s: %zu bytes could not be allocated", what,
                     n_bytes);
}
