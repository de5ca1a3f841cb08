/* gpu_case.h: shared by the tests of src/gpu: an open device with a stream, memory that is freed at
 * the end, random data, and weights in every type with their values as floats.
 *
 * Which device: run_device.h. */
#ifndef TESTS_GPU_CASE_H
#define TESTS_GPU_CASE_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "gpu.h"
#include "rng.h"

enum { CASE_MAX_MEMORY = 256 };

typedef struct gpu_case {
    gpu_library library;
    const gpu_backend *b;
    gpu_device *device;
    gpu_stream *stream;
    void *memory[CASE_MAX_MEMORY]; /* of the device */
    int n_memory;
    void *host[CASE_MAX_MEMORY];
    int n_host;
    rng r;
} gpu_case;

/* On the device of the command line, which all tests of a program share. */
int case_main(int argc, char **argv, const struct CMUnitTest *tests, size_t n_tests);
extern gpu_case the_case;
/* Before and after every test: memory is given back, the random numbers start again. */
int case_setup(void **state);
int case_teardown(void **state);

#define CASE_TEST(f) cmocka_unit_test_setup_teardown(f, case_setup, case_teardown)
#define CASE_MAIN(tests)                                                                           \
    int main(int argc, char **argv) {                                                              \
        return case_main(argc, argv, tests, sizeof tests / sizeof tests[0]);                       \
    }

void *case_alloc(size_t n_bytes);                    /* device memory */
void *case_upload(const void *data, size_t n_bytes); /* the same with these contents */
void case_download(void *to, const void *from, size_t n_bytes);
void case_sync(void);
void *case_host(size_t n_bytes); /* zeroed, freed after the test */

/* n normal numbers. */
float *case_random(int64_t n, float scale);

/* A matrix of random weights: packed on the device, and what they are worth. */
typedef struct case_mat {
    gpu_mat mat;
    float *values; /* [n_out][n_in] */
} case_mat;
case_mat case_weights(quant_type type, int64_t n_out, int64_t n_in);
/* A matrix of random bytes: every bit of scales, minima and quants takes part. */
case_mat case_patterns(quant_type type, int64_t n_out, int64_t n_in);

/* Random columns, on both sides; quantized too when n is a multiple of 32. `known` are the values
 * that products see: the int8 ones for quantized weights. */
typedef struct case_columns {
    gpu_input in;
    float *x;     /* [n_cols][ldx] */
    float *known; /* [n_cols][ldx]: d * q, NULL when not quantized */
    int64_t ldx;
} case_columns;
case_columns case_input(int64_t n, int n_cols);
/* What a product with weights of this type sees of column c. */
const float *case_seen(const case_columns *x, quant_type type, int c);

/* An int8 form (of the device) is that of x: what `quantize` makes of it, except the padding
 * between parts. */
void case_quantized(const void *q8, const float *device_x, int64_t ld, int64_t n, int n_cols);

/* |got - want| <= tolerance * scale, with a message that names the place. */
void case_near(double got, double want, double scale, double tolerance, const char *what,
               int64_t at);

extern const quant_type case_types[];
extern const int case_n_types;
/* A width that the type allows, at least about n: n itself for plain types. */
int64_t case_width(quant_type type, int64_t n);

#endif
