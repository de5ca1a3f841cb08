/* api_types.h: what the public nouns are made of. Private to src/api, and to src/tools which
 * measures contexts from inside. Sessions are the engine's own, under another name. */
#ifndef API_API_TYPES_H
#define API_API_TYPES_H

#include "engine.h"
#include "model.h"
#include "powerinfer.h"
#include "sample.h"
#include "tokenizer.h"

struct pi_model {
    model *weights;                   /* NULL with vocab_only */
    gguf_file *vocab_file;            /* only with vocab_only; otherwise the model owns the file */
    tokenizer *text;                  /* NULL when the file has none that can be used */
    pi_error no_text;                 /* why, for those who ask for text */
    char *name, *architecture, *type; /* NUL-terminated copies */
};

struct pi_context {
    const pi_model *model;
    engine_context *engine;
    engine_input *inputs; /* [n_batch], room to translate a request */
};

struct pi_sampler {
    sampler *chain;
};

static inline engine_session *api_session(pi_session *s) {
    return (engine_session *)s;
}
static inline const engine_session *api_const_session(const pi_session *s) {
    return (const engine_session *)s;
}

#endif
