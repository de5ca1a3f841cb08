/* powerinfer_session.h: sessions. Included by powerinfer.h.
 *
 * A session is one sequence of tokens: its KV cache and position. It belongs to a context and is
 * used by the thread that uses the context. Positions go from 0 to length - 1 without gaps.
 *
 * A function that fails leaves the session unchanged, with one exception: when the GPU fails while
 * the KV cache is written, or memory runs out in the last step, the session is empty afterwards. */
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

/* Allocates the KV cache for n_ctx tokens (>= 1); nothing is allocated later. PI_ERR_ARG,
 * PI_ERR_NOMEM; PI_ERR_LIMIT: more than the model's learned positions (OPT). */
PI_API pi_status pi_session_create(struct pi_context *context, int32_t n_ctx, pi_session **out,
                                   pi_error *err);
PI_API void pi_session_destroy(pi_session *session);
PI_API int32_t pi_session_length(const pi_session *session);   /* tokens in the KV cache */
PI_API int32_t pi_session_capacity(const pi_session *session); /* n_ctx */

/* ---- editing -------------------------------------------------------------------------------- */

/* Truncates to the first `length` tokens. PI_ERR_RANGE: length is not in 0..pi_session_length;
 * PI_ERR_UNSUPPORTED: recurrent layers have no snapshot there (see pi_session_rewind_point). */
PI_API pi_status pi_session_rewind(pi_session *session, int32_t length, pi_error *err);

/* The longest prefix of at most `length` tokens that the session can be rewound to, and that can be
 * copied and saved. That is `length` itself, within 0..pi_session_length, unless the model has
 * recurrent layers (LFM2, Mamba-2, Qwen3-Next ...): their state is known at 0, at the session's
 * length, before the last call of pi_forward and its drafts, and at a few snapshots: before the
 * last token of each of the last calls with several tokens, and every 256 generated tokens. */
PI_API int32_t pi_session_rewind_point(const pi_session *session, int32_t length);

/* Removes tokens [first, end) (end -1: to the end) and shifts the later ones down ("context
 * shift"), without a prefill of the rest. Their keys are rotated to the new positions, which rounds
 * them once more unless the cache type is F32. Later tokens were computed with the removed ones in
 * context; only evaluating them again would change that. PI_ERR_RANGE: no such tokens;
 * PI_ERR_UNSUPPORTED: later tokens, in a model with learned positions (OPT) or recurrent layers;
 * PI_ERR_NOMEM; PI_ERR_DEVICE. */
PI_API pi_status pi_session_remove(pi_session *session, int32_t first, int32_t end, pi_error *err);

/* Replaces the content of `to` with the first `length` tokens of `from`, a session of the same
 * context: to try several continuations of one prompt. PI_ERR_ARG: different contexts;
 * PI_ERR_RANGE: `from` is shorter; PI_ERR_LIMIT: `to` is too small; PI_ERR_UNSUPPORTED: `from`
 * cannot be rewound there; PI_ERR_DEVICE. */
PI_API pi_status pi_session_copy(pi_session *to, const pi_session *from, int32_t length,
                                 pi_error *err);

/* ---- saving and loading --------------------------------------------------------------------- */

/* Writes the KV state of the first n_tokens tokens to a file, which appears complete or not at all.
 * tokens: [n_tokens], the evaluated ids, which are saved with it. PI_ERR_RANGE: n_tokens is not in
 * 1..pi_session_length, or an id is outside the vocabulary; PI_ERR_UNSUPPORTED: the session cannot
 * be rewound there; PI_ERR_IO. */
PI_API pi_status pi_session_save(const pi_session *session, const char *path, const int32_t *tokens,
                                 int32_t n_tokens, pi_error *err);
/* Replaces the session's content with a saved state, truncated to what the session and `tokens`
 * [capacity] can hold; *n_tokens is the number loaded. Model file, overrides, adapters, FFN mode
 * (dense matches exact) and cache types must match; context, threads, device may differ.
 * PI_ERR_NOT_FOUND, PI_ERR_FORMAT (not a saved session, or damaged), PI_ERR_UNSUPPORTED (another
 * version, model, settings), PI_ERR_LIMIT (recurrent layers: it does not fit whole), PI_ERR_IO. */
PI_API pi_status pi_session_load(pi_session *session, const char *path, int32_t *tokens,
                                 int32_t capacity, int32_t *n_tokens, pi_error *err);

/* Saving and loading in memory: the bytes of the saved file. get_state always sets *n_bytes to the
 * size needed; PI_ERR_LIMIT: capacity is below it, so a call with capacity 0 (data and tokens
 * may be NULL) queries the size. */
PI_API pi_status pi_session_get_state(const pi_session *session, const int32_t *tokens,
                                      int32_t n_tokens, void *data, size_t capacity,
                                      size_t *n_bytes, pi_error *err);
PI_API pi_status pi_session_set_state(pi_session *session, const void *data, size_t n_bytes,
                                      int32_t *tokens, int32_t capacity, int32_t *n_tokens,
                                      pi_error *err);

/* ---- ranges of a state ---------------------------------------------------------------------- */

/* The state of a text in pieces, for caches in which many texts share their beginnings: keys and
 * values of ranges of tokens and, in models with recurrent layers, the state of these after the
 * last token. */

/* A hash of what the bytes depend on: model, overrides, adapters, modes, cache types; with LongRoPE
 * also the capacity. Sessions with equal ids can use each other's bytes, also those of other
 * processes on machines of equal byte order. */
PI_API uint64_t pi_session_state_id(const pi_session *session);

/* Bytes of keys and values of n_tokens tokens. */
PI_API size_t pi_session_range_bytes(const pi_session *session, int32_t n_tokens);
/* Bytes of the state of recurrent layers; 0: the model has none. */
PI_API size_t pi_session_recurrent_bytes(const pi_session *session);
/* Copies keys and values of tokens [first, first + n_tokens) to data [pi_session_range_bytes].
 * PI_ERR_RANGE: the session does not have these tokens; PI_ERR_NOMEM; PI_ERR_DEVICE. */
PI_API pi_status pi_session_get_range(const pi_session *session, int32_t first, int32_t n_tokens,
                                      void *data, pi_error *err);
/* Copies the state after `length` tokens to data [pi_session_recurrent_bytes]. PI_ERR_RANGE: length
 * is 0, or the session cannot be rewound to it; PI_ERR_DEVICE. */
PI_API pi_status pi_session_get_recurrent(const pi_session *session, int32_t length, void *data,
                                          pi_error *err);

typedef struct pi_session_range {
    const void *data; /* [pi_session_range_bytes(n_tokens)] */
    int32_t n_tokens; /* >= 0 */
} pi_session_range;

/* Puts ranges after the first `first` tokens of the session, whose later tokens are dropped.
 * tokens: ids of all ranges; recurrent: state after the last one, NULL in models without recurrent
 * layers. PI_ERR_RANGE: `first` is above the session's length, or there is no room; PI_ERR_ARG: the
 * recurrent state is missing. After PI_ERR_NOMEM and PI_ERR_DEVICE the session is empty. */
PI_API pi_status pi_session_put_ranges(pi_session *session, int32_t first,
                                       const pi_session_range *ranges, size_t n_ranges,
                                       const int32_t *tokens, const void *recurrent, pi_error *err);

#ifdef __cplusplus
}
#endif
#endif
