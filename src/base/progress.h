/* progress.h: progress reports of long operations. The callback may be NULL. It runs on the calling
 * thread, at most a few times a second; returning false cancels the work (PI_ERR_CANCELLED). */
#ifndef BASE_PROGRESS_H
#define BASE_PROGRESS_H

#include <stdbool.h>

typedef bool (*progress_fn)(void *user, const char *stage, double fraction /* 0..1 */);

/* The last report while loading a model. */
#define PROGRESS_LOADED "model loaded"

typedef struct progress {
    progress_fn fn; /* NULL: silent */
    void *user;
    double last; /* clock_seconds of the last call; 0 at first */
} progress;

/* Calls the callback when a tenth of a second has passed or fraction >= 1. False: stop. */
bool progress_step(progress *p, const char *stage, double fraction);

#endif
