/* utf8.c: decodes by the table of well-formed byte sequences (Unicode 15, table 3-7), written as
 * ranges of the second byte. Pure functions. */
#include "utf8.h"

/* Length of the sequence that starts with `lead`, and the allowed range of its second byte; 0 when
 * no well-formed sequence starts with it. The ranges exclude overlong forms, surrogates and code
 * points above U+10FFFF. */
static size_t lead_info(unsigned char lead, unsigned char *low, unsigned char *high) {
    *low = 0x80;
    *high = 0xBF;
    if (lead < 0x80) return 1;
    if (lead < 0xC2) return 0;
    if (lead < 0xE0) return 2;
    if (lead < 0xF0) {
        if (lead == 0xE0) *low = 0xA0;
        if (lead == 0xED) *high = 0x9F;
        return 3;
    }
    if (lead > 0xF4) return 0;
    if (lead == 0xF0) *low = 0x90;
    if (lead == 0xF4) *high = 0x8F;
    return 4;
}

int32_t utf8_decode(const char *s, size_t n, size_t *step) {
    const unsigned char *p = (const unsigned char *)s;
    unsigned char low, high;
    size_t length = lead_info(p[0], &low, &high);
    *step = 1;
    if (length == 1) return p[0];
    if (length == 0 || length > n || p[1] < low || p[1] > high) return -1;
    /* a lead byte carries 7 - length payload bits */
    int32_t code_point = p[0] & (0x7F >> length);
    for (size_t i = 1; i < length; i++) {
        if ((p[i] & 0xC0) != 0x80) return -1;
        code_point = code_point << 6 | (p[i] & 0x3F);
    }
    *step = length;
    return code_point;
}

size_t utf8_encode(uint32_t code_point, char out[UTF8_MAX_BYTES]) {
    uint32_t c = code_point;
    if (c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF)) c = UTF8_REPLACEMENT;
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    size_t length = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = length - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (c & 0x3F));
        c >>= 6;
    }
    out[0] = (char)((0xF00u >> length & 0xF0u) | c);
    return length;
}

bool utf8_is_valid(const char *s, size_t n) {
    size_t step;
    for (size_t i = 0; i < n; i += step) {
        if (utf8_decode(s + i, n - i, &step) < 0) return false;
    }
    return true;
}

size_t utf8_complete_prefix(const char *s, size_t n) {
    /* Only the last three bytes can belong to an incomplete sequence. */
    for (size_t back = 1; back < UTF8_MAX_BYTES && back <= n; back++) {
        const unsigned char *p = (const unsigned char *)s + (n - back);
        if ((*p & 0xC0) == 0x80) continue;
        unsigned char low, high;
        size_t length = lead_info(*p, &low, &high);
        bool open = length > back && (back == 1 || (p[1] >= low && p[1] <= high));
        return open ? n - back : n;
    }
    return n;
}
