/* test_grammar.c: grammars in GBNF: tables of texts that they accept or refuse; refused grammars
 * with their messages; masks compared with a test of every token; growing tables, failing
 * allocations, hostile grammars. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "failing.h"
#include "grammar_case.h"

enum { TEXTS_MAX = 16 };

static const char *const tokens[] = {"ab",       "abc",   "{\"",  "\":", "true",
                                     "\xc3",     "\xa9x", "12",   "  ",  "",
                                     "\xe6\x97", "\xa5",  "aaaa", "b\n", "aaaaaaaa"};
enum { N_TOKENS = sizeof tokens / sizeof *tokens };

static case_vocab vocab;

static int set_up(void **state) {
    (void)state;
    case_vocab_create(&vocab, tokens, N_TOKENS);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    case_vocab_free(&vocab);
    return 0;
}

static pi_grammar *make(const char *text) {
    pi_grammar *g;
    pi_error err;
    if (case_gbnf(&vocab, text, &g, &err) != PI_OK) fail_msg("%s: %s", text, err.message);
    return g;
}

static const char json_gbnf[] =
    "root   ::= object\n"
    "value  ::= object | array | string | number | (\"true\" | \"false\" | \"null\") ws\n\n"
    "object ::=\n  \"{\" ws (\n            string \":\" ws value\n"
    "    (\",\" ws string \":\" ws value)*\n  )? \"}\" ws\n\n"
    "array  ::=\n  \"[\" ws (\n            value\n    (\",\" ws value)*\n  )? \"]\" ws\n\n"
    "string ::=\n  \"\\\"\" (\n    [^\"\\\\\\x7F\\x00-\\x1F] |\n"
    "    \"\\\\\" ([\"\\\\bfnrt] | \"u\" [0-9a-fA-F]{4}) # escapes\n  )* \"\\\"\" ws\n\n"
    "number ::= (\"-\"? ([0-9] | [1-9] [0-9]{0,15})) (\".\" [0-9]+)? ([eE] [-+]? [0-9] "
    "[1-9]{0,15})? ws\n\n"
    "# Optional space: by convention, applied in this grammar after literal chars when allowed\n"
    "ws ::= | \" \" | \"\\n\" [ \\t]{0,20}\n";

static const struct {
    const char *grammar;
    const char *complete[TEXTS_MAX], *open[TEXTS_MAX], *never[TEXTS_MAX];
} cases[] = {
    {"root ::= \"abc\"", {"abc"}, {"", "a", "ab"}, {"b", "abd", "abcd"}},
    {"root ::= \"a\"*", {"", "a", "aaaaaaaaa"}, {0}, {"b", "ab"}},
    {"root ::= \"ab\"+", {"ab", "abab"}, {"", "a", "aba"}, {"b", "abb"}},
    {"root ::= \"a\"? \"b\"", {"b", "ab"}, {"", "a"}, {"aa", "bb"}},
    {"root ::= [a-c]{2,3}", {"ab", "abc"}, {"", "a"}, {"abca", "d", "ad"}},
    {"root ::= [ab]{3}", {"aba"}, {"ab"}, {"abab"}},
    {"root ::= [ab]{2,}", {"ab", "abababab"}, {"b"}, {"abc"}},
    {"root ::= (\"a\" | \"bc\"){2} \"d\"", {"aad", "abcd", "bcad"}, {"ab", "bcbc"}, {"ad", "aaad"}},
    {"root ::= a b\na ::= \"x\" | \"y\"\nb ::= a | \"z\"", {"xy", "yz"}, {"x"}, {"z", "xz0"}},
    {"root ::= \"(\" root \")\" | \"x\"", {"x", "(x)", "(((x)))"}, {"((", "((x)"}, {"x)", "(x))"}},
    {"root ::= item (\",\" item)*\nitem ::= [0-9]+ # digits\n",
     {"1,22", "3"},
     {"1,"},
     {",", "1,,"}},
    {"root ::= [^a]",
     {"b", "\xc3\xa9", "\xf0\x9f\x98\x80", "\n"},
     {"\xc3", "\xf0\x9f"},
     {"a", "bb", "\xff", "\xed\xa0\x80"}},
    {"root ::= .", {"a", "\xe6\x97\xa5"}, {"\xe6\x97"}, {"\xe6\x61", "ab"}},
    {"root ::= [\xce\xb1-\xcf\x89]+", {"\xce\xb1\xcf\x89"}, {"\xce"}, {"a", "\xcf\x8a"}},
    {"root ::= \"\\x41\\u00e9\\U0001F600\\n\\t\\\\\\\"\"",
     {"A\xc3\xa9\xf0\x9f\x98\x80\n\t\\\""},
     {"A"},
     {"a"}},
    {"root ::= [\\]\\-\\\\x-]", {"]", "-", "\\", "x"}, {0}, {"y"}},
    {"root ::= \"a\" |\n  \"b\"\n  | \"c\"\n", {"a", "b", "c"}, {0}, {"d"}},
    {"root ::= a*\na ::= \"x\"? \"y\"?", {"", "xy", "yx", "yyx"}, {0}, {"z"}},
    {"root ::= (\"a\"?){3,5} \"b\"", {"b", "ab", "aaaaab"}, {"aaa"}, {"aaaaaab"}},
    {"root ::= \"\" | \"q\"", {"", "q"}, {0}, {"qq"}},
    {"root ::= s\ns ::= \"a\" s \"b\" | \"a\" s \"c\" | \"x\"",
     {"aaxbc", "x", "axc"},
     {"aaaa", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaax"},
     {"axbb", "b"}},
    {"root ::= e\ne ::= t (\"+\" e)?\nt ::= [0-9] | \"(\" e \")\"",
     {"1", "1+2", "(1+2)+3"},
     {"(", "1+"},
     {"+", "1)"}},
    {"root ::= [a-z]{1,5000} \".\"", {"a.", "hello."}, {"hello"}, {".", "a.."}},
    {"root ::= [ab]{2,3} [ab]{0,2} \"c\"", {"abc", "ababac"}, {"ab", "ababa"}, {"ac", "ababab"}},
    {"root ::= ([ab]{1,2} \"c\"?){2,3} \"d\"",
     {"abd", "acbcd", "abcabcabcd"},
     {"ababab"},
     {"ad", "d", "abababa"}},
    {"root ::= (\"a\" | \"aa\"){3} \"b\"", {"aaab", "aaaaaab"}, {"aaaaaa"}, {"aab", "aaaaaaa"}},
    {json_gbnf,
     {"{}", "{\"a\": 1}", "{\"a\":[true,null,{\"b\":\"\\u00e9\\n\"}]}\n  "},
     {"{\"a\"", "{\"a\": -"},
     {"[", "{a", "{\"a\":01", "{}}", "{\"\t\""}},
};

static void test_texts(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pi_grammar *g = make(cases[i].grammar);
        for (int want = -1; want <= 1; want++) {
            const char *const *texts = want > 0    ? cases[i].complete
                                       : want == 0 ? cases[i].open
                                                   : cases[i].never;
            for (; *texts; texts++) {
                int got = case_match(g, *texts);
                if (got != want)
                    fail_msg("%s: \"%s\" gives %d, not %d", cases[i].grammar, *texts, got, want);
            }
        }
        grammar_release(g);
    }
}

static const struct {
    const char *grammar, *message;
    pi_status status;
} refused[] = {
    {"root ::= \"a", "literal without its closing \": grammar, line 1", PI_ERR_FORMAT},
    {"root ::= [a", "class without its closing ]: grammar, line 1", PI_ERR_FORMAT},
    {"\n\nroot ::= (\"a\"", "group without its closing ): grammar, line 3", PI_ERR_FORMAT},
    {"root ::= x\n", "grammar rule x is not defined", PI_ERR_FORMAT},
    {"root = x\n", "expected ::= after the name of a rule: grammar, line 1", PI_ERR_FORMAT},
    {"root ::= \"a\"\nroot ::= \"b\"", "grammar rule root is defined twice: line 2", PI_ERR_FORMAT},
    {"root ::= root \"a\" | \"b\"",
     "left recursion: grammar rule root: let it take a character before it uses itself",
     PI_ERR_FORMAT},
    {"root ::= \"x\" a\na ::= b\nb ::= \"y\"? a | \"z\"",
     "left recursion: grammar rule a: let it take a character before it uses itself",
     PI_ERR_FORMAT},
    {"root ::= \"a\" root", "grammar rule root can never end: infinite recursion", PI_ERR_FORMAT},
    {"root ::= \"x\" | a\na ::= \"(\" b \")\"\nb ::= a",
     "grammar rule a can never end: infinite recursion", PI_ERR_FORMAT},
    {"root ::= \"a\"{3,2}", "repetition with a maximum below its minimum: grammar, line 1",
     PI_ERR_FORMAT},
    {"root ::= \"a\"{}", "repetition without a number: grammar, line 1", PI_ERR_FORMAT},
    {"root ::= \"a\"{99999999999}", "too many repetitions: grammar, line 1: at most 16777216",
     PI_ERR_LIMIT},
    {"root ::= [z-a]", "range that ends before it begins: grammar, line 1", PI_ERR_FORMAT},
    {"root ::= \"\\q\"", "unknown escape: grammar, line 1", PI_ERR_FORMAT},
    {"root ::= \"\\ud800\"", "escape of an invalid code point: grammar, line 1", PI_ERR_FORMAT},
    {"root ::= \"\xff\"", "not UTF-8: grammar, line 1", PI_ERR_FORMAT},
    {"root ::= <think> \"a\"", "tokens as <...> are not supported: grammar, line 1", PI_ERR_FORMAT},
    {"::= \"a\"", "expected the name of a rule: grammar, line 1", PI_ERR_FORMAT},
    {"root ::= \"a\" ]", "expected an item, | or the end of the line: grammar, line 1",
     PI_ERR_FORMAT},
    {"root ::= (([a-z]{0,1000}){0,1000}){0,1000}",
     "the grammar is too ambiguous here, or the text is nested too deeply", PI_ERR_LIMIT},
    {"root ::= []", "empty class: grammar, line 1", PI_ERR_FORMAT},
};

static void test_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        pi_grammar *g;
        pi_error err = {.status = PI_OK};
        pi_status status = case_gbnf(&vocab, refused[i].grammar, &g, &err);
        assert_null(g);
        if (status != refused[i].status || strcmp(err.message, refused[i].message) != 0)
            fail_msg("%s: %s: %s", refused[i].grammar, pi_status_name(status), err.message);
    }
}

/* ---- large grammars -------------------------------------------------------------------------- */

static void test_brackets(void **state) {
    enum { BRACKETS = 60000 };
    static char text[BRACKETS + 16] = "root ::= ";
    pi_grammar *g;
    pi_error err;
    (void)state;
    memset(text + 9, '(', BRACKETS);
    assert_int_equal(case_gbnf(&vocab, text, &g, &err), PI_ERR_LIMIT);
    assert_string_equal(err.message, "nested too deeply: grammar, line 1: at most 200 levels");
}

/* A chain of rules, written in either direction, that ends with `last`. */
static pi_status chain(int n_rules, bool forward, const char *last, pi_grammar **g, pi_error *err) {
    char *text = malloc((size_t)n_rules * 24 + 64);
    size_t n = (size_t)snprintf(text, 64, "root ::= r0\nr%d ::= %s\n", n_rules, last);
    for (int i = 0; i < n_rules; i++) {
        int k = forward ? i : n_rules - 1 - i;
        n += (size_t)snprintf(text + n, 24, "r%d ::= r%d\n", k, k + 1);
    }
    pi_status status = case_gbnf(&vocab, text, g, err);
    free(text);
    return status;
}

static void test_chains(void **state) {
    pi_grammar *g;
    pi_error err;
    (void)state;
    for (int forward = 0; forward < 2; forward++) {
        assert_int_equal(chain(30000, forward, "\"x\"", &g, &err), PI_OK);
        assert_int_equal(case_match(g, "x"), 1);
        grammar_release(g);
        assert_int_equal(chain(30000, forward, "r0 | \"x\"", &g, &err), PI_ERR_FORMAT);
        assert_non_null(strstr(err.message, "left recursion"));
        assert_int_equal(chain(30000, forward, "\"x\" r0", &g, &err), PI_ERR_FORMAT);
        assert_non_null(strstr(err.message, "can never end"));
    }
    assert_int_equal(chain(70000, true, "\"x\"", &g, &err), PI_ERR_LIMIT);
}

/* Deeply nested text is cheap: stacks share their common parts, and unused parts are freed. */
static void test_deep_text(void **state) {
    enum { DEPTH = 300000 };
    char *deep = malloc(2 * DEPTH + 1);
    bool begins, complete;
    pi_error err;
    (void)state;
    memset(deep, '(', DEPTH);
    deep[DEPTH] = 'x';
    memset(deep + DEPTH + 1, ')', DEPTH);
    pi_grammar *g = make("root ::= \"(\" root \")\" | \"x\"");
    pi_status status = grammar_match(g, deep, 2 * DEPTH + 1, &begins, &complete, &err);
    assert_true(status == PI_ERR_LIMIT || (status == PI_OK && complete));
    status = grammar_match(g, deep, 2 * 30000 + 1, &begins, &complete, &err);
    assert_true(status == PI_OK && begins && !complete);
    assert_int_equal(case_match(g, "((x))"), 1);
    grammar_release(g);
    free(deep);
}

/* Every token makes a new state, repeatedly: tables are cleared while a reader exists, which keeps
 * its position. */
static void test_forgetting(void **state) {
    enum { ROUNDS = 60000 };
    grammar_reader *a, *b;
    pi_error err;
    (void)state;
#ifdef __SANITIZE_THREAD__
    fprintf(stderr, "*** SKIPPED: one thread, for which this sanitizer takes a minute ***\n");
    skip();
#endif
    pi_grammar *g = make("root ::= \"a\"{400000,500000} \"b\" \"c\"{3}");
    assert_int_equal(grammar_reader_create(g, &a, &err), PI_OK);
    assert_int_equal(grammar_reader_create(g, &b, &err), PI_OK);
    assert_true(grammar_reader_accept(b, 'a'));
    for (int i = 0; i < ROUNDS; i++) {
        const uint64_t *mask = i % 64 == 0 ? grammar_reader_mask(a) : NULL;
        assert_true(i % 64 || (mask && mask['a' >> 6] >> ('a' & 63) & 1));
        if (mask) assert_int_equal(mask['b' >> 6] >> ('b' & 63) & 1, 8 * i >= 400000);
        assert_true(grammar_reader_accept(a, 256 + 14)); /* aaaaaaaa */
    }
    const uint64_t *mask = grammar_reader_mask(a);
    assert_true(mask && mask['b' >> 6] >> ('b' & 63) & 1);
    assert_true(grammar_reader_accept(a, 'b'));
    for (int i = 0; i < 3; i++) assert_true(grammar_reader_accept(a, 'c'));
    assert_int_equal(grammar_reader_progress(a, NULL), PI_GRAMMAR_COMPLETE);
    assert_false(grammar_reader_accept(b, 'b'));
    assert_true(grammar_reader_accept(b, 'a'));
    grammar_reader_free(a);
    grammar_reader_free(b);
    grammar_release(g);
}

/* ---- masks ----------------------------------------------------------------------------------- */

#ifdef TEST_SAMPLED
enum { MASK_ROUNDS = 3 };
#else
enum { MASK_ROUNDS = 20 };
#endif

/* Within random texts, the mask equals the result of trying every token. */
static void test_masks(void **state) {
    static const char *const grammars[] = {json_gbnf, "root ::= [^a]{2,40} \"b\"?",
                                           "root ::= (\"ab\" | \"abc\" | \"a\"){1,300}",
                                           "root ::= [a-b]* \"12\" .{3} \"\\n\""};
    rng random;
    (void)state;
    rng_seed(&random, 7);
    for (size_t k = 0; k < sizeof grammars / sizeof *grammars; k++) {
        pi_grammar *g = make(grammars[k]);
        for (int round = 0; round < MASK_ROUNDS; round++) {
            char text[400];
            int n = case_sample(g, &vocab, &random, 60, text, 200);
            size_t length = n < 0 ? strlen(text) : (size_t)n;
            grammar_reader *r;
            bool begins, complete;
            assert_int_equal(grammar_reader_create(g, &r, NULL), PI_OK);
            size_t at = length ? rng_u64(&random) % length : 0;
            for (size_t i = 0; i < at; i++)
                assert_true(grammar_reader_accept(r, (unsigned char)text[i]));
            const uint64_t *mask = grammar_reader_mask(r);
            for (int32_t id = 0; id < case_vocab_end(&vocab); id++) {
                size_t n_token;
                const char *token = vocab_text(vocab.trie, id, &n_token);
                char tried[512];
                memcpy(tried, text, at);
                memcpy(tried + at, token, n_token);
                grammar_match(g, tried, at + n_token, &begins, &complete, NULL);
                bool want = n_token > 0 && begins;
                assert_int_equal(mask[id >> 6] >> (id & 63) & 1, want);
            }
            grammar_reader_free(r);
        }
        grammar_release(g);
    }
}

/* ---- triggers -------------------------------------------------------------------------------- */

static pi_grammar *make_lazy(const char *text, const pi_grammar_options *o) {
    pi_grammar *g;
    pi_error err;
    if (case_lazy(&vocab, text, o, &g, &err) != PI_OK) fail_msg("%s", err.message);
    return g;
}

static bool read_bytes(grammar_reader *r, const char *text) {
    for (; *text; text++) {
        if (!grammar_reader_accept(r, (unsigned char)*text)) return false;
    }
    return true;
}

static void test_triggers(void **state) {
    static const char *const words[] = {"<call>", "[["};
    static const int32_t control[] = {256 + 9}; /* without text */
    const pi_grammar_options o = {.trigger_words = words,
                                  .n_trigger_words = 2,
                                  .trigger_tokens = control,
                                  .n_trigger_tokens = 1};
    grammar_reader *r;
    (void)state;
    pi_grammar *g = make_lazy("root ::= \"<call>\" [0-9]+ | \"[[\" \"x\" | \"ab\"", &o);
    assert_int_equal(grammar_reader_create(g, &r, NULL), PI_OK);
    assert_int_equal(grammar_reader_progress(r, NULL), PI_GRAMMAR_WAITING);
    assert_null(grammar_reader_mask(r));
    assert_true(read_bytes(r, "anything < [ <cal <call"));
    assert_int_equal(grammar_reader_progress(r, NULL), PI_GRAMMAR_WAITING);
    assert_true(read_bytes(r, ">"));
    assert_int_equal(grammar_reader_progress(r, NULL), PI_GRAMMAR_OPEN);
    assert_false(read_bytes(r, "x"));
    assert_true(read_bytes(r, "12"));
    assert_int_equal(grammar_reader_progress(r, NULL), PI_GRAMMAR_MAY_END);
    grammar_reader_restart(r);
    assert_true(read_bytes(r, "[ ["));
    assert_int_equal(grammar_reader_progress(r, NULL), PI_GRAMMAR_WAITING);
    assert_true(read_bytes(r, "["));
    assert_false(read_bytes(r, "12"));
    assert_true(read_bytes(r, "x"));
    assert_int_equal(grammar_reader_progress(r, NULL), PI_GRAMMAR_COMPLETE);
    grammar_reader_restart(r);
    assert_true(read_bytes(r, "free"));
    assert_true(grammar_reader_accept(r, control[0]));
    assert_int_equal(grammar_reader_progress(r, NULL), PI_GRAMMAR_OPEN);
    assert_true(grammar_reader_accept(r, 256)); /* ab */
    assert_int_equal(grammar_reader_progress(r, NULL), PI_GRAMMAR_COMPLETE);
    grammar_reader_restart(r);
    assert_true(grammar_reader_accept(r, case_vocab_end(&vocab)));
    assert_int_equal(grammar_reader_progress(r, NULL), PI_GRAMMAR_COMPLETE);
    grammar_reader_free(r);
    grammar_release(g);
}

/* ---- memory, threads ------------------------------------------------------------------------- */

static void test_nomem(void **state) {
    (void)state;
    for (failing f = failing_each(1); failing_next(&f);) {
        pi_grammar *g = NULL;
        bool begins = false, complete = false;
        pi_error err = {.status = PI_OK};
        pi_status status = case_gbnf(&vocab, json_gbnf, &g, &err);
        if (status == PI_OK)
            status = grammar_match(g, "{\"a\": [1, 2]}", 13, &begins, &complete, &err);
        failing_hit(&f, status, &err);
        assert_int_equal(complete, status == PI_OK);
        grammar_release(g);
    }
}

typedef struct thread_work {
    pthread_t thread;
    pi_grammar *grammar;
    uint64_t seed;
} thread_work;

static void *sample_often(void *user) {
    const thread_work *w = user;
    rng random;
    char text[512];
    rng_seed(&random, w->seed);
    for (int i = 0; i < 20; i++) case_sample(w->grammar, &vocab, &random, 40, text, 256);
    return NULL;
}

static void test_threads(void **state) {
    thread_work work[4];
    (void)state;
    pi_grammar *g = make(json_gbnf);
    for (int i = 0; i < 4; i++) {
        work[i] = (thread_work){.grammar = g, .seed = (uint64_t)i};
        assert_int_equal(pthread_create(&work[i].thread, NULL, sample_often, &work[i]), 0);
    }
    for (int i = 0; i < 4; i++) pthread_join(work[i].thread, NULL);
    grammar_release(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts),     cmocka_unit_test(test_refused),
        cmocka_unit_test(test_brackets),  cmocka_unit_test(test_chains),
        cmocka_unit_test(test_deep_text), cmocka_unit_test(test_forgetting),
        cmocka_unit_test(test_masks),     cmocka_unit_test(test_triggers),
        cmocka_unit_test(test_nomem),     cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
