/* unicode_class.c: gets the classes from PCRE2's Unicode tables: it searches a text of all code
 * points for runs with the property. */
#include "unicode_class.h"

#include <stdio.h>
#include <string.h>

#include "mem.h"
#include "utf8.h"

void unicode_class_free(unicode_class *c) {
    mem_free(c->ranges);
    *c = (unicode_class){.n = 0};
}

#ifdef TEXT_HAVE_PCRE2

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

enum { CODE_POINTS = 0x110000, CLASS_RANGES_MAX = 1 << 16, NAME_MAX_BYTES = 64 };

/* All code points except surrogates. */
static char *all_characters(size_t *n) {
    char *text = mem_alloc((size_t)CODE_POINTS * UTF8_MAX_BYTES);
    *n = 0;
    for (uint32_t code = 0; text && code < CODE_POINTS; code++)
        if (code < 0xd800 || code > 0xdfff) *n += utf8_encode(code, text + *n);
    return text;
}

static bool add_run(unicode_class *c, const char *from, const char *to) {
    size_t step;
    const char *last = to - 1;
    while (((unsigned char)*last & 0xc0) == 0x80) last--;
    if (!mem_grow((void **)&c->ranges, &c->capacity, c->n + 1, sizeof *c->ranges, CLASS_RANGES_MAX))
        return false;
    uint32_t first = (uint32_t)utf8_decode(from, (size_t)(to - from), &step);
    uint32_t end = (uint32_t)utf8_decode(last, (size_t)(to - last), &step);
    c->ranges[c->n++] = (unicode_range){first, end};
    return true;
}

/* False: out of memory. */
static bool find_runs(const pcre2_code *code, pcre2_match_data *match, unicode_class *out) {
    size_t n, at = 0;
    bool good = true;
    char *text = all_characters(&n);
    if (!text) return false;
    while (at < n && good &&
           pcre2_match(code, (PCRE2_SPTR)text, n, at, PCRE2_NO_UTF_CHECK, match, NULL) > 0) {
        const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(match);
        good = add_run(out, text + ends[0], text + ends[1]);
        at = ends[1];
    }
    mem_free(text);
    return good;
}

pi_status unicode_class_find(const char *name, size_t n, unicode_class *out) {
    /* Names that PCRE2 spells differently. */
    static const struct {
        const char *name, *pcre2;
    } others[] = {
        {"Letter", "L"},    {"Lowercase_Letter", "Ll"}, {"Uppercase_Letter", "Lu"}, {"Mark", "M"},
        {"Number", "N"},    {"Decimal_Number", "Nd"},   {"Punctuation", "P"},       {"Symbol", "S"},
        {"Separator", "Z"}, {"Space_Separator", "Zs"},  {"Control", "Cc"}};
    static const char general[] = "General_Category=", short_general[] = "gc=";
    char pattern[NAME_MAX_BYTES + 16];
    int number;
    PCRE2_SIZE where;
    *out = (unicode_class){.n = 0};
    if (n > NAME_MAX_BYTES) return PI_ERR_NOT_FOUND;
    for (size_t i = 0; i < n; i++) {
        char c = name[i];
        bool word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!word && c != '_' && c != '=') return PI_ERR_NOT_FOUND;
    }
    if (n > strlen(general) && memcmp(name, general, strlen(general)) == 0) {
        name += strlen(general);
        n -= strlen(general);
    } else if (n > strlen(short_general) &&
               memcmp(name, short_general, strlen(short_general)) == 0) {
        name += strlen(short_general);
        n -= strlen(short_general);
    }
    snprintf(pattern, sizeof pattern, "\\p{%.*s}++", (int)n, name);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strlen(others[i].name) == n && memcmp(others[i].name, name, n) == 0)
            snprintf(pattern, sizeof pattern, "\\p{%s}++", others[i].pcre2);
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                                     PCRE2_UTF | PCRE2_UCP, &number, &where, NULL);
    if (!code) return number == PCRE2_ERROR_NOMEMORY ? PI_ERR_NOMEM : PI_ERR_NOT_FOUND;
    pcre2_match_data *match = pcre2_match_data_create_from_pattern(code, NULL);
    bool good = match && find_runs(code, match, out);
    pcre2_match_data_free(match);
    pcre2_code_free(code);
    if (good) return PI_OK;
    unicode_class_free(out);
    return PI_ERR_NOMEM;
}

#else

pi_status unicode_class_find(const char *name, size_t n, unicode_class *out) {
    (void)name;
    (void)n;
    *out = (unicode_class){.n = 0};
    return PI_ERR_UNSUPPORTED;
}

#endif
