/* encoder_model.h: writes small encoders with seeded random weights and a vocabulary of WordPiece,
 * whose words are "a" to "z" and "aa" to "zz". */
#ifndef TEST_ENCODER_MODEL_H
#define TEST_ENCODER_MODEL_H

#include <stdint.h>

enum {
    ENCODER_N_EMBD = 32,
    ENCODER_N_CTX = 64,
    ENCODER_FIRST_WORD = 4, /* after [PAD], [UNK], [CLS], [SEP] */
    ENCODER_N_VOCAB = ENCODER_FIRST_WORD + 26 + 26 * 26
};

/* arch: "bert" (with a classifier, and pooling by it), "nomic-bert", "jina-bert-v2",
 * "jina-bert-v3", "modern-bert" (mean). */
void encoder_write(const char *path, const char *arch, uint64_t seed);
/* The classifier's score of the first token's hidden state. */
float encoder_rank(const float *hidden, uint64_t seed);

#endif
