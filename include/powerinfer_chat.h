/* powerinfer_chat.h: chat templates of an open model turn the messages of a conversation into a
 * prompt. pi_template of powerinfer_tools.h renders one request with the template of a file. */
#ifndef POWERINFER_CHAT_H
#define POWERINFER_CHAT_H

#include <stdbool.h>
#include <stddef.h>
#include <time.h>

#include "powerinfer_status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The built-in template for models without one: messages become the paragraphs of one text, which
 * the answer continues. */
#define PI_CHAT_TEMPLATE_PLAIN "plain"

typedef struct pi_chat_template pi_chat_template;
struct pi_model;

/* The template is `source`, or the built-in template `name`, or the model's own. A model with a
 * template for tools uses it for requests with tools. Everything is copied. */
typedef struct pi_chat_template_options {
    const char *source; /* Jinja, n_source bytes of UTF-8; NULL: none */
    size_t n_source;
    const char *name;      /* "chatml", "llama3", ... (pi_template_name); NULL: none */
    const char *bos, *eos; /* bos_token and eos_token; NULL: the model's, if there is one */
    double seconds;        /* time limit of one rendering; 0: none, only the budgets below */
} pi_chat_template_options;

/* Parses a template; options NULL: the model's. PI_ERR_NOT_FOUND: the model has no template, or
 * `name` is unknown; PI_ERR_FORMAT: an error in the template, with its line; PI_ERR_UNSUPPORTED:
 * include, import and extends; PI_ERR_LIMIT: the template is too long, or rendering one message
 * exceeds a budget; PI_ERR_NOMEM. */
PI_API pi_status pi_chat_template_create(const struct pi_model *model,
                                         const pi_chat_template_options *options,
                                         pi_chat_template **out, pi_error *err);
PI_API void pi_chat_template_free(pi_chat_template *t);
/* The Jinja source that is rendered for requests with or without tools, NUL-terminated; valid until
 * the template is freed. */
PI_API const char *pi_chat_template_source(const pi_chat_template *t, bool tools);

/* The prompt for a request (JSON: messages, tools, documents, add_generation_prompt,
 * enable_thinking, chat_template_kwargs): *n_text bytes and a NUL, which the caller gives to
 * pi_text_free. It contains control tokens as text: tokenize it with PI_TOKENIZE_SPECIAL, and
 * without PI_TOKENIZE_BOS if it begins with BOS. If the template refuses or drops system messages
 * (Gemma 2), they are prepended to the user's next message. now: the time for strftime_now; NULL:
 * the local time.
 * Thread-safe. Rendering has budgets of steps, memory, depth, output and time.
 * PI_ERR_ARG: the template refuses the request (the message is the template's); PI_ERR_FORMAT: an
 * error in the template or bad JSON; PI_ERR_LIMIT: a budget is exceeded; PI_ERR_UNSUPPORTED: built
 * without jansson; PI_ERR_NOMEM. */
PI_API pi_status pi_chat_template_render(const pi_chat_template *t, const char *request,
                                         size_t n_request, const struct tm *now, char **text,
                                         size_t *n_text, pi_error *err);
PI_API void pi_text_free(char *text); /* NULL is fine */

#ifdef __cplusplus
}
#endif
#endif
