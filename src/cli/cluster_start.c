/* cluster_start.c: joins the ranks of a cluster; the command of all ranks above 0. */
#include "cluster_start.h"

#include <string.h>

#include "bench_output.h"
#include "file.h"
#include "json_writer.h"
#include "signals.h"

/* ---- what all ranks must have in common ------------------------------------------------------ */

static void add_line(char *text, size_t n_text, const char *name, const char *value) {
    size_t n = strlen(text);
    snprintf(text + n, n_text - n, "--%s=%.200s\n", name, value);
}

static void add_number(char *text, size_t n_text, const char *name, double value) {
    char number[32];
    snprintf(number, sizeof number, "%.9g", value);
    add_line(text, n_text, name, number);
}

/* The options that results depend on. */
static void describe_options(const command *c, const cli_options *o, char *text, size_t n_text) {
    size_t n = (size_t)snprintf(text, n_text, "the command=%s\n", c->name);
    if (n >= n_text) return;
    add_line(text, n_text, "cache-type-k", option_cache_types[o->cache_type_k]);
    add_line(text, n_text, "cache-type-v", option_cache_types[o->cache_type_v]);
    add_number(text, n_text, "ctx-size", (double)o->ctx_size);
    add_number(text, n_text, "mode", (double)o->mode);
    add_number(text, n_text, "max-loss", o->max_loss);
    add_number(text, n_text, "attn-blocks", (double)o->attn_blocks);
    add_number(text, n_text, "deterministic", o->deterministic);
    for (int i = 0; i < o->override_kv.count; i++)
        add_line(text, n_text, "override-kv", o->override_kv.values[i]);
}

/* ---- loss of a rank -------------------------------------------------------------------------- */

static void say_why(void *user, const char *why) {
    (void)user;
    fprintf(stderr, "powerinfer: %s\n", why);
    fflush(stderr);
}

/* A server may be waiting for requests. The others fail in their next call. */
static void on_lost(void *user, const char *why) {
    if (signals_ask_to_end()) say_why(user, why);
}

/* ---- joining --------------------------------------------------------------------------------- */

int cluster_join(const command *c, cli_options *o, bool *works) {
    const uint32_t stages = COMMAND_RUN | COMMAND_CHAT | COMMAND_SERVE | COMMAND_BENCH |
                            COMMAND_EVAL | COMMAND_PERPLEXITY | COMMAND_PLACE;
    pi_error err;
    *works = false;
    if (!(c->bit & stages) || !(o->mpi || options_launched_by_mpi())) return EXIT_DONE;
    char settings[1024];
    describe_options(c, o, settings, sizeof settings);
    pi_cluster_options options = pi_cluster_default_options();
    options.settings = settings;
    options.timeout = o->mpi_timeout;
    options.lost = on_lost;
    options.give_up = say_why;
    options.measure_prefill = c->bit & (COMMAND_BENCH | COMMAND_PLACE);
    if (c->bit & COMMAND_PLACE) { /* has no -ngl and --attn-blocks: their defaults */
        const pi_context_options usual = pi_context_default_options();
        o->gpu_layers = usual.gpu_layers;
        o->attn_blocks = usual.attn_blocks;
    }
    options.n_split = o->mpi_split.count;
    for (int i = 0; i < o->mpi_split.count; i++) options.split[i] = (float)o->mpi_split.values[i];
    if (pi_cluster_open(&options, &o->cluster, &err) != PI_OK) return cli_failed(&err);
    signals_join(o->cluster);
    *works = pi_cluster_rank(o->cluster) > 0;
    return EXIT_DONE;
}

/* Whether the model is here, without a download. */
static bool has_model(const cli_options *o) {
    char path[OS_PATH_MAX];
    cli_options local = *o;
    local.offline = true;
    return cli_model_path(&local, path, sizeof path, NULL) == PI_OK && file_exists(path);
}

int cluster_work(const cli_options *o) {
    pi_error err = {.status = PI_OK};
    pi_model *model = NULL;
    pi_context_options options = cli_context_options(o, 0);
    bool receives = o->mpi_send && !has_model(o);
    cli_opening how = {.receive = receives ? o->cluster : NULL, .folder = o->mpi_folder};
    if (receives && !how.folder && options_given(o, &o->ram_budget))
        how.folder = options_temporary_folder();
    pi_status status = cli_model_open_as(o, &how, &model, &err);
    if (status == PI_OK && model) status = pi_cluster_work(o->cluster, model, &options, &err);
    pi_model_close(model);
    if (status == PI_OK) return EXIT_DONE;
    pi_cluster_fail(o->cluster);
    return cli_failed(&err);
}

void cluster_leave(cli_options *o, int status) {
    if (!o->cluster) return;
    fflush(stdout);
    if (status == EXIT_WORK) pi_cluster_fail(o->cluster);
    signals_join(NULL);
    pi_cluster_close(o->cluster);
    o->cluster = NULL;
}

/* ---- the table ------------------------------------------------------------------------------- */

static void print_row(FILE *out, int rank, const pi_rank *r) {
    char layers[32], predicted[32] = "-", prefill[32] = "-", busy[3][32];
    const double seconds[] = {r->computing, r->waiting, r->sending};
    snprintf(layers, sizeof layers, "%d-%d", (int)r->first_layer, (int)r->end_layer - 1);
    if (r->predicted_seconds > 0)
        snprintf(predicted, sizeof predicted, "%.3f", 1e3 * r->predicted_seconds);
    if (r->predicted_prefill_seconds > 0)
        snprintf(prefill, sizeof prefill, "%.1f", 1e3 * r->predicted_prefill_seconds);
    for (int i = 0; i < 3; i++) {
        double per = r->ubatches > 0 ? 1e3 * seconds[i] / (double)r->ubatches : 0;
        snprintf(busy[i], sizeof busy[i], r->ubatches > 0 ? "%.3f" : "-", per);
    }
    fprintf(out, "| %4d | %-16.16s | %7s | %7.1f | %9s | %7s | %9s | %7s | %7s | %7.1f |\n", rank,
            r->host, layers, (double)r->weight_bytes / 1048576, predicted, prefill, busy[0],
            busy[1], busy[2], (double)r->sent_bytes / 1e6);
}

void cluster_print_table(FILE *out, const pi_rank *ranks, int n) {
    fprintf(out,
            "\n| rank | host             |  layers |     MiB | predicted | prefill | computing "
            "| waiting | sending | sent MB |\n"
            "| ---: | ---------------- | ------: | ------: | --------: | ------: | --------: "
            "| ------: | ------: | ------: |\n");
    for (int i = 0; i < n; i++) print_row(out, i, &ranks[i]);
    fprintf(
        out,
        "\nMilliseconds per ubatch; predicted from a measurement of some layers: for one token; "
        "prefill: for %d tokens.\n",
        (int)ranks[0].predicted_tokens);
}

pi_status cluster_print(pi_context *context, FILE *out, bool json, pi_error *err) {
    pi_rank ranks[PI_MAX_RANKS];
    pi_status status = pi_context_get_ranks(context, ranks, err);
    if (status != PI_OK) return status;
    if (!json) {
        cluster_print_table(out, ranks, pi_context_ranks(context));
        return PI_OK;
    }
    json_writer w;
    json_begin(&w, out);
    json_put_object(&w, NULL);
    bench_put_ranks(&w, ranks, pi_context_ranks(context));
    json_end_object(&w);
    return PI_OK;
}
