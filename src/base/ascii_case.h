/* ascii_case.h: compares texts and ignores the case of ASCII letters. */
#ifndef BASE_ASCII_CASE_H
#define BASE_ASCII_CASE_H

#include <stdbool.h>
#include <stddef.h>

static inline char ascii_lower(char c) {
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/* Whether two texts have equal first n bytes, or are equal and shorter. */
static inline bool ascii_same_n(const char *a, const char *b, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (ascii_lower(a[i]) != ascii_lower(b[i])) return false;
        if (!a[i]) return true;
    }
    return true;
}

static inline bool ascii_same(const char *a, const char *b) {
    return ascii_same_n(a, b, (size_t)-1);
}

#endif
