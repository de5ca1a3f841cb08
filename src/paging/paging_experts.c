/* paging_experts.c: a cache of experts' matrices.
 *
 * A block is one expert's part of gate, up or down (gate and up where they are contiguous): the
 * data of one long read. Blocks of equal size share a class of slots. After the router has chosen,
 * a list has the layer's blocks in the order of their use, blocks of experts in memory first. The
 * list is processed from its beginning: a missing block is requested, and replaces the least used
 * of a few blocks drawn at random. If all slots are in use, the rest of the list waits until blocks
 * have been computed. The first block of the list always has a slot, and blocks are computed in the
 * order of the list, so few slots are enough for any ubatch.
 *
 * Each block has a count of uses, halved every HALF_LIFE ubatches, so that the cache follows the
 * conversation.
 *
 * Prefetching: before attention the router is applied to the residual stream. The experts that it
 * chooses are read while attention is computed, as many as the drive can read until the actual
 * experts are known: otherwise the drive would be idle, and later reads do not wait for useless
 * reads. If w is the time until the experts are known, t the time per block, and u the fraction of
 * prefetched blocks that are used, floor(w / t + u) blocks are read: the last block, still in
 * transit when the experts are known, gains u f t and loses (1 - u) (1 - f) t, where f is the
 * fraction that has arrived. w and u are measured in every layer. */
#include <math.h>
#include <string.h>

#include "clock.h"
#include "mem.h"
#include "os_memory.h"
#include "os_thread.h"
#include "paging_impl.h"
#include "pool.h"
#include "rng.h"

enum {
    KINDS = 3, /* gate (with up, where they are one block), up, down */
    DRAWN = 24,
    AVERAGED = 8, /* ubatches in moving averages */
    BATCH = 64,
    HALF_LIFE = 256
};

typedef struct expert_block {
    int32_t slot;        /* slot of the block's class; -1: not in memory */
    atomic_llong rows;   /* rows still to be used in this step; 0: evictable; < 0: the block has a
                            slot, but is not requested yet */
    atomic_size_t left;  /* bytes that have not arrived */
    float score;         /* uses, halved over time, as of ubatch `last` */
    bool held;           /* being copied to the GPU: stays in memory */
    uint32_t last, list; /* `list`: number of the last list with this block */
    uint32_t ahead;      /* the last ubatch, from 1 on, that prefetched it */
} expert_block;

/* Prefetching of a layer, in ubatches of few or of many tokens. */
typedef struct expert_ahead {
    int room;        /* maximum blocks to prefetch in this ubatch */
    int n, n_useful; /* blocks prefetched in this ubatch; those of them that were used */
    double since;    /* time of the requests; 0: none, or the experts are known */
    double useful;   /* useful fraction in earlier ubatches */
    double missing;  /* blocks per ubatch that were not in memory, average */
    double window;   /* seconds until the experts were known */
} expert_ahead;

/* One matrix of a layer. */
typedef struct expert_kind {
    const uint8_t *from; /* address of expert 0 in the file's mapping; NULL: no such matrix */
    size_t stride, n_bytes;
    int64_t rows; /* rows of an expert (columns, where threads divide the columns) */
    int size;     /* its class */
} expert_kind;

/* Slots of one size. */
typedef struct slot_class {
    size_t n_bytes;    /* of a slot */
    size_t data_bytes; /* of a block */
    int64_t n_blocks;  /* blocks of experts on the CPU at a time */
    int least;         /* minimum slots, with the lent ones */
    int32_t lent;      /* maximum slots that prefill's buffers borrow: the first ones */
    int32_t most;      /* n_slots when enough memory is free */
    int32_t first, n_slots, n_free; /* slots [first, n_slots) have blocks; slots before are lent */
    int32_t *owner; /* [most] block; -1: none. Slots [first, first + n_free) are empty, or their
                       blocks were never used */
    uint8_t *memory;
} slot_class;

struct paging_experts {
    int n_layer, n_expert, n_used;
    expert_kind (*kinds)[KINDS]; /* [n_layer] */
    int32_t *first;              /* [n_layer] experts before this one start on the GPU */
    expert_block *blocks;        /* [n_layer][n_expert][KINDS] */
    slot_class *classes;
    int n_classes;
    int lender; /* class that lends slots; -1: none */

    expert_ahead (*ahead)[2]; /* [n_layer]; [1]: ubatches of many tokens */
    bool holds_all;
    bool polls;          /* some blocks were prefetched */
    double byte_seconds; /* of the drive, average of the last ubatches */
    drive_counts counted;

    os_mutex lock;    /* guards all members below, slots, scores and lists */
    int32_t *order;   /* [n_expert * KINDS] blocks */
    int32_t *apart;   /* [n_expert] scratch */
    int32_t *waiting; /* [n_expert] experts of the next layer that are not requested yet */
    int n_waiting;
    int activated;       /* last layer whose experts are known in this ubatch; -1: none */
    int32_t held[KINDS]; /* blocks; -1: none */
    int n_order;
    atomic_int next; /* next block of the list that needs a slot */
    uint32_t list, ubatch;
    rng random;
    uint64_t hits, misses, n_ahead, in_vain;
};

static expert_block *block_of(const paging_experts *x, int layer, int expert, int kind) {
    return &x->blocks[((int64_t)layer * x->n_expert + expert) * KINDS + kind];
}

/* The kind and expert of a block number. */
static const expert_kind *kind_of(const paging_experts *x, int64_t block, int *expert) {
    int64_t at = block / KINDS;
    *expert = (int)(at % x->n_expert);
    return &x->kinds[at / x->n_expert][block % KINDS];
}

static paging_span span_of(const paging *g, const expert_kind *k, int expert) {
    paging_span span = {0};
    (void)paging_span_of(g, k->from + (size_t)expert * k->stride, k->n_bytes, &span);
    return span;
}

/* ---- making it ------------------------------------------------------------------------------- */

static int class_for(paging_experts *x, size_t data_bytes) {
    for (int i = 0; i < x->n_classes; i++)
        if (x->classes[i].data_bytes == data_bytes) return i;
    x->classes[x->n_classes].data_bytes = data_bytes;
    return x->n_classes++;
}

/* Adds a kind that begins with this matrix. n_bytes: per expert; pieces: units in which use is
 * counted. */
static void add_kind(paging *g, int layer, int kind, const plan_matrix *m, size_t n_bytes,
                     int64_t pieces) {
    paging_experts *x = g->experts;
    expert_kind *k = &x->kinds[layer][kind];
    *k = (expert_kind){
        .from = m->w.data, .stride = m->expert_bytes, .n_bytes = n_bytes, .rows = pieces};
    k->size = class_for(x, k->n_bytes);
    slot_class *size = &x->classes[k->size];
    for (int e = g->adapts ? 0 : x->first[layer]; e < x->n_expert; e++) {
        size_t n = span_of(g, k, e).n_bytes;
        if (n > size->n_bytes) size->n_bytes = n;
    }
    size->n_blocks += x->n_expert - x->first[layer];
}

/* Gate and up are one block where they are contiguous: in one tensor, or in the experts'
 * bundles. */
static void add_kinds(paging *g, int layer, const plan_experts *e) {
    const plan_matrix *first = e->gate.w.data ? &e->gate : &e->up;
    size_t up_bytes = (size_t)e->n_ff * e->up.w.row_bytes;
    bool together = e->up_rows > e->n_ff || g->source->layers[layer].expert_bundle;
    if (together)
        add_kind(g, layer, 0, first,
                 (size_t)((const uint8_t *)e->up.w.data - (const uint8_t *)first->w.data) +
                     up_bytes,
                 first == &e->gate ? 2 * e->n_ff : e->n_ff);
    else if (e->gate.w.data)
        add_kind(g, layer, 0, &e->gate, (size_t)e->n_ff * e->gate.w.row_bytes, e->n_ff);
    if (!together) add_kind(g, layer, 1, &e->up, up_bytes, e->n_ff);
    add_kind(g, layer, 2, &e->down, (size_t)e->down.w.n_out * e->down.w.row_bytes,
             e->down_rows ? e->down.w.n_in : e->down.w.n_out);
}

/* Matrices merged with an adapter are in memory and stay there. */
static bool is_in_file(const paging *g, const plan_matrix *m) {
    uint64_t offset;
    int part;
    return !m->w.data || gguf_locate(g->source->file, m->w.data, &part, &offset);
}

/* Where experts move, one GPU slot is spare: its expert is on the CPU. */
static int32_t first_on_cpu(const paging *g, const plan_experts *e) {
    return (int32_t)e->hot - (g->adapts && e->hot > 0 ? 1 : 0);
}

/* Whether experts of a layer are on the CPU, and in the file. */
static bool pages_layer(const paging *g, const plan *p, int layer) {
    const plan_experts *e = &p->experts[layer];
    return e->n_expert > 0 && is_in_file(g, &e->gate) && is_in_file(g, &e->up) &&
           is_in_file(g, &e->down) && first_on_cpu(g, e) < p->n_expert;
}

bool paging_experts_lend(const paging *g, const plan *p) {
    for (int i = 0; i < g->view.hp.n_layer && p->n_expert > 0 && !g->adapts; i++)
        if (pages_layer(g, p, i)) return true;
    return false;
}

static void add_layer(paging *g, int layer, const plan_experts *e) {
    paging_experts *x = g->experts;
    x->first[layer] = first_on_cpu(g, e);
    add_kinds(g, layer, e);
    /* A token's experts, and a few more, so that the next ones arrive while these are computed. */
    for (int k = 0; k < KINDS; k++) {
        int same = 0;
        if (!x->kinds[layer][k].from) continue;
        for (int other = 0; other < KINDS; other++)
            same += x->kinds[layer][other].from &&
                    x->kinds[layer][other].size == x->kinds[layer][k].size;
        slot_class *size = &x->classes[x->kinds[layer][k].size];
        if (same * (e->n_used + 1) > size->least) size->least = same * (e->n_used + 1);
    }
}

pi_status paging_experts_create(paging *g, const plan *p, pi_error *err) {
    if (p->n_expert == 0) return PI_OK;
    size_t n_layer = (size_t)g->source->hp.n_layer, n_expert = (size_t)p->n_expert;
    size_t n_blocks = n_layer * n_expert * KINDS;
    paging_experts *x = g->experts = mem_calloc(1, sizeof *x);
    if (!x) return error_nomem(err, sizeof *x, "experts");
    os_mutex_init(&x->lock);
    x->n_layer = (int)n_layer;
    x->n_expert = p->n_expert;
    x->n_used = p->n_expert_used;
    x->kinds = mem_calloc(n_layer, sizeof *x->kinds);
    x->first = mem_calloc(n_layer, sizeof *x->first);
    x->blocks = mem_calloc(n_blocks, sizeof *x->blocks);
    x->classes = mem_calloc(n_layer * KINDS, sizeof *x->classes);
    x->ahead = mem_calloc(n_layer, sizeof *x->ahead);
    x->order = mem_calloc(n_expert * KINDS, sizeof *x->order);
    x->apart = mem_calloc(n_expert, sizeof *x->apart);
    x->waiting = mem_calloc(n_expert, sizeof *x->waiting);
    x->activated = -1;
    if (!x->kinds || !x->first || !x->blocks || !x->classes || !x->ahead || !x->order ||
        !x->apart || !x->waiting)
        return error_nomem(err, n_blocks * sizeof *x->blocks, "experts");
    x->lender = -1;
    for (int kind = 0; kind < KINDS; kind++) x->held[kind] = -1;
    rng_seed(&x->random, 1);
    for (size_t i = 0; i < n_blocks; i++) x->blocks[i].slot = -1;
    for (size_t i = 0; i < n_layer; i++)
        x->ahead[i][0] = x->ahead[i][1] = (expert_ahead){.useful = 1, .missing = 1};
    for (int i = 0; i < x->n_layer; i++)
        if (pages_layer(g, p, i)) add_layer(g, i, &p->experts[i]);
    for (int i = 0; i < x->n_classes; i++) {
        slot_class *size = &x->classes[i], *lender = x->lender < 0 ? size : &x->classes[x->lender];
        if (size->least > size->n_blocks) size->least = (int)size->n_blocks;
        bool larger = (uint64_t)size->n_blocks * size->n_bytes >=
                      (uint64_t)lender->n_blocks * lender->n_bytes;
        if (g->lent > 0 && !g->adapts && larger) x->lender = i;
    }
    if (x->lender < 0) return PI_OK;
    slot_class *lender = &x->classes[x->lender];
    lender->lent = (int32_t)((g->lent + lender->n_bytes - 1) / lender->n_bytes);
    lender->least += lender->lent;
    g->lent = 0; /* neurons lend none */
    return PI_OK;
}

void paging_experts_destroy(paging_experts *x) {
    if (!x) return;
    for (int i = 0; i < x->n_classes && x->classes; i++) {
        slot_class *size = &x->classes[i];
        mem_unmap(size->memory, (size_t)size->most * size->n_bytes);
        mem_free(size->owner);
    }
    os_mutex_destroy(&x->lock);
    mem_free(x->kinds);
    mem_free(x->first);
    mem_free(x->blocks);
    mem_free(x->classes);
    mem_free(x->ahead);
    mem_free(x->order);
    mem_free(x->apart);
    mem_free(x->waiting);
    mem_free(x);
}

uint64_t paging_experts_least(const paging_experts *x) {
    uint64_t n = 0;
    for (int i = 0; i < x->n_classes; i++)
        n += (uint64_t)x->classes[i].least * x->classes[i].n_bytes;
    return n;
}

/* The first slot that is not empty. */
static int32_t first_used(const slot_class *size) {
    return size->first + size->n_free;
}

/* Slots for all blocks, with the lent ones. */
static int64_t capacity_of(const slot_class *size) {
    return size->n_blocks + size->lent;
}

uint64_t paging_experts_all(const paging_experts *x) {
    uint64_t n = 0;
    for (int i = 0; i < x->n_classes; i++)
        n += (uint64_t)capacity_of(&x->classes[i]) * x->classes[i].n_bytes;
    return n;
}

void *paging_experts_lent(const paging_experts *x) {
    return x->lender < 0 ? NULL : x->classes[x->lender].memory;
}

void paging_experts_count(const paging_experts *x, paging_counts *out) {
    out->hits = x->hits;
    out->misses = x->misses;
    out->ahead = x->n_ahead;
    out->in_vain = x->in_vain;
}

bool paging_has_experts(const paging *g, int layer) {
    return g->experts && g->experts->kinds[layer][KINDS - 1].from;
}

/* ---- slots ----------------------------------------------------------------------------------- */

static float score_now(const paging_experts *x, const expert_block *b) {
    return b->score * exp2f(-(float)(x->ubatch - b->last) / HALF_LIFE);
}

static bool may_go(const expert_block *b) {
    return !b->held && atomic_load_explicit(&b->rows, memory_order_acquire) == 0 &&
           atomic_load_explicit(&b->left, memory_order_acquire) == 0;
}

/* The slot whose block is evicted; -1: all are in use. Blocks on the list are evicted last, or not
 * at all. */
static int32_t find_victim(paging_experts *x, const slot_class *size, bool list_stays) {
    int32_t best = -1;
    float least = INFINITY;
    for (int i = 0; i < DRAWN; i++) {
        int32_t slot = size->first +
                       (int32_t)(rng_u64(&x->random) % (uint64_t)(size->n_slots - size->first));
        const expert_block *b = &x->blocks[size->owner[slot]];
        if (b->list == x->list || !may_go(b)) continue;
        float score = score_now(x, b);
        if (score >= least) continue;
        least = score;
        best = slot;
    }
    for (int own = 0; own < (list_stays ? 1 : 2); own++)
        for (int32_t i = size->first; i < size->n_slots && best < 0; i++) {
            const expert_block *b = &x->blocks[size->owner[i]];
            if ((own || b->list != x->list) && may_go(b)) best = i;
        }
    return best;
}

static int32_t take_slot(paging_experts *x, slot_class *size, bool list_stays) {
    if (size->n_free > 0) return size->first + --size->n_free;
    int32_t slot = find_victim(x, size, list_stays);
    if (slot >= 0) x->blocks[size->owner[slot]].slot = -1;
    return slot;
}

static drive_request request_for(const paging *g, int32_t block, int *part) {
    paging_experts *x = g->experts;
    int expert;
    const expert_kind *k = kind_of(x, block, &expert);
    const slot_class *size = &x->classes[k->size];
    paging_span span = span_of(g, k, expert);
    *part = span.part;
    return (drive_request){.offset = span.begin,
                           .n_bytes = span.n_bytes,
                           .to = size->memory + (size_t)x->blocks[block].slot * size->n_bytes,
                           .left = &x->blocks[block].left};
}

/* Requests for one part of the file, submitted together. */
typedef struct request_batch {
    drive_request requests[BATCH];
    size_t n;
    int part;
} request_batch;

static void send_batch(const paging *g, request_batch *b) {
    if (b->n > 0) drive_submit(g->drives[b->part], b->requests, b->n);
    b->n = 0;
}

static void add_request(const paging *g, request_batch *batch, int32_t block) {
    int part;
    drive_request r = request_for(g, block, &part);
    if (batch->n == BATCH || part != batch->part) send_batch(g, batch);
    batch->part = part;
    batch->requests[batch->n++] = r;
}

/* Assigns a slot to a block and requests the block. False: all slots are in use. */
static bool fetch(const paging *g, request_batch *batch, int32_t block, bool list_stays) {
    paging_experts *x = g->experts;
    int expert;
    slot_class *size = &x->classes[kind_of(x, block, &expert)->size];
    int32_t slot = take_slot(x, size, list_stays);
    if (slot < 0) return false;
    x->blocks[block].slot = slot;
    size->owner[slot] = block;
    add_request(g, batch, block);
    return true;
}

static void wait_block(const paging *g, int64_t block) {
    const paging_experts *x = g->experts;
    int expert;
    const expert_kind *k = kind_of(x, block, &expert);
    if (atomic_load_explicit(&x->blocks[block].left, memory_order_acquire) > 0)
        drive_wait(g->drives[span_of(g, k, expert).part], &x->blocks[block].left);
}

static void poll_drives(const paging *g) {
    for (int i = 0; i < g->n_parts; i++) drive_poll(g->drives[i]);
}

/* ---- filling it ------------------------------------------------------------------------------ */

static pi_status make_slots(slot_class *size, uint64_t room, pi_error *err) {
    int64_t n = (int64_t)(room / size->n_bytes);
    if (n > capacity_of(size)) n = capacity_of(size);
    size->most = size->n_slots = (int32_t)n;
    size->n_free = (int32_t)n;
    size->owner = mem_calloc((size_t)n, sizeof *size->owner);
    size->memory = mem_map((size_t)n * size->n_bytes);
    if (size->owner && size->memory) return PI_OK;
    return error_nomem(err, (size_t)n * size->n_bytes, "experts");
}

/* Fills slots with experts by rank, over all layers: prepared files sort experts by frequency. */
static void request_first(paging *g, request_batch *batch) {
    paging_experts *x = g->experts;
    for (int rank = 0; rank < x->n_expert; rank++)
        for (int layer = 0; layer < x->n_layer; layer++)
            for (int kind = 0; kind < KINDS; kind++) {
                int expert = x->first[layer] + rank;
                const expert_kind *k = &x->kinds[layer][kind];
                if (!k->from || expert >= x->n_expert || x->classes[k->size].n_free == 0) continue;
                const float *freq = g->view.layers[layer].sparse.expert_freq;
                expert_block *b = block_of(x, layer, expert, kind);
                slot_class *size = &x->classes[k->size];
                b->slot = take_slot(x, size, false);
                b->score = freq ? freq[expert] : 0;
                size->owner[b->slot] = (int32_t)(b - x->blocks);
                add_request(g, batch, (int32_t)(b - x->blocks));
            }
    send_batch(g, batch);
}

pi_status paging_experts_fill(paging *g, uint64_t n_bytes, pi_error *err) {
    paging_experts *x = g->experts;
    uint64_t least = paging_experts_least(x), all = paging_experts_all(x), left = n_bytes - least;
    request_batch batch = {0};
    pi_status status = PI_OK;
    for (int i = 0; i < x->n_classes && status == PI_OK; i++) {
        slot_class *size = &x->classes[i];
        uint64_t own = (uint64_t)size->least * size->n_bytes;
        uint64_t rest = (uint64_t)capacity_of(size) * size->n_bytes - own;
        double part = all > least ? (double)left * ((double)rest / (double)(all - least)) : 0;
        status = make_slots(size, own + (uint64_t)part, err);
        g->sizes.cache += (uint64_t)size->n_slots * size->n_bytes;
    }
    uint64_t lent = 0;
    if (x->lender >= 0) lent = (uint64_t)x->classes[x->lender].lent * x->classes[x->lender].n_bytes;
    x->holds_all = n_bytes >= all;
    g->sizes.cached += all - lent;
    if (x->holds_all) { /* the lent slots stay empty */
        g->sizes.cache -= lent;
        g->sizes.lent += lent;
    }
    if (status != PI_OK || g->sizes_only) return status;
    request_first(g, &batch);
    for (int64_t i = 0; i < (int64_t)x->n_layer * x->n_expert * KINDS; i++) wait_block(g, i);
    for (int part = 0; part < g->n_parts && status == PI_OK; part++)
        status = drive_check(g->drives[part], err);
    return status;
}

/* ---- while a layer is computed --------------------------------------------------------------- */

/* With the lock held: blocks of the list get slots while there are free ones. */
static void give_slots(paging *g) {
    paging_experts *x = g->experts;
    request_batch batch = {0};
    int first = atomic_load_explicit(&x->next, memory_order_relaxed), next = first;
    for (; next < x->n_order; next++) {
        int expert;
        int32_t number = x->order[next];
        const expert_kind *k = kind_of(x, number, &expert);
        expert_block *b = &x->blocks[number];
        if (b->slot < 0) {
            if (!fetch(g, &batch, number, false)) break;
            x->misses++;
        } else if (b->ahead == x->ubatch + 1) {
            x->misses++;
        } else {
            x->hits++;
        }
        atomic_store_explicit(&b->rows, -k->rows, memory_order_relaxed);
    }
    send_batch(g, &batch);
    for (int i = first; i < next; i++) { /* from now on threads may wait for these blocks */
        atomic_llong *rows = &x->blocks[x->order[i]].rows;
        atomic_store_explicit(rows, -atomic_load_explicit(rows, memory_order_relaxed),
                              memory_order_release);
    }
    atomic_store_explicit(&x->next, next, memory_order_release);
}

static void list_block(paging_experts *x, int layer, int expert, int kind) {
    if (!x->kinds[layer][kind].from) return;
    expert_block *b = block_of(x, layer, expert, kind);
    b->score = score_now(x, b) + 1;
    b->last = x->ubatch;
    b->list = x->list;
    x->order[x->n_order++] = (int32_t)(b - x->blocks);
}

/* 0: the expert is in memory; 1: requested; 2: neither. */
static int is_missing(const paging_experts *x, int layer, int expert) {
    int missing = 0;
    for (int kind = 0; kind < KINDS; kind++) {
        const expert_block *b = block_of(x, layer, expert, kind);
        if (!x->kinds[layer][kind].from) continue;
        if (b->slot < 0) return 2;
        if (atomic_load_explicit(&b->left, memory_order_relaxed) > 0) missing = 1;
    }
    return missing;
}

static void sort_active(const paging_experts *x, int layer, int32_t *active, int n) {
    int n_sorted = 0;
    uint8_t missing[MODEL_MAX_EXPERTS];
    for (int i = 0; i < n; i++) missing[i] = (uint8_t)is_missing(x, layer, active[i]);
    for (int order = 0; order <= 2; order++)
        for (int i = 0; i < n; i++)
            if (missing[i] == order) x->apart[n_sorted++] = active[i];
    memcpy(active, x->apart, (size_t)n * sizeof *active);
}

/* The experts are known: ends the measurement of `window`, counts useful and missing blocks. */
static void end_ahead(const paging *g, int layer) {
    const paging_experts *x = g->experts;
    expert_ahead *a = &g->experts->ahead[layer][g->many];
    int missing = 0;
    for (int i = 0; i < x->n_order; i++) {
        const expert_block *b = &x->blocks[x->order[i]];
        bool ahead = b->ahead == x->ubatch + 1;
        a->n_useful += ahead;
        missing += ahead || b->slot < 0;
    }
    a->missing += (missing - a->missing) / AVERAGED;
    if (a->since == 0) return;
    double seconds = fmax(clock_seconds() - a->since, 0);
    a->window += a->window > 0 ? (seconds - a->window) / AVERAGED : seconds;
    a->since = 0;
}

/* The experts of the tokens, best first. */
static int list_experts(paging_experts *x, int layer, const int32_t *chosen, int n_tokens,
                        int n_used, int32_t *out) {
    int n = 0;
    x->list++;
    for (int k = 0; k < n_used; k++)
        for (int i = 0; i < n_tokens; i++) {
            expert_block *b = block_of(x, layer, chosen[i * n_used + k], KINDS - 1);
            if (b->list == x->list) continue;
            b->list = x->list;
            out[n++] = chosen[i * n_used + k];
        }
    return n;
}

/* With the lock held: requests experts that will probably be active. They get the number of a list,
 * so that they do not evict each other. busy: seconds until the drive has read earlier requests. */
static void request_ahead(paging *g, int layer, const int32_t *experts, int n, double busy) {
    paging_experts *x = g->experts;
    expert_ahead *a = &x->ahead[layer][g->many];
    request_batch batch = {0};
    x->list++;
    for (int i = 0; i < n; i++)
        for (int kind = 0; kind < KINDS; kind++)
            block_of(x, layer, experts[i], kind)->list = x->list;
    for (int i = 0; i < KINDS * n && a->n < a->room; i++) { /* gate and up, then down */
        int kind = i < 2 * n ? i % 2 : 2;
        expert_block *b = block_of(x, layer, experts[i < 2 * n ? i / 2 : i - 2 * n], kind);
        if (!x->kinds[layer][kind].from || b->slot >= 0) continue;
        if (!fetch(g, &batch, (int32_t)(b - x->blocks), true)) continue;
        b->ahead = x->ubatch + 1;
        a->n++;
    }
    a->since = clock_seconds() + busy;
    x->polls = x->polls || a->n > 0;
    send_batch(g, &batch);
}

void paging_activate(paging *g, int layer, int32_t *active, int n) {
    paging_experts *x = g->experts;
    os_mutex_lock(&x->lock);
    sort_active(x, layer, active, n);
    x->n_order = 0;
    x->list++;
    for (int kind = 0; kind < KINDS; kind += KINDS - 1) /* gate and up, then down */
        for (int i = 0; i < n; i++) {
            list_block(x, layer, active[i], kind);
            if (kind == 0) list_block(x, layer, active[i], 1);
        }
    end_ahead(g, layer);
    atomic_store_explicit(&x->next, 0, memory_order_relaxed);
    give_slots(g);
    x->activated = layer;
    bool all = atomic_load_explicit(&x->next, memory_order_relaxed) == x->n_order;
    size_t left = 0;
    for (int i = 0; i < x->n_order && x->n_waiting > 0; i++)
        left += atomic_load_explicit(&x->blocks[x->order[i]].left, memory_order_relaxed);
    if (x->n_waiting > 0 && all)
        request_ahead(g, layer + 1, x->waiting, x->n_waiting, x->byte_seconds * (double)left);
    x->n_waiting = 0;
    os_mutex_unlock(&x->lock);
}

static int kind_index(const paging_experts *x, int layer, const plan_matrix *m) {
    if (m->role == ROLE_EXPERT_DOWN || m->role == ROLE_EXPERT_DOWN_T) return 2;
    return m->role == ROLE_EXPERT_UP && x->kinds[layer][1].from ? 1 : 0;
}

static const uint8_t *rows_in_slot(const paging *g, int layer, const plan_matrix *m, int expert) {
    const paging_experts *x = g->experts;
    int kind = kind_index(x, layer, m);
    const expert_kind *k = &x->kinds[layer][kind];
    const slot_class *size = &x->classes[k->size];
    const uint8_t *rows = (const uint8_t *)m->w.data + (size_t)expert * k->stride;
    uint64_t offset;
    int part;
    (void)gguf_locate(g->source->file, rows, &part, &offset);
    return size->memory + (size_t)block_of(x, layer, expert, kind)->slot * size->n_bytes +
           (size_t)(offset - span_of(g, k, expert).begin);
}

const void *paging_expert(paging *g, int layer, const plan_matrix *m, int expert) {
    paging_experts *x = g->experts;
    expert_block *b = block_of(x, layer, expert, kind_index(x, layer, m));
    int round = 0;
    while (atomic_load_explicit(&b->rows, memory_order_acquire) <= 0) {
        os_mutex_lock(&x->lock);
        give_slots(g);
        os_mutex_unlock(&x->lock);
        poll_drives(g); /* releases slots of blocks that no thread waits for */
        pool_wait(&round);
    }
    wait_block(g, b - x->blocks);
    return rows_in_slot(g, layer, m, expert);
}

void paging_expert_used(paging *g, int layer, const plan_matrix *m, int expert, int64_t n) {
    paging_experts *x = g->experts;
    expert_block *b = block_of(x, layer, expert, kind_index(x, layer, m));
    if (atomic_fetch_sub_explicit(&b->rows, n, memory_order_acq_rel) != n) return;
    if (atomic_load_explicit(&x->next, memory_order_acquire) >= x->n_order) return;
    os_mutex_lock(&x->lock);
    give_slots(g);
    os_mutex_unlock(&x->lock);
}

/* ---- before a layer -------------------------------------------------------------------------- */

void paging_resident_experts(paging *g, int layer, bool *out) {
    paging_experts *x = g->experts;
    os_mutex_lock(&x->lock);
    for (int i = 0; i < x->n_expert; i++) {
        out[i] = true;
        for (int kind = 0; kind < KINDS; kind++)
            if (x->kinds[layer][kind].from && block_of(x, layer, i, kind)->slot < 0) out[i] = false;
    }
    os_mutex_unlock(&x->lock);
}

void paging_prefetch_experts(paging *g, int layer, const int32_t *chosen, int n_tokens,
                             int n_used) {
    paging_experts *x = g->experts;
    os_mutex_lock(&x->lock);
    bool early = layer > 0 && paging_has_experts(g, layer - 1) && x->activated < layer - 1;
    int32_t *experts = early ? x->waiting : x->apart;
    int n = list_experts(x, layer, chosen, n_tokens, n_used, experts);
    if (early)
        x->n_waiting = n;
    else
        request_ahead(g, layer, experts, n, 0);
    os_mutex_unlock(&x->lock);
}

bool paging_experts_prefetch(const paging *g, int layer) {
    return paging_has_experts(g, layer) && g->experts->ahead[layer][g->many].room > 0;
}

/* 0 if matrices are streamed, because the drive is always busy, and where hardly any block is
 * missing. */
static int room_for(const paging *g, int layer, const expert_ahead *a) {
    const paging_experts *x = g->experts;
    double read = x->byte_seconds * (double)x->kinds[layer][KINDS - 1].n_bytes;
    bool tries = (g->ubatch + (uint64_t)layer) % PAGING_TRY_EVERY == 0;
    if (g->matrices.n > 0 || x->holds_all) return 0;
    if (a->missing < paging_least_missing) return 0;
    double room = read > 0 ? floor(a->window / read + a->useful) : 1;
    if (a->useful < paging_least_useful) room = 0;
    if (room < 1) return tries;
    return room < x->n_expert * KINDS ? (int)room : x->n_expert * KINDS;
}

/* Lends the first n_bytes of a class to prefill's buffers, or takes slots back, which are empty
 * then. Between ubatches: no block is in use. */
static void lend(paging *g, size_t n_bytes) {
    paging_experts *x = g->experts;
    if (x->lender < 0) return;
    slot_class *size = &x->classes[x->lender];
    int32_t end = (int32_t)((n_bytes + size->n_bytes - 1) / size->n_bytes);
    int32_t used = first_used(size);
    for (; used < end; used++) {
        wait_block(g, size->owner[used]);
        x->blocks[size->owner[used]].slot = -1;
    }
    size->first = end;
    size->n_free = used - end;
}

void paging_experts_begin(paging *g, size_t lent) {
    lend(g, lent);
    for (int i = 0; i < g->experts->n_layer; i++) {
        expert_ahead *a = &g->experts->ahead[i][g->many];
        if (paging_has_experts(g, i)) a->room = room_for(g, i, a);
    }
}

void paging_experts_advance(const paging *g) {
    if (g->experts->polls) poll_drives(g);
}

static void count_ahead(const paging *g) {
    paging_experts *x = g->experts;
    for (int i = 0; i < x->n_layer; i++) {
        expert_ahead *a = &x->ahead[i][g->many];
        x->n_ahead += (uint64_t)a->n;
        x->in_vain += (uint64_t)(a->n - a->n_useful);
        if (a->n > 0 && a->since == 0)
            a->useful += ((double)a->n_useful / a->n - a->useful) / AVERAGED;
        a->n = a->n_useful = 0;
        a->since = 0;
    }
}

/* Measures the drive's rate if the ubatch has read enough. */
static void count_drive(const paging *g) {
    paging_experts *x = g->experts;
    drive_counts now = paging_drive_counts(g);
    double bytes = (double)(now.bytes - x->counted.bytes), busy = now.busy - x->counted.busy;
    if (bytes < DRIVE_PIECE) return;
    x->byte_seconds += x->byte_seconds > 0 ? (busy / bytes - x->byte_seconds) / AVERAGED
                                           : busy / bytes;
    x->counted = now;
}

/* ---- experts that move to the GPU ------------------------------------------------------------ */

void paging_let_go(paging *g) {
    paging_experts *x = g->experts;
    for (int kind = 0; kind < KINDS && x; kind++) {
        if (x->held[kind] >= 0) x->blocks[x->held[kind]].held = false;
        x->held[kind] = -1;
    }
}

/* Between ubatches no block is in use; blocks of a cancelled ubatch may not have arrived. There are
 * more slots than an expert has blocks. */
static int32_t take_idle_slot(const paging *g, slot_class *size) {
    for (int32_t i = first_used(size); i < size->n_slots; i++) wait_block(g, size->owner[i]);
    return take_slot(g->experts, size, false);
}

void paging_hold(paging *g, int layer, int expert) {
    paging_experts *x = g->experts;
    request_batch batch = {0};
    paging_let_go(g);
    for (int kind = 0; kind < KINDS; kind++) {
        const expert_kind *k = &x->kinds[layer][kind];
        expert_block *b = block_of(x, layer, expert, kind);
        if (!k->from) continue;
        x->held[kind] = (int32_t)(b - x->blocks);
        b->held = true;
        if (b->slot >= 0) continue;
        b->slot = take_idle_slot(g, &x->classes[k->size]);
        x->classes[k->size].owner[b->slot] = x->held[kind];
        add_request(g, &batch, x->held[kind]);
    }
    send_batch(g, &batch);
}

const void *paging_held(const paging *g, int layer, const plan_matrix *m, int expert) {
    const expert_block *b = block_of(g->experts, layer, expert, kind_index(g->experts, layer, m));
    wait_block(g, b - g->experts->blocks);
    return rows_in_slot(g, layer, m, expert);
}

/* ---- less memory ----------------------------------------------------------------------------- */

static bool have_all(const paging_experts *x) {
    for (int i = 0; i < x->n_classes; i++)
        if (x->classes[i].n_slots < capacity_of(&x->classes[i])) return false;
    return true;
}

static uint64_t slots_bytes(const paging_experts *x) {
    uint64_t n = 0;
    for (int i = 0; i < x->n_classes; i++)
        n += (uint64_t)x->classes[i].n_slots * x->classes[i].n_bytes;
    return n;
}

/* Returns the number of slots that it gave up. A block that is being copied to the GPU keeps its
 * slot. */
static int32_t shrink_class(paging *g, slot_class *size, int32_t least) {
    paging_experts *x = g->experts;
    int32_t end = size->n_slots, n = end;
    for (; n > least; n--) {
        int32_t block = n > first_used(size) ? size->owner[n - 1] : -1;
        if (block >= 0 && x->blocks[block].held) break;
        if (block < 0) continue;
        wait_block(g, block);
        x->blocks[block].slot = -1;
    }
    size->n_slots = n;
    if (first_used(size) > n) size->n_free = n - size->first;
    if (n < end)
        os_memory_forget(size->memory + (size_t)n * size->n_bytes,
                         (size_t)(end - n) * size->n_bytes);
    return end - n;
}

uint64_t paging_experts_shrink(paging *g, uint64_t n_bytes) {
    paging_experts *x = g->experts;
    uint64_t freed = 0, least = paging_experts_least(x), all = slots_bytes(x);
    double part = all > least + n_bytes ? (double)n_bytes / (double)(all - least) : 1;
    for (int i = 0; i < x->n_classes; i++) {
        slot_class *size = &x->classes[i];
        int32_t n = (int32_t)ceil(part * (size->n_slots - size->least));
        freed += (uint64_t)shrink_class(g, size, size->n_slots - n) * size->n_bytes;
    }
    g->sizes.cache -= freed;
    x->holds_all = have_all(x);
    return freed;
}

/* Free slots come first: the first used slot moves to the end. */
static bool add_slot(paging *g, slot_class *size) {
    paging_experts *x = g->experts;
    int32_t from = first_used(size), to = size->n_slots;
    if (from < to) {
        int32_t block = size->owner[from];
        if (x->blocks[block].held) return false;
        wait_block(g, block);
        memcpy(size->memory + (size_t)to * size->n_bytes,
               size->memory + (size_t)from * size->n_bytes, size->n_bytes);
        size->owner[to] = block;
        x->blocks[block].slot = to;
    }
    size->n_slots++;
    size->n_free++;
    return true;
}

uint64_t paging_experts_grow(paging *g, uint64_t n_bytes) {
    paging_experts *x = g->experts;
    uint64_t taken = 0, missing = 0;
    for (int i = 0; i < x->n_classes; i++)
        missing += (uint64_t)(x->classes[i].most - x->classes[i].n_slots) * x->classes[i].n_bytes;
    double part = missing > n_bytes ? (double)n_bytes / (double)missing : 1;
    for (int i = 0; i < x->n_classes; i++) {
        slot_class *size = &x->classes[i];
        int32_t n = (int32_t)(part * (size->most - size->n_slots));
        for (; n > 0 && add_slot(g, size); n--) taken += size->n_bytes;
    }
    g->sizes.cache += taken;
    x->holds_all = have_all(x);
    return taken;
}

void paging_experts_end(paging *g, bool drop) {
    paging_experts *x = g->experts;
    x->ubatch++;
    x->activated = -1;
    x->n_waiting = 0;
    for (int i = 0; i < x->n_order; i++)
        atomic_store_explicit(&x->blocks[x->order[i]].rows, 0, memory_order_relaxed);
    x->n_order = 0;
    atomic_store_explicit(&x->next, 0, memory_order_relaxed);
    count_ahead(g);
    count_drive(g);
    if (!drop) return;
    paging_let_go(g);
    for (int i = 0; i < x->n_classes; i++) {
        slot_class *size = &x->classes[i];
        for (int32_t slot = first_used(size); slot < size->n_slots; slot++) {
            wait_block(g, size->owner[slot]);
            x->blocks[size->owner[slot]].slot = -1;
        }
        size->n_free = size->n_slots - size->first;
    }
}
