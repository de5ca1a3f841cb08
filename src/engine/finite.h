/* finite.h: NaN and infinity in a ubatch. Private to src/engine. */
#ifndef ENGINE_FINITE_H
#define ENGINE_FINITE_H

#include "context.h"

/* PI_ERR_RANGE if the last ubatch computed values that are not finite; the message names the layer
 * where they began. */
pi_status context_check_finite(const engine_context *c, pi_error *err);

#endif
