/* error.h: filling in a pi_error. The form of a message is "what was wrong: where: what to do". */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include <stddef.h>

#include "powerinfer_status.h"

#if defined(__GNUC__)
#define BASE_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define BASE_PRINTF(fmt, args)
#endif

/* Stores status and message when `err` is not NULL, and returns `status`, so that a failing
 * function can end with `return error_set(err, ...)`. What is not
 * printable in the formatted text is escaped, so that a hostile name cannot break the line. */
pi_status error_set(pi_error *err, pi_status status, const char *format, ...) BASE_PRINTF(3, 4);

/* As error_set, with ": strerror(errno_value)" appended; PI_ERR_IO (ENOMEM gives PI_ERR_NOMEM). */
pi_status error_set_errno(pi_error *err, int errno_value, const char *format, ...)
    BASE_PRINTF(3, 4);

/* Puts "prefix: " before the message that is already there. Returns err->status (or `status`). */
pi_status error_prefix(pi_error *err, pi_status status, const char *format, ...) BASE_PRINTF(3, 4);

/* The standard message for a failed allocation of `n_bytes` for `what`. */
pi_status error_nomem(pi_error *err, size_t n_bytes, const char *what);

#endif
