/* hostile.h: tables of damaged or lying files, each with a command line that reads the file and the
 * exact message that the program prints.
 *
 * Each case starts in a fresh folder that holds model.gguf (a small model with a SentencePiece
 * vocabulary), text, ids, and a Hugging Face folder hf/. The case's `make` adds the bad file; after
 * the case the folder is recreated. */
#ifndef TEST_HOSTILE_H
#define TEST_HOSTILE_H

#include <stddef.h>

#include "cli_inside.h"
#include "gguf_bytes.h"

typedef struct hostile_case {
    const char *what;           /* name of the case */
    void (*make)(const char *); /* called with `argument` */
    const char *argument;
    const char *line; /* words after "powerinfer", separated by spaces */
    int status;
    /* standard error without "powerinfer: " and the newline; a * at the end matches any rest (lists
     * of known names grow); NULL: the file is valid and standard error is empty */
    const char *message;
} hostile_case;

extern const hostile_case hostile_gguf[], hostile_model[], hostile_folder[], hostile_other[];
extern const size_t hostile_n_gguf, hostile_n_model, hostile_n_folder, hostile_n_other;

/* hostile_weights.c */
void test_weights(void **state);
void test_bundled_weights(void **state);
void test_bundled_experts(void **state);
void test_folder_weights(void **state);
void test_found_weights(void **state);

void hostile_enter_fresh_folder(void);
/* Runs the program; `line`: words after "powerinfer", separated by spaces. */
cli_result hostile_run(const char *line);

/* Functions that write files; a failure fails the running test. */
void hostile_write(const char *name, const void *data, size_t n_bytes);
void hostile_write_text(const char *name, const char *text);
void hostile_write_bytes(const char *name, const bytes *b);
/* Returns all bytes of a file; free(). */
unsigned char *hostile_read(const char *name, size_t *n_bytes);

#endif
