/* prepare_experts.c: predictors within the experts of one layer. Each expert gets a separate
 * predictor, fitted on the tokens that chose it by the code that fits dense layers. All experts of
 * a layer have one kind and one rank, because their tensors are stacked.
 *
 * The rank is the cheapest one of the expert with the most tokens. An expert that few tokens chose
 * has too little data to fit: its bias selects all neurons, so it is computed as in mode exact. */
#include <string.h>

#include "mem.h"
#include "prepare.h"

enum { TRAIN_LEAST = 256 }; /* training tokens of an expert; with fewer, all neurons are selected */

/* Bias of neurons that every token selects: finite, like all weights of a model. */
static const float always = 1e30f;

/* The tokens that chose one expert, ascending, and its active neurons for each of them. */
typedef struct expert_tokens {
    int32_t *token;
    size_t n, capacity;
    active_set active;
} expert_tokens;

struct prepare_experts {
    int n;             /* experts */
    int64_t n_ff;      /* neurons of an expert */
    float *down_norm;  /* [n][n_ff] */
    expert_tokens *of; /* [n] in the input's order */
};

/* ---- collecting ------------------------------------------------------------------------------ */

model_tensor prepare_expert_of(const model_tensor *all, int64_t n, int64_t index) {
    model_tensor expert = *all;
    expert.data = (const uint8_t *)all->data + (size_t)index * all->expert_bytes;
    expert.n_out = all->n_out / n;
    expert.n_bytes = all->n_bytes / (size_t)n;
    if (all->scales) expert.scale = all->scales[index];
    return expert;
}

pi_status prepare_experts_create(preparation *p, int layer, prepare_experts **out, pi_error *err) {
    const model_layer *l = &p->model->layers[layer];
    int n = p->model->hp.n_expert;
    size_t n_norms = (size_t)n * (size_t)l->hp.n_ff_expert;
    prepare_experts *x = *out = mem_calloc(1, sizeof *x);
    if (!x) return error_nomem(err, sizeof *x, "experts");
    *x = (prepare_experts){.n = n,
                           .n_ff = l->hp.n_ff_expert,
                           .down_norm = mem_calloc(n_norms, sizeof *x->down_norm),
                           .of = mem_calloc((size_t)n, sizeof *x->of)};
    if (!x->down_norm || !x->of) return error_nomem(err, n_norms * sizeof(float), "experts");
    bool transposed = l->t[ROLE_EXPERT_DOWN_T].data;
    const model_tensor *all = &l->t[transposed ? ROLE_EXPERT_DOWN_T : ROLE_EXPERT_DOWN];
    pi_status status = PI_OK;
    for (int i = 0; i < n && status == PI_OK; i++) {
        const model_tensor down = prepare_expert_of(all, n, i);
        active_init(&x->of[i].active, x->n_ff);
        status = prepare_down_norms(p->pool, &down, transposed, x->down_norm + i * x->n_ff, err);
    }
    return status;
}

void prepare_experts_free(prepare_experts *x) {
    if (!x) return;
    for (int i = 0; i < x->n && x->of; i++) {
        mem_free(x->of[i].token);
        active_free(&x->of[i].active);
    }
    mem_free(x->of);
    mem_free(x->down_norm);
    mem_free(x);
}

pi_status prepare_experts_add(prepare_experts *x, const engine_pairs *pairs, int64_t first_token,
                              const float *hidden, int64_t ld, pi_error *err) {
    for (int i = 0; i < x->n; i++) {
        expert_tokens *of = &x->of[i];
        for (int pair = pairs->first[i]; pair < pairs->first[i + 1]; pair++) {
            if (!mem_grow((void **)&of->token, &of->capacity, of->n + 1, sizeof *of->token,
                          INT32_MAX))
                return error_nomem(err, (of->n + 1) * sizeof *of->token, "tokens of an expert");
            of->token[of->n++] = (int32_t)(first_token + pairs->token[pair]);
            pi_status status = active_add(&of->active, hidden + pair * ld,
                                          x->down_norm + i * x->n_ff, err);
            if (status != PI_OK) return status;
        }
    }
    return PI_OK;
}

/* ---- one expert ------------------------------------------------------------------------------ */

/* The layer while its experts are fitted. */
typedef struct expert_fit {
    preparation *p;
    int layer;
    const prepare_experts *x;
    const float *input; /* [n_tokens][n_embd] inputs of all experts */
    int64_t n_train;    /* tokens before this one are for training */
    float *own;         /* [n_tokens][n_embd] the inputs of one expert */
    float *gate, *bias; /* [n_ff][n_embd], [n_ff] of one expert */
    progress *report;
    double from, to; /* range of progress of the current expert */
} expert_fit;

static int64_t count_train(const expert_fit *f, int expert) {
    const expert_tokens *of = &f->x->of[expert];
    size_t n = 0;
    while (n < of->n && of->token[n] < f->n_train) n++;
    return (int64_t)n;
}

/* The matrix that determines whether a neuron is active: gate, also where it is fused with up, or
 * up. */
static model_tensor first_matrix(const expert_fit *f, int expert, const float **bias) {
    const model_tensor *t = f->p->model->layers[f->layer].t;
    bool fused = t[ROLE_EXPERT_GATE_UP].data, gated = fused || t[ROLE_EXPERT_GATE].data;
    tensor_role role = fused ? ROLE_EXPERT_GATE_UP : gated ? ROLE_EXPERT_GATE : ROLE_EXPERT_UP;
    const float *all = t[gated ? ROLE_EXPERT_GATE_BIAS : ROLE_EXPERT_UP_BIAS].data;
    model_tensor m = prepare_expert_of(&t[role], f->x->n, expert);
    m.n_bytes = m.n_bytes / (size_t)m.n_out * (size_t)f->x->n_ff;
    m.n_out = f->x->n_ff;
    *bias = all ? all + expert * f->x->n_ff : NULL;
    return m;
}

/* The expert's tokens as data for fitting or measuring a predictor. */
static predictor_data data_of(const expert_fit *f, int expert) {
    const expert_tokens *of = &f->x->of[expert];
    int64_t n_embd = f->p->model->hp.n_embd, n_train = count_train(f, expert);
    const float *bias;
    const model_tensor first = first_matrix(f, expert, &bias);
    prepare_decode_rows(f->p->pool, &first, NULL, f->gate);
    if (bias) memcpy(f->bias, bias, (size_t)f->x->n_ff * sizeof *bias);
    for (size_t i = 0; i < of->n; i++)
        memcpy(f->own + (int64_t)i * n_embd, f->input + of->token[i] * n_embd,
               (size_t)n_embd * sizeof *f->own);
    return (predictor_data){.n_embd = n_embd,
                            .n_ff = f->x->n_ff,
                            .n_train = n_train,
                            .n_held = (int64_t)of->n - n_train,
                            .x = f->own,
                            .gate = f->gate,
                            .gate_bias = bias ? f->bias : NULL,
                            .active = &of->active,
                            .gate_row_bytes = first.n_bytes / (size_t)f->x->n_ff};
}

static bool step_expert(void *user, const char *stage, double fraction) {
    const expert_fit *f = user;
    return progress_step(f->report, stage, f->from + (f->to - f->from) * fraction);
}

/* ---- one kind -------------------------------------------------------------------------------- */

/* Arrays of all experts, in the output's order. An expert without a fit has zero weights and
 * selects all neurons. */
static pi_status make_room(const expert_fit *f, const predictor_fit *one, predictor_fit *all,
                           size_t row[2], pi_error *err) {
    size_t n = (size_t)f->x->n, n_ff = (size_t)f->x->n_ff, rank = (size_t)one->rank;
    uint64_t n_embd = (uint64_t)f->p->model->hp.n_embd;
    *all = (predictor_fit){.kind = one->kind,
                           .rank = one->rank,
                           .type_fc1 = one->type_fc1,
                           .type_fc2 = one->type_fc2,
                           .n_bytes = one->n_bytes};
    row[0] = row[1] = 0;
    if (one->kind == PREDICTOR_SIGN) {
        all->sign = mem_calloc(n * n_ff, (size_t)n_embd / 8);
    } else {
        (void)quant_row_bytes(one->type_fc1, n_embd, &row[0]); /* rows as packed by the fit */
        (void)quant_row_bytes(one->type_fc2, rank, &row[1]);
        all->fc1 = mem_calloc(n * rank, row[0]);
        all->fc2 = mem_calloc(n * n_ff, row[1]);
    }
    all->bias = mem_alloc(n * n_ff * sizeof *all->bias);
    bool ok = all->bias && (all->sign || (all->fc1 && all->fc2));
    if (!ok) return error_nomem(err, n * one->n_bytes, "predictors of experts");
    for (size_t i = 0; i < n * n_ff; i++) all->bias[i] = always;
    return PI_OK;
}

static void put_expert(const expert_fit *f, const predictor_fit *one, int place,
                       const size_t row[2], predictor_fit *all) {
    size_t at = (size_t)place, n_ff = (size_t)f->x->n_ff, rank = (size_t)one->rank;
    size_t sign = n_ff * (size_t)f->p->model->hp.n_embd / 8;
    if (one->sign) memcpy(all->sign + at * sign, one->sign, sign);
    if (one->fc1) memcpy((uint8_t *)all->fc1 + at * rank * row[0], one->fc1, rank * row[0]);
    if (one->fc2) memcpy((uint8_t *)all->fc2 + at * n_ff * row[1], one->fc2, n_ff * row[1]);
    memcpy(all->bias + at * n_ff, one->bias, n_ff * sizeof *one->bias);
}

/* Adds an expert's quality and cost, weighted with the tokens that chose it. */
static void add_quality(predictor_fit *all, const predictor_quality *q, double cost,
                        double weight) {
    all->quality.recall += weight * q->recall;
    all->quality.contribution_recall += weight * q->contribution_recall;
    all->quality.selected += weight * q->selected;
    all->quality.active += weight * q->active;
    all->cost += weight * cost;
}

/* The fraction of the neurons that are active for the tokens of an expert. */
static double active_share(const expert_fit *f, int expert) {
    const active_set *a = &f->x->of[expert].active;
    if (a->n_tokens == 0) return 0;
    return (double)a->start[a->n_tokens] / ((double)a->n_tokens * (double)f->x->n_ff);
}

static double token_share(const expert_fit *f, int expert) {
    size_t n = 0;
    for (int i = 0; i < f->x->n; i++) n += f->x->of[i].n;
    return n ? (double)f->x->of[expert].n / (double)n : 0;
}

/* Fits one kind for all experts, the one with the most tokens first: order[] is the output's order,
 * most used first. NONE if no expert has enough tokens. */
static pi_status fit_kind(expert_fit *f, predictor_kind kind, const double range[2],
                          predictor_fit *all, pi_error *err) {
    const pi_prepare_options *o = f->p->options;
    const int32_t *order = f->p->layers[f->layer].order;
    predictor_options options = {
        .kind = kind, .target = o->recall, .type = f->p->predictor_type, .seed = o->seed};
    progress steps = {.fn = step_expert, .user = f};
    size_t row[2];
    pi_status status = PI_OK;
    *all = (predictor_fit){0};
    for (int i = 0; i < f->x->n && status == PI_OK; i++) {
        int expert = order[i];
        double step = (range[1] - range[0]) / f->x->n, weight = token_share(f, expert);
        predictor_quality every = {1, 1, 1, active_share(f, expert)};
        predictor_data data = data_of(f, expert);
        double exact = (double)data.n_ff * (double)data.gate_row_bytes;
        predictor_fit one = {0};
        f->from = range[0] + step * i;
        f->to = f->from + step;
        if (data.n_train < TRAIN_LEAST) {
            add_quality(all, &every, (double)all->n_bytes + exact, weight);
            continue;
        }
        status = predictor_fit_layer(f->p->pool, &data, &options, &steps, &one, err);
        if (status == PI_OK && all->kind == PREDICTOR_NONE)
            status = make_room(f, &one, all, row, err);
        if (status == PI_OK) {
            options.only_rank = one.rank;
            put_expert(f, &one, i, row, all);
            add_quality(all, &one.quality, one.cost, weight);
        }
        predictor_fit_free(&one);
    }
    return status;
}

/* ---- all ------------------------------------------------------------------------------------- */

static double exact_cost(const expert_fit *f) {
    const float *bias;
    return (double)first_matrix(f, 0, &bias).n_bytes;
}

/* The cheapest kind, or the one that the options name. */
static pi_status fit_kinds(expert_fit *f, predictor_kind named, predictor_fit *out, pi_error *err) {
    double range[2] = {0, 0};
    pi_status status = PI_OK;
    for (int i = 0; i < PREDICTOR_RECIPES && status == PI_OK; i++) {
        const predictor_recipe *recipe = &predictor_recipes[i];
        predictor_fit fit;
        if (named != PREDICTOR_KIND_COUNT && named != recipe->kind) continue;
        range[0] = range[1];
        range[1] = named == PREDICTOR_KIND_COUNT ? recipe->to : 1;
        status = fit_kind(f, recipe->kind, range, &fit, err);
        if (status == PI_OK && fit.kind != PREDICTOR_NONE &&
            (out->kind == PREDICTOR_NONE ||
             predictor_is_better(&fit, out, f->p->options->recall))) {
            predictor_fit_free(out);
            *out = fit;
        } else {
            predictor_fit_free(&fit);
        }
    }
    if (named == PREDICTOR_KIND_COUNT && out->cost >= exact_cost(f)) predictor_fit_free(out);
    return status;
}

static pi_status allocate(expert_fit *f, pi_error *err) {
    size_t n_embd = (size_t)f->p->model->hp.n_embd, n_ff = (size_t)f->x->n_ff, most = 0;
    for (int i = 0; i < f->x->n; i++)
        if (f->x->of[i].n > most) most = f->x->of[i].n;
    f->own = mem_alloc((most + 1) * n_embd * sizeof *f->own);
    f->gate = mem_alloc(n_ff * n_embd * sizeof *f->gate);
    f->bias = mem_alloc(n_ff * sizeof *f->bias);
    if (f->own && f->gate && f->bias) return PI_OK;
    return error_nomem(err, (most + n_ff) * n_embd * sizeof *f->own, "inputs of an expert");
}

pi_status prepare_experts_fit(preparation *p, int layer, const prepare_experts *x,
                              const float *input, predictor_kind named, progress *report,
                              pi_error *err) {
    prepare_layer *out = &p->layers[layer];
    expert_fit f = {.p = p,
                    .layer = layer,
                    .x = x,
                    .input = input,
                    .n_train = prepare_text_train(&p->text),
                    .report = report};
    pi_status status = allocate(&f, err);
    if (status == PI_OK) status = fit_kinds(&f, named, &out->fit, err);
    mem_free(f.own);
    mem_free(f.gate);
    mem_free(f.bias);
    return status == PI_OK ? prepare_spill_fit(p, layer, err) : status;
}

static pi_status decode_kept(const expert_fit *f, int expert, predictor_fit *out, pi_error *err) {
    const model_tensor *t = f->p->model->layers[f->layer].t;
    const float *bias = t[ROLE_EXPERT_FC2_BIAS].data;
    const model_tensor fc1 = prepare_expert_of(&t[ROLE_EXPERT_FC1], f->x->n, expert);
    const model_tensor fc2 = prepare_expert_of(&t[ROLE_EXPERT_FC2], f->x->n, expert);
    return prepare_decode_kept(f->p, f->layer, &fc1, &fc2, bias ? bias + expert * f->x->n_ff : NULL,
                               f->x->n_ff, out, err);
}

pi_status prepare_experts_measure(preparation *p, int layer, const prepare_experts *x,
                                  const float *input, pi_error *err) {
    const model_layer_sparse *s = &p->model->layers[layer].sparse;
    predictor_fit *out = &p->layers[layer].fit;
    expert_fit f = {.p = p, .layer = layer, .x = x, .input = input};
    pi_status status = allocate(&f, err);
    *out = (predictor_fit){.kind = s->predictor, .rank = s->rank};
    f.n_train = prepare_text_train(&p->text);
    for (int i = 0; i < x->n && status == PI_OK; i++) {
        predictor_fit one = {0};
        predictor_quality q = {1, 1, 1, 0};
        predictor_data data = data_of(&f, i);
        int64_t all = data.n_train + data.n_held, from = data.n_held > 0 ? data.n_train : 0;
        status = decode_kept(&f, i, &one, err);
        if (status == PI_OK && all > 0)
            status = predictor_measure(p->pool, &one, &data, from, all, &q, err);
        predictor_fit_free(&one);
        add_quality(out, &q, 0, token_share(&f, i));
    }
    mem_free(f.own);
    mem_free(f.gate);
    mem_free(f.bias);
    return status;
}
