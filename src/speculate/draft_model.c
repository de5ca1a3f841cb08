/* draft_model.c: drafts for all texts together: one pi_forward of the draft model per token. */
#include "draft_model.h"

#include <math.h>
#include <string.h>

#include "clock.h"
#include "common_prefix.h"
#include "error.h"
#include "mem.h"

/* The time of the first step counts only if it evaluates at most so many tokens beyond one per
 * text. */
enum { MEASURED_TOKENS = 4 };

/* ---- creation -------------------------------------------------------------------------------- */

enum { PIECE_MAX = 512 }; /* bytes; no token of any vocabulary comes near */

/* A token's text; false: there is no such token. */
static bool token_text(const pi_model *m, int32_t n_vocab, int32_t token, char *text, size_t *n) {
    *n = 0;
    return token < n_vocab &&
           pi_token_text(m, token, true, text, PIECE_MAX, n, NULL) != PI_ERR_RANGE;
}

/* Both vocabularies must agree; padding at the end of a vocabulary does not count. */
static pi_status check_vocabulary(const pi_model *model, const pi_model *draft, pi_error *err) {
    pi_model_info info, other;
    char a[PIECE_MAX], b[PIECE_MAX];
    size_t n_a, n_b;
    pi_model_get_info(model, &info);
    pi_model_get_info(draft, &other);
    if (!info.has_tokenizer || !other.has_tokenizer) {
        if (info.has_tokenizer == other.has_tokenizer && info.n_vocab == other.n_vocab)
            return PI_OK;
        return error_set(err, PI_ERR_ARG,
                         "vocabularies differ: draft model: %d tokens, the model has %d",
                         other.n_vocab, info.n_vocab);
    }
    int32_t most = info.n_vocab > other.n_vocab ? info.n_vocab : other.n_vocab;
    for (int32_t i = 0; i < most; i++) {
        bool is_a = token_text(model, info.n_vocab, i, a, &n_a);
        bool is_b = token_text(draft, other.n_vocab, i, b, &n_b);
        bool same = is_a == is_b && n_a == n_b && memcmp(a, b, n_a < PIECE_MAX ? n_a : 0) == 0;
        if (same && is_a) same = pi_token_is_end(model, i) == pi_token_is_end(draft, i);
        if (!same)
            return error_set(err, PI_ERR_ARG,
                             "vocabularies differ: draft model: token %d is not the model's: use a "
                             "draft model of the same family",
                             i);
    }
    return PI_OK;
}

/* Allocates the buffers of a head, which a draft model does not have. */
static pi_status create_head(draft_model *m, const pi_speculator_options *o, int32_t width,
                             pi_error *err) {
    size_t n_floats = (size_t)o->n_piece * (size_t)width;
    m->width = width;
    m->model = o->model; /* has the tokenizer */
    m->features = mem_alloc(n_floats * sizeof *m->features);
    if (!m->features) return error_nomem(err, n_floats * sizeof *m->features, "draft model");
    return PI_OK;
}

pi_status draft_model_create(draft_model *m, const pi_speculator_options *o, pi_error *err) {
    size_t n = (size_t)o->n_texts;
    pi_model_info info;
    pi_model_get_info(o->draft_model, &info);
    *m = (draft_model){.context = o->draft_context, .model = o->draft_model};
    m->n_vocab = info.n_vocab;
    m->is_head = info.is_drafter;
    pi_status status = m->is_head ? create_head(m, o, info.n_embd, err)
                                  : check_vocabulary(o->model, o->draft_model, err);
    if (status != PI_OK) return status;
    m->texts = mem_calloc(n, sizeof *m->texts);
    m->inputs = mem_calloc(n, sizeof *m->inputs);
    m->at = mem_calloc(n, sizeof *m->at);
    if (!m->texts || !m->inputs || !m->at)
        return error_nomem(err, n * sizeof *m->texts, "draft model");
    for (; m->n_texts < o->n_texts && status == PI_OK; m->n_texts++) {
        draft_text *t = &m->texts[m->n_texts];
        t->read = mem_calloc((size_t)o->n_ctx, sizeof *t->read);
        status = t->read ? pi_session_create(m->context, o->n_ctx, &t->session, err)
                         : error_nomem(err, (size_t)o->n_ctx * sizeof *t->read, "draft model");
    }
    return status;
}

void draft_model_free(draft_model *m) {
    for (int32_t i = 0; i < m->n_texts; i++) {
        pi_sampler_destroy(m->texts[i].sampler);
        pi_session_destroy(m->texts[i].session);
        mem_free(m->texts[i].read);
    }
    mem_free(m->texts);
    mem_free(m->features);
    mem_free(m->inputs);
    mem_free(m->at);
    *m = (draft_model){.n_texts = 0};
}

pi_status draft_model_begin(draft_model *m, int32_t text, const pi_sampler *sampler,
                            pi_error *err) {
    draft_text *t = &m->texts[text];
    pi_sampler_destroy(t->sampler);
    t->sampler = NULL;
    return pi_sampler_clone(sampler, &t->sampler, err);
}

void draft_model_forget(draft_model *m, int32_t text) {
    m->texts[text].n_read = 0;
}

/* ---- drafting -------------------------------------------------------------------------------- */

/* The input that evaluates those tokens of the text that the session lacks, at most `budget`. */
static pi_status catch_up(draft_model *m, draft_job *j, int32_t budget, pi_input *in,
                          pi_error *err) {
    draft_text *t = &m->texts[j->text];
    int32_t same = common_prefix(t->read, t->n_read, j->tokens, j->n_tokens - 1);
    int32_t point = pi_session_rewind_point(t->session, same);
    pi_status status = pi_session_rewind(t->session, point, err);
    t->n_read = pi_session_length(t->session);
    if (status != PI_OK) return status;
    int32_t missing = j->n_tokens - t->n_read;
    j->ready = missing <= budget;
    *in = (pi_input){.session = t->session,
                     .tokens = j->tokens + t->n_read,
                     .n_tokens = j->ready ? missing : budget,
                     .logits = j->ready ? PI_LOGITS_LAST : PI_LOGITS_NONE};
    return PI_OK;
}

/* Collects the input of a head, which includes features: `features` has room for `budget` of them.
 * If the session lacks features of the next tokens, the head starts again at the first token that
 * has features. in->n_tokens 0: nothing can be evaluated. */
static pi_status catch_up_head(draft_model *m, draft_job *j, int32_t budget, float *features,
                               pi_input *in, pi_error *err) {
    draft_text *t = &m->texts[j->text];
    int32_t same = common_prefix(t->read, t->n_read, j->tokens, j->n_tokens);
    int32_t n = same - 1 - t->first, from = pi_session_features_first(j->session);
    if (n < 0 || t->first + n < from) {
        t->first = from;
        n = 0;
    }
    *in = (pi_input){.session = t->session};
    t->n_read = 0;
    pi_status status = pi_session_rewind(t->session, n, err);
    int32_t at = t->first + n, missing = j->n_tokens - 1 - at;
    if (status != PI_OK || missing < 1) return status;
    if (!pi_session_features(j->session, j->n_tokens - 2)) return PI_OK;
    t->n_read = at + 1;
    memcpy(t->read, j->tokens, (size_t)t->n_read * sizeof *t->read);
    j->ready = missing <= budget;
    in->tokens = j->tokens + t->n_read;
    in->n_tokens = j->ready ? missing : budget;
    in->logits = j->ready ? PI_LOGITS_LAST : PI_LOGITS_NONE;
    in->features = features;
    for (int32_t i = 0; i < in->n_tokens; i++)
        memcpy(features + (size_t)i * (size_t)m->width, pi_session_features(j->session, at + i),
               (size_t)m->width * sizeof *features);
    return PI_OK;
}

static pi_status forward(draft_model *m, int32_t n, pi_error *err) {
    pi_status status = n > 0 ? pi_forward(m->context, m->inputs, n, err) : PI_OK;
    for (int32_t i = 0; i < n && status == PI_OK; i++) {
        draft_text *t = &m->texts[m->at[i]->text];
        memcpy(t->read + t->n_read, m->inputs[i].tokens,
               (size_t)m->inputs[i].n_tokens * sizeof *t->read);
        t->n_read += m->inputs[i].n_tokens;
    }
    return status;
}

/* Drafts the next token; false: the draft ends here. End tokens are not drafted: nothing follows
 * them, and the model samples them in its next step anyway. */
static bool draft_token(draft_model *m, draft_job *j, const float *logits, float p_min) {
    int32_t token = pi_sampler_sample(m->texts[j->text].sampler, logits);
    if (token < 0 || pi_token_is_end(m->model, token)) return false;
    double sum = 0; /* 1 / sum: the probability of the token by the draft model */
    for (int32_t i = 0; i < m->n_vocab && p_min > 0; i++)
        sum += exp((double)logits[i] - (double)logits[token]);
    if (p_min > 0 && 1 / sum < (double)p_min) return false;
    j->draft[j->n++] = token;
    return j->n < j->n_wanted;
}

/* Drafts for n inputs, starting from their logits; *depth: tokens of the longest draft. */
static pi_status draft_on(draft_model *m, int32_t n, float p_min, int32_t *depth, pi_error *err) {
    pi_status status = PI_OK;
    for (*depth = 0; n > 0 && status == PI_OK; ++*depth) {
        int32_t row = 0, kept = 0;
        for (int32_t i = 0; i < n; i++) {
            draft_job *j = m->at[i];
            if (m->inputs[i].logits == PI_LOGITS_NONE) continue;
            if (!draft_token(m, j, pi_logits(m->context, row++), p_min)) continue;
            pi_session *session = m->texts[j->text].session;
            m->at[kept] = j;
            m->inputs[kept] = (pi_input){.session = session,
                                         .tokens = &j->draft[j->n - 1],
                                         .n_tokens = 1,
                                         .logits = PI_LOGITS_LAST};
            if (m->is_head)
                m->inputs[kept].features = pi_session_features(session,
                                                               pi_session_length(session) - 1);
            kept++;
        }
        n = kept;
        if (m->is_head) /* these tokens are evaluated again, with the model's features */
            status = n > 0 ? pi_forward(m->context, m->inputs, n, err) : PI_OK;
        else
            status = forward(m, n, err);
    }
    return status;
}

pi_status draft_model_run(draft_model *m, draft_job *jobs, int32_t n_jobs,
                          const pi_speculator_options *o, pi_error *err) {
    int32_t n = 0, budget = o->n_piece, depth = 0;
    double start = clock_seconds();
    pi_status status = PI_OK;
    for (int32_t i = 0; i < n_jobs && budget > 0 && status == PI_OK; i++) {
        draft_job *j = &jobs[i];
        float *features = m->is_head
                              ? m->features + (size_t)(o->n_piece - budget) * (size_t)m->width
                              : NULL;
        status = m->is_head ? catch_up_head(m, j, budget, features, &m->inputs[n], err)
                            : catch_up(m, j, budget, &m->inputs[n], err);
        if (status != PI_OK) break;
        if (m->inputs[n].n_tokens == 0) continue;
        if (j->ready) pi_sampler_copy(m->texts[j->text].sampler, j->sampler);
        budget -= m->inputs[n].n_tokens;
        m->at[n++] = j;
    }
    int32_t n_extra = o->n_piece - budget - n;
    if (status == PI_OK) status = forward(m, n, err);
    if (status == PI_OK) status = draft_on(m, n, o->p_min, &depth, err);
    if (status == PI_OK && depth > 0 && n_extra <= MEASURED_TOKENS)
        pace_time_add(&m->each, (clock_seconds() - start) / depth);
    return status;
}
