/* tool_style.h: how a model writes calls of tools, found out from its chat template: a probe call
 * is rendered, and where its name and arguments stand tells how to read one: arguments are JSON,
 * marked keys and values, or literals in brackets. Where a template knows no tools, or writes calls
 * that cannot be read so, tools are described in a system message, with a form of their own. */
#ifndef SERVER_TOOL_STYLE_H
#define SERVER_TOOL_STYLE_H

#include "message.h"
#include "prompt.h"

typedef struct tool_style {
    call_format format;  /* its texts are below */
    bool described;      /* tools are described in a message, not given to the template */
    bool text_arguments; /* the template wants arguments as a JSON text, not as an object */
    bool null_content;   /* it wants null where an answer that calls has no content */
    bool named_ids;      /* it takes names from ids: functions.NAME:0 */
    bool tool_responses; /* it wants results in the message that calls */
    bool written;        /* it shows tools, but no calls: they are part of the content */
    bool full_tools;     /* it needs descriptions and parameters of all tools, if empty ones */
    call_pairs pairs;    /* where names stand before arguments; its texts are marks[n_marks] */
    bytes marks[16];
    int n_marks;
    bytes open, close, id_key, name_key, args_key; /* each NUL-terminated */
} tool_style;

/* A template that refuses the probe, too, makes it `described`. PI_ERR_NOMEM. */
pi_status tool_style_find(tool_style *t, const prompt_maker *p, pi_error *err);
/* Appends calls as a request has them in the style's own form, where they are no matter of the
 * template (`described` or `written`). False: out of memory. */
bool tool_style_write(const tool_style *t, const json_node *calls, bytes *out);
void tool_style_free(tool_style *t); /* a zeroed one is fine */

#endif
