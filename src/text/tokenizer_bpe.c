/* tokenizer_bpe.c: BPE by a list of merges: merges the neighbouring pair that comes first in the
 * list, until no pair is in the list. A piece of text is a sequence of bytes, each written as a
 * printable character (byte-level BPE: Radford et al. 2019, GPT-2), or, with PRE_RAW, a sequence of
 * characters (Gemma 4).
 *
 * Symbols are numbers of the text table, which contains both sides and the result of every merge,
 * so that merging compares two numbers and no text. */
#include <string.h>

#include "mem.h"
#include "tokenizer_impl.h"
#include "utf8.h"

enum { BPE_MAX_MERGES = 1 << 25 };

/* Bytes that represent themselves: printable in Latin-1 (0xAD is the soft hyphen). */
static bool byte_is_plain(unsigned c) {
    return (c >= 0x21 && c <= 0x7E) || (c >= 0xA1 && c <= 0xAC) || c >= 0xAE;
}

/* All other bytes are numbered from U+0100 in order: 0..0x20, 0x7F..0xA0, 0xAD. */
static uint32_t character_of_byte(unsigned c) {
    if (byte_is_plain(c)) return c;
    if (c <= 0x20) return 0x100 + c;
    return c == 0xAD ? 0x143 : 0x121 + (c - 0x7F);
}

size_t tokenizer_spell_byte(uint8_t byte, char *out) {
    return utf8_encode(character_of_byte(byte), out);
}

/* The byte that a character represents, or -1. */
static int byte_of_character(int32_t c) {
    if (c < 0) return -1;
    if (c < 0x100) return byte_is_plain((unsigned)c) ? c : -1;
    if (c <= 0x120) return c - 0x100;
    if (c <= 0x142) return c - 0x121 + 0x7F;
    return c == 0x143 ? 0xAD : -1;
}

size_t tokenizer_bpe_unmap(gguf_string text, char *out) {
    size_t used = 0, step;
    for (size_t i = 0; i < text.n_bytes; i += step) {
        int byte = byte_of_character(utf8_decode(text.data + i, (size_t)text.n_bytes - i, &step));
        if (byte >= 0) {
            out[used++] = (char)byte;
        } else { /* not a character for a byte: copied unchanged */
            memcpy(out + used, text.data + i, step);
            used += step;
        }
    }
    return used;
}

/* Numbers a text that outlives the tokenizer; a new symbol is not a token. */
static uint32_t add_symbol(tokenizer *t, size_t *capacity, const char *text, size_t n) {
    size_t before = t->table.count;
    uint32_t symbol = text_table_add(&t->table, text, n);
    if (symbol == TEXT_TABLE_NONE || symbol < before) return symbol;
    if (!mem_grow((void **)&t->symbol_token, capacity, t->table.count, sizeof *t->symbol_token,
                  TEXT_TABLE_MAX)) {
        return TEXT_TABLE_NONE;
    }
    t->symbol_token[symbol] = -1;
    return symbol;
}

static bool add_bytes(tokenizer *t, size_t *capacity) {
    if (t->pre_flags & PRE_RAW) {
        tokenizer_find_byte_tokens(t);
        return true;
    }
    for (unsigned c = 0; c < TOKENIZER_BYTES; c++) {
        char text[UTF8_MAX_BYTES];
        size_t n = tokenizer_spell_byte((uint8_t)c, text);
        char *copy = arena_strndup(&t->memory, text, n);
        t->byte_symbol[c] = copy ? add_symbol(t, capacity, copy, n) : TEXT_TABLE_NONE;
        if (t->byte_symbol[c] == TEXT_TABLE_NONE) return false;
        char raw = (char)c;
        t->byte_token[c] = tokenizer_find(t, &raw, 1);
    }
    return true;
}

static size_t merge_index(const tokenizer *t, uint64_t pair) {
    size_t mask = t->n_merge_slots - 1, i = (size_t)hash_u64(t->merge_key, pair) & mask;
    while (t->merges[i].result && t->merges[i].pair != pair) i = (i + 1) & mask;
    return i;
}

/* Scratch memory of loading. Merges are mostly listed in the order of the tokens they make, so a
 * merge often makes the same token as the previous merge, or the next token: add_joined tries both
 * (`guess`) before the table. */
typedef struct merge_buffer {
    char *text;
    size_t capacity;
    bool in_order;  /* symbols and tokens have equal numbers */
    uint32_t guess; /* a token */
} merge_buffer;

static bool is_joined(const tokenizer *t, uint32_t id, gguf_string left, gguf_string right) {
    if (id >= (uint32_t)t->info.n_vocab) return false;
    gguf_string text = t->tokens[id].text;
    return text.n_bytes == left.n_bytes + right.n_bytes &&
           memcmp(text.data, left.data, (size_t)left.n_bytes) == 0 &&
           memcmp(text.data + left.n_bytes, right.data, (size_t)right.n_bytes) == 0;
}

/* The number of left + right, which is added if new. */
static uint32_t add_joined(tokenizer *t, size_t *capacity, gguf_string left, gguf_string right,
                           merge_buffer *buffer) {
    size_t n = (size_t)(left.n_bytes + right.n_bytes);
    if (buffer->in_order) {
        if (is_joined(t, buffer->guess, left, right)) return buffer->guess;
        if (is_joined(t, buffer->guess + 1, left, right)) return ++buffer->guess;
    }
    if (!mem_grow((void **)&buffer->text, &buffer->capacity, n, 1, SIZE_MAX / 2)) {
        return TEXT_TABLE_NONE;
    }
    memcpy(buffer->text, left.data, (size_t)left.n_bytes);
    memcpy(buffer->text + left.n_bytes, right.data, (size_t)right.n_bytes);
    uint32_t symbol = text_table_find(&t->table, buffer->text, n);
    if (symbol != TEXT_TABLE_NONE) return buffer->guess = symbol;
    char *copy = arena_strndup(&t->memory, buffer->text, n);
    return copy ? add_symbol(t, capacity, copy, n) : TEXT_TABLE_NONE;
}

static bool add_merge(tokenizer *t, size_t *capacity, gguf_string line, uint32_t rank,
                      merge_buffer *buffer) {
    /* The first character may itself be a space; a line without a second part merges nothing. */
    const char *space = line.n_bytes > 1 ? memchr(line.data + 1, ' ', (size_t)line.n_bytes - 1)
                                         : NULL;
    if (!space) return true;
    gguf_string left = {line.data, (uint64_t)(space - line.data)};
    gguf_string right = {space + 1, line.n_bytes - left.n_bytes - 1};
    if (right.n_bytes == 0) return true;
    uint32_t l = add_symbol(t, capacity, left.data, (size_t)left.n_bytes);
    uint32_t r = add_symbol(t, capacity, right.data, (size_t)right.n_bytes);
    uint32_t joined = add_joined(t, capacity, left, right, buffer);
    if (l == TEXT_TABLE_NONE || r == TEXT_TABLE_NONE || joined == TEXT_TABLE_NONE) return false;
    uint64_t pair = (uint64_t)l << 32 | r;
    merge_slot *slot = &t->merges[merge_index(t, pair)];
    if (!slot->result) *slot = (merge_slot){pair, rank, joined + 1}; /* the first entry applies */
    return true;
}

pi_status tokenizer_bpe_load(tokenizer *t, const gguf_value *merges, pi_error *err) {
    if (!merges || merges->type != GGUF_ARRAY || merges->item_type != GGUF_STRING ||
        merges->count > BPE_MAX_MERGES) {
        return error_set(err, PI_ERR_FORMAT,
                         "bad vocabulary: tokenizer.ggml.merges: missing, not an array of strings, "
                         "or over %d: convert the model again",
                         BPE_MAX_MERGES);
    }
    t->n_merge_slots = TOKENIZER_BYTES;
    while (t->n_merge_slots < merges->count * 2) t->n_merge_slots *= 2;
    t->merge_key = hash_key_random();
    t->merges = mem_calloc(t->n_merge_slots, sizeof *t->merges);
    size_t capacity = (size_t)t->info.n_vocab; /* of symbol_token */
    merge_buffer buffer = {.in_order = t->table.count == capacity};
    bool ok = t->merges && add_bytes(t, &capacity);
    const uint8_t *cursor = merges->data;
    for (uint32_t i = 0; ok && i < merges->count; i++) {
        gguf_string line = gguf_next_string(&cursor);
        if (line.n_bytes > UINT32_MAX) {
            mem_free(buffer.text);
            return error_set(err, PI_ERR_FORMAT,
                             "bad vocabulary: tokenizer.ggml.merges: item %u "
                             "is too long: convert the model again",
                             i);
        }
        ok = add_merge(t, &capacity, line, i, &buffer);
    }
    mem_free(buffer.text);
    return ok ? PI_OK : error_nomem(err, t->n_merge_slots * sizeof *t->merges, "merges");
}

static bool bpe_lookup(const void *user, const merge_symbol *left, const merge_symbol *right,
                       uint32_t *rank, uint32_t *result) {
    const tokenizer *t = user;
    const merge_slot *slot = &t->merges[merge_index(t, (uint64_t)left->value << 32 | right->value)];
    *rank = slot->rank;
    *result = slot->result - 1;
    return slot->result != 0;
}

/* The piece in the vocabulary's characters: unchanged, or written into work->buffer, which has room
 * for two bytes per byte. */
static const char *spell_piece(const tokenizer *t, const char *piece, size_t *n, char *buffer) {
    if (t->pre_flags & PRE_RAW) return piece;
    size_t used = 0;
    for (size_t i = 0; i < *n; i++) {
        text_entry character = t->table.entries[t->byte_symbol[(unsigned char)piece[i]]];
        memcpy(buffer + used, character.data, character.n_bytes);
        used += character.n_bytes;
    }
    *n = used;
    return buffer;
}

static bool is_newlines(const char *piece, size_t n) {
    size_t i = 0;
    while (i < n && piece[i] == '\n') i++;
    return i == n;
}

/* The token that equals a whole piece, where it takes precedence over merges; -1: none. */
static pi_status whole_piece(const tokenizer *t, const char *piece, size_t n, encode_work *work,
                             int32_t *id, pi_error *err) {
    *id = -1;
    bool wanted = t->pre_flags & PRE_WHOLE_PIECES ||
                  (t->pre_flags & PRE_WHOLE_NEWLINES && is_newlines(piece, n));
    if (!wanted || n > t->longest_token) return PI_OK;
    if (!(t->pre_flags & PRE_RAW) &&
        !mem_grow((void **)&work->buffer, &work->buffer_capacity, n * 2, 1, SIZE_MAX / 2)) {
        return error_nomem(err, n * 2, "text to be tokenized");
    }
    const char *spelled = spell_piece(t, piece, &n, work->buffer);
    *id = tokenizer_find(t, spelled, n);
    return PI_OK;
}

/* Writes a symbol that is not a token, or a character that is not a symbol, byte by byte. */
static void put_symbol(const tokenizer *t, const merge_symbol *s, const char *piece,
                       token_sink *sink) {
    int32_t id = s->value == TEXT_TABLE_NONE ? -1 : t->symbol_token[s->value];
    if (id >= 0) {
        token_sink_put(sink, id);
        return;
    }
    text_entry text = {piece + s->begin, s->size};
    if (!(t->pre_flags & PRE_RAW)) text = t->table.entries[s->value];
    for (uint32_t i = 0; i < text.n_bytes; i++) {
        id = t->byte_token[(unsigned char)text.data[i]];
        if (id >= 0) token_sink_put(sink, id);
    }
}

static void append_symbols(const tokenizer *t, const char *piece, size_t n, merge_work *merge) {
    bool raw = t->pre_flags & PRE_RAW;
    for (size_t i = 0, step; i < n; i += step) {
        step = raw ? tokenizer_character_bytes(piece[i]) : 1;
        if (step > n - i) step = n - i;
        uint32_t symbol = raw ? text_table_find(&t->table, piece + i, step)
                              : t->byte_symbol[(unsigned char)piece[i]];
        merge_append(merge, (uint32_t)i, (uint32_t)step, symbol);
    }
}

static pi_status encode_piece(const tokenizer *t, const char *piece, size_t n, encode_work *work,
                              token_sink *sink, pi_error *err) {
    int32_t id;
    pi_status status = whole_piece(t, piece, n, work, &id, err);
    if (status) return status;
    if (id >= 0) {
        token_sink_put(sink, id);
        return PI_OK;
    }
    merge_work *merge = &work->merge;
    merge->n_symbols = 0;
    if (!merge_reserve(merge, n)) return error_nomem(err, n, "text to be tokenized");
    append_symbols(t, piece, n, merge);
    if (!merge_run(merge, bpe_lookup, t)) return error_nomem(err, n, "merges of a text");
    for (int32_t i = 0; i >= 0; i = merge->symbols[i].next) {
        put_symbol(t, &merge->symbols[i], piece, sink);
    }
    return PI_OK;
}

pi_status tokenizer_bpe_encode(const tokenizer *t, const char *text, size_t n_bytes,
                               encode_work *work, token_sink *sink, pi_error *err) {
    pretokenizer_pieces *pieces = &work->pieces;
    pi_status status = PI_OK;
    if (t->pre_flags & PRE_RAW) {
        status = tokenizer_escape_spaces(text, n_bytes, false, work, &n_bytes, err);
        text = work->buffer;
    }
    if (!status) status = pretokenizer_split(t->pre, text, n_bytes, pieces, err);
    size_t begin = 0;
    for (size_t i = 0; i < pieces->n_pieces && !status && !token_sink_done(sink);
         begin = pieces->ends[i++]) {
        status = encode_piece(t, pieces->bytes + begin, pieces->ends[i] - begin, work, sink, err);
    }
    return status;
}
