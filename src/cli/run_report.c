/* run_report.c: rows of the summary are cut to RUN_COLUMNS, so that no long name wraps a row. */
#include "run_report.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "json_writer.h"
#include "printable.h"
#include "sampling.h"

enum { RUN_COLUMNS = 80 };

static const double MIB = 1048576, GIB = 1073741824;

/* Prints "label:       text", cut to RUN_COLUMNS. */
static void row(const cli_options *o, const char *label, const char *format, ...) BASE_PRINTF(3, 4);

static void row(const cli_options *o, const char *label, const char *format, ...) {
    enum { ROOM = 1024 };
    char text[ROOM], shown[4 * ROOM], line[16 + sizeof shown];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    printable_copy(shown, sizeof shown, text, strlen(text));
    snprintf(line, sizeof line, "%-12s %s", label, shown);
    int columns = 0;
    for (char *c = line; *c; c++) {
        if (((unsigned char)*c & 0xc0) == 0x80) continue; /* inside a character */
        if (++columns == RUN_COLUMNS - 2 && strlen(c) > 3) memcpy(c, "...", 4);
    }
    cli_say(o, "%s", line);
}

static const char *plural(int64_t n) {
    return n == 1 ? "" : "s";
}

/* ---- before ---------------------------------------------------------------------------------- */

static void report_context(const run_report *r) {
    const cli_options *o = r->options;
    int32_t trained = r->info->n_ctx_train;
    if (trained > 0 && r->n_ctx > trained)
        cli_say(o,
                "warning: a context of %d tokens is longer than the %d that the model was trained "
                "for",
                (int)r->n_ctx, (int)trained);
    /* The last token is sampled, but not evaluated. */
    int64_t needed = (int64_t)r->n_prompt + o->predict - 1;
    if (o->predict > 0 && needed > r->n_ctx && !o->context_shift)
        cli_say(o,
                "the prompt and -n %lld need a context of %lld tokens, this one has %d: the text "
                "ends when it is full",
                (long long)o->predict, (long long)needed, (int)r->n_ctx);
}

void run_report_begin(const run_report *r) {
    const cli_options *o = r->options;
    report_context(r);
    if (!o->verbose) return;
    cli_say(o, "context:     %d tokens, batches of %d", (int)r->n_ctx,
            (int)pi_context_batch(r->context));
    sampling_print(o);
    cli_say(o, "seed:        %llu", (unsigned long long)pi_sampler_seed(r->sampler));
}

/* ---- after ----------------------------------------------------------------------------------- */

/* Describes one of several devices: "1, simulated GPU: layers 12 to 23, 1.20 of 8.00 GiB". */
static void report_one_device(const run_report *r, int32_t device) {
    pi_device_placement d;
    char layers[48] = "no layers";
    pi_context_get_device(r->context, device, &d);
    if (d.end_layer > d.first_layer)
        snprintf(layers, sizeof layers, "layers %d to %d", (int)d.first_layer,
                 (int)d.end_layer - 1);
    row(r->options, "", "%d, %.24s: %s, %.2f of %.2f GiB", (int)d.index, d.name, layers,
        (double)d.bytes / GIB, (double)d.budget / GIB);
}

/* "simulated GPU: 20 of 32 layers, 61% of neurons, 7.20 of 8.00 GiB" */
static void report_device(const run_report *r) {
    pi_placement p;
    pi_context_get_placement(r->context, &p);
    if (p.device_name[0]) {
        uint64_t bytes = p.gpu_weights + p.gpu_scratch + p.gpu_kv + p.gpu_programs + p.gpu_runtime;
        char name[32];
        snprintf(name, sizeof name, "%.24s", p.device_name);
        if (p.n_devices > 1) snprintf(name, sizeof name, "%d devices", (int)p.n_devices);
        row(r->options, "GPU:", "%s: %d of %d layers, %.0f%% of neurons, %.2f of %.2f GiB", name,
            (int)p.gpu_layers, (int)p.n_layers, 100 * p.neuron_share, (double)bytes / GIB,
            (double)p.gpu_budget / GIB);
        for (int i = 0; i < p.n_devices && p.n_devices > 1; i++) report_one_device(r, i);
    }
    int threads = (int)pi_context_threads(r->context);
    row(r->options, "CPU:", "%s kernels, %d thread%s", pi_context_kernels(r->context), threads,
        plural(threads));
}

/* With a memory budget: "1.95 of 2.00 GiB; cache: 0.62 of 3.10 GiB". */
static void report_memory(const run_report *r) {
    pi_memory m;
    pi_context_get_memory(r->context, &m);
    if (m.budget == 0) return;
    double used = (double)(m.buffers + m.always + m.pinned + m.ring + m.cache);
    row(r->options, "memory:", "%.2f of %.2f GiB; cache: %.2f of %.2f GiB", used / GIB,
        (double)m.budget / GIB, (double)m.cache / GIB, (double)m.cached / GIB);
    double hits = m.hits + m.misses ? 100 * (double)m.hits / (double)(m.hits + m.misses) : 0;
    row(r->options, "drive:", "%.2f GB read (%s), cache hits: %.1f%%", (double)m.read_bytes / 1e9,
        m.backend, hits);
}

static void report_mode(const run_report *r, const pi_counters *n) {
    const cli_options *o = r->options;
    const char *mode = pi_context_mode(r->context);
    double loss = pi_context_loss(r->context);
    if (strcmp(mode, "dense") == 0 && loss == 0)
        row(o, "mode:", "dense");
    else if (loss == 0)
        row(o, "mode:", "%s: lossless", mode);
    else if (isnan(loss))
        row(o, "mode:", "%s: its loss was not measured", mode);
    else
        row(o, "mode:", "%s: %+.2f%% perplexity, measured by %s", mode, 100 * loss,
            pi_context_attn_blocks(r->context) > 0 ? "tune" : "prepare");
    if (pi_context_attn_blocks(r->context) > 0)
        row(o, "attention:", "%d blocks of 16 positions", pi_context_attn_blocks(r->context));
    if (pi_context_predicts_head(r->context, &loss)) {
        if (isnan(loss))
            row(o, "head:", "predict: its loss was not measured");
        else
            row(o, "head:", "predict: %+.2f%% perplexity, measured by prepare", 100 * loss);
    }
    if (n->tokens > 0 && n->ffn_total_bytes > 0)
        row(o, "read:", "%.2f MB per token, %.1f%% of the FFN weights",
            (double)(n->weight_bytes + n->kv_bytes) / (double)n->tokens / 1e6,
            100 * (double)n->ffn_bytes / (double)n->ffn_total_bytes);
}

/* "86.1% of the active ones on the GPU; 1024 moved there, 3.36 MiB" */
static void report_moves(const cli_options *o, const pi_counters *n) {
    char moved[80] = "";
    if (o->adapt)
        snprintf(moved, sizeof moved, "; %llu moved there, %.2f MiB",
                 (unsigned long long)n->neuron_swaps, (double)n->neuron_swap_bytes / MIB);
    if (n->active_gpu_neurons > 0)
        row(o, "neurons:", "%.1f%% of the active ones on the GPU%s",
            100 * (double)n->active_gpu_neurons / (double)n->active_neurons, moved);
    else if (o->adapt)
        row(o, "experts:", "%llu moved to the GPU", (unsigned long long)n->expert_swaps);
}

static void report_cache(const run_report *r) {
    const cli_options *o = r->options;
    const char *more = "";
    char trained[64] = "";
    if (r->info->n_ctx_train > r->n_ctx && o->ctx_size < 0) {
        snprintf(trained, sizeof trained, " (trained for %d: -c)", (int)r->info->n_ctx_train);
        more = trained;
    }
    row(o, "KV cache:", "%d of %d tokens%s, K %s, V %s", (int)pi_session_length(r->session),
        (int)r->n_ctx, more, option_cache_types[o->cache_type_k],
        option_cache_types[o->cache_type_v]);
}

/* computed: number of the n tokens that took `seconds`. */
static void report_speed(const cli_options *o, const char *label, int64_t n, int32_t cached,
                         int64_t computed, double seconds) {
    char from_cache[48] = "", speed[64] = "";
    if (cached > 0) snprintf(from_cache, sizeof from_cache, " (%d from the cache)", (int)cached);
    if (computed > 0 && seconds > 0)
        snprintf(speed, sizeof speed, ", %.1f tokens/s, %.2f ms/token", (double)computed / seconds,
                 1000 * seconds / (double)computed);
    row(o, label, "%lld token%s%s%s", (long long)n, plural(n), from_cache, speed);
}

void run_report_end(const run_report *r, const generation *g) {
    const cli_options *o = r->options;
    const pi_generated *n = &g->result;
    if (n->stop == PI_STOP_CANCELLED) cli_say(o, "cancelled");
    if (n->session_full)
        cli_say(o,
                "the context is full: %d tokens: for a longer text give a larger one with -c, or "
                "--context-shift",
                (int)r->n_ctx);
    row(o, "load:", "%.3f s", r->load_seconds);
    char path[OPTION_PATH_BYTES];
    row(o, "model:", "%.40s, %.20s, %s, %.1f MiB", cli_model_name(o, r->info, path, sizeof path),
        r->info->architecture, r->info->type, (double)r->info->weight_bytes / MIB);
    report_device(r);
    pi_counters counters;
    pi_context_get_counters(r->context, &counters);
    report_moves(o, &counters);
    report_memory(r);
    report_mode(r, &g->decode_counters);
    report_cache(r);
    report_speed(o, "prompt:", n->n_prompt, n->n_cached, n->n_prompt - n->n_cached,
                 n->prompt_seconds);
    report_speed(o, "generation:", n->n_tokens, 0, n->n_decoded, n->decode_seconds);
    if (g->options.speculator)
        row(o, "speculation:", "%lld token%s in %d step%s, %llu of %llu drafted accepted",
            (long long)n->n_decoded, plural(n->n_decoded), (int)n->n_steps, plural(n->n_steps),
            (unsigned long long)n->n_accepted, (unsigned long long)n->n_drafted);
}

void run_report_json(const cli_options *o, const generation *g, const pi_context *context) {
    const pi_generated *n = &g->result;
    pi_counters counters;
    json_writer w;
    json_begin(&w, stdout);
    json_put_object(&w, NULL);
    json_put_string(&w, "text", g->text.data ? g->text.data : "", g->text.used);
    json_put_int(&w, "prompt_tokens", n->n_prompt);
    json_put_int(&w, "cached_tokens", n->n_cached);
    json_put_array(&w, "tokens");
    for (size_t i = 0; i < g->n_tokens; i++) json_put_int(&w, NULL, g->tokens[i]);
    json_end_array(&w);
    json_put_text(&w, "stop", generation_stop_names[n->stop]);
    json_put_bool(&w, "context_full", n->session_full);
    json_put_text(&w, "mode", pi_context_mode(context));
    json_put_number(&w, "prompt_tps", generation_prompt_tps(g));
    json_put_number(&w, "tps", generation_tps(g));
    pi_context_get_counters(context, &counters);
    if (o->adapt) {
        json_put_int(&w, "experts_moved", (int64_t)counters.expert_swaps);
        json_put_int(&w, "neurons_moved", (int64_t)counters.neuron_swaps);
        json_put_int(&w, "neuron_bytes_moved", (int64_t)counters.neuron_swap_bytes);
        json_put_int(&w, "active_neurons", (int64_t)counters.active_neurons);
        json_put_int(&w, "active_gpu_neurons", (int64_t)counters.active_gpu_neurons);
    }
    if (g->options.speculator) {
        json_put_int(&w, "steps", n->n_steps);
        json_put_int(&w, "draft_n", (int64_t)n->n_drafted);
        json_put_int(&w, "draft_n_accepted", (int64_t)n->n_accepted);
    }
    json_end_object(&w);
}
