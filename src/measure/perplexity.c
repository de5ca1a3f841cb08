/* perplexity.c: perplexity of a text, and KL divergence from a base run. It uses the public
 * interface, so that it measures the results that users get.
 *
 * Windows are evaluated in groups that share ubatches, one session each. The last token of a window
 * is only a target and is not evaluated; unscored rows get no logits. Either all scored rows
 * of a group come from one call, or the group is a single window whose rows come in pieces: in both
 * cases rows arrive in the order of the text, which is the order of a base run. After each call all
 * threads score the rows, and the calling thread adds them up in order, so that results do not
 * depend on the number of threads. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "kl_base.h"
#include "log_sum_exp.h"
#include "mem.h"
#include "notifier.h"
#include "pool.h"
#include "powerinfer_tools.h"
#include "progress.h"
#include "utf8.h"

enum {
    DEFAULT_WINDOW = 512, /* llama.cpp's */
    REPORTS = 10,         /* messages with the perplexity so far */
    REPORTS_AFTER = 2     /* seconds: shorter work needs none */
};

/* Default number of logits in memory: a batch of 436 rows at a vocabulary of 150k. */
#define LOGITS_BYTES ((size_t)256 << 20)

typedef struct row_score {
    double surprise; /* -log p of the correct token, nats; NaN when the logits are NaN */
    kl_base_difference difference;
    bool damaged; /* the row of the base run */
} row_score;

/* Sums of the numbers added so far. */
typedef struct mean_sum {
    int64_t n;
    double sum, squares;
} mean_sum;

typedef struct run {
    const pi_perplexity_options *o;
    const pi_model *model;
    pi_model_info info;
    kl_base_info windows;  /* what is evaluated and scored, and the header of a base run */
    int32_t first, scored; /* rows of a window: evaluated without logits, then scored */
    int32_t step;          /* tokens from one window to the next: n_ctx, or the stride */
    int32_t *own_tokens;
    const int32_t *tokens; /* windows, `step` apart: own_tokens, or the base run's */

    pi_context *context;
    pool *pool;
    pi_session **sessions; /* [n_group] */
    pi_input *inputs;      /* [n_group] */
    int32_t n_group;       /* windows that share a ubatch */
    int32_t n_batch;       /* tokens of a ubatch, at least n_group */
    int32_t n_rows;        /* maximum scored rows of one call */
    row_score *scores;     /* [n_rows] */

    kl_base base;        /* base_in */
    file_writer *writer; /* base_out */
    uint8_t *packed;     /* [n_rows][row_bytes], for the writer */
    double *divergences; /* [n_windows * scored], with base_in */
    mean_sum surprise, base_surprise, divergence, p_difference;
    int64_t n_same_top;

    notifier notifier;
    progress progress;
    int reports_done;
    double started; /* clock_seconds */
} run;

/* Rows of one call, for the threads. */
typedef struct scoring {
    run *r;
    int32_t window;  /* of the first input */
    int32_t row;     /* within its window, of the first row of every input */
    int32_t n_piece; /* rows per input */
    int32_t n_rows;
} scoring;

pi_perplexity_options pi_perplexity_default_options(void) {
    return (pi_perplexity_options){.context = pi_context_default_options()};
}

/* ---- sums ------------------------------------------------------------------------------------ */

static void sum_add(mean_sum *s, double x) {
    s->n++;
    s->sum += x;
    s->squares += x * x;
}

static double sum_mean(const mean_sum *s) {
    return s->n ? s->sum / (double)s->n : 0;
}

/* Standard error of the mean: sqrt(variance / (n - 1)). */
static double sum_stderr(const mean_sum *s) {
    if (s->n < 2) return 0;
    double mean = sum_mean(s), variance = s->squares / (double)s->n - mean * mean;
    return variance > 0 ? sqrt(variance / (double)(s->n - 1)) : 0;
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y) + (isnan(x) != 0) - (isnan(y) != 0); /* NaN last */
}

/* Percentile of sorted[n], interpolated; share in 0..1. */
static double percentile(const double *sorted, int64_t n, double share) {
    double at = share * (double)(n - 1);
    int64_t below = (int64_t)at;
    if (below >= n - 1) return sorted[n - 1];
    double part = at - (double)below;
    return sorted[below] + part * (sorted[below + 1] - sorted[below]);
}

/* ---- scoring --------------------------------------------------------------------------------- */

static void score_row(const scoring *s, int32_t i) {
    run *r = s->r;
    row_score *out = &r->scores[i];
    int32_t window = s->window + i / s->n_piece, row = s->row + i % s->n_piece;
    int32_t n_vocab = r->info.n_vocab;
    int32_t target = r->tokens[(size_t)window * (size_t)r->step + (size_t)row + 1];
    const float *logits = pi_logits(r->context, i);
    float most;
    double log_sum = log_sum_exp(logits, n_vocab, &most);
    *out = (row_score){.surprise = log_sum - (double)logits[target]};
    if (!isfinite(log_sum)) {
        out->surprise = NAN;
        return;
    }
    if (r->writer)
        kl_base_pack(r->packed + (size_t)i * kl_base_row_bytes(n_vocab), logits, n_vocab, most,
                     log_sum);
    if (r->o->base_in) {
        int64_t at = (int64_t)window * r->scored + (row - r->first);
        out->damaged = !kl_base_compare(kl_base_row(&r->base, at), logits, n_vocab, log_sum, target,
                                        &out->difference);
    }
}

static void score_rows(void *arg, int ith, int nth) {
    const scoring *s = arg;
    (void)ith;
    (void)nth;
    for (int64_t i; (i = pool_take(s->r->pool, 1)) < s->n_rows;) score_row(s, (int32_t)i);
}

static pi_status bad_row(const scoring *s, int32_t i, pi_error *err) {
    const run *r = s->r;
    int window = s->window + i / s->n_piece, row = s->row + i % s->n_piece;
    if (r->scores[i].damaged)
        return error_set(err, PI_ERR_FORMAT,
                         "base run is damaged: %s: probabilities of window %d, token %d: make it "
                         "again",
                         r->o->base_in, window, row + 1);
    return error_set(err, PI_ERR_RANGE,
                     "NaN logits: window %d, token %d: the model's weights are damaged or too "
                     "large for their type",
                     window, row + 1);
}

/* Adds up the rows of a call, in order. */
static pi_status add_rows(const scoring *s, pi_error *err) {
    run *r = s->r;
    for (int32_t i = 0; i < s->n_rows; i++) {
        const row_score *score = &r->scores[i];
        if (score->damaged || isnan(score->surprise)) return bad_row(s, i, err);
        if (r->o->base_in) {
            const kl_base_difference *d = &score->difference;
            r->divergences[r->surprise.n] = d->divergence;
            sum_add(&r->divergence, d->divergence);
            sum_add(&r->base_surprise, d->base_surprise);
            sum_add(&r->p_difference, exp(-score->surprise) - exp(-d->base_surprise));
            r->n_same_top += d->same_top;
        }
        sum_add(&r->surprise, score->surprise);
    }
    if (!r->writer) return PI_OK;
    return file_writer_write(r->writer, r->packed,
                             (size_t)s->n_rows * kl_base_row_bytes(r->info.n_vocab), err);
}

/* ---- evaluation ------------------------------------------------------------------------------ */

static pi_status report_progress(run *r, int32_t window, int32_t row, int32_t n, pi_error *err) {
    double windows = window + (double)n * row / (r->windows.n_ctx - 1);
    double fraction = windows / r->windows.n_windows;
    int due = (int)(fraction * REPORTS);
    bool is_long = clock_seconds() - r->started >= REPORTS_AFTER;
    if (is_long && r->surprise.n && due > r->reports_done && due < REPORTS) {
        r->reports_done = due;
        notify(&r->notifier, "%d%%: perplexity %.4f over %lld tokens", due * 100 / REPORTS,
               exp(sum_mean(&r->surprise)), (long long)r->surprise.n);
    }
    if (progress_step(&r->progress, "scoring", fraction)) return PI_OK;
    return error_set(err, PI_ERR_CANCELLED, "cancelled: perplexity: no result");
}

/* Evaluates n_piece tokens, from `row` on, of each of the windows [window, window + n). */
static pi_status run_piece(run *r, int32_t window, int32_t n, int32_t row, int32_t n_piece,
                           pi_error *err) {
    bool scored = row >= r->first;
    for (int32_t i = 0; i < n; i++) {
        size_t at = (size_t)(window + i) * (size_t)r->step + (size_t)row;
        r->inputs[i] = (pi_input){.session = r->sessions[i],
                                  .tokens = r->tokens + at,
                                  .n_tokens = n_piece,
                                  .logits = scored ? PI_LOGITS_ALL : PI_LOGITS_NONE};
    }
    pi_status status = pi_forward(r->context, r->inputs, n, err);
    if (status != PI_OK || !scored) return status;
    scoring s = {.r = r, .window = window, .row = row, .n_piece = n_piece, .n_rows = n * n_piece};
    pool_run(r->pool, pool_size(r->pool), score_rows, &s);
    return add_rows(&s, err);
}

static pi_status run_group(run *r, int32_t window, int32_t n, pi_error *err) {
    int32_t n_run = r->windows.n_ctx - 1; /* nothing follows the last token */
    pi_status status = PI_OK;
    for (int32_t i = 0; i < n && status == PI_OK; i++)
        status = pi_session_rewind(r->sessions[i], 0, err);
    for (int32_t row = 0; row < n_run && status == PI_OK;) {
        int32_t end = row < r->first ? r->first : n_run;
        int32_t n_piece = (row < r->first ? r->n_batch : r->n_rows) / n;
        if (n_piece > end - row) n_piece = end - row;
        status = run_piece(r, window, n, row, n_piece, err);
        row += n_piece;
        if (status == PI_OK) status = report_progress(r, window, row, n, err);
    }
    return status;
}

/* ---- options and text ------------------------------------------------------------------------ */

/* Checks that the text is UTF-8; a sequence may be truncated at the end of the text. */
static pi_status check_text(const char *text, size_t n_text, pi_error *err) {
    size_t n_whole = utf8_complete_prefix(text, n_text);
    if (n_text == 0)
        return error_set(err, PI_ERR_LIMIT,
                         "the text is empty: perplexity: give a text of at least one window");
    for (size_t i = 0, step; i < n_whole; i += step)
        if (utf8_decode(text + i, n_whole - i, &step) <= 0)
            return error_set(err, PI_ERR_FORMAT,
                             "not a text: byte %zu is %s: give a file of UTF-8 text", i,
                             text[i] ? "not UTF-8" : "NUL");
    return PI_OK;
}

static pi_status check_windows(const run *r, pi_error *err) {
    const pi_perplexity_options *o = r->o;
    int32_t least = r->windows.llama_windows ? 3 : 2; /* so that one token of it is scored */
    if (r->windows.n_ctx < least)
        return error_set(err, PI_ERR_ARG,
                         "windows of %d tokens are too small: perplexity: use %d or more",
                         r->windows.n_ctx, least);
    if (o->stride < 0 || (o->stride && r->first < 0))
        return error_set(err, PI_ERR_ARG,
                         "the stride does not fit: perplexity: %d tokens, windows of %d: use a "
                         "smaller one",
                         o->stride, r->windows.n_ctx);
    if (o->stride && (o->llama_windows || o->base_in || o->base_out))
        return error_set(err, PI_ERR_ARG,
                         "incompatible options: perplexity: a stride excludes a base run and "
                         "llama.cpp's windows");
    if (o->n_windows < 0)
        return error_set(err, PI_ERR_ARG,
                         "bad option: perplexity: n_windows is %d: use 0 (all) or more",
                         o->n_windows);
    if (o->base_in && o->base_out)
        return error_set(err, PI_ERR_ARG,
                         "two base runs: perplexity: write one or compare with one");
    if (!o->base_in) return PI_OK;
    const kl_base_info *base = &r->base.info;
    if (base->n_ctx != r->windows.n_ctx || base->llama_windows != r->windows.llama_windows)
        return error_set(
            err, PI_ERR_ARG, "the base run has other windows: %s: it was made with %d tokens, %s",
            o->base_in, base->n_ctx, base->llama_windows ? "as llama.cpp's" : "not as llama.cpp's");
    if (base->n_vocab != r->info.n_vocab)
        return error_set(err, PI_ERR_FORMAT,
                         "the base run is of another vocabulary: %s: %d tokens, the model has %d",
                         o->base_in, base->n_vocab, r->info.n_vocab);
    return PI_OK;
}

/* Tokenizes into own_tokens, cut to whole windows. */
static pi_status read_text(run *r, const char *text, size_t n_text, pi_error *err) {
    pi_status status = check_text(text, n_text, err);
    size_t n_bytes, capacity, n_tokens = n_text; /* most texts have fewer */
    if (status != PI_OK) return status;
    do {
        capacity = n_tokens;
        mem_free(r->own_tokens);
        if (!size_mul(capacity, sizeof *r->own_tokens, &n_bytes)) n_bytes = SIZE_MAX;
        r->own_tokens = mem_alloc(n_bytes);
        if (!r->own_tokens) return error_nomem(err, n_bytes, "tokens");
        status = pi_tokenize(r->model, text, n_text, PI_TOKENIZE_BOS, r->own_tokens, capacity,
                             &n_tokens, err);
    } while (status == PI_ERR_LIMIT && n_tokens > capacity);
    if (status != PI_OK) return status;
    size_t n_ctx = (size_t)r->windows.n_ctx, n_windows = n_tokens / n_ctx;
    size_t step = (size_t)r->step;
    if (r->o->stride) n_windows = n_tokens > n_ctx ? (n_tokens - n_ctx + step - 1) / step : 0;
    if (n_windows == 0)
        return error_set(err, PI_ERR_LIMIT,
                         "the text is too short: perplexity: it has %zu tokens, a window %zu: give "
                         "a longer text or smaller windows",
                         n_tokens, n_ctx + (r->o->stride > 0));
    if (n_windows > INT32_MAX) n_windows = INT32_MAX;
    r->windows.n_windows = (int32_t)n_windows;
    if (!r->windows.llama_windows || !r->info.add_bos || r->info.token_bos < 0) return PI_OK;
    for (size_t w = 0; w < n_windows; w++) r->own_tokens[w * n_ctx] = r->info.token_bos;
    return PI_OK;
}

static pi_status choose_tokens(run *r, const char *text, size_t n_text, pi_error *err) {
    r->tokens = r->base.tokens;
    r->windows.n_windows = r->base.info.n_windows;
    if (text) {
        pi_status status = read_text(r, text, n_text, err);
        if (status != PI_OK) return status;
        r->tokens = r->own_tokens;
    }
    int32_t most = r->o->base_in ? r->base.info.n_windows : INT32_MAX;
    if (r->o->n_windows > 0 && r->o->n_windows < most) most = r->o->n_windows;
    if (r->windows.n_windows > most) r->windows.n_windows = most;
    if (!r->o->base_in || !text) return PI_OK;
    size_t n = (size_t)r->windows.n_windows * (size_t)r->windows.n_ctx;
    for (size_t i = 0; i < n; i++)
        if (r->tokens[i] != r->base.tokens[i])
            return error_set(err, PI_ERR_FORMAT,
                             "the base run is of another text: %s: token %zu is %d there, %d here: "
                             "leave the text out to use the base run's",
                             r->o->base_in, i, r->base.tokens[i], r->tokens[i]);
    return PI_OK;
}

/* ---- setup ----------------------------------------------------------------------------------- */

/* Windows per group and rows per call: see the top of the file. */
static void choose_group(run *r, pi_context_options *c) {
    size_t row_bytes = (size_t)r->info.n_vocab * sizeof(float);
    int32_t n_run = r->windows.n_ctx - 1;
    if (c->n_logits == 0) {
        size_t rows = LOGITS_BYTES / row_bytes;
        c->n_logits = rows < 1 ? 1 : rows < (size_t)c->n_batch ? (int32_t)rows : c->n_batch;
    }
    int32_t n = c->n_batch / n_run;
    if (n > c->n_logits / r->scored) n = c->n_logits / r->scored;
    if (n > r->windows.n_windows) n = r->windows.n_windows;
    r->n_group = n < 1 ? 1 : n;
    /* Upper limit of all requests. */
    if (c->n_batch > r->n_group * n_run) c->n_batch = r->n_group * n_run;
    if (c->n_logits > r->n_group * n_run) c->n_logits = r->n_group * n_run;
    if (c->n_ctx == 0) c->n_ctx = r->n_group * n_run;
    r->n_batch = c->n_batch;
    r->n_rows = c->n_logits;
}

static pi_status allocate(run *r, pi_error *err) {
    size_t rows = (size_t)r->n_rows, group = (size_t)r->n_group;
    size_t total = (size_t)r->windows.n_windows * (size_t)r->scored;
    r->sessions = mem_calloc(group, sizeof(pi_session *));
    r->inputs = mem_calloc(group, sizeof *r->inputs);
    r->scores = mem_calloc(rows, sizeof *r->scores);
    if (r->o->base_in) r->divergences = mem_calloc(total, sizeof *r->divergences);
    if (r->o->base_out) r->packed = mem_calloc(rows, kl_base_row_bytes(r->info.n_vocab));
    if (!r->sessions || !r->inputs || !r->scores || (r->o->base_in && !r->divergences) ||
        (r->o->base_out && !r->packed))
        return error_nomem(err, rows * sizeof *r->scores + total * sizeof *r->divergences,
                           "perplexity");
    return PI_OK;
}

static pi_status make_context(run *r, pi_error *err) {
    pi_context_options c = r->o->context;
    if (c.n_batch < 1 || c.n_logits < 0)
        return error_set(err, PI_ERR_ARG,
                         "bad option: perplexity: n_batch is %d, n_logits %d: use 1, 0 or "
                         "more",
                         c.n_batch, c.n_logits);
    if (c.head == PI_HEAD_AUTO) c.head = PI_HEAD_DENSE;
    choose_group(r, &c);
    pi_status status = allocate(r, err);
    if (status == PI_OK) status = pi_context_create(r->model, &c, &r->context, err);
    if (status != PI_OK) return status;
    int n_threads = c.n_threads_batch ? c.n_threads_batch : pi_context_threads(r->context);
    status = pool_create(n_threads, &r->pool, err);
    for (int32_t i = 0; i < r->n_group && status == PI_OK; i++)
        status = pi_session_create(r->context, r->windows.n_ctx - 1, &r->sessions[i], err);
    return status;
}

static pi_status set_up(run *r, const char *text, size_t n_text, pi_error *err) {
    const pi_perplexity_options *o = r->o;
    pi_status status = PI_OK;
    if (!text && !o->base_in)
        return error_set(err, PI_ERR_ARG, "no text: perplexity: give one, or a base run");
    if (o->base_in) status = kl_base_open(&r->base, o->base_in, err);
    if (status == PI_OK && o->base_out) status = file_writer_probe(o->base_out, err);
    if (status != PI_OK) return status;
    pi_model_get_info(r->model, &r->info);
    r->windows = (kl_base_info){.n_vocab = r->info.n_vocab,
                                .n_ctx = o->n_ctx ? o->n_ctx : DEFAULT_WINDOW,
                                .llama_windows = o->llama_windows || r->base.info.llama_windows};
    if (o->base_in && o->n_ctx == 0) r->windows.n_ctx = r->base.info.n_ctx;
    /* With a stride, windows are longer by half of it, and the last `stride` tokens are scored. */
    const int32_t stride = o->stride;
    if (stride > 0 && r->windows.n_ctx < INT32_MAX - stride) r->windows.n_ctx += stride / 2;
    r->step = stride > 0 ? stride : r->windows.n_ctx;
    r->first = stride > 0 ? r->windows.n_ctx - 1 - stride : kl_base_first(&r->windows);
    r->scored = r->windows.n_ctx - 1 - r->first;
    status = check_windows(r, err);
    if (status != PI_OK) return status;
    status = choose_tokens(r, text, n_text, err);
    if (status == PI_OK) status = make_context(r, err);
    if (status != PI_OK) return status;
    if (r->info.n_ctx_train > 0 && r->windows.n_ctx > r->info.n_ctx_train)
        notify(&r->notifier,
               "windows of %d tokens are longer than the %d the model was trained for",
               r->windows.n_ctx, r->info.n_ctx_train);
    if (!o->base_out) return PI_OK;
    return kl_base_create(o->base_out, &r->windows, r->tokens, &r->writer, err);
}

static void tear_down(run *r) {
    file_writer_abort(r->writer);
    kl_base_close(&r->base);
    for (int32_t i = 0; i < r->n_group && r->sessions; i++) pi_session_destroy(r->sessions[i]);
    pool_destroy(r->pool);
    pi_context_destroy(r->context);
    mem_free(r->sessions);
    mem_free(r->inputs);
    mem_free(r->scores);
    mem_free(r->packed);
    mem_free(r->divergences);
    mem_free(r->own_tokens);
}

/* ---- entry point ----------------------------------------------------------------------------- */

static pi_divergence divergence_of(run *r) {
    int64_t n = r->divergence.n;
    double *d = r->divergences;
    qsort(d, (size_t)n, sizeof *d, compare_doubles);
    return (pi_divergence){.mean = sum_mean(&r->divergence),
                           .mean_stderr = sum_stderr(&r->divergence),
                           .median = percentile(d, n, 0.5),
                           .p90 = percentile(d, n, 0.9),
                           .p95 = percentile(d, n, 0.95),
                           .p99 = percentile(d, n, 0.99),
                           .p99_9 = percentile(d, n, 0.999),
                           .max = d[n - 1],
                           .top1 = (double)r->n_same_top / (double)n,
                           .p_diff_mean = sum_mean(&r->p_difference),
                           .p_diff_rms = sqrt(r->p_difference.squares / (double)n),
                           .base_nll = sum_mean(&r->base_surprise),
                           .base_perplexity = exp(sum_mean(&r->base_surprise))};
}

static void fill_report(run *r, pi_perplexity_report *report) {
    double nll = sum_mean(&r->surprise), perplexity = exp(nll);
    *report = (pi_perplexity_report){.n_ctx = r->windows.n_ctx,
                                     .n_windows = r->windows.n_windows,
                                     .tokens = r->surprise.n,
                                     .nll = nll,
                                     .perplexity = perplexity,
                                     .perplexity_stderr = perplexity * sum_stderr(&r->surprise)};
    if (!r->o->base_in) return;
    report->has_divergence = true;
    report->divergence = divergence_of(r);
}

pi_status pi_perplexity(const pi_model *model, const char *text, size_t n_text,
                        const pi_perplexity_options *options, pi_perplexity_report *report,
                        pi_error *err) {
    pi_perplexity_options defaults = pi_perplexity_default_options();
    *report = (pi_perplexity_report){0};
    run r = {.o = options ? options : &defaults, .model = model, .started = clock_seconds()};
    r.notifier = (notifier){.message = r.o->message, .user = r.o->user};
    r.progress = (progress){.fn = r.o->progress, .user = r.o->user};
    pi_status status = set_up(&r, text, n_text, err);
    for (int32_t w = 0; status == PI_OK && w < r.windows.n_windows; w += r.n_group) {
        int32_t left = r.windows.n_windows - w;
        status = run_group(&r, w, left < r.n_group ? left : r.n_group, err);
    }
    if (status == PI_OK && r.writer) {
        status = file_writer_commit(r.writer, err);
        r.writer = NULL; /* a commit frees it in any case */
    }
    if (status == PI_OK) fill_report(&r, report);
    tear_down(&r);
    return status;
}
