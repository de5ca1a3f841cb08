/* log.h: log messages. The library never prints; messages go to a sink that the program installs.
 * Without a sink they are dropped. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include "error.h"

typedef enum log_level { LOG_LEVEL_DEBUG, LOG_LEVEL_INFO, LOG_LEVEL_WARN } log_level;
typedef void (*log_sink)(void *user, log_level level, const char *line);
typedef void (*log_progress_sink)(void *user, const char *stage, double fraction);

/* Call once at start: not thread-safe against log_line. NULL drops all messages. */
void log_set_sink(log_sink sink, void *user, log_level min_level);
/* Formats one line (truncated to 1,024 bytes) and passes it to the sink without a newline.
 * Thread-safe when the sink is. */
void log_line(log_level level, const char *format, ...) BASE_PRINTF(2, 3);

/* Progress of work whose caller has no progress callback; the same rules as for log_set_sink. */
void log_set_progress(log_progress_sink sink, void *user);
/* fraction: 0..1; the last call has 1. */
void log_progress(const char *stage, double fraction);

#endif
