/* call_arguments.h: parses the arguments of a call from a text that may be truncated. */
#ifndef SERVER_CALL_ARGUMENTS_H
#define SERVER_CALL_ARGUMENTS_H

#include "json.h"

/* Parses the object in s[n]. A truncated object is kept up to its last complete value; an empty
 * text gives {}. NULL: not an object, or out of memory. */
json_doc *call_arguments_parse(const char *s, size_t n);

#endif
