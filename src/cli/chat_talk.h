/* chat_talk.h: a conversation: its messages, the request that a chat template makes a prompt of,
 * and the file it is kept in: JSON Lines, one message a line. */
#ifndef CLI_CHAT_TALK_H
#define CLI_CHAT_TALK_H

#include "cli_text.h"

typedef struct chat_message {
    const char *role;               /* "system", "user", "assistant" */
    text_buffer content, reasoning; /* NUL-terminated too; data is never NULL */
} chat_message;

typedef struct chat_talk {
    chat_message *messages; /* [n]; a system message is the first one */
    size_t n, capacity;
} chat_talk;

void chat_talk_free(chat_talk *t);
/* Copies the texts; `role` is a constant. */
pi_status chat_talk_add(chat_talk *t, const char *role, const text_buffer *content,
                        const text_buffer *reasoning, pi_error *err);
void chat_talk_cut(chat_talk *t, size_t n); /* keeps the first n messages */
size_t chat_talk_first(const chat_talk *t); /* 1 with a system message, else 0 */
/* The last message of a role; NULL: none. */
chat_message *chat_talk_last(chat_talk *t, const char *role);
/* In place of the system message; an empty one takes it away. */
pi_status chat_talk_system(chat_talk *t, const char *text, size_t n, pi_error *err);

/* The request for the next answer, JSON (mem_free). variables: of the template, a JSON object;
 * NULL: none. */
pi_status chat_talk_request(const chat_talk *t, const char *variables, char **json, size_t *n,
                            pi_error *err);
pi_status chat_talk_save(const chat_talk *t, const char *path, pi_error *err);
/* Replaces the conversation, or leaves it as it is and says why. */
pi_status chat_talk_load(chat_talk *t, const char *path, pi_error *err);

#endif
