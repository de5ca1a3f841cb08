/* clock.h: monotonic time. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

double clock_seconds(void); /* monotonic, from an arbitrary start */

#endif
