/* generate.c: the callbacks of pi_generate for run and chat. The piece callback streams the text,
 * and keeps text and tokens for the report, JSON, the prompt cache and the conversation. */
#include "generate.h"

#include <errno.h>
#include <string.h>

#include "clock.h"
#include "mem.h"
#include "signals.h"

/* Seconds of prefill before progress is shown. */
#define PROGRESS_AFTER 0.5

/* Ends the text before its first empty line at or after `from`; empty lines at the beginning of the
 * text do not count. */
static bool cut_at_paragraph(generation *g, size_t from) {
    const char *text = g->text.data;
    size_t at = 0, n = g->text.used;
    while (at < n && (text[at] == '\n' || text[at] == ' ')) at++;
    if (at + 1 < from) at = from - 1;
    for (; at + 1 < n; at++) {
        if (text[at] != '\n' || text[at + 1] != '\n') continue;
        g->text.used = at;
        return true;
    }
    return false;
}

/* A pi_piece. */
static bool take_piece(void *user, int32_t token, const char *text, size_t n_bytes) {
    generation *g = user;
    size_t from = g->text.used;
    pi_status status = PI_OK;
    if (g->output_failed || g->paragraph_ended) return false;
    if (token >= 0) {
        if (mem_grow((void **)&g->tokens, &g->tokens_capacity, g->n_tokens + 1, sizeof *g->tokens,
                     INT32_MAX))
            g->tokens[g->n_tokens++] = token;
        else
            status = error_nomem(&g->error, sizeof *g->tokens, "generated tokens");
    }
    if (status == PI_OK) status = text_append(&g->text, text, n_bytes, &g->error);
    if (status != PI_OK) return false;
    if (g->one_paragraph) g->paragraph_ended = cut_at_paragraph(g, from);
    if (g->stream && g->text.used > from) {
        errno = 0;
        if (g->write)
            g->write(g->write_user, g->text.data + from, g->text.used - from);
        else
            text_write(stdout, g->text.data + from, g->text.used - from, g->terminal);
        if (fflush(stdout) != 0 || ferror(stdout)) {
            g->output_failed = true;
            g->output_errno = errno;
        }
    }
    return !g->output_failed && !g->paragraph_ended;
}

/* A pi_progress: shows the progress of prefill when it takes long. */
static bool take_progress(void *user, const char *stage, double fraction) {
    generation *g = user;
    g->progress_shown = g->progress_shown ||
                        (fraction < 1 && clock_seconds() - g->started > PROGRESS_AFTER);
    if (g->progress_shown) terminal_progress_step(&g->progress, stage, fraction);
    if (fraction < 1) return true;
    terminal_progress_end(&g->progress);
    pi_context_get_counters(g->context, &g->decode_counters);
    return true;
}

void generation_begin(generation *g) {
    int n_stops = g->stops ? g->stops->n : 0;
    for (int i = 0; i < n_stops && i < PI_STOP_TEXTS; i++)
        g->stop_texts[i] = (pi_stop_text){g->stops->items[i].data, g->stops->items[i].used};
    g->options.stops = g->stop_texts;
    g->options.n_stops = (size_t)n_stops;
    g->options.keep_stop = true;
    g->options.piece = take_piece;
    g->options.progress = take_progress;
    g->options.user = g;
    signals_cancel_context(g->context);
    terminal_progress_begin(&g->progress, g->quiet);
    g->started = clock_seconds();
}

pi_status generation_end(generation *g, pi_status status, pi_error *err) {
    terminal_progress_end(&g->progress);
    g->signal = signals_caught();
    signals_restore();
    if (g->result.prompt_seconds > 0) { /* decode_counters were read at the end of prefill */
        pi_counters now, *before = &g->decode_counters;
        pi_context_get_counters(g->context, &now);
        *before = (pi_counters){.tokens = now.tokens - before->tokens,
                                .weight_bytes = now.weight_bytes - before->weight_bytes,
                                .ffn_bytes = now.ffn_bytes - before->ffn_bytes,
                                .ffn_total_bytes = now.ffn_total_bytes - before->ffn_total_bytes,
                                .kv_bytes = now.kv_bytes - before->kv_bytes};
    }
    if (g->result.draft_error.status != PI_OK && !g->quiet)
        fprintf(stderr, "the draft model failed: the text continued without it: %s\n",
                g->result.draft_error.message);
    if (g->paragraph_ended) {
        g->result.stop = PI_STOP_TEXT;
        g->result.session_full = false;
    }
    if (status != PI_OK || g->error.status == PI_OK) return status;
    return error_set(err, g->error.status, "%s", g->error.message);
}

void generation_free(generation *g) {
    text_free(&g->text);
    mem_free(g->tokens);
}

/* ---- afterwards ------------------------------------------------------------------------------ */

const char *const generation_stop_names[] = {[PI_STOP_NONE] = "none",
                                             [PI_STOP_EOS] = "eos",
                                             [PI_STOP_LENGTH] = "length",
                                             [PI_STOP_TEXT] = "stop",
                                             [PI_STOP_CANCELLED] = "cancelled"};

double generation_prompt_tps(const generation *g) {
    const pi_generated *n = &g->result;
    return n->prompt_seconds > 0 ? (n->n_prompt - n->n_cached) / n->prompt_seconds : 0;
}

double generation_tps(const generation *g) {
    const pi_generated *n = &g->result;
    return n->decode_seconds > 0 ? n->n_decoded / n->decode_seconds : 0;
}
