/* sentencepiece.h: reads tokenizer.model, SentencePiece's protobuf: pieces with scores and types,
 * and the few trainer and normalizer settings that determine how text is split.
 *
 * Texts point into the caller's bytes, which must outlive the model. Schema:
 * https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto */
#ifndef CONVERT_SENTENCEPIECE_H
#define CONVERT_SENTENCEPIECE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"
#include "tokenizer.h"

enum { SENTENCEPIECE_MAX_PIECE = 4096 }; /* bytes; trained pieces have at most 16 characters */

typedef enum sentencepiece_kind { /* TrainerSpec.model_type */
                                  SENTENCEPIECE_UNIGRAM = 1,
                                  SENTENCEPIECE_BPE = 2,
                                  SENTENCEPIECE_WORD = 3,
                                  SENTENCEPIECE_CHAR = 4
} sentencepiece_kind;

typedef struct sentencepiece_piece {
    const char *text; /* valid UTF-8, not NUL-terminated, not empty */
    size_t n_bytes;
    float score; /* finite */
    token_type type;
} sentencepiece_piece;

typedef struct sentencepiece_model {
    sentencepiece_piece *pieces; /* [n_pieces] */
    size_t n_pieces;             /* >= 1 */
    sentencepiece_kind kind;
    bool add_dummy_prefix;
    int32_t unk, bos, eos, pad; /* ids; -1: none */
} sentencepiece_model;

/* `name` is for messages. PI_ERR_FORMAT (with the byte offset), PI_ERR_LIMIT, PI_ERR_NOMEM; then
 * *out needs no freeing. */
pi_status sentencepiece_parse(const void *data, size_t n_bytes, const char *name,
                              sentencepiece_model *out, pi_error *err);
void sentencepiece_free(sentencepiece_model *m); /* accepts a zeroed model */

#endif
