/* inspect.h: shared by the sources of pi_inspect: the facts of a file, gathered once and written as
 * text, as JSON or as a picture. Facts come from keys and tensor infos by name, so that files of
 * unknown architectures and vocabularies without a model also have a summary. */
#ifndef INSPECT_INSPECT_H
#define INSPECT_INSPECT_H

#include <stdio.h>

#include "gguf.h"
#include "neuron_stats.h"

/* Smallest and largest value over the layers; both -1 when the file has none. */
typedef struct inspect_range {
    int64_t min, max;
} inspect_range;

typedef struct inspect_type {
    const quant_traits *traits;
    uint64_t n_tensors, n_bytes;
} inspect_type;

/* Layers whose neurons or experts are bundled, as the opened model reports them. */
typedef struct inspect_bundles {
    int n_layers;
    bool experts;                  /* bundles of experts; false: of neurons */
    inspect_range stride;          /* bytes of a neuron or expert */
    uint64_t n_bytes, n_own_bytes; /* with and without padding */
} inspect_bundles;

typedef struct inspect_summary {
    gguf_string name, architecture; /* empty when not given */
    gguf_string tokenizer, pre;
    const char *activation;          /* name, or NULL when unknown */
    bool complete;                   /* the tensor data is complete */
    bool tried, runs;                /* whether the model was opened, and whether that succeeded */
    char refusal[PI_ERROR_TEXT_MAX]; /* why the model does not run */
    uint64_t kv_bytes;               /* KV cache of the whole context in f16; 0: not known */
    uint64_t state_bytes;            /* a session's recurrent state, without snapshots; 0: none */
    bool has_predictor, has_chat_template;
    int64_t n_layer, n_embd, head_dim, n_ctx, n_vocab; /* -1: not given */
    inspect_range n_ff, n_head, n_head_kv;
    int64_t n_expert, n_expert_used;
    uint64_t n_params, tensor_bytes;
    int n_types;
    inspect_type types[QUANT_TYPE_COUNT]; /* most bytes first; bundles count by the types of their
                                             rows, padding as I8 */
    inspect_bundles bundles;
    neuron_stats neurons;
    int64_t prepared_version;   /* powerinfer.version; -1: not prepared */
    inspect_range rank;         /* of the layers' predictors (fc1) */
    double predictor_threshold; /* scores below it are skipped; NAN: no predictor, or not known */
    int64_t head_rank;          /* of the output head's predictor; -1: none */
    bool head_given;            /* it is one of the original PowerInfer, without measurements */
    double head_distance, head_loss, head_rows; /* model_head; NAN: not known */
    bool gpu_index;                /* a GPU neuron list of the original PowerInfer, not a model */
    int64_t gpu_layers, gpu_bytes; /* layers and GPU memory of that list; -1: not given */
} inspect_summary;

/* Rank of one layer's predictor; -1: it has none. */
int64_t inspect_rank(const gguf_file *f, int64_t layer);
/* "model", "prepared", "pwri", "gpu_index": for programs. */
const char *inspect_kind(const gguf_file *f, const inspect_summary *s);

void inspect_write_text(const gguf_file *f, const inspect_summary *s, bool verbose, FILE *out);
/* PI_ERR_NOMEM: a key could not be copied. */
pi_status inspect_write_json(const gguf_file *f, const inspect_summary *s, bool verbose, FILE *out,
                             pi_error *err);
/* Writes hot/cold curves, densities and predictor quality of all layers to `path`, which appears
 * complete or not at all. PI_ERR_NOT_FOUND when the file has no frequencies. */
pi_status inspect_write_svg(const gguf_file *f, const inspect_summary *s, const char *path,
                            pi_error *err);

#endif
