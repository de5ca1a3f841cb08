/* test_kl_base.c: rows and files of base runs: rounding within half a step, divergences against
 * direct sums in long double, and truncated, changed and lying files. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "kl_base.h"
#include "rng.h"

#define PATH TEST_BINARY_DIR "/test_kl_base.klbase"

enum { MAX_VOCAB = 1001, MAX_FILE = 1 << 16 };

static pi_error err;

/* Returns the log of the sum of exponentials, computed directly. */
static long double log_sum(const float *logits, int n) {
    float most = logits[0];
    for (int i = 0; i < n; i++) most = fmaxf(most, logits[i]);
    long double sum = 0;
    for (int i = 0; i < n; i++) sum += expl((long double)logits[i] - (long double)most);
    return logl(sum) + (long double)most;
}

static float largest(const float *logits, int n) {
    float most = logits[0];
    for (int i = 0; i < n; i++) most = fmaxf(most, logits[i]);
    return most;
}

static void fill(rng *r, float *logits, int n, double spread) {
    for (int i = 0; i < n; i++)
        logits[i] = (float)(((double)(rng_u64(r) >> 11) * 0x1p-53 - 0.5) * spread);
}

/* ---- rows ------------------------------------------------------------------------------------ */

static void test_rows_are_within_half_a_step(void **state) {
    (void)state;
    static const int sizes[] = {1, 2, 3, 40, MAX_VOCAB};
    static const double spreads[] = {0, 1e-6, 1, 20, 31.9, 1000, 1e30};
    static float logits[MAX_VOCAB];
    static uint8_t row[8 + 2 * (MAX_VOCAB + 1)];
    rng r;
    rng_seed(&r, 7);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (size_t k = 0; k < sizeof spreads / sizeof *spreads; k++) {
            int n = sizes[s];
            fill(&r, logits, n, spreads[k]);
            if (n > 40) logits[17] = -INFINITY; /* an impossible token */
            double sum = (double)log_sum(logits, n);
            assert_true(kl_base_row_bytes(n) % 4 == 0 && kl_base_row_bytes(n) <= sizeof row);
            kl_base_pack(row, logits, n, largest(logits, n), sum);
            float h[2];
            uint16_t q;
            memcpy(h, row, sizeof h);
            assert_true((double)h[1] <= 32.0 / 65535 * 1.0001);
            for (int i = 0; i < n; i++) {
                memcpy(&q, row + sizeof h + 2 * (size_t)i, sizeof q);
                double want = fmax((double)logits[i] - sum, (double)h[0] - 32);
                double got = (double)h[0] - (double)h[1] * q;
                double most = 0.5001 * (double)h[1] + 1e-6 * fmax(1, fabs((double)h[0]));
                if (!(fabs(got - want) <= most)) fail_msg("%d of %d: %g, %g", i, n, got, want);
            }
        }
    }
}

static void test_divergence_by_hand(void **state) {
    (void)state;
    static float a[MAX_VOCAB], b[MAX_VOCAB];
    static uint8_t row[8 + 2 * (MAX_VOCAB + 1)];
    rng r;
    rng_seed(&r, 8);
    for (int round = 0; round < 40; round++) {
        int n = round % 2 ? MAX_VOCAB : 64;
        fill(&r, a, n, 1 + round);
        memcpy(b, a, sizeof b);
        if (round >= 4) fill(&r, b, n, 12);
        long double sum_a = log_sum(a, n), sum_b = log_sum(b, n), want = 0;
        int best_a = 0, best_b = 0;
        for (int i = 0; i < n; i++) {
            long double la = (long double)a[i] - sum_a, lb = (long double)b[i] - sum_b;
            want += expl(la) * (la - lb);
            if (a[i] > a[best_a]) best_a = i;
            if (b[i] > b[best_b]) best_b = i;
        }
        kl_base_pack(row, a, n, largest(a, n), (double)sum_a);
        kl_base_difference d;
        assert_true(kl_base_compare(row, b, n, (double)sum_b, 5, &d));
        assert_true(fabs(d.divergence - (double)want) < 1e-7 + 2.5e-4 * (double)want);
        assert_true(d.divergence > -1e-12);
        assert_true(fabs(d.base_surprise - (double)(sum_a - (long double)a[5])) < 5e-4);
        if (best_a == best_b) assert_true(d.same_top);
        if (a[best_a] > a[best_b] + 1e-3f) assert_false(d.same_top);
    }
}

static void test_damaged_rows(void **state) {
    (void)state;
    enum { N = 64 };
    float logits[N];
    uint8_t good[8 + 2 * N], bad[8 + 2 * N];
    rng r;
    rng_seed(&r, 9);
    fill(&r, logits, N, 10);
    double sum = (double)log_sum(logits, N);
    kl_base_difference d;
    kl_base_pack(good, logits, N, largest(logits, N), sum);
    assert_true(kl_base_compare(good, logits, N, sum, 0, &d));
    static const float values[] = {NAN, INFINITY, -INFINITY, 1, -10, 1e30f};
    for (size_t i = 0; i < 2 * sizeof values / sizeof *values; i++) {
        memcpy(bad, good, sizeof bad);
        memcpy(bad + (i & 1 ? 4 : 0), &values[i / 2], sizeof(float));
        assert_false(kl_base_compare(bad, logits, N, sum, 0, &d));
    }
    memcpy(bad, good, sizeof bad);
    memset(bad + 8, 0, 2 * N); /* every token is as likely as the best: the sum exceeds 1 */
    assert_false(kl_base_compare(bad, logits, N, sum, 0, &d));
    memset(bad + 8, 0xFF, 2 * N);
    assert_false(kl_base_compare(bad, logits, N, sum, 0, &d));
}

/* ---- files ----------------------------------------------------------------------------------- */

/* Writes two windows of 4 tokens over a vocabulary of 5. Returns the size of the file. */
static size_t write_small(uint8_t *bytes, bool llama_windows) {
    kl_base_info info = {.n_vocab = 5, .n_ctx = 4, .n_windows = 2, .llama_windows = llama_windows};
    static const int32_t tokens[] = {1, 0, 4, 2, 3, 3, 0, 1};
    static const float logits[] = {0.5f, -1, 3, 0, 2};
    uint8_t row[8 + 2 * 6];
    assert_int_equal(kl_base_row_bytes(5), sizeof row);
    kl_base_pack(row, logits, 5, 3, (double)log_sum(logits, 5));
    file_writer *w;
    assert_int_equal(kl_base_create(PATH, &info, tokens, &w, &err), PI_OK);
    for (int i = 0; i < 2 * kl_base_scored(&info); i++)
        assert_int_equal(file_writer_write(w, row, sizeof row, &err), PI_OK);
    assert_int_equal(file_writer_commit(w, &err), PI_OK);
    FILE *f = fopen(PATH, "rb");
    assert_non_null(f);
    size_t n = fread(bytes, 1, MAX_FILE, f);
    fclose(f);
    return n;
}

static void test_write_then_read(void **state) {
    (void)state;
    static uint8_t bytes[MAX_FILE];
    for (int llama = 0; llama < 2; llama++) {
        size_t n = write_small(bytes, llama);
        /* header, tokens, rows: 3 per window, or 1 in its second half */
        assert_int_equal(n, 32 + 8 * 4 + 2 * (llama ? 1 : 3) * 20);
        kl_base b;
        assert_int_equal(kl_base_open(&b, PATH, &err), PI_OK);
        assert_int_equal(b.info.n_vocab, 5);
        assert_int_equal(b.info.n_ctx, 4);
        assert_int_equal(b.info.n_windows, 2);
        assert_int_equal(b.info.llama_windows, llama);
        assert_int_equal(b.tokens[2], 4);
        assert_int_equal(b.tokens[7], 1);
        assert_ptr_equal(kl_base_row(&b, 1), b.map.data + 32 + 32 + 20);
        kl_base_close(&b);
    }
    unlink(PATH);
}

static void refused(const uint8_t *bytes, size_t n) {
    static uint32_t aligned[MAX_FILE / 4];
    memcpy(aligned, bytes, n);
    kl_base b = {0};
    err = (pi_error){0};
    pi_status status = kl_base_parse(&b, (const uint8_t *)aligned, n, "FILE", &err);
    assert_true(status == PI_ERR_FORMAT || status == PI_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, ": FILE: "));
    assert_null(strchr(err.message, '\n'));
}

static void test_files_that_lie(void **state) {
    (void)state;
    static uint8_t good[MAX_FILE], bad[MAX_FILE];
    size_t n = write_small(good, false);
    unlink(PATH);
    for (size_t i = 0; i < n; i++) refused(good, i);
    refused(good, n + 1);
    /* Every bit of the header and of the tokens' upper bytes matters. */
    for (size_t bit = 0; bit < 32 * 8; bit++) {
        memcpy(bad, good, n);
        bad[bit / 8] ^= (uint8_t)(1 << bit % 8);
        refused(bad, n);
    }
    for (int token = 0; token < 8; token++) {
        memcpy(bad, good, n);
        bad[32 + 4 * token + 3] ^= 0x80; /* a negative id */
        refused(bad, n);
        memcpy(bad, good, n);
        bad[32 + 4 * token] = 5; /* first id beyond the vocabulary */
        refused(bad, n);
    }
    /* Numbers whose product wraps around to the file's size. */
    static const int32_t huge[] = {INT32_MAX, INT32_MIN, -1, 0, 1 << 30};
    for (int field = 0; field < 3; field++)
        for (size_t i = 0; i < sizeof huge / sizeof *huge; i++) {
            memcpy(bad, good, n);
            memcpy(bad + 16 + 4 * field, &huge[i], 4);
            refused(bad, n);
        }
    assert_int_equal(kl_base_open(&(kl_base){0}, "/nowhere/x", &err), PI_ERR_IO);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_are_within_half_a_step),
        cmocka_unit_test(test_divergence_by_hand),
        cmocka_unit_test(test_damaged_rows),
        cmocka_unit_test(test_write_then_read),
        cmocka_unit_test(test_files_that_lie),
    };
    return cmocka_run_group_tests_name("kl_base", tests, NULL, NULL);
}
