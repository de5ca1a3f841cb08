/* golden_case.h: functions for the tests with recorded logits: visit the models of a folder, open a
 * model with its reference, feed the tokens to an engine. */
#ifndef TESTS_GOLDEN_CASE_H
#define TESTS_GOLDEN_CASE_H

#include "engine.h"
#include "reference.h"

enum { GOLDEN_PATH_BYTES = 2048, GOLDEN_NAME_BYTES = 256 };

/* True when the visitor has checked the model. */
typedef bool golden_visit(const char *folder, const char *name);

/* Visits the files NAME + ending of the committed references (reference/PART), then of the shared
 * data if it exists, in no particular order. Fails when fewer than n_own of the committed models
 * were checked, or, with the shared data, fewer than n_shared of all. */
void golden_each(const char *part, const char *ending, int n_own, int n_shared,
                 golden_visit *visit);

/* Returns true when it has checked the model. It may replace the tokens. */
typedef bool golden_check(const char *name, const model *m, reference *r);

/* Calls golden_each with the files NAME.gguf and checks each supported model with its reference. */
void golden_each_model(const char *part, int n_own, int n_shared, golden_check *check);

/* Prints a line and returns NULL for a model of an unknown architecture; fails for a model of a
 * known one that does not open. */
model *golden_open(const char *folder, const char *name, const char *ending);

/* Reads NAME.tokens.txt, or else the folder's tokens.txt, and NAME.logits.f32. */
reference golden_read(const char *folder, const char *name, int n_vocab);

/* Feeds a new session in pieces whose sizes repeat `pieces`; stores the logits of all tokens,
 * [n_tokens][n_vocab]. */
void golden_feed(engine_context *c, const reference *r, const int *pieces, int n_pieces,
                 float *logits);
/* Feeds as golden_feed does; returns the NMSE against the recorded logits. */
double golden_nmse(engine_context *c, const reference *r, const int *pieces, int n_pieces);

#endif
