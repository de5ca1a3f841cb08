/* adapters.h: the LoRA adapters of --lora and --lora-scaled. */
#ifndef CLI_ADAPTERS_H
#define CLI_ADAPTERS_H

#include "options.h"

typedef struct cli_adapters {
    pi_adapter *items; /* [n] */
    size_t n;
    char *texts[OPTION_MAX_TEXTS]; /* copies of the values; paths point into them */
} cli_adapters;

/* Parses FILE, FILE:SCALE, lists of these, and a number, which is the scale of the adapter before
 * it
 * (`--lora-scaled FILE SCALE`). A value that names an existing file is a file, whatever characters
 * it has. PI_ERR_ARG, PI_ERR_NOMEM; the caller frees `out` also after an error. */
pi_status cli_adapters_parse(const option_texts *values, cli_adapters *out, pi_error *err);
void cli_adapters_free(cli_adapters *a);

#endif
