/* model_lora.h: LoRA adapters (Hu et al. 2021, arXiv 2106.09685) in llama.cpp's file format:
 * general.type "adapter", adapter.type "lora"; for a matrix NAME of the model a pair NAME.lora_a
 * [n_in, rank] and NAME.lora_b [rank, n_out]. Private to src/model.
 *
 * Adapters are merged while a model is opened: a matrix with a pair becomes
 *
 *   W + scale * alpha / rank * B A      in F16 (F32 where W is F32)
 *
 * so that plans, kernels, placement and devices need no code for adapters, and quantization of the
 * weights does not round a small change away. Matrices without a pair stay mapped, and so do
 * matrices whose pairs all have a scale of 0.
 *
 * Pairs belong to matrices as they were trained. Where `prepare` sorted neurons or experts, or
 * transposed a matrix, the rows and columns of A and B are rearranged likewise. The pair of
 * embeddings is [rank, n_vocab] and [rank, n_embd], because rows of A are looked up by token. */
#ifndef MODEL_MODEL_LORA_H
#define MODEL_MODEL_LORA_H

#include "model.h"

typedef struct lora_set lora_set;

/* PI_ERR_FORMAT: not an adapter file, or an incomplete pair; PI_ERR_UNSUPPORTED: another
 * architecture or an unknown kind of adapter; also every error of gguf_open. */
pi_status lora_open(const model_adapter *adapters, size_t n, const arch_row *arch, lora_set **out,
                    pi_error *err);
/* Restricts merging to layers [first, end), and to matrices outside of layers if first is 0 and end
 * is not; the other matrices are only checked and included in the hash. */
void lora_restrict(lora_set *s, int first, int end);
void lora_close(lora_set *s); /* accepts NULL */
/* How a matrix of the model differs from the matrix that the adapter was trained for. */
typedef struct lora_form {
    char name[GGUF_MAX_NAME]; /* the adapter's name of the matrix */
    int layer;                /* -1: outside of layers */
    bool transposed;          /* its columns are the model's rows, within an expert */
    bool embedding;
    const int32_t *rows, *columns, *items; /* item i here (in a stack: matrix i) is item rows[i]
                                              there; NULL: same order */
} lora_form;

/* Merges adapters into a bound matrix, stored in the file as t: replaces its data where an adapter
 * has a pair for it. PI_ERR_FORMAT: mismatched shape; PI_ERR_RANGE: a weight too large for F16;
 * PI_ERR_NOMEM. */
pi_status lora_merge(lora_set *s, model *m, const gguf_tensor *t, const lora_form *form,
                     model_tensor *out, pi_error *err);
/* PI_ERR_FORMAT when an adapter has a pair that matches no matrix. */
pi_status lora_check_all(const lora_set *s, const model *m, pi_error *err);

#endif
