/* kernel_gather.c: times products of weights in memory: selected rows, and all rows. A matrix is
 * split into layers of GATHER_LAYER rows. A run takes an ascending list of rows from each layer
 * (each row with the same probability); each thread takes a part of the list. The baseline for
 * selected rows is a pure read of these rows, one word of every cache line; the baseline for matvec
 * is kernel_stream_read. Product and baseline run in turn. A thread's time for a layer is its CPU
 * time, the best of all repeats, because other programs only slow it down. */
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
#include "pool.h"

enum {
    GATHER_LAYER = 14336, /* rows */
    GATHER_N_IN = 4096,
    GATHER_MB = 768, /* many times the last cache */
    GATHER_THREADS = 2,
    GATHER_REPEATS = 9,
    LAYERS_MAX = 4096, /* enough for the smallest rows */
    LINE = 64
};

typedef enum job { JOB_READ_ROWS, JOB_ROWS, JOB_STREAM, JOB_DENSE, JOB_COUNT } job;

typedef struct gather {
    const cpu_kernels *k;
    cpu_mat layer; /* the first; the others follow it */
    int64_t n_layers;
    int32_t *lists; /* [n_layers][GATHER_LAYER] */
    int64_t *counts;
    cpu_act a;
    float *y; /* [GATHER_LAYER] */
    uint64_t sum[GATHER_THREADS];
    job job;
    double (*best)[GATHER_THREADS][LAYERS_MAX]; /* [JOB_COUNT], seconds */
} gather;

static double thread_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Reads one word of each line of the rows and prefetches the lines of the row after next. */
static uint64_t read_rows(const cpu_mat *w, const int32_t *rows, int64_t n) {
    uint64_t sum = 0;
    const int64_t row_bytes = (int64_t)w->row_bytes, lead = 2;
    for (int64_t i = 0; i < n; i++) {
        const char *row = (const char *)w->data + rows[i] * row_bytes;
        const char *next = (const char *)w->data + rows[i + lead < n ? i + lead : i] * row_bytes;
        for (int64_t at = 0; at < row_bytes; at += LINE) {
            uint64_t word;
            __builtin_prefetch(next + at, 0, 3);
            memcpy(&word, row + (at + 8 <= row_bytes ? at : row_bytes - 8), sizeof word);
            sum += word;
        }
    }
    return sum;
}

static void gather_pass(void *arg, int ith, int nth) {
    gather *g = arg;
    const cpu_mat_kernels *m = &g->k->mat[g->layer.type];
    uint64_t sum = 0;
    for (int64_t l = 0; l < g->n_layers; l++) {
        cpu_mat w = g->layer;
        w.data = (const char *)w.data + (size_t)(l * w.n_out) * w.row_bytes;
        bool dense = g->job == JOB_STREAM || g->job == JOB_DENSE;
        int64_t n = dense ? w.n_out : g->counts[l];
        int64_t from = n * ith / nth, to = n * (ith + 1) / nth;
        const int32_t *rows = g->lists + l * GATHER_LAYER + from;
        size_t at = (size_t)from * w.row_bytes, end = (size_t)to * w.row_bytes;
        double start = thread_seconds();
        if (g->job == JOB_READ_ROWS)
            sum += read_rows(&w, rows, to - from);
        else if (g->job == JOB_ROWS)
            m->matvec_rows(&w, rows, to - from, &g->a, g->y + from, GATHER_LAYER);
        else if (g->job == JOB_DENSE)
            m->matvec(&w, from, to, &g->a, g->y, GATHER_LAYER);
        else
            sum += kernel_stream_read((const char *)w.data + act_pad64(at),
                                      (end - act_pad64(at)) & ~(size_t)(LINE - 1));
        double seconds = thread_seconds() - start, *best = &g->best[g->job][ith][l];
        if (*best == 0.0 || seconds < *best) *best = seconds;
    }
    g->sum[ith] = sum;
}

/* Returns the seconds of the slowest thread. */
static double gather_seconds(const gather *g, job j, int threads) {
    double slowest = 0.0;
    for (int t = 0; t < threads; t++) {
        double sum = 0.0;
        for (int64_t l = 0; l < g->n_layers; l++) sum += g->best[j][t][l];
        if (sum > slowest) slowest = sum;
    }
    return slowest;
}

static void gather_compare(gather *g, pool *p, int threads, const char *pages) {
    double time[JOB_COUNT];
    int64_t chosen = 0;
    for (int64_t l = 0; l < g->n_layers; l++) chosen += g->counts[l];
    memset(g->best, 0, JOB_COUNT * sizeof *g->best);
    for (int i = 0; i < GATHER_REPEATS; i++)
        for (int j = 0; j < JOB_COUNT; j++) {
            if (j >= JOB_STREAM && i >= GATHER_REPEATS / 3) continue; /* these take longer */
            g->job = (job)j;
            pool_run(p, threads, gather_pass, g);
        }
    for (int j = 0; j < JOB_COUNT; j++) time[j] = gather_seconds(g, (job)j, threads);
    double row = (double)g->layer.row_bytes * 1e-9, rows = (double)chosen * row;
    double all = (double)(g->n_layers * g->layer.n_out) * row;
    printf("%-7s %-18s %-5s %d %8.2f %8.2f %6.3f %8.2f %8.2f %6.3f\n",
           quant_find((uint32_t)g->layer.type)->name, g->k->name, pages, threads,
           rows / time[JOB_READ_ROWS], rows / time[JOB_ROWS], time[JOB_READ_ROWS] / time[JOB_ROWS],
           all / time[JOB_STREAM], all / time[JOB_DENSE], time[JOB_STREAM] / time[JOB_DENSE]);
    fflush(stdout);
}

static bool gather_tiers(gather *g, const kernel_tiers *tiers, pool *p, const float *x, bool huge) {
    size_t n_bytes = (size_t)(g->n_layers * GATHER_LAYER) * g->layer.row_bytes;
    char *weights = mem_map(n_bytes);
    if (weights == NULL) return false;
    if (!huge) (void)madvise(weights, n_bytes, MADV_NOHUGEPAGE);
    rng r;
    rng_seed(&r, 41);
    g->layer.data = weights;
    cpu_mat first = g->layer;
    first.n_out = 1;
    kernel_fill_weights(&first, KERNEL_NORMAL, &r);
    for (size_t at = first.row_bytes; at < n_bytes; at += first.row_bytes)
        memcpy(weights + at, weights, first.row_bytes);
    for (int t = CPU_TIER_REFERENCE; t < tiers->n; t++) { /* without scalar and reference */
        g->k = &tiers->table[t];
        cpu_act_kind kind = g->k->mat[g->layer.type].act;
        size_t act_bytes = cpu_act_bytes(kind, CPU_ACT_COLUMNS, g->layer.n_in, 1);
        g->a = (cpu_act){kind, CPU_ACT_COLUMNS, g->layer.n_in, 1, kernel_aligned(act_bytes)};
        g->k->act_encode(x, g->layer.n_in, 0, 1, &g->a);
        for (int threads = 1; threads <= GATHER_THREADS; threads++)
            gather_compare(g, p, threads, huge ? "huge" : "small");
        fenced_free(g->a.data);
    }
    mem_unmap(weights, n_bytes);
    return true;
}

static bool gather_type(const kernel_tiers *tiers, pool *p, quant_type type, int64_t n_in,
                        double density) {
    gather g = {.layer = {NULL, 0, n_in, GATHER_LAYER, type}};
    if (!quant_row_bytes(type, (uint64_t)n_in, &g.layer.row_bytes)) return false;
    size_t layer_bytes = g.layer.row_bytes * GATHER_LAYER;
    g.n_layers = (int64_t)(((size_t)GATHER_MB << 20) / layer_bytes) + 1;
    size_t n_lists = (size_t)g.n_layers * GATHER_LAYER;
    g.lists = mem_alloc(n_lists * sizeof *g.lists);
    g.counts = mem_calloc((size_t)g.n_layers, sizeof *g.counts);
    g.y = mem_alloc(GATHER_LAYER * sizeof *g.y);
    g.best = mem_alloc(JOB_COUNT * sizeof *g.best);
    float *x = mem_alloc((size_t)n_in * sizeof *x);
    bool ok = g.n_layers <= LAYERS_MAX && g.best != NULL && g.lists != NULL && g.counts != NULL &&
              g.y != NULL && x != NULL;
    rng r;
    rng_seed(&r, 42);
    for (int64_t i = 0; ok && i < n_in; i++) x[i] = rng_normal(&r);
    for (int64_t l = 0; ok && l < g.n_layers; l++)
        for (int32_t row = 0; row < GATHER_LAYER; row++)
            if ((double)(rng_u64(&r) >> 11) * 0x1p-53 < density)
                g.lists[l * GATHER_LAYER + g.counts[l]++] = row;
    for (int huge = 1; huge >= 0 && ok; huge--) ok = gather_tiers(&g, tiers, p, x, huge);
    mem_free(g.lists);
    mem_free(g.counts);
    mem_free(g.y);
    mem_free(g.best);
    mem_free(x);
    return ok;
}

int kernel_gather(int argc, char **argv) {
    kernel_tiers tiers;
    kernel_tiers_load(&tiers);
    const quant_traits *only = argc > 0 ? quant_find_name(argv[0]) : NULL;
    long n_in = argc > 1 ? strtol(argv[1], NULL, 10) : GATHER_N_IN;
    double density = argc > 2 ? strtod(argv[2], NULL) : 0.1;
    bool all = argc == 0 || strcmp(argv[0], "all") == 0;
    pool *p = NULL;
    pi_error err;
    if ((!all && (only == NULL || tiers.table[0].mat[only->type].matvec == NULL)) || n_in < 1 ||
        n_in > 1 << 20 || !(density > 0.0 && density <= 1.0) ||
        pool_create(GATHER_THREADS, &p, &err) != PI_OK) {
        fprintf(stderr,
                "usage: test_kernel --bench gather [type|all] [elements of a row] [density]\n");
        return 2;
    }
    printf("rows of %ld, density %g, layers of %d rows; GB/s, best of %d\n", n_in, density,
           GATHER_LAYER, GATHER_REPEATS);
    printf(
        "type    tier               pages T     read     rows  share   stream    dense  share\n");
    int status = 0;
    for (uint32_t type = 0; type < QUANT_TYPE_COUNT && status == 0; type++) {
        if (tiers.table[0].mat[type].matvec == NULL || (!all && only->type != (quant_type)type))
            continue;
        if (gather_type(&tiers, p, (quant_type)type, n_in, density)) continue;
        fprintf(stderr, "%s: rows cannot have %ld elements, or not enough memory\n",
                quant_find(type)->name, n_in);
        status = 1;
    }
    pool_destroy(p);
    return status;
}
