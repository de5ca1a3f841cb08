/* failing.h: a loop in which every allocation of some work fails in turn:
 *
 *     for (failing f = failing_each(1); failing_next(&f);) {
 *         status = work(&err);
 *         if (failing_hit(&f, status, &err)) ... check the state after the failure
 *     }
 *
 * The loop ends with the first run that has fewer allocations; this run must succeed, and f.n is
 * the number that it did not reach. One test thread at a time, as with mem_fail_at. */
#ifndef TEST_FAILING_H
#define TEST_FAILING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "error.h"
#include "mem.h"

typedef struct failing {
    int64_t n, stride, before;
    bool over;
} failing;

/* `stride` > 1 skips allocations, for work with thousands of them. */
static inline failing failing_each(int64_t stride) {
    return (failing){.n = 1 - stride, .stride = stride};
}

static inline bool failing_next(failing *f) {
    if (f->over) return false;
    f->n += f->stride;
    f->before = mem_count();
    mem_fail_at(f->n);
    return true;
}

/* Call after the work: returns true if the allocation failed, and then checks that the status is
 * PI_ERR_NOMEM. */
static inline bool failing_hit(failing *f, pi_status status, const pi_error *err) {
    bool hit = mem_count() - f->before >= f->n;
    mem_fail_at(0);
    f->over = !hit;
    if (status != (hit ? PI_ERR_NOMEM : PI_OK))
        fail_msg("allocation %lld: %s: %s", (long long)f->n, pi_status_name(status), err->message);
    return hit;
}

#endif
