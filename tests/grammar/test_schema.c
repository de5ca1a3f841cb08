/* test_schema.c: JSON Schema as a grammar: tables of texts that a schema accepts or refuses;
 * refused schemas; and random schemas, whose random outputs must satisfy them by this test's
 * validator, which works on parsed JSON and shares no code with the compiler. */
#include <math.h>
#include <regex.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "failing.h"
#include "grammar_case.h"
#include "grammar_tree.h"
#include "json.h"
#include "utf8.h"

enum { TEXTS_MAX = 16, TEXT_BYTES = 16384 };

static const char *const tokens[] = {"{\"", "\":", "\", \"", "true", "12", ": ", "\xc3\xa9", "[]"};
static case_vocab vocab;

static int set_up(void **state) {
    (void)state;
    case_vocab_create(&vocab, tokens, sizeof tokens / sizeof *tokens);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    case_vocab_free(&vocab);
    return 0;
}

#ifdef TEST_HAS_JSON

/* ---- a validator ----------------------------------------------------------------------------- */

static const json_node *schema_root;

static bool equal(const json_node *a, const json_node *b) {
    double x, y;
    const char *s, *t, *key;
    size_t n, m;
    bool p, q;
    void *iter = NULL;
    const json_node *value;
    if (json_as_double(a, &x) && json_as_double(b, &y)) return x == y;
    if (json_kind_of(a) != json_kind_of(b) || json_count(a) != json_count(b)) return false;
    if (json_as_bool(a, &p) && json_as_bool(b, &q)) return p == q;
    if (json_as_string(a, &s, &n) && json_as_string(b, &t, &m))
        return n == m && memcmp(s, t, n) == 0;
    if (json_kind_of(a) == JSON_ARRAY) {
        for (size_t i = 0; i < json_count(a); i++)
            if (!equal(json_at(a, i), json_at(b, i))) return false;
    }
    while (json_kind_of(a) == JSON_OBJECT && json_next(a, &iter, &key, &value)) {
        const json_node *other = json_get(b, key);
        if (!other || !equal(value, other)) return false;
    }
    return true;
}

static bool is_type(const json_node *v, const char *type) {
    double x;
    bool number = json_as_double(v, &x);
    switch (type[0] == 'n' && type[2] == 'l' ? 'N' : type[0]) {
    case 'N':
        return json_kind_of(v) == JSON_NULL;
    case 'b':
        return json_kind_of(v) == JSON_BOOL;
    case 'i':
        return number && x == floor(x);
    case 'n':
        return number;
    case 's':
        return json_kind_of(v) == JSON_STRING;
    case 'a':
        return json_kind_of(v) == JSON_ARRAY;
    default:
        return json_kind_of(v) == JSON_OBJECT;
    }
}

static bool valid(const json_node *s, const json_node *v);

static bool valid_type(const json_node *s, const json_node *v) {
    const json_node *type = json_get(s, "type");
    const char *name;
    size_t n;
    if (!type) return true;
    if (json_as_string(type, &name, &n)) return is_type(v, name);
    for (size_t i = 0; i < json_count(type); i++)
        if (json_as_string(json_at(type, i), &name, &n) && is_type(v, name)) return true;
    return false;
}

static bool number_at(const json_node *s, const char *key, double *out) {
    return json_as_double(json_get(s, key), out);
}

static bool valid_number(const json_node *s, double x) {
    double b;
    if (number_at(s, "minimum", &b) && x < b) return false;
    if (number_at(s, "maximum", &b) && x > b) return false;
    if (number_at(s, "exclusiveMinimum", &b) && x <= b) return false;
    if (number_at(s, "exclusiveMaximum", &b) && x >= b) return false;
    return !number_at(s, "multipleOf", &b) || fabs(x / b - round(x / b)) < 1e-6;
}

/* POSIX expressions have no \d, so the tests' patterns do not use it. */
static bool finds(const char *pattern, const char *text) {
    regex_t re;
    assert_int_equal(regcomp(&re, pattern, REG_EXTENDED | REG_NOSUB), 0);
    bool found = regexec(&re, text, 0, NULL, 0) == 0;
    regfree(&re);
    return found;
}

static bool valid_date(const char *s) {
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int y, m, d, used = 0;
    if (sscanf(s, "%4d-%2d-%2d%n", &y, &m, &d, &used) != 3 || used != 10) return false;
    bool leap = (y % 4 == 0 && y % 100 != 0) || y % 400 == 0;
    return m >= 1 && m <= 12 && d >= 1 && d <= days[m - 1] + (m == 2 && leap);
}

static bool valid_format(const char *format, const char *s) {
    char date[11] = "";
    if (strcmp(format, "date") == 0) return strlen(s) == 10 && valid_date(s);
    if (strcmp(format, "uuid") == 0)
        return finds("^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$", s);
    const char *time = s;
    if (strcmp(format, "date-time") == 0) {
        memcpy(date, s, strlen(s) < 10 ? strlen(s) : 10);
        if (!valid_date(date) || s[10] != 'T') return false;
        time = s + 11;
    }
    int h, m, sec, used = 0;
    if (sscanf(time, "%2d:%2d:%2d%n", &h, &m, &sec, &used) != 3 || used != 8) return false;
    return h < 24 && m < 60 && sec < 60 &&
           finds("^(\\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})$", time + 8);
}

static bool valid_string(const json_node *s, const char *text, size_t n) {
    double bound;
    const char *word;
    size_t n_word, length = 0;
    for (size_t i = 0, step; i < n; i += step, length++) utf8_decode(text + i, n - i, &step);
    if (number_at(s, "minLength", &bound) && (double)length < bound) return false;
    if (number_at(s, "maxLength", &bound) && (double)length > bound) return false;
    if (json_as_string(json_get(s, "pattern"), &word, &n_word) && !finds(word, text)) return false;
    return !json_as_string(json_get(s, "format"), &word, &n_word) || valid_format(word, text);
}

static bool valid_array(const json_node *s, const json_node *v) {
    const json_node *prefix = json_get(s, "prefixItems"), *items = json_get(s, "items");
    double bound;
    if (number_at(s, "minItems", &bound) && (double)json_count(v) < bound) return false;
    if (number_at(s, "maxItems", &bound) && (double)json_count(v) > bound) return false;
    for (size_t i = 0; i < json_count(v); i++) {
        const json_node *item = i < json_count(prefix) ? json_at(prefix, i) : items;
        if (item && !valid(item, json_at(v, i))) return false;
    }
    return true;
}

static bool valid_object(const json_node *s, const json_node *v) {
    const json_node *required = json_get(s, "required"), *properties = json_get(s, "properties");
    const json_node *more = json_get(s, "additionalProperties"), *value;
    const json_node *patterns = json_get(s, "patternProperties");
    const char *key;
    size_t n;
    double bound;
    void *iter = NULL;
    if (number_at(s, "minProperties", &bound) && (double)json_count(v) < bound) return false;
    if (number_at(s, "maxProperties", &bound) && (double)json_count(v) > bound) return false;
    for (size_t i = 0; i < json_count(required); i++) {
        assert_true(json_as_string(json_at(required, i), &key, &n));
        if (!json_get(v, key)) return false;
    }
    while (json_next(v, &iter, &key, &value)) {
        const json_node *own = json_get(properties, key), *schema;
        void *at = NULL;
        const char *pattern;
        bool found = own != NULL;
        if (own && !valid(own, value)) return false;
        while (json_next(patterns, &at, &pattern, &schema)) {
            if (!finds(pattern, key)) continue;
            if (!valid(schema, value)) return false;
            found = true;
        }
        if (!found && more && !valid(more, value)) return false;
    }
    return true;
}

static const json_node *follow(const char *ref) {
    const json_node *at = schema_root;
    char path[64];
    snprintf(path, sizeof path, "%s", ref + 1);
    for (char *rest = path, *name; *rest;) {
        name = ++rest;
        rest += strcspn(rest, "/");
        bool last = *rest == '\0';
        *rest = '\0';
        at = json_get(at, name);
        if (!last) *rest = '/';
    }
    assert_non_null(at);
    return at;
}

static bool valid_sets(const json_node *s, const json_node *v) {
    const json_node *all = json_get(s, "allOf"), *any = json_get(s, "anyOf");
    const json_node *one = json_get(s, "oneOf");
    size_t n_any = 0, n_one = 0;
    for (size_t i = 0; i < json_count(all); i++)
        if (!valid(json_at(all, i), v)) return false;
    for (size_t i = 0; i < json_count(any); i++) n_any += valid(json_at(any, i), v);
    for (size_t i = 0; i < json_count(one); i++) n_one += valid(json_at(one, i), v);
    return (!any || n_any > 0) && (!one || n_one == 1);
}

static bool valid(const json_node *s, const json_node *v) {
    const json_node *list = json_get(s, "enum"), *only = json_get(s, "const");
    bool truth, listed = !list;
    const char *text;
    size_t n;
    double x;
    if (json_as_bool(s, &truth)) return truth;
    if (json_as_string(json_get(s, "$ref"), &text, &n) && !valid(follow(text), v)) return false;
    for (size_t i = 0; i < json_count(list); i++) listed = listed || equal(json_at(list, i), v);
    if (!listed || (only && !equal(only, v))) return false;
    if (!valid_type(s, v) || !valid_sets(s, v)) return false;
    if (json_as_double(v, &x)) return valid_number(s, x);
    if (json_as_string(v, &text, &n)) return valid_string(s, text, n);
    if (json_kind_of(v) == JSON_ARRAY) return valid_array(s, v);
    return json_kind_of(v) != JSON_OBJECT || valid_object(s, v);
}

/* ---- tables ---------------------------------------------------------------------------------- */

static const struct {
    const char *schema;
    const char *complete[TEXTS_MAX], *never[TEXTS_MAX];
} cases[] = {
    {"{}",
     {"1", "null", "\"a\"", "[1, {\"a\": []}]", "{\"a\":-1.5e+10}", "{}"},
     {"01", "tru ", "[,", "{a", "\"\n", "nul1"}},
    {"true", {"1"}, {"x"}},
    {"{\"type\":\"integer\"}", {"0", "-7", "123"}, {"01", "1.5", "\"1\"", "--1", "1e5"}},
    {"{\"type\":\"number\"}", {"0.5", "-1e10", "3"}, {".5", "1.e", "+1", "1e999"}},
    {"{\"type\":\"boolean\"}", {"true", "false"}, {"null", "1"}},
    {"{\"type\":[\"string\",\"null\"]}", {"null", "\"x\""}, {"1"}},
    {"{\"type\":\"integer\",\"minimum\":10,\"maximum\":205}",
     {"10", "99", "100", "205"},
     {"9,", "09", "206", "1000", "-1"}},
    {"{\"type\":\"integer\",\"minimum\":-12,\"exclusiveMaximum\":3}",
     {"-12", "-9", "0", "2"},
     {"3", "-13", "-20", "10", "-0"}},
    {"{\"type\":\"number\",\"minimum\":0.25,\"maximum\":1.5}",
     {"0.25", "0.3", "1", "1.5", "1.49", "0.250001"},
     {"0.2,", "1.51", "2", "0,", "1.500000001", "-1"}},
    {"{\"type\":\"number\",\"exclusiveMinimum\":0,\"maximum\":100}",
     {"0.1", "100", "99.999"},
     {"0,", "101", "100.1", "-1"}},
    {"{\"type\":\"number\",\"multipleOf\":0.01}", {"1.25", "3", "0.1"}, {"1.255", "1e5"}},
    {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
     {"\"ab\"", "\"a\\n\"", "\"\xc3\xa9\xc3\xa9\xc3\xa9\"", "\"\\u00e9x\""},
     {"\"a\"", "\"abcd", "\"\"", "\"\\ud800"}},
    {"{\"type\":\"string\",\"pattern\":\"^[a-c]+[0-9]{2}$\"}",
     {"\"a12\"", "\"abcab99\""},
     {"\"12", "\"a1\"", "\"a123"}},
    {"{\"type\":\"string\",\"pattern\":\"b\"}", {"\"b\"", "\"abc\""}, {"\"\"", "\"ac\""}},
    {"{\"type\":\"string\",\"pattern\":\"^(\\\\d{3}-)?\\\\w+\\\\.(?:com|org)$|^x\"}",
     {"\"123-ab.com\"", "\"a.org\"", "\"xyz\""},
     {"\"12-a", "\"a.net"}},
    {"{\"type\":\"string\",\"pattern\":\"^[\\\"\\\\\\\\]+$\"}",
     {"\"\\\"\"", "\"\\\\\\\"\""},
     {"\"a"}},
    {"{\"type\":\"string\",\"pattern\":\"^a{2}$\",\"maxLength\":5}", {"\"aa\""}, {"\"aaa"}},
    {"{\"type\":\"string\",\"format\":\"date\"}",
     {"\"2024-02-29\"", "\"2023-12-31\""},
     {"\"2023-02-29", "\"2023-13", "\"2023-04-31", "\"1900-02-29"}},
    {"{\"type\":\"string\",\"format\":\"date-time\"}",
     {"\"2024-02-29T23:59:59Z\"", "\"2024-01-01T00:00:00.5+01:00\""},
     {"\"2024-01-01 ", "\"2024-01-01T24"}},
    {"{\"type\":\"string\",\"format\":\"uuid\"}",
     {"\"123e4567-e89b-12d3-a456-426614174000\""},
     {"\"123e4567e"}},
    {"{\"enum\":[\"a\",\"ab\",1,null,{\"x\":[1.5]}]}",
     {"\"a\"", "\"ab\"", "1", "null", "{\"x\":[1.5]}"},
     {"\"b", "2", "{}"}},
    {"{\"type\":\"string\",\"enum\":[\"a\",1]}", {"\"a\""}, {"1"}},
    {"{\"const\":\"\\u00e9\\n\\\"\"}", {"\"\xc3\xa9\\n\\\"\""}, {"\"e"}},
    {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":1,\"maxItems\":3}",
     {"[1]", "[1, 2,3]", "[ 1 ]", "[\n  1\n]"},
     {"[]", "[1,2,3,", "[\"", "[1,]"}},
    {"{\"prefixItems\":[{\"type\":\"string\"},{\"type\":\"integer\"}]}",
     {"[\"a\", 1]"},
     {"[1", "[]", "[\"a\"]", "[\"a\",1,"}},
    {"{\"prefixItems\":[{\"const\":1}],\"items\":{\"const\":2}}",
     {"[1]", "[1,2,2]"},
     {"[]", "[1,1"}},
    {"{\"type\":\"array\",\"maxItems\":0}", {"[]"}, {"[1"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"string\"}"
     "},\"required\":[\"b\"]}",
     {"{\"b\":\"\"}", "{\"a\": 1, \"b\": \"x\"}"},
     {"{}", "{\"a\":1}", "{\"b\":\"\",\"a", "{\"c", "{\"b\":1"}},
    {"{\"properties\":{\"a\":{},\"ab\":{}},\"additionalProperties\":{\"type\":\"integer\"}}",
     {"{}", "{\"a\":\"x\"}", "{\"ab\":[],\"b\":1}", "{\"abc\":1,\"\":2}", "{\"a\":1,\"aa\":1}"},
     {"{\"b\":\"", "{\"a\":1,\"a\"", "{\"x\":1,\"ab\""}},
    {"{\"type\":\"object\",\"additionalProperties\":{\"type\":\"null\"},\"maxProperties\":2}",
     {"{}", "{\"q\":null}", "{\"q\":null,\"r\":null}"},
     {"{\"q\":1", "{\"q\":null,\"r\":null,"}},
    {"{\"type\":\"object\",\"patternProperties\":{\"^x[0-9]$\":{\"type\":\"integer\"}},"
     "\"additionalProperties\":false}",
     {"{}", "{\"x1\":5}"},
     {"{\"y", "{\"x12"}},
    {"{\"properties\":{\"a\":{\"const\":1},\"b\":{\"const\":2}},\"minProperties\":1}",
     {"{\"a\":1}", "{\"b\":2}", "{\"a\":1,\"b\":2}"},
     {"{}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":false,\"b\":{\"const\":1}}}",
     {"{}", "{\"b\":1}"},
     {"{\"a"}},
    {"{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"string\",\"maxLength\":1}]}",
     {"12", "\"a\""},
     {"\"ab", "null"}},
    {"{\"oneOf\":[{\"properties\":{\"k\":{\"const\":\"a\"},\"x\":{\"type\":\"integer\"}},"
     "\"required\":[\"k\",\"x\"]},{\"properties\":{\"k\":{\"const\":\"b\"}},\"required\":[\"k\"]}]"
     "}",
     {"{\"k\":\"a\",\"x\":1}", "{\"k\":\"b\"}"},
     {"{\"k\":\"a\"}", "{\"k\":\"c"}},
    {"{\"allOf\":[{\"properties\":{\"a\":{\"minimum\":3}},\"required\":[\"a\"]},{\"properties\":{"
     "\"a\":{\"type\":\"integer\",\"maximum\":5},\"b\":{\"const\":0}}}]}",
     {"{\"a\":3}", "{\"a\":5,\"b\":0}"},
     {"{\"a\":2", "{\"a\":6", "{}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1},\"b\":{\"const\":2}},\"anyOf\":[{"
     "\"required\":[\"a\"]},{\"required\":[\"b\"]}]}",
     {"{\"a\":1}", "{\"b\":2}", "{\"a\":1,\"b\":2}"},
     {"{}"}},
    {"{\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"integer\"},\"next\":"
     "{\"anyOf\":[{\"$ref\":\"#/$defs/"
     "n\"},{\"type\":\"null\"}]}},\"required\":[\"v\",\"next\"]}},\"$ref\":\"#/$defs/n\"}",
     {"{\"v\":1,\"next\":null}", "{\"v\":1,\"next\":{\"v\":2,\"next\":null}}"},
     {"{\"v\":1}", "{\"v\":1,\"next\":3"}},
    {"{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}", {"[]", "[[],[[]]]"}, {"[1"}},
    {"{\"definitions\":{\"a/b ~\":{\"const\":7}},\"items\":{\"$ref\":\"#/definitions/a~1b%20~0\"}}",
     {"[7,7]"},
     {"[8"}},
    /* Several constraints on one string. */
    {"{\"type\":\"string\",\"pattern\":\"^[a-z0-9-]+$\",\"minLength\":3,\"maxLength\":5}",
     {"\"abc\"", "\"ab-12\""},
     {"\"ab\"", "\"abcdef", "\"A"}},
    {"{\"type\":\"string\",\"pattern\":\"^[a-z]+(-[a-z]+)*$\",\"minLength\":3,\"maxLength\":5}",
     {"\"abc\"", "\"a-b\"", "\"ab-cd\"", "\"a-b-c\""},
     {"\"ab\"", "\"ab-\"", "\"abcdef", "\"a--b"}},
    {"{\"type\":\"string\",\"allOf\":[{\"pattern\":\"^a.*\"},{\"pattern\":\".*z$\"},{\"pattern\":"
     "\"q\"}],\"maxLength\":5}",
     {"\"aqz\"", "\"axqyz\""},
     {"\"az\"", "\"aqzx\"", "\"bqz", "\"axxqyz"}},
    {"{\"type\":\"string\",\"pattern\":\"^(?=.*[A-Z])(?=.*[0-9])[A-Za-z0-9]{4,6}$\"}",
     {"\"aaA1\"", "\"1AAAAA\""},
     {"\"aaaa\"", "\"aA1\"", "\"AAAA\"", "\"a A1", "\"aaaaA12"}},
    {"{\"type\":\"string\",\"pattern\":\"^(?!admin$)[a-z]+$\"}",
     {"\"admi\"", "\"admins\"", "\"x\""},
     {"\"admin\"", "\"\""}},
    {"{\"type\":\"string\",\"pattern\":\"^(?!.*\\\\.\\\\.)[a-z.]+$\"}",
     {"\"a.b\"", "\".\""},
     {"\"a..b\"", "\"..\""}},
    {"{\"type\":\"string\",\"pattern\":\"^P(?:(\\\\d+W)|(?!.*W)(?=\\\\d|T\\\\d)(\\\\d+Y)?(\\\\d+D)?"
     "(T(?=\\\\d)(\\\\d+H)?(\\\\d+M)?)?)$\"}",
     {"\"P1W\"", "\"P2Y3D\"", "\"PT5H\"", "\"P1DT1M\""},
     {"\"P\"", "\"PT\"", "\"P1YT\"", "\"P1YW"}},
    {"{\"type\":\"string\",\"pattern\":\"(^a|b)$\"}", {"\"a\"", "\"b\"", "\"xb\""}, {"\"xa\""}},
    {"{\"type\":\"string\",\"pattern\":\"^$|^x{2}$\"}", {"\"\"", "\"xx\""}, {"\"x\""}},
    {"{\"type\":\"string\",\"pattern\":\"^((((a{0,100}){0,100}){0,100}){0,100})$\"}",
     {"\"\"", "\"aaaa\""},
     {"\"b"}},
    {"{\"type\":\"string\",\"pattern\":\"^(a{2,3}){2}$\"}",
     {"\"aaaa\"", "\"aaaaaa\""},
     {"\"aaa\"", "\"aaaaaaa"}},
    {"{\"type\":\"string\",\"pattern\":\"^(a{3}){1,2}$\"}",
     {"\"aaa\"", "\"aaaaaa\""},
     {"\"aaaa\""}},
    {"{\"type\":\"string\",\"format\":\"date\",\"pattern\":\"^20\"}",
     {"\"2024-02-29\""},
     {"\"1999", "\"2023-02-29"}},
    {"{\"type\":\"string\",\"pattern\":\"^\\\\u{1F600}\\\\uD83D\\\\uDE01$\"}",
     {"\"\xf0\x9f\x98\x80\xf0\x9f\x98\x81\""},
     {"\"a"}},
    {"{\"type\":\"string\",\"not\":{\"enum\":[\"a\",\"bc\"]}}",
     {"\"\"", "\"ab\"", "\"b\""},
     {"\"a\"", "\"bc\""}},
    {"{\"type\":[\"string\",\"null\"],\"not\":{\"type\":\"null\"}}", {"\"a\""}, {"null"}},
    {"{\"enum\":[1,2,3],\"not\":{\"const\":2}}", {"1", "3"}, {"2"}},
    {"{\"enum\":[\"abc\",\"x\"],\"pattern\":\"^x\"}", {"\"x\""}, {"\"abc\""}},
    {"{\"enum\":[1,1.5,2],\"multipleOf\":0.5,\"not\":{\"const\":1}}", {"1.5", "2"}, {"1,"}},
    /* Too many states: repetitions are bounded instead. */
    {"{\"type\":\"string\",\"pattern\":\"^(?=.{1,253}\\\\.?$)[a-z](?:[a-z-]{0,61}[a-z])?(?:\\\\.[a-"
     "z](?:["
     "-a-z]{0,61}[a-z])?)*\\\\.?$\"}",
     {"\"a\"", "\"ab.c-d\"", "\"a.b.\""},
     {"\"\"", "\"a-\"", "\"a..", "\"."}},
    {"{\"type\":\"string\",\"pattern\":\"^[a-z]+(-[a-z]+)*$\",\"minLength\":1,\"maxLength\":9999}",
     {"\"a\"", "\"ab-cd-e\""},
     {"\"\"", "\"a-\""}},
    /* Multiples. */
    {"{\"type\":\"integer\",\"multipleOf\":7}",
     {"0", "7", "-14", "98", "700007"},
     {"1", "8", "-13", "70001"}},
    {"{\"type\":\"number\",\"multipleOf\":5}", {"0", "5", "125"}, {"5.5", "7", "1e5"}},
    {"{\"type\":\"number\",\"multipleOf\":0.25,\"minimum\":-3,\"maximum\":7}",
     {"-3", "-2.75", "0.5", "0.50", "6.75", "7"},
     {"7.25", "-3.25", "0.3\n", "0.55\n", "1.1,"}},
    {"{\"type\":\"integer\",\"multipleOf\":30,\"minimum\":100,\"maximum\":1000}",
     {"120", "990"},
     {"90", "100", "1020", "121"}},
    {"{\"type\":\"integer\",\"allOf\":[{\"multipleOf\":4},{\"multipleOf\":6}]}",
     {"0", "12", "24"},
     {"4", "6", "8"}},
    /* Numbers beyond 64 bits. */
    {"{\"type\":\"integer\",\"minimum\":0,\"maximum\":18446744073709551615}",
     {"0", "123456789012345"},
     {"-1"}},
    {"{\"type\":\"integer\",\"minimum\":18446744073709551615,\"maximum\":1e30}",
     {"18446744073709600000", "99999999999999999999"},
     {"1844674407370955161", "18446744073709500000"}},
    {"{\"type\":\"number\",\"maximum\":1e400}", {"1", "-5"}, {"x"}},
    /* Names. */
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1}},\"patternProperties\":{\"^x\":{"
     "\"const\":2}},\"required\":[\"a\"]}",
     {"{\"a\":1}", "{\"a\":1,\"x\":2,\"xy\":2}"},
     {"{\"x\":2}", "{\"a\":1,\"b", "{\"a\":2", "{\"a\":1,\"x\":1"}},
    {"{\"properties\":{\"ax\":{\"type\":\"integer\"}},\"patternProperties\":{\"^a\":{\"minimum\":3}"
     ",\"x$\":{\"maximum\":5}},\"additionalProperties\":{\"const\":0}}",
     {"{\"ax\":4}", "{\"abx\":5,\"b\":0,\"a\":9,\"x\":1}", "{}"},
     {"{\"ax\":2", "{\"ax\":6", "{\"abx\":6", "{\"b\":1", "{\"a\":1"}},
    {"{\"type\":\"object\",\"propertyNames\":{\"enum\":[\"a\",\"b\"]},\"additionalProperties\":{"
     "\"type\":\"integer\"},\"required\":[\"b\"]}",
     {"{\"b\":2}", "{\"b\":2,\"a\":1}"},
     {"{\"a\":1}", "{\"b\":2,\"c", "{\"b\":\""}},
    {"{\"type\":\"object\",\"properties\":{\"ab\":{\"const\":1},\"a\":{\"const\":1}},"
     "\"propertyNames\":{\"minLength\":2},\"additionalProperties\":{\"const\":2}}",
     {"{\"ab\":1}", "{\"xyz\":2}"},
     {"{\"a\"", "{\"x\"", "{\"ab\":2", "{\"ab\":1,\"ab"}},
    /* Control characters are not hexadecimal digits, whatever their low bits. */
    {"{\"$defs\":{\"%\\u0011\\u0012\":{\"const\":7}},\"$ref\":\"#/$defs/%\\u0011\\u0012\"}",
     {"7"},
     {"8"}},
};

static void test_texts(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pi_grammar *g;
        pi_error err;
        if (case_schema(&vocab, cases[i].schema, &g, &err) != PI_OK)
            fail_msg("%s: %s", cases[i].schema, err.message);
        for (const char *const *t = cases[i].complete; *t; t++) {
            if (case_match(g, *t) != 1) fail_msg("%s: does not take %s", cases[i].schema, *t);
        }
        for (const char *const *t = cases[i].never; *t; t++) {
            if (case_match(g, *t) == 1) fail_msg("%s: takes %s", cases[i].schema, *t);
        }
        grammar_release(g);
    }
}

static const struct {
    const char *schema, *part;
    pi_status status;
} refused[] = {
    {"{\"type\":\"object\"", "JSON Schema", PI_ERR_FORMAT},
    {"[]", "JSON Schema: $: a schema must be an object or a boolean", PI_ERR_FORMAT},
    {"{\"items\":{\"type\":\"text\"}}", "$.items.type: not the name of a type", PI_ERR_FORMAT},
    {"false", "JSON Schema: $: no text can satisfy the schema", PI_ERR_FORMAT},
    {"{\"type\":\"integer\",\"minimum\":3,\"maximum\":2}", "no text can satisfy", PI_ERR_FORMAT},
    {"{\"allOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]}", "no text can satisfy",
     PI_ERR_FORMAT},
    {"{\"$ref\":\"#\"}", "$: refers to itself: infinite recursion", PI_ERR_FORMAT},
    {"{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"null\"}]}", "refers to itself", PI_ERR_FORMAT},
    {"{\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}", "no text can satisfy",
     PI_ERR_FORMAT},
    {"{\"type\":\"string\",\"minLength\":-1}", "$.minLength: not an integer", PI_ERR_FORMAT},
    {"{\"const\":1,\"enum\":[2]}", "no text can satisfy", PI_ERR_FORMAT},
    {"{\"enum\":[]}", "no text can satisfy", PI_ERR_FORMAT},
    {"{\"not\":{}}", "no text can satisfy", PI_ERR_FORMAT},
    {"{\"minLength\":20000000}", "$.minLength: too large a number", PI_ERR_LIMIT},
    {"{\"properties\":{\"a b\":{\"anyOf\":[1]}}}", "$.properties[\"a b\"].anyOf[0]: a schema",
     PI_ERR_FORMAT},
};

/* A keyword that a grammar cannot express is an error with its place, or is ignored: then `text`,
 * which does not satisfy the schema, is accepted. */
static const struct {
    const char *schema, *place, *text;
} beyond[] = {
    {"{\"$ref\":\"#/nothing\"}", "$.$ref", "1"},
    {"{\"$ref\":\"http://x/y\"}", "$.$ref", "1"},
    {"{\"properties\":{\"a\":{\"not\":{\"minimum\":1}}}}", "$.properties.a.not", "{\"a\":1}"},
    {"{\"if\":{},\"then\":false}", "$.if", "1"},
    {"{\"type\":\"array\",\"uniqueItems\":true}", "$.uniqueItems", "[1,1]"},
    {"{\"type\":\"array\",\"contains\":false}", "$.contains", "[1]"},
    {"{\"dependentRequired\":{\"a\":[\"b\"]}}", "$.dependentRequired", "{\"a\":1}"},
    {"{\"type\":\"integer\",\"multipleOf\":701}", "$.multipleOf", "5"},
    {"{\"type\":\"string\",\"pattern\":\"(a)\\\\1\"}", "$.pattern", "\"\""},
    {"{\"type\":\"string\",\"pattern\":\"(?<=a)b\"}", "$.pattern", "\"\""},
    {"{\"type\":\"string\",\"pattern\":\"\\\\bb\"}", "$.pattern", "\"\""},
    {"{\"items\":[{\"pattern\":\"^(a|(?=b)){99}$\",\"type\":\"string\"}]}", "$.items[0].pattern",
     "[\"\"]"},
    {"{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]}", "$.oneOf", "1"},
    {"{\"oneOf\":[{\"type\":\"object\"},{\"properties\":{\"a\":{}}}]}", "$.oneOf", "{\"a\":1}"},
    {"{\"minProperties\":2,\"properties\":{\"a\":{},\"b\":{}}}", "$.minProperties", "{\"a\":1}"},
    {"{\"enum\":[[1]],\"items\":{\"type\":\"string\"}}", "$.items", "[1]"},
    {"{\"$defs\":{\"x\":{\"uniqueItems\":true}},\"allOf\":[{\"$ref\":\"#/$defs/x\"}]}",
     "$.$defs.x.uniqueItems", "[2,2]"},
};

static void test_beyond(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof beyond / sizeof *beyond; i++) {
        pi_grammar *g;
        pi_error err = {.status = PI_OK};
        char place[128];
        snprintf(place, sizeof place, "JSON Schema: %s", beyond[i].place);
        pi_status status = case_schema(&vocab, beyond[i].schema, &g, &err);
        if (status != PI_ERR_UNSUPPORTED || !strstr(err.message, place))
            fail_msg("%s: %s: %s", beyond[i].schema, pi_status_name(status), err.message);
        if (case_widened(&vocab, beyond[i].schema, &g, &err) != PI_OK)
            fail_msg("%s: %s", beyond[i].schema, err.message);
        assert_non_null(grammar_widened(g, 0));
        assert_string_equal(grammar_widened(g, 0), place);
        assert_null(grammar_widened(g, 1));
        if (case_match(g, beyond[i].text) != 1) fail_msg("%s: still strict", beyond[i].schema);
        grammar_release(g);
    }
}

/* Unknown formats are annotations, with and without widening; they are not mentioned where there is
 * a pattern. */
static void test_formats(void **state) {
    pi_grammar *g;
    pi_error err;
    (void)state;
    assert_int_equal(case_schema(&vocab, "{\"type\":\"string\",\"format\":\"path\"}", &g, &err), 0);
    assert_string_equal(grammar_widened(g, 0), "JSON Schema: $.format");
    assert_int_equal(case_match(g, "\"/a\""), 1);
    grammar_release(g);
    assert_int_equal(case_schema(&vocab, "{\"format\":\"path\",\"pattern\":\"^/\"}", &g, &err), 0);
    assert_null(grammar_widened(g, 0));
    assert_int_equal(case_match(g, "\"/a\""), 1);
    assert_int_equal(case_match(g, "\"a"), -1);
    grammar_release(g);
}

/* The list of places has a limit, which it states. */
static void test_many_widened(void **state) {
    char text[16384];
    size_t n = (size_t)snprintf(text, sizeof text, "{\"properties\":{");
    pi_grammar *g;
    pi_error err;
    (void)state;
    for (int i = 0; i < 200; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s\"p%d\":{\"uniqueItems\":true}",
                              i ? "," : "", i);
    snprintf(text + n, sizeof text - n, "}}");
    assert_int_equal(case_widened(&vocab, text, &g, &err), PI_OK);
    assert_non_null(strstr(grammar_widened(g, 0), "JSON Schema: $.properties.p"));
    assert_string_equal(grammar_widened(g, GRAMMAR_MAX_WIDENED - 1), "and more");
    assert_null(grammar_widened(g, GRAMMAR_MAX_WIDENED));
    grammar_release(g);
}

static void test_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        pi_grammar *g;
        pi_error err = {.status = PI_OK};
        pi_status status = case_schema(&vocab, refused[i].schema, &g, &err);
        grammar_release(g);
        if (status != refused[i].status || !strstr(err.message, refused[i].part))
            fail_msg("%s: %s: %s", refused[i].schema, pi_status_name(status), err.message);
    }
}

static void test_nested(void **state) {
    enum { BRACKETS = 60000 };
    static char text[BRACKETS + 1];
    pi_grammar *g;
    pi_error err;
    (void)state;
    memset(text, '[', BRACKETS);
    assert_int_not_equal(case_schema(&vocab, text, &g, &err), PI_OK);
    assert_null(strchr(err.message, '\n'));
}

/* Texts of many members: `before`, then `format` of 0, 1, ... with commas between, then `after`. */
static char *many_members(const char *before, const char *format, int n, const char *after) {
    size_t capacity = strlen(before) + strlen(after) + (size_t)n * (strlen(format) + 10) + 1;
    char *text = malloc(capacity);
    assert_non_null(text);
    size_t at = (size_t)snprintf(text, capacity, "%s", before);
    for (int i = 0; i < n; i++) {
        if (i) text[at++] = ',';
        at += (size_t)snprintf(text + at, capacity - at, format, i);
    }
    snprintf(text + at, capacity - at, "%s", after);
    return text;
}

/* Members are looked up, not compared with one another: comparing took minutes of CPU time. */
static void test_many(void **state) {
    enum { CPU_SECONDS = 20 };
    pi_grammar *g;
    pi_error err = {.status = PI_OK};
    (void)state;
    clock_t begin = clock();
    char *text = many_members("{\"enum\":[", "\"x%d\"", 50000, "],\"type\":\"string\"}");
    assert_int_equal(case_schema(&vocab, text, &g, &err), PI_OK);
    assert_int_equal(case_match(g, "\"x49999\""), 1);
    assert_int_equal(case_match(g, "\"x50000\""), -1);
    grammar_release(g);
    free(text);
    text = many_members("{\"allOf\":[{\"enum\":[5,49998,\"5\"]},{\"const\":49998},{\"enum\":[",
                        "%d", 50000, "]}]}");
    assert_int_equal(case_schema(&vocab, text, &g, &err), PI_OK);
    assert_int_equal(case_match(g, "49998"), 1);
    assert_int_equal(case_match(g, "5"), -1);
    grammar_release(g);
    free(text);
    text = many_members("{\"oneOf\":[{\"const\":-1},{\"enum\":[", "%d", 50000, "]}]}");
    assert_int_equal(case_schema(&vocab, text, &g, &err), PI_OK);
    assert_int_equal(case_match(g, "-1"), 1);
    grammar_release(g);
    free(text);
    text = many_members("{\"oneOf\":[",
                        "{\"properties\":{\"k\":{\"const\":%d}},\"required\":[\"k\"]}", 10000,
                        "]}");
    assert_int_equal(case_schema(&vocab, text, &g, &err), PI_ERR_UNSUPPORTED);
    assert_non_null(strstr(
        err.message, "JSON Schema: $.oneOf: a grammar cannot express it: too much to compare"));
    free(text);
    assert_true((clock() - begin) / CLOCKS_PER_SEC < CPU_SECONDS);
}

/* ---- random schemas -------------------------------------------------------------------------- */

typedef struct writer {
    char text[TEXT_BYTES];
    size_t n;
    rng random;
} writer;

static void put(writer *w, const char *format, ...) {
    va_list args;
    va_start(args, format);
    w->n += (size_t)vsnprintf(w->text + w->n, sizeof w->text - w->n, format, args);
    va_end(args);
    assert_true(w->n < sizeof w->text);
}

static int pick(writer *w, int n) {
    return (int)(rng_u64(&w->random) % (uint64_t)n);
}

static void put_schema(writer *w, int depth);

static void put_number(writer *w) {
    bool integer = pick(w, 2);
    double a = (pick(w, 4001) - 2000) / (integer ? 1.0 : 100.0), b = a + pick(w, 300) / 10.0;
    if (integer) b = floor(b);
    put(w, "{\"type\":\"%s\"", integer ? "integer" : "number");
    if (pick(w, 4) == 0) put(w, ",\"multipleOf\":%g", (1 + pick(w, 40)) / (integer ? 1.0 : 10.0));
    if (pick(w, 2)) put(w, ",\"minimum\":%g", a);
    if (pick(w, 2))
        put(w, ",\"%s\":%g", pick(w, 2) && b > a + 1 ? "exclusiveMaximum" : "maximum", b);
    put(w, "}");
}

static void put_string(writer *w) {
    static const char *const patterns[] = {"^[a-z]{1,4}$", "[0-9]", "^(x|yz)*w?$", "^[^a-z]{2}",
                                           "^[a-z]{0,3}end$"};
    static const char *const sized[] = {"^[a-z]+(-[a-z]+)*$", "[0-9]x", "^(ab|c)*d?$"};
    static const char *const formats[] = {"date", "date-time", "time", "uuid"};
    int kind = pick(w, 6), least = pick(w, 4);
    put(w, "{\"type\":\"string\"");
    if (kind == 0) put(w, ",\"minLength\":%d,\"maxLength\":%d", least, least + pick(w, 5));
    if (kind == 1) put(w, ",\"pattern\":\"%s\"", patterns[pick(w, 5)]);
    if (kind == 4)
        put(w, ",\"pattern\":\"%s\",\"minLength\":%d,\"maxLength\":%d", sized[pick(w, 3)], least,
            least + 3 + pick(w, 9));
    if (kind == 5)
        put(w, ",\"pattern\":\"%s\",\"allOf\":[{\"pattern\":\"%s\"}]", sized[pick(w, 3)],
            patterns[pick(w, 3)]);
    if (kind == 2) put(w, ",\"format\":\"%s\"", formats[pick(w, 4)]);
    put(w, "}");
}

static void put_array(writer *w, int depth) {
    int least = pick(w, 3);
    put(w, "{\"type\":\"array\",\"items\":");
    put_schema(w, depth + 1);
    if (pick(w, 3) == 0) {
        put(w, ",\"prefixItems\":[");
        put_schema(w, depth + 1);
        put(w, "]");
    }
    put(w, ",\"minItems\":%d,\"maxItems\":%d}", least, least + 1 + pick(w, 2));
}

static void put_object(writer *w, int depth) {
    int n = 1 + pick(w, 4);
    bool comma = false;
    put(w, "{\"type\":\"object\",\"properties\":{");
    for (int i = 0; i < n; i++) {
        put(w, "%s\"p%d\":", i ? "," : "", i);
        put_schema(w, depth + 1);
    }
    put(w, "},\"required\":[");
    for (int i = 0; i < n + 1; i++) {
        if (pick(w, 2) || i == n) continue;
        put(w, "%s\"p%d\"", comma ? "," : "", i);
        comma = true;
    }
    put(w, "]");
    if (pick(w, 3) == 0)
        put(w, ",\"additionalProperties\":%s", pick(w, 2) ? "false" : "{\"type\":\"integer\"}");
    if (pick(w, 4) == 0) {
        put(w, ",\"patternProperties\":{\"^p[0-2]\":{\"type\":[\"integer\",\"null\",\"object\"]},"
               "\"[xy]$\":");
        put_schema(w, depth + 1);
        put(w, "}");
    }
    put(w, "}");
}

static void put_choice(writer *w, int depth) {
    if (pick(w, 3) == 0) {
        put(w, "{\"oneOf\":[{\"type\":\"null\"},{\"type\":\"boolean\"},");
        put_string(w);
        put(w, "]}");
        return;
    }
    put(w, "{\"%s\":[", pick(w, 3) ? "anyOf" : "allOf");
    put_schema(w, depth + 1);
    put(w, ",{}]}");
}

static void put_schema(writer *w, int depth) {
    int kind = pick(w, depth > 3 ? 5 : 9);
    switch (kind) {
    case 0:
        put_number(w);
        break;
    case 1:
        put_string(w);
        break;
    case 2:
        put(w, "{\"enum\":[1,\"a\",null,\"\\u00e9\\\\\",[true]]}");
        break;
    case 3:
        put(w, "{\"type\":[\"boolean\",\"null\"]}");
        break;
    case 4:
        put(w, "{\"$ref\":\"#/$defs/d%d\"}", pick(w, 2));
        break;
    case 5:
    case 6:
        put_object(w, depth);
        break;
    case 7:
        put_array(w, depth);
        break;
    default:
        put_choice(w, depth);
    }
}

static bool write_random(writer *w) {
    w->n = 0;
    put(w,
        "{\"$defs\":{\"d0\":{\"type\":\"integer\",\"minimum\":-5},\"d1\":{\"type\":\"object\","
        "\"properties\":{\"again\":{\"$ref\":\"#/$defs/d1\"},\"v\":{\"const\":1}}}},\"allOf\":[");
    put_schema(w, 0);
    put(w, "]}");
    return true;
}

static void check_outputs(writer *w, const char *schema) {
    pi_grammar *g;
    pi_error err;
    json_doc *doc, *value;
    static char text[TEXT_BYTES];
    if (case_schema(&vocab, schema, &g, &err) != PI_OK) {
        /* The only allowed error: contradicting bounds. */
        if (!strstr(err.message, "no text can satisfy")) fail_msg("%s: %s", schema, err.message);
        return;
    }
    assert_int_equal(json_parse(schema, strlen(schema), "schema", &doc, &err), PI_OK);
    schema_root = json_root(doc);
    for (int i = 0; i < 4; i++) {
        int n = case_sample(g, &vocab, &w->random, 3000, text, sizeof text);
        if (n < 0) continue;
        if (json_parse(text, (size_t)n, "text", &value, &err) != PI_OK) {
            /* Equal names of free properties may occur by chance. */
            if (!strstr(err.message, "duplicate"))
                fail_msg("%s\n%s: %s", schema, text, err.message);
            continue;
        }
        if (!valid(schema_root, json_root(value))) fail_msg("%s\nmade %s", schema, text);
        json_free(value);
    }
    json_free(doc);
    grammar_release(g);
}

static void test_random(void **state) {
    enum { SCHEMAS = 400 };
    static writer w;
    (void)state;
    rng_seed(&w.random, 11);
    for (int i = 0; i < SCHEMAS; i++) {
        assert_true(write_random(&w));
        check_outputs(&w, w.text);
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (!strstr(cases[i].schema, "\\\\d") && !strstr(cases[i].schema, "(?") &&
            !strstr(cases[i].schema, "{0,100}") && !strstr(cases[i].schema, "\\\\u") &&
            !strstr(cases[i].schema, "\\\\\\\\") && !strstr(cases[i].schema, "patternP") &&
            !strstr(cases[i].schema, "a~1b"))
            check_outputs(&w, cases[i].schema);
    }
}

static void test_nomem(void **state) {
    static const char schema[] =
        "{\"properties\":{\"a\":{\"type\":\"number\",\"minimum\":1.5},\"b\":{\"pattern\":\"^x+$\"},"
        "\"d\":{\"pattern\":\"^(?!b)[a-c]\",\"maxLength\":3},\"e\":{\"multipleOf\":3},"
        "\"c\":{\"anyOf\":[{\"const\":1},{\"$ref\":\"#\"}]}},\"patternProperties\":{\"^x\":{}},"
        "\"additionalProperties\":{\"items\":{}"
        "}}";
    (void)state;
    for (failing f = failing_each(1); failing_next(&f);) {
        pi_grammar *g = NULL;
        pi_error err = {.status = PI_OK};
        pi_status status = case_schema(&vocab, schema, &g, &err);
        failing_hit(&f, status, &err);
        grammar_release(g);
    }
}
#endif

static void test_without_json(void **state) {
    pi_grammar *g;
    pi_error err;
    (void)state;
    pi_status status = case_schema(&vocab, "{}", &g, &err);
    grammar_release(g);
#ifdef TEST_HAS_JSON
    assert_int_equal(status, PI_OK);
#else
    assert_int_equal(status, PI_ERR_UNSUPPORTED);
#endif
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_json),
#ifdef TEST_HAS_JSON
        cmocka_unit_test(test_texts),        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_beyond),       cmocka_unit_test(test_formats),
        cmocka_unit_test(test_many_widened), cmocka_unit_test(test_nested),
        cmocka_unit_test(test_random),       cmocka_unit_test(test_nomem),
        cmocka_unit_test(test_many),
#endif
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
