/* cmd_run.c: complete a prompt. The completion goes to standard output, everything else to standard
 * error. Work is in steps, each of which leaves what it made in `job`, so that one place frees all.
 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"
#include "clock.h"
#include "file.h"
#include "generate.h"
#include "json_writer.h"
#include "mem.h"
#include "prompt_cache.h"
#include "sampling.h"
#include "signals.h"

typedef struct job {
    const cli_options *options;
    char *prompt; /* [n_prompt_bytes] */
    size_t n_prompt_bytes;
    int32_t *tokens; /* [n_tokens] of the prompt */
    size_t n_tokens;
    pi_model *model;
    pi_model_info info;
    pi_context *context;
    pi_session *session;
    sampling sampling;
    pi_sampler *sampler;
    prompt_cache cache;
    int32_t n_cached; /* tokens of the prompt that came from the cache */
    text_list stops;
    double load_seconds;
} job;

/* ---- prompt ---------------------------------------------------------------------------------- */

typedef enum prompt_source { FROM_TEXT, FROM_FILE, FROM_STDIN } prompt_source;

/* What is typed counts before what is in the environment. */
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
    pi_status status = file_read(path, CLI_TEXT_MAX, &j->prompt, &j->n_prompt_bytes, err);
    if (status != PI_OK) return status;
    /* The newline that editors and echo put at the end is no part of what is to be continued. */
    if (j->n_prompt_bytes && j->prompt[j->n_prompt_bytes - 1] == '\n') j->n_prompt_bytes--;
    return PI_OK;
}

/* ---- setting up ------------------------------------------------------------------------------ */

static pi_status tokenize_prompt(job *j, pi_error *err) {
    pi_status status = text_tokenize(j->model, j->prompt, j->n_prompt_bytes,
                                     PI_TOKENIZE_BOS | PI_TOKENIZE_SPECIAL, &j->tokens,
                                     &j->n_tokens, err);
    if (status != PI_OK) return status;
    if (j->n_tokens == 0) {
        return error_set(err, PI_ERR_ARG,
                         "the prompt is empty: this model has no BOS token to begin with: give a "
                         "text with -p");
    }
    return PI_OK;
}

/* Tokens that the session has room for: the context, or less when fewer will be needed. */
static pi_status choose_context(const job *j, int32_t *n_ctx, pi_error *err) {
    const cli_options *o = j->options;
    int64_t size = o->ctx_size;
    if (size <= 0) {
        size = j->info.n_ctx_train > 0 ? j->info.n_ctx_train : CLI_CONTEXT_DEFAULT;
        if (o->ctx_size < 0 && size > CLI_CONTEXT_DEFAULT) size = CLI_CONTEXT_DEFAULT;
    }
    if ((int64_t)j->n_tokens > size) {
        return error_set(err, PI_ERR_LIMIT,
                         "the prompt has %zu tokens but the context holds %lld: --ctx-size: give a "
                         "larger one or a shorter prompt",
                         j->n_tokens, (long long)size);
    }
    if (o->predict >= 0 && (int64_t)j->n_tokens + o->predict < size) {
        size = (int64_t)j->n_tokens + o->predict;
    }
    *n_ctx = (int32_t)size;
    return PI_OK;
}

static pi_status set_up(job *j, pi_error *err) {
    double start = clock_seconds();
    pi_status status = cli_model_open(j->options, false, &j->model, err);
    if (status != PI_OK) return status;
    pi_model_get_info(j->model, &j->info);
    status = tokenize_prompt(j, err);
    if (status != PI_OK) return status;
    if (j->options->verbose_prompt)
        status = text_print_tokens(stderr, j->model, j->tokens, j->n_tokens, err);
    if (status != PI_OK) return status;
    int32_t n_ctx = 0;
    status = choose_context(j, &n_ctx, err);
    if (status != PI_OK) return status;
    pi_context_options context_options = cli_context_options(j->options, n_ctx);
    context_options.n_logits = 1;
    status = pi_context_create(j->model, &context_options, &j->context, err);
    if (status != PI_OK) return status;
    status = pi_session_create(j->context, n_ctx, &j->session, err);
    if (status != PI_OK) return status;
    status = prompt_cache_load(&j->cache, j->options, j->session, j->tokens, (int32_t)j->n_tokens,
                               &j->n_cached, err);
    if (status != PI_OK) return status;
    status = pi_sampler_create(j->model, &j->sampling.options, &j->sampler, err);
    j->load_seconds = clock_seconds() - start;
    return status;
}

static void tear_down(job *j) {
    pi_sampler_destroy(j->sampler);
    pi_session_destroy(j->session);
    pi_context_destroy(j->context);
    pi_model_close(j->model);
    text_list_free(&j->stops);
    sampling_free(&j->sampling);
    mem_free(j->tokens);
    mem_free(j->prompt);
}

/* ---- reporting ------------------------------------------------------------------------------- */

static double rate(double count, double seconds) {
    return seconds > 0 ? count / seconds : 0;
}

/* "GPU:         NVIDIA ...: 20 of 32 layers, 61% of neurons, 7.20 of 8.00 GiB" */
static void print_placement(const job *j) {
    const double gib = 1073741824;
    pi_placement p;
    pi_context_get_placement(j->context, &p);
    if (!p.device_name[0]) return;
    uint64_t bytes = p.gpu_weights + p.gpu_scratch + p.gpu_kv + p.gpu_runtime;
    cli_say(j->options, "GPU:         %s: %d of %d layers, %.0f%% of neurons, %.2f of %.2f GiB",
            p.device_name, (int)p.gpu_layers, (int)p.n_layers, 100 * p.neuron_share,
            (double)bytes / gib, (double)p.gpu_budget / gib);
}

static void print_settings(const job *j) {
    const cli_options *o = j->options;
    print_placement(j);
    if (!o->verbose) return;
    cli_say(o, "model:       %s, %s, %s, %.1f million parameters",
            j->info.name[0] ? j->info.name : "(no name)", j->info.architecture, j->info.type,
            (double)j->info.n_params / 1e6);
    cli_say(o, "context:     %d tokens, batches of %lld", (int)pi_session_capacity(j->session),
            (long long)o->batch_size);
    sampling_print(o);
    cli_say(o, "seed:        %llu", (unsigned long long)pi_sampler_seed(j->sampler));
}

static void print_timings(const job *j, const generation *g) {
    const cli_options *o = j->options;
    cli_say(o, "load:        %.3f s", j->load_seconds);
    cli_say(o, "prompt:      %d tokens, %.1f tokens/s", (int)g->n_prompt,
            rate(g->n_prompt - g->n_cached, g->prompt_seconds));
    cli_say(o, "generation:  %zu tokens, %.1f tokens/s", g->n_tokens,
            rate(g->n_decoded, g->decode_seconds));
    const pi_counters *n = &g->decode_counters;
    if (n->tokens > 0 && n->ffn_total_bytes > 0)
        cli_say(o, "mode:        %s, %.1f%% of feed-forward weights, %.2f MB read per token",
                pi_context_mode(j->context),
                100 * (double)n->ffn_bytes / (double)n->ffn_total_bytes,
                (double)(n->weight_bytes + n->kv_bytes) / (double)n->tokens / 1e6);
    cli_say(o, "computed by: %s kernels, %d thread%s", pi_context_kernels(j->context),
            (int)pi_context_threads(j->context), pi_context_threads(j->context) == 1 ? "" : "s");
}

static void print_json(const generation *g) {
    static const char *const reasons[] = {
        [STOP_EOS] = "eos", [STOP_LENGTH] = "length", [STOP_TEXT] = "stop", [STOP_SIGNAL] = "stop"};
    json_writer w;
    json_begin(&w, stdout);
    json_put_object(&w, NULL);
    json_put_string(&w, "text", g->text.data ? g->text.data : "", g->text.used);
    json_put_int(&w, "prompt_tokens", g->n_prompt);
    json_put_array(&w, "tokens");
    for (size_t i = 0; i < g->n_tokens; i++) json_put_int(&w, NULL, g->tokens[i]);
    json_end_array(&w);
    json_put_text(&w, "stop", reasons[g->stop]);
    json_put_number(&w, "prompt_tps", rate(g->n_prompt - g->n_cached, g->prompt_seconds));
    json_put_number(&w, "tps", rate(g->n_decoded, g->decode_seconds));
    json_end_object(&w);
}

/* True when what goes to either stream appears in one place: `2>&1`, or a terminal. */
static bool streams_are_one(void) {
    struct stat out, err;
    if (isatty(STDOUT_FILENO) == 1 && isatty(STDERR_FILENO) == 1) return true;
    return fstat(STDOUT_FILENO, &out) == 0 && fstat(STDERR_FILENO, &err) == 0 &&
           out.st_dev == err.st_dev && out.st_ino == err.st_ino;
}

/* What comes next, a message or a terminal's prompt, must not begin in the middle of a line. */
static void end_line(const generation *g, bool silent) {
    if (!g->stream || !g->text.used || g->text.data[g->text.used - 1] == '\n') return;
    if (!streams_are_one() || (silent && isatty(STDERR_FILENO) != 1)) return;
    fputc('\n', stderr);
}

static int generate(const job *j) {
    const cli_options *o = j->options;
    generation g = {.model = j->model,
                    .context = j->context,
                    .session = j->session,
                    .sampler = j->sampler,
                    .prompt = j->tokens,
                    .n_prompt = (int32_t)j->n_tokens,
                    .n_cached = j->n_cached,
                    .n_predict = (int32_t)o->predict,
                    .n_batch = (int32_t)o->batch_size,
                    .ignore_eos = o->ignore_eos,
                    .stream = !o->json,
                    .quiet = o->quiet,
                    .stops = &j->stops};
    pi_error err = {.status = PI_OK};
    /* From here on Ctrl-C stops the text; what follows the settings is generation already. */
    signals_cancel_context(j->context);
    print_settings(j);
    if (o->display_prompt && g.stream) fwrite(j->prompt, 1, j->n_prompt_bytes, stdout);
    pi_status status = generation_run(&g, &err);
    signals_restore();
    int result = EXIT_DONE;
    if (status == PI_OK) {
        signals_remove_output(); /* half a file is not left behind */
        status = prompt_cache_save(&j->cache, j->session, j->tokens, (int32_t)j->n_tokens, g.tokens,
                                   &err);
        signals_restore();
    }
    end_line(&g, o->quiet && status == PI_OK && !g.output_failed);
    if (status != PI_OK) {
        result = cli_failed(&err);
    } else if (g.output_failed) {
        result = cli_output_failed(g.output_errno);
    } else {
        if (o->json) print_json(&g);
        if (g.context_full) {
            cli_say(o,
                    "the context is full: %d tokens: for a longer text give a larger one with -c",
                    (int)pi_session_capacity(j->session));
        }
        print_timings(j, &g);
    }
    generation_free(&g);
    return result;
}

int cmd_run(const cli_options *o) {
    if (options_typed(o, &o->prompt) && options_typed(o, &o->file)) {
        return cli_wrong("two prompts: -p and -f: give one of them");
    }
    if (choose_source(o) == FROM_STDIN && isatty(STDIN_FILENO) == 1) {
        return cli_wrong("no prompt: run: give one with -p or -f, or on standard input");
    }
    for (int i = 0; i < o->reverse_prompts.count; i++) {
        if (!*o->reverse_prompts.values[i]) {
            return cli_wrong("the text is empty: --reverse-prompt: give the text to end at");
        }
    }
    pi_error err = {.status = PI_OK};
    job j = {.options = o};
    int result;
    pi_status status = sampling_create(o, &j.sampling, &err);
    if (status == PI_ERR_ARG) return cli_wrong("%s", err.message);
    if (status == PI_OK) status = read_prompt(&j, &err);
    if (status == PI_OK && o->reverse_prompts.count) {
        status = text_list_create(&j.stops, o->reverse_prompts.values, o->reverse_prompts.count,
                                  !o->no_escape, &err);
    }
    if (status == PI_OK) status = set_up(&j, &err);
    result = status == PI_OK ? generate(&j) : cli_failed(&err);
    tear_down(&j);
    return result;
}
