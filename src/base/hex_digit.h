/* hex_digit.h: the value of a hexadecimal digit, for readers of escapes. */
#ifndef BASE_HEX_DIGIT_H
#define BASE_HEX_DIGIT_H

/* Of 0-9, a-f and A-F; -1: c is none. */
static inline int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

#endif
