/* clock.h: monotonic time, and the time of day. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

double clock_seconds(void);  /* monotonic, from an arbitrary start */
int64_t clock_unix_ns(void); /* the time of day: ns since 1970, UTC */

/* The time of day in the user's time zone; thread-safe. False: not representable. */
bool clock_local_time(time_t seconds, struct tm *out);
bool clock_utc_time(time_t seconds, struct tm *out); /* the same in UTC */
/* strftime, with the formats of C99 on every system, and %-d: without zeros before the number. */
size_t clock_format(char *text, size_t n_text, const char *format, const struct tm *time);

#endif
