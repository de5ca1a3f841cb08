/* cmd_prepare.c: prepares a model, or undoes it. Results are printed after everything has
 * succeeded. */

#include "cli.h"
#include "json_writer.h"
#include "mem.h"
#include "os_file.h"
#include "terminal.h"

enum { MAX_LAYERS = 1 << 16 };

static const char bundled_text[] = "calibration.txt";

typedef struct job {
    const cli_options *options;
    terminal_progress progress;
    pi_prepare_layer *layers; /* [n_layers] */
    size_t n_layers, capacity;
    bool no_memory;
    pi_prepare_result result;
} job;

static bool show_progress(void *user, const char *stage, double fraction) {
    job *j = user;
    return terminal_progress_step(&j->progress, stage, fraction);
}

static void show_message(void *user, const char *line) {
    job *j = user;
    char message[CLI_MESSAGE_ROOM];
    cli_name_options(line, message, sizeof message);
    terminal_progress_message(&j->progress, message);
}

static void keep_layer(void *user, int32_t index, const pi_prepare_layer *layer) {
    job *j = user;
    (void)index; /* layers come in order */
    if (mem_grow((void **)&j->layers, &j->capacity, j->n_layers + 1, sizeof *j->layers, MAX_LAYERS))
        j->layers[j->n_layers++] = *layer;
    else
        j->no_memory = true;
}

/* ---- results --------------------------------------------------------------------------------- */

static void print_json(const job *j) {
    json_writer w;
    json_begin(&w, stdout);
    json_put_object(&w, NULL);
    json_put_array(&w, "layers");
    for (size_t i = 0; i < j->n_layers; i++) {
        const pi_prepare_layer *l = &j->layers[i];
        json_put_object(&w, NULL);
        json_put_number(&w, "density", l->density);
        json_put_text(&w, "kind", l->kind);
        json_put_int(&w, "rank", l->rank);
        json_put_number(&w, "recall", l->recall);
        json_put_number(&w, "contribution_recall", l->contribution_recall);
        json_put_number(&w, "selected", l->selected);
        json_put_number(&w, "down", l->down);
        json_end_object(&w);
    }
    json_end_array(&w);
    json_put_number(&w, "ppl_before", j->result.ppl_before);
    json_put_number(&w, "ppl_after", j->result.ppl_after);
    json_put_number(&w, "kl", j->result.kl);
    if (j->result.head_rank > 0) {
        json_put_object(&w, "head");
        json_put_int(&w, "rank", j->result.head_rank);
        json_put_number(&w, "rows", j->result.head_rows);
        json_put_number(&w, "bytes", j->result.head_bytes);
        json_put_number(&w, "loss", j->result.head_loss);
        json_put_number(&w, "same", j->result.head_same);
        json_end_object(&w);
    }
    json_end_object(&w);
}

static void print_share(double share) {
    printf(" %8.1f%%", 100 * share);
}

static void print_layers(const job *j) {
    const pi_prepare_result *r = &j->result;
    printf("layer    active  predictor  rank    recall  contrib.  selected      down\n");
    for (size_t i = 0; i < j->n_layers; i++) {
        const pi_prepare_layer *l = &j->layers[i];
        printf("%5zu", i);
        print_share(l->density);
        printf("  %-9s %5d", l->kind, l->rank);
        print_share(l->recall);
        print_share(l->contribution_recall);
        print_share(l->selected);
        print_share(l->down);
        putchar('\n');
    }
    printf(
        "\nmode %s: perplexity %.4f -> %.4f (%+.2f%%), mean KL divergence %.5f, on %lld held-out "
        "tokens\n",
        r->mode, r->ppl_before, r->ppl_after, 100 * (r->ppl_after / r->ppl_before - 1), r->kl,
        (long long)r->held_out);
    if (r->head_rank > 0)
        printf("output head: sketch of rank %d, %.1f%% of the vocabulary computed, %.0f%% of the "
               "bytes read; perplexity %+.3f%%, same most likely token %.2f%%\n",
               r->head_rank, 100 * r->head_rows, 100 * r->head_bytes, 100 * r->head_loss,
               100 * r->head_same);
}

static void print_text(const job *j) {
    const double mib = 1024.0 * 1024.0;
    const pi_prepare_result *r = &j->result;
    if (r->mode) print_layers(j);
    printf("%.2f MiB -> %.2f MiB, %.2f MiB of them predictors\n", (double)r->bytes_in / mib,
           (double)r->bytes_out / mib, (double)r->predictor_bytes / mib);
    printf("only PowerInfer runs this file; for llama.cpp, convert it back: powerinfer prepare "
           "--undo %s -o FILE\n",
           j->options->out);
}

/* ---- work ------------------------------------------------------------------------------------ */

static pi_status work(job *j, pi_error *err) {
    const cli_options *o = j->options;
    char text[OS_PATH_MAX];
    pi_prepare_options options = pi_prepare_default_options();
    options.calibration = o->calibration;
    options.calibration_tokens = (int32_t)o->calibration_tokens;
    options.calibration_window = (int32_t)o->calibration_window;
    options.type = o->type;
    options.down_type = o->down_type;
    options.predictor = o->predictor;
    options.predictor_type = o->predictor_type;
    options.recall = o->recall;
    options.max_loss = o->max_loss / 100;
    options.head = o->prepare_head != 0;
    options.seed = (uint64_t)o->seed;
    options.bundles = (pi_bundles)o->bundle;
    options.rearrange = o->bundle != PI_BUNDLES_KEEP && !o->calibration &&
                        !options_given(o, &o->prepare_head);
    options.n_threads = (int32_t)o->threads;
    options.layer = keep_layer;
    options.progress = show_progress;
    options.message = show_message;
    options.user = j;
    if (o->undo) return pi_prepare_undo(o->positionals[0], o->out, &options, err);
    if (!options.calibration && cli_bundled_path(bundled_text, text, sizeof text))
        options.calibration = text;
    if (!options.calibration && !options.rearrange)
        return error_set(err, PI_ERR_NOT_FOUND,
                         "no calibration text given and the bundled one is missing: %s next to the "
                         "program: give one with --calibration FILE",
                         bundled_text);
    return pi_prepare(o->positionals[0], o->out, &options, &j->result, err);
}

int cmd_prepare(const cli_options *o) {
    if (!o->n_positionals)
        return cli_wrong("no input: prepare: name one, as in prepare IN -o FILE");
    if (!o->out) return cli_wrong("no output: prepare: name a file with -o");
    if (o->undo && o->bundle != PI_BUNDLES_KEEP)
        return cli_wrong("incompatible options: prepare: --undo takes bundles apart: leave out "
                         "--bundle");
    job j = {.options = o};
    pi_error err = {.status = PI_OK};
    terminal_progress_begin(&j.progress, o->quiet);
    pi_status status = work(&j, &err);
    terminal_progress_end(&j.progress);
    int result = EXIT_DONE;
    if (status == PI_OK && j.no_memory)
        status = error_nomem(&err, j.n_layers * sizeof *j.layers, "results of layers");
    if (status != PI_OK)
        result = cli_failed(&err);
    else if (o->json && !o->undo)
        print_json(&j);
    else if (!o->quiet && !o->undo)
        print_text(&j);
    if (status == PI_OK)
        cli_say_written(o, o->out, o->undo ? "ordinary GGUF file" : "prepared model");
    mem_free(j.layers);
    return result;
}
