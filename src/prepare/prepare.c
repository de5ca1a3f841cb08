/* prepare.c: prepares a model: calibration, neuron order, predictors or thresholds, the file, and
 * its loss. The output has a temporary name until it is complete, so that a failed or cancelled run
 * leaves no file; intermediate files (for a Hugging Face folder, or --type) are in the output's
 * folder and are also removed. */
#include "prepare.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "cpu_topology.h"
#include "file.h"
#include "mem.h"
#include "os_file.h"
#include "quant_mix.h"
#include "sparse_keys.h"

enum {
    TOKENS_DEFAULT = 16384, /* more tokens hardly improve predictors */
    SHARE_STEPS = 32        /* number of fractions of activations tried as thresholds */
};

/* Non-contiguous rows are read at about 25 GB/s, streams at 40 (docs/performance.md), so that
 * skipping up and down pays while 1/3 + 2/3 * density * 40/25 < 1: below 0.625. */
static const double density_limit = 0.6;

/* The source of an input, and the intermediate files. */
typedef struct source {
    file_scratch *converted, *quantized;
    const char *path; /* path of the GGUF file to prepare */
} source;

pi_prepare_options pi_prepare_default_options(void) {
    return (pi_prepare_options){
        .calibration_tokens = TOKENS_DEFAULT, .recall = 0.98, .max_loss = 0.01, .seed = 1};
}

pi_status prepare_step(preparation *p, const char *stage, double fraction, pi_error *err) {
    if (progress_step(&p->progress, stage, fraction)) return PI_OK;
    return error_set(err, PI_ERR_CANCELLED, "cancelled: %.300s: nothing was written", p->out_path);
}

/* ---- the request ----------------------------------------------------------------------------- */

pi_status prepare_check_threads(const pi_prepare_options *o, pi_error *err) {
    if (o->n_threads >= 0 && o->n_threads <= POOL_MAX_THREADS) return PI_OK;
    return error_set(err, PI_ERR_ARG, "bad number of threads: %d: choose 0 to %d", o->n_threads,
                     POOL_MAX_THREADS);
}

static pi_status check_predictor(const char *name, pi_error *err) {
    if (!name || strcmp(name, "auto") == 0) return PI_OK;
    for (int k = 0; k < PREDICTOR_KIND_COUNT; k++)
        if (strcmp(name, predictor_kind_name((predictor_kind)k)) == 0) return PI_OK;
    return error_set(err, PI_ERR_ARG,
                     "unknown predictor: %.40s: choose auto, none, sign, lowrank or "
                     "relu_mlp",
                     name);
}

static pi_status read_request(preparation *p, pi_error *err) {
    const pi_prepare_options *o = p->options;
    pi_status status = prepare_check_threads(o, err);
    if (status == PI_OK) status = check_predictor(o->predictor, err);
    if (status == PI_OK && !(o->recall > 0 && o->recall <= 1))
        status = error_set(err, PI_ERR_ARG, "bad recall: %g: choose 0 to 1, such as 0.98",
                           o->recall);
    if (status == PI_OK && !(o->max_loss >= 0))
        status = error_set(err, PI_ERR_ARG, "bad loss: %g: choose 0 or more", o->max_loss);
    if (status == PI_OK && o->type && !quant_mix_find(o->type)) {
        char known[512];
        quant_mix_list(known, sizeof known);
        status = error_set(err, PI_ERR_ARG, "unknown type: %.40s: choose one of %s", o->type,
                           known);
    }
    p->predictor_type = QUANT_Q4_0;
    if (status == PI_OK && o->predictor_type)
        status = quant_mix_find_type(o->predictor_type, "type of predictors", &p->predictor_type,
                                     err);
    p->has_down_type = o->down_type != NULL;
    if (status == PI_OK && o->down_type)
        status = quant_mix_find_type(o->down_type, "type of ffn_down", &p->down_type, err);
    return status;
}

static pi_status refuse_same(const char *in, const char *out_path, pi_error *err) {
    if (!os_path_same(in, out_path)) return PI_OK;
    return error_set(err, PI_ERR_ARG,
                     "output is the input: %.300s: give another name for the output", in);
}

/* The output is read again before it gets its name, so it must be a regular file. */
pi_status prepare_open_output(preparation *p, pi_error *err) {
    os_info out;
    pi_status status = refuse_same(p->in_path, p->out_path, err);
    if (status == PI_OK && p->model) status = gguf_refuse_output(p->model->file, p->out_path, err);
    if (status != PI_OK) return status;
    if (os_path_info(p->out_path, &out) == 0 && out.kind == OS_OTHER)
        return error_set(err, PI_ERR_IO, "not a file: %.300s: name a file for the output",
                         p->out_path);
    return gguf_writer_create(p->out_path, &p->writer, err);
}

/* ---- the input ------------------------------------------------------------------------------- */

static bool is_float_mix(const char *type) {
    return type && !quant_find((uint32_t)quant_mix_find(type)->base)->is_quantized;
}

static pi_status convert_folder(preparation *p, source *s, pi_error *err) {
    const pi_prepare_options *o = p->options;
    pi_convert_options options = pi_convert_default_options();
    if (is_float_mix(o->type)) options.type = o->type;
    options.n_threads = o->n_threads;
    options.progress = o->progress;
    options.message = o->message;
    options.user = o->user;
    pi_status status = file_scratch_create(p->beside, &s->converted, err);
    if (status != PI_OK) return status;
    s->path = file_scratch_path(s->converted);
    return pi_convert(p->in_path, s->path, &options, err);
}

/* The down matrices keep their type here: ffn_down_t is made from their current form. */
static pi_status keep_downs(const gguf_file *f, pi_tensor_type **out, size_t *n, pi_error *err) {
    size_t n_all = (size_t)gguf_n_tensors(f);
    *n = 0;
    *out = mem_calloc(n_all, sizeof **out);
    if (!*out) return error_nomem(err, n_all * sizeof **out, "types of tensors");
    for (uint64_t i = 0; i < n_all; i++) {
        const gguf_tensor *t = gguf_tensor_at(f, i);
        if (strstr(t->name, ".ffn_down.weight"))
            (*out)[(*n)++] = (pi_tensor_type){t->name, quant_find((uint32_t)t->type)->name};
    }
    return PI_OK;
}

static pi_status quantize_file(preparation *p, source *s, const gguf_file *f, pi_error *err) {
    const pi_prepare_options *o = p->options;
    pi_tensor_type *downs = NULL;
    pi_quantize_options options = pi_quantize_default_options();
    if (gguf_is_pwri(f) || gguf_find(f, SPARSE_KEY_VERSION))
        return error_set(err, PI_ERR_UNSUPPORTED,
                         "already prepared: %.300s: only ordinary models can be quantized by "
                         "prepare: undo it first",
                         p->in_path);
    pi_status status = keep_downs(f, &downs, &options.n_tensor_types, err);
    if (status == PI_OK) status = file_scratch_create(p->beside, &s->quantized, err);
    if (status == PI_OK) {
        options.type = o->type;
        options.allow_requantize = true;
        options.tensor_types = downs;
        options.n_threads = o->n_threads;
        options.progress = o->progress;
        options.message = o->message;
        options.user = o->user;
        const char *path = file_scratch_path(s->quantized);
        status = pi_quantize(s->path, path, &options, NULL, err);
        s->path = path;
        p->quantized = true;
    }
    mem_free(downs);
    return status;
}

static pi_status make_input(preparation *p, source *s, pi_error *err) {
    os_info info;
    pi_status status = PI_OK;
    bool folder = os_path_info(p->in_path, &info) == 0 && info.kind == OS_FOLDER;
    s->path = p->in_path;
    if (folder) status = convert_folder(p, s, err);
    if (status != PI_OK || !p->options->type || (folder && is_float_mix(p->options->type)))
        return status;
    gguf_file *f = NULL;
    status = gguf_open(s->path, NULL, &f, err);
    if (status == PI_OK) status = quantize_file(p, s, f, err);
    gguf_close(f);
    if (status != PI_OK || !s->converted) return status;
    file_scratch_remove(s->converted);
    s->converted = NULL;
    return PI_OK;
}

/* The type of ffn_down before any change, so that undo can write it again. */
static void note_down_type(preparation *p, int layer) {
    const model_layer *l = &p->model->layers[layer];
    bool experts = l->t[ROLE_ROUTER].data;
    const model_tensor *down = &l->t[experts ? ROLE_EXPERT_DOWN : ROLE_FFN_DOWN];
    quant_type type = down->data ? down->type : prepare_source_down_type(p->model, layer);
    size_t row;
    if (p->quantized && !experts) {
        quant_type base = quant_mix_find(p->options->type)->base;
        if (quant_row_bytes(base, (uint64_t)l->hp.n_ff, &row)) type = base;
    }
    p->source_down_type[layer] = type;
}

/* Whether the layer has a usable predictor of the original PowerInfer: with rows of down, for
 * activations that have zeros. The original converter writes only such files. */
static bool has_own_predictor(const preparation *p, int layer) {
    const model_layer *l = &p->model->layers[layer];
    bool rows = l->t[ROLE_FFN_DOWN_T].data || l->t[ROLE_EXPERT_DOWN_T].data;
    if (l->t[ROLE_ROUTER].data && !prepare_predicts_experts(p->model)) return false;
    return gguf_is_pwri(p->model->file) && !p->thresholds &&
           l->sparse.predictor != PREDICTOR_NONE && rows;
}

/* The feature of the model that this version cannot prepare; NULL: none. */
static const char *unlike_others(const model *m) {
    bool any = false;
    for (int i = 0; i < m->hp.n_layer; i++) any = any || m->layers[i].hp.ffn;
    if (!any) return "no layer has an FFN";
    if (m->arch->encoder) return "an encoder";
    if (m->arch->xielu) return "xIELU, an activation without zeros";
    if (m->hp.n_stream > 1) return "several residual streams";
    for (int i = 0; i < m->hp.n_layer; i++) /* one cache per layer */
        if (m->layers[i].hp.kv_layer != i) return "layers that share keys and values";
    for (int i = 0; i < m->hp.n_layer; i++)
        if (m->layers[i].t[ROLE_FFN_ACT_SCALE].data) return "scales of activations";
    return NULL;
}

static pi_status open_model(preparation *p, const source *s, pi_error *err) {
    const char *wanted = p->options->predictor;
    pi_status status = model_open(s->path, NULL, &p->model, err);
    if (status == PI_OK) status = model_check_tensors(p->model, p->options->n_threads, err);
    if (status != PI_OK) return status;
    p->experts = p->model->hp.n_expert > 0;
    prepare_choose_bundles(p);
    const char *unlike = unlike_others(p->model);
    if (unlike)
        return error_set(err, PI_ERR_UNSUPPORTED,
                         "cannot be prepared yet: %.300s: %s: run the file as it is", p->in_path,
                         unlike);
    bool named = wanted && strcmp(wanted, "auto") != 0 && strcmp(wanted, "none") != 0;
    if (p->experts && named && !prepare_predicts_experts(p->model))
        return error_set(err, PI_ERR_UNSUPPORTED,
                         "no predictors within these experts: %.300s: %s: prepare without a named "
                         "predictor sorts the experts",
                         p->in_path,
                         prepare_is_sparse(p->model) ? "their weights multiply their input"
                                                     : "their activations are never exactly zero");
    size_t n = (size_t)p->model->hp.n_layer;
    p->thresholds = !p->experts && !prepare_is_sparse(p->model);
    if (p->thresholds && named)
        return error_set(err, PI_ERR_UNSUPPORTED,
                         "no predictor for %s: %.300s: its activations are never exactly zero: "
                         "without a named predictor, small ones are skipped by thresholds",
                         activation_name(p->model->hp.activation), p->in_path);
    p->layers = mem_calloc(n, sizeof *p->layers);
    p->source_down_type = mem_calloc(n, sizeof *p->source_down_type);
    if (!p->layers || !p->source_down_type)
        return error_nomem(err, n * sizeof *p->layers, "layers");
    for (size_t i = 0; i < n; i++) {
        note_down_type(p, (int)i);
        p->layers[i].keeps_predictor = !wanted && has_own_predictor(p, (int)i);
    }
    return PI_OK;
}

/* ---- judging --------------------------------------------------------------------------------- */

/* The fraction of rows of up, or of down, that are read: mean over the sorted layers. */
static double mean_rows(const preparation *p, bool up) {
    double sum = 0;
    int n = 0;
    for (int i = 0; i < p->model->hp.n_layer; i++) {
        const prepare_layer *l = &p->layers[i];
        if (l->n == 0) continue;
        sum += up || !p->thresholds ? l->density : l->summed;
        n++;
    }
    return n > 0 ? sum / n : 1;
}

static double mean_density(const preparation *p) {
    return (mean_rows(p, true) + mean_rows(p, false)) / 2;
}

/* Writes a model that would be slower than the dense one only if the predictor is named
 * explicitly. */
static pi_status refuse_dense(const preparation *p, pi_error *err) {
    const pi_prepare_options *o = p->options;
    double density = mean_density(p);
    bool by_name = o->predictor && strcmp(o->predictor, "auto") != 0;
    if (density <= density_limit || by_name) return PI_OK;
    if (p->thresholds)
        return error_set(
            err, PI_ERR_UNSUPPORTED,
            "too little sparsity: %.200s: within a loss of %.2g%% thresholds keep "
            "%.0f%% of the rows of up and down: use the dense model, or set a larger max_loss",
            p->in_path, 100 * o->max_loss, 100 * density);
    return error_set(err, PI_ERR_UNSUPPORTED,
                     "too little sparsity: %.200s: %.0f%% of its neurons are active per token: use "
                     "the dense model, or set predictor to none",
                     p->in_path, 100 * density);
}

static bool has_predictor(const preparation *p) {
    for (int i = 0; i < p->model->hp.n_layer; i++)
        if (p->layers[i].fit.kind != PREDICTOR_NONE) return true;
    return false;
}

static double loss_of(const prepare_quality *q) {
    return q->ppl_after / q->ppl_before - 1;
}

/* The loss that thresholds may have. */
static double limit_of_cuts(const preparation *p) {
    double limit = p->options->max_loss;
    double head = p->head.rank > 0 ? fmax((double)p->head.loss, 0) : 0;
    if (head <= limit / 2) return limit - head; /* mode auto adds the losses */
    notify(&p->notifier,
           "the sketch of the output head raises the perplexity by %.2f%%, more than half of "
           "%.2g%%: by default it is not used together with the thresholds",
           100 * head, 100 * limit);
    return limit;
}

/* Finds by bisection the thresholds that read the fewest bytes within the allowed loss. */
static pi_status search_cuts(preparation *p, prepare_quality *quality, pi_error *err) {
    prepare_cut_pair *pairs = mem_calloc(PREPARE_CUT_PAIRS, sizeof *pairs);
    if (!pairs) return error_nomem(err, PREPARE_CUT_PAIRS * sizeof *pairs, "thresholds");
    int good = 0, bad = prepare_list_cuts(p, pairs);
    double from = 0, limit = limit_of_cuts(p);
    pi_status status = PI_OK;
    while (bad - good > 1 && status == PI_OK) {
        int middle = good + (bad - good) / 2;
        double to = from + (1 - from) / 2;
        prepare_quality q = {0};
        prepare_choose_cuts(p, pairs[middle]);
        status = prepare_patch(p, NAN, err);
        if (status == PI_OK)
            status = prepare_measure(p, PI_MODE_THRESHOLD, PI_HEAD_DENSE, from, to, &q, err);
        if (status != PI_OK) break;
        from = to;
        notify(&p->notifier,
               "zeroing %.0f%% of the activations and %.0f%% of the hidden values: perplexity "
               "%+.2f%%, KL divergence %.4f",
               100 * (1 - mean_rows(p, true)), 100 * (1 - mean_rows(p, false)), 100 * loss_of(&q),
               q.kl);
        /* Also limits the KL divergence: on text unknown to the model, perplexity may fall while
         * answers get worse. On other text the divergence is about as large as the rise of
         * perplexity. */
        if (loss_of(&q) <= limit && q.kl <= limit)
            good = middle;
        else
            bad = middle;
    }
    prepare_choose_cuts(p, pairs[good]);
    mem_free(pairs);
    if (status == PI_OK) status = refuse_dense(p, err);
    if (status == PI_OK) status = prepare_patch(p, NAN, err);
    return status == PI_OK
               ? prepare_measure(p, PI_MODE_THRESHOLD, PI_HEAD_DENSE, from, 1, quality, err)
               : status;
}

/* The loss of the output head's predictor, without those of the layers. */
static pi_status measure_head(preparation *p, pi_error *err) {
    prepare_quality q;
    pi_status status = prepare_measure(p, PI_MODE_DENSE, PI_HEAD_PREDICT, 0, 1, &q, err);
    if (status != PI_OK) return status;
    p->head.loss = (float)loss_of(&q);
    return gguf_writer_patch(p->writer, SPARSE_KEY_HEAD_LOSS, &p->head.loss, sizeof p->head.loss,
                             err);
}

/* Measures the quality with the fitted predictors, unless their loss is too large, and the loss for
 * mode `auto`. */
static pi_status judge(preparation *p, pi_prepare_result *result, pi_error *err) {
    prepare_quality q;
    bool zeros = prepare_is_sparse(p->model);
    pi_mode mode = p->thresholds          ? PI_MODE_THRESHOLD
                   : has_predictor(p)     ? PI_MODE_PREDICT
                   : zeros || !p->experts ? PI_MODE_EXACT
                                          : PI_MODE_DENSE;
    pi_status status = p->head.rank > 0 ? measure_head(p, err) : PI_OK;
    if (status != PI_OK) return status;
    status = p->thresholds ? search_cuts(p, &q, err)
                           : prepare_measure(p, mode, PI_HEAD_DENSE, 0, 1, &q, err);
    if (status != PI_OK) return status;
    double loss = loss_of(&q);
    status = prepare_patch(p, loss, err);
    if (status == PI_OK && mode == PI_MODE_PREDICT && loss > p->options->max_loss) {
        notify(&p->notifier,
               "the predictors raise the perplexity by %.2f%%, more than %.2g%%: mode auto runs "
               "exact unless max_loss allows that; a higher recall loses less",
               100 * loss, 100 * p->options->max_loss);
        mode = PI_MODE_EXACT;
        status = prepare_measure(p, mode, PI_HEAD_DENSE, 0, 1, &q, err);
    }
    *result = (pi_prepare_result){.mode = ffn_mode_name(mode),
                                  .tokens = prepare_text_count(&p->text),
                                  .held_out = (int64_t)p->text.n_held * p->text.n_window,
                                  .density = mean_density(p),
                                  .ppl_before = q.ppl_before,
                                  .ppl_after = q.ppl_after,
                                  .kl = q.kl,
                                  .head_rank = (int32_t)p->head.rank,
                                  .head_rows = p->head.rows,
                                  .head_bytes = p->head.bytes,
                                  .head_loss = (double)p->head.loss,
                                  .head_same = p->head.same,
                                  .bytes_out = p->bytes_out,
                                  .predictor_bytes = p->predictor_bytes};
    for (uint64_t i = 0; i < gguf_n_tensors(p->model->file); i++)
        result->bytes_in += gguf_tensor_at(p->model->file, i)->n_bytes;
    return status;
}

/* ---- results --------------------------------------------------------------------------------- */

static pi_prepare_layer describe(const preparation *p, int layer) {
    const prepare_layer *l = &p->layers[layer];
    const predictor_quality *q = &l->fit.quality;
    pi_prepare_layer out = {.density = l->density,
                            .kind = predictor_kind_name(l->fit.kind),
                            .rank = l->fit.rank,
                            .recall = 1,
                            .contribution_recall = 1,
                            .selected = 1,
                            .down = l->density};
    if (p->experts && prepare_is_sparse(p->model) && l->n > 0) out.density = out.down = l->fires;
    if (l->fit.kind != PREDICTOR_NONE) {
        out.density = q->active;
        out.recall = q->recall;
        out.contribution_recall = q->contribution_recall;
        out.selected = q->selected;
        out.down = q->active * q->recall;
    } else if (p->thresholds) {
        out.recall = out.selected = l->density;
        out.down = l->summed;
        if (l->cuts) out.contribution_recall = prepare_kept(l->cuts->part, l->cut, l->cut_down);
    }
    return out;
}

static void tell_layers(const preparation *p) {
    for (int i = 0; p->options->layer && i < p->model->hp.n_layer; i++) {
        pi_prepare_layer layer = describe(p, i);
        p->options->layer(p->options->user, i, &layer);
    }
}

void prepare_release(preparation *p) {
    gguf_writer_abort(p->writer);
    prepare_spill_free(p->spill);
    for (int i = 0; p->layers && i < p->model->hp.n_layer; i++) {
        mem_free(p->layers[i].order);
        mem_free(p->layers[i].freq);
        mem_free(p->layers[i].cut_weight);
        predictor_fit_free(&p->layers[i].fit);
        mem_free(p->layers[i].cuts);
    }
    mem_free(p->layers);
    mem_free(p->head.fc1);
    mem_free(p->head.fc2);
    mem_free(p->source_down_type);
    prepare_text_free(&p->text);
    pool_destroy(p->pool);
    model_close(p->model);
}

static pi_status measure_and_write(preparation *p, pi_prepare_result *result, pi_error *err) {
    pi_status status = prepare_text_read(p->model, p->options, &p->notifier, &p->text, err);
    if (status == PI_OK) status = prepare_run_layers(p, err);
    if (status == PI_OK && !p->thresholds && !p->experts) status = refuse_dense(p, err);
    if (status == PI_OK) status = prepare_write(p, err);
    return status == PI_OK ? judge(p, result, err) : status;
}

static pi_status run(preparation *p, source *s, pi_prepare_result *result, pi_error *err) {
    int n = p->options->n_threads > 0 ? p->options->n_threads : cpu_count_physical();
    pi_status status = read_request(p, err);
    if (status == PI_OK) status = prepare_open_output(p, err);
    if (status == PI_OK) status = pool_create(n, &p->pool, err);
    if (status == PI_OK) status = make_input(p, s, err);
    if (status == PI_OK) status = open_model(p, s, err);
    if (status == PI_OK)
        status = p->rearranges ? prepare_write_bundles(p, result, err)
                               : measure_and_write(p, result, err);
    if (status != PI_OK) return status;
    gguf_writer *writer = p->writer;
    p->writer = NULL; /* finish frees it in every case */
    return gguf_writer_finish(writer, err);
}

pi_status pi_prepare(const char *in, const char *out_path, const pi_prepare_options *options,
                     pi_prepare_result *result, pi_error *err) {
    assert(in && out_path);
    pi_prepare_options defaults = pi_prepare_default_options();
    pi_prepare_result own;
    source s = {0};
    preparation p = {.options = options ? options : &defaults, .in_path = in, .out_path = out_path};
    p.beside = p.options->beside ? p.options->beside : out_path;
    p.notifier = (notifier){p.options->message, p.options->user};
    p.progress = (progress){.fn = p.options->progress, .user = p.options->user};
    if (!result) result = &own;
    pi_status status = run(&p, &s, result, err);
    if (status == PI_OK && result->mode) tell_layers(&p);
    prepare_release(&p);
    file_scratch_remove(s.quantized);
    file_scratch_remove(s.converted);
    return status;
}
