/* tokenizer.c: the public functions: creation, encoding as a sequence of special tokens and text
 * fragments, and detokenization. A tokenizer is immutable; all scratch memory belongs to the
 * call. */
#include "tokenizer.h"

#include <assert.h>
#include <string.h>

#include "mem.h"
#include "tokenizer_impl.h"

pi_status tokenizer_create(const gguf_file *file, const char *pre, tokenizer **out, pi_error *err) {
    *out = NULL;
    tokenizer *t = mem_calloc(1, sizeof *t);
    if (!t) return error_nomem(err, sizeof *t, "tokenizer");
    arena_init(&t->memory);
    pi_status status = tokenizer_load(t, file, pre, err);
    if (status) {
        tokenizer_free(t);
        return status;
    }
    *out = t;
    return PI_OK;
}

void tokenizer_free(tokenizer *t) {
    if (!t) return;
    pretokenizer_free(t->pre);
    tokenizer_special_free(&t->special);
    mem_free(t->merges);
    mem_free(t->symbol_token);
    text_table_free(&t->table);
    arena_free(&t->memory);
    mem_free(t);
}

const tokenizer_info *tokenizer_get_info(const tokenizer *t) {
    return &t->info;
}

/* A lower bound of the number of tokens of a text: every byte that is itself a token is part of
 * some token. Continuation bytes do not count, because ill-formed characters may become shorter. */
static size_t least_tokens(const tokenizer *t, const char *text, size_t n) {
    size_t n_kept = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        n_kept += (c & 0xC0) != 0x80 && t->byte_token[c] >= 0;
    }
    return n_kept ? n_kept / t->longest_token : 0;
}

/* A space goes before a text that starts the sequence or follows a special token, as if the text
 * were a separate sentence. */
static pi_status encode_fragments(const tokenizer *t, const char *text,
                                  const fragment_list *fragments, token_sink *sink, pi_error *err) {
    encode_work work = {0};
    pi_status status = PI_OK;
    bool after_special = true;
    for (size_t i = 0; i < fragments->n && !status && !token_sink_done(sink); i++) {
        const text_fragment *f = &fragments->items[i];
        if (f->id >= 0) {
            token_sink_put(sink, f->id);
            after_special = true;
            continue;
        }
        const char *part = text + f->begin;
        size_t least = sink->stops ? least_tokens(t, part, f->n_bytes) : 0;
        if (sink->stops && sink->n + least > sink->capacity) {
            sink->n += least;
        } else if (t->kind == KIND_SPM) {
            bool prefix = t->info.add_space_prefix && after_special;
            status = tokenizer_spm_encode(t, part, f->n_bytes, prefix, &work, sink, err);
        } else if (t->kind == KIND_BPE) {
            status = tokenizer_bpe_encode(t, part, f->n_bytes, &work, sink, err);
        } else if (t->kind == KIND_WORDPIECE) {
            status = tokenizer_wordpiece_encode(t, part, f->n_bytes, &work, sink, err);
        } else if (t->kind == KIND_LONGEST) {
            tokenizer_longest_encode(t, part, f->n_bytes, sink);
        } else {
            status = tokenizer_unigram_encode(t, part, f->n_bytes, &work, sink, err);
        }
        after_special = false;
    }
    merge_free(&work.merge);
    pretokenizer_pieces_free(&work.pieces);
    mem_free(work.buffer);
    mem_free(work.cells);
    return status;
}

pi_status tokenizer_encode(const tokenizer *t, const char *text, size_t n_text, uint32_t flags,
                           int32_t *tokens, size_t capacity, size_t *n_tokens, pi_error *err) {
    assert(t && (text || n_text == 0) && (tokens || capacity == 0) && n_tokens);
    *n_tokens = 0;
    token_sink sink = {tokens, capacity, 0, flags & TOKENIZER_STOP};
    bool pairs = t->kind == KIND_WORDPIECE || t->kind == KIND_UNIGRAM;
    bool add = flags & TOKENIZER_ADD_SPECIAL || (pairs && flags & TOKENIZER_FORCE_BOS);
    bool bos = (add && t->info.add_bos) || (flags & TOKENIZER_FORCE_BOS);
    if (bos && t->info.bos >= 0) token_sink_put(&sink, t->info.bos);
    pi_status status = PI_OK;
    if (n_text > 0) {
        fragment_list fragments = {0};
        status = tokenizer_special_split(t, text, n_text, flags & TOKENIZER_PARSE_SPECIAL,
                                         &fragments, err);
        if (!status) status = encode_fragments(t, text, &fragments, &sink, err);
        mem_free(fragments.items);
    }
    if (status) return status;
    int32_t last = t->kind == KIND_WORDPIECE ? t->roles[TOKEN_ROLE_SEP] : t->info.eos;
    if (add && t->info.add_eos && last >= 0) token_sink_put(&sink, last);
    *n_tokens = sink.n;
    if (sink.n > capacity) {
        return error_set(err, PI_ERR_LIMIT,
                         "buffer too small: the text has %s%zu tokens: capacity %zu",
                         sink.stops ? "at least " : "", sink.n, capacity);
    }
    return PI_OK;
}

pi_status tokenizer_encode_new(const tokenizer *t, const char *text, size_t n_text, uint32_t flags,
                               const char *what, int32_t **tokens, size_t *n_tokens,
                               pi_error *err) {
    enum { EXTRA = 8 }; /* BOS, EOS and a prefix: most texts are tokenized only once */
    size_t capacity, n_bytes;
    *tokens = NULL;
    if (!size_add(n_text, EXTRA, &capacity)) return error_nomem(err, SIZE_MAX, what);
    for (;;) {
        if (!size_mul(capacity, sizeof **tokens, &n_bytes)) return error_nomem(err, SIZE_MAX, what);
        *tokens = mem_alloc(n_bytes);
        if (!*tokens) return error_nomem(err, n_bytes, what);
        pi_error why;
        pi_status status = tokenizer_encode(t, text, n_text, flags, *tokens, capacity, n_tokens,
                                            &why);
        if (status == PI_OK) return PI_OK;
        mem_free(*tokens);
        *tokens = NULL;
        bool too_small = status == PI_ERR_LIMIT && *n_tokens > capacity;
        if (!too_small && err) *err = why;
        if (!too_small) return status;
        capacity = *n_tokens;
    }
}

/* Writes the bytes of a token into `out`, which has room for its text; no form is longer. */
static size_t expand_token(const tokenizer *t, int32_t id, bool special, char *out) {
    const token_entry *token = &t->tokens[id];
    int byte;
    switch ((token_type)token->type) {
    case TOKEN_CONTROL:
    case TOKEN_UNKNOWN:
        if (!special) return 0;
        break;
    case TOKEN_USER_DEFINED:
        break;
    case TOKEN_NORMAL:
        if (t->kind == KIND_LONGEST) break;
        return tokenizer_escapes_spaces(t) ? tokenizer_unescape_spaces(token->text, out)
                                           : tokenizer_bpe_unmap(token->text, out);
    case TOKEN_BYTE:
        byte = tokenizer_byte_of(token->text);
        if (byte < 0) break;
        out[0] = (char)byte;
        return 1;
    case TOKEN_UNDEFINED:
    case TOKEN_UNUSED:
        return 0;
    }
    memcpy(out, token->text.data, (size_t)token->text.n_bytes);
    return (size_t)token->text.n_bytes;
}

static pi_status bad_id(const tokenizer *t, int32_t id, pi_error *err) {
    return error_set(err, PI_ERR_RANGE, "no such token: %d: ids go from 0 to %d", (int)id,
                     (int)t->info.n_vocab - 1);
}

/* Token texts are mostly short; longer ones need a separate buffer. */
enum { SHORT_TOKEN = 256 };

pi_status tokenizer_piece(const tokenizer *t, int32_t id, bool special, char *text, size_t capacity,
                          size_t *n_bytes, pi_error *err) {
    *n_bytes = 0;
    if (id < 0 || id >= t->info.n_vocab) return bad_id(t, id, err);
    size_t longest = (size_t)t->tokens[id].text.n_bytes;
    char local[SHORT_TOKEN], *buffer = local;
    if (longest > sizeof local && !(buffer = mem_alloc(longest))) {
        return error_nomem(err, longest, "token");
    }
    size_t n = expand_token(t, id, special, buffer);
    *n_bytes = n;
    if (n > 0 && n <= capacity) memcpy(text, buffer, n);
    if (buffer != local) mem_free(buffer);
    if (n <= capacity) return PI_OK;
    return error_set(err, PI_ERR_LIMIT, "buffer too small: token %d has %zu bytes: capacity %zu",
                     (int)id, n, capacity);
}

/* The first ordinary token of the sequence, and of each part after a special token, carries the
 * space that encoding adds. */
pi_status tokenizer_decode(const tokenizer *t, const int32_t *ids, size_t n_ids, bool special,
                           char *text, size_t capacity, size_t *n_bytes, pi_error *err) {
    *n_bytes = 0;
    char *buffer = mem_alloc(t->longest_token);
    if (!buffer) return error_nomem(err, t->longest_token, "token");
    size_t used = 0;
    bool after_special = true;
    for (size_t i = 0; i < n_ids; i++) {
        if (ids[i] < 0 || ids[i] >= t->info.n_vocab) {
            mem_free(buffer);
            return bad_id(t, ids[i], err);
        }
        token_type type = (token_type)t->tokens[ids[i]].type;
        size_t n = expand_token(t, ids[i], special, buffer);
        bool ordinary = type == TOKEN_NORMAL || type == TOKEN_BYTE;
        bool prefixed = t->info.add_space_prefix || t->kind == KIND_WORDPIECE;
        bool strip = ordinary && after_special && prefixed && n && *buffer == ' ';
        after_special = !ordinary;
        const char *from = buffer + strip;
        n -= strip;
        if (n && used <= capacity && n <= capacity - used) memcpy(text + used, from, n);
        used += n;
    }
    mem_free(buffer);
    *n_bytes = used;
    if (used <= capacity) return PI_OK;
    return error_set(err, PI_ERR_LIMIT, "buffer too small: the text has %zu bytes: capacity %zu",
                     used, capacity);
}

bool tokenizer_is_end(const tokenizer *t, int32_t id) {
    return id >= 0 && id < t->info.n_vocab && (t->tokens[id].attributes & TOKEN_ENDS_TURN);
}
