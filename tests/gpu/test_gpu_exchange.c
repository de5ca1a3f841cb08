/* test_gpu_exchange.c: messages that the kernels with their contents send, and the receive that
 * also norms, compared with formulas in double precision and with the separate operations. */
#include "clock.h"
#include "gpu_case.h"

#define OPS (&the_case.b->ops)

enum { EPOCH = 6, MAX_COLS = GPU_MAX_COLS };

static const int column_counts[] = {1, 3, MAX_COLS};
enum { COUNTS = sizeof column_counts / sizeof *column_counts };

/* Pinned memory: the flags of the device and of the host, then n_bytes; and the epoch. */
typedef struct box {
    gpu_pinned pinned;
    uint64_t *epoch;
    int32_t *arrived;
} box;

static box open_box(size_t n_bytes, uint64_t epoch) {
    static const int32_t zero = 0;
    box b = {.epoch = case_upload(&epoch, sizeof epoch),
             .arrived = case_upload(&zero, sizeof zero)};
    pi_error err;
    n_bytes += 2 * GPU_FLAG_BYTES;
    assert_int_equal(the_case.b->host_alloc(the_case.device, n_bytes, &b.pinned, &err), PI_OK);
    memset(b.pinned.host, 0, n_bytes);
    return b;
}
static void close_box(box *b) {
    int32_t arrived;
    case_download(&arrived, b->arrived, sizeof arrived);
    assert_int_equal(arrived, 0);
    the_case.b->host_free(the_case.device, &b->pinned);
}
static void *flag_at(const void *base, int side) {
    return (uint8_t *)base + side * GPU_FLAG_BYTES;
}
static void *data_at(const void *base) {
    return flag_at(base, 2);
}

/* Waits for the device's flag; false after ten seconds. */
static bool host_waits(const box *b, uint64_t value) {
    const double end = clock_seconds() + 10;
    if (!the_case.b->kernels_may_wait) case_sync(); /* then a message is read behind its kernel */
    while (gpu_flag_get(flag_at(b->pinned.host, 0)) < value)
        if (clock_seconds() > end) return false;
    return true;
}

/* ---- norms ----------------------------------------------------------------------------------- */

typedef struct norm_case {
    int64_t n, ld;
    int n_cols;
    gpu_norm_kind kind;
    bool add;
    float *x, *w, *b, *y; /* on the host; y: before */
    gpu_norm a;
} norm_case;

static norm_case make_norm(int64_t n, int n_cols, gpu_norm_kind kind, bool add, bool q8) {
    norm_case c = {.n = n, .ld = n / 4 * 4 + 8, .n_cols = n_cols, .kind = kind, .add = add};
    const size_t n_x = (size_t)(c.ld * n_cols);
    c.x = case_random((int64_t)n_x, 3);
    c.y = case_random((int64_t)n_x, 2);
    c.w = case_random(n, 1);
    c.b = case_random(n, 1);
    c.a = (gpu_norm){.x = case_upload(c.x, n_x * 4),
                     .w = kind != GPU_NORM_NONE ? case_upload(c.w, (size_t)n * 4) : NULL,
                     .b = kind == GPU_NORM_LAYER ? case_upload(c.b, (size_t)n * 4) : NULL,
                     .ldx = c.ld,
                     .ldy = c.ld,
                     .n = n,
                     .eps = 1e-5f,
                     .kind = kind,
                     .add = add,
                     .scale = 0.75f,
                     .y_scale = 1.25f,
                     .n_cols = n_cols,
                     .y = case_upload(c.y, n_x * 4),
                     .q8 = q8 ? case_alloc(gpu_q8_bytes(n) * (size_t)n_cols) : NULL};
    return c;
}

/* Checks y, the norm of x. */
static void check_normed(const norm_case *c, const float *x) {
    float *got = case_host((size_t)(c->ld * c->n_cols) * sizeof *got);
    case_download(got, c->a.y, (size_t)(c->ld * c->n_cols) * sizeof *got);
    for (int col = 0; col < c->n_cols; col++) {
        const float *v = x + col * c->ld;
        double mean = 0, squares = 0;
        for (int64_t i = 0; i < c->n && c->kind == GPU_NORM_LAYER; i++)
            mean += (double)v[i] / (double)c->n;
        for (int64_t i = 0; i < c->n; i++) squares += pow((double)v[i] - mean, 2);
        const double scale = c->kind == GPU_NORM_NONE ? 1 : 1 / sqrt(squares / (double)c->n + 1e-5);
        for (int64_t i = 0; i < c->n; i++) {
            double want = ((double)v[i] - mean) * scale;
            if (c->a.w) want *= (double)c->w[i];
            if (c->a.b) want += (double)c->b[i];
            if (c->add) want = 1.25 * ((double)c->y[col * c->ld + i] + 0.75 * want);
            case_near(got[col * c->ld + i], want, fabs(want) + 1, 1e-5, "norm", i);
        }
    }
    if (c->a.q8) case_quantized(c->a.q8, c->a.y, c->ld, c->n, c->n_cols);
}

/* Checks that a message has the values of y, or their int8 form, except the padding. */
static void check_message(const norm_case *c, const void *message, bool q8) {
    const size_t n_y = (size_t)(c->ld * c->n_cols) * sizeof(float), n = (size_t)c->n;
    float *y = case_host(n_y);
    uint8_t *want = case_host(n_y);
    case_download(y, c->a.y, n_y);
    if (!q8) {
        for (int col = 0; col < c->n_cols; col++)
            assert_memory_equal((const float *)message + (size_t)col * n, y + col * c->ld, n * 4);
        return;
    }
    const gpu_quantize e = {
        .x = c->a.y, .ldx = c->ld, .n = c->n, .n_cols = c->n_cols, .q8 = case_alloc(n_y)};
    OPS->quantize(the_case.stream, &e);
    case_download(want, e.q8, n_y);
    for (int col = 0; col < c->n_cols; col++) {
        const size_t at = (size_t)col * gpu_q8_bytes(c->n), sums = at + gpu_q8_sum_offset(c->n);
        assert_memory_equal((const uint8_t *)message + at, want + at, n + n / 32 * 4);
        assert_memory_equal((const uint8_t *)message + sums, want + sums, n / 16 * 4);
    }
}

static void check_norm_sends(norm_case *c, bool q8, bool flagged, uint64_t epoch) {
    const size_t n_bytes = (size_t)c->n_cols * (size_t)c->n * sizeof(float);
    box b = open_box(n_bytes, epoch);
    uint8_t *nothing = case_host(n_bytes);
    const gpu_send send = {.host_x = q8 ? NULL : data_at(b.pinned.device),
                           .host_q8 = q8 ? data_at(b.pinned.device) : NULL,
                           .flag = flagged ? flag_at(b.pinned.device, 0) : NULL,
                           .epoch = b.epoch,
                           .arrived = b.arrived};
    c->a.send = &send;
    OPS->norm(the_case.stream, &c->a);
    if (flagged && epoch) assert_true(host_waits(&b, epoch));
    /* the flag guarantees that the message is complete */
    uint8_t *message = case_host(n_bytes);
    if (!flagged) case_sync();
    memcpy(message, data_at(b.pinned.host), n_bytes);
    case_sync();
    assert_int_equal(gpu_flag_get(flag_at(b.pinned.host, 0)), flagged ? epoch : 0);
    check_normed(c, c->x);
    if (epoch)
        check_message(c, message, q8);
    else
        assert_memory_equal(data_at(b.pinned.host), nothing, n_bytes);
    close_box(&b);
}

static void test_norm_sends(void **state) {
    (void)state;
    /* 8,224 and more: more elements than the threads of a block hold at once. */
    static const int64_t widths[] = {7, 32, 96, 1001, 4096, 8224};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        for (int k = 0; k < 12; k++) {
            case_teardown(NULL);
            const bool q8 = k % 2 && widths[i] % 32 == 0;
            norm_case c = make_norm(widths[i], column_counts[(k + (int)i) % COUNTS],
                                    (gpu_norm_kind)(k % 3), k % 4 == 1, q8 && k % 5 != 1);
            check_norm_sends(&c, q8, k != 6, k == 7 ? 0 : EPOCH);
        }
    }
}

/* ---- receive and norm ------------------------------------------------------------------------ */

typedef enum answer { ARRIVES, EMPTY, IDLE, LATE } answer;

/* Adds (or with `set` stores) a message to the residual stream, and norms the result. */
static void check_receive_norms(int64_t n, int n_cols, int k, bool set, answer how) {
    enum { N_USED = 2, N_OWN = 4 };
    if (how == LATE && !the_case.b->kernels_may_wait) return;
    norm_case c = make_norm(n, n_cols, (gpu_norm_kind)(k % 3), k % 4 == 1,
                            n % 32 == 0 && k % 2 == 0);
    const size_t n_x = (size_t)(c.ld * n_cols) * sizeof(float);
    uint32_t choices[MAX_COLS * N_USED * GPU_CHOICE_WORDS] = {0}; /* own experts */
    float *message = case_random(n * n_cols, 2), *got = case_host(n_x);
    box b = open_box((size_t)(n * n_cols) * sizeof *message, EPOCH);
    const gpu_idle idle = {
        .choices = case_upload(choices, sizeof choices), .n_used = N_USED, .n_own = N_OWN};
    const gpu_receive r = {.host_x = data_at(b.pinned.device),
                           .n = n,
                           .ldy = c.ld,
                           .n_cols = n_cols,
                           .set = set,
                           .flag = flag_at(b.pinned.device, 1),
                           .epoch = b.epoch,
                           .wait_ms = how == LATE ? 1 : 0,
                           .idle = how == IDLE ? idle : (gpu_idle){0},
                           .y = (float *)c.a.x,
                           .norm = &c.a};
    case_sync();
    if (the_case.b->kernels_may_wait) OPS->receive(the_case.stream, &r);
    memcpy(data_at(b.pinned.host), message, (size_t)(n * n_cols) * sizeof *message);
    if (how == ARRIVES || how == EMPTY)
        gpu_flag_raise(flag_at(b.pinned.host, 1), EPOCH + (how == EMPTY));
    if (!the_case.b->kernels_may_wait) OPS->receive(the_case.stream, &r);
    if (how == LATE) {
        pi_error err;
        uint64_t epoch;
        assert_int_equal(the_case.b->stream_sync(the_case.stream, &err), PI_ERR_DEVICE);
        assert_int_equal(the_case.b->reset(the_case.device, &err), PI_OK);
        case_download(&epoch, b.epoch, sizeof epoch);
        assert_int_equal(epoch, 0);
        case_download(got, c.a.y, n_x); /* nothing is normed */
        assert_memory_equal(got, c.y, n_x);
        close_box(&b);
        return;
    }
    case_download(got, c.a.x, n_x);
    for (int col = 0; col < n_cols; col++) {
        for (int64_t i = 0; i < c.ld; i++) {
            float *x = &c.x[col * c.ld + i];
            const float sent = how == ARRIVES && i < n ? message[col * n + i] : 0;
            if (how == ARRIVES && i < n) *x = set ? sent : *x + sent;
            assert_true(got[col * c.ld + i] == *x);
        }
    }
    check_normed(&c, c.x);
    close_box(&b);
}

static void test_receive_norms(void **state) {
    (void)state;
    static const int64_t widths[] = {4, 96, 1000, 4096, 8224};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        for (int k = 0; k < 12; k++) {
            case_teardown(NULL);
            const answer how = k < 8 ? ARRIVES : k < 10 ? EMPTY : k == 10 ? IDLE : LATE;
            check_receive_norms(widths[i], column_counts[(k + (int)i) % COUNTS], k, k == 3, how);
        }
    }
}

/* ---- choices --------------------------------------------------------------------------------- */

/* Two of eight experts. When the device has all that are chosen, the message is empty. */
static void check_route_sends(int n_cols, int n_own) {
    enum { N = 8, N_USED = 2 };
    const size_t n_choices = (size_t)n_cols * N_USED * GPU_CHOICE_WORDS * sizeof(uint32_t);
    box b = open_box(n_choices, EPOCH);
    uint32_t *want = case_host(n_choices), *choices = case_alloc(n_choices);
    const gpu_send send = {.host_bits = data_at(b.pinned.device),
                           .flag = flag_at(b.pinned.device, 0),
                           .epoch = b.epoch,
                           .arrived = b.arrived,
                           .idle = {.choices = choices, .n_used = N_USED, .n_own = n_own}};
    const gpu_route a = {.scores = case_upload(case_random(n_cols * N, 1), (size_t)n_cols * N * 4),
                         .lds = N,
                         .n_expert = N,
                         .n_used = N_USED,
                         .n_group = 1,
                         .n_group_used = 1,
                         .n_cols = n_cols,
                         .gating = GPU_GATING_SOFTMAX,
                         .scale = 1,
                         .choices = choices,
                         .send = &send};
    OPS->route(the_case.stream, &a);
    assert_true(host_waits(&b, EPOCH));
    uint32_t *got = case_host(n_choices);
    memcpy(got, data_at(b.pinned.host), n_choices);
    case_download(want, choices, n_choices);
    assert_memory_equal(got, want, n_choices);
    bool others = false;
    for (int i = 0; i < n_cols * N_USED; i++)
        others = others || want[i * GPU_CHOICE_WORDS] >= (uint32_t)n_own;
    assert_true(n_own == N ? !others : n_own > 0 || others);
    assert_int_equal(gpu_flag_get(flag_at(b.pinned.host, 0)), others ? EPOCH : EPOCH + 1);
    close_box(&b);
}

static void test_route_sends(void **state) {
    (void)state;
    if (!case_has(GPU_OP_ROUTE, GPU_NO_TYPE)) skip();
    for (int i = 0; i < COUNTS; i++) {
        for (int n_own = 0; n_own <= 8; n_own += 4) {
            case_teardown(NULL);
            check_route_sends(column_counts[i], n_own);
        }
    }
}

/* ---- order ----------------------------------------------------------------------------------- */

/* In a program the message is out before the next kernel: that one waits for a flag that the host
 * raises when it has the message. */
static void test_order(void **state) {
    (void)state;
    enum { N = 4096 };
    if (!the_case.b->kernels_may_wait) skip();
    norm_case c = make_norm(N, 1, GPU_NORM_RMS, false, true);
    box b = open_box(gpu_q8_bytes(N), EPOCH);
    gpu_program *p;
    pi_error err;
    const gpu_send send = {.host_q8 = data_at(b.pinned.device),
                           .flag = flag_at(b.pinned.device, 0),
                           .epoch = b.epoch,
                           .arrived = b.arrived};
    const gpu_receive neurons = {
        .flag = flag_at(b.pinned.device, 1), .epoch = b.epoch, .n_cols = 1, .wait_ms = 20000};
    c.a.send = &send;
    case_sync();
    assert_int_equal(the_case.b->record_begin(the_case.stream, &err), PI_OK);
    OPS->norm(the_case.stream, &c.a);
    OPS->receive(the_case.stream, &neurons);
    assert_int_equal(the_case.b->record_end(the_case.stream, &p, &err), PI_OK);
    the_case.b->program_launch(the_case.stream, p);
    assert_true(host_waits(&b, EPOCH));
    gpu_flag_raise(flag_at(b.pinned.host, 1), EPOCH);
    case_sync();
    check_message(&c, data_at(b.pinned.host), true);
    the_case.b->program_free(p);
    close_box(&b);
}

static const struct CMUnitTest tests[] = {
    CASE_TEST(test_norm_sends),
    CASE_TEST(test_receive_norms),
    CASE_TEST(test_route_sends),
    CASE_TEST(test_order),
};
CASE_MAIN(tests)
