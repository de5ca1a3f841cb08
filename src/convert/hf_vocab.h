/* hf_vocab.h: reads everything in a Hugging Face folder that concerns text: tokenizer.model,
 * tokenizer.json, NAME.tiktoken or tiktoken.model, added tokens, special tokens, chat templates. */
#ifndef CONVERT_HF_VOCAB_H
#define CONVERT_HF_VOCAB_H

#include "vocab.h"

/* n_tokens: rows of the embedding matrix. pre: the pre-tokenizer if the files do not name it
 * (tiktoken files, "gemma4"); NULL: unknown. A folder without a tokenizer gives a message and a
 * vocabulary with model NULL. On error *out is zeroed. */
pi_status hf_vocab_read(const char *dir, int32_t n_tokens, const char *pre, const notifier *t,
                        vocab *out, pi_error *err);

#endif
