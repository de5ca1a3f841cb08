/* kernel_case.h: shared by the kernel tests: the tiers of this machine, and one product y = W x
 * with buffers of exactly the size that the kernels may touch.
 *
 * Weights start at an address that is 2 modulo 4. All buffers end at a page without access
 * (fenced.h), so that a read beyond the end ends the test in every tier. y has guard values between
 * its columns. */
#ifndef TEST_KERNEL_CASE_H
#define TEST_KERNEL_CASE_H

#include <stdbool.h>
#include <stdint.h>

#include "cpu.h"
#include "fenced.h"
#include "rng.h"

/* Marks elements of y that no kernel may write. */
#define KERNEL_GUARD 12345.75f

/* Emulators and sanitizers are 10 to 30 times slower. There every type and tier still runs, but
 * with every fifth size, every fifth type of large matrices, and fewer columns in tests about
 * rows. */
#ifdef TEST_SAMPLED
enum { KERNEL_SAMPLED = 1, KERNEL_STEP = 5 };
#else
enum { KERNEL_SAMPLED = 0, KERNEL_STEP = 1 };
#endif

enum { KERNEL_VARIANTS = 3 }; /* tables without an optional unit that this CPU has */

typedef struct kernel_tiers {
    /* [n], scalar first, then reference */
    cpu_kernels table[CPU_TIER_COUNT + KERNEL_VARIANTS];
    int n;
} kernel_tiers;

void kernel_tiers_load(kernel_tiers *tiers);

typedef enum kernel_fill {
    KERNEL_NORMAL, /* normally distributed weights, quantized */
    KERNEL_BITS    /* random bytes whose values are all finite */
} kernel_fill;

typedef struct kernel_shape {
    quant_type type;
    int64_t n_in, n_out, n_cols, ldy;
} kernel_shape;

typedef struct kernel_case {
    cpu_mat w;
    char *w_base; /* w.data - 2 */
    float *x;     /* [n_cols][ldx] */
    int64_t ldx, n_cols, ldy;
    float *y; /* n_cols * ldy - (ldy - n_out) floats */
    size_t n_y;
    void *scratch;
} kernel_case;

void kernel_case_make(kernel_case *c, const kernel_shape *shape, kernel_fill fill, rng *r);
void kernel_case_free(kernel_case *c);
void kernel_fill_weights(const cpu_mat *w, kernel_fill fill, rng *r);

/* 64-byte aligned; free with fenced_free(). n_bytes is a multiple of 64. */
void *kernel_aligned(size_t n_bytes);
/* The plain read of the benchmarks: reads n_bytes (a multiple of 64, 64-byte aligned) and returns a
 * value that depends on all bytes. */
uint64_t kernel_stream_read(const void *p, size_t n_bytes);

/* Quantizes x by table k as `kind`. Free act.data with fenced_free(). */
cpu_act kernel_encode(const cpu_kernels *k, const kernel_case *c, cpu_act_kind kind,
                      cpu_act_layout layout);
/* Returns element i of quantized vector col, for CPU_ACT_COLUMNS. */
double kernel_act_value(const cpu_act *a, int64_t col, int64_t i);

/* Computes rows [row0, row1) of the product with table k's matvec or matmul into c->y. */
void kernel_product(const cpu_kernels *k, kernel_case *c, bool matmul, int64_t row0, int64_t row1);

/* Sets all of y to the guard value. */
void kernel_clear(kernel_case *c);

#endif
