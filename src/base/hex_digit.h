/* hex_digit.h: values of hexadecimal digits, for parsers of escapes. */
#ifndef BASE_HEX_DIGIT_H
#define BASE_HEX_DIGIT_H

#include <stdint.h>

/* Value of 0-9, a-f and A-F; -1 for other characters. */
static inline int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* Value of n hexadecimal digits, at most 8, at `at` and before `end`; -1: fewer than n digits. */
static inline int64_t hex_number(const char *at, const char *end, int n) {
    int64_t value = 0;
    if (end - at < n) return -1;
    for (int i = 0; i < n; i++) {
        const int digit = hex_digit(at[i]);
        if (digit < 0) return -1;
        value = value * 16 + digit;
    }
    return value;
}

#endif
