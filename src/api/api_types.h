/* api_types.h: definitions of the public types. Private to src/api, and to src/measure, which
 * records traces of contexts. Sessions are the engine's. */
#ifndef API_API_TYPES_H
#define API_API_TYPES_H

#include <stdatomic.h>

#include "engine.h"
#include "model.h"
#include "place_device.h"
#include "powerinfer.h"
#include "sample.h"
#include "tokenizer.h"
#include "vocab_trie.h"

/* Files that rank 0 sent: api_cluster_file.c. */
typedef struct api_received api_received;
void api_received_free(api_received *r); /* NULL is fine */
bool api_received_in_memory(const api_received *r);
uint64_t api_received_bytes(const api_received *r);

struct pi_model {
    model *weights;                   /* NULL with vocab_only */
    gguf_file *vocab_file;            /* only with vocab_only; otherwise weights owns the file */
    tokenizer *text;                  /* NULL: the file has no usable vocabulary */
    pi_error no_text;                 /* why text is NULL: the error of calls that need it */
    char *name, *architecture, *type; /* NUL-terminated copies */
    /* [n_adapters] adapters that contexts merge (adapters_by_context); owns their paths */
    model_adapter *adapters;
    size_t n_adapters;
    void *memory; /* copy of the bytes that the model was opened from; NULL: none */
    size_t n_memory;
    api_received *received;     /* files from rank 0, with some of the layers; NULL: none */
    _Atomic(vocab_trie *) trie; /* for grammars; created with the first one, by any thread */
};

/* Tokens that can be sampled: rows of the head beyond the vocabulary are padding. */
int32_t api_n_vocab(const pi_model *m);

/* As pi_model_open, with the paths of all parts of a split file. */
pi_status api_model_open_parts(const char *const *parts, int n_parts, const pi_model_options *o,
                               pi_model **out, pi_error *err);

static inline const gguf_file *api_file(const pi_model *m) {
    return m->weights ? m->weights->file : m->vocab_file;
}

/* Layers and memory of a context on a GPU. */
typedef struct api_gpu {
    int end_layer; /* end of its stage */
    gpu_exec_bytes bytes;
    uint64_t kv, programs;
} api_gpu;

struct pi_context {
    const pi_model *model;
    const model *weights; /* the model's, or `own` */
    model *own; /* with adapters_by_context: the weights with the adapters merged; else NULL */
    engine_context *engine;
    engine_options options; /* as option_engine gives them, without GPUs */
    bool ram_free;          /* PI_RAM_FREE: api_placement.c chooses the memory budget */
    uint64_t ram_used;      /* the memory budget; 0: none */
    place_gpus gpus;        /* the engine's; empty on the CPU alone */
    const char *device;     /* devices in use: "cpu", "cuda", "cpu+cuda", ... */
    api_gpu gpu[PI_MAX_DEVICES];
    pi_error reason;     /* why no GPU is used; PI_OK: nothing to report */
    pi_cluster *cluster; /* NULL: one machine has all layers */
    engine_stages stages;
    /* Predicted seconds of a rank's layers: for one token, and for a prefill ubatch; 0: unknown. */
    double predicted[CLUSTER_MAX_RANKS], predicted_prefill[CLUSTER_MAX_RANKS];
};

/* api_placement.c: creates the engine's context on the requested GPU, or on the CPU alone and sets
 * the reason. */
pi_status api_place(pi_context *c, const pi_context_options *o, pi_error *err);
void api_close(pi_context *c);         /* engine, device and backend */
void api_close_weights(pi_context *c); /* after api_close */

struct pi_sampler {
    sampler *chain;
};

#endif
