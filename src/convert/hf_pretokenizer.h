/* hf_pretokenizer.h: which of GGUF's pre-tokenizer names a tokenizer.json means. GGUF files carry a
 * name only, so the patterns of the JSON file have to be recognised. */
#ifndef CONVERT_HF_PRETOKENIZER_H
#define CONVERT_HF_PRETOKENIZER_H

#include "error.h"
#include "json.h"

/* `node` is the "pre_tokenizer" of tokenizer.json; `path` is for messages. The name is a static
 * string. PI_ERR_UNSUPPORTED shows the first pattern that is in no known list. */
pi_status hf_pretokenizer_name(const json_node *node, const char *path, const char **name,
                               pi_error *err);

#endif
