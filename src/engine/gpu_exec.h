/* gpu_exec.h: one GPU's side of a context: its weights and buffers, its steps of the plan as
 * programs of the device, and its messages to and from the CPU. A context has one for each of its
 * GPUs (context_gpus.c). Private to src/engine.
 *
 * A ubatch of few tokens is one recorded program, launched once: where it needs something from the
 * CPU or from the stage before, a kernel polls a flag. A ubatch of many tokens, whose parts take
 * longer than a kernel may wait, is enqueued in segments: each ends before a RECEIVE, and the CPU's
 * SEND that feeds it enqueues the next one; from stage to stage the one before does, at once, and
 * the stream waits until that has run. Either way the CPU polls flags of the GPU's messages to it,
 * and both sides compute at the same time.
 *
 * Flags hold the number of the last ubatch that raised them (the epoch, an even number, or one more
 * where there was nothing to do), so nothing is cleared.
 * Functions for ubatches are called by one thread at a time, those marked (any) by all. */
#ifndef ENGINE_GPU_EXEC_H
#define ENGINE_GPU_EXEC_H

#include "engine.h"
#include "kv_cache.h"

typedef struct gpu_exec gpu_exec;

/* Uploads the weights of the plan's steps of one of the GPUs. PI_ERR_NOMEM, PI_ERR_DEVICE. */
pi_status gpu_exec_create(engine_context *c, int device, gpu_exec **out, pi_error *err);
void gpu_exec_destroy(gpu_exec *g); /* NULL is fine */
/* What gpu_exec_create would allocate: nothing is, and no device is needed. */
pi_status gpu_exec_size(const engine_context *c, int device, engine_gpu_bytes *out, pi_error *err);

/* The part of a session's cache and state that is on the GPU, which the device frees; *out is NULL
 * when no layer is. */
pi_status gpu_exec_kv_create(gpu_exec *g, int64_t n_ctx, void **out, pi_error *err);
uint64_t gpu_exec_kv_bytes(const gpu_exec *g, int64_t n_ctx); /* of such a part */
/* Copies positions [first, first + n) of a part of a layer, [n][heads][row bytes], from or to the
 * GPU; nothing where there is no such part. */
pi_status gpu_exec_kv_read(gpu_exec *g, const engine_session *s, int layer, kv_part part,
                           int64_t first, int64_t n, void *out, pi_error *err);
pi_status gpu_exec_kv_write(gpu_exec *g, engine_session *s, int layer, kv_part part, int64_t first,
                            int64_t n, const void *from, pi_error *err);
/* Copies the first n positions of all layers on the GPU from one session to another. */
pi_status gpu_exec_kv_copy(gpu_exec *g, engine_session *to, const engine_session *from, int64_t n,
                           pi_error *err);

/* Brings the GPU's layers of a session's state to `floats`, a slot of its state on the host, or
 * from there to the GPU. */
pi_status gpu_exec_state_read(gpu_exec *g, const engine_session *s, const float *floats,
                              pi_error *err);
pi_status gpu_exec_state_write(gpu_exec *g, const engine_session *s, const float *floats,
                               pi_error *err);

/* Records the program of the ubatch that is set up in the context, if it has none yet; otherwise
 * the ubatch does so when it begins. */
void gpu_exec_record(gpu_exec *g, const engine_context *c);
/* Starts the GPU's part of the ubatch that is set up in the context. */
void gpu_exec_begin(gpu_exec *g, engine_context *c);
/* Waits until it is done; logits, when they are made there, are in the context's buffer. After a
 * ubatch that did not run to its end (`failed`) waits are ended by force. PI_ERR_DEVICE. */
pi_status gpu_exec_end(gpu_exec *g, engine_context *c, bool failed, pi_error *err);

bool gpu_exec_is_alive(const gpu_exec *g); /* the device can go on after an error */

/* Waits for message number `exchange` of the GPU; false when it does not come, be it that another
 * GPU of the context failed. */
bool gpu_exec_wait(gpu_exec *g, const engine_context *c, int exchange);
const float *gpu_exec_received(const gpu_exec *g); /* [n_tokens][n_embd] of the message */
/* Where the next message with this buffer is put, likewise. */
float *gpu_exec_outgoing(const gpu_exec *g, plan_buffer b);
/* Whether message number `exchange`, which has come, says that there is nothing to do. */
bool gpu_exec_is_idle(const gpu_exec *g, int exchange);
/* Message number `exchange` is complete, or (idle) says that there is nothing to do. */
void gpu_exec_raise(gpu_exec *g, engine_context *c, int exchange, bool idle);
/* (any) Selected neurons of a token among all neurons of a layer, as they came from the GPU. */
const uint32_t *gpu_exec_received_bits(const gpu_exec *g, int layer, int64_t col);
/* (any) Where a token's selected ones of the GPU's neurons are put. */
uint32_t *gpu_exec_outgoing_bits(const gpu_exec *g, int layer, int64_t col);

/* (any) The experts that a token uses, [n_used] choices (gpu_ops.h), likewise. */
const uint32_t *gpu_exec_received_choices(const gpu_exec *g, const plan_experts *e, int64_t col);
uint32_t *gpu_exec_outgoing_choices(const gpu_exec *g, const plan_experts *e, int64_t col);

/* Experts that move to the GPU, between ubatches (adapt.h): an expert of the file into a slot of
 * its layer that no expert is in. */
void gpu_exec_swap_begin(gpu_exec *g, int layer, int32_t expert, int32_t slot);
/* Sends n_bytes more at most; true when all has arrived. */
bool gpu_exec_swap_send(gpu_exec *g, size_t n_bytes);
/* [n_expert] where experts of a layer are from the next ubatch on. */
void gpu_exec_swap_map(gpu_exec *g, int layer, const int32_t *slots);

/* The first of the whole plan's GPU steps that found its input not finite in the last ubatch; -1:
 * none.
 */
int gpu_exec_bad_step(const gpu_exec *g);
/* [n_expert] how often the GPU's router has chosen each expert of a layer, as of the last ubatch
 * for which that was wanted (context_wants_uses). */
const int32_t *gpu_exec_uses(const gpu_exec *g, int layer);
/* Neurons of a layer that were active on the GPU in the last ubatch. */
uint64_t gpu_exec_active(const gpu_exec *g, int layer);
/* Bytes of FFN weights that the GPU read of active neurons in the last ubatch. */
uint64_t gpu_exec_sparse_bytes(const gpu_exec *g);

#endif
