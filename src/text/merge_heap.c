/* merge_heap.c: a candidate is stale when one of its symbols is gone or their sizes no longer add
 * up to the queued size. This check is enough, because a remaining symbol can only have grown. */
#include "merge_heap.h"

#include "mem.h"

/* Each merge queues at most two candidates, and there are fewer merges than symbols. */
enum { MERGE_MAX_SYMBOLS = 1 << 30 };

bool merge_reserve(merge_work *w, size_t n_symbols) {
    return mem_grow((void **)&w->symbols, &w->symbol_capacity, n_symbols, sizeof *w->symbols,
                    MERGE_MAX_SYMBOLS);
}

void merge_append(merge_work *w, uint32_t begin, uint32_t size, uint32_t value) {
    int32_t i = (int32_t)w->n_symbols++;
    w->symbols[i] = (merge_symbol){i - 1, -1, begin, size, value};
    if (i > 0) w->symbols[i - 1].next = i;
}

static bool heap_push(merge_work *w, merge_candidate c) {
    if (w->n_heap == w->heap_capacity &&
        !mem_grow((void **)&w->heap, &w->heap_capacity, w->n_heap + 1, sizeof *w->heap,
                  (size_t)MERGE_MAX_SYMBOLS * 3)) {
        return false;
    }
    size_t i = w->n_heap++;
    while (i > 0 && w->heap[(i - 1) / 2].key > c.key) {
        w->heap[i] = w->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    w->heap[i] = c;
    return true;
}

static merge_candidate heap_pop(merge_work *w) {
    merge_candidate top = w->heap[0], last = w->heap[--w->n_heap];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < w->n_heap; i = child) {
        if (child + 1 < w->n_heap && w->heap[child + 1].key < w->heap[child].key) child++;
        if (w->heap[child].key >= last.key) break;
        w->heap[i] = w->heap[child];
    }
    w->heap[i] = last;
    return top;
}

static bool queue_pair(merge_work *w, int32_t left, int32_t right, merge_lookup lookup,
                       const void *user) {
    if (left < 0 || right < 0) return true;
    const merge_symbol *l = &w->symbols[left], *r = &w->symbols[right];
    uint32_t rank, result;
    if (!lookup(user, l, r, &rank, &result)) return true;
    merge_candidate c = {(uint64_t)rank << 32 | (uint32_t)left, (uint32_t)right, l->size + r->size,
                         result};
    return heap_push(w, c);
}

bool merge_run(merge_work *w, merge_lookup lookup, const void *user) {
    w->n_heap = 0;
    for (size_t i = 1; i < w->n_symbols; i++) {
        if (!queue_pair(w, (int32_t)i - 1, (int32_t)i, lookup, user)) return false;
    }
    while (w->n_heap > 0) {
        merge_candidate c = heap_pop(w);
        int32_t index = (int32_t)(c.key & UINT32_MAX);
        merge_symbol *left = &w->symbols[index], *right = &w->symbols[c.right];
        if (left->size == 0 || right->size == 0 || left->size + right->size != c.size) continue;
        left->size = c.size;
        left->value = c.result;
        left->next = right->next;
        right->size = 0;
        if (right->next >= 0) w->symbols[right->next].prev = index;
        if (!queue_pair(w, left->prev, index, lookup, user) ||
            !queue_pair(w, index, left->next, lookup, user)) {
            return false;
        }
    }
    return true;
}

void merge_free(merge_work *w) {
    mem_free(w->symbols);
    mem_free(w->heap);
    *w = (merge_work){0};
}
