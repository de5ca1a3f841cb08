/* log.h: log messages. The library never prints; messages go to a sink that the program installs.
 * Without a sink they are dropped. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include "error.h"

typedef enum log_level { LOG_LEVEL_DEBUG, LOG_LEVEL_INFO, LOG_LEVEL_WARN } log_level;
typedef void (*log_sink)(void *user, log_level level, const char *line);

/* Call once at start: not thread-safe against log_line. NULL drops all messages. */
void log_set_sink(log_sink sink, void *user, log_level min_level);
/* Formats one line (truncated to 1,024 bytes) and passes it to the sink without a newline.
 * Thread-safe when the sink is. */
void log_line(log_level level, const char *format, ...) BASE_PRINTF(2, 3);

#endif
