/* bench.c: prompt and generation speed, bytes touched, and how close that is to what memory can
 * deliver. Written against the public interface, so that it measures what users get.
 *
 * Order of work per test: a warm-up, then repetitions; after each repetition a sample of bandwidth,
 * so that both see the same machine. Speeds and bandwidths are medians. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bandwidth.h"
#include "clock.h"
#include "cpu_features.h"
#include "file.h"
#include "mem.h"
#include "option_types.h"
#include "powerinfer_tools.h"
#include "quant.h"
#include "rng.h"

enum {
    MAX_REPETITIONS = 1000,
    WARM_UP_TOKENS = 8,
    MAX_SAMPLES = 4096 /* of bandwidth; more are not kept */
};

typedef struct bench {
    const pi_bench_options *o;
    const pi_model *model;
    pi_context *context;
    pi_session *session;
    bandwidth *memory;
    pi_model_info info;
    pi_bench_report *report;
    int32_t *tokens; /* [n_tokens] random ids */
    int32_t n_tokens;
    double read[MAX_SAMPLES], gather[MAX_SAMPLES]; /* GB/s */
    int n_read, n_gather;
    bool gathers;     /* a test read rows that lie apart: the samples of `gather` are theirs */
    size_t row_bytes; /* of a neuron's row */
    int n_tests, tests_done;
} bench;

typedef struct bench_test {
    bool generate; /* one token at a time */
    int32_t n;     /* tokens */
    int32_t depth;
} bench_test;

pi_bench_options pi_bench_default_options(void) {
    return (pi_bench_options){.context = pi_context_default_options(),
                              .prompts = {512},
                              .n_prompts = 1,
                              .n_gen = 128,
                              .depths = {0},
                              .n_depths = 1,
                              .repetitions = 5};
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts `v`. */
static double median(double *v, int n) {
    if (n == 0) return 0;
    qsort(v, (size_t)n, sizeof *v, compare_doubles);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

static pi_status feed(bench *b, const int32_t *tokens, int32_t n, pi_logits_wanted logits,
                      pi_error *err) {
    pi_input in = {.session = b->session, .tokens = tokens, .n_tokens = n, .logits = logits};
    return pi_forward(b->context, &in, 1, err);
}

/* Feeds the test's tokens behind its depth and forgets them again. Returns the seconds taken. */
static pi_status run_once(bench *b, const bench_test *t, int32_t n, double *seconds,
                          pi_error *err) {
    pi_status status = PI_OK;
    double start = clock_seconds();
    if (t->generate) {
        for (int32_t i = 0; i < n && status == PI_OK; i++)
            status = feed(b, b->tokens + i, 1, PI_LOGITS_LAST, err);
    } else {
        status = feed(b, b->tokens, n, PI_LOGITS_LAST, err);
    }
    *seconds = clock_seconds() - start;
    if (status != PI_OK) return status;
    return pi_session_rewind(b->session, t->depth, err);
}

static pi_status report_progress(bench *b, double part, pi_error *err) {
    double fraction = (b->tests_done + part) / (b->n_tests > 0 ? b->n_tests : 1);
    if (!b->o->progress || b->o->progress(b->o->user, "measuring", fraction)) return PI_OK;
    return error_set(err, PI_ERR_CANCELLED, "cancelled: bench: as was asked for");
}

static double ffn_density(const pi_counters *n) {
    return n->ffn_total_bytes ? (double)n->ffn_bytes / (double)n->ffn_total_bytes : 1;
}

/* Share of its rows that was read of matrices of which not all rows were. Those read as a whole
 * (the gate in exact mode) are in ffn_bytes, but not in gathered_bytes. */
static double gather_density(const pi_counters *n) {
    uint64_t whole = n->ffn_bytes - n->gathered_bytes;
    if (n->gathered_bytes == 0 || n->ffn_total_bytes <= whole) return 1;
    return (double)n->gathered_bytes / (double)(n->ffn_total_bytes - whole);
}

/* Rows at the density of a test that gathers count rather than those of one that streams. */
static void sample_bandwidth(bench *b, const pi_counters *done) {
    bool gathers = done->gathered_bytes > 0;
    if (b->n_read < MAX_SAMPLES) b->read[b->n_read++] = bandwidth_read(b->memory);
    if (gathers && !b->gathers) b->n_gather = 0;
    b->gathers = b->gathers || gathers;
    if (gathers == b->gathers && b->n_gather < MAX_SAMPLES)
        b->gather[b->n_gather++] = bandwidth_gather(b->memory, b->row_bytes, gather_density(done));
}

static pi_counters difference(const pi_counters *a, const pi_counters *b) {
    return (pi_counters){.tokens = b->tokens - a->tokens,
                         .weight_bytes = b->weight_bytes - a->weight_bytes,
                         .ffn_bytes = b->ffn_bytes - a->ffn_bytes,
                         .ffn_total_bytes = b->ffn_total_bytes - a->ffn_total_bytes,
                         .gathered_bytes = b->gathered_bytes - a->gathered_bytes,
                         .kv_bytes = b->kv_bytes - a->kv_bytes};
}

/* Repeats one test and fills in what does not depend on bandwidth. */
static pi_status run_test(bench *b, const bench_test *t, pi_error *err) {
    pi_bench_result *r = &b->report->results[b->report->n_results];
    pi_placement placement;
    pi_context_get_placement(b->context, &placement);
    *r = (pi_bench_result){
        .depth = t->depth, .mode = pi_context_mode(b->context), .device = placement.device};
    snprintf(r->test, sizeof r->test, "%s%d", t->generate ? "tg" : "pp", t->n);
    double seconds;
    int32_t warm_up = t->generate && t->n > WARM_UP_TOKENS ? WARM_UP_TOKENS : t->n;
    pi_status status = run_once(b, t, warm_up, &seconds, err);
    if (status != PI_OK) return status;

    double *tps = mem_calloc((size_t)b->o->repetitions, sizeof *tps);
    if (!tps) return error_nomem(err, sizeof *tps, "bench");
    pi_counters before, after;
    pi_context_get_counters(b->context, &before);
    for (int i = 0; i < b->o->repetitions && status == PI_OK; i++) {
        status = run_once(b, t, t->n, &seconds, err);
        tps[i] = t->n / seconds;
        pi_context_get_counters(b->context, &after);
        pi_counters done = difference(&before, &after);
        if (status == PI_OK) sample_bandwidth(b, &done);
        if (status == PI_OK) status = report_progress(b, (i + 1.0) / b->o->repetitions, err);
    }
    if (status == PI_OK) {
        pi_counters n = difference(&before, &after);
        r->tps = median(tps, b->o->repetitions);
        r->tps_min = tps[0];
        r->tps_max = tps[b->o->repetitions - 1];
        r->bytes_per_token = (double)(n.weight_bytes + n.kv_bytes) / (double)n.tokens;
        r->gathered_per_token = (double)n.gathered_bytes / (double)n.tokens;
        r->gbps = r->bytes_per_token * r->tps / 1e9;
        r->ffn_density = ffn_density(&n);
        b->report->n_results++;
        b->tests_done++;
    }
    mem_free(tps);
    return status;
}

/* Fills the context up to `depth`, then runs all tests there. */
static pi_status run_depth(bench *b, int32_t depth, pi_error *err) {
    pi_status status = pi_session_rewind(b->session, 0, err);
    if (status == PI_OK && depth > 0) status = feed(b, b->tokens, depth, PI_LOGITS_NONE, err);
    for (int i = 0; i < b->o->n_prompts && status == PI_OK; i++) {
        bench_test t = {.n = b->o->prompts[i], .depth = depth};
        status = run_test(b, &t, err);
    }
    if (status == PI_OK && b->o->n_gen > 0) {
        bench_test t = {.generate = true, .n = b->o->n_gen, .depth = depth};
        status = run_test(b, &t, err);
    }
    return status;
}

/* At the last depth: a pass of the first prompt, as much of it as one pass takes, then a token. The
 * session is as long as that depth. */
static pi_status trace_passes(bench *b, pi_error *err) {
    int32_t depth = pi_session_length(b->session), n_batch = b->o->context.n_batch;
    int32_t n_passes = b->o->n_prompts > 0 ? 2 : 1;
    double seconds;
    bench_test token = {.generate = true, .n = 1, .depth = depth};
    bench_test prompt = {.n = b->o->prompts[0] < n_batch ? b->o->prompts[0] : n_batch,
                         .depth = depth};
    pi_status status = run_once(b, &token, 1, &seconds, err); /* a warm-up */
    if (status == PI_OK) status = pi_trace_start(b->context, n_passes, err);
    if (status == PI_OK && n_passes > 1) status = run_once(b, &prompt, prompt.n, &seconds, err);
    if (status == PI_OK) status = run_once(b, &token, 1, &seconds, err);
    if (status == PI_OK)
        status = pi_trace_write(b->context, b->o->trace, b->report->traced, PI_BENCH_TRACED,
                                &b->report->n_traced, err);
    return status;
}

static void finish_report(bench *b) {
    pi_bench_report *r = b->report;
    r->threads = pi_context_threads(b->context);
    snprintf(r->cpu, sizeof r->cpu, "%s", cpu_model_name());
    r->read_gbps = median(b->read, b->n_read);
    r->gather_gbps = median(b->gather, b->n_gather);
    for (int i = 0; i < r->n_results; i++) {
        pi_bench_result *p = &r->results[i];
        /* What a GPU reads does not come from the memory that was measured. */
        if (strcmp(p->device, "cpu") != 0) continue;
        if (!(r->read_gbps > 0 && r->gather_gbps > 0)) continue;
        /* Seconds per token that memory allows: rows that lie apart come at their own rate. */
        double streamed = p->bytes_per_token - p->gathered_per_token;
        double floor = streamed / 1e9 / r->read_gbps + p->gathered_per_token / 1e9 / r->gather_gbps;
        p->bandwidth_share = p->gbps / r->read_gbps;
        p->floor_share = floor * p->tps;
    }
}

static pi_status check_options(const pi_bench_options *o, pi_error *err) {
    bool ok = o->n_prompts >= 0 && o->n_prompts <= PI_BENCH_MAX_LIST && o->n_depths >= 1 &&
              o->n_depths <= PI_BENCH_MAX_LIST && o->n_gen >= 0 && o->repetitions >= 1 &&
              o->repetitions <= MAX_REPETITIONS;
    for (int i = 0; ok && i < o->n_prompts; i++) ok = o->prompts[i] >= 1;
    for (int i = 0; ok && i < o->n_depths; i++) ok = o->depths[i] >= 0;
    if (!ok)
        return error_set(err, PI_ERR_ARG,
                         "bad measurement: bench: prompts of 1 and more tokens, depths of 0 and "
                         "more, 1 to %d repetitions are possible",
                         MAX_REPETITIONS);
    if (o->n_prompts == 0 && o->n_gen == 0)
        return error_set(err, PI_ERR_ARG,
                         "nothing to measure: bench: ask for a prompt or a "
                         "generation test");
    return PI_OK;
}

static int32_t largest(const int32_t *v, int32_t n) {
    int32_t m = 0;
    for (int32_t i = 0; i < n; i++)
        if (v[i] > m) m = v[i];
    return m;
}

static pi_status set_up(bench *b, pi_error *err) {
    const pi_bench_options *o = b->o;
    pi_model_get_info(b->model, &b->info);
    int32_t depth = largest(o->depths, o->n_depths), n = largest(o->prompts, o->n_prompts);
    if (o->n_gen > n) n = o->n_gen;
    if (depth > INT32_MAX - n)
        return error_set(err, PI_ERR_ARG, "too many tokens: bench: depth %d and %d more", depth, n);
    pi_context_options context = o->context;
    if (context.n_ctx == 0) context.n_ctx = depth + n;
    pi_status status = pi_context_create(b->model, &context, &b->context, err);
    if (status != PI_OK) return status;
    b->n_tokens = depth > n ? depth : n;
    b->tokens = mem_calloc((size_t)b->n_tokens, sizeof *b->tokens);
    if (!b->tokens) return error_nomem(err, (size_t)b->n_tokens * sizeof *b->tokens, "tokens");
    rng r;
    rng_seed(&r, 1);
    for (int32_t i = 0; i < b->n_tokens; i++)
        b->tokens[i] = (int32_t)(rng_u64(&r) % (uint64_t)b->info.n_vocab);
    const quant_traits *type = quant_find_name(b->info.type);
    if (!type || !quant_row_bytes(type->type, (uint64_t)b->info.n_embd, &b->row_bytes))
        b->row_bytes = (size_t)b->info.n_embd;
    status = pi_session_create(b->context, depth + n, &b->session, err);
    if (status != PI_OK) return status;
    return bandwidth_create(pi_context_threads(b->context), option_tier(o->context.kernels),
                            &b->memory, err);
}

pi_status pi_bench(const pi_model *m, const pi_bench_options *options, pi_bench_report *report,
                   pi_error *err) {
    pi_bench_options defaults = pi_bench_default_options();
    const pi_bench_options *o = options ? options : &defaults;
    *report = (pi_bench_report){0};
    pi_status status = check_options(o, err);
    if (status == PI_OK && o->trace) status = file_writer_probe(o->trace, err);
    if (status != PI_OK) return status;
    bench *b = mem_calloc(1, sizeof *b);
    if (!b) return error_nomem(err, sizeof *b, "bench");
    b->o = o;
    b->model = m;
    b->report = report;
    b->n_tests = o->n_depths * (o->n_prompts + (o->n_gen > 0));
    status = set_up(b, err);
    for (int i = 0; i < o->n_depths && status == PI_OK; i++)
        status = run_depth(b, o->depths[i], err);
    if (status == PI_OK && o->trace) status = trace_passes(b, err);
    if (status == PI_OK) finish_report(b);
    bandwidth_free(b->memory);
    pi_session_destroy(b->session);
    pi_context_destroy(b->context);
    mem_free(b->tokens);
    mem_free(b);
    return status;
}
