/* api_sampler.c: public samplers. Finds the end-of-generation tokens and the token sequences of
 * DRY's sequence breakers for the internal sampler.
 *
 * A breaker is a text, which can be split into tokens in many ways. So the search covers every
 * token of the vocabulary: a token that contains the whole breaker is a breaker by itself; a token
 * that ends with the beginning of the breaker is one when the tokens of the rest follow. */
#include <string.h>

#include "api_types.h"
#include "grammar.h"
#include "mem.h"
#include "os_text.h"
#include "powerinfer_speculate.h"

enum {
    PIECE_MAX = 512,       /* bytes; far more than any token of any vocabulary */
    HISTORY_MAX = 1 << 20, /* tokens that DRY looks back on by default, at most: 12 MB of history */
    HISTORY_DEFAULT = 8192 /* for models without a training context */
};

static const char *const default_breakers[] = {"\n", ":", "\"", "*"};
enum { N_DEFAULT_BREAKERS = sizeof default_breakers / sizeof *default_breakers };

/* Limits of breakers: far beyond use; sizes stay small. */
enum { BREAKER_BYTES_MAX = 256, BREAKERS_MAX = 1024 };

pi_sampler_options pi_sampler_default_options(void) {
    return (pi_sampler_options){.temp = 0.8f,
                                .dynatemp_exponent = 1,
                                .top_k = 40,
                                .top_p = 0.95f,
                                .min_p = 0.05f,
                                .typical_p = 1,
                                .top_n_sigma = -1,
                                .repeat_penalty = 1,
                                .repeat_last_n = 64,
                                .xtc_threshold = 0.1f,
                                .dry_base = 1.75f,
                                .dry_allowed_length = 2,
                                .dry_last_n = -1,
                                .mirostat_tau = 5,
                                .mirostat_eta = 0.1f,
                                .seed = UINT64_MAX};
}

/* Lists for sampler_create, freed after it. */
typedef struct vocab_lists {
    int32_t *ends;
    size_t n_ends, ends_capacity;
    dry_breakers breakers;
    size_t breakers_capacity;
} vocab_lists;

static pi_status list_ends(const pi_model *m, int32_t n_vocab, vocab_lists *l, pi_error *err) {
    for (int32_t id = 0; id < n_vocab; id++) {
        if (!pi_token_is_end(m, id)) continue;
        if (!mem_grow((void **)&l->ends, &l->ends_capacity, l->n_ends + 1, sizeof *l->ends,
                      (size_t)n_vocab)) {
            return error_nomem(err, sizeof *l->ends, "list of end tokens");
        }
        l->ends[l->n_ends++] = id;
    }
    return PI_OK;
}

/* Whether a token is a lone blank, which tokenizers put before a text but not inside it. */
static bool is_blank(const pi_model *m, int32_t token) {
    char piece[PIECE_MAX];
    size_t n = 0;
    return pi_token_text(m, token, false, piece, sizeof piece, &n, NULL) == PI_OK && n == 1 &&
           piece[0] == ' ';
}

/* Adds `token` followed by the tokens of `rest`, as many as a breaker can have. */
static pi_status add_breaker(const pi_model *m, int32_t token, const char *rest, vocab_lists *l,
                             pi_error *err) {
    dry_breaker b = {.tokens = {token}, .n = 1};
    int32_t tail[DRY_BREAKER_MAX + 1]; /* possibly a lone blank, then the tokens of `rest` */
    size_t n_tail = 0;
    if (*rest) {
        pi_error why;
        pi_status status = pi_tokenize(m, rest, strlen(rest), 0, tail, DRY_BREAKER_MAX + 1, &n_tail,
                                       &why);
        bool cut = status == PI_ERR_LIMIT && n_tail > DRY_BREAKER_MAX + 1;
        if (cut) n_tail = DRY_BREAKER_MAX + 1;
        if (status != PI_OK && !cut) {
            if (err) *err = why;
            return status;
        }
    }
    size_t first = n_tail > 0 && *rest != ' ' && is_blank(m, tail[0]);
    for (size_t i = first; i < n_tail && b.n < DRY_BREAKER_MAX; i++) b.tokens[b.n++] = tail[i];
    if (!mem_grow((void **)&l->breakers.items, &l->breakers_capacity, l->breakers.n + 1, sizeof b,
                  INT32_MAX)) {
        return error_nomem(err, sizeof b, "sequence breakers");
    }
    l->breakers.items[l->breakers.n++] = b;
    return PI_OK;
}

/* Adds the breakers for `text` that begin with token `id`, whose bytes are `piece`. */
static pi_status add_breakers_of(const pi_model *m, int32_t id, const char *piece, size_t n_piece,
                                 const char *text, vocab_lists *l, pi_error *err) {
    size_t n_text = strlen(text);
    if (os_find(piece, n_piece, text, n_text)) return add_breaker(m, id, "", l, err);
    pi_status status = PI_OK;
    for (size_t n = 1; n < n_text && n <= n_piece && status == PI_OK; n++) {
        if (memcmp(piece + n_piece - n, text, n) == 0) {
            status = add_breaker(m, id, text + n, l, err);
        }
    }
    return status;
}

static pi_status list_breakers(const pi_model *m, int32_t n_vocab, const pi_sampler_options *o,
                               vocab_lists *l, pi_error *err) {
    const char *const *texts = o->dry_breakers ? o->dry_breakers : default_breakers;
    size_t n_texts = o->dry_breakers ? o->n_dry_breakers : (size_t)N_DEFAULT_BREAKERS;
    if (n_texts > BREAKERS_MAX)
        return error_set(err, PI_ERR_ARG, "too many: sequence breakers: give at most %d",
                         BREAKERS_MAX);
    for (size_t i = 0; i < n_texts; i++) {
        size_t n = strlen(texts[i]);
        if (n == 0 || n > BREAKER_BYTES_MAX)
            return error_set(err, PI_ERR_ARG,
                             "invalid length: sequence breaker %zu: use 1 to %d bytes", i + 1,
                             BREAKER_BYTES_MAX);
    }
    if (n_texts == 0) return PI_OK;
    if (!m->text) {
        if (!o->dry_breakers) return PI_OK; /* token ids alone: sequences have no bounds */
        return error_set(err, PI_ERR_UNSUPPORTED, "%s", m->no_text.message);
    }
    for (int32_t id = 0; id < n_vocab; id++) {
        char piece[PIECE_MAX];
        size_t n_piece = 0;
        if (pi_token_text(m, id, false, piece, sizeof piece, &n_piece, NULL) != PI_OK) continue;
        for (size_t i = 0; i < n_texts; i++) {
            pi_status status = add_breakers_of(m, id, piece, n_piece, texts[i], l, err);
            if (status != PI_OK) return status;
        }
    }
    return PI_OK;
}

int32_t api_n_vocab(const pi_model *m) {
    pi_model_info info;
    pi_model_get_info(m, &info);
    int32_t n_text = m->text ? tokenizer_get_info(m->text)->n_vocab : info.n_vocab;
    return n_text < info.n_vocab ? n_text : info.n_vocab;
}

static pi_status create_chain(const pi_model *m, const pi_sampler_options *o, sampler **out,
                              pi_error *err) {
    pi_model_info info;
    pi_model_get_info(m, &info);
    info.n_vocab = api_n_vocab(m);
    if (o->grammar && grammar_vocabulary(o->grammar) != m->trie)
        return error_set(err, PI_ERR_ARG, "the grammar was made for another model");
    vocab_lists l = {.n_ends = 0};
    pi_status status = PI_OK;
    if (o->ignore_eos) status = list_ends(m, info.n_vocab, &l, err);
    if (status == PI_OK && sampler_wants_breakers(o)) {
        status = list_breakers(m, info.n_vocab, o, &l, err);
    }
    if (status == PI_OK) {
        int32_t n_history = info.n_ctx_train > 0 ? info.n_ctx_train : HISTORY_DEFAULT;
        const sample_vocab vocab = {.n_vocab = info.n_vocab,
                                    .n_history = n_history < HISTORY_MAX ? n_history : HISTORY_MAX,
                                    .ends = l.ends,
                                    .n_ends = l.n_ends,
                                    .breakers = &l.breakers};
        status = sampler_create(o, &vocab, out, err);
    }
    mem_free(l.ends);
    mem_free(l.breakers.items);
    return status;
}

pi_status pi_sampler_create(const pi_model *m, const pi_sampler_options *options, pi_sampler **out,
                            pi_error *err) {
    pi_sampler_options defaults = pi_sampler_default_options();
    *out = NULL;
    pi_sampler *s = mem_calloc(1, sizeof *s);
    if (!s) return error_nomem(err, sizeof *s, "sampler");
    pi_status status = create_chain(m, options ? options : &defaults, &s->chain, err);
    if (status != PI_OK) {
        mem_free(s);
        return status;
    }
    *out = s;
    return PI_OK;
}

void pi_sampler_destroy(pi_sampler *s) {
    if (!s) return;
    sampler_free(s->chain);
    mem_free(s);
}

pi_status pi_sampler_clone(const pi_sampler *from, pi_sampler **out, pi_error *err) {
    *out = NULL;
    pi_sampler *s = mem_calloc(1, sizeof *s);
    if (!s) return error_nomem(err, sizeof *s, "sampler");
    pi_status status = sampler_clone(from->chain, &s->chain, err);
    if (status == PI_OK)
        *out = s;
    else
        mem_free(s);
    return status;
}
void pi_sampler_copy(pi_sampler *to, const pi_sampler *from) {
    sampler_copy(to->chain, from->chain);
}
void pi_sampler_accept(pi_sampler *s, int32_t token) {
    sampler_accept(s->chain, token);
}
int32_t pi_sampler_sample(pi_sampler *s, const float *logits) {
    return sampler_sample(s->chain, logits);
}
pi_grammar_progress pi_sampler_grammar_progress(const pi_sampler *s, pi_error *why) {
    return sampler_grammar_progress(s->chain, why);
}
void pi_sampler_grammar_restart(pi_sampler *s) {
    sampler_grammar_restart(s->chain);
}
uint64_t pi_sampler_seed(const pi_sampler *s) {
    return sampler_seed(s->chain);
}
