/* cmd_tune.c: finds the fastest settings of a model. The table is printed after everything has
 * succeeded. */
#include <math.h>

#include "cli.h"
#include "json_writer.h"
#include "os_file.h"
#include "powerinfer_tools.h"
#include "terminal.h"

enum { MAX_TRIALS = 64 };

typedef struct job {
    const cli_options *options;
    terminal_progress progress;
    pi_tune_trial trials[MAX_TRIALS]; /* [n] */
    int n;
    pi_tune_result result;
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

static void keep_trial(void *user, const pi_tune_trial *trial) {
    job *j = user;
    if (j->n < MAX_TRIALS) j->trials[j->n++] = *trial;
}

/* ---- results --------------------------------------------------------------------------------- */

static void put_trial(json_writer *w, const char *key, const pi_tune_trial *t) {
    json_put_object(w, key);
    json_put_bool(w, "prepared", t->prepared);
    json_put_text(w, "mode", t->mode);
    json_put_text(w, "head", t->head ? "predict" : "dense");
    json_put_int(w, "threads", t->threads);
    json_put_int(w, "attn_blocks", t->attn_blocks);
    json_put_number(w, "tps", t->tps);
    json_put_number(w, "bytes_per_token", t->bytes_per_token);
    json_put_number(w, "loss", t->loss);
    json_put_bool(w, "chosen", t->chosen);
    json_put_text(w, "reason", t->reason);
    json_end_object(w);
}

static void print_json(const job *j) {
    json_writer w;
    json_begin(&w, stdout);
    json_put_object(&w, NULL);
    json_put_text(&w, "cpu", j->result.cpu);
    json_put_array(&w, "trials");
    for (int i = 0; i < j->n; i++) put_trial(&w, NULL, &j->trials[i]);
    json_end_array(&w);
    put_trial(&w, "before", &j->result.before);
    put_trial(&w, "after", &j->result.after);
    json_end_object(&w);
}

static void print_text(const job *j) {
    const pi_tune_result *r = &j->result;
    printf("model     mode       head     threads  blocks  tokens/s  MiB/token    loss\n");
    for (int i = 0; i < j->n; i++) {
        const pi_tune_trial *t = &j->trials[i];
        char blocks[16] = "all", speed[16] = "-", mib[16] = "-", loss[16] = "?";
        if (t->attn_blocks > 0) snprintf(blocks, sizeof blocks, "%d", t->attn_blocks);
        if (t->tps > 0) {
            snprintf(speed, sizeof speed, "%.4g", t->tps);
            snprintf(mib, sizeof mib, "%.1f", t->bytes_per_token / 1048576);
        }
        if (!isnan(t->loss)) snprintf(loss, sizeof loss, "%.2f%%", 100 * t->loss);
        printf("%-8s  %-9s  %-7s  %7d  %6s  %8s  %9s  %6s%s%s%s\n",
               t->prepared ? "prepared" : "input", t->mode, t->head ? "predict" : "dense",
               t->threads, blocks, speed, mib, loss, t->chosen ? "  chosen" : "",
               t->reason[0] ? "  " : "", t->reason);
    }
    printf("\n%s: %.4g instead of %.4g tokens/s\n", r->cpu, r->after.tps, r->before.tps);
}

/* ---- work ------------------------------------------------------------------------------------ */

static pi_status work(job *j, pi_error *err) {
    const cli_options *o = j->options;
    char text[OS_PATH_MAX];
    pi_tune_options options = pi_tune_default_options();
    options.context = cli_context_options(o, 0);
    options.calibration = o->calibration;
    if (!options.calibration && cli_bundled_path("calibration.txt", text, sizeof text))
        options.calibration = text;
    options.calibration_tokens = (int32_t)o->calibration_tokens;
    options.max_loss = o->max_loss / 100;
    options.n_ctx = (int32_t)o->ctx_size;
    options.trial = keep_trial;
    options.progress = show_progress;
    options.message = show_message;
    options.user = j;
    return pi_tune(o->positionals[0], o->out, &options, &j->result, err);
}

int cmd_tune(const cli_options *o) {
    if (!o->n_positionals) return cli_wrong("no input: tune: name one, as in tune IN -o FILE");
    if (!o->out) return cli_wrong("no output: tune: name a file with -o");
    job j = {.options = o};
    pi_error err = {.status = PI_OK};
    terminal_progress_begin(&j.progress, o->quiet);
    pi_status status = work(&j, &err);
    terminal_progress_end(&j.progress);
    if (status != PI_OK) return cli_failed(&err);
    if (o->json)
        print_json(&j);
    else if (!o->quiet)
        print_text(&j);
    cli_say_written(o, o->out, "tuned model");
    return EXIT_DONE;
}
