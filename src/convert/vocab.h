/* vocab.h: a vocabulary between a Hugging Face folder and GGUF keys.
 *
 * It has exactly as many tokens as the embedding matrix has rows; ids that no file defines become
 * unused "[PADn]" tokens. The vocabulary's arena holds all texts. Not thread-safe. */
#ifndef CONVERT_VOCAB_H
#define CONVERT_VOCAB_H

#include "arena.h"
#include "gguf_writer.h"
#include "hash.h"
#include "notifier.h"
#include "tokenizer.h"

typedef enum vocab_flag { VOCAB_UNSAID = -1, VOCAB_NO = 0, VOCAB_YES = 1 } vocab_flag;

enum {
    VOCAB_MAX_TEXT = 65535,     /* bytes of a token */
    VOCAB_MAX_MERGES = 1 << 23, /* twice the largest vocabulary */
    VOCAB_MAX_TEMPLATES = 32
};

typedef struct vocab_token {
    gguf_string text; /* data NULL: not yet defined */
    float score;
    token_type type;
} vocab_token;

typedef struct vocab_template {
    const char *name; /* "": the default template */
    gguf_string text;
} vocab_template;

typedef struct vocab {
    arena arena;
    /* "llama", "gpt2", "gemma4", "bert", "t5", "rwkv"; NULL: the folder has no tokenizer */
    const char *model;
    const char *pre;     /* pre-tokenizer of gpt2, "default" of t5, NULL otherwise */
    vocab_token *tokens; /* [n_tokens] */
    int32_t n_tokens;
    gguf_string *merges; /* [n_merges] "left right", best first; for gpt2 and gemma4 */
    size_t n_merges, merges_capacity;
    int32_t bos, eos, eot, unk, pad, cls, sep, mask; /* -1: none */
    vocab_flag add_bos, add_eos, add_space_prefix, merge_spaces, lower_case, strip_accents;
    const uint8_t *charsmap; /* [n_charsmap] t5: SentencePiece's table of replacements */
    size_t n_charsmap;
    vocab_template templates[VOCAB_MAX_TEMPLATES];
    int n_templates;
    uint32_t *index; /* hash table of ids + 1, see vocab_find; NULL: not built */
    size_t index_mask;
    hash_key index_key;
} vocab;

/* Scores of tokens that merging never produces. */
#define VOCAB_SCORE_ADDED  (-1000.0f)
#define VOCAB_SCORE_UNUSED (-10000.0f)

pi_status vocab_init(vocab *v, int32_t n_tokens, pi_error *err);
void vocab_free(vocab *v); /* accepts a zeroed vocabulary */

/* Defines (or redefines) a token of 0..n_tokens-1; copies the text. PI_ERR_LIMIT: the text is empty
 * or too long; PI_ERR_NOMEM. */
pi_status vocab_set(vocab *v, int32_t id, const char *text, size_t n_bytes, float score,
                    token_type type, pi_error *err);
pi_status vocab_add_merge(vocab *v, const char *left, size_t n_left, const char *right,
                          size_t n_right, pi_error *err);
/* Builds the index for vocab_find. PI_ERR_FORMAT: two ids have the same text; the message names
 * `source`. Call once, after all base tokens are defined. */
pi_status vocab_build_index(vocab *v, const char *source, pi_error *err);
/* Returns the id of a base token's text; -1: none. O(1); needs the index. */
int32_t vocab_find(const vocab *v, const char *text, size_t n_bytes);
/* Searches all tokens, including added tokens, linearly; for the few special tokens. */
int32_t vocab_search(const vocab *v, const char *text, size_t n_bytes);
/* Defines the remaining ids as unused tokens; returns their number. */
pi_status vocab_pad(vocab *v, int32_t *n_padded, pi_error *err);
/* Writes the tokenizer.* keys. PI_ERR_NOMEM. */
pi_status vocab_put(const vocab *v, gguf_writer *w, pi_error *err);

#endif
