/* page.h: the page that GET / returns: one document that contains its style and script, and a
 * policy that lets the browser run and fetch nothing else. */
#ifndef SERVER_PAGE_H
#define SERVER_PAGE_H

#include "bytes.h"

typedef struct page {
    bytes document;
    char policy[512]; /* Content-Security-Policy with the hashes of style and script */
} page;

/* False: out of memory. */
bool page_create(page *p);
void page_free(page *p); /* accepts a zeroed page */

/* The files of page/, converted to arrays by the build. */
extern const unsigned char page_html[], page_style[], page_script[];
extern const size_t page_html_size, page_style_size, page_script_size;

#endif
