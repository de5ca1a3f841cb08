/* page.c: assembles the page. */
#include "page.h"

#include <string.h>

#include "base64.h"
#include "hex_digit.h"
#include "os_text.h"
#include "sha256.h"

/* Appends html[at .. n) up to and including `mark`; returns the end; 0: out of memory. */
static size_t append_up_to(bytes *b, size_t at, const char *mark) {
    const char *html = (const char *)page_html;
    const char *hit = os_find(html + at, page_html_size - at, mark, strlen(mark));
    size_t end = hit ? (size_t)(hit - html) + strlen(mark) : page_html_size;
    return bytes_append(b, html + at, end - at) ? end : 0;
}

enum { DIGEST = SHA256_HEX / 2 };

/* Writes the hash of the bytes appended since `from`, in the form of a Content-Security-Policy. */
static void describe(const bytes *b, size_t from, char text[BASE64_SIZE(DIGEST)]) {
    char hex[SHA256_HEX + 1];
    uint8_t digest[DIGEST];
    sha256_hex(b->data + from, b->used - from, hex);
    for (int i = 0; i < DIGEST; i++)
        digest[i] = (uint8_t)hex_number(hex + 2 * i, hex + SHA256_HEX, 2);
    base64_encode(digest, sizeof digest, text);
}

bool page_create(page *p) {
    char style[BASE64_SIZE(DIGEST)], script[BASE64_SIZE(DIGEST)];
    *p = (page){.policy = ""};
    bytes *b = &p->document;
    size_t at = append_up_to(b, 0, "<style>"), from = b->used;
    bool good = at && bytes_append(b, page_style, page_style_size);
    if (good) describe(b, from, style);
    if (good) at = append_up_to(b, at, "<script>");
    from = b->used;
    good = good && at && bytes_append(b, page_script, page_script_size);
    if (good) describe(b, from, script);
    if (!good || !append_up_to(b, at, "</html>")) {
        page_free(p);
        return false;
    }
    snprintf(p->policy, sizeof p->policy,
             "default-src 'none'; script-src 'sha256-%s'; style-src 'sha256-%s'; connect-src "
             "'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
             script, style);
    return true;
}

void page_free(page *p) {
    bytes_free(&p->document);
}
