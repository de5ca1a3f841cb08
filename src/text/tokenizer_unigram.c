/* tokenizer_unigram.c: SentencePiece's unigram model (Kudo 2018, arXiv:1804.10959): of all ways to
 * write the text as tokens, the one with the largest sum of scores (Viterbi). A character without a
 * token becomes the unknown token, whose score is below all others; several in a row become one.
 *
 * Before that the text is normalized by the file's table: tokenizer.ggml.precompiled_charsmap has
 * the bytes of a double array (little-endian), the double array, and the replacements, each with a
 * NUL at its end. The longest sequence of bytes that the double array has is replaced. The index of
 * a child is its parent's base XOR the byte (Kanda 2018, "Space- and Time-Efficient String
 * Dictionaries"). The table is untrusted: an index outside of it ends a match. */
#include <float.h>
#include <string.h>

#include "mem.h"
#include "tokenizer_impl.h"
#include "utf8.h"

/* The table is untrusted: bytes that one replacement may replace, and how much longer than the text
 * the result may be. In Unicode one character becomes at most 18 others. */
enum { MAX_REPLACED = 256, MAX_GROWTH = 64 };

/* SentencePiece's penalty of a character without a token. */
#define UNKNOWN_PENALTY 10.0f

/* ---- the table of replacements --------------------------------------------------------------- */

static uint32_t read_u32(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static pi_status load_charsmap(tokenizer *t, const gguf_file *file, pi_error *err) {
    const char *key = "tokenizer.ggml.precompiled_charsmap";
    const gguf_value *v = gguf_find(file, key);
    const size_t head = sizeof(uint32_t);
    if (!v) return PI_OK;
    if (v->type != GGUF_ARRAY || (v->item_type != GGUF_U8 && v->item_type != GGUF_I8))
        return tokenizer_bad_key(err, key, "not an array of bytes");
    if (v->count == 0) return PI_OK;
    size_t n = (size_t)v->count, n_array = n < head ? 0 : read_u32(v->data);
    if (n < head || n_array >= n - head || v->data[n - 1] != 0)
        return tokenizer_bad_key(err, key, "not a table of replacements");
    t->charsmap = (charsmap){.array = v->data + head,
                             .n_array = n_array / sizeof(uint32_t),
                             .texts = (const char *)v->data + head + n_array,
                             .n_texts = n - head - n_array};
    return PI_OK;
}

/* A node: bits 10 to 30 its base, bit 9 the base's shift, bit 8 whether a match ends here, bits 0
 * to 7 and 31 its byte; where a match ends, the node at the base is the offset of the
 * replacement. */
static uint32_t base_of(uint32_t node) {
    return (node >> 10) << ((node & 1u << 9) >> 6);
}

/* The bytes that begin the text and are replaced; 0: none. */
static size_t find_replacement(const charsmap *m, const char *text, size_t n,
                               const char **replacement) {
    size_t longest = 0;
    uint32_t index = m->n_array ? base_of(read_u32(m->array)) : 0;
    for (size_t i = 0; i < n && i < MAX_REPLACED && m->n_array; i++) {
        unsigned char c = (unsigned char)text[i];
        index ^= c;
        if (c == 0 || index >= m->n_array) break;
        uint32_t node = read_u32(m->array + (size_t)index * sizeof node);
        if ((node & (1u << 31 | 0xff)) != c) break;
        index ^= base_of(node);
        if (index >= m->n_array) break;
        if (!(node >> 8 & 1)) continue;
        uint32_t offset = read_u32(m->array + (size_t)index * sizeof node) & ~(1u << 31);
        if (offset >= m->n_texts) break;
        longest = i + 1;
        *replacement = m->texts + offset;
    }
    return longest;
}

/* ---- normalization --------------------------------------------------------------------------- */

/* The normalized text in work->buffer. */
typedef struct normal_text {
    const tokenizer *t;
    encode_work *work;
    size_t n, most;          /* bytes; maximum */
    bool too_long;           /* `most` was reached */
    bool in_word, has_space; /* a space was written before a word */
} normal_text;

static bool append(normal_text *out, const char *bytes, size_t n) {
    size_t total;
    if (!size_add(out->n, n, &total) || total > out->most) {
        out->too_long = true;
        return false;
    }
    if (!mem_grow((void **)&out->work->buffer, &out->work->buffer_capacity, total, 1, SIZE_MAX / 2))
        return false;
    memcpy(out->work->buffer + out->n, bytes, n);
    out->n = total;
    return true;
}

static bool append_normal(normal_text *out, const char *bytes, size_t n) {
    const tokenizer *t = out->t;
    for (size_t i = 0; i < n; i++) {
        bool blank = bytes[i] == ' ', begins = !blank && !out->in_word;
        bool space = blank ? !t->merge_spaces
                           : begins &&
                                 (t->merge_spaces || (t->info.add_space_prefix && !out->has_space));
        out->in_word = !blank;
        if (space && !append(out, SPM_SPACE, SPM_SPACE_BYTES)) return false;
        out->has_space = out->has_space || (space && begins);
        if (!blank && !append(out, bytes + i, 1)) return false;
    }
    return true;
}

static bool normalize(normal_text *out, const char *text, size_t n_bytes) {
    for (size_t i = 0, step; i < n_bytes; i += step) {
        const char *replacement = "\xEF\xBF\xBD"; /* U+FFFD */
        size_t length = find_replacement(&out->t->charsmap, text + i, n_bytes - i, &replacement);
        bool whole = length > 0 || utf8_decode(text + i, n_bytes - i, &step) < 0;
        if (length > 0) step = length;
        if (!append_normal(out, whole ? replacement : text + i, whole ? strlen(replacement) : step))
            return false;
    }
    return true;
}

/* ---- tokens ---------------------------------------------------------------------------------- */

pi_status tokenizer_unigram_load(tokenizer *t, const gguf_file *file, pi_error *err) {
    const uint32_t types = 1u << TOKEN_NORMAL | 1u << TOKEN_USER_DEFINED | 1u << TOKEN_UNUSED;
    float least = FLT_MAX;
    for (int32_t i = 0; i < t->info.n_vocab; i++)
        if (t->tokens[i].type == TOKEN_NORMAL && t->tokens[i].score < least)
            least = t->tokens[i].score;
    t->unknown_score = least - UNKNOWN_PENALTY;
    pi_status status = tokenizer_load_flag(file, "tokenizer.ggml.remove_extra_whitespaces",
                                           &t->merge_spaces, err);
    if (!status) status = load_charsmap(t, file, err);
    return status ? status : tokenizer_prefixes_build(t, types, err);
}

static void improve(unigram_cell *cell, double score, int32_t token, size_t from) {
    if (score > cell->score) *cell = (unigram_cell){score, token, (uint32_t)from};
}

/* cells [n + 1]: the best way to write the text up to each place. */
static void find_best(const tokenizer *t, const char *text, size_t n, unigram_cell *cells) {
    for (size_t i = 0; i <= n; i++) cells[i] = (unigram_cell){i ? -DBL_MAX : 0, t->info.unk, 0};
    for (size_t i = 0, step; i < n; i += step) {
        prefix_walk w = tokenizer_prefix_begin(t);
        int32_t id;
        bool found = false; /* a token of this single character */
        step = tokenizer_character_bytes(text[i]);
        if (step > n - i) step = n - i;
        for (size_t end = i; end < n && tokenizer_prefix_next(t, &w, text[end], &id); end++) {
            if (id < 0) continue;
            found = found || end + 1 - i == step;
            double score = t->tokens[id].type == TOKEN_USER_DEFINED ? 0 : t->tokens[id].score;
            improve(&cells[end + 1], cells[i].score + score, id, i);
        }
        if (!found) improve(&cells[i + step], cells[i].score + t->unknown_score, t->info.unk, i);
    }
}

/* Turns the way back from the end into the tokens' order. */
static void put_best(const tokenizer *t, const unigram_cell *cells, size_t n, token_sink *sink) {
    size_t n_tokens = 0;
    for (int pass = 0; pass < 2; pass++) {
        size_t at = n_tokens;
        bool after_unknown = false;
        for (size_t i = n; i > 0; i = cells[i].from) {
            bool unknown = cells[i].token == t->info.unk;
            if (cells[i].token < 0 || (unknown && after_unknown)) continue;
            after_unknown = unknown;
            if (pass == 0)
                n_tokens++;
            else if (sink->n + --at < sink->capacity)
                sink->tokens[sink->n + at] = cells[i].token;
        }
    }
    sink->n += n_tokens;
}

pi_status tokenizer_unigram_encode(const tokenizer *t, const char *text, size_t n_bytes,
                                   encode_work *work, token_sink *sink, pi_error *err) {
    const size_t most = UINT32_MAX / 2;
    normal_text normal = {.t = t,
                          .work = work,
                          .most = n_bytes < most / MAX_GROWTH - 1 ? (n_bytes + 1) * MAX_GROWTH
                                                                  : most};
    const bool done = normalize(&normal, text, n_bytes);
    if (normal.too_long)
        return error_set(err, PI_ERR_LIMIT,
                         "tokenizer.ggml.precompiled_charsmap makes the text more than %d times as "
                         "long",
                         MAX_GROWTH);
    if (!done) return error_nomem(err, n_bytes, "text to be tokenized");
    if (normal.n == 0) return PI_OK;
    if (!mem_grow((void **)&work->cells, &work->cell_capacity, normal.n + 1, sizeof *work->cells,
                  SIZE_MAX / 2))
        return error_nomem(err, normal.n * sizeof *work->cells, "text to be tokenized");
    find_best(t, work->buffer, normal.n, work->cells);
    put_best(t, work->cells, normal.n, sink);
    return PI_OK;
}
