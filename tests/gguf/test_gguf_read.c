/* test_gguf_read.c: the reader with files built by hand: one valid file, every way to break it,
 * every truncated length, every bit flipped, every allocation failing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "gguf.h"
#include "gguf_bytes.h"
#include "mem.h"

enum { ALIGN = 32 };

static bytes file; /* large: not on the stack */

/* Every value type, nested arrays, and tensors of three types. */
static void build_good(bytes *b, const char *magic, uint32_t version) {
    add_header(b, magic, version, 3, 8);
    add_key(b, "general.architecture", GGUF_STRING), add_text(b, "llama");
    add_key(b, "a.u8", GGUF_U8), add_u(b, 200, 1);
    add_key(b, "a.i32", GGUF_I32), add_u(b, (uint64_t)-7, 4);
    add_key(b, "a.f32", GGUF_F32), add_u(b, 0x3fc00000, 4); /* 1.5 */
    add_key(b, "a.bool", GGUF_BOOL), add_u(b, 1, 1);
    add_key(b, "a.words", GGUF_ARRAY), add_u(b, GGUF_STRING, 4), add_u(b, 3, 8);
    add_text(b, "one"), add_text(b, ""), add_text(b, "three");
    add_key(b, "a.numbers", GGUF_ARRAY), add_u(b, GGUF_I16, 4), add_u(b, 2, 8);
    add_u(b, 5, 2), add_u(b, (uint64_t)-5, 2);
    add_key(b, "a.nested", GGUF_ARRAY), add_u(b, GGUF_ARRAY, 4), add_u(b, 2, 8);
    add_u(b, GGUF_U8, 4), add_u(b, 1, 8), add_u(b, 9, 1);
    add_u(b, GGUF_STRING, 4), add_u(b, 1, 8), add_text(b, "x");
    add_tensor(b, "first", 1, (uint64_t[]){5}, QUANT_F32, 0);
    add_tensor(b, "second", 2, (uint64_t[]){32, 3}, QUANT_Q4_0, 32);
    add_tensor(b, "third", 4, (uint64_t[]){2, 2, 2, 2}, QUANT_F16, 96);
    add_padding(b, ALIGN);
    size_t start = b->n;
    for (int i = 0; i < 20; i++) add_u(b, (uint64_t)i, 1);
    add_padding(b, ALIGN);
    for (int i = 0; i < 3 * 18; i++) add_u(b, (uint64_t)i, 1);
    add_padding(b, ALIGN);
    assert_int_equal(b->n - start, 96);
    for (int i = 0; i < 32; i++) add_u(b, (uint64_t)i, 1);
}

static pi_status open_bytes(const bytes *b, gguf_file **f, pi_error *err) {
    *f = NULL;
    return gguf_open_memory(b->data, b->n, "mem", f, err);
}

static void test_good_file(void **state) {
    (void)state;
    for (uint32_t version = 2; version <= 3; version++) {
        build_good(&file, "GGUF", version);
        gguf_file *f;
        pi_error err = {0};
        assert_int_equal(open_bytes(&file, &f, &err), PI_OK);
        assert_int_equal(gguf_version(f), version);
        assert_int_equal(gguf_alignment(f), 32);
        assert_false(gguf_is_pwri(f));
        assert_int_equal(gguf_n_parts(f), 1);
        assert_string_equal(gguf_path(f), "mem");
        assert_int_equal(gguf_file_bytes(f), file.n);
        assert_int_equal(gguf_n_values(f), 8);
        gguf_string s;
        assert_true(gguf_as_string(gguf_find(f, "general.architecture"), &s));
        assert_int_equal(s.n_bytes, 5);
        assert_memory_equal(s.data, "llama", 5);
        assert_true(gguf_string_is(s, "llama") && gguf_string_starts(s, "llama"));
        assert_true(gguf_string_starts(s, "lla") && gguf_string_starts(s, ""));
        assert_false(gguf_string_is(s, "lla") || gguf_string_is(s, "llamb"));
        assert_false(gguf_string_starts(s, "llama2") || gguf_string_starts(s, "ma"));
        assert_false(gguf_string_is((gguf_string){0}, ""));
        assert_true(gguf_string_is((gguf_string){"x", 0}, ""));
        assert_null(gguf_find(f, "a.u"));
        assert_null(gguf_find(f, ""));
        const gguf_value *words = gguf_find(f, "a.words");
        assert_int_equal(words->type, GGUF_ARRAY);
        assert_int_equal(words->item_type, GGUF_STRING);
        const uint8_t *cursor = words->data;
        gguf_next_string(&cursor);
        gguf_next_string(&cursor);
        s = gguf_next_string(&cursor);
        assert_memory_equal(s.data, "three", 5);
        assert_int_equal(gguf_n_tensors(f), 3);
        const gguf_tensor *t = gguf_find_tensor(f, "second");
        assert_ptr_equal(t, gguf_tensor_at(f, 1));
        assert_int_equal(t->type, QUANT_Q4_0);
        assert_int_equal(t->n_dims, 2);
        assert_int_equal(t->dims[1], 3);
        assert_int_equal(t->dims[2], 1);
        assert_int_equal(t->n_elems, 96);
        assert_int_equal(t->n_bytes, 54);
        assert_int_equal(t->data[53], 53);
        assert_ptr_equal(t->data, file.data + t->file_offset);
        assert_null(gguf_find_tensor(f, "fourth"));
        gguf_close(f);
    }
}

/* Overrides replace values of the file and add new ones. */
static void test_overrides(void **state) {
    (void)state;
    char path[] = TEST_BINARY_DIR "/gguf_override_XXXXXX";
    build_good(&file, "GGUF", 3);
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, file.data, (unsigned)file.n), file.n);
    assert_int_equal(close(fd), 0);
    enum { NEW = 21 };
    char keys[NEW][16];
    gguf_override overrides[5 + NEW] = {
        {.key = "a.u8", .type = GGUF_I64, .integer = -12345678901},
        {.key = "a.f32", .type = GGUF_F64, .number = 0.1},
        {.key = "a.bool", .type = GGUF_BOOL, .integer = 0},
        {.key = "general.architecture", .type = GGUF_STRING, .text = ""},
        {.key = "general.architecture", .type = GGUF_STRING, .text = "falcon"}, /* the last */
    };
    for (int i = 0; i < NEW; i++) {
        snprintf(keys[i], sizeof keys[i], "new.%d", i);
        overrides[5 + i] = (gguf_override){.key = keys[i], .type = GGUF_I64, .integer = i};
    }
    overrides[5 + NEW - 1].key = "*.new"; /* "*" is the file's architecture */
    gguf_open_options options = {.overrides = overrides, .n_overrides = 5 + NEW};
    gguf_file *f = NULL;
    pi_error err = {0};
    assert_int_equal(gguf_open(path, &options, &f, &err), PI_OK);
    memset(overrides, 0, sizeof overrides); /* they were copied */
    int64_t i64;
    double number;
    bool truth;
    gguf_string s;
    assert_true(gguf_as_i64(gguf_find(f, "a.u8"), &i64) && i64 == -12345678901);
    assert_true(gguf_as_f64(gguf_find(f, "a.f32"), &number) && number == 0.1);
    assert_true(gguf_as_bool(gguf_find(f, "a.bool"), &truth) && !truth);
    assert_true(gguf_as_string(gguf_find(f, "general.architecture"), &s));
    assert_true(gguf_string_is(s, "falcon"));
    assert_true(gguf_as_i64(gguf_find(f, "a.i32"), &i64) && i64 == -7);
    assert_int_equal(gguf_n_values(f), 8 + NEW);
    assert_true(gguf_as_i64(gguf_find(f, "llama.new"), &i64) && i64 == NEW - 1);
    for (int i = 0; i < NEW - 1; i++) {
        snprintf(keys[0], sizeof keys[0], "new.%d", i);
        assert_true(gguf_as_i64(gguf_find(f, keys[0]), &i64) && i64 == i);
    }
    gguf_close(f);
    static const gguf_override wrong[] = {
        {.key = "a.u8", .type = GGUF_F64},      {.key = "a.f32", .type = GGUF_I64},
        {.key = "a.bool", .type = GGUF_I64},    {.key = "general.architecture", .type = GGUF_BOOL},
        {.key = "a.numbers", .type = GGUF_I64}, {.key = "a.u8", .type = GGUF_STRING, .text = "1"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        options = (gguf_open_options){.overrides = &wrong[i], .n_overrides = 1};
        assert_int_equal(gguf_open(path, &options, &f, &err), PI_ERR_ARG);
        assert_non_null(strstr(err.message, wrong[i].key));
    }
    assert_int_equal(unlink(path), 0);
}

static void test_getters(void **state) {
    (void)state;
    build_good(&file, "GGUF", 3);
    gguf_file *f;
    assert_int_equal(open_bytes(&file, &f, NULL), PI_OK);
    uint64_t u;
    int64_t i;
    double d;
    bool b;
    gguf_string s;
    assert_true(gguf_as_u64(gguf_find(f, "a.u8"), &u) && u == 200);
    assert_true(gguf_as_i64(gguf_find(f, "a.u8"), &i) && i == 200);
    assert_true(gguf_as_f64(gguf_find(f, "a.u8"), &d) && d == 200.0);
    assert_false(gguf_as_bool(gguf_find(f, "a.u8"), &b));
    assert_false(gguf_as_string(gguf_find(f, "a.u8"), &s));
    assert_false(gguf_as_u64(gguf_find(f, "a.i32"), &u));
    assert_true(gguf_as_i64(gguf_find(f, "a.i32"), &i) && i == -7);
    assert_true(gguf_as_f64(gguf_find(f, "a.i32"), &d) && d == -7.0);
    assert_true(gguf_as_f64(gguf_find(f, "a.f32"), &d) && d == 1.5);
    assert_false(gguf_as_u64(gguf_find(f, "a.f32"), &u));
    assert_true(gguf_as_bool(gguf_find(f, "a.bool"), &b) && b);
    assert_false(gguf_as_u64(gguf_find(f, "a.words"), &u));
    const gguf_value *numbers = gguf_find(f, "a.numbers");
    assert_true(gguf_item_u64(numbers, 0, &u) && u == 5);
    assert_false(gguf_item_u64(numbers, 1, &u)); /* negative */
    assert_true(gguf_item_i64(numbers, 1, &i) && i == -5);
    assert_true(gguf_item_f64(numbers, 1, &d) && d == -5.0);
    assert_false(gguf_item_i64(numbers, 2, &i)); /* past the end */
    assert_false(gguf_item_u64(gguf_find(f, "a.words"), 0, &u));
    assert_false(gguf_item_u64(gguf_find(f, "a.u8"), 0, &u));
    assert_string_equal(gguf_value_type_name(GGUF_U32), "u32");
    assert_string_equal(gguf_value_type_name((gguf_value_type)99), "unknown");
    gguf_close(f);
}

static void test_pwri_types(void **state) {
    (void)state;
    const quant_type expected[] = {QUANT_I8, QUANT_I16, QUANT_I32};
    add_header(&file, "PWRI", 3, 3, 0);
    add_tensor(&file, "a", 1, (uint64_t[]){32}, 16, 0);
    add_tensor(&file, "b", 1, (uint64_t[]){16}, 17, 32);
    add_tensor(&file, "c", 1, (uint64_t[]){8}, 18, 64);
    add_padding(&file, ALIGN);
    for (int i = 0; i < 96; i++) add_u(&file, 0, 1);
    gguf_file *f;
    assert_int_equal(open_bytes(&file, &f, NULL), PI_OK);
    assert_true(gguf_is_pwri(f));
    for (uint64_t i = 0; i < 3; i++) {
        assert_int_equal(gguf_tensor_at(f, i)->type, expected[i]);
        assert_int_equal(gguf_tensor_at(f, i)->n_bytes, 32);
    }
    gguf_close(f);
    memcpy(file.data, "GGUF", 4); /* in a GGUF file these numbers are types with blocks of 256 */
    pi_error err;
    assert_int_equal(open_bytes(&file, &f, &err), PI_ERR_FORMAT);
    assert_non_null(strstr(err.message, "256"));
}

/* ---- hostile files --------------------------------------------------------------------------- */

static void expect(pi_status status, const char *fragment) {
    gguf_file *f;
    pi_error err = {0};
    pi_status got = open_bytes(&file, &f, &err);
    if (got == PI_OK) gguf_close(f);
    if (got != status || !strstr(err.message, fragment)) {
        fail_msg("expected %s with '%s', got %s: %s", pi_status_name(status), fragment,
                 pi_status_name(got), err.message);
    }
    if (!strstr(err.message, "byte ")) fail_msg("no place in '%s'", err.message);
}

static void test_bad_headers(void **state) {
    (void)state;
    file.n = 0;
    expect(PI_ERR_FORMAT, "file ends inside the magic number");
    add_header(&file, "ELF?", 3, 0, 0);
    expect(PI_ERR_FORMAT, "not a GGUF file");
    add_header(&file, "GGUF", 1, 0, 0);
    expect(PI_ERR_UNSUPPORTED, "GGUF version 1");
    add_header(&file, "GGUF", 4, 0, 0);
    expect(PI_ERR_UNSUPPORTED, "GGUF version 4");
    add_header(&file, "GGUF", 0, 0, 0);
    expect(PI_ERR_UNSUPPORTED, "GGUF version 0");
    add_header(&file, "GGUF", 0x03000000, 0, 0);
    expect(PI_ERR_UNSUPPORTED, "big-endian GGUF (version 3");
    add_header(&file, "GGUF", 3, UINT64_MAX, 0);
    expect(PI_ERR_FORMAT, "tensors do not fit");
    add_header(&file, "GGUF", 3, 1, 0);
    expect(PI_ERR_FORMAT, "1 tensors do not fit");
    add_header(&file, "GGUF", 3, 0, UINT64_MAX / 2);
    expect(PI_ERR_FORMAT, "keys do not fit");
}

static void test_bad_keys(void **state) {
    (void)state;
    static const char filler[64];
    add_header(&file, "GGUF", 3, 0, 2);
    add_key(&file, "k", GGUF_U8), add_u(&file, 1, 1);
    add_key(&file, "k", GGUF_U8), add_u(&file, 1, 1);
    expect(PI_ERR_FORMAT, "key 'k' occurs twice: mem, byte 38");
    add_header(&file, "GGUF", 3, 0, 1);
    add_key(&file, "", GGUF_U32), add_u(&file, 1, 8);
    expect(PI_ERR_FORMAT, "a key has 0 bytes");
    add_header(&file, "GGUF", 3, 0, 1);
    add_u(&file, UINT64_MAX, 8), add_raw(&file, filler, sizeof filler);
    expect(PI_ERR_FORMAT, "file ends inside a key");
    add_header(&file, "GGUF", 3, 0, 1);
    add_key(&file, "k", 13), add_raw(&file, filler, sizeof filler);
    expect(PI_ERR_FORMAT, "key 'k' has the unknown value type 13");
    add_header(&file, "GGUF", 3, 0, 1);
    add_key(&file, "k", GGUF_STRING), add_u(&file, UINT64_MAX - 7, 8);
    expect(PI_ERR_FORMAT, "file ends inside a string");
    add_header(&file, "GGUF", 3, 0, 1);
    add_key(&file, "k", GGUF_ARRAY), add_u(&file, GGUF_F64, 4), add_u(&file, UINT64_MAX / 8, 8);
    expect(PI_ERR_FORMAT, "file ends inside a value");
    add_header(&file, "GGUF", 3, 0, 1);
    add_key(&file, "k", GGUF_ARRAY), add_u(&file, GGUF_STRING, 4), add_u(&file, UINT64_MAX, 8);
    expect(PI_ERR_FORMAT, "file ends inside an array");
    add_header(&file, "GGUF", 3, 0, 1);
    add_key(&file, "k", GGUF_ARRAY), add_u(&file, 77, 4), add_u(&file, 0, 8);
    expect(PI_ERR_FORMAT, "unknown value type 77");
    add_header(&file, "GGUF", 3, 0, 1);
    add_key(&file, "k", GGUF_BOOL), add_u(&file, 2, 1);
    expect(PI_ERR_FORMAT, "a bool of 2");
    add_header(&file, "GGUF", 3, 0, 1);
    add_key(&file, "k", GGUF_ARRAY);
    for (int i = 0; i < 5; i++) add_u(&file, GGUF_ARRAY, 4), add_u(&file, 1, 8);
    add_u(&file, GGUF_U8, 4), add_u(&file, 0, 8);
    expect(PI_ERR_FORMAT, "nested deeper than 4");
    add_header(&file, "GGUF", 3, 0, 1);
    add_key(&file, "k", GGUF_ARRAY), add_u(&file, GGUF_ARRAY, 4), add_u(&file, 1, 8);
    add_u(&file, 55, 4), add_u(&file, 0, 8);
    expect(PI_ERR_FORMAT, "items of unknown type 55");
}

static void test_long_keys(void **state) {
    (void)state;
    static char key[GGUF_MAX_KEY + 1];
    static uint8_t data[2 * GGUF_MAX_KEY];
    memset(key, 'k', sizeof key);
    for (uint64_t n = GGUF_MAX_KEY; n <= GGUF_MAX_KEY + 1; n++) {
        add_header(&file, "GGUF", 3, 0, 1);
        add_u(&file, n, 8);
        memcpy(data, file.data, file.n);
        memcpy(data + file.n, key, n);
        memset(data + file.n + n, 0, 16); /* a u8 of 0 */
        gguf_file *f = NULL;
        pi_error err;
        pi_status status = gguf_open_memory(data, file.n + n + 5, "mem", &f, &err);
        assert_int_equal(status, n == GGUF_MAX_KEY ? PI_OK : PI_ERR_FORMAT);
        if (status) assert_non_null(strstr(err.message, "a key has 65536 bytes"));
        gguf_close(f);
    }
}

static void test_bad_alignment(void **state) {
    (void)state;
    const uint32_t bad[] = {0, 1, 4, 24, 33, UINT32_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        add_header(&file, "GGUF", 3, 0, 1);
        add_key(&file, "general.alignment", GGUF_U32), add_u(&file, bad[i], 4);
        expect(PI_ERR_FORMAT, "not a power of two");
    }
    add_header(&file, "GGUF", 3, 0, 1);
    add_key(&file, "general.alignment", GGUF_STRING), add_text(&file, "32");
    expect(PI_ERR_FORMAT, "general.alignment is a string");
}

/* One tensor info after an otherwise empty header; 4 KiB of data follow. */
static void one_tensor(const char *name, uint32_t n_dims, const uint64_t *dims, uint32_t type,
                       uint64_t offset) {
    static const char zeros[4096];
    add_header(&file, "GGUF", 3, 1, 0);
    add_tensor(&file, name, n_dims, dims, type, offset);
    add_padding(&file, ALIGN);
    add_raw(&file, zeros, sizeof zeros);
}

static void test_bad_tensors(void **state) {
    (void)state;
    const uint64_t ok[5] = {32, 1, 1, 1, 1};
    char name[65];
    memset(name, 'n', 64);
    name[64] = 0;
    one_tensor(name, 1, ok, QUANT_F32, 0);
    expect(PI_ERR_FORMAT, "a tensor name has 64 bytes");
    one_tensor("", 1, ok, QUANT_F32, 0);
    expect(PI_ERR_FORMAT, "a tensor name has 0 bytes");
    one_tensor("abc", 1, ok, QUANT_F32, 0);
    file.data[24 + 8 + 1] = 0;
    expect(PI_ERR_FORMAT, "contains a NUL byte");
    one_tensor("t", 0, ok, QUANT_F32, 0);
    expect(PI_ERR_FORMAT, "tensor 't' has 0 dimensions");
    one_tensor("t", 5, ok, QUANT_F32, 0);
    expect(PI_ERR_FORMAT, "tensor 't' has 5 dimensions");
    one_tensor("t", 2, (uint64_t[]){32, 0}, QUANT_F32, 0);
    expect(PI_ERR_FORMAT, "a dimension of 0");
    one_tensor("t", 2, (uint64_t[]){UINT64_MAX, 2}, QUANT_F32, 0);
    expect(PI_ERR_FORMAT, "more than 2^63 elements");
    one_tensor("t", 2, (uint64_t[]){1u << 31, UINT64_C(1) << 31}, QUANT_F32, 0);
    expect(PI_ERR_FORMAT, "more than 2^64 bytes");
    one_tensor("t", 1, (uint64_t[]){48}, QUANT_Q4_0, 0);
    expect(PI_ERR_FORMAT, "rows of 48 elements, not a multiple of the 32");
    one_tensor("t", 1, ok, 4, 0); /* Q4_2, removed long ago */
    expect(PI_ERR_UNSUPPORTED, "unknown type number 4");
    one_tensor("t", 1, ok, UINT32_MAX, 0);
    expect(PI_ERR_UNSUPPORTED, "unknown type number");
    one_tensor("t", 1, ok, QUANT_F32, 1);
    expect(PI_ERR_FORMAT, "not a multiple of 32");
    one_tensor("t", 1, ok, QUANT_F32, 64);
    expect(PI_ERR_FORMAT, "leaves a hole");
    one_tensor("t", 2, (uint64_t[]){32, 33}, QUANT_F32, 0);
    expect(PI_ERR_FORMAT, "incomplete or damaged");
    one_tensor("t", 2, (uint64_t[]){1u << 30, 1u << 30}, QUANT_F32, 0);
    expect(PI_ERR_FORMAT, "but the file has");
}

static void test_bad_pairs(void **state) {
    (void)state;
    static const char zeros[256];
    const uint64_t dims[] = {8}, huge[] = {UINT64_C(1) << 61, 1};
    add_header(&file, "GGUF", 3, 2, 0);
    add_tensor(&file, "t", 1, dims, QUANT_F32, 0);
    add_tensor(&file, "t", 1, dims, QUANT_F32, 32);
    add_raw(&file, zeros, sizeof zeros);
    expect(PI_ERR_FORMAT, "tensor 't' occurs twice");
    add_header(&file, "GGUF", 3, 2, 0);
    add_tensor(&file, "t", 1, dims, QUANT_F32, 0);
    add_tensor(&file, "u", 1, dims, QUANT_F32, 0);
    add_raw(&file, zeros, sizeof zeros);
    expect(PI_ERR_FORMAT, "overlaps the one before");
    add_header(&file, "GGUF", 3, 2, 0);
    add_tensor(&file, "t", 1, huge, QUANT_F32, 0);
    add_tensor(&file, "u", 1, huge, QUANT_F32, UINT64_C(1) << 63);
    add_raw(&file, zeros, sizeof zeros);
    expect(PI_ERR_FORMAT, "beyond 2^64 bytes");
}

/* A file truncated anywhere must be refused with an offset. Only missing padding after the last
 * tensor's data could go unnoticed, and this file has none. */
static void test_every_truncation(void **state) {
    (void)state;
    build_good(&file, "GGUF", 3);
    size_t whole = file.n;
    for (size_t n = 0; n < whole; n++) {
        /* An allocation of exactly n bytes, so that a sanitizer sees any read beyond. */
        uint8_t *copy = mem_alloc(n);
        memcpy(copy, file.data, n);
        gguf_file *f;
        pi_error err = {0};
        assert_int_equal(gguf_open_memory(copy, n, "mem", &f, &err), PI_ERR_FORMAT);
        assert_non_null(strstr(err.message, "byte "));
        mem_free(copy);
    }
}

static void test_every_bit_flip(void **state) {
    (void)state;
    build_good(&file, "GGUF", 3);
    int accepted = 0, refused = 0;
    for (size_t bit = 0; bit < file.n * 8; bit++) {
        file.data[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        gguf_file *f;
        pi_error err = {0};
        pi_status status = open_bytes(&file, &f, &err);
        if (status == PI_OK) {
            accepted++;
            gguf_close(f);
        } else {
            refused++;
            assert_true(status == PI_ERR_FORMAT || status == PI_ERR_UNSUPPORTED);
            assert_true(err.message[0] != 0);
        }
        file.data[bit / 8] ^= (uint8_t)(1u << (bit % 8));
    }
    assert_true(accepted > 0); /* flips in names and data are valid */
    assert_true(refused > 0);
}

static void test_allocation_failures(void **state) {
    (void)state;
    build_good(&file, "GGUF", 3);
    int64_t before = mem_count();
    gguf_file *f;
    assert_int_equal(open_bytes(&file, &f, NULL), PI_OK);
    gguf_close(f);
    int64_t n = mem_count() - before;
    assert_true(n >= 7);
    for (int64_t i = 1; i <= n; i++) {
        pi_error err = {0};
        mem_fail_at(i);
        assert_int_equal(open_bytes(&file, &f, &err), PI_ERR_NOMEM);
        assert_non_null(strstr(err.message, "out of memory"));
    }
    mem_fail_at(0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_file),           cmocka_unit_test(test_getters),
        cmocka_unit_test(test_overrides),           cmocka_unit_test(test_pwri_types),
        cmocka_unit_test(test_bad_headers),         cmocka_unit_test(test_bad_keys),
        cmocka_unit_test(test_long_keys),           cmocka_unit_test(test_bad_alignment),
        cmocka_unit_test(test_bad_tensors),         cmocka_unit_test(test_bad_pairs),
        cmocka_unit_test(test_every_truncation),    cmocka_unit_test(test_every_bit_flip),
        cmocka_unit_test(test_allocation_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
