/* gpu_case.c: see gpu_case.h. */
#include "gpu_case.h"

#include <stdlib.h>

#include "quant.h"
#include "run_device.h"

gpu_case the_case;

const quant_type case_types[] = {QUANT_F16,     QUANT_Q4_0, QUANT_Q6_K, QUANT_F32,
                                 QUANT_BF16,    QUANT_Q8_0, QUANT_Q4_K, QUANT_MXFP4,
                                 QUANT_Q4_1,    QUANT_Q5_0, QUANT_Q5_1, QUANT_IQ4_NL,
                                 QUANT_Q2_K,    QUANT_Q3_K, QUANT_Q5_K, QUANT_IQ4_XS,
#define LOW(type, ...) QUANT_##type,
                                 QUANT_LOW(LOW)
#undef LOW
};
#ifdef __SANITIZE_THREAD__ /* races of a kernel's threads do not depend on the decoder */
int case_n_types = 3;
#else
int case_n_types = sizeof case_types / sizeof case_types[0];
#endif

bool case_has(gpu_op op, quant_type type) {
    return the_case.b->supports(op, type, NULL);
}

/* ---- setting up ------------------------------------------------------------------------------ */

int case_main(int argc, char **argv, const struct CMUnitTest *tests, size_t n_tests) {
    gpu_case *c = &the_case;
    int failed;
    for (int i = 1; i + 1 < argc; i++) {
        const bool types = strcmp(argv[i], "--types") == 0;
        const int n = types ? (int)strtol(argv[i + 1], NULL, 10) : 0;
        if (n > 0 && n < case_n_types) case_n_types = n;
        if (strcmp(argv[i], "--rows") == 0 && strcmp(argv[i + 1], "file") == 0) c->in_file = true;
    }
    if (!run_device_open(argc, argv, 0, &c->library, &c->device, &failed)) return failed;
    pi_error err;
    c->b = c->library.backend;
    if (c->b->stream_create(c->device, &c->stream, &err)) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    failed = _cmocka_run_group_tests("gpu", tests, n_tests, NULL, NULL);
    c->b->stream_destroy(c->stream);
    run_device_close(&c->library, c->device);
    return failed;
}

int case_setup(void **state) {
    (void)state;
    rng_seed(&the_case.r, 20);
    return 0;
}

int case_teardown(void **state) {
    (void)state;
    gpu_case *c = &the_case;
    pi_error err;
    pi_status status = c->b->stream_sync(c->stream, &err);
    for (int i = 0; i < c->n_memory; i++) c->b->free(c->device, c->memory[i]);
    for (int i = 0; i < c->n_host; i++) free(c->host[i]);
    c->n_memory = c->n_host = 0;
    if (status) fprintf(stderr, "%s\n", err.message);
    return status ? 1 : 0;
}

/* ---- memory ---------------------------------------------------------------------------------- */

void *case_alloc(size_t n_bytes) {
    gpu_case *c = &the_case;
    void *p = NULL;
    pi_error err;
    assert_true(c->n_memory < CASE_MAX_MEMORY);
    if (c->b->alloc(c->device, n_bytes, "a test", &p, &err)) fail_msg("%s", err.message);
    c->memory[c->n_memory++] = p;
    return p;
}

void case_sync(void) {
    pi_error err;
    if (the_case.b->stream_sync(the_case.stream, &err)) fail_msg("%s", err.message);
}

void *case_upload(const void *data, size_t n_bytes) {
    void *p = case_alloc(n_bytes);
    the_case.b->upload(the_case.stream, p, data, n_bytes);
    case_sync();
    return p;
}

void case_download(void *to, const void *from, size_t n_bytes) {
    the_case.b->download(the_case.stream, to, from, n_bytes);
    case_sync();
}

void *case_host(size_t n_bytes) {
    void *p = calloc(1, n_bytes ? n_bytes : 1);
    assert_non_null(p);
    assert_true(the_case.n_host < CASE_MAX_MEMORY);
    the_case.host[the_case.n_host++] = p;
    return p;
}

/* ---- data ------------------------------------------------------------------------------------ */

float *case_random(int64_t n, float scale) {
    float *x = case_host((size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = rng_normal(&the_case.r) * scale;
    return x;
}

int64_t case_width(quant_type type, int64_t n) {
    int64_t block = quant_find((uint32_t)type)->block_elems;
    return (n + block - 1) / block * block;
}

/* Uploads GGUF rows as a matrix. */
static case_mat upload_rows(quant_type type, int64_t n_out, int64_t n_in, const uint8_t *raw,
                            size_t row) {
    const quant_traits *t = quant_find((uint32_t)type);
    case_mat m = {.values = case_host((size_t)(n_out * n_in) * sizeof(float))};
    for (int64_t r = 0; r < n_out; r++)
        t->dequantize(raw + (size_t)r * row, m.values + r * n_in, n_in);
    if (the_case.in_file && gpu_type_wants_q8(type)) {
        m.mat = (gpu_mat){.data = case_upload(raw, (size_t)n_out * row),
                          .row_bytes = row,
                          .n_in = n_in,
                          .n_out = n_out,
                          .type = type,
                          .in_file = true};
        return m;
    }
    size_t packed = gpu_mat_row_bytes(row);
    m.mat = (gpu_mat){.data = case_alloc((size_t)n_out * packed),
                      .row_bytes = packed,
                      .n_in = n_in,
                      .n_out = n_out,
                      .type = type};
    gpu_pack pack = {.src = case_upload(raw, (size_t)n_out * row),
                     .src_row_bytes = row,
                     .dst = m.mat,
                     .n_rows = n_out};
    the_case.b->ops.pack(the_case.stream, &pack);
    case_sync();
    return m;
}

case_mat case_weights(quant_type type, int64_t n_out, int64_t n_in) {
    const quant_traits *t = quant_find((uint32_t)type);
    size_t row = 0;
    assert_true(quant_row_bytes(type, (uint64_t)n_in, &row));
    uint8_t *raw = case_host((size_t)n_out * row);
    float *x = case_random(n_in, 1);
    for (int64_t r = 0; r < n_out; r++) {
        for (int64_t i = 0; i < n_in; i++) x[i] = rng_normal(&the_case.r);
        if (type == QUANT_F32)
            memcpy(raw + (size_t)r * row, x, row);
        else
            t->quantize(x, raw + (size_t)r * row, n_in, NULL);
    }
    return upload_rows(type, n_out, n_in, raw, row);
}

/* Whether the block's values are numbers, and not so large that products lose the other terms. */
static bool is_tame(const quant_traits *t, const uint8_t *block) {
    float v[256];
    bool tame = true;
    t->dequantize(block, v, t->block_elems);
    for (int i = 0; i < t->block_elems; i++) tame = tame && fabsf(v[i]) < 1e6f; /* false for NaN */
    return tame;
}

case_mat case_patterns(quant_type type, int64_t n_out, int64_t n_in) {
    const quant_traits *t = quant_find((uint32_t)type);
    size_t row = 0, block = (size_t)t->block_bytes;
    assert_true(quant_row_bytes(type, (uint64_t)n_in, &row));
    uint8_t *raw = case_host((size_t)n_out * row);
    for (uint8_t *at = raw; at < raw + (size_t)n_out * row; at += block) {
        do {
            for (size_t i = 0; i < block; i++) at[i] = (uint8_t)rng_u64(&the_case.r);
        } while (!is_tame(t, at));
    }
    return upload_rows(type, n_out, n_in, raw, row);
}

/* Downloads a quantized column as floats, d * q. */
static void decode_column(const uint8_t *q8, int64_t n, float *out) {
    for (int64_t i = 0; i < n; i++) {
        float d;
        memcpy(&d, q8 + gpu_q8_d_offset(n) + 4 * (size_t)(i / 32), sizeof d);
        out[i] = d * (float)(int8_t)q8[i];
    }
}

case_columns case_input(int64_t n, int n_cols) {
    case_columns c = {.ldx = (n + 3) / 4 * 4 + 4};
    size_t n_bytes = (size_t)(c.ldx * n_cols) * sizeof(float);
    c.x = case_host(n_bytes);
    for (int64_t i = 0; i < c.ldx * n_cols; i++) {
        c.x[i] = i % c.ldx < n ? rng_normal(&the_case.r) : (float)NAN; /* must not be read */
    }
    c.in = (gpu_input){.x = case_upload(c.x, n_bytes), .ldx = c.ldx, .n_cols = n_cols};
    if (n % 32 != 0) return c;
    size_t column = gpu_q8_bytes(n);
    void *q8 = case_alloc(column * (size_t)n_cols);
    gpu_quantize e = {.x = c.in.x, .ldx = c.ldx, .n = n, .n_cols = n_cols, .q8 = q8};
    the_case.b->ops.quantize(the_case.stream, &e);
    uint8_t *bytes = case_host(column * (size_t)n_cols);
    case_download(bytes, q8, column * (size_t)n_cols);
    c.known = case_host(n_bytes);
    for (int i = 0; i < n_cols; i++)
        decode_column(bytes + column * (size_t)i, n, c.known + i * c.ldx);
    c.in.q8 = q8;
    return c;
}

const float *case_seen(const case_columns *x, quant_type type, int c) {
    return (gpu_type_wants_q8(type) ? x->known : x->x) + c * x->ldx;
}

void case_near(double got, double want, double scale, double tolerance, const char *what,
               int64_t at) {
    if (fabs(got - want) <= tolerance * scale) return;
    fail_msg("%s %lld: %.9g, should be %.9g (of size %.3g)", what, (long long)at, got, want, scale);
}

void case_quantized(const void *q8, const float *device_x, int64_t ld, int64_t n, int n_cols) {
    size_t column = gpu_q8_bytes(n), n_bytes = column * (size_t)n_cols;
    uint8_t *got = case_host(n_bytes), *want = case_host(n_bytes);
    void *again = case_alloc(n_bytes);
    gpu_quantize e = {.x = device_x, .ldx = ld, .n = n, .n_cols = n_cols, .q8 = again};
    the_case.b->ops.quantize(the_case.stream, &e);
    case_download(got, q8, n_bytes);
    case_download(want, again, n_bytes);
    for (int c = 0; c < n_cols; c++) {
        size_t at = column * (size_t)c, sums = at + gpu_q8_sum_offset(n);
        assert_memory_equal(got + at, want + at, (size_t)n + (size_t)n / 32 * 4);
        assert_memory_equal(got + sums, want + sums, (size_t)n / 16 * 4);
    }
}

int case_spread_of(quant_type type, int n) {
    return quant_find((uint32_t)type)->is_quantized && type != QUANT_Q8_0 ? n & -n : 0;
}

void case_spread(double *x, int n, int block) {
    double y[GPU_MAX_LATENT];
    for (int i = 0; i < n && block; i++) {
        y[i] = 0;
        for (int j = 0; j < block; j++)
            y[i] += (__builtin_popcount((unsigned)(i % block & j)) % 2 ? -1 : 1) *
                    x[i / block * block + j] / sqrt(block);
    }
    if (block) memcpy(x, y, (size_t)n * sizeof *x);
}
