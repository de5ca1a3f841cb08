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

/* arch: "bert", "nomic-bert", "jina-bert-v2", "jina-bert-v3", "modern-bert", "gemma-embedding" (all
 * pool the mean), "qwen3" (no encoder; the last token). */
void encoder_write(const char *path, const char *arch, uint64_t seed);
/* The same with a classifier, and pooling by it: "bert", "jina-bert-v2", "qwen3" (which reads a
 * pair of texts as "ab QUERY cd DOCUMENT ef"). */
void encoder_write_ranking(const char *path, const char *arch, uint64_t seed);
/* Outputs of that classifier. */
int encoder_scores(const char *arch);
/* The score that bert's classifier gives the first token's hidden state. */
float encoder_rank(const float *hidden, uint64_t seed);

#endif
