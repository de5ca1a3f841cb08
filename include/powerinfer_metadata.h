/* powerinfer_metadata.h: metadata and special tokens of a model file. Included by powerinfer.h.
 *
 * Texts go into the caller's buffer, not NUL-terminated. *n_bytes is always set to their length, so
 * a call with capacity 0 queries it; PI_ERR_LIMIT: capacity is too small. Functions are
 * thread-safe. */
#ifndef POWERINFER_METADATA_H
#define POWERINFER_METADATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "powerinfer_status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct pi_model;

typedef enum pi_value_type {
    PI_VALUE_INT,
    PI_VALUE_FLOAT,
    PI_VALUE_BOOL,
    PI_VALUE_TEXT
} pi_value_type;

/* Overrides a value of the file's metadata: a context length, a RoPE base, ... `type` selects the
 * field that holds the new value. */
typedef struct pi_metadata_override {
    const char *key; /* "llama.rope.freq_base"; "*.rope.freq_base" for any architecture */
    pi_value_type type;
    int64_t integer;  /* PI_VALUE_INT */
    double number;    /* PI_VALUE_FLOAT */
    bool truth;       /* PI_VALUE_BOOL */
    const char *text; /* PI_VALUE_TEXT */
} pi_metadata_override;

/* A LoRA adapter: a GGUF file with general.type "adapter", as llama.cpp's. Opening the model merges
 * it into the weights: adapted matrices become F16, F32 ones stay F32. Errors name the adapter's
 * file: PI_ERR_UNSUPPORTED for another architecture or kind of adapter, PI_ERR_FORMAT for shapes or
 * names that differ from the model's. */
typedef struct pi_adapter {
    const char *path;
    float scale; /* 1: as it was trained */
} pi_adapter;

/* Number of keys; for a split model, of its first file. */
PI_API size_t pi_model_n_metadata(const struct pi_model *model);
/* Key number `index`, in file order. PI_ERR_RANGE: index is too large; PI_ERR_LIMIT. */
PI_API pi_status pi_model_metadata_key(const struct pi_model *model, size_t index, char *text,
                                       size_t capacity, size_t *n_bytes, pi_error *err);
/* The value of a key as text: "llama", "4096", "0.000001", "true"; arrays as "[1, 2]" and
 * ["a", "b"] with JSON's escapes. PI_ERR_NOT_FOUND: no such key; PI_ERR_LIMIT. */
PI_API pi_status pi_model_metadata(const struct pi_model *model, const char *key, char *text,
                                   size_t capacity, size_t *n_bytes, pi_error *err);

typedef enum pi_token_role {
    PI_TOKEN_BOS,     /* beginning of a text */
    PI_TOKEN_EOS,     /* end of a text */
    PI_TOKEN_EOT,     /* end of a chat turn */
    PI_TOKEN_EOM,     /* end of a message, before a tool call */
    PI_TOKEN_UNK,     /* unknown */
    PI_TOKEN_SEP,     /* separator */
    PI_TOKEN_PAD,     /* padding */
    PI_TOKEN_MASK,    /* mask */
    PI_TOKEN_NL,      /* newline */
    PI_TOKEN_FIM_PRE, /* fill in the middle: prefix, suffix, middle, padding, */
    PI_TOKEN_FIM_SUF,
    PI_TOKEN_FIM_MID,
    PI_TOKEN_FIM_PAD,
    PI_TOKEN_FIM_REP, /* repository, file separator */
    PI_TOKEN_FIM_SEP,
    PI_TOKEN_ROLES /* number of roles */
} pi_token_role;

/* The special token for a role; -1: none, or no tokenizer. */
PI_API int32_t pi_model_token(const struct pi_model *model, pi_token_role role);

#ifdef __cplusplus
}
#endif
#endif
