/* powerinfer_embed.h: embeddings, the vectors of texts, and scores of models that rank texts.
 *
 * Any model gives embeddings: the hidden states of a text's tokens, pooled. Encoders (bert,
 * nomic-bert, jina-bert-v2 ...) are made for it and do nothing else: a token attends to the whole
 * text, so a text must fit into a batch (pi_context_options.n_batch). They run on the CPU. */
#ifndef POWERINFER_EMBED_H
#define POWERINFER_EMBED_H

#include "powerinfer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The first five are the values of the key ARCH.pooling_type. */
typedef enum pi_pooling {
    PI_POOLING_NONE, /* a vector per token */
    PI_POOLING_MEAN,
    PI_POOLING_CLS,  /* the first token's */
    PI_POOLING_LAST, /* the last token's */
    PI_POOLING_RANK, /* the classifier's scores of the text, not a vector */
    PI_POOLING_MODEL /* what the file says; without the key PI_POOLING_NONE */
} pi_pooling;

/* "none", "mean", "cls", "last", "rank". */
PI_API const char *pi_pooling_name(pi_pooling pooling);
/* The pooling that a file names, never PI_POOLING_MODEL; *named: whether it names one. */
PI_API pi_pooling pi_model_pooling(const pi_model *model, bool *named);
/* Whether the model is an encoder: pi_forward gives hidden states, but no logits. */
PI_API bool pi_model_is_encoder(const pi_model *model);
/* Floats of a text's result, with PI_POOLING_NONE of each token's: n_embd, or as many as the
 * model's projections give (dense_2.weight, dense_3.weight). PI_POOLING_RANK: the number of scores,
 * usually 1; 0: the model has no classifier. */
PI_API int32_t pi_embedding_width(const pi_model *model, pi_pooling pooling);

typedef struct pi_embed_text {
    const int32_t *tokens; /* [n_tokens >= 1], with the model's special tokens */
    int32_t n_tokens;
} pi_embed_text;

/* Writes the pooled vectors of all texts to `out`, [n_texts][width], or with PI_POOLING_NONE
 * [tokens of all texts][width]; not normalized. The texts share ubatches as long as they fit. The
 * context's own sessions do not change. PI_ERR_UNSUPPORTED: PI_POOLING_RANK, and the model has no
 * classifier; PI_ERR_LIMIT: a text is longer than n_batch (encoders) or than the model's learned
 * positions; otherwise errors as of pi_forward and pi_session_create. */
PI_API pi_status pi_embed(pi_context *context, const pi_embed_text *texts, int32_t n_texts,
                          pi_pooling pooling, float *out, pi_error *err);

/* Norms of pi_normalize; a larger number p: the p-norm, (sum |x|^p)^(1/p). */
enum {
    PI_NORM_NONE = -1,
    PI_NORM_INT16 = 0, /* the largest absolute value becomes 32760 */
    PI_NORM_TAXICAB = 1,
    PI_NORM_EUCLID = 2 /* length 1 */
};
/* Divides a vector by its norm, in place; a vector of zeros does not change. */
PI_API void pi_normalize(float *vector, int32_t n, int32_t norm);

/* The tokens of a query and a document for PI_POOLING_RANK: both, with the model's special tokens
 * between and around them, or the file's template of this use (tokenizer.chat_template.rerank).
 * *n_tokens is the number of tokens, stored or not. PI_ERR_LIMIT: more than `capacity`;
 * PI_ERR_UNSUPPORTED: no tokenizer; PI_ERR_NOMEM. */
PI_API pi_status pi_tokenize_pair(const pi_model *model, const char *query, size_t n_query,
                                  const char *document, size_t n_document, int32_t *tokens,
                                  size_t capacity, size_t *n_tokens, pi_error *err);

#ifdef __cplusplus
}
#endif
#endif
