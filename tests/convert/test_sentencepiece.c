/* test_sentencepiece.c: the reader of tokenizer.model with good and hostile bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "mem.h"
#include "sentencepiece.h"

/* Copies to memory of exactly this size, so that the sanitizers see every access beyond the end. */
static pi_status parse(const char *bytes, size_t n, sentencepiece_model *m, char **copy,
                       pi_error *err) {
    *copy = malloc(n ? n : 1);
    assert_non_null(*copy);
    memcpy(*copy, bytes, n);
    memset(m, 0, sizeof *m);
    return sentencepiece_parse(*copy, n, "t.model", m, err);
}

static void assert_refused(const char *bytes, size_t n, const char *words) {
    sentencepiece_model m;
    char *copy;
    pi_error err = {0};
    pi_status status = parse(bytes, n, &m, &copy, &err);
    free(copy);
    assert_int_equal(status, PI_ERR_FORMAT);
    if (!strstr(err.message, words)) fail_msg("message %s, not %s", err.message, words);
    assert_non_null(strstr(err.message, "t.model"));
    assert_null(m.pieces);
}

#define REFUSED(bytes, words) assert_refused(bytes, sizeof(bytes) - 1, words)

/* Pieces "<unk>" (unknown), "ab" with score -1.5, "<0x0A>" (byte); trainer: BPE, byte fallback, bos
 * 7 (absent), pad -1; normalizer: no dummy prefix; and a field 99 to skip. */
static const char good[] = "\x0a\x09\x0a\x05<unk>\x18\x02"
                           "\x0a\x09\x0a\x02"
                           "ab\x15\x00\x00\xc0\xbf"
                           "\x0a\x0a\x0a\x06<0x0A>\x18\x06"
                           "\x12\x14\x18\x02\x98\x02\x01\xc8\x02\x07\xd8\x02\xff\xff\xff\xff\xff"
                           "\xff\xff\xff\xff\x01"
                           "\x1a\x02\x18\x00"
                           "\x9a\x06\x03xyz";

static void test_good_model(void **state) {
    (void)state;
    sentencepiece_model m;
    char *copy;
    pi_error err = {0};
    if (parse(good, sizeof good - 1, &m, &copy, &err) != PI_OK) fail_msg("%s", err.message);
    assert_int_equal(m.n_pieces, 3);
    assert_int_equal(m.pieces[0].type, TOKEN_UNKNOWN);
    assert_int_equal(m.pieces[1].type, TOKEN_NORMAL);
    assert_int_equal(m.pieces[1].n_bytes, 2);
    assert_memory_equal(m.pieces[1].text, "ab", 2);
    assert_true(m.pieces[1].score == -1.5f);
    assert_int_equal(m.pieces[2].type, TOKEN_BYTE);
    assert_int_equal(m.kind, SENTENCEPIECE_BPE);
    assert_false(m.add_dummy_prefix);
    assert_int_equal(m.unk, 0);
    assert_int_equal(m.bos, -1);
    assert_int_equal(m.eos, 2);
    assert_int_equal(m.pad, -1);
    sentencepiece_free(&m);
    free(copy);
}

/* Every prefix is an error or a shorter model, and is never read beyond its end. */
static void test_truncation(void **state) {
    (void)state;
    for (size_t n = 0; n < sizeof good - 1; n++) {
        sentencepiece_model m;
        char *copy;
        pi_error err = {0};
        pi_status status = parse(good, n, &m, &copy, &err);
        assert_true(status == PI_OK || status == PI_ERR_FORMAT);
        if (status == PI_OK) {
            assert_in_range(m.n_pieces, 1, 3);
            sentencepiece_free(&m);
        }
        free(copy);
    }
}

static void test_hostile(void **state) {
    (void)state;
    REFUSED("", "no pieces");
    REFUSED("\x12\x00", "no pieces");
    REFUSED("\x02\x00", "field number 0");
    REFUSED("\x0b", "wire type");                                      /* a group */
    REFUSED("\x0f", "wire type");                                      /* 7 does not exist */
    REFUSED("\x08\x01", "wrong type");                                 /* pieces as a number */
    REFUSED("\x80", "truncated");                                      /* half a tag */
    REFUSED("\x0a\x05\x0a", "length");                                 /* message beyond the file */
    REFUSED("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "length"); /* 2^64 - 1 bytes */
    REFUSED("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", "64 bits");
    REFUSED("\x0a\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", "64 bits");
    REFUSED("\x0a\x00", "without text");
    REFUSED("\x0a\x02\x0a\x00", "without text");
    REFUSED("\x0a\x03\x0a\x02"
            "a",
            "length"); /* the outer length covers it, the inner length does not */
    REFUSED("\x0a\x03\x0a\x05"
            "aaaaa",
            "length");                         /* text beyond its message */
    REFUSED("\x0a\x02\x08\x01", "wrong type"); /* text as a number */
    REFUSED("\x0a\x05\x0a\x01"
            "a\x10\x01",
            "wrong type"); /* score as a varint */
    REFUSED("\x0a\x05\x0a\x01"
            "a\x1a\x00",
            "wrong type"); /* type as bytes */
    REFUSED("\x0a\x05\x0a\x01"
            "a\x18\x00",
            "type of piece");
    REFUSED("\x0a\x05\x0a\x01"
            "a\x18\x07",
            "type of piece");
    REFUSED("\x0a\x08\x0a\x01"
            "a\x15\x00\x00\xc0\x7f",
            "finite"); /* NaN */
    REFUSED("\x0a\x08\x0a\x01"
            "a\x15\x00\x00\x80\x7f",
            "finite"); /* infinity */
    REFUSED("\x0a\x06\x0a\x01"
            "a\x15\x00\x00",
            "truncated");
    REFUSED("\x0a\x03\x0a\x01\xff", "UTF-8");
    REFUSED("\x0a\x04\x0a\x02\xc0\x80", "UTF-8"); /* overlong NUL */
    REFUSED("\x12\x02\x18\x09", "kind of model");
    REFUSED("\x12\x02\x1a\x00", "wrong type");
    REFUSED("\x1a\x02\x1a\x00", "wrong type");
}

static void test_long_piece(void **state) {
    (void)state;
    enum { N = SENTENCEPIECE_MAX_PIECE + 1 };
    char bytes[N + 16] = "\x0a\x84\x20\x0a\x81\x20"; /* 4,100 and 4,097 */
    memset(bytes + 6, 'a', N);
    assert_refused(bytes, N + 6, "too long");
}

static void test_no_memory(void **state) {
    (void)state;
    sentencepiece_model m;
    char *copy;
    pi_error err = {0};
    mem_fail_at(1);
    pi_status status = parse(good, sizeof good - 1, &m, &copy, &err);
    mem_fail_at(0);
    assert_int_equal(status, PI_ERR_NOMEM);
    free(copy);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_model), cmocka_unit_test(test_truncation),
        cmocka_unit_test(test_hostile),    cmocka_unit_test(test_long_piece),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
