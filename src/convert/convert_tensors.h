/* convert_tensors.h: which tensors of a Hugging Face folder become which tensors of a GGUF file
 * (convert_match.c), their rows as floats (convert_rows.c), and the streaming of these
 * (convert_tensors.c). */
#ifndef CONVERT_CONVERT_TENSORS_H
#define CONVERT_CONVERT_TENSORS_H

#include "convert_lora.h"
#include "pool.h"
#include "progress.h"
#include "quant_blocks.h"
#include "safetensors.h"

/* How the scales of an FP8 tensor lie. */
typedef enum convert_scaling {
    SCALING_NONE,
    SCALING_ONE,   /* for the whole tensor, or for each item of a stack */
    SCALING_ROWS,  /* [rows] */
    SCALING_BLOCKS /* [rows / fp8_block[0]][columns / fp8_block[1]], rounded up */
} convert_scaling;

/* A tensor of the folder, or one of the several that one of ours is made of. */
typedef struct convert_source {
    const safetensor *data;
    const safetensor *scales; /* of FP8, MXFP4 and NVFP4; NULL: none */
    const safetensor *global; /* of NVFP4: one number, or one for each item of a stack */
    bool divides;             /* by it */
    convert_scaling scaling;  /* of FP8 */
} convert_source;

typedef struct convert_tensor {
    char name[GGUF_MAX_NAME];
    tensor_role role;
    quant_type type;
    int n_dims;       /* 1..3 */
    uint64_t dims[3]; /* dims[0] is contiguous; unused ones are 1 */
    /* A stack (of experts, of heads' vectors) of matrices [n_rows][n_in]. The elements of a vector
     * are its rows, and n_in is 1. */
    uint64_t n_stack, n_rows, n_in;
    bool vector; /* items of a stack of vectors are in the order that `rows` says */
    hf_rows rows;
    hf_form form;
    uint64_t source_rows; /* of a matrix of the source: all that `rows` picks from */
    size_t first_source;  /* in the plan's list */
    size_t n_sources;     /* 0: computed, see hf_config_rope_factors; 1: all of the stack in one;
                             n_stack: one each */
    uint64_t source_in;   /* elements of a row of the source */
    uint64_t head_rows;   /* HF_HEAD_*: rows of the source per head; 0: others */
    uint64_t permute;     /* rows of a head whose order changes; 0: none, see permuted_row */
    uint64_t n_q, n_kv, head_dim; /* rows of Q and of K, for grouped sources */
    bool log;                     /* the source has the logarithms of what is written negative */
    float scale;                  /* of every element; 1 */
    float add;                    /* to every element */
} convert_tensor;

typedef struct convert_plan {
    const safetensors *weights; /* must outlive the plan */
    convert_tensor *tensors;    /* [n_tensors], in the order of the file */
    size_t n_tensors, capacity;
    convert_source *sources; /* [n_sources] */
    size_t n_sources, sources_capacity;
    int32_t fp8_block[2];
    hf_recurrent recurrent;
    float ssm_multipliers[HF_SSM_PARTS]; /* hf_config.h */
    float fp8[2][256];                   /* what the bytes of E4M3 and E5M2 stand for */
    uint64_t n_bytes;                    /* of all tensors, as written */
} convert_plan;

/* Matches the architecture's table with the weights, by the family's row. PI_ERR_FORMAT: a tensor
 * is missing or has an unexpected shape; PI_ERR_UNSUPPORTED: a data type, or a tensor that the
 * architecture has no place for. `type` is of the matrices. Fills in what of `c` only the weights
 * say. */
pi_status convert_plan_make(hf_config *c, const safetensors *weights, quant_type type,
                            const notifier *t, convert_plan *out, pi_error *err);
/* The same of a LoRA adapter of such a model: pairs for some of its matrices, in F32. */
pi_status convert_plan_make_adapter(hf_config *c, const safetensors *weights, const convert_lora *l,
                                    const notifier *t, convert_plan *out, pi_error *err);
void convert_plan_free(convert_plan *p); /* a zeroed plan is fine */

pi_status convert_plan_declare(const convert_plan *p, gguf_writer *w, pi_error *err);
/* Converts row by row on the pool, a few megabytes at a time. PI_ERR_RANGE: a value that is not
 * finite, in the source or in the type; PI_ERR_CANCELLED. */
pi_status convert_plan_write(const convert_plan *p, const hf_config *c, pool *workers,
                             progress *report, gguf_writer *w, pi_error *err);

/* ---- convert_rows.c -------------------------------------------------------------------------- */

/* Fills p->fp8. */
void convert_rows_init(convert_plan *p);
/* Row `row` of dims[1] * dims[2] as floats, [dims[0]]. */
void convert_load_row(const convert_plan *p, const convert_tensor *t, uint64_t row, float *out);
/* The same of a tensor that stays MXFP4, or NVFP4, as its bytes. False: a scale that is no number,
 * or a negative one. */
bool convert_copy_mxfp4(const convert_plan *p, const convert_tensor *t, uint64_t row, uint8_t *out);
bool convert_copy_nvfp4(const convert_plan *p, const convert_tensor *t, uint64_t row, uint8_t *out);
/* The source of a row, for messages. */
const safetensor *convert_source_of(const convert_plan *p, const convert_tensor *t, uint64_t row);
/* Lets go of what rows first .. first + n - 1 were made of. */
void convert_forget_rows(const convert_plan *p, const convert_tensor *t, uint64_t first,
                         uint64_t n);

#endif
