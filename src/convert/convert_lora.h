/* convert_lora.h: a PEFT folder of a LoRA adapter: adapter_config.json, checked, and the keys of
 * llama.cpp's adapter files made from it. */
#ifndef CONVERT_CONVERT_LORA_H
#define CONVERT_CONVERT_LORA_H

#include "gguf_writer.h"
#include "hf_config.h"
#include "json.h"
#include "safetensors.h"

typedef struct convert_lora {
    double alpha;    /* the change is alpha / rank times B A, corrected by convert_lora_factor */
    char base[4096]; /* folder with the config.json of the base model */
    json_doc *doc;   /* adapter_config.json; owned */
} convert_lora;

bool convert_lora_is(const char *dir);
/* `base`: folder of the base model; NULL: dir itself, or the folder that the adapter names. */
pi_status convert_lora_read(const char *dir, const char *base, convert_lora *out, pi_error *err);
void convert_lora_free(convert_lora *l); /* accepts a zeroed one */
/* Returns the factor of B of a pair [rows, rank] with which alpha applies to this pair as well.
 * Refuses pairs whose rank differs from the configuration. */
pi_status convert_lora_factor(const convert_lora *l, const safetensor *b, double *factor,
                              pi_error *err);
void convert_lora_put(const convert_lora *l, const hf_config *c, gguf_writer *w);

#endif
