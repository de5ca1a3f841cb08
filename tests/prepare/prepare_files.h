/* prepare_files.h: shared by the tests of prepare: texts, options, and comparisons of files. Every
 * failure fails the running test. */
#ifndef TEST_PREPARE_FILES_H
#define TEST_PREPARE_FILES_H

#include <stdbool.h>
#include <stddef.h>

#include "gguf.h"
#include "gguf_writer.h"
#include "powerinfer_tools.h"
#include "tiny_model.h"

enum { FILES_LAYERS = 16, FILES_MESSAGES = 64 };

/* Messages of a run. */
typedef struct prepare_notes {
    pi_prepare_layer layers[FILES_LAYERS];
    int n_layers;
    char messages[FILES_MESSAGES][512];
    int n_messages;
    int calls, stop_at; /* calls of progress; call at which it stops, 0: never */
} prepare_notes;

/* Writes n_bytes of ASCII words. */
void files_write_text(const char *path, size_t n_bytes);
void files_write(const char *path, const void *data, size_t n_bytes);

/* A ReLU model with a vocabulary and sizes that predictors support: n_embd 64, n_ff 128 and 96. */
tiny_model files_tiny(const char *type);

/* 1,024 tokens in windows of 64, two threads; messages go to `notifier`. */
pi_prepare_options files_options(const char *text, prepare_notes *notifier);
bool files_said(const prepare_notes *notifier, const char *part);

/* Calls pi_prepare, which must succeed. */
pi_prepare_result files_prepare(const char *in, const char *out, const pi_prepare_options *o);
void files_undo(const char *in, const char *out);

gguf_file *files_open(const char *path);
/* Appends the tensors of f to w, finishes w and closes f. */
void files_copy_tensors(gguf_file *f, gguf_writer *w);
const gguf_tensor *files_find(const gguf_file *f, const char *name);
/* Checks that both files have equal keys, values and tensors in equal order, bit for bit. */
void files_same(const char *a, const char *b);
/* Checks that both files have equal keys and tensors, bit for bit, in any order. */
void files_same_content(const char *a, const char *b);
/* Number of files in the build folder whose names contain this part. */
int files_count(const char *part);

/* NMSE of the logits of `path` in `mode` against those of `base` in `base_mode`, over seeded
 * tokens, `piece` tokens per ubatch. */
double files_distance_of(const char *path, pi_mode mode, int piece, const char *base,
                         pi_mode base_mode);
/* As above, with `base` in dense mode. */
double files_distance(const char *path, pi_mode mode, int piece, const char *base);

#endif
