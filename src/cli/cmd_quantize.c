/* cmd_quantize.c: quantizes a GGUF file. Results are printed after everything has succeeded: a
 * summary, with -v or --dry-run a line per tensor, or JSON. */
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "cli_text.h"
#include "file.h"
#include "json_writer.h"
#include "mem.h"
#include "model_source.h"
#include "os_file.h"
#include "terminal.h"

enum { MAX_TENSORS = 1 << 20, TYPES_BYTES = 256 };

typedef struct job {
    const cli_options *options;
    const char *in, *out, *type;
    int32_t n_threads;
    terminal_progress progress;
    pi_quantize_tensor *tensors; /* [n_tensors] */
    size_t n_tensors, capacity;
    bool no_memory;
    char derived[OS_PATH_MAX];                    /* path of the output when none was given */
    char patterns[OPTION_MAX_TEXTS][TYPES_BYTES]; /* PATTERN of --tensor-type */
    pi_tensor_type tensor_types[OPTION_MAX_TEXTS];
    pi_quantize_result result;
} job;

/* ---- arguments ------------------------------------------------------------------------------- */

static bool parse_threads(const char *word, int32_t *out) {
    enum { MAX_THREADS = 512 };
    char *end;
    long n = strtol(word, &end, 10);
    if (end == word || *end || n < 0 || n > MAX_THREADS) return false;
    *out = (int32_t)n;
    return true;
}

/* The output name of llama-quantize: ggml-model-TYPE.gguf next to the input; for a download, in the
 * working folder. */
static int derive_output(job *j) {
    bool downloaded = model_source_is_ours(j->options, j->in);
    const char *type = pi_quantize_type_name(j->type);
    int n = snprintf(j->derived, sizeof j->derived, "%.*sggml-model-%s.gguf",
                     downloaded ? 0 : (int)file_folder_length(j->in), j->in, type ? type : j->type);
    if (n < 0 || (size_t)n >= sizeof j->derived)
        return cli_wrong("path is too long: quantize: name a shorter output");
    j->out = j->derived;
    return EXIT_DONE;
}

/* IN [OUT] TYPE [THREADS]: OUT is missing when the second argument is a type. */
static int read_words(job *j) {
    const cli_options *o = j->options;
    const char *const *words = o->positionals;
    int n = o->n_positionals;
    j->n_threads = (int32_t)o->threads;
    if (n == 0) return cli_wrong("no input: quantize: as in quantize IN OUT TYPE");
    j->in = words[0];
    if (n == 1) return cli_wrong("no type: quantize: as in quantize IN OUT TYPE");
    int32_t ignored;
    bool no_out = n == 2 ||
                  (n == 3 && pi_quantize_type_name(words[1]) && parse_threads(words[2], &ignored));
    int at = no_out ? 1 : 2;
    j->out = no_out ? NULL : words[1];
    j->type = words[at];
    if (n > at + 1 && !parse_threads(words[at + 1], &j->n_threads))
        return cli_wrong("not a number of threads: %.200s: quantize IN OUT TYPE [THREADS]",
                         words[at + 1]);
    return no_out && !o->dry_run ? derive_output(j) : EXIT_DONE;
}

static int read_tensor_types(job *j) {
    const option_texts *texts = &j->options->tensor_types;
    for (int i = 0; i < texts->count; i++) {
        const char *text = texts->values[i], *equals = strrchr(text, '=');
        size_t n = equals ? (size_t)(equals - text) : 0;
        if (n == 0 || n >= TYPES_BYTES)
            return cli_wrong("invalid value: --tensor-type \"%.100s\": expected PATTERN=TYPE, such "
                             "as ffn_down=q6_k",
                             text);
        memcpy(j->patterns[i], text, n);
        j->patterns[i][n] = 0;
        j->tensor_types[i] = (pi_tensor_type){j->patterns[i], equals + 1};
    }
    return EXIT_DONE;
}

/* ---- results --------------------------------------------------------------------------------- */

static double bits_per_weight(const pi_quantize_result *r) {
    return r->n_elems ? 8.0 * (double)r->bytes_out / (double)r->n_elems : 0;
}

static void print_json(const job *j) {
    json_writer w;
    json_begin(&w, stdout);
    json_put_object(&w, NULL);
    json_put_text(&w, "in", j->in);
    json_put_text(&w, "out", j->options->dry_run ? NULL : j->out);
    json_put_text(&w, "type", j->type);
    json_put_array(&w, "tensors");
    for (size_t i = 0; i < j->n_tensors; i++) {
        const pi_quantize_tensor *t = &j->tensors[i];
        json_put_object(&w, NULL);
        json_put_text(&w, "name", t->name);
        json_put_text(&w, "from", t->from);
        json_put_text(&w, "to", t->to);
        json_put_int(&w, "elements", (int64_t)t->n_elems);
        json_put_int(&w, "bytes_in", (int64_t)t->bytes_in);
        json_put_int(&w, "bytes", (int64_t)t->bytes_out);
        json_put_bool(&w, "fallback", t->fallback);
        if (t->relative_rmse >= 0) json_put_number(&w, "relative_rmse", (double)t->relative_rmse);
        json_end_object(&w);
    }
    json_end_array(&w);
    json_put_int(&w, "quantized", (int64_t)j->result.n_quantized);
    json_put_int(&w, "fallbacks", (int64_t)j->result.n_fallback);
    json_put_int(&w, "bytes_in", (int64_t)j->result.bytes_in);
    json_put_int(&w, "bytes_out", (int64_t)j->result.bytes_out);
    json_put_number(&w, "bits_per_weight", bits_per_weight(&j->result));
    json_end_object(&w);
}

static void print_text(const job *j) {
    const double mib = 1024.0 * 1024.0;
    if (j->options->verbose || j->options->dry_run) {
        for (size_t i = 0; i < j->n_tensors; i++) {
            const pi_quantize_tensor *t = &j->tensors[i];
            printf("%-40s %-6s -> %-6s %10.2f MiB%s\n", t->name, t->from, t->to,
                   (double)t->bytes_out / mib, t->fallback ? "  (fallback type)" : "");
        }
    }
    if (j->out == j->derived) cli_say(j->options, "output: %s", j->out);
    printf("%s: %.2f MiB -> %.2f MiB, %.2f bits per weight, %llu of %llu tensors changed\n",
           j->type, (double)j->result.bytes_in / mib, (double)j->result.bytes_out / mib,
           bits_per_weight(&j->result), (unsigned long long)j->result.n_quantized,
           (unsigned long long)j->result.n_tensors);
}

static void keep_tensor(void *user, const pi_quantize_tensor *t) {
    job *j = user;
    if (!mem_grow((void **)&j->tensors, &j->capacity, j->n_tensors + 1, sizeof *j->tensors,
                  MAX_TENSORS)) {
        j->no_memory = true;
        return;
    }
    j->tensors[j->n_tensors++] = *t;
}

static bool show_progress(void *user, const char *stage, double fraction) {
    job *j = user;
    return terminal_progress_step(&j->progress, stage, fraction) && !j->no_memory;
}

static void show_message(void *user, const char *line) {
    job *j = user;
    terminal_progress_message(&j->progress, line);
}

/* ---- work ------------------------------------------------------------------------------------ */

static int work(job *j) {
    const cli_options *o = j->options;
    pi_error err = {.status = PI_OK};
    pi_quantize_options options = pi_quantize_default_options();
    options.type = j->type;
    options.pure = o->pure;
    options.allow_requantize = o->allow_requantize;
    options.leave_output = o->leave_output;
    options.output_type = o->output_type;
    options.embedding_type = o->embedding_type;
    options.tensor_types = j->tensor_types;
    options.n_tensor_types = (size_t)o->tensor_types.count;
    options.imatrix = o->imatrix;
    options.measure = o->json;
    options.dry_run = o->dry_run;
    options.n_threads = j->n_threads;
    options.tensor = keep_tensor;
    options.progress = show_progress;
    options.message = show_message;
    options.user = j;
    char *template = NULL;
    pi_status status = PI_OK;
    if (o->chat_template_file)
        status = file_read_stream(o->chat_template_file, CLI_TEXT_MAX, &template,
                                  &options.n_chat_template, &err);
    options.chat_template = template;
    terminal_progress_begin(&j->progress, o->quiet);
    if (status == PI_OK) status = pi_quantize(j->in, j->out, &options, &j->result, &err);
    terminal_progress_end(&j->progress);
    mem_free(template);
    if (j->no_memory) {
        error_nomem(&err, j->n_tensors * sizeof *j->tensors, "results of tensors");
        return cli_failed(&err);
    }
    if (status != PI_OK) return cli_failed(&err);
    if (o->json)
        print_json(j);
    else if (!o->quiet || o->dry_run)
        print_text(j);
    return EXIT_DONE;
}

int cmd_quantize(const cli_options *o) {
    job *j = mem_calloc(1, sizeof *j); /* too large for a stack */
    pi_error err = {.status = PI_OK};
    if (!j) {
        error_nomem(&err, sizeof *j, "options");
        return cli_failed(&err);
    }
    j->options = o;
    int status = read_words(j);
    if (status == EXIT_DONE) status = read_tensor_types(j);
    if (status == EXIT_DONE && cli_refuse_hf(j->in, &err) != PI_OK) status = cli_failed(&err);
    if (status == EXIT_DONE) status = work(j);
    mem_free(j->tensors);
    mem_free(j);
    return status;
}
