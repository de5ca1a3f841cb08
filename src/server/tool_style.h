/* tool_style.h: how a model writes calls of tools, found out from its chat template: a probe call
 * is rendered, and where its name and arguments stand tells how to read one. Where a template knows
 * no tools, or writes calls that cannot be read so (arguments as XML, say), tools are described in
 * a system message, with a form of their own. */
#ifndef SERVER_TOOL_STYLE_H
#define SERVER_TOOL_STYLE_H

#include "message.h"
#include "prompt.h"

typedef struct tool_style {
    call_format format; /* its texts are below */
    bool described;     /* tools are described in a message, not given to the template */
    bytes open, close, name_end, name_key, args_key; /* each NUL-terminated */
} tool_style;

/* A template that refuses the probe, too, makes it `described`. PI_ERR_NOMEM. */
pi_status tool_style_find(tool_style *t, const prompt_maker *p, pi_error *err);
void tool_style_free(tool_style *t); /* a zeroed one is fine */

#endif
