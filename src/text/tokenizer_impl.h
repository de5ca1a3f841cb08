/* tokenizer_impl.h: types shared by the parts of the tokenizer. tokenizer.h is the interface.
 *
 *   tokenizer_vocab.c    loads a tokenizer from a GGUF file
 *   tokenizer_roles.c    finds tokens with a role, by key or text
 *   tokenizer_special.c  finds the tokens that are matched in text before anything else
 *   tokenizer_spm.c      tokenizes the text between them, by scores
 *   tokenizer_bpe.c      tokenizes the text between them, by pieces and merges
 *   tokenizer_wordpiece.c  tokenizes words as the longest tokens that form them
 *   tokenizer_unigram.c  tokenizes the text between them as the tokens with the best scores
 *   tokenizer_longest.c  tokenizes the text between them as the longest tokens
 *   tokenizer_prefix.c   finds the tokens that begin at a place
 *   tokenizer_plain.c    vocabularies of plain UTF-8: escaped spaces, byte tokens
 *   tokenizer.c          combines these, and detokenization */
#ifndef TEXT_TOKENIZER_IMPL_H
#define TEXT_TOKENIZER_IMPL_H

#include "arena.h"
#include "merge_heap.h"
#include "pretokenizer.h"
#include "text_table.h"
#include "tokenizer.h"

enum { TOKENIZER_BYTES = 256 };

/* tokenizer.ggml.model: "llama", "gpt2" and "gemma4", "bert", "t5", "rwkv". */
typedef enum tokenizer_kind {
    KIND_SPM,
    KIND_BPE,
    KIND_WORDPIECE,
    KIND_UNIGRAM,
    KIND_LONGEST
} tokenizer_kind;

/* Attributes of a token in addition to its type. */
enum {
    TOKEN_STRIP_LEFT = 1, /* the token removes the blanks before it */
    TOKEN_STRIP_RIGHT = 2,
    TOKEN_ENDS_TURN = 4
};

typedef struct token_entry {
    gguf_string text; /* in the memory of the file */
    float score;
    uint8_t type;       /* token_type after overrides */
    uint8_t attributes; /* TOKEN_STRIP_LEFT, ... */
} token_entry;

/* A merge of two symbols (numbers in tokenizer.table). */
typedef struct merge_slot {
    uint64_t pair;   /* left << 32 | right */
    uint32_t rank;   /* smaller merges first */
    uint32_t result; /* symbol + 1; 0: free slot */
} merge_slot;

/* Tokens matched before tokenization, see tokenizer_special.c. Token texts have numbers. */
#define SPECIAL_NONE UINT32_MAX

/* A node of the automaton, which reads texts from their end. Its children are the nodes [children,
 * children of the next node), ordered by byte. */
typedef struct special_node {
    uint32_t children;
    uint32_t fail; /* the next node to try when no child matches */
    uint32_t text; /* the longest text that begins at the current place, or SPECIAL_NONE */
    uint8_t byte;  /* on the edge to this node */
} special_node;

/* A token of a view; views are ordered by priority. */
typedef struct special_token {
    int32_t id;
    uint32_t n_bytes;
    uint32_t up;   /* the longest proper prefix that is a token, or SPECIAL_NONE */
    uint32_t jump; /* an ancestor further up */
    uint32_t depth;
} special_token;

enum { SPECIAL_ALL, SPECIAL_USER_DEFINED, SPECIAL_VIEWS };

/* The tokens that a search considers. */
typedef struct special_view {
    special_token *tokens; /* [n] */
    uint32_t n;
    uint32_t *of_text; /* [texts] the longest token that is a prefix of the text, itself included */
} special_view;

typedef struct special_index {
    special_node *nodes; /* [n_nodes + 1], the root first; NULL without tokens */
    uint32_t n_nodes;
    uint32_t first[TOKENIZER_BYTES]; /* children of the root by byte; 0: no child */
    special_view views[SPECIAL_VIEWS];
} special_index;

/* Replacements of unigram's normalization, in the memory of the file. */
typedef struct charsmap {
    const uint8_t *array; /* [n_array] 32-bit nodes, little-endian, unaligned */
    size_t n_array;       /* 0: no replacements */
    const char *texts;    /* [n_texts], ends with a NUL */
    size_t n_texts;
} charsmap;

struct tokenizer {
    arena memory;
    tokenizer_info info;
    int32_t roles[TOKEN_ROLE_COUNT]; /* -1: none */
    tokenizer_kind kind;
    token_entry *tokens; /* [n_vocab] */
    /* Symbols are strings: the texts of all tokens and, for BPE, both sides of every merge. */
    text_table table;
    int32_t *symbol_token; /* [table.count] the token of a symbol, -1: none */
    size_t longest_token;  /* bytes */
    bool words_are_apart;  /* spm: no token has U+2581 after another character */
    special_index special;
    /* The token of each byte, -1: none. In byte-level vocabularies: the token of each one-byte
     * text. */
    int32_t byte_token[TOKENIZER_BYTES];
    /* bpe only */
    uint32_t byte_symbol[TOKENIZER_BYTES]; /* the character for a byte; not with PRE_RAW */
    merge_slot *merges;                    /* [n_merge_slots], a power of two */
    size_t n_merge_slots;
    hash_key merge_key;
    int pre_flags; /* PRE_... bits */
    pretokenizer *pre;
    /* wordpiece, unigram and longest only */
    int32_t *prefixes; /* [n_prefixes] tokens, ordered by text */
    uint32_t n_prefixes;
    bool lower_case, strip_accents; /* wordpiece */
    /* unigram only */
    bool merge_spaces; /* removes spaces at both ends, and all but one between words */
    float unknown_score;
    charsmap charsmap;
};

/* Receives ids: stores the first `capacity` and counts all. */
typedef struct token_sink {
    int32_t *tokens;
    size_t capacity, n;
    bool stops; /* tokens beyond the capacity need not be counted */
} token_sink;

static inline bool token_sink_done(const token_sink *sink) {
    return sink->stops && sink->n > sink->capacity;
}

static inline void token_sink_put(token_sink *sink, int32_t id) {
    if (sink->n < sink->capacity) sink->tokens[sink->n] = id;
    sink->n++;
}

/* unigram: the best way to write the text up to a place. */
typedef struct unigram_cell {
    double score;
    int32_t token; /* the last token */
    uint32_t from; /* where it begins */
} unigram_cell;

/* Scratch memory of one encode call. */
typedef struct encode_work {
    merge_work merge;
    pretokenizer_pieces pieces; /* for bpe */
    char *buffer;               /* text with escaped spaces, or a piece as characters for bytes */
    size_t buffer_capacity;
    unigram_cell *cells; /* for unigram */
    size_t cell_capacity;
} encode_work;

/* A part of the text: raw bytes (id < 0) or a token found in it. */
typedef struct text_fragment {
    size_t begin, n_bytes;
    int32_t id;
} text_fragment;

typedef struct fragment_list {
    text_fragment *items; /* [n] */
    size_t n, capacity;
    size_t steps; /* steps of the search, O(n log n) for a text of n bytes */
} fragment_list;

pi_status tokenizer_load(tokenizer *t, const gguf_file *file, const char *pre, pi_error *err);
bool tokenizer_is_special(const token_entry *token);
void tokenizer_roles_load(tokenizer *t, const gguf_file *file);
pi_status tokenizer_special_build(tokenizer *t, pi_error *err);
void tokenizer_special_free(special_index *index);
pi_status tokenizer_special_split(const tokenizer *t, const char *text, size_t n_bytes,
                                  bool parse_special, fragment_list *fragments, pi_error *err);
pi_status tokenizer_spm_load(tokenizer *t, pi_error *err);
pi_status tokenizer_spm_encode(const tokenizer *t, const char *text, size_t n_bytes,
                               bool space_prefix, encode_work *work, token_sink *sink,
                               pi_error *err);
pi_status tokenizer_bpe_load(tokenizer *t, const gguf_value *merges, pi_error *err);
pi_status tokenizer_bpe_encode(const tokenizer *t, const char *text, size_t n_bytes,
                               encode_work *work, token_sink *sink, pi_error *err);
pi_status tokenizer_wordpiece_load(tokenizer *t, const gguf_file *file, pi_error *err);
pi_status tokenizer_wordpiece_encode(const tokenizer *t, const char *text, size_t n_bytes,
                                     encode_work *work, token_sink *sink, pi_error *err);
pi_status tokenizer_unigram_load(tokenizer *t, const gguf_file *file, pi_error *err);
pi_status tokenizer_unigram_encode(const tokenizer *t, const char *text, size_t n_bytes,
                                   encode_work *work, token_sink *sink, pi_error *err);
/* Replaces the texts of all tokens by their bytes. */
pi_status tokenizer_longest_unescape(tokenizer *t, pi_error *err);
pi_status tokenizer_longest_load(tokenizer *t, pi_error *err);
/* A byte that begins no token becomes the unknown token, or nothing if there is none. */
void tokenizer_longest_encode(const tokenizer *t, const char *text, size_t n_bytes,
                              token_sink *sink);
/* Orders the tokens whose types (1 << token_type) are in `types`. */
pi_status tokenizer_prefixes_build(tokenizer *t, uint32_t types, pi_error *err);
/* The ordered tokens that begin with the `depth` bytes read so far. */
typedef struct prefix_walk {
    uint32_t begin, end;
    size_t depth;
} prefix_walk;
static inline prefix_walk tokenizer_prefix_begin(const tokenizer *t) {
    return (prefix_walk){.end = t->n_prefixes};
}
/* Reads one more byte; *id gets the token that consists of all bytes read, -1: none. False: no
 * token begins with them. */
bool tokenizer_prefix_next(const tokenizer *t, prefix_walk *w, char c, int32_t *id);
pi_status tokenizer_bad_key(pi_error *err, const char *key, const char *what);
/* Keeps *flag without the key. */
pi_status tokenizer_load_flag(const gguf_file *file, const char *key, bool *flag, pi_error *err);
/* The bytes of a token's text, mapped back from characters; at most as many as the text has. */
size_t tokenizer_bpe_unmap(gguf_string text, char *out);
/* Whether token texts write spaces as U+2581. */
static inline bool tokenizer_escapes_spaces(const tokenizer *t) {
    return t->kind != KIND_BPE || t->pre_flags & PRE_RAW;
}
/* Writes the text into work->buffer with U+2581 for spaces, with one in front if space_prefix;
 * *n_escaped bytes. PI_ERR_LIMIT: over half a GiB; PI_ERR_NOMEM. */
pi_status tokenizer_escape_spaces(const char *text, size_t n_bytes, bool space_prefix,
                                  encode_work *work, size_t *n_escaped, pi_error *err);
/* Length in bytes of the character that starts with `lead`, also when ill-formed. */
static inline size_t tokenizer_character_bytes(char lead) {
    unsigned char c = (unsigned char)lead;
    return c < 0xC0 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
}
/* Replaces U+2581 in a token's text by spaces; returns the number of bytes, at most
 * text.n_bytes. */
size_t tokenizer_unescape_spaces(gguf_string text, char *out);
/* The byte of a token such as "<0x0A>"; -1: another text. */
int tokenizer_byte_of(gguf_string text);
/* Fills byte_token with such tokens. */
void tokenizer_find_byte_tokens(tokenizer *t);
/* The token with this text; -1: none. */
int32_t tokenizer_find(const tokenizer *t, const char *text, size_t n_bytes);

/* U+2581, the space of SentencePiece vocabularies. */
#define SPM_SPACE "\xE2\x96\x81"
enum { SPM_SPACE_BYTES = 3 };

#endif
