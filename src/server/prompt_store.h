/* prompt_store.h: KV states of prompts beyond those in the slots, in memory.
 *
 * A tree over token ids: a node has the keys and values of at most PROMPT_BLOCK tokens, which
 * follow those of its parent. Conversations with a common beginning share its nodes. Nodes with
 * fewer tokens are leaves. In models with recurrent layers, a prefix can be restored up to nodes
 * that also have the state of these layers. When the store is full, the least recently used leaves
 * are evicted. Only the scheduler's thread uses a store. */
#ifndef SERVER_PROMPT_STORE_H
#define SERVER_PROMPT_STORE_H

#include "powerinfer.h"

enum { PROMPT_BLOCK = 64 };

typedef struct prompt_store prompt_store;

typedef struct prompt_store_stats {
    uint64_t n_bytes, n_blocks;        /* now */
    uint64_t saved, restored, evicted; /* tokens, since the start */
} prompt_store_stats;

/* needs_state: the model has recurrent layers. NULL: out of memory. */
prompt_store *prompt_store_create(uint64_t max_bytes, bool needs_state);
void prompt_store_free(prompt_store *s); /* accepts NULL */

/* Returns the length of the longest prefix of `tokens` [n] that the store has for this owner, and
 * makes it the most recently used. */
int32_t prompt_store_find(prompt_store *s, const int32_t *tokens, int32_t n, int owner);
/* Saves what a session has of `tokens` [n], its text. Without memory the store saves less. */
void prompt_store_save(prompt_store *s, const pi_session *session, const int32_t *tokens, int32_t n,
                       int owner);
/* Extends the session to the prefix that prompt_store_find has returned, n tokens. The session
 * begins with `have` of them. Returns the session's new length: n; `have` or less after an error.
 */
int32_t prompt_store_restore(prompt_store *s, pi_session *session, int32_t have,
                             const int32_t *tokens, int32_t n, int owner);

prompt_store_stats prompt_store_get_stats(const prompt_store *s);

#endif
