/* error.c: formats pi_error messages and names statuses.
 *
 * Messages quote users and files: paths, names, values. The text around a quotation must stay
 * readable however long the quotation is. A message is therefore formatted into a larger buffer and
 * then, when it is too long for a pi_error, shortened in the middle. */
#include "error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "os_error.h"
#include "printable.h"

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

enum {
    LONG_MESSAGE = 8192, /* bytes; nearly two paths of PATH_MAX */
    REASON_ROOM = 128,   /* bytes, for the text of strerror */
    MESSAGE_ROOM = LONG_MESSAGE + sizeof((pi_error *)0)->message + REASON_ROOM
};

static bool continues_character(char c) {
    return ((unsigned char)c & 0xC0) == 0x80; /* UTF-8 */
}

/* Escapes the text to one printable line: names from files may contain any bytes. Keeps the
 * beginning and the end of a text that is too long, both in whole characters. */
static void store_message(pi_error *err, pi_status status, const char *unescaped) {
    static const char gap[] = "...";
    char text[4 * MESSAGE_ROOM];
    size_t n = printable_copy(text, sizeof text, unescaped, strlen(unescaped));
    size_t room = sizeof err->message - 1;
    err->status = status;
    if (n <= room) {
        memcpy(err->message, text, n + 1);
        return;
    }
    size_t n_head = (room - strlen(gap)) / 2, tail = n - n_head;
    while (n_head > 0 && continues_character(text[n_head])) n_head--;
    while (tail < n && continues_character(text[tail])) tail++;
    snprintf(err->message, sizeof err->message, "%.*s%s%s", (int)n_head, text, gap, text + tail);
}

pi_status error_set(pi_error *err, pi_status status, const char *format, ...) {
    if (err) {
        char text[LONG_MESSAGE];
        va_list args;
        va_start(args, format);
        vsnprintf(text, sizeof text, format, args);
        va_end(args);
        store_message(err, status, text);
    }
    return status;
}

pi_status error_set_errno(pi_error *err, int errno_value, const char *format, ...) {
    pi_status status = errno_value == ENOMEM ? PI_ERR_NOMEM : PI_ERR_IO;
    if (err) {
        char text[LONG_MESSAGE + REASON_ROOM], reason[REASON_ROOM];
        va_list args;
        va_start(args, format);
        vsnprintf(text, LONG_MESSAGE, format, args);
        va_end(args);
        size_t n = strlen(text);
        snprintf(text + n, sizeof text - n, ": %s",
                 os_error_text(errno_value, reason, sizeof reason));
        store_message(err, status, text);
    }
    return status;
}

pi_status error_prefix(pi_error *err, pi_status status, const char *format, ...) {
    if (!err) return status;
    char text[LONG_MESSAGE + sizeof err->message];
    va_list args;
    va_start(args, format);
    vsnprintf(text, LONG_MESSAGE, format, args);
    va_end(args);
    size_t n = strlen(text);
    snprintf(text + n, sizeof text - n, ": %s", err->message);
    store_message(err, err->status, text);
    return err->status;
}

pi_status error_nomem(pi_error *err, size_t n_bytes, const char *what) {
    return error_set(err, PI_ERR_NOMEM, "out of memory: %s: %zu bytes could not be allocated", what,
                     n_bytes);
}
