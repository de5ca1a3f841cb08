/* gpu_exec.h: the GPU's side of a context: its weights and buffers, the plan's GPU steps as
 * programs of the device, and the messages between both sides. Private to src/engine.
 *
 * A pass of few tokens is one recorded program, launched once: where it needs something from the
 * processor, a kernel polls a flag. A pass of many tokens, whose parts take longer than a kernel
 * may wait, is enqueued in segments: each ends before a RECEIVE, and the processor's SEND that
 * feeds it enqueues the next one. Either way the processor polls flags of the GPU's messages, and
 * both sides compute at the same time.
 *
 * Flags hold the number of the last pass that raised them (the epoch), so nothing is cleared.
 * Functions for passes are called by one thread at a time, those marked (any) by all. */
#ifndef ENGINE_GPU_EXEC_H
#define ENGINE_GPU_EXEC_H

#include "engine.h"

typedef struct hybrid hybrid;

/* Uploads the weights of the plan's GPU steps. PI_ERR_NOMEM, PI_ERR_DEVICE. */
pi_status hybrid_create(engine_context *c, const engine_options *options, hybrid **out,
                        pi_error *err);
void hybrid_destroy(hybrid *h); /* NULL is fine */
/* What hybrid_create would allocate: nothing is, and no device is needed. */
pi_status hybrid_size(const engine_context *c, engine_gpu_bytes *out, pi_error *err);

/* The part of a session's cache that is on the GPU; *out is NULL when no layer is. */
pi_status hybrid_kv_create(hybrid *h, int64_t n_ctx, void **out, pi_error *err);
void hybrid_kv_destroy(hybrid *h, void *kv); /* NULL is fine */
/* Copies positions [first, first + n) of a layer's keys or values, [n][n_head_kv][row bytes], from
 * or to the GPU. */
pi_status hybrid_kv_read(hybrid *h, const engine_session *s, int layer, bool values, int64_t first,
                         int64_t n, void *out, pi_error *err);
pi_status hybrid_kv_write(hybrid *h, engine_session *s, int layer, bool values, int64_t first,
                          int64_t n, const void *from, pi_error *err);
/* Copies the first n positions of all layers on the GPU from one session to another. */
pi_status hybrid_kv_copy(hybrid *h, engine_session *to, const engine_session *from, int64_t n,
                         pi_error *err);

/* Records the program of the pass that is set up in the context, if it has none yet; otherwise the
 * pass does so when it begins. */
void hybrid_record(hybrid *h, const engine_context *c);
/* Starts the GPU's part of the pass that is set up in the context. */
void hybrid_begin(hybrid *h, engine_context *c);
/* Waits until it is done; logits, when they are made there, are in the context's buffer. After a
 * pass that did not run to its end (`failed`) waits are ended by force. PI_ERR_DEVICE. */
pi_status hybrid_end(hybrid *h, engine_context *c, bool failed, pi_error *err);

bool hybrid_is_alive(const hybrid *h); /* the device can go on after an error */

/* Waits for message number `exchange` of the GPU; false when it does not come. */
bool hybrid_wait(hybrid *h, int exchange);
const float *hybrid_received(const hybrid *h); /* [n_tokens][n_embd] of the message */
float *hybrid_outgoing(const hybrid *h);       /* where the next message is put, likewise */
/* Message number `exchange` is complete. */
void hybrid_raise(hybrid *h, engine_context *c, int exchange);
/* (any) Candidates of a token among all neurons of a layer, as they came from the GPU. */
const uint32_t *hybrid_candidates(const hybrid *h, int layer, int64_t col);
/* (any) Where a token's candidates among the GPU's neurons are put. */
uint32_t *hybrid_chosen(const hybrid *h, int layer, int64_t col);

/* The first of the plan's GPU steps that found its input not finite in the last pass; -1: none. */
int hybrid_bad_step(const hybrid *h);
/* Bytes of feed-forward weights that the GPU read by need in the last pass. */
uint64_t hybrid_bytes_by_need(const hybrid *h);
/* Whether this pass leaves out the processor's part of layers whose home is the GPU. */
bool hybrid_streams_cold(const hybrid *h);

#endif
