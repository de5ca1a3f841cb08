/* page.h: the page that GET / answers with: one document with its style and script within, and a
 * policy that lets the browser run and fetch nothing else. */
#ifndef SERVER_PAGE_H
#define SERVER_PAGE_H

#include "bytes.h"

typedef struct page {
    bytes document;
    char policy[512]; /* Content-Security-Policy, with the hashes of style and script */
} page;

/* False: out of memory. */
bool page_create(page *p);
void page_free(page *p); /* a zeroed one is fine */

/* The files of page/, made into arrays by the build. */
extern const unsigned char page_html[], page_css[], page_markdown_js[], page_picture_js[],
    page_app_js[];
extern const size_t page_html_size, page_css_size, page_markdown_js_size, page_picture_js_size,
    page_app_js_size;

#endif
