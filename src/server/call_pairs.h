/* call_pairs.h: calls of tools whose name stands before the arguments. These are marked keys and
 * values, <call>NAME<key>K</key><value>V</value></call>, one JSON object, or literals of a
 * programming language, NAME(K=V). Which marks there are is found out by tool_style.h. Marked
 * values stand as they are, so that the tool's schema decides what they mean. */
#ifndef SERVER_CALL_PAIRS_H
#define SERVER_CALL_PAIRS_H

#include "bytes.h"
#include "call_literal.h"

/* In a mark: any word of letters, digits, '_' and '-': a number or an id that each call has. */
#define CALL_WORD  "\x01"
#define CALL_WORD_ '\x01'

/* Whether such words have this character. */
static inline bool call_is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
}

/* A call is open begin NAME name_end ARGUMENTS close; each further call within the same `open` has
 * `again` in place of open and begin, and `end` follows the last. ARGUMENTS are one JSON object;
 * with key_begin: (key_begin KEY key_end VALUE value_end)*; with literal.equals: KEY equals VALUE
 * with commas between them, from the bracket that ends name_end to its partner. With elements a
 * value ends with value_end KEY key_end, and objects and arrays consist of such pairs themselves,
 * the items of an array with the key CALL_ITEM.
 * Blanks at the borders of marks may differ in the text, but those that end key_end and begin
 * value_end belong to no value. */
#define CALL_ITEM "item"

typedef struct call_pairs {
    const char *open, *begin;
    const char *name_end[2]; /* two forms of it, or one twice */
    const char *key_begin;   /* "": no marked keys and values */
    const char *key_end[2];  /* before a string, and before another value */
    const char *value_end, *close;
    bool elements;           /* value_end is key_begin and a slash */
    const char *again, *end; /* again "": a further call has an `open` of its own */
    call_literal literal;    /* equals 0: arguments are no literals */
    bool sorted;             /* keys of literals are */
    /* The id of a call is the word in name_end: with id_begin also what is before it, the name
     * included, behind this text. NULL: an id is not written. */
    const char *id_begin;
    bool has_id;
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

/* What there is of a call; its bytes are the caller's to free. */
typedef struct call_found {
    bytes name, arguments; /* arguments: a JSON object; of a call that was cut its beginning */
    char id[128];          /* "": none */
    size_t used;           /* extent of the call */
    bool failed;           /* out of memory */
} call_found;

/* The call that s[n] begins with (`again`: a further one). tools: definitions as a request has
 * them, NULL: none. scan: zeroed for each call, kept while its text grows. CALL_MORE is not
 * returned for a text that ends, and for one that was cut only before the name is complete.
 * CALL_READ: *found is filled; of a call that was cut arguments end with a whole pair, JSON
 * anywhere. */
call_outcome call_pairs_read(const call_pairs *p, call_scan *scan, const char *s, size_t n,
                             bool again, call_end end, const json_node *tools, call_found *found);

/* Kinds of values that a schema allows by its types, enums and alternatives: bits 1 << json_kind.
 * root: where its references begin. */
unsigned call_pairs_kinds(const json_node *schema, const json_node *root);
/* The schema that a reference means. */
const json_node *call_pairs_schema(const json_node *schema, const json_node *root);

#endif
