/* ptx_inside.h: declarations that the files of the interpreter share.
 *
 * A warp has a register file, and operands are offsets into it. A register has 32 consecutive
 * lanes: 4 bytes each up to 32 bits, else 8; a predicate is one word with a bit per lane. Constants
 * and special registers are registers that are filled before a block runs. So an operation is one
 * loop over lanes for all kinds of operands, which compilers vectorize. Device functions are
 * expanded where they are called, so that a position in the code is one number. */
#ifndef TEST_PTX_INSIDE_H
#define TEST_PTX_INSIDE_H

#include <pthread.h>

#include "ptx.h"

enum { WARP = 32, ALL_LANES = -1, MAX_OPERANDS = 16 };
enum { NO_GUARD = UINT32_MAX };

/* Start of the generic addresses of shared and local memory; global memory has the host's
 * addresses. */
#define SHARED_WINDOW ((uint64_t)1 << 60)
#define LOCAL_WINDOW  ((uint64_t)2 << 60)

typedef struct ptx_warp ptx_warp;
typedef struct ptx_insn ptx_insn;
typedef struct ptx_block ptx_block;
/* Executes an instruction for the lanes of the mask. */
typedef void (*ptx_run)(ptx_warp *w, const ptx_insn *i, uint32_t mask);

enum ptx_kind {
    KIND_PLAIN,
    KIND_BRANCH, /* to `target` */
    KIND_EXIT,
    KIND_BARRIER, /* waits for all threads of the block */
    KIND_WARP     /* waits for all lanes of the warp */
};
enum ptx_space { SPACE_GENERIC, SPACE_GLOBAL, SPACE_SHARED, SPACE_LOCAL, SPACE_PARAM };

struct ptx_insn {
    ptx_run run;
    uint32_t guard; /* predicate, or NO_GUARD */
    bool guard_not;
    uint8_t kind;
    uint32_t line;
    uint32_t target;
    /* accesses to memory: `n` elements of `size` bytes at register r[0] (`based`) + offset; the
     * elements are registers r[1]... of 4 or 8 bytes (`wide`) */
    uint8_t space, size, n;
    bool based, narrow, is_signed, wide, atomic; /* narrow: the address has 32 bits */
    int64_t offset;
    uint32_t r[MAX_OPERANDS]; /* offsets of registers; the destination first */
};

/* ---- memory (ptx_memory.c) ------------------------------------------------------------------- */

/* The last writer or reader of a byte. From the upper bits: epoch (a block between two barriers),
 * warp, number of its warp operations in the epoch, lane, flags. 0: nobody. */
typedef uint64_t ptx_tag;
enum {
    TAG_LANE_SHIFT = 3,
    TAG_STEP_SHIFT = TAG_LANE_SHIFT + 6,
    TAG_WARP_SHIFT = TAG_STEP_SHIFT + 18,
    TAG_EPOCH_SHIFT = TAG_WARP_SHIFT + 5,
    TAG_ATOMIC = 1,
    TAG_BLOCKS = 2,   /* several blocks of the launch have read the byte */
    TAG_RELEASED = 4, /* all of these but the last one then released their reads */
    TAG_LANES = WARP << TAG_LANE_SHIFT, /* added to a lane: several lanes of the warp */
    TAG_MAX_STEP = (1 << 18) - 1,
    TAG_MAX_WARP = 31,        /* instead of a warp: several warps */
    TAG_SEVERAL = UINT16_MAX, /* instead of a thread or a block, in reports */
    TAG_HOST = 1              /* of epoch 0 */
};
uint32_t ptx_thread_of(ptx_tag tag); /* number within its block, or TAG_SEVERAL */

typedef struct ptx_range {
    uint64_t start, n;
    int device;            /* or PTX_HOST */
    ptx_tag *wrote, *read; /* [n] */
} ptx_range;

struct ptx_memory {
    pthread_mutex_t mutex;
    ptx_range *ranges; /* ascending */
    size_t n_ranges, room;
    uint32_t epoch; /* last assigned epoch */
};

/* Call these functions with the lock held. */
ptx_range *ptx_memory_find(ptx_memory *m, uint64_t address);
uint32_t ptx_memory_epoch(ptx_memory *m); /* assigns an epoch */
enum ptx_verdict { ACCESS_FINE, ACCESS_UNDEFINED, ACCESS_RACE };
typedef struct ptx_other { /* thread of the conflicting access */
    uint32_t thread, block;
    bool elsewhere; /* in another block; otherwise `block` is undefined */
} ptx_other;
typedef struct ptx_order ptx_order;
/* Checks and records an access to n bytes by a thread in an epoch. o: order of the launch; empty
 * for memory of one block. */
enum ptx_verdict ptx_note_read(const ptx_order *o, const ptx_range *r, uint64_t at, uint32_t n,
                               ptx_tag tag, ptx_other *other);
enum ptx_verdict ptx_note_write(const ptx_order *o, const ptx_range *r, uint64_t at, uint32_t n,
                                ptx_tag tag, ptx_other *other);

/* ---- order of a launch's blocks (ptx_order.c) ------------------------------------------------ */

typedef struct ptx_span { /* epochs of a block, numbered in execution order */
    uint32_t first, last, block;
} ptx_span;

/* A thread executed a fence in an epoch, then changed a word atomically. Accesses of its block in
 * earlier epochs, and of the thread in this epoch, are visible to a thread that changes the word
 * later and then executes a fence. */
typedef struct ptx_release {
    uint64_t address;
    uint32_t block, fenced, thread;
} ptx_release;
typedef struct ptx_acquire { /* of the running block; since: epoch of the fence, 0: none */
    ptx_release of;
    uint32_t thread, since;
} ptx_acquire;

struct ptx_order {
    ptx_tag first, begun; /* first epochs of the launch and of the running block */
    ptx_span *spans;      /* ascending */
    ptx_release *releases;
    ptx_acquire *acquires;
    size_t n_spans, span_room, n_releases, release_room, n_acquires, acquire_room;
};
void ptx_order_free(ptx_order *o);
/* Begins an epoch of the block. False, here and below: out of memory. */
bool ptx_order_epoch(ptx_order *o, uint32_t epoch, uint32_t block);
/* Records that a thread changes a word atomically. fenced: epoch of its last fence; 0: none. */
bool ptx_order_count(ptx_order *o, uint64_t address, uint32_t block, uint32_t thread,
                     uint32_t fenced);
void ptx_order_fence(ptx_order *o, uint32_t thread, uint32_t epoch);
/* Whether an access of the running block is not ordered after an earlier access by another block of
 * this launch; *block: the earlier block. */
bool ptx_order_conflict(const ptx_order *o, ptx_tag before, ptx_tag now, uint32_t *block);
/* Whether the block of an earlier access released it, in its first release at the latest. */
bool ptx_order_released(const ptx_order *o, ptx_tag before);
/* Whether the running block has acquired a release of each of the launch's earlier blocks. */
bool ptx_order_knows_all(const ptx_order *o, ptx_tag now);

/* ---- code (ptx_parse.c) ---------------------------------------------------------------------- */

/* A register that is filled before a block runs. */
typedef struct ptx_fill {
    enum ptx_special {
        FILL_CONSTANT,
        FILL_TID_X,
        FILL_ZERO, /* %tid.y, %tid.z */
        FILL_ONE,  /* %ntid.y, %ntid.z */
        FILL_NTID_X,
        FILL_CTAID_X,
        FILL_CTAID_Y,
        FILL_CTAID_Z,
        FILL_NCTAID_X,
        FILL_NCTAID_Y,
        FILL_NCTAID_Z,
        FILL_LANEID
    } what;
    uint32_t at;
    bool wide;
    uint64_t value;
} ptx_fill;

struct ptx_kernel {
    ptx_kernel *next;
    ptx_module *module;
    const char *name;
    ptx_insn *code;
    size_t n_code, code_room;
    ptx_fill *fills;
    size_t n_fills, fill_room;
    uint32_t n_register_bytes, n_shared, n_local, n_params;
};
const char *ptx_kernel_file(const ptx_kernel *k);
ptx_memory *ptx_kernel_memory(const ptx_kernel *k);

/* ---- operations ------------------------------------------------------------------------------ */

/* An operation between registers. operands: one letter each, the destination first: w 32 bits or
 * less, d 64 bits, p predicate. */
typedef struct ptx_operation {
    const char *name, *operands;
    ptx_run run;
} ptx_operation;
extern const ptx_operation ptx_alu[];
extern const size_t ptx_n_alu;

void ptx_load(ptx_warp *w, const ptx_insn *i, uint32_t mask);
void ptx_store(ptx_warp *w, const ptx_insn *i, uint32_t mask);
void ptx_load_acquire(ptx_warp *w, const ptx_insn *i, uint32_t mask);
void ptx_store_release(ptx_warp *w, const ptx_insn *i, uint32_t mask);
void ptx_atomic_add(ptx_warp *w, const ptx_insn *i, uint32_t mask); /* r: address, result, value */
void ptx_atomic_max(ptx_warp *w, const ptx_insn *i, uint32_t mask);
/* r: shared address, global address, source size; done by ptx_copy_wait. */
void ptx_copy_begin(ptx_warp *w, const ptx_insn *i, uint32_t mask);
void ptx_copy_wait(ptx_warp *w, const ptx_insn *i, uint32_t mask);
void ptx_prefetch(ptx_warp *w, const ptx_insn *i, uint32_t mask);
void ptx_nothing(ptx_warp *w, const ptx_insn *i, uint32_t mask);
void ptx_fence(ptx_warp *w, const ptx_insn *i, uint32_t mask);
void ptx_nanosleep(ptx_warp *w, const ptx_insn *i, uint32_t mask);
void ptx_globaltimer(ptx_warp *w, const ptx_insn *i, uint32_t mask);

/* Returns n bytes of shared memory that a lane reads; NULL: the access is a fault. */
const uint8_t *ptx_shared_read(ptx_warp *w, const ptx_insn *i, int lane, uint32_t at, uint32_t n);

void ptx_shuffle_bfly(ptx_warp *w, const ptx_insn *i,
                      uint32_t mask);                                /* r: d, p, a, b, c, members */
void ptx_ballot(ptx_warp *w, const ptx_insn *i, uint32_t mask);      /* r: d, p, members */
void ptx_warp_sync(ptx_warp *w, const ptx_insn *i, uint32_t mask);   /* r: members */
void ptx_load_matrix(ptx_warp *w, const ptx_insn *i, uint32_t mask); /* r: address, d[4] */
void ptx_load_matrix_t(ptx_warp *w, const ptx_insn *i, uint32_t mask);
/* r: d[4], a[2] or a[4], b[1] or b[2], c[4] */
void ptx_mma_k8_f16(ptx_warp *w, const ptx_insn *i, uint32_t mask);
void ptx_mma_k16_f16(ptx_warp *w, const ptx_insn *i, uint32_t mask);
void ptx_mma_k16_bf16(ptx_warp *w, const ptx_insn *i, uint32_t mask);
void ptx_mma_m8_k16_s8(ptx_warp *w, const ptx_insn *i, uint32_t mask);
void ptx_mma_k16_s8(ptx_warp *w, const ptx_insn *i, uint32_t mask);
void ptx_mma_k32_s8(ptx_warp *w, const ptx_insn *i, uint32_t mask);

float ptx_half_float(uint32_t bits);
uint32_t ptx_float_half(float v);
uint32_t ptx_float_bfloat(float v);

/* ---- running (ptx_run.c) --------------------------------------------------------------------- */

/* A pending asynchronous copy. */
typedef struct ptx_copy {
    uint32_t to, n,
        thread; /* offset in shared memory, bytes of the source, the rest of 16: zeros */
    uint64_t from;
    const ptx_insn *insn;
} ptx_copy;

struct ptx_warp {
    ptx_block *block;
    uint8_t *registers;
    uint32_t index;
    uint32_t pc[WARP];
    uint32_t live, at_barrier, at_warp; /* masks */
    uint32_t step; /* shuffles and votes since the barrier, which order accesses of the lanes */
    uint8_t *local, *local_written; /* [WARP][kernel.n_local] */
    uint32_t fenced[WARP];          /* epoch of each lane's last fence; 0: none */
    ptx_copy *copies;
    size_t n_copies, copy_room;
    uint32_t carry; /* carry of add.cc etc., a bit per lane */
};

struct ptx_block {
    const ptx_kernel *kernel;
    ptx_memory *memory;
    const uint8_t *params;
    ptx_grid grid;
    uint32_t at[3], index; /* position in the grid; number in execution order */
    uint32_t epoch;
    ptx_order order;
    uint8_t *shared;
    ptx_range shared_range; /* from SHARED_WINDOW */
    ptx_warp *warps;
    uint32_t n_warps;
    const ptx_range *last; /* range of the last access */
    bool failed;
    ptx_error *error;
};

/* Records a fault, unless there was one before. lane < 0: no particular lane. */
void ptx_fail(ptx_warp *w, const ptx_insn *i, int lane, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
