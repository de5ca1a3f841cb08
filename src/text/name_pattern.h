/* name_pattern.h: regular expressions with which users match names: PCRE2 syntax; a match may be
 * anywhere in the name unless the pattern is anchored. */
#ifndef TEXT_NAME_PATTERN_H
#define TEXT_NAME_PATTERN_H

#include <stdbool.h>
#include <stddef.h>

#include "error.h"

typedef struct name_pattern name_pattern;

/* PI_ERR_ARG: not a regular expression; `what` begins the message. PI_ERR_UNSUPPORTED (built
 * without PCRE2), PI_ERR_NOMEM. */
pi_status name_pattern_create(const char *text, size_t n, const char *what, name_pattern **out,
                              pi_error *err);
void name_pattern_free(name_pattern *p); /* accepts NULL */
/* Also false when matching takes more steps than PCRE2 allows. */
bool name_pattern_found(const name_pattern *p, const char *name);

#endif
