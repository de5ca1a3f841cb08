/* grammar.h: compiled grammars with their token masks for a vocabulary, and the readers that
 * samplers use to follow a text. Private to src/grammar, src/sample and src/api.
 *
 * A grammar has a reference count: its creator and every reader hold it. Its lock guards its
 * machine and the masks of its states; readers return copies of masks. A reader itself belongs to
 * one thread. */
#ifndef GRAMMAR_GRAMMAR_H
#define GRAMMAR_GRAMMAR_H

#include "powerinfer_grammar.h"
#include "vocab_trie.h"

typedef struct grammar_tree grammar_tree; /* grammar_tree.h */
typedef struct grammar_reader grammar_reader;

/* Checks and compiles a tree. `vocabulary` must outlive the grammar; of the `options` it copies the
 * triggers and ignores the rest (NULL: none). Statuses as pi_grammar_create. */
pi_status grammar_create(grammar_tree *t, int32_t root, const vocab_trie *vocabulary,
                         const pi_grammar_options *options, pi_grammar **out, pi_error *err);
void grammar_release(pi_grammar *g);       /* accepts NULL */
pi_grammar *grammar_retain(pi_grammar *g); /* adds a reference */
size_t grammar_memory(pi_grammar *g);      /* bytes of its tables and masks */

/* See pi_grammar_widened. */
const char *grammar_widened(const pi_grammar *g, size_t i);

const vocab_trie *grammar_vocabulary(const pi_grammar *g);

/* See pi_grammar_match. */
pi_status grammar_match(pi_grammar *g, const char *text, size_t n, bool *begins, bool *complete,
                        pi_error *err);

/* Holds a reference to the grammar until it is freed. PI_ERR_NOMEM. */
pi_status grammar_reader_create(pi_grammar *g, grammar_reader **out, pi_error *err);
void grammar_reader_free(grammar_reader *r);                 /* accepts NULL */
pi_grammar *grammar_reader_grammar(const grammar_reader *r); /* the grammar that it holds */
/* Moves `to`, a reader of the same grammar, to the position of `from`. */
void grammar_reader_copy(grammar_reader *to, const grammar_reader *from);
void grammar_reader_restart(grammar_reader *r);
pi_grammar_progress grammar_reader_progress(const grammar_reader *r, pi_error *why);

/* The tokens that may follow, one bit each; valid until the reader is used again. NULL: any token
 * may follow (the reader waits for a trigger), or none, after a failure. */
const uint64_t *grammar_reader_mask(grammar_reader *r);
/* Reads a token. False: the token cannot follow and the reader is unchanged, or the reader has
 * failed. */
bool grammar_reader_accept(grammar_reader *r, int32_t token);
/* Sets the progress to PI_GRAMMAR_FAILED: the sampler found no token. */
void grammar_reader_stuck(grammar_reader *r);

#endif
