/* cmd_run.c: completes a prompt. The completion goes to standard output, everything else to
 * standard error. Each step leaves its results in `job`, which one function frees. */
#include <errno.h>
#include <string.h>

#include "cli.h"
#include "clock.h"
#include "drafting.h"
#include "file.h"
#include "generate.h"
#include "mem.h"
#include "os_terminal.h"
#include "prompt_cache.h"
#include "run_report.h"
#include "sampling.h"
#include "terminal.h"

typedef struct job {
    const cli_options *options;
    char *prompt; /* [n_prompt_bytes] */
    size_t n_prompt_bytes;
    int32_t *tokens; /* [n_tokens], the prompt's */
    size_t n_tokens;
    pi_model *model;
    pi_model_info info;
    pi_context *context;
    pi_session *session;
    sampling sampling;
    pi_sampler *sampler;
    drafting drafting;
    prompt_cache cache;
    int32_t n_ctx; /* tokens of the context */
    text_list stops;
    double load_seconds;
} job;

/* ---- prompt ---------------------------------------------------------------------------------- */

typedef enum prompt_source { FROM_TEXT, FROM_FILE, FROM_STDIN } prompt_source;

/* The command line takes precedence over the environment. */
static prompt_source choose_source(const cli_options *o) {
    if (options_typed(o, &o->prompt)) return FROM_TEXT;
    if (options_typed(o, &o->file)) return FROM_FILE;
    if (o->prompt) return FROM_TEXT;
    return o->file ? FROM_FILE : FROM_STDIN;
}

static pi_status read_prompt(job *j, pi_error *err) {
    const cli_options *o = j->options;
    prompt_source source = choose_source(o);
    if (source == FROM_TEXT) {
        j->n_prompt_bytes = strlen(o->prompt);
        j->prompt = mem_strndup(o->prompt, j->n_prompt_bytes);
        if (!j->prompt) return error_nomem(err, j->n_prompt_bytes, "prompt");
        if (!o->no_escape) j->n_prompt_bytes = text_unescape(j->prompt, j->n_prompt_bytes);
        return PI_OK;
    }
    const char *path = source == FROM_FILE ? o->file : "-";
    pi_status status = file_read_stream(path, CLI_TEXT_MAX, &j->prompt, &j->n_prompt_bytes, err);
    if (status != PI_OK) return status;
    /* The last newline, which editors and echo add, is not part of the prompt. */
    if (j->n_prompt_bytes && j->prompt[j->n_prompt_bytes - 1] == '\n') j->n_prompt_bytes--;
    return PI_OK;
}

/* ---- setting up ------------------------------------------------------------------------------ */

/* The sizes of context and session: equal, or a smaller session when -n needs fewer tokens. */
static pi_status choose_context(job *j, int32_t *n_session, pi_error *err) {
    const cli_options *o = j->options;
    int64_t size = cli_context_size(o, &j->info);
    if ((int64_t)j->n_tokens > size) {
        return error_set(err, PI_ERR_LIMIT,
                         "the prompt has %zu tokens but the context holds %lld: give a larger one "
                         "with -c, or a shorter prompt",
                         j->n_tokens, (long long)size);
    }
    j->n_ctx = (int32_t)size;
    if (o->predict >= 0 && (int64_t)j->n_tokens + o->predict < size) {
        size = (int64_t)j->n_tokens + o->predict;
    }
    *n_session = (int32_t)size;
    return PI_OK;
}

/* Number of tokens that a context shift keeps, counted like llama.cpp: N and BOS, at most the
 * prompt. */
static int32_t keep_count(const job *j) {
    int64_t n_prompt = (int64_t)j->n_tokens, keep = j->options->keep;
    if (keep < 0 || keep > n_prompt) return (int32_t)n_prompt;
    bool bos = j->info.add_bos && j->tokens[0] == j->info.token_bos;
    return (int32_t)(bos && keep < n_prompt ? keep + 1 : keep);
}

static pi_status open_model(job *j, pi_error *err) {
    const cli_options *o = j->options;
    double start = clock_seconds();
    pi_status status = cli_model_open(o, false, &j->model, err);
    if (status != PI_OK) return status;
    pi_model_get_info(j->model, &j->info);
    status = cli_refuse_encoder(j->model, err);
    if (status == PI_OK)
        status = text_tokenize(j->model, j->prompt, j->n_prompt_bytes,
                               PI_TOKENIZE_BOS | PI_TOKENIZE_SPECIAL, &j->tokens, &j->n_tokens,
                               err);
    if (status != PI_OK) return status;
    if (j->n_tokens == 0)
        return error_set(err, PI_ERR_NOT_FOUND,
                         "the prompt is empty: this model has no BOS token to begin with: give a "
                         "text with -p");
    if (o->verbose_prompt)
        status = text_print_tokens(stderr, j->model, j->tokens, j->n_tokens, err);
    if (status != PI_OK) return status;
    int32_t n_session = 0;
    status = choose_context(j, &n_session, err);
    if (status != PI_OK) return status;
    pi_context_options context_options = cli_context_options(o, n_session);
    context_options.n_logits = drafting_rows(o);
    status = drafting_create(o, j->model, 1, n_session, &context_options, &j->drafting, err);
    if (status == PI_OK) status = pi_context_create(j->model, &context_options, &j->context, err);
    if (status == PI_OK) status = pi_session_create(j->context, n_session, &j->session, err);
    if (status == PI_OK)
        status = prompt_cache_load(&j->cache, o, j->session, j->tokens, (int32_t)j->n_tokens, err);
    if (status == PI_OK) status = sampling_add_grammar(o, j->model, &j->sampling, err);
    if (status == PI_OK)
        status = pi_sampler_create(j->model, &j->sampling.options, &j->sampler, err);
    j->load_seconds = clock_seconds() - start;
    return status;
}

/* Checks that need no model come first. */
static pi_status set_up(job *j, pi_error *err) {
    const cli_options *o = j->options;
    const option_texts *stops = &o->reverse_prompts;
    pi_status status = sampling_create(o, &j->sampling, err);
    if (status == PI_OK) status = drafting_check(o, err);
    if (status == PI_OK && o->prompt_cache && !o->prompt_cache_ro)
        status = file_writer_probe(o->prompt_cache, err);
    if (status == PI_OK) status = read_prompt(j, err);
    if (status == PI_OK && stops->count)
        status = text_list_create(&j->stops, stops->values, stops->count, !o->no_escape, err);
    return status == PI_OK ? open_model(j, err) : status;
}

static void tear_down(job *j) {
    pi_sampler_destroy(j->sampler);
    pi_session_destroy(j->session);
    pi_context_destroy(j->context);
    drafting_free(&j->drafting);
    sampling_free(&j->sampling);
    pi_model_close(j->model);
    text_list_free(&j->stops);
    mem_free(j->tokens);
    mem_free(j->prompt);
}

/* ---- the text -------------------------------------------------------------------------------- */

/* Ends the text's line, so that messages and the shell's prompt begin on a new line. */
static void end_line(generation *g) {
    if (!g->stream || g->output_failed || !g->text.used) return;
    if (g->text.data[g->text.used - 1] == '\n') return;
    errno = 0;
    if (fputc('\n', stdout) == EOF || fflush(stdout) != 0) {
        g->output_failed = true;
        g->output_errno = errno;
    }
}

static pi_status save_cache(const job *j, const generation *g, pi_error *err) {
    const cli_options *o = j->options;
    if (g->result.n_shifts > 0) {
        if (o->prompt_cache) cli_say(o, "prompt cache: not written: the context was shifted");
        return PI_OK;
    }
    return prompt_cache_save(&j->cache, j->session, j->tokens, (int32_t)j->n_tokens, g->tokens,
                             err);
}

int cmd_run(const cli_options *o) {
    if (options_typed(o, &o->prompt) && options_typed(o, &o->file))
        return cli_wrong("two prompts: -p and -f: give one of them");
    if (choose_source(o) == FROM_STDIN && os_is_terminal(stdin))
        return cli_wrong("no prompt: run: give one with -p or -f, or on standard input");
    for (int i = 0; i < o->reverse_prompts.count; i++) {
        if (!*o->reverse_prompts.values[i])
            return cli_wrong("the text is empty: --reverse-prompt: give the text to stop at");
    }
    pi_error err = {.status = PI_OK};
    job j = {.options = o};
    pi_status status = set_up(&j, &err);
    if (status != PI_OK) {
        tear_down(&j);
        return cli_failed(&err);
    }
    int32_t n_prompt = (int32_t)j.n_tokens;
    bool shift = o->context_shift && o->predict != -2; /* -2: until the context is full */
    generation g = {.context = j.context,
                    .session = j.session,
                    .options = {.tokens = j.tokens,
                                .n_tokens = n_prompt,
                                .sampler = j.sampler,
                                .max_tokens = (int32_t)o->predict,
                                .shift = shift,
                                .n_keep = keep_count(&j),
                                .speculator = j.drafting.speculator},
                    .stream = !o->json,
                    .terminal = os_is_terminal(stdout),
                    .quiet = o->quiet,
                    .stops = &j.stops};
    const run_report report = {.options = o,
                               .info = &j.info,
                               .context = j.context,
                               .session = j.session,
                               .sampler = j.sampler,
                               .n_ctx = j.n_ctx,
                               .n_prompt = n_prompt,
                               .load_seconds = j.load_seconds};
    generation_begin(&g);
    run_report_begin(&report);
    if (o->display_prompt && g.stream) {
        fputs(terminal_style(stdout, TERMINAL_GREEN), stdout);
        fwrite(j.prompt, 1, j.n_prompt_bytes, stdout);
        fputs(terminal_style(stdout, TERMINAL_PLAIN), stdout);
    }
    status = pi_generate(g.context, g.session, &g.options, &g.result, &err);
    status = generation_end(&g, status, &err);
    if (status == PI_OK) status = save_cache(&j, &g, &err);
    end_line(&g);
    int result = g.result.stop == PI_STOP_CANCELLED ? EXIT_SIGNAL + g.signal : EXIT_DONE;
    if (status != PI_OK) {
        result = cli_failed(&err);
    } else if (g.output_failed) {
        result = cli_output_failed(g.output_errno);
    } else {
        if (o->json) run_report_json(o, &g, j.context);
        run_report_end(&report, &g);
    }
    generation_free(&g);
    tear_down(&j);
    return result;
}
