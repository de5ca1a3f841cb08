/* vocab.c: see vocab.h. The index is an open-addressing hash table with at least twice as many
 * slots as tokens, so that looking up merges (hundreds of thousands) stays fast. */
#include "vocab.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "mem.h"

pi_status vocab_init(vocab *v, int32_t n_tokens, pi_error *err) {
    assert(n_tokens > 0 && n_tokens <= TOKENIZER_MAX_VOCAB);
    *v = (vocab){.n_tokens = n_tokens,
                 .bos = -1,
                 .eos = -1,
                 .eot = -1,
                 .cls = -1,
                 .sep = -1,
                 .mask = -1,
                 .lower_case = VOCAB_UNSAID,
                 .strip_accents = VOCAB_UNSAID,
                 .unk = -1,
                 .pad = -1,
                 .add_bos = VOCAB_UNSAID,
                 .add_eos = VOCAB_UNSAID,
                 .merge_spaces = VOCAB_UNSAID,
                 .add_space_prefix = VOCAB_UNSAID};
    arena_init(&v->arena);
    v->tokens = mem_calloc((size_t)n_tokens, sizeof *v->tokens);
    if (!v->tokens) return error_nomem(err, (size_t)n_tokens * sizeof *v->tokens, "vocabulary");
    return PI_OK;
}

void vocab_free(vocab *v) {
    mem_free(v->tokens);
    mem_free(v->merges);
    mem_free(v->index);
    arena_free(&v->arena);
    *v = (vocab){0};
}

pi_status vocab_set(vocab *v, int32_t id, const char *text, size_t n_bytes, float score,
                    token_type type, pi_error *err) {
    assert(id >= 0 && id < v->n_tokens);
    if (n_bytes == 0 || n_bytes > VOCAB_MAX_TEXT)
        return error_set(err, PI_ERR_LIMIT,
                         "bad token: id %d has a text of %zu bytes; 1 to %d are possible", id,
                         n_bytes, VOCAB_MAX_TEXT);
    char *copy = arena_strndup(&v->arena, text, n_bytes);
    if (!copy) return error_nomem(err, n_bytes, "token");
    v->tokens[id] = (vocab_token){{copy, n_bytes}, score, type};
    return PI_OK;
}

pi_status vocab_add_merge(vocab *v, const char *left, size_t n_left, const char *right,
                          size_t n_right, pi_error *err) {
    if (n_left > VOCAB_MAX_TEXT || n_right > VOCAB_MAX_TEXT || v->n_merges >= VOCAB_MAX_MERGES)
        return error_set(err, PI_ERR_LIMIT, "merge %zu: too long or too many", v->n_merges);
    if (!mem_grow((void **)&v->merges, &v->merges_capacity, v->n_merges + 1, sizeof *v->merges,
                  VOCAB_MAX_MERGES))
        return error_nomem(err, (v->n_merges + 1) * sizeof *v->merges, "merges");
    size_t n = n_left + 1 + n_right;
    char *text = arena_alloc(&v->arena, n);
    if (!text) return error_nomem(err, n, "merge");
    memcpy(text, left, n_left);
    text[n_left] = ' ';
    memcpy(text + n_left + 1, right, n_right);
    v->merges[v->n_merges++] = (gguf_string){text, n};
    return PI_OK;
}

/* ---- finding a text -------------------------------------------------------------------------- */

static size_t first_slot(const vocab *v, const char *text, size_t n) {
    return (size_t)hash_bytes(v->index_key, text, n) & v->index_mask;
}

static bool token_is(const vocab_token *t, const char *text, size_t n) {
    return t->text.data && t->text.n_bytes == n && memcmp(t->text.data, text, n) == 0;
}

pi_status vocab_build_index(vocab *v, const char *source, pi_error *err) {
    assert(!v->index);
    size_t n_slots = 16;
    while (n_slots < 2 * (size_t)v->n_tokens) n_slots *= 2;
    v->index = mem_calloc(n_slots, sizeof *v->index);
    if (!v->index) return error_nomem(err, n_slots * sizeof *v->index, "vocabulary index");
    v->index_mask = n_slots - 1;
    v->index_key = hash_key_random();
    for (int32_t id = 0; id < v->n_tokens; id++) {
        const gguf_string *text = &v->tokens[id].text;
        if (!text->data) continue;
        size_t slot = first_slot(v, text->data, text->n_bytes);
        for (; v->index[slot]; slot = (slot + 1) & v->index_mask) {
            int32_t other = (int32_t)v->index[slot] - 1;
            if (token_is(&v->tokens[other], text->data, text->n_bytes))
                return error_set(err, PI_ERR_FORMAT,
                                 "duplicate token: %s: ids %d and %d are both '%.40s'", source,
                                 other, id, text->data);
        }
        v->index[slot] = (uint32_t)id + 1;
    }
    return PI_OK;
}

int32_t vocab_find(const vocab *v, const char *text, size_t n_bytes) {
    assert(v->index);
    size_t slot = first_slot(v, text, n_bytes);
    for (; v->index[slot]; slot = (slot + 1) & v->index_mask) {
        int32_t id = (int32_t)v->index[slot] - 1;
        if (token_is(&v->tokens[id], text, n_bytes)) return id;
    }
    return -1;
}

int32_t vocab_search(const vocab *v, const char *text, size_t n_bytes) {
    for (int32_t id = 0; id < v->n_tokens; id++)
        if (token_is(&v->tokens[id], text, n_bytes)) return id;
    return -1;
}

pi_status vocab_pad(vocab *v, int32_t *n_padded, pi_error *err) {
    *n_padded = 0;
    for (int32_t id = 0; id < v->n_tokens; id++) {
        if (v->tokens[id].text.data) continue;
        char text[32];
        int n = snprintf(text, sizeof text, "[PAD%d]", id);
        pi_status status = vocab_set(v, id, text, (size_t)n, VOCAB_SCORE_UNUSED, TOKEN_UNUSED, err);
        if (status != PI_OK) return status;
        ++*n_padded;
    }
    return PI_OK;
}

/* ---- keys ------------------------------------------------------------------------------------ */

static pi_status put_tokens(const vocab *v, gguf_writer *w, pi_error *err) {
    size_t n = (size_t)v->n_tokens;
    gguf_string *texts = mem_calloc(n, sizeof *texts);
    int32_t *types = mem_calloc(n, sizeof *types);
    float *scores = mem_calloc(n, sizeof *scores);
    pi_status status = PI_OK;
    if (texts && types && scores) {
        for (size_t i = 0; i < n; i++) {
            texts[i] = v->tokens[i].text;
            types[i] = (int32_t)v->tokens[i].type;
            scores[i] = v->tokens[i].score;
        }
        gguf_put_strings(w, "tokenizer.ggml.tokens", texts, n);
        if (strcmp(v->model, "llama") == 0 || strcmp(v->model, "t5") == 0)
            gguf_put_array(w, "tokenizer.ggml.scores", GGUF_F32, scores, n);
        gguf_put_array(w, "tokenizer.ggml.token_type", GGUF_I32, types, n);
    } else {
        status = error_nomem(err, n * (sizeof *texts + sizeof *types + sizeof *scores), "tokens");
    }
    mem_free(texts);
    mem_free(types);
    mem_free(scores);
    return status;
}

static void put_templates(const vocab *v, gguf_writer *w) {
    gguf_string names[VOCAB_MAX_TEMPLATES];
    uint64_t n_names = 0;
    for (int i = 0; i < v->n_templates; i++) {
        const vocab_template *t = &v->templates[i];
        char key[128] = "tokenizer.chat_template";
        if (t->name[0]) {
            snprintf(key, sizeof key, "tokenizer.chat_template.%.64s", t->name);
            names[n_names++] = (gguf_string){t->name, strlen(t->name)};
        }
        gguf_put_bytes(w, key, t->text.data, t->text.n_bytes);
    }
    if (n_names > 0) gguf_put_strings(w, "tokenizer.chat_templates", names, n_names);
}

pi_status vocab_put(const vocab *v, gguf_writer *w, pi_error *err) {
    gguf_put_string(w, "tokenizer.ggml.model", v->model ? v->model : "none");
    if (!v->model) return PI_OK;
    if (v->pre) gguf_put_string(w, "tokenizer.ggml.pre", v->pre);
    pi_status status = put_tokens(v, w, err);
    if (status != PI_OK) return status;
    if (v->n_charsmap > 0)
        gguf_put_array(w, "tokenizer.ggml.precompiled_charsmap", GGUF_U8, v->charsmap,
                       v->n_charsmap);
    if (strcmp(v->model, "gpt2") == 0 || strcmp(v->model, "gemma4") == 0)
        gguf_put_strings(w, "tokenizer.ggml.merges", v->merges, v->n_merges);
    const struct {
        const char *key;
        int32_t id;
    } ids[] = {
        {"tokenizer.ggml.bos_token_id", v->bos},       {"tokenizer.ggml.eos_token_id", v->eos},
        {"tokenizer.ggml.eot_token_id", v->eot},       {"tokenizer.ggml.unknown_token_id", v->unk},
        {"tokenizer.ggml.padding_token_id", v->pad},   {"tokenizer.ggml.cls_token_id", v->cls},
        {"tokenizer.ggml.seperator_token_id", v->sep}, {"tokenizer.ggml.mask_token_id", v->mask}};
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++)
        if (ids[i].id >= 0) gguf_put_u32(w, ids[i].key, (uint32_t)ids[i].id);
    const struct {
        const char *key;
        vocab_flag flag;
    } flags[] = {{"tokenizer.ggml.add_bos_token", v->add_bos},
                 {"tokenizer.ggml.add_eos_token", v->add_eos},
                 {"tokenizer.ggml.add_space_prefix", v->add_space_prefix},
                 {"tokenizer.ggml.remove_extra_whitespaces", v->merge_spaces},
                 {"tokenizer.ggml.normalizer.lowercase", v->lower_case},
                 {"tokenizer.ggml.normalizer.strip_accents", v->strip_accents}};
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
        if (flags[i].flag != VOCAB_UNSAID)
            gguf_put_bool(w, flags[i].key, flags[i].flag == VOCAB_YES);
    put_templates(v, w);
    return PI_OK;
}
