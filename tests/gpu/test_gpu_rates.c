/* test_gpu_rates.c: measuring a GPU gives plausible figures and frees its memory; a device that is
 * lost meanwhile is an error and leaks nothing. The rates of memory are exact on a device whose
 * clock counts bytes. */
#include "gpu_case.h"
#include "gpu_rates.h"
#include "gpu_reading.h"

static uint64_t free_memory(const gpu_backend *b, gpu_device *d) {
    uint64_t left = 0, total;
    pi_error err;
    b->memory(d, &left, &total, &err);
    return left;
}

static void test_rates(void **state) {
    (void)state;
    gpu_device *d;
    gpu_rates r;
    pi_error err;
    /* With a limit, only allocations count, not the memory of the driver. */
    const gpu_open_options options = {.memory_limit = UINT64_C(2) << 30};
    if (the_case.b->open(0, gpu_host_default(), &options, &d, &err)) fail_msg("%s", err.message);
    uint64_t before = free_memory(the_case.b, d);
    if (gpu_rates_measure(the_case.b, d, 2, &r, &err)) fail_msg("%s", err.message);
    assert_int_equal(free_memory(the_case.b, d), before);
    the_case.b->close(d);
    const double figures[] = {r.stream_gbps, r.gather_gbps};
    for (int i = 0; i < 2; i++) assert_true(figures[i] > 1e-6 && figures[i] < 1e6);
    assert_true(r.step > 0 && r.step < 10);
    assert_true(r.sync >= 0 && r.sync < 10);
    assert_true(r.bus_gbps >= 0 && r.bus_gbps < 1e6);
}

static void test_lost(void **state) {
    (void)state;
    if (!the_case.b->fail_at) skip();
    int n_failed = 0;
    for (int64_t n = 1; n < 400; n += n / 2 + 1) {
        gpu_device *d;
        gpu_rates r;
        pi_error err;
        if (the_case.b->open(0, gpu_host_default(), NULL, &d, &err)) fail_msg("%s", err.message);
        uint64_t before = free_memory(the_case.b, d);
        the_case.b->fail_at(d, n);
        pi_status status = gpu_rates_measure(the_case.b, d, 2, &r, &err);
        if (status != PI_OK) {
            assert_int_equal(status, PI_ERR_DEVICE);
            assert_non_null(strstr(err.message, "device lost"));
            n_failed++;
        }
        assert_int_equal(free_memory(the_case.b, d), before);
        the_case.b->close(d);
    }
    assert_true(n_failed > 5);
}

static void test_little_memory(void **state) {
    (void)state;
    gpu_device *d;
    gpu_rates r;
    pi_error err;
    const gpu_open_options options = {.memory_limit = 1 << 19};
    if (the_case.b->open(0, gpu_host_default(), &options, &d, &err)) fail_msg("%s", err.message);
    assert_int_equal(gpu_rates_measure(the_case.b, d, 2, &r, &err), PI_ERR_NOMEM);
    the_case.b->close(d);
}

/* ---- a device with a separate clock ---------------------------------------------------------- */

/* Products do not run; each takes the time of its bytes at these rates, and 2 microseconds. */
static struct {
    gpu_backend b;
    double stream_gbps, gather_gbps, ms;
    struct {
        const gpu_event *event;
        double ms;
    } records[2];
    uint64_t bytes, most_bytes; /* allocated now, and at most */
    int n_streams;              /* products of whole matrices */
} clocked;

static void take(double n_bytes, double gbps) {
    clocked.ms += 2e-3 + n_bytes / (gbps * 1e6);
}

static void clocked_matvec(gpu_stream *s, const gpu_matmul *a, int n) {
    (void)s;
    for (int i = 0; i < n; i++)
        take((double)a[i].w.n_out * (double)a[i].w.row_bytes, clocked.stream_gbps);
    clocked.n_streams++;
}

static void clocked_down_rows(gpu_stream *s, const gpu_down_rows *a) {
    (void)s;
    take((double)a->n_max * (double)a->w.row_bytes, clocked.gather_gbps);
}

static void clocked_record(gpu_stream *s, gpu_event *e) {
    (void)s;
    int i = clocked.records[0].event == e || !clocked.records[0].event ? 0 : 1;
    clocked.records[i].event = e;
    clocked.records[i].ms = clocked.ms;
}

static double clocked_elapsed(gpu_event *from, gpu_event *to) {
    int i = clocked.records[0].event == from ? 0 : 1;
    assert_ptr_equal(clocked.records[1 - i].event, to);
    return clocked.records[1 - i].ms - clocked.records[i].ms;
}

static pi_status clocked_alloc(gpu_device *d, size_t n, const char *what, void **out,
                               pi_error *err) {
    pi_status status = the_case.b->alloc(d, n, what, out, err);
    uint64_t left = free_memory(the_case.b, d);
    clocked.bytes = (UINT64_C(1) << 30) - left;
    if (clocked.bytes > clocked.most_bytes) clocked.most_bytes = clocked.bytes;
    return status;
}

static gpu_reading read_clocked(double stream_gbps, double gather_gbps, uint64_t most_bytes) {
    const gpu_open_options limit = {.memory_limit = UINT64_C(1) << 30};
    const gpu_reading_options options = {
        .most_bytes = most_bytes, .long_ms = 0.5, .least_gbps = 5, .repeats = 3};
    gpu_device *d;
    gpu_reading r;
    pi_error err;
    if (the_case.b->open(0, gpu_host_default(), &limit, &d, &err)) fail_msg("%s", err.message);
    memset(&clocked, 0, sizeof clocked);
    clocked.b = *the_case.b;
    clocked.b.event_record = clocked_record;
    clocked.b.event_elapsed = clocked_elapsed;
    clocked.b.alloc = clocked_alloc;
    clocked.b.ops.matvec = clocked_matvec;
    clocked.b.ops.down_rows = clocked_down_rows;
    clocked.stream_gbps = stream_gbps;
    clocked.gather_gbps = gather_gbps;
    if (gpu_reading_measure(&clocked.b, d, &options, &r, &err)) fail_msg("%s", err.message);
    assert_int_equal(free_memory(the_case.b, d), UINT64_C(1) << 30);
    the_case.b->close(d);
    return r;
}

/* The matrix grows until the time of a launch no longer counts; a slow or busy device is given up
 * after one product. */
static void test_reading(void **state) {
    (void)state;
    const uint64_t room = UINT64_C(256) << 20, little = 3 << 20, rest = 1 << 20;
    static const double rates[] = {8, 40, 150};
    for (int i = 0; i < 3; i++) {
        gpu_reading r = read_clocked(rates[i], 0.75 * rates[i], room);
        assert_true(fabs(r.stream_gbps / rates[i] - 1) < 0.01);
        assert_true(fabs(r.gather_gbps / (0.75 * rates[i]) - 1) < 0.05);
        assert_true(clocked.most_bytes < room && clocked.n_streams <= 8);
        assert_true(clocked.ms < 8);
    }
    gpu_reading r = read_clocked(400, 300, little);
    assert_true(r.stream_gbps > 200 && r.stream_gbps < 400);
    assert_true(clocked.most_bytes < little + rest);
    r = read_clocked(4, 4, room);
    assert_true(r.stream_gbps == 0 && clocked.n_streams == 1);
}

static const struct CMUnitTest tests[] = {
    CASE_TEST(test_reading),
    CASE_TEST(test_rates),
    CASE_TEST(test_lost),
    CASE_TEST(test_little_memory),
};
CASE_MAIN(tests)
