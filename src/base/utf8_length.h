/* utf8_length.h: checks for well-formed UTF-8, for writers of formats that allow nothing else. */
#ifndef BASE_UTF8_LENGTH_H
#define BASE_UTF8_LENGTH_H

#include <stddef.h>

/* Length in bytes of the well-formed UTF-8 sequence at s; 0 when there is none (Unicode table 3-7:
 * no overlong forms, no surrogates, nothing above U+10FFFF). */
static inline size_t utf8_length(const unsigned char *s, size_t n) {
    unsigned char c = s[0], low = 0x80, high = 0xbf;
    size_t length;
    if (c < 0x80) return 1;
    if (c >= 0xc2 && c <= 0xdf) {
        length = 2;
    } else if (c >= 0xe0 && c <= 0xef) {
        length = 3;
        if (c == 0xe0) low = 0xa0;
        if (c == 0xed) high = 0x9f;
    } else if (c >= 0xf0 && c <= 0xf4) {
        length = 4;
        if (c == 0xf0) low = 0x90;
        if (c == 0xf4) high = 0x8f;
    } else {
        return 0;
    }
    if (length > n || s[1] < low || s[1] > high) return 0;
    for (size_t i = 2; i < length; i++) {
        if (s[i] < 0x80 || s[i] > 0xbf) return 0;
    }
    return length;
}

#endif
