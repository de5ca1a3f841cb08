/* ptx_access.c: accesses to memory. Each access is checked: alignment to its size, bounds, reads of
 * uninitialized bytes, and races with other threads of the block since the last barrier and with
 * other blocks of the launch. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ptx_inside.h"

static uint32_t lane32(const ptx_warp *w, uint32_t at, int lane) {
    uint32_t v;
    memcpy(&v, w->registers + at + 4 * (uint32_t)lane, sizeof v);
    return v;
}

static uint64_t lane64(const ptx_warp *w, uint32_t at, int lane) {
    uint64_t v;
    memcpy(&v, w->registers + at + 8 * (uint32_t)lane, sizeof v);
    return v;
}

static const char *const space_names[] = {"generic", "global", "shared", "local", "param"};

typedef struct access {
    enum ptx_space space;
    uint64_t address; /* offset in the space */
    uint32_t n;
    bool write, atomic;
} access;

static ptx_tag tag_of(const ptx_warp *w, int lane, bool atomic) {
    return (ptx_tag)w->block->epoch << TAG_EPOCH_SHIFT | (ptx_tag)w->index << TAG_WARP_SHIFT |
           (ptx_tag)w->step << TAG_STEP_SHIFT | (ptx_tag)lane << TAG_LANE_SHIFT | atomic;
}

static void say_race(ptx_warp *w, const ptx_insn *i, int lane, const access *a,
                     const ptx_other *other) {
    const ptx_grid *g = &w->block->grid;
    char with[80] = "several blocks", thread[24] = "several threads";
    if (other->thread != TAG_SEVERAL) snprintf(thread, sizeof thread, "thread %u", other->thread);
    if (!other->elsewhere)
        snprintf(with, sizeof with, "%s", thread);
    else if (other->block != TAG_SEVERAL)
        snprintf(with, sizeof with, "%s of block %u,%u,%u", thread, other->block % g->x,
                 other->block / g->x % g->y, other->block / g->x / g->y);
    ptx_fail(w, i, lane, "data race on %s memory at 0x%llx with %s", space_names[a->space],
             (unsigned long long)(a->address & ~SHARED_WINDOW), with);
}

static void check(ptx_warp *w, const ptx_insn *i, int lane, const ptx_range *r, const access *a) {
    static const ptx_order alone = {0}; /* shared memory has no other blocks */
    const ptx_order *o = a->space == SPACE_SHARED ? &alone : &w->block->order;
    const ptx_tag tag = tag_of(w, lane, a->atomic);
    ptx_other other = {0};
    const enum ptx_verdict v = a->write ? ptx_note_write(o, r, a->address, a->n, tag, &other)
                                        : ptx_note_read(o, r, a->address, a->n, tag, &other);
    if (v == ACCESS_RACE) say_race(w, i, lane, a, &other);
    if (v == ACCESS_UNDEFINED)
        ptx_fail(w, i, lane, "uninitialized read of %u bytes of %s memory at 0x%llx", a->n,
                 space_names[a->space], (unsigned long long)(a->address & ~SHARED_WINDOW));
}

/* Memory of one thread has no races. */
static uint8_t *local_bytes(ptx_warp *w, const ptx_insn *i, int lane, const access *a) {
    const uint32_t n_local = w->block->kernel->n_local;
    if (a->address > n_local || a->n > n_local - a->address) {
        ptx_fail(w, i, lane, "out of bounds: %u bytes of local memory at %llu of %u", a->n,
                 (unsigned long long)a->address, n_local);
        return NULL;
    }
    const size_t at = (size_t)lane * n_local + a->address;
    if (a->write) memset(w->local_written + at, 1, a->n);
    if (!a->write && memchr(w->local_written + at, 0, a->n)) {
        ptx_fail(w, i, lane, "uninitialized read of %u bytes of local memory at %llu", a->n,
                 (unsigned long long)a->address);
        return NULL;
    }
    return w->local + at;
}

static uint8_t *param_bytes(ptx_warp *w, const ptx_insn *i, int lane, const access *a) {
    const uint32_t n_params = w->block->kernel->n_params;
    if (!a->write && a->address <= n_params && a->n <= n_params - a->address)
        return (uint8_t *)(uintptr_t)w->block->params + a->address;
    ptx_fail(w, i, lane, "out of bounds: %u bytes of parameters at %llu of %u", a->n,
             (unsigned long long)a->address, n_params);
    return NULL;
}

/* Returns the host address of the bytes; NULL: the access is a fault. */
static uint8_t *bytes_of(ptx_warp *w, const ptx_insn *i, int lane, access a) {
    ptx_block *b = w->block;
    if (a.space == SPACE_GENERIC) {
        a.space = a.address & LOCAL_WINDOW    ? SPACE_LOCAL
                  : a.address & SHARED_WINDOW ? SPACE_SHARED
                                              : SPACE_GLOBAL;
        a.address &= ~(SHARED_WINDOW | LOCAL_WINDOW);
    }
    if (a.address & (a.n - 1)) {
        ptx_fail(w, i, lane, "misaligned access to %u bytes of %s memory at 0x%llx", a.n,
                 space_names[a.space], (unsigned long long)a.address);
        return NULL;
    }
    if (a.space == SPACE_LOCAL) return local_bytes(w, i, lane, &a);
    if (a.space == SPACE_PARAM) return param_bytes(w, i, lane, &a);
    const ptx_range *r = b->last;
    if (a.space == SPACE_SHARED) {
        r = &b->shared_range;
        a.address |= SHARED_WINDOW;
    } else if (!r || a.address - r->start >= r->n) {
        r = b->last = ptx_memory_find(b->memory, a.address);
        if (r && r->device != PTX_HOST && !(b->grid.devices >> r->device & 1)) {
            ptx_fail(w, i, lane, "memory of device %d at 0x%llx, which the kernel does not reach",
                     r->device, (unsigned long long)a.address);
            return NULL;
        }
    }
    const uint64_t at = r ? a.address - r->start : 0;
    if (!r || at > r->n || a.n > r->n - at) {
        ptx_fail(w, i, lane, "out of bounds: %s of %u bytes of %s memory at 0x%llx",
                 a.write ? "write" : "read", a.n, space_names[a.space],
                 (unsigned long long)(a.address & ~SHARED_WINDOW));
        return NULL;
    }
    check(w, i, lane, r, &a);
    if (b->failed) return NULL;
    return a.space == SPACE_SHARED ? b->shared + at : (uint8_t *)(uintptr_t)a.address;
}

static uint64_t address_of(const ptx_warp *w, const ptx_insn *i, int lane) {
    if (!i->based) return (uint64_t)i->offset;
    const uint64_t base = i->narrow ? lane32(w, i->r[0], lane) : lane64(w, i->r[0], lane);
    const uint64_t address = base + (uint64_t)i->offset;
    return i->narrow ? (uint32_t)address : address;
}

static access access_of(const ptx_warp *w, const ptx_insn *i, int lane, bool write) {
    return (access){.space = i->space,
                    .address = address_of(w, i, lane),
                    .n = (uint32_t)i->size * i->n,
                    .write = write,
                    .atomic = i->atomic};
}

static uint64_t extended(const uint8_t *p, uint32_t size, bool is_signed) {
    uint64_t v = 0;
    memcpy(&v, p, size);
    if (!is_signed || size == 8) return v;
    const uint64_t sign = (uint64_t)1 << (8 * size - 1);
    return (v ^ sign) - sign;
}

static uint64_t loaded;

uint64_t ptx_loaded(void) {
    return __atomic_load_n(&loaded, __ATOMIC_RELAXED);
}

void ptx_load(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    if (i->space == SPACE_GLOBAL || i->space == SPACE_GENERIC)
        __atomic_fetch_add(&loaded, (uint64_t)i->size * i->n * (uint64_t)__builtin_popcount(mask),
                           __ATOMIC_RELAXED);
    for (uint32_t m = mask; m && !w->block->failed; m &= m - 1) {
        const int l = __builtin_ctz(m);
        const uint8_t *from = bytes_of(w, i, l, access_of(w, i, l, false));
        if (!from) return;
        for (uint32_t k = 0; k < i->n; k++) {
            const uint64_t v = extended(from + k * i->size, i->size, i->is_signed);
            const uint32_t to = i->r[k + 1];
            if (i->wide)
                memcpy(w->registers + to + 8 * (uint32_t)l, &v, 8);
            else
                memcpy(w->registers + to + 4 * (uint32_t)l, &v, 4);
        }
    }
}

void ptx_store(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    const uint32_t lane_bytes = i->wide ? 8 : 4;
    for (uint32_t m = mask; m && !w->block->failed; m &= m - 1) {
        const int l = __builtin_ctz(m);
        uint8_t *to = bytes_of(w, i, l, access_of(w, i, l, true));
        if (!to) return;
        for (uint32_t k = 0; k < i->n; k++)
            memcpy(to + k * i->size, w->registers + i->r[k + 1] + lane_bytes * (uint32_t)l,
                   i->size);
    }
}

const uint8_t *ptx_shared_read(ptx_warp *w, const ptx_insn *i, int lane, uint32_t at, uint32_t n) {
    return bytes_of(w, i, lane, (access){SPACE_SHARED, at, n, false, false});
}

/* ---- flags of the host, atomic operations, fences -------------------------------------------- */

/* A fence stronger than any fence of PTX. */
static void fence(void) {
#ifdef __SANITIZE_THREAD__ /* TSan does not model fences */
    static int order;
    __atomic_fetch_add(&order, 1, __ATOMIC_SEQ_CST);
#else
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

void ptx_load_acquire(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    fence();
    ptx_load(w, i, mask);
    fence();
}

void ptx_store_release(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    fence();
    ptx_store(w, i, mask);
    fence();
}

static void atomic(ptx_warp *w, const ptx_insn *i, uint32_t mask, bool max) {
    for (uint32_t m = mask; m && !w->block->failed; m &= m - 1) {
        const int l = __builtin_ctz(m);
        uint8_t *at = bytes_of(w, i, l, access_of(w, i, l, true));
        if (!at) return;
        if (!ptx_order_count(&w->block->order, (uintptr_t)at, w->block->index,
                             w->index * WARP + (uint32_t)l, w->fenced[l])) {
            ptx_fail(w, i, l, "out of memory");
            return;
        }
        int32_t *p = (int32_t *)(void *)at;
        const int32_t by = (int32_t)lane32(w, i->r[2], l);
        int32_t was = __atomic_load_n(p, __ATOMIC_RELAXED), becomes;
        do {
            becomes = max ? (was > by ? was : by) : (int32_t)((uint32_t)was + (uint32_t)by);
        } while (!__atomic_compare_exchange_n(p, &was, becomes, false, __ATOMIC_RELAXED,
                                              __ATOMIC_RELAXED));
        memcpy(w->registers + i->r[1] + 4 * (uint32_t)l, &was, sizeof was);
    }
}

void ptx_atomic_add(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    atomic(w, i, mask, false);
}

void ptx_atomic_max(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    atomic(w, i, mask, true);
}

void ptx_nothing(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    (void)w, (void)i, (void)mask;
}

void ptx_fence(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    (void)i;
    fence();
    for (uint32_t m = mask; m; m &= m - 1) {
        const uint32_t l = (uint32_t)__builtin_ctz(m);
        w->fenced[l] = w->block->epoch;
        ptx_order_fence(&w->block->order, w->index * WARP + l, w->block->epoch);
    }
}

/* Releases the lock, so that other streams run and memory can be added. */
void ptx_nanosleep(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    (void)i, (void)mask;
    w->block->last = NULL;
    pthread_mutex_unlock(&w->block->memory->mutex);
    sched_yield();
    pthread_mutex_lock(&w->block->memory->mutex);
}

void ptx_globaltimer(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    const uint64_t ns = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
    for (uint32_t m = mask; m; m &= m - 1)
        memcpy(w->registers + i->r[0] + 8 * __builtin_ctz(m), &ns, sizeof ns);
}

/* ---- asynchronous copies: executed as late as allowed ---------------------------------------- */

enum { COPY_BYTES = 16 };

/* Until the wait, the destination counts as uninitialized. */
/* A read without a result. */
void ptx_prefetch(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    for (uint32_t m = mask; m && !w->block->failed; m &= m - 1) {
        const int l = __builtin_ctz(m);
        if (!bytes_of(w, i, l, access_of(w, i, l, false))) return;
    }
}

void ptx_copy_begin(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    for (uint32_t m = mask; m && !w->block->failed; m &= m - 1) {
        const int l = __builtin_ctz(m);
        const ptx_copy c = {.to = lane32(w, i->r[0], l),
                            .n = lane32(w, i->r[2], l),
                            .thread = (uint32_t)l,
                            .from = lane64(w, i->r[1], l),
                            .insn = i};
        const access to = {SPACE_SHARED, c.to, COPY_BYTES, true, false};
        if (!bytes_of(w, i, l, to)) return;
        if (c.n > COPY_BYTES) {
            ptx_fail(w, i, l, "a copy of %u bytes", c.n);
            return;
        }
        memset(w->block->shared_range.wrote + c.to, 0, COPY_BYTES * sizeof(ptx_tag));
        if (w->n_copies == w->copy_room) {
            const size_t room = 2 * w->copy_room + 64;
            ptx_copy *copies = realloc(w->copies, room * sizeof *copies);
            if (!copies) {
                ptx_fail(w, i, l, "out of memory");
                return;
            }
            w->copies = copies;
            w->copy_room = room;
        }
        w->copies[w->n_copies++] = c;
    }
}

void ptx_copy_wait(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    (void)i;
    size_t n_left = 0;
    for (size_t k = 0; k < w->n_copies; k++) {
        const ptx_copy c = w->copies[k];
        const int l = (int)c.thread;
        if (!(mask >> l & 1)) {
            w->copies[n_left++] = c;
            continue;
        }
        const access to = {SPACE_SHARED, c.to, COPY_BYTES, true, false};
        const access from = {SPACE_GLOBAL, c.from, COPY_BYTES, false, false};
        uint8_t *target = bytes_of(w, c.insn, l, to);
        const uint8_t *source = target && c.n ? bytes_of(w, c.insn, l, from) : NULL;
        if (!target || (c.n && !source)) return;
        memset(target, 0, COPY_BYTES);
        if (c.n) memcpy(target, source, c.n);
    }
    w->n_copies = n_left;
}
