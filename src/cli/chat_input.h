/* chat_input.h: messages as they are typed, or lines of standard input. On a terminal by libedit,
 * where the program is built with it: lines can be edited, and earlier ones come back. */
#ifndef CLI_CHAT_INPUT_H
#define CLI_CHAT_INPUT_H

#include "cli_text.h"

typedef struct chat_input chat_input;

/* history: a file, made where it is missing; NULL or "": nothing is kept. */
pi_status chat_input_create(const char *history, chat_input **out, pi_error *err);
void chat_input_free(chat_input *in); /* NULL is fine */
bool chat_input_is_terminal(const chat_input *in);

/* The next message without its last newline, in `out`, NUL-terminated; false at the end of the
 * input. On a terminal a line that ends with \ goes on on the next one, and lines that are pasted
 * together are one message. */
bool chat_input_read(chat_input *in, text_buffer *out);
/* What the next line begins with, to be changed. Without libedit: false. */
bool chat_input_prefill(chat_input *in, const char *text);

#endif
