/* ptx_run.c: runs blocks. The lanes of a warp with the lowest position in the code run next,
 * together if they are at one instruction, so that lanes reconverge after a branch. A lane waits at
 * a barrier for the threads of the block, at a warp operation for the other lanes. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ptx_inside.h"

void ptx_fail(ptx_warp *w, const ptx_insn *i, int lane, const char *format, ...) {
    ptx_block *b = w->block;
    if (b->failed) return;
    b->failed = true;
    char thread[32] = "", what[256];
    if (lane >= 0) snprintf(thread, sizeof thread, " thread %u", w->index * WARP + (unsigned)lane);
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    snprintf(b->error->text, sizeof b->error->text, "%.100s:%u: %.150s: block %u,%u,%u%s: %s",
             ptx_kernel_file(b->kernel), i->line, b->kernel->name, b->at[0], b->at[1], b->at[2],
             thread, what);
}

/* Returns the runnable lanes with the lowest position; 0: none can run. *limit: next position of
 * other lanes. */
static uint32_t pick(const ptx_warp *w, uint32_t *pc, uint32_t *limit) {
    const uint32_t ready = w->live & ~w->at_barrier & ~w->at_warp;
    uint32_t picked = 0;
    *pc = *limit = UINT32_MAX;
    for (uint32_t m = ready; m; m &= m - 1) {
        const int l = __builtin_ctz(m);
        if (w->pc[l] < *pc) {
            *limit = *pc;
            *pc = w->pc[l];
            picked = 0;
        }
        if (w->pc[l] == *pc)
            picked |= 1u << l;
        else if (w->pc[l] < *limit)
            *limit = w->pc[l];
    }
    return picked;
}

static void set_pc(ptx_warp *w, uint32_t lanes, uint32_t pc) {
    for (uint32_t m = lanes; m; m &= m - 1) w->pc[__builtin_ctz(m)] = pc;
}

/* Runs lanes from `pc` until they diverge, wait, end or reach `limit`. */
static void run_lanes(ptx_warp *w, uint32_t lanes, uint32_t pc, uint32_t limit) {
    const ptx_insn *code = w->block->kernel->code;
    while (pc < limit && !w->block->failed) {
        const ptx_insn *i = &code[pc];
        uint32_t mask = lanes;
        if (i->guard != NO_GUARD) {
            uint32_t p;
            memcpy(&p, w->registers + i->guard, sizeof p);
            mask &= i->guard_not ? ~p : p;
        }
        if (i->kind == KIND_PLAIN) {
            if (mask) i->run(w, i, mask);
            pc++;
            continue;
        }
        if (mask == 0) {
            pc++;
        } else if (i->kind == KIND_BRANCH && mask == lanes && i->target > pc) {
            pc = i->target;
        } else if (i->kind == KIND_WARP && mask == (uint32_t)ALL_LANES) {
            i->run(w, i, mask);
            pc++;
        } else {
            set_pc(w, lanes, pc + 1);
            if (i->kind == KIND_BRANCH) set_pc(w, mask, i->target);
            if (i->kind == KIND_EXIT) w->live &= ~mask;
            if (i->kind == KIND_BARRIER) w->at_barrier |= mask;
            if (i->kind == KIND_WARP) {
                set_pc(w, mask, pc);
                w->at_warp |= mask;
            }
            return;
        }
    }
    set_pc(w, lanes, pc);
}

/* All lanes wait: executes the warp operation if they wait for the same one. */
static void meet(ptx_warp *w) {
    const int first = __builtin_ctz(w->at_warp);
    const uint32_t pc = w->pc[first];
    const ptx_insn *i = &w->block->kernel->code[pc];
    bool same = w->at_warp == (uint32_t)ALL_LANES;
    for (int l = 0; l < WARP && same; l++) same = w->pc[l] == pc;
    if (!same) {
        ptx_fail(w, i, first, "deadlock: lanes of the warp have ended or wait elsewhere");
        return;
    }
    i->run(w, i, w->at_warp);
    w->at_warp = 0;
    set_pc(w, (uint32_t)ALL_LANES, pc + 1);
}

/* Runs a warp until all lanes have ended or wait at a barrier. */
static void run_warp(ptx_warp *w) {
    while (!w->block->failed) {
        uint32_t pc, limit;
        const uint32_t lanes = pick(w, &pc, &limit);
        if (lanes)
            run_lanes(w, lanes, pc, limit);
        else if (w->at_warp)
            meet(w);
        else
            return;
    }
}

static void next_epoch(ptx_block *b) {
    b->epoch = ptx_memory_epoch(b->memory);
    if (!ptx_order_epoch(&b->order, b->epoch, b->index))
        ptx_fail(b->warps, b->kernel->code, -1, "out of memory");
}

/* Opens the barrier when all threads have reached it. False: the block has ended or failed. */
static bool next_phase(ptx_block *b) {
    uint32_t waiting = 0, ended = 0;
    for (uint32_t k = 0; k < b->n_warps; k++) {
        ptx_warp *w = &b->warps[k];
        waiting += (uint32_t)__builtin_popcount(w->at_barrier);
        ended += WARP - (uint32_t)__builtin_popcount(w->live);
        w->at_barrier = w->step = 0;
    }
    if (b->failed || waiting == 0) return false;
    if (ended > 0) {
        ptx_fail(b->warps, b->kernel->code, -1, "%u threads wait at a barrier, %u have ended",
                 waiting, ended);
        return false;
    }
    next_epoch(b);
    return !b->failed;
}

static uint64_t filling(const ptx_block *b, const ptx_fill *f, uint32_t thread) {
    switch (f->what) {
    case FILL_CONSTANT:
        return f->value;
    case FILL_TID_X:
        return thread;
    case FILL_LANEID:
        return thread % WARP;
    case FILL_ZERO:
        return 0;
    case FILL_ONE:
        return 1;
    case FILL_NTID_X:
        return b->grid.threads;
    case FILL_CTAID_X:
    case FILL_CTAID_Y:
    case FILL_CTAID_Z:
        return b->at[f->what - FILL_CTAID_X];
    case FILL_NCTAID_X:
        return b->grid.x;
    case FILL_NCTAID_Y:
        return b->grid.y;
    case FILL_NCTAID_Z:
        return b->grid.z;
    }
    return 0;
}

static void fill_registers(ptx_warp *w) {
    const ptx_kernel *k = w->block->kernel;
    for (size_t i = 0; i < k->n_fills; i++) {
        const ptx_fill *f = &k->fills[i];
        for (uint32_t l = 0; l < WARP; l++) {
            const uint64_t v = filling(w->block, f, w->index * WARP + l);
            const size_t size = f->wide ? 8 : 4;
            memcpy(w->registers + f->at + l * size, &v, size);
        }
    }
}

static void run_block(ptx_block *b) {
    const ptx_kernel *k = b->kernel;
    next_epoch(b);
    b->last = NULL;
    memset(b->shared_range.wrote, 0, k->n_shared * sizeof(ptx_tag));
    for (uint32_t i = 0; i < b->n_warps; i++) {
        ptx_warp *w = &b->warps[i];
        w->live = (uint32_t)ALL_LANES;
        w->at_barrier = w->at_warp = w->step = 0;
        w->n_copies = 0;
        memset(w->fenced, 0, sizeof w->fenced);
        memset(w->local_written, 0, (size_t)WARP * k->n_local);
        set_pc(w, w->live, 0);
        fill_registers(w);
    }
    do {
        for (uint32_t i = 0; i < b->n_warps; i++) run_warp(&b->warps[i]);
    } while (next_phase(b));
    for (uint32_t i = 0; i < b->n_warps && !b->failed; i++) {
        if (b->warps[i].n_copies > 0)
            ptx_fail(&b->warps[i], b->warps[i].copies->insn, (int)b->warps[i].copies->thread,
                     "an asynchronous copy that nothing waits for");
    }
}

static void free_block(ptx_block *b) {
    for (uint32_t i = 0; b->warps && i < b->n_warps; i++) {
        free(b->warps[i].registers);
        free(b->warps[i].local);
        free(b->warps[i].local_written);
        free(b->warps[i].copies);
    }
    free(b->warps);
    free(b->shared);
    free(b->shared_range.wrote);
    free(b->shared_range.read);
    ptx_order_free(&b->order);
}

static bool make_block(ptx_block *b) {
    const ptx_kernel *k = b->kernel;
    const size_t n_shared = (size_t)k->n_shared + 1, n_local = (size_t)WARP * k->n_local + 1;
    b->n_warps = b->grid.threads / WARP;
    b->warps = calloc(b->n_warps, sizeof *b->warps);
    b->shared = malloc(n_shared);
    b->shared_range = (ptx_range){.start = SHARED_WINDOW,
                                  .n = k->n_shared,
                                  .wrote = calloc(n_shared, sizeof(ptx_tag)),
                                  .read = calloc(n_shared, sizeof(ptx_tag))};
    bool made = b->warps && b->shared && b->shared_range.wrote && b->shared_range.read;
    for (uint32_t i = 0; i < b->n_warps && made; i++) {
        ptx_warp *w = &b->warps[i];
        w->block = b;
        w->index = i;
        w->registers = calloc(1, k->n_register_bytes + 1);
        w->local = malloc(n_local);
        w->local_written = malloc(n_local);
        made = w->registers && w->local && w->local_written;
    }
    return made;
}

/* Sizes that a driver refuses (CUDA C++ Programming Guide, "Compute Capabilities"). */
static bool is_refused(const ptx_kernel *k, const ptx_grid *grid) {
    enum { MOST_X = 0x7fffffff, MOST_YZ = 65535, MOST_THREADS = 1024, MOST_SHARED = 48 * 1024 };
    return grid->x == 0 || grid->x > MOST_X || grid->y == 0 || grid->y > MOST_YZ || grid->z == 0 ||
           grid->z > MOST_YZ || grid->threads > MOST_THREADS || k->n_shared > MOST_SHARED;
}

bool ptx_launch(ptx_kernel *k, ptx_grid grid, const void *args, size_t n_args, ptx_error *error) {
    ptx_block b = {
        .kernel = k, .memory = ptx_kernel_memory(k), .params = args, .grid = grid, .error = error};
    if (is_refused(k, &grid)) {
        snprintf(error->text, sizeof error->text,
                 "%.200s: invalid launch: %u,%u,%u blocks of %u threads, %u bytes of shared memory",
                 k->name, grid.x, grid.y, grid.z, grid.threads, k->n_shared);
        return false;
    }
    if (grid.threads == 0 || grid.threads % WARP || n_args != k->n_params) {
        snprintf(error->text, sizeof error->text,
                 "%.200s: launched with %u threads and %zu bytes of parameters, which has %u",
                 k->name, grid.threads, n_args, k->n_params);
        return false;
    }
    if (!make_block(&b)) {
        snprintf(error->text, sizeof error->text, "out of memory: %.200s", k->name);
        free_block(&b);
        return false;
    }
    for (b.at[2] = 0; b.at[2] < grid.z && !b.failed; b.at[2]++) {
        for (b.at[1] = 0; b.at[1] < grid.y && !b.failed; b.at[1]++) {
            for (b.at[0] = 0; b.at[0] < grid.x && !b.failed; b.at[0]++) {
                pthread_mutex_lock(&b.memory->mutex);
                run_block(&b);
                pthread_mutex_unlock(&b.memory->mutex);
                b.index++;
            }
        }
    }
    free_block(&b);
    return !b.failed;
}
