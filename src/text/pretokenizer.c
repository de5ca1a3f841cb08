/* pretokenizer.c: runs the pre-tokenizer patterns with PCRE2.
 *
 * The text is made well-formed first, because the patterns are defined on code points: a byte that
 * does not belong to a sequence becomes U+FFFD. Decoding is lenient (overlong forms are re-encoded,
 * surrogates kept), like the reference implementation.
 *
 * Decoding fills two buffers of the same length. `bytes` is tokenized. The patterns match
 * `subject`: in it, characters on which PCRE2's tables and the reference's disagree are replaced by
 * a character of the same length on which both agree, so that the split does not depend on PCRE2's
 * Unicode version. Offsets are valid in both buffers.
 *
 * Compiled patterns are read-only after creation; match data and limits belong to the call. Every
 * pattern takes linear time on every text, and a match limit proportional to the length enforces
 * it. */
#include "pretokenizer.h"

#include <string.h>

#include "mem.h"
#include "utf8.h"

const pretokenizer_row *pretokenizer_find(const char *name, size_t n_bytes) {
    for (size_t i = 0; i < pretokenizer_n_rows; i++) {
        const char *known = pretokenizer_rows[i].name;
        if (strlen(known) == n_bytes && memcmp(known, name, n_bytes) == 0) {
            return &pretokenizer_rows[i];
        }
    }
    return NULL;
}

void pretokenizer_pieces_free(pretokenizer_pieces *pieces) {
    mem_free(pieces->bytes);
    mem_free(pieces->subject);
    mem_free(pieces->ends);
    mem_free(pieces->cuts);
    *pieces = (pretokenizer_pieces){0};
}

#ifdef TEXT_HAVE_PCRE2

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

struct pretokenizer {
    int n_patterns;
    pcre2_code *patterns[PRETOKENIZER_MAX_PATTERNS];
};

/* Bytes after normalization: offsets are 32 bits. */
#define PIECES_MAX_BYTES ((size_t)1 << 30)

/* Replacement characters. Each has the UTF-8 length and category of the characters it replaces, and
 * is in no explicit range of a pattern that does not contain those characters. */
enum {
    STAND_IN_FORMAT = 0x200B,   /* Cf */
    STAND_IN_MARK_3 = 0x0CE3,   /* M in three bytes */
    STAND_IN_SYMBOL_3 = 0x2FF0, /* S in three bytes */
    STAND_IN_PRIVATE = 0xE000,  /* Co; surrogates count as other, and PCRE2 rejects them */
    STAND_IN_HAN = 0x20000,     /* an ideograph in four bytes */
    STAND_IN_LETTER = 0x10280,  /* other four-byte characters: L, N, M, P, S */
    STAND_IN_NUMBER = 0x1D7CE,
    STAND_IN_MARK = 0x1D165,
    STAND_IN_PUNCTUATION = 0x10100,
    STAND_IN_SYMBOL = 0x1D100
};

/* Characters that Unicode 15 and 15.1 assigned, which PCRE2 before 10.43 does not know; U+180E,
 * which PCRE2 treats as a blank although Unicode does not since 6.3; and surrogates. Ascending. */
static const struct stand_in {
    uint32_t first, last, replacement;
} stand_ins[] = {
    {0x0CF3, 0x0CF3, STAND_IN_MARK_3},        {0x0ECE, 0x0ECE, STAND_IN_MARK_3},
    {0x180E, 0x180E, STAND_IN_FORMAT},        {0x2FFC, 0x2FFF, STAND_IN_SYMBOL_3},
    {0xD800, 0xDFFF, STAND_IN_PRIVATE},       {0x10EFD, 0x10EFF, STAND_IN_MARK},
    {0x1123F, 0x11240, STAND_IN_LETTER},      {0x11241, 0x11241, STAND_IN_MARK},
    {0x11B00, 0x11B09, STAND_IN_PUNCTUATION}, {0x11F00, 0x11F01, STAND_IN_MARK},
    {0x11F02, 0x11F02, STAND_IN_LETTER},      {0x11F03, 0x11F03, STAND_IN_MARK},
    {0x11F04, 0x11F10, STAND_IN_LETTER},      {0x11F12, 0x11F33, STAND_IN_LETTER},
    {0x11F34, 0x11F3A, STAND_IN_MARK},        {0x11F3E, 0x11F42, STAND_IN_MARK},
    {0x11F43, 0x11F4F, STAND_IN_PUNCTUATION}, {0x11F50, 0x11F59, STAND_IN_NUMBER},
    {0x1342F, 0x1342F, STAND_IN_LETTER},      {0x13440, 0x13440, STAND_IN_MARK},
    {0x13441, 0x13446, STAND_IN_LETTER},      {0x13447, 0x13455, STAND_IN_MARK},
    {0x1B132, 0x1B132, STAND_IN_LETTER},      {0x1B155, 0x1B155, STAND_IN_LETTER},
    {0x1D2C0, 0x1D2D3, STAND_IN_NUMBER},      {0x1DF25, 0x1DF2A, STAND_IN_LETTER},
    {0x1E030, 0x1E06D, STAND_IN_LETTER},      {0x1E08F, 0x1E08F, STAND_IN_MARK},
    {0x1E4D0, 0x1E4EB, STAND_IN_LETTER},      {0x1E4EC, 0x1E4EF, STAND_IN_MARK},
    {0x1E4F0, 0x1E4F9, STAND_IN_NUMBER},      {0x1F6DC, 0x1F6DC, STAND_IN_SYMBOL},
    {0x1F774, 0x1F776, STAND_IN_SYMBOL},      {0x1F77B, 0x1F77F, STAND_IN_SYMBOL},
    {0x1F7D9, 0x1F7D9, STAND_IN_SYMBOL},      {0x1FA75, 0x1FA77, STAND_IN_SYMBOL},
    {0x1FA87, 0x1FA88, STAND_IN_SYMBOL},      {0x1FAAD, 0x1FAAF, STAND_IN_SYMBOL},
    {0x1FABB, 0x1FABD, STAND_IN_SYMBOL},      {0x1FABF, 0x1FABF, STAND_IN_SYMBOL},
    {0x1FACE, 0x1FACF, STAND_IN_SYMBOL},      {0x1FADA, 0x1FADB, STAND_IN_SYMBOL},
    {0x1FAE8, 0x1FAE8, STAND_IN_SYMBOL},      {0x1FAF7, 0x1FAF8, STAND_IN_SYMBOL},
    {0x2B739, 0x2B739, STAND_IN_HAN},         {0x2EBF0, 0x2EE5D, STAND_IN_HAN},
    {0x31350, 0x323AF, STAND_IN_HAN},
};

static uint32_t stand_in_for(uint32_t code_point) {
    size_t low = 0, high = sizeof stand_ins / sizeof stand_ins[0];
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (stand_ins[middle].last < code_point)
            low = middle + 1;
        else
            high = middle;
    }
    bool inside = low < sizeof stand_ins / sizeof stand_ins[0] &&
                  stand_ins[low].first <= code_point;
    return inside ? stand_ins[low].replacement : code_point;
}

static void *pcre_alloc(size_t n_bytes, void *user) {
    (void)user;
    return mem_alloc(n_bytes);
}

static void pcre_free(void *p, void *user) {
    (void)user;
    mem_free(p);
}

static pi_status compile_patterns(pretokenizer *p, const pretokenizer_row *row,
                                  pcre2_general_context *general, pi_error *err) {
    pcre2_compile_context *context = pcre2_compile_context_create(general);
    if (!context) return error_nomem(err, sizeof *p, "pre-tokenizer");
    pi_status status = PI_OK;
    for (int i = 0; i < row->n_patterns && !status; i++) {
        int code;
        PCRE2_SIZE offset;
        p->patterns[i] = pcre2_compile((PCRE2_SPTR)row->patterns[i], PCRE2_ZERO_TERMINATED,
                                       PCRE2_UTF | PCRE2_UCP, &code, &offset, context);
        if (p->patterns[i]) {
            /* Without JIT (not built in, or no executable memory) matching is only slower. */
            (void)pcre2_jit_compile(p->patterns[i], PCRE2_JIT_COMPLETE);
            p->n_patterns = i + 1;
        } else if (code == PCRE2_ERROR_NOMEMORY || code == PCRE2_ERROR_HEAP_FAILED) {
            status = error_nomem(err, strlen(row->patterns[i]), "pre-tokenizer pattern");
        } else {
            status = error_set(err, PI_ERR_UNSUPPORTED,
                               "PCRE2 refuses pattern %d of pre-tokenizer %s: offset %zu: this "
                               "build of PCRE2 (error %d) lacks Unicode support",
                               i, row->name, (size_t)offset, code);
        }
    }
    pcre2_compile_context_free(context);
    return status;
}

pi_status pretokenizer_create(const pretokenizer_row *row, pretokenizer **out, pi_error *err) {
    *out = NULL;
    pretokenizer *p = mem_calloc(1, sizeof *p);
    pcre2_general_context *general = pcre2_general_context_create(pcre_alloc, pcre_free, NULL);
    pi_status status = p && general ? compile_patterns(p, row, general, err)
                                    : error_nomem(err, sizeof *p, "pre-tokenizer");
    pcre2_general_context_free(general); /* the compiled patterns keep a copy */
    if (status) {
        pretokenizer_free(p);
        return status;
    }
    *out = p;
    return PI_OK;
}

void pretokenizer_free(pretokenizer *p) {
    if (!p) return;
    for (int i = 0; i < p->n_patterns; i++) pcre2_code_free(p->patterns[i]);
    mem_free(p);
}

/* Decodes one code point of possibly ill-formed UTF-8: checks only the length that the lead byte
 * implies and that continuation bytes follow. Values above U+10FFFF and stray bytes give U+FFFD. */
static uint32_t decode_leniently(const unsigned char *s, size_t n, size_t *step) {
    static const uint8_t lengths[16] = {1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 2, 2, 3, 4};
    size_t length = lengths[s[0] >> 4];
    *step = 1;
    if (length == 1) return s[0];
    if (length == 0 || length > n || s[0] >= 0xF8) return UTF8_REPLACEMENT;
    uint32_t code_point = s[0] & (0x7Fu >> length);
    for (size_t i = 1; i < length; i++) {
        if ((s[i] & 0xC0) != 0x80) return UTF8_REPLACEMENT;
        code_point = code_point << 6 | (s[i] & 0x3Fu);
    }
    *step = length;
    return code_point <= 0x10FFFF ? code_point : UTF8_REPLACEMENT;
}

/* Like utf8_encode, but writes a surrogate as three bytes. */
static size_t encode_leniently(uint32_t code_point, char out[UTF8_MAX_BYTES]) {
    if (code_point < 0xD800 || code_point > 0xDFFF) return utf8_encode(code_point, out);
    out[0] = (char)0xED;
    out[1] = (char)(0x80 | (code_point >> 6 & 0x3F));
    out[2] = (char)(0x80 | (code_point & 0x3F));
    return 3;
}

static pi_status normalize(pretokenizer_pieces *pieces, const char *text, size_t n, pi_error *err) {
    size_t worst;
    if (!size_mul(n, 3, &worst) || worst > PIECES_MAX_BYTES) {
        return error_set(err, PI_ERR_LIMIT,
                         "text of %zu bytes is too long to tokenize: at most %zu", n,
                         PIECES_MAX_BYTES / 3);
    }
    worst += UTF8_MAX_BYTES; /* space for a whole sequence at the end */
    if (!mem_grow((void **)&pieces->bytes, &pieces->byte_capacity, worst, 1,
                  PIECES_MAX_BYTES + UTF8_MAX_BYTES) ||
        !mem_grow((void **)&pieces->subject, &pieces->subject_capacity, worst, 1,
                  PIECES_MAX_BYTES + UTF8_MAX_BYTES)) {
        return error_nomem(err, worst * 2, "text to be tokenized");
    }
    size_t used = 0, step;
    for (size_t i = 0; i < n; i += step) {
        uint32_t c = decode_leniently((const unsigned char *)text + i, n - i, &step);
        size_t length = encode_leniently(c, pieces->bytes + used);
        size_t shown = utf8_encode(c < 0x80 ? c : stand_in_for(c), pieces->subject + used);
        (void)shown; /* == length: a replacement is as long as the original */
        used += length;
    }
    pieces->n_bytes = used;
    return PI_OK;
}

static bool add_end(pretokenizer_pieces *pieces, size_t end) {
    if (!mem_grow((void **)&pieces->ends, &pieces->end_capacity, pieces->n_pieces + 1,
                  sizeof *pieces->ends, PIECES_MAX_BYTES)) {
        return false;
    }
    pieces->ends[pieces->n_pieces++] = (uint32_t)end;
    return true;
}

typedef struct matcher {
    pcre2_match_data *data;
    pcre2_match_context *context;
} matcher;

/* Finds the first match at or after `from`; *found is false when there is none. */
static pi_status find_match(const matcher *m, const pcre2_code *code, const char *subject, size_t n,
                            size_t from, bool *found, pi_error *err) {
    const uint32_t options = PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY;
    int rc = pcre2_match(code, (PCRE2_SPTR)subject, n, from, options, m->data, m->context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
        rc = pcre2_match(code, (PCRE2_SPTR)subject, n, from, options | PCRE2_NO_JIT, m->data,
                         m->context);
    }
    *found = rc > 0;
    if (rc > 0 || rc == PCRE2_ERROR_NOMATCH) return PI_OK;
    if (rc == PCRE2_ERROR_NOMEMORY) return error_nomem(err, n, "pre-tokenizer match");
    return error_set(err, PI_ERR_LIMIT,
                     "pre-tokenizer failed: offset %zu of a piece of %zu bytes: PCRE2 error %d",
                     from, n, rc);
}

/* Splits subject[begin .. end) with one pattern and appends the new ends. */
static pi_status cut_piece(const matcher *m, const pcre2_code *code, pretokenizer_pieces *pieces,
                           size_t begin, size_t end, pi_error *err) {
    const char *subject = pieces->subject + begin;
    size_t n = end - begin, at = 0;
    while (at < n) {
        bool found;
        pi_status status = find_match(m, code, subject, n, at, &found, err);
        if (status) return status;
        const PCRE2_SIZE *match = pcre2_get_ovector_pointer(m->data);
        if (!found) break;
        if ((match[0] > at && !add_end(pieces, begin + match[0])) ||
            !add_end(pieces, begin + match[1])) {
            return error_nomem(err, pieces->n_pieces, "pieces of a text");
        }
        at = match[1];
    }
    if (at < n && !add_end(pieces, end)) {
        return error_nomem(err, pieces->n_pieces, "pieces of a text");
    }
    return PI_OK;
}

static pi_status apply_patterns(const pretokenizer *p, const matcher *m,
                                pretokenizer_pieces *pieces, pi_error *err) {
    pieces->n_pieces = 0;
    if (pieces->n_bytes > 0 && !add_end(pieces, pieces->n_bytes)) {
        return error_nomem(err, sizeof(uint32_t), "pieces of a text");
    }
    for (int i = 0; i < p->n_patterns; i++) {
        size_t n_cuts = pieces->n_pieces;
        uint32_t *old = pieces->ends;
        size_t old_capacity = pieces->end_capacity;
        pieces->ends = pieces->cuts;
        pieces->end_capacity = pieces->cut_capacity;
        pieces->cuts = old;
        pieces->cut_capacity = old_capacity;
        pieces->n_pieces = 0;
        size_t begin = 0;
        for (size_t j = 0; j < n_cuts; begin = pieces->cuts[j++]) {
            pi_status status = cut_piece(m, p->patterns[i], pieces, begin, pieces->cuts[j], err);
            if (status) return status;
        }
    }
    return PI_OK;
}

pi_status pretokenizer_split(const pretokenizer *p, const char *text, size_t n_bytes,
                             pretokenizer_pieces *pieces, pi_error *err) {
    pi_status status = normalize(pieces, text, n_bytes, err);
    if (status) return status;
    pcre2_general_context *general = pcre2_general_context_create(pcre_alloc, pcre_free, NULL);
    matcher m = {.data = general ? pcre2_match_data_create(1, general) : NULL,
                 .context = general ? pcre2_match_context_create(general) : NULL};
    if (m.data && m.context) {
        /* A linear pattern backtracks over each character a few times at most. */
        const uint32_t steps_per_byte = 2, base_steps = 1000000;
        pcre2_set_match_limit(m.context, base_steps + (uint32_t)pieces->n_bytes * steps_per_byte);
        status = apply_patterns(p, &m, pieces, err);
    } else {
        status = error_nomem(err, sizeof m, "pre-tokenizer");
    }
    pcre2_match_data_free(m.data);
    pcre2_match_context_free(m.context);
    pcre2_general_context_free(general);
    return status;
}

#else

pi_status pretokenizer_create(const pretokenizer_row *row, pretokenizer **out, pi_error *err) {
    *out = NULL;
    return error_set(err, PI_ERR_UNSUPPORTED,
                     "cannot split text for pre-tokenizer %s: this program was built without "
                     "PCRE2: build it with PCRE2 to use byte-level BPE vocabularies",
                     row->name);
}

void pretokenizer_free(pretokenizer *p) {
    (void)p;
}

pi_status pretokenizer_split(const pretokenizer *p, const char *text, size_t n_bytes,
                             pretokenizer_pieces *pieces, pi_error *err) {
    (void)p;
    (void)text;
    (void)n_bytes;
    (void)pieces;
    return error_set(err, PI_ERR_UNSUPPORTED, "built without PCRE2");
}

#endif
