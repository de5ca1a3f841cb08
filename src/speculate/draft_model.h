/* draft_model.h: drafts of a second, smaller model: its sessions, kept in step with the texts.
 * Private to src/speculate.
 *
 * Every text has a session and a copy of the sampler. Before it drafts, the session is rewound to
 * the longest common prefix with the text and evaluates the rest; so no call is necessary when
 * drafts are rejected, texts end or others begin. */
#ifndef SPECULATE_DRAFT_MODEL_H
#define SPECULATE_DRAFT_MODEL_H

#include "draft_pace.h"
#include "powerinfer_speculate.h"

typedef struct draft_text {
    pi_session *session;
    int32_t *read; /* [n_ctx], what is in the session */
    int32_t n_read;
    pi_sampler *sampler; /* a clone of the text's; NULL: no text yet */
} draft_text;

typedef struct draft_model {
    pi_context *context;
    const pi_model *model;
    int32_t n_vocab;   /* of the draft model's logits */
    draft_text *texts; /* [n_texts] */
    int32_t n_texts;
    pi_input *inputs;      /* [n_texts] */
    struct draft_job **at; /* [n_texts]: whose inputs they are */
    pace_time each;        /* of drafting one more token for all texts */
} draft_model;

/* A draft to make for one text. */
typedef struct draft_job {
    int32_t text;
    const int32_t *tokens; /* [n_tokens >= 1] the whole text */
    int32_t n_tokens;
    const pi_sampler *sampler; /* that will choose its next tokens */
    int32_t *draft;            /* [n_wanted], filled */
    int32_t n_wanted, n;       /* n_tokens + n_wanted <= n_ctx; n: how many came */
    bool ready;                /* all of the text has been read */
} draft_job;

/* Statuses as pi_speculator_create. A zeroed one, or one whose creation failed, can be freed. */
pi_status draft_model_create(draft_model *m, const pi_speculator_options *o, pi_error *err);
void draft_model_free(draft_model *m);
/* The sampler of a new text. PI_ERR_NOMEM. */
pi_status draft_model_begin(draft_model *m, int32_t text, const pi_sampler *sampler, pi_error *err);
/* The KV state of the text is not reused. */
void draft_model_forget(draft_model *m, int32_t text);
/* Evaluates at most n_piece tokens of the texts, and drafts for the texts that are evaluated to the
 * end. After an error, jobs have the tokens that were drafted before it. */
pi_status draft_model_run(draft_model *m, draft_job *jobs, int32_t n_jobs,
                          const pi_speculator_options *o, pi_error *err);

#endif
