/* notifier.h: messages from a tool to its user while it works: one line each, passed to the
 * pi_message callback of its options. Unlike errors they never stop the work. */
#ifndef BASE_NOTIFIER_H
#define BASE_NOTIFIER_H

#include "error.h"

typedef struct notifier {
    void (*message)(void *user, const char *line); /* a pi_message; NULL: silent */
    void *user;
} notifier;

/* Formats one line (truncated to 512 bytes) and passes it on; control bytes become '?'. */
void notify(const notifier *t, const char *format, ...) BASE_PRINTF(2, 3);

#endif
