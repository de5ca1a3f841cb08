/* test_base_memory.c: allocation, checked sizes, arena, error messages, random numbers, log and
 * progress. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <math.h>
#include <string.h>

#include "arena.h"
#include "error.h"
#include "hash.h"
#include "log.h"
#include "mem.h"
#include "progress.h"
#include "rng.h"

static void test_checked_sizes(void **state) {
    (void)state;
    size_t out = 7;
    assert_false(size_mul(SIZE_MAX / 2 + 1, 2, &out));
    assert_false(size_add(SIZE_MAX, 1, &out));
    assert_false(size_align(SIZE_MAX - 3, 16, &out));
    assert_int_equal(out, 7);
    assert_true(size_align(33, 32, &out));
    assert_int_equal(out, 64);
    assert_true(size_align(64, 32, &out));
    assert_int_equal(out, 64);
}

static void test_allocation(void **state) {
    (void)state;
    assert_null(mem_calloc(SIZE_MAX / 2, 3));
    void *p = mem_alloc(0);
    assert_non_null(p);
    mem_free(p);
    char *s = mem_strndup("ab\0cd", 5);
    assert_memory_equal(s, "ab\0cd\0", 6);
    mem_free(s);
    mem_free(NULL);

    mem_fail_at(2);
    p = mem_alloc(1);
    assert_non_null(p);
    assert_null(mem_alloc(1));
    void *q = mem_alloc(1); /* only one allocation fails */
    assert_non_null(q);
    mem_fail_at(0);
    mem_free(p);
    mem_free(q);
}

static void test_mapped_memory(void **state) {
    (void)state;
    static const size_t sizes[] = {0, 1, 4096, (2 << 20) - 1, 2 << 20, (5 << 20) + 123};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        uint8_t *p = mem_map(sizes[i]);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 4096, 0);
        if (sizes[i]) {
            assert_int_equal(p[0] | p[sizes[i] - 1] | p[sizes[i] / 2], 0);
            p[0] = p[sizes[i] - 1] = 1;
        }
        mem_unmap(p, sizes[i]);
    }
    assert_null(mem_map(SIZE_MAX - 100));
    mem_unmap(NULL, 5);
}

static void test_grow(void **state) {
    (void)state;
    void *items = NULL;
    size_t capacity = 0;
    for (size_t need = 1; need <= 1000; need++) {
        assert_true(mem_grow(&items, &capacity, need, sizeof(int), 1000));
        assert_true(capacity >= need && capacity <= 1000);
        ((int *)items)[need - 1] = (int)need;
    }
    for (int i = 0; i < 1000; i++) assert_int_equal(((int *)items)[i], i + 1);
    assert_false(mem_grow(&items, &capacity, 1001, sizeof(int), 1000));
    mem_fail_at(1);
    assert_false(mem_grow(&items, &capacity, 1001, sizeof(int), 2000));
    mem_fail_at(0);
    assert_int_equal(((int *)items)[999], 1000);
    assert_false(mem_grow(&items, &capacity, SIZE_MAX, 16, SIZE_MAX));
    mem_free(items);

    items = NULL;
    capacity = 0;
    assert_true(mem_grow(&items, &capacity, 2, sizeof(int), 3)); /* a limit below the first step */
    assert_true(capacity >= 2 && capacity <= 3);
    mem_free(items);
}

static void test_arena(void **state) {
    (void)state;
    arena a;
    arena_init(&a);
    for (size_t n = 0; n < 300; n++) {
        unsigned char *p = arena_alloc(&a, n * 11);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 16, 0);
        for (size_t i = 0; i < n * 11; i++) assert_int_equal(p[i], 0);
        memset(p, 0xee, n * 11);
    }
    assert_null(arena_calloc(&a, SIZE_MAX / 2, 4));
    assert_null(arena_alloc(&a, SIZE_MAX - 8));
    assert_string_equal(arena_strndup(&a, "hello", 4), "hell");
    mem_fail_at(1);
    assert_null(arena_alloc(&a, 1 << 20));
    mem_fail_at(0);
    assert_non_null(arena_alloc(&a, 1 << 20));
    arena_free(&a);
    arena_free(&a);
}

static void test_error_messages(void **state) {
    (void)state;
    pi_error err = {0};
    assert_int_equal(error_set(NULL, PI_ERR_ARG, "x"), PI_ERR_ARG);
    assert_int_equal(error_set(&err, PI_ERR_FORMAT, "bad %s: %d", "na\nme\x1b", 5), PI_ERR_FORMAT);
    assert_string_equal(err.message, "bad na\\nme\\x1B: 5");
    assert_int_equal(error_prefix(&err, PI_ERR_IO, "file %d", 3), PI_ERR_FORMAT);
    assert_string_equal(err.message, "file 3: bad na\\nme\\x1B: 5");
    assert_int_equal(error_set_errno(&err, ENOENT, "open"), PI_ERR_IO);
    assert_string_equal(err.message, "open: No such file or directory");
    assert_int_equal(error_set_errno(&err, ENOMEM, "open"), PI_ERR_NOMEM);
    char longer[2 * PI_ERROR_TEXT_MAX];
    memset(longer, 'a', sizeof longer);
    longer[sizeof longer - 1] = '\0';
    error_set(&err, PI_ERR_IO, "%s", longer);
    error_prefix(&err, PI_ERR_IO, "%s", longer);
    assert_int_equal(strlen(err.message), PI_ERROR_TEXT_MAX - 1);
    /* The text around a long name is kept, in whole characters. */
    for (size_t i = 0; i + 2 < sizeof longer; i += 2) memcpy(longer + i, "\xC3\xA9", 3);
    error_set(&err, PI_ERR_IO, "cannot do: %s: try harder", longer);
    assert_memory_equal(err.message, "cannot do: \xC3\xA9", 13);
    assert_non_null(strstr(err.message, "\xC3\xA9...\xC3\xA9"));
    assert_non_null(strstr(err.message, "\xC3\xA9: try harder"));
    error_set_errno(&err, ENOENT, "cannot open: %s", longer);
    assert_non_null(strstr(err.message, ": No such file or directory"));
    assert_string_equal(pi_status_name(PI_ERR_LIMIT), "ERR_LIMIT");
    assert_string_equal(pi_status_text((pi_status)99), "unknown");
}

/* First outputs for known states, published with the reference programs: splitmix64 for seed 0
 * (which fills our state) and xoshiro256** for the state 1, 2, 3, 4. The first output of the
 * latter, calculated by hand: rotl(2 * 5, 7) * 9 = 1280 * 9 = 11520. */
static void test_rng_known_answers(void **state) {
    (void)state;
    rng r;
    rng_seed(&r, 0);
    static const uint64_t seeded[4] = {0xe220a8397b1dcdafu, 0x6e789e6aa1b965f4u,
                                       0x06c45d188009454fu, 0xf88bb8a8724c81ecu};
    for (int i = 0; i < 4; i++) assert_true(r.s[i] == seeded[i]);
    r = (rng){{1, 2, 3, 4}};
    static const uint64_t outputs[] = {11520, 0, 1509978240, 1215971899390074240u};
    for (int i = 0; i < 4; i++) assert_true(rng_u64(&r) == outputs[i]);
}

/* SipHash as its paper describes it, with any numbers of rounds. */
static uint64_t plain_siphash(hash_key key, const uint8_t *p, size_t n, int c_rounds,
                              int d_rounds) {
    hash_state s = hash_begin(key);
    for (size_t word = 0; word <= n / 8; word++) {
        uint64_t m = word == n / 8 ? (uint64_t)(n & 255) << 56 : 0;
        for (size_t i = word * 8; i < n && i < word * 8 + 8; i++)
            m |= (uint64_t)p[i] << (8 * (i % 8));
        s.v[3] ^= m;
        for (int i = 0; i < c_rounds; i++) hash_round(&s);
        s.v[0] ^= m;
    }
    s.v[2] ^= 0xff;
    for (int i = 0; i < d_rounds; i++) hash_round(&s);
    return s.v[0] ^ s.v[1] ^ s.v[2] ^ s.v[3];
}

static void test_hash(void **state) {
    (void)state;
    hash_key key = {{0x0706050403020100u, 0x0f0e0d0c0b0a0908u}};
    uint8_t bytes[64];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)i;
    /* The published vectors are for SipHash-2-4. */
    assert_int_equal(plain_siphash(key, bytes, 0, 2, 4), 0x726fdb47dd0e0e31u);
    assert_int_equal(plain_siphash(key, bytes, 15, 2, 4), 0xa129ca6149be45e5u);
    for (size_t n = 0; n <= sizeof bytes; n++)
        assert_int_equal(hash_bytes(key, bytes, n), plain_siphash(key, bytes, n, 1, 3));
    hash_key one = hash_key_random(), other = hash_key_random();
    assert_true(one.k[0] != other.k[0] && one.k[1] != other.k[1]);
    assert_true(hash_bytes(one, bytes, 8) != hash_bytes(other, bytes, 8));
    assert_true(hash_u64(one, 5) != hash_u64(other, 5));
}

/* Moments of 100,000 values; the bounds are five standard errors. */
static void test_rng_distributions(void **state) {
    (void)state;
    enum { N = 100000 };
    rng r;
    rng_seed(&r, 42);
    double sum = 0, square = 0, uniform = 0;
    for (int i = 0; i < N; i++) {
        double u = rng_uniform(&r);
        assert_true(u >= 0 && u < 1);
        uniform += u;
        double x = (double)rng_normal(&r);
        sum += x;
        square += x * x;
    }
    assert_true(fabs(uniform / N - 0.5) < 5 * sqrt(1.0 / 12 / N));
    assert_true(fabs(sum / N) < 5 / sqrt(N));
    assert_true(fabs(square / N - 1) < 5 * sqrt(2.0 / N));
    assert_true(rng_entropy() != rng_entropy());
}

typedef struct log_record {
    int n;
    log_level level;
    char line[2048];
} log_record;

static void record_line(void *user, log_level level, const char *line) {
    log_record *r = user;
    r->n++;
    r->level = level;
    strncpy(r->line, line, sizeof r->line - 1);
}

static void test_log(void **state) {
    (void)state;
    log_record r = {0};
    log_line(LOG_LEVEL_WARN, "dropped");
    log_set_sink(record_line, &r, LOG_LEVEL_INFO);
    log_line(LOG_LEVEL_DEBUG, "dropped");
    assert_int_equal(r.n, 0);
    log_line(LOG_LEVEL_WARN, "%d\n%s", 5, "x");
    assert_int_equal(r.n, 1);
    assert_int_equal(r.level, LOG_LEVEL_WARN);
    assert_string_equal(r.line, "5\\nx");
    log_line(LOG_LEVEL_INFO, "%5000d", 1);
    assert_int_equal(strlen(r.line), 1023);
    log_set_sink(NULL, NULL, LOG_LEVEL_DEBUG);
    log_line(LOG_LEVEL_WARN, "dropped");
    assert_int_equal(r.n, 2);
}

static void record_progress(void *user, const char *stage, double fraction) {
    assert_string_equal(stage, "work");
    *(double *)user = fraction;
}

static void test_log_progress(void **state) {
    (void)state;
    double seen = -1;
    log_progress("dropped", 0.5);
    log_set_progress(record_progress, &seen);
    log_progress("work", 0.5);
    assert_true(seen == 0.5);
    log_set_progress(NULL, NULL);
    log_progress("dropped", 1);
    assert_true(seen == 0.5);
}

static bool count_until_end(void *user, const char *stage, double fraction) {
    assert_string_equal(stage, "work");
    ++*(int *)user;
    return fraction < 1;
}

static void test_progress(void **state) {
    (void)state;
    int calls = 0;
    progress silent = {0};
    assert_true(progress_step(&silent, "work", 1));
    assert_true(progress_step(NULL, "work", 1));
    progress p = {.fn = count_until_end, .user = &calls};
    for (int i = 0; i < 1000; i++) assert_true(progress_step(&p, "work", 0.5));
    assert_true(calls >= 1 && calls < 100); /* throttled */
    int before = calls;
    assert_false(progress_step(&p, "work", 1)); /* the end is always reported */
    assert_int_equal(calls, before + 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_checked_sizes),
        cmocka_unit_test(test_allocation),
        cmocka_unit_test(test_mapped_memory),
        cmocka_unit_test(test_grow),
        cmocka_unit_test(test_arena),
        cmocka_unit_test(test_error_messages),
        cmocka_unit_test(test_rng_known_answers),
        cmocka_unit_test(test_hash),
        cmocka_unit_test(test_rng_distributions),
        cmocka_unit_test(test_log),
        cmocka_unit_test(test_log_progress),
        cmocka_unit_test(test_progress),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
