/* test_text_json.c: values of every kind, chained look-ups, and text that must be refused. */
#include <float.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "failing.h"
#include "json.h"
#include "mem.h"

static json_doc *parse(const char *text) {
    json_doc *doc;
    pi_error err = {0};
    pi_status status = json_parse(text, strlen(text), "test", &doc, &err);
    if (status) fail_msg("%s", err.message);
    return doc;
}

static void values(void **state) {
    (void)state;
    json_doc *doc = parse("{\"z\": [1, -2.0, 1.5, true, null, \"a\\u0000b\"], \"a\": {\"n\": 9}}");
    const json_node *root = json_root(doc), *z = json_get(root, "z");
    int64_t i;
    double d;
    bool b;
    const char *s;
    size_t n;
    assert_int_equal(json_count(root), 2);
    assert_int_equal(json_count(z), 6);
    assert_true(json_as_int(json_at(z, 0), &i) && i == 1);
    assert_true(json_as_int(json_at(z, 1), &i) && i == -2);
    assert_false(json_as_int(json_at(z, 2), &i));
    assert_true(json_as_double(json_at(z, 2), &d) && d == 1.5);
    assert_true(json_as_bool(json_at(z, 3), &b) && b);
    assert_int_equal(json_kind_of(json_at(z, 4)), JSON_NULL);
    assert_true(json_as_string(json_at(z, 5), &s, &n) && n == 3 && memcmp(s, "a\0b", 4) == 0);
    assert_null(json_at(z, 6));
    assert_null(json_get(z, "n"));
    assert_true(json_as_int(json_get(json_get(root, "a"), "n"), &i) && i == 9);
    assert_null(json_get(json_get(json_get(root, "no"), "such"), "key"));
    void *iter = NULL;
    const char *key;
    const json_node *value;
    assert_true(json_next(root, &iter, &key, &value));
    assert_string_equal(key, "z");
    assert_true(json_next(root, &iter, &key, &value));
    assert_string_equal(key, "a");
    assert_int_equal(json_kind_of(value), JSON_OBJECT);
    assert_false(json_next(root, &iter, &key, &value));
    json_free(doc);
    json_free(NULL);
}

static void refused(void **state) {
    (void)state;
    static const char *const bad[] = {
        "",          "{",  "[1,]",  "{\"a\":1,\"a\":2}", "\"\xFF\"", "\"\xED\xA0\x80\"",
        "nul",       "01", "[1] 2", "\"\\ud800\"",       "{1:2}",    "\"a\nb\"",
        "{\"a\" 1}", "NaN"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        json_doc *doc;
        pi_error err = {0};
        if (json_parse(bad[i], strlen(bad[i]), "bad.json", &doc, &err) != PI_ERR_FORMAT) {
            fail_msg("accepted: %s", bad[i]);
        }
        assert_null(doc);
        assert_non_null(strstr(err.message, "bad.json"));
    }
}

/* Numbers beyond 64 bits are reals; beyond a double, the largest one. */
static void huge_numbers(void **state) {
    (void)state;
    static const char text[] = "{\"1e999 \\\"99999999999999999999\":[1e999,-1E+999,"
                               "99999999999999999999,-18446744073709551616,9223372036854775807,"
                               "1.5]}";
    static const double values[] = {DBL_MAX, -DBL_MAX, 1e20, -0x1p64, 0x1p63, 1.5};
    json_doc *doc;
    pi_error err;
    int64_t integer;
    assert_int_equal(json_parse(text, sizeof text - 1, "x", &doc, &err), PI_OK);
    const json_node *list = json_get(json_root(doc), "1e999 \"99999999999999999999");
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        double value = 0;
        assert_true(json_as_double(json_at(list, i), &value));
        assert_true(value == values[i]);
    }
    assert_true(json_as_int(json_at(list, 4), &integer) && integer == INT64_MAX);
    assert_false(json_as_int(json_at(list, 2), &integer));
    json_free(doc);
    assert_int_equal(json_parse("[99999999999999999999,]", 23, "x", &doc, &err), PI_ERR_FORMAT);
    assert_int_equal(json_parse("1e999.5", 7, "x", &doc, &err), PI_ERR_FORMAT);
    for (failing f = failing_each(1); failing_next(&f);) {
        pi_status status = json_parse(text, sizeof text - 1, "x", &doc, &err);
        failing_hit(&f, status, &err);
        json_free(doc);
    }
}

static void depth(void **state) {
    (void)state;
    char text[2 * JSON_MAX_DEPTH + 3] = {0};
    for (int levels = JSON_MAX_DEPTH; levels <= JSON_MAX_DEPTH + 1; levels++) {
        memset(text, '[', (size_t)levels);
        memset(text + levels, ']', (size_t)levels);
        json_doc *doc;
        pi_status status = json_parse(text, (size_t)levels * 2, "deep", &doc, NULL);
        assert_int_equal(status, levels <= JSON_MAX_DEPTH ? PI_OK : PI_ERR_FORMAT);
        json_free(doc);
    }
    /* brackets within strings do not count */
    char quoted[JSON_MAX_DEPTH * 4];
    memset(quoted, '[', sizeof quoted);
    memcpy(quoted, "\"\\\"", 3);
    quoted[sizeof quoted - 1] = '"';
    json_doc *doc;
    assert_int_equal(json_parse(quoted, sizeof quoted, "text", &doc, NULL), PI_OK);
    json_free(doc);
}

static void files_and_failures(void **state) {
    (void)state;
    json_doc *doc;
    pi_error err = {0};
    assert_int_equal(json_parse_file(TEST_BINARY_DIR "/no-such.json", &doc, &err), PI_ERR_IO);
    const char *path = TEST_BINARY_DIR "/test_text_json.tmp";
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fputs("[1,\n 2,\n x]", f);
    fclose(f);
    assert_int_equal(json_parse_file(path, &doc, &err), PI_ERR_FORMAT);
    assert_non_null(strstr(err.message, "line 3"));
    remove(path);
    mem_fail_at(1);
    assert_int_equal(json_parse("1", 1, "one", &doc, &err), PI_ERR_NOMEM);
    mem_fail_at(0);
    assert_int_equal(json_parse("1", JSON_MAX_BYTES + 1, "big", &doc, &err), PI_ERR_LIMIT);
}

int main(void) {
    json_doc *doc;
    if (json_parse("1", 1, "probe", &doc, NULL) == PI_ERR_UNSUPPORTED) {
        fprintf(stderr, "*** SKIPPED: built without jansson ***\n");
        return 0;
    }
    json_free(doc);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values),
        cmocka_unit_test(refused),
        cmocka_unit_test(huge_numbers),
        cmocka_unit_test(depth),
        cmocka_unit_test(files_and_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
