/* template.h: chat templates: Jinja2 as Hugging Face renders it (trim_blocks, lstrip_blocks, the
 * immutable sandbox, loop controls, `generation` blocks, raise_exception, strftime_now; tojson
 * neither escapes non-ASCII characters nor sorts keys).
 *
 *     source --lexer, parser--> template --evaluator, request--> text
 *
 * A template is immutable once parsed: any number of threads may render it at the same time. Each
 * rendering allocates from its own arena, which has a budget and is freed at the end.
 *
 * Errors use the wording of Jinja or Python and name the template's line; messages from
 * raise_exception are passed on unchanged. Builds without jansson have no requests to render. */
#ifndef TEMPLATE_TEMPLATE_H
#define TEMPLATE_TEMPLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "error.h"
#include "json.h"

typedef struct template_program template_program;

enum { TEMPLATE_MAX_BYTES = 4 << 20 }; /* bytes of source; published templates have up to 20 kB */

/* Budgets of one rendering; 0: the default. Every loop over a text, a list, the variables of a
 * scope or the parameters of a macro consumes steps, so `steps` bounds the time on any machine;
 * `seconds` bounds it where a caller waits. */
typedef struct template_limits {
    uint64_t steps;  /* expressions and statements, and one per 16 bytes they read */
    uint64_t memory; /* bytes of all values, including values no longer in use */
    uint64_t output; /* bytes */
    double seconds;  /* default: no limit */
} template_limits;

#define TEMPLATE_DEFAULT_STEPS  ((uint64_t)20000000)
#define TEMPLATE_DEFAULT_MEMORY ((uint64_t)512 << 20)
#define TEMPLATE_DEFAULT_OUTPUT ((uint64_t)64 << 20)

typedef struct template_input {
    /* A JSON object. The template sees its members messages, tools, documents,
     * add_generation_prompt and enable_thinking if present, and all members of
     * chat_template_kwargs, which take precedence. */
    const json_node *request;
    const char *bos, *eos; /* bos_token and eos_token, UTF-8; NULL: undefined */
    struct tm now;         /* the time for strftime_now */
    bool moves_system;     /* see template_drops_system */
    template_limits limits;
} template_input;

/* PI_ERR_FORMAT: not UTF-8, or a syntax error; PI_ERR_UNSUPPORTED: include, import and extends;
 * PI_ERR_LIMIT: too long or nested too deeply; PI_ERR_NOMEM. */
pi_status template_parse(const char *source, size_t n_bytes, template_program **out, pi_error *err);
void template_free(template_program *t); /* accepts NULL */

/* *text: n_bytes bytes and a NUL (free with mem_free). PI_ERR_ARG: the template refuses the request
 * (raise_exception), or the request is not an object; PI_ERR_FORMAT: an error in the template;
 * PI_ERR_LIMIT: a budget is exceeded; PI_ERR_NOMEM. */
pi_status template_render(const template_program *t, const template_input *input, char **text,
                          size_t *n_bytes, pi_error *err);

/* Whether the template refuses or drops system messages. With input.moves_system the template sees
 * no system messages: their texts start the next user message, or an additional user message at the
 * end. The request of `like` is not used. PI_ERR_LIMIT: rendering one message exceeds a budget;
 * PI_ERR_NOMEM. */
pi_status template_drops_system(const template_program *t, const template_input *like, bool *drops,
                                pi_error *err);

/* Templates of well-known formats, with llama.cpp's names. */
typedef struct template_builtin {
    const char *name, *source;
} template_builtin;

extern const template_builtin template_builtins[];
extern const size_t template_builtin_count;
const char *template_find_builtin(const char *name); /* the source; NULL: unknown name */

#endif
