/* tool_style.h: how a model writes calls of tools, found out from its chat template: a probe call
 * is rendered, and where its name and arguments stand tells how to read one: arguments are JSON, or
 * marked keys and values. Where a template knows no tools, or writes calls that cannot be read so,
 * tools are described in a system message, with a form of their own. */
#ifndef SERVER_TOOL_STYLE_H
#define SERVER_TOOL_STYLE_H

#include "message.h"
#include "prompt.h"

typedef struct tool_style {
    call_format format; /* its texts are below */
    bool described;     /* tools are described in a message, not given to the template */
    call_pairs pairs;   /* where arguments are no JSON; its texts are marks[n_marks] */
    bytes marks[12];
    int n_marks;
    bytes open, close, name_end, name_key, args_key; /* each NUL-terminated */
} tool_style;

/* A template that refuses the probe, too, makes it `described`. PI_ERR_NOMEM. */
pi_status tool_style_find(tool_style *t, const prompt_maker *p, pi_error *err);
void tool_style_free(tool_style *t); /* a zeroed one is fine */

#endif
