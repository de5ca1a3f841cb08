/* generate.c: prompt in, then token by token: sample, show, feed back.
 *
 * A token that is sampled last is never fed: its logits would not be used. So a context of n tokens
 * holds a prompt of n and still gives one token. Text is streamed up to the last complete
 * character; what is left at the end is written as it is. */
#include "generate.h"

#include <errno.h>
#include <string.h>

#include "clock.h"
#include "mem.h"
#include "signals.h"

static pi_status prepare_ends(generation *g, pi_error *err) {
    if (!g->ignore_eos) return PI_OK;
    pi_model_info info;
    pi_model_get_info(g->model, &info);
    g->logits = mem_calloc((size_t)info.n_vocab, sizeof *g->logits);
    if (!g->logits) return error_nomem(err, (size_t)info.n_vocab * sizeof *g->logits, "logits");
    for (int32_t id = 0; id < info.n_vocab; id++) {
        if (!pi_token_is_end(g->model, id)) continue;
        if (!mem_grow((void **)&g->ends, &g->ends_capacity, g->n_ends + 1, sizeof *g->ends,
                      INT32_MAX)) {
            return error_nomem(err, sizeof *g->ends, "list of end tokens");
        }
        g->ends[g->n_ends++] = id;
    }
    return PI_OK;
}

static int32_t sample_next(generation *g) {
    const float *logits = pi_logits(g->context, 0);
    if (g->logits) {
        pi_model_info info;
        pi_model_get_info(g->model, &info);
        memcpy(g->logits, logits, (size_t)info.n_vocab * sizeof *logits);
        for (size_t i = 0; i < g->n_ends; i++) g->logits[g->ends[i]] = -__builtin_inff();
        logits = g->logits;
    }
    return pi_sampler_sample(g->sampler, logits);
}

/* Streams text that is complete, or all that is left. */
static void show(generation *g, bool all) {
    if (!g->stream || g->output_failed) return;
    size_t end = all ? g->text.used : text_complete(g->text.data, g->text.used);
    if (end <= g->n_shown) return;
    errno = 0;
    size_t n = end - g->n_shown;
    if (fwrite(g->text.data + g->n_shown, 1, n, stdout) != n || fflush(stdout) != 0) {
        g->output_failed = true;
        g->output_errno = errno;
    }
    g->n_shown = end;
}

static pi_status keep_token(generation *g, int32_t token, pi_error *err) {
    if (!mem_grow((void **)&g->tokens, &g->tokens_capacity, g->n_tokens + 1, sizeof *g->tokens,
                  INT32_MAX)) {
        return error_nomem(err, sizeof *g->tokens, "generated tokens");
    }
    g->tokens[g->n_tokens++] = token;
    return text_append_token(&g->text, g->model, token, false, err);
}

/* PI_ERR_CANCELLED becomes a stop; *stopped is set then. */
static pi_status feed(generation *g, const int32_t *tokens, int32_t n, pi_logits_wanted wanted,
                      bool *stopped, pi_error *err) {
    pi_input input = {.session = g->session, .tokens = tokens, .n_tokens = n, .logits = wanted};
    pi_status status = signals_caught() ? PI_ERR_CANCELLED : pi_forward(g->context, &input, 1, err);
    *stopped = status == PI_ERR_CANCELLED && signals_caught();
    if (!*stopped) return status;
    g->stop = STOP_SIGNAL;
    return PI_OK;
}

static pi_status decode(generation *g, pi_error *err) {
    for (;;) {
        if (g->n_predict >= 0 && g->n_tokens >= (size_t)g->n_predict) {
            g->stop = STOP_LENGTH;
            return PI_OK;
        }
        int32_t token = sample_next(g);
        if (pi_token_is_end(g->model, token) && !g->ignore_eos) {
            g->stop = STOP_EOS;
            return PI_OK;
        }
        pi_status status = keep_token(g, token, err);
        if (status != PI_OK) return status;
        show(g, false);
        if (g->output_failed) return PI_OK;
        bool last = g->n_predict >= 0 && g->n_tokens >= (size_t)g->n_predict;
        if (last || pi_session_length(g->session) == pi_session_capacity(g->session)) {
            g->stop = STOP_LENGTH;
            return PI_OK;
        }
        bool stopped;
        status = feed(g, &token, 1, PI_LOGITS_LAST, &stopped, err);
        if (status != PI_OK || stopped) return status;
        g->n_decoded++;
    }
}

pi_status generation_run(generation *g, pi_error *err) {
    pi_status status = prepare_ends(g, err);
    if (status != PI_OK) return status;
    for (int32_t i = 0; i < g->n_prompt; i++) pi_sampler_accept(g->sampler, g->prompt[i]);
    double start = clock_seconds();
    bool stopped;
    pi_logits_wanted wanted = g->n_predict == 0 ? PI_LOGITS_NONE : PI_LOGITS_LAST;
    status = feed(g, g->prompt, g->n_prompt, wanted, &stopped, err);
    if (status != PI_OK || stopped) return status;
    double middle = clock_seconds();
    g->prompt_seconds = middle - start;
    status = decode(g, err);
    g->decode_seconds = clock_seconds() - middle;
    show(g, true);
    return status;
}

void generation_free(generation *g) {
    text_free(&g->text);
    mem_free(g->tokens);
    mem_free(g->logits);
    mem_free(g->ends);
}
