/* paging_stream.c: units that are streamed through memory while a ubatch runs. */
#include "mem.h"
#include "os_memory.h"
#include "paging_impl.h"
#include "pool.h"

static paging_unit *unit_at(const paging_stream *s, uint64_t number) {
    return &s->units[number % (uint64_t)s->n];
}

static void request_unit(const paging *g, paging_unit *u) {
    const drive_request r = {
        .offset = u->span.begin, .n_bytes = u->span.n_bytes, .to = u->span.at, .left = &u->left};
    if (!u->picks || g->many) drive_submit(g->drives[u->span.part], &r, 1);
}

/* Whether the place of unit `number` is free of units in use. */
static bool has_room(const paging_stream *s, uint64_t number) {
    const paging_unit *u = unit_at(s, number);
    uint64_t n = (uint64_t)s->n, end = s->ahead ? s->released + n : s->pass + n;
    if (number >= end) return false;
    for (uint64_t i = s->released; i < number; i++) {
        const paging_unit *other = unit_at(s, i);
        if (u->place < other->place + other->span.n_bytes &&
            other->place < u->place + u->span.n_bytes)
            return false;
    }
    return true;
}

static void wait_unit(const paging *g, const paging_unit *u) {
    drive_wait(g->drives[u->span.part], &u->left);
}

/* Also waits for units that no step has waited for, so that no read is pending afterwards. */
static void release_before(const paging *g, paging_stream *s, int step) {
    uint64_t end = s->pass + (uint64_t)s->n;
    for (; s->released < end && unit_at(s, s->released)->last_step < step; s->released++) {
        const paging_unit *u = unit_at(s, s->released);
        wait_unit(g, u);
        /* Drops this view of the memory, so that pages do not count twice as resident. */
        if (u->shared) os_memory_forget(u->span.at, u->span.n_bytes);
    }
}

static void advance(const paging *g, paging_stream *s, int step) {
    if (s->n == 0) return;
    release_before(g, s, step);
    uint64_t next = atomic_load_explicit(&s->submitted, memory_order_relaxed);
    while (has_room(s, next)) {
        request_unit(g, unit_at(s, next));
        atomic_store_explicit(&s->submitted, ++next, memory_order_release);
    }
}

static void wait_step(const paging *g, const paging_stream *s, int step) {
    if (s->n == 0) return;
    for (int i = s->step_first[step]; i < s->step_end[step]; i++) {
        uint64_t number = s->pass + (uint64_t)i;
        int round = 0;
        while (atomic_load_explicit(&s->submitted, memory_order_acquire) <= number)
            pool_wait(&round);
        wait_unit(g, &s->units[i]);
    }
}

/* The next ubatch begins with nothing in memory. */
static void empty(const paging *g, paging_stream *s) {
    uint64_t end = atomic_load_explicit(&s->submitted, memory_order_relaxed);
    for (uint64_t i = s->released; i < end && s->n > 0; i++) wait_unit(g, unit_at(s, i));
    s->pass = s->released = 0;
    atomic_store_explicit(&s->submitted, 0, memory_order_relaxed);
}

static void end_pass(const paging *g, paging_stream *s, bool complete) {
    if (!complete) {
        empty(g, s);
        return;
    }
    release_before(g, s, g->n_steps);
    s->pass += (uint64_t)s->n;
}

pi_status paging_index_steps(const paging *g, paging_stream *s, pi_error *err) {
    size_t n = (size_t)g->n_steps;
    s->step_first = mem_calloc(n, sizeof *s->step_first);
    s->step_end = mem_calloc(n, sizeof *s->step_end);
    if (!s->step_first || !s->step_end)
        return error_nomem(err, n * sizeof *s->step_first, "weights");
    for (int i = s->n - 1; i >= 0; i--) {
        int step = s->units[i].first_step;
        s->step_first[step] = i;
        if (s->step_end[step] == 0) s->step_end[step] = i + 1;
    }
    return PI_OK;
}

void paging_stream_free(paging_stream *s) {
    mem_free(s->step_first);
    mem_free(s->step_end);
}

/* ---- a ubatch -------------------------------------------------------------------------------- */

void paging_begin(paging *g, bool many, const int32_t *tokens, const int32_t *ngrams, int n_tokens,
                  size_t lent) {
    paging_follow_room(g);
    g->many = many;
    g->ubatch++;
    paging_tables_begin(g, tokens, ngrams, n_tokens);
    if (g->neurons) paging_neurons_begin(g, lent);
    if (g->experts) paging_experts_begin(g, lent);
}

void paging_advance(paging *g, int step) {
    advance(g, &g->matrices, step);
    if (g->experts) paging_experts_advance(g);
    if (!g->neurons) return;
    advance(g, paging_neurons_stream(g->neurons), step);
    paging_neurons_advance(g);
}

bool paging_prefetches(const paging *g, int layer) {
    return paging_neurons_prefetch(g, layer) || paging_experts_prefetch(g, layer);
}

void paging_wait(paging *g, int step) {
    wait_step(g, &g->matrices, step);
    if (g->neurons) wait_step(g, paging_neurons_stream(g->neurons), step);
}

pi_status paging_end(paging *g, bool complete, pi_error *err) {
    paging_stream *neurons = g->neurons ? paging_neurons_stream(g->neurons) : NULL;
    pi_status status = PI_OK;
    paging_tables_end(g);
    end_pass(g, &g->matrices, complete);
    if (neurons) end_pass(g, neurons, complete);
    for (int i = 0; i < g->n_parts && status == PI_OK; i++) status = drive_check(g->drives[i], err);
    if (status != PI_OK) {
        paging_tables_drop(g);
        empty(g, &g->matrices);
        if (neurons) empty(g, neurons);
    }
    if (g->experts) paging_experts_end(g, status != PI_OK);
    if (g->neurons) paging_neurons_end(g, status != PI_OK);
    for (int i = 0; i < g->n_parts && status != PI_OK; i++) (void)drive_check(g->drives[i], NULL);
    return status;
}
