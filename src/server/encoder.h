/* encoder.h: the context of a model that is an encoder, or that ranks or projects texts. It
 * needs no slots: the thread of a request computes the texts. */
#ifndef SERVER_ENCODER_H
#define SERVER_ENCODER_H

#include "powerinfer_embed.h"
#include "server_options.h"

typedef struct encoder encoder;

/* *out is NULL if the model is none of these. Errors of pi_context_create; PI_ERR_UNSUPPORTED:
 * the pooling needs a classifier, and the model has none. */
pi_status encoder_create(const served_options *options, encoder **out, pi_error *err);
/* PI_POOLING_RANK: texts have scores, no vectors. */
pi_pooling encoder_pooling(const encoder *e);
/* pi_embed by one thread at a time, in batches, so that requests take turns. deadline: of
 * clock_seconds, after which no batch begins. PI_ERR_CANCELLED: the deadline has passed, or the
 * encoder was stopped. */
pi_status encoder_embed(encoder *e, const pi_embed_text *texts, int32_t n_texts, double deadline,
                        float *out, pi_error *err);
/* Ends running calls, and later ones. Accepts NULL. */
void encoder_stop(encoder *e);
void encoder_destroy(encoder *e); /* accepts NULL; no calls run */

#endif
