/* scalar_attn.h: the reference attention kernel. */
#ifndef CPU_SCALAR_ATTN_H
#define CPU_SCALAR_ATTN_H

#include "cpu.h"

void scalar_attention(const cpu_attn *a);

#endif
