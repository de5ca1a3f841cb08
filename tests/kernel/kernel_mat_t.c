/* kernel_mat_t.c: axpy_rows and matmul_t of every tier and type against sums in double of the
 * weights as floats, to 1e-6 of the sum of the terms' magnitudes. Other guarantees under test:
 * lists and ranges may be split anywhere, factors of 0 hide weights that are not finite, and no
 * other memory is touched.
 *
 * Matrices start at an address that is 2 modulo 4, alternate with rows of another matrix (NaNs),
 * and end with the last byte of their last row at the end of the allocation, so that
 * AddressSanitizer sees every read beyond. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "act.h"
#include "kernel_case.h"
#include "kernel_tests.h"

/* Rounding of float sums of these lengths stays well below this; one wrong weight exceeds it. */
#define CLOSE 1e-6
/* A kernel may flush smaller results to zero. */
#define FLUSHED 1e-30
/* Relative error of a number rounded to bfloat16. */
#define BF16_ERROR 0x1p-8

enum { LONG_SUM = 100 };

typedef struct t_case {
    cpu_mat w;
    char *base;
    size_t own_bytes; /* bytes of a row */
    float *value;     /* [n_out][n_in], the weights */
    float *h;         /* [n_cols][ldh], normally distributed, a third are 0 */
    float *out;       /* [n_cols][ld], acc or y */
    int32_t *rows;    /* [n_rows] ascending */
    int64_t n_rows, n_cols, ldh, ld;
    size_t n_out; /* floats of out; no gap follows the last column */
} t_case;

static void decode(t_case *c) {
    for (int64_t r = 0; r < c->w.n_out; r++)
        quant_find((uint32_t)c->w.type)
            ->dequantize((const char *)c->w.data + (size_t)r * c->w.row_bytes,
                         c->value + r * c->w.n_in, c->w.n_in);
}

static char *row_at(const t_case *c, int64_t r) {
    return c->base + 2 + (size_t)r * c->w.row_bytes;
}

static void t_case_make(t_case *c, quant_type type, int64_t n_in, int64_t n_out, int64_t n_cols,
                        bool gaps, kernel_fill fill, rng *r) {
    *c = (t_case){.n_cols = n_cols, .ldh = n_out + 3, .ld = n_in + (int64_t)(rng_u64(r) % 20)};
    assert_true(quant_row_bytes(type, (uint64_t)n_in, &c->own_bytes));
    size_t stride = gaps ? 2 * c->own_bytes + 2 * (rng_u64(r) % 20) : c->own_bytes;
    size_t n_bytes = stride * (size_t)(n_out - 1) + c->own_bytes + 2;
    cpu_mat packed = {fenced_calloc((size_t)n_out, c->own_bytes), c->own_bytes, n_in, n_out, type};
    kernel_fill_weights(&packed, fill, r);
    c->base = fenced_alloc(n_bytes);
    memset(c->base, 0xff, n_bytes);
    c->w = (cpu_mat){c->base + 2, stride, n_in, n_out, type};
    for (int64_t i = 0; i < n_out; i++)
        memcpy(row_at(c, i), (const char *)packed.data + (size_t)i * c->own_bytes, c->own_bytes);
    fenced_free((void *)(uintptr_t)packed.data);
    c->value = fenced_calloc((size_t)(n_out * n_in), sizeof *c->value);
    decode(c);
    c->h = fenced_calloc((size_t)(n_cols * c->ldh), sizeof *c->h);
    for (int64_t i = 0; i < n_cols * c->ldh; i++)
        c->h[i] = rng_u64(r) % 3 == 0 ? 0.0f : rng_normal(r);
    c->n_out = (size_t)((n_cols - 1) * c->ld + n_in);
    c->out = fenced_calloc(c->n_out, sizeof *c->out);
    c->rows = fenced_calloc((size_t)n_out, sizeof *c->rows);
    for (int64_t i = 0; i < n_out; i++)
        if (rng_u64(r) % 2 == 0) c->rows[c->n_rows++] = (int32_t)i;
}

static void t_case_free(t_case *c) {
    fenced_free(c->base);
    fenced_free(c->value);
    fenced_free(c->h);
    fenced_free(c->out);
    fenced_free(c->rows);
}

/* Fills acc: guards between the columns, and in the columns numbers that depend only on the
 * index. */
static void fill_acc(t_case *c) {
    for (size_t i = 0; i < c->n_out; i++)
        c->out[i] = (int64_t)i % c->ld < c->w.n_in ? (float)(i % 7) - 3.0f : KERNEL_GUARD;
}

static void axpy(const cpu_kernels *k, const t_case *c, int64_t first, int64_t last, int64_t col0,
                 int64_t col1) {
    k->mat_t[c->w.type].axpy_rows(&c->w, c->rows + first, last - first,
                                  c->h + col0 * c->ldh + first, c->ldh, col1 - col0,
                                  c->out + col0 * c->ld, c->ld);
}

static void fail_at(const cpu_kernels *k, const t_case *c, const char *kernel, size_t at,
                    double want) {
    fail_msg("%s %s %s, n_in %d, %d of %d rows, %d columns: [%d][%d] = %.9g, not %.9g", k->name,
             quant_find((uint32_t)c->w.type)->name, kernel, (int)c->w.n_in, (int)c->n_rows,
             (int)c->w.n_out, (int)c->n_cols, (int)((int64_t)at / c->ld),
             (int)((int64_t)at % c->ld), (double)c->out[at], want);
}

/* A sum in double and the sum of its terms' magnitudes. */
typedef struct expected {
    double sum, terms;
} expected;

/* Returns [n_out], ordered as c->out: the result of axpy_rows on fill_acc's numbers (`chosen`), or
 * the product with all rows. */
static expected *expect(const t_case *c, bool chosen) {
    expected *out = fenced_calloc(c->n_out, sizeof *out);
    for (size_t at = 0; at < c->n_out && chosen; at++) {
        out[at].sum = (double)(at % 7) - 3.0;
        out[at].terms = fabs(out[at].sum);
    }
    for (int64_t col = 0; col < c->n_cols; col++) {
        for (int64_t i = 0; i < (chosen ? c->n_rows : c->w.n_out); i++) {
            double h = (double)c->h[col * c->ldh + i];
            const float *row = c->value + (chosen ? c->rows[i] : i) * c->w.n_in;
            expected *to = out + col * c->ld;
            for (int64_t j = 0; j < c->w.n_in; j++) {
                double term = h * (double)row[j];
                to[j].sum += term;
                to[j].terms += fabs(term);
            }
        }
    }
    return out;
}

static void check_axpy(const cpu_kernels *k, t_case *c, const expected *want) {
    fill_acc(c);
    axpy(k, c, 0, c->n_rows, 0, c->n_cols);
    for (size_t at = 0; at < c->n_out; at++) {
        if ((int64_t)at % c->ld >= c->w.n_in) {
            if (c->out[at] != KERNEL_GUARD) fail_at(k, c, "axpy", at, (double)KERNEL_GUARD);
        } else if (!(fabs((double)c->out[at] - want[at].sum) <= CLOSE * want[at].terms + FLUSHED)) {
            fail_at(k, c, "axpy", at, want[at].sum);
        }
    }
}

/* Computes outputs [col0, col1) by this table's matmul_t into c->out. */
static void matmul_t(const cpu_kernels *k, t_case *c, int64_t col0, int64_t col1) {
    const cpu_mat_t_kernels *m = &k->mat_t[c->w.type];
    size_t act_bytes = cpu_act_bytes(m->act, CPU_ACT_PANELS, c->w.n_out, c->n_cols);
    cpu_act a = {m->act, CPU_ACT_PANELS, c->w.n_out, c->n_cols, kernel_aligned(act_bytes)};
    memset(a.data, 0xa5, act_bytes);
    k->act_encode(c->h, c->ldh, 0, c->n_cols, &a);
    size_t scratch_bytes = CPU_SCRATCH_BYTES;
    void *scratch = kernel_aligned(scratch_bytes);
    memset(scratch, 0xff, scratch_bytes);
    m->matmul_t(&c->w, col0, col1, &a, c->out, c->ld, scratch);
    fenced_free(scratch);
    fenced_free(a.data);
}

static void check_matmul_t(const cpu_kernels *k, t_case *c, const expected *want, int64_t col0,
                           int64_t col1) {
    /* BF16 may round both factors */
    double bound = CLOSE + (k->mat_t[c->w.type].act == CPU_ACT_BF16 ? 2.01 * BF16_ERROR : 0.0);
    double errors = 0.0, squares = 0.0;
    for (size_t i = 0; i < c->n_out; i++) c->out[i] = KERNEL_GUARD;
    matmul_t(k, c, col0, col1);
    for (size_t at = 0; at < c->n_out; at++) {
        int64_t j = (int64_t)at % c->ld;
        if (j < col0 || j >= col1) {
            if (c->out[at] != KERNEL_GUARD) fail_at(k, c, "matmul_t", at, (double)KERNEL_GUARD);
            continue;
        }
        double error = (double)c->out[at] - want[at].sum;
        if (!(fabs(error) <= bound * want[at].terms + FLUSHED))
            fail_at(k, c, "matmul_t", at, want[at].sum);
        errors += error * error;
        squares += want[at].sum * want[at].sum;
    }
    /* Rounding is unbiased: the error of a long sum grows only with the root of its length. */
    if (c->w.n_out >= LONG_SUM && !(errors <= 1e-5 * squares + FLUSHED))
        fail_msg("%s %s matmul_t, n_in %d, %d rows: error %.3g", k->name,
                 quant_find((uint32_t)c->w.type)->name, (int)c->w.n_in, (int)c->w.n_out,
                 sqrt(errors / squares));
}

static void check_case(const kernel_tiers *tiers, t_case *c, rng *r) {
    int64_t n_tiles = (c->w.n_in + CPU_COL_TILE - 1) / CPU_COL_TILE;
    expected *sums = expect(c, true), *products = expect(c, false);
    for (int t = 0; t < tiers->n; t++) {
        const cpu_kernels *k = &tiers->table[t];
        check_axpy(k, c, sums);
        check_matmul_t(k, c, products, 0, c->w.n_in);
        int64_t first = (int64_t)(rng_u64(r) % (uint64_t)n_tiles) * CPU_COL_TILE;
        int64_t last = first + (int64_t)(rng_u64(r) % 3) * CPU_COL_TILE;
        check_matmul_t(k, c, products, first, last < c->w.n_in ? last : c->w.n_in);
    }
    fenced_free(sums);
    fenced_free(products);
}

/* Returns an n_in that the type allows: whole blocks up to `most` elements; odd numbers for plain
 * types. */
static int64_t some_n_in(quant_type type, int64_t most, rng *r) {
    int64_t block = quant_find((uint32_t)type)->block_elems;
    return (1 + (int64_t)(rng_u64(r) % (uint64_t)(most / block))) * block;
}

static bool type_at(const kernel_tiers *tiers, int i, quant_type *type) {
    *type = (quant_type)i;
    return tiers->table[0].mat_t[i].axpy_rows != NULL;
}

void kernel_test_mat_t_sizes(void **state) {
    (void)state;
    kernel_tiers tiers;
    rng r;
    rng_seed(&r, 41);
    kernel_tiers_load(&tiers);
    for (int i = 0; i < QUANT_TYPE_COUNT; i++) {
        quant_type type;
        if (!type_at(&tiers, i, &type)) continue;
        for (int n = 0; n < 8; n += KERNEL_STEP) {
            t_case c;
            int64_t n_out = 1 + (int64_t)(rng_u64(&r) % 70);
            /* random bits in plain types would overflow the sums */
            bool bits = n % 4 == 0 && quant_find((uint32_t)i)->is_quantized;
            t_case_make(&c, type, some_n_in(type, n < 3 ? 256 : 1536, &r), n_out,
                        1 + (int64_t)(rng_u64(&r) % 20), n % 2, bits ? KERNEL_BITS : KERNEL_NORMAL,
                        &r);
            check_case(&tiers, &c, &r);
            t_case_free(&c);
        }
    }
}

/* Rows, columns and elements exceed the block sizes of all kernels several times. */
void kernel_test_mat_t_many_blocks(void **state) {
    (void)state;
    kernel_tiers tiers;
    rng r;
    rng_seed(&r, 42);
    kernel_tiers_load(&tiers);
    for (int i = 0; i < QUANT_TYPE_COUNT; i += KERNEL_STEP) {
        quant_type type;
        if (!type_at(&tiers, i, &type)) continue;
        int64_t block = quant_find((uint32_t)i)->block_elems;
        t_case c;
        t_case_make(&c, type,
                    768 + (block == 1    ? 19
                           : block < 256 ? block
                                         : 0),
                    1100, 3, false, KERNEL_NORMAL, &r);
        check_case(&tiers, &c, &r);
        t_case_free(&c);
        t_case_make(&c, type, 256 + (block < 256 ? block : 0), KERNEL_SAMPLED ? 40 : 150, 131, true,
                    KERNEL_NORMAL, &r);
        check_case(&tiers, &c, &r);
        t_case_free(&c);
    }
}

/* Every split of lists, columns and ranges gives the same bits. */
void kernel_test_mat_t_cuts(void **state) {
    (void)state;
    kernel_tiers tiers;
    rng r;
    rng_seed(&r, 43);
    kernel_tiers_load(&tiers);
    for (int i = KERNEL_STEP / 2; i < QUANT_TYPE_COUNT; i += KERNEL_STEP) {
        quant_type type;
        if (!type_at(&tiers, i, &type)) continue;
        t_case c;
        t_case_make(&c, type, 768, 300, 3, true, KERNEL_NORMAL, &r);
        float *whole = fenced_calloc(c.n_out, sizeof *whole);
        for (int t = 0; t < tiers.n; t++) {
            const cpu_kernels *k = &tiers.table[t];
            fill_acc(&c);
            axpy(k, &c, 0, c.n_rows, 0, c.n_cols);
            memcpy(whole, c.out, c.n_out * sizeof *whole);
            fill_acc(&c);
            for (int64_t at = 0, step; at < c.n_rows; at += step) {
                step = (int64_t)(rng_u64(&r) % 40);
                if (step > c.n_rows - at) step = c.n_rows - at;
                int64_t col = (int64_t)(rng_u64(&r) % 4);
                axpy(k, &c, at, at + step, 0, col);
                axpy(k, &c, at, at + step, col, c.n_cols);
            }
            if (memcmp(whole, c.out, c.n_out * sizeof *whole) != 0)
                fail_msg("%s %s axpy depends on how the list is cut", k->name,
                         quant_find((uint32_t)i)->name);
            matmul_t(k, &c, 0, 768);
            memcpy(whole, c.out, c.n_out * sizeof *whole);
            for (int64_t col = 0; col < 768; col += CPU_COL_TILE)
                matmul_t(k, &c, col, col + CPU_COL_TILE);
            if (memcmp(whole, c.out, c.n_out * sizeof *whole) != 0)
                fail_msg("%s %s matmul_t depends on how the range is cut", k->name,
                         quant_find((uint32_t)i)->name);
        }
        fenced_free(whole);
        t_case_free(&c);
    }
}

/* Rows of NaNs add nothing where their factor is 0 and make the sum NaN elsewhere. */
void kernel_test_mat_t_hostile(void **state) {
    (void)state;
    enum { BAD = 5, ROWS = 40 };
    kernel_tiers tiers;
    rng r;
    rng_seed(&r, 44);
    kernel_tiers_load(&tiers);
    for (int i = 0; i < QUANT_TYPE_COUNT; i++) {
        quant_type type;
        if (!type_at(&tiers, i, &type)) continue;
        t_case c;
        t_case_make(&c, type, some_n_in(type, 1024, &r), ROWS, 3, true, KERNEL_NORMAL, &r);
        c.n_rows = ROWS;
        for (int n = 0; n < ROWS; n++) c.rows[n] = n;
        /* columns 0 and 2 do not use the bad row */
        c.h[BAD] = 0.0f;
        c.h[c.ldh + BAD] = 0.25f;
        c.h[2 * c.ldh + BAD] = -0.0f;
        float *clean = fenced_calloc(c.n_out, sizeof *clean);
        for (int t = 0; t < tiers.n; t++) {
            const cpu_kernels *k = &tiers.table[t];
            fill_acc(&c);
            axpy(k, &c, 0, ROWS, 0, 3);
            memcpy(clean, c.out, c.n_out * sizeof *clean);
            char *good = fenced_calloc(1, c.own_bytes);
            memcpy(good, row_at(&c, BAD), c.own_bytes);
            memset(row_at(&c, BAD), 0xff, c.own_bytes);
            fill_acc(&c);
            axpy(k, &c, 0, ROWS, 0, 3);
            for (size_t at = 0; at < c.n_out; at++) {
                int64_t j = (int64_t)at % c.ld, col = (int64_t)at / c.ld;
                if (col == 1 && j < c.w.n_in) {
                    if (!isnan(c.out[at]) && type != QUANT_NVFP4) /* NVFP4 has no NaN */
                        fail_at(k, &c, "axpy", at, NAN);
                } else if (memcmp(&clean[at], &c.out[at], sizeof clean[at]) != 0) {
                    fail_at(k, &c, "axpy", at, (double)clean[at]);
                }
            }
            memcpy(row_at(&c, BAD), good, c.own_bytes);
            fenced_free(good);
        }
        fenced_free(clean);
        t_case_free(&c);
    }
}
