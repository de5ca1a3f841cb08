/* hf_tokenizer.h: reads tokenizer.json of a Hugging Face folder. Two kinds are supported:
 * byte-level BPE ("gpt2"), and SentencePiece-like BPE with byte fallback ("llama", or "gemma4" with
 * merges instead of scores). */
#ifndef CONVERT_HF_TOKENIZER_H
#define CONVERT_HF_TOKENIZER_H

#include "json.h"
#include "vocab.h"

/* Reads tokens, merges or scores, and the pre-tokenizer; `pre` as in hf_vocab_read.
 * PI_ERR_UNSUPPORTED: another kind of model, or an unknown pre-tokenizer; PI_ERR_FORMAT: ids out of
 * range, or merges that name unknown tokens. */
pi_status hf_tokenizer_read(const json_node *root, const char *path, const char *pre,
                            const notifier *t, vocab *v, pi_error *err);
/* Reads "added_tokens": special tokens become control tokens, others become user-defined. Ids
 * beyond the embedding matrix are dropped with a message. Also reads from the "post_processor"
 * whether BOS and EOS are added, if not yet known; this needs v->bos and v->eos. */
pi_status hf_tokenizer_added(const json_node *root, const char *path, const notifier *t, vocab *v,
                             pi_error *err);
void hf_tokenizer_post_processor(const json_node *root, vocab *v);
/* Adds one token of any file. */
pi_status hf_tokenizer_add_one(vocab *v, int64_t id, const char *text, size_t n_bytes, bool special,
                               const char *path, const notifier *t, pi_error *err);

#endif
