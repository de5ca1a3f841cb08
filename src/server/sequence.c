/* sequence.c: from tokens to text that may be shown.
 *
 * Bytes of tokens are held back while they are the beginning of a character, or of a stop text,
 * which may span any number of tokens. Everything else is released at once. */
#include "sequence.h"

#include <string.h>

#include "mem.h"
#include "os_text.h"
#include "utf8.h"

enum { MAX_TOKENS = 1 << 26 };

sequence *sequence_create(void) {
    sequence *q = mem_calloc(1, sizeof *q);
    if (q) {
        q->n_top = -1;
        q->max_tokens = -1;
        q->max_draft = -1;
        q->fd = -1;
        q->references = 1;
    }
    return q;
}

void sequence_free(sequence *q) {
    if (!q) return;
    for (int i = 0; i < q->n_stops; i++) mem_free(q->stops[i].text);
    pi_sampler_destroy(q->sampler);
    mem_free(q->prompt);
    mem_free(q->pooled);
    mem_free(q->neurons);
    bytes_free(&q->text);
    bytes_free(&q->held);
    mem_free(q->tokens);
    mem_free(q->tops);
    mem_free(q);
}

pi_status sequence_add_stop(sequence *q, const char *text, size_t n, pi_error *err) {
    if (n == 0 || n > SEQUENCE_MAX_STOP_BYTES)
        return error_set(err, PI_ERR_ARG, "stop: a text of %zu bytes: 1 to %d are allowed", n,
                         SEQUENCE_MAX_STOP_BYTES);
    if (q->n_stops == SEQUENCE_MAX_STOPS)
        return error_set(err, PI_ERR_ARG, "stop: more than %d texts", SEQUENCE_MAX_STOPS);
    char *copy = mem_strndup(text, n);
    if (!copy) return error_nomem(err, n, "stop");
    q->stops[q->n_stops++] = (stop_text){.text = copy, .n = n};
    return PI_OK;
}

/* ---- text ------------------------------------------------------------------------------------ */

/* The stop text that begins first in s[n]; of several at one place, the first of the list. */
static const stop_text *find_stop(const sequence *q, const char *s, size_t n, size_t *at) {
    const stop_text *best = NULL;
    for (int i = 0; i < q->n_stops; i++) {
        const stop_text *stop = &q->stops[i];
        const char *hit = n >= stop->n ? os_find(s, n, stop->text, stop->n) : NULL;
        if (!hit || (best && (size_t)(hit - s) >= *at)) continue;
        *at = (size_t)(hit - s);
        best = stop;
    }
    return best;
}

/* Bytes at the end of s[n] with which a stop text may begin: the longest such piece. */
static size_t stop_beginning(const sequence *q, const char *s, size_t n) {
    size_t longest = 0;
    for (int i = 0; i < q->n_stops; i++) {
        const stop_text *stop = &q->stops[i];
        size_t most = stop->n - 1 < n ? stop->n - 1 : n;
        for (size_t m = most; m > longest; m--) {
            if (memcmp(s + n - m, stop->text, m) == 0) longest = m;
        }
    }
    return longest;
}

static void fail_nomem(sequence *q) {
    pi_error err;
    error_nomem(&err, q->text.used + q->held.used, "answer");
    sequence_fail(q, &err);
}

static void release(sequence *q, size_t n) {
    if (!bytes_append(&q->text, q->held.data, n)) {
        fail_nomem(q);
        return;
    }
    bytes_remove_front(&q->held, n);
}

/* Shows what can be shown; true when a stop text was found. */
static bool show(sequence *q) {
    size_t at = 0;
    const stop_text *stop = find_stop(q, q->held.data, q->held.used, &at);
    if (stop) {
        q->stopped_by = stop;
        release(q, at);
        q->held.used = 0;
        return true;
    }
    size_t n = utf8_complete_prefix(q->held.data, q->held.used);
    size_t back = stop_beginning(q, q->held.data, q->held.used);
    size_t most = q->held.used - back;
    if (n > most) n = utf8_complete_prefix(q->held.data, most);
    release(q, n);
    return false;
}

static bool is_mark(const sequence *q, int32_t token) {
    for (size_t i = 0; i < q->n_marks && q->marks[i] <= token; i++)
        if (q->marks[i] == token) return true;
    return false;
}

/* special: control tokens also have a text. */
static bool append_token(sequence *q, int32_t token, bool special) {
    char text[256];
    size_t n = 0;
    pi_status status = pi_token_text(q->model, token, special, text, sizeof text, &n, NULL);
    if (status == PI_OK) return bytes_append(&q->held, text, n);
    if (status != PI_ERR_LIMIT) return true; /* a token without text */
    char *longer = mem_alloc(n);
    bool good = longer && pi_token_text(q->model, token, special, longer, n, &n, NULL) == PI_OK &&
                bytes_append(&q->held, longer, n);
    mem_free(longer);
    return good;
}

/* ---- tokens ---------------------------------------------------------------------------------- */

static bool note_token(sequence *q, token_choice chosen, const token_choice *tops) {
    size_t n = q->n_tokens;
    if (!mem_grow((void **)&q->tokens, &q->tokens_capacity, n + 1, sizeof *q->tokens, MAX_TOKENS))
        return false;
    if (q->n_top > 0) {
        size_t n_top = (size_t)q->n_top;
        if (!mem_grow((void **)&q->tops, &q->tops_capacity, (n + 1) * n_top, sizeof *q->tops,
                      (size_t)MAX_TOKENS * SEQUENCE_MAX_TOP))
            return false;
        memcpy(q->tops + n * n_top, tops, n_top * sizeof *tops);
    }
    q->tokens[n] = (token_record){.chosen = chosen};
    q->n_tokens = n + 1;
    return true;
}

/* The text of a prompt may lack a blank that its first token begins with. */
static void release_echo(sequence *q) {
    size_t extra = q->held.used > q->echo_bytes ? q->held.used - q->echo_bytes : 0;
    for (size_t i = 0; i < q->n_tokens; i++) {
        token_record *r = &q->tokens[i];
        r->text_end = r->text_end > extra ? r->text_end - extra : 0;
    }
    bytes_remove_front(&q->held, extra);
    release(q, q->held.used);
}

void sequence_echo(sequence *q, float logprob, const token_choice *tops) {
    static const token_choice none[SEQUENCE_MAX_TOP] = {
        {-1, 0}, {-1, 0}, {-1, 0}, {-1, 0}, {-1, 0}, {-1, 0}, {-1, 0}, {-1, 0}, {-1, 0}, {-1, 0},
        {-1, 0}, {-1, 0}, {-1, 0}, {-1, 0}, {-1, 0}, {-1, 0}, {-1, 0}, {-1, 0}, {-1, 0}, {-1, 0}};
    int32_t token = q->prompt[q->n_echo];
    bool begins = q->n_echo == 0 && token == pi_model_token(q->model, PI_TOKEN_BOS);
    if (!note_token(q, (token_choice){token, logprob}, tops ? tops : none) ||
        (!begins && !append_token(q, token, true))) {
        fail_nomem(q);
        return;
    }
    q->tokens[q->n_echo++].text_end = q->held.used;
    if (q->n_echo == (size_t)q->n_prompt) release_echo(q);
}

void sequence_push(sequence *q, token_choice chosen, const token_choice *tops) {
    if (!note_token(q, chosen, tops)) {
        fail_nomem(q);
        return;
    }
    token_record *record = &q->tokens[q->n_tokens - 1];
    if (!q->ignore_eos && pi_token_is_end(q->model, chosen.token)) {
        record->text_end = q->text.used + q->held.used;
        sequence_end(q, FINISH_EOS);
        return;
    }
    if (!append_token(q, chosen.token, is_mark(q, chosen.token))) {
        fail_nomem(q);
        return;
    }
    record->text_end = q->text.used + q->held.used;
    if (show(q))
        sequence_end(q, FINISH_STOP);
    else if (q->max_tokens >= 0 && q->n_tokens - q->n_echo >= (size_t)q->max_tokens)
        sequence_end(q, FINISH_LENGTH);
}

void sequence_end(sequence *q, finish_reason reason) {
    if (q->finish != FINISH_NONE) return;
    if (reason != FINISH_STOP) release(q, q->held.used);
    if (q->finish == FINISH_NONE) q->finish = reason;
}

void sequence_fail(sequence *q, const pi_error *why) {
    if (q->finish != FINISH_NONE) return;
    q->error = *why;
    q->finish = FINISH_ERROR;
}
