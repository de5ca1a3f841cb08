/* sequence.c: tokens with their probabilities, and the text that pi_generation makes of them. */
#include "sequence.h"

#include <string.h>

#include "clock.h"
#include "mem.h"

enum { MAX_TOKENS = 1 << 26 };

sequence *sequence_create(void) {
    sequence *q = mem_calloc(1, sizeof *q);
    if (q) {
        q->n_top = -1;
        q->max_tokens = -1;
        q->max_draft = -1;
        q->fd = OS_SOCKET_NONE;
        q->references = 1;
    }
    return q;
}

void sequence_free(sequence *q) {
    if (!q) return;
    for (size_t i = 0; i < q->n_stops; i++) mem_free((char *)q->stops[i].text);
    pi_generation_free(q->generation);
    pi_sampler_destroy(q->sampler);
    mem_free(q->prompt);
    mem_free(q->pooled);
    mem_free(q->neurons);
    bytes_free(&q->text);
    bytes_free(&q->echoed);
    mem_free(q->tokens);
    mem_free(q->tops);
    mem_free(q);
}

pi_status sequence_add_stop(sequence *q, const char *text, size_t n, pi_error *err) {
    if (n == 0 || n > PI_STOP_TEXT_BYTES)
        return error_set(err, PI_ERR_ARG, "stop: a text of %zu bytes: 1 to %d are allowed", n,
                         PI_STOP_TEXT_BYTES);
    if (q->n_stops == PI_STOP_TEXTS)
        return error_set(err, PI_ERR_ARG, "stop: more than %d texts", PI_STOP_TEXTS);
    char *copy = mem_strndup(text, n);
    if (!copy) return error_nomem(err, n, "stop");
    q->stops[q->n_stops++] = (pi_stop_text){.text = copy, .n_bytes = n};
    return PI_OK;
}

static void fail_nomem(sequence *q) {
    pi_error err;
    error_nomem(&err, q->text.used + q->echoed.used, "answer");
    sequence_fail(q, &err);
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

/* Appends the text of a prompt's token; control tokens also have a text. */
static bool append_echo(sequence *q, int32_t token) {
    char text[256];
    size_t n = 0;
    pi_status status = pi_token_text(q->model, token, true, text, sizeof text, &n, NULL);
    if (status == PI_OK) return bytes_append(&q->echoed, text, n);
    if (status != PI_ERR_LIMIT) return true; /* a token without text */
    char *longer = mem_alloc(n);
    bool good = longer && pi_token_text(q->model, token, true, longer, n, &n, NULL) == PI_OK &&
                bytes_append(&q->echoed, longer, n);
    mem_free(longer);
    return good;
}

/* The text of a prompt may lack a blank that its first token begins with. */
static void release_echo(sequence *q) {
    size_t extra = q->echoed.used > q->echo_bytes ? q->echoed.used - q->echo_bytes : 0;
    for (size_t i = 0; i < q->n_tokens; i++) {
        token_record *r = &q->tokens[i];
        r->text_end = r->text_end > extra ? r->text_end - extra : 0;
    }
    if (!bytes_append(&q->text, q->echoed.data + extra, q->echoed.used - extra)) fail_nomem(q);
    q->echo_end = q->text.used;
    bytes_free(&q->echoed);
}

void sequence_echo(sequence *q, float logprob, const token_choice *tops) {
    static const token_choice none[SEQUENCE_MAX_TOP] = {
        {-1, 0}, {-1, 0}, {-1, 0}, {-1, 0}, {-1, 0}, {-1, 0}, {-1, 0}, {-1, 0}, {-1, 0}, {-1, 0},
        {-1, 0}, {-1, 0}, {-1, 0}, {-1, 0}, {-1, 0}, {-1, 0}, {-1, 0}, {-1, 0}, {-1, 0}, {-1, 0}};
    int32_t token = q->prompt[q->n_echo];
    bool begins = q->n_echo == 0 && token == pi_model_token(q->model, PI_TOKEN_BOS);
    if (!note_token(q, (token_choice){token, logprob}, tops ? tops : none) ||
        (!begins && !append_echo(q, token))) {
        fail_nomem(q);
        return;
    }
    q->tokens[q->n_echo++].text_end = q->echoed.used;
    if (q->n_echo == (size_t)q->n_prompt) release_echo(q);
}

/* Ends the text by the limits that apply to its lines. */
static void check_lines(sequence *q) {
    while (q->min_indent > 0 || q->max_seconds > 0) {
        const char *text = q->text.data;
        size_t at = q->line;
        while (at < q->text.used && (text[at] == ' ' || text[at] == '\t')) at++;
        if (q->line > 0 && at < q->text.used && text[at] != '\n' &&
            at - q->line < (size_t)q->min_indent) {
            sequence_end(q, FINISH_LENGTH);
            q->text.used = at;
            return;
        }
        const char *end = at < q->text.used ? memchr(text + at, '\n', q->text.used - at) : NULL;
        if (!end) break;
        q->line = (size_t)(end - text) + 1;
    }
    if (q->line > 0 && q->max_seconds > 0 &&
        clock_seconds() - q->times.first_token > q->max_seconds)
        sequence_end(q, FINISH_LENGTH);
}

void sequence_push(sequence *q, const pi_sampled *sampled, token_choice chosen,
                   const token_choice *tops) {
    static const finish_reason reasons[] = {[PI_STOP_NONE] = FINISH_NONE,
                                            [PI_STOP_EOS] = FINISH_EOS,
                                            [PI_STOP_LENGTH] = FINISH_LENGTH,
                                            [PI_STOP_TEXT] = FINISH_STOP,
                                            [PI_STOP_CANCELLED] = FINISH_GONE};
    pi_released r;
    if (!note_token(q, chosen, tops) ||
        pi_generation_accept(q->generation, sampled, &r, NULL) != PI_OK ||
        !bytes_append(&q->text, r.text, r.n_bytes)) {
        fail_nomem(q);
        return;
    }
    q->tokens[q->n_tokens - 1].text_end = q->echo_end + r.n_total;
    q->has_end = sampled->end;
    if (r.stop_text >= 0) q->stopped_by = &q->stops[r.stop_text];
    q->finish = reasons[r.stop];
    if (q->finish == FINISH_NONE) check_lines(q);
}

void sequence_end(sequence *q, finish_reason reason) {
    pi_released r = {.n_bytes = 0};
    if (q->finish != FINISH_NONE) return;
    if (q->generation) pi_generation_end(q->generation, PI_STOP_CANCELLED, &r);
    if (!bytes_append(&q->text, q->echoed.data, q->echoed.used) ||
        !bytes_append(&q->text, r.text, r.n_bytes))
        fail_nomem(q);
    else
        q->finish = reason;
}

void sequence_fail(sequence *q, const pi_error *why) {
    if (q->finish != FINISH_NONE) return;
    q->error = *why;
    q->finish = FINISH_ERROR;
}
