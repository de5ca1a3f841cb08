/* cmd_perplexity.c: perplexity over a text, and KL divergence from a base run, as text or JSON.
 * pi_perplexity measures. */
#include <string.h>

#include "cli.h"
#include "cli_text.h"
#include "file.h"
#include "json_writer.h"
#include "mem.h"
#include "os_terminal.h"
#include "terminal.h"

/* Progress: a bar on a terminal; elsewhere messages with the perplexity so far. */
static bool show_progress(void *user, const char *stage, double fraction) {
    terminal_progress *p = user;
    return !p->is_terminal || terminal_progress_step(p, stage, fraction);
}

/* ---- results --------------------------------------------------------------------------------- */

static void print_json(const pi_perplexity_report *r) {
    json_writer w;
    json_begin(&w, stdout);
    json_put_object(&w, NULL);
    json_put_int(&w, "tokens", r->tokens);
    json_put_number(&w, "nll", r->nll);
    json_put_number(&w, "perplexity", r->perplexity);
    json_put_number(&w, "stderr", r->perplexity_stderr);
    if (r->has_divergence) {
        const pi_divergence *d = &r->divergence;
        json_put_object(&w, "kl");
        json_put_number(&w, "mean", d->mean);
        json_put_number(&w, "stderr", d->mean_stderr);
        json_put_number(&w, "median", d->median);
        json_put_number(&w, "p90", d->p90);
        json_put_number(&w, "p95", d->p95);
        json_put_number(&w, "p99", d->p99);
        json_put_number(&w, "p99_9", d->p99_9);
        json_put_number(&w, "max", d->max);
        json_end_object(&w);
        json_put_number(&w, "top1", d->top1);
        json_put_number(&w, "p_diff_mean", d->p_diff_mean);
        json_put_number(&w, "p_diff_rms", d->p_diff_rms);
        json_put_number(&w, "base_nll", d->base_nll);
        json_put_number(&w, "base_perplexity", d->base_perplexity);
    }
    json_end_object(&w);
}

static void print_divergence(const pi_divergence *d) {
    printf("base run          perplexity %.4f, %.6f nats per token\n", d->base_perplexity,
           d->base_nll);
    printf("KL divergence     %.6f ± %.6f nats (mean)\n", d->mean, d->mean_stderr);
    printf("  median          %.6f\n", d->median);
    printf("  90%%, 95%%        %.6f, %.6f\n", d->p90, d->p95);
    printf("  99%%, 99.9%%      %.6f, %.6f\n", d->p99, d->p99_9);
    printf("  maximum         %.6f\n", d->max);
    printf("same top-1 token  %.3f%%\n", 100 * d->top1);
    printf("p - p of base     %+.4f%% mean, %.4f%% RMS\n", 100 * d->p_diff_mean,
           100 * d->p_diff_rms);
}

static void print_text(const cli_options *o, const pi_perplexity_report *r) {
    printf("perplexity        %.4f ± %.4f\n", r->perplexity, r->perplexity_stderr);
    printf("nats per token    %.6f\n", r->nll);
    printf("tokens scored     %lld in %d windows of %d\n", (long long)r->tokens, (int)r->n_windows,
           (int)r->n_ctx);
    if (o->llama_windows) /* only then comparable with llama-perplexity */
        printf("scored            as llama-perplexity: the second half of each window\n");
    else if (!o->ppl_stride)
        printf("scored            all but the first token of a window; llama-perplexity scores "
               "only the "
               "second half:\n"
               "                  use --llama-windows to compare with it\n");
    if (r->has_divergence) print_divergence(&r->divergence);
}

/* ---- work ------------------------------------------------------------------------------------ */

typedef struct job {
    const cli_options *options;
    char *text; /* NULL: the text of the base run */
    size_t n_text;
    pi_model *model;
    pi_perplexity_report report;
} job;

static pi_status measure(job *j, pi_error *err) {
    const cli_options *o = j->options;
    terminal_progress progress;
    pi_perplexity_options options = pi_perplexity_default_options();
    options.context = cli_context_options(o, 0);
    options.context.max_batch = 0; /* n_batch is a number of windows */
    options.n_ctx = (int32_t)o->ctx_size;
    if (o->ctx_size == 0) {
        pi_model_info info;
        pi_model_get_info(j->model, &info);
        options.n_ctx = info.n_ctx_train;
    } else if (o->kl_divergence && !options_given(o, &o->ctx_size)) {
        options.n_ctx = 0; /* 0: the windows of the base run */
    }
    options.n_windows = (int32_t)o->first;
    options.llama_windows = o->llama_windows;
    options.stride = (int32_t)o->ppl_stride;
    options.base_in = o->kl_divergence ? o->kl_base : NULL;
    options.base_out = o->kl_divergence ? NULL : o->kl_base;
    options.progress = show_progress;
    options.message = terminal_progress_message;
    options.user = &progress;
    terminal_progress_begin(&progress, o->quiet);
    pi_status status = pi_perplexity(j->model, j->text, j->n_text, &options, &j->report, err);
    terminal_progress_end(&progress);
    return status;
}

static pi_status work(job *j, pi_error *err) {
    const cli_options *o = j->options;
    pi_status status = PI_OK;
    if (o->file || !o->kl_divergence)
        status = file_read_stream(o->file ? o->file : "-", CLI_TEXT_MAX, &j->text, &j->n_text, err);
    if (status == PI_OK) status = cli_model_open(o, false, &j->model, err);
    return status == PI_OK ? measure(j, err) : status;
}

int cmd_perplexity(const cli_options *o) {
    if (o->kl_divergence && !o->kl_base)
        return cli_wrong("no base run: --kl-divergence: give its file with --kl-divergence-base");
    if (o->ppl_stride && (o->llama_windows || o->kl_base))
        return cli_wrong("--ppl-stride with %s: perplexity: give one of them",
                         o->llama_windows ? "--llama-windows" : "--kl-divergence-base");
    if (!o->file && !o->kl_divergence && os_is_terminal(stdin))
        return cli_wrong("no text: perplexity: name a file with -f");
    pi_error err = {.status = PI_OK};
    job j = {.options = o};
    int result = EXIT_DONE;
    if (work(&j, &err) != PI_OK) {
        result = cli_failed(&err);
    } else if (o->json) {
        print_json(&j.report);
    } else {
        print_text(o, &j.report);
    }
    pi_model_close(j.model);
    mem_free(j.text);
    return result;
}
