/* tokenizer_wordpiece.c: WordPiece (BERT; Devlin et al. 2019, arXiv:1810.04805). The text is
 * lower-cased, loses its accents, and is split into words at blanks and around punctuation and CJK
 * characters. A word becomes the longest tokens that form it, from left to right, or the unknown
 * token where none continue it. Token texts that begin a word have U+2581 in front; the others
 * continue one.
 *
 * Like llama.cpp, a character loses its accents by becoming the first character of its canonical
 * decomposition; combining characters that stand alone in the text stay. */
#include <string.h>

#ifdef TEXT_HAVE_UTF8PROC
#include <utf8proc.h>
#endif

#include "mem.h"
#include "tokenizer_impl.h"
#include "utf8.h"

pi_status tokenizer_wordpiece_load(tokenizer *t, const gguf_file *file, pi_error *err) {
#ifndef TEXT_HAVE_UTF8PROC
    (void)t, (void)file;
    return error_set(err, PI_ERR_UNSUPPORTED,
                     "vocabularies of WordPiece: this program was built without utf8proc");
#else
    const uint32_t all_types = UINT32_MAX;
    t->lower_case = t->strip_accents = true;
    pi_status status = tokenizer_load_flag(file, "tokenizer.ggml.normalizer.lowercase",
                                           &t->lower_case, err);
    if (!status)
        status = tokenizer_load_flag(file, "tokenizer.ggml.normalizer.strip_accents",
                                     &t->strip_accents, err);
    return status ? status : tokenizer_prefixes_build(t, all_types, err);
#endif
}

#ifdef TEXT_HAVE_UTF8PROC

static bool is_blank(uint32_t c) {
    return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
           c == 0x205f || c == 0x3000;
}

/* The range from U+2B920 on is that of the reference tokenizers; the block starts at U+2B820. */
static bool is_cjk(uint32_t c) {
    return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) ||
           (c >= 0x20000 && c <= 0x2a6df) || (c >= 0x2a700 && c <= 0x2b73f) ||
           (c >= 0x2b740 && c <= 0x2b81f) || (c >= 0x2b920 && c <= 0x2ceaf) ||
           (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
}

static bool is_control(utf8proc_category_t k) {
    return k == UTF8PROC_CATEGORY_CC || k == UTF8PROC_CATEGORY_CF || k == UTF8PROC_CATEGORY_CO ||
           k == UTF8PROC_CATEGORY_CS;
}

static bool stands_alone(uint32_t c, utf8proc_category_t k) {
    bool punctuation = k >= UTF8PROC_CATEGORY_PC && k <= UTF8PROC_CATEGORY_PO;
    bool symbol = k >= UTF8PROC_CATEGORY_SM && k <= UTF8PROC_CATEGORY_SO;
    return punctuation || (symbol && c < 0x7f) || is_cjk(c);
}

static uint32_t without_accents(uint32_t c) {
    enum { LONGEST = 8 }; /* canonical decompositions have at most 4 code points */
    utf8proc_int32_t parts[LONGEST];
    utf8proc_ssize_t n = utf8proc_decompose_char((utf8proc_int32_t)c, parts, LONGEST,
                                                 UTF8PROC_DECOMPOSE, NULL);
    return n > 0 ? (uint32_t)parts[0] : c;
}

/* The word in work->buffer, which begins with U+2581. */
static void put_word(const tokenizer *t, const char *word, size_t n, token_sink *sink) {
    const size_t n_before = sink->n;
    for (size_t at = 0, length; at < n; at += length) {
        prefix_walk w = tokenizer_prefix_begin(t);
        int32_t id, best = -1;
        length = 0;
        for (size_t i = at; i < n && tokenizer_prefix_next(t, &w, word[i], &id); i++) {
            if (id < 0) continue;
            best = id;
            length = i + 1 - at;
        }
        if (best < 0) {
            sink->n = n_before;
            if (t->info.unk >= 0) token_sink_put(sink, t->info.unk);
            return;
        }
        token_sink_put(sink, best);
    }
}

pi_status tokenizer_wordpiece_encode(const tokenizer *t, const char *text, size_t n_bytes,
                                     encode_work *work, token_sink *sink, pi_error *err) {
    /* A character of 2 or 3 bytes may have one more in lower case. */
    size_t room;
    if (!size_mul(n_bytes, 2, &room) || !size_add(room, SPM_SPACE_BYTES + UTF8_MAX_BYTES, &room) ||
        !mem_grow((void **)&work->buffer, &work->buffer_capacity, room, 1, SIZE_MAX / 2)) {
        return error_nomem(err, n_bytes, "text to be tokenized");
    }
    char *const word = work->buffer;
    memcpy(word, SPM_SPACE, SPM_SPACE_BYTES);
    size_t n = SPM_SPACE_BYTES;
    for (size_t i = 0, step; i < n_bytes && !token_sink_done(sink); i += step) {
        int32_t decoded = utf8_decode(text + i, n_bytes - i, &step);
        if (decoded <= 0 || decoded == UTF8_REPLACEMENT) continue;
        uint32_t c = t->strip_accents ? without_accents((uint32_t)decoded) : (uint32_t)decoded;
        utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
        if (!is_blank(c) && is_control(k)) continue;
        bool alone = !is_blank(c) && stands_alone(c, k);
        if ((is_blank(c) || alone) && n > SPM_SPACE_BYTES) {
            put_word(t, word, n, sink);
            n = SPM_SPACE_BYTES;
        }
        if (is_blank(c)) continue;
        if (t->lower_case) c = (uint32_t)utf8proc_tolower((utf8proc_int32_t)c);
        n += utf8_encode(c, word + n);
        if (!alone) continue;
        put_word(t, word, n, sink);
        n = SPM_SPACE_BYTES;
    }
    if (n > SPM_SPACE_BYTES) put_word(t, word, n, sink);
    return PI_OK;
}

#else

pi_status tokenizer_wordpiece_encode(const tokenizer *t, const char *text, size_t n_bytes,
                                     encode_work *work, token_sink *sink, pi_error *err) {
    (void)t, (void)text, (void)n_bytes, (void)work, (void)sink;
    return error_set(err, PI_ERR_UNSUPPORTED, "WordPiece: this program was built without utf8proc");
}

#endif
