/* kernel_bench.c: times the matrix kernels on one thread. Matvec is reported in GB/s of weights
 * read, next to a plain read of as many bytes; matmul in GOP/s (a multiply-add counts as two
 * operations). Times are medians of repeats; compare only figures of one run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "act.h"
#include "clock.h"
#include "kernel_case.h"
#include "kernel_tests.h"
#include "mem.h"

enum {
    BENCH_ROWS = 4096,
    BENCH_COLS = 4096,
    BENCH_MAX = 1 << 20,
    BENCH_VECTORS = 64, /* batch size of matmul */
    BENCH_REPEATS = 5
};

/* Benchmark `columns`: the rows stay in cache, as in the tiles of a prefill. */
enum { CROSS_ROWS = 256, CROSS_COLS = 4096, CROSS_REPEATS = 15, CROSS_VECTORS = 64 };
#define CROSS_SLOWER 1.05 /* time per vector over that of the best smaller number */

/* Seconds: a run is repeated until it has taken this long; a slower run is done once. */
#define BENCH_SECONDS 0.05

typedef struct bench {
    const cpu_kernels *k;
    cpu_mat w;
    cpu_act a;
    float *y;
    void *scratch;
    bool matmul;
} bench;

static void bench_once(const bench *b) {
    const cpu_mat_kernels *m = &b->k->mat[b->w.type];
    if (b->matmul)
        m->matmul(&b->w, 0, b->w.n_out, &b->a, b->y, b->w.n_out, b->scratch);
    else
        m->matvec(&b->w, 0, b->w.n_out, &b->a, b->y, b->w.n_out);
}

static void bench_read(const bench *b) {
    size_t n_bytes = b->w.row_bytes * (size_t)b->w.n_out & ~(size_t)63;
    volatile uint64_t sum = kernel_stream_read(b->w.data, n_bytes);
    (void)sum;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Returns the median seconds of one call. */
static double bench_time(void (*once)(const bench *), const bench *b) {
    double times[BENCH_REPEATS];
    once(b);
    for (int i = 0; i < BENCH_REPEATS; i++) {
        int n = 0;
        double start = clock_seconds(), now = start;
        for (; now - start < BENCH_SECONDS; n++) {
            once(b);
            now = clock_seconds();
        }
        times[i] = (now - start) / n;
        if (now - start > 10.0 * BENCH_SECONDS)
            return times[i]; /* a slow reference: once is enough */
    }
    qsort(times, BENCH_REPEATS, sizeof *times, by_value);
    return times[BENCH_REPEATS / 2];
}

static void encode(bench *b, const float *x, int64_t n_cols) {
    b->a = (cpu_act){b->k->mat[b->w.type].act, b->matmul ? CPU_ACT_PANELS : CPU_ACT_COLUMNS,
                     b->w.n_in, n_cols, NULL};
    b->a.data = kernel_aligned(cpu_act_bytes(b->a.kind, b->a.layout, b->a.n, n_cols));
    b->k->act_encode(x, b->w.n_in, 0, n_cols, &b->a);
}

static void bench_row(bench *b, const float *x) {
    double bytes = (double)b->w.row_bytes * (double)b->w.n_out;
    double ops = 2.0 * (double)b->w.n_in * (double)b->w.n_out * BENCH_VECTORS;
    b->matmul = false;
    encode(b, x, 1);
    double read = bench_time(bench_read, b), matvec = bench_time(bench_once, b);
    fenced_free(b->a.data);
    b->matmul = true;
    encode(b, x, BENCH_VECTORS);
    double matmul = bench_time(bench_once, b);
    fenced_free(b->a.data);
    printf("%-8s %-10s %10.2f %10.2f %10.1f\n", quant_find((uint32_t)b->w.type)->name, b->k->name,
           bytes / read * 1e-9, bytes / matvec * 1e-9, ops / matmul * 1e-9);
    fflush(stdout);
}

static bool bench_type(const kernel_tiers *tiers, quant_type type, int64_t rows, int64_t cols) {
    size_t row_bytes;
    if (!quant_row_bytes(type, (uint64_t)cols, &row_bytes)) return false;
    bench b = {.w = {NULL, row_bytes, cols, rows, type}};
    size_t w_bytes = row_bytes * (size_t)rows, n_x = (size_t)cols * BENCH_VECTORS;
    void *weights = mem_map(w_bytes);
    float *x = mem_alloc(n_x * sizeof *x);
    b.y = mem_alloc((size_t)rows * BENCH_VECTORS * sizeof *b.y);
    b.w.data = weights;
    if (weights == NULL || x == NULL || b.y == NULL) return false;
    rng r;
    rng_seed(&r, 31);
    /* Only one row is quantized; its copies take as long to read and compute. */
    cpu_mat first = b.w;
    first.n_out = 1;
    kernel_fill_weights(&first, KERNEL_NORMAL, &r);
    for (int64_t row = 1; row < rows; row++)
        memcpy((char *)weights + (size_t)row * row_bytes, weights, row_bytes);
    for (size_t i = 0; i < n_x; i++) x[i] = rng_normal(&r);
    b.scratch = kernel_aligned(CPU_SCRATCH_BYTES);
    for (int t = 0; t < tiers->n; t++) {
        b.k = &tiers->table[t];
        bench_row(&b, x);
    }
    fenced_free(b.scratch);
    mem_free(b.y);
    mem_free(x);
    mem_unmap(weights, w_bytes);
    return true;
}

/* ---- columns --------------------------------------------------------------------------------- */

/* Returns the seconds of one product, the best of the repeats, because other programs only slow it
 * down. */
static double time_columns(bench *b, int64_t n_cols) {
    double best = 1e30;
    b->a.layout = b->matmul ? CPU_ACT_PANELS : CPU_ACT_COLUMNS;
    b->a.n_cols = n_cols;
    for (int i = 0; i < CROSS_REPEATS; i++) {
        double start = clock_seconds();
        bench_once(b);
        double seconds = clock_seconds() - start;
        if (seconds < best) best = seconds;
    }
    return best;
}

/* Prints the rates of both products for several numbers of vectors, the number from which matmul is
 * faster, and the numbers of vectors that are slower per vector than a smaller number, with the
 * kernel that the engine uses for each. All values are zeros, since the values do not matter. */
static void cross_row(bench *b) {
    double seconds[2][CROSS_VECTORS + 1] = {{0}}, best = 1e30;
    const double ops = 2.0 * (double)b->w.n_in * (double)b->w.n_out * 1e-9;
    for (int matmul = 0; matmul < 2; matmul++) {
        b->matmul = matmul;
        for (int n = 1; n <= CPU_PANEL; n++) seconds[matmul][n] = time_columns(b, n);
    }
    for (int n = CPU_PANEL + 1; n <= CROSS_VECTORS; n++) seconds[1][n] = time_columns(b, n);
    int from = CPU_PANEL + 1;
    while (from > 1 && seconds[1][from - 1] <= seconds[0][from - 1]) from--;
    printf("%-8s %-20s", quant_find((uint32_t)b->w.type)->name, b->k->name);
    for (int n = 1; n <= 8; n *= 2) printf(" %6.1f", n * ops / seconds[0][n]);
    printf(" |");
    for (int n = 2; n <= CROSS_VECTORS; n *= n == 16 ? 4 : 2)
        printf(" %6.1f", n * ops / seconds[1][n]);
    if (from <= CPU_PANEL)
        printf(" %6d", from);
    else
        printf("  never");
    const int tiled = b->k->tiled[b->a.kind].from;
    for (int n = 1; n <= CROSS_VECTORS; n++) {
        double each = seconds[n >= tiled || n > CPU_PANEL][n] / n;
        if (each > CROSS_SLOWER * best) printf(" %d:%.0f%%", n, 100 * best / each);
        if (each < best) best = each;
    }
    printf("\n");
    fflush(stdout);
}

/* tier: name of the only tier, or NULL. */
static void cross_type(const kernel_tiers *tiers, quant_type type, const char *tier) {
    bench b = {.w = {NULL, 0, CROSS_COLS, CROSS_ROWS, type}};
    if (!quant_row_bytes(type, CROSS_COLS, &b.w.row_bytes)) return;
    void *weights = kernel_aligned(b.w.row_bytes * CROSS_ROWS);
    rng r;
    rng_seed(&r, 34);
    b.w.data = weights;
    kernel_fill_weights(&b.w, KERNEL_NORMAL, &r);
    b.y = mem_alloc(CROSS_ROWS * CROSS_VECTORS * sizeof *b.y);
    b.scratch = kernel_aligned(CPU_SCRATCH_BYTES);
    for (int t = 0; t < tiers->n && b.y != NULL; t++) {
        b.k = &tiers->table[t];
        if (tier != NULL && strcmp(b.k->name, tier) != 0) continue;
        b.a = (cpu_act){.kind = b.k->mat[type].act, .n = CROSS_COLS};
        size_t columns = cpu_act_bytes(b.a.kind, CPU_ACT_COLUMNS, CROSS_COLS, CROSS_VECTORS);
        size_t panels = cpu_act_bytes(b.a.kind, CPU_ACT_PANELS, CROSS_COLS, CROSS_VECTORS);
        size_t n_bytes = columns > panels ? columns : panels;
        b.a.data = kernel_aligned(n_bytes);
        memset(b.a.data, 0, n_bytes);
        cross_row(&b);
        fenced_free(b.a.data);
    }
    fenced_free(b.scratch);
    mem_free(b.y);
    fenced_free(weights);
}

int kernel_bench_columns(int argc, char **argv) {
    kernel_tiers tiers;
    kernel_tiers_load(&tiers);
    const quant_traits *only = argc > 0 ? quant_find_name(argv[0]) : NULL;
    bool all = argc == 0 || strcmp(argv[0], "all") == 0;
    if (!all && (only == NULL || tiers.table[0].mat[only->type].matvec == NULL)) {
        fprintf(stderr, "usage: test_kernel --bench columns [type|all] [tier]\n");
        return 2;
    }
    printf("%d rows of %d in cache, one thread, GOP/s by number of vectors; matmul wins from; "
           "numbers of vectors with a lower rate than a smaller number, and their share of it\n",
           CROSS_ROWS, CROSS_COLS);
    printf("%-8s %-20s %6s %6s %6s %6s | %6s %6s %6s %6s %6s %6s\n", "type", "tier", "matvec", "2",
           "4", "8", "matmul", "4", "8", "16", "64", "from");
    for (uint32_t type = 0; type < QUANT_TYPE_COUNT; type++)
        if (tiers.table[0].mat[type].matvec != NULL && (all || only->type == (quant_type)type))
            cross_type(&tiers, (quant_type)type, argc > 1 ? argv[1] : NULL);
    return 0;
}

int kernel_bench(int argc, char **argv) {
    kernel_tiers tiers;
    kernel_tiers_load(&tiers);
    const quant_traits *only = argc > 0 ? quant_find_name(argv[0]) : NULL;
    long rows = argc > 1 ? strtol(argv[1], NULL, 10) : BENCH_ROWS;
    long cols = argc > 2 ? strtol(argv[2], NULL, 10) : BENCH_COLS;
    bool all = argc == 0 || strcmp(argv[0], "all") == 0;
    if ((!all && (only == NULL || tiers.table[0].mat[only->type].matvec == NULL)) || rows < 1 ||
        cols < 1 || rows > BENCH_MAX || cols > BENCH_MAX) {
        fprintf(stderr, "usage: test_kernel --bench [type|all] [rows] [cols]\n");
        return 2;
    }
    printf("%ld rows of %ld, one thread, matmul with %d vectors\n", rows, cols, BENCH_VECTORS);
    printf("%-8s %-10s %10s %10s %10s\n", "type", "tier", "read GB/s", "vec GB/s", "mul GOP/s");
    for (uint32_t type = 0; type < QUANT_TYPE_COUNT; type++) {
        if (tiers.table[0].mat[type].matvec == NULL || (!all && only->type != (quant_type)type))
            continue;
        if (!bench_type(&tiers, (quant_type)type, rows, cols)) {
            fprintf(stderr, "%s: rows cannot have %ld elements, or not enough memory\n",
                    quant_find(type)->name, cols);
            return 1;
        }
    }
    return 0;
}
