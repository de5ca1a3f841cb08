/* generate.c: pi_generate for run and chat. The piece callback streams the text, and keeps text and
 * tokens for the report, JSON, the prompt cache and the conversation. */
#include "generate.h"

#include <errno.h>
#include <string.h>

#include "clock.h"
#include "mem.h"
#include "signals.h"

/* Seconds of prefill before progress is shown. */
#define PROGRESS_AFTER 0.5

/* Ends the text before an empty line in the text from `from` on; empty lines at the beginning of
 * the text do not count. */
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

static void show(generation *g, size_t from) {
    if (!g->stream || g->text.used <= from) return;
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
    show(g, from);
    return !g->output_failed && !g->paragraph_ended;
}

/* A pi_progress of the prefill: shown when it takes long. */
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

/* decode_counters: at the end of the prefill, then what was counted since. */
static void count_decode(generation *g) {
    pi_counters now, *before = &g->decode_counters;
    pi_context_get_counters(g->context, &now);
    *before = (pi_counters){.tokens = now.tokens - before->tokens,
                            .weight_bytes = now.weight_bytes - before->weight_bytes,
                            .ffn_bytes = now.ffn_bytes - before->ffn_bytes,
                            .ffn_total_bytes = now.ffn_total_bytes - before->ffn_total_bytes,
                            .kv_bytes = now.kv_bytes - before->kv_bytes};
}

pi_status generation_run(generation *g, pi_error *err) {
    pi_stop_text stops[PI_STOP_TEXTS];
    pi_generate_options options = g->options;
    int n_stops = g->stops ? g->stops->n : 0;
    for (int i = 0; i < n_stops && i < PI_STOP_TEXTS; i++)
        stops[i] = (pi_stop_text){g->stops->items[i].data, g->stops->items[i].used};
    options.stops = stops;
    options.n_stops = (size_t)n_stops;
    options.keep_stop = true;
    options.piece = take_piece;
    options.progress = take_progress;
    options.user = g;
    terminal_progress_begin(&g->progress, g->quiet);
    g->started = clock_seconds();
    pi_status status = pi_generate(g->context, g->session, &options, &g->result, err);
    terminal_progress_end(&g->progress);
    g->signal = signals_caught();
    if (g->result.prompt_seconds > 0) count_decode(g);
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

static double rate(double count, double seconds) {
    return seconds > 0 ? count / seconds : 0;
}

double generation_prompt_tps(const generation *g) {
    return rate(g->result.n_prompt - g->result.n_cached, g->result.prompt_seconds);
}

double generation_tps(const generation *g) {
    return rate(g->result.n_decoded, g->result.decode_seconds);
}
