/* prompt.h: from the messages of a chat to the tokens of a prompt. Thread-safe once created. */
#ifndef SERVER_PROMPT_H
#define SERVER_PROMPT_H

#include "bytes.h"
#include "powerinfer.h"
#include "powerinfer_chat.h"

typedef struct prompt_maker {
    const pi_model *model;
    pi_chat_template *chat;
    bool is_fallback; /* the model has no template, and none was chosen: `chat` is the plain one */
    char *bos, *eos;  /* texts of these tokens; "" where there is none */
    int32_t n_ctx;    /* tokens that a prompt may have; 0: any number */
    double deadline;  /* of clock_seconds(): nothing is rendered later; 0: none */
} prompt_maker;

/* options: a template that was chosen, or the model's, or else PI_CHAT_TEMPLATE_PLAIN. */
pi_status prompt_maker_create(prompt_maker *p, const pi_model *model,
                              const pi_chat_template_options *options, pi_error *err);
void prompt_maker_free(prompt_maker *p); /* a zeroed one is fine */

/* Appends the text that the template makes of `request` (JSON, as for pi_chat_template_render).
 * PI_ERR_ARG: the template refuses it; PI_ERR_LIMIT: it exceeds a budget or the deadline. */
pi_status prompt_render(const prompt_maker *p, const char *request, size_t n, bytes *out,
                        pi_error *err);

/* A text and the flags of pi_tokenize. */
typedef struct prompt_text {
    const char *text;
    size_t n;
    uint32_t flags;
    int32_t n_ctx; /* tokens that fit; 0: any number */
} prompt_text;

/* Tokens of any text. PI_ERR_LIMIT: far more than n_ctx, which takes no longer to find out than
 * texts that fit; prompt_check knows the others. *tokens: mem_free. */
pi_status prompt_tokens(const pi_model *model, const prompt_text *text, int32_t **tokens,
                        size_t *n_tokens, pi_error *err);
/* Those of a rendered prompt: control tokens count, and BOS comes first once where the model wants
 * it. */
prompt_text prompt_rendered(const prompt_maker *p, const bytes *rendered);
/* Tokens of a prompt in a request: a string, or an array of ids and strings; `name` for messages.
 */
pi_status prompt_read(const prompt_maker *p, const json_node *prompt, const char *name,
                      int32_t **tokens, size_t *n_tokens, pi_error *err);
/* PI_ERR_LIMIT: more than n_ctx tokens; PI_ERR_ARG: none, or one outside the vocabulary. */
pi_status prompt_check(const pi_model *model, const int32_t *tokens, size_t n, int32_t n_ctx,
                       pi_error *err);
/* Bytes of a token's text as it stands inside a text; 0 when it has none or more than `room`. */
size_t prompt_token_text(const pi_model *model, int32_t token, char *text, size_t room);

#endif
