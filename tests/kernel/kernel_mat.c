/* kernel_mat.c: matvec and matmul of every tier and type against three measures: the product in
 * double (which differs by the error of quantizing the activations; the error has an exact bound),
 * the product of decoded weights and quantized activations in double, and the tier "reference". The
 * last two must agree to 1e-6 of the sum of the terms' magnitudes. Where both factors are rounded
 * to bfloat16, or to two bfloat16 parts, only the first measure applies. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "act.h"
#include "decode.h"
#include "kernel_case.h"
#include "kernel_tests.h"
#include "quant_blocks.h"

/* Rounding of float sums of these lengths stays well below this; one wrong integer exceeds it. */
#define CLOSE 1e-6
/* Relative error of a number rounded to bfloat16. */
#define BF16_ERROR 0x1p-8
/* A kernel may flush smaller results to zero. */
#define FLUSHED 1e-30
/* Relative error of a product of two numbers that are split into two bfloat16 parts each, without
 * the product of the low parts. */
#define SPLIT_ERROR 0x1p-15

typedef struct expected {
    double exact;        /* sum w x */
    double encoded;      /* sum w x', x': the quantized activations */
    double terms;        /* sum |w| |x'|; offsets of formats with minima are separate terms */
    double bound;        /* largest possible |exact - encoded| */
    double weight_terms; /* sum |w| |x| */
} expected;

/* Stores the type of loop counter i; false when the type has no kernels. */
static bool type_at(const kernel_tiers *tiers, int i, quant_type *type) {
    *type = (quant_type)i;
    return tiers->table[0].mat[i].matvec != NULL;
}

static int64_t min_i64(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* Decodes row r to floats, and the magnitudes of the terms that the kernels add up. */
static void decode_row(const cpu_mat *w, int64_t r, float *value, double *magnitude) {
    const char *row = (const char *)w->data + (size_t)r * w->row_bytes;
    decode_fn decode = decode_find(w->type);
    quant_find((uint32_t)w->type)->dequantize(row, value, w->n_in);
    decode_group g = {0};
    for (int64_t i = 0; i < w->n_in; i++) {
        magnitude[i] = fabs((double)value[i]);
        if (decode == NULL) continue;
        if (i % 32 == 0) decode(row, i / 32, &g);
        int h = (int)(i % 32 / 16);
        magnitude[i] = fabs((double)g.scale[h] * g.q[i % 32]) + fabs((double)g.min[h]);
    }
}

/* Returns the rounding error bound of element i of a quantized vector. */
static double encoding_error(const cpu_act *a, int64_t col, int64_t i, double x) {
    if (a->kind == CPU_ACT_F32) return 0.0;
    if (a->kind == CPU_ACT_BF16) return fabs(x) * 0x1p-8;
    return 0.50001 * (double)act_q8_d(act_column(a, col), a->n)[i / CPU_ACT_GROUP];
}

/* One element of a vector: its value, its quantized value, and the bound of the rounding error. */
typedef struct input {
    double x, encoded, error;
} input;

/* [n_cols][n_in] */
static input *decode_inputs(const kernel_case *c, const cpu_act *a) {
    input *out = fenced_alloc((size_t)(c->n_cols * c->w.n_in) * sizeof *out);
    assert_non_null(out);
    for (int64_t col = 0; col < c->n_cols; col++) {
        for (int64_t i = 0; i < c->w.n_in; i++) {
            double x = (double)c->x[col * c->ldx + i];
            out[col * c->w.n_in + i] = (input){x, kernel_act_value(a, col, i),
                                               encoding_error(a, col, i, x)};
        }
    }
    return out;
}

/* [n_cols][n_out] */
static expected *expect(const kernel_case *c, const cpu_act *a) {
    expected *out = fenced_calloc((size_t)(c->n_cols * c->w.n_out), sizeof *out);
    input *inputs = decode_inputs(c, a);
    float *value = fenced_alloc((size_t)c->w.n_in * sizeof *value);
    double *magnitude = fenced_alloc((size_t)c->w.n_in * sizeof *magnitude);
    assert_true(out != NULL && value != NULL && magnitude != NULL);
    for (int64_t r = 0; r < c->w.n_out; r++) {
        decode_row(&c->w, r, value, magnitude);
        for (int64_t col = 0; col < c->n_cols; col++) {
            const input *in = inputs + col * c->w.n_in;
            expected e = {0};
            for (int64_t i = 0; i < c->w.n_in; i++) {
                double w = (double)value[i];
                e.exact += w * in[i].x;
                e.weight_terms += fabs(w * in[i].x);
                e.encoded += w * in[i].encoded;
                e.terms += magnitude[i] * fabs(in[i].encoded);
                e.bound += fabs(w) * in[i].error;
            }
            out[col * c->w.n_out + r] = e;
        }
    }
    fenced_free(inputs);
    fenced_free(value);
    fenced_free(magnitude);
    return out;
}

typedef struct run {
    const cpu_kernels *k;
    kernel_case *c;
    bool matmul;
    int64_t row0, row1;
} run;

static void fail_at(const run *u, int64_t r, int64_t col, const char *what, double got,
                    double want) {
    fail_msg("%s %s %s, n_in %d, rows %d..%d of %d, %d columns: y[%d][%d] = %.9g, %s %.9g",
             u->k->name, quant_find((uint32_t)u->c->w.type)->name, u->matmul ? "matmul" : "matvec",
             (int)u->c->w.n_in, (int)u->row0, (int)u->row1, (int)u->c->w.n_out, (int)u->c->n_cols,
             (int)col, (int)r, got, what, want);
}

/* Checks that only the requested rows were written. */
static void check_guards(const run *u) {
    const kernel_case *c = u->c;
    for (size_t i = 0; i < c->n_y; i++) {
        int64_t r = (int64_t)i % c->ldy, col = (int64_t)i / c->ldy;
        bool asked = r >= u->row0 && r < u->row1;
        if (!asked && c->y[i] != KERNEL_GUARD)
            fail_at(u, r, col, "was not to be written: ", (double)c->y[i], (double)KERNEL_GUARD);
    }
}

/* Checks the result of a run in c->y. `want`: for float activations or for this table's own kind;
 * `reference`: [n_cols][n_out]. */
static void check_result(const run *u, const expected *want, const float *reference) {
    kernel_case *c = u->c;
    const cpu_act_kind kind = u->k->mat[c->w.type].act;
    const cpu_act_kind form = act_form(kind, CPU_ACT_PANELS, c->n_cols);
    const bool split = form == CPU_ACT_F32_SPLIT;
    const bool rounded = u->matmul && ((kind == CPU_ACT_Q8_BF16 && form == CPU_ACT_BF16) || split);
    check_guards(u);
    for (int64_t col = 0; col < c->n_cols; col++) {
        for (int64_t r = u->row0; r < u->row1; r++) {
            const expected *e = &want[col * c->w.n_out + r];
            if (rounded) {
                double error = split ? SPLIT_ERROR : 2.01 * BF16_ERROR;
                double bound = (error + CLOSE) * e->weight_terms + FLUSHED;
                double got = (double)c->y[col * c->ldy + r];
                if (!(fabs(got - e->exact) <= bound)) fail_at(u, r, col, "rounded", got, e->exact);
                continue;
            }
            double y = (double)c->y[col * c->ldy + r], slack = CLOSE * e->terms + FLUSHED;
            if (!(fabs(y - e->exact) <= e->bound + slack))
                fail_at(u, r, col, "exactly", y, e->exact);
            if (!(fabs(y - e->encoded) <= slack))
                fail_at(u, r, col, "with encoded activations", y, e->encoded);
            double ref = (double)reference[col * c->w.n_out + r];
            if (!(fabs(y - ref) <= slack)) fail_at(u, r, col, "by the reference", y, ref);
        }
    }
}

static void check_run(const run *u, const expected *want, const float *reference) {
    kernel_clear(u->c);
    kernel_product(u->k, u->c, u->matmul, u->row0, u->row1);
    check_result(u, want, reference);
}

/* Returns the product by a slow tier, packed as [n_cols][n_out]; c->y also holds it. */
static float *packed_product(const cpu_kernels *k, kernel_case *c) {
    float *out = fenced_alloc((size_t)(c->n_cols * c->w.n_out) * sizeof *out);
    assert_non_null(out);
    kernel_clear(c);
    kernel_product(k, c, false, 0, c->w.n_out);
    for (int64_t col = 0; col < c->n_cols; col++)
        memcpy(out + col * c->w.n_out, c->y + col * c->ldy, (size_t)c->w.n_out * sizeof *out);
    return out;
}

static void check_case(const kernel_tiers *tiers, kernel_case *c, rng *r) {
    expected *want[2];
    float *reference[2]; /* by tiers 0 (scalar) and 1 (reference) */
    cpu_act_kind kind[2];
    for (int i = 0; i < 2; i++) {
        kind[i] = tiers->table[i].mat[c->w.type].act;
        cpu_act a = kernel_encode(&tiers->table[i], c, kind[i], CPU_ACT_COLUMNS);
        want[i] = expect(c, &a);
        fenced_free(a.data);
        reference[i] = packed_product(&tiers->table[i], c);
        const run matvec = {&tiers->table[i], c, false, 0, c->w.n_out};
        check_result(&matvec, want[i], reference[kind[i] == kind[0] ? 0 : i]);
    }
    int64_t n_out = c->w.n_out, n_tiles = (n_out + CPU_ROW_TILE - 1) / CPU_ROW_TILE;
    for (int t = 0; t < tiers->n; t++) {
        const cpu_kernels *k = &tiers->table[t];
        cpu_act_kind form = act_form(k->mat[c->w.type].act, CPU_ACT_COLUMNS, c->n_cols);
        int i = form == kind[0] ? 0 : 1;
        assert_int_equal(form, kind[i]);
        for (int matmul = 0; matmul < 2; matmul++) {
            run whole = {k, c, matmul, 0, n_out};
            bool was_checked = t < 2 && !matmul; /* as a reference above */
            if (!was_checked) check_run(&whole, want[i], reference[i]);
            int64_t unit = matmul ? CPU_ROW_TILE : 1, units = matmul ? n_tiles : n_out;
            int64_t first = (int64_t)(rng_u64(r) % (uint64_t)units);
            int64_t last = first + (int64_t)(rng_u64(r) % (uint64_t)(units - first + 1));
            run part = {k, c, matmul, first * unit, min_i64(last * unit, n_out)};
            if (part.row1 >= part.row0) check_run(&part, want[i], reference[i]);
        }
    }
    for (int i = 0; i < 2; i++) {
        fenced_free(want[i]);
        fenced_free(reference[i]);
    }
}

static void make_and_check(const kernel_tiers *tiers, kernel_shape shape, kernel_fill fill,
                           rng *r) {
    kernel_case c;
    shape.ldy = shape.n_out + (int64_t)(rng_u64(r) % 4);
    kernel_case_make(&c, &shape, fill, r);
    check_case(tiers, &c, r);
    kernel_case_free(&c);
}

static int64_t one_to_40(rng *r) {
    return 1 + (int64_t)(rng_u64(r) % 40);
}

/* Integers and scales give exactly the dequantized weight. */
void kernel_test_decode(void **state) {
    (void)state;
    rng r;
    rng_seed(&r, 21);
    for (int type = 0; type < QUANT_TYPE_COUNT; type++) {
        decode_fn decode = decode_find((quant_type)type);
        const quant_traits *t = quant_find((uint32_t)type);
        assert_int_equal(decode != NULL, t != NULL && t->is_quantized && t->dequantize != NULL);
        if (decode == NULL) continue;
        kernel_case c;
        kernel_shape shape = {(quant_type)type, 1024, 50, 1, 50};
        kernel_case_make(&c, &shape, KERNEL_BITS, &r);
        for (int64_t row = 0; row < 50; row++) {
            const char *data = (const char *)c.w.data + (size_t)row * c.w.row_bytes;
            float value[1024];
            t->dequantize(data, value, 1024);
            decode_group g = {0};
            for (int i = 0; i < 1024; i++) {
                if (i % 32 == 0) decode(data, i / 32, &g);
                int h = i % 32 / 16;
                double exact = (double)g.scale[h] * g.q[i % 32] - (double)g.min[h];
                assert_true((float)exact == value[i]);
            }
        }
        kernel_case_free(&c);
    }
    assert_null(decode_find((quant_type)-1));
}

void kernel_test_sizes(void **state) {
    (void)state;
    kernel_tiers tiers;
    rng r;
    kernel_tiers_load(&tiers);
    for (int i = 0; i < QUANT_TYPE_COUNT; i++) {
        kernel_shape shape = {0};
        if (!type_at(&tiers, i, &shape.type)) continue;
        rng_seed(&r, 22);
        int64_t block = quant_find((uint32_t)i)->block_elems;
        /* 1..70 elements of plain types, 1..9 or 1..4 blocks of the others */
        int64_t n_lengths = block == 1 ? 70 : block == CPU_ACT_GROUP ? 9 : 4;
        for (int64_t n = 1; n <= n_lengths; n += block == 1 ? KERNEL_STEP : 1) {
            shape.n_in = n * block;
            shape.n_out = one_to_40(&r);
            shape.n_cols = one_to_40(&r);
            make_and_check(&tiers, shape, KERNEL_NORMAL, &r);
        }
        for (int64_t n = 1; n <= 40; n += KERNEL_STEP) {
            shape.n_in = block == 1 ? 37 : block == CPU_ACT_GROUP ? 96 : 256;
            shape.n_out = n;
            shape.n_cols = 1 + n % 5;
            make_and_check(&tiers, shape, KERNEL_NORMAL, &r);
            shape.n_out = 17 + n % 3;
            shape.n_cols = n;
            make_and_check(&tiers, shape, KERNEL_NORMAL, &r);
        }
    }
}

/* Each bit pattern with finite scales is a valid block. */
void kernel_test_random_bits(void **state) {
    (void)state;
    kernel_tiers tiers;
    rng r;
    rng_seed(&r, 23);
    kernel_tiers_load(&tiers);
    for (int i = 0; i < QUANT_TYPE_COUNT; i++) {
        kernel_shape shape = {0};
        if (!type_at(&tiers, i, &shape.type) || !quant_find((uint32_t)i)->is_quantized) continue;
        for (int round = 0; round < 8; round += KERNEL_STEP) {
            shape.n_in = quant_find((uint32_t)i)->block_elems * (1 + round);
            shape.n_out = one_to_40(&r);
            shape.n_cols = 1 + one_to_40(&r) / 2;
            make_and_check(&tiers, shape, KERNEL_BITS, &r);
        }
    }
}

void kernel_test_long_rows(void **state) {
    (void)state;
    kernel_tiers tiers;
    rng r;
    rng_seed(&r, 24);
    kernel_tiers_load(&tiers);
    for (int i = 0; i < QUANT_TYPE_COUNT; i++) {
        kernel_shape shape = {0};
        if (!type_at(&tiers, i, &shape.type)) continue;
        shape.n_in = 4096 + 256;
        shape.n_out = 5;
        shape.n_cols = 3;
        make_and_check(&tiers, shape, KERNEL_NORMAL, &r);
        if (i % KERNEL_STEP) continue;
        shape.n_in = 11008;
        shape.n_out = 18;
        shape.n_cols = KERNEL_SAMPLED ? 5 : 17;
        make_and_check(&tiers, shape, KERNEL_NORMAL, &r);
        /* columns that are arranged in advance in parts, and columns too long for that */
        shape.n_out = 5;
        shape.n_in = 29696;
        shape.n_cols = 7;
        make_and_check(&tiers, shape, KERNEL_NORMAL, &r);
        shape.n_in = 37120;
        shape.n_cols = 4;
        make_and_check(&tiers, shape, KERNEL_NORMAL, &r);
    }
}

/* Rows, columns and elements exceed the block sizes of all kernels several times. */
void kernel_test_many_blocks(void **state) {
    (void)state;
    kernel_tiers tiers;
    rng r;
    rng_seed(&r, 27);
    kernel_tiers_load(&tiers);
    for (int i = 0; i < QUANT_TYPE_COUNT; i += KERNEL_STEP) {
        kernel_shape shape = {0};
        if (!type_at(&tiers, i, &shape.type)) continue;
        int64_t block = quant_find((uint32_t)i)->block_elems;
        shape.n_in = 1280 + (block == 1 ? 19 : block < QUANT_K ? block : 0);
        shape.n_out = 293;
        shape.n_cols = KERNEL_SAMPLED ? 5 : 21;
        make_and_check(&tiers, shape, KERNEL_NORMAL, &r);
        shape.n_in = 256 + (block < QUANT_K ? block : 0);
        shape.n_out = KERNEL_SAMPLED ? 40 : 150;
        shape.n_cols = 131;
        make_and_check(&tiers, shape, KERNEL_NORMAL, &r);
        if (KERNEL_SAMPLED) continue;
        shape.n_in = block == 1 ? 19 : block;
        shape.n_out = 530;
        shape.n_cols = 67;
        make_and_check(&tiers, shape, KERNEL_NORMAL, &r);
    }
}

/* Every split of the rows gives the same bits. */
void kernel_test_split_rows(void **state) {
    (void)state;
    kernel_tiers tiers;
    rng r;
    rng_seed(&r, 25);
    kernel_tiers_load(&tiers);
    for (int i = 0; i < QUANT_TYPE_COUNT; i++) {
        kernel_shape shape = {.n_in = 512, .n_out = 61, .n_cols = 19, .ldy = 64};
        if (!type_at(&tiers, i, &shape.type)) continue;
        kernel_case c;
        kernel_case_make(&c, &shape, KERNEL_NORMAL, &r);
        float *whole = fenced_alloc(c.n_y * sizeof *whole);
        assert_non_null(whole);
        for (int t = 0; t < tiers.n; t++) {
            for (int matmul = 0; matmul < 2; matmul++) {
                kernel_clear(&c);
                kernel_product(&tiers.table[t], &c, matmul, 0, 61);
                memcpy(whole, c.y, c.n_y * sizeof *whole);
                kernel_clear(&c);
                for (int64_t row = 0; row < 61;) {
                    int64_t step = matmul ? CPU_ROW_TILE : 1 + (int64_t)(rng_u64(&r) % 7);
                    int64_t end = min_i64(row + step, 61);
                    kernel_product(&tiers.table[t], &c, matmul, row, end);
                    row = end;
                }
                if (memcmp(whole, c.y, c.n_y * sizeof *whole) != 0)
                    fail_msg("%s %s %s depends on how rows are split", tiers.table[t].name,
                             quant_find((uint32_t)i)->name, matmul ? "matmul" : "matvec");
            }
        }
        fenced_free(whole);
        kernel_case_free(&c);
    }
}

typedef enum spoil { SPOIL_NONFINITE, SPOIL_ZERO, SPOIL_TINY, SPOIL_HUGE, SPOIL_COUNT } spoil;

/* Makes vector `col` hostile. */
static void spoil_column(kernel_case *c, int64_t col, spoil how, rng *r) {
    static const float nonfinite[] = {INFINITY, -INFINITY, NAN};
    float *x = c->x + col * c->ldx;
    if (how == SPOIL_NONFINITE) {
        x[rng_u64(r) % (uint64_t)c->w.n_in] = nonfinite[rng_u64(r) % 3];
        return;
    }
    for (int64_t i = 0; i < c->w.n_in; i++) {
        float sign = rng_u64(r) >> 63 ? -1.0f : 1.0f;
        x[i] = how == SPOIL_ZERO ? 0.0f : sign * (how == SPOIL_TINY ? 1e-41f : 3e38f);
    }
}

/* A hostile vector or a row of NaNs gives the defined result and does not change one bit of its
 * neighbours' results. */
static void check_spoilt(const cpu_kernels *k, kernel_case *c, bool matmul, spoil how, rng *r) {
    int64_t n_out = c->w.n_out, col = (int64_t)(rng_u64(r) % (uint64_t)c->n_cols), bad_row = 3;
    size_t n_x = (size_t)c->w.n_in;
    float *clean = fenced_alloc(c->n_y * sizeof *clean), *x = fenced_alloc(n_x * sizeof *x);
    char *row = fenced_alloc(c->w.row_bytes);
    char *row_at = c->w_base + 2 + (size_t)bad_row * c->w.row_bytes;
    assert_true(clean != NULL && x != NULL && row != NULL);
    kernel_product(k, c, matmul, 0, n_out);
    memcpy(clean, c->y, c->n_y * sizeof *clean);
    memcpy(x, c->x + col * c->ldx, n_x * sizeof *x);
    memcpy(row, row_at, c->w.row_bytes);
    spoil_column(c, col, how, r);
    memset(row_at, 0xff, c->w.row_bytes); /* NaN in every type, as scale or as element */
    kernel_product(k, c, matmul, 0, n_out);
    run u = {k, c, matmul, 0, n_out};
    for (int64_t v = 0; v < c->n_cols; v++) {
        for (int64_t i = 0; i < n_out; i++) {
            float y = c->y[v * c->ldy + i], was = clean[v * c->ldy + i];
            if (i == bad_row) {
                if (isfinite(y) && c->w.type != QUANT_NVFP4) /* NVFP4 has no NaN */
                    fail_at(&u, i, v, "from a row of NaNs, not", (double)y, NAN);
            } else if (v != col) {
                if (memcmp(&y, &was, sizeof y) != 0)
                    fail_at(&u, i, v, "was", (double)y, (double)was);
            } else if (how == SPOIL_NONFINITE) {
                if (isfinite(y)) fail_at(&u, i, v, "from non-finite x, not", (double)y, NAN);
            } else if (how != SPOIL_HUGE) {
                if (!(fabsf(y) <= 1e-35f)) fail_at(&u, i, v, "not about", (double)y, 0.0);
            }
        }
    }
    memcpy(c->x + col * c->ldx, x, n_x * sizeof *x);
    memcpy(row_at, row, c->w.row_bytes);
    fenced_free(clean);
    fenced_free(x);
    fenced_free(row);
}

void kernel_test_hostile(void **state) {
    (void)state;
    kernel_tiers tiers;
    rng r;
    rng_seed(&r, 26);
    kernel_tiers_load(&tiers);
    for (int i = 0; i < QUANT_TYPE_COUNT; i++) {
        for (int64_t n_cols = 1; n_cols <= 21; n_cols += KERNEL_SAMPLED ? 10 : 5) {
            kernel_shape shape = {.n_in = 256, .n_out = 21, .n_cols = n_cols, .ldy = 21};
            if (!type_at(&tiers, i, &shape.type)) continue;
            if (quant_find((uint32_t)i)->block_elems == 1) shape.n_in = 31 + n_cols;
            kernel_case c;
            kernel_case_make(&c, &shape, KERNEL_NORMAL, &r);
            for (int t = 0; t < tiers.n; t++) {
                for (int how = 0; how < 2 * SPOIL_COUNT; how++)
                    check_spoilt(&tiers.table[t], &c, how % 2, (spoil)(how / 2), &r);
            }
            kernel_case_free(&c);
        }
    }
}
