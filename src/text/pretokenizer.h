/* pretokenizer.h: splits a text into the pieces within which BPE may merge. pretokenizer_table.c
 * has the patterns of each name. Immutable after creation, thread-safe. */
#ifndef TEXT_PRETOKENIZER_H
#define TEXT_PRETOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"

enum { PRETOKENIZER_MAX_PATTERNS = 6 };

enum {
    PRE_WHOLE_PIECES = 1,   /* a piece that equals a token becomes that token without merging */
    PRE_WHOLE_NEWLINES = 2, /* also a piece that consists of newlines only */
    PRE_ADD_BOS = 4,        /* unless the file says otherwise */
    PRE_RAW = 8 /* token texts are UTF-8 with U+2581 for spaces and "<0x0A>" for bytes without a
                   token, instead of characters that represent bytes */
};

/* One value of tokenizer.ggml.pre. */
typedef struct pretokenizer_row {
    const char *name;
    const char *const *patterns; /* [n_patterns], PCRE2 syntax */
    int n_patterns;
    int flags; /* PRE_... bits */
} pretokenizer_row;

extern const pretokenizer_row pretokenizer_rows[];
extern const size_t pretokenizer_n_rows;
/* The row for a file without tokenizer.ggml.pre. */
extern const char pretokenizer_default_name[];

typedef struct pretokenizer pretokenizer;

/* The row of a name; NULL when unknown. */
const pretokenizer_row *pretokenizer_find(const char *name, size_t n_bytes);
/* PI_ERR_UNSUPPORTED (built without PCRE2), PI_ERR_NOMEM. */
pi_status pretokenizer_create(const pretokenizer_row *row, pretokenizer **out, pi_error *err);
void pretokenizer_free(pretokenizer *p); /* accepts NULL */

/* Result and scratch memory of one thread's calls; zero it first, then reuse it for later calls. */
typedef struct pretokenizer_pieces {
    char *bytes;    /* [n_bytes] the text, with ill-formed bytes replaced by U+FFFD */
    char *subject;  /* [n_bytes] the text that the patterns match */
    size_t n_bytes; /* at most 3 per byte of the text */
    size_t byte_capacity, subject_capacity;
    uint32_t *ends; /* [n_pieces] exclusive end of each piece within `bytes` */
    size_t n_pieces, end_capacity;
    uint32_t *cuts; /* scratch: the pieces of the previous pattern */
    size_t cut_capacity;
} pretokenizer_pieces;

/* PI_ERR_LIMIT (over 1 GiB, or a pattern exceeded its match limit), PI_ERR_NOMEM. O(n). */
pi_status pretokenizer_split(const pretokenizer *p, const char *text, size_t n_bytes,
                             pretokenizer_pieces *pieces, pi_error *err);
void pretokenizer_pieces_free(pretokenizer_pieces *pieces);

#endif
