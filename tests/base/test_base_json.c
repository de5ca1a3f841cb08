/* test_base_json.c: the exact text that json_writer produces. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json_writer.h"
#include "rng.h"

static json_writer writer;
static char text[4096];
static FILE *file;

static json_writer *start(void) {
    file = tmpfile();
    assert_non_null(file);
    json_begin(&writer, file);
    return &writer;
}

static const char *finish(void) {
    assert_false(writer.failed);
    rewind(file);
    size_t n = fread(text, 1, sizeof text - 1, file);
    text[n] = '\0';
    fclose(file);
    return text;
}

typedef struct little_room {
    char text[12];
    size_t n;
} little_room;

static bool collect(void *user, const char *data, size_t n_bytes) {
    little_room *room = user;
    if (n_bytes > sizeof room->text - room->n) return false;
    memcpy(room->text + room->n, data, n_bytes);
    room->n += n_bytes;
    return true;
}

/* A document whose bytes go to a function. After the first failure nothing is written. */
static void test_function(void **state) {
    (void)state;
    little_room room = {.n = 0};
    json_begin_into(&writer, collect, &room, true);
    json_put_array(&writer, NULL);
    json_put_text(&writer, NULL, "ab");
    json_put_bool(&writer, NULL, true);
    assert_false(writer.failed);
    assert_memory_equal(room.text, "[\"ab\",true", 10);
    json_put_text(&writer, NULL, "long");
    json_end_array(&writer);
    assert_true(writer.failed);
    assert_int_equal(room.n, 12); /* the comma and the quotation mark had room */
}

static const char *one_string(const char *s, size_t n) {
    json_put_string(start(), NULL, s, n);
    return finish();
}

static const char *one_number(double x) {
    json_put_number(start(), NULL, x);
    return finish();
}

/* One line, no spaces, no newline at the end, like a protocol message. */
static void test_compact(void **state) {
    (void)state;
    file = tmpfile();
    assert_non_null(file);
    json_begin_compact(&writer, file);
    json_put_object(&writer, NULL);
    json_put_text(&writer, "a", "x y");
    json_put_array(&writer, "b");
    json_put_int(&writer, NULL, 1);
    json_put_int(&writer, NULL, 2);
    json_put_object(&writer, NULL);
    json_end_object(&writer);
    json_end_array(&writer);
    json_end_object(&writer);
    assert_string_equal(finish(), "{\"a\":\"x y\",\"b\":[1,2,{}]}");
}

static void test_layout(void **state) {
    (void)state;
    json_writer *w = start();
    json_put_object(w, NULL);
    json_put_int(w, "low", INT64_MIN);
    json_put_array(w, "list");
    json_put_int(w, NULL, 1);
    json_put_bool(w, NULL, true);
    json_put_text(w, NULL, NULL);
    json_end_array(w);
    json_put_array(w, "none");
    json_end_array(w);
    json_put_object(w, "empty");
    json_end_object(w);
    json_put_array(w, "nested");
    json_put_object(w, NULL);
    json_put_bool(w, "no", false);
    json_end_object(w);
    json_put_array(w, NULL);
    json_end_array(w);
    json_end_array(w);
    json_end_object(w);
    assert_string_equal(finish(), "{\n"
                                  "  \"low\": -9223372036854775808,\n"
                                  "  \"list\": [1, true, null],\n"
                                  "  \"none\": [],\n"
                                  "  \"empty\": {},\n"
                                  "  \"nested\": [\n"
                                  "    {\n"
                                  "      \"no\": false\n"
                                  "    },\n"
                                  "    []\n"
                                  "  ]\n"
                                  "}\n");
}

static void test_escapes(void **state) {
    (void)state;
    assert_string_equal(one_string("a\"b\\c/", 6), "\"a\\\"b\\\\c/\"");
    assert_string_equal(one_string("\b\f\n\r\t", 5), "\"\\b\\f\\n\\r\\t\"");
    assert_string_equal(one_string("\0\x1f\x7f", 3), "\"\\u0000\\u001f\\u007f\"");
    assert_string_equal(one_string("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 9),
                        "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"");
}

static void test_bad_utf8(void **state) {
    (void)state;
#define BAD "\xef\xbf\xbd"
    assert_string_equal(one_string("a\xff z", 4), "\"a" BAD " z\"");
    assert_string_equal(one_string("\xc0\x80", 2), "\"" BAD BAD "\"");         /* overlong */
    assert_string_equal(one_string("\xe0\x9f\xbf", 3), "\"" BAD BAD BAD "\""); /* overlong */
    assert_string_equal(one_string("\xed\xa0\x80", 3), "\"" BAD BAD BAD "\""); /* surrogate */
    assert_string_equal(one_string("\xf4\x90\x80\x80", 4), "\"" BAD BAD BAD BAD "\"");
    assert_string_equal(one_string("\xe2\x82", 2), "\"" BAD BAD "\""); /* truncated */
    assert_string_equal(one_string("\xc3(", 2), "\"" BAD "(\"");
#undef BAD
}

static void test_numbers(void **state) {
    (void)state;
    assert_string_equal(one_number(0), "0");
    assert_string_equal(one_number(-0.0), "-0");
    assert_string_equal(one_number(0.1), "0.1");
    assert_string_equal(one_number(100), "100");
    assert_string_equal(one_number(1e300), "1e+300");
    assert_string_equal(one_number(0x1p-1074), "5e-324");
    assert_string_equal(one_number(0.1 + 0.2), "0.30000000000000004");
    assert_string_equal(one_number(DBL_MAX), "1.7976931348623157e+308");
    assert_string_equal(one_number((double)NAN), "null");
    assert_string_equal(one_number((double)-INFINITY), "null");
    rng r;
    rng_seed(&r, 1);
    for (int i = 0; i < 2000; i++) {
        double x;
        uint64_t bits = rng_u64(&r);
        memcpy(&x, &bits, sizeof x);
        if (!isfinite(x)) continue;
        assert_true(strtod(one_number(x), NULL) == x);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout),   cmocka_unit_test(test_compact),
        cmocka_unit_test(test_function), cmocka_unit_test(test_escapes),
        cmocka_unit_test(test_bad_utf8), cmocka_unit_test(test_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
