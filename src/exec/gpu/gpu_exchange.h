/* gpu_exchange.h: the messages between the CPU and a GPU, as the CPU's steps see them.
 *
 * Flags hold the number of the last ubatch that raised them (the epoch, an even number, or one more
 * where there was nothing to do), so nothing is cleared.
 * Functions are called by one thread at a time, those marked (any) by all. */
#ifndef EXEC_GPU_EXCHANGE_H
#define EXEC_GPU_EXCHANGE_H

#include "plan.h"

typedef struct gpu_exec gpu_exec; /* gpu_exec.h */

/* Waits for message number `exchange` of the GPU; false when it does not come, be it that another
 * GPU of the context failed. */
bool gpu_exec_wait(gpu_exec *g, int exchange);
const float *gpu_exec_received(const gpu_exec *g); /* [n_tokens][n_embd] of the message */
/* Where the next message with this buffer is put, likewise. */
float *gpu_exec_outgoing(const gpu_exec *g, plan_buffer b);
/* Whether message number `exchange`, which has come, says that there is nothing to do. */
bool gpu_exec_is_idle(const gpu_exec *g, int exchange);
/* Message number `exchange` is complete, or (idle) says that there is nothing to do. */
void gpu_exec_raise(gpu_exec *g, int exchange, bool idle);
/* (any) Selected neurons of a token among all neurons of a layer, as they came from the GPU. */
const uint32_t *gpu_exec_received_bits(const gpu_exec *g, int layer, int64_t col);
/* (any) Where a token's selected ones of the GPU's neurons are put. */
uint32_t *gpu_exec_outgoing_bits(const gpu_exec *g, int layer, int64_t col);

/* (any) The experts that a token uses, [n_used] choices (gpu_ops.h), likewise. */
const uint32_t *gpu_exec_received_choices(const gpu_exec *g, const plan_experts *e, int64_t col);
uint32_t *gpu_exec_outgoing_choices(const gpu_exec *g, const plan_experts *e, int64_t col);

#endif
