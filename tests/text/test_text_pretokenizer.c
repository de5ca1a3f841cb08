/* test_text_pretokenizer.c: where each set of patterns splits, and that long texts take linear
 * time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "mem.h"
#include "pretokenizer.h"

#define CUT "·" /* between the pieces of an expected text */

/* A name of each set of patterns, with the pieces that its vocabulary's authors give. */
static const struct {
    const char *name, *pieces;
} cases[] = {
    {"default", "a" CUT "!" CUT " b" CUT " " CUT "123" CUT "4"},
    {"llama-bpe", "it" CUT "'s" CUT " fooBar" CUT " " CUT "123" CUT "4" CUT "!\n\n" CUT "x"},
    {"glm4", "it" CUT "'S" CUT " " CUT "123" CUT "4" CUT " " CUT " 你好"},
    {"minicpm5", "ab" CUT "123" CUT "45" CUT "x" CUT "'ll" CUT "!!"},
    {"jais-2", "a" CUT "    " CUT "  " CUT " b" CUT "1"},
    {"deepseek-llm", "a" CUT "\n" CUT " b" CUT "12" CUT "你好" CUT "!?"},
    {"deepseek-coder", "a" CUT "\n" CUT " b" CUT "1" CUT "2" CUT "你好" CUT "!?"},
    {"deepseek-v3", "a" CUT " ~~" CUT " b" CUT "~c" CUT "123" CUT "4" CUT "你好" CUT "한"},
    {"hunyuan-dense", "x" CUT "=" CUT "123" CUT "4" CUT ";\n" CUT "かな" CUT "é"},
    {"spark2_5", "a" CUT "!?" CUT "\n" CUT "\n" CUT "b" CUT "1" CUT "2" CUT "3" CUT "4"},
    {"afmoe", "x" CUT "1" CUT "234" CUT "567" CUT "y" CUT "12" CUT "한국ไ" CUT "ทย" CUT "!\n"},
    {"falcon", "a" CUT "`{" CUT " b" CUT " " CUT "123" CUT "4"},
    {"starcoder", "a" CUT "1" CUT "2" CUT " b" CUT "  " CUT " c"},
    {"gpt-2", "we" CUT "'ll" CUT " 123" CUT "abc" CUT "  " CUT " d"},
    {"exaone4", "WE" CUT "'" CUT "LL" CUT " 1234"},
    {"qwen2", "it" CUT "'S" CUT "1" CUT "2" CUT " fooBar" CUT "\n\n"},
    {"hunyuan", "n" CUT "\n" CUT "=" CUT "1" CUT "2" CUT ".x" CUT "..\n"},
    {"ufakzeka", "Ali" CUT "'ye" CUT "1" CUT "2"},
    {"laguna", "a" CUT " " CUT "\n" CUT " b" CUT "1" CUT "2"},
    {"qwen35", "e\u0301t" CUT "1" CUT "2" CUT " x"},
    {"exaone-moe", "one two three" CUT " " CUT " four" CUT "1" CUT "2" CUT " !\n" CUT "\n"},
    {"tekken", "foo" CUT "Bar" CUT "1" CUT "2" CUT " HTTPServer" CUT " a" CUT "/\n/"},
    {"gpt-4o", "Foo" CUT "Bar's" CUT " DON'T" CUT "123" CUT "4" CUT " ..//"},
    {"kimi-k2", "foo" CUT "Bar's" CUT " " CUT "你好" CUT "ABC" CUT "123" CUT "4" CUT "한" CUT "々"},
    {"tiny_aya",
     "x" CUT " " CUT "1" CUT "234" CUT "567" CUT "," CUT "123" CUT "4" CUT "b" CUT "C你"},
    {"youtu", "foo" CUT "Bar's" CUT "你好" CUT "，" CUT "한국" CUT "ㄅ" CUT "1" CUT "2"},
    {"bailingmoe", "it" CUT "'S" CUT "1" CUT "2" CUT " x" CUT "\n\n"},
    {"seed-coder", "it" CUT "1" CUT "2" CUT " !" CUT "\n\n" CUT "x"},
    {"superbpe", "one two " CUT "12" CUT "345" CUT " three"},
    {"bloom", "a" CUT " b12" CUT "," CUT " c"},
    {"viking", "a" CUT " b" CUT "1" CUT "2" CUT "," CUT " c"},
    {"gemma4", "one two  3!" CUT "\n\n" CUT " four"},
};

static pretokenizer *create(const char *name) {
    const pretokenizer_row *row = pretokenizer_find(name, strlen(name));
    pi_error err = {0};
    pretokenizer *p;
    if (!row) fail_msg("no row %s", name);
    pi_status status = pretokenizer_create(row, &p, &err);
    if (status == PI_ERR_UNSUPPORTED && strstr(err.message, "PCRE2")) skip();
    if (status) fail_msg("%s", err.message);
    return p;
}

/* Removes the cuts from a text and returns its length. */
static size_t without_cuts(const char *pieces, char *text) {
    size_t n = 0;
    for (const char *c = pieces; *c;) {
        if (strncmp(c, CUT, strlen(CUT)) == 0)
            c += strlen(CUT);
        else
            text[n++] = *c++;
    }
    return n;
}

static void cuts(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[256], got[512];
        size_t n = without_cuts(cases[i].pieces, text), begin = 0, used = 0;
        pretokenizer *p = create(cases[i].name);
        pretokenizer_pieces pieces = {0};
        assert_int_equal(pretokenizer_split(p, text, n, &pieces, NULL), PI_OK);
        for (size_t k = 0; k < pieces.n_pieces; begin = pieces.ends[k++]) {
            int length = (int)(pieces.ends[k] - begin);
            used += (size_t)snprintf(got + used, sizeof got - used, "%s%.*s", k > 0 ? CUT : "",
                                     length, pieces.bytes + begin);
        }
        if (strcmp(got, cases[i].pieces) != 0) fprintf(stderr, "%s:\n", cases[i].name);
        assert_string_equal(got, cases[i].pieces);
        pretokenizer_pieces_free(&pieces);
        pretokenizer_free(p);
    }
}

static void every_set_has_a_case(void **state) {
    (void)state;
    for (size_t i = 0; i < pretokenizer_n_rows; i++) {
        bool found = false;
        for (size_t k = 0; k < sizeof cases / sizeof cases[0] && !found; k++) {
            const char *name = cases[k].name;
            found = pretokenizer_find(name, strlen(name))->patterns ==
                    pretokenizer_rows[i].patterns;
        }
        if (!found) fail_msg("%s", pretokenizer_rows[i].name);
    }
}

/* Runs of a few characters, as long as a document. A pattern that scans the rest of the text from
 * each place would exceed the match limit, which grows with the text. */
static void long_runs(void **state) {
    (void)state;
    enum { LONG = 100000 };
    static const char *const runs[] = {" ",   "a", "A",  "1",   "你", "\n", " a", "Aa",
                                       "'s ", "!", "a1", "\t ", "é",  "~a", "々"};
    char *text = mem_alloc(LONG);
    assert_non_null(text);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        pretokenizer *p = create(cases[i].name);
        for (size_t k = 0; k < sizeof runs / sizeof runs[0]; k++) {
            size_t n = strlen(runs[k]);
            for (size_t at = 0; at < LONG - 1; at++) text[at] = runs[k][at % n];
            text[LONG - 1] = k % 2 ? 'z' : '!';
            pretokenizer_pieces pieces = {0};
            pi_error err = {0};
            if (pretokenizer_split(p, text, LONG, &pieces, &err))
                fail_msg("%s, '%s': %s", cases[i].name, runs[k], err.message);
            assert_true(pieces.n_pieces > 0);
            pretokenizer_pieces_free(&pieces);
        }
        pretokenizer_free(p);
    }
    mem_free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuts),
        cmocka_unit_test(every_set_has_a_case),
        cmocka_unit_test(long_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
