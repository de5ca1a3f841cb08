/* log.h: the library never prints. What it has to say goes to a sink that the program installs;
 * without one it is dropped. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include "error.h"

typedef enum log_level { LOG_LEVEL_DEBUG, LOG_LEVEL_INFO, LOG_LEVEL_WARN } log_level;
typedef void (*log_sink)(void *user, log_level level, const char *line);

/* Not thread-safe against log_line: call it once at start. NULL drops everything. */
void log_set_sink(log_sink sink, void *user, log_level min_level);
/* Formats (cut at 1,024 bytes) and hands one line without newline to the sink. Thread-safe when the
 * sink is. */
void log_line(log_level level, const char *format, ...) BASE_PRINTF(2, 3);

#endif
