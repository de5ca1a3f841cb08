/* duration.h: durations as texts. */
#ifndef SERVER_DURATION_H
#define SERVER_DURATION_H

#include <stdbool.h>
#include <stddef.h>

/* Parses "90", "1.5h", "1h30m", "300ms", "-1" to seconds. False: not a duration. */
bool duration_parse(const char *text, double *seconds);
/* Writes seconds as OpenAI's headers have them: "120ms", "1.5s", "6m0s". */
void duration_write(double seconds, char *buf, size_t n_buf);

#endif
