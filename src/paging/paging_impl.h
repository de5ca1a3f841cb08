/* paging_impl.h: internals of the pager. */
#ifndef PAGING_PAGING_IMPL_H
#define PAGING_PAGING_IMPL_H

#include <stdatomic.h>

#include "drive.h"
#include "paging.h"

enum { PAGING_PAGE = DRIVE_MAX_BLOCK };

/* Below this fraction of useful reads, a layer prefetches only in every PAGING_TRY_EVERY-th
 * ubatch. */
enum { PAGING_TRY_EVERY = 64 };
static const double paging_least_useful = 0.3;
/* With fewer reads per ubatch a layer prefetches nothing: a second pass of the predictor or router
 * takes about a quarter of the time that a layer waits for one read. */
static const double paging_least_missing = 0.25;

static inline size_t paging_to_pages(size_t n_bytes) {
    return (n_bytes + PAGING_PAGE - 1) / PAGING_PAGE * PAGING_PAGE;
}

/* Whole pages of the file. */
typedef struct paging_span {
    int part;
    uint64_t begin; /* in the part */
    size_t n_bytes;
    uint8_t *at; /* address in memory; NULL: not assigned */
} paging_span;

/* Weights that are streamed as one piece: a matrix of the CPU's steps, or the neurons of a layer
 * outside the hot prefix. */
typedef struct paging_unit {
    const uint8_t *from; /* its address in the file's mapping */
    size_t n_bytes;
    paging_span span;
    int first_step, last_step;
    size_t place;       /* in the memory that units share */
    bool shared;        /* this memory is also mapped at other addresses */
    bool picks;         /* skipped in ubatches of few tokens, which read selected neurons */
    atomic_size_t left; /* bytes that have not arrived */
} paging_unit;

/* Units in the order of the steps, which pass through memory that is too small for all of them.
 * Sequence numbers continue over ubatches: number s is unit s % n. */
typedef struct paging_stream {
    paging_unit *units; /* [n] */
    int n;
    int *step_first, *step_end; /* [n_steps] units that no step before this one needs */
    bool ahead;                 /* continues reading into the next ubatch */
    uint64_t pass;              /* sequence number of the ubatch's first unit */
    uint64_t released;          /* earlier units may be evicted; written by the leading thread */
    atomic_ullong submitted;
} paging_stream;

/* A table whose rows are read when tokens need them. */
typedef struct paging_table {
    const uint8_t *from; /* its address in the file's mapping; NULL: it stays in memory */
    size_t row_bytes;
    int part;
    int n_rows;          /* rows per token */
    bool pinned;         /* the budget has room for all rows */
    size_t slot, offset; /* in `rows`: bytes per row, with pages around it; first offset */
    int n_slots;
    int32_t *row;       /* [n_slots] row in the slot; -1: none */
    uint64_t *used;     /* [n_slots] last ubatch */
    int32_t *place;     /* slot of each row of the ubatch */
    atomic_size_t left; /* bytes that have not arrived */
} paging_table;

enum { PAGING_TABLES = 3 };
static const tensor_role paging_table_roles[PAGING_TABLES] = {ROLE_TOKEN_EMBD, ROLE_LAYER_EMBD,
                                                              ROLE_NGRAM_EMBD};

typedef struct paging_experts paging_experts;
typedef struct paging_neurons paging_neurons;

struct paging {
    const model *source;
    model view;     /* `layers` belongs to the pager, all else to the source */
    drive **drives; /* [n_parts] of the file */
    int n_parts;
    paging_sizes sizes;
    bool sizes_only; /* reads nothing */
    bool adapts;     /* experts move between CPU and GPU */

    paging_span *always; /* [n_always] ascending, disjoint */
    int n_always;
    uint8_t *always_memory; /* with `rows` */
    paging_table tables[PAGING_TABLES];
    uint8_t *rows;
    uint8_t *pinned_memory;

    paging_unit *units; /* [n_units] matrices; the first matrices.n pass through the ring */
    int n_units;
    paging_stream matrices;
    uint8_t *ring;
    int n_steps;
    bool many;       /* the ubatch has many tokens */
    uint64_t ubatch; /* number of ubatches that have begun */

    uint64_t lent;       /* bytes for prefill's buffers */
    uint64_t given_back; /* bytes of the caches that were released because memory ran out */
    double next_look;    /* time at which free memory is looked at again */

    paging_experts *experts; /* NULL: none go through the cache */
    paging_neurons *neurons; /* NULL: there are no bundles */
};

/* The whole pages around a range of the file. False: the address is not in the file. */
bool paging_span_of(const paging *g, const void *data, size_t n_bytes, paging_span *out);
/* Reads spans and waits. */
pi_status paging_read(paging *g, const paging_span *spans, int n, pi_error *err);

drive_counts paging_drive_counts(const paging *g); /* of all parts */

/* Fills the tables of steps of a stream from its units. */
pi_status paging_index_steps(const paging *g, paging_stream *s, pi_error *err);
void paging_stream_free(paging_stream *s); /* the tables only */

/* paging_room.c. Between ubatches: caches shrink while little memory is free. */
void paging_follow_room(paging *g);

/* paging_rows.c. */
pi_status paging_tables_create(paging *g, const bool stays[PAGING_TABLES], int n_batch,
                               size_t *n_bytes, pi_error *err); /* n_bytes: all slots */
void paging_tables_destroy(paging *g);
/* Keeps whole tables in memory if they fit into n_bytes. Returns their bytes. */
uint64_t paging_tables_pin(paging *g, uint64_t n_bytes);
/* Their spans, in memory at `at`; returns the number. From now on rows are there. */
int paging_tables_place(paging *g, uint8_t *at, paging_span out[PAGING_TABLES]);
void paging_tables_begin(paging *g, const int32_t *tokens, const int32_t *ngrams, int n_tokens);
void paging_tables_end(const paging *g); /* waits for the remaining rows */
void paging_tables_drop(paging *g);      /* forgets rows, after a failed read */

/* paging_experts.c. Spans of all experts of the plan's layers; PI_OK and no cache without
 * experts. */
pi_status paging_experts_create(paging *g, const plan *p, pi_error *err);
void paging_experts_destroy(paging_experts *x);
/* Whether its memory can be lent to prefill's buffers. */
bool paging_experts_lend(const paging *g, const plan *p);
/* Bytes of the smallest useful cache, and of one that holds all experts; with memory to lend. */
uint64_t paging_experts_least(const paging_experts *x);
uint64_t paging_experts_all(const paging_experts *x);
/* Allocates slots of at most n_bytes in total, fills them with the most frequent experts. */
pi_status paging_experts_fill(paging *g, uint64_t n_bytes, pi_error *err);
void *paging_experts_lent(const paging_experts *x); /* NULL: lends none */
void paging_experts_begin(paging *g, size_t lent);
void paging_experts_advance(const paging *g); /* between steps */
/* After a ubatch; drop: empties the slots. */
void paging_experts_end(paging *g, bool drop);
bool paging_experts_prefetch(const paging *g, int layer);
void paging_experts_count(const paging_experts *x, paging_counts *out);
/* Between ubatches: give up about n_bytes of slots, or take them back. Return the bytes. */
uint64_t paging_experts_shrink(paging *g, uint64_t n_bytes);
uint64_t paging_experts_grow(paging *g, uint64_t n_bytes);

/* paging_neurons.c: layers with bundles. Whether a step's matrices belong to such a layer. */
bool paging_is_bundled(const paging *g, const plan_step *s);
/* Whether the selected neurons of a layer are read one by one. */
bool paging_neurons_picks(const paging *g, const plan *p, int layer);
pi_status paging_neurons_create(paging *g, const plan *p, pi_error *err);
void paging_neurons_destroy(paging_neurons *x);
uint64_t paging_neurons_least(const paging_neurons *x);
uint64_t paging_neurons_all(const paging_neurons *x);
/* Allocates and fills hot prefixes and slots of at most n_bytes; writes the addresses into the
 * plan. */
pi_status paging_neurons_fill(paging *g, plan *p, uint64_t n_bytes, pi_error *err);
paging_stream *paging_neurons_stream(paging_neurons *x); /* of the neurons outside hot prefixes */
void *paging_neurons_lent(const paging_neurons *x);
void paging_neurons_begin(paging *g, size_t lent);
void paging_neurons_advance(const paging *g); /* between steps */
void paging_neurons_end(paging *g, bool drop);
bool paging_neurons_prefetch(const paging *g, int layer);
void paging_neurons_count(const paging_neurons *x, paging_counts *out);
/* Between ubatches: give up about n_bytes of slots, or take them back. Return the bytes. */
uint64_t paging_neurons_shrink(paging *g, uint64_t n_bytes);
uint64_t paging_neurons_grow(paging *g, uint64_t n_bytes);

#endif
