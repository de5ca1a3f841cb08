/* tokenizer_spm.c: SentencePiece BPE: starting from single characters, merges the pair of
 * neighbours whose joint text is the token with the highest score, until no joint text is a token.
 * Symbols that are not tokens are then written byte by byte. (Kudo and Richardson 2018,
 * arXiv:1808.06226.) */
#include <math.h>
#include <string.h>

#include "mem.h"
#include "tokenizer_impl.h"

static bool is_space(const char *text) {
    return memcmp(text, SPM_SPACE, SPM_SPACE_BYTES) == 0;
}

/* Whether U+2581 at s[i] begins a word, which it does not within a run of U+2581. */
static bool begins_word(const char *s, size_t i, size_t n) {
    return i > 0 && n - i >= SPM_SPACE_BYTES && is_space(s + i) &&
           (i < SPM_SPACE_BYTES || !is_space(s + i - SPM_SPACE_BYTES));
}

static bool has_words(gguf_string text) {
    for (size_t i = 1; i < text.n_bytes; i++)
        if (begins_word(text.data, i, (size_t)text.n_bytes)) return true;
    return false;
}

pi_status tokenizer_spm_load(tokenizer *t, pi_error *err) {
    (void)err;
    tokenizer_find_byte_tokens(t);
    for (int c = 0; c < TOKENIZER_BYTES; c++) {
        char text = (char)c;
        if (t->byte_token[c] < 0) t->byte_token[c] = tokenizer_find(t, &text, 1);
        if (t->byte_token[c] < 0) t->byte_token[c] = t->info.unk;
    }
    t->words_are_apart = true;
    for (int32_t i = 0; i < t->info.n_vocab && t->words_are_apart; i++)
        t->words_are_apart = !has_words(t->tokens[i].text);
    return PI_OK;
}

/* Maps scores to ranks, best first, keeping their order. NaN comes last. */
static uint32_t rank_of_score(float score) {
    if (isnan(score)) return UINT32_MAX;
    union {
        float f;
        uint32_t u;
    } v = {.f = score + 0.0f}; /* -0 becomes +0 */
    uint32_t ascending = v.u & 0x80000000u ? ~v.u : v.u | 0x80000000u;
    return ~ascending;
}

typedef struct spm_text {
    const tokenizer *t;
    const char *text;
} spm_text;

static bool spm_lookup(const void *user, const merge_symbol *left, const merge_symbol *right,
                       uint32_t *rank, uint32_t *result) {
    const spm_text *s = user;
    size_t n = (size_t)left->size + right->size;
    if (n > s->t->longest_token) return false;
    int32_t id = tokenizer_find(s->t, s->text + left->begin, n); /* neighbours are adjacent */
    if (id < 0) return false;
    *rank = rank_of_score(s->t->tokens[id].score);
    *result = (uint32_t)id;
    return true;
}

/* Merges the symbols that were appended, and removes them. */
static pi_status put_symbols(const tokenizer *t, const char *escaped, merge_work *merge,
                             token_sink *sink, pi_error *err) {
    spm_text user = {t, escaped};
    if (!merge_run(merge, spm_lookup, &user))
        return error_nomem(err, merge->n_symbols, "merges of a text");
    for (int32_t i = merge->n_symbols ? 0 : -1; i >= 0; i = merge->symbols[i].next) {
        const merge_symbol *s = &merge->symbols[i];
        if ((int32_t)s->value >= 0) {
            token_sink_put(sink, (int32_t)s->value);
            continue;
        }
        for (uint32_t j = 0; j < s->size; j++) {
            int32_t id = t->byte_token[(unsigned char)escaped[s->begin + j]];
            if (id >= 0) token_sink_put(sink, id);
        }
    }
    merge->n_symbols = 0;
    return PI_OK;
}

/* No merge crosses the beginning of a word unless a token does, so words are merged one by one. */
pi_status tokenizer_spm_encode(const tokenizer *t, const char *text, size_t n_bytes,
                               bool space_prefix, encode_work *work, token_sink *sink,
                               pi_error *err) {
    size_t n;
    pi_status status = tokenizer_escape_spaces(text, n_bytes, space_prefix, work, &n, err);
    if (status) return status;
    merge_work *merge = &work->merge;
    merge->n_symbols = 0;
    if (!merge_reserve(merge, n)) return error_nomem(err, n_bytes, "text to be tokenized");
    const char *escaped = work->buffer;
    for (size_t i = 0, step; i < n && !status && !token_sink_done(sink); i += step) {
        if (t->words_are_apart && begins_word(escaped, i, n))
            status = put_symbols(t, escaped, merge, sink, err);
        step = tokenizer_character_bytes(escaped[i]);
        if (step > n - i) step = n - i;
        int32_t id = tokenizer_find(t, escaped + i, step);
        merge_append(merge, (uint32_t)i, (uint32_t)step, (uint32_t)id);
    }
    return status || token_sink_done(sink) ? status : put_symbols(t, escaped, merge, sink, err);
}
