/* test_safetensors.c: the safetensors reader with files that are wrong in every field. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "failing.h"
#include "hf_folder.h"
#include "safetensors.h"

/* Opens a shard with this header and n_data zero bytes, in memory of exactly its size, so that the
 * sanitizers see every access beyond the end. */
static pi_status open_bytes(const char *header, size_t n_data, uint64_t said_length,
                            safetensors **out, uint8_t **bytes, pi_error *err) {
    size_t n_header = strlen(header), n = 8 + n_header + n_data;
    *bytes = calloc(n, 1);
    assert_non_null(*bytes);
    for (int i = 0; i < 8; i++) (*bytes)[i] = (uint8_t)(said_length >> (8 * i));
    memcpy(*bytes + 8, header, n_header);
    *out = NULL;
    return safetensors_open_memory(*bytes, n, "x.safetensors", out, err);
}

static void assert_refused(const char *header, size_t n_data, pi_status expected,
                           const char *words) {
    safetensors *s;
    uint8_t *bytes;
    pi_error err = {0};
    pi_status status = open_bytes(header, n_data, strlen(header), &s, &bytes, &err);
    free(bytes);
    if (status != expected) fail_msg("%s: status %s", header, pi_status_name(status));
    if (!strstr(err.message, words)) fail_msg("%s: message %s", header, err.message);
    assert_non_null(strstr(err.message, "x.safetensors"));
    assert_null(s);
}

#define F32_AT(shape, offsets)                                                                     \
    "{\"dtype\":\"F32\",\"shape\":[" shape "],\"data_offsets\":[" offsets "]}"

static void test_good_file(void **state) {
    (void)state;
    safetensors *s;
    uint8_t *bytes;
    pi_error err = {0};
    static const char header[] =
        "{\"__metadata__\":{\"a\":\"b\"},"
        "\"z\":" F32_AT("2,3", "8,32") ",\"a\":" F32_AT(
            "2", "0,8") ","
                        "\"s\":" F32_AT("", "32,36") ",\"none\":" F32_AT("0,7", "36,36") "}   ";
    assert_int_equal(open_bytes(header, 36, strlen(header), &s, &bytes, &err), PI_OK);
    assert_int_equal(safetensors_count(s), 4);
    assert_int_equal(safetensors_find(s, "missing"), SIZE_MAX);
    const safetensor *z = safetensors_at(s, safetensors_find(s, "z"));
    assert_string_equal(z->name, "z");
    assert_int_equal(z->n_dims, 2);
    assert_int_equal(z->dims[0], 2);
    assert_int_equal(z->dims[1], 3);
    assert_int_equal(z->n_bytes, 24);
    assert_ptr_equal(z->data, bytes + 8 + strlen(header) + 8);
    assert_int_equal(safetensors_at(s, safetensors_find(s, "s"))->n_dims, 0);
    safetensors_close(s);
    free(bytes);
}

static void test_lengths(void **state) {
    (void)state;
    safetensors *s;
    uint8_t *bytes;
    pi_error err = {0};
    static const uint64_t lengths[] = {0, 1, 3, 1000, UINT64_MAX, (uint64_t)1 << 63, 100000001};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        assert_int_equal(open_bytes("{\"a\":1}", 4, lengths[i], &s, &bytes, &err), PI_ERR_FORMAT);
        free(bytes);
    }
    uint8_t few[7] = {1};
    for (size_t n = 0; n < sizeof few; n++)
        assert_int_equal(safetensors_open_memory(few, n, "few", &s, &err), PI_ERR_FORMAT);
}

static void test_headers(void **state) {
    (void)state;
    assert_refused("[]", 0, PI_ERR_FORMAT, "header");
    assert_refused("{}", 0, PI_ERR_FORMAT, "no tensors");
    assert_refused("{\"a\":", 0, PI_ERR_FORMAT, "");
    assert_refused("{\"a\xff\":1}", 0, PI_ERR_FORMAT, "");
    assert_refused("{\"a\":1}", 0, PI_ERR_FORMAT, "not an object");
    assert_refused("{\"\":" F32_AT("1", "0,4") "}", 4, PI_ERR_FORMAT, "name");
    assert_refused("{\"a\":" F32_AT("1", "0,4") ",\"a\":" F32_AT("1", "4,8") "}", 8, PI_ERR_FORMAT,
                   "");
    assert_refused("{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, PI_ERR_UNSUPPORTED, "type");
    assert_refused("{\"a\":{\"dtype\":\"F4\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
                   PI_ERR_UNSUPPORTED, "F4");
    assert_refused("{\"a\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
                   PI_ERR_UNSUPPORTED, "type");
}

static void test_shapes(void **state) {
    (void)state;
    assert_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":4,\"data_offsets\":[0,4]}}", 4,
                   PI_ERR_FORMAT, "shape");
    assert_refused("{\"a\":" F32_AT("-1", "0,4") "}", 4, PI_ERR_FORMAT, "not a size");
    assert_refused("{\"a\":" F32_AT("1.5", "0,4") "}", 4, PI_ERR_FORMAT, "not a size");
    assert_refused("{\"a\":" F32_AT("\"1\"", "0,4") "}", 4, PI_ERR_FORMAT, "not a size");
    assert_refused("{\"a\":" F32_AT("1,1,1,1,1,1,1,1,1", "0,4") "}", 4, PI_ERR_FORMAT, "8");
    /* 2^62 * 4 elements of 4 bytes wrap to 0; so do 2^62 * 4 bytes */
    assert_refused("{\"a\":" F32_AT("4611686018427387904,4", "0,0") "}", 0, PI_ERR_FORMAT,
                   "overflow");
    assert_refused("{\"a\":" F32_AT("4611686018427387904", "0,0") "}", 0, PI_ERR_FORMAT,
                   "overflow");
    assert_refused("{\"a\":" F32_AT("2", "0,4") "}", 4, PI_ERR_FORMAT, "shape");
    assert_refused("{\"a\":" F32_AT("1", "0,8") "}", 8, PI_ERR_FORMAT, "shape");
}

static void test_offsets(void **state) {
    (void)state;
    assert_refused("{\"a\":" F32_AT("1", "0") "}", 4, PI_ERR_FORMAT, "data_offsets");
    assert_refused("{\"a\":" F32_AT("1", "0,4,8") "}", 4, PI_ERR_FORMAT, "data_offsets");
    assert_refused("{\"a\":" F32_AT("1", "4,0") "}", 4, PI_ERR_FORMAT, "data_offsets");
    assert_refused("{\"a\":" F32_AT("1", "-4,0") "}", 4, PI_ERR_FORMAT, "data_offsets");
    assert_refused("{\"a\":" F32_AT("1", "0,\"4\"") "}", 4, PI_ERR_FORMAT, "data_offsets");
    assert_refused("{\"a\":" F32_AT("1", "0,4") "}", 3, PI_ERR_FORMAT, "truncated");
    assert_refused("{\"a\":" F32_AT("1", "9223372036854775800,9223372036854775804") "}", 4,
                   PI_ERR_FORMAT, "truncated");
    assert_refused("{\"a\":" F32_AT("1", "0,4") "}", 5, PI_ERR_FORMAT, "after the last");
    assert_refused("{\"a\":" F32_AT("1", "4,8") "}", 8, PI_ERR_FORMAT, "unused");
    assert_refused("{\"a\":" F32_AT("2", "0,8") ",\"b\":" F32_AT("2", "4,12") "}", 12,
                   PI_ERR_FORMAT, "overlap");
    assert_refused("{\"a\":" F32_AT("2", "0,8") ",\"b\":" F32_AT("2", "0,8") "}", 8, PI_ERR_FORMAT,
                   "overlap");
    assert_refused("{\"a\":" F32_AT("1", "0,4") ",\"b\":" F32_AT("1", "8,12") "}", 12,
                   PI_ERR_FORMAT, "unused");
}

/* ---- folders --------------------------------------------------------------------------------- */

static void assert_folder_refused(const hf_folder *f, pi_status expected, const char *words) {
    safetensors *s = NULL;
    pi_error err = {0};
    pi_status status = safetensors_open(f->dir, &s, &err);
    assert_null(s);
    if (status != expected) fail_msg("status %s: %s", pi_status_name(status), err.message);
    if (!strstr(err.message, words)) fail_msg("message %s", err.message);
}

static void write_index(const hf_folder *f, const char *map) {
    char text[1024];
    snprintf(text, sizeof text, "{\"weight_map\":%s}", map);
    folder_write_text(f, "model.safetensors.index.json", text);
}

static void test_index(void **state) {
    (void)state;
    static shard s;
    hf_folder f;
    folder_open(&f);
    assert_folder_refused(&f, PI_ERR_NOT_FOUND, "no weights");
    shard_begin(&s);
    shard_add(&s, "a", "F32", 2, 2);
    shard_write(&s, &f, "one.safetensors");
    shard_write(&s, &f, "two.safetensors");

    folder_write_text(&f, "model.safetensors.index.json", "{\"weight_map\":{\"a\":");
    assert_folder_refused(&f, PI_ERR_FORMAT, "index.json");
    write_index(&f, "[]");
    assert_folder_refused(&f, PI_ERR_FORMAT, "weight_map");
    write_index(&f, "{}");
    assert_folder_refused(&f, PI_ERR_FORMAT, "weight_map");
    static const char *const names[] = {"\"../one.safetensors\"",
                                        "\"/one.safetensors\"",
                                        "\"x/one.safetensors\"",
                                        "\".safetensors\"",
                                        "\"one.bin\"",
                                        "\"\"",
                                        "7",
                                        "null"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char map[128];
        snprintf(map, sizeof map, "{\"a\":%s}", names[i]);
        write_index(&f, map);
        assert_folder_refused(&f, PI_ERR_FORMAT, "bad file name");
    }
    write_index(&f, "{\"a\":\"three.safetensors\"}");
    assert_folder_refused(&f, PI_ERR_NOT_FOUND, "three.safetensors");
    write_index(&f, "{\"a\":\"one.safetensors\",\"b\":\"one.safetensors\"}");
    assert_folder_refused(&f, PI_ERR_FORMAT, "missing tensor");
    write_index(&f, "{\"a\":\"one.safetensors\",\"c\":\"two.safetensors\"}");
    assert_folder_refused(&f, PI_ERR_FORMAT, "twice");
    write_index(&f, "{\"a\":\"one.safetensors\"}");
    safetensors *good = NULL;
    pi_error err = {0};
    assert_int_equal(safetensors_open(f.dir, &good, &err), PI_OK);
    assert_int_equal(safetensors_count(good), 1);
    safetensors_close(good);

    folder_write(&f, "model.safetensors", "", 0);
    assert_folder_refused(&f, PI_ERR_FORMAT, "8-byte");
    folder_close(&f);
}

/* Every allocation fails in turn: each time an error, no crash and no leak. */
static void test_no_memory(void **state) {
    (void)state;
    static const char header[] = "{\"a\":" F32_AT("1", "0,4") ",\"b\":" F32_AT("1", "4,8") "}";
    failing f = failing_each(1);
    while (failing_next(&f)) {
        safetensors *s;
        uint8_t *bytes;
        pi_error err = {0};
        pi_status status = open_bytes(header, 8, strlen(header), &s, &bytes, &err);
        if (!failing_hit(&f, status, &err)) safetensors_close(s);
        free(bytes);
    }
    assert_true(f.n > 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_file), cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_headers),   cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_offsets),   cmocka_unit_test(test_index),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
