/* quant_mix.h: chooses the type of every tensor when a model is quantized. A mix such as Q4_K_M is
 * a base type and a list of exceptions; both are tables (quant_mix.c), which agree with llama.cpp's
 * choice for this name. Only names, shapes and a few keys are used, so files of unknown
 * architectures are supported. */
#ifndef QUANTIZE_QUANT_MIX_H
#define QUANTIZE_QUANT_MIX_H

#include "gguf.h"
#include "powerinfer_tools.h"

typedef struct quant_mix {
    const char *name;   /* "Q4_K_M" */
    quant_type base;    /* type of matrices without a rule */
    uint32_t file_type; /* general.file_type */
    bool copy;          /* every tensor keeps its type; base is unused */
} quant_mix;

/* Finds a mix by its name in any case, by an alias ("Q4_K"), or by its file type's number, as
 * llama.cpp does. NULL: unknown. */
const quant_mix *quant_mix_find(const char *name);
/* Finds the mix whose name has the same letters and digits ("q4km"); NULL: none. */
const quant_mix *quant_mix_guess(const char *name);
/* "F32, F16, ..., COPY": for messages. */
void quant_mix_list(char *buf, size_t n_buf);
/* Finds a type that tensors can be written in, by name; PI_ERR_ARG lists the known types. `where`:
 * name of the option. */
pi_status quant_mix_find_type(const char *name, const char *where, quant_type *out, pi_error *err);

/* Whether a matrix of this name needs an importance matrix to be written in the type. */
bool quant_mix_wants_importance(quant_type type, const char *tensor);

typedef struct quant_mix_request {
    const quant_mix *mix;
    bool pure;           /* every matrix gets the base type */
    bool leave_output;   /* the head keeps its type */
    bool has_importance; /* an importance matrix is used */
    bool has_output_type, has_embedding_type;
    quant_type output_type, embedding_type;
    const pi_tensor_type *overrides; /* [n_overrides]; the first match is used */
    size_t n_overrides;
} quant_mix_request;

typedef struct quant_mix_choice {
    quant_type type;
    bool fallback; /* rows are not whole blocks of the type that the rules chose */
} quant_mix_choice;

/* Fills choices[gguf_n_tensors(f)]. PI_ERR_ARG: an override names an unknown type; PI_ERR_NOMEM. */
pi_status quant_mix_choose(const gguf_file *f, const quant_mix_request *request,
                           quant_mix_choice *choices, pi_error *err);

#endif
