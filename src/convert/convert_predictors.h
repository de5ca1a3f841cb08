/* convert_predictors.h: a folder of predictors as the original PowerInfer is trained with:
 * model_0.pt, model_1.pt, ..., one per layer, as torch.save writes them: fc1.weight [rank][n_embd]
 * and fc2.weight [n_ff][rank] of an MLP with a ReLU between them, which reads the residual stream.
 * A config.json beside them may have sparse_threshold. */
#ifndef CONVERT_CONVERT_PREDICTORS_H
#define CONVERT_CONVERT_PREDICTORS_H

#include "hf_config.h"
#include "safetensors.h"

typedef struct convert_predictors {
    bool has_threshold;
    float threshold; /* of scores */
} convert_predictors;

/* Adds the tensors of every layer to `weights`, as blk.N.fc1.weight and blk.N.fc2.weight, and has
 * `c` say that there are predictors. PI_ERR_NOT_FOUND: a layer's file is not there;
 * PI_ERR_UNSUPPORTED: a model without zeros, or with experts. */
pi_status convert_predictors_read(const char *dir, hf_config *c, safetensors *weights,
                                  convert_predictors *out, pi_error *err);
/* The keys of a prepared file. */
pi_status convert_predictors_put(const convert_predictors *p, const hf_config *c, gguf_writer *w,
                                 pi_error *err);

#endif
