/* progress.c: throttles progress reports, so that callers may report once per row. */
#include "progress.h"

#include "clock.h"

static const double min_interval = 0.1; /* seconds between reports */

bool progress_step(progress *p, const char *stage, double fraction) {
    if (!p || !p->fn) return true;
    double now = clock_seconds();
    if (fraction < 1 && now - p->last < min_interval) return true;
    p->last = now;
    return p->fn(p->user, stage, fraction);
}
