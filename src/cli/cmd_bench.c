/* cmd_bench.c: measures prefill and decode speed for every combination of the options with several
 * values. pi_bench measures; this file chooses the settings. */
#include <string.h>

#include "bench_output.h"
#include "cli.h"
#include "cli_text.h"
#include "cluster_start.h"
#include "drafting.h"
#include "file.h"
#include "mem.h"
#include "terminal.h"

enum { MAX_ROWS = 1 << 20 };

/* `-p 0` measures no prefill; a zero among other lengths is left out. */
static int32_t copy_list(const option_list *list, int32_t *out, bool drop_zeros) {
    int32_t n = 0;
    for (int32_t i = 0; i < list->count; i++) {
        if (list->values[i] || !drop_zeros) out[n++] = list->values[i];
    }
    return n;
}

static pi_status read_tokens(const cli_options *o, const pi_model *model, int32_t **tokens,
                             int32_t *n_tokens, pi_error *err) {
    char *text = NULL;
    size_t n_text, n = 0;
    pi_status status = file_read_stream(o->file, CLI_TEXT_MAX, &text, &n_text, err);
    if (status == PI_OK)
        status = text_tokenize(model, text, n_text, PI_TOKENIZE_BOS, tokens, &n, err);
    *n_tokens = (int32_t)n;
    mem_free(text);
    return status;
}

/* The context of a text: the longest depth and the longest decode test. */
static pi_status add_drafts(const cli_options *o, const pi_model *model, drafting *d,
                            pi_bench_options *options, pi_error *err) {
    int64_t depth = 0, n = 1;
    for (int32_t i = 0; i < options->n_depths; i++)
        if (options->depths[i] > depth) depth = options->depths[i];
    for (int32_t i = 0; i < options->n_gens; i++)
        if (options->gens[i] > n) n = options->gens[i];
    if (depth + n > INT32_MAX)
        return error_set(err, PI_ERR_ARG, "too many tokens: bench: depth %lld and %lld more",
                         (long long)depth, (long long)n);
    pi_status status = drafting_create(o, model, 1, (int32_t)(depth + n), &options->context, d,
                                       err);
    options->speculator = d->speculator;
    options->drafts = drafting_kind(o);
    if (d->speculator) options->context.n_logits = drafting_rows(o);
    options->temp = (float)o->temp;
    options->seed = o->seed < 0 ? UINT64_MAX : (uint64_t)o->seed;
    return status;
}

static pi_status measure(const cli_options *o, const pi_model *model, const char *path,
                         pi_bench_report *report, pi_error *err) {
    terminal_progress progress;
    int32_t *tokens = NULL;
    drafting drafts = {.model = NULL};
    pi_bench_options options = pi_bench_default_options();
    options.context = cli_context_options(o, 0);
    options.n_prompts = copy_list(&o->prompts, options.prompts, true);
    options.n_depths = copy_list(&o->depths, options.depths, false);
    options.n_parallels = copy_list(&o->parallels, options.parallels, false);
    options.n_gens = copy_list(&o->n_gen, options.gens, true);
    options.repetitions = (int32_t)o->repetitions;
    options.delay_seconds = (int32_t)o->delay;
    options.trace = o->trace;
    options.model_path = path;
    options.progress = terminal_progress_step;
    options.user = &progress;
    pi_status status = o->file ? read_tokens(o, model, &tokens, &options.n_tokens, err) : PI_OK;
    options.tokens = tokens;
    if (status == PI_OK) status = add_drafts(o, model, &drafts, &options, err);
    terminal_progress_begin(&progress, o->quiet);
    if (status == PI_OK) status = pi_bench(model, &options, report, err);
    terminal_progress_end(&progress);
    drafting_free(&drafts);
    mem_free(tokens);
    return status;
}

static pi_status add_rows(bench_results *r, const cli_options *o, const pi_model_info *info,
                          const char *path, pi_error *err) {
    const pi_bench_report *report = &r->last;
    const char *file = file_name(path);
    void *rows = r->rows;
    size_t need = r->n + (size_t)report->n_results;
    if (!mem_grow(&rows, &r->capacity, need, sizeof *r->rows, MAX_ROWS))
        return error_nomem(err, need * sizeof *r->rows, "results");
    r->rows = rows;
    for (int32_t i = 0; i < report->n_results; i++) {
        bench_row *row = &r->rows[r->n++];
        *row = (bench_row){.result = report->results[i],
                           .cache_type_k = option_cache_types[o->cache_type_k],
                           .cache_type_v = option_cache_types[o->cache_type_v],
                           .weight_bytes = info->weight_bytes,
                           .n_params = info->n_params,
                           .threads = report->threads,
                           .n_batch = report->n_batch,
                           .gpu_layers = (int32_t)o->gpu_layers,
                           .in_cache = report->in_cache};
        snprintf(row->model, sizeof row->model, "%.*s", (int)sizeof row->model - 1,
                 info->name[0] ? info->name : file);
        snprintf(row->architecture, sizeof row->architecture, "%s", info->architecture);
        snprintf(row->type, sizeof row->type, "%s", info->type);
    }
    return PI_OK;
}

/* Opens the model again for every combination, which takes little time: its file is mapped. */
static pi_status run_combination(const cli_options *o, bench_results *r, pi_error *err) {
    char path[OPTION_PATH_BYTES] = "";
    pi_model *model = NULL;
    pi_model_info info;
    pi_status status = cli_model_path(o, path, sizeof path, err);
    if (status == PI_OK) status = cli_model_open(o, false, &model, err);
    if (status == PI_OK) status = measure(o, model, path, &r->last, err);
    if (status == PI_OK) {
        pi_model_get_info(model, &info);
        status = add_rows(r, o, &info, path, err);
    }
    pi_model_close(model);
    return status;
}

int cmd_bench(const cli_options *o) {
    pi_error err = {.status = PI_OK};
    bench_format format = o->json ? BENCH_JSON : (bench_format)o->format;
    bench_results *r = mem_calloc(1, sizeof *r);
    cli_options *one = mem_alloc(sizeof *one);
    pi_status status = r && one ? PI_OK : error_nomem(&err, sizeof *r, "results");
    if (status == PI_OK) status = drafting_check(o, &err);
    for (int64_t k = 0; status == PI_OK && k < options_combinations(o); k++) {
        status = options_combination(o, k, one, &err);
        if (status == PI_OK) status = run_combination(one, r, &err);
    }
    if (status == PI_OK) {
        bench_print(stdout, r, format, o->verbose);
        if (format == BENCH_MD && r->last.n_ranks > 0)
            cluster_print_table(stdout, r->last.ranks, r->last.n_ranks);
        if (format == BENCH_MD && r->last.n_traced > 0)
            bench_print_traced(stdout, o->trace, &r->last);
    }
    if (r) mem_free(r->rows);
    mem_free(r);
    mem_free(one);
    return status == PI_OK ? EXIT_DONE : cli_failed(&err);
}
