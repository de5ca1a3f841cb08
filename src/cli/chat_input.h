/* chat_input.h: messages from a terminal, or from lines of standard input. On a terminal,
 * with libedit or on Windows, lines can be edited and have a history, and Tab completes commands
 * and the files of /save and /load. */
#ifndef CLI_CHAT_INPUT_H
#define CLI_CHAT_INPUT_H

#include "cli_text.h"

typedef struct chat_input chat_input;

typedef enum chat_event {
    CHAT_LINE,
    CHAT_INTERRUPT, /* Ctrl-C on an empty line; on other lines it clears the line */
    CHAT_END        /* end of the input: Ctrl-D */
} chat_event;

/* history: a file, created if missing; NULL or "": none. command: the i-th name that Tab completes
 * after a slash, at most CHAT_COMMAND_MAX bytes; NULL after the last one. */
enum { CHAT_COMMAND_MAX = 30 };
pi_status chat_input_create(const char *history, const char *(*command)(size_t i), chat_input **out,
                            pi_error *err);
void chat_input_free(chat_input *in); /* accepts NULL */
bool chat_input_is_terminal(const chat_input *in);

/* Reads the next message into `out`, without its last newline, NUL-terminated. On a terminal, a
 * line that ends with \ continues on the next one, and lines pasted together are one message. */
chat_event chat_input_read(chat_input *in, text_buffer *out);
/* Reads the answer to a question, on a terminal; it is not kept in the history, and Tab completes
 * files. */
chat_event chat_input_ask(chat_input *in, const char *question, text_buffer *out);
/* Whether Ctrl-C cleared a line while the last message was read. */
bool chat_input_was_cleared(const chat_input *in);
/* Puts text on the next line for editing. False: this terminal has no line editor. */
bool chat_input_prefill(chat_input *in, const char *text);

#endif
