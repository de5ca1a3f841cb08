/* test_gpu_rates.c: measuring a GPU gives plausible figures and frees its memory; a device that is
 * lost meanwhile is an error and leaks nothing. */
#include "gpu_case.h"
#include "gpu_rates.h"

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
    const gpu_open_options options = {.memory_limit = 1 << 20};
    if (the_case.b->open(0, gpu_host_default(), &options, &d, &err)) fail_msg("%s", err.message);
    assert_int_equal(gpu_rates_measure(the_case.b, d, 2, &r, &err), PI_ERR_NOMEM);
    the_case.b->close(d);
}

static const struct CMUnitTest tests[] = {
    CASE_TEST(test_rates),
    CASE_TEST(test_lost),
    CASE_TEST(test_little_memory),
};
CASE_MAIN(tests)
