/* chat_view.h: a streamed answer: separates reasoning from the answer and shows both. */
#ifndef CLI_CHAT_VIEW_H
#define CLI_CHAT_VIEW_H

#include "cli_text.h"
#include "word_wrap.h"

typedef struct chat_view {
    /* in */
    bool show;      /* write to `wrap.out` */
    word_wrap wrap; /* on a terminal reasoning is dimmed */
    /* out */
    text_buffer answer, reasoning; /* also NUL-terminated */
    pi_status status;              /* PI_OK, or PI_ERR_NOMEM */
    /* private */
    text_buffer held; /* may be the beginning of a mark */
    int mark;         /* index of the mark of open reasoning; -1: none */
    bool dimmed, began;
} chat_view;

/* Reasoning is already open when the prompt ends with its mark, which some templates write. */
void chat_view_begin(chat_view *v, const char *prompt, size_t n_prompt);
/* The `write` of a generation; user: the view. */
void chat_view_put(void *user, const char *text, size_t n);
void chat_view_end(chat_view *v);
void chat_view_free(chat_view *v);

#endif
