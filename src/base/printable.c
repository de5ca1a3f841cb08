/* printable.c: see printable.h. */
#include "printable.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "utf8_length.h"

/* Code point of a well-formed sequence. */
static uint32_t decode(const unsigned char *c, size_t length) {
    static const unsigned char lead[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    uint32_t code = c[0] & lead[length];
    for (size_t i = 1; i < length; i++) code = code << 6 | (c[i] & 0x3f);
    return code;
}

/* Bidi_Control of Unicode's PropList.txt, U+2028, U+2029 and control characters. */
static bool is_command(uint32_t code) {
    return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x61c ||
           (code >= 0x200e && code <= 0x200f) || (code >= 0x2028 && code <= 0x202e) ||
           (code >= 0x2066 && code <= 0x2069);
}

size_t printable_length(const char *s, size_t n) {
    const unsigned char *c = (const unsigned char *)s;
    size_t length = utf8_length(c, n);
    return length == 0 || is_command(decode(c, length)) ? 0 : length;
}

/* One escaped byte and a NUL. */
enum { ESCAPE_BYTES = 5 };

/* Writes a byte as \n \r \t or \xHH; returns the number of characters. */
static size_t write_escape(char out[ESCAPE_BYTES], char byte) {
    switch (byte) {
    case '\n':
        return (size_t)snprintf(out, ESCAPE_BYTES, "\\n");
    case '\r':
        return (size_t)snprintf(out, ESCAPE_BYTES, "\\r");
    case '\t':
        return (size_t)snprintf(out, ESCAPE_BYTES, "\\t");
    default:
        return (size_t)snprintf(out, ESCAPE_BYTES, "\\x%02X", (unsigned char)byte);
    }
}

size_t printable_copy(char *out, size_t room, const char *s, size_t n) {
    size_t used = 0;
    for (size_t i = 0; i < n;) {
        char escape[ESCAPE_BYTES];
        const char *from = s + i;
        size_t taken = printable_length(from, n - i), length = taken;
        if (taken == 0) {
            length = write_escape(escape, s[i]);
            taken = 1;
            from = escape;
        }
        if (length >= room - used) break;
        memcpy(out + used, from, length);
        used += length;
        i += taken;
    }
    out[used] = 0;
    return used;
}

void printable_print(FILE *out, const char *s, size_t n) {
    for (size_t i = 0; i < n;) {
        char escape[ESCAPE_BYTES];
        size_t length = printable_length(s + i, n - i);
        if (length == 0)
            fwrite(escape, 1, write_escape(escape, s[i]), out);
        else
            fwrite(s + i, 1, length, out);
        i += length ? length : 1;
    }
}
