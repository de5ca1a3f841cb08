/* base64.c: see base64.h. */
#include "base64.h"

size_t base64_encode(const uint8_t *from, size_t n, char *text) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *to = text;
    for (size_t i = 0; i < n; i += 3) {
        size_t left = n - i;
        uint32_t bits = (uint32_t)from[i] << 16 | (left > 1 ? (uint32_t)from[i + 1] << 8 : 0) |
                        (left > 2 ? (uint32_t)from[i + 2] : 0);
        *to++ = digits[bits >> 18];
        *to++ = digits[bits >> 12 & 63];
        *to++ = left > 1 ? digits[bits >> 6 & 63] : '=';
        *to++ = left > 2 ? digits[bits & 63] : '=';
    }
    *to = 0;
    return (size_t)(to - text);
}

static int base64_value(char c) {
    return c >= 'A' && c <= 'Z'   ? c - 'A'
           : c >= 'a' && c <= 'z' ? c - 'a' + 26
           : c >= '0' && c <= '9' ? c - '0' + 52
           : c == '+'             ? 62
           : c == '/'             ? 63
                                  : -1;
}

size_t base64_decode(const char *text, size_t n, uint8_t *out, size_t room) {
    size_t used = 0;
    while (n > 0 && text[n - 1] == '=') n--;
    uint32_t bits = 0;
    int n_bits = 0;
    for (size_t i = 0; i < n; i++) {
        int value = base64_value(text[i]);
        if (value < 0 || used == room) return 0;
        bits = bits << 6 | (uint32_t)value;
        n_bits += 6;
        if (n_bits < 8) continue;
        n_bits -= 8;
        out[used++] = (uint8_t)(bits >> n_bits);
    }
    return used;
}
