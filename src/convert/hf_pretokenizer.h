/* hf_pretokenizer.h: finds GGUF's name for the pre-tokenizer of a tokenizer.json. GGUF files only
 * have a name, so the patterns of the JSON file must be recognised. */
#ifndef CONVERT_HF_PRETOKENIZER_H
#define CONVERT_HF_PRETOKENIZER_H

#include "error.h"
#include "json.h"

/* `node` is the "pre_tokenizer" of tokenizer.json; `path` is for messages. The name is a static
 * string. PI_ERR_UNSUPPORTED names the first unknown pattern. */
pi_status hf_pretokenizer_name(const json_node *node, const char *path, const char **name,
                               pi_error *err);

#endif
