/* arch_table.h: the rows, for arch.c. */
#ifndef MODEL_ARCH_TABLE_H
#define MODEL_ARCH_TABLE_H

#include "arch.h"

extern const arch_row arch_table[];
extern const int arch_table_count;

#endif
