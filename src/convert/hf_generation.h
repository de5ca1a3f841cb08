/* hf_generation.h: the sampling settings that generation_config.json recommends, as GGUF's
 * general.sampling.* keys. */
#ifndef CONVERT_HF_GENERATION_H
#define CONVERT_HF_GENERATION_H

#include "gguf_writer.h"
#include "json.h"

enum { HF_GENERATION_KEYS = 5 };

typedef struct hf_generation {
    bool has[HF_GENERATION_KEYS];
    double values[HF_GENERATION_KEYS];
} hf_generation;

/* Nothing is there in a folder without the file, or when it says not to sample. PI_ERR_FORMAT: a
 * setting that is no number, or out of range. */
pi_status hf_generation_read(const char *dir, hf_generation *out, pi_error *err);
/* The same from a parsed document; `path` is for messages. */
pi_status hf_generation_parse(const json_node *root, const char *path, hf_generation *out,
                              pi_error *err);
void hf_generation_put(const hf_generation *g, gguf_writer *w);

#endif
