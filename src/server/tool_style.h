/* tool_style.h: derives the form of a model's tool calls from its chat template. The template
 * renders a probe call; the places of its name and arguments show how to parse calls: arguments are
 * JSON, marked keys and values, or literals in brackets. If a template does not support tools, or
 * its calls cannot be parsed, the server describes the tools in a system message, with a form of
 * calls that the server defines. */
#ifndef SERVER_TOOL_STYLE_H
#define SERVER_TOOL_STYLE_H

#include "message.h"
#include "prompt.h"

typedef struct tool_style {
    call_format format;  /* its texts are stored below */
    bool described;      /* tools are described in a message instead of passed to the template */
    bool text_arguments; /* the template expects arguments as a JSON text, not as an object */
    bool null_content;   /* the template expects null as the content of an answer that only calls */
    bool named_ids;      /* the template takes names from ids: functions.NAME:0 */
    bool tool_responses; /* the template expects results in the message that calls */
    bool written;        /* the template shows tools, but no calls: calls are part of the content */
    /* the template needs descriptions and parameters of all tools, possibly empty */
    bool full_tools;
    call_pairs pairs; /* for names that stand before arguments; its texts are marks[n_marks] */
    bytes marks[16];
    int n_marks;
    bytes open, close, id_key, name_key, args_key; /* each NUL-terminated */
} tool_style;

/* If the template also refuses the probe, the style is `described`. PI_ERR_NOMEM. */
pi_status tool_style_find(tool_style *t, const prompt_maker *p, pi_error *err);
/* Appends the calls of a request in the style's form, for styles that bypass the template
 * (`described` or `written`). False: out of memory. */
bool tool_style_write(const tool_style *t, const json_node *calls, bytes *out);
void tool_style_free(tool_style *t); /* accepts a zeroed style */

#endif
