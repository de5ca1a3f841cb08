/* tokenizer_spm.c: SentencePiece BPE: starting from single characters, merges the pair of
 * neighbours whose joint text is the token with the highest score, until no joint text is a token.
 * Symbols that are not tokens are then written byte by byte. (Kudo and Richardson 2018,
 * arXiv:1808.06226.) */
#include <math.h>
#include <string.h>

#include "mem.h"
#include "tokenizer_impl.h"

pi_status tokenizer_spm_load(tokenizer *t, pi_error *err) {
    (void)err;
    tokenizer_find_byte_tokens(t);
    for (int c = 0; c < TOKENIZER_BYTES; c++) {
        char text = (char)c;
        if (t->byte_token[c] < 0) t->byte_token[c] = tokenizer_find(t, &text, 1);
        if (t->byte_token[c] < 0) t->byte_token[c] = t->info.unk;
    }
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
    for (size_t i = 0, step; i < n; i += step) {
        step = tokenizer_character_bytes(escaped[i]);
        if (step > n - i) step = n - i;
        int32_t id = tokenizer_find(t, escaped + i, step);
        merge_append(merge, (uint32_t)i, (uint32_t)step, (uint32_t)id);
    }
    spm_text user = {t, escaped};
    if (!merge_run(merge, spm_lookup, &user)) return error_nomem(err, n, "merges of a text");
    for (int32_t i = 0; i >= 0; i = merge->symbols[i].next) {
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
    return PI_OK;
}
