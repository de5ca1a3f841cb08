/* prepare_files.h: shared by the tests of prepare: texts, options, and looking into files. Every
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
    int calls, stop_at; /* of the progress; 0: never stop */
} prepare_notes;

/* n_bytes of words in ASCII. */
void files_write_text(const char *path, size_t n_bytes);
void files_write(const char *path, const void *data, size_t n_bytes);

/* ReLU, a vocabulary, sizes that predictors need: n_embd 64, n_ff 128 and 96. */
tiny_model files_tiny(const char *type);

/* 1,024 tokens in windows of 64, two threads; what is told goes to `notifier`. */
pi_prepare_options files_options(const char *text, prepare_notes *notifier);
bool files_said(const prepare_notes *notifier, const char *part);

/* pi_prepare that must succeed. */
pi_prepare_result files_prepare(const char *in, const char *out, const pi_prepare_options *o);
void files_undo(const char *in, const char *out);

gguf_file *files_open(const char *path);
/* Writes the tensors of f, which it closes, behind what w has, and finishes it. */
void files_copy_tensors(gguf_file *f, gguf_writer *w);
const gguf_tensor *files_find(const gguf_file *f, const char *name);
/* The same keys with the same values and the same tensors, in the same order, bit for bit. */
void files_same(const char *a, const char *b);
/* The same keys and tensors bit for bit, in whatever order. */
void files_same_content(const char *a, const char *b);
/* Files in the build folder whose name has this part. */
int files_count(const char *part);

/* Logits of `path` in `mode` over seeded tokens against those of `base` in `base_mode`: the
 * normalized squared error. `piece` tokens per pass. */
double files_distance_of(const char *path, pi_mode mode, int piece, const char *base,
                         pi_mode base_mode);
/* From `base` in dense mode. */
double files_distance(const char *path, pi_mode mode, int piece, const char *base);

#endif
