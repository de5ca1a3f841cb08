/* powerinfer_speculate.h: speculative decoding: a cheap drafter proposes the next tokens of a text,
 * and the model verifies them in one step, which reads the weights once for all of them (in a
 * sparse model, the neurons or experts that any of them selects).
 *
 * The text is the same as without drafts: a sampler chooses every token from the model's logits; a
 * drafted token only decides for which position logits are computed in advance. A draft model
 * samples with a copy of the sampler, random numbers included, so that similar distributions mostly
 * give the same token. (Only the last bits of the logits may differ between steps of one token and
 * of several: see docs/speculative.md.)
 *
 * Draft lengths follow from the measured acceptance rate and the measured time of a step by its
 * number of tokens. When drafts do not pay, none are made, except occasional trials.
 *
 * One step of several texts:
 *
 *     pi_draft drafts[] = {{.text = 0, .room = 16}, ...};
 *     pi_speculator_draft(speculator, drafts, n, 0, NULL);
 *     ... pi_forward: for each text its last token, then its drafts (pi_input.n_drafts)
 *     pi_speculator_measured(speculator, n_tokens_of_the_step, seconds);
 *     ... for each text, row by row:
 *     do {
 *         token = pi_sampler_sample(sampler, pi_logits(context, row++));
 *     } while (pi_speculator_accept(speculator, text, token) && !ended);
 *     n = length before the step + tokens sampled;
 *     pi_session_rewind(session, pi_session_rewind_point(session, n), NULL);
 *
 * With recurrent layers the rewind point may lie before n, never before the drafts: the next step
 * evaluates the tokens from there on again (pi_draft.n_again), before the text's last one.
 *
 * A speculator belongs to one thread at a time, and its draft context to it. */
#ifndef POWERINFER_SPECULATE_H
#define POWERINFER_SPECULATE_H

#include "powerinfer.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    PI_DRAFT_MAX = 64,       /* tokens of a draft, at most */
    PI_DRAFT_HEADS = 16,     /* heads of a chain, at most */
    PI_SPECULATE_TEXTS = 256 /* texts of a speculator, at most */
};

/* ---- heads that draft ----------------------------------------------------------------------- */

/* Opens a head that drafts for the model. path NULL: one of the model's own layers for multi-token
 * prediction; otherwise a file with such layers, or an EAGLE-3 head. layer: number of the layer, 0
 * to pi_model_info.n_draft_layer - 1; layer i drafts token i + 1 after the end of the text. The
 * model must stay open. The head has no tokenizer; its contexts run on the CPU. PI_ERR_NOT_FOUND:
 * the file has no such layer; PI_ERR_UNSUPPORTED; errors of pi_model_open. */
PI_API pi_status pi_model_open_drafter(const pi_model *model, const char *path, int32_t layer,
                                       pi_model **out, pi_error *err);

/* The features of the token at a position, [n_features of the head], which are the head's input
 * with the next token: computed by the model if its context has the head as
 * pi_context_options.drafter, or by the head for tokens that it drafts. Valid until the next
 * pi_forward; NULL: not kept. Only the last few thousand tokens have features, and tokens that were
 * loaded, copied or moved have none. */
PI_API const float *pi_session_features(const pi_session *session, int32_t position);
/* The first position from which on all features are kept; the session's length: none are. */
PI_API int32_t pi_session_features_first(const pi_session *session);

/* ---- drafts --------------------------------------------------------------------------------- */

typedef struct pi_speculator pi_speculator;

typedef struct pi_speculator_options {
    const pi_model *model; /* verifies the drafts */
    bool ngrams;           /* draft the tokens that followed the last n-gram earlier in the text */
    /* Draft with another model of the same vocabulary or a head; NULL: no. Model and context must
     * outlive the speculator; the context needs n_logits >= n_texts. */
    const pi_model *draft_model;
    pi_context *draft_context;
    /* A chain of heads: contexts of the layers that follow draft_model's layer, in order, n_chain
     * <= PI_DRAFT_HEADS - 1; NULL: draft_model drafts all tokens. A chain drafts at most one token
     * per head. */
    pi_context *const *chain;
    int32_t n_chain;
    int32_t n_texts; /* 1..PI_SPECULATE_TEXTS */
    int32_t n_ctx;   /* tokens of a text, at most */
    int32_t n_max;   /* tokens of a draft at most, 1..PI_DRAFT_MAX; default 16 */
    int32_t n_min;   /* tokens of a draft at least, else no draft; default 0: measured speeds
                        decide */
    float p_min; /* the draft model ends a draft before a token less likely than this; default 0 */
    int32_t n_piece; /* tokens of texts that the draft model evaluates per step; default 512 */
} pi_speculator_options;

PI_API pi_speculator_options pi_speculator_default_options(void);

/* PI_ERR_ARG: a number out of range, neither kind of draft, or a draft model of another vocabulary;
 * PI_ERR_NOMEM; errors of pi_session_create for the draft context. */
PI_API pi_status pi_speculator_create(const pi_speculator_options *options, pi_speculator **out,
                                      pi_error *err);
PI_API void pi_speculator_destroy(pi_speculator *speculator);

/* Begins text number `text` (0..n_texts - 1) with the tokens[n_tokens] that are in its session,
 * n_tokens <= n_ctx. `sampler`, which samples the text's tokens, must outlive the drafting. The
 * draft model reuses its KV state of the longest common prefix. PI_ERR_LIMIT, PI_ERR_NOMEM. */
PI_API pi_status pi_speculator_begin(pi_speculator *speculator, int32_t text, const int32_t *tokens,
                                     int32_t n_tokens, const pi_sampler *sampler, pi_error *err);
/* The next text with this number reuses no KV state of the previous one. */
PI_API void pi_speculator_forget(pi_speculator *speculator, int32_t text);
/* Appends a sampled token to the text. True: it is the next one of the draft, so there are logits
 * after it. */
PI_API bool pi_speculator_accept(pi_speculator *speculator, int32_t text, int32_t token);

typedef struct pi_draft {
    int32_t text;              /* in: number of a text with at least one token */
    int32_t room;              /* in: tokens that the caller can take, at most */
    int32_t n_again;           /* in: tokens of the text that the step evaluates again */
    const pi_session *session; /* in: with the text's tokens but the last one; only heads need it */
    int32_t n;                 /* out: drafted tokens, 0..room */
    const int32_t *tokens;     /* out: [n], valid until the next call */
} pi_draft;

/* Drafts for the next step, which evaluates the texts of drafts[n], each once, and one token of
 * each of n_others texts without drafts. A draft model that fails is not used again: its error is
 * returned once; the drafts are valid in this case as well. */
PI_API pi_status pi_speculator_draft(pi_speculator *speculator, pi_draft *drafts, int32_t n,
                                     int32_t n_others, pi_error *err);
/* Reports the time of a step with n_tokens tokens of all texts, unless it includes prefill. */
PI_API void pi_speculator_measured(pi_speculator *speculator, int32_t n_tokens, double seconds);

typedef struct pi_draft_counts {
    uint64_t drafted, accepted; /* tokens */
} pi_draft_counts;

/* Counts of a text since pi_speculator_begin. */
PI_API pi_draft_counts pi_speculator_counts(const pi_speculator *speculator, int32_t text);

/* ---- copies of samplers --------------------------------------------------------------------- */

/* A copy that samples the same tokens: options, history, random state and grammar state are equal.
 * PI_ERR_NOMEM. */
PI_API pi_status pi_sampler_clone(const pi_sampler *from, pi_sampler **out, pi_error *err);
/* Sets `to`, a clone of `from`, to the current state of `from`. Allocates nothing. */
PI_API void pi_sampler_copy(pi_sampler *to, const pi_sampler *from);

#ifdef __cplusplus
}
#endif
#endif
