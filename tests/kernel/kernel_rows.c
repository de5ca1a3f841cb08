/* kernel_rows.c: products of selected rows, and matrices whose rows alternate with the rows of
 * another matrix. The results must equal the tier's own matvec and matmul of the packed matrix bit
 * for bit and must be close to the reference tier. */
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
#include "quant_blocks.h"

/* Tolerance relative to the product of the two vectors' lengths; one wrong element far exceeds
 * it. */
#define CLOSE 1e-5

/* Every other row of one allocation is a row of `packed`, and the allocation ends with the last of
 * these rows; the rows between them are NaN in every type. */
typedef struct interleaved {
    cpu_mat w;
    char *base;
} interleaved;

static interleaved interleave(const cpu_mat *packed) {
    size_t row = packed->row_bytes, n = (size_t)packed->n_out;
    interleaved out = {.w = *packed, .base = fenced_alloc(2 * row * n + 2)};
    assert_non_null(out.base);
    memset(out.base, 0xff, 2 * row * n + 2);
    for (size_t r = 0; r < n; r++)
        memcpy(out.base + 2 + (2 * r + 1) * row, (const char *)packed->data + r * row, row);
    out.w.data = out.base + 2 + row;
    out.w.row_bytes = 2 * row;
    return out;
}

/* Makes an ascending list of rows: each with this probability in 256ths, or only the last row. */
static int64_t choose(int64_t n_out, unsigned probability, int32_t *rows, rng *r) {
    int64_t n = 0;
    if (probability == 0) return 0;
    if (probability == 1) rows[n++] = (int32_t)n_out - 1;
    for (int64_t i = 0; i < n_out && probability > 1; i++)
        if (rng_u64(r) >> 56 < probability) rows[n++] = (int32_t)i;
    return n;
}

static double length(const float *x, int64_t n) {
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    return sqrt(sum);
}

typedef struct rows_case {
    kernel_case c;
    interleaved other;
    float *want; /* matvec of the packed matrix by the tested tier, laid out as c.y */
    float *got;
    int32_t *rows;
    double *row_length; /* length of each row of weights, [n_out] */
} rows_case;

static void rows_case_make(rows_case *t, const kernel_shape *shape, kernel_fill fill, rng *r) {
    kernel_case_make(&t->c, shape, fill, r);
    t->other = interleave(&t->c.w);
    t->want = fenced_alloc(t->c.n_y * sizeof *t->want);
    t->got = fenced_alloc(t->c.n_y * sizeof *t->got);
    t->rows = fenced_alloc((size_t)shape->n_out * sizeof *t->rows);
    t->row_length = fenced_alloc((size_t)shape->n_out * sizeof *t->row_length);
    float *value = fenced_alloc((size_t)shape->n_in * sizeof *value);
    assert_true(t->want != NULL && t->got != NULL && t->rows != NULL && t->row_length != NULL &&
                value != NULL);
    for (int64_t i = 0; i < shape->n_out; i++) {
        const char *row = (const char *)t->c.w.data + (size_t)i * t->c.w.row_bytes;
        quant_find((uint32_t)shape->type)->dequantize(row, value, shape->n_in);
        t->row_length[i] = length(value, shape->n_in);
    }
    fenced_free(value);
}

static void rows_case_free(rows_case *t) {
    kernel_case_free(&t->c);
    fenced_free(t->other.base);
    fenced_free(t->want);
    fenced_free(t->got);
    fenced_free(t->rows);
    fenced_free(t->row_length);
}

/* Checks matvec_rows of n rows of w; it may write only their results. */
static void check_rows(const cpu_kernels *k, rows_case *t, const cpu_mat *w, const cpu_act *a,
                       int64_t n) {
    kernel_case *c = &t->c;
    for (size_t i = 0; i < c->n_y; i++) t->got[i] = KERNEL_GUARD;
    k->mat[w->type].matvec_rows(w, t->rows, n, a, t->got, c->ldy);
    for (size_t i = 0; i < c->n_y; i++) {
        int64_t at = (int64_t)i % c->ldy, col = (int64_t)i / c->ldy;
        float want = at < n ? t->want[col * c->ldy + t->rows[at]] : KERNEL_GUARD;
        if (memcmp(&t->got[i], &want, sizeof want) != 0)
            fail_msg("%s %s, n_in %d, %d of %d rows%s, %d columns: result %d of column %d is "
                     "%.9g, not %.9g",
                     k->name, quant_find((uint32_t)w->type)->name, (int)w->n_in, (int)n,
                     (int)w->n_out, w == &c->w ? "" : " (interleaved)", (int)c->n_cols, (int)at,
                     (int)col, (double)t->got[i], (double)want);
    }
}

/* Checks that the interleaved matrix gives the results of the packed matrix (t->want). */
static void check_interleaved(const cpu_kernels *k, rows_case *t, bool matmul) {
    kernel_case *c = &t->c;
    cpu_mat packed = c->w;
    c->w = t->other.w;
    kernel_clear(c);
    kernel_product(k, c, matmul, 0, c->w.n_out);
    c->w = packed;
    if (memcmp(c->y, t->want, c->n_y * sizeof *c->y) != 0)
        fail_msg("%s %s, n_in %d, %d rows, %d columns: %s of interleaved rows differs", k->name,
                 quant_find((uint32_t)packed.type)->name, (int)packed.n_in, (int)packed.n_out,
                 (int)c->n_cols, matmul ? "matmul" : "matvec");
}

/* Compares selected rows by k with the reference tier of the same arithmetic. */
static void check_reference(const cpu_kernels *k, const cpu_kernels *reference, rows_case *t,
                            const cpu_act *a, int64_t n) {
    kernel_case *c = &t->c;
    float *y = c->y;
    kernel_clear(c);
    reference->mat[c->w.type].matvec_rows(&c->w, t->rows, n, a, y, c->ldy);
    for (int64_t col = 0; col < c->n_cols; col++) {
        double size = length(c->x + col * c->ldx, c->w.n_in);
        for (int64_t i = 0; i < n; i++) {
            double want = (double)y[col * c->ldy + i], got = (double)t->got[col * c->ldy + i];
            if (!(fabs(got - want) <= CLOSE * size * t->row_length[t->rows[i]] + 1e-30))
                fail_msg("%s %s, n_in %d: result %d of column %d is %.9g, by the reference %.9g",
                         k->name, quant_find((uint32_t)c->w.type)->name, (int)c->w.n_in, (int)i,
                         (int)col, got, want);
        }
    }
}

static void check_case(const kernel_tiers *tiers, rows_case *t, bool finite, rng *r) {
    static const unsigned probability[] = {0, 1, 26, 128, 256};
    kernel_case *c = &t->c;
    for (int i = 0; i < tiers->n; i++) {
        const cpu_kernels *k = &tiers->table[i];
        const cpu_mat_kernels *m = &k->mat[c->w.type];
        const cpu_kernels *reference = &tiers->table[0];
        const cpu_act_kind form = act_form(m->act, CPU_ACT_COLUMNS, c->n_cols);
        if (reference->mat[c->w.type].act != form) reference = &tiers->table[1];
        assert_int_equal(reference->mat[c->w.type].act, form);
        for (int matmul = 1; matmul >= 0; matmul--) { /* ends with matvec's result in `want` */
            kernel_clear(c);
            kernel_product(k, c, matmul, 0, c->w.n_out);
            memcpy(t->want, c->y, c->n_y * sizeof *c->y);
            check_interleaved(k, t, matmul);
        }
        cpu_act a = kernel_encode(k, c, form, CPU_ACT_COLUMNS);
        for (size_t p = 0; p < sizeof probability / sizeof *probability; p++) {
            int64_t n = choose(c->w.n_out, probability[p], t->rows, r);
            check_rows(k, t, &t->other.w, &a, n);
            check_rows(k, t, &c->w, &a, n);
            if (finite) check_reference(k, reference, t, &a, n);
        }
        fenced_free(a.data);
    }
}

static void make_and_check(const kernel_tiers *tiers, kernel_shape shape, kernel_fill fill,
                           rng *r) {
    rows_case t;
    shape.ldy = shape.n_out + (int64_t)(rng_u64(r) % 4);
    rows_case_make(&t, &shape, fill, r);
    check_case(tiers, &t, true, r);
    rows_case_free(&t);
}

static bool type_at(const kernel_tiers *tiers, int i, quant_type *type) {
    *type = (quant_type)i;
    return tiers->table[0].mat[i].matvec != NULL;
}

void kernel_test_rows(void **state) {
    (void)state;
    kernel_tiers tiers;
    rng r;
    kernel_tiers_load(&tiers);
    for (int i = 0; i < QUANT_TYPE_COUNT; i++) {
        kernel_shape shape = {0};
        if (!type_at(&tiers, i, &shape.type)) continue;
        rng_seed(&r, 51);
        int64_t block = quant_find((uint32_t)i)->block_elems;
        /* up to 65 elements of plain types, up to 34 or 6 blocks of block types */
        int64_t last = block == 1 ? 65 : block < QUANT_K ? 34 : 6;
        int64_t step = block == 1 ? 4 : block < QUANT_K ? 3 : 1;
        for (int64_t n = 1; n <= last; n += KERNEL_SAMPLED ? 2 * step : step) {
            shape.n_in = n * block;
            shape.n_out = 1 + (int64_t)(rng_u64(&r) % 50);
            shape.n_cols = 1 + n % 9;
            make_and_check(&tiers, shape, KERNEL_NORMAL, &r);
            shape.n_cols = 1;
            make_and_check(&tiers, shape,
                           quant_find((uint32_t)i)->is_quantized ? KERNEL_BITS : KERNEL_NORMAL, &r);
        }
        shape.n_in = 4096 + (block == 1 ? 13 : 256);
        shape.n_out = 23;
        make_and_check(&tiers, shape, KERNEL_NORMAL, &r);
    }
}

/* Rows of NaNs and vectors with infinities give the same bits as in matvec and change no other
 * result. */
void kernel_test_rows_hostile(void **state) {
    (void)state;
    kernel_tiers tiers;
    rng r;
    rng_seed(&r, 52);
    kernel_tiers_load(&tiers);
    for (int i = 0; i < QUANT_TYPE_COUNT; i++) {
        for (int64_t n_cols = 1; n_cols <= 7; n_cols += 3) {
            kernel_shape shape = {.n_in = 768, .n_out = 19, .n_cols = n_cols, .ldy = 19};
            if (!type_at(&tiers, i, &shape.type)) continue;
            rows_case t;
            rows_case_make(&t, &shape, KERNEL_NORMAL, &r);
            char *data = t.c.w_base + 2;
            for (size_t row = 3; row < 19; row += 7) {
                memset(data + row * t.c.w.row_bytes, 0xff, t.c.w.row_bytes);
                memset(t.other.base + 2 + (2 * row + 1) * t.c.w.row_bytes, 0xff, t.c.w.row_bytes);
            }
            t.c.x[(n_cols - 1) * t.c.ldx + 40] = i % 2 ? INFINITY : NAN;
            check_case(&tiers, &t, false, &r);
            rows_case_free(&t);
        }
    }
}
