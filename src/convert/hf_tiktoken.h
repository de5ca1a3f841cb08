/* hf_tiktoken.h: NAME.tiktoken, a list of tokens (base64) and their ranks, one per line: byte-level
 * BPE; merges that create tokens of lower rank come first. The file has no special tokens. */
#ifndef CONVERT_HF_TIKTOKEN_H
#define CONVERT_HF_TIKTOKEN_H

#include "vocab.h"

/* Reads tokens and merges; `path` is for messages. PI_ERR_FORMAT with the line, PI_ERR_LIMIT,
 * PI_ERR_NOMEM. */
pi_status hf_tiktoken_parse(const char *text, size_t n_bytes, const char *path, vocab *v,
                            pi_error *err);

#endif
