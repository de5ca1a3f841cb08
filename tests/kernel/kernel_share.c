/* kernel_share.c: measures how close products come to their limits, per type and tier. Matvec: two
 * threads multiply a vector by a matrix many times larger than the last-level cache, split into
 * layers of a 7B model's shape; the product alternates with a plain read of the same bytes, and the
 * share of read bandwidth is the median over all repeats. Matmul: one thread multiplies such a
 * layer by many vectors and alternates with Q4_0; the thread's CPU time counts, the best of all
 * repeats. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "act.h"
#include "clock.h"
#include "kernel_case.h"
#include "kernel_tests.h"
#include "mem.h"
#include "pool.h"

enum {
    SHARE_ROWS = 11008, /* rows of a layer: gate or up of llama-7b */
    SHARE_N_IN = 4096,
    SHARE_MB = 512,
    SHARE_THREADS = 2,
    SHARE_TURNS = 15,
    SHARE_VECTORS = 128, /* batch size of matmul */
    SHARE_MUL_ROWS = 512,
    SHARE_MUL_TURNS = 7,
    LINE = 64
};

typedef struct share {
    const cpu_kernels *k;
    cpu_mat layer; /* the first; the others follow it */
    int64_t n_layers;
    cpu_act a;
    float *y; /* [SHARE_ROWS], or [SHARE_VECTORS][SHARE_MUL_ROWS] */
    const float *x;
    uint64_t sum[SHARE_THREADS];
    bool read;
} share;

static void share_pass(void *arg, int ith, int nth) {
    share *s = arg;
    uint64_t sum = 0;
    for (int64_t l = 0; l < s->n_layers; l++) {
        cpu_mat w = s->layer;
        w.data = (const char *)w.data + (size_t)(l * w.n_out) * w.row_bytes;
        int64_t from = w.n_out * ith / nth, to = w.n_out * (ith + 1) / nth;
        if (s->read) {
            size_t at = act_pad64((size_t)from * w.row_bytes), end = (size_t)to * w.row_bytes;
            sum += kernel_stream_read((const char *)w.data + at, (end - at) & ~(size_t)(LINE - 1));
        } else {
            s->k->mat[w.type].matvec(&w, from, to, &s->a, s->y, w.n_out);
        }
    }
    s->sum[ith] = sum;
}

static double share_seconds(share *s, pool *p, bool read) {
    s->read = read;
    double start = clock_seconds();
    pool_run(p, SHARE_THREADS, share_pass, s);
    return clock_seconds() - start;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, size_t n) {
    qsort(v, n, sizeof *v, by_value);
    return v[n / 2];
}

static void share_encode(share *s, cpu_act_layout layout, int64_t n_cols) {
    cpu_act_kind kind = s->k->mat[s->layer.type].act;
    size_t n_bytes = cpu_act_bytes(kind, layout, SHARE_N_IN, n_cols);
    s->a = (cpu_act){kind, layout, SHARE_N_IN, n_cols, kernel_aligned(n_bytes)};
    s->k->act_encode(s->x, SHARE_N_IN, 0, n_cols, &s->a);
}

/* Stores the GB/s of read and product, and the share. Each product runs between two reads and is
 * compared with their mean, because the machine's speed may drift. */
static void share_matvec(share *s, pool *p, double result[3]) {
    double read[SHARE_TURNS + 1], product[SHARE_TURNS], part[SHARE_TURNS];
    share_encode(s, CPU_ACT_COLUMNS, 1);
    share_seconds(s, p, false);
    read[0] = share_seconds(s, p, true);
    for (int i = 0; i < SHARE_TURNS; i++) {
        product[i] = share_seconds(s, p, false);
        read[i + 1] = share_seconds(s, p, true);
        part[i] = 0.5 * (read[i] + read[i + 1]) / product[i];
    }
    double bytes = (double)(s->n_layers * s->layer.n_out) * (double)s->layer.row_bytes * 1e-9;
    result[0] = bytes / median(read, SHARE_TURNS + 1);
    result[1] = bytes / median(product, SHARE_TURNS);
    result[2] = median(part, SHARE_TURNS);
    fenced_free(s->a.data);
}

static double share_matmul_seconds(share *s, void *scratch) {
    struct timespec from, to;
    cpu_mat w = s->layer;
    w.n_out = SHARE_MUL_ROWS;
    share_encode(s, CPU_ACT_PANELS, SHARE_VECTORS);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
    s->k->mat[w.type].matmul(&w, 0, w.n_out, &s->a, s->y, w.n_out, scratch);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
    fenced_free(s->a.data);
    return (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) * 1e-9;
}

/* Returns the time of the type's matmul divided by the time of Q4_0's. */
static double share_matmul(share *s, share *q4_0) {
    double best[2] = {0.0, 0.0};
    void *scratch = kernel_aligned(CPU_SCRATCH_BYTES);
    q4_0->k = s->k;
    for (int i = 0; i < SHARE_MUL_TURNS; i++)
        for (int j = 0; j < 2; j++) {
            double seconds = share_matmul_seconds(j == 0 ? s : q4_0, scratch);
            if (best[j] == 0.0 || seconds < best[j]) best[j] = seconds;
        }
    fenced_free(scratch);
    return best[0] / best[1];
}

/* Makes n_layers layers whose rows are all equal; they take as long to read and compute as any
 * others. data is NULL when there is not enough memory. */
static share share_layers(quant_type type, size_t mb, int64_t rows, const float *x, float *y) {
    share s = {.layer = {NULL, 0, SHARE_N_IN, rows, type}, .x = x, .y = y};
    if (!quant_row_bytes(type, SHARE_N_IN, &s.layer.row_bytes)) return s;
    size_t row = s.layer.row_bytes;
    s.n_layers = (int64_t)((mb << 20) / (row * (size_t)rows)) + 1;
    size_t n_bytes = (size_t)(s.n_layers * rows) * row;
    char *weights = mem_map(n_bytes);
    s.layer.data = weights;
    if (weights == NULL) return s;
    rng r;
    rng_seed(&r, 51);
    cpu_mat first = s.layer;
    first.n_out = 1;
    kernel_fill_weights(&first, KERNEL_NORMAL, &r);
    for (size_t at = row; at < n_bytes; at += row) memcpy(weights + at, weights, row);
    return s;
}

static void share_free(share *s) {
    if (s->layer.data == NULL) return;
    mem_unmap((void *)(uintptr_t)s->layer.data,
              (size_t)(s->n_layers * s->layer.n_out) * s->layer.row_bytes);
}

static bool share_type(const kernel_tiers *tiers, const char *tier, pool *p, quant_type type,
                       const float *x, float *y) {
    share s = share_layers(type, SHARE_MB, SHARE_ROWS, x, y);
    share q4_0 = share_layers(QUANT_Q4_0, 0, SHARE_MUL_ROWS, x, y);
    bool ok = s.layer.data != NULL && q4_0.layer.data != NULL;
    for (int t = CPU_TIER_REFERENCE; t < tiers->n && ok; t++) { /* without scalar and reference */
        double result[3];
        s.k = &tiers->table[t];
        if (tier != NULL && strcmp(tier, s.k->name) != 0) continue;
        share_matvec(&s, p, result);
        printf("%-7s %-20s %8.2f %8.2f %6.3f", quant_find((uint32_t)type)->name, s.k->name,
               result[0], result[1], result[2]);
        printf(" %10.2f\n", share_matmul(&s, &q4_0));
        fflush(stdout);
    }
    share_free(&s);
    share_free(&q4_0);
    return ok;
}

int kernel_share(int argc, char **argv) {
    kernel_tiers tiers;
    kernel_tiers_load(&tiers);
    const quant_traits *only = argc > 0 ? quant_find_name(argv[0]) : NULL;
    const char *tier = argc > 1 ? argv[1] : NULL;
    bool all = argc == 0 || strcmp(argv[0], "all") == 0;
    pool *p = NULL;
    pi_error err;
    if ((!all && (only == NULL || tiers.table[0].mat[only->type].matvec == NULL)) ||
        pool_create(SHARE_THREADS, &p, &err) != PI_OK) {
        fprintf(stderr, "usage: test_kernel --bench share [type|all] [tier]\n");
        return 2;
    }
    float *x = mem_alloc((size_t)SHARE_N_IN * SHARE_VECTORS * sizeof *x);
    float *y = mem_alloc((size_t)SHARE_ROWS * SHARE_VECTORS * sizeof *y);
    bool ok = x != NULL && y != NULL;
    rng r;
    rng_seed(&r, 52);
    for (int64_t i = 0; ok && i < (int64_t)SHARE_N_IN * SHARE_VECTORS; i++) x[i] = rng_normal(&r);
    printf("%d threads, layers of %d rows of %d; matmul with %d vectors on one thread\n",
           SHARE_THREADS, SHARE_ROWS, SHARE_N_IN, SHARE_VECTORS);
    printf("type    tier                 read GB/s vec GB/s share  mul / Q4_0\n");
    for (uint32_t type = 0; type < QUANT_TYPE_COUNT && ok; type++) {
        if (tiers.table[0].mat[type].matvec == NULL || (!all && only->type != (quant_type)type))
            continue;
        ok = share_type(&tiers, tier, p, (quant_type)type, x, y);
    }
    if (!ok) fprintf(stderr, "not enough memory\n");
    mem_free(x);
    mem_free(y);
    pool_destroy(p);
    return ok ? 0 : 1;
}
