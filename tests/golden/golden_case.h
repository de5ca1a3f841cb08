/* golden_case.h: what the tests with recorded logits share: visiting a folder's models, opening one
 * with its reference, and feeding the tokens to an engine. */
#ifndef TESTS_GOLDEN_CASE_H
#define TESTS_GOLDEN_CASE_H

#include "engine.h"
#include "reference.h"

enum { GOLDEN_PATH_BYTES = 2048, GOLDEN_NAME_BYTES = 256 };

/* True when the visitor has checked the model. */
typedef bool golden_visit(const char *folder, const char *name);

/* Visits NAME + ending of the committed references (reference/PART), then of the shared data where
 * it is there, in no particular order. Fails when fewer than n_own of the committed ones, or with
 * the shared data fewer than n_shared of all, were checked. */
void golden_each(const char *part, const char *ending, int n_own, int n_shared,
                 golden_visit *visit);

/* NULL, with a line, for what is not supported. */
model *golden_open(const char *folder, const char *name, const char *ending);

/* NAME.tokens.txt, or the folder's tokens.txt where there is none, and NAME.logits.f32. */
reference golden_read(const char *folder, const char *name, int n_vocab);

/* Feeds a new session in pieces whose sizes repeat `pieces`; logits of all tokens,
 * [n_tokens][n_vocab]. */
void golden_feed(engine_context *c, const reference *r, const int *pieces, int n_pieces,
                 float *logits);
/* The same; how far they are from the recorded ones. */
double golden_nmse(engine_context *c, const reference *r, const int *pieces, int n_pieces);

#endif
