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

/* Allocates the buffers that only heads need, and adds the contexts of the chain. */
static pi_status create_heads(draft_model *m, const pi_speculator_options *o, int32_t width,
                              pi_error *err) {
    size_t n = (size_t)o->n_piece, n_bytes = n * (size_t)width * sizeof *m->features;
    m->width = width;
    m->model = o->model; /* has the tokenizer */
    for (int32_t i = 0; i < o->n_chain; i++) {
        pi_model_info info;
        pi_model_get_info(pi_context_model(o->chain[i]), &info);
        if (!info.is_drafter || info.n_features != width || info.n_vocab != m->n_vocab)
            return error_set(err, PI_ERR_ARG,
                             "bad chain of heads that draft: context %d is not of such a head", i);
        m->contexts[m->n_contexts++] = o->chain[i];
    }
    m->features = mem_alloc(n_bytes);
    m->tokens = mem_calloc(n, sizeof *m->tokens);
    return m->features && m->tokens ? PI_OK : error_nomem(err, n_bytes, "draft model");
}

static pi_status create_readers(const draft_model *m, draft_text *t, int32_t n_ctx, pi_error *err) {
    pi_status status = PI_OK;
    for (int i = 0; i < m->n_contexts && status == PI_OK; i++) {
        draft_reader *r = &t->readers[i];
        r->read = mem_calloc((size_t)n_ctx, sizeof *r->read);
        status = r->read ? pi_session_create(m->contexts[i], n_ctx, &r->session, err)
                         : error_nomem(err, (size_t)n_ctx * sizeof *r->read, "draft model");
    }
    return status;
}

pi_status draft_model_create(draft_model *m, const pi_speculator_options *o, pi_error *err) {
    size_t n = (size_t)o->n_texts;
    pi_model_info info;
    pi_model_get_info(o->draft_model, &info);
    *m = (draft_model){.contexts = {o->draft_context}, .n_contexts = 1, .model = o->draft_model};
    m->n_vocab = info.n_vocab;
    m->is_head = info.is_drafter;
    if (o->n_chain > 0 && !m->is_head)
        return error_set(err, PI_ERR_ARG, "bad chain of heads that draft: draft_model is no head");
    pi_status status = m->is_head ? create_heads(m, o, info.n_features, err)
                                  : check_vocabulary(o->model, o->draft_model, err);
    if (status != PI_OK) return status;
    m->texts = mem_calloc(n, sizeof *m->texts);
    m->inputs = mem_calloc(n, sizeof *m->inputs);
    m->at = mem_calloc(n, sizeof *m->at);
    if (!m->texts || !m->inputs || !m->at)
        return error_nomem(err, n * sizeof *m->texts, "draft model");
    for (; m->n_texts < o->n_texts && status == PI_OK; m->n_texts++)
        status = create_readers(m, &m->texts[m->n_texts], o->n_ctx, err);
    return status;
}

void draft_model_free(draft_model *m) {
    for (int32_t i = 0; i < m->n_texts; i++) {
        pi_sampler_destroy(m->texts[i].sampler);
        for (int k = 0; k < m->n_contexts; k++) {
            pi_session_destroy(m->texts[i].readers[k].session);
            mem_free(m->texts[i].readers[k].read);
        }
    }
    mem_free(m->texts);
    mem_free(m->features);
    mem_free(m->tokens);
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
    for (int i = 0; i < m->n_contexts; i++) m->texts[text].readers[i].n_read = 0;
}

/* ---- drafting -------------------------------------------------------------------------------- */

/* The input that evaluates those tokens of the text that the session lacks, at most `budget`. */
static pi_status catch_up(draft_model *m, draft_job *j, int32_t budget, pi_input *in,
                          pi_error *err) {
    draft_reader *r = &m->texts[j->text].readers[0];
    int32_t same = common_prefix(r->read, r->n_read, j->tokens, j->n_tokens - 1);
    int32_t point = pi_session_rewind_point(r->session, same);
    pi_status status = pi_session_rewind(r->session, point, err);
    r->n_read = pi_session_length(r->session);
    if (status != PI_OK) return status;
    int32_t missing = j->n_tokens - r->n_read;
    j->ready = missing <= budget;
    *in = (pi_input){.session = r->session,
                     .tokens = j->tokens + r->n_read,
                     .n_tokens = j->ready ? missing : budget,
                     .logits = j->ready ? PI_LOGITS_LAST : PI_LOGITS_NONE};
    return PI_OK;
}

/* The features of the last token of a head's session. */
static const float *last_features(const draft_reader *r) {
    return pi_session_features(r->session, pi_session_length(r->session) - 1);
}

/* Collects the input of a head in m->tokens and m->features, from row `row` on: the text, then the
 * tokens that earlier heads drafted. If the session lacks features of the next tokens, the head
 * starts again at the first token that has features. in->n_tokens 0: nothing can be evaluated. */
static pi_status catch_up_head(draft_model *m, int head, draft_job *j, int32_t budget, int32_t row,
                               pi_input *in, pi_error *err) {
    draft_text *t = &m->texts[j->text];
    draft_reader *r = &t->readers[head];
    int32_t same = common_prefix(r->read, r->n_read, j->tokens, j->n_tokens);
    int32_t n = same - 1 - r->first, from = pi_session_features_first(j->session);
    if (n < 0 || r->first + n < from) {
        r->first = from;
        n = 0;
    }
    *in = (pi_input){.session = r->session};
    r->n_read = 0;
    pi_status status = pi_session_rewind(r->session, n, err);
    int32_t at = r->first + n, missing = j->n_tokens - 1 - at;
    if (status != PI_OK || missing < 1) return status;
    if (!pi_session_features(j->session, j->n_tokens - 2)) return PI_OK;
    r->n_read = at + 1;
    memcpy(r->read, j->tokens, (size_t)r->n_read * sizeof *r->read);
    j->ready = missing + head <= budget;
    const int32_t n_text = missing <= budget ? missing : budget;
    in->tokens = m->tokens + row;
    in->n_tokens = j->ready ? missing + head : n_text;
    in->logits = j->ready ? PI_LOGITS_LAST : PI_LOGITS_NONE;
    in->features = m->features + (size_t)row * (size_t)m->width;
    for (int32_t i = 0; i < in->n_tokens; i++) {
        const int32_t drafted = i - n_text; /* number of the head that drafted it; < 0: text */
        m->tokens[row + i] = drafted < 0 ? j->tokens[r->n_read + i] : j->draft[drafted];
        memcpy(m->features + (size_t)(row + i) * (size_t)m->width,
               drafted < 0 ? pi_session_features(j->session, at + i)
                           : last_features(&t->readers[drafted]),
               (size_t)m->width * sizeof *m->features);
    }
    return PI_OK;
}

/* Evaluates the missing tokens of the texts of at[*n], at most n_piece tokens. Jobs that had no
 * input are removed from at[*n]. *n_extra: evaluated tokens beyond one per text. */
static pi_status read_texts(draft_model *m, int head, int32_t n_piece, int32_t *n, int32_t *n_extra,
                            pi_error *err) {
    int32_t kept = 0, row = 0;
    pi_status status = PI_OK;
    for (int32_t i = 0; i < *n && row < n_piece && status == PI_OK; i++) {
        draft_job *j = m->at[i];
        pi_input *in = &m->inputs[kept];
        status = m->is_head ? catch_up_head(m, head, j, n_piece - row, row, in, err)
                            : catch_up(m, j, n_piece - row, in, err);
        if (status != PI_OK || in->n_tokens == 0) continue;
        row += in->n_tokens;
        m->at[kept++] = j;
    }
    *n = kept;
    *n_extra = row - kept;
    if (status == PI_OK && kept > 0) status = pi_forward(m->contexts[head], m->inputs, kept, err);
    for (int32_t i = 0; i < kept && status == PI_OK; i++) {
        const pi_input *in = &m->inputs[i];
        draft_reader *r = &m->texts[m->at[i]->text].readers[head];
        const int32_t n_text = in->n_tokens - (m->at[i]->ready ? head : 0);
        memcpy(r->read + r->n_read, in->tokens, (size_t)n_text * sizeof *r->read);
        r->n_read += n_text;
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

/* Evaluates the last drafted token of each text of at[n]. */
static pi_status read_drafts(draft_model *m, int32_t n, pi_error *err) {
    for (int32_t i = 0; i < n; i++) {
        draft_job *j = m->at[i];
        draft_reader *r = &m->texts[j->text].readers[0];
        m->inputs[i] = (pi_input){.session = r->session,
                                  .tokens = &j->draft[j->n - 1],
                                  .n_tokens = 1,
                                  .logits = PI_LOGITS_LAST,
                                  .features = m->is_head ? last_features(r) : NULL};
    }
    pi_status status = pi_forward(m->contexts[0], m->inputs, n, err);
    /* heads evaluate these tokens again, with the model's features */
    for (int32_t i = 0; i < n && status == PI_OK && !m->is_head; i++) {
        draft_reader *r = &m->texts[m->at[i]->text].readers[0];
        r->read[r->n_read++] = *m->inputs[i].tokens;
    }
    return status;
}

/* Drafts for n inputs, starting from their logits; *depth: tokens of the longest draft. */
static pi_status draft_on(draft_model *m, int32_t n, const pi_speculator_options *o, int32_t *depth,
                          pi_error *err) {
    const bool chain = m->n_contexts > 1;
    pi_status status = PI_OK;
    for (*depth = 0; n > 0 && status == PI_OK; ++*depth) {
        int32_t row = 0, kept = 0, n_extra;
        pi_context *c = m->contexts[chain ? *depth : 0];
        for (int32_t i = 0; i < n; i++) {
            draft_job *j = m->at[i];
            if (m->inputs[i].logits == PI_LOGITS_NONE) continue;
            if (draft_token(m, j, pi_logits(c, row++), o->p_min)) m->at[kept++] = j;
        }
        n = chain && *depth + 1 == m->n_contexts ? 0 : kept;
        if (n == 0) continue;
        status = chain ? read_texts(m, *depth + 1, o->n_piece, &n, &n_extra, err)
                       : read_drafts(m, n, err);
    }
    return status;
}

pi_status draft_model_run(draft_model *m, draft_job *jobs, int32_t n_jobs,
                          const pi_speculator_options *o, pi_error *err) {
    int32_t n = n_jobs, n_extra, depth = 0;
    double start = clock_seconds();
    for (int32_t i = 0; i < n; i++) m->at[i] = &jobs[i];
    pi_status status = read_texts(m, 0, o->n_piece, &n, &n_extra, err);
    for (int32_t i = 0; i < n && status == PI_OK; i++)
        if (m->at[i]->ready) pi_sampler_copy(m->texts[m->at[i]->text].sampler, m->at[i]->sampler);
    if (status == PI_OK) status = draft_on(m, n, o, &depth, err);
    if (status == PI_OK && depth > 0 && n_extra <= MEASURED_TOKENS)
        pace_time_add(&m->each, (clock_seconds() - start) / depth);
    return status;
}
