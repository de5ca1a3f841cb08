/* overrides.h: overrides of a model file's keys by the command line. */
#ifndef CLI_OVERRIDES_H
#define CLI_OVERRIDES_H

#include <stddef.h>

#include "options.h"
#include "powerinfer.h"

enum { CLI_KEY_BYTES = 128 }; /* maximum bytes of a key in --override-kv; llama.cpp's limit */

typedef struct cli_overrides {
    char (*keys)[CLI_KEY_BYTES];
    pi_metadata_override *items; /* [n]; texts belong to the options */
    size_t n;
} cli_overrides;

/* PI_ERR_ARG when an --override-kv is not of the form KEY=TYPE:VALUE. */
pi_status cli_overrides_check(const cli_options *o, pi_error *err);
/* Overrides by --rope-..., --yarn-... and --override-kv, which takes precedence for the same key.
 * Freed also after an error. */
pi_status cli_overrides_parse(const cli_options *o, cli_overrides *out, pi_error *err);
void cli_overrides_clear(cli_options *o); /* resets these options */
void cli_overrides_free(cli_overrides *overrides);

#endif
