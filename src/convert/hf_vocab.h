/* hf_vocab.h: everything a Hugging Face folder says about text: tokenizer.model or tokenizer.json,
 * added tokens, special tokens, chat templates. */
#ifndef TOOLS_HF_VOCAB_H
#define TOOLS_HF_VOCAB_H

#include "vocab.h"

/* n_tokens: rows of the embedding matrix. A folder without a tokenizer gives a vocabulary whose
 * model is NULL, and a message. On error *out is zeroed. */
pi_status hf_vocab_read(const char *dir, int32_t n_tokens, const talk *t, vocab *out,
                        pi_error *err);

#endif
