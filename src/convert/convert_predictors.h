/* convert_predictors.h: a folder of predictors of the original PowerInfer: model_0.pt, model_1.pt,
 * ..., one per layer, as torch.save writes them. fc1.weight [rank][n_embd] and fc2.weight
 * [n_ff][rank] form an MLP with a ReLU between them that reads the residual stream. A config.json
 * in the folder may have sparse_threshold. */
#ifndef CONVERT_CONVERT_PREDICTORS_H
#define CONVERT_CONVERT_PREDICTORS_H

#include "hf_config.h"
#include "safetensors.h"

typedef struct convert_predictors {
    bool has_threshold;
    float threshold; /* threshold of scores */
} convert_predictors;

/* Adds the tensors of every layer to `weights` as blk.N.fc1.weight and blk.N.fc2.weight, and marks
 * in `c` that the model has predictors. PI_ERR_NOT_FOUND: a layer's file is missing;
 * PI_ERR_UNSUPPORTED: the model's activation has no zeros, or the model has experts. */
pi_status convert_predictors_read(const char *dir, hf_config *c, safetensors *weights,
                                  convert_predictors *out, pi_error *err);
/* Writes the keys of a prepared file. */
pi_status convert_predictors_put(const convert_predictors *p, const hf_config *c, gguf_writer *w,
                                 pi_error *err);

#endif
