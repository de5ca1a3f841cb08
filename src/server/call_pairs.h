/* call_pairs.h: calls of tools whose arguments are marked keys and values instead of JSON:
 * <call>NAME<key>K</key><value>V</value></call>. Which marks there are is found out by
 * tool_style.h. Values stand as they are, so that the tool's schema decides what they mean. */
#ifndef SERVER_CALL_PAIRS_H
#define SERVER_CALL_PAIRS_H

#include "bytes.h"

/* A call is open begin NAME name_end (key_begin KEY key_end VALUE value_end)* close; each further
 * call within the same `open` has `again` in place of open and begin, and `end` follows the last.
 * Blanks at the borders of marks may differ in the text, but those that end key_end and begin
 * value_end belong to no value. */
typedef struct call_pairs {
    const char *open, *begin, *name_end, *key_begin;
    const char *key_end[2];        /* before a string, and before another value */
    const char *value_end, *close; /* key_begin "": one JSON object in place of all pairs */
    const char *again, *end;       /* again "": a further call has an `open` of its own */
} call_pairs;

typedef enum call_outcome {
    CALL_MORE, /* it may become a call */
    CALL_NONE,
    CALL_READ
} call_outcome;

/* What follows a text. */
typedef enum call_end {
    CALL_GOES_ON, /* there may be more */
    CALL_ENDS,
    CALL_CUT /* it was cut off, perhaps within a call */
} call_end;

/* The mark at the beginning of s[n], behind blanks: *used: its extent. CALL_NONE: something else.
 */
call_outcome call_pairs_mark(const char *mark, const char *s, size_t n, size_t *used);

/* The call that s[n] begins with (`again`: a further one). tools: definitions as a request has
 * them, NULL: none. CALL_MORE is not returned for a text that ends, and for one that was cut only
 * before the name is complete. CALL_READ: *used is its extent, and name and arguments (a JSON
 * object; of a call that was cut its beginning, with whole pairs) are appended, when there is
 * memory: else *failed. */
call_outcome call_pairs_read(const call_pairs *p, const char *s, size_t n, bool again, call_end end,
                             const json_node *tools, bytes *name, bytes *arguments, size_t *used,
                             bool *failed);

/* Length of the JSON object or array that s[n] begins with; 0: not complete (or none). */
size_t call_json_extent(const char *s, size_t n);

/* Kinds of values that a schema allows by its types, enums and alternatives: bits 1 << json_kind.
 * root: where its references begin. */
unsigned call_pairs_kinds(const json_node *schema, const json_node *root);

#endif
