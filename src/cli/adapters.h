/* adapters.h: the LoRA adapters of --lora and --lora-scaled. */
#ifndef CLI_ADAPTERS_H
#define CLI_ADAPTERS_H

#include "options.h"

typedef struct cli_adapters {
    pi_adapter *items; /* [n] */
    size_t n;
    char *texts[OPTION_MAX_TEXTS]; /* what their paths point into */
} cli_adapters;

/* FILE, FILE:SCALE, lists of these, and a number, which is the scale of the one before it
 * (`--lora-scaled FILE SCALE`). A whole value that names an existing file is a file, whatever
 * characters it has. PI_ERR_ARG, PI_ERR_NOMEM; the caller frees it in every case. */
pi_status cli_adapters_parse(const option_texts *values, cli_adapters *out, pi_error *err);
void cli_adapters_free(cli_adapters *a);

#endif
