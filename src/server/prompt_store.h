/* prompt_store.h: KV states of prompts beyond those in the slots, in memory and in files.
 *
 * A tree over token ids: a node has the keys and values of at most PROMPT_BLOCK tokens, which
 * follow those of its parent. Conversations with a common beginning share its nodes. Nodes with
 * fewer tokens are leaves. In models with recurrent layers, a prefix can be restored up to nodes
 * that also have the state of these layers. When memory or the folder is full, the least recently
 * used leaves are evicted; what memory evicts stays in the folder. Only the scheduler's thread uses
 * a store. */
#ifndef SERVER_PROMPT_STORE_H
#define SERVER_PROMPT_STORE_H

#include "powerinfer.h"

typedef struct prompt_store prompt_store;

typedef struct prompt_store_options {
    uint64_t max_bytes;      /* in memory */
    const char *folder;      /* existing folder for files; NULL: none */
    uint64_t max_file_bytes; /* of this model in the folder */
} prompt_store_options;

typedef struct prompt_store_stats {
    uint64_t n_bytes, n_file_bytes, n_blocks; /* now */
    uint64_t saved, restored, evicted;        /* tokens, since the start */
} prompt_store_stats;

/* session: any of the sessions that will use the store. The store begins with the blocks of the
 * folder. PI_ERR_NOMEM, PI_ERR_IO. */
pi_status prompt_store_create(const prompt_store_options *options, const pi_session *session,
                              prompt_store **out, pi_error *err);
void prompt_store_free(prompt_store *s); /* keeps the files; accepts NULL */

/* Returns the length of the longest prefix of `tokens` [n] that the store has for this owner, and
 * makes it the most recently used. With a folder all texts have one owner. */
int32_t prompt_store_find(prompt_store *s, const int32_t *tokens, int32_t n, int owner);
/* Saves the states of a session for its text `tokens` [n]. If memory runs out, the store saves a
 * shorter prefix; a text that needs more than half of the store is not saved. */
void prompt_store_save(prompt_store *s, const pi_session *session, const int32_t *tokens, int32_t n,
                       int owner);
/* n: the result of prompt_store_find for these tokens. The session already holds the first `have`
 * of them. Returns its new length: n, or less if a save has evicted the end; at most `have` after
 * an error. */
int32_t prompt_store_restore(prompt_store *s, pi_session *session, int32_t have,
                             const int32_t *tokens, int32_t n, int owner);

prompt_store_stats prompt_store_get_stats(const prompt_store *s);

#endif
