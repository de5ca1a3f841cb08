/* fuzz_hf_json.c: any JSON as config.json, generation_config.json and tokenizer.json: the result is
 * an error, or numbers within their limits and a vocabulary with all texts. */
#include <stdlib.h>
#include <string.h>

#include "fuzz_target.h"
#include "hf_config.h"
#include "hf_generation.h"
#include "hf_tokenizer.h"
#include "model.h"

enum { N_TOKENS = 64 }; /* rows of the embedding matrix; the vocabulary must fit them */

static void try_config(const json_node *root) {
    hf_config c;
    pi_error err = {0};
    if (hf_config_parse(root, "fuzz", NULL, &c, &err) != PI_OK) return;
    if (c.n_embd < 1 || c.n_embd > MODEL_MAX_DIM || (c.n_head > 0 && c.n_head % c.n_head_kv != 0) ||
        c.head_dim % 2 != 0 || c.n_vocab < 1 || c.n_vocab > MODEL_MAX_VOCAB ||
        c.rope.n_rot % 2 != 0 || c.rope.n_rot > c.head_dim)
        abort();
    const hf_recurrent *s = &c.recurrent;
    if (s->n_inner < 0 || s->n_inner > MODEL_MAX_DIM || s->n_conv < 0 ||
        (s->n_group > 0 && (s->n_head % s->n_group != 0 || s->n_inner % s->n_head != 0)))
        abort();
    static const tensor_role roles[] = {ROLE_ROPE_FREQS, ROLE_ROPE_LONG, ROLE_ROPE_SHORT};
    for (int k = 0; k < 3; k++) {
        float factors[HF_MAX_HEAD_DIM / 2];
        if (!hf_config_has_factors(&c, roles[k])) continue;
        hf_config_rope_factors(&c, roles[k], factors);
        for (int i = 0; i < c.rope.n_rot / 2; i++)
            if (!(factors[i] > 0)) abort();
    }
}

static void try_generation(const json_node *root) {
    hf_generation g;
    pi_error err = {0};
    if (hf_generation_parse(root, "fuzz", &g, &err) != PI_OK) return;
    for (int i = 0; i < HF_GENERATION_KEYS; i++)
        if (g.has[i] && !(g.values[i] >= 0 && g.values[i] <= 1 << 24)) abort();
}

static void try_tokenizer(const json_node *root, const char *pre) {
    vocab v;
    pi_error err = {0};
    pi_status status = vocab_init(&v, N_TOKENS, &err);
    if (status == PI_OK) status = hf_tokenizer_read(root, "fuzz", pre, NULL, &v, &err);
    if (status == PI_OK) status = hf_tokenizer_added(root, "fuzz", NULL, &v, &err);
    int32_t n_padded = 0;
    if (status == PI_OK) status = vocab_pad(&v, &n_padded, &err);
    if (status == PI_OK) {
        v.bos = vocab_search(&v, "a", 1);
        hf_tokenizer_post_processor(root, &v);
        for (int i = 0; i < N_TOKENS; i++)
            if (!v.tokens[i].text.data || v.tokens[i].text.n_bytes == 0) abort();
    }
    vocab_free(&v);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    json_doc *doc = NULL;
    pi_error err = {0};
    if (json_parse((const char *)data, n, "fuzz", &doc, &err) != PI_OK) return 0;
    try_config(json_root(doc));
    try_generation(json_root(doc));
    try_tokenizer(json_root(doc), NULL);
    try_tokenizer(json_root(doc), "gemma4");
    json_free(doc);
    return 0;
}

size_t fuzz_seed(size_t i, uint8_t *data, size_t max) {
    static const char *const seeds[] = {
        "{\"model_type\":\"llama\",\"hidden_size\":64,\"intermediate_size\":96,"
        "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"vocab_size\":40,\"hidden_act\":"
        "\"fatrelu\",\"hidden_act_param\":0.1,\"max_position_embeddings\":512,\"rope_scaling\":{"
        "\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,\"high_freq_factor\":4}}",
        "{\"added_tokens\":[{\"id\":9,\"content\":\"<x>\",\"special\":true}],\"pre_tokenizer\":"
        "{\"type\":\"ByteLevel\"},\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":"
        "[{\"SpecialToken\":{\"id\":\"a\"}}]},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,"
        "\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}}",
        "{\"do_sample\":true,\"temperature\":0.6,\"top_k\":20,\"top_p\":0.95,\"min_p\":0}",
        "{\"normalizer\":{\"type\":\"Prepend\"},\"pre_tokenizer\":{\"type\":\"Metaspace\"},"
        "\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,\"unk_token\":\"a\",\"vocab\":{\"a\":0,"
        "\"<0x0A>\":1,\"aa\":2},\"merges\":[[\"a\",\"a\"]]}}",
    };
    if (i >= sizeof seeds / sizeof seeds[0] || strlen(seeds[i]) > max) return 0;
    memcpy(data, seeds[i], strlen(seeds[i]));
    return strlen(seeds[i]);
}
