/* template_unicode.c: character classes from utf8proc's tables, or ASCII without utf8proc. */
#include "template_unicode.h"

#ifdef TEMPLATE_HAVE_UTF8PROC
#include <utf8proc.h>
#endif

bool tpl_is_space(uint32_t c) {
    return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
           c == 0x202f || c == 0x205f || c == 0x3000;
}

bool tpl_is_line_end(uint32_t c) {
    return (c >= 10 && c <= 13) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
           c == 0x2029;
}

static bool between(uint32_t c, char low, char high) {
    return c >= (uint32_t)low && c <= (uint32_t)high;
}

#ifdef TEMPLATE_HAVE_UTF8PROC

static utf8proc_category_t category(uint32_t c) {
    return utf8proc_category((utf8proc_int32_t)c);
}

bool tpl_is_printable(uint32_t c) {
    if (c < 0x80) return between(c, ' ', '~');
    switch (category(c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
        return false;
    default:
        return true;
    }
}

bool tpl_is_alpha(uint32_t c) {
    utf8proc_category_t k = category(c);
    return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

bool tpl_is_decimal(uint32_t c) {
    return category(c) == UTF8PROC_CATEGORY_ND;
}

bool tpl_is_digit(uint32_t c) {
    return tpl_is_decimal(c) || c == 0xb2 || c == 0xb3 || c == 0xb9 || c == 0x2070 ||
           (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089) ||
           (c >= 0x2460 && c <= 0x2468);
}

bool tpl_is_numeric(uint32_t c) {
    utf8proc_category_t k = category(c);
    return k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO;
}

bool tpl_is_upper(uint32_t c) {
    return category(c) == UTF8PROC_CATEGORY_LU;
}

bool tpl_is_lower(uint32_t c) {
    return category(c) == UTF8PROC_CATEGORY_LL || c == 0xaa || c == 0xba;
}

bool tpl_is_title(uint32_t c) {
    return category(c) == UTF8PROC_CATEGORY_LT;
}

uint32_t tpl_to_upper(uint32_t c) {
    return (uint32_t)utf8proc_toupper((utf8proc_int32_t)c);
}

uint32_t tpl_to_lower(uint32_t c) {
    return (uint32_t)utf8proc_tolower((utf8proc_int32_t)c);
}

uint32_t tpl_to_title(uint32_t c) {
    return (uint32_t)utf8proc_totitle((utf8proc_int32_t)c);
}

#else

bool tpl_is_printable(uint32_t c) {
    return c >= ' ' && c != 0x7f && !(c >= 0x80 && c <= 0xa0) && c != 0xad &&
           (c == ' ' || !tpl_is_space(c));
}

bool tpl_is_alpha(uint32_t c) {
    return tpl_is_upper(c) || tpl_is_lower(c);
}

bool tpl_is_decimal(uint32_t c) {
    return between(c, '0', '9');
}

bool tpl_is_digit(uint32_t c) {
    return tpl_is_decimal(c);
}

bool tpl_is_numeric(uint32_t c) {
    return tpl_is_decimal(c);
}

bool tpl_is_upper(uint32_t c) {
    return between(c, 'A', 'Z');
}

bool tpl_is_lower(uint32_t c) {
    return between(c, 'a', 'z');
}

bool tpl_is_title(uint32_t c) {
    (void)c;
    return false;
}

uint32_t tpl_to_upper(uint32_t c) {
    return tpl_is_lower(c) ? c - 'a' + 'A' : c;
}

uint32_t tpl_to_lower(uint32_t c) {
    return tpl_is_upper(c) ? c - 'A' + 'a' : c;
}

uint32_t tpl_to_title(uint32_t c) {
    return tpl_to_upper(c);
}

#endif
