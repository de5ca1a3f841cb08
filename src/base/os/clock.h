/* clock.h: monotonic time, and the time of day. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdbool.h>
#include <time.h>

double clock_seconds(void); /* monotonic, from an arbitrary start */

/* The time of day in the user's time zone; thread-safe. False: not representable. */
bool clock_local_time(time_t seconds, struct tm *out);
bool clock_utc_time(time_t seconds, struct tm *out); /* the same in UTC */

#endif
