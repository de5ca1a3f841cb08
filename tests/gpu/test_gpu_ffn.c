/* test_gpu_ffn.c: feed-forward layers on a device: dense, exact, by lists, the sum over rows of
 * down_t. Compared with formulas in double, for every type. */
#include <stdlib.h>

#include "activation_formula.h"
#include "gpu_case.h"

#define OPS (&the_case.b->ops)

static const double tolerance = 2e-5; /* float sums, and expf and tanhf of a GPU */

/* Gate and up of a layer: all arguments of their operations. */
typedef struct layer {
    case_mat gate, up;
    float *gate_bias, *up_bias; /* NULL: none */
    activation f;
    float threshold, cut, cut_down;
    float *cut_weight; /* NULL: none */
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

/* The activation of neuron r for column c; *size: sum of the terms' magnitudes. */
static double gate_value(const layer *l, const case_mat *w, const float *bias, int64_t r, int c,
                         double *size) {
    *size = 1e-30;
    double v = product(w, l, r, c, size) + (bias ? (double)bias[r] : 0);
    v = activation_formula(l->f, (double)l->threshold, v);
    return fabs(v) * (l->cut_weight ? (double)l->cut_weight[r] : 1) <= (double)l->cut ? 0 : v;
}

static double neuron_value(const layer *l, int64_t r, int c, double *size) {
    if (!l->gate.mat.data) return gate_value(l, &l->up, l->up_bias, r, c, size);
    double up_size = 1e-30, v = gate_value(l, &l->gate, l->gate_bias, r, c, size);
    double up = product(&l->up, l, r, c, &up_size) + (l->up_bias ? (double)l->up_bias[r] : 0);
    if (l->f == ACTIVATION_DRELU && up < 0) up = 0;
    *size = *size * (fabs(up) + up_size) + fabs(v) * up_size;
    return fabs(v * up) <= (double)l->cut_down ? 0 : v * up;
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
                        .cut_weight = upload_or_null(l->cut_weight, l->n),
                        .cut_down = l->cut_down,
                        .in = l->x.in,
                        .n = l->n,
                        .h = h,
                        .ldh = ldh};
}

/* With the int8 form where n is whole groups. */
static void check_dense(const layer *l, bool skip) {
    int64_t ldh = (l->n + 7) / 4 * 4;
    size_t n_bytes = (size_t)(ldh * l->n_cols) * 4;
    float *h = case_host(n_bytes), *device_h = case_alloc(n_bytes);
    gpu_ffn_in a = describe(l, device_h, ldh);
    a.skip = skip;
    if (l->n % 32 == 0) a.q8 = case_alloc(gpu_q8_bytes(l->n) * (size_t)l->n_cols);
    OPS->ffn_in(the_case.stream, &a);
    if (a.q8) case_quantized(a.q8, device_h, ldh, l->n, l->n_cols);
    case_download(h, device_h, n_bytes);
    for (int c = 0; c < l->n_cols; c++) {
        for (int64_t r = 0; r < l->n; r++) {
            double size, want = neuron_value(l, r, c, &size);
            case_near(h[c * ldh + r], want, size + 1e-3, tolerance, "ffn", c * ldh + r);
        }
    }
}

/* A counter on the device with the value 5. */
static int32_t *new_counter(void) {
    static const int32_t five = 5;
    return case_upload(&five, sizeof five);
}

static void check_counter(const int32_t *counter, int64_t want) {
    int32_t n;
    case_download(&n, counter, sizeof n);
    assert_int_equal(n - 5, want);
}

/* The gate's activations are given: rows of up are not read where they are zero for all columns. */
static void check_given(layer l, float cut) {
    int64_t ldh = (l.n + 7) / 4 * 4;
    size_t n_bytes = (size_t)(ldh * l.n_cols) * 4;
    float *given = case_random(ldh * l.n_cols, 1), *h = case_host(n_bytes);
    int64_t n_read = 0;
    for (int64_t r = 0; r < l.n; r++) {
        for (int c = 0; c < l.n_cols; c++)
            if (r % 3 || c == 1) given[c * ldh + r] = 0;
        n_read += cut < 0 || r % 3 == 0;
    }
    l.gate = (case_mat){0};
    l.cut = cut;
    gpu_ffn_in a = describe(&l, case_upload(given, n_bytes), ldh);
    a.gate_bias = NULL;
    a.given = true;
    a.skip = cut >= 0;
    a.fired = new_counter();
    if (l.n % 32 == 0) a.q8 = case_alloc(gpu_q8_bytes(l.n) * (size_t)l.n_cols);
    OPS->ffn_in(the_case.stream, &a);
    if (a.q8) case_quantized(a.q8, a.h, ldh, l.n, l.n_cols);
    check_counter(a.fired, n_read);
    case_download(h, a.h, n_bytes);
    for (int c = 0; c < l.n_cols; c++) {
        for (int64_t r = 0; r < l.n; r++) {
            double size = 1e-30, up = product(&l.up, &l, r, c, &size);
            if (l.up_bias) up += (double)l.up_bias[r];
            double v = (double)given[c * ldh + r];
            case_near(h[c * ldh + r], v * up, fabs(v) * (size + 1) + 1e-3, tolerance, "given", r);
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

/* FFN_EVERY=n tests every n-th type, for interpreted kernels. */
static int types_every(void) {
    const char *every = getenv("FFN_EVERY");
    const int n = every ? (int)strtol(every, NULL, 10) : 1;
    return n > 0 ? n : 1;
}

/* The type `step` places behind case_types[t], if the device has it. */
static quant_type other_type(int t, int step) {
    const quant_type other = case_types[(t + step) % case_n_types];
    return case_has(GPU_OP_FFN_IN, other) ? other : case_types[t];
}

static void test_ffn_types(void **state) {
    (void)state;
    for (int t = 0; t < case_n_types; t += types_every()) {
        if (!case_has(GPU_OP_FFN_IN, case_types[t])) continue;
        for (int skip = 0; skip < 2; skip++) {
            case_teardown(NULL);
            layer l = make_layer(case_types[t], case_types[t], skip ? 64 : 21, 64, 1 + 4 * skip);
            check_dense(&l, skip != 0);
        }
        case_teardown(NULL); /* gate and up of different types */
        layer l = make_layer(case_types[t], other_type(t, 3), t % 2 ? 10 : 32, 256, 2);
        l.f = ACTIVATION_SILU;
        check_dense(&l, false);
        case_teardown(NULL);
        l = make_layer(case_types[t], case_types[t], t % 2 ? 21 : 64, 64, 1 + t % GPU_MAX_COLS);
        if (t % 3 == 0) l.up_bias = case_random(l.n, 1);
        check_given(l, t % 4 ? 0 : -1);
    }
}

static void test_ffn_forms(void **state) {
    (void)state;
    for (int f = 0; f < ACTIVATION_COUNT; f++) {
        case_teardown(NULL);
        layer l = make_layer(QUANT_F16, QUANT_F16, f % 2 ? 33 : 96, 72, 3);
        l.f = (activation)f;
        l.gate_bias = case_random(l.n, 1);
        l.up_bias = case_random(l.n, 1);
        check_dense(&l, false);
        check_dense(&l, true);
        l.cut = 1.5f;
        check_dense(&l, true);
        l.cut_weight = case_host((size_t)l.n * sizeof *l.cut_weight);
        for (int64_t r = 0; r < l.n; r++) l.cut_weight[r] = 0.5f + (float)(r % 4) / 2;
        check_dense(&l, true);
        l.cut_down = 0.75f;
        check_dense(&l, true);
        l.gate = (case_mat){0}; /* ungated */
        check_dense(&l, false);
    }
}

/* Counts the rows of up that are read: with `skip` and a cutoff the rows that are active for any
 * column, otherwise all. Zero activations stay zero where up is not finite. */
static void check_counts(const layer *l, bool skip, int64_t silent, int64_t want) {
    int64_t n_bytes = l->n * l->n_cols * 4;
    float *h = case_host((size_t)n_bytes), *device_h = case_alloc((size_t)n_bytes);
    gpu_ffn_in a = describe(l, device_h, l->n);
    a.skip = skip;
    a.fired = new_counter();
    OPS->ffn_in(the_case.stream, &a);
    case_download(h, device_h, (size_t)n_bytes);
    check_counter(a.fired, want);
    for (int c = 0; c < l->n_cols; c++) assert_true(h[c * l->n + silent] == 0);
}

static void test_ffn_counts(void **state) {
    (void)state;
    for (int n_cols = 1; n_cols <= GPU_MAX_COLS; n_cols++) {
        case_teardown(NULL);
        layer l = make_layer(QUANT_F32, QUANT_F32, 61, 32, n_cols);
        int64_t fire = 0, silent = 7;
        l.gate_bias = case_host((size_t)l.n * 4);
        for (int64_t r = 0; r < l.n; r++) l.gate_bias[r] = -6;
        l.gate_bias[silent] = -1e9f;
        for (int64_t r = 0; r < l.n; r++) {
            bool any = false;
            double size;
            for (int c = 0; c < n_cols; c++)
                any = any || gate_value(&l, &l.gate, l.gate_bias, r, c, &size) > 0;
            fire += any;
        }
        static const float inf = (float)INFINITY;
        the_case.b->upload(the_case.stream, (float *)(uintptr_t)l.up.mat.data + silent * l.n_in,
                           &inf, sizeof inf);
        case_sync();
        assert_true(fire > 0 && fire < l.n);
        check_counts(&l, true, silent, fire);
        check_counts(&l, false, silent, l.n);
        l.cut = -1; /* no activation is dropped */
        check_counts(&l, true, silent, l.n);
    }
}

/* A list of every third neuron; gate and up of one type and of two types. */
static void test_sparse(void **state) {
    (void)state;
    for (int t = 0; t < case_n_types; t += types_every()) {
        if (!case_has(GPU_OP_FFN_IN, case_types[t])) continue;
        for (int mixed = 0; mixed < 2; mixed++) {
            case_teardown(NULL);
            int n_cols = 1 + (t + mixed) % 3;
            quant_type other = mixed ? other_type(t, 1) : case_types[t];
            layer l = make_layer(case_types[t], other, 50, 64, n_cols);
            l.gate_bias = case_random(l.n, 1);
            int32_t list[50], count = 0;
            for (int32_t i = 1; i < l.n; i += 3) list[count++] = i;
            float *h = case_host((size_t)(l.n * n_cols) * 4);
            float *device_h = case_alloc((size_t)(l.n * n_cols) * 4);
            gpu_ffn_in a = {.gate = l.gate.mat,
                            .up = l.up.mat,
                            .gate_bias = upload_or_null(l.gate_bias, l.n),
                            .f = l.f,
                            .in = l.x.in,
                            .list = case_upload(list, sizeof list),
                            .count = case_upload(&count, 4),
                            .n = l.n,
                            .h = device_h,
                            .ldh = l.n};
            OPS->ffn_in(the_case.stream, &a);
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

static bool selected(const uint32_t *bitmap, int64_t n_words, int c, int64_t r) {
    return bitmap[c * n_words + r / 32] >> r % 32 & 1;
}

/* Each column selects different neurons of the list; other columns' neurons add nothing to it. */
static void check_selected(layer *l, float cut) {
    enum { WORDS = 2 };
    int32_t list[64], count = 0, n_read = 0;
    uint32_t bitmap[GPU_MAX_COLS][WORDS] = {{0}};
    size_t n_bytes = (size_t)(l->n * l->n_cols) * 4;
    float *h = case_host(n_bytes), *device_h = case_alloc(n_bytes);
    l->cut = cut;
    for (int32_t r = 0; r < l->n; r++) {
        bool listed = false, fires = false;
        for (int c = 0; c < l->n_cols; c++) {
            bool selects = (r * 7 + c * 5) % 3 == 0;
            double size, v = gate_value(l, &l->gate, l->gate_bias, r, c, &size);
            bitmap[c][r / 32] |= (uint32_t)selects << r % 32;
            listed = listed || selects;
            fires = fires || (selects && (float)v != 0);
        }
        if (listed) list[count++] = r;
        n_read += listed && (fires || cut < 0);
    }
    gpu_ffn_in a = {.gate = l->gate.mat,
                    .up = l->up.mat,
                    .gate_bias = upload_or_null(l->gate_bias, l->n),
                    .f = l->f,
                    .cut = cut,
                    .in = l->x.in,
                    .list = case_upload(list, sizeof list),
                    .count = case_upload(&count, 4),
                    .bitmap = case_upload(bitmap, sizeof bitmap),
                    .n_words = WORDS,
                    .n = l->n,
                    .fired = new_counter(),
                    .h = device_h,
                    .ldh = l->n};
    OPS->ffn_in(the_case.stream, &a);
    case_download(h, device_h, n_bytes);
    check_counter(a.fired, n_read);
    for (int c = 0; c < l->n_cols; c++) {
        for (int i = 0; i < count; i++) {
            double size, want = neuron_value(l, list[i], c, &size);
            float got = h[c * l->n + i];
            if (selected(bitmap[0], WORDS, c, list[i]))
                case_near(got, want, size + 1e-3, tolerance, "selected", i);
            else
                assert_true(got == 0);
        }
    }
}

static void test_sparse_selected(void **state) {
    (void)state;
    for (int n_cols = 1; n_cols <= GPU_MAX_COLS; n_cols++) {
        for (int k = 0; k < 4; k++) {
            case_teardown(NULL);
            quant_type up = k % 2 ? QUANT_Q8_0 : QUANT_F16;
            layer l = make_layer(QUANT_F16, up, 53, 64, n_cols);
            l.gate_bias = case_random(l.n, 1);
            if (k >= 2) l.f = ACTIVATION_SILU;
            check_selected(&l, k >= 2 ? -1 : 0.5f);
        }
    }
}

/* The list of a layer without gate: h is the activation of up. */
static void test_sparse_ungated(void **state) {
    (void)state;
    enum { N = 40, COLS = 5 };
    case_mat up = case_weights(QUANT_Q8_0, N, 64);
    case_columns x = case_input(64, COLS);
    layer l = {.up = up, .x = x, .n = N, .n_in = 64, .n_cols = COLS, .f = ACTIVATION_RELU};
    int32_t list[] = {3, 4, 9, 33, 39}, count = 5;
    uint32_t bitmap[COLS][2] = {{1u << 3, 1u << 1}, {1u << 4, 0}, {1u << 9, 0}, {0, 1u << 7}, {0}};
    float h[COLS][5], *device_h = case_alloc(sizeof h);
    gpu_ffn_in a = {.up = up.mat,
                    .in = x.in,
                    .f = l.f,
                    .list = case_upload(list, sizeof list),
                    .count = case_upload(&count, 4),
                    .bitmap = case_upload(bitmap, sizeof bitmap),
                    .n_words = 2,
                    .n = 5,
                    .fired = new_counter(),
                    .h = device_h,
                    .ldh = 5};
    OPS->ffn_in(the_case.stream, &a);
    case_download(h, device_h, sizeof h);
    check_counter(a.fired, count);
    for (int c = 0; c < COLS; c++) {
        for (int i = 0; i < count; i++) {
            double size, want = neuron_value(&l, list[i], c, &size);
            if (!selected(bitmap[0], 2, c, list[i])) want = 0;
            case_near(h[c][i], want, size + 1e-3, tolerance, "ungated", i);
        }
    }
}

/* Rows of down_t: all or a list; some rows with h = 0 have NaN weights. */
static void check_down(quant_type type, int64_t n, int64_t n_in, int n_cols, bool by_list) {
    case_mat w = case_weights(type, n, n_in);
    int32_t *list = case_host((size_t)n * 4), count = 0;
    for (int32_t i = 0; i < n; i++) {
        if (i % 3 != 1) list[count++] = i;
    }
    if (!by_list) count = (int32_t)n;
    float *h = case_random(n * n_cols, 1), *y = case_random(n_in * n_cols, 1);
    for (int64_t i = 0; i < n * n_cols; i++) {
        if (i % n % 5 == 2 || (i % n % 5 == 3 && i / n != n_cols - 1)) h[i] = 0;
    }
    if (type == QUANT_F32) { /* never read, or multiplied by 0 */
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
                       .fired = new_counter(),
                       .partial = case_alloc(gpu_down_partial(n_in, n_cols) * 4),
                       .y = device_y,
                       .ldy = n_in};
    OPS->down_rows(the_case.stream, &a);
    case_download(y, device_y, (size_t)(n_in * n_cols) * 4);
    int64_t n_read = 0;
    for (int i = 0; i < count; i++) {
        bool any = false;
        for (int c = 0; c < n_cols; c++) any = any || h[c * n + i] != 0;
        n_read += any;
    }
    check_counter(a.fired, n_read);
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
    for (int t = 0; t < case_n_types; t += types_every()) {
        if (!case_has(GPU_OP_DOWN_ROWS, case_types[t])) continue;
        for (int i = 0; i < 4; i++) {
            case_teardown(NULL);
            check_down(case_types[t], 300 + i, case_width(case_types[t], i < 2 ? 37 : 300), 1 + i,
                       i % 2 == 1);
        }
    }
}

/* The sums of parts, and the norm by the kernel that adds them, twice. */
static void test_down_normed(void **state) {
    (void)state;
    enum { N = 130, N_IN = 2112 };
    const int32_t zero = 0;
    if (!case_has(GPU_OP_DOWN_ROWS, QUANT_Q8_0)) skip();
    case_mat w = case_weights(QUANT_Q8_0, N, N_IN);
    float *h = case_random(N, 1), *start = case_random(N_IN, 1), *weight = case_random(N_IN, 1);
    float y[N_IN], normed[N_IN];
    gpu_norm norm = {.x = case_upload(start, sizeof y),
                     .w = case_upload(weight, sizeof y),
                     .ldx = N_IN,
                     .ldy = N_IN,
                     .n = N_IN,
                     .kind = GPU_NORM_RMS,
                     .n_cols = 1,
                     .y = case_alloc(sizeof y),
                     .q8 = case_alloc(gpu_q8_bytes(N_IN))};
    const gpu_down_rows a = {.w = w.mat,
                             .n_max = N,
                             .h = case_upload(h, N * sizeof *h),
                             .ldh = N,
                             .n_cols = 1,
                             .add = true,
                             .partial = case_alloc(gpu_down_partial(N_IN, 1) * 4),
                             .y = (float *)(uintptr_t)norm.x,
                             .ldy = N_IN,
                             .norm = &norm,
                             .arrived = case_upload(&zero, sizeof zero)};
    for (int launch = 1; launch <= 2; launch++) {
        OPS->down_rows(the_case.stream, &a);
        case_download(y, a.y, sizeof y);
        case_download(normed, norm.y, sizeof y);
        double squares = 0;
        for (int j = 0; j < N_IN; j++) {
            double want = (double)start[j], size = fabs(want);
            for (int i = 0; i < N; i++) {
                double v = (double)h[i] * (double)w.values[i * N_IN + j];
                want += launch * v;
                size += launch * fabs(v);
            }
            case_near(y[j], want, size, 1e-5, "down", j);
            squares += (double)y[j] * (double)y[j];
        }
        for (int j = 0; j < N_IN; j++)
            case_near(normed[j], (double)y[j] / sqrt(squares / N_IN) * (double)weight[j],
                      fabs((double)weight[j]), 1e-5, "norm", j);
        case_quantized(norm.q8, norm.y, N_IN, N_IN, 1);
    }
}

static const struct CMUnitTest tests[] = {
    CASE_TEST(test_ffn_types), CASE_TEST(test_ffn_forms),       CASE_TEST(test_ffn_counts),
    CASE_TEST(test_sparse),    CASE_TEST(test_sparse_selected), CASE_TEST(test_sparse_ungated),
    CASE_TEST(test_down),      CASE_TEST(test_down_normed),
};
CASE_MAIN(tests)
