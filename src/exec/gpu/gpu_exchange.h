/* gpu_exchange.h: the messages between the CPU and a GPU, as the CPU's steps see them.
 *
 * A flag has the number of the last ubatch that raised it (the epoch, an even number, or one more
 * if there was nothing to do), so flags are never cleared. One thread at a time calls these
 * functions; all threads may call those marked (any). */
#ifndef EXEC_GPU_EXCHANGE_H
#define EXEC_GPU_EXCHANGE_H

#include "plan.h"

typedef struct gpu_exec gpu_exec; /* gpu_exec.h */

/* Waits for message `exchange` of the GPU. False: it timed out, or one of the GPUs has failed. */
bool gpu_exec_wait(gpu_exec *g, int exchange);
/* The vectors of the message, [n_tokens]: floats [n_embd], or their int8 form, gpu_q8_bytes(n_embd)
 * each (plan_message_is_q8). */
const void *gpu_exec_received(const gpu_exec *g);
/* The CPU writes its next message with this buffer there, in the same layout. */
float *gpu_exec_outgoing(const gpu_exec *g, plan_buffer b);
/* Whether message `exchange`, which has arrived, is idle: there is nothing to do. */
bool gpu_exec_is_idle(const gpu_exec *g, int exchange);
/* Sends message `exchange`: its data is complete, or (idle) there is nothing to do. */
void gpu_exec_raise(gpu_exec *g, int exchange, bool idle);
/* Instead of an answer to an idle message, for which the GPU does not wait. */
void gpu_exec_skip(gpu_exec *g);
/* (any) A token's selected neurons among all neurons of a layer, as received from the GPU. */
const uint32_t *gpu_exec_received_bits(const gpu_exec *g, int layer, int64_t col);
/* (any) A token's selected neurons among the GPU's neurons are written there. */
uint32_t *gpu_exec_outgoing_bits(const gpu_exec *g, int layer, int64_t col);

/* (any) The experts that a token uses, [n_used] choices (gpu_ops.h), as received, and where they
 * are written. */
const uint32_t *gpu_exec_received_choices(const gpu_exec *g, const plan_experts *e, int64_t col);
uint32_t *gpu_exec_outgoing_choices(const gpu_exec *g, const plan_experts *e, int64_t col);

#endif
