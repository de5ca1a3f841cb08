/* powerinfer_session.h: sessions. Included by powerinfer.h.
 *
 * A session is one timeline of tokens: their keys and values in the KV cache, and the position. It
 * belongs to a context and is used by the thread that uses the context. Positions go from 0 to
 * length - 1 without gaps.
 *
 * Where a function below fails, the session is as it was, with one exception: when the GPU fails
 * while a KV cache is written, or there is no memory for the last step, it is empty afterwards. */
#ifndef POWERINFER_SESSION_H
#define POWERINFER_SESSION_H

#include <stddef.h>
#include <stdint.h>

#include "powerinfer_status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pi_session pi_session;
struct pi_context;

/* Room for n_ctx tokens (>= 1), allocated here and never again. PI_ERR_ARG, PI_ERR_NOMEM;
 * PI_ERR_LIMIT: more than the positions that the model has learned (OPT). */
PI_API pi_status pi_session_create(struct pi_context *context, int32_t n_ctx, pi_session **out,
                                   pi_error *err);
PI_API void pi_session_destroy(pi_session *session);
PI_API int32_t pi_session_length(const pi_session *session);   /* tokens fed so far */
PI_API int32_t pi_session_capacity(const pi_session *session); /* n_ctx */

/* ---- editing -------------------------------------------------------------------------------- */

/* Forgets everything after the first `length` tokens. PI_ERR_RANGE when length is not in
 * 0..pi_session_length. */
PI_API pi_status pi_session_rewind(pi_session *session, int32_t length, pi_error *err);

/* Removes tokens first .. end - 1 (end -1: all from `first` on) and moves those behind them to the
 * positions that become free: room in a full context without reading the rest again ("context
 * shift"). Their keys are rotated to the new positions, which rounds them once more when the cache
 * type is not F32. Tokens that were fed after the removed ones had seen them, and keep what they
 * took from them; only feeding them again would change that.
 * PI_ERR_RANGE: no such tokens; PI_ERR_UNSUPPORTED: tokens behind, in a model with learned
 * positions (OPT); PI_ERR_NOMEM; PI_ERR_DEVICE. */
PI_API pi_status pi_session_remove(pi_session *session, int32_t first, int32_t end, pi_error *err);

/* Replaces what is in `to` by the first `length` tokens of `from`, a session of the same context:
 * to try several continuations of one prompt. PI_ERR_ARG: another context; PI_ERR_RANGE: `from` is
 * shorter; PI_ERR_LIMIT: no room in `to`; PI_ERR_DEVICE. */
PI_API pi_status pi_session_copy(pi_session *to, const pi_session *from, int32_t length,
                                 pi_error *err);

/* ---- saving and loading --------------------------------------------------------------------- */

/* Writes the KV cache of the first n_tokens tokens to a file, which appears complete or not at all.
 * tokens: [n_tokens], the ones that were fed; they are saved with it. PI_ERR_RANGE when n_tokens is
 * not in 1..pi_session_length or an id is outside the vocabulary; PI_ERR_IO. */
PI_API pi_status pi_session_save(const pi_session *session, const char *path, const int32_t *tokens,
                                 int32_t n_tokens, pi_error *err);
/* Replaces what is in the session by what a file holds: its tokens, or as many of the first ones as
 * the session and `tokens` [capacity] have room for; *n_tokens is how many. The model must be the
 * same file and the cache types the same; context size, threads, kernels and device may differ.
 * PI_ERR_NOT_FOUND (no such file), PI_ERR_FORMAT (not a saved session, or a damaged one),
 * PI_ERR_UNSUPPORTED (other version, model or cache types), PI_ERR_IO. */
PI_API pi_status pi_session_load(pi_session *session, const char *path, int32_t *tokens,
                                 int32_t capacity, int32_t *n_tokens, pi_error *err);

/* The same in memory: exactly the bytes of that file. get_state always sets *n_bytes to what is
 * needed; PI_ERR_LIMIT when capacity is below it, so that a call with capacity 0 (and any data and
 * tokens, NULL too) asks for the size. */
PI_API pi_status pi_session_get_state(const pi_session *session, const int32_t *tokens,
                                      int32_t n_tokens, void *data, size_t capacity,
                                      size_t *n_bytes, pi_error *err);
PI_API pi_status pi_session_set_state(pi_session *session, const void *data, size_t n_bytes,
                                      int32_t *tokens, int32_t capacity, int32_t *n_tokens,
                                      pi_error *err);

#ifdef __cplusplus
}
#endif
#endif
