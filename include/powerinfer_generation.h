/* powerinfer_generation.h: the text of one sequence, token by token. pi_generate is a loop over
 * pi_generation; a program with its own loop, such as a server that evaluates several sequences per
 * pi_forward, uses pi_generation directly and gets the same text.
 *
 *     pi_generation *g; pi_sampled next; pi_released out;
 *     pi_generation_create(model, &options, &g, NULL);
 *     for (;;) {
 *         ... pi_forward with PI_LOGITS_LAST, then
 *         pi_generation_sample(g, logits, &next, NULL);
 *         pi_generation_accept(g, &next, &out, NULL);
 *         ... print out.text[out.n_bytes]
 *         if (out.stop != PI_STOP_NONE) break;
 *     }
 *     pi_generation_free(g);
 *
 * For one thread at a time. */
#ifndef POWERINFER_GENERATION_H
#define POWERINFER_GENERATION_H

#include "powerinfer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pi_generation pi_generation;

typedef struct pi_generation_options {
    pi_sampler *sampler;       /* outlives the generation; the prompt is in its history */
    int32_t max_tokens;        /* -1: any number */
    const pi_stop_text *stops; /* [n_stops <= PI_STOP_TEXTS]; copied */
    size_t n_stops;
    bool keep_stop;         /* the text ends after the stop text; false: before it */
    const int32_t *visible; /* [n_visible] ascending: control tokens whose text is part of the text;
                               outlives the generation */
    size_t n_visible;
} pi_generation_options;

/* PI_ERR_ARG: an empty or too long stop text; PI_ERR_LIMIT: too many stop texts; PI_ERR_NOMEM. */
PI_API pi_status pi_generation_create(const pi_model *model, const pi_generation_options *options,
                                      pi_generation **out, pi_error *err);
PI_API void pi_generation_free(pi_generation *g); /* NULL is fine */

typedef struct pi_sampled {
    int32_t token;
    bool end;      /* an end-of-generation token, which is no part of the text */
    bool complete; /* the grammar allows only the end after this token */
} pi_sampled;

/* Samples the next token from logits [n_vocab]. Fails when the grammar allows no token, as
 * pi_sampler_grammar_progress reports. */
PI_API pi_status pi_generation_sample(pi_generation *g, const float *logits, pi_sampled *out,
                                      pi_error *err);

typedef struct pi_released {
    const char *text; /* [n_bytes] that follow the text released so far: complete UTF-8 characters
                         that no stop text can begin with; at the end also the bytes held back.
                         Valid until the next call */
    size_t n_bytes;
    size_t n_total;    /* bytes of all tokens so far, released or not */
    pi_stop stop;      /* PI_STOP_NONE: the text continues */
    int32_t stop_text; /* index of the stop text of PI_STOP_TEXT; else -1 */
} pi_released;

/* Appends the next sampled token to the text and decides whether the text ends with it.
 * PI_ERR_NOMEM. */
PI_API pi_status pi_generation_accept(pi_generation *g, const pi_sampled *sampled, pi_released *out,
                                      pi_error *err);
/* Ends the text for a reason of the caller and releases the bytes that were held back. */
PI_API void pi_generation_end(pi_generation *g, pi_stop stop, pi_released *out);

#ifdef __cplusplus
}
#endif
#endif
