/* draft_model.h: drafts of a second, smaller model, or of a head: its sessions, kept in step with
 * the texts. Private to src/speculate.
 *
 * Every text has a session and a copy of the sampler. Before it drafts, the session is rewound to
 * the longest common prefix with the text and evaluates the rest; so no call is necessary when
 * drafts are rejected, texts end or others begin.
 *
 * A head evaluates a token with the features of the token before it, so its session is a token
 * shorter than the text, and it begins where the text's session keeps features. For its own drafts
 * it uses its own features; these tokens are evaluated again when the model has accepted them.
 *
 * In a chain of heads, head i drafts token i + 1 after the end of the text. It reads the text with
 * the model's features, then the tokens that earlier heads drafted, each with the features of the
 * head that drafted it (as in llama.cpp). */
#ifndef SPECULATE_DRAFT_MODEL_H
#define SPECULATE_DRAFT_MODEL_H

#include "draft_pace.h"
#include "powerinfer_speculate.h"

/* A text's session in one context. */
typedef struct draft_reader {
    pi_session *session;
    int32_t *read; /* [n_ctx], tokens in the session; heads: also the tokens before them */
    int32_t n_read;
    int32_t first; /* heads: the session begins with token first + 1; other models: 0 */
} draft_reader;

typedef struct draft_text {
    draft_reader readers[PI_DRAFT_HEADS]; /* one for each context */
    pi_sampler *sampler;                  /* a clone of the text's; NULL: no text yet */
} draft_text;

typedef struct draft_model {
    pi_context *contexts[PI_DRAFT_HEADS]; /* the draft model's, or those of a chain of heads */
    int n_contexts;
    const pi_model *model;
    int32_t n_vocab; /* of the draft model's logits */
    bool is_head;
    int32_t width;     /* heads: floats of a token's features */
    float *features;   /* heads: inputs of a step [n_piece][width] */
    int32_t *tokens;   /* heads: inputs of a step [n_piece] */
    draft_text *texts; /* [n_texts] */
    int32_t n_texts;
    pi_input *inputs;      /* [n_texts] */
    struct draft_job **at; /* [n_texts]: job of each input */
    pace_time each;        /* seconds to draft one more token for all texts */
} draft_model;

/* A draft to make for one text. */
typedef struct draft_job {
    int32_t text;
    const int32_t *tokens; /* [n_tokens >= 1] the whole text */
    int32_t n_tokens;
    const pi_sampler *sampler; /* samples the next tokens of the text */
    const pi_session *session; /* heads: the text's, without its last token */
    int32_t *draft;            /* [n_wanted], filled */
    int32_t n_wanted, n;       /* tokens wanted (n_tokens + n_wanted <= n_ctx); drafted */
    bool ready;                /* the step evaluates the text to its end */
} draft_job;

/* Statuses of pi_speculator_create. A zeroed draft_model, also after an error, can be freed. */
pi_status draft_model_create(draft_model *m, const pi_speculator_options *o, pi_error *err);
void draft_model_free(draft_model *m);
/* Begins a text: clones its sampler. PI_ERR_NOMEM. */
pi_status draft_model_begin(draft_model *m, int32_t text, const pi_sampler *sampler, pi_error *err);
/* The next text does not reuse the KV state of this one. */
void draft_model_forget(draft_model *m, int32_t text);
/* Evaluates at most n_piece tokens of the texts, then drafts for texts that are evaluated to their
 * end. After an error, jobs have the tokens drafted before it. */
pi_status draft_model_run(draft_model *m, draft_job *jobs, int32_t n_jobs,
                          const pi_speculator_options *o, pi_error *err);

#endif
