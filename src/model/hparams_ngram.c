/* hparams_ngram.c: hyperparameters of Qwen4: index keys of several positions, embeddings of
 * n-grams. */
#include "hparams_reader.h"

void hparams_read_pools(key_reader *r, const arch_row *arch, model_hparams *hp,
                        model_layer_hparams *layers) {
    static const char suffix[] = "attention.compress_ratios";
    char key[KEY_TEXT];
    const gguf_value *v = hparams_find(r, suffix, key);
    const int32_t top = hp->block_top;
    int64_t size = 0, ratio = 0;
    for (int i = 0; i < hp->n_layer && arch->index_pools && v && r->status == PI_OK; i++) {
        model_layer_hparams *l = &layers[i];
        bool is_list = v->type == GGUF_ARRAY;
        if (!(is_list ? gguf_item_i64(v, (uint64_t)i, &ratio) : gguf_as_i64(v, &ratio)) ||
            ratio < 0 || ratio > INT32_MAX / 2 || top > INT32_MAX / 2) {
            hparams_fail(r, key, "is not a list of small numbers, one for every layer");
            return;
        }
        if (!(l->mixers & MIXER_ATTENTION) || ratio == 0 || i >= r->end) continue;
        if (size > 0 && ratio != size) {
            r->status = error_set(r->err, PI_ERR_UNSUPPORTED,
                                  "not supported: %s: key %s: different ratios", gguf_path(r->file),
                                  key);
            return;
        }
        size = ratio;
        l->ratio = (int32_t)ratio;
        l->index_own = true;
    }
    if (!arch->index_pools) return;
    if (size == 0) hp->n_index_head = hp->n_index_choice = 0;
    if (size == 0) hp->index_sums = false;
    hp->index_ratio = (int32_t)size;
    if (size > 0) hp->block_top = top + (int32_t)size - 1;
}

/* Reads n integers of a list, each in [0, most]. */
static void read_list(key_reader *r, const char *suffix, int n, int64_t most, int64_t *out) {
    char key[KEY_TEXT];
    const gguf_value *v = hparams_find(r, suffix, key);
    for (int i = 0; i < n && r->status == PI_OK; i++) {
        if (v && v->type == GGUF_ARRAY && gguf_item_i64(v, (uint64_t)i, &out[i]) && out[i] >= 0 &&
            out[i] <= most)
            continue;
        hparams_fail(r, key, "is missing, or not a list of enough numbers in range");
    }
}

void hparams_read_ngrams(key_reader *r, const arch_row *arch, model_hparams *hp,
                         model_layer_hparams *layers) {
    char key[KEY_TEXT];
    const gguf_value *v = hparams_find(r, "ple.layers", key);
    model_ngrams *g = &hp->ngrams;
    int64_t layer = 0, multipliers[MODEL_MAX_NGRAM] = {0};
    if (!arch_tensor_of(arch, ROLE_NGRAM_EMBD) || !v || r->status != PI_OK) return;
    if (v->type == GGUF_ARRAY && v->count == 0) return;
    if (v->type != GGUF_ARRAY || v->count != 1 || !gguf_item_i64(v, 0, &layer) || layer < 0 ||
        layer >= r->end || !(layers[layer].mixers & MIXER_RECURRENT)) {
        hparams_fail(r, key, "does not name one recurrent layer");
        return;
    }
    g->size = hparams_int(r, "ple.ngram_size", 0, -1, 2, MODEL_MAX_NGRAM);
    int32_t heads = hparams_int(r, "ple.heads_per_ngram", 0, -1, 1, MODEL_MAX_NGRAM_ROWS);
    g->n_taps = hparams_int(r, "ple.conv_kernel", 0, -1, 1, MAX_TAPS);
    g->divider = hparams_int(r, "ple.eos_token_id", 0, -1, 0, INT32_MAX);
    g->n_embd = hparams_int(r, "embedding_length_per_layer_input", 0, -1, 1, MODEL_MAX_DIM);
    if (r->status != PI_OK) return;
    if ((g->size - 1) * heads > MODEL_MAX_NGRAM_ROWS ||
        (int64_t)(g->size - 1) * heads * g->n_embd != hp->n_embd) {
        hparams_find(r, "ple.heads_per_ngram", key);
        hparams_fail(r, key, "does not fit ple.ngram_size and the lengths of embeddings");
        return;
    }
    g->n_rows = (g->size - 1) * heads;
    read_list(r, "ple.layer_multipliers", g->size, INT64_MAX, multipliers);
    read_list(r, "ple.head_offsets", g->n_rows, INT32_MAX, g->first);
    read_list(r, "ple.head_vocab_sizes", g->n_rows, INT32_MAX, g->rows);
    for (int i = 0; i < g->size; i++) g->multipliers[i] = (uint64_t)multipliers[i];
    for (int i = 0; i < g->n_rows && r->status == PI_OK; i++) {
        if (g->rows[i] > 0) continue;
        hparams_find(r, "ple.head_vocab_sizes", key);
        hparams_fail(r, key, "has a 0");
    }
    layers[layer].ngrams = true;
}
