/* hf_generation.h: the sampling settings that generation_config.json recommends, written as GGUF's
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

/* *out is empty when the folder lacks the file, or when the file disables sampling. PI_ERR_FORMAT:
 * a setting is not a number, or is out of range. */
pi_status hf_generation_read(const char *dir, hf_generation *out, pi_error *err);
/* Reads a parsed document; `path` is for messages. */
pi_status hf_generation_parse(const json_node *root, const char *path, hf_generation *out,
                              pi_error *err);
void hf_generation_put(const hf_generation *g, gguf_writer *w);

#endif
