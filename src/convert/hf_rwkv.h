/* hf_rwkv.h: reads the vocabulary of RWKV's "World" models, rwkv_vocab_v20230424.txt: a line per
 * token with its id, its text or bytes as Python writes them, and the number of bytes. */
#ifndef CONVERT_HF_RWKV_H
#define CONVERT_HF_RWKV_H

#include "vocab.h"

#define HF_RWKV_FILE "rwkv_vocab_v20230424.txt"

/* PI_ERR_FORMAT: names the line. */
pi_status hf_rwkv_parse(const char *text, size_t n_bytes, const char *path, vocab *v,
                        pi_error *err);

#endif
