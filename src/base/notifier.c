/* notifier.c: see notifier.h. */
#include "notifier.h"

#include <stdarg.h>
#include <stdio.h>

enum { NOTIFIER_LINE_MAX = 512 };

void notify(const notifier *t, const char *format, ...) {
    if (!t || !t->message) return;
    char line[NOTIFIER_LINE_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    for (char *c = line; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7F) *c = '?';
    t->message(t->user, line);
}
