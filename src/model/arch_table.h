/* arch_table.h: the parts of the architecture table, for arch_lookup.c. To add an architecture, add
 * a row to one part; when something does not fit, extend the vocabulary of arch.h instead of
 * checking the architecture's name elsewhere. */
#ifndef MODEL_ARCH_TABLE_H
#define MODEL_ARCH_TABLE_H

#include "arch.h"

typedef struct arch_rows {
    const arch_row *rows; /* [n] */
    int n;
} arch_rows;

extern const arch_rows arch_rows_dense, arch_rows_experts, arch_rows_recurrent, arch_rows_encoder;

#endif
