/* generate_loop.c: prefill, then for each token: sample it, send its text to the caller, evaluate
 * it.
 *
 * The last sampled token is not evaluated, because its logits are not needed. So with a context of
 * n tokens, a prompt of n tokens still gives one token.
 *
 * A shift makes room in a full session as llama.cpp does: the first n_keep tokens stay, half of the
 * others are dropped. The remaining tokens are evaluated again at their new positions, which costs
 * a prefill but is correct for every position encoding and cache type. */
#include <string.h>

#include "clock.h"
#include "error.h"
#include "mem.h"
#include "powerinfer_generation.h"
#include "powerinfer_speculate.h"

typedef struct job {
    pi_context *context;
    pi_session *session;
    const pi_generate_options *o;
    pi_sampler *sampler;
    pi_sampler *own_sampler; /* used when the caller passes none */
    pi_generation *text;
    const int32_t *prompt; /* [n_prompt] */
    int32_t n_prompt;
    int32_t *own_prompt; /* tokens of a prompt given as text */
    int32_t n_past;      /* tokens of prompt and text in the session; drafted ones may follow */
    int32_t row;         /* row of logits of the next token */
    int32_t *tokens; /* [capacity of the session] tokens of prompt, text and draft, by position */
    pi_generated *out;
} job;

pi_generate_options pi_generate_default_options(void) {
    return (pi_generate_options){.max_tokens = -1};
}

/* ---- evaluating ------------------------------------------------------------------------------ */

/* Prefill, one ubatch per call as pi_forward would split it, so that progress can be reported.
 * Several machines need more ubatches, which they compute at the same time. */
static pi_status prefill(job *j, pi_error *err) {
    enum { UBATCHES_OF_MACHINES = 8 };
    int32_t n_batch = pi_context_batch(j->context), n_cached = j->out->n_cached;
    int32_t total = j->n_prompt - n_cached;
    if (pi_context_passes(j->context) > 1) n_batch *= UBATCHES_OF_MACHINES;
    for (int32_t done = 0; done < total;) {
        int32_t left = total - done;
        pi_input input = {.session = j->session,
                          .tokens = j->prompt + n_cached + done,
                          .n_tokens = left < n_batch ? left : n_batch};
        bool last = input.n_tokens == left && j->o->max_tokens != 0;
        input.logits = last ? PI_LOGITS_LAST : PI_LOGITS_NONE;
        pi_status status = pi_forward(j->context, &input, 1, err);
        if (status != PI_OK) return status;
        done += input.n_tokens;
        if (j->o->progress && !j->o->progress(j->o->user, "prefill", (double)done / total))
            return error_set(err, PI_ERR_CANCELLED, "cancelled: prefill");
    }
    return PI_OK;
}

/* Evaluates again the tokens at positions from the session's length to `end`. */
static pi_status evaluate_again(job *j, int32_t end, pi_error *err) {
    int32_t n_batch = pi_context_batch(j->context), at = pi_session_length(j->session);
    pi_status status = PI_OK;
    while (at < end && status == PI_OK) {
        pi_input input = {.session = j->session,
                          .tokens = j->tokens + at,
                          .n_tokens = end - at < n_batch ? end - at : n_batch};
        status = pi_forward(j->context, &input, 1, err);
        at += input.n_tokens;
    }
    return status;
}

/* Tokens that a shift would drop. */
static int32_t shift_size(const job *j) {
    return j->o->shift ? (j->n_past - j->o->n_keep) / 2 : 0;
}

/* With recurrent layers, some of the first n_keep tokens may also need another evaluation. */
static pi_status shift_session(job *j, pi_error *err) {
    int32_t n_keep = j->o->n_keep, dropped = shift_size(j), end = j->n_past - dropped;
    int32_t *moved = j->tokens + n_keep;
    pi_status status = pi_session_rewind(j->session, pi_session_rewind_point(j->session, n_keep),
                                         err);
    memmove(moved, moved + dropped, (size_t)(end - n_keep) * sizeof *moved);
    if (status == PI_OK) status = evaluate_again(j, n_keep, err);
    if (status == PI_OK) status = evaluate_again(j, end, err);
    j->out->n_shifts++;
    j->n_past = pi_session_length(j->session);
    return status;
}

/* ---- drafts ---------------------------------------------------------------------------------- */

/* Adds the drafts since begin_drafts to the counts. */
static void count_drafts(job *j) {
    if (!j->o->speculator) return;
    pi_draft_counts n = pi_speculator_counts(j->o->speculator, 0);
    j->out->n_drafted += n.drafted;
    j->out->n_accepted += n.accepted;
}

/* Resets the speculator to the text in the session. */
static pi_status begin_drafts(job *j, pi_error *err) {
    if (!j->o->speculator) return PI_OK;
    return pi_speculator_begin(j->o->speculator, 0, j->tokens, j->n_past, j->sampler, err);
}

/* Removes drafted tokens that were not sampled from the session. With recurrent layers this may
 * also remove sampled tokens, which are evaluated again with the next token. */
static pi_status drop_drafts(job *j, pi_error *err) {
    if (pi_session_length(j->session) == j->n_past) return PI_OK;
    return pi_session_rewind(j->session, pi_session_rewind_point(j->session, j->n_past), err);
}

/* Computes the logits after a sampled token, and after each token of its draft, from row 0 on. */
static pi_status next_logits(job *j, int32_t token, pi_error *err) {
    pi_speculator *speculator = j->o->speculator;
    pi_status status = drop_drafts(j, err);
    if (status == PI_OK && j->n_past == pi_session_capacity(j->session)) {
        status = shift_session(j, err);
        if (status == PI_OK) {
            count_drafts(j);
            status = begin_drafts(j, err);
        }
        if (speculator) pi_speculator_accept(speculator, 0, token);
    }
    if (status != PI_OK) return status;
    int32_t first = pi_session_length(j->session), again = j->n_past - first;
    int32_t room = pi_session_capacity(j->session) - j->n_past - 1;
    int64_t left = j->o->max_tokens < 0 ? INT32_MAX : j->o->max_tokens - (int64_t)j->out->n_tokens;
    pi_draft draft = {.session = j->session,
                      .room = left - 1 < room ? (int32_t)(left - 1) : room,
                      .n_again = again};
    pi_error why;
    if (speculator && pi_speculator_draft(speculator, &draft, 1, 0, &why) != PI_OK)
        j->out->draft_error = why;
    j->tokens[j->n_past] = token;
    if (draft.n > 0)
        memcpy(j->tokens + j->n_past + 1, draft.tokens, (size_t)draft.n * sizeof *j->tokens);
    pi_input step = {.session = j->session,
                     .tokens = j->tokens + first,
                     .n_tokens = again + 1 + draft.n,
                     .logits = PI_LOGITS_LAST,
                     .n_drafts = draft.n};
    double start = clock_seconds();
    status = pi_forward(j->context, &step, 1, err);
    if (status != PI_OK) return status;
    if (speculator) pi_speculator_measured(speculator, step.n_tokens, clock_seconds() - start);
    j->row = 0;
    j->n_past++;
    j->out->n_decoded++;
    j->out->n_steps++;
    return PI_OK;
}

/* ---- the text -------------------------------------------------------------------------------- */

static void pass_on(job *j, int32_t token, const pi_released *r) {
    if (!j->o->piece || (token < 0 && r->n_bytes == 0)) return;
    if (j->o->piece(j->o->user, token, r->text, r->n_bytes)) return;
    if (j->out->stop == PI_STOP_NONE) j->out->stop = PI_STOP_CANCELLED;
}

/* Appends the token to the text. A drafted token is already in the session. */
static pi_status take_token(job *j, const pi_sampled *next, bool drafted, pi_error *err) {
    pi_released r;
    pi_status status = pi_generation_accept(j->text, next, &r, err);
    if (status != PI_OK) return status;
    j->out->n_tokens += !next->end;
    j->out->stop = r.stop;
    pass_on(j, next->end ? -1 : next->token, &r);
    bool full = !drafted && j->n_past == pi_session_capacity(j->session) && shift_size(j) == 0;
    if (j->out->stop != PI_STOP_NONE || !full) return PI_OK;
    j->out->stop = PI_STOP_LENGTH;
    j->out->session_full = true;
    pi_generation_end(j->text, PI_STOP_LENGTH, &r);
    pass_on(j, -1, &r);
    return PI_OK;
}

static pi_status decode(job *j, pi_error *err) {
    pi_status status = begin_drafts(j, err);
    if (j->o->max_tokens == 0) j->out->stop = PI_STOP_LENGTH;
    while (status == PI_OK && j->out->stop == PI_STOP_NONE) {
        pi_sampled next;
        status = pi_generation_sample(j->text, pi_logits(j->context, j->row), &next, err);
        if (status != PI_OK) break;
        bool drafted = !next.end && j->o->speculator &&
                       pi_speculator_accept(j->o->speculator, 0, next.token);
        if (drafted) { /* the token is in the session, and its logits are in the next row */
            j->row++;
            j->n_past++;
            j->out->n_decoded++;
        }
        status = take_token(j, &next, drafted, err);
        if (status == PI_OK && j->out->stop == PI_STOP_NONE && !drafted)
            status = next_logits(j, next.token, err);
    }
    count_drafts(j);
    pi_status dropped = drop_drafts(j, status == PI_OK ? err : NULL);
    if (status == PI_OK) status = dropped;
    return status == PI_OK ? evaluate_again(j, j->n_past, err) : status;
}

/* ---- the call -------------------------------------------------------------------------------- */

static pi_status tokenize(job *j, pi_error *err) {
    enum { FLAGS = PI_TOKENIZE_BOS | PI_TOKENIZE_SPECIAL, MORE = 4 /* BOS, EOS, a blank */ };
    const pi_model *model = pi_context_model(j->context);
    size_t n_text = strlen(j->o->prompt), capacity = n_text + MORE, n = 0;
    pi_status status = PI_ERR_LIMIT;
    while (status == PI_ERR_LIMIT) {
        mem_free(j->own_prompt);
        j->own_prompt = mem_alloc(capacity * sizeof *j->own_prompt);
        if (!j->own_prompt) return error_nomem(err, capacity * sizeof *j->own_prompt, "prompt");
        status = pi_tokenize(model, j->o->prompt, n_text, FLAGS, j->own_prompt, capacity, &n, err);
        if (status == PI_ERR_LIMIT && n <= capacity) return status; /* not the capacity */
        capacity = n;
    }
    if (status != PI_OK) return status;
    if (n > INT32_MAX) return error_set(err, PI_ERR_LIMIT, "the prompt has %zu tokens", n);
    j->prompt = j->own_prompt;
    j->n_prompt = (int32_t)n;
    return PI_OK;
}

static pi_status set_up(job *j, pi_error *err) {
    const pi_generate_options *o = j->o;
    const pi_model *model = pi_context_model(j->context);
    pi_status status = o->prompt ? tokenize(j, err) : PI_OK;
    if (status != PI_OK) return status;
    j->out->n_prompt = j->n_prompt;
    j->out->n_cached = pi_session_length(j->session);
    if (j->out->n_cached >= j->n_prompt)
        return error_set(err, PI_ERR_ARG,
                         "no tokens: generation: the prompt has %d, the session %d of them",
                         j->n_prompt, j->out->n_cached);
    if (o->n_keep < 0 || o->n_keep > j->n_prompt)
        return error_set(err, PI_ERR_ARG, "out of range: n_keep is %d: the prompt has %d tokens",
                         o->n_keep, j->n_prompt);
    if (!o->sampler) {
        status = pi_sampler_create(model, NULL, &j->own_sampler, err);
        j->sampler = j->own_sampler;
    }
    if (status != PI_OK) return status;
    const pi_generation_options text = {.sampler = j->sampler,
                                        .max_tokens = o->max_tokens,
                                        .stops = o->stops,
                                        .n_stops = o->n_stops,
                                        .keep_stop = o->keep_stop};
    status = pi_generation_create(model, &text, &j->text, err);
    if (status != PI_OK) return status;
    int32_t capacity = pi_session_capacity(j->session);
    size_t n_bytes = (size_t)capacity * sizeof *j->tokens;
    j->tokens = mem_alloc(n_bytes);
    if (!j->tokens) return error_nomem(err, n_bytes, "tokens of a session");
    int32_t n = j->n_prompt < capacity ? j->n_prompt : capacity; /* prefill refuses more */
    memcpy(j->tokens, j->prompt, (size_t)n * sizeof *j->tokens);
    return PI_OK;
}

pi_status pi_generate(pi_context *context, pi_session *session, const pi_generate_options *options,
                      pi_generated *out, pi_error *err) {
    pi_generated ignored;
    pi_error why = {.status = PI_OK};
    job j = {.context = context,
             .session = session,
             .o = options,
             .sampler = options->sampler,
             .prompt = options->tokens,
             .n_prompt = options->n_tokens,
             .out = out ? out : &ignored};
    *j.out = (pi_generated){.stop = PI_STOP_NONE};
    pi_status status = set_up(&j, &why);
    for (int32_t i = 0; i < j.n_prompt && status == PI_OK; i++)
        pi_sampler_accept(j.sampler, j.prompt[i]);
    double start = clock_seconds();
    if (status == PI_OK) status = prefill(&j, &why);
    if (status == PI_OK) {
        double middle = clock_seconds();
        j.out->prompt_seconds = middle - start;
        j.n_past = pi_session_length(session);
        status = decode(&j, &why);
        j.out->decode_seconds = clock_seconds() - middle;
    }
    if (status == PI_ERR_CANCELLED) {
        pi_released r;
        status = PI_OK;
        j.out->stop = PI_STOP_CANCELLED;
        pi_generation_end(j.text, PI_STOP_CANCELLED, &r);
        pass_on(&j, -1, &r);
    }
    if (status != PI_OK && err) *err = why;
    pi_generation_free(j.text);
    pi_sampler_destroy(j.own_sampler);
    mem_free(j.own_prompt);
    mem_free(j.tokens);
    return status;
}
