/* prepare_text.c: the calibration text: refused when it is not text, tokenized once, and sampled in
 * windows from all over it, so that all parts of the text are represented. The last windows are
 * held out; they are at the end of the text, as far from the others as possible. */
#include <string.h>

#include "file.h"
#include "mem.h"
#include "prepare.h"
#include "tokenizer.h"
#include "utf8.h"

enum {
    TEXT_MAX_BYTES = 256 << 20,
    WINDOW_DEFAULT = 512,
    HELD_OUT_SHARE = 8, /* one in this many windows is held out */
    WINDOW_MIN = 32,    /* tokens; in ubatches of few tokens hidden vectors are incomplete */
    WINDOWS_MIN = 2     /* one window for training, one held out */
};

/* The text must be UTF-8 without NUL, except for an incomplete sequence at its end. */
static pi_status check_text(const char *path, const char *text, size_t n_text, pi_error *err) {
    size_t n_whole = utf8_complete_prefix(text, n_text);
    if (n_text == 0)
        return error_set(err, PI_ERR_FORMAT,
                         "the calibration text is empty: %.300s: give a text of some thousand "
                         "words",
                         path);
    for (size_t i = 0, step; i < n_whole; i += step)
        if (utf8_decode(text + i, n_whole - i, &step) <= 0)
            return error_set(err, PI_ERR_FORMAT,
                             "the calibration text is not text: %.300s: byte %zu is %s: give a "
                             "file of UTF-8 text",
                             path, i, text[i] ? "not UTF-8" : "NUL");
    return PI_OK;
}

static pi_status choose_window(const model *m, const pi_prepare_options *o, prepare_text *out,
                               pi_error *err) {
    int32_t n = o->calibration_window;
    if (n == 0) n = WINDOW_DEFAULT;
    if (n > m->hp.n_ctx_train && o->calibration_window == 0) n = m->hp.n_ctx_train;
    if (n < WINDOW_MIN || n > PI_MAX_BATCH)
        return error_set(err, PI_ERR_ARG, "bad calibration window: %d tokens: use %d to %d", n,
                         WINDOW_MIN, PI_MAX_BATCH);
    if (o->calibration_tokens < WINDOWS_MIN * n)
        return error_set(err, PI_ERR_ARG,
                         "too few calibration tokens: %d, but two windows have %d: give "
                         "more, or smaller windows",
                         o->calibration_tokens, WINDOWS_MIN * n);
    out->n_window = n;
    return PI_OK;
}

/* Windows of `fresh` tokens of the text, each after a BOS where the model has one. */
static pi_status cut_windows(const int32_t *tokens, size_t n_tokens, int32_t bos, size_t most,
                             const pi_prepare_options *o, const notifier *t, prepare_text *out,
                             pi_error *err) {
    size_t n_window = (size_t)out->n_window, lead = bos >= 0, fresh = n_window - lead;
    size_t there = n_tokens / fresh, n = there < most ? there : most, n_bytes;
    if (there < WINDOWS_MIN)
        return error_set(err, PI_ERR_LIMIT,
                         "the calibration text is too short: %.300s: it has %zu tokens, two "
                         "windows need %zu: give a longer text",
                         o->calibration, n_tokens, WINDOWS_MIN * fresh);
    if (there < most)
        notify(t,
               "the calibration text has %zu tokens, fewer than the %d asked for: a longer one "
               "gives better statistics",
               n_tokens, o->calibration_tokens);
    if (!size_mul(n * n_window, sizeof *out->tokens, &n_bytes)) n_bytes = SIZE_MAX;
    out->tokens = mem_alloc(n_bytes);
    if (!out->tokens) return error_nomem(err, n_bytes, "calibration tokens");
    for (size_t w = 0; w < n; w++) {
        int32_t *window = out->tokens + w * n_window;
        if (lead) window[0] = bos;
        memcpy(window + lead, tokens + w * there / n * fresh, fresh * sizeof *window);
    }
    out->n_windows = (int32_t)n;
    out->n_held = out->n_windows / HELD_OUT_SHARE > 0 ? out->n_windows / HELD_OUT_SHARE : 1;
    return PI_OK;
}

static pi_status read_windows(const model *m, const tokenizer *vocabulary,
                              const pi_prepare_options *o, const notifier *t, const char *text,
                              size_t n_text, prepare_text *out, pi_error *err) {
    int32_t *tokens = NULL;
    size_t n_tokens = 0;
    const tokenizer_info *info = tokenizer_get_info(vocabulary);
    if (info->n_vocab > m->hp.n_vocab)
        return error_set(err, PI_ERR_FORMAT,
                         "vocabulary does not fit: %.300s: %d tokens, but the embedding matrix has "
                         "%d rows",
                         gguf_path(m->file), info->n_vocab, m->hp.n_vocab);
    pi_status status = tokenizer_encode_new(
        vocabulary, text, n_text, 0, "tokens of the calibration text", &tokens, &n_tokens, err);
    if (status == PI_OK)
        status = cut_windows(tokens, n_tokens, info->add_bos ? info->bos : -1,
                             (size_t)(o->calibration_tokens / out->n_window), o, t, out, err);
    mem_free(tokens);
    return status;
}

pi_status prepare_text_read(const model *m, const pi_prepare_options *o, const notifier *t,
                            prepare_text *out, pi_error *err) {
    *out = (prepare_text){0};
    if (!o->calibration)
        return error_set(err, PI_ERR_ARG, "no calibration text: prepare: name one");
    pi_status status = choose_window(m, o, out, err);
    if (status != PI_OK) return status;
    char *text = NULL;
    size_t n_text = 0;
    status = file_read_stream(o->calibration, TEXT_MAX_BYTES, &text, &n_text, err);
    if (status == PI_OK) status = check_text(o->calibration, text, n_text, err);
    if (status != PI_OK) {
        mem_free(text);
        return status;
    }
    sha256_hex(text, n_text, out->sha256);
    tokenizer *vocabulary = NULL;
    status = tokenizer_create(m->file, NULL, &vocabulary, err);
    if (status == PI_ERR_NOT_FOUND)
        error_prefix(err, status, "prepare cannot read the calibration text");
    if (status == PI_OK) status = read_windows(m, vocabulary, o, t, text, n_text, out, err);
    tokenizer_free(vocabulary);
    mem_free(text);
    if (status != PI_OK) prepare_text_free(out);
    return status;
}

void prepare_text_free(prepare_text *t) {
    mem_free(t->tokens);
    *t = (prepare_text){0};
}
