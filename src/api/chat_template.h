/* chat_template.h: chat template and BOS and EOS texts of a model file. */
#ifndef API_CHAT_TEMPLATE_H
#define API_CHAT_TEMPLATE_H

#include <stdbool.h>

#include "error.h"
#include "gguf.h"

/* The file's chat template; tools: its template for tools, if it has one. False: no template. */
bool chat_template_of(const gguf_file *f, bool tools, gguf_string *out);

/* *out: text of the token whose id is the key's value (mem_free); NULL: none. PI_ERR_NOMEM. */
pi_status chat_template_token(const gguf_file *f, const char *key, char **out, pi_error *err);

#define CHAT_TEMPLATE_BOS "tokenizer.ggml.bos_token_id"
#define CHAT_TEMPLATE_EOS "tokenizer.ggml.eos_token_id"

#endif
