/* drafting.c: creates the draft model and the speculator from the options. */
#include "drafting.h"

#include "overrides.h"

#include <math.h>

/* Tokens that a draft model evaluates at once while other texts wait; as in the scheduler. */
enum { PIECE_TOKENS = 64 };

static bool has_model(const cli_options *o) {
    return o->model_draft || o->hf_repo_draft;
}

/* A draft model turns speculation on. */
static option_spec kind_of(const cli_options *o) {
    return has_model(o) && !options_given(o, &o->spec) ? SPEC_AUTO : (option_spec)o->spec;
}

const char *drafting_kind(const cli_options *o) {
    static const char *const names[] = {"off", "ngram", "draft", "auto", "self", "mtp", "eagle3"};
    return names[kind_of(o)];
}

pi_status drafting_check(const cli_options *o, pi_error *err) {
    if (o->model_draft && o->hf_repo_draft)
        return error_set(err, PI_ERR_ARG, "two draft models: -md %.200s and -hfd %.200s: give one",
                         o->model_draft, o->hf_repo_draft);
    if (kind_of(o) == SPEC_DRAFT && !has_model(o))
        return error_set(err, PI_ERR_ARG, "no draft model: --spec draft: give one with -md FILE");
    if (kind_of(o) == SPEC_EAGLE3 && !has_model(o))
        return error_set(err, PI_ERR_ARG,
                         "no head that drafts: --spec eagle3: give its file with -md FILE");
    if (kind_of(o) == SPEC_SELF && has_model(o))
        return error_set(err, PI_ERR_ARG,
                         "two drafters: --spec self: the model drafts for itself: leave out -md or "
                         "-hfd, or --spec");
    bool loses = o->mode == PI_MODE_PREDICT || o->mode == PI_MODE_THRESHOLD ||
                 o->head == PI_HEAD_PREDICT || o->attn_blocks > 0;
    if (kind_of(o) == SPEC_SELF && loses)
        return error_set(err, PI_ERR_ARG,
                         "incompatible options: --spec self drafts with loss and verifies without: "
                         "leave out --mode predict or threshold, --head predict and --attn-blocks");
    if (o->draft_min > o->draft_max)
        return error_set(err, PI_ERR_ARG, "out of range: --draft-min %lld: --draft-max is %lld",
                         (long long)o->draft_min, (long long)o->draft_max);
    return PI_OK;
}

int32_t drafting_rows(const cli_options *o) {
    return kind_of(o) == SPEC_OFF ? 1 : 1 + (int32_t)o->draft_max;
}

/* Heads that draft, of the model's file or their own. */
static bool is_head(option_spec kind) {
    return kind == SPEC_MTP || kind == SPEC_EAGLE3;
}

/* A context of the draft model for all texts. */
static pi_status create_context(const cli_options *o, pi_mode mode, const pi_model *model,
                                int32_t n_texts, int32_t n_ctx, pi_context **out, pi_error *err) {
    int64_t n_all = (int64_t)n_texts * n_ctx;
    pi_context_options c = cli_context_options(o, n_all < INT32_MAX ? (int32_t)n_all : 0);
    c.mode = mode;
    c.cluster = NULL; /* drafts are rank 0's */
    c.threshold = NAN;
    c.max_batch = 0; /* the memory is the other context's */
    c.n_logits = n_texts;
    if (c.vram_budget != 0) c.vram_budget = PI_VRAM_FREE;
    return pi_context_create(model, &c, out, err);
}

/* The model drafts for itself, in the mode with a loss that it has data for. */
static pi_status open_self(const cli_options *o, const pi_model *model, int32_t n_texts,
                           int32_t n_ctx, drafting *d, pi_error *err) {
    pi_status status = PI_ERR_UNSUPPORTED;
    for (int mode = PI_MODE_PREDICT; mode <= PI_MODE_THRESHOLD && status == PI_ERR_UNSUPPORTED;
         mode++)
        status = create_context(o, (pi_mode)mode, model, n_texts, n_ctx, &d->context, err);
    if (status != PI_ERR_UNSUPPORTED) return status;
    return error_set(err, PI_ERR_UNSUPPORTED,
                     "no data for drafts: --spec self: the model has neither predictors nor "
                     "thresholds; `powerinfer prepare` adds them");
}

/* The draft model has separate files, device and cache types, and runs in the fastest mode that it
 * has data for; all other settings are the model's. */
static pi_status open_model(const cli_options *o, int32_t n_texts, int32_t n_ctx, drafting *d,
                            pi_error *err) {
    cli_options own = *o;
    own.model = o->model_draft;
    own.hf_repo = o->hf_repo_draft;
    own.hf_file = own.model_url = NULL;
    own.lora.count = 0;
    cli_overrides_clear(&own);
    own.pre = NULL;
    own.head = PI_HEAD_AUTO;
    own.cache_type_k = o->cache_type_k_draft;
    own.cache_type_v = o->cache_type_v_draft;
    own.gpu_layers = o->gpu_layers_draft;
    own.tensor_split.count = 0;
    own.override_tensor = o->override_tensor_draft;
    own.cpu_moe = o->cpu_moe_draft;
    own.n_cpu_moe = o->n_cpu_moe_draft;
    own.n_cpu_ffn = 0;
    if (options_given(o, &o->device_draft)) own.device = o->device_draft;
    pi_status status = cli_model_open(&own, false, &d->model, err);
    if (status != PI_OK) return status;
    return create_context(&own, PI_MODE_AUTO, d->model, n_texts, n_ctx, &d->context, err);
}

/* The path of -md or -hfd; NULL: neither is given. */
static pi_status draft_path(const cli_options *o, char path[OPTION_PATH_BYTES], const char **out,
                            pi_error *err) {
    cli_options own = *o;
    own.model = o->model_draft;
    own.hf_repo = o->hf_repo_draft;
    own.hf_file = own.model_url = NULL;
    *out = has_model(o) ? path : NULL;
    return has_model(o) ? cli_model_path(&own, path, OPTION_PATH_BYTES, err) : PI_OK;
}

static pi_status open_head(const cli_options *o, const pi_model *model, int32_t n_texts,
                           int32_t n_ctx, drafting *d, pi_error *err) {
    char path[OPTION_PATH_BYTES];
    const char *file;
    pi_status status = draft_path(o, path, &file, err);
    if (status == PI_OK) status = pi_model_open_drafter(model, file, 0, &d->model, err);
    if (status != PI_OK) return status;
    pi_model_info info;
    pi_model_get_info(d->model, &info);
    status = create_context(o, PI_MODE_AUTO, d->model, n_texts, n_ctx, &d->context, err);
    for (int32_t i = 1; i < info.n_draft_layer && i < PI_DRAFT_HEADS && status == PI_OK; i++) {
        pi_model **further = &d->chain_models[d->n_chain];
        status = pi_model_open_drafter(model, file, i, further, err);
        if (status != PI_OK) break;
        status = create_context(o, PI_MODE_AUTO, *further, n_texts, n_ctx, &d->chain[d->n_chain++],
                                err);
    }
    return status;
}

pi_status drafting_create(const cli_options *o, const pi_model *model, int32_t n_texts,
                          int32_t n_ctx, pi_context_options *context, drafting *d, pi_error *err) {
    option_spec kind = kind_of(o);
    *d = (drafting){.model = NULL};
    if (kind == SPEC_OFF) return PI_OK;
    pi_status status = PI_OK;
    if (is_head(kind))
        status = open_head(o, model, n_texts, n_ctx, d, err);
    else if (kind == SPEC_SELF)
        status = open_self(o, model, n_texts, n_ctx, d, err);
    else if (has_model(o) && kind >= SPEC_DRAFT)
        status = open_model(o, n_texts, n_ctx, d, err);
    if (status != PI_OK) return status;
    if (is_head(kind)) context->drafter = d->model;
    pi_speculator_options s = pi_speculator_default_options();
    s.model = model;
    s.ngrams = kind == SPEC_NGRAM || kind == SPEC_AUTO;
    s.draft_model = kind == SPEC_SELF ? model : d->model;
    s.draft_context = d->context;
    s.chain = d->chain;
    s.n_chain = d->n_chain;
    s.n_texts = n_texts;
    s.n_ctx = n_ctx;
    s.n_max = (int32_t)o->draft_max;
    s.n_min = (int32_t)o->draft_min;
    s.p_min = (float)o->draft_p_min;
    s.n_piece = (int32_t)o->batch_size;
    if (n_texts > 1 && s.n_piece > PIECE_TOKENS) s.n_piece = PIECE_TOKENS;
    return pi_speculator_create(&s, &d->speculator, err);
}

void drafting_free(drafting *d) {
    pi_speculator_destroy(d->speculator);
    for (int32_t i = 0; i < d->n_chain; i++) {
        pi_context_destroy(d->chain[i]);
        pi_model_close(d->chain_models[i]);
    }
    pi_context_destroy(d->context);
    pi_model_close(d->model);
    *d = (drafting){.model = NULL};
}
