/* ptx_order.c: the order of accesses by the blocks of one launch. Blocks may run in any order and
 * concurrently, although the interpreter runs them in turn. So an access to bytes that another
 * block wrote, or a write to bytes that it read, is ordered only by this sequence: a thread of the
 * other block executes a fence and changes a word atomically, then a thread of this block changes
 * the word and executes a fence. */
#include <stdlib.h>

#include "ptx_inside.h"

/* Makes room for one more element. False: out of memory. */
static bool grow(void **list, size_t n, size_t *room, size_t size) {
    if (n < *room) return true;
    const size_t more = 2 * *room + 16;
    void *larger = realloc(*list, more * size);
    if (!larger) return false;
    *list = larger;
    *room = more;
    return true;
}

void ptx_order_free(ptx_order *o) {
    free(o->spans);
    free(o->releases);
    free(o->acquires);
}

bool ptx_order_epoch(ptx_order *o, uint32_t epoch, uint32_t block) {
    ptx_span *last = o->n_spans ? &o->spans[o->n_spans - 1] : NULL;
    if (!last) o->first = (ptx_tag)epoch << TAG_EPOCH_SHIFT;
    if (!last || last->block != block) {
        o->begun = (ptx_tag)epoch << TAG_EPOCH_SHIFT;
        o->n_acquires = 0;
    } else if (last->last + 1 == epoch) { /* otherwise a launch of another stream ran in between */
        last->last = epoch;
        return true;
    }
    if (!grow((void **)&o->spans, o->n_spans, &o->span_room, sizeof *o->spans)) return false;
    o->spans[o->n_spans++] = (ptx_span){epoch, epoch, block};
    return true;
}

bool ptx_order_count(ptx_order *o, uint64_t address, uint32_t block, uint32_t thread,
                     uint32_t fenced) {
    for (size_t i = 0; i < o->n_releases; i++) {
        const ptx_release *r = &o->releases[i];
        if (r->address != address || r->block == block) continue;
        if (!grow((void **)&o->acquires, o->n_acquires, &o->acquire_room, sizeof *o->acquires))
            return false;
        o->acquires[o->n_acquires++] = (ptx_acquire){*r, thread, 0};
    }
    if (fenced == 0) return true;
    if (!grow((void **)&o->releases, o->n_releases, &o->release_room, sizeof *o->releases))
        return false;
    o->releases[o->n_releases++] = (ptx_release){address, block, fenced, thread};
    return true;
}

void ptx_order_fence(ptx_order *o, uint32_t thread, uint32_t epoch) {
    for (size_t i = 0; i < o->n_acquires; i++)
        if (o->acquires[i].thread == thread && o->acquires[i].since == 0)
            o->acquires[i].since = epoch;
}

static const ptx_span *span_of(const ptx_order *o, uint32_t epoch) {
    size_t from = 0, to = o->n_spans;
    while (from < to) {
        const size_t middle = (from + to) / 2;
        if (o->spans[middle].last < epoch)
            from = middle + 1;
        else
            to = middle;
    }
    return from < o->n_spans && o->spans[from].first <= epoch ? &o->spans[from] : NULL;
}

static bool releases(const ptx_release *r, ptx_tag before) {
    const uint32_t epoch = (uint32_t)(before >> TAG_EPOCH_SHIFT);
    return epoch < r->fenced || (epoch == r->fenced && ptx_thread_of(before) == r->thread);
}

static bool is_known(const ptx_acquire *a, ptx_tag now) {
    const uint32_t epoch = (uint32_t)(now >> TAG_EPOCH_SHIFT);
    return a->since != 0 &&
           (epoch > a->since || (epoch == a->since && ptx_thread_of(now) == a->thread));
}

bool ptx_order_conflict(const ptx_order *o, ptx_tag before, ptx_tag now, uint32_t *block) {
    const ptx_span *span = span_of(o, (uint32_t)(before >> TAG_EPOCH_SHIFT));
    if (!span) return false; /* another launch: ordered by streams and events */
    *block = span->block;
    for (size_t i = 0; i < o->n_acquires; i++) {
        const ptx_acquire *a = &o->acquires[i];
        if (a->of.block == span->block && releases(&a->of, before) && is_known(a, now))
            return false;
    }
    return true;
}

bool ptx_order_released(const ptx_order *o, ptx_tag before) {
    const ptx_span *span = span_of(o, (uint32_t)(before >> TAG_EPOCH_SHIFT));
    if (!span) return false;
    size_t from = 0, to = o->n_releases; /* in the order of the blocks, which run in turn */
    while (from < to) {
        const size_t middle = (from + to) / 2;
        if (o->releases[middle].block < span->block)
            from = middle + 1;
        else
            to = middle;
    }
    const ptx_release *first = &o->releases[from];
    return from < o->n_releases && first->block == span->block && releases(first, before);
}

bool ptx_order_knows_all(const ptx_order *o, ptx_tag now) {
    uint32_t n = 0; /* blocks before this one are known */
    for (size_t i = 0; i < o->n_acquires; i++)
        n += o->acquires[i].of.block == n && is_known(&o->acquires[i], now);
    return n == o->spans[o->n_spans - 1].block;
}
