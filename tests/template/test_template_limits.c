/* test_template_limits.c: templates that never end, grow without bound or nest too deeply are
 * refused quickly, with the exceeded limit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "shared_data.h"
#include "template_case.h"

#ifdef TEST_HAS_JSON

#define STEPS  "the template takes more steps than it may: template line 1"
#define MEMORY "the template needs more memory than it may have: template line 1"
#define OUTPUT "the template writes more text than it may: template line 1"
#define DEPTH  "the template is nested too deeply: more than 1000 levels: template line 1"
#define BITS   "an integer is beyond 64 bits: template line 1"
#define WIDTH  "a width is more than 10000: template line 1"

static json_doc *empty;

static pi_status render(const char *source, size_t n, template_limits limits, pi_error *err) {
    char *text;
    size_t n_text;
    template_input input = case_input(json_root(empty));
    input.limits = limits;
    pi_status status = case_render(source, n, &input, &text, &n_text, err);
    mem_free(text);
    return status;
}

static void refused(const char *source, const char *message) {
    pi_error err = {.status = PI_OK};
    /* Small budgets make this fast; the defaults are larger. */
    const template_limits limits = {.steps = 4000000, .memory = 32 << 20, .output = 1 << 20};
    pi_status status = render(source, strlen(source), limits, &err);
    if (status == PI_OK || strcmp(err.message, message) != 0)
        fail_msg("%.100s\n  got    %s\n  wanted %s", source, status ? err.message : "a text",
                 message);
}

static void test_budgets(void **state) {
    (void)state;
    refused("{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
            STEPS);
    refused("{% set s = 'ab' * 500000 %}{% for i in range(9999) %}{{ s.rfind('aab') }}{% endfor %}",
            STEPS);
    refused("{% set l = range(9999)|list %}{% for i in l %}{{ -1 in l }}{% endfor %}", STEPS);
    refused("{% set s = 'é' * 100000 %}{% for i in range(9999) %}{{ s[50000] }}{% endfor %}",
            STEPS);
    refused("{% set l = range(9999)|list %}{% for i in l %}{{ (l|sort)[0] }}{% endfor %}", MEMORY);
    refused("{{ 'x' * 1000000000000 }}", MEMORY);
    refused("{{ 'x' * 9223372036854775807 }}", MEMORY);
    refused("{{ [0] * 10000000000 }}", MEMORY);
    refused("{{ 'x'.center(100000000000) }}", MEMORY);
    refused("{{ 'x'.zfill(100000000000) }}", MEMORY);
    refused("{{ 'x'|indent(100000000000, true) }}", MEMORY);
    refused("{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}"
            "{% endfor %}",
            MEMORY);
    refused("{% for i in range(9999) %}{{ 'x' * 1000 }}{% endfor %}", OUTPUT);
    refused("{{ range(1000000000) }}", "Range too big. The sandbox blocks ranges larger than "
                                       "MAX_RANGE (100000): template line 1");
    refused("{{ '%1000000000d' % 1 }}", WIDTH);
    refused("{{ '%*d' % (1000000000, 1) }}", WIDTH);
    refused("{{ '{:1000000000}'.format(1) }}", WIDTH);
    refused("{{ [[1]]|tojson(indent=1000000000) }}", "indent is more than 1000: template line 1");
    refused("{{ strftime_now('%c' * 1000) }}", "a time format is too long: template line 1");
}

/* Work without allocations: without step counting, each of these templates would run for minutes or
 * longer. */
static void test_counted(void **state) {
    static const char *const repeated[] = {"s is lower",
                                           "s.upper() is upper",
                                           "s|wordcount",
                                           "s.removeprefix(s)",
                                           "s.removesuffix(s)",
                                           "s.partition('c')",
                                           "s.rpartition('c')",
                                           "s|title|length",
                                           "l|max",
                                           "l|min",
                                           "l|sum",
                                           "blanks|join",
                                           "''.join(blanks)",
                                           "s.startswith(tuple)",
                                           "{tuple: 1}",
                                           "tuple in {}",
                                           "flags % 1",
                                           "l|map(attribute=s)",
                                           "s.rsplit('c')",
                                           "s.split(none, 0)",
                                           "s.strip('xyzabab')"};
    char source[1000];
    (void)state;
    for (size_t i = 0; i < sizeof repeated / sizeof *repeated; i++) {
        snprintf(source, sizeof source,
                 "{%% set s = 'ab' * 20000 %%}{%% set l = range(9999) %%}"
                 "{%% set flags = '%%' ~ '-' * 9999 ~ 'd' %%}"
                 "{%% set tuple = ('', 'x') * 4999 %%}{%% set blanks = [''] * 9999 %%}"
                 "{%% for i in range(99999) %%}{%% if %s %%}{%% endif %%}{%% endfor %%}",
                 repeated[i]);
        pi_error err = {.status = PI_OK};
        const template_limits limits = {.steps = 1000000, .memory = (uint64_t)4 << 30};
        pi_status status = render(source, strlen(source), limits, &err);
        if (status != PI_ERR_LIMIT || strcmp(err.message, STEPS) != 0)
            fail_msg("%s: %s", repeated[i], status ? err.message : "a text");
    }
    refused("{{ ('a'*1000000).strip('b'*1000000+'a') }}", STEPS);
    refused("{{ ('{' + '['*1000000 + '}').format(1) }}", STEPS);
    /* Nested tuples: hashing would visit 2^60 items. */
    refused("{% set ns = namespace(t=(1,)) %}{% for i in range(60) %}{% set ns.t = (ns.t, ns.t) %}"
            "{% endfor %}{{ {ns.t: 1} }}",
            STEPS);
}

/* A macro with many parameters, called often: all parameters are set, the last one is read. */
static void test_scopes(void **state) {
    enum { PARAMS = 20000, ROOM = 400000 };
    char *source = malloc(ROOM);
    (void)state;
    assert_non_null(source);
    size_t n = (size_t)snprintf(source, ROOM, "{%% macro m(a");
    for (int i = 0; i < PARAMS; i++) n += (size_t)snprintf(source + n, ROOM - n, ",a%d=%d", i, i);
    snprintf(source + n, ROOM - n,
             ") %%}{{ a%d }}{%% endmacro %%}{%% for i in range(99999) %%}{{ m(1) }}{%% endfor %%}",
             PARAMS - 1);
    refused(source, STEPS);
    free(source);
}

/* A time limit stops a rendering that the default step budget would let continue. */
static void test_time(void **state) {
    static const char source[] = "{% for i in range(99999) %}{% for i in range(99999) %}"
                                 "{% endfor %}{% endfor %}";
    pi_error err = {.status = PI_OK};
    const template_limits limits = {.steps = UINT64_MAX, .memory = UINT64_MAX, .seconds = 0.05};
    (void)state;
    assert_int_equal(render(source, sizeof source - 1, limits, &err), PI_ERR_LIMIT);
    assert_string_equal(err.message, "the template takes more time than it may: template line 1");
}

static void test_integers(void **state) {
    (void)state;
    refused("{{ 2 ** 63 }}", BITS);
    refused("{{ 9223372036854775807 + 1 }}", BITS);
    refused("{{ (-9223372036854775807 - 1) // -1 }}", BITS);
    refused("{{ (-9223372036854775807 - 1)|abs }}", BITS);
    refused("{{ 99999999999999999999 }}", BITS);
    refused("{{ '99999999999999999999'|int }}", BITS);
    refused("{{ 1e300|int }}", BITS);
}

/* Renders `before`, `piece` repeated, `after`. */
static void refused_chain(const char *before, const char *piece, int times, const char *after,
                          const char *message) {
    size_t n = strlen(piece), at = strlen(before);
    char *source = malloc(at + n * (size_t)times + strlen(after) + 1);
    assert_non_null(source);
    memcpy(source, before, at);
    for (int i = 0; i < times; i++, at += n) memcpy(source + at, piece, n);
    memcpy(source + at, after, strlen(after) + 1);
    refused(source, message);
    free(source);
}

static void test_depth(void **state) {
    (void)state;
    refused("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", DEPTH);
    refused("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", DEPTH);
    refused("{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}", DEPTH);
    static const char nest[] = "{% set ns = namespace(l=[], m=[]) %}{% for i in range(5000) %}"
                               "{% set ns.l = [ns.l] %}{% set ns.m = [ns.m] %}{% endfor %}";
    refused_chain(nest, "", 0, "{{ ns.l }}", DEPTH);
    refused_chain(nest, "", 0, "{{ ns.l|tojson }}", DEPTH);
    refused_chain(nest, "", 0, "{{ ns.l == ns.m }}", DEPTH);
    refused_chain(nest, "", 0, "{{ ns.l < ns.m }}", DEPTH);
    refused_chain("{{ ", "not ", 100000, "1 }}", DEPTH);
    refused_chain("{{ ", "-", 100000, "1 }}", DEPTH);
    refused_chain("{{ 1", "+1", 50000, " }}", DEPTH);
    refused_chain("{{ 'a'", "|upper", 5000, " }}", DEPTH);
    refused_chain("{{ a", ".b", 5000, " }}", DEPTH);
    refused_chain("{{ f", "()", 5000, " }}", DEPTH);
    refused_chain("{{ 1", " if 1 else 2", 5000, " }}", DEPTH);
    char close[400 + sizeof "1 }}"] = "1";
    memset(close + 1, ')', 400);
    memcpy(close + 401, " }}", 4);
    refused_chain("{{ ", "(", 400, close, DEPTH);
    refused_chain("{{ ", "[", 10000, "", "more than 512 brackets are open: template line 1");
    refused_chain("", "{% if 1 %}", 5000, "", DEPTH);
    refused_chain("", "{% set x %}", 5000, "", DEPTH);
    refused_chain("{% filter ", "upper|", 5000, "lower %}a{% endfilter %}", DEPTH);
}

/* Templates that are long but not deep. */
static void test_long(void **state) {
    (void)state;
    refused_chain("{% if 0 %}", "{% elif 0 %}", 20000, "{% endif %}{{ nope.x }}",
                  "'nope' is undefined: template line 1");
    refused_chain("{{ 1", " ~ 1", 20000, " }}{{ nope.x }}", "'nope' is undefined: template line 1");
}

static void test_source(void **state) {
    (void)state;
    pi_error err = {.status = PI_OK};
    template_program *program;
    assert_int_equal(template_parse("a\xff", 2, &program, &err), PI_ERR_FORMAT);
    assert_string_equal(err.message, "chat template is not UTF-8 text");
    assert_null(program);
    char *big = calloc(1, TEMPLATE_MAX_BYTES + 1);
    assert_non_null(big);
    assert_int_equal(template_parse(big, TEMPLATE_MAX_BYTES + 1, &program, &err), PI_ERR_LIMIT);
    free(big);
    refused("{% include 'x' %}", "include is not supported in chat templates: template line 1");
    refused("\n\n{% import 'x' as y %}",
            "import is not supported in chat templates: template line 3");
    refused("a\n{{ 1 }}\n{{ 'a' + 1 }}",
            "can only concatenate str (not \"int\") to str: template line 3");
    assert_int_equal(render("\0{{ '\0' }}", 10, (template_limits){0}, &err), PI_OK);
    /* A refusal is the template's own message without a line. */
    refused("\n{{ raise_exception('Only one system message.') }}", "Only one system message.");
}

static int setup(void **state) {
    (void)state;
    return json_parse("{}", 2, "request", &empty, NULL) == PI_OK ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    json_free(empty);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_budgets),  cmocka_unit_test(test_counted),
        cmocka_unit_test(test_scopes),   cmocka_unit_test(test_time),
        cmocka_unit_test(test_integers), cmocka_unit_test(test_depth),
        cmocka_unit_test(test_long),     cmocka_unit_test(test_source),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

#else /* requests need jansson */

int main(void) {
    fprintf(stderr, "*** SKIPPED: built without jansson ***\n");
    return SHARED_SKIPPED;
}

#endif
