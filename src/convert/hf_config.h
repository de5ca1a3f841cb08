/* hf_config.h: config.json of a Hugging Face folder, checked, and the GGUF keys made of it. */
#ifndef TOOLS_HF_CONFIG_H
#define TOOLS_HF_CONFIG_H

#include "arch.h"
#include "gguf_writer.h"
#include "json.h"
#include "talk.h"

typedef enum hf_rope_kind {
    HF_ROPE_DEFAULT,
    HF_ROPE_LINEAR,
    HF_ROPE_LLAMA3, /* becomes the tensor rope_freqs */
    HF_ROPE_YARN
} hf_rope_kind;

typedef struct hf_rope {
    hf_rope_kind kind;
    double theta;
    double factor;           /* >= 1 */
    int32_t orig_ctx;        /* context before scaling */
    double low_freq_factor;  /* Llama 3 */
    double high_freq_factor; /* Llama 3 */
    double beta_fast, beta_slow;
    double attn_factor; /* YaRN: on top of the usual 0.1 ln(factor) + 1; 1 unless the file says */
} hf_rope;

typedef enum hf_tied { HF_TIED_NO, HF_TIED_YES, HF_TIED_UNSAID } hf_tied;

typedef struct hf_config {
    const arch_row *arch;
    char name[256]; /* general.name */
    int32_t n_embd, n_ff, n_layer, n_head, n_head_kv, head_dim, n_ctx, n_vocab;
    double norm_eps;
    hf_rope rope;
    activation activation;
    bool has_threshold;
    double threshold; /* FATReLU */
    hf_tied tied;
} hf_config;

/* Reads dir/config.json. PI_ERR_NOT_FOUND without it, PI_ERR_UNSUPPORTED (model type, activation,
 * rope scaling, quantized checkpoints), PI_ERR_FORMAT naming the key. */
pi_status hf_config_read(const char *dir, const talk *t, hf_config *out, pi_error *err);
/* The same from a parsed document; `path` is for messages. The name is left empty. */
pi_status hf_config_parse(const json_node *root, const char *path, const talk *t, hf_config *out,
                          pi_error *err);
/* general.architecture, general.name and the {arch}.* keys. */
void hf_config_put(const hf_config *c, gguf_writer *w);
/* Elements of a tensor along a symbolic dimension. */
uint64_t hf_config_dim(const hf_config *c, arch_dim dim);
/* rope_freqs of Llama 3's rule: the number by which each frequency is divided.
 * factors: [head_dim / 2]. */
void hf_config_rope_factors(const hf_config *c, float *factors);

#endif
