/* template_unicode.h: letters and their case, for the string methods of templates. With utf8proc
 * they cover all of Unicode; without it only ASCII. */
#ifndef TEMPLATE_UNICODE_H
#define TEMPLATE_UNICODE_H

#include <stdbool.h>
#include <stdint.h>

bool tpl_is_space(uint32_t c);    /* like str.isspace() and str.strip(); never ASCII-only */
bool tpl_is_line_end(uint32_t c); /* like str.splitlines() */
bool tpl_is_printable(uint32_t c);
bool tpl_is_alpha(uint32_t c);
bool tpl_is_decimal(uint32_t c);
bool tpl_is_digit(uint32_t c); /* decimals, superscripts and circled digits */
bool tpl_is_numeric(uint32_t c);
bool tpl_is_upper(uint32_t c);
bool tpl_is_lower(uint32_t c);
bool tpl_is_title(uint32_t c);
uint32_t tpl_to_upper(uint32_t c); /* one code point; see template_string.c for sharp s */
uint32_t tpl_to_lower(uint32_t c);
uint32_t tpl_to_title(uint32_t c);

static inline bool tpl_is_word(uint32_t c) { /* \w of regular expressions */
    return c == '_' || tpl_is_alpha(c) || tpl_is_numeric(c);
}

#endif
