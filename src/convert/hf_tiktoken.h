/* hf_tiktoken.h: NAME.tiktoken, a list of tokens (base64) and their ranks, a line each: byte-level
 * BPE whose merges are those that make tokens of lower ranks. Special tokens are not in it. */
#ifndef CONVERT_HF_TIKTOKEN_H
#define CONVERT_HF_TIKTOKEN_H

#include "vocab.h"

/* Tokens and merges; `path` is for messages. PI_ERR_FORMAT with the line, PI_ERR_LIMIT,
 * PI_ERR_NOMEM. */
pi_status hf_tiktoken_parse(const char *text, size_t n_bytes, const char *path, vocab *v,
                            pi_error *err);

#endif
