/* paging_impl.h: inside of the pager. */
#ifndef ENGINE_PAGING_IMPL_H
#define ENGINE_PAGING_IMPL_H

#include <stdatomic.h>

#include "drive.h"
#include "paging.h"

enum { PAGING_PAGE = DRIVE_MAX_BLOCK };

/* Whole pages of the file. */
typedef struct paging_span {
    int part;
    uint64_t begin; /* in the part */
    size_t n_bytes;
    uint8_t *at; /* in memory; NULL: not decided */
} paging_span;

/* A matrix of the CPU's steps. */
typedef struct paging_unit {
    const uint8_t *from; /* its address in the file's mapping */
    size_t n_bytes;
    paging_span span;
    int first_step, last_step;
    size_t place;       /* in the ring */
    atomic_size_t left; /* bytes that have not arrived */
} paging_unit;

typedef struct paging_experts paging_experts;

struct paging {
    const model *source;
    model view;     /* `layers` is ours, all else is the source's */
    drive **drives; /* [n_parts] of the file */
    int n_parts;
    paging_sizes sizes;

    paging_span *always; /* [n_always] ascending, apart from each other */
    int n_always;
    uint8_t *always_memory;
    uint8_t *pinned_memory;

    /* Units in the order of the steps; the first n_streamed pass through the ring. Sequence
     * numbers count them on over ubatches: number s is unit s % n_streamed. */
    paging_unit *units;
    int n_units, n_streamed;
    uint8_t *ring;
    int *step_first, *step_end; /* [n_steps] streamed units that a step is the first to need */
    int n_steps;
    uint64_t pass;     /* sequence number of the ubatch's first unit */
    uint64_t released; /* what came before gives way; written by the leading thread */
    atomic_ullong submitted;

    paging_experts *experts; /* NULL: none go through the cache */
};

/* Whole pages around a range of the file. False: the address is not in it. */
bool paging_span_of(const paging *g, const void *data, size_t n_bytes, paging_span *out);
/* Reads spans and waits. */
pi_status paging_read(paging *g, const paging_span *spans, int n, pi_error *err);

/* paging_experts.c. Spans of all experts of the plan's layers; PI_OK and no cache where there are
 * none. */
pi_status paging_experts_create(paging *g, const plan *p, pi_error *err);
void paging_experts_destroy(paging_experts *x);
/* Bytes of the smallest useful cache, and of one that holds all. */
uint64_t paging_experts_least(const paging_experts *x);
uint64_t paging_experts_all(const paging_experts *x);
/* Slots of at most n_bytes in all, filled with the most frequent experts. */
pi_status paging_experts_fill(paging *g, uint64_t n_bytes, pi_error *err);
/* After a ubatch; with `drop` whatever the slots hold is forgotten. */
void paging_experts_end(paging *g, bool drop);
void paging_experts_count(const paging_experts *x, paging_counts *out);

#endif
