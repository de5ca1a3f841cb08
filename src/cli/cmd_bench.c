/* cmd_bench.c: prompt and generation speed as a table, or as JSON. The measuring itself is the
 * library's; here is only how it is asked for and shown. */
#include <string.h>

#include "cli.h"
#include "json_writer.h"
#include "mem.h"
#include "terminal.h"

/* `-p 0` means no prompt test; a zero among other lengths is left out. */
static int32_t copy_list(const option_list *list, int32_t *out, bool drop_zeros) {
    int32_t n = 0;
    for (int32_t i = 0; i < list->count; i++) {
        if (list->values[i] || !drop_zeros) out[n++] = list->values[i];
    }
    return n;
}

static void put_traced(json_writer *w, const pi_bench_report *r) {
    json_put_array(w, "traced");
    for (int32_t i = 0; i < r->n_traced; i++) {
        const pi_trace_summary *t = &r->traced[i];
        json_put_object(w, NULL);
        json_put_int(w, "tokens", t->n_tokens);
        json_put_number(w, "seconds", t->seconds);
        json_put_number(w, "cpu_seconds", t->cpu_seconds);
        json_put_number(w, "gpu_seconds", t->gpu_seconds);
        json_put_number(w, "both_seconds", t->both_seconds);
        json_put_number(w, "overlap", t->overlap);
        json_put_int(w, "split_layers", t->n_split);
        json_put_number(w, "split_overlap", t->split_overlap);
        json_put_number(w, "exchange_seconds", t->exchange_seconds);
        json_put_number(w, "clock_error", t->clock_error);
        json_end_object(w);
    }
    json_end_array(w);
}

static void print_json(const char *name, const pi_bench_report *r) {
    json_writer w;
    json_begin(&w, stdout);
    json_put_object(&w, NULL);
    json_put_text(&w, "model", name);
    json_put_object(&w, "machine");
    json_put_text(&w, "cpu", r->cpu);
    json_put_int(&w, "threads", r->threads);
    json_put_number(&w, "read_gbps", r->read_gbps);
    json_put_number(&w, "gather_gbps", r->gather_gbps);
    json_end_object(&w);
    json_put_array(&w, "results");
    for (int32_t i = 0; i < r->n_results; i++) {
        const pi_bench_result *b = &r->results[i];
        json_put_object(&w, NULL);
        json_put_text(&w, "test", b->test);
        json_put_int(&w, "depth", b->depth);
        json_put_text(&w, "mode", b->mode);
        json_put_text(&w, "device", b->device);
        json_put_number(&w, "tps", b->tps);
        json_put_number(&w, "tps_min", b->tps_min);
        json_put_number(&w, "tps_max", b->tps_max);
        json_put_number(&w, "bytes_per_token", b->bytes_per_token);
        json_put_number(&w, "gbps", b->gbps);
        json_put_number(&w, "bandwidth_share", b->bandwidth_share);
        json_put_number(&w, "floor_share", b->floor_share);
        json_put_number(&w, "ffn_density", b->ffn_density);
        json_end_object(&w);
    }
    json_end_array(&w);
    if (r->n_traced > 0) put_traced(&w, r);
    json_end_object(&w);
}

static void print_table(const pi_model_info *info, const pi_bench_report *r) {
    printf("model:   %s, %s, %s, %.1f MiB, %.1f million parameters\n",
           info->name[0] ? info->name : "(no name)", info->architecture, info->type,
           (double)info->weight_bytes / (1 << 20), (double)info->n_params / 1e6);
    printf("machine: %s, %d threads, reads %.1f GB/s, gathers rows at %.1f GB/s\n\n", r->cpu,
           (int)r->threads, r->read_gbps, r->gather_gbps);
    printf("| %-8s | %6s | %-8s | %-6s | %21s | %9s | %7s | %9s | %8s | %8s |\n", "test", "depth",
           "mode", "device", "tokens/s", "MB/token", "GB/s", "bandwidth", "of floor", "ffn read");
    printf("|----------|-------:|----------|--------|----------------------:|----------:|--------:|"
           "----------:|---------:|---------:|\n");
    for (int32_t i = 0; i < r->n_results; i++) {
        const pi_bench_result *b = &r->results[i];
        char speed[64]; /* the median and how far the repetitions were from it */
        double above = b->tps_max - b->tps, below = b->tps - b->tps_min;
        snprintf(speed, sizeof speed, "%.2f ± %.2f", b->tps, above > below ? above : below);
        /* "±" is two bytes and one column. */
        printf(
            "| %-8s | %6d | %-8s | %-6s | %22s | %9.1f | %7.2f | %8.1f%% | %7.1f%% | %7.1f%% |\n",
            b->test, (int)b->depth, b->mode, b->device, speed, b->bytes_per_token / 1e6, b->gbps,
            100 * b->bandwidth_share, 100 * b->floor_share, 100 * b->ffn_density);
    }
}

/* What the traced passes say of both sides. */
static void print_traced(const char *path, const pi_bench_report *r) {
    printf("\ntimeline in %s:\n", path);
    for (int32_t i = 0; i < r->n_traced; i++) {
        const pi_trace_summary *t = &r->traced[i];
        printf("%5d %s in %.3f ms: CPU computes %.3f ms, GPU %.3f ms", (int)t->n_tokens,
               t->n_tokens == 1 ? "token " : "tokens", 1e3 * t->seconds, 1e3 * t->cpu_seconds,
               1e3 * t->gpu_seconds);
        if (t->gpu_seconds > 0)
            printf(", both %.3f ms (%.0f%% of the shorter side)", 1e3 * t->both_seconds,
                   100 * t->overlap);
        printf("\n");
        if (t->n_split > 0)
            printf("      %d layers are split: %.0f%% overlap in them, the exchange costs %.1f us "
                   "per layer\n",
                   (int)t->n_split, 100 * t->split_overlap, 1e6 * t->exchange_seconds);
    }
}

static const char *model_name(const pi_model_info *info, const char *path) {
    if (info->name[0]) return info->name;
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static pi_status measure(const cli_options *o, const pi_model *model, const char *path,
                         pi_bench_report *report, pi_error *err) {
    terminal_progress progress;
    pi_bench_options options = pi_bench_default_options();
    options.context = cli_context_options(o, 0);
    options.n_prompts = copy_list(&o->prompts, options.prompts, true);
    options.n_depths = copy_list(&o->depths, options.depths, false);
    options.n_gen = (int32_t)o->n_gen;
    options.repetitions = (int32_t)o->repetitions;
    options.trace = o->trace;
    options.model_path = path;
    options.progress = terminal_progress_step;
    options.user = &progress;
    terminal_progress_begin(&progress, o->quiet);
    pi_status status = pi_bench(model, &options, report, err);
    terminal_progress_end(&progress);
    return status;
}

int cmd_bench(const cli_options *o) {
    pi_error err = {.status = PI_OK};
    pi_model *model = NULL;
    pi_bench_report *report = mem_calloc(1, sizeof *report);
    pi_status status = report ? cli_model_open(o, false, &model, &err)
                              : error_nomem(&err, sizeof *report, "report");
    char path[OPTION_PATH_BYTES] = "";
    if (status == PI_OK) status = cli_model_path(o, path, sizeof path, &err);
    if (status == PI_OK) status = measure(o, model, path, report, &err);
    if (status == PI_OK) {
        pi_model_info info;
        pi_model_get_info(model, &info);
        if (o->json) {
            print_json(model_name(&info, path), report);
        } else {
            print_table(&info, report);
            if (report->n_traced > 0) print_traced(o->trace, report);
        }
    }
    pi_model_close(model);
    mem_free(report);
    return status == PI_OK ? EXIT_DONE : cli_failed(&err);
}
