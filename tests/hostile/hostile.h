/* hostile.h: tables of files that are damaged or lie, each with a command line that meets it and
 * the exact line that a person then reads.
 *
 * A case begins in a folder that has only what hostile_setup() made: model.gguf (a small model with
 * a SentencePiece vocabulary), text, ids, and in hf/ a Hugging Face folder. Its maker adds the file
 * in question; afterwards the folder is made anew. */
#ifndef TEST_HOSTILE_H
#define TEST_HOSTILE_H

#include <stddef.h>

#include "cli_inside.h"
#include "gguf_bytes.h"

typedef struct hostile_case {
    const char *what;           /* in words */
    void (*make)(const char *); /* is given `argument` */
    const char *argument;
    const char *line; /* words after "powerinfer", separated by spaces */
    int status;
    const char *message; /* all of standard error, without "powerinfer: " and the newline; with a *
                          * at its end, what it begins with (lists of what is known grow); NULL: the
                          * file is fine after all, and nothing is said */
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
/* The words after "powerinfer", separated by spaces. */
cli_result hostile_run(const char *line);

/* Writing files; failures fail the running test. */
void hostile_write(const char *name, const void *data, size_t n_bytes);
void hostile_write_text(const char *name, const char *text);
void hostile_write_bytes(const char *name, const bytes *b);
/* All bytes of a file; free(). */
unsigned char *hostile_read(const char *name, size_t *n_bytes);

#endif
