/* unicode_class.h: the code points of a Unicode property, as in the \p{name} of regular
 * expressions. */
#ifndef TEXT_UNICODE_CLASS_H
#define TEXT_UNICODE_CLASS_H

#include <stddef.h>
#include <stdint.h>

#include "error.h"

typedef struct unicode_range {
    uint32_t first, last;
} unicode_range;

typedef struct unicode_class {
    unicode_range *ranges; /* [n] ascending, without surrogates */
    size_t n, capacity;
} unicode_class;

/* name[n]: L, Lu, Letter, Script=Greek, Extended_Pictographic ... in PCRE2's spelling.
 * PI_ERR_NOT_FOUND; PI_ERR_UNSUPPORTED: built without PCRE2; PI_ERR_NOMEM. Takes some 20 ms. */
pi_status unicode_class_find(const char *name, size_t n, unicode_class *out);
void unicode_class_free(unicode_class *c); /* accepts a zeroed class */

#endif
