/* recover.h: continues with less of the GPUs. Private to src/engine. */
#ifndef ENGINE_RECOVER_H
#define ENGINE_RECOVER_H

#include "context.h"

/* Moves neurons of a GPU to the CPU so that `need` bytes are free on the GPU; primary devices,
 * caches and sessions stay. PI_ERR_NOMEM: too few neurons, nothing has changed. After other errors,
 * call context_leave_gpu. */
pi_status context_shrink_gpu(engine_context *c, int device, uint64_t need, pi_error *err);
/* Falls back to the CPU and restores all sessions. engine_gpu_loss returns the message of `why`. On
 * failure, sessions are empty and the context cannot be used. */
pi_status context_leave_gpu(engine_context *c, const pi_error *why, pi_error *err);
/* The error of a context that could not fall back. */
pi_status context_unusable(const engine_context *c, pi_error *err);

#endif
