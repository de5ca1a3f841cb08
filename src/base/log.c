/* log.c: formats a line and passes it to the sink that the program installed. The sinks are the
 * only process-wide state of this module: messages come from code that knows no context. */
#include "log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "printable.h"

enum { LOG_LINE_MAX = 1024 }; /* bytes, NUL included */

static log_sink current_sink;
static void *current_user;
static log_level current_level;
static log_progress_sink progress_sink;
static void *progress_user;

void log_set_sink(log_sink sink, void *user, log_level min_level) {
    current_sink = sink;
    current_user = user;
    current_level = min_level;
}

void log_line(log_level level, const char *format, ...) {
    if (!current_sink || level < current_level) return;
    char line[LOG_LINE_MAX];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (n < 0) return;
    /* Lines contain names from files, which must not forge lines or move the cursor. */
    char shown[4 * LOG_LINE_MAX];
    printable_copy(shown, sizeof shown, line, strlen(line));
    current_sink(current_user, level, shown);
}

void log_set_progress(log_progress_sink sink, void *user) {
    progress_sink = sink;
    progress_user = user;
}

void log_progress(const char *stage, double fraction) {
    if (progress_sink) progress_sink(progress_user, stage, fraction);
}
