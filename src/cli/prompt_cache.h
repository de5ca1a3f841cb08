/* prompt_cache.h: --prompt-cache: the KV state of a prompt, saved in a file for the next run. */
#ifndef CLI_PROMPT_CACHE_H
#define CLI_PROMPT_CACHE_H

#include "cli.h"

typedef struct prompt_cache {
    const cli_options *options;
    int32_t n_reused;   /* tokens that came from the file */
    bool covers_prompt; /* the loaded file begins with the whole prompt */
} prompt_cache;

/* Loads the longest common prefix of the file and prompt[n_prompt] into the empty session, except
 * the last token of the prompt, which is evaluated for its logits. A missing file is no error; a
 * file that cannot be used is an error. */
pi_status prompt_cache_load(prompt_cache *c, const cli_options *o, pi_session *session,
                            const int32_t *prompt, int32_t n_prompt, pi_error *err);

/* Writes the file if the session has more tokens than the file. */
pi_status prompt_cache_save(const prompt_cache *c, const pi_session *session, const int32_t *prompt,
                            int32_t n_prompt, const int32_t *generated, pi_error *err);

#endif
