/* chat_history.h: a conversation: its messages, the request for the chat template, and the file in
 * which it is saved: JSON Lines, one message per line. */
#ifndef CLI_CHAT_HISTORY_H
#define CLI_CHAT_HISTORY_H

#include "cli_text.h"

typedef struct chat_message {
    const char *role;               /* "system", "user", "assistant" */
    text_buffer content, reasoning; /* also NUL-terminated; data is never NULL */
} chat_message;

typedef struct chat_history {
    chat_message *messages; /* [n]; a system message is the first one */
    size_t n, capacity;
} chat_history;

void chat_history_free(chat_history *t);
/* Copies the texts; `role` is a constant. */
pi_status chat_history_add(chat_history *t, const char *role, const text_buffer *content,
                           const text_buffer *reasoning, pi_error *err);
void chat_history_cut(chat_history *t, size_t n); /* keeps the first n messages */
size_t chat_history_first(const chat_history *t); /* 1 with a system message, else 0 */
/* The last message of a role; NULL: none. */
chat_message *chat_history_last(chat_history *t, const char *role);
/* Replaces the system message; an empty text removes it. */
pi_status chat_history_system(chat_history *t, const char *text, size_t n, pi_error *err);

/* Returns the request for the next answer as JSON (mem_free). variables: variables of the template,
 * a JSON object; NULL: none. */
pi_status chat_history_request(const chat_history *t, const char *variables, char **json, size_t *n,
                               pi_error *err);
pi_status chat_history_save(const chat_history *t, const char *path, pi_error *err);
/* Replaces the conversation; leaves it unchanged after an error. */
pi_status chat_history_load(chat_history *t, const char *path, pi_error *err);

#endif
