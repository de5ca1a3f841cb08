/* vocab_trie.h: a trie of the tokens' bytes, so that one walk finds the tokens that a grammar
 * allows. Immutable, shared by all grammars of a model. Private to src/grammar and src/api. */
#ifndef GRAMMAR_VOCAB_TRIE_H
#define GRAMMAR_VOCAB_TRIE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"

/* Grammars never allow longer tokens; the longest published tokens are runs of spaces. */
enum { VOCAB_TOKEN_MAX = 512 };

/* Nodes in preorder: a node, its descendants, its next sibling. */
typedef struct vocab_node {
    uint32_t end;         /* the node after all descendants */
    uint32_t first_token; /* first index in `tokens`; the node's tokens end where those of the next
                             node begin */
    uint16_t depth;       /* 1: first byte of a token */
    uint8_t byte;
} vocab_node;

typedef struct vocab_trie {
    int32_t n_vocab;
    size_t n_nodes;
    vocab_node *nodes; /* [n_nodes + 1]; the last node only ends the tokens */
    int32_t *tokens;   /* tokens with text, sorted by their bytes */
    int32_t *ends;     /* [n_ends] tokens that end a text; not in `tokens` */
    size_t n_ends;
    uint32_t longest; /* bytes of the longest token */
    char *bytes;      /* bytes of all tokens */
    size_t *offsets;  /* [n_vocab + 1] in `bytes` */
} vocab_trie;

/* A vocabulary: the text of each token, and the tokens that end a text. */
typedef struct vocab_source {
    const void *user;
    int32_t n_vocab;
    /* Bytes of a token inside a text, none for control tokens. Bytes beyond the capacity may be
     * left out. */
    size_t (*text)(const void *user, int32_t token, char *bytes, size_t capacity);
    bool (*is_end)(const void *user, int32_t token);
} vocab_source;

/* PI_ERR_NOMEM. */
pi_status vocab_trie_create(const vocab_source *source, vocab_trie **out, pi_error *err);
void vocab_trie_free(vocab_trie *t); /* accepts NULL */

static inline const char *vocab_text(const vocab_trie *t, int32_t token, size_t *n) {
    *n = t->offsets[token + 1] - t->offsets[token];
    return t->bytes + t->offsets[token];
}

#endif
