/* test_cli_text.c: where a stream of bytes may be cut, escapes, and lists of token ids. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli_text.h"
#include "mem.h"
#include "printable.h"

static void test_complete(void **state) {
    (void)state;
    static const struct {
        const char *text;
        size_t complete;
    } cases[] = {
        {"", 0},
        {"abc", 3},
        {"a\xc3", 1},                /* first of two */
        {"a\xc3\xb6", 3},            /* both */
        {"a\xe2\x82", 1},            /* two of three */
        {"a\xe2\x82\xac", 4},        /* all */
        {"\xf0\x9f\x98", 0},         /* three of four */
        {"\xf0\x9f\x98\x80", 4},     /* all */
        {"\xf0\x9f\x98\x80\xf0", 4}, /* and the next begins */
        {"a\xff", 2},                /* never anything: no reason to wait */
        {"a\x80\x80\x80\x80", 5},    /* continuation of nothing */
        {"\xc3\x80\x80", 3},         /* more bytes than the lead asked for */
        {"\xc0", 1},                 /* never a lead */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(text_complete(cases[i].text, strlen(cases[i].text)), cases[i].complete);
    }
}

/* What a terminal would obey, and what is not UTF-8, is escaped; letters of any script are not. */
static void test_printable(void **state) {
    (void)state;
    static const char *const fine[] = {"a",        "\xc3\xb6",        "\xd7\x90", "\xe2\x82\xac",
                                       "\xc2\xa0", "\xf4\x8f\xbf\xbf"};
    for (size_t i = 0; i < sizeof fine / sizeof fine[0]; i++) {
        assert_int_equal(printable_length(fine[i], strlen(fine[i])), strlen(fine[i]));
    }
    static const char *const bad[] = {"\x1b[2J", /* ESC */
                                      "\x7f",
                                      "\xc2\x9b"
                                      "2J", /* CSI as U+009B */
                                      "\x9b"
                                      "2J",           /* and as a byte */
                                      "\xd8\x9c",     /* Arabic letter mark */
                                      "\xe2\x80\x8f", /* right-to-left mark */
                                      "\xe2\x80\xa8", /* line separator */
                                      "\xe2\x80\xae", /* right-to-left override */
                                      "\xe2\x81\xa6", /* left-to-right isolate */
                                      "\x80",
                                      "\xc3",
                                      "\xc3x",
                                      "\xc0\x80",
                                      "\xe0\x80\x80",
                                      "\xed\xa0\x80",
                                      "\xf0\x80\x80\x80",
                                      "\xf4\x90\x80\x80",
                                      "\xe2\x82"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(printable_length(bad[i], strlen(bad[i])), 0);
    }
    char out[32];
    assert_int_equal(printable_copy(out, sizeof out, "a\x1b\xe2\x80\xae\n", 6), 19);
    assert_string_equal(out, "a\\x1B\\xE2\\x80\\xAE\\n");
    assert_int_equal(printable_copy(out, 8, "a\x1b\xe2\x80\xae\n", 6), 5); /* whole escapes */
    assert_string_equal(out, "a\\x1B");
}

static void assert_unescaped(const char *in, const char *out, size_t n_out) {
    char buffer[64];
    size_t n = strlen(in);
    memcpy(buffer, in, n + 1);
    assert_int_equal(text_unescape(buffer, n), n_out);
    assert_memory_equal(buffer, out, n_out);
}

static void test_unescape(void **state) {
    (void)state;
    assert_unescaped("a\\nb\\tc\\r", "a\nb\tc\r", 6);
    assert_unescaped("\\\\n\\'\\\"", "\\n'\"", 4);
    assert_unescaped("\\x41\\xfF\\x00!", "A\xff\0!", 4);
    assert_unescaped("\\x4", "\\x4", 3);
    assert_unescaped("\\xg0\\q\\", "\\xg0\\q\\", 7);
    assert_unescaped("", "", 0);
}

static void test_print_escaped(void **state) {
    (void)state;
    char buffer[128] = {0};
    FILE *file = fmemopen(buffer, sizeof buffer, "w");
    assert_non_null(file);
    static const char text[] = "a'\\\n\t\r\x01\x7f\xff\xc3\xb6\xc3";
    text_print_escaped(file, text, sizeof text - 1);
    fclose(file);
    assert_string_equal(buffer, "a\\'\\\\\\n\\t\\r\\x01\\x7F\\xFF\xc3\xb6\\xC3");
}

static pi_status parse(const char *text, int32_t **ids, size_t *n) {
    return text_parse_ids(text, strlen(text), "here", 100, ids, n, NULL);
}

static void test_parse_ids(void **state) {
    (void)state;
    int32_t *ids;
    size_t n;
    assert_int_equal(parse(" 1\t02\n\v99\r\n-0 ", &ids, &n), PI_OK);
    assert_int_equal(n, 4);
    assert_true(ids[0] == 1 && ids[1] == 2 && ids[2] == 99 && ids[3] == 0);
    mem_free(ids);
    static const char *const malformed[] = {"",  " ",   "x",   "1x",         "+1",
                                            "-", "1.0", "1,2", "12345678901"};
    for (size_t i = 0; i < sizeof malformed / sizeof malformed[0]; i++) {
        assert_int_equal(parse(malformed[i], &ids, &n), PI_ERR_FORMAT);
        assert_null(ids);
    }
    assert_int_equal(parse("1 100", &ids, &n), PI_ERR_RANGE);
    assert_int_equal(parse("-1", &ids, &n), PI_ERR_RANGE);
    assert_int_equal(parse("9999999999", &ids, &n), PI_ERR_RANGE);
    assert_int_equal(text_parse_ids("1 2", 1, "here", 100, &ids, &n, NULL), PI_OK);
    assert_int_equal(n, 1); /* no more bytes than given are read */
    mem_free(ids);
    mem_fail_at(1);
    assert_int_equal(parse("1", &ids, &n), PI_ERR_NOMEM);
    mem_fail_at(0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_complete),  cmocka_unit_test(test_printable),
        cmocka_unit_test(test_unescape),  cmocka_unit_test(test_print_escaped),
        cmocka_unit_test(test_parse_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
