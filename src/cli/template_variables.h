/* template_variables.h: the variables of a chat template that options set. */
#ifndef CLI_TEMPLATE_VARIABLES_H
#define CLI_TEMPLATE_VARIABLES_H

#include "options.h"

/* *out: a JSON object from --reasoning, --reasoning-budget, --reasoning-effort and
 * --chat-template-kwargs, whose members take precedence; mem_free; NULL: none of them was given.
 * Rendering the template reports kwargs that are not JSON. PI_ERR_ARG, PI_ERR_NOMEM. */
pi_status template_variables_create(const cli_options *o, char **out, pi_error *err);

#endif
