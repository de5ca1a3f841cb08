/* bench.c: prefill and decode speed, bytes read, and their share of the memory bandwidth. It uses
 * the public interface, so that it measures the speed that users get.
 *
 * Each test has a warm-up, then repetitions. Decode is split into slices of half a second; memory
 * is sampled before and after every slice, outside the timed region, so that both see the machine
 * in one state. The result is the median repetition with the samples around it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bandwidth.h"
#include "clock.h"
#include "cpu_features.h"
#include "cpu_topology.h"
#include "file.h"
#include "gguf.h"
#include "median.h"
#include "mem.h"
#include "neuron_stats.h"
#include "os_thread.h"
#include "powerinfer_sampler.h"
#include "powerinfer_speculate.h"
#include "powerinfer_tools.h"
#include "quant.h"
#include "rng.h"

enum { MAX_REPETITIONS = 1000, MAX_PARALLEL = 256, WARM_UP_TOKENS = 8 };
enum { MAX_RESULTS = 2 * PI_BENCH_MAX_LIST * PI_BENCH_MAX_LIST };

static const double SLICE_SECONDS = 0.5;

typedef struct bench {
    const pi_bench_options *o;
    const pi_model *model;
    pi_context *context;
    pi_session **sessions; /* [n_sessions] */
    pi_input *inputs;      /* [n_sessions] */
    int32_t n_sessions;
    bandwidth *memory; /* NULL: no memory for its buffer */
    pi_model_info info;
    pi_bench_report *report;
    int32_t *random;       /* ids; NULL: the options have tokens */
    const int32_t *tokens; /* [n_tokens] of the context depth, then of tests */
    int32_t n_tokens;
    int32_t next;   /* with tokens of the options: where the next test begins */
    float *freq;    /* [n_ff] relative frequencies of a layer's neurons; NULL: unknown */
    double density; /* fraction of active neurons; 1: unknown */
    int n_tests, tests_done;
    pi_generated generated; /* sums of the counts of sampled tokens since the test began */
} bench;

/* GB/s. */
typedef struct rates {
    double read, gather;
} rates;

/* Reads of the drive during a test, as pi_memory counts them. */
typedef struct drive_use {
    double reads, bytes, hits, misses, ahead, in_vain;
    double busy, now; /* seconds */
} drive_use;

typedef struct repetition {
    double tps;
    rates memory;
} repetition;

typedef struct bench_test {
    bool generate; /* one token at a time */
    int32_t n;     /* tokens */
    int32_t depth;
    int32_t parallel; /* sequences */
    bool sampled;     /* the model continues its text; else tokens are given */
    bool drafted;     /* with drafts */
} bench_test;

pi_bench_options pi_bench_default_options(void) {
    return (pi_bench_options){.context = pi_context_default_options(),
                              .prompts = {512},
                              .n_prompts = 1,
                              .gens = {128},
                              .n_gens = 1,
                              .depths = {0},
                              .n_depths = 1,
                              .parallels = {1},
                              .n_parallels = 1,
                              .repetitions = 5};
}

static int compare_repetitions(const void *a, const void *b) {
    return median_compare(&((const repetition *)a)->tps, &((const repetition *)b)->tps);
}

/* Tokens for n steps of a test; sequence i begins at the i-th one. Each test continues where the
 * last one ended in the text; at its end the tests start over. */
static const int32_t *take_tokens(bench *b, const bench_test *t, int32_t n) {
    if (b->random) return b->tokens;
    if (b->next > b->n_tokens - n - (t->parallel - 1)) b->next = 0;
    b->next += n;
    return b->tokens + b->next - n;
}

/* Sets n tokens as the inputs of sequences [first, end). */
static void set_inputs(bench *b, int32_t first, int32_t end, const int32_t *tokens, int32_t n) {
    for (int32_t i = first; i < end; i++)
        b->inputs[i] = (pi_input){.session = b->sessions[i],
                                  .tokens = tokens + i,
                                  .n_tokens = n,
                                  .logits = PI_LOGITS_LAST};
}

/* Samples n tokens after the token at the test's depth, each from logits that this computes: the
 * same text with and without drafts. */
static pi_status sample_tokens(bench *b, const bench_test *t, int32_t n, pi_error *err) {
    pi_sampler_options sampling = pi_sampler_default_options();
    sampling.temp = b->o->temp;
    sampling.seed = b->o->seed;
    sampling.ignore_eos = true;
    pi_generate_options o = pi_generate_default_options();
    o.tokens = b->tokens;
    o.n_tokens = t->depth + 1;
    o.max_tokens = n;
    o.speculator = t->drafted ? b->o->speculator : NULL;
    pi_generated done;
    pi_status status = pi_sampler_create(b->model, &sampling, &o.sampler, err);
    if (status != PI_OK) return status;
    status = pi_generate(b->context, b->sessions[0], &o, &done, err);
    pi_sampler_destroy(o.sampler);
    if (status == PI_OK && done.draft_error.status != PI_OK) {
        *err = done.draft_error;
        return err->status;
    }
    b->generated.n_decoded += done.n_decoded;
    b->generated.n_steps += done.n_steps;
    b->generated.n_drafted += done.n_drafted;
    b->generated.n_accepted += done.n_accepted;
    return status;
}

/* Evaluates tokens [*at, n) of the test after its depth and advances *at; decode of given tokens
 * stops after `most` seconds. The sequences are decoded in as many groups as passes can be under
 * way: a group's next step begins when its last one has ended. */
static pi_status run_slice(bench *b, const bench_test *t, const int32_t *tokens, int32_t n,
                           double most, int32_t *at, double *seconds, pi_error *err) {
    const int32_t passes = pi_context_passes(b->context);
    const int32_t n_groups = passes < t->parallel ? passes : t->parallel;
    int32_t under_way = 0;
    pi_status status = PI_OK;
    double start = clock_seconds();
    if (t->sampled) {
        status = sample_tokens(b, t, n, err);
        *at = n;
    } else if (!t->generate) {
        set_inputs(b, 0, t->parallel, tokens, n);
        status = pi_forward(b->context, b->inputs, t->parallel, err);
        *at = n;
    }
    for (; *at < n && clock_seconds() - start < most && status == PI_OK; (*at)++) {
        for (int32_t g = 0; g < n_groups && status == PI_OK; g++) {
            const int32_t first = g * t->parallel / n_groups,
                          end = (g + 1) * t->parallel / n_groups;
            set_inputs(b, first, end, tokens + *at, 1);
            status = pi_forward_begin(b->context, b->inputs + first, end - first, err);
            if (status == PI_OK && ++under_way == n_groups) {
                status = pi_forward_end(b->context, err);
                under_way--;
            }
        }
    }
    for (; under_way > 0; under_way--) {
        pi_status ended = pi_forward_end(b->context, status == PI_OK ? err : NULL);
        if (status == PI_OK) status = ended;
    }
    *seconds = clock_seconds() - start;
    return status;
}

/* Rewinds the first n sessions to `depth`. With recurrent layers it may evaluate some tokens again.
 */
static pi_status rewind_to(bench *b, int32_t n, int32_t depth, pi_error *err) {
    pi_status status = PI_OK;
    for (int32_t i = 0; i < n && status == PI_OK; i++) {
        int32_t point = pi_session_rewind_point(b->sessions[i], depth);
        status = pi_session_rewind(b->sessions[i], point, err);
        const pi_input in = {
            .session = b->sessions[i], .tokens = b->tokens + point, .n_tokens = depth - point};
        if (status == PI_OK && point < depth) status = pi_forward(b->context, &in, 1, err);
    }
    return status;
}

/* Runs the whole test and rewinds. Returns the seconds taken. */
static pi_status run_once(bench *b, const bench_test *t, int32_t n, double *seconds,
                          pi_error *err) {
    int32_t at = 0;
    const int32_t *tokens = take_tokens(b, t, n);
    pi_status status = run_slice(b, t, tokens, n, INFINITY, &at, seconds, err);
    return status == PI_OK ? rewind_to(b, t->parallel, t->depth, err) : status;
}

static pi_status report_progress(bench *b, double part, pi_error *err) {
    double fraction = (b->tests_done + part) / (b->n_tests > 0 ? b->n_tests : 1);
    if (!b->o->progress || b->o->progress(b->o->user, "measuring", fraction)) return PI_OK;
    return error_set(err, PI_ERR_CANCELLED, "cancelled: bench: no result");
}

static double ffn_density(const pi_counters *n) {
    return n->ffn_total_bytes ? (double)n->ffn_bytes / (double)n->ffn_total_bytes : 1;
}

/* Share of rows that were read, in matrices that were read partly. Matrices that are read as a
 * whole (the gate in exact mode) count in ffn_bytes, but not in gathered_bytes. */
static double gather_density(const pi_counters *n) {
    uint64_t whole = n->ffn_bytes - n->gathered_bytes;
    if (n->gathered_bytes == 0 || n->ffn_total_bytes <= whole) return 1;
    return (double)n->gathered_bytes / (double)(n->ffn_total_bytes - whole);
}

static pi_counters difference(const pi_counters *a, const pi_counters *b) {
    return (pi_counters){.tokens = b->tokens - a->tokens,
                         .weight_bytes = b->weight_bytes - a->weight_bytes,
                         .ffn_bytes = b->ffn_bytes - a->ffn_bytes,
                         .ffn_total_bytes = b->ffn_total_bytes - a->ffn_total_bytes,
                         .gathered_bytes = b->gathered_bytes - a->gathered_bytes,
                         .kv_bytes = b->kv_bytes - a->kv_bytes};
}

static drive_use use_of_drive(const bench *b) {
    pi_memory m;
    pi_context_get_memory(b->context, &m);
    return (drive_use){.reads = (double)m.reads,
                       .bytes = (double)m.read_bytes,
                       .hits = (double)m.hits,
                       .misses = (double)m.misses,
                       .ahead = (double)m.ahead,
                       .in_vain = (double)m.in_vain,
                       .busy = m.read_seconds,
                       .now = clock_seconds()};
}

/* Reads per token, and their share of the drive's rate for reads of the mean size. */
static pi_status fill_drive(const bench *b, const drive_use *before, double tokens,
                            pi_bench_result *r, pi_error *err) {
    const double seconds = 0.5;
    drive_use after = use_of_drive(b);
    double reads = after.reads - before->reads, bytes = after.bytes - before->bytes;
    double hits = after.hits - before->hits, misses = after.misses - before->misses;
    if (!(reads > 0)) return PI_OK;
    double rate;
    pi_status status = pi_context_measure_drive(b->context, (uint64_t)(bytes / reads), seconds,
                                                &rate, err);
    r->drive_reads = reads / tokens;
    r->drive_bytes = bytes / tokens;
    r->drive_gbps = rate / 1e9;
    r->drive_share = rate > 0 ? r->drive_bytes * r->tps / rate : 0;
    r->drive_busy = (after.busy - before->busy) / (after.now - before->now);
    r->drive_ahead = (after.ahead - before->ahead) / tokens;
    r->drive_in_vain = (after.in_vain - before->in_vain) / tokens;
    r->cache_misses = misses / tokens;
    r->cache_hits = hits + misses > 0 ? hits / (hits + misses) : 0;
    return status;
}

/* Without non-contiguous rows the gather rate is not needed. */
static rates sample_memory(bench *b, const pi_counters *done) {
    rates r = {0};
    if (!b->memory) return r;
    r.read = bandwidth_read(b->memory);
    if (done->gathered_bytes > 0) r.gather = bandwidth_gather(b->memory, gather_density(done));
    return r;
}

/* `before`: the last sample; with `sampled` a new sample follows every slice. */
static pi_status run_repetition(bench *b, const bench_test *t, bool sampled, rates *before,
                                repetition *out, pi_error *err) {
    double total = 0, streamed = 0, gathered = 0; /* seconds, bytes */
    double stream_time = 0, gather_time = 0;      /* time of memory for these bytes, times 1e9 */
    const int32_t *tokens = take_tokens(b, t, t->n);
    *out = (repetition){.memory = *before};
    for (int32_t at = 0; at < t->n;) {
        pi_counters c0, c1;
        double seconds;
        pi_context_get_counters(b->context, &c0);
        pi_status status = run_slice(b, t, tokens, t->n, sampled ? SLICE_SECONDS : INFINITY, &at,
                                     &seconds, err);
        if (status != PI_OK) return status;
        pi_context_get_counters(b->context, &c1);
        pi_counters done = difference(&c0, &c1);
        rates after = sampled ? sample_memory(b, &done) : *before;
        double apart = (double)done.gathered_bytes;
        double in_order = (double)(done.weight_bytes + done.kv_bytes) - apart;
        total += seconds;
        streamed += in_order;
        gathered += apart;
        stream_time += in_order / ((before->read + after.read) / 2);
        if (apart > 0) gather_time += apart / ((before->gather + after.gather) / 2);
        *before = after;
    }
    out->tps = t->n * (double)t->parallel / total;
    if (before->read > 0 && streamed > 0) out->memory.read = streamed / stream_time;
    if (before->gather > 0 && gathered > 0) out->memory.gather = gathered / gather_time;
    return rewind_to(b, t->parallel, t->depth, err);
}

static double deviation(const repetition *v, int n) {
    double mean = 0, sum = 0;
    for (int i = 0; i < n; i++) mean += v[i].tps / n;
    for (int i = 0; i < n; i++) sum += (v[i].tps - mean) * (v[i].tps - mean);
    return n > 1 ? sqrt(sum / (n - 1)) : 0;
}

/* Median, range, and the figures derived from the median; sorts the repetitions. */
static void fill_result(const bench *b, repetition *v, const pi_counters *n, pi_bench_result *r) {
    int count = b->o->repetitions;
    qsort(v, (size_t)count, sizeof *v, compare_repetitions);
    const repetition *low = &v[(count - 1) / 2], *high = &v[count / 2];
    r->tps = (low->tps + high->tps) / 2;
    r->tps_min = v[0].tps;
    r->tps_max = v[count - 1].tps;
    r->tps_stddev = deviation(v, count);
    r->read_gbps = (low->memory.read + high->memory.read) / 2;
    r->gather_gbps = (low->memory.gather + high->memory.gather) / 2;
    r->bytes_per_token = (double)(n->weight_bytes + n->kv_bytes) / (double)n->tokens;
    r->gathered_per_token = (double)n->gathered_bytes / (double)n->tokens;
    r->gbps = r->bytes_per_token * r->tps / 1e9;
    r->ffn_density = ffn_density(n);
    /* A GPU reads from other memory than the measured one. */
    if (strcmp(r->device, "cpu") != 0 || !(r->read_gbps > 0)) return;
    /* Roofline seconds per token: non-contiguous rows are read at their own rate. */
    double floor = (r->bytes_per_token - r->gathered_per_token) / 1e9 / r->read_gbps;
    if (r->gathered_per_token > 0) floor += r->gathered_per_token / 1e9 / r->gather_gbps;
    r->bandwidth_share = r->gbps / r->read_gbps;
    r->floor_share = floor * r->tps;
}

/* What the ranks did since `before` [PI_MAX_RANKS], into the report. */
static pi_status fill_ranks(const bench *b, const pi_rank *before, pi_error *err) {
    pi_bench_report *r = b->report;
    r->n_ranks = pi_context_ranks(b->context);
    pi_status status = pi_context_get_ranks(b->context, r->ranks, err);
    for (int i = 0; i < r->n_ranks; i++) {
        r->ranks[i].computing -= before[i].computing;
        r->ranks[i].waiting -= before[i].waiting;
        r->ranks[i].sending -= before[i].sending;
        r->ranks[i].sent_bytes -= before[i].sent_bytes;
        r->ranks[i].ubatches -= before[i].ubatches;
    }
    return status;
}

/* The counts of sampled tokens. The test without drafts is the one before. */
static void fill_drafts(const bench *b, const bench_test *t, pi_bench_result *r) {
    const pi_generated *g = &b->generated;
    r->drafts = t->drafted ? b->o->drafts : "off";
    r->tokens_per_step = g->n_steps > 0 ? (double)g->n_decoded / g->n_steps : 1;
    r->speedup = t->drafted ? r->tps / r[-1].tps : 1;
    r->n_drafted = g->n_drafted;
    r->n_accepted = g->n_accepted;
}

/* A warm-up, then the repetitions of one test. */
static pi_status run_test(bench *b, const bench_test *t, pi_error *err) {
    pi_bench_result *r = &b->report->results[b->report->n_results];
    pi_placement placement;
    pi_context_get_placement(b->context, &placement);
    *r = (pi_bench_result){.depth = t->depth,
                           .parallel = t->parallel,
                           .mode = pi_context_mode(b->context),
                           .device = placement.device};
    snprintf(r->test, sizeof r->test, "%s%d", t->generate ? "tg" : "pp", t->n);
    pi_counters before, after;
    double seconds;
    os_sleep(b->o->delay_seconds);
    /* a long one with drafts, which measures the times that choose their length */
    bool brief = t->generate && !t->drafted && t->n > WARM_UP_TOKENS;
    int32_t warm_up = brief ? WARM_UP_TOKENS : t->n;
    pi_context_get_counters(b->context, &before);
    pi_status status = run_once(b, t, warm_up, &seconds, err);
    if (status != PI_OK) return status;
    pi_context_get_counters(b->context, &after);
    pi_counters n = difference(&before, &after);

    /* Samples would evict a model that fits into the cache, and have no meaning for it. */
    bool sampled = b->memory && !b->report->in_cache && strcmp(r->device, "cpu") == 0;
    repetition *v = mem_calloc((size_t)b->o->repetitions, sizeof *v);
    if (!v) return error_nomem(err, sizeof *v, "bench");
    rates memory = sample_memory(b, &n);
    if (b->report->in_cache) status = run_once(b, t, warm_up, &seconds, err);
    pi_context_get_counters(b->context, &before);
    b->generated = (pi_generated){0};
    drive_use drive = use_of_drive(b);
    pi_rank ranks[PI_MAX_RANKS];
    const bool staged = pi_context_ranks(b->context) > 1;
    if (staged) status = pi_context_get_ranks(b->context, ranks, err);
    for (int i = 0; i < b->o->repetitions && status == PI_OK; i++) {
        status = run_repetition(b, t, sampled, &memory, &v[i], err);
        if (status == PI_OK) status = report_progress(b, (i + 1.0) / b->o->repetitions, err);
    }
    if (status == PI_OK) {
        pi_context_get_counters(b->context, &after);
        n = difference(&before, &after);
        if (t->sampled) n.tokens = (uint64_t)t->n * (uint64_t)b->o->repetitions; /* not drafts */
        fill_result(b, v, &n, r);
        if (t->sampled) fill_drafts(b, t, r);
        status = fill_drive(b, &drive, (double)n.tokens, r, err);
    }
    if (status == PI_OK && staged) status = fill_ranks(b, ranks, err);
    if (status == PI_OK) {
        b->report->n_results++;
        b->tests_done++;
    }
    mem_free(v);
    return status;
}

/* Fills the contexts of all sequences up to `depth`, then runs all tests there. */
static pi_status run_depth(bench *b, int32_t depth, pi_error *err) {
    pi_status status = PI_OK;
    for (int32_t i = 0; i < b->n_sessions && status == PI_OK; i++)
        status = pi_session_rewind(b->sessions[i], 0, err);
    const pi_input in = {.session = b->sessions[0], .tokens = b->tokens, .n_tokens = depth};
    if (status == PI_OK && depth > 0) status = pi_forward(b->context, &in, 1, err);
    for (int32_t i = 1; i < b->n_sessions && depth > 0 && status == PI_OK; i++)
        status = pi_session_copy(b->sessions[i], b->sessions[0], depth, err);
    b->next = depth;
    const pi_bench_options *o = b->o;
    for (int k = 0; k < o->n_parallels * (o->n_prompts + o->n_gens) && status == PI_OK; k++) {
        const int i = k % (o->n_prompts + o->n_gens);
        const bool generate = i >= o->n_prompts;
        bench_test t = {.generate = generate,
                        .n = generate ? o->gens[i - o->n_prompts] : o->prompts[i],
                        .depth = depth,
                        .parallel = o->parallels[k / (o->n_prompts + o->n_gens)]};
        t.sampled = generate && o->speculator && t.parallel == 1;
        status = run_test(b, &t, err);
        t.drafted = t.sampled;
        if (t.drafted && status == PI_OK) status = run_test(b, &t, err);
    }
    return status;
}

/* Traces at the last depth, to which the session is filled: one ubatch of the first prompt, then a
 * token. */
static pi_status trace_ubatches(bench *b, pi_error *err) {
    int32_t depth = pi_session_length(b->sessions[0]), n_batch = pi_context_batch(b->context);
    int32_t n_passes = b->o->n_prompts > 0 ? 2 : 1;
    double seconds;
    bench_test token = {.generate = true, .n = 1, .depth = depth, .parallel = 1};
    bench_test prompt = {.n = b->o->prompts[0] < n_batch ? b->o->prompts[0] : n_batch,
                         .depth = depth,
                         .parallel = 1};
    pi_status status = run_once(b, &token, 1, &seconds, err); /* a warm-up */
    if (status == PI_OK) status = pi_trace_start(b->context, n_passes, err);
    if (status == PI_OK && n_passes > 1) status = run_once(b, &prompt, prompt.n, &seconds, err);
    if (status == PI_OK) status = run_once(b, &token, 1, &seconds, err);
    if (status == PI_OK)
        status = pi_trace_write(b->context, b->o->trace, b->report->traced, PI_BENCH_TRACED,
                                &b->report->n_traced, err);
    return status;
}

/* Median of one of the rates over all results that have it; sorts a copy. */
static double median_rate(const pi_bench_report *r, bool gather) {
    double v[MAX_RESULTS];
    int n = 0;
    for (int i = 0; i < r->n_results; i++) {
        double rate = gather ? r->results[i].gather_gbps : r->results[i].read_gbps;
        if (rate > 0) v[n++] = rate;
    }
    return n > 0 ? median_of(v, n) : 0;
}

static void finish_report(bench *b) {
    pi_bench_report *r = b->report;
    r->threads = pi_context_threads(b->context);
    r->n_batch = pi_context_batch(b->context);
    snprintf(r->cpu, sizeof r->cpu, "%s", cpu_model_name());
    r->read_gbps = median_rate(r, false);
    r->gather_gbps = median_rate(r, true);
    if (r->gather_gbps > 0 || !b->memory) return;
    r->gather_gbps = bandwidth_gather(b->memory, b->density); /* no test read single rows */
}

static int32_t count_tests(const pi_bench_options *o) {
    int32_t n = o->n_parallels * (o->n_prompts + o->n_gens);
    for (int32_t i = 0; i < o->n_parallels; i++)
        if (o->speculator && o->parallels[i] == 1) n += o->n_gens;
    return o->n_depths * n;
}

static pi_status check_options(const pi_bench_options *o, pi_error *err) {
    bool ok = o->n_prompts >= 0 && o->n_prompts <= PI_BENCH_MAX_LIST && o->n_depths >= 1 &&
              o->n_depths <= PI_BENCH_MAX_LIST && o->n_gens >= 0 &&
              o->n_gens <= PI_BENCH_MAX_LIST && o->n_parallels >= 1 &&
              o->n_parallels <= PI_BENCH_MAX_LIST && o->delay_seconds >= 0 && o->repetitions >= 1 &&
              o->repetitions <= MAX_REPETITIONS;
    for (int i = 0; ok && i < o->n_prompts; i++) ok = o->prompts[i] >= 1;
    for (int i = 0; ok && i < o->n_gens; i++) ok = o->gens[i] >= 1;
    for (int i = 0; ok && i < o->n_depths; i++) ok = o->depths[i] >= 0;
    for (int i = 0; ok && i < o->n_parallels; i++)
        ok = o->parallels[i] >= 1 && o->parallels[i] <= MAX_PARALLEL;
    if (!ok)
        return error_set(err, PI_ERR_ARG,
                         "bad sizes: bench: prompts and generations need 1 or more tokens, depths "
                         "0 or more, 1 to %d sequences, repetitions 1 to %d",
                         MAX_PARALLEL, MAX_REPETITIONS);
    if (count_tests(o) > MAX_RESULTS)
        return error_set(err, PI_ERR_LIMIT, "too many tests: bench: at most %d", MAX_RESULTS);
    if (o->n_prompts == 0 && o->n_gens == 0)
        return error_set(
            err, PI_ERR_ARG,
            "nothing to measure: bench: give a prompt length or a number of tokens to generate");
    return PI_OK;
}

static int32_t largest(const int32_t *v, int32_t n) {
    int32_t m = 0;
    for (int32_t i = 0; i < n; i++)
        if (v[i] > m) m = v[i];
    return m;
}

/* Sets freq and density from the file's hot/cold curve, the mean over its layers. */
static pi_status read_freq(bench *b, pi_error *err) {
    gguf_file *f;
    neuron_stats neurons = {0};
    b->density = 1;
    if (!b->o->model_path) return PI_OK;
    pi_status status = gguf_open(b->o->model_path, NULL, &f, err);
    if (status != PI_OK) return status;
    status = neuron_stats_gather(f, b->info.n_layer, &neurons, err);
    if (status == PI_OK && neurons.mean.density > 0) {
        const double *curve = neurons.mean.curve;
        b->freq = mem_alloc((size_t)b->info.n_ff * sizeof *b->freq);
        if (!b->freq) status = error_nomem(err, (size_t)b->info.n_ff * sizeof *b->freq, "bench");
        for (int64_t i = 0; b->freq && i < b->info.n_ff; i++) {
            int64_t k = i * NEURONS_CURVE / b->info.n_ff;
            b->freq[i] = (float)(curve[k + 1] - curve[k]);
        }
        b->density = neurons.mean.density;
    }
    neuron_stats_free(&neurons);
    gguf_close(f);
    return status;
}

/* Without memory for the buffer (as with a memory budget) only speeds are measured. */
static pi_status open_memory(bench *b, pi_error *err) {
    pi_bench_report *r = b->report;
    pi_context_get_memory(b->context, &r->memory);
    if (r->memory.budget) return PI_OK;
    pi_status status = read_freq(b, err);
    if (status != PI_OK) return status;
    bandwidth_options options = {.n_threads = pi_context_threads(b->context),
                                 .row_bytes = (size_t)b->info.n_embd,
                                 .freq = b->freq,
                                 .n_freq = b->info.n_ff,
                                 .keep_bytes = b->info.weight_bytes};
    const quant_traits *type = quant_find_name(b->info.type);
    if (type) (void)quant_row_bytes(type->type, (uint64_t)b->info.n_embd, &options.row_bytes);
    r->cache_bytes = cpu_last_cache();
    r->in_cache = b->info.weight_bytes < 2 * r->cache_bytes;
    r->yardstick_wanted = bandwidth_wanted();
    status = bandwidth_create(&options, &b->memory, err);
    if (status == PI_OK) r->yardstick_bytes = bandwidth_bytes(b->memory);
    return status == PI_ERR_NOMEM ? PI_OK : status;
}

static pi_status make_random(bench *b, pi_error *err) {
    rng r;
    b->random = mem_calloc((size_t)b->n_tokens, sizeof *b->random);
    if (!b->random) return error_nomem(err, (size_t)b->n_tokens * sizeof *b->random, "tokens");
    rng_seed(&r, 1);
    for (int32_t i = 0; i < b->n_tokens; i++)
        b->random[i] = (int32_t)(rng_u64(&r) % (uint64_t)b->info.n_vocab);
    b->tokens = b->random;
    return PI_OK;
}

static pi_status set_up(bench *b, pi_error *err) {
    const pi_bench_options *o = b->o;
    pi_model_get_info(b->model, &b->info);
    int32_t depth = largest(o->depths, o->n_depths), n = largest(o->prompts, o->n_prompts);
    int32_t n_gen = largest(o->gens, o->n_gens);
    if (n_gen > n) n = n_gen;
    if (depth > INT32_MAX - n)
        return error_set(err, PI_ERR_ARG, "too many tokens: bench: depth %d and %d more", depth, n);
    b->n_sessions = largest(o->parallels, o->n_parallels);
    const int64_t n_all = (int64_t)b->n_sessions * (depth + n);
    pi_context_options context = o->context;
    if (context.n_ctx == 0) context.n_ctx = n_all < INT32_MAX ? (int32_t)n_all : INT32_MAX;
    if (b->n_sessions > 1 && context.n_logits < b->n_sessions) context.n_logits = b->n_sessions;
    pi_status status = pi_context_create(b->model, &context, &b->context, err);
    if (status != PI_OK) return status;
    b->sessions = mem_calloc((size_t)b->n_sessions, sizeof *b->sessions);
    b->inputs = mem_calloc((size_t)b->n_sessions, sizeof *b->inputs);
    if (!b->sessions || !b->inputs)
        return error_nomem(err, (size_t)b->n_sessions * sizeof *b->inputs, "sequences");
    const int32_t first = depth + (o->speculator != NULL); /* the token before sampled ones */
    const int64_t needed = (first > n ? first : n) + (int64_t)b->n_sessions - 1;
    if (o->tokens && o->n_tokens < needed)
        return error_set(err, PI_ERR_ARG, "text of %d tokens: bench: a test needs %lld",
                         (int)o->n_tokens, (long long)needed);
    b->tokens = o->tokens;
    b->n_tokens = o->tokens ? o->n_tokens : (int32_t)needed;
    if (!o->tokens) status = make_random(b, err);
    for (int32_t i = 0; i < b->n_sessions && status == PI_OK; i++)
        status = pi_session_create(b->context, depth + n, &b->sessions[i], err);
    return status == PI_OK ? open_memory(b, err) : status;
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
    b->n_tests = count_tests(o);
    status = set_up(b, err);
    for (int i = 0; i < o->n_depths && status == PI_OK; i++)
        status = run_depth(b, o->depths[i], err);
    if (status == PI_OK && o->trace) status = trace_ubatches(b, err);
    if (status == PI_OK) finish_report(b);
    bandwidth_free(b->memory);
    for (int32_t i = 0; b->sessions && i < b->n_sessions; i++) pi_session_destroy(b->sessions[i]);
    mem_free(b->sessions);
    mem_free(b->inputs);
    pi_context_destroy(b->context);
    mem_free(b->random);
    mem_free(b->freq);
    mem_free(b);
    return status;
}
