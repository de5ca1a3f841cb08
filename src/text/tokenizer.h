/* tokenizer.h: converts text to token ids and back, with the vocabulary of a GGUF file.
 *
 * Kinds: `llama` (SentencePiece BPE by scores, byte fallback), `gpt2` (byte-level BPE by merges,
 * text split by a pre-tokenizer), `gemma4` (BPE by merges of plain text, byte fallback), `bert`
 * (WordPiece), `t5` (SentencePiece's unigram model) and `rwkv` (the longest tokens that match).
 * Immutable after creation; encode and decode are thread-safe. */
#ifndef TEXT_TOKENIZER_H
#define TEXT_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"
#include "gguf.h"

enum { TOKENIZER_MAX_VOCAB = 1 << 22 };

/* tokenizer.ggml.token_type */
typedef enum token_type {
    TOKEN_UNDEFINED,
    TOKEN_NORMAL,
    TOKEN_UNKNOWN,
    TOKEN_CONTROL,
    TOKEN_USER_DEFINED,
    TOKEN_UNUSED,
    TOKEN_BYTE
} token_type;

/* Same as pi_token_role (powerinfer_metadata.h). */
typedef enum token_role {
    TOKEN_ROLE_BOS,
    TOKEN_ROLE_EOS,
    TOKEN_ROLE_EOT,
    TOKEN_ROLE_EOM,
    TOKEN_ROLE_UNK,
    TOKEN_ROLE_SEP,
    TOKEN_ROLE_PAD,
    TOKEN_ROLE_MASK,
    TOKEN_ROLE_NL,
    TOKEN_ROLE_FIM_PRE,
    TOKEN_ROLE_FIM_SUF,
    TOKEN_ROLE_FIM_MID,
    TOKEN_ROLE_FIM_PAD,
    TOKEN_ROLE_FIM_REP,
    TOKEN_ROLE_FIM_SEP,
    TOKEN_ROLE_COUNT
} token_role;

enum {
    TOKENIZER_ADD_SPECIAL = 1,   /* add BOS / EOS where the vocabulary requests them */
    TOKENIZER_FORCE_BOS = 2,     /* BOS in any case; `bert` and `t5`: also the token at the end */
    TOKENIZER_PARSE_SPECIAL = 4, /* control tokens in the text are recognised */
    TOKENIZER_STOP = 8           /* stop as soon as more than `capacity` tokens are found */
};

typedef struct tokenizer_info {
    int32_t n_vocab;
    int32_t bos, eos, eot, unk, pad; /* -1: no such token */
    bool add_bos, add_eos, add_space_prefix;
    const char *model; /* tokenizer.ggml.model: "llama", "gpt2", "gemma4", "bert", "t5",
                          "rwkv" */
    const char *pre;   /* name of the pre-tokenizer, "" if the kind has none */
} tokenizer_info;

typedef struct tokenizer tokenizer;

/* `pre` overrides tokenizer.ggml.pre (NULL: no override). The file must stay open.
 * PI_ERR_NOT_FOUND: tokenizer.ggml.model is "none" or absent. PI_ERR_FORMAT: malformed vocabularies
 * (missing arrays, different lengths, ids out of range). PI_ERR_UNSUPPORTED: unknown model or
 * pre-tokenizer name (the message lists the known ones), or built without PCRE2. */
pi_status tokenizer_create(const gguf_file *file, const char *pre, tokenizer **out, pi_error *err);
void tokenizer_free(tokenizer *t); /* accepts NULL */
const tokenizer_info *tokenizer_get_info(const tokenizer *t);

/* Accepts any bytes. Writes at most `capacity` ids; *n_tokens is the number of tokens, stored or
 * not, so a call with capacity 0 counts them. A byte may need three tokens: a byte that is not
 * UTF-8 is treated as U+FFFD in a `gpt2` vocabulary, a space as U+2581 in a `llama` one.
 * PI_ERR_LIMIT: more tokens than `capacity`; PI_ERR_NOMEM. Time is O(n log n), for `bert` and `t5`
 * times the length of the longest token in the text. With TOKENIZER_STOP,
 * a *n_tokens above the capacity is a lower bound. */
pi_status tokenizer_encode(const tokenizer *t, const char *text, size_t n_text, uint32_t flags,
                           int32_t *tokens, size_t capacity, size_t *n_tokens, pi_error *err);

/* Like tokenizer_encode, into a new array of the right size (free with mem_free); NULL after an
 * error. `what` names the text in the out-of-memory message. */
pi_status tokenizer_encode_new(const tokenizer *t, const char *text, size_t n_text, uint32_t flags,
                               const char *what, int32_t **tokens, size_t *n_tokens, pi_error *err);

/* The bytes that a token adds to a text; control tokens add none unless `special`. *n_bytes is
 * always set; PI_ERR_LIMIT when it exceeds capacity; PI_ERR_RANGE. */
pi_status tokenizer_piece(const tokenizer *t, int32_t id, bool special, char *text, size_t capacity,
                          size_t *n_bytes, pi_error *err);
/* Decodes a whole sequence; removes the space prefix of `llama` vocabularies. */
pi_status tokenizer_decode(const tokenizer *t, const int32_t *ids, size_t n_ids, bool special,
                           char *text, size_t capacity, size_t *n_bytes, pi_error *err);

/* Writes the printable character that represents a byte in the texts of `gpt2` vocabularies: 1 or 2
 * bytes of UTF-8. Returns their number. */
size_t tokenizer_spell_byte(uint8_t byte, char *out);

/* True for EOS, EOT and the tokens that end a turn of chat models ("<|im_end|>", "<|eot_id|>",
 * ...). */
bool tokenizer_is_end(const tokenizer *t, int32_t id);

/* The token with a role; -1: none. */
int32_t tokenizer_role(const tokenizer *t, token_role role);

#endif
