/* test_gguf_write.c: the reader reads back bit for bit what the writer wrote; every failure while
 * writing leaves no file behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "file.h"
#include "gguf_writer.h"
#include "mem.h"
#include "rng.h"

#define OUT_PATH  TEST_BINARY_DIR "/test_gguf_write.gguf"
#define COPY_PATH TEST_BINARY_DIR "/test_gguf_copy.gguf"

enum { MAX_TENSORS = 20, MAX_TENSOR_BYTES = 1 << 16 };

typedef struct sample {
    char name[GGUF_MAX_NAME];
    quant_type type;
    int n_dims;
    uint64_t dims[GGUF_MAX_DIMS];
    size_t n_bytes;
    uint8_t data[MAX_TENSOR_BYTES];
} sample;

static sample samples[MAX_TENSORS];

static uint64_t below(rng *r, uint64_t n) {
    return rng_u64(r) % n;
}

static void put_random_key(gguf_writer *w, rng *r, const char *key) {
    uint8_t data[256];
    for (size_t i = 0; i < sizeof data; i++) data[i] = (uint8_t)rng_u64(r);
    gguf_string strings[5];
    for (size_t i = 0; i < 5; i++) {
        strings[i] = (gguf_string){.data = (const char *)data + i, .n_bytes = below(r, 200)};
    }
    const gguf_value_type plain[] = {GGUF_U8,  GGUF_I8,  GGUF_U16, GGUF_I16, GGUF_U32,
                                     GGUF_I32, GGUF_F32, GGUF_U64, GGUF_I64, GGUF_F64};
    switch (below(r, 9)) {
    case 0:
        gguf_put_u32(w, key, (uint32_t)rng_u64(r));
        break;
    case 1:
        gguf_put_i32(w, key, (int32_t)rng_u64(r));
        break;
    case 2:
        gguf_put_u64(w, key, rng_u64(r));
        break;
    case 3:
        gguf_put_f32(w, key, rng_normal(r));
        break;
    case 4:
        gguf_put_bool(w, key, below(r, 2));
        break;
    case 5:
        gguf_put_bytes(w, key, (const char *)data, below(r, sizeof data));
        break;
    case 6:
        gguf_put_string(w, key, "text");
        break;
    case 7:
        gguf_put_array(w, key, plain[below(r, 10)], data, below(r, 32));
        break;
    default:
        gguf_put_strings(w, key, strings, below(r, 6));
        break;
    }
}

static void make_sample(sample *s, rng *r, int number) {
    const quant_type types[] = {QUANT_F32,  QUANT_F16,  QUANT_Q4_0,
                                QUANT_Q8_0, QUANT_Q6_K, QUANT_I32};
    s->type = types[below(r, 6)];
    const quant_traits *traits = quant_find((uint32_t)s->type);
    s->n_dims = (int)below(r, GGUF_MAX_DIMS) + 1;
    snprintf(s->name, sizeof s->name, "blk.%d.t", number);
    uint64_t rows = 1;
    s->dims[0] = (uint64_t)traits->block_elems * (1 + below(r, 3));
    for (int d = 1; d < s->n_dims; d++) rows *= s->dims[d] = 1 + below(r, 4);
    size_t row_bytes;
    assert_true(quant_row_bytes(s->type, s->dims[0], &row_bytes));
    s->n_bytes = row_bytes * rows;
    assert_true(s->n_bytes <= MAX_TENSOR_BYTES);
    for (size_t i = 0; i < s->n_bytes; i++) s->data[i] = (uint8_t)rng_u64(r);
}

static void write_samples(gguf_writer *w, rng *r, int n) {
    assert_int_equal(gguf_writer_begin_data(w, NULL), PI_OK);
    for (int i = 0; i < n; i++) {
        for (size_t at = 0; at < samples[i].n_bytes;) { /* writes pieces of any size */
            size_t piece = 1 + below(r, samples[i].n_bytes - at);
            assert_int_equal(gguf_write_data(w, samples[i].data + at, piece, NULL), PI_OK);
            at += piece;
        }
    }
}

static void check_samples(const gguf_file *f, int n) {
    assert_int_equal(gguf_n_tensors(f), n);
    for (int i = 0; i < n; i++) {
        const gguf_tensor *t = gguf_tensor_at(f, (uint64_t)i);
        assert_ptr_equal(t, gguf_find_tensor(f, samples[i].name));
        assert_int_equal(t->type, samples[i].type);
        assert_int_equal(t->n_dims, samples[i].n_dims);
        assert_memory_equal(t->dims, samples[i].dims, sizeof(uint64_t) * (size_t)t->n_dims);
        assert_int_equal(t->n_bytes, samples[i].n_bytes);
        assert_int_equal(t->file_offset % gguf_alignment(f), 0);
        assert_memory_equal(t->data, samples[i].data, t->n_bytes);
    }
}

/* Writes random keys and tensors, reads them, and copies the file key by key: the copy has the same
 * bytes. */
static void round_trip(uint64_t seed) {
    rng r;
    rng_seed(&r, seed);
    gguf_writer *w;
    assert_int_equal(gguf_writer_create(OUT_PATH, &w, NULL), PI_OK);
    int n_keys = (int)below(&r, 60), n_tensors = (int)below(&r, MAX_TENSORS + 1);
    if (below(&r, 2)) gguf_put_u32(w, "general.alignment", 8u << below(&r, 8));
    for (int i = 0; i < n_keys; i++) {
        char key[32];
        snprintf(key, sizeof key, "key.%d", i);
        put_random_key(w, &r, key);
    }
    for (int i = 0; i < n_tensors; i++) {
        sample *s = &samples[i];
        make_sample(s, &r, i);
        assert_int_equal(gguf_add_tensor(w, s->name, s->type, s->n_dims, s->dims, NULL), PI_OK);
    }
    write_samples(w, &r, n_tensors);
    assert_int_equal(gguf_writer_finish(w, NULL), PI_OK);

    gguf_file *f;
    pi_error err = {0};
    gguf_open_options options = {.copy = seed % 2};
    if (gguf_open(OUT_PATH, &options, &f, &err)) fail_msg("%s", err.message);
    check_samples(f, n_tensors);

    assert_int_equal(gguf_writer_create(COPY_PATH, &w, NULL), PI_OK);
    for (uint64_t i = 0; i < gguf_n_values(f); i++) gguf_put_value(w, gguf_value_at(f, i));
    for (uint64_t i = 0; i < gguf_n_tensors(f); i++) {
        const gguf_tensor *t = gguf_tensor_at(f, i);
        assert_int_equal(gguf_add_tensor(w, t->name, t->type, t->n_dims, t->dims, NULL), PI_OK);
    }
    write_samples(w, &r, n_tensors);
    assert_int_equal(gguf_writer_finish(w, NULL), PI_OK);
    gguf_close(f);

    char *a, *b;
    size_t n_a, n_b;
    assert_int_equal(file_read(OUT_PATH, 1 << 26, &a, &n_a, NULL), PI_OK);
    assert_int_equal(file_read(COPY_PATH, 1 << 26, &b, &n_b, NULL), PI_OK);
    assert_int_equal(n_a, n_b);
    assert_memory_equal(a, b, n_a);
    mem_free(a);
    mem_free(b);
}

static void test_round_trips(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++) round_trip(seed);
    unlink(COPY_PATH);
}

static void test_replace(void **state) {
    (void)state;
    gguf_writer *w;
    assert_int_equal(gguf_writer_create(OUT_PATH, &w, NULL), PI_OK);
    gguf_put_u32(w, "a", 1);
    gguf_put_u32(w, "b", 2);
    gguf_put_u32(w, "c", 3);
    gguf_put_string(w, "b", "two"); /* keeps its place */
    gguf_put_u64(w, "d", 4);
    assert_int_equal(gguf_writer_finish(w, NULL), PI_OK);
    gguf_file *f;
    assert_int_equal(gguf_open(OUT_PATH, NULL, &f, NULL), PI_OK);
    assert_int_equal(gguf_n_values(f), 4);
    assert_int_equal(gguf_n_tensors(f), 0);
    assert_int_equal(gguf_value_at(f, 1)->type, GGUF_STRING);
    uint64_t u;
    assert_true(gguf_as_u64(gguf_find(f, "a"), &u) && u == 1);
    assert_true(gguf_as_u64(gguf_find(f, "c"), &u) && u == 3);
    assert_true(gguf_as_u64(gguf_find(f, "d"), &u) && u == 4);
    gguf_close(f);
}

static void test_many_keys(void **state) {
    (void)state;
    enum { N = 20000 };
    gguf_writer *w;
    assert_int_equal(gguf_writer_create(OUT_PATH, &w, NULL), PI_OK);
    char key[32];
    for (uint32_t i = 0; i < N; i++) {
        snprintf(key, sizeof key, "k%u", i);
        gguf_put_u32(w, key, i);
    }
    assert_int_equal(gguf_writer_finish(w, NULL), PI_OK);
    gguf_file *f;
    assert_int_equal(gguf_open(OUT_PATH, NULL, &f, NULL), PI_OK);
    for (uint32_t i = 0; i < N; i++) {
        snprintf(key, sizeof key, "k%u", i);
        uint64_t u;
        assert_true(gguf_as_u64(gguf_find(f, key), &u) && u == i);
    }
    gguf_close(f);
}

static void test_bad_arguments(void **state) {
    (void)state;
    const uint64_t dims[GGUF_MAX_DIMS] = {32, 0, 1, 1}, odd[] = {31};
    const uint64_t huge[] = {1u << 31, UINT64_C(1) << 32, 2};
    char name[65];
    memset(name, 'x', 64);
    name[64] = 0;
    const struct {
        const char *name, *fragment;
        int type, n_dims;
        const uint64_t *dims;
    } cases[] = {
        {name, "64 bytes", QUANT_F32, 1, dims},
        {"", "0 bytes", QUANT_F32, 1, dims},
        {"there", "already there", QUANT_F32, 1, dims},
        {"t", "do not fit its type", QUANT_Q4_0, 1, odd},
        {"t", "do not fit its type", QUANT_F32, 2, dims},
        {"t", "do not fit its type", QUANT_F32, 0, dims},
        {"t", "do not fit its type", QUANT_F32, 5, dims},
        {"t", "do not fit its type", QUANT_F32, 3, huge},
        {"t", "do not fit its type", 4, 1, dims},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gguf_writer *w;
        pi_error err = {0};
        assert_int_equal(gguf_writer_create(OUT_PATH, &w, NULL), PI_OK);
        assert_int_equal(gguf_add_tensor(w, "there", QUANT_F32, 1, dims, NULL), PI_OK);
        assert_int_equal(gguf_add_tensor(w, cases[i].name, (quant_type)cases[i].type,
                                         cases[i].n_dims, cases[i].dims, &err),
                         PI_ERR_ARG);
        assert_non_null(strstr(err.message, cases[i].fragment));
        assert_int_equal(gguf_writer_begin_data(w, NULL), PI_ERR_ARG); /* sticky */
        gguf_writer_abort(w);
    }
}

static void test_sticky_key_errors(void **state) {
    (void)state;
    static char key[GGUF_MAX_KEY + 2];
    memset(key, 'k', sizeof key - 1);
    for (int i = 0; i < 4; i++) {
        gguf_writer *w;
        pi_error err = {0};
        assert_int_equal(gguf_writer_create(OUT_PATH, &w, NULL), PI_OK);
        if (i == 0) gguf_put_u32(w, "", 1);
        if (i == 1) gguf_put_u32(w, key, 1);
        if (i == 2) gguf_put_array(w, "a", GGUF_STRING, NULL, 0);
        if (i == 3) gguf_put_u32(w, "general.alignment", 12);
        gguf_put_u32(w, "good", 1);
        assert_int_equal(gguf_writer_finish(w, &err), PI_ERR_ARG);
        assert_true(err.message[0] != 0);
    }
}

static void test_wrong_amounts(void **state) {
    (void)state;
    const uint64_t dims[] = {4};
    const uint8_t data[64] = {0};
    for (size_t n = 0; n <= 17; n++) {
        unlink(OUT_PATH);
        gguf_writer *w;
        pi_error err = {0};
        assert_int_equal(gguf_writer_create(OUT_PATH, &w, NULL), PI_OK);
        assert_int_equal(gguf_add_tensor(w, "t", QUANT_F32, 1, dims, NULL), PI_OK);
        assert_int_equal(gguf_writer_begin_data(w, NULL), PI_OK);
        pi_status wrote = gguf_write_data(w, data, n, &err);
        assert_int_equal(wrote, n > 16 ? PI_ERR_ARG : PI_OK);
        assert_int_equal(gguf_writer_finish(w, &err), n == 16 ? PI_OK : PI_ERR_ARG);
        assert_int_equal(file_exists(OUT_PATH), n == 16);
        if (n < 16) assert_non_null(strstr(err.message, "of its 16 bytes"));
        if (n > 16) assert_non_null(strstr(err.message, "more than the tensors have"));
    }
}

static void test_bad_places(void **state) {
    (void)state;
    gguf_writer *w = NULL;
    pi_error err = {0};
    assert_int_equal(gguf_writer_create("/nowhere/at/all.gguf", &w, &err), PI_ERR_IO);
    assert_non_null(strstr(err.message, "/nowhere/at/all.gguf"));
    if (access("/dev/full", W_OK) != 0) {
        fprintf(stderr, "*** SKIPPED: no /dev/full here ***\n");
        return;
    }
    assert_int_equal(gguf_writer_create("/dev/full", &w, &err), PI_OK);
    static const uint8_t data[1 << 20];
    const uint64_t dims[] = {sizeof data / 4};
    assert_int_equal(gguf_add_tensor(w, "t", QUANT_F32, 1, dims, NULL), PI_OK);
    pi_status status = gguf_writer_begin_data(w, &err);
    if (!status) status = gguf_write_data(w, data, sizeof data, &err);
    assert_int_equal(status, PI_ERR_IO);
    err = (pi_error){0};
    assert_int_equal(gguf_writer_finish(w, &err), PI_ERR_IO);
    assert_non_null(strstr(err.message, "/dev/full"));
}

static pi_status write_small(pi_error *err) {
    const uint64_t dims[] = {4};
    const float data[4] = {0};
    gguf_writer *w;
    pi_status status = gguf_writer_create(OUT_PATH, &w, err);
    if (status) return status;
    gguf_put_u32(w, "a", 1);
    gguf_put_string(w, "b", "text");
    gguf_put_array(w, "c", GGUF_F32, data, 4);
    status = gguf_add_tensor(w, "t", QUANT_F32, 1, dims, err);
    if (!status) status = gguf_writer_begin_data(w, err);
    if (!status) status = gguf_write_data(w, data, sizeof data, err);
    if (!status) return gguf_writer_finish(w, err);
    gguf_writer_abort(w);
    return status;
}

static void test_allocation_failures(void **state) {
    (void)state;
    unlink(OUT_PATH);
    int64_t before = mem_count();
    assert_int_equal(write_small(NULL), PI_OK);
    int64_t n = mem_count() - before;
    assert_true(n >= 8);
    unlink(OUT_PATH);
    for (int64_t i = 1; i <= n; i++) {
        pi_error err = {0};
        mem_fail_at(i);
        assert_int_equal(write_small(&err), PI_ERR_NOMEM);
        assert_non_null(strstr(err.message, "out of memory"));
        assert_false(file_exists(OUT_PATH));
    }
    mem_fail_at(0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trips),       cmocka_unit_test(test_replace),
        cmocka_unit_test(test_many_keys),         cmocka_unit_test(test_bad_arguments),
        cmocka_unit_test(test_sticky_key_errors), cmocka_unit_test(test_wrong_amounts),
        cmocka_unit_test(test_bad_places),        cmocka_unit_test(test_allocation_failures),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(OUT_PATH);
    return failed;
}
