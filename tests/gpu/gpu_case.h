/* gpu_case.h: shared by the tests of src/gpu: an open device with a stream, memory that is freed
 * after each test, random data, and weights in every type with their values as floats.
 *
 * run_device.h chooses the device. */
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
    void *memory[CASE_MAX_MEMORY]; /* device memory */
    int n_memory;
    void *host[CASE_MAX_MEMORY];
    int n_host;
    rng r;
    bool in_file; /* `--rows file`: quantized rows are as in the file (gpu_mat.in_file) */
} gpu_case;

/* Opens the device of the command line, which all tests of a program share. */
int case_main(int argc, char **argv, const struct CMUnitTest *tests, size_t n_tests);
extern gpu_case the_case;
/* Called before and after every test: free the memory and restart the random numbers. */
int case_setup(void **state);
int case_teardown(void **state);

#define CASE_TEST(f) cmocka_unit_test_setup_teardown(f, case_setup, case_teardown)
#define CASE_MAIN(tests)                                                                           \
    int main(int argc, char **argv) {                                                              \
        return case_main(argc, argv, tests, sizeof tests / sizeof tests[0]);                       \
    }

void *case_alloc(size_t n_bytes);                    /* device memory */
void *case_upload(const void *data, size_t n_bytes); /* device memory with these contents */
void case_download(void *to, const void *from, size_t n_bytes);
void case_sync(void);
void *case_host(size_t n_bytes); /* zeroed, freed after the test */

/* n normally distributed numbers. */
float *case_random(int64_t n, float scale);

/* A matrix of random weights on the device, packed or with `--rows file` as in the file, and its
 * values. */
typedef struct case_mat {
    gpu_mat mat;
    float *values; /* [n_out][n_in] */
} case_mat;
case_mat case_weights(quant_type type, int64_t n_out, int64_t n_in);
/* A matrix of random bytes, so that every bit of scales, minima and quants varies. */
case_mat case_patterns(quant_type type, int64_t n_out, int64_t n_in);

/* Random columns, on host and device; also quantized when n is a multiple of 32. known: the values
 * that products use with quantized weights. */
typedef struct case_columns {
    gpu_input in;
    float *x;     /* [n_cols][ldx] */
    float *known; /* [n_cols][ldx] d * q; NULL: not quantized */
    int64_t ldx;
} case_columns;
case_columns case_input(int64_t n, int n_cols);
/* The values of column c that a product with weights of this type uses. */
const float *case_seen(const case_columns *x, quant_type type, int c);

/* Checks that the int8 form q8 equals the output of `quantize` for device_x, except the padding
 * between parts. */
void case_quantized(const void *q8, const float *device_x, int64_t ld, int64_t n, int n_cols);

/* Checks |got - want| <= tolerance * scale; the message names the place. */
void case_near(double got, double want, double scale, double tolerance, const char *what,
               int64_t at);

/* Elements of the Hadamard matrix by which the engine multiplies heads of n in a cache of this
 * type; 0: none. */
int case_spread_of(quant_type type, int n);
/* Multiplies every block of n <= GPU_MAX_LATENT elements, by the definition of the matrix. */
void case_spread(double *x, int n, int block);

/* Whether the device's backend has the operation for weights of this type. */
bool case_has(gpu_op op, quant_type type);

extern const quant_type case_types[];
extern int case_n_types; /* `--types N`: only the first N */
/* Returns a width that the type allows, at least about n; n for plain types. */
int64_t case_width(quant_type type, int64_t n);

#endif
