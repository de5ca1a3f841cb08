/* generate.c: prompt in, then token by token: sample, show, feed back.
 *
 * The last sampled token is not evaluated: its logits would not be used. So a context of n tokens
 * holds a prompt of n and still gives one token. Text is streamed up to the last complete
 * character; what is left at the end is written as it is.
 *
 * A shift makes room in a full context as llama.cpp does: the first n_keep tokens stay, half of the
 * others are dropped. The rest is evaluated again at its new positions, which costs a prefill but
 * is correct for every position encoding and cache type. */
#include "generate.h"

#include <errno.h>
#include <string.h>

#include "clock.h"
#include "mem.h"
#include "signals.h"
#include "terminal.h"

/* Seconds of prefill before progress is shown. */
#define PROGRESS_AFTER 0.5

/* Streams text that is complete, or all that is left. */
static void show(generation *g, bool all) {
    if (!g->stream || g->output_failed) return;
    size_t end = all ? g->text.used : text_complete(g->text.data, g->text.used);
    if (end <= g->n_shown) return;
    errno = 0;
    if (g->write)
        g->write(g->write_user, g->text.data + g->n_shown, end - g->n_shown);
    else
        text_write(stdout, g->text.data + g->n_shown, end - g->n_shown, g->terminal);
    if (fflush(stdout) != 0 || ferror(stdout)) {
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
static pi_status feed(generation *g, pi_input input, bool *stopped, pi_error *err) {
    input.session = g->session;
    pi_status status = signals_caught() ? PI_ERR_CANCELLED : pi_forward(g->context, &input, 1, err);
    *stopped = status == PI_ERR_CANCELLED && signals_caught();
    if (*stopped) {
        g->stop = STOP_SIGNAL;
        g->signal = signals_caught();
        return PI_OK;
    }
    if (status == PI_OK && g->fed) {
        int32_t at = pi_session_length(g->session) - input.n_tokens;
        memmove(g->fed + at, input.tokens, (size_t)input.n_tokens * sizeof *g->fed);
    }
    return status;
}

/* Tokens that a shift would drop. */
static int32_t shift_size(const generation *g) {
    return g->shift ? (g->n_past - g->n_keep) / 2 : 0;
}

static pi_status feed_pieces(generation *g, const int32_t *tokens, int32_t n, bool *stopped,
                             pi_error *err) {
    pi_status status = PI_OK;
    while (n > 0 && status == PI_OK && !*stopped) {
        int32_t piece = n < g->n_batch ? n : g->n_batch;
        status = feed(g, (pi_input){.tokens = tokens, .n_tokens = piece}, stopped, err);
        tokens += piece;
        n -= piece;
    }
    return status;
}

/* With recurrent layers some of the tokens that stay may have to be fed again too. */
static pi_status shift_context(generation *g, bool *stopped, pi_error *err) {
    int32_t n = g->n_past, dropped = shift_size(g);
    int32_t point = pi_session_rewind_point(g->session, g->n_keep);
    pi_status status = pi_session_rewind(g->session, point, err);
    if (status == PI_OK) status = feed_pieces(g, g->fed + point, g->n_keep - point, stopped, err);
    if (status == PI_OK && !*stopped)
        status = feed_pieces(g, g->fed + g->n_keep + dropped, n - g->n_keep - dropped, stopped,
                             err);
    g->n_shifts++;
    g->n_past = pi_session_length(g->session);
    return status;
}

/* Looks for a text that ends the generation in what came from `from` on, and splits what follows
 * the first one. */
static bool cut_at_stop(generation *g, size_t from) {
    size_t best = SIZE_MAX;
    for (int i = 0; g->stops && i < g->stops->n; i++) {
        const text_buffer *stop = &g->stops->items[i];
        size_t at = from + 1 > stop->used ? from + 1 - stop->used : 0;
        for (; at + stop->used <= g->text.used && at + stop->used < best; at++) {
            if (memcmp(g->text.data + at, stop->data, stop->used) == 0) best = at + stop->used;
        }
    }
    if (best == SIZE_MAX) return false;
    g->text.used = best;
    g->stop = STOP_TEXT;
    return true;
}

/* Cuts the text before an empty line in what came from `from` on; empty lines at the beginning of
 * the text do not count. */
static bool cut_at_paragraph(generation *g, size_t from) {
    const char *text = g->text.data;
    size_t at = 0, n = g->text.used;
    while (at < n && (text[at] == '\n' || text[at] == ' ')) at++;
    if (at + 1 < from) at = from - 1;
    for (; at + 1 < n; at++) {
        if (text[at] != '\n' || text[at + 1] != '\n') continue;
        g->text.used = at;
        g->stop = STOP_TEXT;
        return true;
    }
    return false;
}

/* Where a token leads: true when it was the last. A drafted one has its place in the session. */
static bool is_last(generation *g, size_t text_before, bool drafted) {
    if (cut_at_stop(g, text_before)) return true;
    if (g->one_paragraph && cut_at_paragraph(g, text_before)) return true;
    bool enough = g->n_predict >= 0 && g->n_tokens >= (size_t)g->n_predict;
    bool full = !drafted && g->n_past == pi_session_capacity(g->session);
    g->context_full = !enough && full && shift_size(g) == 0;
    g->stop = STOP_LENGTH;
    return enough || g->context_full;
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* Adds what was drafted for the text since it was begun. */
static void count_drafts(generation *g) {
    if (!g->speculator) return;
    pi_draft_counts n = pi_speculator_counts(g->speculator, 0);
    g->drafts.drafted += n.drafted;
    g->drafts.accepted += n.accepted;
}

/* The text in the session is what is drafted for from now on. */
static pi_status begin_drafts(generation *g, const int32_t *tokens, pi_error *err) {
    if (!g->speculator) return PI_OK;
    if (g->n_shifts > 0) count_drafts(g);
    return pi_speculator_begin(g->speculator, 0, tokens, g->n_past, g->sampler, err);
}

/* Drafts of tokens that were not sampled leave the session, with recurrent layers also those that
 * were: they are fed again with the next token. */
static pi_status drop_drafts(generation *g, pi_error *err) {
    if (pi_session_length(g->session) == g->n_past) return PI_OK;
    return pi_session_rewind(g->session, pi_session_rewind_point(g->session, g->n_past), err);
}

/* Feeds a token, and after it what is drafted; the rows of logits follow from row 0 on. */
static pi_status take_step(generation *g, int32_t token, bool *stopped, pi_error *err) {
    int32_t tokens[PI_DRAFT_MAX + 1 + PI_DRAFT_MAX];
    int32_t again = g->n_past - pi_session_length(g->session);
    int32_t room = pi_session_capacity(g->session) - g->n_past - 1;
    int64_t left = g->n_predict < 0 ? INT32_MAX : g->n_predict - (int64_t)g->n_tokens;
    pi_draft draft = {.room = left - 1 < room ? (int32_t)(left - 1) : room, .n_again = again};
    pi_error why;
    if (g->speculator && pi_speculator_draft(g->speculator, &draft, 1, 0, &why) != PI_OK &&
        !g->quiet)
        fprintf(stderr, "the draft model failed: continuing without it: %s\n", why.message);
    if (again > 0) memcpy(tokens, g->fed + g->n_past - again, (size_t)again * sizeof *tokens);
    tokens[again] = token;
    if (draft.n > 0) memcpy(tokens + again + 1, draft.tokens, (size_t)draft.n * sizeof *tokens);
    pi_input step = {.tokens = tokens,
                     .n_tokens = again + 1 + draft.n,
                     .logits = PI_LOGITS_LAST,
                     .n_drafts = draft.n};
    double start = clock_seconds();
    pi_status status = feed(g, step, stopped, err);
    if (status != PI_OK || *stopped) return status;
    if (g->speculator)
        pi_speculator_measured(g->speculator, step.n_tokens, clock_seconds() - start);
    g->row = 0;
    g->n_past++;
    g->n_decoded++;
    g->n_steps++;
    return PI_OK;
}

/* Makes logits for what follows a token that was sampled. */
static pi_status next_logits(generation *g, int32_t token, bool *stopped, pi_error *err) {
    pi_status status = drop_drafts(g, err);
    if (status == PI_OK && g->n_past == pi_session_capacity(g->session)) {
        status = shift_context(g, stopped, err);
        if (status == PI_OK && !*stopped) status = begin_drafts(g, g->fed, err);
        if (g->speculator) pi_speculator_accept(g->speculator, 0, token);
    }
    return status == PI_OK && !*stopped ? take_step(g, token, stopped, err) : status;
}

/* ---- the text -------------------------------------------------------------------------------- */

/* Takes the token into the text; *last: it was the last one. */
static pi_status take_token(generation *g, int32_t token, bool complete, bool drafted, bool *last,
                            pi_error *err) {
    size_t before = g->text.used;
    pi_status status = keep_token(g, token, err);
    if (status != PI_OK) return status;
    *last = is_last(g, before, drafted);
    if (complete && !*last) { /* nothing but the end could follow */
        g->stop = STOP_EOS;
        *last = true;
    }
    show(g, false);
    *last = *last || g->output_failed;
    return PI_OK;
}

static pi_status decode(generation *g, pi_error *err) {
    bool stopped = false, last = false;
    pi_status status = begin_drafts(g, g->prompt, err);
    g->stop = STOP_LENGTH;
    while (g->n_predict != 0 && status == PI_OK) {
        int32_t token = pi_sampler_sample(g->sampler, pi_logits(g->context, g->row));
        pi_error why;
        pi_grammar_progress grammar = pi_sampler_grammar_progress(g->sampler, &why);
        if (grammar == PI_GRAMMAR_FAILED) {
            if (err) *err = why;
            status = why.status;
            break;
        }
        bool complete = grammar == PI_GRAMMAR_COMPLETE;
        if (pi_token_is_end(g->model, token) && (!g->ignore_eos || complete)) {
            g->stop = STOP_EOS;
            break;
        }
        bool drafted = g->speculator && pi_speculator_accept(g->speculator, 0, token);
        if (drafted) { /* it is in the session, and its logits in the next row */
            g->row++;
            g->n_past++;
            g->n_decoded++;
        }
        status = take_token(g, token, complete, drafted, &last, err);
        if (status != PI_OK || last) break;
        if (!drafted) status = next_logits(g, token, &stopped, err);
        if (stopped) break;
    }
    count_drafts(g);
    pi_status dropped = drop_drafts(g, status == PI_OK ? err : NULL);
    if (status == PI_OK) status = dropped;
    int32_t length = pi_session_length(g->session);
    if (status == PI_OK && !stopped && length < g->n_past)
        status = feed_pieces(g, g->fed + length, g->n_past - length, &stopped, err);
    return status;
}

/* Prefill, one ubatch per call as pi_forward would split it, with progress when it takes long. */
static pi_status read_prompt(generation *g, bool *stopped, pi_error *err) {
    terminal_progress progress;
    terminal_progress_begin(&progress, g->quiet);
    double start = clock_seconds();
    pi_status status = PI_OK;
    int32_t total = g->n_prompt - g->n_cached;
    bool shown = false;
    *stopped = false;
    for (int32_t done = 0; done < total && status == PI_OK && !*stopped;) {
        int32_t n = total - done < g->n_batch ? total - done : g->n_batch;
        bool last = done + n == total && g->n_predict != 0;
        pi_input piece = {.tokens = g->prompt + g->n_cached + done,
                          .n_tokens = n,
                          .logits = last ? PI_LOGITS_LAST : PI_LOGITS_NONE};
        status = feed(g, piece, stopped, err);
        done += n;
        shown = shown || (done < total && clock_seconds() - start > PROGRESS_AFTER);
        if (shown && status == PI_OK && !*stopped) {
            terminal_progress_step(&progress, "prefill", (double)done / total);
        }
    }
    terminal_progress_end(&progress);
    return status;
}

static pi_counters counted_since(const generation *g, const pi_counters *before) {
    pi_counters now;
    pi_context_get_counters(g->context, &now);
    return (pi_counters){.tokens = now.tokens - before->tokens,
                         .weight_bytes = now.weight_bytes - before->weight_bytes,
                         .ffn_bytes = now.ffn_bytes - before->ffn_bytes,
                         .ffn_total_bytes = now.ffn_total_bytes - before->ffn_total_bytes,
                         .kv_bytes = now.kv_bytes - before->kv_bytes};
}

pi_status generation_run(generation *g, pi_error *err) {
    if (g->shift || g->speculator) {
        size_t n_bytes = (size_t)pi_session_capacity(g->session) * sizeof *g->fed;
        g->fed = mem_alloc(n_bytes);
        if (!g->fed) return error_nomem(err, n_bytes, "tokens of a session");
        memcpy(g->fed, g->prompt, (size_t)g->n_cached * sizeof *g->fed);
    }
    for (int32_t i = 0; i < g->n_prompt; i++) pi_sampler_accept(g->sampler, g->prompt[i]);
    double start = clock_seconds();
    bool stopped;
    pi_status status = read_prompt(g, &stopped, err);
    if (status != PI_OK || stopped) return status;
    pi_counters before;
    pi_context_get_counters(g->context, &before);
    double middle = clock_seconds();
    g->prompt_seconds = middle - start;
    g->n_past = pi_session_length(g->session);
    status = decode(g, err);
    g->decode_seconds = clock_seconds() - middle;
    g->decode_counters = counted_since(g, &before);
    show(g, true);
    return status;
}

void generation_free(generation *g) {
    text_free(&g->text);
    mem_free(g->fed);
    mem_free(g->tokens);
}

/* ---- afterwards ------------------------------------------------------------------------------ */

const char *const generation_stop_names[] = {[STOP_EOS] = "eos",
                                             [STOP_LENGTH] = "length",
                                             [STOP_TEXT] = "stop",
                                             [STOP_SIGNAL] = "cancelled"};

static double rate(double count, double seconds) {
    return seconds > 0 ? count / seconds : 0;
}

double generation_prompt_tps(const generation *g) {
    return rate(g->n_prompt - g->n_cached, g->prompt_seconds);
}

double generation_tps(const generation *g) {
    return rate(g->n_decoded, g->decode_seconds);
}
