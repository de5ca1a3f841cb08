/* test_bench.c: counts of a measurement: bytes that follow from the shapes and types of a synthetic
 * model, gathered rows, and shares of bandwidth and floor. Times are not tested. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#if defined(_WIN32)
#include <windows.h>

#include <psapi.h>
#else
#include <sys/resource.h>
#endif

#include <cmocka.h>

#include "bandwidth.h"
#include "cpu_topology.h"
#include "mem.h"
#include "powerinfer_tools.h"

#define MODEL_PATH TEST_BINARY_DIR "/test_bench.gguf"

enum { N_EMBD = 256, N_FF = 768, N_LAYER = 2, N_VOCAB = 512, N_KV = 128, N_GEN = 24 };

static const double DENSITY = 0.1;

/* n_parallel: sequences, in addition to a test with one; 0: only the test with one. */
static pi_bench_report *measure(pi_mode mode, int n_parallel) {
    pi_error err = {0};
    pi_synth_options synth = pi_synth_default_options();
    synth.type = "q8_0";
    synth.n_layer = N_LAYER;
    synth.plain = true;
    synth.density = (float)DENSITY;
    synth.n_threads = 1;
    if (pi_synth(MODEL_PATH, &synth, &err)) fail_msg("%s", err.message);
    pi_model *m;
    if (pi_model_open(MODEL_PATH, NULL, &m, &err)) fail_msg("%s", err.message);
    pi_bench_options o = pi_bench_default_options();
    o.context.mode = mode;
    o.context.n_threads = 1;
    o.prompts[0] = 64;
    o.gens[0] = N_GEN;
    o.repetitions = 2;
    if (n_parallel > 0) o.parallels[o.n_parallels++] = n_parallel;
    pi_bench_report *r = mem_calloc(1, sizeof *r);
    assert_non_null(r);
    if (pi_bench(m, &o, r, &err)) fail_msg("%s", err.message);
    pi_model_close(m);
    assert_int_equal(r->n_results, 2 * o.n_parallels);
    assert_string_equal(r->results[0].test, "pp64");
    assert_string_equal(r->results[1].test, "tg24");
    return r;
}

static double q8_bytes(int rows, int n) {
    return rows * (n / 32) * 34.0;
}

/* Returns the bytes of one layer's FFN matrices. */
static double ffn_bytes(void) {
    return 2 * q8_bytes(N_FF, N_EMBD) + q8_bytes(N_EMBD, N_FF);
}

/* Returns the bytes of weights that every token reads: all except the FFN matrices, with one row of
 * the embeddings. */
static double always_bytes(void) {
    double layer = 2 * q8_bytes(N_EMBD, N_EMBD) + 2 * q8_bytes(N_KV, N_EMBD);
    return N_LAYER * (layer + 2 * N_EMBD * 4) + q8_bytes(N_VOCAB, N_EMBD) + N_EMBD * 4 +
           q8_bytes(1, N_EMBD);
}

static void expect_near(double value, double expected, double tolerance) {
    if (!(fabs(value - expected) <= tolerance * expected))
        fail_msg("%.6g, expected %.6g within %g", value, expected, tolerance);
}

static void check_shares(const pi_bench_report *r) {
    assert_true(r->read_gbps > 0 && r->gather_gbps > 0);
    for (int i = 0; i < r->n_results; i++) {
        const pi_bench_result *b = &r->results[i];
        double apart = b->gathered_per_token, streamed = b->bytes_per_token - apart;
        double floor = streamed / (b->read_gbps * 1e9);
        if (apart > 0) floor += apart / (b->gather_gbps * 1e9);
        expect_near(b->gbps, b->bytes_per_token * b->tps / 1e9, 1e-9);
        expect_near(b->bandwidth_share, b->gbps / b->read_gbps, 1e-9);
        expect_near(b->floor_share, floor * b->tps, 1e-9);
        assert_true(b->tps_min <= b->tps && b->tps <= b->tps_max);
    }
}

static void test_dense(void **state) {
    (void)state;
    pi_bench_report *r = measure(PI_MODE_DENSE, 0);
    check_shares(r);
    const pi_bench_result *tg = &r->results[1];
    /* F16; on average half of the tokens are cached */
    double kv = N_LAYER * 2 * N_KV * 2 * (N_GEN + 1) / 2.0;
    expect_near(tg->bytes_per_token, always_bytes() + N_LAYER * ffn_bytes() + kv, 0.005);
    for (int i = 0; i < 2; i++) {
        assert_string_equal(r->results[i].mode, "dense");
        assert_true(r->results[i].ffn_density == 1);
        assert_true(r->results[i].gathered_per_token == 0);
    }
    mem_free(r);
}

/* Weights are read once for one token of all sequences; rows of embeddings and caches for each. */
static void test_parallel(void **state) {
    (void)state;
    enum { N = 3 };
    pi_bench_report *r = measure(PI_MODE_DENSE, N);
    const pi_bench_result *tg = &r->results[3];
    assert_int_equal(r->results[1].parallel, 1);
    assert_int_equal(tg->parallel, N);
    assert_string_equal(tg->test, "tg24");
    double kv = N_LAYER * 2 * N_KV * 2 * (N_GEN + 1) / 2.0, row = q8_bytes(1, N_EMBD);
    expect_near(tg->bytes_per_token, (always_bytes() - row + N_LAYER * ffn_bytes()) / N + row + kv,
                0.005);
    mem_free(r);
}

static void test_exact(void **state) {
    (void)state;
    pi_bench_report *r = measure(PI_MODE_EXACT, 0);
    check_shares(r);
    const pi_bench_result *tg = &r->results[1];
    assert_string_equal(tg->mode, "exact");
    /* Without a transposed down only rows of up are skipped; gate and down are read in full. */
    double up = q8_bytes(N_FF, N_EMBD);
    expect_near(tg->gathered_per_token, N_LAYER * up * DENSITY, 0.25);
    expect_near(tg->ffn_density, (2 + DENSITY) / 3, 0.02);
    expect_near(tg->bytes_per_token, always_bytes() + N_LAYER * (ffn_bytes() - (1 - DENSITY) * up),
                0.03);
    mem_free(r);
}

/* Tests take the next tokens of the text: an id out of range is an error where it is used. */
static void test_text(void **state) {
    (void)state;
    enum { GENS = 4, MOST = 5 * GENS };
    int32_t text[MOST];
    pi_bench_report *r = mem_calloc(1, sizeof *r);
    pi_bench_options o = pi_bench_default_options();
    pi_model *m;
    assert_non_null(r);
    mem_free(measure(PI_MODE_DENSE, 0)); /* writes the model */
    assert_int_equal(pi_model_open(MODEL_PATH, NULL, &m, NULL), PI_OK);
    o.context.n_threads = 1;
    o.n_prompts = 0;
    o.gens[0] = GENS;
    o.repetitions = 2;
    o.tokens = text;
    o.n_tokens = MOST;
    for (int k = 0; k < 2; k++) { /* one or two warm-ups, two repetitions */
        int bad = k ? 4 * GENS : 3 * GENS - 1;
        for (int i = 0; i < MOST; i++) text[i] = i == bad ? N_VOCAB : i;
        assert_int_equal(pi_bench(m, &o, r, NULL) == PI_OK, k);
    }
    for (int i = 0; i < MOST; i++) text[i] = i < GENS ? i : N_VOCAB;
    o.n_tokens = GENS; /* the text begins again */
    assert_int_equal(pi_bench(m, &o, r, NULL), PI_OK);
    o.n_tokens = GENS - 1;
    assert_int_equal(pi_bench(m, &o, r, NULL), PI_ERR_ARG);
    pi_model_close(m);
    mem_free(r);
}

/* Returns the resident bytes of this process. */
static uint64_t resident(void) {
#if defined(_WIN32)
    PROCESS_MEMORY_COUNTERS m = {.cb = sizeof m};
    assert_true(GetProcessMemoryInfo(GetCurrentProcess(), &m, sizeof m));
    return m.WorkingSetSize;
#else
    unsigned long long size = 0, pages = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%llu %llu", &size, &pages), 2);
    fclose(f);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
#endif
}

/* Tests with little memory, and with twice the last-level cache in each kind of pages. */
static void test_yardstick(void **state) {
    (void)state;
    enum { N_FREQ = 100 };
    float freq[N_FREQ];
    for (int i = 0; i < N_FREQ; i++) freq[i] = 1.0f / (float)(i + 1);
    bandwidth_options o = {.n_threads = 2, .row_bytes = 1000, .freq = freq, .n_freq = N_FREQ};
    size_t wanted = bandwidth_wanted(), slack = wanted / 4;
    assert_true(wanted >= 4 * cpu_last_cache() - (2 << 20) && wanted >= 256 << 20);
    assert_true(wanted <= 4 * cpu_last_cache() || wanted == 256 << 20);
    uint64_t before = resident();
    bandwidth *b;
    pi_error err;
    if (bandwidth_create(&o, &b, &err)) fail_msg("%s", err.message);
    assert_true(bandwidth_bytes(b) <= wanted);
    for (int i = 0; i < 3; i++) {
        double read = bandwidth_read(b), gather = bandwidth_gather(b, 0.1 * (i + 1));
        assert_true(isfinite(read) && read > 0 && isfinite(gather) && gather > 0);
    }
    assert_true(bandwidth_gather(b, 1) > 0 && bandwidth_gather(b, 1e-4) >= 0);
    assert_true(resident() - before <= wanted + slack);
    bandwidth_free(b);
    assert_true(resident() <= before + slack);
}

#if !defined(_WIN32) /* a process has no limit of memory */
/* The buffer takes at most a quarter of the memory below the limit, less keep_bytes; creation fails
 * below the minimum. */
static void test_yardstick_limits(void **state) {
    (void)state;
    bandwidth_options o = {.n_threads = 1, .row_bytes = 2304};
    struct rlimit old, limit;
    assert_int_equal(getrlimit(RLIMIT_AS, &old), 0);
    bandwidth *b;
    pi_error err;
    static const size_t mib[][2] = {{400, 0}, {200, 0}, {400, 300}, {20, 0}, {100, 100}};
    for (size_t i = 0; i < sizeof mib / sizeof mib[0]; i++) {
        unsigned long long pages = 0;
        FILE *f = fopen("/proc/self/statm", "re");
        assert_non_null(f);
        assert_int_equal(fscanf(f, "%llu", &pages), 1);
        fclose(f);
        limit = old;
        limit.rlim_cur = pages * (rlim_t)sysconf(_SC_PAGESIZE) + (mib[i][0] << 20);
        o.keep_bytes = mib[i][1] << 20;
        assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
        pi_status status = bandwidth_create(&o, &b, &err);
        assert_int_equal(setrlimit(RLIMIT_AS, &old), 0);
        size_t most = (mib[i][0] - mib[i][1]) << 18;
        if (most < BANDWIDTH_LEAST) {
            assert_int_equal(status, PI_ERR_NOMEM);
            continue;
        }
        if (status) fail_msg("%s", err.message);
        assert_true(bandwidth_bytes(b) <= most && bandwidth_bytes(b) >= BANDWIDTH_LEAST / 2);
        assert_true(bandwidth_read(b) > 0);
        bandwidth_free(b);
    }
}

#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dense),
        cmocka_unit_test(test_parallel),
        cmocka_unit_test(test_exact),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_yardstick),
#if !defined(_WIN32)
        cmocka_unit_test(test_yardstick_limits),
#endif
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(MODEL_PATH);
    return failed;
}
