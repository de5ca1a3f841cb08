/* convert_lora.h: a PEFT folder of a LoRA adapter: adapter_config.json, checked, and the keys of
 * llama.cpp's adapter files made of it. */
#ifndef CONVERT_CONVERT_LORA_H
#define CONVERT_CONVERT_LORA_H

#include "gguf_writer.h"
#include "hf_config.h"

typedef struct convert_lora {
    float alpha;     /* changes are alpha / rank times B A */
    char base[4096]; /* folder with the config.json of the adapted model */
} convert_lora;

bool convert_lora_is(const char *dir);
/* `base`: the folder of the adapted model; NULL: dir itself, or what the adapter names. */
pi_status convert_lora_read(const char *dir, const char *base, convert_lora *out, pi_error *err);
void convert_lora_put(const convert_lora *l, const hf_config *c, gguf_writer *w);

#endif
