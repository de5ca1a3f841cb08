/* test_linalg.c: products in every layout, compared with sums in double; orthonormal bases and
 * eigenvectors by their defining properties, and compared with LAPACK where it is installed. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#ifdef TEST_HAVE_LAPACKE
#include <lapacke.h>
#endif

#include "linalg.h"
#include "mem.h"
#include "rng.h"

enum { THREADS = 3 };

typedef struct fixture {
    pool *pool;
    la_job job;
    rng random;
} fixture;

static int set_up(void **state) {
    fixture *f = mem_calloc(1, sizeof *f);
    assert_non_null(f);
    assert_int_equal(pool_create(THREADS, &f->pool, NULL), PI_OK);
    assert_int_equal(la_job_init(&f->job, f->pool, NULL, NULL), PI_OK);
    rng_seed(&f->random, 7);
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    fixture *f = *state;
    la_job_free(&f->job);
    pool_destroy(f->pool);
    mem_free(f);
    return 0;
}

static float *random_floats(fixture *f, int64_t n) {
    float *x = mem_alloc((size_t)n * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++) x[i] = rng_normal(&f->random);
    return x;
}

/* ---- products -------------------------------------------------------------------------------- */

static void check_product(const gemm_args *g, const float *before) {
    for (int64_t i = 0; i < g->m; i++)
        for (int64_t j = 0; j < g->n; j++) {
            if (g->lower_only && j > i) continue;
            double sum = 0, size = 0, scale = g->scale != 0.0f ? (double)g->scale : 1;
            for (int64_t k = 0; k < g->n_k; k++) {
                double p = scale * (double)g->a.data[i * g->a.row + k * g->a.column] *
                           (double)g->b.data[k * g->b.row + j * g->b.column];
                sum += p;
                size += fabs(p);
            }
            if (g->add) sum += (double)before[i * g->ldc + j];
            double error = fabs((double)g->c[i * g->ldc + j] - sum);
            assert_true(error <= 1e-6 * (size + fabs(sum) + 1e-3));
        }
}

/* One product in all four layouts, stored and added; memory around C is unchanged. */
static void check_layouts(fixture *f, int64_t m, int64_t n, int64_t n_k) {
    int64_t ldc = n + 3;
    float *a = random_floats(f, m * n_k), *b = random_floats(f, n_k * n);
    float *c = random_floats(f, m * ldc), *before = random_floats(f, m * ldc);
    for (int layout = 0; layout < 8; layout++) {
        bool turn_a = layout & 1, turn_b = layout & 2;
        gemm_args g = {.m = m,
                       .n = n,
                       .n_k = n_k,
                       .a = (la_matrix){a, turn_a ? 1 : n_k, turn_a ? m : 1},
                       .b = (la_matrix){b, turn_b ? 1 : n, turn_b ? n_k : 1},
                       .c = c,
                       .ldc = ldc,
                       .scale = layout & 4 ? -0.5f : 0.0f,
                       .add = layout & 4};
        memcpy(c, before, (size_t)(m * ldc) * sizeof *c);
        assert_int_equal(la_gemm(&f->job, &g, NULL), PI_OK);
        check_product(&g, before);
        for (int64_t i = 0; i < m; i++)
            assert_memory_equal(c + i * ldc + n, before + i * ldc + n, 3 * sizeof *c);
    }
    mem_free(a);
    mem_free(b);
    mem_free(c);
    mem_free(before);
}

static void test_products(void **state) {
    static const int64_t shapes[][3] = {{1, 1, 1},    {12, 32, 256}, {13, 33, 257},  {5, 70, 3},
                                        {250, 7, 40}, {31, 600, 19}, {245, 130, 530}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        check_layouts(*state, shapes[i][0], shapes[i][1], shapes[i][2]);
}

static void test_empty_sum(void **state) {
    fixture *f = *state;
    float c[6] = {1, 2, 3, 4, 5, 6};
    gemm_args g = {
        .m = 2, .n = 2, .a = {.data = c}, .b = {.data = c}, .c = c, .ldc = 3, .add = true};
    assert_int_equal(la_gemm(&f->job, &g, NULL), PI_OK);
    assert_true(c[0] == 1 && c[1] == 2 && c[3] == 4 && c[4] == 5);
    g.add = false;
    assert_int_equal(la_gemm(&f->job, &g, NULL), PI_OK);
    assert_true(c[0] == 0 && c[1] == 0 && c[2] == 3 && c[3] == 0 && c[4] == 0 && c[5] == 6);
}

static void test_symmetric(void **state) {
    fixture *f = *state;
    enum { N = 527, K = 40 };
    float *a = random_floats(f, N * K), *c = random_floats(f, (int64_t)N * N);
    gemm_args g = {.m = N,
                   .n = N,
                   .n_k = K,
                   .a = la_rows(a, K),
                   .b = la_transposed(a, K),
                   .c = c,
                   .ldc = N,
                   .lower_only = true};
    assert_int_equal(la_gemm(&f->job, &g, NULL), PI_OK);
    check_product(&g, NULL);
    la_mirror_lower(c, N);
    g.lower_only = false;
    check_product(&g, NULL);
    mem_free(a);
    mem_free(c);
}

/* One thread and three give the same bits. */
static void test_threads(void **state) {
    fixture *f = *state;
    enum { M = 260, N = 700, K = 300 };
    float *a = random_floats(f, M * K), *b = random_floats(f, N * K);
    float *c = random_floats(f, M * N), *d = random_floats(f, M * N);
    gemm_args g = {M, N, K, la_rows(a, K), la_transposed(b, K), c, N, 0, false, false};
    assert_int_equal(la_gemm(&f->job, &g, NULL), PI_OK);
    pool *one;
    la_job job;
    assert_int_equal(pool_create(1, &one, NULL), PI_OK);
    assert_int_equal(la_job_init(&job, one, NULL, NULL), PI_OK);
    g.c = d;
    assert_int_equal(la_gemm(&job, &g, NULL), PI_OK);
    assert_memory_equal(c, d, M * N * sizeof *c);
    la_gemm_thread(&job, 0, &g);
    assert_memory_equal(c, d, M * N * sizeof *c);
    la_job_free(&job);
    pool_destroy(one);
    mem_free(a);
    mem_free(b);
    mem_free(c);
    mem_free(d);
}

static bool refuse(void *user, const char *stage, double fraction) {
    (void)stage;
    assert_true(fraction >= 0 && fraction <= 1);
    ++*(int *)user;
    return false;
}

static void test_cancel(void **state) {
    fixture *f = *state;
    int calls = 0;
    progress report = {.fn = refuse, .user = &calls};
    la_job job;
    pi_error err;
    assert_int_equal(la_job_init(&job, f->pool, &report, &err), PI_OK);
    la_job_stage(&job, 0.5, 1e6);
    enum { N = 64 };
    float *a = random_floats(f, N * N), *c = random_floats(f, N * N);
    gemm_args g = {N, N, N, la_rows(a, N), la_transposed(a, N), c, N, 0, false, false};
    /* Other threads may take all tiles before the caller, so the test tries several times. */
    pi_status status = PI_OK;
    for (int i = 0; i < 100 && status == PI_OK; i++) status = la_gemm(&job, &g, &err);
    assert_int_equal(status, PI_ERR_CANCELLED);
    assert_int_equal(calls, 1);
    assert_int_equal(la_gemm(&job, &g, &err), PI_ERR_CANCELLED);
    assert_int_equal(calls, 1);
    la_job_free(&job);
    mem_free(a);
    mem_free(c);
}

/* ---- orthonormal rows ------------------------------------------------------------------------ */

static double row_dot(const float *a, const float *b, int64_t n) {
    double sum = 0;
    for (int64_t k = 0; k < n; k++) sum += (double)a[k] * (double)b[k];
    return sum;
}

static void check_orthonormal(const float *q, int64_t rows, int64_t n) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j <= i; j++) {
            double d = row_dot(q + i * n, q + j * n, n);
            assert_true(fabs(d - (i == j)) < 1e-5);
        }
}

/* The original rows are in the span of the new rows. */
static void test_orthonormal(void **state) {
    fixture *f = *state;
    enum { ROWS = 75, N = 200 };
    float *a = random_floats(f, ROWS * N), *q = random_floats(f, ROWS * N);
    /* Ill-conditioned: all rows have a common direction that is a thousand times longer than the
     * rest. */
    for (int64_t i = 1; i < ROWS; i++)
        for (int64_t k = 0; k < N; k++) a[i * N + k] += 1000 * a[k];
    memcpy(q, a, ROWS * N * sizeof *q);
    assert_int_equal(la_orthonormal_rows(&f->job, q, ROWS, N, NULL), PI_OK);
    check_orthonormal(q, ROWS, N);
    for (int64_t i = 0; i < ROWS; i++) {
        double inside = 0, length2 = row_dot(a + i * N, a + i * N, N);
        for (int64_t j = 0; j < ROWS; j++) {
            double d = row_dot(a + i * N, q + j * N, N);
            inside += d * d;
        }
        assert_true(fabs(inside - length2) < 1e-5 * length2);
    }
    mem_free(a);
    mem_free(q);
}

static void test_dependent_rows(void **state) {
    fixture *f = *state;
    enum { ROWS = 40, N = 90, TWIN = 35, ZERO = 3 };
    float *q = random_floats(f, ROWS * N);
    for (int64_t k = 0; k < N; k++) {
        q[TWIN * N + k] = 2 * q[1 * N + k] - q[33 * N + k];
        q[ZERO * N + k] = 0;
    }
    assert_int_equal(la_orthonormal_rows(&f->job, q, ROWS, N, NULL), PI_OK);
    for (int64_t i = 0; i < ROWS; i++)
        for (int64_t j = 0; j <= i; j++) {
            bool one = i == j && i != TWIN && i != ZERO;
            assert_true(fabs(row_dot(q + i * N, q + j * N, N) - one) < 1e-5);
        }
    mem_free(q);
}

/* ---- eigenvectors ---------------------------------------------------------------------------- */

static double *random_symmetric(fixture *f, int64_t n) {
    double *a = mem_alloc((size_t)(n * n) * sizeof *a);
    assert_non_null(a);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j <= i; j++)
            a[i * n + j] = a[j * n + i] = (double)rng_normal(&f->random);
    return a;
}

static void check_eigen(const double *a, int64_t n, const double *vector, const double *value) {
    double size = 0;
    for (int64_t i = 0; i < n; i++) size = fmax(size, fabs(value[i]));
    for (int64_t k = 0; k < n; k++) {
        const double *v = vector + k * n;
        if (k > 0) assert_true(value[k] <= value[k - 1]);
        for (int64_t i = 0; i < n; i++) {
            double av = 0, vv = 0;
            for (int64_t j = 0; j < n; j++) {
                av += a[i * n + j] * v[j];
                vv += vector[i * n + j] * v[j];
            }
            assert_true(fabs(av - value[k] * v[i]) <= 1e-11 * (size + 1));
            assert_true(fabs(vv - (i == k)) < 1e-11);
        }
    }
}

static void check_matrix(fixture *f, double *a, int64_t n, double *value) {
    double *vector = mem_alloc((size_t)(n * n) * sizeof *vector);
    assert_non_null(vector);
    memcpy(vector, a, (size_t)(n * n) * sizeof *vector);
    assert_int_equal(la_eigen(&f->job, vector, n, value, NULL), PI_OK);
    check_eigen(a, n, vector, value);
    mem_free(vector);
}

static void test_eigen(void **state) {
    fixture *f = *state;
    enum { MAX = 90 };
    static const int64_t sizes[] = {1, 2, 3, 17, MAX};
    double value[MAX];
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        int64_t n = sizes[i];
        double *a = random_symmetric(f, n);
        check_matrix(f, a, n, value);
        for (int64_t k = 0; k < n * n; k++) a[k] = 0; /* zero, identity, diagonal, rank one */
        check_matrix(f, a, n, value);
        for (int64_t k = 0; k < n; k++) a[k * n + k] = 1;
        check_matrix(f, a, n, value);
        for (int64_t k = 0; k < n; k++) a[k * n + k] = (double)((k * 7) % n);
        check_matrix(f, a, n, value);
        assert_true(value[0] == (double)(n - 1) || n == 7);
        for (int64_t k = 0; k < n * n; k++) a[k] = 1e6;
        check_matrix(f, a, n, value);
        assert_true(fabs(value[0] - 1e6 * (double)n) < 1e-3);
        mem_free(a);
    }
}

static void test_eigen_errors(void **state) {
    fixture *f = *state;
    double bad[4] = {1, NAN, NAN, 1}, good[4] = {2, 1, 1, 2}, value[2];
    pi_error err;
    assert_int_equal(la_eigen(&f->job, bad, 2, value, &err), PI_ERR_RANGE);
    for (int n = 1; n <= 2; n++) {
        mem_fail_at(n);
        assert_int_equal(la_eigen(&f->job, good, 2, value, &err), PI_ERR_NOMEM);
    }
    mem_fail_at(0);
    assert_int_equal(la_eigen(&f->job, good, 2, value, &err), PI_OK);
    assert_true(fabs(value[0] - 3) < 1e-12 && fabs(value[1] - 1) < 1e-12);
}

/* ---- LAPACK ---------------------------------------------------------------------------------- */

static void test_lapack(void **state) {
#ifdef TEST_HAVE_LAPACKE
    fixture *f = *state;
    enum { N = 120 };
    double *a = random_symmetric(f, N), value[N], expected[N];
    double *vector = mem_alloc(N * N * sizeof *vector);
    assert_non_null(vector);
    memcpy(vector, a, N * N * sizeof *vector);
    assert_int_equal(la_eigen(&f->job, vector, N, value, NULL), PI_OK);
    assert_int_equal(LAPACKE_dsyev(LAPACK_ROW_MAJOR, 'V', 'U', N, a, N, expected), 0);
    for (int k = 0; k < N; k++) { /* LAPACK: ascending eigenvalues, eigenvectors in columns */
        assert_true(fabs(value[k] - expected[N - 1 - k]) < 1e-11 * N);
        double along = 0;
        for (int j = 0; j < N; j++) along += vector[k * N + j] * a[j * N + N - 1 - k];
        assert_true(fabs(fabs(along) - 1) < 1e-9);
    }
    mem_free(a);
    mem_free(vector);
#else
    (void)state;
    print_message("SKIPPED: no LAPACKE on this machine (Debian: liblapacke-dev)\n");
    skip();
#endif
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_products, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_empty_sum, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_symmetric, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_threads, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_cancel, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_orthonormal, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_dependent_rows, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_eigen, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_eigen_errors, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_lapack, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
