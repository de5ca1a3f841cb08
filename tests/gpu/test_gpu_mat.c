/* test_gpu_mat.c: matrix-vector products of a device, for every type, odd sizes and 1 to 8 columns,
 * compared with sums in double of the weights' values and the inputs as the kernels use them. */
#include "gpu_case.h"

#define OPS (&the_case.b->ops)

/* Float sums in another order: a few roundings of 2^-24, relative to the sum of magnitudes. */
static const double sum_tolerance = 4e-6;
static const double half_tolerance =
    1e-3; /* products of prompts: both factors have 11 bits, with BF16 8 */

/* Sum of w x, and sum of the terms' magnitudes. */
static double dot(const float *w, const float *x, int64_t n, double *size) {
    double sum = 0;
    *size = 1e-30;
    for (int64_t i = 0; i < n; i++) {
        sum += (double)w[i] * x[i];
        *size += fabs((double)w[i] * x[i]);
    }
    return sum;
}

typedef struct shape {
    int64_t n_out, n_in;
} shape;

static void check_matvec(case_mat w, int n_cols, bool full) {
    const int64_t n_out = w.mat.n_out, n_in = w.mat.n_in;
    const quant_type type = w.mat.type;
    case_columns x = case_input(n_in, n_cols);
    int64_t ldy = n_out + 3;
    float *y = case_random(ldy * n_cols, 1), *before = case_host((size_t)(ldy * n_cols) * 4);
    float *bias = case_random(n_out, 1);
    memcpy(before, y, (size_t)(ldy * n_cols) * 4);
    float *device_y = case_upload(y, (size_t)(ldy * n_cols) * 4);
    gpu_matmul a = {.w = w.mat, .in = x.in, .scale = 1, .y = device_y, .ldy = ldy};
    if (full) {
        a.scale = 0.5f;
        a.bias = case_upload(bias, (size_t)n_out * 4);
        a.add = true;
        a.scale_last = n_out % 2 == 0;
        a.relu = n_cols > 4;
    }
    OPS->matvec(the_case.stream, &a, 1);
    case_download(y, device_y, (size_t)(ldy * n_cols) * 4);
    for (int c = 0; c < n_cols; c++) {
        for (int64_t r = 0; r < ldy; r++) {
            int64_t at = c * ldy + r;
            if (r >= n_out) { /* not written */
                assert_true(y[at] == before[at]);
                continue;
            }
            double size, want = dot(w.values + r * n_in, case_seen(&x, type, c), n_in, &size);
            if (full) {
                want = a.scale_last ? 0.5 * (want + (double)bias[r]) : 0.5 * want + (double)bias[r];
                want += (double)before[at];
                size += fabs((double)bias[r]) + fabs((double)before[at]);
            }
            if (a.relu) want = fmax(want, 0);
            case_near(y[at], want, size, sum_tolerance, "matvec", at);
        }
    }
}

/* Three products at once equal three separate products, bit for bit, with one type or several. */
static void check_joined(const quant_type types[GPU_MAX_PRODUCTS], int n_products, int n_cols) {
    static const int64_t n_outs[GPU_MAX_PRODUCTS] = {70, 8, 33, 9};
    const int64_t n_in = case_width(QUANT_Q4_K, 300);
    case_columns x = case_input(n_in, n_cols);
    gpu_matmul a[GPU_MAX_PRODUCTS];
    size_t n_bytes[GPU_MAX_PRODUCTS];
    void *want[GPU_MAX_PRODUCTS];
    for (int i = 0; i < n_products; i++) {
        n_bytes[i] = (size_t)(n_outs[i] * n_cols) * sizeof(float);
        float *y = case_random(n_outs[i] * n_cols, 1), *bias = case_random(n_outs[i], 1);
        a[i] = (gpu_matmul){.w = case_weights(types[i], n_outs[i], n_in).mat,
                            .in = x.in,
                            .bias = i == 1 ? NULL : case_upload(bias, (size_t)n_outs[i] * 4),
                            .scale = (float)(i + 1),
                            .add = i == 2,
                            .y = case_upload(y, n_bytes[i]),
                            .ldy = n_outs[i]};
        gpu_matmul alone = a[i];
        alone.y = case_upload(y, n_bytes[i]);
        OPS->matvec(the_case.stream, &alone, 1);
        want[i] = case_host(n_bytes[i]);
        case_download(want[i], alone.y, n_bytes[i]);
    }
    OPS->matvec(the_case.stream, a, n_products);
    for (int i = 0; i < n_products; i++) {
        void *got = case_host(n_bytes[i]);
        case_download(got, a[i].y, n_bytes[i]);
        assert_memory_equal(got, want[i], n_bytes[i]);
    }
}

static void test_joined(void **state) {
    (void)state;
    static const quant_type types[][GPU_MAX_PRODUCTS] = {
        {QUANT_Q4_0, QUANT_Q4_0, QUANT_Q4_0, QUANT_Q4_0},
        {QUANT_Q4_K, QUANT_Q4_K, QUANT_Q6_K, QUANT_Q6_K},
        {QUANT_F16, QUANT_Q8_0, QUANT_F16, QUANT_F32},
    };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        for (int n = 2; n <= GPU_MAX_PRODUCTS; n++) {
            case_teardown(NULL);
            if (!case_has(GPU_OP_MATVEC, types[i][0]) || !case_has(GPU_OP_MATVEC, types[i][2]))
                continue;
            check_joined(types[i], n, 2 * (int)i + 1);
        }
    }
}

static void test_matvec(void **state) {
    (void)state;
    static const shape shapes[] = {{1, 1}, {7, 33}, {33, 520}, {5, 1030}};
    for (int t = 0; t < case_n_types; t++) {
        if (!case_has(GPU_OP_MATVEC, case_types[t])) continue;
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            case_teardown(NULL);
            int64_t n_in = case_width(case_types[t], shapes[i].n_in);
            case_mat w = case_weights(case_types[t], shapes[i].n_out, n_in);
            check_matvec(w, 1 + (int)i * 2, i % 2 == 1);
        }
    }
}

static void test_matvec_columns(void **state) {
    (void)state;
    for (int t = 0; t < case_n_types; t++) {
        if (!case_has(GPU_OP_MATVEC, case_types[t])) continue;
        for (int n_cols = 1; n_cols <= GPU_MAX_COLS; n_cols++) {
            case_teardown(NULL);
            check_matvec(case_weights(case_types[t], 9, 256), n_cols, n_cols % 2 == 0);
        }
    }
}

/* Random blocks: every bit of a block matters. */
static void test_patterns(void **state) {
    (void)state;
    enum { ROWS = 40 };
    for (int t = 0; t < case_n_types; t++) {
        if (!case_has(GPU_OP_MATVEC, case_types[t])) continue;
        case_teardown(NULL);
        int64_t n = case_width(case_types[t], 256);
        check_matvec(case_patterns(case_types[t], ROWS, n), 2, false);
    }
}

/* The int8 form: scales, integers and sums by the formula. */
static void check_quantize(int n_cols) {
    enum { N = 96, KINDS = 3 };
    float(*x)[N] = case_host((size_t)n_cols * sizeof *x);
    for (int c = 0; c < n_cols; c++) {
        for (int i = 0; i < N; i++) {
            if (c % KINDS == 0)
                x[c][i] = rng_normal(&the_case.r);
            else if (c % KINDS == 1)
                x[c][i] = i < 32 ? 0 : i < 64 ? (float)(i - 48) * 1e30f : (float)NAN;
            else
                x[c][i] = i == 5 ? (float)INFINITY : (float)i;
        }
    }
    size_t column = gpu_q8_bytes(N), n_bytes = column * (size_t)n_cols;
    uint8_t *q8 = case_alloc(n_bytes), *bytes = case_host(n_bytes);
    gpu_quantize e = {.x = case_upload(x, (size_t)n_cols * sizeof *x),
                      .ldx = N,
                      .n = N,
                      .n_cols = n_cols,
                      .q8 = q8};
    OPS->quantize(the_case.stream, &e);
    case_download(bytes, q8, n_bytes);
    for (int c = 0; c < n_cols; c++) {
        for (int g = 0; g < N / 32; g++) {
            float d, amax = 0;
            int32_t sums[2], want[2] = {0, 0};
            const uint8_t *at = bytes + column * (size_t)c;
            memcpy(&d, at + gpu_q8_d_offset(N) + 4 * g, 4);
            memcpy(sums, at + gpu_q8_sum_offset(N) + 8 * g, 8);
            bool finite = true;
            for (int i = 0; i < 32; i++) {
                amax = fmaxf(amax, fabsf(x[c][32 * g + i]));
                finite = finite && isfinite(x[c][32 * g + i]);
            }
            if (!finite) {
                assert_true(isnan(d));
                continue;
            }
            assert_true(d == amax / 127.0f);
            for (int i = 0; i < 32; i++) {
                int q = d > 0 ? (int)nearbyintf(x[c][32 * g + i] / d) : 0;
                assert_int_equal((int8_t)at[32 * g + i], q);
                want[i / 16] += q;
            }
            assert_memory_equal(sums, want, sizeof want);
        }
    }
}

static void test_quantize(void **state) {
    (void)state;
    static const int counts[] = {1, 3, GPU_MAX_COLS, GPU_MAX_COLS + 1, 70};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        case_teardown(NULL);
        check_quantize(counts[i]);
    }
}

/* A matrix of the middle columns of wider rows, like a down matrix split by neurons: the split
 * starts at a block, and the stride of rows exceeds their length. */
static void check_slice(quant_type type) {
    enum { N_OUT = 9, COLS = 3 };
    const quant_traits *t = quant_find((uint32_t)type);
    const int64_t step = case_width(type, 32), wide = 4 * step, n_in = 2 * step;
    size_t row = 0, before = 0, used = 0;
    assert_true(quant_row_bytes(type, (uint64_t)wide, &row) &&
                quant_row_bytes(type, (uint64_t)step, &before) &&
                quant_row_bytes(type, (uint64_t)n_in, &used));
    uint8_t *raw = case_host(N_OUT * row);
    float *values = case_random(N_OUT * wide, 1);
    for (int r = 0; r < N_OUT; r++) {
        if (type == QUANT_F32) {
            memcpy(raw + (size_t)r * row, values + r * wide, row);
            continue;
        }
        t->quantize(values + r * wide, raw + (size_t)r * row, wide, NULL);
        t->dequantize(raw + (size_t)r * row, values + r * wide, wide);
    }
    gpu_mat w = {.row_bytes = gpu_mat_row_bytes(used), .n_in = n_in, .n_out = N_OUT, .type = type};
    w.data = case_alloc(N_OUT * w.row_bytes);
    gpu_pack pack = {.src = (uint8_t *)case_upload(raw, N_OUT * row) + before,
                     .src_row_bytes = row,
                     .dst = w,
                     .n_rows = N_OUT};
    OPS->pack(the_case.stream, &pack);
    case_columns x = case_input(n_in, COLS);
    float y[2][COLS][N_OUT], *device_y = case_alloc(sizeof y);
    gpu_matmul a = {.w = w, .in = x.in, .scale = 1, .y = device_y, .ldy = N_OUT};
    OPS->matvec(the_case.stream, &a, 1);
    a.y += COLS * N_OUT;
    a.scratch = case_alloc(gpu_matmul_scratch(n_in, COLS));
    OPS->matmul(the_case.stream, &a);
    case_download(y, device_y, sizeof y);
    gpu_info info;
    pi_error err;
    if (the_case.b->describe(0, &info, &err)) fail_msg("%s", err.message);
    const bool rounds = (info.tensor_cores || info.int8_prompts) &&
                        gpu_matmul_rounding(type, false, false) == GPU_ROUND_INT8;
    for (int c = 0; c < COLS; c++) {
        for (int r = 0; r < N_OUT; r++) {
            const float *at = values + r * wide + step;
            double size, want = dot(at, case_seen(&x, type, c), n_in, &size);
            case_near(y[0][c][r], want, size, sum_tolerance, "slice by matvec", r);
            want = dot(at, rounds ? case_seen(&x, type, c) : x.x + c * x.ldx, n_in, &size);
            case_near(y[1][c][r], want, size,
                      type == QUANT_BF16 ? 8 * half_tolerance : half_tolerance, "slice by matmul",
                      r);
        }
    }
}

static void test_slice(void **state) {
    (void)state;
    for (int t = 0; t < case_n_types; t++) {
        if (!case_has(GPU_OP_MATVEC, case_types[t])) continue;
        case_teardown(NULL);
        check_slice(case_types[t]);
    }
}

/* ---- the norm of a product ------------------------------------------------------------------- */

/* A norm by the kernel of a product, in place of the model's next operation. It is checked against
 * the product's values, which the device returns. Two launches: the counter is zero after the
 * first. */
static void check_normed(quant_type type, int64_t n_out, int64_t n_in, gpu_norm_kind kind) {
    case_mat w = case_weights(type, n_out, n_in);
    case_columns x = case_input(n_in, 1);
    const size_t n_bytes = (size_t)n_out * sizeof(float);
    const int32_t zero = 0;
    const bool layer = kind == GPU_NORM_LAYER, quantized = n_out % 32 == 0;
    float *start = case_random(n_out, 1), *weight = case_random(n_out, 1), *y = case_host(n_bytes),
          *normed = case_host(n_bytes);
    float *device_y = case_upload(start, n_bytes);
    const gpu_norm norm = {.x = device_y,
                           .w = case_upload(weight, n_bytes),
                           .ldx = n_out,
                           .ldy = n_out,
                           .n = n_out,
                           .eps = 1e-5f,
                           .kind = kind,
                           .n_cols = 1,
                           .y = case_alloc(n_bytes),
                           .q8 = quantized ? case_alloc(gpu_q8_bytes(n_out)) : NULL};
    const gpu_matmul a = {.w = w.mat,
                          .in = x.in,
                          .scale = 1,
                          .add = true,
                          .y = device_y,
                          .ldy = n_out,
                          .norm = &norm,
                          .arrived = case_upload(&zero, sizeof zero)};
    for (int launch = 1; launch <= 2; launch++) {
        OPS->matvec(the_case.stream, &a, 1);
        case_download(y, device_y, n_bytes);
        case_download(normed, norm.y, n_bytes);
        double mean = 0, squares = 0;
        for (int64_t r = 0; r < n_out; r++) {
            double size, want = dot(w.values + r * n_in, case_seen(&x, type, 0), n_in, &size);
            want = (double)start[r] + launch * want;
            case_near(y[r], want, launch * size + fabs((double)start[r]), sum_tolerance, "product",
                      r);
            if (layer) mean += (double)y[r] / (double)n_out;
        }
        for (int64_t r = 0; r < n_out; r++) squares += pow((double)y[r] - mean, 2);
        const double scale = 1 / sqrt(squares / (double)n_out + 1e-5);
        for (int64_t r = 0; r < n_out; r++)
            case_near(normed[r], ((double)y[r] - mean) * scale * (double)weight[r],
                      fabs((double)weight[r]), 1e-5, "norm", r);
        if (quantized) case_quantized(norm.q8, norm.y, n_out, n_out, 1);
    }
}

static void test_normed(void **state) {
    (void)state;
    static const int64_t lengths[] = {3, 64, 544, 4128}; /* more than the block holds */
    for (int i = 0; i < 4; i++) {
        case_teardown(NULL);
        check_normed(i % 2 ? QUANT_Q4_0 : QUANT_F16, lengths[i], 64,
                     i < 2 ? GPU_NORM_LAYER : GPU_NORM_RMS);
    }
    for (int t = 0; t < case_n_types; t++) {
        if (!case_has(GPU_OP_MATVEC, case_types[t])) continue;
        case_teardown(NULL);
        check_normed(case_types[t], 96, case_width(case_types[t], 64), GPU_NORM_RMS);
    }
}

static const struct CMUnitTest tests[] = {
    CASE_TEST(test_quantize),       CASE_TEST(test_patterns), CASE_TEST(test_matvec),
    CASE_TEST(test_matvec_columns), CASE_TEST(test_slice),    CASE_TEST(test_joined),
    CASE_TEST(test_normed),
};
CASE_MAIN(tests)
