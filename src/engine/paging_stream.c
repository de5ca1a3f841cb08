/* paging_stream.c: the ring while a ubatch runs. */
#include "paging_impl.h"
#include "pool.h"

static paging_unit *unit_at(const paging *g, uint64_t number) {
    return &g->units[number % (uint64_t)g->n_streamed];
}

static void request_unit(const paging *g, paging_unit *u) {
    const drive_request r = {
        .offset = u->span.begin, .n_bytes = u->span.n_bytes, .to = u->span.at, .left = &u->left};
    drive_submit(g->drives[u->span.part], &r, 1);
}

/* Whether nothing that is still in use lies where unit `number` goes. */
static bool has_room(const paging *g, uint64_t number) {
    const paging_unit *u = unit_at(g, number);
    if (number - g->released >= (uint64_t)g->n_streamed) return false;
    for (uint64_t i = g->released; i < number; i++) {
        const paging_unit *other = unit_at(g, i);
        if (u->place < other->place + other->span.n_bytes &&
            other->place < u->place + u->span.n_bytes)
            return false;
    }
    return true;
}

static void wait_unit(const paging *g, const paging_unit *u) {
    drive_wait(g->drives[u->span.part], &u->left);
}

/* Also units that no step has waited for must not arrive any more. */
static void release_before(paging *g, int step) {
    uint64_t end = g->pass + (uint64_t)g->n_streamed;
    for (; g->released < end && unit_at(g, g->released)->last_step < step; g->released++)
        wait_unit(g, unit_at(g, g->released));
}

void paging_advance(paging *g, int step) {
    if (g->n_streamed == 0) return;
    release_before(g, step);
    uint64_t next = atomic_load_explicit(&g->submitted, memory_order_relaxed);
    while (has_room(g, next)) {
        request_unit(g, unit_at(g, next));
        atomic_store_explicit(&g->submitted, ++next, memory_order_release);
    }
}

void paging_wait(paging *g, int step) {
    for (int i = g->n_streamed ? g->step_first[step] : 0; i < g->step_end[step]; i++) {
        uint64_t number = g->pass + (uint64_t)i;
        while (atomic_load_explicit(&g->submitted, memory_order_acquire) <= number) pool_yield();
        wait_unit(g, &g->units[i]);
    }
}

/* The next ubatch begins with an empty ring. */
static void empty_ring(paging *g) {
    uint64_t end = atomic_load_explicit(&g->submitted, memory_order_relaxed);
    for (uint64_t i = g->released; i < end; i++) wait_unit(g, unit_at(g, i));
    g->pass = g->released = 0;
    atomic_store_explicit(&g->submitted, 0, memory_order_relaxed);
}

pi_status paging_end(paging *g, bool complete, pi_error *err) {
    pi_status status = PI_OK;
    if (complete && g->n_streamed > 0) {
        release_before(g, g->n_steps);
        g->pass += (uint64_t)g->n_streamed;
    } else if (g->n_streamed > 0) {
        empty_ring(g);
    }
    for (int i = 0; i < g->n_parts && status == PI_OK; i++) status = drive_check(g->drives[i], err);
    if (status != PI_OK && g->n_streamed > 0) empty_ring(g);
    if (g->experts) paging_experts_end(g, status != PI_OK);
    for (int i = 0; i < g->n_parts && status != PI_OK; i++) (void)drive_check(g->drives[i], NULL);
    return status;
}
