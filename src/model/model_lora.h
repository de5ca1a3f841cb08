/* model_lora.h: LoRA adapters (Hu et al. 2021, arXiv 2106.09685), in files as llama.cpp has them:
 * general.type "adapter", adapter.type "lora", for a matrix NAME of the model a pair NAME.lora_a
 * [n_in, rank] and NAME.lora_b [rank, n_out]. Private to src/model.
 *
 * Adapters are merged while a model is opened: a matrix that has a pair becomes
 *
 *   W + scale * alpha / rank * B A      in F16 (F32 where W is)
 *
 * so that plans, kernels, placement and devices know nothing of adapters, and nothing of a small
 * change is lost to the type of the model's weights. What has no pair stays mapped as it is.
 *
 * Pairs are of matrices as they were trained. Where `prepare` has sorted neurons or experts, or
 * transposed a matrix, rows and columns of A and B are put in the same places. Of embeddings the
 * pair is [rank, n_vocab] and [rank, n_embd], as rows of A are looked up by token. */
#ifndef MODEL_MODEL_LORA_H
#define MODEL_MODEL_LORA_H

#include "model.h"

typedef struct lora_set lora_set;

/* PI_ERR_FORMAT: not such a file, or a pair that is not whole; PI_ERR_UNSUPPORTED: of another
 * architecture, or a kind that is not known; also everything of gguf_open. */
pi_status lora_open(const model_adapter *adapters, size_t n, const arch_row *arch, lora_set **out,
                    pi_error *err);
void lora_close(lora_set *s); /* NULL is fine */
/* How a matrix of the model lies beside the one that an adapter's author knew. */
typedef struct lora_form {
    char name[GGUF_MAX_NAME]; /* of the latter */
    bool transposed;          /* its columns are the model's rows, within an expert */
    bool embedding;
    const int32_t *rows, *columns, *items; /* item i (of a stack: matrix) here is item rows[i]
                                              there; NULL: the same order */
} lora_form;

/* Of a bound matrix, whose data in the file is t: replaces its data where an adapter has a pair
 * for it. PI_ERR_FORMAT: a shape that does not fit; PI_ERR_RANGE: a weight too large for F16;
 * PI_ERR_NOMEM. */
pi_status lora_merge(lora_set *s, model *m, const gguf_tensor *t, const lora_form *form,
                     model_tensor *out, pi_error *err);
/* PI_ERR_FORMAT when an adapter has a pair that no matrix took. */
pi_status lora_check_all(const lora_set *s, const model *m, pi_error *err);

#endif
