/* test_cli_text.c: escapes, printable text, and lists of token ids. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "bench_output.h"
#include "cli_text.h"
#include "mem.h"
#include "printable.h"

/* Control characters and invalid UTF-8 are escaped; letters of any script are not. */
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
                                      "2J",           /* CSI as a single byte */
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
    char *shown = NULL;
    size_t n = 0;
    FILE *file = open_memstream(&shown, &n);
    assert_non_null(file);
    static const char text[] = "a'\\\n\t\r\x01\x7f\xff\xc3\xb6\xc3";
    text_print_escaped(file, text, sizeof text - 1);
    fclose(file);
    assert_string_equal(shown, "a\\'\\\\\\n\\t\\r\\x01\\x7F\\xFF\xc3\xb6\\xC3");
    free(shown);
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
    assert_int_equal(n, 1); /* reads only the given bytes */
    mem_free(ids);
    mem_fail_at(1);
    assert_int_equal(parse("1", &ids, &n), PI_ERR_NOMEM);
    mem_fail_at(0);
}

/* Width of the widest line in columns. */
static size_t widest_line(const char *text) {
    size_t widest = 0, columns = 0;
    for (; *text; text++) {
        if (((unsigned char)*text & 0xC0) != 0x80 && *text != '\n') columns++;
        if (columns > widest) widest = columns;
        if (*text == '\n') columns = 0;
    }
    return widest;
}

static void test_bench_width(void **state) {
    (void)state;
    static bench_row rows[2];
    static bench_results r = {.rows = rows, .n = 2};
    rows[0] = (bench_row){.result = {.test = "pp131072",
                                     .depth = 131072,
                                     .mode = "threshold",
                                     .device = "cpu+cuda",
                                     .tps = 1234567,
                                     .tps_max = 1234567,
                                     .tps_stddev = 123456,
                                     .gbps = 1234.5,
                                     .floor_share = 1},
                          .architecture = "a-very-long-architecture-name",
                          .type = "iq4_nl_4_4_long",
                          .weight_bytes = UINT64_C(1) << 42,
                          .n_params = 1000000000000,
                          .cache_type_k = "q8_0",
                          .cache_type_v = "q8_0",
                          .n_batch = 65536,
                          .gpu_layers = 1000,
                          .threads = 512};
    rows[1] = rows[0];
    rows[1].gpu_layers = -1;
    for (size_t i = 0; i + 2 < sizeof rows[0].model; i += 2)
        memcpy(rows[0].model + i, "\xC3\x84", 2);
    memset(rows[1].model, 'x', sizeof rows[1].model - 1);
    memset(r.last.cpu, 'c', sizeof r.last.cpu - 1);
    r.last.read_gbps = r.last.gather_gbps = 1234.5;
    r.last.yardstick_bytes = 1 << 20;
    r.last.yardstick_wanted = r.last.cache_bytes = UINT64_C(1) << 32;
    rows[1].in_cache = true;
    for (int verbose = 0; verbose < 2; verbose++) {
        char *text = NULL;
        size_t n = 0;
        FILE *f = open_memstream(&text, &n);
        assert_non_null(f);
        bench_print(f, &r, BENCH_MD, verbose);
        assert_int_equal(fclose(f), 0);
        if (!verbose && widest_line(text) > BENCH_COLUMNS) fail_msg("%s", text);
        assert_int_equal(strstr(text, rows[1].model) != NULL, verbose);
        assert_int_equal(strstr(text, rows[0].model) != NULL, verbose);
        const char *cut = strstr(text, "...");
        if (!verbose) /* whole characters */
            assert_true(cut && ((unsigned char)strstr(text, "\xC3")[1] & 0xC0) == 0x80);
        free(text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_printable),     cmocka_unit_test(test_unescape),
        cmocka_unit_test(test_print_escaped), cmocka_unit_test(test_parse_ids),
        cmocka_unit_test(test_bench_width),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
