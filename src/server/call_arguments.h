/* call_arguments.h: arguments of calls in a text, which may have been cut. */
#ifndef SERVER_CALL_ARGUMENTS_H
#define SERVER_CALL_ARGUMENTS_H

#include "json.h"

/* The object in s[n]: of a beginning of one what stands before its end, up to its last whole value;
 * {} of nothing. NULL: there is none, or no memory. */
json_doc *call_arguments_parse(const char *s, size_t n);

#endif
