/* predictor_fit.c: fitting the predictor of one layer: recipes, ranks and their cost.
 *
 * A candidate is a recipe and a rank. Its factors are quantized as they will be stored and decoded
 * again, and thresholds are fitted to the resulting scores. Its cost is its bytes plus the bytes of
 * the gate rows that it selects. With growing rank the cost falls, then rises: ranks are doubled
 * until the cost rises, then the gaps next to the best rank are halved. All ranks share one
 * factorisation; the predictor of a rank consists of its first components. */
#include "predictor.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "mem.h"
#include "predictor_fit.h"

enum { RANK_STEP = 32, RANKS_MAX = 64 };
/* The first factorisation covers ranks up to this fraction of n_embd: the cheapest rank is usually
 * lower, and the work grows with the rank. */
enum { FIRST_SHARE = 8, FIRST_MIN = 128 };
/* Tolerance of recall: the resolution of histograms is one bin. */
static const double recall_slack = 2e-3;

typedef struct fit_context {
    la_job job;
    const predictor_data *data;
    const predictor_options *options;
    neuron_pairs pairs;
} fit_context;

void predictor_fit_free(predictor_fit *fit) {
    mem_free(fit->fc1);
    mem_free(fit->fc2);
    mem_free(fit->bias);
    mem_free(fit->sign);
    *fit = (predictor_fit){0};
}

/* ---- cost ------------------------------------------------------------------------------------ */

static double selection_cost(const predictor_data *data, const predictor_quality *q) {
    return q->selected * (double)data->n_ff * (double)data->gate_row_bytes;
}

const predictor_recipe predictor_recipes[PREDICTOR_RECIPES] = {
    {PREDICTOR_SIGN, 0.2}, {PREDICTOR_LOWRANK, 0.5}, {PREDICTOR_RELU_MLP, 1.0}};

/* As predictor_is_better. */
static bool is_better(double cost_a, double recall_a, double cost_b, double recall_b,
                      double target) {
    bool a = recall_a >= target - recall_slack, b = recall_b >= target - recall_slack;
    if (a != b) return a;
    return a ? cost_a < cost_b : recall_a > recall_b;
}

bool predictor_is_better(const predictor_fit *a, const predictor_fit *b, double target) {
    return is_better(a->cost, a->quality.contribution_recall, b->cost,
                     b->quality.contribution_recall, target);
}

static size_t row_bytes(quant_type type, int64_t n) {
    size_t bytes = 0;
    bool whole = quant_row_bytes(type, (uint64_t)n, &bytes);
    assert(whole);
    (void)whole;
    return bytes;
}

/* The type for rows of n elements. */
static quant_type row_type(quant_type wanted, int64_t n) {
    return n % quant_find((uint32_t)wanted)->block_elems == 0 ? wanted : QUANT_Q8_0;
}

static size_t factor_bytes(const fit_context *c, int64_t rank) {
    const predictor_data *data = c->data;
    quant_type fc1 = row_type(c->options->type, data->n_embd);
    quant_type fc2 = row_type(c->options->type, rank);
    return (size_t)rank * row_bytes(fc1, data->n_embd) +
           (size_t)data->n_ff * (row_bytes(fc2, rank) + sizeof(float));
}

/* Computes the exact quality on the held-out tokens (if there are none, on all tokens), and the
 * cost. `source` has the inputs of all tokens. */
static pi_status finish(fit_context *c, const score_source *source, predictor_fit *out,
                        pi_error *err) {
    const predictor_data *data = c->data;
    int64_t first = data->n_held > 0 ? data->n_train : 0;
    const int64_t range[2] = {first, data->n_train + data->n_held};
    score_source held = *source;
    held.inputs += first * source->ld_inputs;
    pi_status status = quality_measure(&c->job, data, &held, out->bias, range, &out->quality, err);
    out->cost = (double)out->n_bytes + selection_cost(data, &out->quality);
    return status;
}

/* ---- sign ------------------------------------------------------------------------------------ */

static pi_status fit_sign(fit_context *c, double to, predictor_fit *out, pi_error *err) {
    const predictor_data *data = c->data;
    size_t bytes = (size_t)data->n_ff * (size_t)data->n_embd / 8;
    *out = (predictor_fit){.kind = PREDICTOR_SIGN};
    out->n_bytes = bytes + (size_t)data->n_ff * sizeof(float);
    out->sign = mem_calloc(bytes, 1);
    out->bias = mem_alloc((size_t)data->n_ff * sizeof *out->bias);
    if (!out->sign || !out->bias) return error_nomem(err, out->n_bytes, "a predictor");
    for (int64_t i = 0; i < data->n_ff * data->n_embd; i++)
        if (data->gate[i] > 0) out->sign[i / 8] |= (uint8_t)(1u << (i % 8));
    score_source source = {
        .bits = out->sign, .inputs = data->x, .ld_inputs = data->n_embd, .n_k = data->n_embd};
    double tokens = (double)(data->n_train + 2 * data->n_held);
    la_job_stage(&c->job, to, 2 * tokens * (double)data->n_ff * (double)data->n_embd);
    predictor_quality seen;
    pi_status status = threshold_fit(&c->job, data, &c->pairs, &source, c->options->target,
                                     out->bias, &seen, err);
    if (status == PI_OK) status = finish(c, &source, out, err);
    return status;
}

/* ---- lowrank --------------------------------------------------------------------------------- */

typedef struct rank_try {
    int64_t rank;
    double cost, recall;
} rank_try;

typedef struct lowrank_search {
    fit_context *c;
    predictor_kind kind; /* of the current factors: LOWRANK, and RELU_MLP once they are trained */
    lowrank_factors factors;
    float *hidden; /* [tokens][factors.rank], with fc1 as stored */
    float *fc2[2]; /* [n_ff][factors.rank] in options.type, and in Q8_0; created on demand */
    float *bias;   /* [n_ff]: of the last candidate */
    rank_try tried[RANKS_MAX];
    int n_tried;
    double to; /* the job's fraction at the end of this fit */
} lowrank_search;

/* Candidates from these factors. */
static void search_forget(lowrank_search *s) {
    mem_free(s->hidden);
    mem_free(s->fc2[0]);
    mem_free(s->fc2[1]);
    mem_free(s->bias);
    s->hidden = s->fc2[0] = s->fc2[1] = s->bias = NULL;
}

/* Rounds rows to `type`; n may be less than ld. */
static pi_status round_rows(fit_context *c, quant_type type, const float_rows *from, float *to,
                            pi_error *err) {
    void *packed;
    pi_status status = rows_pack(&c->job, type, from, &packed, err);
    if (status != PI_OK) return status;
    float_rows out = *from;
    out.data = to;
    rows_unpack(&c->job, type, packed, &out);
    mem_free(packed);
    return PI_OK;
}

/* fc1 as stored, and the resulting hidden values of all tokens. */
static pi_status search_hidden(lowrank_search *s, pi_error *err) {
    fit_context *c = s->c;
    const predictor_data *data = c->data;
    int64_t rank = s->factors.rank, tokens = data->n_train + data->n_held;
    float *fc1 = mem_alloc((size_t)(rank * data->n_embd) * sizeof *fc1);
    s->bias = mem_alloc((size_t)data->n_ff * sizeof *s->bias);
    s->hidden = mem_alloc((size_t)(tokens * rank) * sizeof *s->hidden);
    pi_status status = PI_OK;
    if (!s->bias || !s->hidden || !fc1) {
        status = error_nomem(err, (size_t)((tokens + data->n_embd) * rank) * sizeof(float),
                             "a low-rank predictor");
    } else {
        float_rows rows = {s->factors.fc1, rank, data->n_embd, data->n_embd};
        status = round_rows(c, row_type(c->options->type, data->n_embd), &rows, fc1, err);
    }
    if (status == PI_OK) {
        bool relu = s->kind == PREDICTOR_RELU_MLP;
        hidden_args h = {data, fc1, rank, 0, tokens, relu, s->hidden};
        status = hidden_make(&c->job, &h, err);
    }
    mem_free(fc1);
    return status;
}

static pi_status search_factorise(lowrank_search *s, int64_t rank, pi_error *err) {
    fit_context *c = s->c;
    lowrank_free(&s->factors);
    search_forget(s);
    double to = c->job.to + (s->to - c->job.to) * 0.5;
    pi_status status = lowrank_factorise(&c->job, c->data, rank, c->options->seed, to, &s->factors,
                                         err);
    return status == PI_OK ? search_hidden(s, err) : status;
}

/* The rounded fc2 with `rank` components; created on first use. Blocks of a row are independent, so
 * a short row equals the beginning of a long row. */
static pi_status search_fc2(lowrank_search *s, int64_t rank, const float **out, pi_error *err) {
    fit_context *c = s->c;
    int64_t n_ff = c->data->n_ff, full = s->factors.rank;
    quant_type type = row_type(c->options->type, rank);
    float **slot = &s->fc2[type == c->options->type ? 0 : 1];
    *out = *slot;
    if (*slot) return PI_OK;
    size_t bytes = (size_t)n_ff * (size_t)full * sizeof(float);
    float *fc2 = mem_alloc(bytes);
    if (!fc2) return error_nomem(err, bytes, "a low-rank predictor");
    int64_t n = full - full % quant_find((uint32_t)type)->block_elems;
    float_rows rows = {s->factors.fc2, n_ff, n, full};
    pi_status status = round_rows(c, type, &rows, fc2, err);
    if (status != PI_OK) {
        mem_free(fc2);
        return status;
    }
    *out = *slot = fc2;
    return PI_OK;
}

static pi_status search_source(lowrank_search *s, int64_t rank, score_source *out, pi_error *err) {
    const float *fc2 = NULL;
    pi_status status = search_fc2(s, rank, &fc2, err);
    *out = (score_source){.rows = fc2,
                          .ld_rows = s->factors.rank,
                          .inputs = s->hidden,
                          .ld_inputs = s->factors.rank,
                          .n_k = rank};
    return status;
}

static const rank_try *search_find(const lowrank_search *s, int64_t rank) {
    for (int i = 0; i < s->n_tried; i++)
        if (s->tried[i].rank == rank) return &s->tried[i];
    return NULL;
}

static const rank_try *search_best(const lowrank_search *s) {
    const rank_try *best = &s->tried[0];
    for (int i = 1; i < s->n_tried; i++) {
        const rank_try *t = &s->tried[i];
        if (is_better(t->cost, t->recall, best->cost, best->recall, s->c->options->target))
            best = t;
    }
    return best;
}

/* Tries a rank if it is new. */
static pi_status search_try(lowrank_search *s, int64_t rank, pi_error *err) {
    fit_context *c = s->c;
    const predictor_data *data = c->data;
    if (search_find(s, rank) || s->n_tried == RANKS_MAX) return PI_OK;
    score_source source;
    pi_status status = search_source(s, rank, &source, err);
    if (status != PI_OK) return status;
    double tokens = (double)(data->n_train + data->n_held);
    double left = s->to - c->job.to; /* unknown number of trials: a quarter each */
    la_job_stage(&c->job, c->job.to + left / 4, 2 * tokens * (double)(data->n_ff * rank));
    predictor_quality seen;
    status = threshold_fit(&c->job, data, &c->pairs, &source, c->options->target, s->bias, &seen,
                           err);
    if (status != PI_OK) return status;
    s->tried[s->n_tried++] = (rank_try){rank,
                                        (double)factor_bytes(c, rank) + selection_cost(data, &seen),
                                        seen.contribution_recall};
    return PI_OK;
}

/* Doubles the rank until the cost rises, or until the predictor's own bytes exceed the best cost.
 * Extends the factors if needed. */
static pi_status search_doubling(lowrank_search *s, int64_t max_rank, pi_error *err) {
    fit_context *c = s->c;
    int64_t first = c->data->n_embd / FIRST_SHARE;
    if (first < FIRST_MIN) first = FIRST_MIN;
    first = first / RANK_STEP * RANK_STEP;
    if (first > max_rank) first = max_rank;
    pi_status status = search_factorise(s, first, err);
    for (int64_t rank = RANK_STEP; status == PI_OK; rank *= 2) {
        if (rank > max_rank) rank = max_rank;
        if (rank > s->factors.rank) {
            int64_t next = 2 * s->factors.rank < max_rank ? 2 * s->factors.rank : max_rank;
            status = search_factorise(s, next, err);
            if (status != PI_OK) break;
        }
        status = search_try(s, rank, err);
        const rank_try *best = s->n_tried > 0 ? search_best(s) : NULL;
        if (rank == max_rank || (best && best->rank < rank)) break;
        if (best && best->recall >= c->options->target - recall_slack &&
            (double)factor_bytes(c, 2 * rank < max_rank ? 2 * rank : max_rank) >= best->cost)
            break;
    }
    return status;
}

/* The nearest tried ranks below and above the best rank; 0: none. */
static void search_neighbours(const lowrank_search *s, int64_t *below, int64_t *above) {
    int64_t best = search_best(s)->rank;
    *below = *above = 0;
    for (int i = 0; i < s->n_tried; i++) {
        int64_t rank = s->tried[i].rank;
        if (rank < best && rank > *below) *below = rank;
        if (rank > best && (*above == 0 || rank < *above)) *above = rank;
    }
}

/* Halves the gaps next to the best rank until they are an eighth of it. */
static pi_status search_refine(lowrank_search *s, pi_error *err) {
    enum { FINE = 8, ROUNDS_MAX = 8 };
    for (int round = 0; round < ROUNDS_MAX; round++) {
        int64_t best = search_best(s)->rank, below, above;
        search_neighbours(s, &below, &above);
        int64_t step = best / FINE / RANK_STEP * RANK_STEP;
        if (step < RANK_STEP) step = RANK_STEP;
        int64_t lower = (below + best) / 2 / RANK_STEP * RANK_STEP;
        int64_t upper = (best + above) / 2 / RANK_STEP * RANK_STEP;
        bool try_lower = below > 0 && best - below > step && lower > below;
        bool try_upper = above > 0 && above - best > step && upper > best;
        if (!try_lower && !try_upper) return PI_OK;
        pi_status status = PI_OK;
        if (try_lower) status = search_try(s, lower, err);
        if (status == PI_OK && try_upper && upper <= s->factors.rank)
            status = search_try(s, upper, err);
        if (status != PI_OK) return status;
    }
    return PI_OK;
}

/* Stores the factors of a rank and fits its thresholds again: a second pass over the scores,
 * instead of memory for every tried rank. */
static pi_status search_store(lowrank_search *s, int64_t rank, predictor_fit *out, pi_error *err) {
    fit_context *c = s->c;
    const predictor_data *data = c->data;
    out->rank = (int32_t)rank;
    out->type_fc1 = row_type(c->options->type, data->n_embd);
    out->type_fc2 = row_type(c->options->type, rank);
    out->n_bytes = factor_bytes(c, rank);
    out->bias = mem_alloc((size_t)data->n_ff * sizeof *out->bias);
    if (!out->bias) return error_nomem(err, (size_t)data->n_ff * sizeof(float), "a predictor");
    float_rows fc1 = {s->factors.fc1, rank, data->n_embd, data->n_embd};
    float_rows fc2 = {s->factors.fc2, data->n_ff, rank, s->factors.rank};
    pi_status status = rows_pack(&c->job, out->type_fc1, &fc1, &out->fc1, err);
    if (status == PI_OK) status = rows_pack(&c->job, out->type_fc2, &fc2, &out->fc2, err);
    score_source source;
    if (status == PI_OK) status = search_source(s, rank, &source, err);
    if (status != PI_OK) return status;
    double tokens = (double)(data->n_train + 2 * data->n_held);
    la_job_stage(&c->job, s->to, 2 * tokens * (double)(data->n_ff * rank));
    predictor_quality seen;
    status = threshold_fit(&c->job, data, &c->pairs, &source, c->options->target, out->bias, &seen,
                           err);
    if (status == PI_OK) status = finish(c, &source, out, err);
    return status;
}

static int64_t largest_rank(const fit_context *c) {
    const predictor_data *data = c->data;
    int64_t rank = c->options->max_rank > 0 ? c->options->max_rank : data->n_embd / 2;
    if (rank > data->n_embd) rank = data->n_embd;
    if (rank > data->n_ff) rank = data->n_ff;
    rank = rank / RANK_STEP * RANK_STEP;
    return rank > 0 ? rank : RANK_STEP;
}

/* Trains the factors of a rank; `to`: the job's fraction at the end. */
static pi_status search_train(lowrank_search *s, int64_t rank, double to, pi_error *err) {
    fit_context *c = s->c;
    const predictor_options *o = c->options;
    relu_mlp_options train = {rank, o->target, o->max_epochs, o->seed, to};
    pi_status status = relu_mlp_train(&c->job, c->data, &c->pairs, &train, &s->factors, err);
    if (status != PI_OK) return status;
    s->kind = PREDICTOR_RELU_MLP;
    search_forget(s);
    return search_hidden(s, err);
}

/* lowrank and relu_mlp. relu_mlp is trained only at the cheapest rank of lowrank, because training
 * at many ranks would take too long. */
static pi_status fit_factors(fit_context *c, predictor_kind kind, double to, predictor_fit *out,
                             pi_error *err) {
    double trained = kind == PREDICTOR_RELU_MLP ? c->job.to + 0.9 * (to - c->job.to) : to;
    double searched = kind == PREDICTOR_RELU_MLP ? c->job.to + 0.4 * (to - c->job.to) : to;
    lowrank_search s = {.c = c, .kind = PREDICTOR_LOWRANK, .to = searched};
    *out = (predictor_fit){.kind = kind};
    int64_t rank = c->options->only_rank;
    pi_status status;
    if (rank > 0) {
        status = search_factorise(&s, rank, err);
    } else {
        status = search_doubling(&s, largest_rank(c), err);
        if (status == PI_OK) status = search_refine(&s, err);
        if (status == PI_OK) rank = search_best(&s)->rank;
    }
    if (status == PI_OK && kind == PREDICTOR_RELU_MLP)
        status = search_train(&s, rank, trained, err);
    s.to = to;
    if (status == PI_OK) status = search_store(&s, rank, out, err);
    lowrank_free(&s.factors);
    search_forget(&s);
    return status;
}

/* ---- all ------------------------------------------------------------------------------------- */

static pi_status check_data(const predictor_data *d, pi_error *err) {
    if (d->n_train < 1 || d->n_held < 0 || d->n_train + d->n_held > INT32_MAX)
        return error_set(err, PI_ERR_ARG,
                         "no tokens: predictor: %lld for training, %lld held out: give some text",
                         (long long)d->n_train, (long long)d->n_held);
    if (d->n_embd < RANK_STEP || d->n_embd % RANK_STEP != 0 || d->n_ff < RANK_STEP ||
        d->n_ff > INT32_MAX)
        return error_set(err, PI_ERR_ARG,
                         "bad layer: predictor: %lld inputs, %lld neurons: inputs must be a "
                         "multiple of %d, neurons at least as many",
                         (long long)d->n_embd, (long long)d->n_ff, (int)RANK_STEP);
    if (d->active->n_neurons != d->n_ff || d->active->n_tokens != d->n_train + d->n_held)
        return error_set(err, PI_ERR_ARG,
                         "active set of another layer: predictor: %lld neurons, %lld tokens: "
                         "expected %lld, %lld",
                         (long long)d->active->n_neurons, (long long)d->active->n_tokens,
                         (long long)d->n_ff, (long long)(d->n_train + d->n_held));
    return PI_OK;
}

static pi_status check_options(const predictor_data *d, const predictor_options *o, pi_error *err) {
    if (!(o->target > 0 && o->target <= 1))
        return error_set(err, PI_ERR_ARG, "bad target: predictor: %g: use more than 0, at most 1",
                         o->target);
    int64_t limit = d->n_embd < d->n_ff ? d->n_embd : d->n_ff;
    if (o->max_rank < 0 || o->only_rank < 0 || o->only_rank % RANK_STEP != 0 ||
        o->only_rank > limit)
        return error_set(err, PI_ERR_ARG,
                         "bad rank: predictor: only %d, at most %d: use multiples of %d up to %lld",
                         (int)o->only_rank, (int)o->max_rank, (int)RANK_STEP, (long long)limit);
    const quant_traits *type = quant_find((uint32_t)o->type);
    if (!type || !type->quantize || !type->dequantize)
        return error_set(err, PI_ERR_ARG, "bad type: predictor: number %d: use q8_0", (int)o->type);
    if (o->kind > PREDICTOR_KIND_COUNT)
        return error_set(err, PI_ERR_ARG, "bad kind: predictor: number %d", (int)o->kind);
    return PI_OK;
}

static pi_status fit_kind(fit_context *c, predictor_kind kind, double to, predictor_fit *out,
                          pi_error *err) {
    pi_status status = kind == PREDICTOR_SIGN ? fit_sign(c, to, out, err)
                                              : fit_factors(c, kind, to, out, err);
    if (status != PI_OK) predictor_fit_free(out);
    return status;
}

/* Fits all recipes; `out` is the cheapest, or NONE. */
static pi_status fit_best(fit_context *c, predictor_fit *out, pi_error *err) {
    const predictor_data *data = c->data;
    double exact = (double)data->n_ff * (double)data->gate_row_bytes;
    for (int i = 0; i < PREDICTOR_RECIPES; i++) {
        const predictor_recipe *recipe = &predictor_recipes[i];
        predictor_fit fit;
        pi_status status = fit_kind(c, recipe->kind, recipe->to, &fit, err);
        if (status != PI_OK) return status;
        if (i == 0 || predictor_is_better(&fit, out, c->options->target)) {
            predictor_fit_free(out);
            *out = fit;
        } else {
            predictor_fit_free(&fit);
        }
    }
    if (out->cost >= exact) predictor_fit_free(out); /* the result stays PREDICTOR_NONE */
    return PI_OK;
}

pi_status predictor_fit_layer(pool *p, const predictor_data *data, const predictor_options *options,
                              progress *report, predictor_fit *out, pi_error *err) {
    *out = (predictor_fit){0};
    fit_context c = {.data = data, .options = options};
    pi_status status = check_data(data, err);
    if (status == PI_OK) status = check_options(data, options, err);
    if (status != PI_OK || options->kind == PREDICTOR_NONE) return status;
    status = la_job_init(&c.job, p, report, err);
    if (status != PI_OK) return status;
    status = neuron_pairs_make(data, &c.pairs, err);
    if (status == PI_OK) {
        if (options->kind == PREDICTOR_KIND_COUNT)
            status = fit_best(&c, out, err);
        else
            status = fit_kind(&c, options->kind, 1, out, err);
    }
    if (status == PI_OK && !progress_step(report, "fitting", 1))
        status = error_set(err, PI_ERR_CANCELLED, "cancelled: predictor: nothing was fitted");
    if (status != PI_OK) predictor_fit_free(out);
    neuron_pairs_free(&c.pairs);
    la_job_free(&c.job);
    return status;
}
