/* chat_template.h: what a model file says about its chat template, for those who render it. */
#ifndef API_CHAT_TEMPLATE_H
#define API_CHAT_TEMPLATE_H

#include <stdbool.h>

#include "error.h"
#include "gguf.h"

/* The file's own template; of several, the one for requests with tools, when `tools`. False: none.
 */
bool chat_template_of(const gguf_file *f, bool tools, gguf_string *out);

/* Text of the token that a key names (mem_free); NULL when there is none. PI_ERR_NOMEM. */
pi_status chat_template_token(const gguf_file *f, const char *key, char **out, pi_error *err);

#define CHAT_TEMPLATE_BOS "tokenizer.ggml.bos_token_id"
#define CHAT_TEMPLATE_EOS "tokenizer.ggml.eos_token_id"

#endif
