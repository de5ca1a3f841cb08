/* test_gpu_ffn.c: feed-forward layers on a device: dense, exact, by lists; choosing neurons; the
 * sum over rows of down_t. Against the formulas in double, for every type. */
#include "gpu_case.h"

#define OPS (&the_case.b->ops)

static const double tolerance = 2e-5; /* sums of floats, and expf, tanhf of a GPU */

static double reference_activation(activation f, double threshold, double x) {
    switch (f) {
    case ACTIVATION_SILU:
        return x / (1 + exp(-x));
    case ACTIVATION_GELU:
        return 0.5 * x * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
    case ACTIVATION_RELU_SQUARED:
        return x > 0 ? x * x : 0;
    case ACTIVATION_FATRELU:
        return x > threshold ? x : 0;
    default:
        return x > 0 ? x : 0;
    }
}

/* One layer's first half: everything that its operations may be told. */
typedef struct layer {
    case_mat gate, up;
    float *gate_bias, *up_bias; /* NULL: none */
    activation f;
    float threshold, cut;
    case_columns x;
    int64_t n, n_in;
    int n_cols;
} layer;

static double product(const case_mat *w, const layer *l, int64_t r, int c, double *size) {
    const float *x = case_seen(&l->x, w->mat.type, c);
    double sum = 0;
    for (int64_t k = 0; k < l->n_in; k++) {
        sum += (double)w->values[r * l->n_in + k] * (double)x[k];
        *size += fabs((double)w->values[r * l->n_in + k] * (double)x[k]);
    }
    return sum;
}

/* The activation of neuron r for column c; `size`: of what was summed. */
static double gate_value(const layer *l, const case_mat *w, const float *bias, int64_t r, int c,
                         double *size) {
    *size = 1e-30;
    double v = product(w, l, r, c, size) + (bias ? (double)bias[r] : 0);
    v = reference_activation(l->f, (double)l->threshold, v);
    return fabs(v) <= (double)l->cut ? 0 : v;
}

static double neuron_value(const layer *l, int64_t r, int c, double *size) {
    if (!l->gate.mat.data) return gate_value(l, &l->up, l->up_bias, r, c, size);
    double up_size = 1e-30, v = gate_value(l, &l->gate, l->gate_bias, r, c, size);
    double up = product(&l->up, l, r, c, &up_size) + (l->up_bias ? (double)l->up_bias[r] : 0);
    if (l->f == ACTIVATION_DRELU && up < 0) up = 0;
    *size = *size * (fabs(up) + up_size) + fabs(v) * up_size;
    return v * up;
}

static void *upload_or_null(const float *x, int64_t n) {
    return x ? case_upload(x, (size_t)n * sizeof *x) : NULL;
}

static gpu_ffn_in describe(const layer *l, float *h, int64_t ldh) {
    return (gpu_ffn_in){.gate = l->gate.mat,
                        .up = l->up.mat,
                        .gate_bias = upload_or_null(l->gate_bias, l->n),
                        .up_bias = upload_or_null(l->up_bias, l->n),
                        .f = l->f,
                        .threshold = l->threshold,
                        .cut = l->cut,
                        .in = l->x.in,
                        .n = l->n,
                        .h = h,
                        .ldh = ldh};
}

static void check_dense(const layer *l, bool skip) {
    int64_t ldh = l->n + 5;
    size_t n_bytes = (size_t)(ldh * l->n_cols) * 4;
    float *h = case_host(n_bytes), *device_h = case_alloc(n_bytes);
    gpu_ffn_in a = describe(l, device_h, ldh);
    a.skip = skip;
    OPS->ffn_in(the_case.stream, &a);
    case_download(h, device_h, n_bytes);
    for (int c = 0; c < l->n_cols; c++) {
        for (int64_t r = 0; r < l->n; r++) {
            double size, want = neuron_value(l, r, c, &size);
            case_near(h[c * ldh + r], want, size + 1e-3, tolerance, "ffn", c * ldh + r);
        }
    }
}

static layer make_layer(quant_type gate, quant_type up, int64_t n, int64_t n_in, int n_cols) {
    layer l = {.n = n, .n_cols = n_cols, .f = ACTIVATION_RELU, .threshold = 0.5f};
    l.n_in = case_width(gate, case_width(up, n_in));
    l.gate = case_weights(gate, n, l.n_in);
    l.up = case_weights(up, n, l.n_in);
    l.x = case_input(l.n_in, n_cols);
    return l;
}

static void test_ffn_types(void **state) {
    (void)state;
    for (int t = 0; t < case_n_types; t++) {
        for (int skip = 0; skip < 2; skip++) {
            case_teardown(NULL);
            layer l = make_layer(case_types[t], case_types[t], 21, 64, 1 + 4 * skip);
            check_dense(&l, skip != 0);
        }
        case_teardown(NULL); /* gate and up of different types */
        layer l = make_layer(case_types[t], case_types[(t + 3) % case_n_types], 10, 256, 2);
        l.f = ACTIVATION_SILU;
        check_dense(&l, false);
    }
}

static void test_ffn_forms(void **state) {
    (void)state;
    for (int f = 0; f < ACTIVATION_COUNT; f++) {
        case_teardown(NULL);
        layer l = make_layer(QUANT_F16, QUANT_F16, 33, 72, 3);
        l.f = (activation)f;
        l.gate_bias = case_random(l.n, 1);
        l.up_bias = case_random(l.n, 1);
        check_dense(&l, false);
        check_dense(&l, true);
        l.cut = 1.5f;
        check_dense(&l, true);
        l.gate = (case_mat){0}; /* ungated */
        check_dense(&l, false);
    }
}

/* Scores with ties, NaN, and runs of both; n_list inside of a word. */
static void test_select(void **state) {
    (void)state;
    enum { N = 1300, LIST = 1077, COLS = 2 };
    static float v[COLS][N];
    float *bias = case_random(N, 0.3f);
    for (int magnitude = 0; magnitude < 2; magnitude++) {
        for (int i = 0; i < N; i++) {
            v[0][i] = i % 97 == 5 ? (float)NAN : rng_normal(&the_case.r) - 1;
            v[1][i] = i > 500 && i < 700 ? 3 : -2.5f;
            if (magnitude) v[1][i] = v[1][i] > 0 ? -3 : 0;
        }
        int32_t list[LIST], count, want_count = 0;
        uint32_t bitmap[(N + 31) / 32];
        int32_t *device_list = case_alloc(sizeof list), *device_count = case_alloc(4);
        uint32_t *device_bitmap = case_alloc(sizeof bitmap);
        const float cut = magnitude ? 1.25f : 0;
        gpu_select a = {.v = case_upload(v, sizeof v),
                        .bias = magnitude ? NULL : case_upload(bias, N * 4),
                        .ldv = N,
                        .n = N,
                        .n_list = LIST,
                        .n_cols = COLS,
                        .cut = cut,
                        .magnitude = magnitude != 0,
                        .list = device_list,
                        .count = device_count,
                        .bitmap = device_bitmap};
        OPS->select(the_case.stream, &a);
        case_download(list, device_list, sizeof list);
        case_download(&count, device_count, 4);
        case_download(bitmap, device_bitmap, sizeof bitmap);
        for (int i = 0; i < N; i++) {
            bool yes = false;
            for (int c = 0; c < COLS; c++) {
                float x = magnitude ? fabsf(v[c][i]) : v[c][i] + bias[i];
                yes = yes || isnan(x) || (magnitude ? x > cut : x >= cut);
            }
            assert_int_equal(bitmap[i / 32] >> i % 32 & 1, yes);
            if (yes && i < LIST) assert_int_equal(list[want_count++], i);
        }
        assert_int_equal(count, want_count);
        assert_true(count > 200 && count < LIST);
    }
}

/* By a list: every third neuron, and the values that are there already. */
static void test_sparse(void **state) {
    (void)state;
    for (int t = 0; t < case_n_types; t++) {
        for (int given = 0; given < 3; given++) { /* 2: types that differ */
            case_teardown(NULL);
            int n_cols = 1 + (t + given) % 3;
            quant_type other = given == 2 ? case_types[(t + 1) % case_n_types] : case_types[t];
            layer l = make_layer(case_types[t], other, 50, 64, n_cols);
            l.gate_bias = case_random(l.n, 1);
            int32_t list[50], count = 0;
            for (int32_t i = 1; i < l.n; i += 3) list[count++] = i;
            float *values = case_host((size_t)(l.n * n_cols) * 4);
            for (int c = 0; c < n_cols; c++) {
                for (int64_t r = 0; r < l.n; r++) {
                    double size;
                    values[c * l.n + r] = (float)gate_value(&l, &l.gate, l.gate_bias, r, c, &size);
                }
            }
            float *h = case_host((size_t)(l.n * n_cols) * 4);
            float *device_h = case_alloc((size_t)(l.n * n_cols) * 4);
            gpu_sparse_in a = {.gate = l.gate.mat,
                               .up = l.up.mat,
                               .gate_bias = upload_or_null(l.gate_bias, l.n),
                               .gate_values = given == 1 ? upload_or_null(values, l.n * n_cols) : 0,
                               .ldg = l.n,
                               .f = l.f,
                               .in = l.x.in,
                               .list = case_upload(list, sizeof list),
                               .count = case_upload(&count, 4),
                               .n_max = l.n,
                               .h = device_h,
                               .ldh = l.n};
            OPS->sparse_in(the_case.stream, &a);
            case_download(h, device_h, (size_t)(l.n * n_cols) * 4);
            for (int c = 0; c < n_cols; c++) {
                for (int i = 0; i < count; i++) {
                    double size, want = neuron_value(&l, list[i], c, &size);
                    case_near(h[c * l.n + i], want, size + 1e-3, tolerance, "sparse", i);
                }
            }
        }
    }
}

/* Rows of down_t: all of them or a list, some with h = 0 whose weights are NaN. */
static void check_down(quant_type type, int64_t n, int64_t n_in, int n_cols, bool by_list) {
    case_mat w = case_weights(type, n, n_in);
    int32_t *list = case_host((size_t)n * 4), count = 0;
    for (int32_t i = 0; i < n; i++) {
        if (i % 3 != 1) list[count++] = i;
    }
    if (!by_list) count = (int32_t)n;
    float *h = case_random(n * n_cols, 1), *y = case_random(n_in * n_cols, 1);
    for (int64_t i = 0; i < n * n_cols; i++) {
        if (i % n % 5 == 2) h[i] = 0;
    }
    if (type == QUANT_F32) { /* never read, or worth nothing */
        static const float nan = (float)NAN;
        int64_t row = by_list ? list[2] : 2;
        the_case.b->upload(the_case.stream, (char *)w.mat.data + row * (int64_t)w.mat.row_bytes,
                           &nan, sizeof nan);
        w.values[row * n_in] = 0;
    }
    float *bias = case_random(n_in, 1), *before = case_host((size_t)(n_in * n_cols) * 4);
    memcpy(before, y, (size_t)(n_in * n_cols) * 4);
    float *device_y = case_upload(y, (size_t)(n_in * n_cols) * 4);
    gpu_down_rows a = {.w = w.mat,
                       .list = by_list ? case_upload(list, (size_t)n * 4) : NULL,
                       .count = by_list ? case_upload(&count, 4) : NULL,
                       .n_max = n,
                       .h = case_upload(h, (size_t)(n * n_cols) * 4),
                       .ldh = n,
                       .n_cols = n_cols,
                       .bias = by_list ? NULL : case_upload(bias, (size_t)n_in * 4),
                       .add = by_list,
                       .partial = case_alloc(gpu_down_partial(n_in, n_cols) * 4),
                       .y = device_y,
                       .ldy = n_in};
    OPS->down_rows(the_case.stream, &a);
    case_download(y, device_y, (size_t)(n_in * n_cols) * 4);
    for (int c = 0; c < n_cols; c++) {
        for (int64_t j = 0; j < n_in; j++) {
            double add = by_list ? (double)before[c * n_in + j] : (double)bias[j];
            double want = add, size = fabs(add) + 1e-30;
            for (int i = 0; i < count; i++) {
                double v = (double)w.values[(by_list ? list[i] : i) * n_in + j];
                want += (double)h[c * n + i] * v;
                size += fabs((double)h[c * n + i] * v);
            }
            case_near(y[c * n_in + j], want, size, 1e-5, "down", c * n_in + j);
        }
    }
}

static void test_down(void **state) {
    (void)state;
    for (int t = 0; t < case_n_types; t++) {
        for (int i = 0; i < 4; i++) {
            case_teardown(NULL);
            check_down(case_types[t], 300 + i, case_width(case_types[t], i < 2 ? 37 : 300), 1 + i,
                       i % 2 == 1);
        }
    }
}

static void test_activate(void **state) {
    (void)state;
    enum { N = 301, COLS = 2 };
    for (int f = 0; f < ACTIVATION_COUNT; f++) {
        float *gate = case_random(COLS * N, 2), *up = case_random(COLS * N, 2), y[COLS * N];
        for (int gated = 0; gated < 2; gated++) {
            float *device_y = case_upload(gate, COLS * N * 4);
            gpu_activate a = {.gate = device_y,
                              .up = gated ? case_upload(up, COLS * N * 4) : NULL,
                              .ldg = N,
                              .ldu = N,
                              .ldy = N,
                              .n = N,
                              .n_cols = COLS,
                              .f = (activation)f,
                              .threshold = 0.25f,
                              .y = device_y};
            OPS->activate(the_case.stream, &a);
            case_download(y, device_y, sizeof y);
            for (int i = 0; i < COLS * N; i++) {
                double want = reference_activation((activation)f, 0.25, (double)gate[i]);
                double u = (double)up[i];
                if (gated) want *= f == ACTIVATION_DRELU && u < 0 ? 0 : u;
                case_near(y[i], want, fabs(want) + 0.1, 1e-5, "activate", i);
            }
        }
    }
}

static const struct CMUnitTest tests[] = {
    CASE_TEST(test_ffn_types), CASE_TEST(test_ffn_forms), CASE_TEST(test_select),
    CASE_TEST(test_sparse),    CASE_TEST(test_down),      CASE_TEST(test_activate),
};
CASE_MAIN(tests)
