/* kernel_bench_axpy.c: times the kernels for matrices with one row per neuron.
 *
 * axpy_rows: GB/s of selected rows, next to a plain read of these rows (one word of each cache
 * line, four rows at once, the next four prefetched), by one thread and by two that share the list,
 * from huge and from small pages. The matrices of a pool far larger than any cache are used in
 * turn, each time with a new list, so that no row is in a cache. A thread's time is its CPU time;
 * the best of all repeats counts, because other programs only slow it down. matmul_t: GFLOP/s next
 * to matmul of the same shape, in turn, best of repeats. Compare only figures of one run. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include <cmocka.h>

#include "act.h"
#include "kernel_case.h"
#include "kernel_tests.h"
#include "mem.h"

enum {
    AXPY_ROWS = 14336,
    AXPY_COLS = 4096,
    AXPY_REPEATS = 25,
    AXPY_THREADS = 2,
    MUL_VECTORS = 128,
    MUL_REPEATS = 3,
    LINE = 64
};

#define AXPY_DENSITY 0.1
#define AXPY_POOL    ((size_t)1 << 30) /* bytes */

typedef struct pool {
    char *data;
    size_t n_bytes;
    cpu_mat w; /* the first matrix */
    int64_t n_mats;
    int32_t *rows; /* the list in use */
    float *h;
    int64_t n_rows;
} pool;

typedef struct job {
    const pool *p;
    const cpu_kernels *k; /* NULL: the plain read */
    int64_t mat, first, n;
    float *acc;
    uint64_t sum;
    double seconds;
    pthread_barrier_t *start;
} job;

static const char *row_at(const pool *p, int64_t mat, int64_t row) {
    return p->data + (size_t)(mat * p->w.n_out + row) * p->w.row_bytes;
}

/* Reads the rows of a job, four at a time, and prefetches the lines of the next four. */
static uint64_t read_rows(const job *j) {
    enum { AT_ONCE = 4 };
    const pool *p = j->p;
    uint64_t sum = 0;
    for (int64_t i = 0; i < j->n; i += AT_ONCE) {
        const char *now[AT_ONCE], *next[AT_ONCE];
        for (int64_t r = 0; r < AT_ONCE; r++) {
            int64_t last = j->n - 1, at = i + r < last ? i + r : last;
            int64_t then = at + AT_ONCE < last ? at + AT_ONCE : last;
            now[r] = row_at(p, j->mat, p->rows[j->first + at]);
            next[r] = row_at(p, j->mat, p->rows[j->first + then]);
        }
        for (size_t b = 0; b + sizeof sum <= p->w.row_bytes; b += LINE)
            for (int r = 0; r < AT_ONCE; r++) {
                uint64_t word;
                memcpy(&word, now[r] + b, sizeof word);
                __builtin_prefetch(next[r] + b, 0, 3);
                sum += word;
            }
    }
    return sum;
}

static double thread_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *job_run(void *arg) {
    job *j = arg;
    if (j->start) pthread_barrier_wait(j->start);
    double begin = thread_seconds();
    if (j->k == NULL) {
        j->sum = read_rows(j);
    } else {
        cpu_mat w = j->p->w;
        w.data = row_at(j->p, j->mat, 0);
        j->k->mat_t[w.type].axpy_rows(&w, j->p->rows + j->first, j->n, j->p->h + j->first, j->n, 1,
                                      j->acc, w.n_in);
    }
    j->seconds = thread_seconds() - begin;
    return NULL;
}

/* Makes a new list: each row is selected with the same probability. */
static void choose(pool *p, rng *r) {
    p->n_rows = 0;
    for (int64_t i = 0; i < p->w.n_out; i++) {
        if (rng_uniform(r) >= AXPY_DENSITY) continue;
        p->h[p->n_rows] = rng_normal(r);
        p->rows[p->n_rows++] = (int32_t)i;
    }
}

/* Returns GB/s for one list, the sum over n_threads. */
static double run_once(const pool *p, const cpu_kernels *k, int64_t mat, int n_threads,
                       float *acc[AXPY_THREADS]) {
    pthread_barrier_t start;
    pthread_t thread[AXPY_THREADS];
    job jobs[AXPY_THREADS];
    pthread_barrier_init(&start, NULL, (unsigned)n_threads);
    for (int t = 0; t < n_threads; t++) {
        int64_t first = p->n_rows * t / n_threads, last = p->n_rows * (t + 1) / n_threads;
        jobs[t] = (job){p, k, mat, first, last - first, acc[t], 0, 0.0, &start};
        if (t > 0 && pthread_create(&thread[t], NULL, job_run, &jobs[t]) != 0) abort();
    }
    job_run(&jobs[0]);
    for (int t = 1; t < n_threads; t++) pthread_join(thread[t], NULL);
    pthread_barrier_destroy(&start);
    double rate = 0.0;
    for (int t = 0; t < n_threads; t++)
        rate += (double)jobs[t].n * (double)p->w.row_bytes / jobs[t].seconds * 1e-9;
    return rate;
}

/* Times the plain read and all tiers in turn, each on a new list. */
static void bench_pool(const kernel_tiers *tiers, pool *p, const char *pages, int n_threads,
                       float *acc[AXPY_THREADS], rng *r) {
    double best[1 + CPU_TIER_COUNT + KERNEL_VARIANTS] = {0}; /* [0]: the read */
    int64_t mat = 0;
    for (int i = 0; i < AXPY_REPEATS; i++) {
        for (int t = 0; t <= tiers->n; t++) {
            const cpu_kernels *k = t > 0 ? &tiers->table[t - 1] : NULL;
            if (k != NULL && k->tier <= CPU_TIER_REFERENCE && i > 0) continue; /* slow */
            choose(p, r);
            double rate = run_once(p, k, mat++ % p->n_mats, n_threads, acc);
            if (rate > best[t]) best[t] = rate;
        }
    }
    for (int t = 1; t <= tiers->n; t++) {
        const cpu_kernels *k = &tiers->table[t - 1];
        if (k->tier == CPU_TIER_REFERENCE) continue; /* same kernels as scalar */
        printf("%-8s %-6s %8d %-20s %10.2f %10.2f %8.1f%%\n", quant_find((uint32_t)p->w.type)->name,
               pages, n_threads, k->name, best[0], best[t], 100.0 * best[t] / best[0]);
    }
    fflush(stdout);
}

static bool bench_axpy(const kernel_tiers *tiers, quant_type type, int64_t rows, int64_t cols) {
    pool p = {.w = {NULL, 0, cols, rows, type}};
    if (!quant_row_bytes(type, (uint64_t)cols, &p.w.row_bytes)) return false;
    size_t mat_bytes = p.w.row_bytes * (size_t)rows;
    p.n_mats = mat_bytes < AXPY_POOL ? (int64_t)(AXPY_POOL / mat_bytes) : 1;
    p.n_bytes = (size_t)p.n_mats * mat_bytes;
    p.rows = mem_alloc((size_t)rows * sizeof *p.rows);
    p.h = mem_alloc((size_t)rows * sizeof *p.h);
    float *acc[AXPY_THREADS];
    for (int t = 0; t < AXPY_THREADS; t++) {
        acc[t] = kernel_aligned(act_pad64((size_t)cols * sizeof(float)));
        memset(acc[t], 0, (size_t)cols * sizeof(float));
    }
    if (p.rows == NULL || p.h == NULL) return false;
    rng r;
    rng_seed(&r, 32);
    for (int huge = 1; huge >= 0; huge--) {
        p.data = mmap(NULL, p.n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p.data == MAP_FAILED) return false;
        (void)madvise(p.data, p.n_bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
        /* Only one row is quantized; its copies take as long to read and compute. */
        cpu_mat first = p.w;
        first.data = p.data;
        first.n_out = 1;
        kernel_fill_weights(&first, KERNEL_NORMAL, &r);
        for (int64_t row = 1; row < rows * p.n_mats; row++)
            memcpy(p.data + (size_t)row * p.w.row_bytes, p.data, p.w.row_bytes);
        for (int n_threads = 1; n_threads <= AXPY_THREADS; n_threads++)
            bench_pool(tiers, &p, huge ? "huge" : "small", n_threads, acc, &r);
        munmap(p.data, p.n_bytes);
    }
    for (int t = 0; t < AXPY_THREADS; t++) fenced_free(acc[t]);
    mem_free(p.rows);
    mem_free(p.h);
    return true;
}

/* ---- matmul_t -------------------------------------------------------------------------------- */

typedef struct product {
    cpu_mat w; /* [n_in, n_out] */
    cpu_act a;
    float *y, *x;
    void *scratch;
} product;

/* Returns the seconds of one product by the tier's matmul_t (or matmul, with n_in and n_out
 * exchanged). */
static double time_product(const cpu_kernels *k, product *p, bool transposed) {
    const cpu_mat_kernels *m = &k->mat[p->w.type];
    const cpu_mat_t_kernels *mt = &k->mat_t[p->w.type];
    int64_t n = transposed ? p->w.n_out : p->w.n_in;
    p->a = (cpu_act){transposed ? mt->act : m->act, CPU_ACT_PANELS, n, MUL_VECTORS, NULL};
    p->a.data = kernel_aligned(cpu_act_bytes(p->a.kind, p->a.layout, n, MUL_VECTORS));
    k->act_encode(p->x, n, 0, MUL_VECTORS, &p->a);
    double begin = thread_seconds();
    if (transposed)
        mt->matmul_t(&p->w, 0, p->w.n_in, &p->a, p->y, p->w.n_in, p->scratch);
    else
        m->matmul(&p->w, 0, p->w.n_out, &p->a, p->y, p->w.n_out, p->scratch);
    double seconds = thread_seconds() - begin;
    fenced_free(p->a.data);
    return seconds;
}

/* Times matmul with rows of n_ff against matmul_t with as many weights in rows of n_embd. */
static bool bench_matmul_t(const kernel_tiers *tiers, quant_type type, int64_t n_ff,
                           int64_t n_embd) {
    size_t long_bytes, short_bytes;
    if (!quant_row_bytes(type, (uint64_t)n_ff, &long_bytes)) return false;
    if (!quant_row_bytes(type, (uint64_t)n_embd, &short_bytes)) return false;
    size_t n_bytes = long_bytes * (size_t)n_embd;
    void *data = mem_map(n_bytes);
    product straight = {.w = {data, long_bytes, n_ff, n_embd, type}};
    product across = {.w = {data, short_bytes, n_embd, n_ff, type}};
    straight.x = across.x = mem_alloc((size_t)n_ff * MUL_VECTORS * sizeof(float));
    straight.y = across.y = mem_alloc((size_t)n_embd * MUL_VECTORS * sizeof(float));
    if (data == NULL || straight.x == NULL || straight.y == NULL) return false;
    rng r;
    rng_seed(&r, 33);
    cpu_mat first = across.w;
    first.n_out = 1;
    kernel_fill_weights(&first, KERNEL_NORMAL, &r);
    for (size_t at = short_bytes; at + short_bytes <= n_bytes; at += short_bytes)
        memcpy((char *)data + at, data, short_bytes);
    for (int64_t i = 0; i < n_ff * MUL_VECTORS; i++) across.x[i] = rng_normal(&r);
    straight.scratch = kernel_aligned(CPU_SCRATCH_BYTES);
    across.scratch = kernel_aligned(CPU_SCRATCH_BYTES);
    double ops = 2.0 * (double)n_ff * (double)n_embd * MUL_VECTORS;
    for (int t = 0; t < tiers->n; t++) {
        const cpu_kernels *k = &tiers->table[t];
        double a = 0.0, b = 0.0;
        if (k->tier <= CPU_TIER_REFERENCE) continue; /* minutes */
        for (int i = 0; i < MUL_REPEATS; i++) {
            double mul = ops / time_product(k, &straight, false) * 1e-9;
            double mul_t = ops / time_product(k, &across, true) * 1e-9;
            if (mul > a) a = mul;
            if (mul_t > b) b = mul_t;
        }
        printf("%-8s %-20s %10.1f %10.1f %8.2f\n", quant_find((uint32_t)type)->name, k->name, a, b,
               a / b);
        fflush(stdout);
    }
    fenced_free(straight.scratch);
    fenced_free(across.scratch);
    mem_free(straight.x);
    mem_free(straight.y);
    mem_unmap(data, n_bytes);
    return true;
}

int kernel_bench_mat_t(int argc, char **argv) {
    kernel_tiers tiers;
    kernel_tiers_load(&tiers);
    bool matmul_t = argc > 0 && strcmp(argv[0], "matmul_t") == 0;
    const quant_traits *only = argc > 1 ? quant_find_name(argv[1]) : NULL;
    int64_t rows = argc > 2 ? strtol(argv[2], NULL, 10) : AXPY_ROWS;
    int64_t cols = argc > 3 ? strtol(argv[3], NULL, 10) : AXPY_COLS;
    bool all = argc <= 1 || strcmp(argv[1], "all") == 0;
    if ((!all && only == NULL) || rows < 1 || cols < 1 || rows > 1 << 20 || cols > 1 << 20) {
        fprintf(stderr, "usage: test_kernel --bench axpy|matmul_t [type|all] [rows] [cols]\n");
        return 2;
    }
    if (matmul_t) {
        printf("%d rows of %d, %d vectors, one thread\n", (int)rows, (int)cols, MUL_VECTORS);
        printf("%-8s %-20s %10s %10s %8s\n", "type", "tier", "mul GOP/s", "mul_t", "times");
    } else {
        printf("%d rows of %d, density %.2f, one column\n", (int)rows, (int)cols, AXPY_DENSITY);
        printf("%-8s %-6s %8s %-20s %10s %10s %9s\n", "type", "pages", "threads", "tier",
               "read GB/s", "axpy GB/s", "share");
    }
    for (uint32_t type = 0; type < QUANT_TYPE_COUNT; type++) {
        if (tiers.table[0].mat_t[type].axpy_rows == NULL) continue;
        if (!all && only->type != (quant_type)type) continue;
        if (!(matmul_t ? bench_matmul_t : bench_axpy)(&tiers, (quant_type)type, rows, cols)) {
            fprintf(stderr, "%s: unsupported length of rows, or not enough memory\n",
                    quant_find(type)->name);
            return 1;
        }
    }
    return 0;
}
