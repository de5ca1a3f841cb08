/* test_text_utf8.c: every code point, every pair of bytes, prefixes cut anywhere. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "utf8.h"

static void every_code_point(void **state) {
    (void)state;
    for (uint32_t c = 0; c <= 0x110100; c++) {
        char text[UTF8_MAX_BYTES];
        size_t n = utf8_encode(c, text), step;
        bool outside = c > 0x10FFFF || (c >= 0xD800 && c < 0xE000);
        int32_t back = utf8_decode(text, n, &step);
        assert_int_equal(back, outside ? UTF8_REPLACEMENT : (int32_t)c);
        assert_int_equal(step, n);
        assert_true(utf8_is_valid(text, n));
        for (size_t cut = 1; cut < n; cut++) {
            assert_int_equal(utf8_decode(text, cut, &step), -1);
            assert_int_equal(step, 1);
            assert_int_equal(utf8_complete_prefix(text, cut), 0);
        }
        assert_int_equal(utf8_complete_prefix(text, n), n);
    }
}

/* All three-byte strings: decoded code points must encode to the same bytes. */
static void every_three_bytes(void **state) {
    (void)state;
    for (uint32_t v = 0; v < 1u << 24; v++) {
        char text[3] = {(char)(v >> 16), (char)(v >> 8), (char)v}, again[UTF8_MAX_BYTES];
        size_t step;
        int32_t c = utf8_decode(text, sizeof text, &step);
        if (c < 0) {
            if (step != 1) fail();
            continue;
        }
        if (utf8_encode((uint32_t)c, again) != step || memcmp(text, again, step) != 0) fail();
    }
}

static void ill_formed(void **state) {
    (void)state;
    static const char *const bad[] = {
        "\x80",         "\xC0\x80",         "\xC1\xBF",         "\xE0\x9F\xBF",
        "\xED\xA0\x80", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80",
        "\xFF"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_false(utf8_is_valid(bad[i], strlen(bad[i])));
        /* bytes that no later byte can complete are not held back */
        assert_int_equal(utf8_complete_prefix(bad[i], strlen(bad[i])), strlen(bad[i]));
    }
    assert_int_equal(utf8_complete_prefix("ab\xE6\x9D", 4), 2);
    assert_int_equal(utf8_complete_prefix("ab\xED\xA0", 4), 4);
    assert_int_equal(utf8_complete_prefix("", 0), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_point),
        cmocka_unit_test(every_three_bytes),
        cmocka_unit_test(ill_formed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
