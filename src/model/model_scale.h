/* model_scale.h: which matrices have a number of their own ("blk.0.ffn_up.scale"), by which their
 * products are multiplied. */
#ifndef MODEL_MODEL_SCALE_H
#define MODEL_MODEL_SCALE_H

#include "arch.h"

/* Whether the architecture reads the scale of this matrix; other programs ignore it, too. */
bool model_reads_scale(const arch_row *arch, const arch_tensor *row);

#endif
