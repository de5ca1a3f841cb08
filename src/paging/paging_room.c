/* paging_room.c: caches follow the free memory while the model runs.
 *
 * A budget is fixed when a context is created. Later other programs may need memory, or the limit
 * of a control group may fall: then the caches give memory back before the kernel ends a process,
 * and take it again when enough is free. Results do not change. Prefixes, pinned matrices and the
 * ring keep their memory. */
#include <inttypes.h>

#include "clock.h"
#include "log.h"
#include "memory_room.h"
#include "paging_impl.h"

static const double look_every = 0.25;                /* seconds */
static const uint64_t least_low = (uint64_t)16 << 20; /* bytes */
enum { LOW_SHARE = 128 };

/* Below `low` bytes of free memory the caches shrink until it is twice as much; above four times
 * `low` they grow, half of the surplus at a time. */
void paging_follow_room(paging *g) {
    const double now = clock_seconds();
    if ((!g->neurons && !g->experts) || now < g->next_look) return;
    g->next_look = now + look_every;
    const paging_sizes *s = &g->sizes;
    uint64_t low = (s->beside + s->always + s->pinned + s->ring + s->hot + s->cache) / LOW_SHARE;
    uint64_t room = memory_room(), n = 0;
    if (low < least_low) low = least_low;
    if (room < low) {
        const uint64_t wanted = 2 * low - room;
        if (g->experts) n = paging_experts_shrink(g, wanted);
        if (g->neurons && n < wanted) n += paging_neurons_shrink(g, wanted - n);
        if (n > 0 && g->given_back == 0)
            log_line(LOG_LEVEL_WARN,
                     "memory runs out: %" PRIu64
                     " MiB are free: the cache of weights returns %" PRIu64 " MiB",
                     room >> 20, n >> 20);
        g->given_back += n;
    } else if (g->given_back > 0 && room > 4 * low) {
        uint64_t surplus = (room - 2 * low) / 2;
        if (surplus > g->given_back) surplus = g->given_back;
        if (g->experts) n = paging_experts_grow(g, surplus);
        if (g->neurons && n < surplus) n += paging_neurons_grow(g, surplus - n);
        g->given_back -= n < g->given_back ? n : g->given_back;
    }
}
