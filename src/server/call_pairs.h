/* call_pairs.h: reads tool calls whose name stands before the arguments. Arguments are marked keys
 * and values, <call>NAME<key>K</key><value>V</value></call>, one JSON object, or literals of a
 * programming language, NAME(K=V). tool_style.h finds the marks. Marked values are raw text, so the
 * tool's schema decides their type. */
#ifndef SERVER_CALL_PAIRS_H
#define SERVER_CALL_PAIRS_H

#include "bytes.h"
#include "call_literal.h"

/* In a mark: any word of letters, digits, '_' and '-', such as the number or id of a call. */
#define CALL_WORD  "\x01"
#define CALL_WORD_ '\x01'

/* Whether such words may contain this character. */
static inline bool call_is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
}

/* A call is `open begin NAME name_end ARGUMENTS close`. Each further call within the same `open`
 * has `again` in place of open and begin; `end` follows the last call. ARGUMENTS are one JSON
 * object; with key_begin: (key_begin KEY key_end VALUE value_end)*; with literal.equals: KEY equals
 * VALUE, separated by commas, from the bracket that ends name_end to its partner. With `elements` a
 * value ends with value_end KEY key_end; objects and arrays then consist of such pairs themselves,
 * and the items of an array have the key CALL_ITEM. Blanks at the borders of marks may differ in
 * the text. Blanks that end key_end and begin value_end are not part of the value. */
#define CALL_ITEM "item"

typedef struct call_pairs {
    const char *open, *begin;
    const char *name_end[2]; /* two forms of the mark, or one form twice */
    const char *key_begin;   /* "": no marked keys and values */
    const char *key_end[2];  /* [0] before a string, [1] before another value */
    const char *value_end, *close;
    bool elements;           /* value_end is key_begin followed by a slash */
    const char *again, *end; /* again "": each further call begins with `open` */
    call_literal literal;    /* equals 0: arguments are not literals */
    bool sorted;             /* keys of literals are sorted */
    /* The id of a call is the word in name_end. With id_begin the id is id_begin followed by the
     * text from the name through that word: functions.NAME:0. NULL: the id is the word alone. */
    const char *id_begin;
    bool has_id;
} call_pairs;

typedef enum call_outcome {
    CALL_MORE, /* the text may become a call */
    CALL_NONE,
    CALL_READ
} call_outcome;

/* Whether the text can grow. */
typedef enum call_end {
    CALL_GOES_ON, /* more text may follow */
    CALL_ENDS,
    CALL_CUT /* the text was truncated, perhaps within a call */
} call_end;

/* Takes the mark at the beginning of s[n], after blanks; *used: its length. CALL_NONE: something
 * else. */
call_outcome call_pairs_mark(const char *mark, const char *s, size_t n, size_t *used);

/* Parts of a call; the caller frees the buffers. */
typedef struct call_found {
    /* arguments: a JSON object; for a truncated call, the beginning of one */
    bytes name, arguments;
    char id[128]; /* "": none */
    size_t used;  /* length of the call */
    bool failed;  /* out of memory */
} call_found;

/* Reads the call that s[n] begins with (`again`: a further call). tools: definitions in the form of
 * a request; NULL: none. scan: zero it for each call, keep it while the text grows. CALL_MORE is
 * not returned for a text that ends; for a truncated text, it is returned only before the name is
 * complete. CALL_READ fills *found; the arguments of a truncated call end with a complete pair,
 * JSON may end anywhere. */
call_outcome call_pairs_read(const call_pairs *p, call_scan *scan, const char *s, size_t n,
                             bool again, call_end end, const json_node *tools, call_found *found);

/* Returns the kinds of values that a schema allows by its types, enums and alternatives, as bits 1
 * << json_kind. root: document for references. */
unsigned call_pairs_kinds(const json_node *schema, const json_node *root);
/* Resolves a reference. */
const json_node *call_pairs_schema(const json_node *schema, const json_node *root);

#endif
