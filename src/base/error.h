/* error.h: fills in a pi_error. Messages have the form "what was wrong: where: what to do". */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include <stddef.h>

#include "powerinfer_status.h"

#if defined(__GNUC__)
#if defined(__MINGW32__) /* there "printf" means the formats of Windows's own C library */
#define BASE_PRINTF(fmt, args) __attribute__((format(gnu_printf, fmt, args)))
#else
#define BASE_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#endif
#else
#define BASE_PRINTF(fmt, args)
#endif

/* Stores status and message when `err` is not NULL and returns `status`, so that a failing function
 * can end with `return error_set(err, ...)`. Escapes unprintable bytes of the formatted text, so
 * that a hostile name cannot break the line. */
pi_status error_set(pi_error *err, pi_status status, const char *format, ...) BASE_PRINTF(3, 4);

/* Like error_set, with ": strerror(errno_value)" appended. The status is PI_ERR_IO, or PI_ERR_NOMEM
 * for ENOMEM. */
pi_status error_set_errno(pi_error *err, int errno_value, const char *format, ...)
    BASE_PRINTF(3, 4);

/* Puts "prefix: " before the existing message. Returns err->status (or `status`). */
pi_status error_prefix(pi_error *err, pi_status status, const char *format, ...) BASE_PRINTF(3, 4);

/* The standard message for a failed allocation of `n_bytes` for `what`. */
pi_status error_nomem(pi_error *err, size_t n_bytes, const char *what);

#endif
