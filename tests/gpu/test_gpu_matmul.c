/* test_gpu_matmul.c: products for prompts, also with the transposed matrix, for every type, over
 * odd sizes.
 *
 * Two checks. The sums are right: they closely match sums in double over the tensor cores' inputs
 * (columns quantized to int8, or weights and columns rounded to 16 bits). The inputs are precise
 * enough: the results are compared with those of the unrounded values, by the mean square of the
 * error over that of the result. */
#include <stdlib.h>

#include "gpu_case.h"

#define OPS (&the_case.b->ops)

/* Float sums in another order: a few roundings of 2^-24, relative to the sum of magnitudes. */
static const double sum_tolerance = 4e-6;
/* Maximum NMSE with half (11 bits), bfloat16 (8 bits) and int8 columns: values that are uniform in
 * [-1, 1], rounded to steps of 1/127, have an NMSE of 1.6e-5. */
static const double nmse_half = 1e-6, nmse_bf16 = 1e-5, nmse_int8 = 5e-5;

/* ---- inputs as the device rounds them -------------------------------------------------------- */

typedef enum rounding { EXACT, HALF, BF16, INT8 } rounding;

/* Float units do not round their inputs. */
static rounding rounding_of(quant_type type, bool transposed) {
    gpu_info info;
    pi_error err;
    if (the_case.b->describe(0, &info, &err)) fail_msg("%s", err.message);
    if (!info.tensor_cores && info.int8_prompts && gpu_type_wants_q8(type) && !transposed)
        return INT8;
    if (!info.tensor_cores || type == QUANT_F32) return EXACT;
    if (type != QUANT_BF16) return gpu_type_wants_q8(type) && !transposed ? INT8 : HALF;
    const bool turing = info.capability_major > 0 && info.capability_major < 8;
    return turing ? EXACT : BF16;
}

/* Rounds to n significant bits, ties to even, with 2^lowest as the smallest step. */
static double round_to(double v, int n_bits, int lowest) {
    if (v == 0 || !isfinite(v)) return v;
    int exponent;
    frexp(v, &exponent);
    int unit = exponent - n_bits < lowest ? lowest : exponent - n_bits;
    return ldexp(nearbyint(ldexp(v, -unit)), unit);
}

static double rounded_weight(double w, rounding r) {
    return r == EXACT || r == INT8 ? w : r == HALF ? round_to(w, 11, -24) : round_to(w, 8, -133);
}

/* Groups of 32 with a scale each, in float arithmetic: a value halfway between two integers must be
 * rounded to the same one. */
static void quantize_column(const float *x, int64_t n, double *out) {
    for (int64_t g = 0; g < n; g += 32) {
        float largest = 0;
        for (int64_t i = g; i < g + 32; i++) largest = fmaxf(largest, fabsf(x[i]));
        const float d = largest / 127.0f;
        for (int64_t i = g; i < g + 32; i++)
            out[i] = d == 0 ? 0 : (double)d * fmin(fmax((double)rintf(x[i] / d), -127), 127);
    }
}

/* Rounds a column of x; halves are scaled so that the largest is in [2^14, 2^15). */
static void round_column(const float *x, int64_t n, rounding r, double *out) {
    if (r == INT8) {
        quantize_column(x, n, out);
        return;
    }
    double largest = 0;
    int exponent;
    for (int64_t i = 0; i < n; i++) largest = fmax(largest, fabs((double)x[i]));
    frexp(largest, &exponent);
    for (int64_t i = 0; i < n; i++) {
        double v = (double)x[i];
        if (r == HALF) v = ldexp(round_to(ldexp(v, 15 - exponent), 11, -24), exponent - 15);
        out[i] = r == BF16 ? round_to(v, 8, -133) : v;
    }
}

/* ---- products -------------------------------------------------------------------------------- */

typedef struct product {
    case_mat w;
    const float *x; /* [n_cols][ldx] */
    gpu_input in;
    int64_t n_sum, n_y, ldy;
    bool transposed, precise;
    float scale, *bias, *before; /* NULL: none; before: y to which the product is added */
    bool scale_last, relu;
    bool twice; /* runs twice; the second run reuses the rounded columns */
    float *y;   /* [n_cols][ldy] */
} product;

static bool has_product(quant_type type, bool transposed) {
    return case_has(transposed ? GPU_OP_MATMUL_T : GPU_OP_MATMUL, type);
}

static void make_product(product *p, quant_type type, int64_t n_out, int64_t n_in, int n_cols,
                         bool transposed) {
    *p = (product){.w = case_weights(type, n_out, n_in), .transposed = transposed, .scale = 1};
    p->n_sum = transposed ? n_out : n_in;
    p->n_y = transposed ? n_in : n_out;
    p->ldy = p->n_y + 3;
    case_columns x = case_input(p->n_sum, n_cols);
    p->x = x.x;
    p->in = x.in;
    p->y = case_random(p->ldy * n_cols, 1);
}

static void run_product(product *p) {
    const size_t n_bytes = (size_t)(p->ldy * p->in.n_cols) * sizeof(float);
    gpu_matmul a = {.w = p->w.mat,
                    .in = p->in,
                    .scale = p->scale,
                    .scale_last = p->scale_last,
                    .precise = p->precise,
                    .add = p->before != NULL,
                    .relu = p->relu,
                    .y = case_upload(p->y, n_bytes),
                    .ldy = p->ldy,
                    .scratch = case_alloc(gpu_matmul_scratch(p->n_sum, p->in.n_cols))};
    if (p->bias) a.bias = case_upload(p->bias, (size_t)p->n_y * sizeof(float));
    gpu_matmul again = a;
    again.rounded = true;
    again.y = case_upload(p->y, n_bytes);
    (p->transposed ? OPS->matmul_t : OPS->matmul)(the_case.stream, &a);
    case_download(p->y, a.y, n_bytes);
    if (!p->twice) return;
    (p->transposed ? OPS->matmul_t : OPS->matmul)(the_case.stream, &again);
    void *same = case_host(n_bytes);
    case_download(same, again.y, n_bytes);
    assert_memory_equal(same, p->y, n_bytes);
}

static double weight(const product *p, int64_t o, int64_t k) {
    const int64_t n_in = p->w.mat.n_in;
    return (double)(p->transposed ? p->w.values[k * n_in + o] : p->w.values[o * n_in + k]);
}

/* Compares column c with both sums; adds its terms of the NMSE to *error and *power. The expected
 * power of a sum of random terms is the sum of their squares; the sum itself may be small by
 * chance. */
static void check_column(const product *p, int c, double *error, double *power) {
    const rounding r = p->precise ? EXACT : rounding_of(p->w.mat.type, p->transposed);
    double *x = case_host((size_t)p->n_sum * sizeof *x);
    round_column(p->x + c * p->in.ldx, p->n_sum, r, x);
    for (int64_t o = 0; o < p->n_y; o++) {
        double seen = 0, true_sum = 0, size = 1e-300, largest = 0, squares = 0;
        for (int64_t k = 0; k < p->n_sum; k++) {
            const double w = weight(p, o, k), term = rounded_weight(w, r) * x[k];
            true_sum += w * (double)p->x[c * p->in.ldx + k];
            seen += term;
            size += fabs(term);
            largest = fmax(largest, fabs(term));
            squares += term * term;
        }
        double rest = 0; /* bias and previous value */
        const double bias = p->bias ? (double)p->bias[o] : 0;
        rest += p->scale_last ? (double)p->scale * bias : bias;
        if (p->before) rest += (double)p->before[c * p->ldy + o];
        const double got = (double)p->y[c * p->ldy + o];
        /* A weight halfway between two halves may be rounded to the other one. */
        const double allowed = size * (double)p->scale + fabs(rest) +
                               (r == HALF ? largest * ldexp(1, -11) / sum_tolerance : 0);
        seen = (double)p->scale * seen + rest;
        true_sum = (double)p->scale * true_sum + rest;
        if (p->relu) seen = fmax(seen, 0), true_sum = fmax(true_sum, 0);
        case_near(got, seen, allowed, sum_tolerance, p->transposed ? "matmul_t" : "matmul",
                  c * p->ldy + o);
        *error += pow(got - true_sum, 2);
        *power += fmax(pow(true_sum, 2), pow((double)p->scale, 2) * squares);
    }
}

/* r: the coarsest rounding of the products. */
static void check_nmse(quant_type type, rounding r, double error, double power) {
    const double limit = r == BF16 ? nmse_bf16 : r == INT8 ? nmse_int8 : nmse_half;
    if (error <= limit * power) return;
    fail_msg("%s: NMSE %.3g", quant_find((uint32_t)type)->name, error / power);
}

/* Adds to *error and *power: an NMSE over few outputs is meaningless, because they may be small by
 * chance. */
static void check_product(const product *p, double *error, double *power) {
    for (int c = 0; c < p->in.n_cols; c++) check_column(p, c, error, power);
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* Products have two forms. Sanitizers test one of them per case, alternating; CASE_EVERY=n, set for
 * other kinds of tensor cores, tests every n-th. */
static size_t form_every(void) {
    const char *every = getenv("CASE_EVERY");
#ifdef TEST_SAMPLED
    return every ? (size_t)strtoul(every, NULL, 10) : 2;
#else
    return every ? (size_t)strtoul(every, NULL, 10) : 1;
#endif
}

/* Less than a tile, more than a tile, and exactly one, in every dimension. */

static void test_shapes(void **state) {
    (void)state;
    static const struct {
        int64_t n_out, n_in;
        int n_cols;
    } shapes[] = {{1, 1, 1}, {3, 65, 1}, {130, 100, 67}, {70, 288, 5}, {128, 32, 64}, {33, 140, 2}};
    for (int t = 0; t < case_n_types; t++) {
        double error[2] = {0}, power[2] = {0};
        for (size_t i = 0; i < 2 * (sizeof shapes / sizeof *shapes); i++) {
            const size_t s = i / 2;
            if (((size_t)t + s + i) % form_every()) continue;
            if (!has_product(case_types[t], i % 2 == 1)) continue;
            case_teardown(NULL);
            product p;
            make_product(&p, case_types[t], shapes[s].n_out,
                         case_width(case_types[t], shapes[s].n_in), shapes[s].n_cols, i % 2 == 1);
            run_product(&p);
            check_product(&p, &error[i % 2], &power[i % 2]);
        }
        for (int i = 0; i < 2; i++)
            check_nmse(case_types[t], rounding_of(case_types[t], i == 1), error[i], power[i]);
    }
}

/* Scale, bias, addition to y and ReLU in turn; memory behind a column of y is unchanged. */
static void test_forms(void **state) {
    (void)state;
    double error = 0, power = 0;
    for (int form = 0; form < 16; form++) {
        case_teardown(NULL);
        if (!has_product(QUANT_Q4_0, form & 1)) continue;
        product p;
        make_product(&p, QUANT_Q4_0, 37, 96, 9, form & 1);
        if (form & 2) p.bias = case_random(p.n_y, 1);
        p.scale = 0.75f;
        p.scale_last = (form & 4) != 0;
        p.relu = form % 3 == 1;
        p.twice = true;
        const size_t n_bytes = (size_t)(p.ldy * p.in.n_cols) * sizeof(float);
        float *before = case_host(n_bytes);
        memcpy(before, p.y, n_bytes);
        if (form & 8) p.before = before;
        run_product(&p);
        check_product(&p, &error, &power);
        for (int c = 0; c < p.in.n_cols; c++)
            assert_memory_equal(p.y + c * p.ldy + p.n_y, before + c * p.ldy + p.n_y, 3 * 4);
    }
    check_nmse(QUANT_Q4_0, rounding_of(QUANT_Q4_0, false), error, power);
}

/* Split sums: in both forms, by tensor cores and by float units, with a shorter last part. */
static void test_splits(void **state) {
    (void)state;
    static const quant_type types[] = {QUANT_F16, QUANT_F32, QUANT_BF16, QUANT_Q4_0, QUANT_Q6_K};
    assert_int_equal(gpu_matmul_splits(4096, 4096, GPU_MAX_COLS + 1), GPU_SPLIT_MOST);
    assert_int_equal(gpu_matmul_splits(4096, 4096, 128), 4);
    assert_int_equal(gpu_matmul_splits(4096, 4096, 512), 1);
    assert_int_equal(gpu_matmul_splits(4096, 14336, 16), 2);
    assert_int_equal(gpu_matmul_splits(511, 128, 16), 1);
    for (int i = 0; i < 12; i++) {
        case_teardown(NULL);
        const quant_type type = types[i / 2 % 5];
        if (!has_product(type, i % 2)) continue;
        double error = 0, power = 0;
        product p;
        if (i % 2)
            make_product(&p, type, 1100 + i, case_width(type, 40), 9, true);
        else
            make_product(&p, type, 37, case_width(type, 1130), 66, false);
        assert_true(gpu_matmul_splits(p.n_sum, p.n_y, p.in.n_cols) > 1);
        p.precise = i >= 10;
        p.bias = case_random(p.n_y, 1);
        run_product(&p);
        check_product(&p, &error, &power);
        check_nmse(type, rounding_of(type, p.transposed), error, power);
    }
}

/* Replaces the input by one whose column c is scaled by sizes[c]. */
static void scale_columns(product *p, const float *sizes) {
    float *x = case_host((size_t)(p->in.ldx * p->in.n_cols) * sizeof *x);
    for (int64_t i = 0; i < p->in.ldx * p->in.n_cols; i++) x[i] = p->x[i] * sizes[i / p->in.ldx];
    p->x = x;
    p->in.x = case_upload(x, (size_t)(p->in.ldx * p->in.n_cols) * sizeof *x);
}

/* Columns far outside the range of half have the same relative error. */
static void test_range(void **state) {
    (void)state;
    enum { COLS = 8 };
    static const float sizes[COLS] = {1, 1e6f, 1e-6f, 1e30f, 1e-30f, 0, 65504, 1e-36f};
    static const quant_type types[] = {QUANT_F32, QUANT_F16, QUANT_BF16, QUANT_Q8_0};
    for (int i = 0; i < 8; i++) {
        case_teardown(NULL);
        if (!has_product(types[i / 2], i % 2 == 1)) continue;
        product p;
        make_product(&p, types[i / 2], 40, 96, COLS, i % 2 == 1);
        scale_columns(&p, sizes);
        run_product(&p);
        for (int c = 0; c < COLS; c++) {
            double error = 0, power = 0;
            check_column(&p, c, &error, &power);
            check_nmse(types[i / 2], rounding_of(types[i / 2], p.transposed), error, power);
        }
    }
}

/* With `precise`, columns are not rounded. */
static void test_precise(void **state) {
    (void)state;
    static const double nmse_float = 1e-12;
    for (int transposed = 0; transposed < 2; transposed++) {
        case_teardown(NULL);
        if (!has_product(QUANT_F16, transposed != 0)) continue;
        product p;
        double error = 0, power = 0;
        make_product(&p, QUANT_F16, 40, 96, 5, transposed != 0);
        p.precise = true;
        run_product(&p);
        check_product(&p, &error, &power);
        assert_true(error <= nmse_float * power);
    }
}

/* bfloat16 weights keep the range of float. */
static void test_large_weights(void **state) {
    (void)state;
    enum { N_OUT = 20, N_IN = 64, COLS = 3 };
    product p;
    make_product(&p, QUANT_BF16, N_OUT, N_IN, COLS, false);
    uint16_t bits[N_OUT * N_IN];
    for (int i = 0; i < N_OUT * N_IN; i++) {
        const float v = (i / N_IN % 2 ? 1e-20f : 1e20f) * p.w.values[i];
        bits[i] = quant_f32_to_bf16(v);
        p.w.values[i] = quant_bf16_to_f32(bits[i]);
    }
    p.w.mat.data = case_upload(bits, sizeof bits);
    run_product(&p);
    double error = 0, power = 0;
    check_product(&p, &error, &power);
    check_nmse(QUANT_BF16, rounding_of(QUANT_BF16, false), error, power);
}

/* A non-finite column does not affect other columns. */
static void test_not_finite(void **state) {
    (void)state;
    enum { COLS = 5 };
    for (int i = 0; i < 2 * case_n_types; i++) {
        double error = 0, power = 0;
        if ((size_t)(i / 2 + i) % form_every()) continue;
        if (!has_product(case_types[i / 2], i % 2 == 1)) continue;
        case_teardown(NULL);
        product p;
        make_product(&p, case_types[i / 2], 35, case_width(case_types[i / 2], 64), COLS,
                     i % 2 == 1);
        float *x = case_host((size_t)(p.in.ldx * COLS) * sizeof *x);
        memcpy(x, p.x, (size_t)(p.in.ldx * COLS) * sizeof *x);
        x[p.in.ldx + 7] = (float)INFINITY;
        x[3 * p.in.ldx] = (float)NAN;
        p.in.x = case_upload(x, (size_t)(p.in.ldx * COLS) * sizeof *x);
        run_product(&p);
        for (int c = 0; c < COLS; c += 2) check_column(&p, c, &error, &power);
        for (int64_t o = 0; o < p.n_y; o++) {
            assert_true(!isfinite(p.y[p.ldy + o]));
            assert_true(isnan(p.y[3 * p.ldy + o]));
        }
    }
}

static const struct CMUnitTest tests[] = {
    CASE_TEST(test_shapes),     CASE_TEST(test_forms),   CASE_TEST(test_splits),
    CASE_TEST(test_range),      CASE_TEST(test_precise), CASE_TEST(test_large_weights),
    CASE_TEST(test_not_finite),
};
CASE_MAIN(tests)
