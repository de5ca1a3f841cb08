/* convert_lora.h: a PEFT folder of a LoRA adapter: adapter_config.json, checked, and the keys of
 * llama.cpp's adapter files made of it. */
#ifndef CONVERT_CONVERT_LORA_H
#define CONVERT_CONVERT_LORA_H

#include "gguf_writer.h"
#include "hf_config.h"
#include "json.h"
#include "safetensors.h"

typedef struct convert_lora {
    double alpha;    /* changes are alpha / rank times B A, unless convert_lora_factor says more */
    char base[4096]; /* folder with the config.json of the adapted model */
    json_doc *doc;   /* adapter_config.json; owned */
} convert_lora;

bool convert_lora_is(const char *dir);
/* `base`: the folder of the adapted model; NULL: dir itself, or what the adapter names. */
pi_status convert_lora_read(const char *dir, const char *base, convert_lora *out, pi_error *err);
void convert_lora_free(convert_lora *l); /* a zeroed one is fine */
/* What B of a pair [rows, rank] is to be multiplied by, so that alpha holds for it too. Refuses
 * pairs of another rank than the configuration says. */
pi_status convert_lora_factor(const convert_lora *l, const safetensor *b, double *factor,
                              pi_error *err);
void convert_lora_put(const convert_lora *l, const hf_config *c, gguf_writer *w);

#endif
