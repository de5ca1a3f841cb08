/* kernel_case.h: what the kernel tests share: the tiers of this machine, and one product y = W x
 * with buffers of exactly the size that the kernels may touch.
 *
 * Weights start at an address that is 2 modulo 4; everything ends at a page without access
 * (fenced.h), so that reading beyond ends the test in every tier; y has guard values between its
 * columns. */
#ifndef TEST_KERNEL_CASE_H
#define TEST_KERNEL_CASE_H

#include <stdbool.h>
#include <stdint.h>

#include "cpu.h"
#include "fenced.h"
#include "rng.h"

/* Marks elements of y that no kernel may write. */
#define KERNEL_GUARD 12345.75f

/* Emulators and sanitizers are ten to thirty times slower: every type and tier still runs there,
 * with every fifth size, every fifth type of large matrices, and fewer columns where it is rows
 * that matter. */
#ifdef TEST_SAMPLED
enum { KERNEL_SAMPLED = 1, KERNEL_STEP = 5 };
#else
enum { KERNEL_SAMPLED = 0, KERNEL_STEP = 1 };
#endif

enum { KERNEL_VARIANTS = 3 }; /* tables without an optional unit, where this processor has it */

typedef struct kernel_tiers {
    /* n of them, scalar first, then reference */
    cpu_kernels table[CPU_TIER_COUNT + KERNEL_VARIANTS];
    int n;
} kernel_tiers;

void kernel_tiers_load(kernel_tiers *tiers);

typedef enum kernel_fill {
    KERNEL_NORMAL, /* normally distributed weights, quantized */
    KERNEL_BITS    /* random bytes, as long as all values are finite */
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
/* What the benches compare with: reads n_bytes (a multiple of 64, 64-byte aligned) and returns a
 * value that depends on all of them. */
uint64_t kernel_stream_read(const void *p, size_t n_bytes);

/* x encoded by table k as `kind`. Free act.data with fenced_free(). */
cpu_act kernel_encode(const cpu_kernels *k, const kernel_case *c, cpu_act_kind kind,
                      cpu_act_layout layout);
/* Element i of encoded vector col as a number, for COLUMNS. */
double kernel_act_value(const cpu_act *a, int64_t col, int64_t i);

/* Rows [row0, row1) of the product with table k's matvec or matmul into c->y. */
void kernel_product(const cpu_kernels *k, kernel_case *c, bool matmul, int64_t row0, int64_t row1);

/* Sets all of y to the guard value. */
void kernel_clear(kernel_case *c);

#endif
