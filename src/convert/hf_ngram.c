/* hf_ngram.c: Qwen4: gated hyper-connections, index keys of several positions, and the embeddings
 * of n-grams in one layer. */
#include <string.h>

#include "hf_config.h"

void hf_ngrams_read(hf_reader *r, hf_config *c) {
    const char *key;
    hf_ngrams *g = &c->ngrams;
    int64_t layer = 0;
    g->layer = -1;
    if (r->status != PI_OK || !arch_tensor_of(c->arch, ROLE_NGRAM_EMBD)) return;
    c->n_stream = hf_int(r, (hf_names){"hc_count"}, -1, 2, MODEL_MAX_STREAMS);
    c->n_hyper_rank = hf_int(r, (hf_names){"hc_lowrank"}, -1, 1, MODEL_MAX_DIM);
    const char *gate = hf_text(r->text, "output_gate_type");
    if (!gate || strcmp(gate, "sigmoid") != 0)
        hf_fail(r, "output_gate_type", "is not sigmoid, which is not supported");
    const json_node *list = hf_find(r, (hf_names){"ple_layer_ids"}, &key);
    if (json_count(list) == 0) return;
    if (json_count(list) != 1 || !json_as_int(json_at(list, 0), &layer) || layer < 1 ||
        layer > c->n_layer) {
        hf_fail(r, key, "does not name one layer");
        return;
    }
    g->size = hf_int(r, (hf_names){"ngram_size"}, -1, 2, MODEL_MAX_NGRAM);
    g->n_head = hf_int(r, (hf_names){"heads_per_ngram"}, -1, 1, MODEL_MAX_NGRAM_ROWS);
    g->n_taps = hf_int(r, (hf_names){"ple_conv_kernel_size"}, -1, 1, 64);
    const int32_t n_embd = hf_int(r, (hf_names){"ple_embed_dim"}, -1, 1, MODEL_MAX_DIM);
    const json_node *eos = hf_find(r, (hf_names){"eos_token_id"}, &key);
    int64_t id = -1;
    json_as_int(json_kind_of(eos) == JSON_ARRAY ? json_at(eos, 0) : eos, &id);
    if (id < 0 || id >= c->n_vocab) hf_fail(r, key, "is not a token");
    if (r->status != PI_OK) return;
    g->n_rows = (g->size - 1) * g->n_head;
    if (g->n_rows > MODEL_MAX_NGRAM_ROWS || n_embd % g->n_rows != 0) {
        hf_fail(r, "ple_embed_dim", "is not a multiple of the number of n-gram heads");
        return;
    }
    g->layer = (int32_t)layer - 1;
    g->n_embd = n_embd / g->n_rows;
    g->divider = (int32_t)id;
}

void hf_ngrams_put(const hf_config *c, gguf_writer *w) {
    const hf_ngrams *g = &c->ngrams;
    char key[HF_KEY_TEXT];
    if (c->n_hyper_rank == 0) return;
    hf_put_u32(w, c, "hyper_connection.count", c->n_stream);
    hf_put_u32(w, c, "hyper_connection.low_rank", c->n_hyper_rank);
    if (g->layer < 0) return;
    gguf_put_array(w, hf_key(key, c, "ple.layers"), GGUF_I32, &g->layer, 1);
    hf_put_u32(w, c, "ple.ngram_size", g->size);
    hf_put_u32(w, c, "ple.heads_per_ngram", g->n_head);
    hf_put_u32(w, c, "ple.conv_kernel", g->n_taps);
    hf_put_u32(w, c, "ple.eos_token_id", g->divider);
    hf_put_u32(w, c, "embedding_length_per_layer_input", g->n_embd);
    gguf_put_array(w, hf_key(key, c, "ple.layer_multipliers"), GGUF_I64, g->multipliers,
                   (uint64_t)g->size);
    gguf_put_array(w, hf_key(key, c, "ple.head_offsets"), GGUF_I64, g->first, (uint64_t)g->n_rows);
    gguf_put_array(w, hf_key(key, c, "ple.head_vocab_sizes"), GGUF_I64, g->sizes,
                   (uint64_t)g->n_rows);
}
