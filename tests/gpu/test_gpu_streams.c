/* test_gpu_streams.c: operations of models with several residual streams on a device: streams
 * mixed, corrected, joined and added, hyper-connections, earlier residuals, and activations above a
 * cutoff. Compared with formulas in double. */
#include "activation_formula.h"
#include "gpu_case.h"

#define OPS (&the_case.b->ops)

enum { MAX_STREAMS = GPU_MAX_STREAMS, PAD = 4 };

/* Numbers of columns: few, the maximum of decode kernels, a prompt. */
static const int column_counts[] = {1, 3, GPU_MAX_COLS, 33};
enum { COUNTS = sizeof column_counts / sizeof column_counts[0] };

static int64_t padded(int64_t n) {
    return (n + 3) / 4 * 4 + PAD;
}

static float *upload(const float *x, int64_t n) {
    return case_upload(x, (size_t)n * sizeof *x);
}

static float *download(const float *device, int64_t n) {
    float *x = case_host((size_t)n * sizeof *x);
    case_download(x, device, (size_t)n * sizeof *x);
    return x;
}

/* The router's output, as weights: [n_out]. */
static void weigh(const float *coefficients, const float *router, int n_stream, int n_out,
                  double *w) {
    for (int i = 0; i < n_out; i++) {
        w[i] = 0;
        for (int k = 0; k < n_stream; k++)
            w[i] += (double)coefficients[i * n_stream + k] * tanh((double)router[k]);
    }
}

static void check_mix(bool corrects, int64_t n, int n_stream, int n_cols) {
    const int64_t lds = padded(n * n_stream), ld = padded(n), ldr = padded(n_stream);
    const int n_out = corrects ? n_stream : n_stream * n_stream;
    const float *streams = case_random(lds * n_cols, 1), *x = case_random(ld * n_cols, 1);
    const float *router = case_random(ldr * n_cols, 1), *scale = case_random(n, 1);
    const float *coefficients = case_random(n_out * n_stream, 1);
    const gpu_mix a = {.corrects = corrects,
                       .router = upload(router, ldr * n_cols),
                       .coefficients = upload(coefficients, n_out * n_stream),
                       .scale = corrects ? upload(scale, n) : NULL,
                       .lds = lds,
                       .ldr = ldr,
                       .ldx = ld,
                       .ldy = ld,
                       .n = n,
                       .n_stream = n_stream,
                       .n_cols = n_cols,
                       .streams = upload(streams, lds * n_cols),
                       .x = upload(x, ld * n_cols),
                       .y = corrects ? upload(x, ld * n_cols) : NULL};
    OPS->mix(the_case.stream, &a);
    const float *got = download(a.streams, lds * n_cols), *first = download(a.x, ld * n_cols);
    const float *y = corrects ? download(a.y, ld * n_cols) : NULL;
    for (int c = 0; c < n_cols; c++) {
        double w[MAX_STREAMS * MAX_STREAMS];
        weigh(coefficients, router + c * ldr, n_stream, n_out, w);
        for (int64_t i = 0; i < n; i++) {
            const float *from = streams + c * lds + i;
            double d = (double)x[c * ld + i] - (double)from[0];
            for (int k = 0; k < n_stream; k++) {
                double want = (double)from[k * n];
                for (int b = 0; b < n_stream && !corrects; b++)
                    want += w[k * n_stream + b] * (double)from[b * n];
                if (corrects) want += (1 + w[k]) * d;
                case_near(got[c * lds + k * n + i], want, 10, 1e-5, "stream", k * n + i);
                if (k > 0) continue;
                case_near(first[c * ld + i], want, 10, 1e-5, "first stream", i);
                if (corrects) case_near(y[c * ld + i], want * (double)scale[i], 30, 1e-5, "y", i);
            }
        }
        for (int64_t i = n * n_stream; i < lds; i++) /* padding after the streams */
            assert_true(got[c * lds + i] == streams[c * lds + i]);
        for (int64_t i = n; i < ld; i++) assert_true(first[c * ld + i] == x[c * ld + i]);
    }
}

static void test_mix(void **state) {
    (void)state;
    static const int64_t widths[] = {4, 300, 128, 2052};
    for (int i = 0; i < COUNTS; i++) {
        for (int n_stream = 2; n_stream <= MAX_STREAMS; n_stream += 2) {
            case_teardown(NULL);
            check_mix(n_stream / 2 % 2 == i % 2, widths[(i + n_stream / 2) % 4], n_stream,
                      column_counts[i]);
        }
    }
}

static double magnitude(const float *x, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i] / (double)n;
    return sqrt(sum);
}

/* One of the other streams is nearly zero and stays nearly zero. */
static void check_merge(int64_t n, int n_stream, int n_cols) {
    const int64_t lds = padded(n * n_stream), ldo = padded(n * (n_stream - 1)), ld = padded(n);
    const float *streams = case_random(lds * n_cols, 3);
    float *others = case_random(ldo * n_cols, 0.5f);
    for (int64_t i = 0; i < n; i++) others[i] *= 1e-6f;
    const gpu_merge a = {.streams = upload(streams, lds * n_cols),
                         .others = upload(others, ldo * n_cols),
                         .lds = lds,
                         .ldo = ldo,
                         .ldx = ld,
                         .n = n,
                         .n_stream = n_stream,
                         .n_cols = n_cols,
                         .x = case_alloc((size_t)(ld * n_cols) * sizeof(float))};
    OPS->merge(the_case.stream, &a);
    const float *got = download(a.x, ld * n_cols);
    for (int c = 0; c < n_cols; c++) {
        const float *first = streams + c * lds, *rest = others + c * ldo;
        double want_size = magnitude(first, n), factor[MAX_STREAMS];
        for (int k = 0; k < n_stream - 1; k++)
            factor[k] = want_size / fmax(magnitude(rest + k * n, n), sqrt(1e-5));
        for (int64_t i = 0; i < n; i++) {
            double sum = (double)first[i];
            for (int k = 0; k < n_stream - 1; k++) sum += factor[k] * (double)rest[k * n + i];
            case_near(got[c * ld + i], sum / n_stream, 30, 1e-6, "merged", i);
        }
    }
}

static void test_merge(void **state) {
    (void)state;
    static const int64_t widths[] = {512, 36, 2052, 4};
    for (int i = 0; i < COUNTS; i++) {
        case_teardown(NULL);
        check_merge(widths[i], 2 + 2 * i, column_counts[i]);
    }
}

/* One vector is added to several consecutive ones. */
static void test_add(void **state) {
    (void)state;
    enum { N = 260, TIMES = 3, LD = TIMES * N + 8 };
    for (int i = 0; i < COUNTS; i++) {
        const int n_cols = column_counts[i];
        case_teardown(NULL);
        const float *x = case_random(N * n_cols, 1), *y = case_random(LD * n_cols, 1);
        const gpu_add a = {.x = upload(x, N * n_cols),
                           .ldx = N,
                           .ldy = LD,
                           .n = N,
                           .n_cols = n_cols,
                           .n_more = TIMES - 1,
                           .step = N,
                           .y = upload(y, LD * n_cols)};
        OPS->add(the_case.stream, &a);
        const float *got = download(a.y, LD * n_cols);
        for (int c = 0; c < n_cols; c++)
            for (int k = 0; k < LD; k++)
                assert_true(got[c * LD + k] ==
                            y[c * LD + k] + (k < TIMES * N ? x[c * N + k % N] : 0));
    }
}

static void check_top_k(int64_t n, int n_cols, activation f, float deviations, float around) {
    const int64_t ld = padded(n);
    float *x = case_random(ld * n_cols, 2);
    for (int64_t i = 0; i < ld * n_cols; i++) x[i] += around;
    const gpu_top_k a = {.x = upload(x, ld * n_cols),
                         .ldx = ld,
                         .n = n,
                         .n_cols = n_cols,
                         .deviations = deviations,
                         .f = f,
                         .threshold = 0.25f};
    OPS->top_k(the_case.stream, &a);
    const float *got = download(a.x, ld * n_cols);
    for (int c = 0; c < n_cols; c++) {
        const float *row = x + c * ld;
        double mean = 0, variance = 0;
        for (int64_t i = 0; i < n; i++) mean += (double)row[i] / (double)n;
        for (int64_t i = 0; i < n; i++) variance += pow((double)row[i] - mean, 2) / (double)n;
        double cutoff = mean + (double)deviations * sqrt(variance);
        int64_t n_zero = 0;
        for (int64_t i = 0; i < n; i++) {
            double above = fmax(0, (double)row[i] - cutoff);
            double jump = f == ACTIVATION_FATRELU && fabs(above - 0.25) < 1e-4 ? 0.25 : 0;
            case_near(got[c * ld + i], activation_formula(f, 0.25, above), 100, 1e-6 + jump / 100,
                      "top k", i);
            n_zero += got[c * ld + i] == 0;
        }
        if (deviations > 1 && n > 1000) assert_true(n_zero > n / 2);
        for (int64_t i = n; i < ld; i++) assert_true(got[c * ld + i] == row[i]);
    }
}

static void test_top_k(void **state) {
    (void)state;
    static const int64_t widths[] = {48, 1, 16384, 1001};
    static const float deviations[] = {1.6448536f, 0, -0.25f};
    for (int i = 0; i < 12; i++) {
        case_teardown(NULL);
        check_top_k(widths[i % 4], column_counts[i % COUNTS == 3 ? i % 3 : i % COUNTS],
                    i < 6 ? ACTIVATION_GELU : (activation)(i % ACTIVATION_COUNT), deviations[i % 3],
                    i % 5 == 0 ? 9 : 0);
    }
}

static void check_hyper(bool adds, int64_t n, int n_stream, int n_cols) {
    const int64_t lds = padded(n * n_stream), ld = padded(n), ldw = padded(n_stream);
    const float *streams = case_random(lds * n_cols, 1), *x = case_random(ld * n_cols, 1);
    const float *weights = case_random(ldw * n_cols, 3), *base = case_random(n_stream, 1);
    const float *scale = case_random(1, 1);
    const gpu_hyper a = {.adds = adds,
                         .weights = upload(weights, ldw * n_cols),
                         .base = upload(base, n_stream),
                         .scale = upload(scale, 1),
                         .factor = adds ? 2 : 1,
                         .eps = 0.125f,
                         .lds = lds,
                         .ldw = ldw,
                         .ldx = ld,
                         .n = n,
                         .n_stream = n_stream,
                         .n_cols = n_cols,
                         .streams = upload(streams, lds * n_cols),
                         .x = upload(x, ld * n_cols)};
    OPS->hyper(the_case.stream, &a);
    const float *got = download(a.streams, lds * n_cols), *sums = download(a.x, ld * n_cols);
    for (int c = 0; c < n_cols; c++) {
        for (int64_t i = 0; i < ld; i++) {
            double sum = 0;
            for (int k = 0; k < n_stream && i < n; k++) {
                double z = (double)weights[c * ldw + k] * (double)*scale + (double)base[k];
                double w = (double)a.factor / (1 + exp(-z)) + (double)a.eps;
                double was = (double)streams[c * lds + k * n + i];
                double want = adds ? was + w * (double)x[c * ld + i] : was;
                case_near(got[c * lds + k * n + i], want, 10, 1e-5, "stream", k * n + i);
                sum += w * was;
            }
            double want = adds || i >= n ? (double)x[c * ld + i] : sum;
            case_near(sums[c * ld + i], want, 20, 1e-5, "sum", i);
        }
        for (int64_t i = n * n_stream; i < lds; i++) /* padding after the streams */
            assert_true(got[c * lds + i] == streams[c * lds + i]);
    }
}

static void test_hyper(void **state) {
    (void)state;
    static const int64_t widths[] = {4, 301, 128, 2052};
    for (int i = 0; i < 2 * COUNTS; i++) {
        case_teardown(NULL);
        check_hyper(i % 2, widths[i / 2], 2 + i % (MAX_STREAMS - 1), column_counts[i / 2]);
    }
}

/* The matrix [from][to] that mixes n streams: its rows are softmaxes; then its columns, its rows,
 * its columns and so on are divided by their sums. */
static void expect_mixing(const gpu_hyper *a, const float *numbers, const float *base, double scale,
                          double m[MAX_STREAMS][MAX_STREAMS]) {
    const int n = a->n_stream;
    for (int from = 0; from < n; from++) {
        double sum = 0;
        for (int to = 0; to < n; to++) {
            const int at = from * n + to;
            sum += m[from][to] = exp((double)numbers[at] * scale + (double)base[at]);
        }
        for (int to = 0; to < n; to++) m[from][to] = m[from][to] / sum + (double)a->mix_eps;
    }
    for (int half = 0; half < 2 * a->rounds - 1; half++) {
        for (int i = 0; i < n; i++) {
            double sum = (double)a->mix_eps;
            for (int j = 0; j < n; j++) sum += half % 2 ? m[i][j] : m[j][i];
            for (int j = 0; j < n; j++) *(half % 2 ? &m[i][j] : &m[j][i]) /= sum;
        }
    }
}

static void check_mixing(int64_t n, int n_stream, int rounds, int n_cols) {
    const int64_t lds = padded(n * n_stream), ld = padded(n);
    const int n_numbers = n_stream + n_stream * n_stream;
    const int64_t ldw = padded(n_numbers);
    const float *streams = case_random(lds * n_cols, 1), *x = case_random(ld * n_cols, 1);
    const float *weights = case_random(ldw * n_cols, 2), *base = case_random(n_numbers, 1);
    const float *scale = case_random(2, 1);
    const gpu_hyper a = {.adds = true,
                         .weights = upload(weights, ldw * n_cols),
                         .base = upload(base, n_numbers),
                         .scale = upload(scale, 2),
                         .factor = 2,
                         .eps = 0.125f,
                         .mix_eps = 1e-3f,
                         .rounds = rounds,
                         .lds = lds,
                         .ldw = ldw,
                         .ldx = ld,
                         .n = n,
                         .n_stream = n_stream,
                         .n_cols = n_cols,
                         .streams = upload(streams, lds * n_cols),
                         .x = upload(x, ld * n_cols)};
    OPS->hyper(the_case.stream, &a);
    const float *got = download(a.streams, lds * n_cols);
    for (int c = 0; c < n_cols; c++) {
        const float *number = weights + c * ldw;
        double m[MAX_STREAMS][MAX_STREAMS];
        expect_mixing(&a, number + n_stream, base + n_stream, (double)scale[1], m);
        for (int64_t i = 0; i < n * n_stream; i++) {
            const int64_t k = i / n, at = i % n;
            const double z = (double)number[k] * (double)scale[0] + (double)base[k];
            double want = (2 / (1 + exp(-z)) + 0.125) * (double)x[c * ld + at];
            for (int j = 0; j < n_stream; j++)
                want += m[j][k] * (double)streams[c * lds + j * n + at];
            case_near(got[c * lds + i], want, 10, 1e-5, "mixed stream", i);
        }
        for (int64_t i = n * n_stream; i < lds; i++)
            assert_true(got[c * lds + i] == streams[c * lds + i]);
    }
}

static void test_mixing(void **state) {
    (void)state;
    static const int64_t widths[] = {4, 301, 128, 516};
    for (int i = 0; i < COUNTS; i++) {
        case_teardown(NULL);
        check_mixing(widths[i], i == 0 ? 4 : MAX_STREAMS - 2 * i, 1 + 7 * i, column_counts[i]);
    }
}

static void check_hyper_mean(int64_t n, int n_stream, int n_cols) {
    const int64_t ldy = padded(n * n_stream), ldg = ldy + PAD, ldx = padded(n);
    const float *y = case_random(ldy * n_cols, 1), *gate = case_random(ldg * n_cols, 3);
    const float *x = case_random(ldx * n_cols, 1);
    const gpu_hyper_mean a = {.y = upload(y, ldy * n_cols),
                              .gate = upload(gate, ldg * n_cols),
                              .ldy = ldy,
                              .ldg = ldg,
                              .ldx = ldx,
                              .n = n,
                              .n_stream = n_stream,
                              .n_cols = n_cols,
                              .x = upload(x, ldx * n_cols)};
    OPS->hyper_mean(the_case.stream, &a);
    const float *got = download(a.x, ldx * n_cols);
    for (int c = 0; c < n_cols; c++) {
        for (int64_t i = 0; i < ldx; i++) {
            double want = i < n ? 0 : (double)x[c * ldx + i];
            for (int k = 0; k < n_stream && i < n; k++)
                want += (double)y[c * ldy + k * n + i] /
                        (1 + exp(-(double)gate[c * ldg + k * n + i])) / n_stream;
            case_near(got[c * ldx + i], want, 5, 1e-5, "mean", i);
        }
    }
}

static void test_hyper_mean(void **state) {
    (void)state;
    static const int64_t widths[] = {4, 301, 128, 2052};
    for (int i = 0; i < COUNTS; i++) {
        case_teardown(NULL);
        check_hyper_mean(widths[i], 2 + 2 * i % (MAX_STREAMS - 1), column_counts[i]);
    }
}

/* Sums of earlier values, or with `adds` the update of the present one. */
static void check_past(bool adds, bool begins, int64_t n, int n_past, int n_cols) {
    const int64_t lds = padded(n * (n_past + 2)), ld = padded(n);
    const float *streams = case_random(lds * n_cols, 1), *x = case_random(ld * n_cols, 1);
    const float *score = case_random(n, 0.5f);
    const gpu_past a = {.adds = adds,
                        .begins = begins,
                        .score = upload(score, n),
                        .eps = 0.125f,
                        .lds = lds,
                        .ldx = ld,
                        .n = n,
                        .n_past = n_past,
                        .n_cols = n_cols,
                        .streams = upload(streams, lds * n_cols),
                        .x = upload(x, ld * n_cols)};
    OPS->past(the_case.stream, &a);
    const float *got = download(a.streams, lds * n_cols), *sums = download(a.x, ld * n_cols);
    for (int c = 0; c < n_cols; c++) {
        const float *was = streams + c * lds, *add = x + c * ld;
        double weight[GPU_MAX_PASTS], total = 0;
        for (int k = 0; k <= n_past; k++) {
            double squares = 0, dot = 0;
            for (int64_t i = 0; i < n; i++) {
                squares += (double)was[k * n + i] * (double)was[k * n + i];
                dot += (double)was[k * n + i] * (double)score[i];
            }
            total += weight[k] = exp(dot / sqrt(squares / (double)n + (double)a.eps));
        }
        for (int64_t i = 0; i < lds; i++) {
            double want = (double)was[i];
            if (adds && i < n) want = (begins ? 0 : want) + (double)add[i];
            if (!adds && begins && i >= (n_past + 1) * n && i < (n_past + 2) * n)
                want = (double)was[i - (n_past + 1) * n];
            case_near(got[c * lds + i], want, 2, 1e-6, "stream", i);
        }
        for (int64_t i = 0; i < ld; i++) {
            double sum = 0;
            for (int k = 0; k <= n_past && i < n; k++)
                sum += weight[k] / total * (double)was[k * n + i];
            case_near(sums[c * ld + i], adds || i >= n ? (double)add[i] : sum, 4, 1e-5, "sum", i);
        }
    }
}

static void test_past(void **state) {
    (void)state;
    static const int64_t widths[] = {4, 301, 128, 2052};
    static const int pasts[] = {0, 1, 8, GPU_MAX_PASTS - 2};
    for (int i = 0; i < 4 * COUNTS; i++) {
        case_teardown(NULL);
        check_past(i % 2, i / 2 % 2, widths[i / 4], pasts[(i + i / 4) % 4], column_counts[i / 4]);
    }
}

static const struct CMUnitTest tests[] = {
    CASE_TEST(test_mix),    CASE_TEST(test_merge),      CASE_TEST(test_hyper),
    CASE_TEST(test_mixing), CASE_TEST(test_hyper_mean), CASE_TEST(test_past),
    CASE_TEST(test_add),    CASE_TEST(test_top_k),
};
CASE_MAIN(tests)
