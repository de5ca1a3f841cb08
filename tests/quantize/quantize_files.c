/* quantize_files.c: see quantize_files.h. */
#include "quantize_files.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "file.h"
#include "mem.h"
#include "rng.h"

static void check(pi_status status, const pi_error *err) {
    if (status != PI_OK) fail_msg("%s", err->message);
}

static uint64_t count_elems(const made_tensor *t) {
    uint64_t n = 1;
    for (int d = 0; d < t->n_dims; d++) n *= t->dims[d];
    return n;
}

static void write_values(gguf_writer *w, const made_tensor *t, rng *r) {
    uint64_t n = count_elems(t);
    const quant_traits *traits = quant_find((uint32_t)t->type);
    size_t n_bytes = (size_t)(n / (uint64_t)traits->block_elems) * (size_t)traits->block_bytes;
    uint8_t *bytes = mem_calloc(n_bytes, 1);
    assert_non_null(bytes);
    if (traits->quantize) {
        float *x = mem_calloc(n, sizeof *x);
        assert_non_null(x);
        for (uint64_t i = 0; i < n; i++)
            x[i] = rng_normal(r) * 0.05f * expf((float)(i * 7919 % 97) / 48.0f);
        traits->quantize(x, bytes, (int64_t)n, NULL);
        mem_free(x);
    }
    pi_error err = {0};
    check(gguf_write_data(w, bytes, n_bytes, &err), &err);
    mem_free(bytes);
}

void made_write(const char *path, const made_tensor *tensors, int n, uint64_t seed,
                void (*keys)(gguf_writer *w)) {
    gguf_writer *w = NULL;
    pi_error err = {0};
    rng r;
    rng_seed(&r, seed);
    check(gguf_writer_create(path, &w, &err), &err);
    if (keys) keys(w);
    for (int i = 0; i < n; i++)
        check(gguf_add_tensor(w, tensors[i].name, tensors[i].type, tensors[i].n_dims,
                              tensors[i].dims, &err),
              &err);
    check(gguf_writer_begin_data(w, &err), &err);
    for (int i = 0; i < n; i++) write_values(w, &tensors[i], &r);
    check(gguf_writer_finish(w, &err), &err);
}

gguf_file *made_open(const char *path) {
    gguf_file *f = NULL;
    pi_error err = {0};
    check(gguf_open(path, NULL, &f, &err), &err);
    return f;
}

const gguf_tensor *made_find(const gguf_file *f, const char *name) {
    const gguf_tensor *t = gguf_find_tensor(f, name);
    if (!t) fail_msg("no tensor %s", name);
    return t;
}

float *made_floats(const gguf_tensor *t) {
    float *x = mem_calloc((size_t)t->n_elems, sizeof *x);
    assert_non_null(x);
    quant_find((uint32_t)t->type)->dequantize(t->data, x, (int64_t)t->n_elems);
    return x;
}

void made_imatrix(const char *path, const char *model_path, const char *const *names, int n) {
    gguf_file *f = made_open(model_path);
    gguf_writer *w = NULL;
    pi_error err = {0};
    rng r;
    rng_seed(&r, 99);
    check(gguf_writer_create(path, &w, &err), &err);
    gguf_put_string(w, "general.type", "imatrix");
    gguf_put_u32(w, "imatrix.chunk_count", 7);
    for (int i = 0; i < n; i++) {
        const gguf_tensor *t = made_find(f, names[i]);
        char name[2 * GGUF_MAX_NAME];
        uint64_t dims[2] = {t->dims[0], t->dims[2]};
        snprintf(name, sizeof name, "%s.in_sum2", t->name);
        check(gguf_add_tensor(w, name, QUANT_F32, 2, dims, &err), &err);
    }
    check(gguf_writer_begin_data(w, &err), &err);
    for (int i = 0; i < n; i++) {
        const gguf_tensor *t = made_find(f, names[i]);
        for (uint64_t k = 0; k < t->dims[0] * t->dims[2]; k++) {
            float sum = expf(9.0f * (float)rng_uniform(&r));
            check(gguf_write_data(w, &sum, sizeof sum, &err), &err);
        }
    }
    check(gguf_writer_finish(w, &err), &err);
    gguf_close(f);
}

void assert_same_file(const char *a, const char *b) {
    file_map x, y;
    pi_error err = {0};
    check(file_map_open(&x, a, false, &err), &err);
    check(file_map_open(&y, b, false, &err), &err);
    assert_int_equal(x.size, y.size);
    if (memcmp(x.data, y.data, x.size) != 0) fail_msg("%s and %s differ", a, b);
    file_map_close(&x);
    file_map_close(&y);
}

bool made_exists(const char *path) {
    return access(path, F_OK) == 0;
}
