/* sim_block.cpp: runs thread blocks: fibers, barriers, warp operations, shared memory.
 *
 * The worker thread is the scheduler. It runs the threads of a warp one after the other until each
 * waits or is done. When all threads of a warp have called a warp operation, the scheduler computes
 * it and the warp continues; a barrier opens when all threads of the block wait there or are done.
 * Threads that wait at different places, or for threads that have ended, would hang or be undefined
 * on a GPU: here they end the kernel, and the device is lost, with a message. The fibers of such a
 * block are abandoned; the worker makes new ones. */
#include "sim_fiber.h"
#include "sim_runtime.h"

#include <time.h>

#include <sched.h>

#if defined(SIM_ASAN)
#include <sanitizer/asan_interface.h>
#endif

enum : size_t {
/* Kernels keep a few hundred bytes on the stack; the sanitizers' frames are larger. */
#if defined(SIM_ASAN) || defined(SIM_TSAN)
    STACK_BYTES = 128 * 1024,
#else
    STACK_BYTES = 32 * 1024,
#endif
    STACK_SHIFT = 320,        /* spreads equal offsets of two stacks over different cache sets */
    SHARED_BYTES = 64 * 1024, /* the maximum per block of any device */
};

enum thread_state { READY, AT_BARRIER, AT_WARP, DONE };
enum warp_op {
    WARP_SUM,
    WARP_MAX,
    WARP_SUM4,
    WARP_MAX4,
    WARP_SUM8,
    WARP_MAX8,
    WARP_SUM16,
    WARP_BALLOT,
    WARP_SWAP,
    WAVE_SWAP,
    WARP_MMA,
    WARP_MMA_BF16,
    WARP_MMA_S8,
    WARP_AMD, /* WARP_AMD + family, at most 12 */
    WAVE_AMD = WARP_AMD + 9,
    WARP_AMD_BF16 = WARP_AMD + 13,
    WAVE_AMD_BF16 = WARP_AMD_BF16 + 9,
    WARP_AMD_S8 = WARP_AMD_BF16 + 13,
    WAVE_AMD_S8 = WARP_AMD_S8 + 9,
    WAVE_SYNC = WARP_AMD_S8 + 13,
};

struct block_thread {
    sim_thread self; /* must be first: sim_self points here */
    sim_fiber fiber;
    sim_worker *worker;
    thread_state state;
    warp_op op;
    float value;
    uint32_t bits;
    /* WARP_MMA: the thread's fragments */
    float *mma_c;
    int32_t *mma_d; /* of bytes */
    uint32_t mma_a[4], mma_b[2];
    const uint32_t *amd_a, *amd_b; /* WARP_AMD */
    unsigned barriers, warp_ops;   /* number of each that this thread has reached */
    bool begun; /* the thread called gpu_begin before any barrier or warp operation */
};

struct sim_worker {
    gpu_device *device;
    block_thread *threads; /* [SIM_MAX_THREADS] */
    uint8_t *stacks, *shared;
    int n_made; /* fibers so far */
    sim_fiber scheduler;
    /* the running kernel */
    gpu_any_kernel kernel;
    void (*call)(gpu_any_kernel kernel, const void *args);
    const void *args;
    int n_threads;
    bool paused;                   /* a thread of this block has paused */
    size_t n_shared;               /* shared memory of this block; 0: not requested yet */
    size_t n_refused, most_shared; /* too large a request, and the maximum; 0: there was none */
    /* Tokens for sim_order: start and end of a block; two alternating tokens for barriers and for
     * warp operations, because a thread may reach the next one before another has left this one. */
    char start, end, barrier[2], warp[SIM_MAX_THREADS / GPU_WARP][2];
};

__thread sim_thread *sim_self;

/* ---- inside of a kernel ---------------------------------------------------------------------- */

SIM_UNSEEN static block_thread *current() {
    return reinterpret_cast<block_thread *>(sim_self);
}

/* Switches to the scheduler; returns when the thread may continue. */
SIM_UNSEEN static void wait_in(block_thread *t, thread_state state) {
    t->state = state;
    sim_fiber_switch(&t->fiber, &t->worker->scheduler);
}

/* The one of two tokens that the thread has reached. */
SIM_UNSEEN static void *barrier_token(block_thread *t) {
    return &t->worker->barrier[t->barriers++ & 1];
}

SIM_UNSEEN static void *warp_token(block_thread *t) {
    return &t->worker->warp[t->self.index.x / GPU_WARP][t->warp_ops++ & 1];
}

SIM_UNSEEN void gpu_begin() {
    block_thread *t = current();
    t->begun = t->barriers == 0 && t->warp_ops == 0;
}

void gpu_sync() {
    block_thread *t = current();
    void *token = barrier_token(t);
    sim_order_release(token);
    wait_in(t, AT_BARRIER);
    sim_order_acquire(token);
}

SIM_UNSEEN static void ask(block_thread *t, warp_op op, float value, uint32_t bits) {
    t->op = op;
    t->value = value;
    t->bits = bits;
    wait_in(t, AT_WARP);
}

SIM_UNSEEN static float answer(const block_thread *t) {
    return t->value;
}

SIM_UNSEEN static uint32_t answer_bits(const block_thread *t) {
    return t->bits;
}

static block_thread *warp_operation(warp_op op, float value, uint32_t bits) {
    block_thread *t = current();
    void *token = warp_token(t);
    sim_order_release(token);
    ask(t, op, value, bits);
    sim_order_acquire(token);
    return t;
}

float gpu_warp_sum(float v) {
    return answer(warp_operation(WARP_SUM, v, 0));
}
float gpu_warp_max(float v) {
    return answer(warp_operation(WARP_MAX, v, 0));
}
float gpu_group4_sum(float v) {
    return answer(warp_operation(WARP_SUM4, v, 0));
}
float gpu_group4_max(float v) {
    return answer(warp_operation(WARP_MAX4, v, 0));
}
float gpu_group8_sum(float v) {
    return answer(warp_operation(WARP_SUM8, v, 0));
}
float gpu_group8_max(float v) {
    return answer(warp_operation(WARP_MAX8, v, 0));
}
float gpu_group16_sum(float v) {
    return answer(warp_operation(WARP_SUM16, v, 0));
}
uint32_t gpu_ballot(bool v) {
    return answer_bits(warp_operation(WARP_BALLOT, 0, v));
}

uint32_t sim_swap(uint32_t v, int distance) {
    return answer_bits(warp_operation(distance == 16 ? WARP_SWAP : WAVE_SWAP, 0, v));
}

SIM_UNSEEN static void set_parts(float *c, const uint32_t *a, uint32_t b0, uint32_t b1) {
    block_thread *t = current();
    t->mma_c = c;
    memcpy(t->mma_a, a, sizeof t->mma_a);
    t->mma_b[0] = b0;
    t->mma_b[1] = b1;
}

SIM_UNSEEN static void set_products(int32_t *d) {
    current()->mma_d = d;
}

void gpu_mma_f16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    set_parts(c, a, b0, b1);
    warp_operation(WARP_MMA, 0, 0);
}
void gpu_mma_bf16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    set_parts(c, a, b0, b1);
    warp_operation(WARP_MMA_BF16, 0, 0);
}

void gpu_mma_s8(int32_t (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, int32_t start) {
    for (int i = 0; i < 4; i++) d[i] = start;
    set_parts(nullptr, a, b0, b1);
    set_products(d);
    warp_operation(WARP_MMA_S8, 0, 0);
}

SIM_UNSEEN static void set_amd_parts(float *c, const uint32_t *a, const uint32_t *b) {
    block_thread *t = current();
    t->mma_c = c;
    t->amd_a = a;
    t->amd_b = b;
}

void sim_sync_wave() {
    warp_operation(WAVE_SYNC, 0, 0);
}

void sim_amd_mma(int family, float *c, const uint32_t *a, const uint32_t *b, bool bf16) {
    set_amd_parts(c, a, b);
    warp_operation(static_cast<warp_op>((bf16 ? WARP_AMD_BF16 : WARP_AMD) + family), 0, 0);
}

void sim_amd_mma_s8(int family, int32_t *c, const uint32_t *a, const uint32_t *b) {
    set_amd_parts(nullptr, a, b);
    set_products(c);
    warp_operation(static_cast<warp_op>(WARP_AMD_S8 + family), 0, 0);
}

SIM_UNSEEN static void *shared_of(sim_worker *w, size_t n_bytes) {
    if (w->n_shared == 0) {
        w->n_shared = n_bytes;
        for (size_t i = 0; i < n_bytes; i++) w->shared[i] = SIM_POISON;
#if defined(SIM_ASAN)
        __asan_poison_memory_region(w->shared + n_bytes, SHARED_BYTES - n_bytes);
#endif
    }
    return w->shared;
}

/* The scheduler drops the block, and this fiber with it. */
SIM_UNSEEN static void refuse_shared(size_t n_bytes, size_t most) {
    sim_worker *w = current()->worker;
    w->n_refused = n_bytes;
    w->most_shared = most;
    wait_in(current(), AT_BARRIER);
}

void *sim_shared(size_t n_bytes, size_t most) {
    if (n_bytes > most) refuse_shared(n_bytes, most);
    return shared_of(current()->worker, n_bytes);
}

uint64_t gpu_clock_ns(uint32_t) {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<uint64_t>(t.tv_sec) * 1000000000u + static_cast<uint64_t>(t.tv_nsec);
}

static int n_paused;

int sim_n_paused() {
    return __atomic_load_n(&n_paused, __ATOMIC_RELAXED);
}

/* Whether the kernel pauses for the first time. */
SIM_UNSEEN static bool first_pause() {
    bool *paused = &current()->worker->paused, first = !*paused;
    *paused = true;
    return first;
}

void gpu_pause() {
    if (first_pause()) __atomic_fetch_add(&n_paused, 1, __ATOMIC_RELAXED);
    sched_yield();
}

/* Ends the worker's kernel. */
SIM_UNSEEN static void end_pause(sim_worker *w) {
    if (w->paused) __atomic_fetch_sub(&n_paused, 1, __ATOMIC_RELAXED);
    w->paused = false;
}

/* ---- the scheduler --------------------------------------------------------------------------- */

SIM_UNSEEN static void call_kernel(block_thread *t) {
    sim_worker *w = t->worker;
    w->call(w->kernel, w->args);
}

SIM_UNSEEN static void *start_token(block_thread *t) {
    return &t->worker->start;
}
SIM_UNSEEN static void *end_token(block_thread *t) {
    return &t->worker->end;
}

/* The loop of a fiber: runs one thread of a block after the other. */
static void thread_main(void *user) {
    block_thread *t = static_cast<block_thread *>(user);
    for (;;) {
        sim_order_acquire(start_token(t));
        call_kernel(t);
        sim_order_release(end_token(t));
        wait_in(t, DONE);
    }
}

SIM_UNSEEN static void make_fibers(sim_worker *w, int n) {
    for (; w->n_made < n; w->n_made++) {
        size_t i = static_cast<size_t>(w->n_made);
        block_thread *t = &w->threads[i];
        t->worker = w;
        sim_fiber_create(&t->fiber, w->stacks + i * (STACK_BYTES + STACK_SHIFT), STACK_BYTES,
                         thread_main, t);
    }
}

SIM_UNSEEN static void drop_fibers(sim_worker *w) {
    for (int i = 0; i < w->n_made; i++) sim_fiber_free(&w->threads[i].fiber);
    w->n_made = 0;
#if defined(SIM_ASAN)
    if (w->stacks)
        __asan_unpoison_memory_region(w->stacks, SIM_MAX_THREADS * (STACK_BYTES + STACK_SHIFT));
#endif
}

/* Adds in the tree order of shuffles, so that results equal those of a GPU bit for bit. */
SIM_UNSEEN static void sum_tree(block_thread *t, int width) {
    float v[GPU_WARP], next[GPU_WARP];
    for (int i = 0; i < GPU_WARP; i++) v[i] = t[i].value;
    for (int step = width / 2; step > 0; step /= 2) {
        for (int i = 0; i < GPU_WARP; i++) next[i] = v[i] + v[i ^ step];
        memcpy(v, next, sizeof v);
    }
    for (int i = 0; i < GPU_WARP; i++) t[i].value = v[i];
}

SIM_UNSEEN static void max_groups(block_thread *t, int width) {
    for (int i = 0; i < GPU_WARP; i += width) {
        float largest = t[i].value;
        for (int j = 1; j < width; j++) largest = fmaxf(largest, t[i + j].value);
        for (int j = 0; j < width; j++) t[i + j].value = largest;
    }
}

/* One of a register's two 16-bit floats. */
static float part_of(uint32_t pair, int i, bool bf16) {
    const uint32_t bits = i ? pair >> 16 : pair & 0xffff;
    return bf16 ? gpu_bits_float(bits << 16) : gpu_half_float(bits);
}

/* c += a b: gathers the fragments (cuda_intrinsics.h says which lane has what), sums in float. */
SIM_UNSEEN static void multiply(block_thread *t, bool bf16) {
    float a[16][16], b[16][8];
    for (int lane = 0; lane < GPU_WARP; lane++) {
        const int row = lane / 4, col = lane % 4 * 2;
        for (int i = 0; i < 2; i++) {
            for (int part = 0; part < 4; part++)
                a[row + part % 2 * 8][col + part / 2 * 8 + i] = part_of(t[lane].mma_a[part], i,
                                                                        bf16);
            for (int part = 0; part < 2; part++)
                b[col + part * 8 + i][row] = part_of(t[lane].mma_b[part], i, bf16);
        }
    }
    for (int lane = 0; lane < GPU_WARP; lane++) {
        for (int i = 0; i < 4; i++) {
            const int row = lane / 4 + i / 2 * 8, col = lane % 4 * 2 + i % 2;
            float sum = t[lane].mma_c[i];
            for (int k = 0; k < 16; k++) sum += a[row][k] * b[k][col];
            t[lane].mma_c[i] = sum;
        }
    }
}

static int byte_of(uint32_t word, int i) {
    return static_cast<int8_t>(word >> 8 * i & 0xff);
}

/* `multiply` for bytes, 32 terms. */
SIM_UNSEEN static void multiply_bytes(block_thread *t) {
    int a[16][32], b[32][8];
    for (int lane = 0; lane < GPU_WARP; lane++) {
        const int row = lane / 4, k = lane % 4 * 4;
        for (int i = 0; i < 4; i++) {
            for (int part = 0; part < 4; part++)
                a[row + part % 2 * 8][k + part / 2 * 16 + i] = byte_of(t[lane].mma_a[part], i);
            for (int part = 0; part < 2; part++)
                b[k + part * 16 + i][row] = byte_of(t[lane].mma_b[part], i);
        }
    }
    for (int lane = 0; lane < GPU_WARP; lane++) {
        for (int i = 0; i < 4; i++) {
            const int row = lane / 4 + i / 2 * 8, col = lane % 4 * 2 + i % 2;
            for (int k = 0; k < 32; k++) t[lane].mma_d[i] += a[row][k] * b[k][col];
        }
    }
}

/* Layout of AMD's instructions (hip_mma.h): the term of a lane's i-th value; below, the row of its
 * i-th sum. */
static int amd_term(int family, int lane, int i) {
    if (family == 9) return lane / 16 * 4 + i;
    return family == 11 ? i : lane / 16 * 4 + i / 4 * 8 + i % 4;
}
static int amd_row(int family, int lane, int i) {
    if (family == 9) return lane / 16 * 4 + i;
    return family == 11 ? 2 * i + lane / 16 : lane / 16 * 8 + i;
}

/* The value that the instruction multiplies: MFMA of gfx90a flushes denormal halves to zero. */
static float amd_part(int family, uint32_t pair, int i, bool bf16) {
    const bool denormal = !bf16 && ((i ? pair >> 16 : pair) & 0x7c00u) == 0;
    return family == 9 && denormal ? 0.0f : part_of(pair, i, bf16);
}

/* c += a b by the lanes of a wave. False: lanes that must hold equal values do not. */
SIM_UNSEEN static bool multiply_amd(block_thread *t, int family, bool bf16) {
    const int lanes = family == 9 ? 64 : 32, n = family == 9 ? 4 : family == 11 ? 16 : 8;
    const int n_sums = family == 9 ? 4 : 8;
    float a[16][16], b[16][16];
    for (int lane = 0; lane < lanes; lane++) {
        const block_thread *other = &t[lane ^ 16];
        if (family == 11 && (memcmp(t[lane].amd_a, other->amd_a, sizeof(uint32_t[8])) != 0 ||
                             memcmp(t[lane].amd_b, other->amd_b, sizeof(uint32_t[8])) != 0))
            return false;
        for (int i = 0; i < n; i++) {
            const int k = amd_term(family, lane, i);
            a[lane % 16][k] = amd_part(family, t[lane].amd_a[i / 2], i % 2, bf16);
            b[lane % 16][k] = amd_part(family, t[lane].amd_b[i / 2], i % 2, bf16);
        }
    }
    for (int lane = 0; lane < lanes; lane++) {
        for (int i = 0; i < n_sums; i++) {
            const int row = amd_row(family, lane, i);
            float sum = t[lane].mma_c[i];
            for (int k = 0; k < 16; k++) sum += a[row][k] * b[lane % 16][k];
            t[lane].mma_c[i] = sum;
        }
    }
    return true;
}

/* multiply_amd for bytes: in a lane's registers terms are contiguous. */
SIM_UNSEEN static bool multiply_amd_bytes(block_thread *t, int family) {
    const int lanes = family == 9 ? 64 : 32, n = family == 9 ? 4 : family == 11 ? 16 : 8;
    const int n_sums = family == 9 ? 4 : 8;
    int a[16][16], b[16][16];
    for (int lane = 0; lane < lanes; lane++) {
        const block_thread *other = &t[lane ^ 16];
        if (family == 11 && (memcmp(t[lane].amd_a, other->amd_a, sizeof(uint32_t[4])) != 0 ||
                             memcmp(t[lane].amd_b, other->amd_b, sizeof(uint32_t[4])) != 0))
            return false;
        for (int i = 0; i < n; i++) {
            const int k = family == 11 ? i : lane / 16 * n + i;
            a[lane % 16][k] = byte_of(t[lane].amd_a[i / 4], i % 4);
            b[lane % 16][k] = byte_of(t[lane].amd_b[i / 4], i % 4);
        }
    }
    for (int lane = 0; lane < lanes; lane++) {
        for (int i = 0; i < n_sums; i++) {
            const int row = amd_row(family, lane, i);
            for (int k = 0; k < 16; k++) t[lane].mma_d[i] += a[row][k] * b[lane % 16][k];
        }
    }
    return true;
}

static bool of_wave(warp_op op) {
    return op == WAVE_SYNC || op == WAVE_SWAP || op == WAVE_AMD || op == WAVE_AMD_BF16 ||
           op == WAVE_AMD_S8;
}

/* Computes the warp operation that all threads of a warp, or of a wave of two warps, have called;
 * false when their operations differ. */
SIM_UNSEEN static bool answer_warp(block_thread *t, int n) {
    uint32_t ballot = 0, bits[2 * GPU_WARP];
    const warp_op op = t[0].op;
    const int swap = op == WARP_SWAP ? 16 : op == WAVE_SWAP ? 32 : 0;
    for (int i = 0; i < n; i++) {
        if (t[i].op != op) return false;
        bits[i] = t[i].bits;
        ballot |= t[i].bits << i % GPU_WARP;
    }
    if (op == WARP_SUM) sum_tree(t, GPU_WARP);
    if (op == WARP_SUM4) sum_tree(t, 4);
    if (op == WARP_MAX4) max_groups(t, 4);
    if (op == WARP_SUM8) sum_tree(t, 8);
    if (op == WARP_SUM16) sum_tree(t, 16);
    if (op == WARP_MAX) max_groups(t, GPU_WARP);
    if (op == WARP_MAX8) max_groups(t, 8);
    if (op == WARP_MMA || op == WARP_MMA_BF16) multiply(t, op == WARP_MMA_BF16);
    if (op == WARP_MMA_S8) multiply_bytes(t);
    const bool bf16 = op >= WARP_AMD_BF16;
    if (op >= WARP_AMD && op < WARP_AMD_S8 &&
        !multiply_amd(t, op - (bf16 ? WARP_AMD_BF16 : WARP_AMD), bf16))
        return false;
    if (op >= WARP_AMD_S8 && op < WAVE_SYNC && !multiply_amd_bytes(t, op - WARP_AMD_S8))
        return false;
    for (int i = 0; i < n; i++) {
        t[i].bits = swap ? bits[i ^ swap] : ballot;
        t[i].state = READY;
    }
    return true;
}

/* Runs a warp until all of its threads wait or are done. Returns the number of threads at a warp
 * operation. */
SIM_UNSEEN static int run_warp(sim_worker *w, block_thread *t) {
    int at_warp = 0;
    for (int i = 0; i < GPU_WARP; i++) {
        if (t[i].state == READY) {
            sim_self = &t[i].self;
            sim_fiber_switch(&w->scheduler, &t[i].fiber);
        }
        at_warp += t[i].state == AT_WARP;
    }
    return at_warp;
}

/* Runs one warp, or a wave of two, until all threads are done or at a barrier. False: deadlock. */
SIM_UNSEEN static bool run_wave(sim_worker *w, block_thread *t, int n_warps) {
    for (;;) {
        int for_wave = 0; /* warps that wait for the other warp of the wave */
        for (int i = 0; i < n_warps; i++) {
            block_thread *warp = t + i * GPU_WARP;
            for (int at_warp; (at_warp = run_warp(w, warp)) > 0;) {
                if (at_warp != GPU_WARP) return false;
                if (of_wave(warp->op)) break;
                if (!answer_warp(warp, GPU_WARP)) return false;
            }
            for_wave += warp->state == AT_WARP;
        }
        if (for_wave == 0) return true;
        if (for_wave != 2 || !answer_warp(t, 2 * GPU_WARP)) return false;
    }
}

SIM_UNSEEN static bool run_block(sim_worker *w) {
    for (int i = 0; i < w->n_threads; i++) {
        w->threads[i].state = READY;
        w->threads[i].barriers = w->threads[i].warp_ops = 0;
        w->threads[i].begun = false;
    }
#if defined(SIM_ASAN)
    __asan_unpoison_memory_region(w->shared, SHARED_BYTES);
#endif
    w->n_shared = w->n_refused = 0;
    sim_order_release(&w->start);
    for (;;) {
        int done = 0;
        for (int i = 0; i < w->n_threads; i += 2 * GPU_WARP)
            if (!run_wave(w, w->threads + i, w->n_threads - i > GPU_WARP ? 2 : 1)) return false;
        if (w->n_refused > 0) return false;
        for (int i = 0; i < w->n_threads; i++) done += w->threads[i].state == DONE;
        if (done == w->n_threads) break;
        if (done != 0) return false; /* some wait for threads that have ended */
        for (int i = 0; i < w->n_threads; i++) w->threads[i].state = READY;
    }
    sim_order_acquire(&w->end);
    return true;
}

SIM_UNSEEN static bool all_began(const sim_worker *w) {
    bool all = true;
    for (int i = 0; i < w->n_threads; i++) all = all && w->threads[i].begun;
    return all;
}

SIM_UNSEEN void sim_worker_run(sim_worker *w, const gpu_grid &grid, gpu_any_kernel kernel,
                               void (*call)(gpu_any_kernel kernel, const void *args),
                               const void *args) {
    w->kernel = kernel;
    w->call = call;
    w->args = args;
    w->n_threads = static_cast<int>(grid.threads);
    sim_fiber_adopt(&w->scheduler);
    make_fibers(w, w->n_threads);
    for (int i = 0; i < w->n_threads; i++) {
        w->threads[i].self = {{static_cast<unsigned>(i), 0, 0},
                              {0, 0, 0},
                              {grid.threads, 1, 1},
                              {grid.x, grid.y, grid.z}};
    }
    for (unsigned z = 0; z < grid.z; z++) {
        for (unsigned y = 0; y < grid.y; y++) {
            for (unsigned x = 0; x < grid.x; x++) {
                for (int i = 0; i < w->n_threads; i++) w->threads[i].self.block = {x, y, z};
                const bool ends = run_block(w);
                if (ends && all_began(w)) continue;
                end_pause(w);
                if (ends) {
                    sim_device_stick(w->device, PI_ERR_DEVICE,
                                     "a kernel does not begin with gpu_begin: sim");
                    return;
                }
                if (w->n_refused > 0)
                    sim_device_stick(w->device, PI_ERR_DEVICE,
                                     "cannot launch a kernel: sim: %zu bytes of shared memory, not "
                                     "up to %zu",
                                     w->n_refused, w->most_shared);
                else
                    sim_device_stick(w->device, PI_ERR_DEVICE,
                                     "deadlock in a kernel: sim: threads of block %u,%u,%u wait at "
                                     "different barriers or for threads that have ended",
                                     x, y, z);
                drop_fibers(w);
                return;
            }
        }
    }
    end_pause(w);
}

/* ---- making and freeing ---------------------------------------------------------------------- */

void sim_worker_free(sim_worker *w) {
    if (!w) return;
    const gpu_host *host = w->device->host;
    drop_fibers(w);
#if defined(SIM_ASAN)
    if (w->shared) __asan_unpoison_memory_region(w->shared, SHARED_BYTES);
#endif
    host->free(w->shared);
    host->free(w->stacks);
    host->free(w->threads);
    host->free(w);
}

sim_worker *sim_worker_create(gpu_device *d) {
    const gpu_host *host = d->host;
    sim_worker *w = static_cast<sim_worker *>(host->alloc(sizeof *w));
    if (!w) return nullptr;
    memset(static_cast<void *>(w), 0, sizeof *w);
    w->device = d;
    w->threads = static_cast<block_thread *>(host->alloc(SIM_MAX_THREADS * sizeof *w->threads));
    w->stacks = static_cast<uint8_t *>(host->alloc(SIM_MAX_THREADS * (STACK_BYTES + STACK_SHIFT)));
    w->shared = static_cast<uint8_t *>(host->alloc(SHARED_BYTES));
    if (w->threads && w->stacks && w->shared) return w;
    sim_worker_free(w);
    return nullptr;
}
