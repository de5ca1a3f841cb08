/* model_scale.h: matrices with a scale tensor ("blk.0.ffn_up.scale"), a number that multiplies
 * their products. */
#ifndef MODEL_MODEL_SCALE_H
#define MODEL_MODEL_SCALE_H

#include "arch.h"

/* Whether the architecture applies the scale of this matrix; for some, other programs ignore it as
 * well. */
bool model_reads_scale(const arch_row *arch, const arch_tensor *row);

#endif
