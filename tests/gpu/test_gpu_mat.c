/* test_gpu_mat.c: the matrix-vector products of a device, for every type, over odd sizes and 1..8
 * columns, against sums in double of the weights' values and of the inputs as the kernels see them.
 */
#include "gpu_case.h"

#define OPS (&the_case.b->ops)

/* Sums of floats in another order: a few roundings of 2^-24 each, relative to the sizes summed. */
static const double sum_tolerance = 4e-6;

/* sum of w x, and of its terms' sizes. */
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

static void check_matvec(quant_type type, int64_t n_out, int64_t n_in, int n_cols, bool full) {
    case_mat w = case_weights(type, n_out, n_in);
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
    }
    OPS->matvec(the_case.stream, &a);
    case_download(y, device_y, (size_t)(ldy * n_cols) * 4);
    for (int c = 0; c < n_cols; c++) {
        for (int64_t r = 0; r < ldy; r++) {
            int64_t at = c * ldy + r;
            if (r >= n_out) { /* not touched */
                assert_true(y[at] == before[at]);
                continue;
            }
            double size, want = dot(w.values + r * n_in, case_seen(&x, type, c), n_in, &size);
            if (full) {
                want = a.scale_last ? 0.5 * (want + (double)bias[r]) : 0.5 * want + (double)bias[r];
                want += (double)before[at];
                size += fabs((double)bias[r]) + fabs((double)before[at]);
            }
            case_near(y[at], want, size, sum_tolerance, "matvec", at);
        }
    }
}

static void test_matvec(void **state) {
    (void)state;
    static const shape shapes[] = {{1, 1}, {7, 33}, {33, 520}, {5, 1030}};
    for (int t = 0; t < case_n_types; t++) {
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            case_teardown(NULL);
            int64_t n_in = case_width(case_types[t], shapes[i].n_in);
            check_matvec(case_types[t], shapes[i].n_out, n_in, 1 + (int)i * 2, i % 2 == 1);
        }
    }
}

static void test_matvec_columns(void **state) {
    (void)state;
    for (int t = 0; t < case_n_types; t++) {
        for (int n_cols = 1; n_cols <= GPU_MAX_COLS; n_cols++) {
            case_teardown(NULL);
            check_matvec(case_types[t], 9, 256, n_cols, n_cols % 2 == 0);
        }
    }
}

/* The int8 form itself: scales, integers and sums as the formula says. */
static void test_encode(void **state) {
    (void)state;
    enum { N = 96, COLS = 3 };
    float x[COLS][N];
    for (int i = 0; i < N; i++) {
        x[0][i] = rng_normal(&the_case.r);
        x[1][i] = i < 32 ? 0 : i < 64 ? (float)(i - 48) * 1e30f : (float)NAN;
        x[2][i] = i == 5 ? (float)INFINITY : (float)i;
    }
    size_t column = gpu_q8_bytes(N);
    uint8_t *q8 = case_alloc(column * COLS), bytes[4096];
    gpu_encode e = {.x = case_upload(x, sizeof x), .ldx = N, .n = N, .n_cols = COLS, .q8 = q8};
    OPS->encode(the_case.stream, &e);
    case_download(bytes, q8, column * COLS);
    for (int c = 0; c < COLS; c++) {
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

/* Rows of the table, with a second table of positions. */
static void test_embed(void **state) {
    (void)state;
    for (int t = 0; t < case_n_types; t++) {
        case_teardown(NULL);
        quant_type type = case_types[t];
        int64_t n = case_width(type, 300);
        case_mat table = case_weights(type, 11, n), places = case_weights(QUANT_F16, 9, n);
        const gpu_column cols[2] = {{.token = 10, .pos = 3}, {.token = 0, .pos = 6}};
        float *x = case_host((size_t)(2 * n) * 4), *device_x = case_alloc((size_t)(2 * n) * 4);
        gpu_embed a = {.table = table.mat,
                       .cols = case_upload(cols, sizeof cols),
                       .n_cols = 2,
                       .pos_offset = 2,
                       .scale = 3,
                       .x = device_x,
                       .ldx = n};
        if (t % 2) a.pos_table = places.mat;
        OPS->embed(the_case.stream, &a);
        case_download(x, device_x, (size_t)(2 * n) * 4);
        for (int c = 0; c < 2; c++) {
            for (int64_t i = 0; i < n; i++) {
                double want = 3 * (double)table.values[cols[c].token * n + i];
                if (t % 2) want += (double)places.values[(cols[c].pos + 2) * n + i];
                case_near(x[c * n + i], want, fabs(want) + 1, 1e-6, "embed", i);
            }
        }
    }
}

/* Row r has its bit k set where k * 7 + r * 5 is a multiple of 3. */
static void test_sign_dot(void **state) {
    (void)state;
    enum { N_IN = 96, N_OUT = 37, COLS = 3 };
    uint8_t bits[N_OUT][N_IN / 8] = {{0}};
    for (int r = 0; r < N_OUT; r++) {
        for (int k = 0; k < N_IN; k++) {
            if ((k * 7 + r * 5) % 3 == 0) bits[r][k / 8] = (uint8_t)(bits[r][k / 8] | 1 << k % 8);
        }
    }
    case_columns x = case_input(N_IN, COLS);
    float y[COLS][N_OUT], *device_y = case_alloc(sizeof y);
    gpu_sign_dot a = {.bits = case_upload(bits, sizeof bits),
                      .n_in = N_IN,
                      .n_out = N_OUT,
                      .in = x.in,
                      .y = device_y,
                      .ldy = N_OUT};
    OPS->sign_dot(the_case.stream, &a);
    case_download(y, device_y, sizeof y);
    for (int c = 0; c < COLS; c++) {
        for (int r = 0; r < N_OUT; r++) {
            double want = 0, size = 0;
            for (int k = 0; k < N_IN; k++) {
                double v = (double)x.known[c * x.ldx + k];
                want += (k * 7 + r * 5) % 3 == 0 ? v : -v;
                size += fabs(v);
            }
            case_near(y[c][r], want, size, sum_tolerance, "sign", r);
        }
    }
}

static const struct CMUnitTest tests[] = {
    CASE_TEST(test_encode), CASE_TEST(test_matvec),   CASE_TEST(test_matvec_columns),
    CASE_TEST(test_embed),  CASE_TEST(test_sign_dot),
};
CASE_MAIN(tests)
