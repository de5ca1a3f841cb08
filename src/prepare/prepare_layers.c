/* prepare_layers.c: runs all calibration windows through layer l, then through layer l + 1, so that
 * memory contains the residual stream of all tokens, and the fitting data and decoded weights of
 * only one layer.
 *
 * The engine computes all neurons; if predictors are kept, in predict mode with a threshold that
 * every score passes, so that the observer sees the predictor's input. The observer receives the
 * FFN block's input and hidden vector, on the calling thread, while other threads continue. Windows
 * come in order, so a token's number is its place in the text, and held-out tokens come last. Each
 * layer uses a new session, and touches only its part of the cache. */
#include <math.h>
#include <string.h>

#include "mem.h"
#include "prepare.h"

enum {
    BATCH_MAX = 512,   /* tokens per ubatch: activations of wide models stay in the cache */
    CUT_SAMPLE = 1024, /* tokens for profiling thresholds, n_ff values each */
    PREDICTOR_BLOCK = 32
};

/* Rate of reading single rows, relative to streaming (docs/performance.md). */
static const double rows_speed = 0.6;

static const double fit_share = 0.5; /* fraction of a layer's time spent on fitting a predictor */

/* The observer's state: position and collected data. */
typedef struct layer_run {
    preparation *p;
    engine_context *context;
    pi_session *session;
    float *x;         /* [n_tokens][n_embd] residual stream */
    float *input;     /* [n_tokens][n_embd] inputs of the FFN block, or NULL */
    float *hidden;    /* [n_sample][n_ff] inputs of down, threshold mode only */
    float *sample;    /* [n_sample][n_embd] inputs of the FFN block, threshold mode only */
    float *kept;      /* [n_held][n_embd] inputs of kept predictors, held-out tokens */
    int64_t n_sample; /* training tokens that are sampled */
    float *down_norm; /* [n_ff] of the current layer */
    float *gate;      /* [n_ff][n_embd], for fitting */
    float *gate_bias; /* [n_ff] */
    active_set active;
    prepare_experts *pairs;      /* experts with predictors; NULL: none in the current layer */
    int64_t n_fired, n_computed; /* neurons of the experts of the current layer */
    int64_t n_ff;                /* of the current layer */
    int64_t next_input, next_hidden, next_kept; /* tokens seen */
    pi_status seen;                             /* the observer's status */
    pi_error seen_err;
} layer_run;

bool prepare_is_sparse(const model *m) {
    return model_has_zeros(m->hp.activation);
}

bool prepare_predicts_experts(const model *m) {
    return prepare_is_sparse(m) && !(m->arch->has & (ARCH_EXPERT_INPUT | ARCH_FFN_CLAMP));
}

static const model_layer *layer_of(const preparation *p, int layer) {
    return &p->model->layers[layer];
}

/* The matrix that determines whether a neuron is active. */
static tensor_role gate_role(const model_layer *l) {
    return l->t[ROLE_FFN_GATE].data ? ROLE_FFN_GATE : ROLE_FFN_UP;
}

/* ---- watching -------------------------------------------------------------------------------- */

/* Index of token t in the sample, whose i-th token is training token i * n / n_sample; -1: not in
 * the sample. */
static int64_t sample_place(const layer_run *r, int64_t t) {
    int64_t n = prepare_text_train(&r->p->text), i = (t * r->n_sample + n - 1) / n;
    return i < r->n_sample && i * n / r->n_sample == t ? i : -1;
}

static void see_input(layer_run *r, const float *x, int64_t ldx, int n_rows) {
    size_t n_embd = (size_t)r->p->model->hp.n_embd;
    for (int i = 0; i < n_rows; i++) {
        int64_t t = r->next_input + i, place = r->sample ? sample_place(r, t) : -1;
        if (r->input) memcpy(r->input + (size_t)t * n_embd, x + i * ldx, n_embd * sizeof *x);
        if (place >= 0) memcpy(r->sample + (size_t)place * n_embd, x + i * ldx, n_embd * sizeof *x);
    }
    r->next_input += n_rows;
}

static void see_kept(layer_run *r, const float *x, int64_t ldx, int n_rows) {
    int64_t n_embd = r->p->model->hp.n_embd, first = prepare_text_train(&r->p->text);
    for (int i = 0; i < n_rows; i++, r->next_kept++)
        if (r->next_kept >= first)
            memcpy(r->kept + (r->next_kept - first) * n_embd, x + i * ldx,
                   (size_t)n_embd * sizeof *x);
}

static void see_hidden(layer_run *r, const float *h, int64_t ldh, int n_rows) {
    for (int i = 0; i < n_rows && r->seen == PI_OK; i++) {
        int64_t t = r->next_hidden + i, place = r->hidden ? sample_place(r, t) : -1;
        if (place >= 0)
            memcpy(r->hidden + place * r->n_ff, h + i * ldh, (size_t)r->n_ff * sizeof *h);
        if (!r->p->thresholds)
            r->seen = active_add(&r->active, h + i * ldh, r->down_norm, &r->seen_err);
    }
    r->next_hidden += n_rows;
}

/* Hidden vectors of experts, a row per pair of a token and an expert. The tokens are the last ones
 * whose input was seen. */
static void see_experts(layer_run *r, int64_t n_ff, const float *h, int64_t ldh, int n_rows) {
    for (int i = 0; i < n_rows; i++)
        for (int64_t k = 0; k < n_ff; k++) r->n_fired += h[i * ldh + k] != 0;
    r->n_computed += n_rows * n_ff;
    if (!r->pairs || r->seen != PI_OK) return;
    const engine_pairs pairs = engine_expert_pairs(r->context);
    r->seen = prepare_experts_add(r->pairs, &pairs, r->next_input - pairs.n_tokens, h, ldh,
                                  &r->seen_err);
}

static void observe(void *user, const plan_step *step, const float *x, int64_t ldx, int n_rows) {
    layer_run *r = user;
    tensor_role role = step->matrix[0].role;
    if (step->op == OP_EXPERTS_IN) see_input(r, x, ldx, n_rows);
    if (step->op == OP_EXPERTS_DOWN)
        see_experts(r, STEP_ARGS(step, experts)->experts->n_ff, x, ldx, n_rows);
    if (r->p->experts) return;
    if (step->op == OP_FFN_DOWN)
        see_hidden(r, x, ldx, n_rows);
    else if (step->n_matrices == 0)
        return;
    else if (role == gate_role(layer_of(r->p, step->layer)))
        see_input(r, x, ldx, n_rows);
    else if (role == ROLE_FC1)
        see_kept(r, x, ldx, n_rows);
    else if (role == ROLE_FFN_DOWN)
        see_hidden(r, x, ldx, n_rows);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Rows of predictors are whole blocks, except if the user names a type; fitting then reports the
 * problem. */
static bool fits_predictors(const model *m) {
    return m->hp.n_embd % PREDICTOR_BLOCK == 0;
}

static bool wants_fit(const preparation *p) {
    const char *name = p->options->predictor;
    if (p->experts && !prepare_predicts_experts(p->model)) return false;
    if (p->thresholds || (name && strcmp(name, "none") == 0)) return false;
    return (name && strcmp(name, "auto") != 0) || fits_predictors(p->model);
}

static int count_kept(const preparation *p) {
    int n = 0;
    for (int i = 0; i < p->model->hp.n_layer; i++) n += p->layers[i].keeps_predictor;
    return n;
}

static float *take_floats(int64_t rows, int64_t columns, size_t *total) {
    size_t n = 0, n_bytes = 0;
    if (!size_mul((size_t)rows, (size_t)columns, &n) || !size_mul(n, sizeof(float), &n_bytes))
        return NULL;
    *total += n_bytes;
    return mem_alloc(n_bytes);
}

static pi_status allocate(layer_run *r, pi_error *err) {
    const preparation *p = r->p;
    int64_t n_tokens = prepare_text_count(&p->text), n_embd = p->model->hp.n_embd, n_ff = 0;
    for (int l = 0; l < p->model->hp.n_layer; l++)
        if (layer_of(p, l)->hp.n_ff > n_ff) n_ff = layer_of(p, l)->hp.n_ff;
    int n_kept = count_kept(p);
    bool fit = wants_fit(p) && (p->experts || n_kept < p->model->hp.n_layer), ok = true;
    size_t total = 0;
    r->x = take_floats(n_tokens, n_embd, &total);
    r->down_norm = take_floats(1, n_ff, &total);
    ok = r->x && r->down_norm;
    if (ok && (fit || (p->experts && n_kept > 0))) {
        r->input = take_floats(n_tokens, n_embd, &total);
        ok = r->input;
    }
    if (ok && fit && !p->experts) {
        r->gate = take_floats(n_ff, n_embd, &total);
        r->gate_bias = take_floats(1, n_ff, &total);
        ok = r->gate && r->gate_bias;
    }
    if (ok && n_kept > 0 && !p->experts) {
        r->kept = take_floats(n_tokens - prepare_text_train(&p->text), n_embd, &total);
        ok = r->kept;
    }
    if (ok && p->thresholds) {
        r->n_sample = prepare_text_train(&p->text) < CUT_SAMPLE ? prepare_text_train(&p->text)
                                                                : CUT_SAMPLE;
        r->sample = take_floats(r->n_sample, n_embd, &total);
        r->hidden = take_floats(r->n_sample, n_ff, &total);
        ok = r->sample && r->hidden;
    }
    if (!ok) return error_nomem(err, total, "calibration");
    bool predicts = p->experts ? prepare_predicts_experts(p->model) : !p->thresholds;
    if (predicts && !fits_predictors(p->model) && n_kept < p->model->hp.n_layer)
        notify(&p->notifier, "no predictors: n_embd %d is not a multiple of %d",
               p->model->hp.n_embd, PREDICTOR_BLOCK);
    notify(&p->notifier,
           "calibrating on %lld tokens in %d windows of %d, %d of them held out: %.0f MiB of "
           "memory besides the model and the lists of active neurons",
           (long long)n_tokens, p->text.n_windows, p->text.n_window, p->text.n_held,
           (double)total / (1 << 20));
    return PI_OK;
}

static void release(layer_run *r) {
    active_free(&r->active);
    prepare_experts_free(r->pairs);
    engine_session_destroy(r->session);
    engine_context_destroy(r->context);
    mem_free(r->x);
    mem_free(r->input);
    mem_free(r->hidden);
    mem_free(r->sample);
    mem_free(r->kept);
    mem_free(r->down_norm);
    mem_free(r->gate);
    mem_free(r->gate_bias);
}

/* ---- one layer ------------------------------------------------------------------------------- */

static pi_status say_progress(const layer_run *r, int layer, double part, pi_error *err) {
    double n = r->p->model->hp.n_layer;
    return prepare_step(r->p, "calibrating", (layer + part) / n, err);
}

/* Runs one window through a layer; -1: through the embeddings. */
static pi_status run_window(layer_run *r, int layer, int window, pi_error *err) {
    const prepare_text *text = &r->p->text;
    int64_t first = (int64_t)window * text->n_window;
    int n_pieces = (text->n_window + BATCH_MAX - 1) / BATCH_MAX;
    int batch = (text->n_window + n_pieces - 1) / n_pieces; /* equal pieces: none is short */
    pi_status status = PI_OK;
    for (int pos = 0; pos < text->n_window && status == PI_OK; pos += batch) {
        int n = text->n_window - pos < batch ? text->n_window - pos : batch;
        float *x = r->x + (first + pos) * r->p->model->hp.n_embd;
        status = engine_run_layer(r->context, r->session, layer, text->tokens + first + pos, x, n,
                                  pos, err);
    }
    if (status == PI_OK && r->seen != PI_OK) {
        if (err) *err = r->seen_err;
        status = r->seen;
        if (status == PI_ERR_RANGE) error_prefix(err, status, "layer %d", layer);
    }
    return status;
}

static pi_status run_windows(layer_run *r, int layer, double share, pi_error *err) {
    const prepare_text *text = &r->p->text;
    engine_session_destroy(r->session);
    r->session = NULL;
    r->next_input = r->next_hidden = r->next_kept = 0;
    pi_status status = engine_session_create(r->context, text->n_window, &r->session, err);
    for (int w = 0; w < text->n_windows && status == PI_OK; w++) {
        status = run_window(r, layer, w, err);
        if (status == PI_OK && layer >= 0)
            status = say_progress(r, layer, share * (w + 1) / text->n_windows, err);
    }
    return status;
}

/* A layer's progress while its predictor is fitted. */
typedef struct fit_progress {
    layer_run *r;
    int layer;
} fit_progress;

static bool step_fit(void *user, const char *stage, double fraction) {
    const fit_progress *f = user;
    (void)stage;
    return say_progress(f->r, f->layer, 1 - fit_share + fit_share * fraction, NULL) == PI_OK;
}

static predictor_kind kind_of(const char *name) {
    for (int k = 0; name && k < PREDICTOR_KIND_COUNT; k++)
        if (strcmp(name, predictor_kind_name((predictor_kind)k)) == 0) return (predictor_kind)k;
    return PREDICTOR_KIND_COUNT; /* "auto": all of them */
}

static pi_status fit_layer(layer_run *r, int layer, pi_error *err) {
    const pi_prepare_options *o = r->p->options;
    const model_layer *l = layer_of(r->p, layer);
    prepare_layer *out = &r->p->layers[layer];
    tensor_role role = gate_role(l);
    const float *bias = l->t[role == ROLE_FFN_GATE ? ROLE_FFN_GATE_BIAS : ROLE_FFN_UP_BIAS].data;
    prepare_decode_rows(r->p->pool, &l->t[role], out->order, r->gate);
    for (int64_t i = 0; bias && i < r->n_ff; i++) r->gate_bias[i] = bias[out->order[i]];
    predictor_data data = {.n_embd = r->p->model->hp.n_embd,
                           .n_ff = r->n_ff,
                           .n_train = prepare_text_train(&r->p->text),
                           .n_held = prepare_text_count(&r->p->text) -
                                     prepare_text_train(&r->p->text),
                           .x = r->input,
                           .gate = r->gate,
                           .gate_bias = bias ? r->gate_bias : NULL,
                           .active = &r->active,
                           .gate_row_bytes = l->t[role].n_bytes / (size_t)r->n_ff};
    predictor_options options = {.kind = kind_of(o->predictor),
                                 .target = o->recall,
                                 .type = r->p->predictor_type,
                                 .seed = o->seed};
    fit_progress at = {r, layer};
    progress steps = {.fn = step_fit, .user = &at};
    pi_status status = predictor_fit_layer(r->p->pool, &data, &options, &steps, &out->fit, err);
    if (status != PI_OK) return status;
    /* If other layers keep their predictors, the file's threshold remains and applies to all
     * layers. */
    float threshold = count_kept(r->p) > 0 ? r->p->model->sparse.predictor_threshold : 0;
    for (int64_t i = 0; out->fit.bias && i < r->n_ff; i++) out->fit.bias[i] += threshold;
    return prepare_spill_fit(r->p, layer, err);
}

/* ---- predictors that are kept ---------------------------------------------------------------- */

pi_status prepare_decode_kept(const preparation *p, int layer, const model_tensor *fc1,
                              const model_tensor *fc2, const float *bias, int64_t n_ff,
                              predictor_fit *out, pi_error *err) {
    const model *m = p->model;
    size_t total = 0;
    *out = (predictor_fit){.kind = m->layers[layer].sparse.predictor,
                           .rank = m->layers[layer].sparse.rank,
                           .type_fc1 = QUANT_F32,
                           .type_fc2 = QUANT_F32};
    out->fc1 = take_floats(out->rank, m->hp.n_embd, &total);
    out->fc2 = take_floats(out->rank, n_ff, &total);
    out->bias = take_floats(1, n_ff, &total);
    if (!out->fc1 || !out->fc2 || !out->bias) return error_nomem(err, total, "a predictor");
    prepare_decode_rows(p->pool, fc1, NULL, out->fc1);
    prepare_decode_rows(p->pool, fc2, NULL, out->fc2);
    for (int64_t i = 0; i < n_ff; i++)
        out->bias[i] = (bias ? bias[i] : 0) - m->sparse.predictor_threshold;
    return PI_OK;
}

/* Quality of the predictor on held-out tokens, measured as for fitted predictors. */
static pi_status measure_kept(layer_run *r, int layer, pi_error *err) {
    predictor_fit *out = &r->p->layers[layer].fit, decoded;
    int64_t n_held = prepare_text_count(&r->p->text) - prepare_text_train(&r->p->text);
    active_set held = r->active;
    held.start += prepare_text_train(&r->p->text);
    held.n_tokens = n_held;
    predictor_data data = {.n_embd = r->p->model->hp.n_embd,
                           .n_ff = r->n_ff,
                           .n_held = n_held,
                           .x = r->kept,
                           .active = &held};
    *out = (predictor_fit){0};
    const model_tensor *t = layer_of(r->p, layer)->t;
    pi_status status = prepare_decode_kept(r->p, layer, &t[ROLE_FC1], &t[ROLE_FC2],
                                           t[ROLE_FC2_BIAS].data, r->n_ff, &decoded, err);
    if (status == PI_OK)
        status = predictor_measure(r->p->pool, &decoded, &data, 0, n_held, &out->quality, err);
    out->kind = decoded.kind;
    out->rank = decoded.rank;
    predictor_fit_free(&decoded);
    return status;
}

/* ---- statistics ------------------------------------------------------------------------------ */

/* Computes frequencies and order, and fits predictors in that order. */
static pi_status profile_zeros(layer_run *r, int layer, bool fit, pi_error *err) {
    prepare_layer *out = &r->p->layers[layer];
    float *freq = r->down_norm; /* no longer needed */
    active_frequencies(&r->active, freq);
    pi_status status = neuron_order(freq, r->n_ff, out->order, err);
    if (status != PI_OK) return status;
    for (int64_t i = 0; i < r->n_ff; i++) {
        out->freq[i] = freq[out->order[i]];
        out->density += (double)out->freq[i] / (double)r->n_ff;
    }
    status = active_chain(&r->active, out->order, out->freq, err);
    if (status != PI_OK) return status;
    if (out->keeps_predictor) return measure_kept(r, layer, err);
    if (!fit) return PI_OK;
    status = active_permute(&r->active, out->order, err);
    return status == PI_OK ? fit_layer(r, layer, err) : status;
}

static pi_status give_layer(prepare_layer *out, int64_t n, pi_error *err) {
    out->n = n;
    out->order = mem_calloc((size_t)n, sizeof *out->order);
    out->freq = mem_calloc((size_t)n, sizeof *out->freq);
    if (out->order && out->freq) return PI_OK;
    return error_nomem(err, (size_t)n * 8, "the order of neurons");
}

/* Whether reading rows of active neurons is faster than reading the experts' whole down. */
static void choose_experts_down(const layer_run *r, int layer) {
    const preparation *p = r->p;
    const model_tensor *down = &layer_of(p, layer)->t[ROLE_EXPERT_DOWN];
    prepare_layer *out = &p->layers[layer];
    size_t row = 0;
    out->fires = r->n_computed > 0 ? (double)r->n_fired / (double)r->n_computed : 1;
    if (!down->data || !prepare_is_sparse(p->model)) return;
    quant_type type = prepare_choose_down_type(p, down, NULL);
    if (!quant_row_bytes(type, (uint64_t)p->model->hp.n_embd, &row)) return;
    double rows = (double)row * (double)down->n_in * (double)p->model->hp.n_expert;
    out->transposes = p->has_down_type || out->fires * rows < rows_speed * (double)down->n_bytes;
    notify(&p->notifier, "layer %d: %.0f%% of the neurons of chosen experts are active: %s", layer,
           100 * out->fires,
           out->transposes ? "ffn_down_exps is transposed" : "too many to transpose ffn_down_exps");
}

/* Counts how often the router chose each expert, orders the experts by it, and fits predictors
 * within them. */
static pi_status profile_experts(layer_run *r, int layer, pi_error *err) {
    prepare_layer *out = &r->p->layers[layer];
    int64_t n = r->p->model->hp.n_expert, n_tokens = prepare_text_count(&r->p->text);
    bool wide = layer_of(r->p, layer)->hp.n_ff_expert >= PREDICTOR_BLOCK;
    bool kept = out->keeps_predictor, fit = wants_fit(r->p) && !kept && wide;
    if (!layer_of(r->p, layer)->t[ROLE_ROUTER].data) return run_windows(r, layer, 1, err);
    r->n_fired = r->n_computed = 0;
    prepare_experts_free(r->pairs);
    r->pairs = NULL;
    pi_status status = give_layer(out, n, err);
    if (status == PI_OK && (fit || kept))
        status = prepare_experts_create(r->p, layer, &r->pairs, err);
    if (status == PI_OK) status = run_windows(r, layer, fit ? 1 - fit_share : 1, err);
    if (status != PI_OK) return status;
    choose_experts_down(r, layer);
    float freq[MODEL_MAX_EXPERTS];
    const uint64_t *uses = engine_expert_uses(r->context, layer);
    for (int64_t i = 0; i < n; i++) freq[i] = (float)((double)uses[i] / (double)n_tokens);
    status = neuron_order(freq, n, out->order, err);
    for (int64_t i = 0; status == PI_OK && i < n; i++) {
        out->freq[i] = freq[out->order[i]];
        out->density += (double)out->freq[i] / (double)n;
    }
    fit_progress at = {r, layer};
    progress steps = {.fn = step_fit, .user = &at};
    if (status == PI_OK && kept)
        status = prepare_experts_measure(r->p, layer, r->pairs, r->input, err);
    if (status != PI_OK || !fit) return status;
    status = prepare_experts_fit(r->p, layer, r->pairs, r->input, kind_of(r->p->options->predictor),
                                 &steps, err);
    return status;
}

static pi_status run_layer(layer_run *r, int layer, pi_error *err) {
    const model_layer *l = layer_of(r->p, layer);
    prepare_layer *out = &r->p->layers[layer];
    bool fit = wants_fit(r->p) && !out->keeps_predictor;
    r->n_ff = l->hp.n_ff;
    active_free(&r->active);
    active_init(&r->active, r->n_ff);
    if (r->p->experts) return profile_experts(r, layer, err);
    if (!l->hp.ffn) return run_windows(r, layer, 1, err);
    pi_status status = give_layer(out, r->n_ff, err);
    if (status == PI_OK && r->p->thresholds) {
        out->cut_weight = mem_calloc((size_t)r->n_ff, sizeof *out->cut_weight);
        if (!out->cut_weight) status = error_nomem(err, (size_t)r->n_ff * 4, "factors of neurons");
    }
    bool transposed = l->t[ROLE_FFN_DOWN_T].data;
    const model_tensor *down = &l->t[transposed ? ROLE_FFN_DOWN_T : ROLE_FFN_DOWN];
    if (status == PI_OK)
        status = prepare_down_norms(r->p->pool, down, transposed, r->down_norm, err);
    if (status == PI_OK) status = run_windows(r, layer, fit ? 1 - fit_share : 1, err);
    if (status != PI_OK) return status;
    if (r->p->thresholds) {
        prepare_sample in = {r->n_sample, r->sample, r->hidden, r->down_norm};
        return prepare_profile_cuts(r->p, layer, engine_kernels(r->context), &in, err);
    }
    return profile_zeros(r, layer, fit, err);
}

pi_status prepare_run_layers(preparation *p, pi_error *err) {
    layer_run r = {.p = p};
    int32_t n_window = p->text.n_window;
    pi_mode mode = count_kept(p) > 0 ? PI_MODE_PREDICT : PI_MODE_DENSE;
    engine_options options = {
        .n_threads = p->options->n_threads,
        .n_batch = n_window < BATCH_MAX ? n_window : BATCH_MAX,
        .n_logits = 1,
        .tier = CPU_TIER_AUTO,
        .type_k = QUANT_F16,
        .type_v = QUANT_F16,
        .plan = {.mode = mode, .set_threshold = true, .threshold = -INFINITY}};
    pi_status status = allocate(&r, err);
    if (status == PI_OK) status = engine_context_create(p->model, &options, &r.context, err);
    if (status == PI_OK) status = run_windows(&r, -1, 0, err);
    bool looks = !p->experts || prepare_is_sparse(p->model);
    if (status == PI_OK && looks) engine_observe(r.context, observe, &r);
    for (int l = 0; l < p->model->hp.n_layer && status == PI_OK; l++)
        status = run_layer(&r, l, err);
    if (status == PI_OK && p->options->head)
        status = prepare_fit_head(p, engine_kernels(r.context), r.x, err);
    release(&r);
    return status;
}
