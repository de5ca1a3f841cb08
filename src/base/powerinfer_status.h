/* powerinfer_status.h: statuses, as one list, and errors.
 *
 * Every function that can fail returns a pi_status and takes an optional pi_error (NULL: no
 * message). On success the pi_error is not modified. The message is one line without a newline, in
 * the form "what was wrong: where: what to do". */
#ifndef POWERINFER_STATUS_H
#define POWERINFER_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32) || !defined(__GNUC__)
#define PI_API
#else
#define PI_API __attribute__((visibility("default")))
#endif

#define PI_STATUS_LIST(X)                                                                          \
    X(OK, "success")                                                                               \
    X(ERR_NOMEM, "out of memory")                                                                  \
    X(ERR_IO, "input or output failed")                                                            \
    X(ERR_FORMAT, "malformed data")                                                                \
    X(ERR_UNSUPPORTED, "not supported")                                                            \
    X(ERR_ARG, "invalid argument")                                                                 \
    X(ERR_RANGE, "value out of range")                                                             \
    X(ERR_LIMIT, "capacity exceeded")                                                              \
    X(ERR_NOT_FOUND, "not found")                                                                  \
    X(ERR_DEVICE, "device failed")                                                                 \
    X(ERR_CANCELLED, "cancelled")

typedef enum pi_status {
#define PI_STATUS_ENUM(name, text) PI_##name,
    PI_STATUS_LIST(PI_STATUS_ENUM)
#undef PI_STATUS_ENUM
        PI_STATUS_COUNT
} pi_status;

enum { PI_ERROR_TEXT_MAX = 512 };

typedef struct pi_error {
    pi_status status;
    char message[PI_ERROR_TEXT_MAX]; /* NUL-terminated, truncated when longer */
} pi_error;

/* "ERR_IO" and "input or output failed"; never NULL, "unknown" for a value outside the list. */
PI_API const char *pi_status_name(pi_status status);
PI_API const char *pi_status_text(pi_status status);

#ifdef __cplusplus
}
#endif
#endif
