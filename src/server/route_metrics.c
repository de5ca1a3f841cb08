/* route_metrics.c: GET /metrics, in Prometheus' text format. */
#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "dialects.h"
#include "mem.h"

/* What the metrics of one model are made of. */
typedef struct model_metrics {
    scheduler_stats stats;
    grammar_cache_stats grammars;
    char label[256]; /* model="NAME", escaped; "": the only model */
} model_metrics;

typedef struct metrics {
    bytes text;
    bool failed;
    const char *prefix;          /* of all names */
    const model_metrics *models; /* [n] */
    int n;
} metrics;

typedef enum value_kind { VALUE_U64, VALUE_I32, VALUE_DOUBLE } value_kind;
typedef struct value_place {
    value_kind kind;
    size_t offset; /* in model_metrics */
} value_place;

/* A number, or the quotient of two. */
typedef struct metric {
    const char *name, *type, *help;
    value_place value, divisor;
    bool divided;
} metric;

#define COUNTER "counter"
#define GAUGE   "gauge"
#define U64(member)                                                                                \
    { VALUE_U64, offsetof(model_metrics, member) }
#define I32(member)                                                                                \
    { VALUE_I32, offsetof(model_metrics, member) }
#define DOUBLE(member)                                                                             \
    { VALUE_DOUBLE, offsetof(model_metrics, member) }

static const metric all[] = {
    {"requests_total", COUNTER, "Sequences accepted.", U64(stats.requests), {0}, false},
    {"requests_refused_total",
     COUNTER,
     "Requests refused: the queue was full.",
     U64(stats.refused),
     {0},
     false},
    {"requests_left_total",
     COUNTER,
     "Sequences whose client left before the end.",
     U64(stats.left),
     {0},
     false},
    {"requests_late_total",
     COUNTER,
     "Sequences that ended because their timeout passed.",
     U64(stats.late),
     {0},
     false},
    {"prompt_tokens_total",
     COUNTER,
     "Prompt tokens computed.",
     U64(stats.prompt_tokens),
     {0},
     false},
    {"prompt_tokens_cached_total",
     COUNTER,
     "Prompt tokens taken from a slot or the prompt store.",
     U64(stats.cached_tokens),
     {0},
     false},
    {"prompt_tokens_restored_total",
     COUNTER,
     "Prompt tokens taken from the prompt store.",
     U64(stats.store.restored),
     {0},
     false},
    {"prompt_store_evicted_total",
     COUNTER,
     "Tokens evicted from the prompt store, which was full.",
     U64(stats.store.evicted),
     {0},
     false},
    {"prompt_store_bytes",
     GAUGE,
     "Size of the prompt store.",
     U64(stats.store.n_bytes),
     {0},
     false},
    {"prompt_store_file_bytes",
     GAUGE,
     "Size of the prompt store's files.",
     U64(stats.store.n_file_bytes),
     {0},
     false},
    {"prompt_seconds_total",
     COUNTER,
     "Seconds from getting a slot to the first token, summed over sequences.",
     DOUBLE(stats.prompt_seconds),
     {0},
     false},
    {"tokens_predicted_total",
     COUNTER,
     "Tokens generated.",
     U64(stats.generated_tokens),
     {0},
     false},
    {"tokens_predicted_seconds_total",
     COUNTER,
     "Seconds from the first token to the last, summed over sequences.",
     DOUBLE(stats.generated_seconds),
     {0},
     false},
    {"tokens_drafted_total",
     COUNTER,
     "Tokens drafted by speculative decoding.",
     U64(stats.drafted_tokens),
     {0},
     false},
    {"tokens_drafted_accepted_total",
     COUNTER,
     "Drafted tokens that were right.",
     U64(stats.accepted_tokens),
     {0},
     false},
    {"decode_total", COUNTER, "Forward passes.", U64(stats.steps), {0}, false},
    /* llama.cpp's names of the two metrics above and below, and its rates. */
    {"n_decode_total", COUNTER, "Forward passes.", U64(stats.steps), {0}, false},
    {"n_busy_slots_per_decode", GAUGE, "Sequences in a forward pass, on average.",
     U64(stats.busy_slots), U64(stats.steps), true},
    {"prompt_tokens_seconds", GAUGE, "Prompt tokens per second, on average.",
     U64(stats.prompt_tokens), DOUBLE(stats.prompt_seconds), true},
    {"predicted_tokens_seconds", GAUGE, "Generated tokens per second, on average.",
     U64(stats.generated_tokens), DOUBLE(stats.generated_seconds), true},
    {"busy_slots_per_decode", GAUGE, "Sequences in a forward pass, on average.",
     U64(stats.busy_slots), U64(stats.steps), true},
    {"longest_prompt_piece",
     GAUGE,
     "Most prompt tokens in a pass in which others generated.",
     U64(stats.longest_piece),
     {0},
     false},
    {"longest_token_gap_ubatches",
     GAUGE,
     "Most ubatches from a token of a sequence to its next token.",
     U64(stats.longest_gap),
     {0},
     false},
    {"requests_processing", GAUGE, "Sequences in a slot.", I32(stats.processing), {0}, false},
    {"requests_deferred", GAUGE, "Sequences waiting for a slot.", I32(stats.waiting), {0}, false},
    {"weight_bytes_total",
     COUNTER,
     "Bytes of weights read from memory.",
     U64(stats.counters.weight_bytes),
     {0},
     false},
    {"ffn_share", GAUGE, "FFN weights read, as a fraction of what dense passes would read.",
     U64(stats.counters.ffn_bytes), U64(stats.counters.ffn_total_bytes), true},
    {"grammars_compiled_total",
     COUNTER,
     "Grammars and schemas compiled.",
     U64(grammars.compiled),
     {0},
     false},
    {"grammars_reused_total",
     COUNTER,
     "Requests whose grammar was compiled for an earlier one.",
     U64(grammars.reused),
     {0},
     false},
    {"grammars_cached", GAUGE, "Compiled grammars kept.", I32(grammars.n), {0}, false},
};

static const struct {
    const char *name, *help;
    size_t offset; /* in model_metrics */
} histograms[] = {
    {"request_queue_time_seconds", "Seconds from the arrival of a sequence to its slot.",
     offsetof(model_metrics, stats.queue_seconds)},
    {"time_to_first_token_seconds", "Seconds from the arrival of a sequence to its first token.",
     offsetof(model_metrics, stats.first_token_seconds)},
    {"inter_token_latency_seconds", "Seconds from a token of a sequence to its next token.",
     offsetof(model_metrics, stats.token_seconds)},
};

static void put_head(metrics *m, const char *name, const char *type, const char *help) {
    m->failed |= !bytes_print(&m->text, "# HELP %s%s %s\n# TYPE %s%s %s\n", m->prefix, name, help,
                              m->prefix, name, type);
}

static double value_at(const model_metrics *model, value_place place) {
    const char *at = (const char *)model + place.offset;
    uint64_t u = 0;
    int32_t i = 0;
    double d = 0;
    switch (place.kind) {
    case VALUE_U64:
        memcpy(&u, at, sizeof u);
        return (double)u;
    case VALUE_I32:
        memcpy(&i, at, sizeof i);
        return i;
    case VALUE_DOUBLE:
        memcpy(&d, at, sizeof d);
        break;
    }
    return d;
}

static void put_metric(metrics *m, const metric *row) {
    put_head(m, row->name, row->type, row->help);
    for (int i = 0; i < m->n; i++) {
        const model_metrics *model = &m->models[i];
        const double divisor = row->divided ? value_at(model, row->divisor) : 1;
        const double value = divisor > 0 ? value_at(model, row->value) / divisor : 0;
        const bool labelled = model->label[0];
        m->failed |= !bytes_print(&m->text, "%s%s%s%s%s %.17g\n", m->prefix, row->name,
                                  labelled ? "{" : "", model->label, labelled ? "}" : "", value);
    }
}

/* label: of the model, or "". */
static void put_histogram(metrics *m, const char *name, const char *label, const histogram *h) {
    const char *comma = *label ? "," : "", *open = *label ? "{" : "", *close = *label ? "}" : "";
    uint64_t n = 0;
    for (int i = 0; i <= HISTOGRAM_BOUNDS; i++) {
        char bound[32] = "+Inf";
        if (i < HISTOGRAM_BOUNDS) snprintf(bound, sizeof bound, "%g", histogram_bounds[i]);
        n += h->counts[i];
        m->failed |= !bytes_print(&m->text, "%s%s_bucket{%s%sle=\"%s\"} %" PRIu64 "\n", m->prefix,
                                  name, label, comma, bound, n);
    }
    m->failed |= !bytes_print(&m->text, "%s%s_sum%s%s%s %.17g\n", m->prefix, name, open, label,
                              close, h->sum);
    m->failed |= !bytes_print(&m->text, "%s%s_count%s%s%s %" PRIu64 "\n", m->prefix, name, open,
                              label, close, n);
}

static void put_all(metrics *m, bool draining, const histogram *request_seconds) {
    static const char duration[] = "e2e_request_latency_seconds";
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) put_metric(m, &all[i]);
    for (size_t i = 0; i < sizeof histograms / sizeof *histograms; i++) {
        put_head(m, histograms[i].name, "histogram", histograms[i].help);
        for (int k = 0; k < m->n; k++) {
            histogram h;
            memcpy(&h, (const char *)&m->models[k] + histograms[i].offset, sizeof h);
            put_histogram(m, histograms[i].name, m->models[k].label, &h);
        }
    }
    put_head(m, "draining", "gauge", "1: the server is shutting down and takes no new requests.");
    m->failed |= !bytes_print(&m->text, "%sdraining %d\n", m->prefix, (int)draining);
    put_head(m, duration, "histogram",
             "Seconds from a request that uses a model to the end of its answer.");
    put_histogram(m, duration, "", request_seconds);
}

enum MHD_Result route_metrics(exchange *x) {
    server *s = x->server;
    const int n = registry_count(s->registry);
    model_metrics *models = mem_calloc((size_t)n, sizeof *models);
    if (!models) return http_reply_error(x, 500, "out of memory");
    metrics m = {.prefix = s->options.metrics_prefix, .models = models};
    for (int i = 0; i < n; i++) {
        served_model *served = registry_peek(s->registry, i);
        model_metrics *model = &models[m.n];
        if (!served) continue;
        scheduler_get_stats(served->scheduler, &model->stats);
        model->grammars = grammar_cache_get_stats(&served->grammars);
        if (s->options.routes) { /* names that need escapes or do not fit are cut */
            const char *name = registry_model(s->registry, i)->name;
            const size_t n_name = strcspn(name, "\"\\\n");
            snprintf(model->label, sizeof model->label, "model=\"%.*s\"",
                     n_name < 200 ? (int)n_name : 200, name);
        }
        registry_release(s->registry, served);
        m.n++;
    }
    os_mutex_lock(&s->clients_lock);
    const histogram request_seconds = s->request_seconds;
    os_mutex_unlock(&s->clients_lock);
    put_all(&m, atomic_load(&s->draining), &request_seconds);
    mem_free(models);
    if (!m.failed) return http_reply_text(x, 200, "text/plain; version=0.0.4", &m.text);
    bytes_free(&m.text);
    return http_reply_error(x, 500, "out of memory");
}
