/* cli_test_model.h: a small model with a vocabulary, written by the test itself: architecture
 * llama, two layers, random weights, SentencePiece vocabulary with byte fallback. */
#ifndef TEST_CLI_TEST_MODEL_H
#define TEST_CLI_TEST_MODEL_H

#include <stdbool.h>

enum {
    TEST_MODEL_BOS = 1,
    TEST_MODEL_EOS = 2,
    TEST_MODEL_BYTE0 = 3,              /* id of <0x00>; the bytes follow in order */
    TEST_MODEL_SPACE = 3 + 256,        /* id of a space */
    TEST_MODEL_LETTER_A = 3 + 256 + 1, /* id of "a"; the letters follow in order */
    TEST_MODEL_VOCAB = 3 + 256 + 1 + 26,
    TEST_MODEL_CONTEXT = 64 /* its training context in tokens */
};

bool test_model_write(const char *path);

#endif
