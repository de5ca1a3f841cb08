/* convert_tensors.h: maps tensors of a Hugging Face folder to tensors of a GGUF file
 * (convert_match.c), loads their rows as floats (convert_rows.c), and streams them to the file
 * (convert_tensors.c). */
#ifndef CONVERT_CONVERT_TENSORS_H
#define CONVERT_CONVERT_TENSORS_H

#include "convert_lora.h"
#include "pool.h"
#include "progress.h"
#include "quant_blocks.h"
#include "safetensors.h"

/* Layout of the scales of an FP8 tensor. */
typedef enum convert_scaling {
    SCALING_NONE,
    SCALING_ONE,   /* one for the whole tensor, or one for each item of a stack */
    SCALING_ROWS,  /* [rows] */
    SCALING_BLOCKS /* [rows / fp8_block[0]][columns / fp8_block[1]], rounded up */
} convert_scaling;

/* A tensor of the folder; a GGUF tensor has one or several sources. */
typedef struct convert_source {
    const safetensor *data;
    const safetensor *scales; /* scales of FP8, MXFP4 and NVFP4; NULL: none */
    const safetensor *global; /* for NVFP4: one number, or one for each item of a stack */
    bool divides;             /* `global` divides instead of multiplying */
    convert_scaling scaling;  /* layout of FP8 scales */
} convert_source;

typedef struct convert_tensor {
    char name[GGUF_MAX_NAME];
    tensor_role role;
    quant_type type;
    int n_dims;       /* 1..3 */
    uint64_t dims[3]; /* dims[0] is contiguous; unused ones are 1 */
    /* A stack (of experts, of heads' vectors) of matrices [n_rows][n_in]. A vector is a matrix with
     * n_in 1; its elements are the rows. */
    uint64_t n_stack, n_rows, n_in;
    bool vector; /* in a stack of vectors, `rows` reorders the items */
    hf_rows rows;
    hf_form form;
    uint64_t source_rows; /* rows of a source matrix; `rows` selects among them */
    size_t first_source;  /* index in the plan's list */
    size_t n_sources;     /* 0: computed, see hf_config_rope_factors; 1: one source with the whole
                             stack; n_stack: one source per item */
    uint64_t source_in;   /* elements of a row of the source */
    uint64_t first_row;   /* rows of the source before the tensor's */
    bool fourth;          /* TENSOR_FOURTH */
    uint64_t head_rows;   /* HF_HEAD_*: rows of the source per head; 0: others */
    uint64_t permute;     /* rows of a head that are permuted; 0: none, see permuted_row */
    uint64_t n_q, n_kv, head_dim; /* rows of Q and of K, for grouped sources */
    bool log;                     /* the source stores the logarithm of the negated value */
    float scale;                  /* factor of every element */
    float add;                    /* added to every element */
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
    float fp8[2][256];                   /* values of the E4M3 and E5M2 bytes */
    uint64_t n_bytes;                    /* size of all tensors in the output */
} convert_plan;

/* Matches the architecture's table with the weights, using the family's row. PI_ERR_FORMAT: a
 * tensor is missing or has an unexpected shape; PI_ERR_UNSUPPORTED: a data type, or a tensor that
 * the architecture does not have. `type` applies to matrices. Sets the fields of `c` that depend on
 * the weights. */
pi_status convert_plan_make(hf_config *c, const safetensors *weights, quant_type type,
                            const notifier *t, convert_plan *out, pi_error *err);
/* Matches a LoRA adapter of such a model: pairs for some of its matrices, in F32. */
pi_status convert_plan_make_adapter(hf_config *c, const safetensors *weights, const convert_lora *l,
                                    const notifier *t, convert_plan *out, pi_error *err);
void convert_plan_free(convert_plan *p); /* accepts a zeroed plan */

pi_status convert_plan_declare(const convert_plan *p, gguf_writer *w, pi_error *err);
/* Converts row by row on the pool, a few megabytes at a time. PI_ERR_RANGE: a value that is not
 * finite in the source or in the output type; PI_ERR_CANCELLED. */
pi_status convert_plan_write(const convert_plan *p, const hf_config *c, pool *workers,
                             progress *report, gguf_writer *w, pi_error *err);

/* ---- convert_rows.c -------------------------------------------------------------------------- */

/* Fills p->fp8. */
void convert_rows_init(convert_plan *p);
/* Loads row `row` of dims[1] * dims[2] as floats, [dims[0]]. */
void convert_load_row(const convert_plan *p, const convert_tensor *t, uint64_t row, float *out);
/* Loads an element of a tensor of a plain type. */
float convert_load_number(const convert_plan *p, const safetensor *s, uint64_t at);
/* Copies a row's bytes for a tensor that stays MXFP4 or NVFP4. False: a scale is NaN or
 * negative. */
bool convert_copy_mxfp4(const convert_plan *p, const convert_tensor *t, uint64_t row, uint8_t *out);
bool convert_copy_nvfp4(const convert_plan *p, const convert_tensor *t, uint64_t row, uint8_t *out);
/* Returns the source of a row, for messages. */
const safetensor *convert_source_of(const convert_plan *p, const convert_tensor *t, uint64_t row);
/* Releases the source pages of rows first .. first + n - 1. */
void convert_forget_rows(const convert_plan *p, const convert_tensor *t, uint64_t first,
                         uint64_t n);

#endif
