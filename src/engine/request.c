/* request.c: checks the inputs of engine_forward and splits them into ubatches. A ubatch takes
 * tokens of all inputs in order, so that several sessions share one read of the weights. A text
 * that attends in both directions is not divided.
 *
 * With plan.few_only the result of a token depends only on its session. Kernels of few tokens
 * compute every token as if it were alone, with exceptions for tokens of the same session: the
 * position of the last token decides how attention is split, and recurrent layers take blocks of
 * tokens. So every token is a separate item. A session has only one recurrent state and one set of
 * block scores; if the model or attn_blocks needs either, the session's next token goes into the
 * next ubatch. With a GPU, whose kernels of one token and of few differ, every token gets a
 * separate ubatch. */
#include <limits.h>
#include <string.h>

#include "context.h"

/* ---- checking -------------------------------------------------------------------------------- */

pi_status request_check_tokens(const engine_context *c, const pi_input *in, pi_error *err) {
    for (int i = 0; i < in->n_tokens; i++)
        if (in->tokens[i] < 0 || in->tokens[i] >= c->cpu.model->hp.n_vocab)
            return error_set(err, PI_ERR_RANGE,
                             "token out of range: id %d at position %lld: the vocabulary has %d",
                             in->tokens[i], (long long)(in->session->length + i),
                             c->cpu.model->hp.n_vocab);
    return PI_OK;
}

/* The tokens of a text that attends in both directions are in one ubatch, and in no other call. */
static pi_status check_whole(const engine_context *c, const pi_input *in, pi_error *err) {
    if (in->session->length > 0)
        return error_set(err, PI_ERR_ARG,
                         "not a new text: forward: %s attends in both directions: give the whole "
                         "text to an empty session",
                         c->cpu.model->arch->name);
    if (in->n_tokens <= c->n_batch) return PI_OK;
    return error_set(
        err, PI_ERR_LIMIT,
        "text too long: forward: %d tokens in a batch of %d: %s needs the whole text in "
        "one batch; use a larger batch",
        in->n_tokens, c->n_batch, c->cpu.model->arch->name);
}

static pi_status check_input(const engine_context *c, const pi_input *in, pi_error *err) {
    const pi_session *s = in->session;
    if ((unsigned)in->logits > PI_LOGITS_ALL || (unsigned)in->hidden > PI_HIDDEN_ALL)
        return error_set(err, PI_ERR_ARG,
                         "bad input: forward: logits %d, hidden %d: use values of their lists",
                         (int)in->logits, (int)in->hidden);
    if (in->n_tokens < 1)
        return error_set(err, PI_ERR_ARG, "no tokens: forward: give every input at least one");
    if (s->in_pass)
        return error_set(err, PI_ERR_ARG,
                         "session in use: forward: another pass with it is under way");
    if (s->context != c || s->in_call)
        return error_set(err, PI_ERR_ARG,
                         "bad session: forward: a session must belong to the context and appear "
                         "once");
    if (!in->features != !c->cpu.model->draft.target)
        return error_set(err, PI_ERR_ARG,
                         "bad features: forward: heads that draft need them, models have none");
    if (in->n_drafts < 0 || in->n_drafts >= in->n_tokens)
        return error_set(err, PI_ERR_ARG,
                         "bad number of drafts: forward: %d of %d tokens: at least one is none",
                         in->n_drafts, in->n_tokens);
    if (in->logits != PI_LOGITS_NONE && !c->cpu.model->t[ROLE_OUTPUT].data)
        return error_set(
            err, PI_ERR_UNSUPPORTED,
            "no logits: forward: %s is an encoder, which computes embeddings only: use "
            "powerinfer embed, or pi_embed",
            c->cpu.model->arch->name);
    if (c->cpu.model->hp.bidirectional) {
        pi_status status = check_whole(c, in, err);
        if (status != PI_OK) return status;
    }
    if (in->n_tokens > s->kv.n_ctx - s->length)
        return error_set(
            err, PI_ERR_LIMIT,
            "context is full: forward: %lld tokens there and %d new ones do not fit into "
            "%lld; use a larger context",
            (long long)s->length, in->n_tokens, (long long)s->kv.n_ctx);
    return request_check_tokens(c, in, err);
}

int request_logits(const pi_input *inputs, int n_inputs) {
    int64_t rows = 0;
    for (int i = 0; i < n_inputs; i++) {
        if (inputs[i].logits == PI_LOGITS_LAST) rows += 1 + inputs[i].n_drafts;
        if (inputs[i].logits == PI_LOGITS_ALL) rows += inputs[i].n_tokens;
    }
    return rows < INT_MAX ? (int)rows : INT_MAX;
}

/* Marks the sessions to detect a session that appears twice. */
pi_status request_check(const engine_context *c, const pi_input *inputs, int n_inputs,
                        pi_error *err) {
    int64_t n_hidden = 0;
    if (n_inputs < 1 || n_inputs > c->n_batch)
        return error_set(err, PI_ERR_LIMIT, "bad number of inputs: %d: use 1 to %d", n_inputs,
                         c->n_batch);
    for (int i = 0; i < n_inputs; i++) inputs[i].session->in_call = false;
    for (int i = 0; i < n_inputs; i++) {
        pi_status status = check_input(c, &inputs[i], err);
        if (status != PI_OK) return status;
        inputs[i].session->in_call = true;
        if (inputs[i].hidden == PI_HIDDEN_LAST) n_hidden += 1;
        if (inputs[i].hidden == PI_HIDDEN_ALL) n_hidden += inputs[i].n_tokens;
    }
    int rows = request_logits(inputs, n_inputs);
    if (rows > c->n_logits)
        return error_set(err, PI_ERR_LIMIT,
                         "too many logits: forward: %d rows wanted, %d fit; ask for fewer per call",
                         rows, c->n_logits);
    if (n_hidden > c->n_batch)
        return error_set(err, PI_ERR_LIMIT,
                         "too many hidden states: forward: %lld rows wanted, %d fit; feed fewer "
                         "tokens per call",
                         (long long)n_hidden, c->n_batch);
    return PI_OK;
}

/* ---- ubatches -------------------------------------------------------------------------------- */

/* The first ubatch of a call reads the session's state, later ubatches read the new state. done:
 * tokens of earlier ubatches. */
static void set_state(ubatch_item *item, int done) {
    const recurrent_state *s = &item->session->state;
    if (s->n_floats == 0) return;
    item->state_from = recurrent_floats(s, done == 0 ? s->now : s->next);
    item->state_to = recurrent_floats(s, s->next);
    item->n_before = s->n_before - done;
    if (item->n_before >= 0 && item->n_before < item->n_tokens)
        item->state_before = recurrent_floats(s, s->before);
}

static void add_rows(engine_context *c, const pi_input *in, int done, int n) {
    engine_ubatch *u = &c->cpu.ubatch;
    ubatch_item *item = &c->cpu.ubatch.items[u->n_items++];
    const float *features = in->features;
    if (features) features += done * plan_residual_width(c->cpu.model);
    *item = (ubatch_item){.session = in->session,
                          .features = features,
                          .row = u->n_tokens,
                          .n_tokens = n,
                          .pos = in->session->length + done};
    set_state(item, done);
    for (int i = 0; i < n; i++) {
        int row = u->n_tokens + i;
        c->cpu.ubatch.tokens[row] = in->tokens[done + i];
        c->cpu.ubatch.positions[row] = item->pos + i;
        c->cpu.ubatch.item_of_row[row] = item;
        bool last = done + i == in->n_tokens - 1;
        bool late = done + i >= in->n_tokens - 1 - in->n_drafts;
        if (in->logits == PI_LOGITS_ALL || (in->logits == PI_LOGITS_LAST && late))
            c->cpu.ubatch.out_rows[u->n_out++] = row;
        if (in->hidden == PI_HIDDEN_ALL || (in->hidden == PI_HIDDEN_LAST && last))
            c->cpu.ubatch.hidden_rows[u->n_hidden++] = row;
    }
    u->n_tokens += n;
}

/* Maximum tokens of a ubatch. */
int request_max_tokens(const engine_context *c) {
    if (!c->options.plan.few_only) return c->n_batch;
    if (c->gpu.n_gpus > 0) return 1;
    return c->n_batch < PLAN_FFN_MAX_COLS ? c->n_batch : PLAN_FFN_MAX_COLS;
}

bool request_next_ubatch(engine_context *c, const pi_input *inputs, int n_inputs,
                         request_cursor *at) {
    c->cpu.ubatch.n_tokens = c->cpu.ubatch.n_items = c->cpu.ubatch.n_out = c->cpu.ubatch.n_hidden =
        0;
    memset(c->cpu.ubatch.streaming, 0, sizeof c->cpu.ubatch.streaming);
    const bool few_only = c->options.plan.few_only;
    const int most = request_max_tokens(c);
    while (at->index < n_inputs && c->cpu.ubatch.n_tokens < most) {
        const pi_input *in = &inputs[at->index];
        int room = few_only ? 1 : most - c->cpu.ubatch.n_tokens;
        if (c->cpu.model->hp.bidirectional && in->n_tokens > room) break;
        int n = in->n_tokens - at->done < room ? in->n_tokens - at->done : room;
        add_rows(c, in, at->done, n);
        at->done += n;
        if (at->done == in->n_tokens) {
            *at = (request_cursor){.index = at->index + 1};
            if (c->alone) break;
        } else if (few_only && (in->session->state.n_floats > 0 || in->session->blocks.data)) {
            break;
        }
    }
    return c->cpu.ubatch.n_tokens > 0;
}
