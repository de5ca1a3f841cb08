/* prompt.h: converts the messages of a chat to the tokens of a prompt. Thread-safe once created. */
#ifndef SERVER_PROMPT_H
#define SERVER_PROMPT_H

#include "bytes.h"
#include "powerinfer.h"
#include "powerinfer_chat.h"

typedef struct prompt_maker {
    const pi_model *model;
    pi_chat_template *chat;
    /* the model has no template and none was chosen: `chat` is the plain template */
    bool is_fallback;
    char *bos, *eos; /* texts of these tokens; "" when absent */
    int32_t n_ctx;   /* maximum tokens of a prompt; 0: no limit */
    double deadline; /* clock_seconds() after which rendering stops; 0: none */
} prompt_maker;

/* The template is the one the options choose, else the model's, else PI_CHAT_TEMPLATE_PLAIN. */
pi_status prompt_maker_create(prompt_maker *p, const pi_model *model,
                              const pi_chat_template_options *options, pi_error *err);
void prompt_maker_free(prompt_maker *p); /* accepts a zeroed maker */

/* Appends the text that the template renders from `request` (JSON, as for pi_chat_template_render).
 * PI_ERR_ARG: the template refuses the request; PI_ERR_LIMIT: rendering exceeds a budget or the
 * deadline. */
pi_status prompt_render(const prompt_maker *p, const char *request, size_t n, bytes *out,
                        pi_error *err);

/* A text and its flags for pi_tokenize. */
typedef struct prompt_text {
    const char *text;
    size_t n;
    uint32_t flags;
    int32_t n_ctx; /* maximum tokens; 0: no limit */
} prompt_text;

/* Tokenizes a text. PI_ERR_LIMIT: far more tokens than n_ctx; this check takes no longer than texts
 * that fit. prompt_check finds texts slightly above n_ctx. Free *tokens with mem_free. */
pi_status prompt_tokens(const pi_model *model, const prompt_text *text, int32_t **tokens,
                        size_t *n_tokens, pi_error *err);
/* Returns the text and flags of a rendered prompt: control tokens are parsed, and BOS comes first
 * exactly once if the model requires BOS. */
prompt_text prompt_rendered(const prompt_maker *p, const bytes *rendered);
/* Reads the tokens of a prompt in a request: a string, or an array of ids and strings; `name` is
 * for messages. */
pi_status prompt_read(const prompt_maker *p, const json_node *prompt, const char *name,
                      int32_t **tokens, size_t *n_tokens, pi_error *err);
/* PI_ERR_LIMIT: more than n_ctx tokens; PI_ERR_ARG: no token, or one outside the vocabulary. */
pi_status prompt_check(const pi_model *model, const int32_t *tokens, size_t n, int32_t n_ctx,
                       pi_error *err);
/* Writes a token's text as it appears within a text, and returns its length; 0: no text, or longer
 * than `room`. */
size_t prompt_token_text(const pi_model *model, int32_t token, char *text, size_t room);

#endif
