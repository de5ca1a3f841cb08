/* adapter_file.h: writes small LoRA adapters. */
#ifndef TEST_ADAPTER_FILE_H
#define TEST_ADAPTER_FILE_H

#include <stdint.h>

/* A matrix that the adapter changes, such as "blk.0.attn_v.weight". */
typedef struct adapter_matrix {
    const char *name;
    uint64_t n_in, n_out;
} adapter_matrix;

/* Writes an adapter of rank 2 for n matrices of a model of this architecture. Its values, from -1.5
 * to 1.8, change every answer. */
void adapter_file_write(const char *path, const char *architecture, const adapter_matrix *matrices,
                        int n);

#endif
