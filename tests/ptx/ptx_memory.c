/* ptx_memory.c: the state of each byte that kernels may access: its last writer and its last
 * readers. */
#include <stdlib.h>
#include <string.h>

#include "ptx_inside.h"

ptx_memory *ptx_memory_create(void) {
    ptx_memory *m = calloc(1, sizeof *m);
    if (m) pthread_mutex_init(&m->mutex, NULL);
    return m;
}

static void free_tags(ptx_range *r) {
    free(r->wrote);
    free(r->read);
}

void ptx_memory_free(ptx_memory *m) {
    if (!m) return;
    for (size_t i = 0; i < m->n_ranges; i++) free_tags(&m->ranges[i]);
    free(m->ranges);
    pthread_mutex_destroy(&m->mutex);
    free(m);
}

/* Returns the first range that starts after the address. */
static size_t behind(const ptx_memory *m, uint64_t address) {
    size_t from = 0, to = m->n_ranges;
    while (from < to) {
        size_t middle = (from + to) / 2;
        if (m->ranges[middle].start <= address)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

ptx_range *ptx_memory_find(ptx_memory *m, uint64_t address) {
    size_t i = behind(m, address);
    if (i == 0) return NULL;
    ptx_range *r = &m->ranges[i - 1];
    return address - r->start < r->n ? r : NULL;
}

static void set_tags(ptx_tag *tags, size_t n, ptx_tag tag) {
    for (size_t i = 0; i < n; i++) tags[i] = tag;
}

bool ptx_memory_add(ptx_memory *m, const void *p, size_t n, ptx_contents contents, int device) {
    ptx_range r = {.start = (uintptr_t)p, .n = n, .device = device};
    r.wrote = calloc(n + 1, sizeof *r.wrote);
    r.read = calloc(n + 1, sizeof *r.read);
    if (!r.wrote || !r.read) {
        free_tags(&r);
        return false;
    }
    if (contents == PTX_DEFINED) set_tags(r.wrote, n, TAG_HOST);
    pthread_mutex_lock(&m->mutex);
    bool fits = m->n_ranges < m->room;
    if (!fits) {
        size_t room = 2 * m->room + 16;
        ptx_range *ranges = realloc(m->ranges, room * sizeof *ranges);
        if (ranges) {
            m->ranges = ranges;
            m->room = room;
            fits = true;
        }
    }
    if (fits) {
        size_t at = behind(m, r.start);
        memmove(m->ranges + at + 1, m->ranges + at, (m->n_ranges - at) * sizeof r);
        m->ranges[at] = r;
        m->n_ranges++;
    }
    pthread_mutex_unlock(&m->mutex);
    if (!fits) free_tags(&r);
    return fits;
}

void ptx_memory_remove(ptx_memory *m, const void *p) {
    pthread_mutex_lock(&m->mutex);
    size_t i = behind(m, (uintptr_t)p);
    if (i > 0 && m->ranges[i - 1].start == (uintptr_t)p) {
        free_tags(&m->ranges[i - 1]);
        memmove(m->ranges + i - 1, m->ranges + i, (m->n_ranges - i) * sizeof *m->ranges);
        m->n_ranges--;
    }
    pthread_mutex_unlock(&m->mutex);
}

/* Returns the tags of n bytes at p; NULL: not all bytes are in one range. */
static ptx_tag *written_at(ptx_memory *m, const void *p, size_t n) {
    uint64_t at = (uintptr_t)p;
    const ptx_range *r = ptx_memory_find(m, at);
    return r && n <= r->n - (at - r->start) ? r->wrote + (at - r->start) : NULL;
}

void ptx_memory_written(ptx_memory *m, const void *p, size_t n) {
    pthread_mutex_lock(&m->mutex);
    ptx_tag *tags = written_at(m, p, n);
    if (tags) set_tags(tags, n, TAG_HOST);
    pthread_mutex_unlock(&m->mutex);
}

void ptx_memory_copied(ptx_memory *m, const void *to, const void *from, size_t n) {
    pthread_mutex_lock(&m->mutex);
    ptx_tag *tags = written_at(m, to, n), *source = written_at(m, from, n);
    if (tags && source) memmove(tags, source, n * sizeof *tags);
    pthread_mutex_unlock(&m->mutex);
}

uint32_t ptx_memory_epoch(ptx_memory *m) {
    return ++m->epoch;
}

static bool same_epoch(ptx_tag before, ptx_tag now) {
    return before >> TAG_EPOCH_SHIFT == now >> TAG_EPOCH_SHIFT;
}
static bool same_warp(ptx_tag before, ptx_tag now) {
    return before >> TAG_WARP_SHIFT == now >> TAG_WARP_SHIFT;
}
static bool same_step(ptx_tag before, ptx_tag now) {
    return before >> TAG_STEP_SHIFT == now >> TAG_STEP_SHIFT;
}
static bool same_thread(ptx_tag before, ptx_tag now) {
    return before >> TAG_LANE_SHIFT == now >> TAG_LANE_SHIFT;
}

/* Whether accesses with these tags are a race: not both atomic; by two threads without a barrier or
 * (within a warp) a warp operation between them, or by two unordered blocks of a launch. */
static bool conflicts(const ptx_order *o, ptx_tag before, ptx_tag now, ptx_other *other) {
    if (before & now & TAG_ATOMIC) return false;
    other->thread = ptx_thread_of(before);
    other->elsewhere = true;
    other->block = TAG_SEVERAL;
    if (before & TAG_BLOCKS && before >= o->first &&
        !(before & TAG_RELEASED && ptx_order_knows_all(o, now)))
        return true;
    if (before >= o->first && before < o->begun)
        return ptx_order_conflict(o, before, now, &other->block);
    other->elsewhere = false;
    if (!same_epoch(before, now)) return false;
    if (!same_warp(before, now)) return true;
    return same_step(before, now) && !same_thread(before, now);
}

uint32_t ptx_thread_of(ptx_tag tag) {
    const uint32_t warp = tag >> TAG_WARP_SHIFT & TAG_MAX_WARP;
    const uint32_t lane = tag >> TAG_LANE_SHIFT & (2 * WARP - 1);
    return warp == TAG_MAX_WARP || lane >= WARP ? TAG_SEVERAL : warp * WARP + lane;
}

/* Merges a read with the earlier reads: a later write must be ordered with all of them. */
static ptx_tag merged(const ptx_order *o, ptx_tag before, ptx_tag now) {
    if (before < o->first) return now;
    if (before >= o->begun)
        now |= before & (TAG_BLOCKS | TAG_RELEASED);
    else if ((before & TAG_RELEASED || !(before & TAG_BLOCKS)) && ptx_order_released(o, before))
        now |= TAG_BLOCKS | TAG_RELEASED;
    else
        now |= TAG_BLOCKS;
    if (!same_epoch(before, now) && !(now & TAG_BLOCKS)) return now;
    if (!same_warp(before, now))
        now |= (ptx_tag)TAG_MAX_WARP << TAG_WARP_SHIFT;
    else if (same_step(before, now) && !same_thread(before, now))
        now |= TAG_LANES;
    return now & (before | ~(ptx_tag)TAG_ATOMIC); /* atomic if all reads are */
}

static bool alike(const ptx_tag *tags, uint32_t n) {
    ptx_tag differ = 0;
    for (uint32_t i = 0; i < n; i++) differ |= tags[i] ^ tags[0];
    return differ == 0;
}

/* The bytes of an access mostly have equal tags, which are checked once. */
static uint32_t run_of(const ptx_tag *a, const ptx_tag *b, uint32_t n) {
    uint32_t i = 1;
    if (alike(a, n) && alike(b, n)) return n;
    while (i < n && a[i] == a[0] && b[i] == b[0]) i++;
    return i;
}

enum ptx_verdict ptx_note_read(const ptx_order *o, const ptx_range *r, uint64_t at, uint32_t n,
                               ptx_tag tag, ptx_other *other) {
    const ptx_tag *wrote = r->wrote + (at - r->start);
    ptx_tag *read = r->read + (at - r->start);
    for (uint32_t i = 0, n_run; i < n; i += n_run) {
        n_run = run_of(wrote + i, read + i, n - i);
        if (wrote[i] == 0) return ACCESS_UNDEFINED;
        if (conflicts(o, wrote[i], tag, other)) return ACCESS_RACE;
        set_tags(read + i, n_run, merged(o, read[i], tag));
    }
    return ACCESS_FINE;
}

enum ptx_verdict ptx_note_write(const ptx_order *o, const ptx_range *r, uint64_t at, uint32_t n,
                                ptx_tag tag, ptx_other *other) {
    ptx_tag *wrote = r->wrote + (at - r->start);
    const ptx_tag *read = r->read + (at - r->start);
    for (uint32_t i = 0, n_run; i < n; i += n_run) {
        n_run = run_of(wrote + i, read + i, n - i);
        if (conflicts(o, wrote[i], tag, other) || conflicts(o, read[i], tag, other))
            return ACCESS_RACE;
        set_tags(wrote + i, n_run, tag);
    }
    return ACCESS_FINE;
}
