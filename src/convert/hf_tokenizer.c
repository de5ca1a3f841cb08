/* hf_tokenizer.c: see hf_tokenizer.h.
 *
 * SentencePiece merges the neighbours whose joined piece has the best score. tokenizer.json lists
 * the merges in the order of these scores, so a token's score is the negated rank of the first
 * merge that creates it. */
#include "hf_tokenizer.h"

#include <stdio.h>
#include <string.h>

#include "base64.h"
#include "hf_pretokenizer.h"

/* Scores are never positive: this value marks a token that no merge has created yet. */
static const float SCORE_UNMADE = 1;

static pi_status bad_json(pi_error *err, const char *path, const char *problem) {
    return error_set(err, PI_ERR_FORMAT, "bad tokenizer: %s: %s", path, problem);
}

static const char *text_of(const json_node *object, const char *key) {
    const char *text;
    size_t n;
    return json_as_string(json_get(object, key), &text, &n) ? text : NULL;
}

static bool type_is(const json_node *node, const char *type) {
    const char *text = text_of(node, "type");
    return text && strcmp(text, type) == 0;
}

/* Finds a step of this type in a component, which may be a sequence. NULL: none. */
static const json_node *find_step(const json_node *node, const char *list_key, const char *type) {
    if (type_is(node, type)) return node;
    const json_node *list = json_get(node, list_key);
    for (size_t i = 0; i < json_count(list); i++)
        if (type_is(json_at(list, i), type)) return json_at(list, i);
    return NULL;
}

/* ---- tokens ---------------------------------------------------------------------------------- */

/* "<0x0A>": the token of a byte that no piece covers. */
static bool is_byte_token(const char *text) {
    static const char hex[] = "0123456789ABCDEF";
    return strlen(text) == 6 && strncmp(text, "<0x", 3) == 0 && text[5] == '>' &&
           strchr(hex, text[3]) && strchr(hex, text[4]);
}

/* Defines a token of WordPiece: pieces within a word lose their "##", other tokens get U+2581,
 * except special ones. */
static pi_status set_word(const json_node *added, vocab *v, int32_t id, const char *text,
                          pi_error *err) {
    static const char mark[] = "\xE2\x96\x81";
    char plain[sizeof mark + VOCAB_MAX_TEXT];
    bool special = false;
    for (size_t i = 0; i < json_count(added) && !special; i++) {
        const char *content = text_of(json_at(added, i), "content");
        special = content && strcmp(content, text) == 0;
    }
    bool within = strncmp(text, "##", 2) == 0 && text[2];
    snprintf(plain, sizeof plain, "%s%s", special || within ? "" : mark,
             within && !special ? text + 2 : text);
    return vocab_set(v, id, plain, strlen(plain), SCORE_UNMADE, TOKEN_NORMAL, err);
}

/* added: the added tokens of a WordPiece tokenizer; NULL: another kind of tokenizer. */
static pi_status read_tokens(const json_node *model, const char *path, bool byte_fallback,
                             const json_node *added, vocab *v, pi_error *err) {
    const json_node *table = json_get(model, "vocab");
    if (json_kind_of(table) != JSON_OBJECT || json_count(table) == 0)
        return bad_json(err, path, "model.vocab is not an object of tokens and ids");
    void *iter = NULL;
    const char *text;
    const json_node *value;
    while (json_next(table, &iter, &text, &value)) {
        int64_t id;
        if (!json_as_int(value, &id) || id < 0 || id >= v->n_tokens)
            return error_set(err, PI_ERR_FORMAT,
                             "bad tokenizer: %s: id of token '%.40s' is not in 0..%d, the rows of "
                             "the embedding matrix",
                             path, text, v->n_tokens - 1);
        if (v->tokens[id].text.data)
            return error_set(err, PI_ERR_FORMAT, "bad tokenizer: %s: two tokens have the id %lld",
                             path, (long long)id);
        token_type type = byte_fallback && is_byte_token(text) ? TOKEN_BYTE : TOKEN_NORMAL;
        pi_status status = added ? set_word(added, v, (int32_t)id, text, err)
                                 : vocab_set(v, (int32_t)id, text, strlen(text), SCORE_UNMADE, type,
                                             err);
        if (status != PI_OK) return error_prefix(err, status, "%s", path);
    }
    return vocab_build_index(v, path, err);
}

/* ---- merges ---------------------------------------------------------------------------------- */

typedef struct merge_text {
    const char *left, *right;
    size_t n_left, n_right;
} merge_text;

/* Parses "left right", or ["left", "right"] in newer files. */
static bool parse_merge(const json_node *node, merge_text *m) {
    if (json_kind_of(node) == JSON_ARRAY)
        return json_count(node) == 2 && json_as_string(json_at(node, 0), &m->left, &m->n_left) &&
               json_as_string(json_at(node, 1), &m->right, &m->n_right);
    const char *text;
    size_t n;
    if (!json_as_string(node, &text, &n)) return false;
    const char *space = memchr(text, ' ', n);
    if (!space) return false;
    *m = (merge_text){text, space + 1, (size_t)(space - text), n - (size_t)(space - text) - 1};
    return true;
}

/* Returns the id of the token that a merge creates; -1: the vocabulary lacks one of the three
 * texts. */
static int32_t merge_result(const vocab *v, const merge_text *m) {
    char joined[2 * VOCAB_MAX_TEXT];
    if (m->n_left > VOCAB_MAX_TEXT || m->n_right > VOCAB_MAX_TEXT ||
        vocab_find(v, m->left, m->n_left) < 0 || vocab_find(v, m->right, m->n_right) < 0)
        return -1;
    memcpy(joined, m->left, m->n_left);
    memcpy(joined + m->n_left, m->right, m->n_right);
    return vocab_find(v, joined, m->n_left + m->n_right);
}

static pi_status read_merges(const json_node *model, const char *path, bool as_scores, vocab *v,
                             pi_error *err) {
    const json_node *merges = json_get(model, "merges");
    if (json_kind_of(merges) != JSON_ARRAY)
        return bad_json(err, path, "model.merges is not an array");
    size_t n = json_count(merges);
    for (size_t i = 0; i < n; i++) {
        merge_text m;
        if (!parse_merge(json_at(merges, i), &m))
            return error_set(err, PI_ERR_FORMAT, "bad tokenizer: %s: merge %zu is not two texts",
                             path, i);
        int32_t id = merge_result(v, &m);
        if (id < 0)
            return error_set(err, PI_ERR_FORMAT,
                             "bad tokenizer: %s: merge %zu, '%.40s' and '%.40s', is not of tokens "
                             "of the vocabulary",
                             path, i, m.left, m.right);
        if (as_scores) {
            float *score = &v->tokens[id].score;
            if (*score == SCORE_UNMADE) *score = -(float)i;
            continue;
        }
        if (memchr(m.left, ' ', m.n_left) || memchr(m.right, ' ', m.n_right))
            return error_set(err, PI_ERR_FORMAT,
                             "bad tokenizer: %s: merge %zu has a space within a token, which "
                             "cannot be written",
                             path, i);
        pi_status status = vocab_add_merge(v, m.left, m.n_left, m.right, m.n_right, err);
        if (status != PI_OK) return error_prefix(err, status, "%s", path);
    }
    return PI_OK;
}

/* Tokens that no merge creates (single characters, bytes) must never win against merged tokens:
 * their scores are below all ranks. */
static void finish_scores(vocab *v, size_t n_merges) {
    for (int32_t i = 0; i < v->n_tokens; i++) {
        vocab_token *token = &v->tokens[i];
        if (token->text.data && token->score == SCORE_UNMADE) token->score = -(float)n_merges - 1;
    }
}

/* ---- kinds of tokenizers --------------------------------------------------------------------- */

static vocab_flag flag_from(bool yes) {
    return yes ? VOCAB_YES : VOCAB_NO;
}

/* Whether text gets a leading space: a normalizer prepends it, or the Metaspace step does. */
static bool prepends_space(const json_node *root) {
    if (find_step(json_get(root, "normalizer"), "normalizers", "Prepend")) return true;
    const json_node *metaspace = find_step(json_get(root, "pre_tokenizer"), "pretokenizers",
                                           "Metaspace");
    if (!metaspace) return false;
    const char *scheme = text_of(metaspace, "prepend_scheme");
    bool adds = true;
    json_as_bool(json_get(metaspace, "add_prefix_space"), &adds);
    return scheme ? strcmp(scheme, "never") != 0 : adds;
}

static void take_unknown(const json_node *model, vocab *v) {
    const char *unk = text_of(model, "unk_token");
    v->unk = unk ? vocab_find(v, unk, strlen(unk)) : -1;
    if (v->unk >= 0) v->tokens[v->unk].type = TOKEN_UNKNOWN;
}

static pi_status read_sentencepiece_like(const json_node *root, const json_node *model,
                                         const char *path, vocab *v, pi_error *err) {
    v->model = "llama";
    pi_status status = read_tokens(model, path, true, NULL, v, err);
    if (status != PI_OK) return status;
    status = read_merges(model, path, true, v, err);
    if (status != PI_OK) return status;
    finish_scores(v, json_count(json_get(model, "merges")));
    v->add_space_prefix = flag_from(prepends_space(root));
    take_unknown(model, v);
    return PI_OK;
}

/* Gemma 4: like SentencePiece, but with merges instead of scores. */
static pi_status read_plain_text(const json_node *model, const char *path, vocab *v,
                                 pi_error *err) {
    v->model = "gemma4";
    v->add_space_prefix = VOCAB_NO;
    pi_status status = read_tokens(model, path, true, NULL, v, err);
    if (status == PI_OK) take_unknown(model, v);
    return status == PI_OK ? read_merges(model, path, false, v, err) : status;
}

static pi_status read_byte_level(const json_node *root, const json_node *model, const char *path,
                                 const notifier *t, vocab *v, pi_error *err) {
    v->model = "gpt2";
    pi_status status = hf_pretokenizer_name(json_get(root, "pre_tokenizer"), path, &v->pre, err);
    if (status != PI_OK) return status;
    /* same patterns, without looking up whole pieces first */
    bool whole = true;
    json_as_bool(json_get(model, "ignore_merges"), &whole);
    if (!whole && strcmp(v->pre, "llama-bpe") == 0) v->pre = "smaug-bpe";
    status = read_tokens(model, path, false, NULL, v, err);
    if (status != PI_OK) return status;
    const char *normalizer = text_of(json_get(root, "normalizer"), "type");
    if (normalizer) notify(t, "normalizer %.40s is dropped: text is not normalized", normalizer);
    const json_node *level = find_step(json_get(root, "pre_tokenizer"), "pretokenizers",
                                       "ByteLevel");
    bool prefix = false;
    if (json_as_bool(json_get(level, "add_prefix_space"), &prefix) && prefix)
        notify(t, "the space that this tokenizer adds before a text is dropped");
    return read_merges(model, path, false, v, err);
}

static pi_status read_wordpiece(const json_node *root, const json_node *model, const char *path,
                                vocab *v, pi_error *err) {
    const json_node *added = json_get(root, "added_tokens"),
                    *normalizer = json_get(root, "normalizer");
    const char *prefix = text_of(model, "continuing_subword_prefix");
    bool lower = true, accents;
    if (!type_is(normalizer, "BertNormalizer") || (prefix && strcmp(prefix, "##") != 0))
        return error_set(err, PI_ERR_UNSUPPORTED,
                         "unknown kind of tokenizer: %s: WordPiece without BertNormalizer, or with "
                         "another prefix than ##",
                         path);
    if (json_kind_of(added) != JSON_ARRAY)
        return bad_json(err, path, "added_tokens is not an array");
    v->model = "bert";
    pi_status status = read_tokens(model, path, false, added, v, err);
    if (status != PI_OK) return status;
    json_as_bool(json_get(normalizer, "lowercase"), &lower);
    accents = lower; /* if strip_accents is null */
    json_as_bool(json_get(normalizer, "strip_accents"), &accents);
    v->lower_case = flag_from(lower);
    v->strip_accents = flag_from(accents);
    const char *unk = text_of(model, "unk_token");
    v->unk = unk ? vocab_find(v, unk, strlen(unk)) : -1;
    return PI_OK;
}

/* SentencePiece's table of replacements, in base64. */
static pi_status read_charsmap(const json_node *root, const char *path, vocab *v, pi_error *err) {
    const json_node *step = find_step(json_get(root, "normalizer"), "normalizers", "Precompiled");
    const char *text;
    size_t n;
    if (!json_as_string(json_get(step, "precompiled_charsmap"), &text, &n) || n == 0) return PI_OK;
    uint8_t *bytes = arena_alloc(&v->arena, n);
    if (!bytes) return error_nomem(err, n, "table of replacements");
    v->charsmap = bytes;
    v->n_charsmap = base64_decode(text, n, bytes, n);
    return v->n_charsmap > 0 ? PI_OK
                             : bad_json(err, path, "precompiled_charsmap is not text in base64");
}

/* XLM-RoBERTa: pieces with the logarithms of their probabilities. */
static pi_status read_unigram(const json_node *root, const json_node *model, const char *path,
                              vocab *v, pi_error *err) {
    const json_node *list = json_get(model, "vocab"), *before = json_get(root, "pre_tokenizer");
    const size_t n = json_kind_of(list) == JSON_ARRAY ? json_count(list) : 0;
    int64_t unk = -1;
    if (n == 0 || n > (size_t)v->n_tokens)
        return bad_json(err, path,
                        "model.vocab is not a list of pieces, at most one for each row of the "
                        "embedding matrix");
    v->model = "t5";
    v->pre = "default";
    for (size_t i = 0; i < n; i++) {
        const json_node *item = json_at(list, i);
        const char *text;
        size_t n_text;
        double score;
        if (!json_as_string(json_at(item, 0), &text, &n_text) ||
            !json_as_double(json_at(item, 1), &score))
            return bad_json(err, path, "a piece has no text or no score");
        pi_status status = vocab_set(v, (int32_t)i, text, n_text, (float)score, TOKEN_NORMAL, err);
        if (status != PI_OK) return error_prefix(err, status, "%s", path);
    }
    json_as_int(json_get(model, "unk_id"), &unk);
    v->unk = unk >= 0 && unk < (int64_t)n ? (int32_t)unk : -1;
    if (v->unk >= 0) v->tokens[v->unk].type = TOKEN_UNKNOWN;
    v->add_space_prefix = flag_from(prepends_space(root));
    v->merge_spaces = flag_from(find_step(before, "pretokenizers", "WhitespaceSplit") ||
                                find_step(json_get(root, "normalizer"), "normalizers", "Replace"));
    pi_status status = read_charsmap(root, path, v, err);
    return status == PI_OK ? vocab_build_index(v, path, err) : status;
}

pi_status hf_tokenizer_read(const json_node *root, const char *path, const char *pre,
                            const notifier *t, vocab *v, pi_error *err) {
    const json_node *model = json_get(root, "model");
    if (json_kind_of(model) != JSON_OBJECT) return bad_json(err, path, "model is not an object");
    const char *type = text_of(model, "type");
    bool byte_fallback = false;
    json_as_bool(json_get(model, "byte_fallback"), &byte_fallback);
    bool byte_level = find_step(json_get(root, "pre_tokenizer"), "pretokenizers", "ByteLevel") !=
                      NULL;
    if (type && strcmp(type, "WordPiece") == 0) return read_wordpiece(root, model, path, v, err);
    if (type && strcmp(type, "Unigram") == 0) return read_unigram(root, model, path, v, err);
    if (type && strcmp(type, "BPE") != 0)
        return error_set(err, PI_ERR_UNSUPPORTED,
                         "unknown kind of tokenizer: %s: model.type is '%.40s'; BPE, WordPiece and "
                         "Unigram can be converted",
                         path, type);
    if (byte_level) return read_byte_level(root, model, path, t, v, err);
    if (byte_fallback && pre && strcmp(pre, "gemma4") == 0)
        return read_plain_text(model, path, v, err);
    if (byte_fallback) return read_sentencepiece_like(root, model, path, v, err);
    return error_set(err, PI_ERR_UNSUPPORTED,
                     "unknown kind of tokenizer: %s: neither byte-level BPE nor BPE with "
                     "byte_fallback",
                     path);
}

/* ---- added tokens ---------------------------------------------------------------------------- */

pi_status hf_tokenizer_add_one(vocab *v, int64_t id, const char *text, size_t n_bytes, bool special,
                               const char *path, const notifier *t, pi_error *err) {
    if (id < 0 || id > INT32_MAX) return bad_json(err, path, "id of an added token out of range");
    if (id >= v->n_tokens) {
        notify(t, "added token %.60s (%lld) is dropped: the embedding matrix has %d rows", text,
               (long long)id, v->n_tokens);
        return PI_OK;
    }
    vocab_token *token = &v->tokens[id];
    token_type type = special ? TOKEN_CONTROL : TOKEN_USER_DEFINED;
    bool same = token->text.data && token->text.n_bytes == n_bytes &&
                memcmp(token->text.data, text, n_bytes) == 0;
    if (same) {
        /* unknown and byte tokens keep their type */
        if (token->type == TOKEN_NORMAL || token->type == TOKEN_UNUSED) token->type = type;
        return PI_OK;
    }
    pi_status status = vocab_set(v, (int32_t)id, text, n_bytes, VOCAB_SCORE_ADDED, type, err);
    return status == PI_OK ? PI_OK : error_prefix(err, status, "%s", path);
}

pi_status hf_tokenizer_added(const json_node *root, const char *path, const notifier *t, vocab *v,
                             pi_error *err) {
    const json_node *list = json_get(root, "added_tokens");
    for (size_t i = 0; i < json_count(list); i++) {
        const json_node *item = json_at(list, i);
        int64_t id;
        const char *text;
        size_t n;
        bool special = false;
        if (!json_as_int(json_get(item, "id"), &id) ||
            !json_as_string(json_get(item, "content"), &text, &n))
            return bad_json(err, path, "an added token has no id or content");
        json_as_bool(json_get(item, "special"), &special);
        pi_status status = hf_tokenizer_add_one(v, id, text, n, special, path, t, err);
        if (status != PI_OK) return status;
    }
    return PI_OK;
}

/* Whether this item of a template is the special token `id`. */
static bool template_item_is(const json_node *item, const vocab *v, int32_t id) {
    const char *text = text_of(json_get(item, "SpecialToken"), "id");
    if (!text || id < 0) return false;
    return gguf_string_is(v->tokens[id].text, text);
}

void hf_tokenizer_post_processor(const json_node *root, vocab *v) {
    const json_node *step = find_step(json_get(root, "post_processor"), "processors",
                                      "TemplateProcessing");
    const json_node *single = json_get(step, "single");
    size_t n = json_count(single);
    if (n == 0) return;
    if (v->add_bos == VOCAB_UNSAID)
        v->add_bos = flag_from(template_item_is(json_at(single, 0), v, v->bos));
    if (v->add_eos == VOCAB_UNSAID)
        v->add_eos = flag_from(template_item_is(json_at(single, n - 1), v, v->eos));
}
